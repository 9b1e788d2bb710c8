package atoll.store;

import atoll.core.ApiKey;
import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.KeyId;
import atoll.core.Page;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.SnapshotId;
import atoll.core.event.Event;
import atoll.core.event.EventQuery;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.process.ProcessQuery;
import atoll.core.process.ProcessRecord;
import atoll.core.sandbox.Context;
import atoll.core.sandbox.Run;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.store.IdempotencyClaim;
import atoll.core.store.Store;
import atoll.core.store.StoredKey;
import atoll.core.store.StoredSession;
import atoll.core.template.Build;
import atoll.core.template.StoredRegistry;
import atoll.core.template.StoredTemplate;
import atoll.core.template.TemplateUsage;
import atoll.core.template.TemplateVersion;
import atoll.core.text.SearchText;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.stream.Collectors;
import org.flywaydb.core.Flyway;

/** The store on SQLite or PostgreSQL, with the same SQL: one connection writes (see {@link Writer}), a few read. */
public final class SqlStore implements Store {
    /** Some thousand records, and what the engine writes of a few sandboxes besides. */
    private static final long RESERVE_BYTES = 8 << 20;

    private static final int READERS = 4;

    private final Writer writer;
    private final BlockingQueue<Sql> readers = new ArrayBlockingQueue<>(READERS);
    private final PendingRows<ExecutionId, ExecutionRecord> executionsPending;
    private final PendingRows<ProcessId, ProcessRecord> processesPending;
    /** Used by the writer only. */
    private long lastEvent;

    private interface Connecting {
        Connection connect() throws SQLException;
    }

    private SqlStore(Dialect dialect, Reserve reserve, Connecting connecting) throws SQLException {
        writer = new Writer(dialect, new Sql(connecting.connect()), reserve);
        executionsPending = new PendingRows<>(writer, ExecutionRows::save);
        processesPending = new PendingRows<>(writer, ProcessRows::save);
        for (int i = 0; i < READERS; i++) {
            readers.add(new Sql(connecting.connect()));
        }
        lastEvent = read(sql -> sql.first(row -> row.number("last"), "select max(event_id) as last from events"))
                .orElse(0L);
        writer.start();
    }

    /** The store in one file, which is made if it is not there. */
    public static SqlStore sqlite(Path file) {
        String url = "jdbc:sqlite:" + file.toAbsolutePath();
        Reserve reserve = Reserve.of(file.resolveSibling(file.getFileName() + ".reserve"), RESERVE_BYTES);
        return open(Dialect.SQLITE, url, "", "", reserve, () -> {
            Connection connection = DriverManager.getConnection(url);
            Dialect.execute(connection, "pragma journal_mode = wal");
            Dialect.execute(connection, "pragma synchronous = normal");
            Dialect.execute(connection, "pragma busy_timeout = 10000");
            Dialect.execute(connection, "pragma foreign_keys = on");
            return connection;
        });
    }

    /** The store in a PostgreSQL database of its own. */
    public static SqlStore postgresql(String url, String user, String password) {
        return open(
                Dialect.POSTGRESQL,
                url,
                user,
                password,
                Reserve.NONE,
                () -> DriverManager.getConnection(url, user, password));
    }

    private static SqlStore open(
            Dialect dialect, String url, String user, String password, Reserve reserve, Connecting connecting) {
        try {
            int applied = Flyway.configure()
                    .dataSource(url, user, password)
                    .locations("classpath:atoll/store/migrations")
                    .load()
                    .migrate()
                    .migrationsExecuted;
            System.getLogger(SqlStore.class.getName())
                    .log(System.Logger.Level.DEBUG, "store: " + applied + " migrations applied");
            return new SqlStore(dialect, reserve, connecting);
        } catch (SQLException e) {
            throw AtollException.internal("the store could not be opened: " + url, e);
        }
    }

    private <T> T read(Writer.Work<T> work) {
        Sql reader;
        try {
            reader = readers.take();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw AtollException.internal("interrupted while waiting for the store", e);
        }
        try {
            return work.run(reader);
        } catch (SQLException e) {
            throw AtollException.internal("the store could not read", e);
        } finally {
            readers.add(reader);
        }
    }

    /** Reads what is written, and what was to be written later before this call. */
    private <T> T readAll(Writer.Work<T> work) {
        writer.flush();
        return read(work);
    }

    @Override
    public long nextEpoch(String node, long seen) {
        return writer.write(sql -> {
            long last = sql.first(row -> row.number("epoch"), "select epoch from node_epochs where node = ?", node)
                    .orElse(0L);
            long next = Math.max(last, seen) + 1;
            sql.update(
                    "insert into node_epochs (node, epoch) values (?, ?)"
                            + " on conflict (node) do update set epoch = excluded.epoch",
                    node,
                    next);
            return next;
        });
    }

    @Override
    public void insertKey(StoredKey key) {
        writer.write(sql -> sql.update(
                "insert into api_keys (key_id, project_id, name, hash, shown_prefix, scopes, created_at, expires_at)"
                        + " values (?, ?, ?, ?, ?, ?, ?, ?)",
                key.id(),
                key.project(),
                key.name(),
                key.hash(),
                key.shownPrefix(),
                key.scopes().stream().map(Scope::name).sorted().collect(Collectors.joining(",")),
                key.createdAt(),
                key.expiresAt()));
    }

    @Override
    public Optional<StoredKey> keyByHash(String hash) {
        return read(sql -> sql.first(SqlStore::key, "select * from api_keys where hash = ?", hash));
    }

    @Override
    public Optional<StoredKey> key(KeyId id) {
        return read(sql -> sql.first(SqlStore::key, "select * from api_keys where key_id = ?", id));
    }

    private static StoredKey key(Row row) throws SQLException {
        return new StoredKey(
                KeyId.parse(row.text("key_id")),
                new ProjectId(row.text("project_id")),
                row.text("name"),
                row.text("hash"),
                row.text("shown_prefix"),
                KeyRows.scopes(row),
                row.time("created_at"),
                row.optionalTime("expires_at"));
    }

    @Override
    public void insertSession(StoredSession session) {
        writer.write(sql -> sql.update(
                "insert into sessions (hash, key_id, created_at, expires_at) values (?, ?, ?, ?)",
                session.hash(),
                session.key(),
                session.createdAt(),
                session.expiresAt()));
    }

    @Override
    public Optional<StoredSession> sessionByHash(String hash) {
        return read(sql -> sql.first(
                row -> new StoredSession(
                        row.text("hash"),
                        KeyId.parse(row.text("key_id")),
                        row.time("created_at"),
                        row.time("expires_at")),
                "select * from sessions where hash = ?",
                hash));
    }

    @Override
    public void removeSession(String hash) {
        writer.write(sql -> sql.update("delete from sessions where hash = ?", hash));
    }

    @Override
    public void removeSessions(Instant expiredBy) {
        writer.write(sql -> sql.update("delete from sessions where expires_at <= ?", expiredBy));
    }

    @Override
    public void keyUsedLater(KeyId key, Instant at) {
        later(sql -> sql.update("update api_keys set last_used_at = ? where key_id = ?", at, key));
    }

    @Override
    public List<ApiKey> keys(ProjectId project) {
        return readAll(sql -> KeyRows.of(sql, project));
    }

    @Override
    public void removeKey(ProjectId project, KeyId key) {
        writer.write(sql -> sql.update("delete from api_keys where project_id = ? and key_id = ?", project, key));
    }

    private void later(Writer.Work<Integer> work) {
        writer.writeLater(sql -> work.run(sql) >= 0, () -> {});
    }

    @Override
    public void insertSandbox(Sandbox sandbox, Run run, List<Context> contexts) {
        boolean done = writer.write(sql -> {
            SandboxRows.insert(sql, sandbox, run);
            for (Context context : contexts) {
                ContextRows.insert(sql, context);
            }
            return true;
        });
        assert done;
    }

    @Override
    public void updateSandbox(Sandbox sandbox) {
        updateSandbox(sandbox, List.of());
    }

    @Override
    public void updateSandbox(Sandbox sandbox, List<Run> runs) {
        writer.write(sql -> SandboxRows.update(sql, sandbox, runs));
    }

    @Override
    public void updateSandboxLater(Sandbox sandbox) {
        later(sql -> SandboxRows.update(sql, sandbox, List.of()));
    }

    @Override
    public void reviseSandbox(Sandbox sandbox) {
        writer.write(sql -> SandboxRows.revise(sql, sandbox));
    }

    @Override
    public Optional<Sandbox> sandbox(SandboxId id) {
        return readAll(sql -> sql.first(SandboxRows::map, "select * from sandboxes where sandbox_id = ?", id));
    }

    @Override
    public Page<Sandbox> sandboxes(ProjectId project, SandboxQuery query) {
        Select select = new Select("sandboxes", "sandbox_id", "*").where("project_id = ?", project);
        if (!query.states().isEmpty()) {
            // As many marks as there are states, which callers have no say in.
            String marks = String.join(", ", Collections.nCopies(query.states().size(), "?"));
            select.where(
                    "state in (" + marks + ")",
                    query.states().stream().map(SandboxState::name).toArray());
        }
        query.template().ifPresent(template -> select.where("template = ?", template));
        query.name().ifPresent(name -> select.where("name = ?", name));
        query.labels()
                .forEach((name, value) -> select.where(
                        "sandbox_id in (select sandbox_id from sandbox_labels where project_id = ? and name = ?"
                                + " and value = ?)",
                        project,
                        name,
                        value));
        Optional<SearchText> text = query.text();
        if (text.isPresent()) {
            return readAll(sql -> select.search(sql, query.page(), SandboxRows.search(text.get())));
        }
        return readAll(sql ->
                select.page(sql, query.page(), SandboxRows::map, s -> new Cursor(s.createdAt(), s.id().toString())));
    }

    @Override
    public List<Sandbox> liveSandboxes() {
        return readAll(sql -> sql.query(
                SandboxRows::map, "select * from sandboxes where state <> 'ENDED' order by created_at, sandbox_id"));
    }

    @Override
    public long endedSandboxes(ProjectId project) {
        return readAll(sql -> sql.first(
                        row -> row.number("n"),
                        "select count(*) as n from sandboxes where project_id = ? and state = 'ENDED'",
                        project)
                .orElse(0L));
    }

    @Override
    public List<Run> runs(SandboxId id) {
        return readAll(sql -> SandboxRows.runs(sql, id));
    }

    @Override
    public void insertContextLater(Context context) {
        later(sql -> ContextRows.insert(sql, context));
    }

    @Override
    public void closeContextLater(ContextId id, Instant at) {
        later(sql -> sql.update("update contexts set closed_at = ? where context_id = ?", at, id));
    }

    @Override
    public List<Context> contexts(SandboxId id) {
        return readAll(sql -> ContextRows.of(sql, id));
    }

    @Override
    public void saveExecutionLater(ExecutionRecord execution, Runnable whenDurable) {
        executionsPending.saveLater(execution.id(), execution, whenDurable);
    }

    @Override
    public Optional<ExecutionRecord> execution(ExecutionId id) {
        return executionsPending.find(id, () -> read(sql -> ExecutionRows.find(sql, id)));
    }

    @Override
    public Page<ExecutionRecord> executions(ProjectId project, ExecutionQuery query) {
        Select select =
                new Select("executions", "execution_id", ExecutionRows.LISTED_COLUMNS).where("project_id = ?", project);
        query.sandboxId().ifPresent(sandbox -> select.where("sandbox_id = ?", sandbox));
        query.contextId().ifPresent(context -> select.where("context_id = ?", context));
        // Not as a value: an index is of those that run alone.
        query.running().ifPresent(running -> select.where(running ? "running = 1" : "running = 0"));
        query.span().from().ifPresent(from -> select.where("created_at >= ?", from));
        query.span().until().ifPresent(until -> select.where("created_at < ?", until));
        if (!query.wanted().isAny()) {
            return readAll(sql -> select.search(sql, query.page(), ExecutionRows.search(query.wanted())));
        }
        return readAll(sql -> select.page(
                sql, query.page(), ExecutionRows::mapListed, e -> new Cursor(e.createdAt(), e.id().toString())));
    }

    @Override
    public List<ExecutionRecord> runningExecutions() {
        return readAll(sql -> ExecutionRows.running(sql));
    }

    @Override
    public void saveProcessLater(ProcessRecord process, Runnable whenDurable) {
        processesPending.saveLater(process.id(), process, whenDurable);
    }

    @Override
    public void removeProcessLater(ProcessId id) {
        processesPending.removeLater(id, sql -> ProcessRows.remove(sql, id));
    }

    @Override
    public Optional<ProcessRecord> process(ProcessId id) {
        return processesPending.find(id, () -> read(sql -> ProcessRows.find(sql, id)));
    }

    @Override
    public Page<ProcessRecord> processes(ProjectId project, ProcessQuery query) {
        Select select = new Select("processes", "process_id", "*").where("project_id = ?", project);
        query.sandboxId().ifPresent(sandbox -> select.where("sandbox_id = ?", sandbox));
        query.running().ifPresent(running -> select.where("running = ?", running));
        query.labels()
                .forEach((name, value) -> select.where(
                        "process_id in (select process_id from process_labels where project_id = ? and name = ?"
                                + " and value = ?)",
                        project,
                        name,
                        value));
        return readAll(sql ->
                select.page(sql, query.page(), ProcessRows::map, p -> new Cursor(p.createdAt(), p.id().toString())));
    }

    @Override
    public List<ProcessRecord> runningProcesses() {
        return readAll(sql -> ProcessRows.running(sql));
    }

    @Override
    public void saveUsageLater(List<UsageSample> samples) {
        later(sql -> UsageRows.insert(sql, samples));
    }

    @Override
    public Page<UsageSample> usage(SandboxId sandbox, UsageQuery query) {
        return readAll(sql -> UsageRows.page(sql, sandbox, query));
    }

    @Override
    public List<ProcessId> removeProcesses(Instant oldest, long keep, int limit) {
        return writer.write(sql -> ProcessRows.removeEnded(sql, oldest, keep, limit));
    }

    @Override
    public int removeUsage(Instant oldest) {
        return writer.write(sql -> sql.update("delete from usage_samples where at < ?", oldest));
    }

    @Override
    public void insertSnapshot(Snapshot snapshot) {
        writer.write(sql -> SnapshotRows.insert(sql, snapshot));
    }

    @Override
    public void updateSnapshot(Snapshot snapshot) {
        writer.write(sql -> SnapshotRows.update(sql, snapshot));
    }

    @Override
    public Optional<Snapshot> snapshot(SnapshotId id) {
        return readAll(sql -> SnapshotRows.find(sql, id));
    }

    @Override
    public Optional<Snapshot> snapshotByName(ProjectId project, String name) {
        return readAll(sql -> SnapshotRows.named(sql, project, name));
    }

    @Override
    public Page<Snapshot> snapshots(ProjectId project, SnapshotQuery query) {
        Select select = new Select("snapshots", "snapshot_id", "*").where("project_id = ?", project);
        query.sandbox().ifPresent(sandbox -> select.where("sandbox_id = ?", sandbox));
        query.kind().ifPresent(kind -> select.where("kind = ?", kind.name()));
        query.name().ifPresent(name -> select.where("name = ?", name));
        query.labels()
                .forEach((name, value) -> select.where(
                        "snapshot_id in (select snapshot_id from snapshot_labels where project_id = ? and name = ?"
                                + " and value = ?)",
                        project,
                        name,
                        value));
        return readAll(sql ->
                select.page(sql, query.page(), SnapshotRows::map, s -> new Cursor(s.createdAt(), s.id().toString())));
    }

    @Override
    public List<Snapshot> liveSnapshots() {
        return readAll(SnapshotRows::live);
    }

    @Override
    public void removeSnapshot(SnapshotId id) {
        writer.write(sql -> SnapshotRows.remove(sql, id));
    }

    @Override
    public List<StoredTemplate> templates() {
        return readAll(TemplateRows::templates);
    }

    @Override
    public List<TemplateVersion> templateVersions() {
        return readAll(sql -> sql.query(
                TemplateRows::version, "select * from template_versions order by project_id, template_id, version"));
    }

    @Override
    public Optional<TemplateVersion> templateVersion(ProjectId project, String template, int version) {
        return readAll(sql -> sql.first(
                TemplateRows::version,
                "select * from template_versions where project_id = ? and template_id = ? and version = ?",
                project,
                template,
                version));
    }

    @Override
    public Map<Integer, Instant> templateVersionTimes(ProjectId project, String template) {
        return readAll(sql -> TemplateRows.versionTimes(sql, project, template));
    }

    @Override
    public void saveTemplate(StoredTemplate template, Optional<TemplateVersion> version) {
        writer.write(sql -> TemplateRows.save(sql, template, version));
    }

    @Override
    public void removeTemplate(ProjectId project, String template, boolean keepRecord) {
        writer.write(sql -> TemplateRows.remove(sql, project, template, keepRecord));
    }

    @Override
    public Map<String, String> templateImages() {
        return readAll(TemplateRows::images);
    }

    @Override
    public void saveTemplateImage(String imageKey, String digest, Instant at) {
        writer.write(sql -> sql.update(
                "insert into template_images (image_key, digest, made_at) values (?, ?, ?)"
                        + " on conflict (image_key) do update set digest = excluded.digest, made_at = excluded.made_at",
                imageKey,
                digest,
                at));
    }

    @Override
    public Optional<String> defaultTemplate(ProjectId project) {
        return readAll(sql -> sql.first(
                row -> row.text("template_id"), "select * from template_defaults where project_id = ?", project));
    }

    @Override
    public void saveDefaultTemplate(ProjectId project, String template) {
        writer.write(sql -> sql.update(
                "insert into template_defaults (project_id, template_id) values (?, ?)"
                        + " on conflict (project_id) do update set template_id = excluded.template_id",
                project,
                template));
    }

    @Override
    public Map<String, TemplateUsage> templateUsage(ProjectId project) {
        return readAll(sql -> TemplateRows.usage(sql, project));
    }

    @Override
    public void addTemplateUsageLater(ProjectId project, String template, long executions, Instant lastUsedAt) {
        later(sql -> {
            int total = sql.update(
                    "insert into project_totals (project_id, executions) values (?, ?)"
                            + " on conflict (project_id) do update set"
                            + " executions = project_totals.executions + excluded.executions",
                    project,
                    executions);
            return total
                    + sql.update(
                            "insert into template_usage (project_id, template_id, executions, last_used_at)"
                                    + " values (?, ?, ?, ?) on conflict (project_id, template_id) do update set"
                                    + " executions = template_usage.executions + excluded.executions,"
                                    + " last_used_at = excluded.last_used_at",
                            project,
                            template,
                            executions,
                            lastUsedAt);
        });
    }

    @Override
    public Map<ProjectId, Long> executionTotals() {
        return readAll(sql -> sql
                .query(
                        row -> Map.entry(new ProjectId(row.text("project_id")), row.number("executions")),
                        "select project_id, executions from project_totals")
                .stream()
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue)));
    }

    @Override
    public void saveBuild(Build build) {
        writer.write(sql -> TemplateRows.save(sql, build));
    }

    @Override
    public Optional<Build> build(BuildId id) {
        return readAll(sql -> sql.first(TemplateRows::build, "select * from builds where build_id = ?", id));
    }

    @Override
    public List<Build> builds(ProjectId project, String template, int most) {
        return readAll(sql -> sql.query(
                TemplateRows::build,
                "select * from builds where project_id = ? and template_id = ?"
                        + " order by created_at desc, build_id desc limit ?",
                project,
                template,
                most));
    }

    @Override
    public List<Build> lastBuilds(ProjectId project) {
        return readAll(sql -> sql.query(
                TemplateRows::build,
                "select * from builds b where project_id = ? and not exists (select 1 from builds n"
                        + " where n.project_id = b.project_id and n.template_id = b.template_id"
                        + " and (n.created_at > b.created_at"
                        + " or (n.created_at = b.created_at and n.build_id > b.build_id)))",
                project));
    }

    @Override
    public List<Build> unfinishedBuilds() {
        return readAll(sql -> sql.query(
                TemplateRows::build, "select * from builds where state in ('QUEUED', 'BUILDING') order by created_at"));
    }

    @Override
    public List<BuildId> removeBuilds(Instant oldest, int keep) {
        return writer.write(sql -> TemplateRows.removeBuilds(sql, oldest, keep));
    }

    @Override
    public List<StoredRegistry> registries(ProjectId project) {
        return readAll(sql -> sql.query(
                TemplateRows::registry, "select * from registries where project_id = ? order by host", project));
    }

    @Override
    public void saveRegistry(StoredRegistry registry) {
        writer.write(sql -> sql.update(
                "insert into registries (project_id, host, username, sealed_password, updated_at)"
                        + " values (?, ?, ?, ?, ?) on conflict (project_id, host) do update set"
                        + " username = excluded.username, sealed_password = excluded.sealed_password,"
                        + " updated_at = excluded.updated_at",
                registry.project(),
                registry.host(),
                registry.username(),
                registry.sealedPassword(),
                registry.updatedAt()));
    }

    @Override
    public void removeRegistry(ProjectId project, String host) {
        writer.write(sql -> sql.update("delete from registries where project_id = ? and host = ?", project, host));
    }

    @Override
    public IdempotencyClaim claim(ProjectId project, IdempotencyClaim claim, Instant now) {
        return writer.write(sql -> {
            sql.update(
                    "insert into idempotency_keys (project_id, operation, idempotency_key, request_hash, result_id,"
                            + " created_at) values (?, ?, ?, ?, ?, ?) on conflict do nothing",
                    project,
                    claim.operation(),
                    claim.key(),
                    claim.requestHash(),
                    claim.resultId(),
                    now);
            return sql.first(
                            row -> new IdempotencyClaim(
                                    row.text("operation"),
                                    row.text("idempotency_key"),
                                    row.text("request_hash"),
                                    row.text("result_id")),
                            "select * from idempotency_keys where project_id = ? and operation = ?"
                                    + " and idempotency_key = ?",
                            project,
                            claim.operation(),
                            claim.key())
                    .orElse(claim);
        });
    }

    @Override
    public void appendEventLater(Event event) {
        later(sql -> {
            lastEvent++;
            return sql.update(
                    "insert into events (event_id, project_id, at, kind, subject, detail) values (?, ?, ?, ?, ?, ?)",
                    lastEvent,
                    event.project(),
                    event.at(),
                    event.kind(),
                    event.subject(),
                    event.detail());
        });
    }

    @Override
    public Page<Event> events(ProjectId project, EventQuery query) {
        return readAll(sql -> EventRows.page(sql, project, query));
    }

    @Override
    public List<ExecutionId> removeExecutions(Instant oldest, long keep, int limit) {
        return writer.write(sql -> {
            List<ExecutionId> ids = new ArrayList<>(ExecutionRows.endedBefore(sql, oldest, limit));
            long above = ExecutionRows.count(sql) - ids.size() - keep;
            if (above > 0 && ids.size() < limit) {
                ExecutionRows.oldestEnded(sql, limit).stream()
                        .filter(id -> !ids.contains(id))
                        .limit(Math.min(above, limit - ids.size()))
                        .forEach(ids::add);
            }
            for (ExecutionId id : ids) {
                sql.update("delete from executions where execution_id = ?", id);
            }
            return List.copyOf(ids);
        });
    }

    @Override
    public int removeEnded(Instant oldest, int limit) {
        return writer.write(sql -> {
            int sandboxes = sql.update(
                    "delete from sandboxes where sandbox_id in (select sandbox_id from sandboxes"
                            + " where state = 'ENDED' and ended_at < ? order by ended_at limit ?)",
                    oldest,
                    limit);
            sql.update("delete from snapshots where state = 'LOST' and created_at < ?", oldest);
            sql.update("delete from events where at < ?", oldest);
            sql.update("delete from idempotency_keys where created_at < ?", oldest);
            return sandboxes;
        });
    }

    @Override
    public void flush() {
        writer.flush();
    }

    @Override
    public void close() {
        writer.close();
        List<Sql> open = new ArrayList<>();
        readers.drainTo(open);
        for (Sql reader : open) {
            try {
                reader.close();
            } catch (SQLException e) {
                System.getLogger(SqlStore.class.getName())
                        .log(System.Logger.Level.WARNING, "a connection of the store could not be closed", e);
            }
        }
    }
}

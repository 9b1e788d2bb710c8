package atoll.core.testing;

import atoll.core.ApiKey;
import atoll.core.AtollException;
import atoll.core.BuildId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.KeyId;
import atoll.core.Page;
import atoll.core.PageRequest;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
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
import atoll.core.snapshot.SnapshotState;
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
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.Function;

/** A store in memory. Everything is written at once. */
public final class MemoryStore implements Store {
    private final Map<String, Long> epochs = new HashMap<>();
    private final Map<String, StoredKey> keys = new HashMap<>();
    private final Map<String, StoredSession> sessions = new HashMap<>();
    private final Map<KeyId, Instant> keyUses = new HashMap<>();
    private final Map<ProjectId, Long> executionTotals = new HashMap<>();
    private final Map<SandboxId, Sandbox> sandboxes = new LinkedHashMap<>();
    private final Map<RunId, Run> runs = new LinkedHashMap<>();
    private final Map<SnapshotId, Snapshot> snapshots = new LinkedHashMap<>();
    private final List<Context> contexts = new ArrayList<>();
    private final Map<ExecutionId, ExecutionRecord> executions = new LinkedHashMap<>();
    private final Map<String, IdempotencyClaim> claims = new HashMap<>();
    private final Map<String, Instant> claimTimes = new HashMap<>();
    private final List<Event> events = new ArrayList<>();
    private long lastEvent;
    private final Map<ProcessId, ProcessRecord> processes = new LinkedHashMap<>();
    private final List<UsageSample> usage = new ArrayList<>();

    private record Named(ProjectId project, String template) {}

    private final Map<Named, StoredTemplate> templates = new LinkedHashMap<>();
    private final List<TemplateVersion> versions = new ArrayList<>();
    private final Map<String, String> templateImages = new HashMap<>();
    private final Map<ProjectId, String> defaultTemplates = new HashMap<>();
    private final Map<Named, TemplateUsage> templateUsage = new HashMap<>();
    private final Map<BuildId, Build> builds = new LinkedHashMap<>();
    private final Map<ProjectId, Map<String, StoredRegistry>> registries = new HashMap<>();

    @Override
    public synchronized long nextEpoch(String node, long seen) {
        return epochs.merge(node, Math.max(epochs.getOrDefault(node, 0L), seen) + 1, Math::max);
    }

    @Override
    public synchronized void insertKey(StoredKey key) {
        keys.put(key.hash(), key);
    }

    @Override
    public synchronized Optional<StoredKey> keyByHash(String hash) {
        return Optional.ofNullable(keys.get(hash));
    }

    @Override
    public synchronized Optional<StoredKey> key(KeyId id) {
        return keys.values().stream().filter(key -> key.id().equals(id)).findFirst();
    }

    @Override
    public synchronized void insertSession(StoredSession session) {
        sessions.put(session.hash(), session);
    }

    @Override
    public synchronized Optional<StoredSession> sessionByHash(String hash) {
        return Optional.ofNullable(sessions.get(hash));
    }

    @Override
    public synchronized void removeSession(String hash) {
        sessions.remove(hash);
    }

    @Override
    public synchronized void removeSessions(Instant expiredBy) {
        sessions.values().removeIf(session -> !session.expiresAt().isAfter(expiredBy));
    }

    @Override
    public synchronized void keyUsedLater(KeyId key, Instant at) {
        keyUses.put(key, at);
    }

    @Override
    public synchronized List<ApiKey> keys(ProjectId project) {
        return keys.values().stream()
                .filter(key -> key.project().equals(project))
                .map(key -> new ApiKey(
                        key.id(),
                        key.project(),
                        key.name(),
                        key.shownPrefix(),
                        key.scopes(),
                        key.createdAt(),
                        key.expiresAt(),
                        Optional.ofNullable(keyUses.get(key.id()))))
                .sorted(Comparator.comparing(ApiKey::createdAt)
                        .thenComparing(key -> key.id().toString())
                        .reversed())
                .toList();
    }

    @Override
    public synchronized void removeKey(ProjectId project, KeyId id) {
        keys.values().removeIf(key -> key.project().equals(project) && key.id().equals(id));
    }

    @Override
    public synchronized long endedSandboxes(ProjectId project) {
        return sandboxes.values().stream()
                .filter(s -> s.project().equals(project) && s.state() == SandboxState.ENDED)
                .count();
    }

    @Override
    public synchronized Map<ProjectId, Long> executionTotals() {
        return Map.copyOf(executionTotals);
    }

    @Override
    public synchronized void insertSandbox(Sandbox sandbox, Run run, List<Context> first) {
        requireFree(sandbox);
        sandboxes.put(sandbox.id(), sandbox);
        runs.put(run.id(), run);
        contexts.addAll(first);
    }

    private void requireFree(Sandbox sandbox) {
        boolean taken = sandbox.name().isPresent()
                && sandboxes.values().stream()
                        .anyMatch(there -> there.state() != SandboxState.ENDED
                                && !there.id().equals(sandbox.id())
                                && there.project().equals(sandbox.project())
                                && there.name().equals(sandbox.name()));
        if (taken) {
            throw AtollException.internal("two live sandboxes named " + sandbox.name(), null);
        }
    }

    @Override
    public void updateSandbox(Sandbox sandbox) {
        updateSandbox(sandbox, List.of());
    }

    @Override
    public synchronized void updateSandbox(Sandbox sandbox, List<Run> changed) {
        Sandbox there = sandboxes.get(sandbox.id());
        if (there == null || there.state() == SandboxState.ENDED) {
            return;
        }
        requireFree(sandbox);
        sandboxes.put(sandbox.id(), sandbox);
        changed.forEach(run -> runs.put(run.id(), run));
        sandbox.end()
                .ifPresent(end -> runs.computeIfPresent(
                        sandbox.run(),
                        (_, run) -> run.end().isPresent()
                                ? run
                                : run.ended(
                                        new Run.End(end.reason().text(), end.detail(), end.at(), Optional.empty()))));
    }

    @Override
    public void updateSandboxLater(Sandbox sandbox) {
        updateSandbox(sandbox);
    }

    @Override
    public void reviseSandbox(Sandbox sandbox) {
        updateSandbox(sandbox);
    }

    @Override
    public synchronized Optional<Sandbox> sandbox(SandboxId id) {
        return Optional.ofNullable(sandboxes.get(id));
    }

    @Override
    public synchronized Page<Sandbox> sandboxes(ProjectId project, SandboxQuery query) {
        List<Sandbox> found = sandboxes.values().stream()
                .filter(s -> s.project().equals(project))
                .filter(s -> query.states().isEmpty() || query.states().contains(s.state()))
                .filter(s -> query.template().map(s.template()::equals).orElse(true))
                .filter(s -> query.name().isEmpty() || query.name().equals(s.name()))
                .filter(s -> s.labels().entrySet().containsAll(query.labels().entrySet()))
                .filter(s -> query.text().map(text -> isIn(s, text)).orElse(true))
                .toList();
        return page(found, query.page(), Sandbox::createdAt, s -> s.id().toString());
    }

    private static boolean isIn(Sandbox sandbox, SearchText text) {
        var where = new ArrayList<String>();
        where.add(sandbox.id().toString());
        where.add(sandbox.template());
        sandbox.name().ifPresent(where::add);
        sandbox.labels().forEach((name, value) -> where.add(name + "=" + value));
        sandbox.end().ifPresent(end -> {
            where.add(end.reason().text());
            where.add(end.detail());
        });
        return where.stream().anyMatch(text::isIn);
    }

    private static <T> Page<T> page(
            List<T> found, PageRequest page, Function<T, Instant> time, Function<T, String> id) {
        List<T> sorted = found.stream()
                .sorted(Comparator.comparing(time).thenComparing(id).reversed())
                .toList();
        int from = 0;
        if (page.cursor().isPresent()) {
            while (from < sorted.size()
                    && !id.apply(sorted.get(from)).equals(page.cursor().get())) {
                from++;
            }
            from++;
        }
        int to = Math.min(sorted.size(), from + page.limit());
        List<T> items = sorted.subList(Math.min(from, to), to);
        return new Page<>(items, to < sorted.size() ? Optional.of(id.apply(items.getLast())) : Optional.empty());
    }

    @Override
    public synchronized List<Sandbox> liveSandboxes() {
        return sandboxes.values().stream()
                .filter(s -> s.state() != SandboxState.ENDED)
                .toList();
    }

    @Override
    public synchronized List<Run> runs(SandboxId id) {
        return runs.values().stream()
                .filter(run -> run.sandboxId().equals(id))
                .sorted(Comparator.comparing(Run::startedAt))
                .toList();
    }

    @Override
    public synchronized void insertContextLater(Context context) {
        contexts.add(context);
    }

    @Override
    public synchronized void closeContextLater(ContextId id, Instant at) {
        contexts.removeIf(context -> context.id().equals(id));
    }

    @Override
    public synchronized List<Context> contexts(SandboxId id) {
        return contexts.stream().filter(c -> c.sandboxId().equals(id)).toList();
    }

    @Override
    public void saveExecutionLater(ExecutionRecord execution, Runnable whenDurable) {
        synchronized (this) {
            executions.put(execution.id(), execution);
        }
        whenDurable.run();
    }

    @Override
    public synchronized Optional<ExecutionRecord> execution(ExecutionId id) {
        return Optional.ofNullable(executions.get(id));
    }

    private boolean takes(ExecutionQuery.Wanted wanted, ExecutionRecord e) {
        return wanted.language().map(e.language()::equals).orElse(true)
                && (wanted.reasons().isEmpty()
                        || e.outcome()
                                .filter(o -> wanted.reasons().contains(o.exitReason()))
                                .isPresent())
                && wanted.template()
                        .map(template -> Optional.ofNullable(sandboxes.get(e.sandboxId()))
                                .filter(sandbox -> sandbox.template().equals(template))
                                .isPresent())
                        .orElse(true)
                && wanted.text()
                        .map(text -> text.isIn(e.code())
                                || e.outcome()
                                        .filter(o -> text.isIn(o.output().text()))
                                        .isPresent())
                        .orElse(true);
    }

    @Override
    public synchronized Page<ExecutionRecord> executions(ProjectId project, ExecutionQuery query) {
        List<ExecutionRecord> found = executions.values().stream()
                .filter(e -> e.project().equals(project))
                .filter(e -> query.sandboxId().map(e.sandboxId()::equals).orElse(true))
                .filter(e -> query.contextId().map(e.contextId()::equals).orElse(true))
                .filter(e ->
                        query.running().map(r -> r == e.outcome().isEmpty()).orElse(true))
                .filter(e -> query.span().holds(e.createdAt()))
                .filter(e -> takes(query.wanted(), e))
                .map(ExecutionRecord::listed)
                .toList();
        return page(found, query.page(), ExecutionRecord::createdAt, e -> e.id().toString());
    }

    @Override
    public synchronized List<ExecutionRecord> runningExecutions() {
        return executions.values().stream().filter(e -> e.outcome().isEmpty()).toList();
    }

    @Override
    public void saveProcessLater(ProcessRecord process, Runnable whenDurable) {
        synchronized (this) {
            processes.put(process.id(), process);
        }
        whenDurable.run();
    }

    @Override
    public synchronized void removeProcessLater(ProcessId id) {
        processes.remove(id);
    }

    @Override
    public synchronized Optional<ProcessRecord> process(ProcessId id) {
        return Optional.ofNullable(processes.get(id));
    }

    @Override
    public synchronized Page<ProcessRecord> processes(ProjectId project, ProcessQuery query) {
        List<ProcessRecord> found = processes.values().stream()
                .filter(p -> p.project().equals(project))
                .filter(p -> query.sandboxId().map(p.sandboxId()::equals).orElse(true))
                .filter(p -> query.running().map(r -> r == p.running()).orElse(true))
                .filter(p -> p.labels().entrySet().containsAll(query.labels().entrySet()))
                .toList();
        return page(found, query.page(), ProcessRecord::createdAt, p -> p.id().toString());
    }

    @Override
    public synchronized List<ProcessRecord> runningProcesses() {
        return processes.values().stream().filter(ProcessRecord::running).toList();
    }

    @Override
    public synchronized void saveUsageLater(List<UsageSample> samples) {
        usage.addAll(samples);
    }

    @Override
    public synchronized Page<UsageSample> usage(SandboxId sandbox, UsageQuery query) {
        List<UsageSample> found = usage.stream()
                .filter(s -> s.sandboxId().equals(sandbox))
                .filter(s -> query.from().map(from -> !s.at().isBefore(from)).orElse(true))
                .filter(s -> query.to().map(to -> !s.at().isAfter(to)).orElse(true))
                .filter(s -> query.page()
                        .cursor()
                        .map(cursor -> s.at().isAfter(Instant.parse(cursor)))
                        .orElse(true))
                .sorted(Comparator.comparing(UsageSample::at))
                .toList();
        int limit = query.page().limit();
        return found.size() <= limit
                ? new Page<>(found, Optional.empty())
                : new Page<>(
                        found.subList(0, limit),
                        Optional.of(found.get(limit - 1).at().toString()));
    }

    @Override
    public synchronized List<ProcessId> removeProcesses(Instant oldest, long keep, int limit) {
        List<ProcessRecord> ended = processes.values().stream()
                .filter(p -> !p.running())
                .sorted(Comparator.comparing(ProcessRecord::createdAt))
                .toList();
        List<ProcessId> removed = new ArrayList<>();
        for (ProcessRecord record : ended) {
            boolean old = record.createdAt().isBefore(oldest) || processes.size() > keep;
            if (old && removed.size() < limit) {
                processes.remove(record.id());
                removed.add(record.id());
            }
        }
        return removed;
    }

    @Override
    public synchronized int removeUsage(Instant oldest) {
        int before = usage.size();
        usage.removeIf(sample -> sample.at().isBefore(oldest));
        return before - usage.size();
    }

    @Override
    public synchronized void insertSnapshot(Snapshot snapshot) {
        requireFree(snapshot);
        snapshots.put(snapshot.id(), snapshot);
    }

    private void requireFree(Snapshot snapshot) {
        if (snapshot.name().isPresent()
                && snapshot.state() != SnapshotState.LOST
                && snapshotByName(snapshot.project(), snapshot.name().get())
                        .filter(there -> !there.id().equals(snapshot.id()))
                        .isPresent()) {
            throw AtollException.internal("two snapshots named " + snapshot.name(), null);
        }
    }

    @Override
    public synchronized void updateSnapshot(Snapshot snapshot) {
        if (snapshots.containsKey(snapshot.id())) {
            requireFree(snapshot);
            snapshots.put(snapshot.id(), snapshot);
        }
    }

    @Override
    public synchronized Optional<Snapshot> snapshot(SnapshotId id) {
        return Optional.ofNullable(snapshots.get(id));
    }

    @Override
    public synchronized Optional<Snapshot> snapshotByName(ProjectId project, String name) {
        return snapshots.values().stream()
                .filter(s -> s.project().equals(project) && s.state() != SnapshotState.LOST)
                .filter(s -> s.name().equals(Optional.of(name)))
                .findFirst();
    }

    @Override
    public synchronized Page<Snapshot> snapshots(ProjectId project, SnapshotQuery query) {
        List<Snapshot> found = snapshots.values().stream()
                .filter(s -> s.project().equals(project))
                .filter(s -> query.sandbox().isEmpty() || query.sandbox().equals(s.sandbox()))
                .filter(s -> query.kind().map(s.kind()::equals).orElse(true))
                .filter(s -> query.name().isEmpty() || query.name().equals(s.name()))
                .filter(s -> s.labels().entrySet().containsAll(query.labels().entrySet()))
                .toList();
        return page(found, query.page(), Snapshot::createdAt, s -> s.id().toString());
    }

    @Override
    public synchronized List<Snapshot> liveSnapshots() {
        return snapshots.values().stream()
                .filter(s -> s.state() != SnapshotState.LOST)
                .toList();
    }

    @Override
    public synchronized void removeSnapshot(SnapshotId id) {
        snapshots.remove(id);
    }

    @Override
    public synchronized IdempotencyClaim claim(ProjectId project, IdempotencyClaim claim, Instant now) {
        String key = project + "\n" + claim.operation() + "\n" + claim.key();
        claimTimes.putIfAbsent(key, now);
        IdempotencyClaim there = claims.putIfAbsent(key, claim);
        return there == null ? claim : there;
    }

    @Override
    public synchronized void appendEventLater(Event e) {
        events.add(new Event(++lastEvent, e.project(), e.at(), e.kind(), e.subject(), e.detail()));
    }

    @Override
    public synchronized Page<Event> events(ProjectId project, EventQuery query) {
        boolean forward = query.order() == EventQuery.Order.OLDEST_FIRST;
        List<Event> all = forward ? events : events.reversed();
        List<Event> found = all.stream()
                .filter(e -> e.project().equals(project))
                .filter(e -> query.subject().map(e.subject()::equals).orElse(true))
                .filter(e -> query.kinds().isEmpty() || query.kinds().contains(e.kind()))
                .filter(e -> query.after()
                        .map(after -> forward ? e.cursor() > after : e.cursor() < after)
                        .orElse(true))
                .limit(query.page().limit() + 1L)
                .toList();
        return found.size() <= query.page().limit()
                ? new Page<>(found, Optional.empty())
                : new Page<>(
                        found.subList(0, query.page().limit()),
                        Optional.of(Long.toString(
                                found.get(query.page().limit() - 1).cursor())));
    }

    @Override
    public synchronized List<ExecutionId> removeExecutions(Instant oldest, long keep, int limit) {
        List<ExecutionRecord> ended = executions.values().stream()
                .filter(e -> e.outcome().isPresent())
                .sorted(Comparator.comparing(ExecutionRecord::createdAt))
                .toList();
        List<ExecutionId> removed = new ArrayList<>();
        for (ExecutionRecord record : ended) {
            boolean old = record.createdAt().isBefore(oldest) || executions.size() > keep;
            if (old && removed.size() < limit) {
                executions.remove(record.id());
                removed.add(record.id());
            }
        }
        return removed;
    }

    @Override
    public synchronized int removeEnded(Instant oldest, int limit) {
        List<SandboxId> gone = sandboxes.values().stream()
                .filter(s -> s.end().map(end -> end.at().isBefore(oldest)).orElse(false))
                .map(Sandbox::id)
                .limit(limit)
                .toList();
        gone.forEach(sandboxes::remove);
        runs.values().removeIf(run -> gone.contains(run.sandboxId()));
        snapshots
                .values()
                .removeIf(s -> s.state() == SnapshotState.LOST && s.createdAt().isBefore(oldest));
        contexts.removeIf(c -> gone.contains(c.sandboxId()));
        events.removeIf(e -> e.at().isBefore(oldest));
        claims.keySet().removeIf(key -> claimTimes.getOrDefault(key, oldest).isBefore(oldest));
        claimTimes.values().removeIf(at -> at.isBefore(oldest));
        return gone.size();
    }

    @Override
    public void flush() {}

    @Override
    public void close() {}

    @Override
    public synchronized List<StoredTemplate> templates() {
        return List.copyOf(templates.values());
    }

    @Override
    public synchronized List<TemplateVersion> templateVersions() {
        return List.copyOf(versions);
    }

    @Override
    public synchronized Optional<TemplateVersion> templateVersion(ProjectId project, String template, int version) {
        return versions.stream()
                .filter(one ->
                        one.project().equals(project) && one.template().equals(template) && one.version() == version)
                .findFirst();
    }

    @Override
    public synchronized Map<Integer, Instant> templateVersionTimes(ProjectId project, String template) {
        Map<Integer, Instant> times = new HashMap<>();
        versions.stream()
                .filter(one -> one.project().equals(project) && one.template().equals(template))
                .forEach(one -> times.put(one.version(), one.createdAt()));
        return times;
    }

    @Override
    public synchronized void saveTemplate(StoredTemplate template, Optional<TemplateVersion> version) {
        templates.put(new Named(template.project(), template.id()), template);
        version.ifPresent(versions::add);
    }

    @Override
    public synchronized void removeTemplate(ProjectId project, String template, boolean keepRecord) {
        Named named = new Named(project, template);
        if (!keepRecord) {
            templates.remove(named);
        }
        versions.removeIf(one -> one.project().equals(project) && one.template().equals(template));
        builds.values()
                .removeIf(one -> one.project().equals(project) && one.template().equals(template));
        templateUsage.remove(named);
    }

    @Override
    public synchronized Map<String, String> templateImages() {
        return Map.copyOf(templateImages);
    }

    @Override
    public synchronized void saveTemplateImage(String imageKey, String digest, Instant at) {
        templateImages.put(imageKey, digest);
    }

    @Override
    public synchronized Optional<String> defaultTemplate(ProjectId project) {
        return Optional.ofNullable(defaultTemplates.get(project));
    }

    @Override
    public synchronized void saveDefaultTemplate(ProjectId project, String template) {
        defaultTemplates.put(project, template);
    }

    @Override
    public synchronized Map<String, TemplateUsage> templateUsage(ProjectId project) {
        Map<String, TemplateUsage> found = new HashMap<>();
        templateUsage.forEach((named, used) -> {
            if (named.project().equals(project)) {
                found.put(named.template(), used);
            }
        });
        return found;
    }

    @Override
    public synchronized void addTemplateUsageLater(
            ProjectId project, String template, long executions, Instant lastUsedAt) {
        executionTotals.merge(project, executions, Long::sum);
        templateUsage.merge(
                new Named(project, template),
                new TemplateUsage(executions, Optional.of(lastUsedAt)),
                (old, more) -> new TemplateUsage(old.executions() + more.executions(), more.lastUsedAt()));
    }

    @Override
    public synchronized void saveBuild(Build build) {
        builds.put(build.id(), build);
    }

    @Override
    public synchronized Optional<Build> build(BuildId id) {
        return Optional.ofNullable(builds.get(id));
    }

    private static final Comparator<Build> NEWEST_BUILD = Comparator.comparing(Build::createdAt)
            .thenComparing(build -> build.id().toString())
            .reversed();

    @Override
    public synchronized List<Build> builds(ProjectId project, String template, int most) {
        return builds.values().stream()
                .filter(build ->
                        build.project().equals(project) && build.template().equals(template))
                .sorted(NEWEST_BUILD)
                .limit(most)
                .toList();
    }

    @Override
    public synchronized List<Build> lastBuilds(ProjectId project) {
        Map<String, Build> last = new LinkedHashMap<>();
        builds.values().stream()
                .filter(build -> build.project().equals(project))
                .sorted(NEWEST_BUILD.reversed())
                .forEach(build -> last.put(build.template(), build));
        return List.copyOf(last.values());
    }

    @Override
    public synchronized List<Build> unfinishedBuilds() {
        return builds.values().stream().filter(build -> !build.state().isOver()).toList();
    }

    @Override
    public synchronized List<BuildId> removeBuilds(Instant oldest, int keep) {
        List<BuildId> gone = new ArrayList<>();
        for (Build build : builds.values()) {
            long newer = builds.values().stream()
                    .filter(other -> other.project().equals(build.project())
                            && other.template().equals(build.template())
                            && NEWEST_BUILD.compare(other, build) < 0)
                    .count();
            if (build.state().isOver() && (build.createdAt().isBefore(oldest) || newer >= keep)) {
                gone.add(build.id());
            }
        }
        gone.forEach(builds::remove);
        return gone;
    }

    @Override
    public synchronized List<StoredRegistry> registries(ProjectId project) {
        return List.copyOf(registries.getOrDefault(project, new TreeMap<>()).values());
    }

    @Override
    public synchronized void saveRegistry(StoredRegistry registry) {
        registries.computeIfAbsent(registry.project(), _ -> new TreeMap<>()).put(registry.host(), registry);
    }

    @Override
    public synchronized void removeRegistry(ProjectId project, String host) {
        registries.getOrDefault(project, new TreeMap<>()).remove(host);
    }
}

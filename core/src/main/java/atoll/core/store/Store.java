package atoll.core.store;

import atoll.core.ApiKey;
import atoll.core.BuildId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.KeyId;
import atoll.core.Page;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
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
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.template.Build;
import atoll.core.template.StoredRegistry;
import atoll.core.template.StoredTemplate;
import atoll.core.template.TemplateUsage;
import atoll.core.template.TemplateVersion;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What must outlive the server. Calls are durable when they return, but for those named {@code …Later}: they return at once, are
 * written in batches and in order, and every read here sees them. When more is waiting to be written than the store wants to hold,
 * they wait.
 */
public interface Store extends AutoCloseable {
    /** An epoch greater than any given before, and greater than {@code seen}. */
    long nextEpoch(String node, long seen);

    void insertKey(StoredKey key);

    Optional<StoredKey> keyByHash(String hash);

    Optional<StoredKey> key(KeyId id);

    void keyUsedLater(KeyId key, Instant at);

    /** Those of a project, the newest first. */
    List<ApiKey> keys(ProjectId project);

    /** Nothing happens if it is not there. */
    void removeKey(ProjectId project, KeyId key);

    void insertSession(StoredSession session);

    /** Also one that has expired. */
    Optional<StoredSession> sessionByHash(String hash);

    void removeSession(String hash);

    /** Removes those that had expired by then. */
    void removeSessions(Instant expiredBy);

    /** Stores a new sandbox with its first run, and the contexts that it has already. */
    void insertSandbox(Sandbox sandbox, Run run, List<Context> contexts);

    /** The same for one that was started, with its first context if it has one already. */
    default void insertSandbox(Sandbox sandbox, Optional<Context> context) {
        insertSandbox(
                sandbox, Run.first(sandbox, Run.How.START), context.stream().toList());
    }

    /** Stores where it is in its life; with an end, that of its run too. Nothing happens if it has ended. */
    void updateSandbox(Sandbox sandbox);

    /** The same with a step from one run to the next: those given are inserted or replaced with it, or none of it is stored. */
    void updateSandbox(Sandbox sandbox, List<Run> runs);

    void updateSandboxLater(Sandbox sandbox);

    /** Stores its limits, labels, name and agreement; nothing happens if it has ended. */
    void reviseSandbox(Sandbox sandbox);

    Optional<Sandbox> sandbox(SandboxId id);

    /** Newest first. */
    Page<Sandbox> sandboxes(ProjectId project, SandboxQuery query);

    /** Those of all projects that have not ended. */
    List<Sandbox> liveSandboxes();

    /** How many ended ones are on record. */
    long endedSandboxes(ProjectId project);

    /** The runs of a sandbox, the oldest first. */
    List<Run> runs(SandboxId id);

    void insertContextLater(Context context);

    /** It is left out of {@link #contexts} from now on. */
    void closeContextLater(ContextId id, Instant at);

    /** Those that were not closed, the oldest first. */
    List<Context> contexts(SandboxId id);

    /** Inserts or replaces; {@code whenDurable} runs on the store's writer and must not wait for anything. */
    void saveExecutionLater(ExecutionRecord execution, Runnable whenDurable);

    Optional<ExecutionRecord> execution(ExecutionId id);

    /** Newest first; each as {@link ExecutionRecord#listed} gives it. */
    Page<ExecutionRecord> executions(ProjectId project, ExecutionQuery query);

    /** Those of all projects whose end is not on record. */
    List<ExecutionRecord> runningExecutions();

    /** Inserts or replaces; {@code whenDurable} runs on the store's writer and must not wait for anything. */
    void saveProcessLater(ProcessRecord process, Runnable whenDurable);

    /** One that never came to be. */
    void removeProcessLater(ProcessId id);

    Optional<ProcessRecord> process(ProcessId id);

    /** Newest first. */
    Page<ProcessRecord> processes(ProjectId project, ProcessQuery query);

    /** Those of all projects whose end is not on record. */
    List<ProcessRecord> runningProcesses();

    void saveUsageLater(List<UsageSample> samples);

    /** The oldest first. */
    Page<UsageSample> usage(SandboxId sandbox, UsageQuery query);

    void insertSnapshot(Snapshot snapshot);

    /** Stores its state, name, labels and times; nothing happens if it is not on record any more. */
    void updateSnapshot(Snapshot snapshot);

    Optional<Snapshot> snapshot(SnapshotId id);

    /** Of those that are not lost. */
    Optional<Snapshot> snapshotByName(ProjectId project, String name);

    /** Newest first. */
    Page<Snapshot> snapshots(ProjectId project, SnapshotQuery query);

    /** Those of all projects that are not lost. */
    List<Snapshot> liveSnapshots();

    void removeSnapshot(SnapshotId id);

    // Templates.

    /** Those of all projects, deleted ones too. */
    List<StoredTemplate> templates();

    /** All versions of all templates. */
    List<TemplateVersion> templateVersions();

    Optional<TemplateVersion> templateVersion(ProjectId project, String template, int version);

    /** When each version was made. */
    Map<Integer, Instant> templateVersionTimes(ProjectId project, String template);

    /** Inserts or replaces the template, and inserts the version; both or neither. */
    void saveTemplate(StoredTemplate template, Optional<TemplateVersion> version);

    /** Removes its versions, builds and counters; its own record stays where {@code keepRecord} says so. */
    void removeTemplate(ProjectId project, String template, boolean keepRecord);

    /** Digests of images by what they are made in. */
    Map<String, String> templateImages();

    void saveTemplateImage(String imageKey, String digest, Instant at);

    /** The one that was chosen, if one was. */
    Optional<String> defaultTemplate(ProjectId project);

    void saveDefaultTemplate(ProjectId project, String template);

    Map<String, TemplateUsage> templateUsage(ProjectId project);

    /** How many executions were ever counted by {@link #addTemplateUsageLater}, also of templates that are gone. */
    Map<ProjectId, Long> executionTotals();

    void addTemplateUsageLater(ProjectId project, String template, long executions, Instant lastUsedAt);

    /** Inserts or replaces. */
    void saveBuild(Build build);

    Optional<Build> build(BuildId id);

    /** At most so many of a template, the newest first. */
    List<Build> builds(ProjectId project, String template, int most);

    /** The newest of each template. */
    List<Build> lastBuilds(ProjectId project);

    /** Those of all projects whose end is not on record. */
    List<Build> unfinishedBuilds();

    /** Removes ended builds that were made before {@code oldest}, or are not among the newest {@code keep} of their template. */
    List<BuildId> removeBuilds(Instant oldest, int keep);

    List<StoredRegistry> registries(ProjectId project);

    /** Inserts or replaces. */
    void saveRegistry(StoredRegistry registry);

    void removeRegistry(ProjectId project, String host);

    /** The claim on record for this key: {@code claim} itself if it is the first. */
    IdempotencyClaim claim(ProjectId project, IdempotencyClaim claim, Instant now);

    void appendEventLater(Event event);

    /** In the query's order; the page's {@code next} is the number of its last event. */
    Page<Event> events(ProjectId project, EventQuery query);

    /** Removes at most {@code limit} ended executions: those created before {@code oldest}, and the oldest above {@code keep}. */
    List<ExecutionId> removeExecutions(Instant oldest, long keep, int limit);

    /** Removes at most {@code limit} ended processes: those created before {@code oldest}, and the oldest above {@code keep}. */
    List<ProcessId> removeProcesses(Instant oldest, long keep, int limit);

    /** Removes samples taken before {@code oldest}; returns how many. */
    int removeUsage(Instant oldest);

    /** Removes sandboxes that ended before {@code oldest}, their contexts and runs, and lost snapshots, events and idempotency claims of that age. */
    int removeEnded(Instant oldest, int limit);

    /** Returns when all that was to be written later is written. */
    void flush();

    @Override
    void close();
}

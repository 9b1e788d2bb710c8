package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.SandboxId;
import atoll.core.SnapshotId;
import atoll.core.store.OnceByKey;
import atoll.core.template.LimitChanges;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * A sandbox, as a caller asks for it.
 *
 * @param template its id; without it the one of the language, or the default
 * @param limits that differ from the template's, or from the snapshot's
 * @param env set for everything that runs in it
 * @param main started with it
 * @param name unique among the live sandboxes of the project
 * @param ifExists what is done where one has the name already
 * @param lifecycle where it is to differ from the settings
 * @param snapshot to begin with, in place of a template and a language
 */
public record CreateSandbox(
        Optional<String> template,
        Optional<String> language,
        Map<String, String> env,
        Map<String, String> labels,
        LimitChanges limits,
        Optional<CreateMain> main,
        Optional<String> name,
        IfExists ifExists,
        LifecycleChanges lifecycle,
        Optional<SnapshotId> snapshot,
        Optional<String> idempotencyKey) {
    public CreateSandbox {
        env = Map.copyOf(env);
        labels = Labels.check(Map.copyOf(labels));
        name.ifPresent(text -> Names.check(text, SandboxId.PREFIX));
        if (ifExists == IfExists.GET && name.isEmpty()) {
            throw AtollException.invalid(
                    "if_exists: get without a name (expected: a name)", "Name the sandbox that may be there.");
        }
        if (snapshot.isPresent() && (template.isPresent() || language.isPresent())) {
            throw AtollException.invalid(
                    "snapshot: " + snapshot.get() + " with a template or language (expected: it alone)",
                    "Leave them out: a snapshot has both.");
        }
        idempotencyKey.ifPresent(OnceByKey::check);
    }

    /** Without a name, a snapshot, and a life of its own. */
    public CreateSandbox(
            Optional<String> template,
            Optional<String> language,
            Map<String, String> env,
            Map<String, String> labels,
            LimitChanges limits,
            Optional<CreateMain> main,
            Optional<String> idempotencyKey) {
        this(
                template,
                language,
                env,
                labels,
                limits,
                main,
                Optional.empty(),
                IfExists.FAIL,
                LifecycleChanges.NONE,
                Optional.empty(),
                idempotencyKey);
    }

    /** Without a main process, too. */
    public CreateSandbox(
            Optional<String> template,
            Optional<String> language,
            Map<String, String> env,
            Map<String, String> labels,
            LimitChanges limits,
            Optional<String> idempotencyKey) {
        this(template, language, env, labels, limits, Optional.empty(), idempotencyKey);
    }

    /** What tells this request from another, for idempotency keys. */
    List<?> parts() {
        List<Object> parts = new ArrayList<>(List.of(
                template,
                language,
                new TreeMap<>(env),
                new TreeMap<>(labels),
                limits,
                main.map(started ->
                        List.of(started.endsSandbox(), started.process().parts()))));
        // Without them a request is the same as one that came before there were any.
        if (name.isPresent() || snapshot.isPresent() || !lifecycle.equals(LifecycleChanges.NONE)) {
            parts.addAll(List.of(name, ifExists, lifecycle, snapshot));
        }
        return parts;
    }
}

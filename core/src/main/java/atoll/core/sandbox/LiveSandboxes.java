package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.store.OnceByKey;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntSupplier;

/** The sandboxes that have not ended, paused ones too. */
final class LiveSandboxes {
    private final Map<SandboxId, LiveSandbox> all = new ConcurrentHashMap<>();
    private final Map<BoxId, LiveSandbox> byBox = new ConcurrentHashMap<>();
    private final OnceByKey names = new OnceByKey();
    private final IntSupplier maxPerProject;

    LiveSandboxes(IntSupplier maxPerProject) {
        this.maxPerProject = maxPerProject;
    }

    void add(LiveSandbox sandbox) {
        all.put(sandbox.id(), sandbox);
        byBox.put(sandbox.box(), sandbox);
    }

    void remove(LiveSandbox sandbox) {
        all.remove(sandbox.id(), sandbox);
        byBox.remove(sandbox.box(), sandbox);
    }

    Optional<LiveSandbox> find(SandboxId id) {
        return Optional.ofNullable(all.get(id));
    }

    Optional<LiveSandbox> ofBox(BoxId box) {
        return Optional.ofNullable(byBox.get(box));
    }

    Collection<LiveSandbox> all() {
        return List.copyOf(all.values());
    }

    /** The turn of the one who gives out this name: until it is closed nobody else does. */
    OnceByKey.Turn naming(ProjectId project, String name) {
        return names.begin(project, name);
    }

    Optional<LiveSandbox> named(ProjectId project, String name) {
        return all.values().stream()
                .filter(alive -> alive.sandbox().project().equals(project)
                        && alive.sandbox().name().equals(Optional.of(name))
                        && alive.sandbox().state() != SandboxState.ENDED)
                .findFirst();
    }

    /** Fails if the name is another's. To be asked in its {@linkplain #naming turn}. */
    void requireFree(ProjectId project, String name) {
        named(project, name).ifPresent(there -> {
            throw new AtollException(
                    ErrorCode.CONFLICT,
                    "name: \"" + name + "\" belongs to sandbox " + there.id(),
                    "Names are unique among the live sandboxes of a project.",
                    "Use that sandbox (if_exists: get returns it), delete it, or choose another name.");
        });
    }

    /** Fails if so many more would be more than the project may have running; paused ones do not count. */
    void requireRoom(ProjectId project, int more) {
        int most = maxPerProject.getAsInt();
        long there = all.values().stream()
                .filter(alive -> alive.sandbox().project().equals(project)
                        && alive.sandbox().state() != SandboxState.PAUSED)
                .count();
        if (there + more > most) {
            throw new AtollException(
                    ErrorCode.QUOTA_EXCEEDED,
                    "sandboxes: " + there + " run in this project and " + more + " more were asked for (expected: at"
                            + " most " + most + ")",
                    "Each running sandbox takes memory of the machine.",
                    "Pause or delete sandboxes that are not needed, or raise the setting sandboxes.max.");
        }
    }
}

package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.store.OnceByKey;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.Collection;
import java.util.HashMap;
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

    /** Room that is reserved for sandboxes which are not there yet. */
    @GuardedBy("itself")
    private final Map<ProjectId, Integer> promised = new HashMap<>();

    LiveSandboxes(IntSupplier maxPerProject) {
        this.maxPerProject = maxPerProject;
    }

    /** One that is made now. Its place in the room that was reserved for it is its own from here on. */
    void add(LiveSandbox sandbox, Room room) {
        synchronized (promised) {
            add(sandbox);
            filled(room);
        }
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

    /**
     * Reserves room for so many more until it is closed; fails if they would be more than the project may have running. Paused ones do
     * not count.
     */
    Room reserve(ProjectId project, int more) {
        synchronized (promised) {
            requireRoom(project, more);
            int sum = promised.merge(project, more, Integer::sum);
            assert sum >= more;
        }
        return new Room(this, project, more);
    }

    /** A sandbox that was reserved for counts by itself from now on. */
    void filled(Room room) {
        synchronized (promised) {
            if (room.left() > 0) {
                give(room, 1);
            }
        }
    }

    void giveBack(Room room) {
        synchronized (promised) {
            give(room, room.left());
        }
    }

    @GuardedBy("promised")
    private void give(Room room, int places) {
        room.leave(room.left() - places);
        Integer left = promised.merge(room.project(), -places, Integer::sum);
        if (left != null && left == 0) {
            promised.remove(room.project());
        }
    }

    @GuardedBy("promised")
    private void requireRoom(ProjectId project, int more) {
        int most = maxPerProject.getAsInt();
        long there = promised.getOrDefault(project, 0)
                + all.values().stream()
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

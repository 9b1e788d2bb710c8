package atoll.core.sandbox;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.SandboxId;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.time.Instant;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * A sandbox that has not ended, in memory. {@link #writer} is held by the one who takes it to its next state, across the store and
 * the node: one writer per sandbox. The record can be read at any time.
 */
public final class LiveSandbox {
    /** Held while its state changes. */
    final ReentrantLock writer = new ReentrantLock();

    /** Held by the one who changes its limits or labels, also while the node is asked; never taken with {@link #writer} held. */
    final ReentrantLock revision = new ReentrantLock();

    /**
     * Held by the one who pauses, resumes, copies, snapshots or rolls it back, from the intent to the end, also while the node is asked.
     * Taken before {@link #revision} and {@link #writer}, never after; and never by a delete.
     */
    private final ReentrantLock lifecycle = new ReentrantLock();

    /** Set after a write that failed: the store may be a step ahead. Guarded by {@link #writer}. */
    boolean unsure;

    /** When it was used last. */
    private final AtomicReference<Instant> lastActive;

    /** Set while its node may not know when its lifetime is over. */
    volatile boolean deadlineOpen;

    /** After a pause at its time that failed: not tried again before. */
    volatile Instant nextPause = Instant.MIN;

    /** True from its first record until it was handed to its caller: only then does a missing box mean a lost one. */
    volatile boolean underConstruction;

    /** True while its main process is being started: only after that does a missing one mean a lost one. */
    volatile boolean mainPending;

    private volatile Sandbox sandbox;

    private final Object contextLock = new Object();

    @GuardedBy("contextLock")
    private final Map<ContextId, Context> contexts = new LinkedHashMap<>();

    /** Default contexts; one that is being opened is there already, so that it is opened once. */
    @GuardedBy("contextLock")
    private final Map<Language, CompletableFuture<Context>> defaults = new EnumMap<>(Language.class);

    /** Executions begun, by context. */
    private final Map<ContextId, AtomicLong> begun = new ConcurrentHashMap<>();

    LiveSandbox(Sandbox sandbox) {
        this.sandbox = sandbox;
        this.lastActive = new AtomicReference<>(sandbox.lastActiveAt());
    }

    /**
     * The lock of its life: whoever holds it can rely on that nobody else pauses, resumes, copies, snapshots or rolls back this sandbox;
     * it may be deleted at any time. Take no other sandbox's with it held.
     */
    public ReentrantLock lifecycle() {
        return lifecycle;
    }

    /** Counts an execution of a context, and says the how-manieth it is; {@code before} is asked with the first one. */
    public long nextNumber(ContextId context, LongSupplier before) {
        return begun.computeIfAbsent(context, first -> new AtomicLong(before.getAsLong()))
                .incrementAndGet();
    }

    /** It is being used. */
    public void touch(Instant now) {
        Instant latest = lastActive.accumulateAndGet(now, (there, mine) -> mine.isAfter(there) ? mine : there);
        assert !latest.isBefore(now);
    }

    public Instant lastActive() {
        return lastActive.get();
    }

    /** Its record, with when it was used last. */
    public Sandbox seen() {
        return sandbox.active(lastActive.get());
    }

    public SandboxId id() {
        return sandbox.id();
    }

    public BoxId box() {
        return sandbox.box();
    }

    /** Whether its caller is still waiting for it; then a missing box is no lost one. */
    public boolean underConstruction() {
        return underConstruction;
    }

    public Sandbox sandbox() {
        return sandbox;
    }

    public boolean mainPending() {
        return mainPending;
    }

    void becomes(Sandbox next) {
        sandbox = next;
    }

    void add(Context context) {
        synchronized (contextLock) {
            contexts.put(context.id(), context);
            if (context.isDefault()) {
                defaults.put(context.language(), CompletableFuture.completedFuture(context));
            }
        }
    }

    /** By its id, or by the id that it had in the sandbox that this one is a copy of. */
    public Optional<Context> context(ContextId id) {
        synchronized (contextLock) {
            Context own = contexts.get(id);
            return own != null
                    ? Optional.of(own)
                    : contexts.values().stream()
                            .filter(context -> context.origin().equals(Optional.of(id)))
                            .findFirst();
        }
    }

    /** Those that it has at this moment. */
    public List<Context> contexts() {
        synchronized (contextLock) {
            return List.copyOf(contexts.values());
        }
    }

    /** The default context of a language; empty if nobody has begun to open one: then {@code mine} is it, and the caller opens it. */
    Optional<CompletableFuture<Context>> defaultContext(Language language, CompletableFuture<Context> mine) {
        synchronized (contextLock) {
            return Optional.ofNullable(defaults.putIfAbsent(language, mine));
        }
    }

    /** For whoever was to open it: the next caller tries again. */
    void notOpened(Language language) {
        synchronized (contextLock) {
            defaults.remove(language);
        }
    }

    /** It is no context of this sandbox any more; the next call that names its language only opens another. */
    void remove(Context context) {
        synchronized (contextLock) {
            contexts.remove(context.id());
            if (context.isDefault()) {
                defaults.remove(context.language());
            }
        }
    }
}

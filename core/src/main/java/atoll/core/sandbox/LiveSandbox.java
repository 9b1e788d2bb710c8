package atoll.core.sandbox;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.SandboxId;
import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A sandbox that has not ended, in memory. {@link #writer} is held by the one who takes it to its next state, across the store and
 * the node: one writer per sandbox. The record can be read at any time.
 */
public final class LiveSandbox {
    /** Held while its state changes. */
    final ReentrantLock writer = new ReentrantLock();

    /** Held by the one who changes its limits or labels, also while the node is asked; never taken with {@link #writer} held. */
    final ReentrantLock revision = new ReentrantLock();

    /** True from its first record until it was handed to its caller: only then does a missing box mean a lost one. */
    volatile boolean underConstruction;

    /** True while its main process is being started: only after that does a missing one mean a lost one. */
    volatile boolean mainPending;

    private volatile Sandbox sandbox;

    private final Object contextLock = new Object();

    @GuardedBy("contextLock")
    private final Map<ContextId, Context> contexts = new HashMap<>();

    /** Default contexts; one that is being opened is there already, so that it is opened once. */
    @GuardedBy("contextLock")
    private final Map<Language, CompletableFuture<Context>> defaults = new EnumMap<>(Language.class);

    LiveSandbox(Sandbox sandbox) {
        this.sandbox = sandbox;
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

    Optional<Context> context(ContextId id) {
        synchronized (contextLock) {
            return Optional.ofNullable(contexts.get(id));
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

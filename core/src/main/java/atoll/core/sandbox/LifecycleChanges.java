package atoll.core.sandbox;

import java.util.Optional;

/** What a caller wants of a {@link Lifecycle}; what is empty stays as it is, or as the settings say. */
public record LifecycleChanges(
        Optional<Term> lifetime,
        Optional<Term> idleTimeout,
        Optional<OnTimeout> onTimeout,
        Optional<Boolean> autoResume) {
    /** Nothing changes. */
    public static final LifecycleChanges NONE =
            new LifecycleChanges(Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty());

    public Lifecycle applyTo(Lifecycle before) {
        return new Lifecycle(
                lifetime.map(Term::length).orElse(before.lifetime()),
                idleTimeout.map(Term::length).orElse(before.idleTimeout()),
                onTimeout.orElse(before.onTimeout()),
                autoResume.orElse(before.autoResume()));
    }
}

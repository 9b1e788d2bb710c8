package atoll.api;

import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import java.util.List;
import java.util.Optional;

/** The fields of how long a sandbox lives, as they come with every call that may set them. */
final class LifecycleArguments {
    static final List<String> NAMES = List.of("lifetime_seconds", "idle_timeout_seconds", "on_timeout", "auto_resume");

    private LifecycleArguments() {}

    static LifecycleChanges of(Fields fields) {
        return new LifecycleChanges(
                fields.term("lifetime_seconds", false),
                fields.term("idle_timeout_seconds", true),
                onTimeout(fields),
                fields.optionalFlag("auto_resume"));
    }

    private static Optional<OnTimeout> onTimeout(Fields fields) {
        return fields.text("on_timeout")
                .map(word -> Choices.of("on_timeout", word, OnTimeout.values(), OnTimeout::text));
    }
}

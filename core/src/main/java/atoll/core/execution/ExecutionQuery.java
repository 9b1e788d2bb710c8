package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ContextId;
import atoll.core.Language;
import atoll.core.PageRequest;
import atoll.core.SandboxId;
import atoll.core.text.SearchText;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/**
 * Which executions to list; an empty filter takes all.
 *
 * @param wanted what can't be looked up but has to be looked for: a page of these may hold fewer than were asked for, or none, and the next one goes on from there
 */
public record ExecutionQuery(
        Optional<SandboxId> sandboxId,
        Optional<ContextId> contextId,
        Optional<Boolean> running,
        Span span,
        Wanted wanted,
        PageRequest page) {
    public static final ExecutionQuery ALL =
            new ExecutionQuery(Optional.empty(), Optional.empty(), Optional.empty(), PageRequest.FIRST);

    /** Of any time and kind. */
    public ExecutionQuery(
            Optional<SandboxId> sandboxId, Optional<ContextId> contextId, Optional<Boolean> running, PageRequest page) {
        this(sandboxId, contextId, running, Span.EVER, Wanted.ANY, page);
    }

    /** When it began: {@code from} is in it, {@code until} is not. */
    public record Span(Optional<Instant> from, Optional<Instant> until) {
        public static final Span EVER = new Span(Optional.empty(), Optional.empty());

        public Span {
            if (from.isPresent() && until.isPresent() && !from.get().isBefore(until.get())) {
                throw AtollException.invalid(
                        "from: " + from.get() + " (expected: before until, " + until.get() + ")",
                        "Correct one of them.");
            }
        }

        public boolean holds(Instant time) {
            return from.map(begin -> !time.isBefore(begin)).orElse(true)
                    && until.map(time::isBefore).orElse(true);
        }
    }

    /**
     * What it is like.
     *
     * @param text what is in its code or its output as they are on record
     * @param template of its sandbox
     * @param reasons why it ended; of these one, or any where there is none
     */
    public record Wanted(
            Optional<SearchText> text,
            Optional<String> template,
            Optional<Language> language,
            Set<ExitReason> reasons) {
        public static final Wanted ANY = new Wanted(Optional.empty(), Optional.empty(), Optional.empty(), Set.of());

        public Wanted {
            reasons = Set.copyOf(reasons);
        }

        public boolean isAny() {
            return equals(ANY);
        }
    }
}

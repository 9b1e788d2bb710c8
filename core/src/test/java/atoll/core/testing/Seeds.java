package atoll.core.testing;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.Language;
import atoll.core.ProjectId;
import atoll.core.RunId;
import atoll.core.SandboxId;
import atoll.core.execution.CapturedText;
import atoll.core.execution.ExecutionError;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExecutionResult;
import atoll.core.execution.ExitReason;
import atoll.core.execution.MimeBundle;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.store.Store;
import atoll.core.template.Limits;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** Fills a store as long use would, without running anything: always with the same, but for the ids. */
public final class Seeds {
    /** In the oldest execution alone. */
    public static final String OLDEST = "the very first needle";
    /** A third of all executions are of the first sandbox, a context of its own. */
    private static final int OF_FIRST = 3;

    private final Store store;
    private final Instant now;

    public Seeds(Store store, Instant now) {
        this.store = store;
        this.now = now;
    }

    /** Sandboxes that have ended, an hour apart. */
    public List<Sandbox> ended(int count) {
        var sandboxes = new ArrayList<Sandbox>();
        for (int i = 0; i < count; i++) {
            Instant at = now.minus(Duration.ofHours(count - i));
            Sandbox made = new Sandbox(
                    SandboxId.random(),
                    ProjectId.DEFAULT,
                    i % 2 == 0 ? "python" : "typescript-bun",
                    SandboxState.CREATING,
                    Limits.DEFAULT,
                    Map.of("team", "team-" + i % 7),
                    BoxId.random(),
                    RunId.random(),
                    at,
                    Optional.empty());
            store.insertSandbox(made, Optional.empty());
            Sandbox ended = made.ended(
                    new Sandbox.End(EndReason.EXPIRED, "Its lifetime of 1 h was over.", at.plus(Duration.ofHours(1))));
            store.updateSandbox(ended);
            sandboxes.add(ended);
        }
        return sandboxes;
    }

    /** Executions that have ended, a second apart, in these sandboxes; about 1.5 KB each, as short cells are. */
    public void executions(int count, List<SandboxId> sandboxes) {
        var contexts = sandboxes.stream().map(_ -> ContextId.random()).toList();
        for (int i = 0; i < count; i++) {
            int where = i % OF_FIRST == 0 ? 0 : i % sandboxes.size();
            store.saveExecutionLater(
                    execution(i, now.minusSeconds(count - i), sandboxes.get(where), contexts.get(where)), () -> {});
        }
        store.flush();
    }

    private static ExecutionRecord execution(int i, Instant at, SandboxId sandbox, ContextId context) {
        ExecutionId id = ExecutionId.random();
        boolean failed = i % 20 == 7;
        String code = (i == 0 ? "# " + OLDEST + "\n" : "")
                + "import pandas as pd\nframe = pd.DataFrame({'n': range(%d)})\n".formatted(i)
                + "# Sums by group, largest first.\n".repeat(4)
                + "print(frame.groupby(frame.n %% 7).sum().sort_values('n').to_string())\nframe.n.sum()".formatted();
        String output = "     n\nn\n" + "3  1234567\n".repeat(20) + i;
        var outcome = new ExecutionOutcome(
                id,
                sandbox,
                context,
                new CapturedText(output, output.length(), false),
                new CapturedText(output, output.length(), false),
                new CapturedText("", 0, false),
                List.of(new ExecutionResult(
                        true, new MimeBundle("{\"text/plain\":\"" + i + "\"}", Optional.of(Integer.toString(i))), 0)),
                failed
                        ? Optional.of(new ExecutionError("ValueError", "no", "Traceback\nValueError: no"))
                        : Optional.empty(),
                failed ? ExitReason.ERROR : ExitReason.COMPLETED,
                OptionalInt.of(failed ? 1 : 0),
                OptionalInt.empty(),
                true,
                "",
                Optional.empty(),
                at,
                Duration.ofMillis(3),
                false);
        return new ExecutionRecord(
                id,
                ProjectId.DEFAULT,
                sandbox,
                context,
                i % 10 == 3 ? Language.BASH : Language.PYTHON,
                code,
                code.length(),
                at,
                Optional.of(outcome));
    }
}

package atoll.api;

import atoll.core.AtollException;
import atoll.core.process.Program;
import atoll.core.process.StartProcess;
import atoll.core.process.TerminalSize;
import java.util.List;
import java.util.Optional;

/** The fields of a program to start, as they come for a process and for the main process of a sandbox. */
final class StartProcessArguments {
    static final List<String> NAMES =
            List.of("argv", "command", "cwd", "env", "user", "stdin", "timeout_seconds", "pty", "labels");

    private static final java.util.Set<String> PTY = java.util.Set.of("cols", "rows");

    private StartProcessArguments() {}

    static StartProcess of(Fields fields, Optional<String> idempotencyKey) {
        return new StartProcess(
                program(fields),
                fields.text("cwd").orElse(""),
                fields.texts("env"),
                fields.text("user").orElse(""),
                fields.flag("stdin"),
                fields.seconds("timeout_seconds"),
                fields.object("pty", PTY).map(StartProcessArguments::size),
                fields.texts("labels"),
                idempotencyKey);
    }

    private static Program program(Fields fields) {
        Optional<List<String>> argv = fields.textList("argv");
        Optional<String> command = fields.text("command");
        if (argv.isPresent() == command.isPresent()) {
            throw AtollException.invalid(
                    "argv and command: %s (expected: one of them)"
                            .formatted(argv.isPresent() ? "both are there" : "neither is there"),
                    "Send argv, the program and its arguments, or command, text for a shell.");
        }
        return argv.<Program>map(Program.Argv::new).orElseGet(() -> new Program.Command(command.orElseThrow()));
    }

    static TerminalSize size(Fields fields) {
        return new TerminalSize(
                fields.smallNumber("cols").orElse(TerminalSize.DEFAULT.columns()),
                fields.smallNumber("rows").orElse(TerminalSize.DEFAULT.rows()));
    }
}

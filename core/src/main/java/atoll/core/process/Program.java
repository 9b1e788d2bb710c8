package atoll.core.process;

import atoll.core.AtollException;
import java.util.List;

/** What a process runs. */
public sealed interface Program {
    /** A program with its arguments; without a slash it is looked for in the PATH. */
    record Argv(List<String> argv) implements Program {
        public Argv {
            argv = List.copyOf(argv);
            if (argv.isEmpty() || argv.getFirst().isEmpty()) {
                throw AtollException.invalid(
                        "argv: it names no program (expected: at least one text, the program)",
                        "Put the program first, then its arguments.");
            }
        }
    }

    /** Text for the shell of the image: bash where there is one. */
    record Command(String text) implements Program {
        public Command {
            if (text.isBlank()) {
                throw AtollException.invalid("command: it is empty (expected: text for a shell)", "Send a command.");
            }
        }
    }

    /** The user's login shell, for a terminal. */
    record Shell() implements Program {}

    /** The argument vectors to try in this order: the first whose program is there. */
    default List<List<String>> candidates() {
        return switch (this) {
            case Argv(List<String> argv) -> List.of(argv);
            case Command(String text) -> List.of(List.of("/bin/bash", "-c", text), List.of("/bin/sh", "-c", text));
            // The agent sets SHELL to what the image names for the user.
            case Shell _ -> List.of(List.of("/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\" -l"));
        };
    }
}

package atoll.core.template;

import atoll.core.AtollException;
import java.time.Duration;

/**
 * What is started in every sandbox of a template before anyone gets it, such as a server.
 *
 * @param command for the image's shell; it goes on in the background
 */
public record StartCommand(String command, Ready ready) {
    private static final Duration LONGEST = Duration.ofMinutes(30);

    public StartCommand {
        TemplateDefinition.checkCommand("start.command", command);
    }

    /** When it is ready: all that is said here must hold, within the time. */
    public record Ready(Check check, Duration timeout) {
        public static final Duration TIMEOUT = Duration.ofSeconds(60);

        public Ready {
            if (timeout.compareTo(Duration.ofSeconds(1)) < 0 || timeout.compareTo(LONGEST) > 0) {
                throw AtollException.invalid(
                        "start.ready.timeout_seconds: " + timeout.toMillis() / 1000.0 + " (expected: 1 to "
                                + LONGEST.toSeconds() + ")",
                        "Correct the value.");
            }
        }
    }

    /** How it is found out. */
    public sealed interface Check {
        /** It has not ended. */
        record Started() implements Check {}

        /** Something listens there. */
        record Port(int port) implements Check {
            public Port {
                TemplatePort.checkPort("start.ready.port", port);
            }
        }

        /** An HTTP server there answers {@code GET path} with a status from 200 to 399. */
        record Http(int port, String path) implements Check {
            public Http {
                TemplatePort.checkPort("start.ready.port", port);
                if (!path.startsWith("/")
                        || path.length() > 2048
                        || path.chars().anyMatch(c -> c <= ' ' || c >= 0x7f)) {
                    throw AtollException.invalid(
                            "start.ready.path: \"" + TemplateDefinition.shown(path)
                                    + "\" (expected: an URL's path, such as /health)",
                            "Correct it; encode what is no ASCII.");
                }
            }
        }

        /** This command, run again and again, succeeds. */
        record Command(String command) implements Check {
            public Command {
                TemplateDefinition.checkCommand("start.ready.command", command);
            }
        }
    }
}

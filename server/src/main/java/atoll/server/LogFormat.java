package atoll.server;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.logging.ConsoleHandler;
import java.util.logging.Formatter;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/**
 * One line per event, on stderr: time, level, where, what. By the JDK's own logging, since gRPC uses it anyway and a second system costs start time.
 */
final class LogFormat extends Formatter {
    /** Without a strong reference here, their levels could be forgotten with them. */
    private static final Logger[] QUIET = {
        Logger.getLogger("org.eclipse.jetty"), Logger.getLogger("org.flywaydb"), Logger.getLogger("io.grpc")
    };

    /** Warns on each connection that a Unix socket has no TCP keep-alive. */
    private static final Logger CHATTY = Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap");

    static void install() {
        Logger root = Logger.getLogger("");
        for (Handler handler : root.getHandlers()) {
            root.removeHandler(handler);
        }
        var console = new ConsoleHandler();
        console.setFormatter(new LogFormat());
        console.setLevel(Level.ALL);
        root.addHandler(console);
        root.setLevel(Level.INFO);
        CHATTY.setLevel(Level.SEVERE);
        for (Logger logger : QUIET) {
            logger.setLevel(Level.WARNING);
        }
    }

    @Override
    public String format(LogRecord event) {
        String name = String.valueOf(event.getLoggerName());
        var line = new StringBuilder(160)
                .append(Instant.ofEpochMilli(event.getMillis()).truncatedTo(ChronoUnit.MILLIS))
                .append(' ')
                .append(level(event.getLevel()))
                .append(' ')
                .append(name.substring(name.lastIndexOf('.') + 1))
                .append(": ")
                // One event is one line, whatever someone put into it.
                .append(formatMessage(event).replace("\n", "\n    "))
                .append('\n');
        if (event.getThrown() != null) {
            var trace = new StringWriter();
            event.getThrown().printStackTrace(new PrintWriter(trace, true));
            line.append("    ")
                    .append(trace.toString().strip().replace("\n", "\n    "))
                    .append('\n');
        }
        return line.toString();
    }

    private static String level(Level level) {
        if (level.intValue() >= Level.SEVERE.intValue()) {
            return "ERROR";
        }
        if (level.intValue() >= Level.WARNING.intValue()) {
            return "WARN ";
        }
        return level.intValue() >= Level.INFO.intValue() ? "INFO " : "DEBUG";
    }
}

package atoll.core.process;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.execution.Variables;
import atoll.core.sandbox.Labels;
import atoll.core.store.OnceByKey;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * A program to start.
 *
 * @param cwd absolute, or relative to the user's home; empty: the template's
 * @param env added to the sandbox's
 * @param user a name of the image, or {@code uid} or {@code uid:gid}; empty: the template's
 * @param stdin whether it can be written to; without, it reads end-of-file at once. With a terminal there is always an input.
 * @param timeout from its start; then its whole tree is killed
 * @param terminal set: it runs on a terminal of this size, and all that it prints is stdout
 */
public record StartProcess(
        Program program,
        String cwd,
        Map<String, String> env,
        String user,
        boolean stdin,
        Optional<Duration> timeout,
        Optional<TerminalSize> terminal,
        Map<String, String> labels,
        Optional<String> idempotencyKey) {
    /** Of arguments and environment; the node takes no more. */
    private static final int MOST_BYTES = 1024 * 1024;

    private static final int LONGEST_PATH = 4096;
    private static final int LONGEST_USER = 256;

    public StartProcess {
        env = Variables.check(Map.copyOf(env));
        labels = Labels.check(Map.copyOf(labels));
        idempotencyKey.ifPresent(OnceByKey::check);
        stdin = stdin || terminal.isPresent();
        checkText("cwd", cwd, LONGEST_PATH);
        checkText("user", user, LONGEST_USER);
        timeout.ifPresent(limit -> {
            if (limit.compareTo(Duration.ofMillis(1)) < 0) {
                throw AtollException.invalid(
                        "timeout: " + limit.toNanos() / 1e9 + " s (expected: at least 0.001 s)",
                        "Give a longer timeout, or leave it out for none.");
            }
        });
        checkSize(program.candidates().getFirst(), env);
    }

    public static StartProcess of(Program program) {
        return new StartProcess(
                program, "", Map.of(), "", false, Optional.empty(), Optional.empty(), Map.of(), Optional.empty());
    }

    public static StartProcess of(String... argv) {
        return of(new Program.Argv(List.of(argv)));
    }

    public static StartProcess command(String text) {
        return of(new Program.Command(text));
    }

    public StartProcess in(String folder) {
        return new StartProcess(program, folder, env, user, stdin, timeout, terminal, labels, idempotencyKey);
    }

    public StartProcess as(String name) {
        return new StartProcess(program, cwd, env, name, stdin, timeout, terminal, labels, idempotencyKey);
    }

    public StartProcess withEnv(Map<String, String> variables) {
        return new StartProcess(program, cwd, variables, user, stdin, timeout, terminal, labels, idempotencyKey);
    }

    public StartProcess withStdin() {
        return new StartProcess(program, cwd, env, user, true, timeout, terminal, labels, idempotencyKey);
    }

    public StartProcess withTimeout(Duration limit) {
        return new StartProcess(program, cwd, env, user, stdin, Optional.of(limit), terminal, labels, idempotencyKey);
    }

    public StartProcess onTerminal(TerminalSize size) {
        return new StartProcess(program, cwd, env, user, true, timeout, Optional.of(size), labels, idempotencyKey);
    }

    public StartProcess withLabels(Map<String, String> named) {
        return new StartProcess(program, cwd, env, user, stdin, timeout, terminal, named, idempotencyKey);
    }

    public StartProcess withIdempotencyKey(String key) {
        return new StartProcess(program, cwd, env, user, stdin, timeout, terminal, labels, Optional.of(key));
    }

    /** All that makes one request another, in an order that is the same in every life of the server. */
    public List<Object> parts() {
        return List.of(program, cwd, new TreeMap<>(env), user, stdin, timeout, terminal, new TreeMap<>(labels));
    }

    private static void checkText(String name, String text, int longest) {
        if (text.length() > longest || text.indexOf('\0') >= 0) {
            throw AtollException.invalid(
                    name + ": " + text.length() + " characters, or one of them NUL (expected: at most " + longest
                            + ", without NUL)",
                    "Correct it.");
        }
    }

    private static void checkSize(List<String> argv, Map<String, String> env) {
        long bytes = 0;
        for (String argument : argv) {
            if (argument.indexOf('\0') >= 0) {
                throw AtollException.invalid("argv: one holds NUL (expected: text without it)", "Take it out.");
            }
            bytes += Variables.utf8Bytes(argument) + 1;
        }
        for (Map.Entry<String, String> variable : env.entrySet()) {
            bytes += Variables.utf8Bytes(variable.getKey()) + Variables.utf8Bytes(variable.getValue()) + 2;
        }
        if (bytes > MOST_BYTES) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "argv and env: " + bytes + " bytes (expected: at most " + MOST_BYTES + ")",
                    "",
                    "Put large data into a file of the sandbox, or send it to stdin.");
        }
    }
}

package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.execution.Variables;
import atoll.core.sandbox.Labels;
import atoll.core.sandbox.LifecycleChanges;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * A version of a template as its maker defines it. It is made of one of three: an image, a Dockerfile, or, where it comes with Atoll, a
 * recipe.
 *
 * @param image a registry's, {@code atoll/TEMPLATE} for that of another template, or the digest of an image that the node has
 * @param context what the Dockerfile copies from
 * @param commands of the build, run as root one after another
 * @param env of everything that runs in a sandbox, beside what the image sets
 * @param user whom things run as; empty: as the image says
 * @param workdir absolute; empty: as the image says
 * @param defaultLanguage empty: as the image says
 * @param limits that differ from the settings
 * @param timeout of an execution whose call names none
 * @param lifecycle of a sandbox whose maker does not say
 * @param runtime one of the node's; empty: the node's choice
 */
public record TemplateDefinition(
        String name,
        String description,
        String image,
        Optional<String> recipe,
        String dockerfile,
        Packages packages,
        List<TemplateFile> files,
        List<String> commands,
        Optional<BuildContext> context,
        Map<String, String> env,
        String user,
        String workdir,
        Optional<StartCommand> start,
        Optional<Language> defaultLanguage,
        LimitChanges limits,
        Optional<Duration> timeout,
        LifecycleChanges lifecycle,
        Optional<Duration> maxLifetime,
        OptionalInt poolDepth,
        OptionalInt poolMaxDepth,
        List<TemplatePort> ports,
        String runtime,
        Map<String, String> labels) {
    private static final int LONGEST_TEXT = 4096;
    private static final int LONGEST_DOCKERFILE = 1 << 20;
    private static final int LONGEST_COMMAND = 64 << 10;
    private static final int MOST_COMMANDS = 200;
    private static final int MOST_FILES = 500;
    private static final int MOST_FILE_BYTES = 8 << 20;
    private static final int MOST_PORTS = 64;
    private static final Pattern USER =
            Pattern.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?");
    /** Of a reference: what registries take, with a port, a tag and a digest. */
    private static final Pattern IMAGE = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}");

    private static final Set<String> RUNTIMES = Set.of("", "gvisor", "docker");

    public TemplateDefinition {
        files = List.copyOf(files);
        commands = List.copyOf(commands);
        env = Variables.check(Map.copyOf(env));
        ports = List.copyOf(ports);
        labels = Labels.check(Map.copyOf(labels));
        checkLength("name", name, 128);
        checkLength("description", description, LONGEST_TEXT);
        checkSource(image, recipe, dockerfile);
        checkParts(dockerfile, packages, files, commands, context);
        if (!user.isEmpty()) {
            checkUser("user", user);
        }
        if (!workdir.isEmpty()) {
            checkPath("workdir", workdir);
        }
        timeout.ifPresent(time -> checkPositive("timeout_seconds", time));
        maxLifetime.ifPresent(time -> checkPositive("lifetime.max_seconds", time));
        checkPool("pool.depth", poolDepth);
        checkPool("pool.max_depth", poolMaxDepth);
        if (!RUNTIMES.contains(runtime)) {
            throw AtollException.invalid(
                    "runtime: \"" + shown(runtime) + "\" (expected: gvisor or docker)",
                    "Leave it out for the node's choice.");
        }
        checkPorts(ports);
        // Fails for limits that no sandbox can have.
        assert limits.applyTo(Limits.DEFAULT) != null;
    }

    private static void checkSource(String image, Optional<String> recipe, String dockerfile) {
        int sources = (image.isEmpty() ? 0 : 1) + (recipe.isPresent() ? 1 : 0) + (dockerfile.isEmpty() ? 0 : 1);
        if (sources != 1) {
            throw AtollException.invalid(
                    "image and dockerfile: " + (sources == 0 ? "neither" : "more than one")
                            + " is given (expected: one of the two)",
                    "Name what the template is made of: an image, or a Dockerfile.");
        }
        if (!image.isEmpty() && !IMAGE.matcher(image).matches()) {
            throw AtollException.invalid(
                    "image: \"" + shown(image) + "\" (expected: a reference such as python:3.12-slim, atoll/TEMPLATE,"
                            + " or an image's digest)",
                    "Correct the reference.");
        }
        checkDockerfile(dockerfile);
    }

    private static void checkDockerfile(String dockerfile) {
        if (dockerfile.length() > LONGEST_DOCKERFILE) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "dockerfile: " + dockerfile.length() + " characters (expected: at most " + LONGEST_DOCKERFILE + ")",
                    "",
                    "Put large parts into the build context.");
        }
        if (dockerfile.indexOf('\0') >= 0) {
            throw AtollException.invalid("dockerfile: it holds NUL (expected: text without it)", "Take it out.");
        }
        String last = dockerfile.stripTrailing();
        if (last.endsWith("\\") || last.endsWith("`")) {
            throw AtollException.invalid(
                    "dockerfile: its last line goes on (expected: an end)", "Take away the character at its end.");
        }
    }

    private static void checkParts(
            String dockerfile,
            Packages packages,
            List<TemplateFile> files,
            List<String> commands,
            Optional<BuildContext> context) {
        if (!dockerfile.isEmpty() && !(packages.isEmpty() && files.isEmpty() && commands.isEmpty())) {
            throw AtollException.invalid(
                    "packages, files or commands with a dockerfile (expected: the Dockerfile alone)",
                    "Say it in the Dockerfile; files go into its context.");
        }
        if (context.isPresent() && dockerfile.isEmpty()) {
            throw AtollException.invalid(
                    "context without a dockerfile (expected: a Dockerfile that copies from it)",
                    "Give the Dockerfile first, or put what is needed into files.");
        }
        if (files.size() > MOST_FILES || commands.size() > MOST_COMMANDS) {
            throw AtollException.invalid(
                    "files and commands: " + files.size() + " and " + commands.size() + " (expected: at most "
                            + MOST_FILES + " and " + MOST_COMMANDS + ")",
                    "Use a Dockerfile with a context for more.");
        }
        long bytes = files.stream().mapToLong(TemplateFile::size).sum();
        if (bytes > MOST_FILE_BYTES) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "files: " + bytes + " bytes together (expected: at most " + MOST_FILE_BYTES + ")",
                    "",
                    "Use a Dockerfile, and upload them as its context.");
        }
        Set<String> paths = new HashSet<>();
        for (TemplateFile file : files) {
            if (!paths.add(file.path())) {
                throw AtollException.invalid(
                        "files: two at \"" + shown(file.path()) + "\" (expected: one)", "Leave one of them out.");
            }
        }
        commands.forEach(command -> checkCommand("commands", command));
    }

    private static void checkPorts(List<TemplatePort> ports) {
        Set<Integer> numbers = new HashSet<>();
        for (TemplatePort port : ports) {
            if (!numbers.add(port.port())) {
                throw AtollException.invalid(
                        "ports: two with number " + port.port() + " (expected: one)", "Leave one of them out.");
            }
        }
        if (ports.size() > MOST_PORTS) {
            throw AtollException.invalid(
                    "ports: " + ports.size() + " (expected: at most " + MOST_PORTS + ")", "Take some away.");
        }
    }

    private static void checkPositive(String name, Duration time) {
        if (time.compareTo(Duration.ofMillis(1)) < 0) {
            throw AtollException.invalid(
                    name + ": " + time.toMillis() / 1000.0 + " (expected: more than 0)", "Correct the value.");
        }
    }

    private static void checkPool(String name, OptionalInt depth) {
        if (depth.isPresent() && (depth.getAsInt() < 0 || depth.getAsInt() > 1000)) {
            throw AtollException.invalid(
                    name + ": " + depth.getAsInt() + " (expected: 0 to 1000)", "Correct the value.");
        }
    }

    private static void checkLength(String name, String text, int most) {
        if (text.length() > most || text.indexOf('\0') >= 0) {
            throw AtollException.invalid(
                    name + ": " + text.length() + " characters, or one of them NUL (expected: at most " + most
                            + ", without NUL)",
                    "Shorten it.");
        }
    }

    static void checkCommand(String name, String command) {
        if (command.isBlank() || command.length() > LONGEST_COMMAND || command.indexOf('\0') >= 0) {
            throw AtollException.invalid(
                    name + ": a command of " + command.length() + " characters (expected: 1 to " + LONGEST_COMMAND
                            + ", without NUL)",
                    "Correct it; put a long script into a file.");
        }
    }

    static void checkUser(String name, String user) {
        if (!USER.matcher(user).matches()) {
            throw AtollException.invalid(
                    name + ": \"" + shown(user)
                            + "\" (expected: a user of the image, or its number, and :group if wanted)",
                    "Correct the name.");
        }
    }

    static void checkPath(String name, String path) {
        boolean odd = !path.startsWith("/")
                || path.length() > 4000
                || path.chars().anyMatch(Character::isISOControl)
                || List.of(path.split("/", -1)).contains("..");
        if (odd) {
            throw AtollException.invalid(
                    name + ": \"" + shown(path) + "\" (expected: an absolute path without ..)", "Correct the path.");
        }
    }

    /** What callers gave, short enough for a message and without what a terminal would obey. */
    static String shown(String text) {
        String cut = text.length() > 64 ? text.substring(0, 64) + "…" : text;
        return cut.replaceAll("\\p{Cntrl}", "\uFFFD");
    }
}

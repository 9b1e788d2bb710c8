package atoll.compat.e2b;

import atoll.core.AtollException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.SequencedMap;
import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.JsonNodeFactory;

/**
 * The steps of a template as a Dockerfile. Commands run in a login shell of bash, as they do in sandboxes, and as the user {@code user} with {@code /home/user} as
 * folder unless something else is said. A comment before each step tells its number, by which a failed instruction is told as the step that the SDKs know.
 */
final class TemplateSteps {
    private static final String STEP = "# step ";
    private static final String USER = "user";
    private static final String HOME = "/home/user";
    private static final String ROOT = "root";
    private static final Pattern VARIABLE = Pattern.compile("[A-Za-z_][A-Za-z0-9_]*");
    private static final Pattern OWNER =
            Pattern.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?");
    private static final Pattern MODE = Pattern.compile("[0-7]{3,4}");
    private static final Pattern IMAGE = Pattern.compile("[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}");
    private static final Pattern HASH = Pattern.compile("[A-Za-z0-9_-]{1,128}");

    /** An image of a stranger's gets what every sandbox of this protocol has: bash, and a user who may become root. */
    private static final String PREPARE = """
            set -e
            install() {
              if command -v apt-get >/dev/null; then
                export DEBIAN_FRONTEND=noninteractive
                apt-get -o APT::Sandbox::User=root update && apt-get -o APT::Sandbox::User=root install -y --no-install-recommends "$1"
                rm -rf /var/lib/apt/lists/*
              elif command -v apk >/dev/null; then
                apk add --no-cache "$1"
              fi
            }
            if [ ! -x /bin/bash ]; then
              command -v bash >/dev/null || install bash || true
              [ -x /bin/bash ] || ln -s "$(command -v bash || echo /nothing)" /bin/bash
              [ -x /bin/bash ] || { echo 'the image has no bash, and it could not be installed' >&2; exit 1; }
            fi
            if ! grep -q '^user:' /etc/passwd; then
              id=1000
              while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id + 1)); done
              echo "user:x:$id:$id::/home/user:/bin/bash" >>/etc/passwd
              grep -q '^user:' /etc/group || echo "user:x:$id:" >>/etc/group
              [ ! -f /etc/shadow ] || echo 'user:*:19000:0:99999:7:::' >>/etc/shadow
            fi
            mkdir -p /home/user
            chown user /home/user
            chgrp "$(id -g user)" /home/user
            command -v sudo >/dev/null || install sudo || echo 'warning: sudo could not be installed' >&2
            if command -v sudo >/dev/null; then
              mkdir -p /etc/sudoers.d
              echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/user
              chmod 0440 /etc/sudoers.d/user
            fi
            """;

    private final StringBuilder text = new StringBuilder();
    private final SequencedMap<String, String> uploads = new LinkedHashMap<>();
    private String user;
    /** Whom the Dockerfile is at. */
    private String at = "";

    private TemplateSteps(String user) {
        this.user = user;
    }

    /**
     * What a build is made of.
     *
     * @param uploads by the folder of the build context that each is to lie in, the hash by which the client knows it
     */
    record Compiled(String dockerfile, SequencedMap<String, String> uploads) {}

    /** Of an image of a registry. */
    static Compiled ofImage(String image, JsonNode build) {
        if (!IMAGE.matcher(image).matches()) {
            throw Text.invalid("fromImage: '" + image + "' (expected: a reference such as python:3.12-slim)");
        }
        var steps = new TemplateSteps(USER);
        steps.line("FROM " + image);
        steps.become(ROOT);
        steps.line("RUN " + words("/bin/sh", "-c", PREPARE));
        steps.become(USER);
        steps.line("WORKDIR " + HOME);
        return steps.all(build);
    }

    /**
     * Of a template of the installation, of which it is known whom things run as.
     *
     * @param atHome whether it says of no folder that things are to run in it
     */
    static Compiled ofTemplate(String template, String user, boolean atHome, JsonNode build) {
        var steps = new TemplateSteps(user);
        steps.line("FROM atoll/" + template);
        steps.become(user);
        if (atHome) {
            steps.line("WORKDIR " + HOME);
        }
        return steps.all(build);
    }

    /** Whom a Dockerfile of ours leaves things to. */
    static String userAtEnd(String dockerfile) {
        return dockerfile
                .lines()
                .filter(line -> line.startsWith("USER "))
                .reduce((_, later) -> later)
                .map(line -> line.substring("USER ".length()))
                .orElse(USER);
    }

    /** The step that the instruction of that number, counted from 1, belongs to: a number counted from 0, or {@code base} before them. */
    static String stepOf(String dockerfile, int instruction) {
        String step = "base";
        int number = 0;
        for (String line : dockerfile.lines().toList()) {
            if (line.startsWith(STEP)) {
                step = line.substring(STEP.length());
            } else if (!line.isBlank()) {
                number++;
                if (number == instruction) {
                    return step;
                }
            }
        }
        return step;
    }

    private Compiled all(JsonNode build) {
        int number = 0;
        for (JsonNode step : build.path("steps")) {
            line(STEP + number);
            try {
                step(step);
            } catch (AtollException e) {
                throw Text.invalid("step " + number + ": " + e.message());
            }
            become(user);
            number++;
        }
        String start = Text.text(build, "startCmd").orElse("");
        String ready = Text.text(build, "readyCmd").orElse("");
        if (start.isBlank() && !ready.isBlank()) {
            line(STEP + "finalize");
            line("RUN " + words("/bin/bash", "-l", "-c", awaiting(ready)));
        }
        return new Compiled(text.toString(), uploads);
    }

    private static String awaiting(String ready) {
        return "for try in $(seq 1 300); do (" + ready
                + "\n) && exit 0; sleep 1; done; echo 'it was not ready in time' >&2; exit 1";
    }

    private void step(JsonNode step) {
        List<String> args = new ArrayList<>();
        step.path("args").forEach(arg -> args.add(arg.isString() ? arg.stringValue() : arg.toString()));
        String type = Text.required(step, "type");
        switch (type) {
            case "ENV" -> env(args);
            case "RUN" -> {
                become(args.size() > 1 && !args.get(1).isEmpty() ? owner(args.get(1)) : user);
                line("RUN " + words("/bin/bash", "-l", "-c", arg(args, 0)));
            }
            case "WORKDIR" -> {
                String folder = arg(args, 0);
                if (!user.equals(ROOT)) {
                    // Else it would be root's.
                    line("RUN " + words("/bin/bash", "-c", "mkdir -p -- \"$1\" || true", "mkdir", folder));
                }
                line("WORKDIR " + quoted(folder));
            }
            case "USER" -> user = owner(arg(args, 0));
            case "COPY" -> copy(step, args);
            default -> throw Text.invalid("type '" + type + "' (expected: ENV, RUN, WORKDIR, USER or COPY)");
        }
    }

    private void env(List<String> args) {
        if (args.size() % 2 != 0) {
            throw Text.invalid(args.size() + " arguments of ENV (expected: names and values)");
        }
        for (int i = 0; i < args.size(); i += 2) {
            if (!VARIABLE.matcher(args.get(i)).matches()) {
                throw Text.invalid("variable '" + args.get(i) + "' (expected: letters, digits and _)");
            }
            line("ENV " + args.get(i) + "=" + quoted(args.get(i + 1)));
        }
    }

    private void copy(JsonNode step, List<String> args) {
        String hash = Text.required(step, "filesHash");
        if (!HASH.matcher(hash).matches()) {
            throw Text.invalid("filesHash '" + hash + "' (expected: a hash)");
        }
        String folder = Integer.toString(uploads.size());
        uploads.put(folder, hash);
        String source = arg(args, 0);
        String target = arg(args, 1);
        // Where several may match, what they go to is a folder.
        boolean several = source.matches(".*[*?\\[].*") && !target.endsWith("/");
        String owner = args.size() > 2 && !args.get(2).isEmpty() ? owner(args.get(2)) : user;
        StringBuilder copy = new StringBuilder("COPY --chown=").append(owner);
        if (args.size() > 3 && !args.get(3).isEmpty()) {
            if (!MODE.matcher(args.get(3)).matches()) {
                throw Text.invalid("mode '" + args.get(3) + "' (expected: octal, such as 755)");
            }
            copy.append(" --chmod=").append(args.get(3));
        }
        line(copy.append(' ')
                .append(words(escaped(folder + "/" + source), escaped(several ? target + "/" : target)))
                .toString());
    }

    private static String arg(List<String> args, int index) {
        if (args.size() <= index || args.get(index).isBlank()) {
            throw Text.invalid("argument " + (index + 1) + " is missing");
        }
        return args.get(index);
    }

    private static String owner(String name) {
        if (!OWNER.matcher(name).matches()) {
            throw Text.invalid("user '" + name + "' (expected: a user's name or number, and :group if wanted)");
        }
        return name;
    }

    private void become(String whom) {
        if (!at.equals(whom)) {
            at = whom;
            line("USER " + whom);
        }
    }

    private void line(String instruction) {
        text.append(instruction).append('\n');
    }

    /** The JSON form: one line, whatever the words hold. */
    private static String words(String... words) {
        var array = JsonNodeFactory.instance.arrayNode();
        for (String word : words) {
            array.add(word);
        }
        return array.toString();
    }

    /** A word in which variables are replaced, as in the SDKs' own service. */
    private static String quoted(String text) {
        if (text.chars().anyMatch(c -> c == '\n' || c == '\r' || c == 0)) {
            throw Text.invalid("a text of several lines (expected: one; write it to a file)");
        }
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** A path in which none are. */
    private static String escaped(String path) {
        StringBuilder safe = new StringBuilder();
        path.chars().forEach(c -> {
            if (c == '\\' || c == '$' || c == '"' || c == '\'') {
                safe.append('\\');
            }
            safe.append((char) c);
        });
        return safe.toString();
    }
}

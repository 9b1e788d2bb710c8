package atoll.core.template;

import java.io.InputStream;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * A definition as a Dockerfile with its context, which is how everything is built that is not made of an image or a recipe alone. Whatever
 * callers wrote stands in it quoted: in the JSON form of its instructions, and there in the shell's quotes.
 *
 * @param context the files that it copies, where the definition has some; the uploaded context is not in here
 */
record TemplateDockerfile(String text, Optional<Supplier<InputStream>> context) {
    /** What stands before a template's id where an image is named. */
    static final String NAMESPACE = "atoll/";

    /** Names the image that the definition itself is made of, if the node has it already. */
    static final String BASE = "atoll-base";

    private static final String FILES = ".atoll/files/";
    private static final Pattern NAMED = Pattern.compile("(?<![A-Za-z0-9._/-])atoll/([a-z0-9][a-z0-9._-]{0,62})");
    private static final Pattern NAMING = Pattern.compile("(?i)^\\s*(FROM\\s|ARG\\s|.*--from=|.*[,\\s=]from=)");
    /** A command that the Dockerfile's own parser reads as it stands. */
    private static final Pattern PLAIN = Pattern.compile("[^\\[\\-\\s#\\\\][^\\n\\r\\\\]*");

    /** @param user whom things run as in an image of the node that this is made of; empty: not known */
    static TemplateDockerfile of(TemplateDefinition definition, boolean baseIsHere, String user) {
        StringBuilder text = new StringBuilder();
        if (!definition.dockerfile().isEmpty()) {
            text.append(definition.dockerfile().stripTrailing()).append('\n');
        } else {
            text.append("FROM ").append(baseIsHere ? BASE : definition.image()).append('\n');
        }
        boolean asRoot = !definition.packages().isEmpty()
                || !definition.files().isEmpty()
                || !definition.commands().isEmpty();
        if (asRoot) {
            text.append("USER root\n");
            packages(text, definition.packages());
            files(text, definition.files());
            definition.commands().forEach(command -> text.append(command(command)));
        }
        if (!definition.workdir().isEmpty()) {
            text.append("WORKDIR ").append(word(definition.workdir())).append('\n');
        }
        if (!definition.user().isEmpty()) {
            text.append("USER ").append(definition.user()).append('\n');
        } else if (asRoot && !user.isEmpty()) {
            text.append("USER ").append(user).append('\n');
        }
        return new TemplateDockerfile(text.toString(), context(definition.files()));
    }

    /** Whether the definition asks for more than an image as it is. */
    static boolean isNeeded(TemplateDefinition definition) {
        return !definition.dockerfile().isEmpty()
                || !definition.packages().isEmpty()
                || !definition.files().isEmpty()
                || !definition.commands().isEmpty()
                || !definition.user().isEmpty()
                || !definition.workdir().isEmpty();
    }

    /** The ids of templates whose images the definition names. */
    static Set<String> bases(TemplateDefinition definition) {
        Set<String> found = new LinkedHashSet<>();
        if (definition.image().startsWith(NAMESPACE)) {
            found.add(definition.image().substring(NAMESPACE.length()));
        }
        definition
                .dockerfile()
                .lines()
                .filter(line -> NAMING.matcher(line).find())
                .forEach(line -> {
                    Matcher matcher = NAMED.matcher(line);
                    while (matcher.find()) {
                        found.add(matcher.group(1));
                    }
                });
        return found;
    }

    private static void packages(StringBuilder text, Packages packages) {
        if (!packages.apt().isEmpty()) {
            text.append(run("""
                    set -e
                    command -v apt-get >/dev/null || { echo 'apt: the image has no apt-get' >&2; exit 1; }
                    export DEBIAN_FRONTEND=noninteractive
                    apt-get -o APT::Sandbox::User=root update
                    apt-get -o APT::Sandbox::User=root install -y --no-install-recommends %s
                    apt-get clean
                    rm -rf /var/lib/apt/lists/*
                    """.formatted(quoted(packages.apt()))));
        }
        if (!packages.pip().isEmpty()) {
            text.append(run("""
                    set -e
                    py=$(command -v python3 || command -v python || true)
                    [ -n "$py" ] || { echo 'pip: the image has no Python' >&2; exit 1; }
                    if ! "$py" -m pip --version >/dev/null 2>&1 && ! "$py" -m ensurepip >/dev/null 2>&1; then
                      if command -v apt-get >/dev/null; then
                        apt-get -o APT::Sandbox::User=root update
                        apt-get -o APT::Sandbox::User=root install -y --no-install-recommends python3-pip
                        rm -rf /var/lib/apt/lists/*
                      elif command -v apk >/dev/null; then
                        apk add --no-cache py3-pip
                      else
                        echo 'pip: the image has no pip' >&2; exit 1
                      fi
                    fi
                    export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore
                    "$py" -m pip install --no-cache-dir --disable-pip-version-check %s
                    """.formatted(quoted(packages.pip()))));
        }
        if (!packages.npm().isEmpty()) {
            String names = quoted(packages.npm());
            text.append(run("""
                    set -e
                    mkdir -p /usr/local/lib/node_modules
                    if command -v npm >/dev/null; then
                      npm install --global --prefix /usr/local --no-audit --no-fund --no-update-notifier %s
                    elif command -v bun >/dev/null; then
                      cd /usr/local/lib
                      [ -f package.json ] || echo '{}' >package.json
                      bun add %s
                    else
                      echo 'npm: the image has neither npm nor bun' >&2; exit 1
                    fi
                    # Found from any folder.
                    [ -e /node_modules ] || ln -s /usr/local/lib/node_modules /node_modules
                    rm -rf /root/.npm /root/.bun/install/cache
                    """.formatted(names, names)));
        }
        if (!packages.go().isEmpty()) {
            List<String> names = packages.go().stream()
                    .map(name -> name.contains("@") ? name : name + "@latest")
                    .toList();
            // Root's own would be found by nobody else.
            text.append("ENV GOMODCACHE=/var/cache/go-mod\n");
            text.append(run("""
                    set -e
                    command -v go >/dev/null || { echo 'go: the image has no Go' >&2; exit 1; }
                    folder=$(mktemp -d)
                    cd "$folder"
                    go mod init atoll.local/packages
                    go get %s
                    go mod download
                    chmod -R a+rwX "$GOMODCACHE"
                    rm -rf "$folder"
                    """.formatted(quoted(names))));
        }
    }

    private static void files(StringBuilder text, List<TemplateFile> files) {
        for (int i = 0; i < files.size(); i++) {
            TemplateFile file = files.get(i);
            text.append("COPY --chmod=").append(String.format("%04o", file.mode()));
            if (!file.owner().isEmpty()) {
                text.append(" --chown=").append(file.owner());
            }
            text.append(" [")
                    .append(json(FILES + i))
                    .append(", ")
                    .append(json(escaped(file.path())))
                    .append("]\n");
        }
    }

    private static Optional<Supplier<InputStream>> context(List<TemplateFile> files) {
        if (files.isEmpty()) {
            return Optional.empty();
        }
        return Optional.of(() -> {
            Tar tar = new Tar();
            for (int i = 0; i < files.size(); i++) {
                tar.file(FILES + i, files.get(i).content(), files.get(i).mode());
            }
            return tar.stream();
        });
    }

    private static String command(String command) {
        boolean plain = PLAIN.matcher(command).matches() && !command.contains("<<") && !command.endsWith(" ");
        return plain ? "RUN " + command + "\n" : run(command);
    }

    /** The JSON form, on one line whatever the script holds. */
    private static String run(String script) {
        return "RUN [\"/bin/sh\", \"-c\", " + json(script) + "]\n";
    }

    /** Words for the shell, each in quotes. */
    private static String quoted(List<String> words) {
        return words.stream()
                .map(word -> "'" + word.replace("'", "'\\''") + "'")
                .collect(Collectors.joining(" "));
    }

    /** A word of an instruction in which variables would be replaced. */
    private static String word(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("$", "\\$") + '"';
    }

    /** The same for one that stands in JSON without quotes of its own. */
    private static String escaped(String text) {
        StringBuilder safe = new StringBuilder();
        text.chars().forEach(c -> {
            if (c == '\\' || c == '$' || c == '"' || c == '\'') {
                safe.append('\\');
            }
            safe.append((char) c);
        });
        return safe.toString();
    }

    private static String json(String text) {
        StringBuilder json = new StringBuilder("\"");
        text.chars().forEach(c -> {
            switch (c) {
                case '"' -> json.append("\\\"");
                case '\\' -> json.append("\\\\");
                case '\n' -> json.append("\\n");
                case '\r' -> json.append("\\r");
                case '\t' -> json.append("\\t");
                default -> {
                    if (c < 0x20 || c == 0x7f || c == 0x2028 || c == 0x2029) {
                        json.append(String.format("\\u%04x", c));
                    } else {
                        json.append((char) c);
                    }
                }
            }
        });
        return json.append('"').toString();
    }
}

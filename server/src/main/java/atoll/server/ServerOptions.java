package atoll.server;

import atoll.core.Settings;
import java.io.IOException;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;

/**
 * How the server is started. Each option is a flag ({@code --port 8080} or {@code --port=8080}), a variable ({@code ATOLL_PORT}) or a line of the file that
 * {@code --config} names ({@code port=8080}); the first of these that has it counts. Names with a dot are settings of core, as flags and in the file alike.
 *
 * @param engineSocket where the engine listens
 * @param accessLog a file, or {@code -} for the log
 * @param domain below which sandboxes' ports have host names
 * @param e2bTemplates of this installation, behind E2B's names for its own
 * @param uiHosts names that the dashboard answers to, besides those of loopback, the address that it listens on, and {@code domain}
 * @param allowedOrigins web pages' origins that may call {@code /mcp}, besides those of this machine
 */
record ServerOptions(
        String host,
        int port,
        Path data,
        Path engineSocket,
        Optional<String> accessLog,
        List<String> allowedOrigins,
        List<String> uiHosts,
        long maxBodyBytes,
        Optional<String> domain,
        String e2bTemplates,
        Map<String, String> settings) {

    private static final List<String> NAMES = List.of(
            "host",
            "port",
            "data",
            "engine-socket",
            "access-log",
            "allowed-origins",
            "ui-hosts",
            "max-body-bytes",
            "domain",
            "e2b-templates");

    private static final String OPTIONS = """
            usage: atoll-server --data DIR [options]

              --data DIR             everything that the server keeps
              --host ADDRESS         listen here (default 127.0.0.1)
              --port NUMBER          (default 8080; 0 picks a free one)
              --engine-socket PATH   where the engine listens (default DIR/engine.sock)
              --access-log FILE      one line per request; - for the log (default none)
              --allowed-origins LIST origins of web pages that may call /mcp, with commas between
              --ui-hosts LIST        names under which browsers may open the dashboard, besides localhost, --host and --domain
              --max-body-bytes N     of one request (default 41943040)
              --domain NAME          sandboxes' ports are served at PORT-ID.NAME (default localhost:PORT OF THE SERVER)
              --e2b-templates LIST   base=NAME,code-interpreter-v1=NAME: templates behind E2B's names (default base and data-science where
                                     their images are there, else python)
              --config FILE          more options, as lines name=value
              --SETTING VALUE        a setting of sandboxes and pools, such as --pool.depth 4

            Each option may also come from the environment: ATOLL_PORT for --port, and so on.
            """;

    /** What there is to set, for people. */
    static String usage() {
        return OPTIONS + "\nSettings:\n\n  " + String.join("\n  ", Settings.names()) + "\n";
    }

    static ServerOptions read(List<String> arguments, Map<String, String> environment) throws IOException {
        Map<String, String> flags = flags(arguments);
        Map<String, String> values = new TreeMap<>();
        String file = flags.containsKey("config") ? flags.remove("config") : environment.get("ATOLL_CONFIG");
        if (file != null) {
            values.putAll(file(Path.of(file)));
        }
        for (String name : NAMES) {
            String variable = "ATOLL_" + name.toUpperCase(Locale.ROOT).replace('-', '_');
            String value = environment.get(variable);
            if (value != null && !value.isEmpty()) {
                values.put(name, value);
            }
        }
        values.putAll(flags);
        return of(values);
    }

    private static ServerOptions of(Map<String, String> values) {
        var settings = new HashMap<String, String>();
        for (Map.Entry<String, String> value : values.entrySet()) {
            if (value.getKey().contains(".")) {
                settings.put(value.getKey(), value.getValue());
            } else if (!NAMES.contains(value.getKey())) {
                throw new IllegalArgumentException("--" + value.getKey() + ": no such option (see --help)");
            }
        }
        String data = values.get("data");
        if (data == null) {
            throw new IllegalArgumentException("--data is missing: name a folder for what the server keeps");
        }
        Path folder = Path.of(data).toAbsolutePath();
        return new ServerOptions(
                values.getOrDefault("host", "127.0.0.1"),
                (int) number(values, "port", 8080, 65_535),
                folder,
                Path.of(values.getOrDefault(
                        "engine-socket", folder.resolve("engine.sock").toString())),
                Optional.ofNullable(values.get("access-log")),
                list(values, "allowed-origins"),
                list(values, "ui-hosts").stream()
                        .map(name -> name.toLowerCase(Locale.ROOT))
                        .toList(),
                number(values, "max-body-bytes", 40L << 20, 1L << 30),
                Optional.ofNullable(values.get("domain")).map(String::strip).filter(name -> !name.isEmpty()),
                values.getOrDefault("e2b-templates", ""),
                Map.copyOf(settings));
    }

    private static List<String> list(Map<String, String> values, String name) {
        return List.of(values.getOrDefault(name, "").split(",", -1)).stream()
                .map(String::strip)
                .filter(item -> !item.isEmpty())
                .toList();
    }

    private static long number(Map<String, String> values, String name, long otherwise, long most) {
        String text = values.get(name);
        if (text == null) {
            return otherwise;
        }
        try {
            long value = Long.parseLong(text.strip());
            if (value >= 0 && value <= most) {
                return value;
            }
        } catch (NumberFormatException _) {
            // Said below, with the limits.
        }
        throw new IllegalArgumentException("--%s: \"%s\" (expected: 0 to %d)".formatted(name, text, most));
    }

    private static Map<String, String> flags(List<String> arguments) {
        var flags = new TreeMap<String, String>();
        for (int i = 0; i < arguments.size(); i++) {
            String argument = arguments.get(i);
            if (!argument.startsWith("--")) {
                throw new IllegalArgumentException(argument + ": no option (see --help)");
            }
            int equals = argument.indexOf('=');
            String name = argument.substring(2, equals < 0 ? argument.length() : equals);
            if (equals < 0 && i + 1 == arguments.size()) {
                throw new IllegalArgumentException("--" + name + ": its value is missing");
            }
            String value = equals < 0 ? arguments.get(++i) : argument.substring(equals + 1);
            if (flags.put(name, value) != null) {
                throw new IllegalArgumentException("--" + name + " is there twice");
            }
        }
        return flags;
    }

    private static Map<String, String> file(Path path) throws IOException {
        var properties = new Properties();
        try (Reader reader = Files.newBufferedReader(path, StandardCharsets.UTF_8)) {
            properties.load(reader);
        } catch (NoSuchFileException e) {
            throw new IllegalArgumentException("--config: there is no file " + path, e);
        }
        var values = new TreeMap<String, String>();
        for (String name : properties.stringPropertyNames()) {
            values.put(name, properties.getProperty(name));
        }
        return values;
    }
}

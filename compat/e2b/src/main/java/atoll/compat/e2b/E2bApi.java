package atoll.compat.e2b;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.http.Exchange;
import atoll.http.RouteHandler;
import atoll.http.RouteTable;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** The routes of this protocol. Its SDKs are pointed here by {@code E2B_API_URL} and {@code E2B_SANDBOX_URL}, both {@code <server>/compat/e2b}. */
public final class E2bApi {
    /** Where the SDKs' base addresses point to. */
    public static final String PREFIX = "/compat/e2b";

    /** The SDKs decide by it what the agent can do; this adapter has all that this version has. */
    static final String ENVD_VERSION = "0.6.13";

    static final String NOT_YET = "is not supported by this server yet";

    private static final String KEY_PREFIX = "e2b_";
    private static final Pattern HEXADECIMAL = Pattern.compile("([0-9a-f]{2}){1,256}");

    private interface CallerHandler {
        void handle(Exchange exchange, Caller caller) throws IOException, InterruptedException;
    }

    private final Atoll atoll;

    private E2bApi(Atoll atoll) {
        this.atoll = atoll;
    }

    /** Adds them; requests for a sandbox, told by headers or host, come before all other routes. */
    public static void addTo(RouteTable.Builder routes, Atoll atoll, E2bSettings settings) {
        new E2bApi(atoll).add(routes, settings);
    }

    private void add(RouteTable.Builder routes, E2bSettings settings) {
        var plane = new SandboxPlane(atoll);
        var templates = new E2bTemplates(atoll.templates(), settings);
        var control = new ControlPlane(atoll, templates, settings);
        var builds = new TemplateBuilds(atoll, templates);
        var snapshots = new SnapshotsApi(atoll, builds);
        routes.select("e2b sandbox", SandboxPlane::isFor, ApiErrors.answering(plane::serve));
        // The SDKs leave every prefix out of signed addresses.
        RouteHandler signed = ApiErrors.answering(plane::signedFile);
        routes.get("/files", signed).post("/files", signed);
        routes.get(PREFIX + "/files", signed).post(PREFIX + "/files", signed);

        routes.get(PREFIX + "/health", exchange -> exchange.empty(204));
        String sandboxes = PREFIX + "/sandboxes";
        String one = sandboxes + "/{sandbox_id}";
        routes.post(PREFIX + "/v2/sandboxes", guarded(control::create))
                .post(sandboxes, guarded(control::create))
                .get(PREFIX + "/v2/sandboxes", guarded(control::list))
                .get(sandboxes, guarded(control::listRunning))
                .post(PREFIX + "/v2/sandboxes/{sandbox_id}/connect", guarded(control::connect))
                .post(one + "/connect", guarded(control::connect))
                .post(one + "/resume", guarded(control::resume))
                .get(one, guarded(control::get))
                .delete(one, guarded(control::kill))
                .post(one + "/timeout", guarded(control::timeout))
                .post(one + "/pause", guarded(control::pause))
                .post(one + "/fork", guarded(control::fork))
                .get(one + "/metrics", guarded(control::metrics))
                .post(one + "/snapshots", guarded(snapshots::create))
                .get(PREFIX + "/snapshots", guarded(snapshots::list))
                .delete(PREFIX + "/templates/{template}", guarded(snapshots::delete));
        String template = PREFIX + "/templates/{template}";
        String build = template + "/builds/{build}";
        routes.post(PREFIX + "/v3/templates", guarded(builds::announce))
                .post(PREFIX + "/v2/templates", guarded(builds::announce))
                .post(PREFIX + "/v2/templates/{template}/builds/{build}", guarded(builds::start))
                .get(template + "/files/{hash}", guarded(builds::uploadLink))
                .put(PREFIX + "/uploads/{ticket}", ApiErrors.answering(builds::upload))
                .get(build + "/status", guarded(builds::status))
                .get(build + "/logs", guarded(builds::logs))
                .post(PREFIX + "/templates/tags", guarded(builds::assignTags))
                .get(template + "/{part}", guarded(builds::part))
                .get(PREFIX + "/templates", guarded(builds::list))
                .get(PREFIX + "/v2/templates", guarded(builds::list))
                .get(template, guarded(builds::get));
        var events = new EventsApi(atoll);
        routes.get(PREFIX + "/events/sandboxes", guarded(events::list))
                .get(PREFIX + "/events/sandboxes/{sandbox_id}", guarded(events::ofSandbox));
        notYet(routes, "GET", "/events/webhooks", "Webhooks");
        notYet(routes, "POST", "/events/webhooks", "Webhooks");
        notYet(routes, "PUT", "/sandboxes/{sandbox_id}/network", "Changing the network of a sandbox");
        notYet(routes, "POST", "/volumes", "Volumes");
        notYet(routes, "GET", "/volumes", "Volumes");
        notYet(routes, "POST", "/secrets", "Secrets");
        notYet(routes, "GET", "/secrets", "Secrets");
    }

    private void notYet(RouteTable.Builder routes, String method, String path, String what) {
        routes.add(
                method,
                PREFIX + path,
                guarded((exchange, caller) -> ApiErrors.answer(exchange, 501, what + " " + NOT_YET)));
    }

    private RouteHandler guarded(CallerHandler handler) {
        return ApiErrors.answering(exchange -> handler.handle(exchange, caller(key(exchange))));
    }

    /**
     * Some clients take only keys that look like E2B's, {@code e2b_} and for some only hexadecimal digits behind it: any key of this installation may have that put in
     * front, and may stand behind it in hexadecimal.
     */
    private Caller caller(String key) {
        if (!key.startsWith(KEY_PREFIX)) {
            return atoll.keys().authenticate(key);
        }
        String rest = key.substring(KEY_PREFIX.length());
        for (String form : HEXADECIMAL.matcher(rest).matches()
                ? List.of(key, rest, new String(HexFormat.of().parseHex(rest), StandardCharsets.UTF_8))
                : List.of(key, rest)) {
            try {
                return atoll.keys().authenticate(form);
            } catch (AtollException e) {
                if (e.code() != ErrorCode.UNAUTHENTICATED) {
                    throw e;
                }
            }
        }
        return atoll.keys().authenticate("");
    }

    /** The SDKs' own header; older tools send a bearer. */
    private static String key(Exchange exchange) {
        @Nullable String key = exchange.header("X-API-KEY");
        if (key == null) {
            String bearer = exchange.header("Authorization");
            key = bearer != null && bearer.regionMatches(true, 0, "Bearer ", 0, 7) ? bearer.substring(7) : "";
        }
        return key.strip();
    }

    /** The path below a sandbox's base address, which may be this prefix or the root. */
    static String unprefixed(String path) {
        return path.equals(PREFIX) || path.startsWith(PREFIX + "/") ? path.substring(PREFIX.length()) : path;
    }
}

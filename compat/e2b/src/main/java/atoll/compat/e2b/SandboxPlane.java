package atoll.compat.e2b;

import atoll.compat.shared.TunnelPeer;
import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.SandboxTokens;
import atoll.core.port.Ports;
import atoll.core.port.Tunnel;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Sandboxes;
import atoll.http.ClientGoneException;
import atoll.http.Exchange;
import atoll.http.PortProxy;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** Everything that is meant for one sandbox, named by two headers or by the host: its agent, its code server, and its ports. */
final class SandboxPlane {
    static final String ENVD = "e2b/envd";
    static final String TRAFFIC = "e2b/traffic";

    private static final String ID_HEADER = "E2b-Sandbox-Id";
    private static final String PORT_HEADER = "E2b-Sandbox-Port";
    private static final String KEY_HEADER = "X-API-KEY";
    private static final String TOKEN_HEADER = "X-Access-Token";
    private static final String TRAFFIC_HEADER = "e2b-traffic-access-token";
    private static final int ENVD_PORT = 49_983;
    private static final int CODE_PORT = 49_999;
    private static final int BAD_GATEWAY = 502;
    private static final Pattern HOST = Pattern.compile("(\\d{1,5})-([0-9a-z]{26})\\..+");
    private static final Pattern AGENT_PATH =
            Pattern.compile("/(health|files|process\\.Process/\\w+|filesystem\\.Filesystem/\\w+)");
    /** What is for Atoll is not for the sandbox's own server. */
    private static final Set<String> WITHHELD =
            Set.of("e2b-sandbox-id", "e2b-sandbox-port", "x-access-token", TRAFFIC_HEADER, "x-api-key");

    private final Sandboxes sandboxes;
    private final SandboxTokens tokens;
    private final Ports ports;
    private final ProcessRpc processes;
    private final FilesystemRpc filesystem;
    private final FileTransfer transfer;
    private final CodeServer code;
    private final PortProxy proxy = new PortProxy(WITHHELD::contains);

    SandboxPlane(Atoll atoll) {
        this.sandboxes = atoll.sandboxes();
        this.tokens = atoll.tokens();
        this.ports = atoll.ports();
        this.processes = new ProcessRpc(atoll.processes(), atoll.files());
        this.filesystem = new FilesystemRpc(atoll.files());
        this.transfer = new FileTransfer(atoll.files());
        this.code = new CodeServer(atoll.codeExecution(), atoll.contexts());
    }

    /** Which sandbox a request names, and which of its ports. */
    private record Address(String sandbox, int port) {
        static Optional<Address> of(Exchange exchange) {
            String id = exchange.header(ID_HEADER);
            if (id != null && !id.isBlank()) {
                String port = exchange.header(PORT_HEADER);
                return Optional.of(new Address(id.strip(), port == null ? ENVD_PORT : number(port.strip())));
            }
            Matcher host = HOST.matcher(exchange.host().toLowerCase(Locale.ROOT));
            return host.matches() ? Optional.of(new Address(host.group(2), number(host.group(1)))) : Optional.empty();
        }

        private static int number(String text) {
            try {
                int port = Integer.parseInt(text);
                return port > 0 && port < 65_536 ? port : 0;
            } catch (NumberFormatException e) {
                return 0;
            }
        }
    }

    static boolean isFor(Exchange exchange) {
        return Address.of(exchange).map(_ -> !isControl(exchange)).orElseGet(() -> isByToken(exchange));
    }

    /** Python's e2b 2.20 names no sandbox to the agent of one that it has connected to, and shows its token only. */
    private static boolean isByToken(Exchange exchange) {
        String path = exchange.rawPath();
        return exchange.header(TOKEN_HEADER) != null
                && path.startsWith(E2bApi.PREFIX + "/")
                && AGENT_PATH.matcher(E2bApi.unprefixed(path)).matches();
    }

    /** Python's e2b 2.20 names a sandbox's agent by these headers where it asks the control plane to connect; an agent has no such paths. */
    private static boolean isControl(Exchange exchange) {
        String path = E2bApi.unprefixed(exchange.rawPath());
        String port = exchange.header(PORT_HEADER);
        return exchange.header(KEY_HEADER) != null
                && (port == null || port.strip().equals(Integer.toString(ENVD_PORT)))
                && (path.startsWith("/sandboxes/") || path.startsWith("/v2/sandboxes/"));
    }

    void serve(Exchange exchange) throws IOException, InterruptedException {
        Address address = Address.of(exchange).orElseGet(() -> byToken(exchange));
        SandboxTokens.Bearer visitor;
        Sandbox sandbox;
        try {
            SandboxId id = Text.sandbox(address.sandbox);
            visitor = tokens.anonymous(id);
            sandbox = sandboxes.get(visitor.caller(), id);
        } catch (AtollException e) {
            notThere(exchange, address.sandbox);
            return;
        }
        if (!isReachable(sandbox)) {
            notThere(exchange, address.sandbox);
            return;
        }
        var request =
                new SandboxRequest(exchange, sandbox.id(), visitor.caller(), E2bApi.unprefixed(exchange.rawPath()));
        try {
            switch (address.port) {
                case ENVD_PORT -> envd(request, sandbox);
                case CODE_PORT -> code(request, sandbox);
                default -> port(request, sandbox, address.port);
            }
        } catch (AtollException e) {
            if (exchange.answered() || !isGone(e.code())) {
                throw e;
            }
            notThere(exchange, address.sandbox);
        }
    }

    private Address byToken(Exchange exchange) {
        byte[] given = String.valueOf(exchange.header(TOKEN_HEADER)).strip().getBytes(StandardCharsets.UTF_8);
        Optional<SandboxTokens.Bearer> found =
                tokens.find(ENVD, token -> MessageDigest.isEqual(token.getBytes(StandardCharsets.UTF_8), given));
        return new Address(found.map(bearer -> Text.id(bearer.sandbox())).orElse("of this token"), ENVD_PORT);
    }

    private static boolean isGone(ErrorCode code) {
        return code == ErrorCode.SANDBOX_ENDED
                || code == ErrorCode.SANDBOX_NOT_FOUND
                || code == ErrorCode.SANDBOX_PAUSED;
    }

    /** One that is paused is woken by traffic only if it was made so. */
    private static boolean isReachable(Sandbox sandbox) {
        return switch (sandbox.state()) {
            case CREATING, RUNNING, RESUMING -> true;
            case PAUSING, PAUSED -> sandbox.lifecycle().autoResume();
            case ENDED -> false;
        };
    }

    private static void notThere(Exchange exchange, String id) throws IOException, InterruptedException {
        ObjectNode body = JsonNodeFactory.instance.objectNode();
        body.put("sandboxId", id).put("message", "The sandbox was not found").put("code", BAD_GATEWAY);
        exchange.json(BAD_GATEWAY, body);
    }

    private void envd(SandboxRequest request, Sandbox sandbox) throws IOException, InterruptedException {
        Exchange exchange = request.exchange();
        String path = request.path();
        if (path.equals("/health")) {
            exchange.empty(sandbox.state() == SandboxState.PAUSED ? BAD_GATEWAY : 204);
            return;
        }
        boolean signed = path.equals("/files") && exchange.query("signature") != null;
        if (!signed && !holds(exchange.header(TOKEN_HEADER), sandbox.id(), ENVD)) {
            unauthenticated(exchange, path);
            return;
        }
        if (signed && !Signature.fits(exchange, tokens.token(request.caller(), sandbox.id(), ENVD))) {
            ApiErrors.answer(exchange, 401, "the signature is wrong or has expired");
            return;
        }
        int slash = path.indexOf('/', 1);
        String service = slash < 0 ? path : path.substring(1, slash);
        String method = slash < 0 ? "" : path.substring(slash + 1);
        switch (service) {
            case "process.Process" -> processes.serve(request, method);
            case "filesystem.Filesystem" -> filesystem.serve(request, method);
            case "/files" -> {
                String user = exchange.query("username");
                ApiErrors.answer(exchange, _ -> transfer.serve(request, user == null ? "" : user));
            }
            default -> ApiErrors.answer(exchange, 404, "not found: " + path);
        }
    }

    private boolean holds(@org.jspecify.annotations.Nullable String token, SandboxId sandbox, String purpose) {
        if (token == null) {
            return false;
        }
        try {
            return tokens.authenticate(sandbox, purpose, token.strip())
                    .sandbox()
                    .equals(sandbox);
        } catch (AtollException e) {
            return false;
        }
    }

    private static void unauthenticated(Exchange exchange, String path) throws IOException, InterruptedException {
        ObjectNode body = JsonNodeFactory.instance.objectNode();
        if (path.startsWith("/files")) {
            body.put("code", 401);
        } else {
            body.put("code", "unauthenticated");
        }
        exchange.json(401, body.put("message", "the sandbox's access token is missing or wrong"));
    }

    private void code(SandboxRequest request, Sandbox sandbox) throws IOException, InterruptedException {
        // Calls about contexts come without any token; running code needs it.
        boolean open = !request.path().equals("/execute")
                || holds(request.exchange().header(TOKEN_HEADER), sandbox.id(), ENVD);
        if (!open) {
            ApiErrors.answer(request.exchange(), 401, "the sandbox's access token is missing or wrong");
        } else if (mayPass(request.exchange(), sandbox)) {
            code.serve(request);
        }
    }

    /** Whether a port is open to everybody, or the request has the token for it; else it is answered. */
    private boolean mayPass(Exchange exchange, Sandbox sandbox) throws IOException, InterruptedException {
        if (!E2bLabels.isPrivate(sandbox) || holds(exchange.header(TRAFFIC_HEADER), sandbox.id(), TRAFFIC)) {
            return true;
        }
        ObjectNode body = JsonNodeFactory.instance.objectNode();
        body.put("sandboxId", Text.id(sandbox.id()))
                .put("message", "the traffic access token is missing or wrong")
                .put("code", 403);
        exchange.json(403, body);
        return false;
    }

    private void port(SandboxRequest request, Sandbox sandbox, int port) throws IOException, InterruptedException {
        Exchange exchange = request.exchange();
        if (!mayPass(exchange, sandbox)) {
            return;
        }
        if (port == 0) {
            ApiErrors.answer(exchange, 400, "no port of 1 to 65535 is named");
            return;
        }
        Tunnel tunnel;
        try {
            tunnel = ports.tunnel(request.caller(), request.sandbox(), port);
        } catch (AtollException e) {
            if (e.code() != ErrorCode.PORT_CLOSED) {
                throw e;
            }
            closed(exchange, sandbox, port);
            return;
        }
        String query = exchange.rawQuery();
        String path = request.path().isEmpty() ? "/" : request.path();
        try {
            proxy.forward(exchange, new TunnelPeer(tunnel), query == null ? path : path + "?" + query);
        } catch (ClientGoneException e) {
            throw e;
        } catch (IOException e) {
            if (exchange.answered()) {
                throw new ClientGoneException("the sandbox's server broke off: " + e.getMessage());
            }
            ApiErrors.answer(
                    exchange,
                    BAD_GATEWAY,
                    "the sandbox's server on port " + port + " did not answer: " + e.getMessage());
        }
    }

    private static void closed(Exchange exchange, Sandbox sandbox, int port) throws IOException, InterruptedException {
        ObjectNode body = JsonNodeFactory.instance.objectNode();
        body.put("sandboxId", Text.id(sandbox.id()))
                .put("message", "The sandbox is running but port is not open")
                .put("port", port)
                .put("code", BAD_GATEWAY);
        exchange.json(BAD_GATEWAY, body);
    }

    /** A file by a signature alone: the sandbox is the one whose token made it. */
    void signedFile(Exchange exchange) throws IOException, InterruptedException {
        Optional<SandboxTokens.Bearer> bearer = exchange.query("signature") == null
                ? Optional.empty()
                : tokens.find(ENVD, token -> Signature.fits(exchange, token));
        if (bearer.isEmpty()) {
            ApiErrors.answer(exchange, 401, "the signature is missing, wrong or has expired");
            return;
        }
        String user = exchange.query("username");
        transfer.serve(
                new SandboxRequest(
                        exchange, bearer.get().sandbox(), bearer.get().caller(), "/files"),
                user == null ? "" : user);
    }
}

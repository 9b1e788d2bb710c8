package atoll.ui;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.testing.CoreFixture;
import atoll.http.ErrorMapping;
import atoll.http.ErrorReply;
import atoll.http.Exchange;
import atoll.http.HttpServer;
import atoll.http.HttpServerConfig;
import atoll.http.RouteTable;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The dashboard on a free port, over core with its fakes; and a browser's side of it. */
final class UiServer implements AutoCloseable {
    private static final Pattern FORM_TOKEN = Pattern.compile("name=\"form-token\" content=\"([0-9a-f]{32})\"");

    final CoreFixture fixture;
    final AtomicInteger changes = new AtomicInteger();
    final int port;
    private final Dashboard dashboard;
    private final HttpServer server;
    private final HttpClient client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .followRedirects(HttpClient.Redirect.NEVER)
            .build();

    UiServer() throws IOException {
        this(Map.of());
    }

    UiServer(Map<String, String> settings) throws IOException {
        fixture = new CoreFixture(settings).ready();
        HttpServerConfig config = HttpServerConfig.defaults().listeningOn("127.0.0.1", 0);
        var channel = HttpServer.bind(config);
        port = channel.socket().getLocalPort();
        RouteTable.Builder routes = RouteTable.builder();
        dashboard = new Dashboard(
                routes,
                fixture.core(),
                UiSettings.of("test", "127.0.0.1", port, Set.of("atoll.example"), Optional.empty(), Optional::empty),
                errors());
        // In the place of the native API.
        routes.under("/ui")
                .get("/v1/probe", dashboard.guard().guard((exchange, caller) -> exchange.json(200, caller.scopes())))
                .post("/v1/probe", dashboard.guard().guard(this::change));
        server = new HttpServer(
                config, routes.build(), errors(), (route, method, status, nanos) -> {}, Optional.empty());
        server.start(channel);
    }

    private void change(Exchange exchange, Object caller) throws IOException, InterruptedException {
        exchange.json(200, Map.of("changes", changes.incrementAndGet(), "by", caller.toString()));
    }

    private static ErrorMapping errors() {
        return failure -> failure instanceof AtollException known
                ? Optional.of(new ErrorReply(
                        status(known.code()),
                        known.code().name(),
                        known.message(),
                        known.reason(),
                        known.remediation()))
                : Optional.empty();
    }

    private static int status(ErrorCode code) {
        return switch (code) {
            case UNAUTHENTICATED -> 401;
            case FORBIDDEN -> 403;
            case TEMPLATE_NOT_FOUND -> 404;
            case CONFLICT -> 409;
            default -> 400;
        };
    }

    String origin() {
        return "http://127.0.0.1:" + port;
    }

    HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(origin() + path)).timeout(Duration.ofSeconds(60));
    }

    HttpResponse<String> send(HttpRequest.Builder request) throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofString());
    }

    HttpResponse<java.io.InputStream> open(HttpRequest.Builder request) throws IOException, InterruptedException {
        return client.send(request.build(), BodyHandlers.ofInputStream());
    }

    static String form(Map<String, String> fields) {
        return fields.entrySet().stream()
                .map(field -> URLEncoder.encode(field.getKey(), StandardCharsets.UTF_8) + "="
                        + URLEncoder.encode(field.getValue(), StandardCharsets.UTF_8))
                .collect(Collectors.joining("&"));
    }

    /** As a browser sends a form of one of our own pages. */
    HttpRequest.Builder post(String path, Map<String, String> fields) {
        return request(path)
                .header("Content-Type", "application/x-www-form-urlencoded")
                .header("Origin", origin())
                .header("Sec-Fetch-Site", "same-origin")
                .POST(BodyPublishers.ofString(form(fields)));
    }

    /** Somebody who is logged in. */
    final class Browser {
        final String cookie;
        final String formToken;

        private Browser(String cookie) throws IOException, InterruptedException {
            this.cookie = cookie;
            Matcher token = FORM_TOKEN.matcher(get("/ui/").body());
            this.formToken = token.find() ? token.group(1) : "";
        }

        HttpRequest.Builder request(String path) {
            return UiServer.this.request(path).header("Cookie", cookie);
        }

        HttpResponse<String> get(String path) throws IOException, InterruptedException {
            return send(request(path));
        }

        HttpResponse<String> submit(String path, Map<String, String> fields) throws IOException, InterruptedException {
            var all = new java.util.LinkedHashMap<>(fields);
            all.put("form_token", formToken);
            return send(post(path, all).header("Cookie", cookie));
        }
    }

    HttpResponse<String> login(String key) throws IOException, InterruptedException {
        return send(post("/ui/login", Map.of("key", key)));
    }

    static String cookieOf(HttpResponse<String> response) {
        String cookie = response.headers().firstValue("Set-Cookie").orElse("");
        return cookie.contains(";") ? cookie.substring(0, cookie.indexOf(';')) : cookie;
    }

    Browser browser() throws IOException, InterruptedException {
        return browser(CoreFixture.KEY);
    }

    Browser browser(String key) throws IOException, InterruptedException {
        return new Browser(cookieOf(login(key)));
    }

    Browser browserWithCookie(String cookie) throws IOException, InterruptedException {
        return new Browser(cookie);
    }

    @Override
    public void close() {
        client.shutdownNow();
        dashboard.close();
        server.close();
        fixture.close();
    }
}

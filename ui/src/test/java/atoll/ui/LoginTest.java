package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.KeyId;
import atoll.core.ProjectId;
import atoll.core.Scope;
import atoll.core.store.StoredKey;
import atoll.core.testing.CoreFixture;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Who gets in, and what keeps other sites out. */
class LoginTest {
    private UiServer server;

    @BeforeEach
    void start() throws Exception {
        server = new UiServer();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    @Test
    void a_key_opens_a_session_whose_cookie_scripts_and_other_sites_do_not_get() throws Exception {
        HttpResponse<String> login = server.login(CoreFixture.KEY);
        assertThat(login.statusCode()).isEqualTo(303);
        assertThat(login.headers().firstValue("Location")).contains("/ui/");
        assertThat(login.headers().firstValue("Set-Cookie").orElseThrow())
                .contains("HttpOnly")
                .contains("SameSite=Strict")
                .contains("Path=/ui/")
                .doesNotContain(CoreFixture.KEY);
        assertThat(server.browser().get("/ui/").statusCode()).isEqualTo(200);
    }

    @Test
    void without_a_session_pages_lead_to_the_login_and_back() throws Exception {
        HttpResponse<String> page = server.send(server.request("/ui/?a=b"));
        assertThat(page.statusCode()).isEqualTo(303);
        assertThat(page.headers().firstValue("Location")).contains("/ui/login?next=%2Fui%2F%3Fa%3Db");
        HttpResponse<String> login =
                server.send(server.post("/ui/login", Map.of("key", CoreFixture.KEY, "next", "/ui/?a=b")));
        assertThat(login.headers().firstValue("Location")).contains("/ui/?a=b");
        assertThat(server.send(server.request("/ui/v1/probe")).statusCode()).isEqualTo(401);
        assertThat(server.send(server.request("/ui/live/code-execution")).statusCode())
                .isEqualTo(401);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "//evil.example/",
                "https://evil.example/ui/",
                "/ui/\r\nX: y",
                "/v1/x",
                "/ui/\\evil",
                "javascript:alert(1)"
            })
    void nobody_is_led_elsewhere_after_the_login(String next) throws Exception {
        HttpResponse<String> login =
                server.send(server.post("/ui/login", Map.of("key", CoreFixture.KEY, "next", next)));
        assertThat(login.headers().firstValue("Location")).contains("/ui/");
    }

    @Test
    void a_link_opens_one_session_and_only_looking_at_it_does_not_use_it_up() throws Exception {
        HttpResponse<String> made = server.send(server.request("/ui/login-links")
                .header("Authorization", "Bearer " + CoreFixture.KEY)
                .POST(BodyPublishers.noBody()));
        assertThat(made.statusCode()).isEqualTo(201);
        String code = made.body().replaceAll("(?s).*code=([\\w-]+).*", "$1");
        for (int i = 0; i < 2; i++) {
            assertThat(server.send(server.request("/ui/login?code=" + code)).body())
                    .contains("value=\"" + code + "\"");
        }
        HttpResponse<String> first = server.send(server.post("/ui/login", Map.of("code", code)));
        assertThat(first.statusCode()).isEqualTo(303);
        assertThat(server.browserWithCookie(UiServer.cookieOf(first))
                        .get("/ui/")
                        .statusCode())
                .isEqualTo(200);
        HttpResponse<String> second = server.send(server.post("/ui/login", Map.of("code", code)));
        assertThat(second.statusCode()).isEqualTo(401);
        assertThat(second.headers().firstValue("Set-Cookie")).isEmpty();
    }

    @Test
    void links_are_made_for_keys_only_and_grow_old() throws Exception {
        UiServer.Browser browser = server.browser();
        assertThat(server.send(browser.request("/ui/login-links")
                                .header("Origin", server.origin())
                                .POST(BodyPublishers.noBody()))
                        .statusCode())
                .isEqualTo(401);
        String code = server.fixture
                .core()
                .sessions()
                .loginCode(server.fixture.caller())
                .code();
        server.fixture.clock.advance(Duration.ofMinutes(16));
        assertThat(server.send(server.post("/ui/login", Map.of("code", code))).statusCode())
                .isEqualTo(401);
    }

    @Test
    void logging_out_ends_the_session_on_the_server() throws Exception {
        UiServer.Browser browser = server.browser();
        UiServer.Browser other = server.browser();
        assertThat(browser.submit("/ui/logout", Map.of()).statusCode()).isEqualTo(303);
        assertThat(browser.get("/ui/").statusCode()).isEqualTo(303);
        assertThat(browser.get("/ui/v1/probe").statusCode()).isEqualTo(401);
        assertThat(other.get("/ui/").statusCode()).isEqualTo(200);
    }

    @Test
    void a_session_ends_by_itself_and_with_its_key() throws Exception {
        UiServer.Browser browser = server.browser();
        String key = addKey(
                Set.of(Scope.READ), Optional.of(server.fixture.clock.instant().plusSeconds(60)));
        UiServer.Browser brief = server.browser(key);
        assertThat(brief.get("/ui/").statusCode()).isEqualTo(200);
        server.fixture.clock.advance(Duration.ofSeconds(61));
        assertThat(brief.get("/ui/").statusCode()).isEqualTo(303);
        assertThat(brief.get("/ui/v1/probe").statusCode()).isEqualTo(401);
        assertThat(browser.get("/ui/").statusCode()).isEqualTo(200);
        server.fixture.clock.advance(Duration.ofDays(8));
        assertThat(browser.get("/ui/").statusCode()).isEqualTo(303);
    }

    @Test
    void only_hashes_of_session_tokens_are_kept() throws Exception {
        String token = server.browser().cookie.replaceAll(".*=", "");
        assertThat(server.fixture.store.sessionByHash(token)).isEmpty();
        assertThat(server.fixture.store.sessionByHash(hash(token))).isPresent();
    }

    @Test
    void a_wrong_key_opens_nothing_and_after_some_there_is_a_pause() throws Exception {
        for (int i = 0; i < 10; i++) {
            HttpResponse<String> refused = server.login("wrong-" + i);
            assertThat(refused.statusCode()).isEqualTo(401);
            assertThat(refused.headers().firstValue("Set-Cookie")).isEmpty();
        }
        HttpResponse<String> slowed = server.login(CoreFixture.KEY);
        assertThat(slowed.statusCode()).isEqualTo(429);
        assertThat(slowed.headers().firstValue("Retry-After")).isPresent();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "evil.example",
                "evil.example:80",
                "localhost.evil.example",
                "192.168.7.7",
                "127.0.0.1.evil.example"
            })
    void names_that_are_not_ours_are_refused(String host) throws Exception {
        String cookie = server.browser().cookie;
        for (String path : new String[] {"/ui/", "/ui/login", "/ui/v1/probe", "/ui/live/code-execution"}) {
            assertThat(raw("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nCookie: " + cookie + "\r\n"))
                    .startsWith("HTTP/1.1 421");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:7000", "atoll.example"})
    void names_that_are_ours_are_not(String host) throws Exception {
        assertThat(raw("GET /ui/login HTTP/1.1\r\nHost: " + host + "\r\n")).startsWith("HTTP/1.1 200");
    }

    /** What a browser would not let a test client send. */
    private String raw(String head) throws Exception {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), server.port)) {
            socket.setSoTimeout(60_000);
            socket.getOutputStream().write((head + "Connection: close\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
            try (InputStream in = socket.getInputStream()) {
                return new String(in.readNBytes(200), StandardCharsets.UTF_8);
            }
        }
    }

    @Test
    void a_form_of_another_site_changes_nothing() throws Exception {
        UiServer.Browser browser = server.browser();
        String body = UiServer.form(Map.of("form_token", browser.formToken));
        for (String[] headers : new String[][] {
            {},
            {"Origin", "https://evil.example"},
            {"Origin", "null"},
            {"Sec-Fetch-Site", "cross-site"},
            {"Sec-Fetch-Site", "same-site"},
            {"Sec-Fetch-Site", "none"},
            {"Sec-Fetch-Site", "same-origin", "Origin", "https://evil.example"},
        }) {
            var request = browser.request("/ui/logout")
                    .header("Content-Type", "application/x-www-form-urlencoded")
                    .POST(BodyPublishers.ofString(body));
            var probe = browser.request("/ui/v1/probe")
                    .header("Atoll-Form-Token", browser.formToken)
                    .POST(BodyPublishers.noBody());
            if (headers.length > 0) {
                request.headers(headers);
                probe.headers(headers);
            }
            assertThat(server.send(request).statusCode()).isEqualTo(403);
            assertThat(server.send(probe).statusCode()).isEqualTo(403);
        }
        assertThat(server.changes).hasValue(0);
        assertThat(browser.get("/ui/").statusCode()).isEqualTo(200);
    }

    @Test
    void a_login_from_another_site_is_refused() throws Exception {
        HttpResponse<String> login = server.send(server.request("/ui/login")
                .header("Content-Type", "application/x-www-form-urlencoded")
                .header("Origin", "https://evil.example")
                .POST(BodyPublishers.ofString(UiServer.form(Map.of("key", CoreFixture.KEY)))));
        assertThat(login.statusCode()).isEqualTo(403);
        assertThat(login.headers().firstValue("Set-Cookie")).isEmpty();
    }

    @Test
    void what_changes_something_needs_the_token_of_its_own_session() throws Exception {
        UiServer.Browser browser = server.browser();
        String foreign = server.browser().formToken;
        assertThat(foreign).hasSize(32).isNotEqualTo(browser.formToken);
        for (String token : new String[] {"", foreign}) {
            assertThat(server.send(server.post("/ui/logout", Map.of("form_token", token))
                                    .header("Cookie", browser.cookie))
                            .statusCode())
                    .isEqualTo(403);
            assertThat(server.send(browser.request("/ui/v1/probe")
                                    .header("Origin", server.origin())
                                    .header("Atoll-Form-Token", token)
                                    .POST(BodyPublishers.noBody()))
                            .statusCode())
                    .isEqualTo(403);
        }
        assertThat(server.changes).hasValue(0);
        assertThat(server.send(browser.request("/ui/v1/probe")
                                .header("Origin", server.origin())
                                .header("Atoll-Form-Token", browser.formToken)
                                .POST(BodyPublishers.noBody()))
                        .statusCode())
                .isEqualTo(200);
        assertThat(server.changes).hasValue(1);
    }

    @Test
    void what_scripts_read_is_not_for_other_sites() throws Exception {
        UiServer.Browser browser = server.browser();
        assertThat(browser.get("/ui/v1/probe").statusCode()).isEqualTo(200);
        assertThat(server.send(browser.request("/ui/v1/probe").header("Sec-Fetch-Site", "same-site"))
                        .statusCode())
                .isEqualTo(403);
    }

    @Test
    void a_session_has_the_scopes_of_its_key() throws Exception {
        UiServer.Browser reader = server.browser(addKey(Set.of(Scope.READ), Optional.empty()));
        assertThat(reader.get("/ui/v1/probe").body()).isEqualTo("[\"READ\"]");
    }

    @Test
    void pages_let_no_foreign_script_frame_or_referrer_through() throws Exception {
        for (HttpResponse<String> page :
                List.of(server.browser().get("/ui/"), server.send(server.request("/ui/login")))) {
            String policy = page.headers().firstValue("Content-Security-Policy").orElseThrow();
            assertThat(policy)
                    .contains("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'")
                    .doesNotContain("unsafe");
            assertThat(page.headers().firstValue("X-Content-Type-Options")).contains("nosniff");
            assertThat(page.headers().firstValue("Referrer-Policy")).contains("same-origin");
            assertThat(page.headers().firstValue("Cache-Control")).contains("no-store");
            assertThat(page.body()).doesNotContain("style=").doesNotContainPattern("<script(?! src=)");
        }
        assertThat(server.browser().get("/ui/v1/probe").headers().firstValue("Content-Security-Policy"))
                .contains("default-src 'none'; frame-ancestors 'none'; sandbox");
    }

    @Test
    void static_files_are_kept_by_browsers_and_nothing_else_is_served() throws Exception {
        String page = server.browser().get("/ui/").body();
        String address = page.replaceAll("(?s).*href=\"(/ui/static/app\\.css\\?v=[0-9a-f]+)\".*", "$1");
        HttpResponse<String> style = server.send(server.request(address));
        assertThat(style.statusCode()).isEqualTo(200);
        assertThat(style.headers().firstValue("Cache-Control").orElseThrow()).contains("immutable");
        for (String path : new String[] {"..%2fPages.class", "%2e%2e", "vendor", "vendor/..%2fapp.css", "no.js"}) {
            assertThat(server.send(server.request("/ui/static/" + path)).statusCode())
                    .isIn(400, 404);
        }
    }

    private String addKey(Set<Scope> scopes, Optional<Instant> expires) throws Exception {
        String secret = "key-" + KeyId.random();
        server.fixture.store.insertKey(new StoredKey(
                KeyId.random(),
                ProjectId.DEFAULT,
                "extra",
                hash(secret),
                "key-",
                scopes,
                server.fixture.clock.instant(),
                expires));
        return secret;
    }

    private static String hash(String secret) throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(secret.getBytes(StandardCharsets.UTF_8));
        return HexFormat.of().formatHex(digest);
    }
}

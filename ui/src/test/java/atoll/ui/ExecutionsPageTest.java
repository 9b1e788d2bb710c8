package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.KeyId;
import atoll.core.ProjectId;
import atoll.core.Scope;
import atoll.core.execution.ExecutionQuery;
import atoll.core.store.StoredKey;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The history of executions, and one of them. */
class ExecutionsPageTest {
    private UiServer server;
    private UiServer.Browser browser;

    @BeforeEach
    void start() throws Exception {
        server = new UiServer();
        browser = server.browser();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private int executions() {
        return server.fixture
                .core()
                .executions()
                .list(server.fixture.caller(), ExecutionQuery.ALL)
                .items()
                .size();
    }

    @Test
    void an_empty_history_says_where_to_begin() throws Exception {
        assertThat(browser.get("/ui/executions").body()).contains("Nothing has run yet", "/ui/playground");
    }

    @Test
    void the_history_has_code_output_and_how_it_ended() throws Exception {
        var good = server.fixture.run("print hello");
        var bad = server.fixture.run("raise ValueError wrong");
        assertThat(browser.get("/ui/executions").body())
                .contains("href=\"/ui/executions/" + good.executionId(), "print hello", ">hello</span>", "Completed")
                .contains("href=\"/ui/executions/" + bad.executionId(), "badge dot bad\">Error");
    }

    @Test
    void it_is_filtered_by_sandbox_and_state() throws Exception {
        var one = server.fixture.run("print one");
        var other = server.fixture.run("print two");
        assertThat(browser.get("/ui/executions?sandbox=" + one.sandboxId()).body())
                .contains(one.executionId().toString())
                .doesNotContain(other.executionId().toString());
        assertThat(browser.get("/ui/executions?state=running").body()).contains("Nothing found");
        assertThat(browser.get("/ui/executions?state=odd").statusCode()).isEqualTo(400);
        assertThat(browser.get("/ui/executions?sandbox=odd").statusCode()).isEqualTo(400);
    }

    @Test
    void it_is_searched_by_code_and_output() throws Exception {
        var one = server.fixture.run("print Needle");
        var other = server.fixture.run("print hay");
        assertThat(browser.get("/ui/executions?q=needle").body())
                .contains(one.executionId().toString(), "value=\"needle\"")
                .doesNotContain(other.executionId().toString(), "data-live=\"");
        assertThat(browser.get("/ui/executions?q=nowhere").body()).contains("Nothing found<");
        assertThat(browser.get("/ui/executions?q=%3Cscript%3Ealert(1)").body())
                .contains("&lt;script>alert(1)")
                .doesNotContain("<script>alert");
    }

    @Test
    void it_is_filtered_by_end_template_language_and_time() throws Exception {
        var good = server.fixture.run("print one");
        var bad = server.fixture.run("raise ValueError wrong");
        assertThat(browser.get("/ui/executions?state=error").body())
                .contains("href=\"/ui/executions/" + bad.executionId(), "value=\"error\" selected")
                .doesNotContain("href=\"/ui/executions/" + good.executionId());
        assertThat(browser.get("/ui/executions?language=bash").body()).contains("Nothing found<");
        assertThat(browser.get("/ui/executions?template=none").body()).contains("Nothing found<");
        assertThat(browser.get("/ui/executions?until=2000-01-01T00:00").body()).contains("Nothing found<");
        assertThat(browser.get("/ui/executions?from=2000-01-01T00:00&until=2999-01-01T00:00")
                        .body())
                .contains(good.executionId().toString(), bad.executionId().toString(), "value=\"2000-01-01T00:00\"");
        assertThat(browser.get("/ui/executions?from=odd").statusCode()).isEqualTo(400);
        assertThat(browser.get("/ui/executions?q=" + good.executionId()).body())
                .contains("href=\"/ui/executions/" + good.executionId())
                .doesNotContain("href=\"/ui/executions/" + bad.executionId());
    }

    @Test
    void it_goes_page_by_page() throws Exception {
        var first = server.fixture.run("print first");
        for (int i = 0; i < 50; i++) {
            server.fixture.run(
                    atoll.core.execution.CodeExecRequest.of("print more").in(first.sandboxId()));
        }
        String page = browser.get("/ui/executions?sandbox=" + first.sandboxId()).body();
        assertThat(page).doesNotContain(first.executionId().toString()).contains(">Older</a>");
        String older = page.replaceAll("(?s).*<a class=\"button\" href=\"([^\"]*cursor[^\"]*)\".*", "$1")
                .replace("&amp;", "&");
        assertThat(browser.get(older).body())
                .contains(first.executionId().toString())
                .doesNotContain("data-live=\"", ">Older</a>");
    }

    @Test
    void one_has_its_code_its_output_and_how_it_ended() throws Exception {
        var ran = server.fixture.run("print hello");
        assertThat(browser.get("/ui/executions/" + ran.executionId()).body())
                .contains(
                        "print hello",
                        ">hello</div>",
                        "Completed",
                        ran.sandboxId().toString())
                .contains(
                        "data-api=\"/ui/v1/executions/" + ran.executionId() + "\"",
                        "href=\"/ui/v1/executions:notebook?sandbox_id=" + ran.sandboxId() + "&amp;context_id="
                                + ran.contextId() + "\"",
                        "data-running=\"false\"",
                        "static/results.js");
    }

    @Test
    void it_runs_again_where_it_ran() throws Exception {
        var ran = server.fixture.run("print hello");
        HttpResponse<String> again = browser.submit("/ui/executions/" + ran.executionId() + "/again", Map.of());
        assertThat(again.statusCode()).isEqualTo(303);
        String path = again.headers().firstValue("Location").orElseThrow();
        assertThat(path)
                .startsWith("/ui/executions/exec-")
                .doesNotContain(ran.executionId().toString());
        assertThat(browser.get(path).body())
                .contains("print hello", ran.sandboxId().toString());
    }

    @Test
    void it_runs_again_in_a_new_sandbox_where_its_own_is_gone() throws Exception {
        var ran = server.fixture.run("print hello");
        server.fixture.core().sandboxes().delete(server.fixture.caller(), ran.sandboxId());
        HttpResponse<String> again = browser.submit("/ui/executions/" + ran.executionId() + "/again", Map.of());
        assertThat(again.statusCode()).isEqualTo(303);
        assertThat(browser.get(again.headers().firstValue("Location").orElseThrow())
                        .body())
                .contains("print hello")
                .doesNotContain(ran.sandboxId().toString());
    }

    @Test
    void a_running_one_is_interrupted() throws Exception {
        try (var running = server.fixture.start(atoll.core.execution.CodeExecRequest.of("wait gate"))) {
            String path = "/ui/executions/" + running.executionId();
            assertThat(browser.get(path).body()).contains("data-running=\"true\"", "Interrupt</button>");
            browser.submit(path + "/interrupt", Map.of());
            assertThat(running.await().exitReason().text()).isEqualTo("interrupted");
        }
        assertThat(browser.get("/ui/executions").body()).contains("Interrupted");
    }

    @Test
    void hostile_code_and_output_stay_text() throws Exception {
        String hostile =
                "</code></pre></textarea><script>alert(1)</script><img src=x onerror=alert(1)><svg onload=alert(1)>";
        var ran = server.fixture.run("print " + hostile);
        var thrown = server.fixture.run("raise Evil " + hostile);
        for (String path : new String[] {
            "/ui/executions",
            "/ui/executions/" + ran.executionId(),
            "/ui/executions/" + thrown.executionId(),
            "/ui/playground?from=" + ran.executionId()
        }) {
            assertThat(browser.get(path).body())
                    .describedAs(path)
                    .contains("alert(1)")
                    .doesNotContain("<script>alert", "<img src=x", "<svg onload", "</textarea><s");
        }
    }

    @Test
    void values_that_are_shown_below_are_not_in_the_printed_text_too() throws Exception {
        var ran = server.fixture.run("print hello\nshow value");
        assertThat(ran.output().text()).contains("value");
        assertThat(browser.get("/ui/executions/" + ran.executionId()).body()).contains(">hello</div>");
    }

    @Test
    void what_programs_display_is_never_in_the_page_itself() throws Exception {
        var ran = server.fixture.run("show <script>alert(1)</script>");
        assertThat(ran.results()).hasSize(1);
        HttpResponse<String> page = browser.get("/ui/executions/" + ran.executionId());
        assertThat(page.body()).doesNotContain("<script>alert");
        assertThat(page.headers().firstValue("Content-Security-Policy").orElseThrow())
                .contains("default-src 'none'; script-src 'self';", "frame-src 'self'", "form-action 'self'");
    }

    @Test
    void a_read_only_key_sees_it_and_runs_nothing() throws Exception {
        var ran = server.fixture.run("print hello");
        byte[] digest = MessageDigest.getInstance("SHA-256").digest("reads".getBytes(StandardCharsets.UTF_8));
        server.fixture.store.insertKey(new StoredKey(
                KeyId.random(),
                ProjectId.DEFAULT,
                "reader",
                HexFormat.of().formatHex(digest),
                "read",
                Set.of(Scope.READ),
                server.fixture.clock.instant(),
                Optional.empty()));
        UiServer.Browser reader = server.browser("reads");
        String path = "/ui/executions/" + ran.executionId();
        assertThat(reader.get(path).body()).contains("print hello").doesNotContain("Run again", "/again");
        assertThat(reader.submit(path + "/again", Map.of()).statusCode()).isEqualTo(403);
        assertThat(reader.submit(path + "/interrupt", Map.of()).statusCode()).isEqualTo(403);
        assertThat(executions()).isEqualTo(1);
    }

    @Test
    void another_sites_page_runs_nothing() throws Exception {
        var ran = server.fixture.run("print hello");
        HttpResponse<String> refused = server.send(
                server.post("/ui/executions/" + ran.executionId() + "/again", Map.of("form_token", "0".repeat(32)))
                        .header("Cookie", browser.cookie));
        assertThat(refused.statusCode()).isEqualTo(403);
        assertThat(executions()).isEqualTo(1);
    }
}

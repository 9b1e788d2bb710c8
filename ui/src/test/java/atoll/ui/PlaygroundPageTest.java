package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.KeyId;
import atoll.core.ProjectId;
import atoll.core.Scope;
import atoll.core.execution.CodeExecRequest;
import atoll.core.store.StoredKey;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What the playground begins with; what its script does with it is tried in a browser. */
class PlaygroundPageTest {
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

    @Test
    void it_offers_templates_with_their_languages_and_the_sandboxes_that_can_go_on() throws Exception {
        var ended = server.fixture.run("1");
        var going = server.fixture.run("2");
        server.fixture.core().sandboxes().delete(server.fixture.caller(), ended.sandboxId());
        assertThat(browser.get("/ui/playground").body())
                .contains("<option value=\"python\" data-languages=\"python", "/ui/static/playground.js")
                .contains("<option value=\"" + going.sandboxId() + "\"")
                .doesNotContain(ended.sandboxId().toString());
    }

    @Test
    void an_earlier_execution_is_taken_up_with_its_code_and_sandbox() throws Exception {
        var earlier = server.fixture.run("print </textarea><script>alert(1)</script>");
        String page =
                browser.get("/ui/playground?from=" + earlier.executionId()).body();
        assertThat(page)
                .contains("print &lt;/textarea")
                .doesNotContain("<script>alert")
                .containsPattern("<option value=\"" + earlier.sandboxId() + "\"[^>]* selected");
    }

    @Test
    void the_sandbox_and_the_template_of_a_link_are_chosen() throws Exception {
        var going = server.fixture.run(CodeExecRequest.of("1").withTemplate("python"));
        assertThat(browser.get("/ui/playground?sandbox=" + going.sandboxId()).body())
                .containsPattern("<option value=\"" + going.sandboxId() + "\"[^>]* selected")
                .containsPattern("<option value=\"python\"[^>]* selected");
    }

    @Test
    void only_scripts_of_the_dashboard_are_let_in() throws Exception {
        HttpResponse<String> page = browser.get("/ui/playground");
        String policy = page.headers().firstValue("Content-Security-Policy").orElseThrow();
        assertThat(policy).contains("default-src 'none'; script-src 'self';", "frame-src 'self'", "connect-src 'self'");
    }

    @Test
    void an_execution_that_is_not_there_is_an_error_page() throws Exception {
        assertThat(browser.get("/ui/playground?from=exec-zzz").statusCode()).isEqualTo(400);
    }

    @Test
    void a_read_only_key_is_told_that_it_cannot_run() throws Exception {
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
        assertThat(server.browser("reads").get("/ui/playground").body())
                .contains("may read only")
                .doesNotContain("playground-run");
    }
}

package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.KeyId;
import atoll.core.ProjectId;
import atoll.core.Scope;
import atoll.core.store.StoredKey;
import atoll.core.template.TemplateDefinition;
import atoll.core.testing.CoreFixture;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The first page and what is done with templates there. */
class CodeExecutionPageTest {
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

    private TemplateDefinition definition(String id) {
        return server.fixture
                .core()
                .templates()
                .detail(server.fixture.caller(), id, Optional.of(1))
                .definition();
    }

    private static Map<String, String> fields(String... more) {
        Map<String, String> fields = new HashMap<>(Map.of("source", "image", "image", "python:3.12-slim"));
        for (int i = 0; i < more.length; i += 2) {
            fields.put(more[i], more[i + 1]);
        }
        return fields;
    }

    @Test
    void it_explains_itself_and_shows_the_templates() throws Exception {
        assertThat(browser.get("/ui/").body())
                .contains("Stateful Code Execution for AI Agents", "code_exec", "How it works", "Default")
                .contains("id=\"template-python\"", "Active sessions", "data-live=\"/ui/live/code-execution\"");
    }

    @Test
    void a_template_is_made_with_all_that_the_form_says() throws Exception {
        HttpResponse<String> made = browser.submit(
                "/ui/templates",
                fields(
                        "id",
                        "mine",
                        "name",
                        "Mine",
                        "description",
                        "d",
                        "pip",
                        "requests==2.32.0\r\nrich",
                        "env",
                        "A=b=c\r\n",
                        "memory",
                        "512",
                        "cpu",
                        "1.5",
                        "timeout",
                        "20",
                        "pool",
                        "0",
                        "language",
                        "python",
                        "commands",
                        "echo 1\r\necho 2"));
        assertThat(made.statusCode()).isEqualTo(303);
        TemplateDefinition definition = definition("mine");
        assertThat(definition.image()).isEqualTo("python:3.12-slim");
        assertThat(definition.packages().pip()).containsExactly("requests==2.32.0", "rich");
        assertThat(definition.env()).isEqualTo(Map.of("A", "b=c"));
        assertThat(definition.limits().memoryBytes()).hasValue(512L << 20);
        assertThat(definition.limits().cpuMillis()).hasValue(1500);
        assertThat(definition.timeout()).contains(java.time.Duration.ofSeconds(20));
        assertThat(definition.commands()).containsExactly("echo 1", "echo 2");
        assertThat(browser.get("/ui/").body()).contains("Template mine made", "id=\"template-mine\"");
        assertThat(browser.get("/ui/").body()).doesNotContain("Template mine made");
        assertThat(browser.get("/ui/templates/mine/edit").body())
                .contains("requests==2.32.0", "value=\"512\"", "A=b=c");
    }

    @Test
    void editing_keeps_what_the_form_has_no_field_for() throws Exception {
        browser.submit("/ui/templates", fields("id", "mine"));
        server.fixture
                .core()
                .templates()
                .update(server.fixture.caller(), "mine", draft -> draft.labels(Map.of("a", "b")));
        assertThat(browser.submit("/ui/templates/mine", fields("description", "new"))
                        .statusCode())
                .isEqualTo(303);
        TemplateDefinition last = server.fixture
                .core()
                .templates()
                .detail(server.fixture.caller(), "mine", Optional.of(3))
                .definition();
        assertThat(last.labels()).isEqualTo(Map.of("a", "b"));
        assertThat(last.description()).isEqualTo("new");
    }

    @Test
    void a_template_is_duplicated_made_the_default_and_deleted() throws Exception {
        browser.submit("/ui/templates", fields("id", "mine", "description", "first"));
        assertThat(browser.submit("/ui/templates/mine/duplicate", Map.of("id", "copy"))
                        .statusCode())
                .isEqualTo(303);
        assertThat(definition("copy").description()).isEqualTo("first");
        assertThat(browser.submit("/ui/templates/copy/default", Map.of()).statusCode())
                .isEqualTo(303);
        assertThat(browser.submit("/ui/templates/copy/delete", Map.of()).statusCode())
                .isEqualTo(409);
        assertThat(browser.submit("/ui/templates/mine/delete", Map.of()).statusCode())
                .isEqualTo(303);
        assertThat(browser.get("/ui/").body()).contains("template-copy").doesNotContain("id=\"template-mine\"");
    }

    @Test
    void a_build_has_a_page_that_follows_its_log() throws Exception {
        browser.submit("/ui/templates", fields("id", "mine"));
        HttpResponse<String> begun = browser.submit("/ui/templates/mine/build", Map.of());
        String path = begun.headers().firstValue("Location").orElseThrow();
        assertThat(path).startsWith("/ui/templates/mine/builds/");
        assertThat(browser.get(path).body())
                .contains("data-log=\"/ui/v1/templates/mine/builds/", "log?follow=true", "Build of mine");
        assertThat(browser.get("/ui/").body()).contains(path);
    }

    @Test
    void what_the_form_gets_wrong_is_said_to_people_and_scripts() throws Exception {
        HttpResponse<String> page = browser.submit("/ui/templates", fields("id", "Not An Id"));
        assertThat(page.statusCode()).isEqualTo(400);
        assertThat(page.body()).contains("<h1>", "That did not work");
        var all = fields("id", "mine", "memory", "much");
        all.put("form_token", browser.formToken);
        HttpResponse<String> json = server.send(server.post("/ui/templates", all)
                .header("Cookie", browser.cookie)
                .header("Atoll-Script", "1"));
        assertThat(json.statusCode()).isEqualTo(400);
        assertThat(json.body()).startsWith("{\"error\"").contains("memory");
    }

    @Test
    void hostile_text_stays_text() throws Exception {
        String hostile = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'${7*7}";
        browser.submit(
                "/ui/templates", fields("id", "mine", "name", hostile, "description", hostile, "env", "A=" + hostile));
        for (String path : new String[] {"/ui/", "/ui/templates/mine/edit", "/ui/templates/mine/duplicate"}) {
            assertThat(browser.get(path).body())
                    .contains("alert(1)")
                    .doesNotContain("<script>alert", "<img src=x")
                    .doesNotContain("\"><script");
        }
        assertThat(browser.get("/ui/templates/%3Cscript%3Ealert(1)%3C%2Fscript%3E/edit")
                        .body())
                .doesNotContain("<script>alert");
    }

    @Test
    void a_read_only_key_changes_nothing() throws Exception {
        browser.submit("/ui/templates", fields("id", "mine"));
        UiServer.Browser reader = server.browser(readOnlyKey());
        assertThat(reader.get("/ui/").body())
                .contains("template-mine")
                .doesNotContain("New template", "/ui/templates/mine/delete");
        for (String path : new String[] {
            "/ui/templates",
            "/ui/templates/mine",
            "/ui/templates/mine/duplicate",
            "/ui/templates/mine/delete",
            "/ui/templates/mine/default",
            "/ui/templates/mine/build"
        }) {
            assertThat(reader.submit(path, fields("id", "other", "name", "changed"))
                            .statusCode())
                    .describedAs(path)
                    .isEqualTo(403);
        }
        assertThat(definition("mine").name()).isEmpty();
        assertThat(server.fixture.core().templates().list(server.fixture.caller()))
                .noneMatch(template -> template.id().equals("other"));
    }

    @Test
    void counters_change_on_an_open_page_and_quiet_ones_are_not_sent_again() throws Exception {
        try (var lines = new BufferedReader(new InputStreamReader(
                server.open(browser.request("/ui/live/code-execution")).body(), StandardCharsets.UTF_8))) {
            assertThat(until(lines, "event: totals", "Executions")).contains(">0</dd>");
            server.fixture.run("1");
            // The next that comes has changed: nothing is sent twice.
            assertThat(until(lines, "event: totals", "Executions")).contains(">1</dd>");
        }
    }

    @Test
    void a_stream_ends_with_its_session() throws Exception {
        try (var lines = new BufferedReader(new InputStreamReader(
                server.open(browser.request("/ui/live/code-execution")).body(), StandardCharsets.UTF_8))) {
            until(lines, "event: totals", "Executions");
            browser.submit("/ui/logout", Map.of());
            String line = lines.readLine();
            while (line != null && !line.equals("event: logged-out")) {
                line = lines.readLine();
            }
            assertThat(line).isNotNull();
        }
    }

    /** The line of the next event of this name that holds this text. */
    private static String until(BufferedReader lines, String event, String text) throws Exception {
        boolean inside = false;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            inside = line.startsWith("event: ") ? line.equals(event) : inside;
            if (inside && line.contains(text)) {
                return line;
            }
        }
        throw new AssertionError("the stream ended without " + event);
    }

    private String readOnlyKey() throws Exception {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest("read-only".getBytes(StandardCharsets.UTF_8));
        server.fixture.store.insertKey(new StoredKey(
                KeyId.random(),
                ProjectId.DEFAULT,
                "reader",
                HexFormat.of().formatHex(digest),
                "read",
                Set.of(Scope.READ),
                server.fixture.clock.instant(),
                Optional.empty()));
        assertThat(CoreFixture.KEY).isNotEqualTo("read-only");
        return "read-only";
    }
}

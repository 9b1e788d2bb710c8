package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.KeyId;
import atoll.core.PageRequest;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.process.ProcessRef;
import atoll.core.process.Program;
import atoll.core.process.StartProcess;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.snapshot.SnapshotQuery;
import atoll.core.store.StoredKey;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The list of sandboxes and the page of one, and what is done there. */
class SandboxesPageTest {
    private static final String HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'${7*7}";

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

    private SandboxId create(String... fields) throws Exception {
        var form = new java.util.HashMap<String, String>();
        for (int i = 0; i < fields.length; i += 2) {
            form.put(fields[i], fields[i + 1]);
        }
        return idIn(browser.submit("/ui/sandboxes", form));
    }

    private static SandboxId idIn(HttpResponse<String> made) {
        assertThat(made.statusCode()).describedAs(made.body()).isEqualTo(303);
        String path = made.headers().firstValue("Location").orElseThrow();
        return SandboxId.parse(path.substring("/ui/sandboxes/".length()));
    }

    private Sandbox sandbox(SandboxId id) {
        return server.fixture.core().sandboxes().get(server.fixture.caller(), id);
    }

    private void submit(SandboxId id, String action, Map<String, String> fields) throws Exception {
        HttpResponse<String> done = browser.submit("/ui/sandboxes/" + id + "/" + action, fields);
        assertThat(done.statusCode()).describedAs(done.body()).isEqualTo(303);
    }

    @Test
    void an_empty_list_teaches() throws Exception {
        assertThat(browser.get("/ui/sandboxes").body())
                .contains("No sandbox yet", "./atoll create", "data-live=\"/ui/live/sandboxes\"");
        assertThat(browser.get("/ui/").body()).contains("href=\"/ui/sandboxes\"");
    }

    @Test
    void one_is_made_as_the_form_says() throws Exception {
        SandboxId id = create("template", "python", "name", "mine", "memory", "512", "cpu", "1.5", "lifetime", "10");
        Sandbox made = sandbox(id);
        assertThat(made.template()).isEqualTo("python");
        assertThat(made.name()).contains("mine");
        assertThat(made.limits().memoryBytes()).isEqualTo(512L << 20);
        assertThat(made.limits().cpuMillis()).isEqualTo(1500);
        assertThat(made.lifecycle().lifetime()).contains(java.time.Duration.ofMinutes(10));
        assertThat(browser.get("/ui/sandboxes").body()).contains(">mine</a>", "row-" + id, "running", "512 MiB");
        assertThat(browser.submit("/ui/sandboxes", Map.of("memory", "much")).body())
                .contains("expected: a number");
    }

    @Test
    void the_list_is_filtered_by_state_template_and_text() throws Exception {
        SandboxId python = create("template", "python", "name", "first");
        SandboxId bun = create("template", "typescript-bun", "name", "second");
        submit(bun, "kill", Map.of());
        assertThat(browser.get("/ui/sandboxes?state=running").body())
                .contains("row-" + python)
                .doesNotContain("row-" + bun);
        assertThat(browser.get("/ui/sandboxes?state=alive").body())
                .contains("row-" + python)
                .doesNotContain("row-" + bun);
        assertThat(browser.get("/ui/sandboxes?template=typescript-bun").body())
                .contains("row-" + bun)
                .doesNotContain("row-" + python);
        assertThat(browser.get("/ui/sandboxes?q=FIRST").body())
                .contains("row-" + python)
                .doesNotContain("row-" + bun);
        assertThat(browser.get("/ui/sandboxes?q=deleted").body())
                .contains("row-" + bun)
                .doesNotContain("row-" + python);
        assertThat(browser.get("/ui/sandboxes?q=nowhere").body()).contains("None matches");
        assertThat(browser.get("/ui/sandboxes?state=odd").statusCode()).isEqualTo(400);
    }

    @Test
    void an_ended_one_says_why() throws Exception {
        SandboxId id = create();
        submit(id, "kill", Map.of());
        assertThat(browser.get("/ui/sandboxes").body()).contains("Killed by a user");
        assertThat(browser.get("/ui/sandboxes/" + id).body())
                .contains("Ended: Killed by a user.", "Ended</span>")
                .doesNotContain("data-confirm=\"End this sandbox");
        assertThat(browser.get("/ui/sandboxes/" + id + "/terminal").body()).contains("It has ended");
        assertThat(browser.get("/ui/sandboxes/" + id + "/files").body()).contains("It has ended");
    }

    @Test
    void it_is_paused_and_resumed() throws Exception {
        SandboxId id = create();
        submit(id, "pause", Map.of());
        assertThat(sandbox(id).state()).isEqualTo(SandboxState.PAUSED);
        assertThat(browser.get("/ui/sandboxes/" + id).body()).contains("Resume", "data-state=\"paused\"");
        submit(id, "resume", Map.of());
        assertThat(sandbox(id).state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void a_fork_is_made_and_both_pages_show_the_tree() throws Exception {
        SandboxId source = create("name", "source");
        SandboxId copy =
                idIn(browser.submit("/ui/sandboxes/" + source + "/fork", Map.of("count", "1", "name", "copy")));
        SandboxId second = idIn(browser.submit("/ui/sandboxes/" + copy + "/fork", Map.of("count", "1")));
        assertThat(sandbox(copy).origin().orElseThrow().sandbox()).contains(source);
        for (SandboxId one : List.of(source, copy, second)) {
            String page = browser.get("/ui/sandboxes/" + one).body();
            assertThat(page.indexOf("branch-" + source)).isPositive().isLessThan(page.indexOf("branch-" + copy));
            assertThat(page.indexOf("branch-" + copy)).isLessThan(page.indexOf("branch-" + second));
        }
        submit(source, "fork", Map.of("count", "2"));
        String page = browser.get("/ui/sandboxes/" + source).body();
        assertThat(page.split("id=\"branch-", -1)).hasSize(6);
        assertThat(browser.get("/ui/sandboxes").body()).contains("fork of");
    }

    @Test
    void a_snapshot_is_made_used_rolled_back_to_and_deleted() throws Exception {
        SandboxId id = create();
        submit(id, "snapshot", Map.of("kind", "memory", "name", "before"));
        String snapshot = snapshots().getFirst();
        assertThat(browser.get("/ui/sandboxes/" + id).body()).contains("before", snapshot, "Roll back");
        SandboxId made = create("snapshot", snapshot);
        assertThat(sandbox(made).origin().orElseThrow().sandbox()).contains(id);
        submit(id, "rollback", Map.of("snapshot", snapshot));
        assertThat(browser.get("/ui/sandboxes/" + id).body()).contains("Rolled back");
        submit(id, "snapshots/" + snapshot + "/delete", Map.of());
        assertThat(snapshots()).doesNotContain(snapshot);
    }

    private List<String> snapshots() {
        var all = new SnapshotQuery(Optional.empty(), Optional.empty(), Optional.empty(), Map.of(), PageRequest.FIRST);
        return server.fixture.core().snapshots().list(server.fixture.caller(), all).items().stream()
                .map(snapshot -> snapshot.id().toString())
                .toList();
    }

    @Test
    void executions_and_what_happened_are_shown_and_hostile_text_stays_text() throws Exception {
        SandboxId id = server.fixture.run("'" + HOSTILE + "'").sandboxId();
        server.fixture
                .core()
                .sandboxes()
                .update(
                        server.fixture.caller(),
                        id,
                        new atoll.core.sandbox.UpdateSandbox(
                                atoll.core.template.LimitChanges.NONE, Map.of("label", Optional.of(HOSTILE))));
        for (String path : List.of("/ui/sandboxes/" + id, "/ui/sandboxes?q=" + UiServer.form(Map.of("q", HOSTILE)))) {
            assertThat(browser.get(path).body())
                    .contains("alert(1)")
                    .doesNotContain("<script>alert", "<img src=x", "\"><script");
        }
        assertThat(browser.get("/ui/sandboxes/" + id).body())
                .contains("label=", "class=\"ran-code\"", "error", "Started</span>");
        for (String path : List.of("/terminal", "/files", "/processes", "")) {
            assertThat(browser.get("/ui/sandboxes/" + id + path).body()).doesNotContain("<script>alert", "<img src=x");
        }
    }

    @Test
    void each_tab_has_its_script_and_only_the_terminal_loosens_styles() throws Exception {
        SandboxId id = create();
        for (String tab : List.of("terminal", "files", "processes")) {
            HttpResponse<String> page = browser.get("/ui/sandboxes/" + id + "/" + tab);
            assertThat(page.body()).contains("sandbox-" + tab + ".js", "aria-current=\"page\"");
            String policy = page.headers().firstValue("Content-Security-Policy").orElseThrow();
            assertThat(policy.contains("unsafe-inline")).describedAs(tab).isEqualTo(tab.equals("terminal"));
        }
        assertThat(browser.get("/ui/sandboxes/" + id).body()).contains("sandbox-usage.js", "chart-memory");
    }

    @Test
    @Timeout(120)
    void the_list_and_the_page_change_while_they_are_open() throws Exception {
        SandboxId id = create("name", "mine");
        try (var list = lines("/ui/live/sandboxes");
                var page = lines("/ui/live/sandboxes/" + id)) {
            until(list, "row-" + id);
            until(page, "data-state=\"running\"");
            submit(id, "kill", Map.of());
            until(list, "Killed by a user");
            until(page, "Ended: Killed by a user.");
        }
    }

    private BufferedReader lines(String path) throws Exception {
        return new BufferedReader(
                new InputStreamReader(server.open(browser.request(path)).body(), StandardCharsets.UTF_8));
    }

    private static void until(BufferedReader lines, String text) throws Exception {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.contains(text)) {
                return;
            }
        }
        throw new AssertionError("the stream ended without " + text);
    }

    @Test
    void an_address_where_nothing_is_is_a_page_for_people_and_an_error_for_scripts() throws Exception {
        for (String path : List.of("/ui/nothing", "/ui/nothing/at/all/there", "/ui/logout")) {
            HttpResponse<String> page = browser.get(path);
            assertThat(page.statusCode()).isEqualTo(404);
            assertThat(page.body()).contains("<h1>Not found", "nothing at " + path, "href=\"/ui/sandboxes\"");
        }
        HttpResponse<String> json = browser.get("/ui/v1/nothing");
        assertThat(json.statusCode()).isEqualTo(404);
        assertThat(json.body()).startsWith("{");
        assertThat(server.send(server.request("/ui/nothing")).body()).contains("<h1>Not found");
        assertThat(server.send(server.request("/nothing")).body()).startsWith("{");
    }

    @Test
    void one_that_is_not_there_is_an_error_page() throws Exception {
        for (String path : List.of(SandboxId.random().toString(), "nonsense", "%3Cscript%3Ealert(1)%3C%2Fscript%3E")) {
            HttpResponse<String> page = browser.get("/ui/sandboxes/" + path);
            assertThat(page.statusCode()).isBetween(400, 404);
            assertThat(page.body()).contains("That did not work").doesNotContain("<script>alert");
        }
    }

    @Test
    void a_read_only_key_sees_all_and_changes_nothing() throws Exception {
        SandboxId id = create("name", "mine");
        submit(id, "snapshot", Map.of("kind", "memory"));
        String snapshot = snapshots().getFirst();
        ProcessId process = start(id);
        UiServer.Browser reader = server.browser(readOnlyKey());
        assertThat(reader.get("/ui/sandboxes").body()).contains("row-" + id).doesNotContain("/kill", "New sandbox");
        assertThat(reader.get("/ui/sandboxes/" + id).body())
                .contains("Timeline")
                .doesNotContain("/kill", "/fork\"", "Roll back", "/delete");
        assertThat(reader.get("/ui/sandboxes/" + id + "/terminal").body()).contains("may only read");
        for (String action : List.of(
                "pause",
                "resume",
                "kill",
                "fork",
                "snapshot",
                "rollback",
                "snapshots/" + snapshot + "/delete",
                "processes/" + process + "/kill")) {
            assertThat(reader.submit("/ui/sandboxes/" + id + "/" + action, Map.of("snapshot", snapshot))
                            .statusCode())
                    .describedAs(action)
                    .isEqualTo(403);
        }
        assertThat(reader.submit("/ui/sandboxes", Map.of("name", "other")).statusCode())
                .isEqualTo(403);
        assertThat(sandbox(id).state()).isEqualTo(SandboxState.RUNNING);
        assertThat(snapshots()).containsExactly(snapshot);
    }

    private ProcessId start(SandboxId id) {
        var request = new StartProcess(
                new Program.Command("cat #" + HOSTILE),
                "",
                Map.of(),
                "",
                true,
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                Optional.empty());
        return server.fixture
                .core()
                .processes()
                .start(server.fixture.caller(), id, request)
                .id();
    }

    @Test
    void processes_are_shown_and_killed() throws Exception {
        SandboxId id = create();
        ProcessId process = start(id);
        String path = "/ui/sandboxes/" + id + "/processes";
        assertThat(browser.get(path).body())
                .contains("id=\"" + process, "alert(1)", process + "/kill")
                .doesNotContain("<script>alert", "<img src=x");
        submit(id, "processes/" + process + "/kill", Map.of());
        assertThat(server.fixture
                        .core()
                        .processes()
                        .get(server.fixture.caller(), ProcessRef.of(process))
                        .running())
                .isFalse();
        assertThat(browser.get(path).body()).doesNotContain(process + "/kill");
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
        return "read-only";
    }
}

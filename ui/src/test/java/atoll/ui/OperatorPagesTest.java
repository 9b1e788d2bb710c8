package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.CreateKey;
import atoll.core.CreatedKey;
import atoll.core.Scope;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The pages of pools, of the node and of keys. */
class OperatorPagesTest {
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

    private CreatedKey key(String name, Set<Scope> scopes) {
        return server.fixture
                .core()
                .keys()
                .create(server.fixture.caller(), new CreateKey(name, scopes, Optional.empty()));
    }

    @Test
    void pools_tell_what_was_taken_from_them() throws Exception {
        assertThat(browser.get("/ui/pools").body()).contains("of 0 in three hours", "chart-latency", "uplot.min.js");
        server.fixture.run("1");
        assertThat(browser.get("/ui/pools").body())
                .contains("of 1 in three hours", "id=\"pool-python\"", "data-live=\"/ui/live/pools\"");
    }

    @Test
    void the_depth_of_a_pool_is_set() throws Exception {
        assertThat(browser.submit("/ui/pools", Map.of("template", "python", "depth", "7"))
                        .statusCode())
                .isEqualTo(303);
        assertThat(browser.get("/ui/templates/python/edit").body()).contains("name=\"pool\" value=\"7\"");
        assertThat(browser.submit("/ui/pools", Map.of("template", "python", "depth", "much"))
                        .statusCode())
                .isEqualTo(400);
        UiServer.Browser reader =
                server.browser(key("reads", Set.of(Scope.READ)).secret());
        assertThat(reader.submit("/ui/pools", Map.of("template", "python", "depth", "1"))
                        .statusCode())
                .isEqualTo(403);
    }

    @Test
    void what_programs_wrote_is_shown_without_a_terminals_sequences() {
        assertThat(Format.plain("\033[31mred\033[0m \033]0;title\007a\033]8;;http://x\033\\\tb\n\0\233c"))
                .isEqualTo("red a\tb\nc");
    }

    @Test
    void all_is_said_only_of_all() {
        assertThat(PoolsPage.percent(1)).isEqualTo("100 %");
        assertThat(PoolsPage.percent(0.9999)).isEqualTo("99.9 %");
        assertThat(PoolsPage.percent(0)).isEqualTo("0 %");
    }

    @Test
    void the_node_tells_what_it_has() throws Exception {
        assertThat(browser.get("/ui/node").body())
                .contains("Memory used", "Disk used", "runsc build", "cgroup version", "Drivers", "Running sandboxes")
                .doesNotContain("can't be reached");
    }

    @Test
    void what_is_used_is_what_is_not_available() {
        NodePage.Gauge gauge = NodePage.gauge("Disk", 4L << 30, 1L << 30);
        assertThat(gauge).isEqualTo(new NodePage.Gauge("Disk", 750, "3 GiB", "4 GiB"));
        assertThat(NodePage.gauge("Disk", 0, 0).thousandths()).isZero();
    }

    @Test
    void keys_are_shown_without_their_secrets_and_revoked() throws Exception {
        CreatedKey made = key("for <b>the</b> robot", Set.of(Scope.READ, Scope.EXECUTE));
        String id = made.key().id().toString();
        assertThat(browser.get("/ui/keys").body())
                .contains("for &lt;b>the&lt;/b> robot", "id=\"" + id, ">execute<", "This session")
                .doesNotContain(made.secret());
        assertThat(browser.submit("/ui/keys/" + id + "/revoke", Map.of()).statusCode())
                .isEqualTo(303);
        assertThat(browser.get("/ui/keys").body()).doesNotContain(id);
        assertThat(server.login(made.secret()).statusCode()).isNotEqualTo(303);
    }

    @Test
    void a_key_without_the_scope_sees_and_revokes_none() throws Exception {
        CreatedKey made = key("worker", Set.of(Scope.READ, Scope.EXECUTE));
        UiServer.Browser worker = server.browser(made.secret());
        String id = made.key().id().toString();
        assertThat(worker.get("/ui/keys").body())
                .contains("scope <code>admin</code>")
                .doesNotContain(id, "new-key-form");
        assertThat(worker.submit("/ui/keys/" + id + "/revoke", Map.of()).statusCode())
                .isEqualTo(403);
        assertThat(browser.get("/ui/keys").body()).contains(id);
    }
}

package atoll.ui;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What is to be copied leads to this server. */
class ConnectPageTest {
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

    private static String snippet(String page, String id) {
        Matcher found = Pattern.compile("<pre id=\"copy-" + id + "\"[^>]*><code>(.*?)</code>", Pattern.DOTALL)
                .matcher(page);
        assertThat(found.find()).describedAs(id).isTrue();
        return found.group(1)
                .replace("&quot;", "\"")
                .replace("&#34;", "\"")
                .replace("&#39;", "'")
                .replace("&amp;", "&");
    }

    @Test
    void what_is_copied_has_the_address_that_the_visitor_uses() throws Exception {
        String page = browser.get("/ui/connect").body();
        assertThat(snippet(page, "env")).contains("export ATOLL_URL=" + server.origin() + "\n");
        assertThat(snippet(page, "claude-code")).contains(" " + server.origin() + "/mcp ");
        for (String id : new String[] {"claude-desktop", "cursor", "vscode"}) {
            assertThat(snippet(page, id)).describedAs(id).startsWith("{").contains("\"" + server.origin() + "/mcp\"");
        }
        assertThat(snippet(page, "e2b-env"))
                .contains("E2B_API_URL=" + server.origin() + "/compat/e2b", "E2B_SANDBOX_URL=" + server.origin())
                .endsWith("E2B_API_KEY=\"e2b_$(printf %s 'YOUR_KEY' | od -An -vtx1 | tr -d ' \\n')\"");
        assertThat(page)
                .contains("data-copy=\"copy-curl\"", "data-copy=\"copy-e2b-python\"", "data-copy=\"copy-e2b-js\"");
    }

    @Test
    void behind_tls_it_is_an_address_of_tls() throws Exception {
        String page = server.send(browser.request("/ui/connect").header("X-Forwarded-Proto", "https"))
                .body();
        assertThat(snippet(page, "cursor")).contains("\"https://127.0.0.1:" + server.port + "/mcp\"");
    }

    @Test
    void a_key_is_never_on_the_page() throws Exception {
        assertThat(browser.get("/ui/connect").body())
                .contains("YOUR_KEY")
                .doesNotContain(atoll.core.testing.CoreFixture.KEY);
    }
}

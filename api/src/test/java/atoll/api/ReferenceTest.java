package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

class ReferenceTest {
    private ApiServer api;
    private JsonNode document;

    @BeforeEach
    void start() throws Exception {
        api = new ApiServer();
        document = ApiServer.json(api.get("/openapi.json"));
    }

    @AfterEach
    void stop() {
        api.close();
    }

    @Test
    void llms_txt_names_every_operation() throws Exception {
        HttpResponse<String> text = api.get("/llms.txt");
        assertThat(text.headers().firstValue("Content-Type")).hasValue("text/plain; charset=utf-8");
        assertThat(text.body()).startsWith("# Atoll\n\n> ").contains("POST /v1/code_exec {\"tool\":\"code_exec\"");
        for (Map.Entry<String, JsonNode> path : document.get("paths").properties()) {
            for (Map.Entry<String, JsonNode> method : path.getValue().properties()) {
                assertThat(text.body())
                        .contains("- `%s %s`: %s\n"
                                .formatted(
                                        method.getKey().toUpperCase(Locale.ROOT),
                                        path.getKey(),
                                        method.getValue().get("summary").stringValue()));
            }
        }
    }

    @Test
    void the_reference_has_every_operation_and_schema_and_no_link_that_leads_nowhere() throws Exception {
        String page = api.get("/docs").body();
        for (JsonNode path : document.get("paths")) {
            for (JsonNode operation : path) {
                assertThat(page)
                        .contains("<article id=\"%s\">"
                                .formatted(operation.get("operationId").stringValue()));
            }
        }
        document.at("/components/schemas")
                .propertyNames()
                .forEach(name -> assertThat(page).contains("<article id=\"schema-%s\">".formatted(name)));
        Matcher links = Pattern.compile("href=\"#([^\"]*)\"").matcher(page);
        while (links.find()) {
            assertThat(page).contains("id=\"" + links.group(1) + "\"");
        }
    }

    @Test
    void the_reference_needs_nothing_that_its_policy_forbids() throws Exception {
        HttpResponse<String> page = api.get("/docs");
        String policy = page.headers().firstValue("Content-Security-Policy").orElseThrow();
        Matcher style = Pattern.compile("<style>(.*?)</style>", Pattern.DOTALL).matcher(page.body());
        assertThat(style.find()).isTrue();
        byte[] digest =
                MessageDigest.getInstance("SHA-256").digest(style.group(1).getBytes(StandardCharsets.UTF_8));
        assertThat(policy)
                .startsWith("default-src 'none'; style-src 'sha256-"
                        + Base64.getEncoder().encodeToString(digest) + "'");
        assertThat(page.body()).doesNotContain("<script", " style=", "src=", " onclick", "http://", "https://");
    }

    @Test
    void what_the_document_says_is_text_and_no_markup() {
        assertThat(Reference.escape("<b a=\"'&'\">")).isEqualTo("&lt;b a=&quot;&#39;&amp;&#39;&quot;&gt;");
        var hostile = new Reference("""
                {"info":{"title":"<i>","version":"1","description":"<script>"},"components":{"schemas":{"<u>":{"type":"<s>"}}},
                 "paths":{"/<q>":{"get":{"operationId":"<a>","summary":"<img>","description":"<hr>","responses":{"200":{"description":"<br>"}}}}}}
                """.getBytes(StandardCharsets.UTF_8));
        assertThat(hostile.page()).doesNotContain("<i>", "<script", "<u>", "<s>", "<q>", "<a>", "<img", "<hr>");
    }
}

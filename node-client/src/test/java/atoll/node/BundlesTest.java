package atoll.node;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.execution.ExecutionResult;
import atoll.proto.exec.v1.Result;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.core.JsonParser;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.json.JsonFactory;

/** Displayed values as they come from a sandbox, which may say anything. */
class BundlesTest {
    private static ExecutionResult read(String data) {
        return Bundles.result(Result.newBuilder().setDataJson(data).build());
    }

    @Test
    void what_is_told_of_a_value_arrives() {
        ExecutionResult result = Bundles.result(Result.newBuilder()
                .setMain(true)
                .setDataJson(" { \"text/plain\" : \"2\" , \"application/json\" : { \"a\" : [ 1 , 2.50 , null ] } } ")
                .setMetadataJson("{\"image/png\":{\"width\":3}}")
                .setTruncatedBytes(5)
                .putLeftOut("image/png", 5)
                .setDisplayId("d")
                .setUpdate(true)
                .setClear(true)
                .build());
        assertThat(result.data().json()).isEqualTo("{\"text/plain\":\"2\",\"application/json\":{\"a\":[1,2.50,null]}}");
        assertThat(result.data().plainText()).contains("2");
        assertThat(result.data().sizes()).isEqualTo(Map.of("text/plain", 3L, "application/json", 19L));
        assertThat(result.metadata()).isEqualTo("{\"image/png\":{\"width\":3}}");
        assertThat(result.leftOut()).isEqualTo(Map.of("image/png", 5L));
        assertThat(result.truncatedBytes()).isEqualTo(5);
        assertThat(result.displayId()).contains("d");
        assertThat(result.main() && result.update() && result.clear()).isTrue();
    }

    @Test
    void a_form_that_no_usual_reader_takes_is_left_out_and_the_others_stay() {
        String deep = "[".repeat(100_000) + "]".repeat(100_000);
        String number = "9".repeat(100_000);
        ExecutionResult result = read("{\"text/plain\":\"t\",\"a/deep+json\":" + deep + ",\"a/long+json\":[" + number
                + "],\"" + "n".repeat(5000) + "\":1,\"b/fine+json\":[[1]]}");
        assertThat(result.data().json()).isEqualTo("{\"text/plain\":\"t\",\"b/fine+json\":[[1]]}");
        assertThat(result.leftOut()).containsOnlyKeys("a/deep+json", "a/long+json", "");
        assertThat(result.leftOut().get("a/deep+json")).isBetween(199_000L, 201_000L);
        assertThat(result.truncatedBytes()).isGreaterThan(299_000);
        int tokens = 0;
        try (JsonParser parser = new JsonFactory()
                .createParser(ObjectReadContext.empty(), result.data().json())) {
            while (parser.nextToken() != null) {
                tokens++;
            }
        }
        assertThat(tokens).isEqualTo(10);
    }

    @Test
    void a_name_counts_once() {
        ExecutionResult result = read("{\"text/plain\":\"first\",\"text/plain\":\"second\"}");
        assertThat(result.data().json()).isEqualTo("{\"text/plain\":\"first\"}");
        assertThat(result.leftOut()).containsOnlyKeys("text/plain");
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "5", "[]", "{\"a\":", "{\"a\":1} 2", "{\"a\":[1}", "{\"a\":nul}", "\u0000"})
    void what_is_no_object_is_told_as_text(String data) {
        assertThat(read(data).data().plainText().orElseThrow()).contains("no valid JSON object");
    }

    @Test
    void metadata_that_is_none_is_empty() {
        for (String metadata : new String[] {"", "null", "[1]", "{", "{\"a\":\"" + "x".repeat(300_000) + "\"}"}) {
            ExecutionResult result = Bundles.result(Result.newBuilder()
                    .setDataJson("{}")
                    .setMetadataJson(metadata)
                    .build());
            assertThat(result.metadata())
                    .as(metadata.substring(0, Math.min(9, metadata.length())))
                    .isEqualTo("{}");
        }
        ExecutionResult unnamed = Bundles.result(
                Result.newBuilder().setDataJson("{}").setUpdate(true).build());
        assertThat(unnamed.update()).isFalse();
        assertThat(unnamed.displayId()).isEqualTo(Optional.empty());
    }
}

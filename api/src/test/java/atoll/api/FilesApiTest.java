package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.BoxId;
import atoll.core.SandboxId;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeFiles;
import atoll.http.Json;
import com.networknt.schema.InputFormat;
import com.networknt.schema.SchemaRegistry;
import com.networknt.schema.SpecificationVersion;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/** Files over HTTP, from the request to a node in memory. */
class FilesApiTest {
    private InsideServer server;
    private String sandbox;
    private String files;

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
        sandbox = server.sandbox();
        files = sandbox + "/files";
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private FakeFiles inside() {
        SandboxId id = SandboxId.parse(sandbox.substring(sandbox.lastIndexOf('/') + 1));
        BoxId box = server.core.core().sandboxes().get(server.core.caller(), id).box();
        return server.core.node.filesOf(box);
    }

    private static String at(String path) {
        return "?path=" + URLEncoder.encode(path, StandardCharsets.UTF_8);
    }

    private HttpResponse<String> put(String path, byte[] content) throws IOException, InterruptedException {
        return server.api.send(server.api.request(files + path).PUT(BodyPublishers.ofByteArray(content)));
    }

    private HttpResponse<String> put(String path, String content) throws IOException, InterruptedException {
        return put(path, content.getBytes(StandardCharsets.UTF_8));
    }

    private HttpResponse<byte[]> bytes(HttpRequest.Builder request) throws IOException, InterruptedException {
        try (var client = HttpClient.newHttpClient()) {
            return client.send(request.build(), BodyHandlers.ofByteArray());
        }
    }

    private HttpRequest.Builder request(String path) {
        return server.api.request(files + path);
    }

    private static byte[] allBytes() {
        byte[] bytes = new byte[700_001];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (i + (i >> 8));
        }
        return bytes;
    }

    @Test
    void every_byte_goes_in_and_out() throws Exception {
        byte[] sent = allBytes();
        HttpResponse<String> made = put(at("new/all.bin") + "&mode=0600", sent);
        assertThat(made.statusCode()).isEqualTo(201);
        assertFits(made.body(), "FileWritten");
        assertThat(ApiServer.json(made).at("/file/mode").stringValue()).isEqualTo("0600");
        assertThat(put(at("new/all.bin"), sent).statusCode()).isEqualTo(200);
        HttpResponse<byte[]> got = bytes(request(at("~/new/all.bin")));
        assertThat(got.body()).isEqualTo(sent);
        assertThat(got.headers().firstValue("content-length")).contains("700001");
        assertThat(got.headers().firstValue("last-modified")).get().asString().endsWith("GMT");
        assertFits(got.headers().firstValue("x-atoll-file").orElseThrow(), "File");
    }

    @Test
    void a_part_is_read_by_offset_or_by_range() throws Exception {
        put(at("f"), "0123456789");
        assertThat(bytes(request(at("f") + "&offset=3&length=4")).body())
                .asString()
                .isEqualTo("3456");
        assertThat(bytes(request(at("f") + "&offset=8")).body()).asString().isEqualTo("89");
        HttpResponse<byte[]> part = bytes(request(at("f")).header("Range", "bytes=2-4"));
        assertThat(part.statusCode()).isEqualTo(206);
        assertThat(part.body()).asString().isEqualTo("234");
        assertThat(part.headers().firstValue("content-range")).contains("bytes 2-4/10");
        HttpResponse<byte[]> none = bytes(request(at("f")).header("Range", "bytes=10-"));
        assertThat(none.statusCode()).isEqualTo(416);
        assertThat(bytes(request(at("f")).header("Range", "bytes=0-1,3-4")).body())
                .hasSize(10);
    }

    @Test
    void an_empty_file_and_names_with_every_kind_of_character_work() throws Exception {
        for (String name : List.of("empty", "with space", "ü🙂", "new\nline", "a&b=c?d#e%f+g", "\"quoted\\\"")) {
            assertThat(put(at("d/" + name), "").statusCode()).as(name).isEqualTo(201);
            HttpResponse<byte[]> got = bytes(request(at("d/" + name)));
            assertThat(got.statusCode()).as(name).isEqualTo(200);
            assertThat(got.body()).isEmpty();
            JsonNode file = Json.mapper()
                    .readTree(got.headers().firstValue("x-atoll-file").orElseThrow());
            assertThat(file.get("name").stringValue()).isEqualTo(name);
        }
    }

    @Test
    void head_says_how_large_it_is_without_reading_it() throws Exception {
        put(at("f"), "0123456789");
        HttpResponse<byte[]> head = bytes(request(at("f")).method("HEAD", BodyPublishers.noBody()));
        assertThat(head.statusCode()).isEqualTo(200);
        assertThat(head.headers().firstValue("content-length")).contains("10");
        assertThat(head.headers().firstValue("x-atoll-file")).isPresent();
        assertThat(bytes(request(at("none")).method("HEAD", BodyPublishers.noBody()))
                        .statusCode())
                .isEqualTo(404);
    }

    @Test
    void writing_appends_creates_or_goes_to_an_offset() throws Exception {
        put(at("f"), "hello");
        put(at("f") + "&write=append", " world");
        put(at("f") + "&write=at_offset&offset=4", "0");
        assertThat(bytes(request(at("f"))).body()).asString().isEqualTo("hell0 world");
        HttpResponse<String> taken = put(at("f") + "&write=create", "x");
        assertThat(taken.statusCode()).isEqualTo(409);
        assertThat(taken.body()).contains("\"file_exists\"").contains("/home/user/f");
        assertThat(put(at("f") + "&write=sometimes", "x").statusCode()).isEqualTo(400);
        assertThat(put(at("f") + "&mode=rwx", "x").statusCode()).isEqualTo(400);
    }

    @ParameterizedTest
    @CsvSource({
        "none, 404, file_not_found",
        "/tmp, 409, file_conflict",
        "/root/secret, 403, permission_denied",
        "'', 400, invalid_request",
        "a%00b, 400, invalid_request",
    })
    void what_cannot_be_read_says_why(String path, int status, String code) throws Exception {
        HttpResponse<String> response = server.api.get(files + "?path=" + path);
        assertThat(response.statusCode()).isEqualTo(status);
        JsonNode error = ApiServer.json(response).get("error");
        assertThat(error.get("code").stringValue()).isEqualTo(code);
        assertThat(error.get("message").stringValue()).isNotBlank();
    }

    @Test
    void a_path_of_4096_bytes_is_too_long_by_one_when_it_has_4097() throws Exception {
        assertThat(server.api.get(files + at("/" + "x/".repeat(2048))).statusCode())
                .isEqualTo(400);
        assertThat(server.api.get(files).body()).contains("path is missing");
    }

    @Test
    void a_fifo_is_no_file_and_a_full_disk_is_507() throws Exception {
        inside().makeFifo("/tmp/fifo");
        assertThat(server.api.get(files + at("/tmp/fifo")).statusCode()).isEqualTo(409);
        inside().limitDisk(3);
        HttpResponse<String> full = put(at("f"), "12345");
        assertThat(full.statusCode()).isEqualTo(507);
        assertThat(full.body()).contains("disk_full").contains("/home/user/f");
    }

    @Test
    void an_upload_that_breaks_off_leaves_what_was_there() throws Exception {
        put(at("f"), "old");
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), server.api.port())) {
            String head = "PUT " + files + at("f") + " HTTP/1.1\r\nHost: x\r\nX-API-Key: " + CoreFixture.KEY
                    + "\r\nContent-Length: 1000\r\n\r\nnew";
            socket.getOutputStream().write(head.getBytes(StandardCharsets.US_ASCII));
        }
        Eventually.until(() -> inside().brokenOff() == 1, () -> inside().brokenOff());
        assertThat(bytes(request(at("f"))).body()).asString().isEqualTo("old");
    }

    @Test
    void files_are_listed_looked_at_moved_copied_and_removed() throws Exception {
        fits("FileChange", server.post(200, files + ":mkdir", Map.of("path", "d/sub", "parents", true)));
        put(at("d/f"), "x");
        fits("FileChange", server.post(200, files + ":copy", Map.of("from", "d/f", "to", "d/sub/g")));
        fits("FileChange", server.post(200, files + ":move", Map.of("from", "d/f", "to", "d/h")));
        fits("FileChange", server.post(200, files + ":symlink", Map.of("path", "d/l", "target", "h")));
        JsonNode changed = server.post(
                200, files + ":chmod", Map.of("path", "d/h", "mode", "0640", "modified_at", "2020-01-01T00:00:00Z"));
        assertThat(changed.at("/file/mode").stringValue()).isEqualTo("0640");
        assertThat(changed.at("/file/modified_at").stringValue()).isEqualTo("2020-01-01T00:00:00Z");
        JsonNode list = server.get(200, files + ":list" + at("d") + "&depth=2&limit=3");
        fits("FileList", list);
        assertThat(names(list)).containsExactly("h", "l", "sub");
        JsonNode rest = server.get(
                200,
                files + ":list" + at("d") + "&depth=2&next="
                        + URLEncoder.encode(list.get("next").stringValue(), StandardCharsets.UTF_8));
        assertThat(names(rest)).containsExactly("g");
        JsonNode link = server.get(200, files + ":stat" + at("d/l"));
        fits("File", link);
        assertThat(link.get("type").stringValue()).isEqualTo("symlink");
        assertThat(link.get("target_type").stringValue()).isEqualTo("file");
        assertThat(server.get(200, files + ":stat" + at("d/l") + "&follow=true")
                        .get("name")
                        .stringValue())
                .isEqualTo("h");
        server.delete(409, files + at("d"));
        assertThat(server.delete(200, files + at("d") + "&recursive=true")
                        .get("changed")
                        .booleanValue())
                .isTrue();
        assertThat(server.delete(200, files + at("d") + "&force=true")
                        .get("changed")
                        .booleanValue())
                .isFalse();
        server.delete(404, files + at("d"));
    }

    private static List<String> names(JsonNode list) {
        var names = new ArrayList<String>();
        list.get("items").forEach(item -> names.add(item.get("name").stringValue()));
        return names;
    }

    @Test
    void another_user_has_other_rights() throws Exception {
        server.post(403, files + ":mkdir", Map.of("path", "/root/d"));
        server.post(200, files + ":mkdir", Map.of("path", "/root/d", "user", "root"));
        server.get(200, files + ":stat" + at("/root/d") + "&user=root");
        server.get(400, files + ":stat" + at("/root/d") + "&user=nobody-known");
    }

    @Test
    void unknown_parameters_are_refused_before_anything_is_done() throws Exception {
        put(at("log"), "one\n");
        JsonNode error = InsideServer.answer(400, put(at("log") + "&append=true", "two\n"))
                .get("error");
        assertThat(error.get("message").stringValue()).isEqualTo("unknown query parameter \"append\"");
        assertThat(error.get("remediation").stringValue()).contains("attribute.NAME", "write");
        assertThat(server.api.get(files + at("log")).body()).isEqualTo("one\n");
        JsonNode none = server.get(400, "/v1/stats?verbose").get("error");
        assertThat(none.get("remediation").stringValue()).isEqualTo("This call takes none.");
    }

    @Test
    void a_word_that_is_none_of_a_few_is_answered_with_them() throws Exception {
        JsonNode error =
                server.get(400, files + ":archive" + at("d") + "&format=zip").get("error");
        assertThat(error.get("message").stringValue()).isEqualTo("format: \"zip\" (expected: tar, tar.gz)");
    }

    @Test
    void unknown_and_wrong_fields_are_refused() throws Exception {
        server.post(400, files + ":mkdir", Map.of("path", "d", "recursive", true));
        server.post(400, files + ":mkdir", Map.of("path", 7));
        server.post(400, files + ":move", Map.of("from", "a"));
        server.post(400, files + ":chmod", Map.of("path", "a", "mode", "999"));
        server.post(400, files + ":chmod", Map.of("path", "a", "modified_at", "yesterday"));
        server.post(400, files + ":replace", Map.of("paths", List.of(), "pattern", "a", "replacement", "b"));
        server.get(400, files + ":list" + at("d") + "&depth=0");
        server.get(400, files + ":find" + at("d") + "&type=socket");
    }

    @Test
    void files_are_found_and_their_text_replaced() throws Exception {
        put(at("src/a.py"), "one\ntwo\n");
        put(at("src/b.txt"), "two");
        JsonNode named = server.get(200, files + ":find" + at("src") + "&name=*.py");
        fits("FilesFound", named);
        assertThat(names(named)).containsExactly("a.py");
        JsonNode found = server.get(200, files + ":find" + at("src") + "&content=T.O&regex=true&ignore_case=true");
        fits("FilesFound", found);
        assertThat(found.get("items")).hasSize(2);
        assertThat(found.at("/items/0/line").intValue()).isEqualTo(2);
        JsonNode replaced = server.post(
                200,
                files + ":replace",
                Map.of("paths", List.of("src/a.py", "none"), "pattern", "two", "replacement", "2"));
        fits("FilesReplaced", replaced);
        assertThat(replaced.at("/items/0/count").intValue()).isEqualTo(1);
        assertThat(replaced.at("/items/1/error").isString()).isTrue();
    }

    @Test
    void many_operations_go_in_one_call() throws Exception {
        JsonNode results = server.post(
                200,
                files + ":batch",
                Map.of(
                        "operations",
                        List.of(
                                Map.of("op", "write", "path", "d/t", "content", "ü"),
                                Map.of("op", "write", "path", "d/b", "content", "/wA=", "encoding", "base64"),
                                Map.of("op", "read", "path", "d/t"),
                                Map.of("op", "read", "path", "d/b"),
                                Map.of("op", "read", "path", "d/b", "encoding", "utf8"),
                                Map.of("op", "list", "path", "d"),
                                Map.of("op", "stat", "path", "none"),
                                Map.of("op", "remove", "path", "d", "recursive", true))));
        fits("FileStepResults", results);
        JsonNode items = results.get("items");
        assertThat(items.at("/2/content").stringValue()).isEqualTo("ü");
        assertThat(items.at("/2/encoding").stringValue()).isEqualTo("utf8");
        assertThat(items.at("/3/content").stringValue()).isEqualTo("/wA=");
        assertThat(items.at("/3/encoding").stringValue()).isEqualTo("base64");
        assertThat(items.at("/4/ok").booleanValue()).isFalse();
        assertThat(items.at("/5/entries")).hasSize(2);
        assertThat(items.at("/6/error/code").stringValue()).isEqualTo("file_not_found");
        assertThat(items.at("/7/ok").booleanValue()).isTrue();
    }

    @Test
    void a_batch_with_a_fault_says_where_and_does_nothing() throws Exception {
        JsonNode error = server.post(
                400,
                files + ":batch",
                Map.of(
                        "operations",
                        List.of(
                                Map.of("op", "write", "path", "t", "content", "x"),
                                Map.of("op", "write", "path", "u", "content", "?", "encoding", "base64"))));
        assertThat(error.at("/error/message").stringValue()).startsWith("operations[1]: content is no valid base64");
        assertThat(server.api.get(files + at("t")).statusCode()).isEqualTo(404);
        JsonNode stopped = server.post(
                200,
                files + ":batch",
                Map.of(
                        "stop_on_error",
                        true,
                        "operations",
                        List.of(
                                Map.of("op", "stat", "path", "none"),
                                Map.of("op", "write", "path", "t", "content", "x"))));
        assertThat(stopped.at("/items/1/error/code").stringValue()).isEqualTo("skipped");
        server.post(400, files + ":batch", Map.of("operations", List.of()));
        server.post(400, files + ":batch", Map.of("operations", List.of(Map.of("op", "explode"))));
    }

    @Test
    void a_folder_goes_out_and_in_as_tar() throws Exception {
        put(at("out/a/b"), "content");
        HttpResponse<byte[]> tar = bytes(request(":archive" + at("out")));
        assertThat(tar.headers().firstValue("content-type")).contains("application/x-tar");
        HttpResponse<String> unpacked = put(":archive" + at("in"), tar.body());
        assertThat(unpacked.statusCode()).isEqualTo(200);
        assertFits(unpacked.body(), "FilesUnpacked");
        assertThat(bytes(request(at("in/a/b"))).body()).asString().isEqualTo("content");
        byte[] slip = tar.body().clone();
        System.arraycopy("../x".getBytes(StandardCharsets.US_ASCII), 0, slip, 0, 5 - 1);
        slip[4] = 0;
        assertThat(put(":archive" + at("in2"), slip).statusCode()).isEqualTo(400);
        assertThat(put(":archive" + at("in") + "&format=zip", slip).statusCode())
                .isEqualTo(400);
    }

    @Test
    void changes_are_streamed() throws Exception {
        try (var stream = server.api
                .open(request(":watch" + at("/home/user") + "&recursive=true"))
                .body()) {
            var lines = new java.io.BufferedReader(new java.io.InputStreamReader(stream, StandardCharsets.UTF_8));
            assertThat(lines.readLine()).isEqualTo("event: ready");
            assertThat(lines.readLine()).startsWith("data: {");
            put(at("f"), "x");
            assertThat(lines.readLine()).isEmpty();
            assertThat(lines.readLine()).isEqualTo("event: create");
            String data = lines.readLine().substring("data: ".length());
            assertFits(data, "FileEvent");
            assertThat(data).contains("\"path\":\"/home/user/f\"");
        }
        Eventually.until(() -> changeSeenByNobody(), () -> inside().watchers());
        assertThat(server.api.get(files + ":watch" + at("none")).statusCode()).isEqualTo(404);
    }

    /** The server learns that a reader has gone when it next has something to say. */
    private boolean changeSeenByNobody() {
        inside().tell(atoll.core.file.FileEvent.Kind.WRITE, "/home/user/f");
        return inside().watchers() == 0;
    }

    @Test
    void changes_are_polled_with_a_cursor() throws Exception {
        JsonNode watch = server.post(201, files + ":watch", Map.of("path", "/home/user", "recursive", true));
        fits("FileWatch", watch);
        String id = files + ":watch?watch_id=" + watch.get("watch_id").stringValue();
        put(at("f"), "x");
        JsonNode events = server.get(200, id + "&wait_seconds=30");
        fits("FileEvents", events);
        assertThat(events.at("/items/0/type").stringValue()).isEqualTo("create");
        assertThat(events.get("overflow").booleanValue()).isFalse();
        server.delete(200, id);
        server.get(404, id);
        server.get(404, files + ":watch?watch_id=nonsense");
        server.delete(400, files + ":watch");
    }

    @Test
    void files_of_an_ended_sandbox_are_410_and_of_none_404() throws Exception {
        server.delete(200, sandbox);
        HttpResponse<String> gone = server.api.get(files + at("f"));
        assertThat(gone.statusCode()).isEqualTo(410);
        assertThat(gone.body()).contains("sandbox_ended");
        assertThat(put(at("f"), "x").statusCode()).isEqualTo(410);
        assertThat(server.api
                        .get("/v1/sandboxes/" + SandboxId.random() + "/files" + at("f"))
                        .statusCode())
                .isEqualTo(404);
    }

    private void fits(String schema, JsonNode answer) throws Exception {
        assertFits(Json.text(answer), schema);
    }

    private void assertFits(String body, String schema) throws Exception {
        ObjectNode whole = Json.mapper().createObjectNode();
        whole.set("components", ApiServer.json(server.api.get("/openapi.json")).get("components"));
        whole.put("$ref", "#/components/schemas/" + schema);
        assertThat(SchemaRegistry.withDefaultDialect(SpecificationVersion.DRAFT_2020_12)
                        .getSchema(Json.text(whole), InputFormat.JSON)
                        .validate(body, InputFormat.JSON))
                .as("%s: %s", schema, body)
                .isEmpty();
    }
}

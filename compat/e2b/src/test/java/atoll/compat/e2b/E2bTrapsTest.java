package atoll.compat.e2b;

import static atoll.compat.e2b.E2bFixture.NOTHING;
import static atoll.compat.e2b.E2bFixture.base64;
import static atoll.compat.e2b.E2bFixture.utf8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.http.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URLEncoder;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

/** What breaks these SDKs where a server is only nearly right. */
class E2bTrapsTest {
    private E2bFixture e2b;

    @BeforeEach
    void start() throws IOException {
        e2b = new E2bFixture();
    }

    @AfterEach
    void stop() {
        e2b.close();
    }

    private static List<String> events(E2bFixture.Answer answer) {
        var names = new ArrayList<String>();
        for (JsonNode message : answer.messages()) {
            names.add(
                    message.has("event")
                            ? message.get("event").propertyNames().iterator().next()
                            : message.toString());
        }
        return names;
    }

    @Test
    void a_created_sandbox_has_every_key_that_an_sdk_reads() throws Exception {
        E2bFixture.Box made = e2b.create(",\"metadata\":{\"k\":\"v\"},\"timeout\":60");
        assertThat(made.view.propertyNames())
                .contains(
                        "templateID",
                        "sandboxID",
                        "clientID",
                        "envdVersion",
                        "envdAccessToken",
                        "trafficAccessToken",
                        "domain");
        assertThat(made.id).matches("[0-9a-z]{26}");
        assertThat(made.view.get("domain").stringValue()).isEqualTo(E2bFixture.DOMAIN);
        // Below 0.1.0 the SDKs kill what they have made; each feature has its own least version.
        assertThat(made.view.get("envdVersion").stringValue()).isEqualTo("0.6.13");
        JsonNode detail = e2b.api("GET", "/sandboxes/" + made.id, "").json();
        assertThat(detail.propertyNames())
                .contains(
                        "templateID",
                        "sandboxID",
                        "clientID",
                        "startedAt",
                        "endAt",
                        "cpuCount",
                        "memoryMB",
                        "diskSizeMB",
                        "state",
                        "envdVersion",
                        "metadata",
                        "lifecycle",
                        "envdAccessToken");
        assertThat(detail.get("metadata")).hasToString("{\"k\":\"v\"}");
        Instant started = Instant.parse(detail.get("startedAt").stringValue());
        assertThat(Instant.parse(detail.get("endAt").stringValue())).isEqualTo(started.plusSeconds(60));
    }

    @Test
    void errors_of_the_api_have_their_status_as_a_number_and_those_of_rpcs_a_name() throws Exception {
        for (String path : new String[] {"/sandboxes/i0123456789abcdef012", "/sandboxes/" + "0".repeat(26)}) {
            E2bFixture.Answer missing = e2b.api("GET", path, "");
            assertThat(missing.status()).isEqualTo(404);
            assertThat(missing.json().get("code").intValue()).isEqualTo(404);
        }
        E2bFixture.Answer refused = e2b.send("GET", "/v2/sandboxes", Map.of("X-API-KEY", "wrong"), NOTHING);
        assertThat(refused.status()).isEqualTo(401);
        assertThat(refused.json().get("code").intValue()).isEqualTo(401);
        E2bFixture.Answer rpc = e2b.create("").rpc("filesystem.Filesystem/Stat", "{\"path\":\"/none\"}");
        assertThat(rpc.status()).isEqualTo(404);
        assertThat(rpc.json().get("code").stringValue()).isEqualTo("not_found");
    }

    @Test
    void a_key_may_have_the_prefix_that_some_clients_insist_on() throws Exception {
        for (String key : new String[] {CoreFixture.KEY, "e2b_" + CoreFixture.KEY}) {
            assertThat(e2b.send("GET", "/v2/sandboxes", Map.of("X-API-KEY", key), NOTHING)
                            .status())
                    .isEqualTo(200);
        }
        // Python's e2b 2.31 wants hexadecimal digits behind it.
        String digits = HexFormat.of().formatHex(utf8(CoreFixture.KEY));
        assertThat(e2b.send("GET", "/v2/sandboxes", Map.of("X-API-KEY", "e2b_" + digits), NOTHING)
                        .status())
                .isEqualTo(200);
        String other = HexFormat.of().formatHex(utf8("another key"));
        for (String key :
                new String[] {"e2b_", "e2b_e2b_" + CoreFixture.KEY, "e2b_wrong", "e2b_abc", digits, "e2b_" + other}) {
            assertThat(e2b.send("GET", "/v2/sandboxes", Map.of("X-API-KEY", key), NOTHING)
                            .status())
                    .isEqualTo(401);
        }
    }

    @Test
    void an_idempotency_key_makes_one_sandbox_and_without_one_nothing_may_be_repeated() throws Exception {
        Map<String, String> keyed = Map.of("X-API-KEY", CoreFixture.KEY, "Idempotency-Key", "a-key");
        byte[] body = utf8("{\"templateID\":\"base\"}");
        String first = e2b.send("POST", "/v2/sandboxes", keyed, body)
                .json()
                .get("sandboxID")
                .stringValue();
        E2bFixture.Answer again = e2b.send("POST", "/v2/sandboxes", keyed, body);
        assertThat(again.json().get("sandboxID").stringValue()).isEqualTo(first);
        e2b.core.core().close();
        E2bFixture.Answer failed = e2b.api("POST", "/v2/sandboxes", "{\"templateID\":\"base\"}");
        assertThat(failed.status()).as(failed.text()).isEqualTo(503);
        assertThat(failed.header("Should-Retry")).isEqualTo("false");
    }

    @Test
    void the_first_message_of_a_process_is_its_start_and_the_last_its_end() throws Exception {
        E2bFixture.Answer answer = e2b.create("").run("print out\nerr bad\nexit 3");
        assertThat(answer.status()).isEqualTo(200);
        assertThat(answer.header("Content-Type")).isEqualTo("application/connect+json");
        assertThat(events(answer)).containsExactly("start", "data", "data", "end", "{}");
        List<JsonNode> messages = answer.messages();
        assertThat(messages.getFirst().at("/event/start/pid").intValue()).isPositive();
        assertThat(messages.get(1).at("/event/data/stdout").stringValue()).isEqualTo(base64("out\n"));
        assertThat(messages.get(2).at("/event/data/stderr").stringValue()).isEqualTo(base64("bad\n"));
        assertThat(messages.get(3).at("/event/end"))
                .hasToString(
                        "{\"exitCode\":3,\"exited\":true,\"status\":\"exit status 3\",\"error\":\"exit status 3\"}");
    }

    @Test
    void a_stream_that_fails_says_so_in_its_last_message_with_status_200() throws Exception {
        E2bFixture.Box box = e2b.create("");
        E2bFixture.Answer answer = box.stream("process.Process/Start", "{\"process\":{\"cmd\":\"missing\"}}");
        assertThat(answer.status()).isEqualTo(200);
        assertThat(answer.messages().getLast().at("/error/code").stringValue()).isEqualTo("not_found");
        Map<String, String> headers = box.envd();
        headers.put("Authorization", "Basic " + base64("nobody-knows:"));
        E2bFixture.Answer unknown = e2b.send(
                "POST",
                "/process.Process/Start",
                headers,
                E2bFixture.framed("{\"process\":{\"cmd\":\"bash\",\"args\":[\"-c\",\"print 1\"]}}"));
        assertThat(unknown.messages().getLast().at("/error/code").stringValue())
                .isIn("unauthenticated", "invalid_argument");
    }

    @Test
    void a_signal_that_killed_is_no_exit() throws Exception {
        List<JsonNode> messages = e2b.create("").run("die 9").messages();
        JsonNode end = messages.get(messages.size() - 2).at("/event/end");
        assertThat(end.get("exitCode").intValue()).isEqualTo(-1);
        assertThat(end.get("exited").booleanValue()).isFalse();
        assertThat(end.get("status").stringValue()).isEqualTo("signal: kill");
    }

    @Test
    void the_agent_wants_its_token_and_that_of_no_other_sandbox() throws Exception {
        E2bFixture.Box mine = e2b.create("");
        E2bFixture.Box other = e2b.create("");
        assertThat(mine.rpc("process.Process/List", "{}").status()).isEqualTo(200);
        for (String token : new String[] {"", "nope", other.token}) {
            Map<String, String> headers = mine.envd();
            headers.put("X-Access-Token", token);
            E2bFixture.Answer refused = e2b.send("POST", "/process.Process/List", headers, utf8("{}"));
            assertThat(refused.status()).isEqualTo(401);
            assertThat(refused.json().get("code").stringValue()).isEqualTo("unauthenticated");
        }
        Map<String, String> none = mine.envd();
        none.remove("X-Access-Token");
        assertThat(e2b.send("GET", "/health", none, NOTHING).status()).isEqualTo(204);
        assertThat(e2b.send("GET", "/files?path=/etc/hosts", none, NOTHING).status())
                .isEqualTo(401);
    }

    @Test
    void contexts_are_open_without_a_token_and_running_code_is_not() throws Exception {
        E2bFixture.Box box = e2b.create("");
        Map<String, String> none = box.headers(49_999);
        none.remove("X-Access-Token");
        assertThat(e2b.send("GET", "/contexts", none, NOTHING).status()).isEqualTo(200);
        assertThat(e2b.send("POST", "/contexts", none, utf8("{}")).status()).isEqualTo(200);
        byte[] code = utf8("{\"code\":\"print 1\"}");
        assertThat(e2b.send("POST", "/execute", none, code).status()).isEqualTo(401);
        assertThat(e2b.send("POST", "/execute", box.headers(49_999), code).status())
                .isEqualTo(200);
    }

    @Test
    void what_was_not_found_is_a_bad_gateway_that_says_so() throws Exception {
        Map<String, String> ghost = Map.of("E2b-Sandbox-Id", "i0123456789abcdef012", "E2b-Sandbox-Port", "49983");
        E2bFixture.Answer answer = e2b.send("GET", "/", ghost, NOTHING);
        assertThat(answer.status()).isEqualTo(502);
        assertThat(answer.json().get("message").stringValue()).contains("was not found");
        E2bFixture.Box killed = e2b.create("");
        assertThat(e2b.api("DELETE", "/sandboxes/" + killed.id, "").status()).isEqualTo(204);
        assertThat(e2b.api("DELETE", "/sandboxes/" + killed.id, "").status()).isEqualTo(404);
        assertThat(killed.get("/health").status()).isEqualTo(502);
        assertThat(killed.run("print late").status()).isEqualTo(502);
    }

    @Test
    void code_answers_by_lines_and_errors_as_plain_text() throws Exception {
        E2bFixture.Box box = e2b.create("");
        List<JsonNode> lines = box.code(
                        "{\"code\":\"print é\\nshow 'v'\",\"context_id\":null,\"language\":null,\"env_vars\":null}")
                .lines();
        assertThat(lines.stream().map(line -> line.get("type").stringValue()))
                .containsExactly("number_of_executions", "stdout", "result", "end_of_execution");
        assertThat(lines.get(1).get("text").stringValue()).isEqualTo("é\n");
        assertThat(Instant.parse(lines.get(1).get("timestamp").stringValue())).isNotNull();
        assertThat(lines.get(2).get("text").stringValue()).isEqualTo("v");
        assertThat(lines.get(2).get("is_main_result").booleanValue()).isTrue();
        List<JsonNode> failed =
                box.code("{\"code\":\"raise TypeError bad thing\"}").lines();
        assertThat(failed.get(1).get("name").stringValue()).isEqualTo("TypeError");
        assertThat(failed.get(1).get("value").stringValue()).isEqualTo("bad thing");
        assertThat(failed.getFirst().get("execution_count").intValue())
                .isEqualTo(lines.getFirst().get("execution_count").intValue() + 1);
        E2bFixture.Answer unknown = box.code("{\"code\":\"1\",\"context_id\":\"none\"}");
        assertThat(unknown.status()).isEqualTo(404);
        assertThat(unknown.header("Content-Type")).startsWith("text/plain");
        assertThat(box.code("{\"code\":\"1\",\"language\":\"cobol\"}").status()).isEqualTo(500);
        assertThat(box.code("{\"code\":\"1\",\"language\":\"bash\",\"context_id\":\"x\"}")
                        .status())
                .isEqualTo(400);
    }

    @Test
    void a_code_answer_is_cut_when_its_sandbox_dies() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThatThrownBy(() -> box.code("{\"code\":\"print 1\\ndie\"}")).isInstanceOf(IOException.class);
    }

    @Test
    void metadata_is_found_through_both_of_its_encodings() throws Exception {
        E2bFixture.Box odd = e2b.create(",\"metadata\":{\"odd key\":\"a b&c=d/é%\"}");
        E2bFixture.Box other = e2b.create(",\"metadata\":{\"odd key\":\"x\"}");
        assertThat(other.id).isNotEqualTo(odd.id);
        String pair = encoded(encoded("odd key")) + "=" + encoded(encoded("a b&c=d/é%"));
        E2bFixture.Answer found = e2b.api("GET", "/v2/sandboxes?metadata=" + encoded(pair), "");
        assertThat(found.json()).hasSize(1);
        assertThat(found.json().get(0).get("sandboxID").stringValue()).isEqualTo(odd.id);
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    @Test
    void lists_go_page_by_page_in_both_orders() throws Exception {
        var ids = new ArrayList<String>();
        for (int i = 0; i < 5; i++) {
            e2b.core.clock.advance(Duration.ofSeconds(1));
            ids.add(e2b.create(",\"metadata\":{\"page\":\"me\"}").id);
        }
        for (String order : new String[] {"asc", "desc"}) {
            var seen = new ArrayList<String>();
            String token = "";
            do {
                E2bFixture.Answer page = e2b.api(
                        "GET", "/v2/sandboxes?metadata=page%3Dme&limit=2&order=" + order + "&nextToken=" + token, "");
                page.json().forEach(one -> seen.add(one.get("sandboxID").stringValue()));
                token = page.header("x-next-token");
            } while (!token.isEmpty());
            assertThat(seen).isEqualTo(order.equals("asc") ? ids : ids.reversed());
        }
    }

    @Test
    void signed_addresses_open_one_file_for_one_operation_until_they_expire() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThat(upload(box, "/files?path=/home/user/f", "content").status()).isEqualTo(200);
        String good = signature("/home/user/f", "read", box.token, "");
        assertThat(e2b.send("GET", "/files?path=/home/user/f&signature=" + good, Map.of(), NOTHING)
                        .text())
                .isEqualTo("content");
        assertThat(e2b.send("GET", "/files?path=/home/user/g&signature=" + good, Map.of(), NOTHING)
                        .status())
                .isEqualTo(401);
        assertThat(e2b.send("POST", "/files?path=/home/user/f&signature=" + good, Map.of(), utf8("x"))
                        .status())
                .isEqualTo(401);
        for (long left : new long[] {60, -1}) {
            String expiry = Long.toString(Instant.now().getEpochSecond() + left);
            String signed = signature("/home/user/f", "read", box.token, ":" + expiry);
            String path = "/files?path=/home/user/f&signature_expiration=" + expiry + "&signature=" + signed;
            assertThat(e2b.send("GET", path, Map.of(), NOTHING).status()).isEqualTo(left > 0 ? 200 : 401);
        }
    }

    private static String signature(String path, String operation, String token, String expiry) throws Exception {
        byte[] hash = MessageDigest.getInstance("SHA-256").digest(utf8(path + ":" + operation + "::" + token + expiry));
        return "v1_" + encoded(Base64.getEncoder().withoutPadding().encodeToString(hash));
    }

    private E2bFixture.Answer upload(E2bFixture.Box box, String path, String content) throws Exception {
        Map<String, String> headers = box.envd();
        headers.put("Content-Type", "application/octet-stream");
        return e2b.send("POST", path, headers, utf8(content));
    }

    @Test
    void a_form_may_hold_several_files_whose_names_are_their_paths() throws Exception {
        E2bFixture.Box box = e2b.create("");
        Map<String, String> headers = box.envd();
        headers.put("Content-Type", "multipart/form-data; boundary=b");
        String form = String.join(
                "\r\n",
                "--b",
                "Content-Disposition: form-data; name=\"file\"; filename=\"/home/user/d/1\"",
                "",
                "one",
                "--b",
                "Content-Disposition: form-data; name=\"file\"; filename=\"d/2\"",
                "",
                "",
                "--b--",
                "");
        E2bFixture.Answer written = e2b.send("POST", "/files", headers, utf8(form));
        assertThat(written.status()).as(written.text()).isEqualTo(200);
        assertThat(written.json()).hasSize(2);
        assertThat(written.json().get(1).get("path").stringValue()).isEqualTo("/home/user/d/2");
        E2bFixture.Answer empty = box.get("/files?path=d/2");
        assertThat(empty.status()).isEqualTo(200);
        assertThat(empty.header("Content-Length")).isEqualTo("0");
        assertThat(box.get("/files?path=~/d/1").text()).isEqualTo("one");
    }

    @Test
    void what_is_not_built_yet_answers_in_the_protocols_own_form() throws Exception {
        for (String[] call : new String[][] {{"POST", "/volumes"}, {"GET", "/secrets"}}) {
            E2bFixture.Answer answer = e2b.api(call[0], call[1], "{}");
            assertThat(answer.status()).isEqualTo(501);
            assertThat(answer.json().get("code").intValue()).isEqualTo(501);
            assertThat(answer.json().get("message").stringValue()).contains("not supported by this server yet");
        }
        String lists = "{\"templateID\":\"base\",\"network\":{\"allowOut\":[\"1.1.1.1\"]}}";
        assertThat(e2b.api("POST", "/v2/sandboxes", lists).status()).isEqualTo(400);
        assertThat(e2b.api("POST", "/v2/sandboxes", "{\"templateID\":\"no/such:one\"}")
                        .status())
                .isEqualTo(404);
    }

    @Test
    void names_with_slashes_come_as_one_segment() throws Exception {
        assertThat(e2b.api("DELETE", "/templates/team%2Fname%3Atag", "").status())
                .isEqualTo(404);
        assertThat(e2b.api("GET", "/templates/aliases/code-interpreter-v1", "").status())
                .isEqualTo(200);
    }

    /** Python's e2b 2.20 names the agent in the headers of a call to the control plane. */
    @Test
    void a_control_call_that_names_an_agent_too_is_the_control_planes() throws Exception {
        E2bFixture.Box box = e2b.create("");
        Map<String, String> headers = box.headers(49_983);
        headers.remove("X-Access-Token");
        headers.put("X-API-KEY", CoreFixture.KEY);
        E2bFixture.Answer connected =
                e2b.send("POST", "/sandboxes/" + box.id + "/connect", headers, utf8("{\"timeout\":60}"));
        assertThat(connected.status()).as(connected.text()).isEqualTo(200);
        assertThat(connected.json().get("sandboxID").stringValue()).isEqualTo(box.id);
        assertThat(e2b.send("POST", "/sandboxes/" + "0".repeat(26) + "/connect", headers, utf8("{}"))
                        .status())
                .isEqualTo(404);
    }

    /** Python's e2b 2.20 sends no body where it has nothing to say. */
    @Test
    void pausing_and_resuming_need_no_body() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", "").status())
                .isEqualTo(204);
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", "").status())
                .isEqualTo(409);
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/connect", "").status())
                .isEqualTo(201);
    }

    /** Python's e2b 2.20 sends nothing but its token to a sandbox that it has connected to. */
    @Test
    void an_agents_call_that_names_no_sandbox_is_for_the_one_of_its_token() throws Exception {
        E2bFixture.Box other = e2b.create("");
        E2bFixture.Box box = e2b.create("");
        Map<String, String> token = Map.of("X-Access-Token", box.token);
        assertThat(upload(box, "/files?path=/home/user/f", "content").status()).isEqualTo(200);
        assertThat(e2b.send("GET", "/files?path=/home/user/f", token, NOTHING).text())
                .isEqualTo("content");
        assertThat(other.get("/files?path=/home/user/f").status()).isEqualTo(404);
        assertThat(e2b.send("POST", "/process.Process/List", token, utf8("{}")).status())
                .isEqualTo(200);
        assertThat(e2b.send("GET", "/health", token, NOTHING).status()).isEqualTo(204);
        Map<String, String> wrong = Map.of("X-Access-Token", "0".repeat(box.token.length()));
        assertThat(e2b.send("POST", "/process.Process/List", wrong, utf8("{}")).status())
                .isEqualTo(502);
        assertThat(e2b.api("DELETE", "/sandboxes/" + box.id, "").status()).isEqualTo(204);
        assertThat(e2b.send("GET", "/health", token, NOTHING).status()).isEqualTo(502);
    }

    /** JavaScript tells errors apart by the body's code, Python by the status; both leave a 409 of a pause to the caller. */
    @Test
    void a_pause_of_what_is_paused_is_a_409_in_both_ways() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", "{}").status())
                .isEqualTo(204);
        E2bFixture.Answer again = e2b.api("POST", "/sandboxes/" + box.id + "/pause", "{}");
        assertThat(again.status()).isEqualTo(409);
        assertThat(again.json().get("code").intValue()).isEqualTo(409);
    }

    /** Below these versions the SDKs leave a feature out, or kill what they have made. */
    @Test
    void the_agents_version_opens_every_feature_of_the_sdks() throws Exception {
        String[] version = e2b.create("").view.get("envdVersion").stringValue().split("\\.", -1);
        assertThat(version).hasSize(3);
        int number = Integer.parseInt(version[0]) * 10_000
                + Integer.parseInt(version[1]) * 100
                + Integer.parseInt(version[2]);
        assertThat(number).isGreaterThanOrEqualTo(604);
    }

    /** JavaScript repeats what was refused for now only where it is told when. */
    @Test
    void too_many_sandboxes_are_a_429_that_says_when_to_come_back() throws Exception {
        try (var full = new E2bFixture(Map.of("sandboxes.max", "1"))) {
            assertThat(full.create("").id).isNotEmpty();
            E2bFixture.Answer refused = full.api("POST", "/v2/sandboxes", "{\"templateID\":\"base\"}");
            assertThat(refused.status()).isEqualTo(429);
            assertThat(refused.json().get("code").intValue()).isEqualTo(429);
            assertThat(Integer.parseInt(refused.header("Retry-After"))).isPositive();
            // Python would make another one by itself.
            assertThat(refused.header("Should-Retry")).isEqualTo("false");
            Map<String, String> keyed = Map.of("X-API-KEY", CoreFixture.KEY, "Idempotency-Key", "k");
            assertThat(full.send("POST", "/v2/sandboxes", keyed, utf8("{\"templateID\":\"base\"}"))
                            .header("Should-Retry"))
                    .isEqualTo("true");
        }
    }

    @Test
    void an_idempotency_key_with_another_body_is_a_conflict() throws Exception {
        Map<String, String> keyed = Map.of("X-API-KEY", CoreFixture.KEY, "Idempotency-Key", "a-key");
        assertThat(e2b.send("POST", "/v2/sandboxes", keyed, utf8("{\"templateID\":\"base\"}"))
                        .status())
                .isEqualTo(201);
        byte[] other = utf8("{\"templateID\":\"base\",\"envVars\":{\"A\":\"b\"}}");
        E2bFixture.Answer answer = e2b.send("POST", "/v2/sandboxes", keyed, other);
        assertThat(answer.status()).isEqualTo(409);
        assertThat(answer.json().get("code").intValue()).isEqualTo(409);
    }

    @Test
    void a_silent_process_is_kept_alive_as_often_as_its_client_asks() throws Exception {
        E2bFixture.Box box = e2b.create("");
        Map<String, String> headers = box.envd();
        headers.put("Keepalive-Ping-Interval", "1");
        headers.put("Connect-Timeout-Ms", "60000");
        byte[] message = E2bFixture.framed(
                "{\"process\":{\"cmd\":\"bash\",\"args\":[\"-c\",\"print a\\nwait gate\\nprint b\"]},\"stdin\":false}");
        HttpResponse<InputStream> answer = e2b.open("/process.Process/Start", headers, message);
        try (InputStream in = answer.body()) {
            var said = new StringBuilder();
            byte[] piece = new byte[4096];
            // The process is silent until something was said in its place.
            for (int count = in.read(piece); count >= 0; count = in.read(piece)) {
                said.append(new String(piece, 0, count, StandardCharsets.ISO_8859_1));
                if (said.indexOf("keepalive") >= 0) {
                    e2b.core.node.open("gate");
                }
            }
            assertThat(said.toString()).matches("(?s).*\"start\".*\"data\".*\"keepalive\".*\"data\".*\"end\".*");
        }
    }

    /** A client that is gone is noticed by what can't be written to it. */
    @Test
    void silent_code_is_kept_alive() throws Exception {
        E2bFixture.Box box = e2b.create("");
        byte[] code = utf8("{\"code\":\"wait gate\\nprint done\"}");
        var answer = e2b.open("/execute", box.headers(49_999), code);
        var types = new ArrayList<String>();
        try (var lines = new BufferedReader(new InputStreamReader(answer.body(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String type =
                        Json.parse(utf8(line), utf8(line).length).get("type").stringValue();
                types.add(type);
                if (type.equals("keepalive")) {
                    // Only now does the code go on: without one this never ends.
                    e2b.core.node.open("gate");
                }
            }
        }
        assertThat(types).startsWith("number_of_executions", "keepalive").endsWith("stdout", "end_of_execution");
    }

    /** Without TLS each command that runs and each watch has a connection of its own, and Python opens as many as 200. */
    @Test
    void two_hundred_commands_run_at_once_each_on_a_connection_of_its_own() throws Exception {
        E2bFixture.Box box = e2b.create("");
        byte[] start =
                E2bFixture.framed("{\"process\":{\"cmd\":\"bash\",\"args\":[\"-c\",\"wait gate\"]},\"stdin\":false}");
        var streams = new ArrayList<InputStream>();
        try {
            for (int i = 0; i < 200; i++) {
                InputStream stream =
                        e2b.open("/process.Process/Start", box.envd(), start).body();
                streams.add(stream);
                byte[] head = stream.readNBytes(5);
                byte[] message = stream.readNBytes(ByteBuffer.wrap(head, 1, 4).getInt());
                assertThat(Json.parse(message, message.length)
                                .at("/event/start/pid")
                                .intValue())
                        .as("stream %d", i)
                        .isPositive();
            }
            assertThat(box.rpc("process.Process/List", "{}").json().get("processes"))
                    .hasSize(200);
            e2b.core.node.open("gate");
            for (InputStream stream : streams) {
                assertThat(new String(stream.readAllBytes(), StandardCharsets.UTF_8))
                        .contains("\"exited\":true")
                        .endsWith("{}");
            }
        } finally {
            for (InputStream stream : streams) {
                stream.close();
            }
        }
    }

    /** Clients that build templates upload to the address that they are given, without a key: before there is one, nothing may be sent. */
    @Test
    void uploads_go_to_an_address_that_nobody_guesses_and_needs_no_key() throws Exception {
        String hash = "0".repeat(64);
        JsonNode link = e2b.api("GET", "/templates/any/files/" + hash, "").json();
        assertThat(link.get("present").booleanValue()).isFalse();
        String url = link.get("url").stringValue();
        assertThat(url).startsWith("http://127.0.0.1:").contains(E2bApi.PREFIX + "/uploads/");
        String path = url.substring(url.indexOf(E2bApi.PREFIX) + E2bApi.PREFIX.length());
        for (String other :
                List.of(path + "A", path.substring(0, path.length() - 1), "/uploads/" + hash, path.replace(".", ""))) {
            assertThat(e2b.send("PUT", other, Map.of(), E2bFixture.utf8("x")).status())
                    .as(other)
                    .isEqualTo(401);
        }
        assertThat(e2b.api("GET", "/templates/any/files/" + hash, "")
                        .json()
                        .get("present")
                        .booleanValue())
                .isFalse();
        assertThat(e2b.send("PUT", path, Map.of(), E2bFixture.utf8("the files")).status())
                .isEqualTo(200);
        // Who sees that it is there sends it no more.
        assertThat(e2b.api("GET", "/templates/any/files/" + hash, "")
                        .json()
                        .get("present")
                        .booleanValue())
                .isTrue();
        e2b.core.clock.advance(Duration.ofHours(2));
        assertThat(e2b.send("PUT", path, Map.of(), E2bFixture.utf8("late")).status())
                .isEqualTo(401);
    }

    private JsonNode status(String build) {
        try {
            return e2b.api("GET", build + "/status", "").json();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void a_build_is_announced_filled_begun_and_asked_for() throws Exception {
        JsonNode announced = e2b.api(
                        "POST", "/v3/templates", "{\"name\":\"mine:v1\",\"tags\":[\"latest\"],\"cpuCount\":1}")
                .json();
        assertThat(announced.propertyNames()).contains("templateID", "buildID", "public", "names", "tags", "aliases");
        String build = announced.get("buildID").stringValue();
        assertThat(UUID.fromString(build)).isNotNull();
        String of = "/templates/" + announced.get("templateID").stringValue() + "/builds/" + build;
        assertThat(e2b.api("GET", of + "/status", "").json().get("status").stringValue())
                .isEqualTo("waiting");
        String steps =
                "{\"fromTemplate\":\"base\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"echo \\\"a\\nb\\\"\",\"root\"],\"force\":false},"
                        + "{\"type\":\"ENV\",\"args\":[\"A\",\"1\"]}]}";
        assertThat(e2b.api("POST", "/v2" + of, steps).status()).isEqualTo(202);
        Eventually.until(() -> status(of).get("status").stringValue().equals("ready"), () -> status(of));
        assertThat(status(of).propertyNames()).contains("templateID", "buildID", "logs", "logEntries");
        assertThat(e2b.api("GET", "/templates/aliases/mine%3Av1", "").status()).isEqualTo(200);
        assertThat(e2b.api("GET", "/templates/aliases/mine%3Av2", "").status()).isEqualTo(404);
        assertThat(e2b.api("GET", "/templates/mine/tags", "").json()).hasSize(2);
        assertThat(e2b.api("GET", "/templates/mine.v1/tags", "").json()).hasSize(2);
        for (String name : List.of("mine:v1", "mine:latest", "mine.v1", "team/mine:v1")) {
            assertThat(e2b.api("POST", "/v2/sandboxes", "{\"templateID\":\"" + name + "\"}")
                            .status())
                    .as(name)
                    .isEqualTo(201);
        }
        assertThat(e2b.api("POST", "/v2" + "/templates/mine.v1/builds/" + UUID.randomUUID(), steps)
                        .status())
                .isEqualTo(404);
        assertThat(e2b.api("DELETE", "/templates/mine", "").status()).isEqualTo(204);
        assertThat(e2b.api("GET", "/templates/aliases/mine%3Av1", "").status()).isEqualTo(404);
    }

    @Test
    void what_happened_to_sandboxes_is_told_in_both_orders_and_by_pages() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", "{}").status())
                .isEqualTo(204);
        assertThat(e2b.api("POST", "/v2/sandboxes/" + box.id + "/connect", "{}").status())
                .isEqualTo(201);
        E2bFixture.Box other = e2b.create("");
        assertThat(e2b.api("DELETE", "/sandboxes/" + box.id, "").status()).isEqualTo(204);
        String of = "/events/sandboxes/" + box.id;
        List<String> all = List.of("created", "paused", "resumed", "killed");
        assertThat(types(of + "?orderAsc=true")).isEqualTo(all);
        assertThat(types(of)).isEqualTo(all.reversed());
        assertThat(types(of + "?orderAsc=true&offset=1&limit=2")).containsExactly("paused", "resumed");
        assertThat(types(of + "?offset=4")).isEmpty();
        assertThat(types(of + "?types=sandbox.lifecycle.killed,sandbox.lifecycle.created"))
                .containsExactly("killed", "created");
        assertThat(types("/events/sandboxes?orderAsc=true"))
                .containsExactly("created", "paused", "resumed", "created", "killed");
        JsonNode first = e2b.api("GET", "/events/sandboxes?orderAsc=true&offset=3", "")
                .json()
                .get(0);
        assertThat(first.get("sandboxId").stringValue()).isEqualTo(other.id);
        assertThat(first.get("sandboxTemplateId").stringValue()).isEqualTo("base");
        assertThat(first.propertyNames())
                .containsExactlyInAnyOrder(
                        "version",
                        "id",
                        "type",
                        "eventData",
                        "sandboxId",
                        "sandboxTemplateId",
                        "sandboxBuildId",
                        "sandboxExecutionId",
                        "sandboxTeamId",
                        "timestamp");
        assertThat(Instant.parse(first.get("timestamp").stringValue())).isNotNull();
        assertThat(e2b.api("GET", "/events/sandboxes/" + "0".repeat(26), "").status())
                .isEqualTo(404);
        for (String wrong : new String[] {"types=sandbox.lifecycle.none", "limit=101", "offset=-1"}) {
            assertThat(e2b.api("GET", "/events/sandboxes?" + wrong, "").status())
                    .as(wrong)
                    .isEqualTo(400);
        }
    }

    private List<String> types(String path) throws Exception {
        E2bFixture.Answer answer = e2b.api("GET", path, "");
        assertThat(answer.status()).as(answer.text()).isEqualTo(200);
        return answer.json()
                .valueStream()
                .map(event -> event.get("type").stringValue().substring("sandbox.lifecycle.".length()))
                .toList();
    }

    /** JavaScript sends its bodies in chunks, and every plane has clients with other names. */
    @Test
    void bodies_come_in_chunks_and_from_clients_of_any_name() throws Exception {
        for (String agent : new String[] {"node", "python-httpx/0.28", "connectrpc/1.6", "e2b-js-sdk/2.51.0"}) {
            Map<String, String> headers = Map.of("X-API-KEY", CoreFixture.KEY, "User-Agent", agent);
            E2bFixture.Answer made =
                    e2b.chunked("POST", "/v2/sandboxes", headers, utf8("{\"templateID\":\"base\",\"timeout\":60}"));
            assertThat(made.status()).as(made.text()).isEqualTo(201);
            E2bFixture.Box box = e2b.new Box(made.json());
            Map<String, String> sandbox = box.headers(49_999);
            sandbox.put("User-Agent", agent);
            E2bFixture.Answer ran = e2b.chunked("POST", "/execute", sandbox, utf8("{\"code\":\"print 1\"}"));
            assertThat(ran.status()).as(ran.text()).isEqualTo(200);
            Map<String, String> envd = box.envd();
            envd.put("User-Agent", agent);
            assertThat(e2b.chunked("POST", "/process.Process/List", envd, utf8("{}"))
                            .status())
                    .isEqualTo(200);
        }
    }

    /** The SDKs' transports offer to unpack what their own readers of streams don't. */
    @Test
    void streams_are_never_packed() throws Exception {
        E2bFixture.Box box = e2b.create("");
        Map<String, String> envd = box.envd();
        envd.put("Accept-Encoding", "zstd,gzip,br");
        byte[] start = E2bFixture.framed("{\"process\":{\"cmd\":\"bash\",\"args\":[\"-c\",\"print 1\"]}}");
        E2bFixture.Answer streamed = e2b.send("POST", "/process.Process/Start", envd, start);
        assertThat(streamed.header("Content-Encoding")).isEmpty();
        assertThat(events(streamed)).containsExactly("start", "data", "end", "{}");
        Map<String, String> code = box.headers(49_999);
        code.put("Accept-Encoding", "zstd,gzip,br");
        E2bFixture.Answer lines = e2b.send("POST", "/execute", code, utf8("{\"code\":\"print 1\"}"));
        assertThat(lines.header("Content-Encoding")).isEmpty();
        assertThat(lines.lines()).hasSize(3);
    }

    /** Protobuf's JSON has 64-bit numbers as text, and fields that a later version added. */
    @Test
    void numbers_come_as_text_too_and_unknown_fields_are_left_out_of_account() throws Exception {
        E2bFixture.Box box = e2b.create(",\"timeout\":\"60\",\"later\":{\"version\":1}");
        Instant started = Instant.parse(e2b.api("GET", "/sandboxes/" + box.id, "")
                .json()
                .get("startedAt")
                .stringValue());
        assertThat(Instant.parse(e2b.api("GET", "/sandboxes/" + box.id, "")
                        .json()
                        .get("endAt")
                        .stringValue()))
                .isEqualTo(started.plusSeconds(60));
        assertThat(box.rpc("filesystem.Filesystem/ListDir", "{\"path\":\"/\",\"depth\":\"1\",\"later\":1}")
                        .status())
                .isEqualTo(200);
        E2bFixture.Answer missing = box.rpc(
                "process.Process/SendSignal", "{\"process\":{\"pid\":\"999999\"},\"signal\":\"SIGNAL_SIGKILL\"}");
        assertThat(missing.json().get("code").stringValue()).isEqualTo("not_found");
    }

    /** Without a token the SDKs refuse to sign addresses that expire. */
    @Test
    void every_sandbox_has_a_token_whatever_secure_says() throws Exception {
        for (String secure : new String[] {"", ",\"secure\":false", ",\"secure\":true"}) {
            assertThat(e2b.create(secure).token).matches("[0-9a-f]{32}");
        }
    }

    @Test
    void time_that_a_sandbox_is_paused_is_not_taken_from_its_timeout() throws Exception {
        E2bFixture.Box box = e2b.create(",\"timeout\":60");
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", "{}").status())
                .isEqualTo(204);
        e2b.core.clock.advance(Duration.ofHours(1));
        E2bFixture.Answer woken = e2b.api("POST", "/v2/sandboxes/" + box.id + "/connect", "{\"timeout\":30}");
        assertThat(woken.status()).as(woken.text()).isEqualTo(201);
        assertThat(e2b.api("GET", "/sandboxes/" + box.id, "")
                        .json()
                        .get("state")
                        .stringValue())
                .isEqualTo("running");
    }

    @Test
    void a_pause_without_memory_keeps_files_and_nothing_that_ran() throws Exception {
        for (String way : new String[] {"pause", "reboot"}) {
            E2bFixture.Box box = e2b.create("");
            assertThat(upload(box, "/files?path=/home/user/f", "content").status())
                    .isEqualTo(200);
            assertThat(box.code("{\"code\":\"set x 7\"}").status()).isEqualTo(200);
            String kept = way.equals("pause") ? "{\"memory\":false}" : "{}";
            assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", kept).status())
                    .isEqualTo(204);
            assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", kept).status())
                    .isEqualTo(409);
            String woken = way.equals("pause") ? "{}" : "{\"memory\":false}";
            assertThat(e2b.api("POST", "/v2/sandboxes/" + box.id + "/connect", woken)
                            .status())
                    .isEqualTo(201);
            assertThat(box.get("/files?path=/home/user/f").text()).isEqualTo("content");
            List<JsonNode> lines = box.code("{\"code\":\"get x\"}").lines();
            assertThat(lines.get(1).get("text").stringValue()).as(way).isEqualTo("undefined\n");
        }
    }

    /** JavaScript's own connect keeps the tokens of before the pause. */
    @Test
    void tokens_outlive_a_pause_in_which_a_sandbox_is_not_found_and_yet_listed() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThat(e2b.api("POST", "/sandboxes/" + box.id + "/pause", "{}").status())
                .isEqualTo(204);
        assertThat(box.get("/health").status()).isEqualTo(502);
        E2bFixture.Answer refused = box.run("print 1");
        assertThat(refused.status()).isEqualTo(502);
        assertThat(refused.json().get("message").stringValue()).contains("was not found");
        assertThat(e2b.api("GET", "/sandboxes/" + box.id, "")
                        .json()
                        .get("state")
                        .stringValue())
                .isEqualTo("paused");
        E2bFixture.Answer woken = e2b.api("POST", "/v2/sandboxes/" + box.id + "/connect", "{}");
        assertThat(woken.json().get("envdAccessToken").stringValue()).isEqualTo(box.token);
        assertThat(box.run("print 1").status()).isEqualTo(200);
    }

    /** Tags are removed by a DELETE that has a body. */
    @Test
    void a_delete_may_have_a_body() throws Exception {
        E2bFixture.Answer answer = e2b.api("DELETE", "/templates/tags", "{\"name\":\"n\",\"tags\":[\"t\"]}");
        assertThat(answer.status()).isEqualTo(204);
        // Without what it names it can't do anything.
        assertThat(e2b.api("DELETE", "/templates/tags", "{\"tags\":[\"t\"]}").status())
                .isEqualTo(400);
        // The connection is still in step.
        assertThat(e2b.api("GET", "/v2/sandboxes", "").status()).isEqualTo(200);
    }

    /** Signed addresses of uploads and downloads are made of the origin alone. */
    @Test
    void what_is_signed_is_at_the_root_too() throws Exception {
        E2bFixture.Box box = e2b.create("");
        assertThat(upload(box, "/files?path=/home/user/f", "content").status()).isEqualTo(200);
        String signed = signature("/home/user/f", "read", box.token, "");
        assertThat(e2b.root("/files?path=/home/user/f&signature=" + signed).text())
                .isEqualTo("content");
        assertThat(e2b.root("/files?path=/home/user/f").status()).isEqualTo(401);
    }
}

package atoll.api;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;

class SandboxesApiTest {
    private InsideServer server;

    @BeforeEach
    void start() throws Exception {
        server = new InsideServer();
    }

    @AfterEach
    void stop() {
        server.close();
    }

    private List<String> listed(String query) throws IOException, InterruptedException {
        return server.get(200, "/v1/sandboxes?" + query)
                .get("items")
                .valueStream()
                .map(item -> "/v1/sandboxes/" + item.get("sandbox_id").stringValue())
                .toList();
    }

    @Test
    void lists_take_several_states() throws Exception {
        String ended = server.sandbox();
        String running = server.sandbox();
        server.delete(200, ended);
        assertThat(listed("state=running")).containsExactly(running);
        assertThat(listed("state=creating,running,pausing,paused,resuming")).containsExactly(running);
        assertThat(listed("state=ended,running")).containsExactlyInAnyOrder(ended, running);
        assertThat(listed("")).containsExactlyInAnyOrder(ended, running);
        for (String wrong : List.of("nonsense", "running,", ",")) {
            JsonNode error = server.get(400, "/v1/sandboxes?state=" + wrong).get("error");
            assertThat(error.get("message").stringValue()).contains("expected: creating, running, pausing");
        }
    }
}

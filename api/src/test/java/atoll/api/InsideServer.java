package atoll.api;

import atoll.core.testing.CoreFixture;
import atoll.http.Json;
import java.io.IOException;
import java.net.http.HttpResponse;
import java.util.Map;
import tools.jackson.databind.JsonNode;

/** The API over the real core and a node in memory: for what is inside a sandbox. */
final class InsideServer implements AutoCloseable {
    final CoreFixture core = new CoreFixture(Map.of("pool.depth", "1", "node.patience_seconds", "20")).ready();
    final ApiServer api;

    InsideServer() throws IOException {
        api = new ApiServer(core.core(), CoreFixture.KEY);
    }

    /** The path of a new sandbox. */
    String sandbox() throws IOException, InterruptedException {
        return "/v1/sandboxes/"
                + post(201, "/v1/sandboxes", Map.of()).get("sandbox_id").stringValue();
    }

    JsonNode post(int status, String path, Map<String, ?> body) throws IOException, InterruptedException {
        return answer(status, api.post(path, Json.text(body)));
    }

    JsonNode get(int status, String path) throws IOException, InterruptedException {
        return answer(status, api.get(path));
    }

    JsonNode delete(int status, String path) throws IOException, InterruptedException {
        return answer(status, api.send(api.request(path).DELETE()));
    }

    static JsonNode answer(int status, HttpResponse<String> response) {
        if (response.statusCode() != status) {
            throw new AssertionError(response.statusCode() + " (expected: " + status + ") " + response.body());
        }
        return response.body().isEmpty() ? Json.mapper().nullNode() : ApiServer.json(response);
    }

    @Override
    public void close() {
        api.close();
        core.close();
    }
}

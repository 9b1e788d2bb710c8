package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

class EventStreamTest {
    private static final byte[] NAME = EventStream.ascii("output");

    @Test
    void every_text_is_what_a_json_reader_makes_of_its_event() throws Exception {
        var random = new Random(7);
        var texts = new StringBuilder[40];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = randomText(random, 1 << (i % 18));
        }
        List<String> lines = eventsOf(events -> {
            for (StringBuilder text : texts) {
                byte[] utf8 = ("x" + text + "y").getBytes(StandardCharsets.UTF_8);
                events.begin(NAME);
                events.raw(EventStream.ascii("\""));
                events.text(utf8, 1, utf8.length - 1);
                events.raw(EventStream.ascii("\""));
                events.end();
            }
        });
        List<String> read = lines.stream()
                .filter(line -> line.startsWith("data: "))
                .map(line -> Json.mapper().readTree(line.substring(6)).stringValue())
                .toList();
        assertThat(read).hasSize(texts.length);
        for (int i = 0; i < texts.length; i++) {
            assertThat(read.get(i)).isEqualTo(texts[i].toString());
        }
    }

    @Test
    void an_event_has_its_name_and_one_line_of_data() throws Exception {
        List<String> lines = eventsOf(events -> {
            events.event(NAME, Map.of("text", "a\nb"));
            events.keepAlive();
        });
        assertThat(lines).containsExactly("event: output", "data: {\"text\":\"a\\nb\"}", "", ": keep-alive", "");
    }

    private static StringBuilder randomText(Random random, int length) {
        var text = new StringBuilder();
        for (int i = 0; i < length; i++) {
            switch (random.nextInt(10)) {
                case 0 -> text.append((char) random.nextInt(0x20));
                case 1 -> text.append(random.nextBoolean() ? '"' : '\\');
                case 2 -> text.appendCodePoint(0x1f600 + random.nextInt(50));
                case 3 -> text.append((char) (0x80 + random.nextInt(0x1000)));
                default -> text.append((char) (' ' + random.nextInt(0x5f)));
            }
        }
        return text;
    }

    private interface Writer {
        void write(EventStream events) throws IOException, InterruptedException;
    }

    private static List<String> eventsOf(Writer writer) throws Exception {
        RouteTable routes = RouteTable.builder()
                .get("/events", exchange -> {
                    EventStream events = exchange.events();
                    writer.write(events);
                    events.finish();
                })
                .build();
        try (var server = TestServer.start(routes);
                var client = HttpClient.newHttpClient()) {
            HttpRequest request =
                    HttpRequest.newBuilder(URI.create(server.url() + "/events")).build();
            var response = client.send(request, BodyHandlers.ofString());
            assertThat(response.headers().firstValue("content-type")).contains("text/event-stream");
            return List.of(response.body().split("\n", -1))
                    .subList(0, response.body().split("\n", -1).length - 1);
        }
    }
}

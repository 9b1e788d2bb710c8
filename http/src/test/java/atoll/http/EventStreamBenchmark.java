package atoll.http;

import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** What escaping straight from the bytes brings over decoding and a JSON generator. Run by hand: prints MB/s of both over loopback. */
final class EventStreamBenchmark {
    private static final int PIECES = 4000;
    private static final byte[] NAME = EventStream.ascii("output");
    private static final byte[] PIECE = "a line of a log, as programs print them, with \"quotes\" and so on\n"
            .repeat(1000)
            .getBytes(StandardCharsets.US_ASCII);

    private EventStreamBenchmark() {}

    public static void main(String[] arguments) throws Exception {
        RouteTable routes = RouteTable.builder()
                .get("/bytes", exchange -> {
                    EventStream events = exchange.events();
                    for (int i = 0; i < PIECES; i++) {
                        events.begin(NAME);
                        events.raw(EventStream.ascii("{\"text\":\""));
                        events.text(PIECE, 0, PIECE.length);
                        events.raw(EventStream.ascii("\"}"));
                        events.end();
                    }
                    events.finish();
                })
                .get("/generator", exchange -> {
                    EventStream events = exchange.events();
                    for (int i = 0; i < PIECES; i++) {
                        events.event(NAME, Map.of("text", new String(PIECE, StandardCharsets.UTF_8)));
                    }
                    events.finish();
                })
                .build();
        try (var server = TestServer.start(routes);
                var client = HttpClient.newHttpClient()) {
            for (int round = 0; round < 4; round++) {
                measure(client, server.url() + "/bytes");
                measure(client, server.url() + "/generator");
            }
        }
    }

    private static void measure(HttpClient client, String url) throws Exception {
        long begin = System.nanoTime();
        HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                .version(HttpClient.Version.HTTP_1_1)
                .build();
        long bytes = 0;
        byte[] buffer = new byte[256 << 10];
        try (InputStream body =
                client.send(request, BodyHandlers.ofInputStream()).body()) {
            int read = body.read(buffer);
            while (read >= 0) {
                bytes += read;
                read = body.read(buffer);
            }
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        System.out.printf("%s %.0f MB/s%n", url.substring(url.lastIndexOf('/') + 1), bytes / seconds / 1e6);
    }
}

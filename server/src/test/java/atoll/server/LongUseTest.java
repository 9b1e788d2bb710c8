package atoll.server;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.api.NativeApi;
import atoll.api.PrometheusMetrics;
import atoll.core.SandboxId;
import atoll.core.execution.CodeExecRequest;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Seeds;
import atoll.http.HttpServer;
import atoll.http.HttpServerConfig;
import atoll.http.RouteTable;
import atoll.store.SqlStore;
import atoll.ui.Dashboard;
import atoll.ui.UiSettings;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Every page and list with {@value #SANDBOXES} sandboxes and {@value #EXECUTIONS} executions on record, over the real store and a node in memory: what it costs is printed, and held to
 * ten times what it may cost, since machines that test are busy.
 */
class LongUseTest {
    private static final int SANDBOXES = 500;
    private static final int LIVE = 100;
    private static final int EXECUTIONS = 100_000;
    private static final Duration MOST = Duration.ofMillis(1500);
    private static final double MOST_CPU = 0.2;
    private static final Duration WATCHED = Duration.ofSeconds(1);
    private static final int MOST_PAGES = 100;
    private static final CreateSandbox PLAIN = new CreateSandbox(
            Optional.of("python"),
            Optional.empty(),
            Map.of(),
            Map.of("team", "team-3"),
            LimitChanges.NONE,
            Optional.empty());
    private static final Pattern NEXT = Pattern.compile("\"next\":\"([^\"]+)\"");

    @TempDir
    private static Path data;

    private static CoreFixture core;
    private static HttpServer server;
    private static Dashboard dashboard;
    private static HttpClient client;
    private static String cookie;
    private static String lived;
    private static String paused;

    @BeforeAll
    static void start() throws Exception {
        core = new CoreFixture(
                        Map.of("sandboxes.max", "1000", "pool.depth", "1"), SqlStore.sqlite(data.resolve("atoll.db")))
                .ready();
        var seeds = new Seeds(core.store, core.clock.instant());
        List<SandboxId> ids = new ArrayList<>();
        seeds.ended(SANDBOXES - LIVE).stream().map(Sandbox::id).forEach(ids::add);
        for (int i = 0; i < LIVE; i++) {
            Sandbox made = core.core().sandboxes().create(core.caller(), PLAIN);
            ids.add(made.id());
        }
        seeds.executions(EXECUTIONS, ids);
        lived = ids.getFirst().toString();
        paused = ids.getLast().toString();
        HttpServerConfig config = HttpServerConfig.defaults().listeningOn("127.0.0.1", 0);
        var channel = HttpServer.bind(config);
        int port = channel.socket().getLocalPort();
        RouteTable.Builder routes = RouteTable.builder();
        var metrics = new PrometheusMetrics();
        NativeApi.addTo(routes, core.core(), metrics, "test", List.of());
        dashboard = new Dashboard(
                routes,
                core.core(),
                UiSettings.of("test", "127.0.0.1", port, Set.of(), Optional.empty(), metrics::coldStartP50),
                NativeApi.errors());
        NativeApi.addTo(routes.under("/ui"), core.core(), dashboard.guard());
        server = new HttpServer(config, routes.build(), NativeApi.errors(), metrics, Optional.empty());
        server.start(channel);
        client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String origin = "http://127.0.0.1:" + port;
        String set = client.send(
                        request("/ui/login")
                                .header("Content-Type", "application/x-www-form-urlencoded")
                                .header("Origin", origin)
                                .header("Sec-Fetch-Site", "same-origin")
                                .POST(BodyPublishers.ofString("key=" + CoreFixture.KEY))
                                .build(),
                        BodyHandlers.ofString())
                .headers()
                .firstValue("Set-Cookie")
                .orElseThrow();
        cookie = set.substring(0, set.indexOf(';'));
    }

    @AfterAll
    static void stop() {
        client.shutdownNow();
        dashboard.close();
        server.close();
        core.close();
    }

    private static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.port() + path))
                .timeout(Duration.ofMinutes(2));
    }

    private static HttpRequest.Builder known(String path) {
        return path.startsWith("/ui/")
                ? request(path).header("Cookie", cookie)
                : request(path).header("X-API-Key", CoreFixture.KEY);
    }

    private static String get(String path) throws IOException, InterruptedException {
        HttpResponse<String> response = client.send(known(path).build(), BodyHandlers.ofString());
        assertThat(response.statusCode()).as(path).isEqualTo(200);
        return response.body();
    }

    /** The median of a few, after one that warms up. */
    private static Duration took(String path) throws IOException, InterruptedException {
        assertThat(get(path)).isNotEmpty();
        long[] nanos = new long[5];
        for (int i = 0; i < nanos.length; i++) {
            long begun = System.nanoTime();
            assertThat(get(path)).isNotEmpty();
            nanos[i] = System.nanoTime() - begun;
        }
        Arrays.sort(nanos);
        return Duration.ofNanos(nanos[nanos.length / 2]);
    }

    private static void show(String what, Object figure) {
        System.out.println("MEASURED " + what + ": " + figure);
    }

    @Test
    void every_page_and_list_answers_soon() throws Exception {
        String words = URLEncoder.encode(Seeds.OLDEST, StandardCharsets.UTF_8);
        for (String path : List.of(
                "/ui/",
                "/ui/sandboxes",
                "/ui/sandboxes?q=team-3",
                "/ui/sandboxes?q=nowhere",
                "/ui/sandboxes?state=alive",
                "/ui/sandboxes/" + lived,
                "/ui/sandboxes/" + paused,
                "/ui/executions",
                "/ui/executions?q=" + words,
                "/ui/executions?q=sort_values",
                "/ui/executions?state=running",
                "/ui/executions?state=timeout",
                "/ui/executions?sandbox=" + lived,
                "/ui/executions?template=none",
                "/ui/playground",
                "/ui/connect",
                "/ui/pools",
                "/ui/node",
                "/ui/keys",
                "/v1/sandboxes?limit=1000",
                "/v1/sandboxes?q=nowhere",
                "/v1/sandboxes?label.team=team-3",
                "/v1/executions",
                "/v1/executions?limit=1000",
                "/v1/executions?q=nowhere",
                "/v1/executions?state=running",
                "/v1/executions?language=go",
                "/v1/executions?sandbox_id=" + lived,
                "/v1/executions?until=1971-01-01T00:00:00Z",
                "/v1/executions:notebook?sandbox_id=" + lived,
                "/v1/sandboxes/" + lived + "/events",
                "/v1/sandboxes/" + lived + "/runs",
                "/v1/events",
                "/v1/snapshots",
                "/v1/templates",
                "/v1/images",
                "/v1/stats",
                "/v1/node",
                "/v1/pools",
                "/metrics")) {
            Duration median = took(path);
            show(path, "%.1f ms".formatted(median.toNanos() / 1e6));
            assertThat(median).as(path).isLessThan(MOST);
        }
    }

    @Test
    void a_page_far_back_costs_what_the_first_one_does_and_a_search_ends_at_the_oldest() throws Exception {
        Duration first = took("/v1/executions?limit=100");
        String deep = "";
        for (int page = 0; page < EXECUTIONS * 9 / 10 / 1000; page++) {
            deep = next(get("/v1/executions?limit=1000" + deep)).orElseThrow();
        }
        Duration back = took("/v1/executions?limit=100" + deep);
        show(
                "a page of 100 executions: the first, and after 90,000",
                first.toMillis() + " ms, " + back.toMillis() + " ms");
        assertThat(back).isLessThan(first.multipliedBy(10).plusMillis(50));

        String words = URLEncoder.encode(Seeds.OLDEST.toUpperCase(java.util.Locale.ROOT), StandardCharsets.UTF_8);
        long begun = System.nanoTime();
        Optional<String> cursor = Optional.of("");
        int pages = 0;
        String last = "";
        while (cursor.isPresent() && pages < MOST_PAGES) {
            last = get("/v1/executions?q=" + words + cursor.get());
            cursor = next(last);
            pages++;
        }
        show(
                "a search through all executions",
                pages + " calls, " + Duration.ofNanos(System.nanoTime() - begun).toMillis() + " ms");
        assertThat(cursor).isEmpty();
        assertThat(last).contains(Seeds.OLDEST);
    }

    private static Optional<String> next(String body) {
        var matcher = NEXT.matcher(body);
        Optional<String> last = Optional.empty();
        while (matcher.find()) {
            last = Optional.of("&cursor=" + matcher.group(1));
        }
        return last;
    }

    /** The share of one CPU that this process takes, all of it: tests' threads too. */
    private static double cpu(Duration during) {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long begun = System.nanoTime();
        long before = system.getProcessCpuTime();
        long end = begun + during.toNanos();
        while (System.nanoTime() < end) {
            LockSupport.parkNanos(end - System.nanoTime());
        }
        return (system.getProcessCpuTime() - before) / (double) (System.nanoTime() - begun);
    }

    @Test
    void a_live_page_costs_next_to_nothing_while_nothing_happens_and_little_while_much_does() throws Exception {
        for (String path : List.of("/ui/live/sandboxes", "/ui/live/executions")) {
            double none = cpu(WATCHED);
            double one = watched(path, 1, false);
            double five = watched(path, 5, false);
            double busyAlone = watched(path, 0, true);
            double busyOne = watched(path, 1, true);
            double busyFive = watched(path, 5, true);
            show(
                    path,
                    "CPU with 0, 1, 5 followers: idle %.1f %%, %.1f %%, %.1f %%; with 10 executions a second %.1f %%, %.1f %%, %.1f %%"
                            .formatted(
                                    100 * none, 100 * one, 100 * five, 100 * busyAlone, 100 * busyOne, 100 * busyFive));
            assertThat(one - none).isLessThan(MOST_CPU);
            assertThat(five - none).isLessThan(5 * MOST_CPU);
            assertThat(busyFive - busyAlone).isLessThan(5 * MOST_CPU);
        }
    }

    private static double watched(String path, int followers, boolean busy) throws Exception {
        var open = new ArrayList<InputStream>();
        var running = new AtomicBoolean(busy);
        Thread runner = Thread.ofVirtual().start(() -> {
            while (running.get()) {
                try {
                    var ran = core.run(CodeExecRequest.of("print x").in(SandboxId.parse(paused)));
                    assertThat(ran.executionId()).isNotNull();
                    Thread.sleep(100);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        try {
            for (int i = 0; i < followers; i++) {
                InputStream stream = client.send(known(path).build(), BodyHandlers.ofInputStream())
                        .body();
                assertThat(stream.read()).isPositive();
                open.add(stream);
                Thread.ofVirtual().start(() -> drain(stream));
            }
            return cpu(WATCHED);
        } finally {
            running.set(false);
            for (InputStream stream : open) {
                stream.close();
            }
            runner.join();
        }
    }

    private static void drain(InputStream stream) {
        try {
            assertThat(stream.transferTo(OutputStream.nullOutputStream())).isNotNegative();
        } catch (IOException _) {
            // It was closed.
        }
    }
}

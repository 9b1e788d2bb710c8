package atoll.api;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.usage.Usage;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.Optional;

/** {@code /v1/sandboxes/{sandbox_id}/metrics}: what a sandbox used and uses. */
final class MetricsApi {
    private final Usage usage;

    MetricsApi(Usage usage) {
        this.usage = usage;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        SandboxId sandbox = SandboxId.parse(exchange.path("sandbox_id"));
        var query = new UsageQuery(time(exchange, "from"), time(exchange, "to"), Paging.of(exchange));
        Page<UsageSample> page = usage.samples(caller, sandbox, query);
        exchange.json(
                200,
                new ProcessViews.UsagePage(
                        page.items().stream().map(ProcessViews.Usage::of).toList(),
                        page.next(),
                        usage.current(caller, sandbox).map(ProcessViews.Usage::of)));
    }

    private static Optional<Instant> time(Exchange exchange, String name) {
        String text = exchange.query(name);
        if (text == null) {
            return Optional.empty();
        }
        try {
            return Optional.of(OffsetDateTime.parse(text).toInstant());
        } catch (DateTimeParseException _) {
            throw AtollException.invalid(
                    "%s: \"%s\" (expected: a time like 2026-01-02T03:04:05Z)"
                            .formatted(name, text.length() > 64 ? text.substring(0, 64) + "…" : text),
                    "Correct the query parameter; a plus sign in it must be sent as %2B.");
        }
    }
}

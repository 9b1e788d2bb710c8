package atoll.store;

import atoll.core.AtollException;
import atoll.core.Page;
import atoll.core.SandboxId;
import atoll.core.usage.UsageQuery;
import atoll.core.usage.UsageSample;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import org.jspecify.annotations.Nullable;

/** Samples of what sandboxes use as rows. */
final class UsageRows {
    private static final String INSERT = "insert into usage_samples (sandbox_id, at, cpu_percent_hundredths, cpu_us,"
            + " throttled_us, memory_bytes, memory_limit_bytes, memory_peak_bytes, disk_bytes, disk_limit_bytes,"
            + " processes) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing";

    private UsageRows() {}

    static int insert(Sql sql, List<UsageSample> samples) throws SQLException {
        for (UsageSample s : samples) {
            sql.addToBatch(
                    INSERT,
                    s.sandboxId(),
                    s.at(),
                    s.cpuPercent().isPresent()
                            ? Optional.of(Math.round(s.cpuPercent().getAsDouble() * 100))
                            : Optional.empty(),
                    s.cpu().toNanos() / 1000,
                    s.throttled().toNanos() / 1000,
                    s.memoryBytes(),
                    s.memoryLimitBytes(),
                    s.memoryPeakBytes(),
                    s.diskBytes(),
                    s.diskLimitBytes(),
                    s.processes());
        }
        sql.runBatch(INSERT);
        return samples.size();
    }

    static Page<UsageSample> page(Sql sql, SandboxId sandbox, UsageQuery query) throws SQLException {
        StringBuilder select = new StringBuilder("select * from usage_samples where sandbox_id = ?");
        List<@Nullable Object> values = new ArrayList<>();
        values.add(sandbox);
        query.from().ifPresent(from -> {
            select.append(" and at >= ?");
            values.add(from);
        });
        query.to().ifPresent(to -> {
            select.append(" and at <= ?");
            values.add(to);
        });
        query.page().cursor().ifPresent(cursor -> {
            select.append(" and at > ?");
            values.add(after(cursor));
        });
        values.add(query.page().limit() + 1);
        List<UsageSample> found =
                sql.query(UsageRows::map, select.append(" order by at limit ?").toString(), values.toArray());
        if (found.size() <= query.page().limit()) {
            return new Page<>(found, Optional.empty());
        }
        List<UsageSample> items = found.subList(0, query.page().limit());
        return new Page<>(
                items, Optional.of(Long.toString(Row.micros(items.getLast().at()), 36)));
    }

    private static Instant after(String cursor) {
        try {
            return Instant.EPOCH.plus(Long.parseLong(cursor, 36), ChronoUnit.MICROS);
        } catch (NumberFormatException e) {
            throw AtollException.invalid(
                    "cursor: \"" + (cursor.length() > 100 ? cursor.substring(0, 100) + "…" : cursor)
                            + "\" (expected: `next` of the page before)",
                    "Leave it out to begin with the oldest.");
        }
    }

    private static UsageSample map(Row row) throws SQLException {
        Optional<Long> percent = row.optionalNumber("cpu_percent_hundredths");
        return new UsageSample(
                SandboxId.parse(row.text("sandbox_id")),
                row.time("at"),
                percent.isPresent() ? OptionalDouble.of(percent.get() / 100.0) : OptionalDouble.empty(),
                Duration.of(row.number("cpu_us"), ChronoUnit.MICROS),
                Duration.of(row.number("throttled_us"), ChronoUnit.MICROS),
                row.number("memory_bytes"),
                row.number("memory_limit_bytes"),
                row.number("memory_peak_bytes"),
                row.number("disk_bytes"),
                row.number("disk_limit_bytes"),
                (int) row.number("processes"));
    }
}

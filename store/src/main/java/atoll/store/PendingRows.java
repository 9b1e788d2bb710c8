package atoll.store;

import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/** Rows that wait to be written, the newest of each id: reads look here first, and one that a newer one replaced is never written. */
final class PendingRows<I, R> {
    interface Save<R> {
        int save(Sql sql, R record) throws java.sql.SQLException;
    }

    private record Pending<R>(Optional<R> record, long serial) {}

    private final Writer writer;
    private final Save<R> save;
    private final Map<I, Pending<R>> newest = new ConcurrentHashMap<>();
    private final AtomicLong serials = new AtomicLong();

    PendingRows(Writer writer, Save<R> save) {
        this.writer = writer;
        this.save = save;
    }

    void saveLater(I id, R record, Runnable whenDurable) {
        add(id, Optional.of(record), sql -> save.save(sql, record) > 0, whenDurable);
    }

    void removeLater(I id, Writer.Work<Integer> remove) {
        add(id, Optional.empty(), sql -> remove.run(sql) >= 0, () -> {});
    }

    private void add(I id, Optional<R> record, Writer.Work<Boolean> work, Runnable whenDurable) {
        long serial = serials.incrementAndGet();
        Pending<R> now = newest.merge(
                id, new Pending<>(record, serial), (there, mine) -> there.serial() > mine.serial() ? there : mine);
        assert now.serial() >= serial;
        writer.writeLater(sql -> isOlder(id, serial) || work.run(sql), () -> {
            newest.computeIfPresent(id, (_, there) -> there.serial() == serial ? null : there);
            whenDurable.run();
        });
    }

    private boolean isOlder(I id, long serial) {
        Pending<R> there = newest.get(id);
        return there != null && there.serial() > serial;
    }

    /** What waits for it, or {@code stored} if nothing does; empty for one that waits to be removed. */
    Optional<R> find(I id, Supplier<Optional<R>> stored) {
        Pending<R> there = newest.get(id);
        return there == null ? stored.get() : there.record();
    }
}

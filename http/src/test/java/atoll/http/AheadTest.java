package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class AheadTest {
    private static final Duration LONG = Duration.ofSeconds(60);

    @Test
    void items_come_in_order_and_reading_past_the_last_is_a_mistake() throws Exception {
        Iterator<String> items = List.of("a", "b", "c").iterator();
        try (var ahead =
                new Ahead<>("test", () -> items.hasNext() ? Optional.of(items.next()) : Optional.empty(), () -> {})) {
            assertThat(ahead.poll(LONG)).isEqualTo("a");
            assertThat(ahead.poll(LONG)).isEqualTo("b");
            assertThat(ahead.poll(LONG)).isEqualTo("c");
            assertThatThrownBy(() -> ahead.poll(LONG)).isInstanceOf(IllegalStateException.class);
        }
    }

    @Test
    void a_failure_of_the_source_comes_after_what_it_gave() throws Exception {
        var given = new AtomicInteger();
        try (var ahead = new Ahead<>(
                "test",
                () -> {
                    if (given.getAndIncrement() > 0) {
                        throw new IllegalArgumentException("broken");
                    }
                    return Optional.of("first");
                },
                () -> {})) {
            assertThat(ahead.poll(LONG)).isEqualTo("first");
            assertThatThrownBy(() -> ahead.poll(LONG)).hasMessage("broken");
        }
    }

    @Test
    void nothing_in_the_time_is_null_and_closing_ends_the_source() throws Exception {
        var closed = new CountDownLatch(1);
        try (var ahead = new Ahead<String>(
                "test",
                () -> {
                    closed.await();
                    return Optional.empty();
                },
                closed::countDown)) {
            assertThat(ahead.poll()).isNull();
            assertThat(ahead.poll(Duration.ofMillis(1))).isNull();
        }
        assertThat(closed.getCount()).isZero();
    }

    @Test
    void a_reader_that_does_not_read_holds_its_source_back() throws Exception {
        var given = new AtomicInteger();
        var asked = new Semaphore(0);
        try (var ahead = new Ahead<>(
                "test",
                () -> {
                    asked.release();
                    return Optional.of(given.getAndIncrement());
                },
                () -> {})) {
            // Sixteen are held, one waits for room: the source is asked no further until one is taken.
            assertThat(asked.tryAcquire(17, LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
            assertThat(asked.tryAcquire(100, TimeUnit.MILLISECONDS)).isFalse();
            assertThat(ahead.poll(LONG)).isZero();
            assertThat(asked.tryAcquire(LONG.toSeconds(), TimeUnit.SECONDS)).isTrue();
        }
    }
}

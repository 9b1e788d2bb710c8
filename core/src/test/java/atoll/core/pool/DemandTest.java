package atoll.core.pool;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class DemandTest {
    private static final long SECOND = 1_000_000_000L;
    /** {@code System.nanoTime} may be anything, and does not begin at zero. */
    private static final long ORIGIN = Long.MAX_VALUE - 20 * SECOND;

    private final Demand demand = new Demand(ORIGIN);

    private void note(int count, long second) {
        for (int i = 0; i < count; i++) {
            demand.note(ORIGIN + second * SECOND + i);
        }
    }

    private int peak(long second) {
        return demand.peak(ORIGIN + second * SECOND);
    }

    @Test
    void without_demand_there_is_no_peak() {
        assertThat(peak(0)).isZero();
        assertThat(peak(1_000)).isZero();
    }

    @Test
    void the_largest_burst_counts_and_not_the_sum() {
        note(3, 1);
        note(7, 10);
        note(2, 30);
        assertThat(peak(31)).isEqualTo(7);
    }

    @Test
    void a_burst_over_the_end_of_a_second_is_one_burst() {
        note(4, 5);
        note(4, 6);
        assertThat(peak(7)).isEqualTo(8);
    }

    @Test
    void a_burst_is_forgotten_after_five_minutes() {
        note(9, 100);
        assertThat(peak(100 + Demand.SECONDS - 1)).isEqualTo(9);
        assertThat(peak(100 + Demand.SECONDS)).isZero();
        note(1, 100 + 10 * Demand.SECONDS);
        assertThat(peak(100 + 10 * Demand.SECONDS)).isEqualTo(1);
    }

    @Test
    void a_clock_that_seems_to_go_back_changes_nothing() {
        note(2, 50);
        note(2, 49);
        assertThat(peak(48)).isEqualTo(4);
    }
}

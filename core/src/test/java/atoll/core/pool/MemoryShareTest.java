package atoll.core.pool;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class MemoryShareTest {
    private final MemoryShare share = new MemoryShare(25);

    @Test
    void all_parts_together_are_bounded() {
        share.nodeHas(4_000);
        MemoryShare.Part first = share.part(0);
        MemoryShare.Part second = share.part(0);
        first.holds(600);
        assertThat(second.allows(400)).isTrue();
        assertThat(second.allows(401)).isFalse();
    }

    @Test
    void who_grows_leaves_the_others_their_least() {
        share.nodeHas(4_000);
        MemoryShare.Part first = share.part(300);
        MemoryShare.Part second = share.part(300);
        first.holds(600);
        assertThat(first.allows(100)).isTrue();
        assertThat(first.allows(101)).isFalse();
        first.holds(700);
        assertThat(second.allows(300)).isTrue();
    }

    @Test
    void where_not_even_the_least_of_all_fits_the_first_gets_it() {
        share.nodeHas(2_000);
        MemoryShare.Part first = share.part(400);
        MemoryShare.Part second = share.part(400);
        assertThat(first.allows(400)).isTrue();
        first.holds(400);
        assertThat(second.allows(100)).isTrue();
        assertThat(second.allows(101)).isFalse();
    }

    @Test
    void an_unknown_node_bounds_nothing() {
        assertThat(share.part(0).allows(Long.MAX_VALUE / 2)).isTrue();
    }
}

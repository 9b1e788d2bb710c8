package atoll.store;

import static org.assertj.core.api.Assertions.assertThat;

import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.CharRange;

class StoreTextTest {
    @Property(tries = 500)
    void any_text_without_surrogates_comes_back_and_holds_no_nul(
            @ForAll @CharRange(from = '\0', to = '\3') @CharRange(from = '\uE000', to = '\uE004') String text) {
        assertThat(StoreText.encode(text)).doesNotContain("\0");
        assertThat(StoreText.decode(StoreText.encode(text))).isEqualTo(text);
    }
}

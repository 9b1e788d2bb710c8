package atoll.core.text;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.AtollException;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.StringLength;
import org.junit.jupiter.api.Test;

class SearchTextTest {
    @Test
    void it_is_found_in_any_case_and_at_either_end() {
        assertThat(new SearchText("AbC").isIn("abc")).isTrue();
        assertThat(new SearchText("c").isIn("abC")).isTrue();
        assertThat(new SearchText("äß😀").isIn("x ÄSS Äß😀")).isTrue();
        assertThat(new SearchText("aab").isIn("aaab")).isTrue();
        assertThat(new SearchText("abcd").isIn("abc")).isFalse();
        assertThat(new SearchText("a").isIn("")).isFalse();
        // A dotless i is an i in capitals, a Kelvin sign a k.
        assertThat(new SearchText("ı").isIn("I")).isTrue();
        assertThat(new SearchText("\u212a").isIn("k")).isTrue();
    }

    @Test
    void nothing_and_very_much_are_refused() {
        assertThatThrownBy(() -> new SearchText("")).isInstanceOf(AtollException.class);
        assertThatThrownBy(() -> new SearchText("x".repeat(SearchText.MOST_CHARS + 1)))
                .isInstanceOf(AtollException.class)
                .hasMessageContaining("201 characters");
    }

    @Property
    void any_part_of_a_text_is_found_whatever_its_case(
            @ForAll String before, @ForAll @StringLength(min = 1, max = 40) String part, @ForAll String after) {
        assertThat(new SearchText(part).isIn(before + part + after)).isTrue();
    }
}

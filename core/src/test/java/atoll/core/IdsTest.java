package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import java.util.UUID;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class IdsTest {
    @Property
    void an_id_comes_back_from_its_text(@ForAll long high, @ForAll long low) {
        UUID uuid = new UUID((high & ~0xF000L) | 0x4000L, (low & 0x3FFFFFFFFFFFFFFFL) | 0x8000000000000000L);
        SandboxId id = new SandboxId(uuid);
        assertThat(id.toString()).matches("sb-exec-[0-7][0-9a-hjkmnp-tv-z]{25}");
        assertThat(SandboxId.parse(id.toString())).isEqualTo(id);
    }

    @Property
    void any_other_text_is_refused_with_what_was_wanted(@ForAll String text) {
        assertThatThrownBy(() -> SandboxId.parse(text))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.message()).contains("sb-exec-"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "exec-00000000000000000000000000",
                "sb-exec-0000000000000000000000000",
                "sb-exec-000000000000000000000000000",
                "sb-exec-00000000000000000000000000",
                "sb-exec-8zzzzzzzzzzzzzzzzzzzzzzzzz",
                "sb-exec-0000000000000000000000000i",
                "SB-EXEC-00000000000000000000000000"
            })
    void nearly_an_id_is_none(String text) {
        assertThatThrownBy(() -> SandboxId.parse(text)).isInstanceOf(AtollException.class);
    }

    @Test
    void each_kind_has_its_prefix() {
        assertThat(List.of(
                        SandboxId.random().toString(),
                        ExecutionId.random().toString(),
                        ContextId.random().toString(),
                        BoxId.random().toString(),
                        KeyId.random().toString()))
                .extracting(text -> text.substring(0, text.length() - 26))
                .containsExactly("sb-exec-", "exec-", "ctx-", "box-", "key-");
    }

    @Test
    void aliases_name_languages() {
        assertThat(List.of("py", "Python3", " python "))
                .extracting(Language::parse)
                .containsOnly(Language.PYTHON);
        assertThat(List.of("js", "javascript", "ts", "TypeScript"))
                .extracting(Language::parse)
                .containsOnly(Language.TYPESCRIPT);
        assertThat(List.of("sh", "shell", "bash")).extracting(Language::parse).containsOnly(Language.BASH);
    }
}

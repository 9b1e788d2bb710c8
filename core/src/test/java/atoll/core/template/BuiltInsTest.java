package atoll.core.template;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.Language;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class BuiltInsTest {
    @Test
    void no_image_of_a_registry_gets_the_node_of_debian_which_is_too_old() {
        assertThat(BuiltIns.byId().values())
                .allSatisfy(builtIn ->
                        assertThat(builtIn.registry().packages().apt()).doesNotContain("nodejs", "npm"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"data-science", "base"})
    void templates_of_python_and_typescript_are_made_of_an_image_with_node(String id) {
        BuiltIns.BuiltIn builtIn = Objects.requireNonNull(BuiltIns.byId().get(id));
        assertThat(builtIn.languages()).contains(Language.PYTHON, Language.TYPESCRIPT);
        assertThat(builtIn.registry().image()).startsWith("node:20-");
        assertThat(builtIn.registry().packages().apt()).contains("python3");
    }
}

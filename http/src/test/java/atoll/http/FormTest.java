package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

class FormTest {
    @Test
    void fields_are_decoded_and_may_come_more_than_once() {
        Form form = Form.parse("a=1&b=%C3%A9+%26&a=2&c&d=x=y");
        assertThat(form.text("a")).isEqualTo("1");
        assertThat(form.all("a")).containsExactly("1", "2");
        assertThat(form.text("b")).isEqualTo("é &");
        assertThat(form.has("c")).isTrue();
        assertThat(form.text("d")).isEqualTo("x=y");
        assertThat(form.given("c")).isEmpty();
        assertThat(form.all("none")).isEmpty();
    }

    @Test
    void what_is_no_form_is_refused() {
        assertThatThrownBy(() -> Form.parse("a=%zz")).isInstanceOf(HttpFailure.class);
        assertThatThrownBy(() -> Form.parse("a&".repeat(1001))).isInstanceOf(HttpFailure.class);
        assertThat(Form.isForm("application/x-www-form-urlencoded; charset=utf-8"))
                .isTrue();
        assertThat(Form.isForm("text/plain")).isFalse();
    }

    @Test
    void routes_may_be_added_a_second_time_under_a_prefix() {
        RouteTable.Builder routes = RouteTable.builder();
        routes.get("/v1/a", _ -> {}).under("/ui").get("/v1/a", _ -> {});
        assertThat(routes.build().routes()).extracting(Route::pattern).containsExactly("/v1/a", "/ui/v1/a");
    }
}

package atoll.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RouteTableTest {
    private static final RouteHandler NOTHING = exchange -> {};

    private final RouteTable table = RouteTable.builder()
            .get("/", NOTHING)
            .get("/things", NOTHING)
            .get("/things/{id}", NOTHING)
            .delete("/things/{id}", NOTHING)
            .post("/things/{id}:poke", NOTHING)
            .get("/things/{id}/parts/{part}", NOTHING)
            .build();

    @Test
    void a_path_gives_its_route_and_decoded_parameters() {
        assertThat(found("GET", "/things/a%20b+c/parts/7"))
                .isEqualTo(Map.entry("/things/{id}/parts/{part}", Map.of("id", "a b+c", "part", "7")));
    }

    @Test
    void an_encoded_slash_stays_inside_its_segment() {
        assertThat(found("GET", "/things/a%2Fb").getValue()).isEqualTo(Map.of("id", "a/b"));
    }

    @Test
    void a_custom_method_is_no_part_of_the_id() {
        assertThat(found("POST", "/things/x:poke").getValue()).isEqualTo(Map.of("id", "x"));
    }

    @ParameterizedTest
    @CsvSource({
        "GET, ''",
        "GET, /nothing",
        "GET, /things/",
        "GET, //things",
        "GET, /things/a:b",
        "POST, /things/:poke",
        "GET, /things/a/parts/b/c",
        "GET, things"
    })
    void other_paths_are_unknown(String method, String path) {
        assertThat(table.find(method, path)).isInstanceOf(RouteTable.Match.Unknown.class);
    }

    @Test
    void a_wrong_method_is_told_the_right_ones() {
        assertThat(table.find("PUT", "/things/a")).isEqualTo(new RouteTable.Match.WrongMethod("DELETE, GET"));
    }

    @Test
    void head_goes_where_get_goes() {
        assertThat(table.find("HEAD", "/things")).isInstanceOf(RouteTable.Match.Found.class);
    }

    @ParameterizedTest
    @CsvSource({"/things/{other}", "/things/special", "/things/{id}/parts/{p}", "/{any}/x/parts/{p}", "/{any}"})
    void routes_that_fit_the_same_request_are_refused(String pattern) {
        RouteTable.Builder builder = RouteTable.builder();
        table.routes().forEach(route -> builder.add(route.method(), route.pattern(), route.handler()));
        builder.get(pattern, NOTHING);
        assertThatThrownBy(builder::build)
                .isInstanceOf(IllegalStateException.class)
                .hasMessageContaining(pattern);
    }

    @ParameterizedTest
    @CsvSource({"things", "/{}", "/a{b}", "/{a}b", "/{a}/{a}"})
    void patterns_that_say_nothing_clear_are_refused(String pattern) {
        assertThatThrownBy(() -> RouteTable.builder().get(pattern, NOTHING).build())
                .isInstanceOf(IllegalArgumentException.class);
    }

    private Map.Entry<String, Map<String, String>> found(String method, String path) {
        assertThat(table.find(method, path)).isInstanceOf(RouteTable.Match.Found.class);
        var found = (RouteTable.Match.Found) table.find(method, path);
        return Map.entry(found.route().pattern(), Map.copyOf(found.parameters()));
    }
}

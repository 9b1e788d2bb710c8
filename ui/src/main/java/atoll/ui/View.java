package atoll.ui;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A template with its parameters, and what the layout shall show around it. Immutable. */
public final class View {
    private final String template;
    private final String title;
    private final Optional<Nav> nav;
    private final Map<String, Object> parameters;
    private final Optional<String> live;
    private final List<String> scripts;
    private final List<String> styles;
    private final boolean inlineStyles;

    private View(
            String template,
            String title,
            Optional<Nav> nav,
            Map<String, Object> parameters,
            Optional<String> live,
            List<String> scripts,
            List<String> styles,
            boolean inlineStyles) {
        this.template = template;
        this.title = title;
        this.nav = nav;
        this.parameters = parameters;
        this.live = live;
        this.scripts = scripts;
        this.styles = styles;
        this.inlineStyles = inlineStyles;
    }

    /** A page: {@code src/main/jte/TEMPLATE.jte}, which takes a {@link Frame} named {@code frame} and hands it to the layout. */
    public static View page(Nav nav, String title, String template) {
        return new View(template, title, Optional.of(nav), Map.of(), Optional.empty(), List.of(), List.of(), false);
    }

    /** A piece of a page, without the layout. */
    public static View fragment(String template) {
        return new View(template, "", Optional.empty(), Map.of(), Optional.empty(), List.of(), List.of(), false);
    }

    /** A page that belongs to no entry of the navigation. */
    static View apart(String title, String template) {
        return new View(template, title, Optional.empty(), Map.of(), Optional.empty(), List.of(), List.of(), false);
    }

    public View with(String name, Object value) {
        Map<String, Object> more = new LinkedHashMap<>(parameters);
        more.put(name, value);
        return new View(template, title, nav, more, live, scripts, styles, inlineStyles);
    }

    /** Its live regions come from this stream, which {@code Site.live} has made. */
    public View live(String path) {
        return new View(template, title, nav, parameters, Optional.of(path), scripts, styles, inlineStyles);
    }

    /** Loads a script of {@code static/} with this page. */
    public View script(String name) {
        return new View(template, title, nav, parameters, live, plus(scripts, name), styles, inlineStyles);
    }

    public View style(String name) {
        return new View(template, title, nav, parameters, live, scripts, plus(styles, name), inlineStyles);
    }

    /** Lets style elements that scripts make count. For xterm.js 5, which makes some; scripts stay as strict as elsewhere. */
    public View allowInlineStyles() {
        return new View(template, title, nav, parameters, live, scripts, styles, true);
    }

    private static List<String> plus(List<String> names, String name) {
        var more = new ArrayList<>(names);
        more.add(name);
        return List.copyOf(more);
    }

    String template() {
        return template;
    }

    Map<String, Object> parameters() {
        return parameters;
    }

    boolean inlineStyles() {
        return inlineStyles;
    }

    Optional<Nav> nav() {
        return nav;
    }

    Frame frame(Optional<Visit> visit, List<Nav> shown, Optional<String> message, String version) {
        return new Frame(
                title,
                nav,
                shown,
                live,
                scripts,
                styles,
                visit.map(Visit::keyName).orElse(""),
                visit.map(Visit::mayExecute).orElse(false),
                visit.map(Visit::mayAdmin).orElse(false),
                visit.map(Visit::formToken).orElse(""),
                message,
                version);
    }
}

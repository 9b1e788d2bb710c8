package atoll.ui;

import java.util.List;
import java.util.Optional;

/**
 * What the layout shows around a page.
 *
 * @param nav entries that have a page
 * @param live where the page's live regions come from; empty: it has none
 * @param scripts and styles of this page, by their names in {@code static/}
 * @param formToken what each form carries
 * @param message of the action that led here
 */
public record Frame(
        String title,
        Optional<Nav> active,
        List<Nav> nav,
        Optional<String> live,
        List<String> scripts,
        List<String> styles,
        String keyName,
        boolean mayExecute,
        boolean mayAdmin,
        String formToken,
        Optional<String> message,
        String version) {

    /** The address of a file in {@code static/}, which changes with the file. */
    public String asset(String name) {
        return StaticFiles.address(name);
    }
}

package atoll.ui;

import atoll.core.Atoll;
import java.util.List;

/** All pages. A new one is a line here. */
final class Pages {
    private Pages() {}

    static List<Page> all(Atoll atoll, UiSettings settings) {
        return List.of(
                new CodeExecutionPage(atoll, settings), //
                new TemplatePages(atoll), //
                new SandboxesPage(atoll), //
                new SandboxPage(atoll, settings), //
                new PlaygroundPage(atoll), //
                new ExecutionsPage(atoll), //
                new ConnectPage(), //
                new PoolsPage(atoll), //
                new NodePage(atoll), //
                new KeysPage(atoll) //
                );
    }
}

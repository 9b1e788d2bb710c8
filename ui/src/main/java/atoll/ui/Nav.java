package atoll.ui;

/** The entries of the navigation, in their order. One is shown once a page is registered at its path. */
public enum Nav {
    CODE_EXECUTION("/ui/", "Code Execution"),
    SANDBOXES("/ui/sandboxes", "Sandboxes"),
    EXECUTIONS("/ui/executions", "Executions"),
    PLAYGROUND("/ui/playground", "Playground"),
    CONNECT("/ui/connect", "Connect"),
    POOLS("/ui/pools", "Pools"),
    NODE("/ui/node", "Node"),
    KEYS("/ui/keys", "Keys");

    private final String path;
    private final String title;

    Nav(String path, String title) {
        this.path = path;
        this.title = title;
    }

    public String path() {
        return path;
    }

    public String title() {
        return title;
    }
}

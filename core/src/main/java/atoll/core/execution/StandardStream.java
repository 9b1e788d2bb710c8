package atoll.core.execution;

/** Where a program printed something. */
public enum StandardStream {
    STDOUT("stdout"),
    STDERR("stderr");

    private final String text;

    StandardStream(String text) {
        this.text = text;
    }

    public String text() {
        return text;
    }
}

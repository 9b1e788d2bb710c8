package atoll.ui;

/**
 * Where an action leads.
 *
 * @param path of the page to show next
 * @param message said on that page; may be empty
 */
public record Outcome(String path, String message) {
    public static Outcome to(String path) {
        return new Outcome(path, "");
    }

    public Outcome saying(String newMessage) {
        return new Outcome(path, newMessage);
    }
}

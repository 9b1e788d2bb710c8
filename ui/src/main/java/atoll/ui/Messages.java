package atoll.ui;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/** What an action has to say, until the page after it is shown. By session; the oldest go when nobody looks. */
final class Messages {
    private static final int MOST = 1000;

    /** Guarded by this. */
    private final Map<String, String> waiting = new LinkedHashMap<>();

    synchronized void put(String session, String message) {
        waiting.remove(session);
        waiting.put(session, message);
        if (waiting.size() > MOST) {
            waiting.remove(waiting.keySet().iterator().next());
        }
    }

    synchronized Optional<String> take(String session) {
        return Optional.ofNullable(waiting.remove(session));
    }
}

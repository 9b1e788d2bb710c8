package atoll.core.file;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import java.util.UUID;
import java.util.regex.Pattern;

/** Names a watch that gathers events. Lives only as long as the server. */
public record WatchId(String text) {
    private static final Pattern FORM = Pattern.compile("watch-[0-9a-f]{32}");

    public static WatchId random() {
        return new WatchId("watch-" + UUID.randomUUID().toString().replace("-", ""));
    }

    public static WatchId parse(String text) {
        if (!FORM.matcher(text).matches()) {
            throw unknown(text.length() > 64 ? text.substring(0, 64) + "…" : text);
        }
        return new WatchId(text);
    }

    static AtollException unknown(String text) {
        return new AtollException(
                ErrorCode.NOT_FOUND,
                "watch: \"" + text.replaceAll("\\p{Cntrl}", "\uFFFD") + "\" was not found",
                "It was ended, nobody asked for its events for 5 minutes, or the server was restarted.",
                "Start a new watch, then look at the folder.");
    }

    @Override
    public String toString() {
        return text;
    }
}

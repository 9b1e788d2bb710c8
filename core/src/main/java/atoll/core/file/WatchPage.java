package atoll.core.file;

import java.util.List;

/**
 * What a watch has gathered.
 *
 * @param next to be asked for as {@code after} with the next call
 * @param overflow events between {@code after} and these were lost: look at the folder anew
 */
public record WatchPage(List<FileEvent> events, long next, boolean overflow) {
    public WatchPage {
        events = List.copyOf(events);
    }
}

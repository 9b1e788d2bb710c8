package atoll.core.template;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Optional;

/**
 * Reads a log from its beginning. On disk it is a line per event: {@code S number total cached text} for a step, {@code O text} and
 * {@code E text} for what it printed, with tabs between, and line ends, tabs and backslashes in texts escaped.
 */
final class BuildLogReader implements BuildLog {
    private static final int PIECE = 256 << 10;

    private final TemplateFiles files;
    private final Build asked;
    private final Optional<BuildJob> job;
    private final boolean follow;
    private final Deque<BuildEvent> events = new ArrayDeque<>();
    private long offset;
    private byte[] rest = new byte[0];
    private Optional<BuildEvent.Progress> progress = Optional.empty();
    private boolean over;

    BuildLogReader(TemplateFiles files, Build asked, Optional<BuildJob> job, boolean follow) {
        this.files = files;
        this.asked = asked;
        this.job = job;
        this.follow = follow;
    }

    @Override
    public Optional<BuildEvent> next(Duration limit) throws InterruptedException {
        if (!fill() && !over) {
            if (job.isPresent() && follow) {
                job.get().await(offset, progress, limit);
            }
            look();
        }
        return Optional.ofNullable(events.poll());
    }

    /** What there is now that was not there before, and the end. */
    private void look() {
        // Its end is looked at first: what was written before it is read then.
        Build now = job.map(BuildJob::build).orElse(asked);
        if (fill()) {
            return;
        }
        Optional<BuildEvent.Progress> latest = job.flatMap(BuildJob::progress);
        if (!latest.equals(progress) && latest.isPresent() && !now.state().isOver()) {
            progress = latest;
            events.add(latest.get());
        } else if (now.state().isOver()) {
            over = true;
            events.add(new BuildEvent.Done(now));
        } else if (!follow || job.isEmpty()) {
            over = true;
        }
    }

    /** Whether there is an event. */
    private boolean fill() {
        while (events.isEmpty() && !over) {
            byte[] more = files.read(asked.id(), offset, PIECE);
            if (more.length == 0) {
                return false;
            }
            offset += more.length;
            byte[] all = Arrays.copyOf(rest, rest.length + more.length);
            System.arraycopy(more, 0, all, rest.length, more.length);
            int begin = 0;
            for (int i = rest.length; i < all.length; i++) {
                if (all[i] == '\n') {
                    event(new String(all, begin, i - begin, StandardCharsets.UTF_8))
                            .ifPresent(events::add);
                    begin = i + 1;
                }
            }
            rest = Arrays.copyOfRange(all, begin, all.length);
        }
        return !events.isEmpty();
    }

    @Override
    public boolean isOver() {
        return over && events.isEmpty();
    }

    @Override
    public void close() {
        over = true;
        events.clear();
    }

    static String line(BuildEvent event) {
        return switch (event) {
            case BuildEvent.Step step ->
                "S\t%d\t%d\t%d\t%s\n"
                        .formatted(step.number(), step.total(), step.cached() ? 1 : 0, escaped(step.text()));
            case BuildEvent.Log log -> (log.stderr() ? "E\t" : "O\t") + escaped(log.text()) + "\n";
            case BuildEvent.Progress _, BuildEvent.Done _ -> "";
        };
    }

    /** Empty for a line that is damaged. */
    static Optional<BuildEvent> event(String line) {
        List<String> parts = List.of(line.split("\t", -1));
        try {
            if (parts.size() == 5 && parts.getFirst().equals("S")) {
                return Optional.of(new BuildEvent.Step(
                        Integer.parseInt(parts.get(1)),
                        Integer.parseInt(parts.get(2)),
                        unescaped(parts.get(4)),
                        parts.get(3).equals("1")));
            }
        } catch (NumberFormatException _) {
            return Optional.empty();
        }
        boolean stderr = parts.getFirst().equals("E");
        return parts.size() == 2 && (stderr || parts.getFirst().equals("O"))
                ? Optional.of(new BuildEvent.Log(unescaped(parts.get(1)), stderr))
                : Optional.empty();
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\")
                .replace("\n", "\\n")
                .replace("\t", "\\t")
                .replace("\r", "\\r");
    }

    private static String unescaped(String text) {
        if (text.indexOf('\\') < 0) {
            return text;
        }
        StringBuilder plain = new StringBuilder(text.length());
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\' && i + 1 < text.length()) {
                i++;
                plain.append(
                        switch (text.charAt(i)) {
                            case 'n' -> '\n';
                            case 't' -> '\t';
                            case 'r' -> '\r';
                            default -> text.charAt(i);
                        });
            } else {
                plain.append(c);
            }
        }
        return plain.toString();
    }
}

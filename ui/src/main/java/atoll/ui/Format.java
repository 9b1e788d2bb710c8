package atoll.ui;

import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Locale;
import java.util.Optional;
import java.util.regex.Pattern;

/** Values as people read them, the same in every page. */
public final class Format {
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss", Locale.ROOT).withZone(ZoneOffset.UTC);

    private static final Pattern SEQUENCE = Pattern.compile(
            "\u001b\\[[0-?]*[ -/]*[@-~]|\u001b[\\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\\\)|\u001b[ -/]*[0-~]|[\\p{IsControl}&&[^\\r\\n\\t]]");

    private Format() {}

    /** {@code 12,345}. */
    public static String count(long number) {
        return String.format(Locale.ROOT, "%,d", number);
    }

    /** {@code 256 MiB}, {@code 1.5 GiB}. */
    public static String bytes(long bytes) {
        String[] units = {"B", "KiB", "MiB", "GiB", "TiB"};
        double value = bytes;
        int unit = 0;
        while (value >= 1024 && unit < units.length - 1) {
            value /= 1024;
            unit++;
        }
        return decimal(value) + " " + units[unit];
    }

    /** Thousandths of a CPU: {@code 0.5 CPU}. */
    public static String cpu(int millis) {
        return millis == 0 ? "no limit" : decimal(millis / 1000.0) + " CPU";
    }

    /** {@code 8.2 ms}, {@code 30 s}, {@code 5 min}. */
    public static String duration(Duration duration) {
        double millis = duration.toNanos() / 1e6;
        if (millis < 1000) {
            return decimal(millis) + " ms";
        }
        if (millis < 120_000) {
            return decimal(millis / 1000) + " s";
        }
        return millis < 7_200_000 ? decimal(millis / 60_000) + " min" : decimal(millis / 3_600_000) + " h";
    }

    /** To the second, in UTC. */
    public static String time(Instant instant) {
        return TIME.format(instant);
    }

    public static String time(Optional<Instant> instant, String otherwise) {
        return instant.map(TIME::format).orElse(otherwise);
    }

    /** Without a terminal's sequences and control characters, for text that a program has written. */
    public static String plain(String text) {
        return SEQUENCE.matcher(text).replaceAll("");
    }

    private static String decimal(double value) {
        String text = String.format(Locale.ROOT, value < 100 ? "%.1f" : "%.0f", value);
        return text.endsWith(".0") ? text.substring(0, text.length() - 2) : text;
    }
}

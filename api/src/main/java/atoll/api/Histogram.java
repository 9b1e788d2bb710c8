package atoll.api;

import java.util.Locale;
import java.util.concurrent.atomic.LongAdder;

/** Durations counted in fixed buckets, as Prometheus wants them. */
final class Histogram {
    private static final double[] BOUNDS = {
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60
    };

    private final LongAdder[] buckets = new LongAdder[BOUNDS.length + 1];
    private final LongAdder nanos = new LongAdder();

    Histogram() {
        for (int i = 0; i < buckets.length; i++) {
            buckets[i] = new LongAdder();
        }
    }

    void record(long durationNanos) {
        double seconds = durationNanos / 1e9;
        int bucket = 0;
        while (bucket < BOUNDS.length && seconds > BOUNDS[bucket]) {
            bucket++;
        }
        buckets[bucket].increment();
        nanos.add(durationNanos);
    }

    void write(StringBuilder out, String name, String labels) {
        long count = 0;
        for (int i = 0; i < buckets.length; i++) {
            count += buckets[i].sum();
            String bound = i < BOUNDS.length ? number(BOUNDS[i]) : "+Inf";
            String separator = labels.isEmpty() ? "" : ",";
            out.append("%s_bucket{%s%sle=\"%s\"} %d\n".formatted(name, labels, separator, bound, count));
        }
        String braces = labels.isEmpty() ? "" : "{" + labels + "}";
        out.append("%s_sum%s %s\n".formatted(name, braces, number(nanos.sum() / 1e9)));
        out.append("%s_count%s %d\n".formatted(name, braces, count));
    }

    private static String number(double value) {
        return String.format(Locale.ROOT, value < 0.01 || value % 1 != 0 ? "%.6f" : "%.0f", value)
                .replaceAll("(\\.\\d*?)0+$", "$1")
                .replaceAll("\\.$", "");
    }
}

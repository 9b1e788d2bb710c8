package atoll.ui;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongSupplier;

/** How many logins may fail: a few in a row from one address, then one every few seconds. */
final class LoginLimit {
    private static final int BURST = 10;
    private static final long REFILL_NANOS = Duration.ofSeconds(6).toNanos();
    private static final int MOST_ADDRESSES = 10_000;

    private final LongSupplier nanos;

    /** When all failures of an address will be forgiven. Guarded by this. */
    private final Map<String, Long> forgiven = new LinkedHashMap<>();

    LoginLimit(LongSupplier nanos) {
        this.nanos = nanos;
    }

    /** How long the address must wait before it may try; zero: it may now. */
    synchronized Duration wait(String address) {
        Long until = forgiven.get(address);
        if (until == null) {
            return Duration.ZERO;
        }
        long over = until - nanos.getAsLong() - (BURST - 1) * REFILL_NANOS;
        return over > 0 ? Duration.ofNanos(over) : Duration.ZERO;
    }

    synchronized void failed(String address) {
        long now = nanos.getAsLong();
        Long until = forgiven.remove(address);
        long from = until == null || until - now < 0 ? now : until;
        forgiven.put(address, from + REFILL_NANOS);
        if (forgiven.size() > MOST_ADDRESSES) {
            forgiven.remove(forgiven.keySet().iterator().next());
        }
    }
}

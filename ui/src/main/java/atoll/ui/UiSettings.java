package atoll.ui;

import java.time.Duration;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;

/**
 * What the dashboard must be told.
 *
 * @param port that is bound; two installations of one host keep their cookies apart by it
 * @param hosts names and addresses that the dashboard answers to, besides those of loopback
 * @param anyAddress whether it answers to every address of the machine too, since it listens on all
 * @param domain below which sandboxes' ports are served; empty where that is {@code localhost}, which means something to browsers of this machine only
 * @param coldStart how long half of the sandboxes that were handed out lately took at most; empty before the first
 */
public record UiSettings(
        String version,
        int port,
        Set<String> hosts,
        boolean anyAddress,
        Optional<String> domain,
        Supplier<Optional<Duration>> coldStart) {
    public UiSettings {
        hosts = Set.copyOf(hosts);
    }

    /** Of a server that listens on {@code host}, behind the names {@code names}. */
    public static UiSettings of(
            String version,
            String host,
            int port,
            Set<String> names,
            Optional<String> domain,
            Supplier<Optional<Duration>> coldStart) {
        boolean all = host.equals("0.0.0.0") || host.equals("::") || host.equals("[::]");
        var hosts = new java.util.HashSet<>(names);
        hosts.add(host);
        return new UiSettings(version, port, hosts, all, domain, coldStart);
    }
}

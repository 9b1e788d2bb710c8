package atoll.core;

import atoll.core.sandbox.Lifecycle;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Term;
import atoll.core.template.LimitBounds;
import atoll.core.template.Limits;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.TreeMap;

/**
 * What an operator can set, with its defaults. {@link #parse} reads it from text and refuses names that it does not know, so that a
 * typing mistake or a setting that is gone fails loudly.
 *
 * @param poolDepth boxes kept ready per template; 0 for none
 * @param poolStarts boxes that are started at the same time, over all pools
 * @param refillQuiet a pool refills once nobody has taken a sandbox for so long
 * @param refillLatest and after so long in any case
 * @param limits of a sandbox
 * @param bounds how far callers may raise the limits of their sandboxes
 * @param timeout of an execution whose call names none
 * @param maxTimeout the longest a call may name
 * @param maxSandboxes live ones per project; 0 for as many as the node's memory allows
 * @param nodePatience how long calls wait for a node that is being restarted
 * @param retention how long ended sandboxes and executions stay on record
 * @param maxExecutions on record, and as many processes; the oldest go first
 * @param usagePeriod how often it is looked what sandboxes use
 * @param usageRetention how long that is kept
 * @param poolGrowth how far pools grow with their use
 * @param lives how long sandboxes and snapshots live
 * @param trustedKeys hexadecimal public keys of installations whose snapshots may be imported beside those of this one
 * @param builds how images of templates are made
 */
public record Settings(
        int poolDepth,
        int poolStarts,
        Duration refillQuiet,
        Duration refillLatest,
        Limits limits,
        LimitBounds bounds,
        Duration timeout,
        Duration maxTimeout,
        int maxSandboxes,
        Duration nodePatience,
        Duration retention,
        long maxExecutions,
        Duration usagePeriod,
        Duration usageRetention,
        Map<String, Integer> poolDepths,
        PoolGrowth poolGrowth,
        Lives lives,
        List<String> trustedKeys,
        Builds builds) {

    private static final long MIB = 1024 * 1024;

    public static final Settings DEFAULT = new Settings(
            4,
            4,
            Duration.ofMillis(25),
            Duration.ofMillis(500),
            Limits.DEFAULT,
            LimitBounds.DEFAULT,
            Duration.ofSeconds(30),
            Duration.ofHours(24),
            0,
            Duration.ofSeconds(30),
            Duration.ofDays(30),
            1_000_000,
            Duration.ofSeconds(5),
            Duration.ofHours(24),
            Map.of(),
            new PoolGrowth(32, 4, 25),
            new Lives(
                    Optional.empty(),
                    Optional.empty(),
                    Optional.of(Duration.ofHours(1)),
                    Duration.ofDays(30),
                    Optional.empty()),
            List.of(),
            Builds.DEFAULT);

    /**
     * How images of templates are made and kept.
     *
     * @param imagesFromRecipes whether templates that come with Atoll are made of its own recipes, and not of a registry's images
     * @param network whether the steps of a build reach the internet
     * @param allow addresses, ranges or names that they reach though they are not public
     * @param env for the steps of a build alone
     * @param limits of the sandboxes that steps run in
     * @param timeout of a build
     * @param parallel builds at the same time
     * @param patience how long whoever asks for a sandbox waits for its template to be built
     * @param maxContextBytes of an uploaded context
     * @param imageQuotaBytes that all images may take; 0: no bound
     * @param keepImages how long an image is kept that nothing needs
     * @param keepLogs how long builds and deleted templates stay on record
     * @param keepBuilds per template; the oldest go first
     * @param plainHttp registries, as {@code host[:port]}, that are spoken to without TLS
     */
    public record Builds(
            boolean imagesFromRecipes,
            boolean network,
            List<String> allow,
            Map<String, String> env,
            Limits limits,
            Duration timeout,
            int parallel,
            Duration patience,
            long maxContextBytes,
            long imageQuotaBytes,
            Duration keepImages,
            Duration keepLogs,
            int keepBuilds,
            List<String> plainHttp) {
        static final Builds DEFAULT = new Builds(
                true,
                true,
                List.of(),
                Map.of(),
                new Limits(2048 * MIB, 2000, 10_240 * MIB, 1024, 16_384),
                Duration.ofMinutes(30),
                2,
                Duration.ofSeconds(60),
                1024 * MIB,
                0,
                Duration.ofDays(7),
                Duration.ofDays(30),
                50,
                List.of());

        public Builds {
            allow = List.copyOf(allow);
            env = Map.copyOf(env);
            plainHttp = List.copyOf(plainHttp);
            check("build.timeout_seconds", timeout.toSeconds(), 1, 24 * 3600);
            check("build.parallel", parallel, 1, 64);
            check("build.max_context_mib", maxContextBytes / MIB, 1, 1 << 20);
            check("templates.wait_seconds", patience.toSeconds(), 0, 3600);
            check("images.quota_mib", imageQuotaBytes / MIB, 0, 1 << 30);
            check("images.keep_days", keepImages.toDays(), 0, 3650);
            check("build.keep_days", keepLogs.toDays(), 1, 3650);
            check("build.keep", keepBuilds, 1, 10_000);
        }

        private static Builds parse(Map<String, String> left) {
            Builds d = DEFAULT;
            Map<String, String> env = new TreeMap<>();
            for (String name : List.copyOf(left.keySet())) {
                if (name.startsWith("build.env.")) {
                    env.put(name.substring("build.env.".length()), left.remove(name));
                }
            }
            return new Builds(
                    choice(left, "templates.image_source", "recipe", "registry"),
                    choice(left, "build.network", "on", "off"),
                    words(left, "build.allow"),
                    env,
                    new Limits(
                            number(left, "build.memory_mib", d.limits.memoryBytes() / MIB) * MIB,
                            (int) number(left, "build.cpu_millis", d.limits.cpuMillis()),
                            number(left, "build.disk_mib", d.limits.diskBytes() / MIB) * MIB,
                            d.limits.maxProcesses(),
                            d.limits.maxOpenFiles()),
                    Duration.ofSeconds(number(left, "build.timeout_seconds", d.timeout.toSeconds())),
                    (int) number(left, "build.parallel", d.parallel),
                    Duration.ofSeconds(number(left, "templates.wait_seconds", d.patience.toSeconds())),
                    number(left, "build.max_context_mib", d.maxContextBytes / MIB) * MIB,
                    number(left, "images.quota_mib", d.imageQuotaBytes / MIB) * MIB,
                    Duration.ofDays(number(left, "images.keep_days", d.keepImages.toDays())),
                    Duration.ofDays(number(left, "build.keep_days", d.keepLogs.toDays())),
                    (int) number(left, "build.keep", d.keepBuilds),
                    words(left, "images.plain_http"));
        }

        /** Whether it is the first of the two, which is the default. */
        private static boolean choice(Map<String, String> left, String name, String first, String second) {
            String text = Optional.ofNullable(left.remove(name)).orElse(first).strip();
            if (!text.equals(first) && !text.equals(second)) {
                throw new IllegalArgumentException(
                        name + ": \"" + text + "\" (expected: " + first + " or " + second + ")");
            }
            return text.equals(first);
        }

        private static final List<String> NAMES = List.of(
                "templates.image_source",
                "templates.wait_seconds",
                "build.network",
                "build.allow",
                "build.env.<NAME>",
                "build.memory_mib",
                "build.cpu_millis",
                "build.disk_mib",
                "build.timeout_seconds",
                "build.parallel",
                "build.max_context_mib",
                "build.keep",
                "build.keep_days",
                "images.quota_mib",
                "images.keep_days",
                "images.plain_http");
    }

    /**
     * How far pools grow with their use. A pool of depth 0 stays empty.
     *
     * @param maxDepth boxes kept ready per template at most, however many are taken at once; a depth above it counts more
     * @param maxPrepared boxes per template that are made without anything that runs, for restores; 0 for none
     * @param memoryPercent what all pools together may take of the node's memory
     */
    public record PoolGrowth(int maxDepth, int maxPrepared, int memoryPercent) {
        public PoolGrowth {
            check("pool.max_depth", maxDepth, 0, 1000);
            check("pool.max_prepared", maxPrepared, 0, 100);
            check("pool.memory_percent", memoryPercent, 1, 100);
        }
    }

    /**
     * How long sandboxes and snapshots live.
     *
     * @param lifetime of a sandbox whose maker names none; empty: no bound
     * @param maxLifetime the longest that may be asked for; empty: no bound
     * @param idle how long a sandbox may be unused whose maker does not say; empty: no bound
     * @param paused how long a sandbox may be paused before it ends
     * @param snapshots how long a snapshot is kept whose maker does not say; empty: until it is deleted
     */
    public record Lives(
            Optional<Duration> lifetime,
            Optional<Duration> maxLifetime,
            Optional<Duration> idle,
            Duration paused,
            Optional<Duration> snapshots) {
        private static final long TEN_YEARS = 10L * 365 * 24 * 3600;

        public Lives {
            check("sandboxes.lifetime_seconds", seconds(lifetime), 0, TEN_YEARS);
            check("sandboxes.max_lifetime_seconds", seconds(maxLifetime), 0, TEN_YEARS);
            check("sandboxes.idle_seconds", seconds(idle), 0, TEN_YEARS);
            check("sandboxes.paused_days", paused.toDays(), 1, 3650);
            check("snapshots.days", snapshots.orElse(Duration.ZERO).toDays(), 0, 3650);
            if (maxLifetime.isPresent()
                    && lifetime.isPresent()
                    && lifetime.get().compareTo(maxLifetime.get()) > 0) {
                throw new IllegalArgumentException("sandboxes.lifetime_seconds: " + seconds(lifetime)
                        + " (expected: at most sandboxes.max_lifetime_seconds, " + seconds(maxLifetime) + ")");
            }
        }

        private static long seconds(Optional<Duration> time) {
            return time.orElse(Duration.ZERO).toSeconds();
        }

        /** What holds for a sandbox whose maker says nothing. */
        public Lifecycle defaults() {
            return new Lifecycle(lifetime.or(() -> maxLifetime), idle, OnTimeout.PAUSE, true);
        }

        /** Fails for a lifetime that is longer than any may be. */
        public Optional<Duration> checkLifetime(Term asked) {
            boolean tooLong = maxLifetime.isPresent()
                    && asked.length()
                            .filter(time -> time.compareTo(maxLifetime.get()) <= 0)
                            .isEmpty();
            if (tooLong) {
                throw AtollException.invalid(
                        "lifetime_seconds: "
                                + asked.length()
                                        .map(time -> "" + time.toSeconds())
                                        .orElse("none") + " (expected: at most "
                                + seconds(maxLifetime) + ")",
                        "Ask for less, or raise the setting sandboxes.max_lifetime_seconds.");
            }
            return asked.length();
        }

        /** What is agreed with a caller who wants {@code changes}; fails for a lifetime that is longer than any may be. */
        public Lifecycle agree(Lifecycle before, LifecycleChanges changes) {
            changes.lifetime().ifPresent(this::checkOnly);
            return changes.applyTo(before);
        }

        private void checkOnly(Term asked) {
            Optional<Duration> checked = checkLifetime(asked);
            assert checked.equals(asked.length());
        }
    }

    public Settings {
        poolDepths = Map.copyOf(poolDepths);
        trustedKeys = List.copyOf(trustedKeys);
        for (String key : trustedKeys) {
            if (!key.matches("[0-9a-f]{64}")) {
                throw new IllegalArgumentException(
                        "snapshots.trusted_keys: \"" + key + "\" (expected: 64 characters of 0-9 and a-f each)");
            }
        }
        check("pool.depth", poolDepth, 0, 1000);
        check("pool.starts", poolStarts, 1, 1000);
        check("sandboxes.max", maxSandboxes, 0, 1_000_000);
        check("retention.executions", maxExecutions, 1, Long.MAX_VALUE);
        check("usage.period_seconds", usagePeriod.toSeconds(), 1, 3600);
        check("usage.retention_hours", usageRetention.toHours(), 1, 24 * 365);
        poolDepths.forEach((template, depth) -> check("pool.depth." + template, depth, 0, 1000));
        Limits within = bounds.check(limits);
        assert within.equals(limits);
        if (timeout.isNegative() || timeout.isZero() || timeout.compareTo(maxTimeout) > 0) {
            throw new IllegalArgumentException("execution.timeout_seconds: " + timeout.toSeconds()
                    + " (expected: > 0 and at most execution.max_timeout_seconds, " + maxTimeout.toSeconds() + ")");
        }
    }

    /** The depth of one template's pool; the operator's word for it counts more than the template's own. */
    public int poolDepth(String template, OptionalInt own) {
        Integer set = poolDepths.get(template);
        return set != null ? set : own.orElse(poolDepth);
    }

    /** The defaults with what {@code values} sets; the names are those of {@link #names}. */
    public static Settings parse(Map<String, String> values) {
        Map<String, String> left = new TreeMap<>(values);
        Map<String, Integer> depths = new TreeMap<>();
        for (String name : List.copyOf(left.keySet())) {
            if (name.startsWith("pool.depth.")) {
                depths.put(name.substring("pool.depth.".length()), (int) number(left, name, 0));
            }
        }
        Settings d = DEFAULT;
        Limits l = d.limits;
        Limits limits = new Limits(
                number(left, "limits.memory_mib", l.memoryBytes() / MIB) * MIB,
                (int) number(left, "limits.cpu_millis", l.cpuMillis()),
                number(left, "limits.disk_mib", l.diskBytes() / MIB) * MIB,
                (int) number(left, "limits.processes", l.maxProcesses()),
                (int) number(left, "limits.open_files", l.maxOpenFiles()));
        LimitBounds b = d.bounds;
        LimitBounds bounds = new LimitBounds(
                number(left, "bounds.memory_mib", b.memoryBytes() / MIB) * MIB,
                (int) number(left, "bounds.cpu_millis", b.cpuMillis()),
                number(left, "bounds.disk_mib", b.diskBytes() / MIB) * MIB,
                (int) number(left, "bounds.processes", b.maxProcesses()),
                (int) number(left, "bounds.open_files", b.maxOpenFiles()));
        Settings settings = new Settings(
                (int) number(left, "pool.depth", d.poolDepth),
                (int) number(left, "pool.starts", d.poolStarts),
                Duration.ofMillis(number(left, "pool.refill_quiet_millis", d.refillQuiet.toMillis())),
                Duration.ofMillis(number(left, "pool.refill_latest_millis", d.refillLatest.toMillis())),
                limits,
                bounds,
                Duration.ofSeconds(number(left, "execution.timeout_seconds", d.timeout.toSeconds())),
                Duration.ofSeconds(number(left, "execution.max_timeout_seconds", d.maxTimeout.toSeconds())),
                (int) number(left, "sandboxes.max", d.maxSandboxes),
                Duration.ofSeconds(number(left, "node.patience_seconds", d.nodePatience.toSeconds())),
                Duration.ofDays(number(left, "retention.days", d.retention.toDays())),
                number(left, "retention.executions", d.maxExecutions),
                Duration.ofSeconds(number(left, "usage.period_seconds", d.usagePeriod.toSeconds())),
                Duration.ofHours(number(left, "usage.retention_hours", d.usageRetention.toHours())),
                depths,
                new PoolGrowth(
                        (int) number(left, "pool.max_depth", d.poolGrowth.maxDepth()),
                        (int) number(left, "pool.max_prepared", d.poolGrowth.maxPrepared()),
                        (int) number(left, "pool.memory_percent", d.poolGrowth.memoryPercent())),
                lives(left, d.lives),
                words(left, "snapshots.trusted_keys"),
                Builds.parse(left));
        if (!left.isEmpty()) {
            throw new IllegalArgumentException(
                    "settings: unknown " + left.keySet() + " (expected: only " + String.join(", ", names()) + ")");
        }
        return settings;
    }

    /** With commas between. */
    private static List<String> words(Map<String, String> left, String name) {
        String text = Optional.ofNullable(left.remove(name)).orElse("");
        return Arrays.stream(text.split(",", -1))
                .map(String::strip)
                .filter(word -> !word.isEmpty())
                .toList();
    }

    private static Lives lives(Map<String, String> left, Lives d) {
        return new Lives(
                seconds(left, "sandboxes.lifetime_seconds", d.lifetime),
                seconds(left, "sandboxes.max_lifetime_seconds", d.maxLifetime),
                seconds(left, "sandboxes.idle_seconds", d.idle),
                Duration.ofDays(number(left, "sandboxes.paused_days", d.paused.toDays())),
                some(Duration.ofDays(number(
                        left,
                        "snapshots.days",
                        d.snapshots.orElse(Duration.ZERO).toDays()))));
    }

    /** 0 is no bound. */
    private static Optional<Duration> seconds(Map<String, String> left, String name, Optional<Duration> otherwise) {
        return some(Duration.ofSeconds(
                number(left, name, otherwise.orElse(Duration.ZERO).toSeconds())));
    }

    private static Optional<Duration> some(Duration time) {
        return time.isZero() ? Optional.empty() : Optional.of(time);
    }

    /** The names of all settings. */
    public static List<String> names() {
        List<String> names = new ArrayList<>(List.of(
                "pool.depth",
                "pool.depth.<template>",
                "pool.max_depth",
                "pool.max_prepared",
                "pool.memory_percent",
                "pool.starts",
                "pool.refill_quiet_millis",
                "pool.refill_latest_millis",
                "limits.memory_mib",
                "limits.cpu_millis",
                "limits.disk_mib",
                "limits.processes",
                "limits.open_files",
                "bounds.memory_mib",
                "bounds.cpu_millis",
                "bounds.disk_mib",
                "bounds.processes",
                "bounds.open_files",
                "execution.timeout_seconds",
                "execution.max_timeout_seconds",
                "sandboxes.max",
                "sandboxes.lifetime_seconds",
                "sandboxes.max_lifetime_seconds",
                "sandboxes.idle_seconds",
                "sandboxes.paused_days",
                "snapshots.days",
                "snapshots.trusted_keys",
                "node.patience_seconds",
                "retention.days",
                "retention.executions",
                "usage.period_seconds",
                "usage.retention_hours"));
        names.addAll(Builds.NAMES);
        return List.copyOf(names);
    }

    private static long number(Map<String, String> left, String name, long otherwise) {
        String text = left.remove(name);
        if (text == null) {
            return otherwise;
        }
        try {
            return Long.parseLong(text.strip());
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(name + ": \"" + text + "\" (expected: a whole number)", e);
        }
    }

    private static void check(String name, long value, long least, long most) {
        if (value < least || value > most) {
            throw new IllegalArgumentException(name + ": " + value + " (expected: " + least + " to " + most + ")");
        }
    }
}

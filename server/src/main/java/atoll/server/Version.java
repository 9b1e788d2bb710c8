package atoll.server;

import org.jspecify.annotations.Nullable;

/** The version of this build, as the jar's manifest has it. */
final class Version {
    static final String TEXT = text(Version.class.getPackage().getImplementationVersion());

    private Version() {}

    private static String text(@Nullable String fromManifest) {
        return fromManifest == null ? "development" : fromManifest;
    }
}

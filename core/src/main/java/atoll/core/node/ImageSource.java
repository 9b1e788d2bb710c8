package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.template.BuildSecrets;
import atoll.core.template.Limits;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** What an image is made of. */
public sealed interface ImageSource {
    /** One of the node's own, pinned. */
    record Recipe(String name) implements ImageSource {}

    /**
     * A registry's.
     *
     * @param reference as after {@code FROM}
     * @param plainHttp registries, as {@code host[:port]}, that are spoken to without TLS
     */
    record Registry(String reference, List<Credentials> credentials, List<String> plainHttp) implements ImageSource {
        public Registry {
            credentials = List.copyOf(credentials);
            plainHttp = List.copyOf(plainHttp);
        }
    }

    /** What {@code docker save} writes, an OCI layout, or a root file system; a tar, also compressed. It follows as the body. */
    record Archive() implements ImageSource {}

    /** An image of the machine's own Docker. */
    record DockerDaemon(String reference) implements ImageSource {}

    /** What is in a box at this moment. */
    record SavedBox(BoxId box) implements ImageSource {}

    /**
     * A Dockerfile, whose steps run in sandboxes. Its context, if it has one, follows as the body.
     *
     * @param target the stage to build; empty: the last
     * @param namedImages what {@code FROM} may name beside references: name to digest of an image that is there
     * @param stepEnv for its steps alone, not in the image
     */
    record Dockerfile(
            String text,
            Map<String, String> args,
            String target,
            Map<String, String> namedImages,
            List<Credentials> credentials,
            List<String> plainHttp,
            Limits limits,
            Network network,
            Map<String, String> stepEnv,
            boolean noCache,
            Duration stepTimeout,
            BuildSecrets secrets)
            implements ImageSource {
        public Dockerfile {
            args = Map.copyOf(args);
            namedImages = Map.copyOf(namedImages);
            credentials = List.copyOf(credentials);
            plainHttp = List.copyOf(plainHttp);
            stepEnv = Map.copyOf(stepEnv);
        }
    }

    /** What opens a registry, as {@code host[:port]}. Never shown. */
    record Credentials(String registry, String username, String password) {
        @Override
        public String toString() {
            return "credentials for " + registry;
        }
    }

    /**
     * Outward only.
     *
     * @param allow addresses, ranges or names that are reachable though they are not public
     */
    record Network(boolean enabled, List<String> allow) {
        public Network {
            allow = List.copyOf(allow);
        }
    }
}

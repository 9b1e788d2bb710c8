package atoll.compat.e2b;

import atoll.core.Caller;
import atoll.core.SandboxId;
import atoll.http.Exchange;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.jspecify.annotations.Nullable;

/**
 * A request that reached a sandbox, and who it speaks for.
 *
 * @param path below the sandbox's address, encoded
 */
record SandboxRequest(Exchange exchange, SandboxId sandbox, Caller caller, String path) {
    /** The Linux user of an RPC, given as the name of basic authentication; empty for the template's own. */
    String user() {
        String header = exchange.header("Authorization");
        if (header == null || !header.regionMatches(true, 0, "Basic ", 0, 6)) {
            return "";
        }
        try {
            String pair =
                    new String(Base64.getDecoder().decode(header.substring(6).strip()), StandardCharsets.UTF_8);
            int colon = pair.indexOf(':');
            return colon < 0 ? pair : pair.substring(0, colon);
        } catch (IllegalArgumentException e) {
            throw new Connect.Failure("unauthenticated", "the Authorization header is no basic authentication");
        }
    }

    /** Relative to the user's home, as the sandbox's own rules have it, if it begins with a tilde. */
    static String path(@Nullable String given) {
        if (given == null || given.isEmpty()) {
            throw Text.invalid("path is missing");
        }
        if (given.equals("~") || given.equals("~/")) {
            return ".";
        }
        return given.startsWith("~/") ? given.substring(2) : given;
    }
}

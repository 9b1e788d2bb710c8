/**
 * The E2B protocol, translated: what the SDKs `e2b` and `@e2b/code-interpreter` say, done by core. No rules and no state of its own.
 *
 * <p>Three planes: the control plane (`/sandboxes`…), and for each sandbox, told by headers or the host name, its agent (port 49983) and its code server (port 49999);
 * every other port is the sandbox's own. Sources: the published SDKs (MIT) and the servers' public sources (e2b-dev/infra, Apache-2.0).
 */
@NullMarked
package atoll.compat.e2b;

import org.jspecify.annotations.NullMarked;

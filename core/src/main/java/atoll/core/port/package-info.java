/** TCP ports inside a sandbox. */
@NullMarked
package atoll.core.port;

import org.jspecify.annotations.NullMarked;

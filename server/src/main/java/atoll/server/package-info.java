/** The server process: options, log, and the wiring of everything by constructors. */
@NullMarked
package atoll.server;

import org.jspecify.annotations.NullMarked;

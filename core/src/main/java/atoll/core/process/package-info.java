/** Programs in sandboxes: starting, following, writing to and ending them, and their records. */
@NullMarked
package atoll.core.process;

import org.jspecify.annotations.NullMarked;

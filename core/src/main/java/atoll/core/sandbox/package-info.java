/** Sandboxes, their life cycle and their contexts. */
@NullMarked
package atoll.core.sandbox;

import org.jspecify.annotations.NullMarked;

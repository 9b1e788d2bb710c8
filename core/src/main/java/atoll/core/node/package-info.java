/** The port to the engine of a node, and what crosses it. */
@NullMarked
package atoll.core.node;

import org.jspecify.annotations.NullMarked;

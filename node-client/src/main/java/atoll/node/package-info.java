/** The client of a node's engine: core's port {@code Node} over gRPC. */
@NullMarked
package atoll.node;

import org.jspecify.annotations.NullMarked;

package atoll.core.sandbox;

import atoll.core.node.NodeContext;
import java.util.Optional;

/**
 * A context on record, and as the node sees it.
 *
 * @param seen empty once its sandbox has ended
 */
public record SeenContext(Context context, Optional<NodeContext> seen) {}

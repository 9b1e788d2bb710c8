package atoll.core.node;

import atoll.core.template.Limits;
import java.util.List;
import java.util.Map;

/**
 * A box to start. Labels mean nothing to the node: a restarted server finds its pool by them.
 *
 * @param runtime one of the node's; empty: the first of them that is available
 */
public record BoxSpec(
        String imageDigest, Limits limits, List<ContextSpec> warmContexts, Map<String, String> labels, String runtime) {
    public BoxSpec {
        warmContexts = List.copyOf(warmContexts);
        labels = Map.copyOf(labels);
    }

    /** With the node's own choice of a runtime. */
    public BoxSpec(String imageDigest, Limits limits, List<ContextSpec> warmContexts, Map<String, String> labels) {
        this(imageDigest, limits, warmContexts, labels, "");
    }
}

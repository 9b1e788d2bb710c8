package atoll.core.node;

import atoll.core.template.Limits;
import java.util.List;
import java.util.Map;

/** A box to start. Labels mean nothing to the node: a restarted server finds its pool by them. */
public record BoxSpec(String imageDigest, Limits limits, List<ContextSpec> warmContexts, Map<String, String> labels) {
    public BoxSpec {
        warmContexts = List.copyOf(warmContexts);
        labels = Map.copyOf(labels);
    }
}

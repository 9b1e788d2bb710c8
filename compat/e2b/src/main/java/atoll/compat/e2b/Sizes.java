package atoll.compat.e2b;

import atoll.core.template.Limits;
import tools.jackson.databind.node.ObjectNode;

/** How limits stand in this protocol: whole CPUs and MiB. */
final class Sizes {
    private Sizes() {}

    /** Rounded up, since a part of one is none to these SDKs. */
    static int cpus(Limits limits) {
        return Math.max(1, (limits.cpuMillis() + 999) / 1000);
    }

    static ObjectNode put(ObjectNode view, Limits limits) {
        return view.put("cpuCount", cpus(limits))
                .put("memoryMB", limits.memoryBytes() >> 20)
                .put("diskSizeMB", limits.diskBytes() >> 20);
    }
}

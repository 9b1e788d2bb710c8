package atoll.compat.e2b;

import atoll.core.sandbox.Sandbox;
import java.util.HashMap;
import java.util.Map;

/** A sandbox's metadata is its labels; below a prefix of their own stand those by which this protocol's choices are kept with it. */
final class E2bLabels {
    static final String RESERVED = "e2b:";
    /** Of a template or snapshot. */
    static final String NAME = RESERVED + "name";

    /** Of a template: which of its name's builds it is, and that build's id. */
    static final String TAG = RESERVED + "tag";

    static final String BUILD = RESERVED + "build";
    private static final String PRIVATE = RESERVED + "private";
    private static final String OFFLINE = RESERVED + "offline";
    private static final String TEMPLATE = RESERVED + "template";

    private E2bLabels() {}

    static Map<String, String> metadata(Sandbox sandbox) {
        Map<String, String> metadata = new HashMap<>(sandbox.labels());
        metadata.keySet().removeIf(name -> name.startsWith(RESERVED));
        return metadata;
    }

    /** The labels of a new sandbox. */
    static Map<String, String> of(Map<String, String> metadata, String template, boolean isPrivate, boolean internet) {
        Map<String, String> labels = new HashMap<>(metadata);
        labels.keySet().forEach(name -> {
            if (name.startsWith(RESERVED)) {
                throw Text.invalid("metadata: names that begin with " + RESERVED + " are reserved");
            }
        });
        labels.put(TEMPLATE, template);
        if (isPrivate) {
            labels.put(PRIVATE, "true");
        }
        if (!internet) {
            labels.put(OFFLINE, "true");
        }
        return labels;
    }

    /** Whether nobody asked to have it without. */
    static boolean hasInternet(Sandbox sandbox) {
        return !sandbox.labels().containsKey(OFFLINE);
    }

    static boolean isPrivate(Sandbox sandbox) {
        return sandbox.labels().containsKey(PRIVATE);
    }

    /** What it was asked for as; its own template's id where it was not made by this protocol. */
    static String template(Sandbox sandbox) {
        return sandbox.labels().getOrDefault(TEMPLATE, sandbox.template());
    }
}

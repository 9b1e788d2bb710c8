package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ErrorCode;
import atoll.core.SnapshotId;
import atoll.core.template.Template;
import atoll.core.template.Templates;
import java.util.Map;
import java.util.Optional;

/** What a {@code templateID} names: one of this protocol's own templates, one of the installation's, or a snapshot. */
final class E2bTemplates {
    /** What stands for this protocol's own names: the one that has all that E2B's has, else one that this installation has from the start. */
    private static final Map<String, String> BEST =
            Map.of(E2bSettings.BASE, "base", E2bSettings.CODE_INTERPRETER, "data-science");

    private static final String ALWAYS = "python";

    private final Templates templates;
    private final E2bSettings settings;

    E2bTemplates(Templates templates, E2bSettings settings) {
        this.templates = templates;
        this.settings = settings;
    }

    /** One of the two. */
    record Source(Optional<String> template, Optional<SnapshotId> snapshot) {}

    Source find(Caller caller, String name) {
        if (name.startsWith(SnapshotId.PREFIX)) {
            try {
                return new Source(Optional.empty(), Optional.of(SnapshotId.parse(name)));
            } catch (AtollException e) {
                throw missing(name);
            }
        }
        String id = id(caller, name);
        try {
            Template found = template(caller, id);
            if (name.contains(":")
                    && !id.equals(tagless(name))
                    && !found.labels().containsKey(E2bLabels.TAG)) {
                throw missing(name);
            }
            return new Source(Optional.of(found.id()), Optional.empty());
        } catch (AtollException e) {
            if (e.code() == ErrorCode.TEMPLATE_NOT_FOUND) {
                throw missing(name);
            }
            throw e;
        }
    }

    /** The id of the installation's template that a name, perhaps with a tag, stands for; ids stand for themselves. */
    String id(Caller caller, String name) {
        if (!name.contains(":") && !name.contains("/")) {
            return name;
        }
        String tagged = isNamed(name) ? TemplateName.parse(name).id() : name;
        boolean isThere = templates.list(caller).stream()
                .anyMatch(template ->
                        template.id().equals(tagged) && template.labels().containsKey(E2bLabels.TAG));
        return isThere ? tagged : tagless(name);
    }

    private static boolean isNamed(String name) {
        try {
            return !TemplateName.parse(name).id().isEmpty();
        } catch (AtollException _) {
            return false;
        }
    }

    private static String tagless(String name) {
        return name.endsWith(":default") || name.endsWith(":latest") ? name.substring(0, name.lastIndexOf(':')) : name;
    }

    private Template template(Caller caller, String name) {
        String best = BEST.get(name);
        String wanted = settings.templates().get(name);
        if (best == null || wanted != null) {
            return templates.get(caller, wanted == null ? name : wanted);
        }
        // Sandboxes of one whose image is still to be made would come minutes later than an SDK waits.
        return templates.list(caller).stream()
                .filter(template ->
                        template.id().equals(best) && !template.packages().isEmpty())
                .findFirst()
                .orElseGet(() -> templates.get(caller, ALWAYS));
    }

    static AtollException missing(String name) {
        return new AtollException(
                ErrorCode.TEMPLATE_NOT_FOUND,
                "template '" + Text.shown(name) + "' not found",
                "",
                "GET /v1/templates lists those of this installation; base and code-interpreter-v1 are there too.");
    }
}

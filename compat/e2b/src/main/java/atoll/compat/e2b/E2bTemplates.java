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
    /** This protocol's names for the installation's templates. */
    private static final Map<String, String> OWN = Map.of("base", "python", "code-interpreter-v1", "python");

    private final Templates templates;

    E2bTemplates(Templates templates) {
        this.templates = templates;
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
        String tagless =
                name.endsWith(":default") || name.endsWith(":latest") ? name.substring(0, name.lastIndexOf(':')) : name;
        try {
            Template found = templates.get(caller, OWN.getOrDefault(tagless, tagless));
            return new Source(Optional.of(found.id()), Optional.empty());
        } catch (AtollException e) {
            if (e.code() == ErrorCode.TEMPLATE_NOT_FOUND) {
                throw missing(name);
            }
            throw e;
        }
    }

    private static AtollException missing(String name) {
        return new AtollException(
                ErrorCode.TEMPLATE_NOT_FOUND,
                "template '" + (name.length() > 128 ? name.substring(0, 128) + "…" : name) + "' not found",
                "",
                "GET /v1/templates lists those of this installation; base and code-interpreter-v1 are there too.");
    }
}

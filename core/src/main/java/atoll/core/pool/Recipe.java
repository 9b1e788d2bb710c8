package atoll.core.pool;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.node.Box;
import atoll.core.node.BoxSpec;
import atoll.core.node.ContextSpec;
import atoll.core.node.Image;
import atoll.core.node.Node;
import atoll.core.node.NodeSnapshot;
import atoll.core.node.RestoreBox;
import atoll.core.template.Limits;
import atoll.core.template.StartCommand;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What the boxes of a pool are made from, and the label that tells it: boxes and snapshots with another one are of no use. */
final class Recipe {
    private final Template template;
    private final TemplateCatalog catalog;
    private final Node node;
    /** What the node itself is built from. */
    private volatile String build = "";

    Recipe(Template template, TemplateCatalog catalog, Node node) {
        this.template = template;
        this.catalog = catalog;
        this.node = node;
    }

    void nodeIs(String newBuild) {
        build = newBuild;
    }

    /** The label of what is made today; empty as long as the node has no image of the template. */
    Optional<String> labelIfKnown() {
        return catalog.image(template).map(this::label);
    }

    /** A box of the pool, with the default language's kernel warm. */
    BoxSpec own() {
        Image image = image();
        return new BoxSpec(
                image.digest(), template.limits(), warm(), Map.of(Pools.LABEL, label(image)), template.runtime());
    }

    /** A box with other limits, for whoever asked for it: a server that finds it after a crash removes it, as it has no label. */
    BoxSpec unlabelled(Limits limits) {
        return new BoxSpec(image().digest(), limits, warm(), Map.of(), template.runtime());
    }

    /** A box without anything that runs. */
    BoxSpec prepared() {
        Image image = image();
        return new BoxSpec(
                image.digest(), template.limits(), List.of(), Map.of(Pools.LABEL, label(image)), template.runtime());
    }

    /** A box of the pool, from its golden snapshot; its contexts get ids of their own. */
    static RestoreBox copy(NodeSnapshot golden, Optional<BoxId> into, String label) {
        Map<ContextId, ContextId> renamed = new HashMap<>();
        golden.contexts().forEach(context -> renamed.put(context.id(), ContextId.random()));
        return new RestoreBox(
                Optional.of(golden.id()),
                Optional.empty(),
                into,
                Optional.empty(),
                renamed,
                List.of(),
                Map.of(Pools.LABEL, label),
                Optional.empty());
    }

    static String labelOf(Box box) {
        return box.labels().getOrDefault(Pools.LABEL, "");
    }

    static String labelOf(BoxSpec spec) {
        return spec.labels().getOrDefault(Pools.LABEL, "");
    }

    private List<ContextSpec> warm() {
        return latest().defaultLanguage().stream()
                .map(language -> ContextSpec.of(ContextId.random(), language))
                .toList();
    }

    /** The same template with what its image is known to have by now. */
    private Template latest() {
        return catalog.ofRecord(template.id(), template.version());
    }

    private Image image() {
        return catalog.image(template)
                .or(this::imageNow)
                .orElseThrow(() -> new AtollException(
                        ErrorCode.IMAGE_UNAVAILABLE,
                        "The image of template " + template.id() + " is not on the node.",
                        "It has not been built yet, or was removed.",
                        "Make a sandbox of the template, or `./atoll template build` it."));
    }

    /** The image may have been built since the node was last asked. */
    private Optional<Image> imageNow() {
        catalog.imagesSeen(node.images());
        return catalog.image(template);
    }

    private String label(Image image) {
        String made = String.join(
                "\n",
                image.digest(),
                template.limits().toString(),
                latest().defaultLanguage().map(Language::text).orElse(""),
                template.start().map(StartCommand::toString).orElse(""),
                template.runtime(),
                build);
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(made.getBytes(StandardCharsets.UTF_8));
            return Pools.labelPrefix(template.id()) + HexFormat.of().formatHex(hash, 0, 8);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}

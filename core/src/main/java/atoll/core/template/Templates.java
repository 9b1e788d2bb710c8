package atoll.core.template;

import atoll.core.BuildId;
import atoll.core.Caller;
import atoll.core.SandboxId;
import java.io.IOException;
import java.io.InputStream;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;

/** The templates a caller can use, and change. */
public interface Templates {
    /** The current versions, the default one first. */
    List<Template> list(Caller caller);

    Template get(Caller caller, String id);

    /** The same with how they are used and built. */
    List<Summary> summaries(Caller caller);

    /** One with its definition; of the newest version if none is named. */
    Detail detail(Caller caller, String id, Optional<Integer> version);

    /**
     * A new one, of version 1. Its image is built by a call, or when it is first used.
     *
     * @param id 1 to 63 of a-z, 0-9, {@code .}, {@code _} and {@code -}; {@code CONFLICT} if there is one
     */
    Detail create(Caller caller, String id, TemplateDefinition definition);

    /**
     * A new version with these changes; none if they change nothing. New sandboxes are made of it once its image is built; those that run
     * keep theirs.
     */
    Detail update(Caller caller, String id, Consumer<TemplateDraft> changes);

    /** Its sandboxes run on. {@code CONFLICT} for the default one. */
    void delete(Caller caller, String id);

    /** A new one that is defined as this one is. */
    Detail duplicate(Caller caller, String id, String newId, Optional<String> name);

    /** Sandboxes whose maker names no template are made of it from now on. */
    Detail setDefault(Caller caller, String id);

    /** The newest first. */
    List<Version> versions(Caller caller, String id);

    /** Keeps what its Dockerfile copies from; a new version, if the tar is another one. */
    Detail putContext(Caller caller, String id, InputStream tar) throws IOException;

    /** The Dockerfile that the version is built by; empty if it is an image or a recipe as it is. */
    String dockerfile(Caller caller, String id, Optional<Integer> version);

    /** A new one whose image is what is in a running sandbox at this moment. Returns when that is on the node. */
    Detail saveSandbox(Caller caller, SandboxId sandbox, String newId, Optional<String> name)
            throws InterruptedException;

    /**
     * Builds the image of the newest version, or the one named; the build that is under way, if it is the same.
     *
     * @param secrets for this build alone
     */
    Build build(Caller caller, String id, Optional<Integer> version, boolean noCache, BuildSecrets secrets);

    /** The same without secrets. */
    default Build build(Caller caller, String id, Optional<Integer> version, boolean noCache) {
        return build(caller, id, version, noCache, BuildSecrets.NONE);
    }

    /** The newest first. */
    List<Build> builds(Caller caller, String id);

    Build build(Caller caller, String id, BuildId build);

    /** No error if it has ended. */
    Build cancel(Caller caller, String id, BuildId build) throws InterruptedException;

    /** What happened in it so far and, if followed, what happens until it has ended. */
    BuildLog log(Caller caller, String id, BuildId build, boolean follow);

    /** How a template is used and built. */
    record Summary(
            Template template,
            boolean isDefault,
            boolean builtIn,
            int newest,
            Optional<String> imageDigest,
            BuildState build,
            Optional<Build> lastBuild,
            TemplateUsage usage,
            Instant createdAt,
            Instant updatedAt) {}

    /** Whether the image of the newest version is there, or on its way. */
    enum BuildState {
        NONE,
        QUEUED,
        BUILDING,
        READY,
        FAILED,
        CANCELLED
    }

    /** All of a template. */
    record Detail(Summary summary, TemplateDefinition definition) {}

    /** A version, as listed. */
    record Version(Template template, boolean current, Optional<String> imageDigest, Instant createdAt) {}
}

package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.node.ContextSpec;
import atoll.core.node.Node;
import atoll.core.node.NodeContext;
import atoll.core.store.Store;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.time.InstantSource;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.BiFunction;

/** Finds the contexts that calls go to, and opens those that are not there yet. */
final class ContextOpener {
    private final Store store;
    private final Node node;
    private final TemplateCatalog templates;
    private final InstantSource clock;
    /** What a failure of the node means to the caller. */
    private final BiFunction<LiveSandbox, RuntimeException, RuntimeException> translation;

    ContextOpener(
            Store store,
            Node node,
            TemplateCatalog templates,
            InstantSource clock,
            BiFunction<LiveSandbox, RuntimeException, RuntimeException> translation) {
        this.store = store;
        this.node = node;
        this.templates = templates;
        this.clock = clock;
        this.translation = translation;
    }

    static ContextSpec spec(Context context) {
        return new ContextSpec(context.id(), context.language(), context.cwd(), context.env());
    }

    /** The context that a call goes to which names at most a language. It is opened if the sandbox has none of that language. */
    Context byLanguage(LiveSandbox sandbox, Optional<Language> language) throws InterruptedException {
        Template template = templates.ofRecord(
                sandbox.sandbox().template(), sandbox.sandbox().templateVersion());
        Language chosen = templates.choose(sandbox.sandbox().project(), template, language);
        CompletableFuture<Context> mine = new CompletableFuture<>();
        Optional<CompletableFuture<Context>> there = sandbox.defaultContext(chosen, mine);
        if (there.isEmpty()) {
            open(sandbox, chosen, mine);
        }
        try {
            return there.orElse(mine).get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof AtollException known) {
                throw known;
            }
            throw AtollException.internal("the context could not be opened", e.getCause());
        }
    }

    private void open(LiveSandbox sandbox, Language language, CompletableFuture<Context> mine) {
        Context context = new Context(
                ContextId.random(), sandbox.sandbox().project(), sandbox.id(), language, true, clock.instant());
        try {
            NodeContext opened = node.openContext(sandbox.box(), spec(context));
            assert opened.id().equals(context.id());
            store.insertContextLater(context);
            sandbox.add(context);
            mine.complete(context);
        } catch (RuntimeException e) {
            sandbox.notOpened(language);
            mine.completeExceptionally(translation.apply(sandbox, e));
        }
    }

    /** Opens a context again that the node has lost; its state is gone. */
    void reopen(LiveSandbox sandbox, Context context) {
        NodeContext opened = node.openContext(sandbox.box(), spec(context));
        assert opened.id().equals(context.id());
    }

    /** A context by its id; {@code language}, if named too, must be its own. */
    static Context byId(LiveSandbox sandbox, ContextId id, Optional<Language> language) {
        Context context = sandbox.context(id)
                .orElseThrow(() -> new AtollException(
                        ErrorCode.CONTEXT_NOT_FOUND,
                        "context: " + id + " was not found in sandbox " + sandbox.id(),
                        "",
                        "Leave context_id out for the sandbox's own context."));
        if (language.isPresent() && language.get() != context.language()) {
            throw AtollException.invalid(
                    "language: " + language.get() + " for context " + id + " (expected: its own, " + context.language()
                            + ")",
                    "Leave out the language or the context.");
        }
        return context;
    }
}

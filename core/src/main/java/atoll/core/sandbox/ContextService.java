package atoll.core.sandbox;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.Language;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.node.Node;
import atoll.core.node.NodeContext;
import atoll.core.store.Store;
import atoll.core.template.Template;
import atoll.core.template.TemplateCatalog;
import java.time.InstantSource;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Predicate;

/** Contexts as callers see and change them. */
public final class ContextService implements Contexts {
    private final SandboxService sandboxes;
    private final TemplateCatalog templates;
    private final Store store;
    private final Node node;
    private final InstantSource clock;
    /** Whether code runs in one, or waits for it. */
    private final Predicate<ContextId> busy;

    public ContextService(
            SandboxService sandboxes,
            TemplateCatalog templates,
            Store store,
            Node node,
            InstantSource clock,
            Predicate<ContextId> busy) {
        this.sandboxes = sandboxes;
        this.templates = templates;
        this.store = store;
        this.node = node;
        this.clock = clock;
        this.busy = busy;
    }

    @Override
    public SeenContext create(Caller caller, SandboxId sandbox, CreateContext request) {
        LiveSandbox alive = sandboxes.requireRunning(caller, sandbox);
        Template template =
                templates.ofRecord(alive.sandbox().template(), alive.sandbox().templateVersion());
        Language language =
                templates.choose(caller.project(), template, request.language().map(Language::parse));
        Context context = new Context(
                ContextId.random(),
                alive.sandbox().project(),
                sandbox,
                language,
                false,
                request.cwd(),
                request.env(),
                clock.instant());
        // On record before it is there: a crash in between leaves one that is opened when it is first used.
        store.insertContextLater(context);
        try {
            NodeContext opened = node.openContext(alive.box(), SandboxService.spec(context));
            if (opened.state() == NodeContext.State.FAILED) {
                throw AtollException.invalid(
                        "context: its " + language + " interpreter did not start: " + opened.detail(),
                        "Check that the folder cwd is there; the sandbox itself is well.");
            }
            alive.add(context);
            return new SeenContext(context, Optional.of(opened));
        } catch (RuntimeException e) {
            store.closeContextLater(context.id(), clock.instant());
            throw sandboxes.translated(alive, e);
        }
    }

    @Override
    public List<SeenContext> list(Caller caller, SandboxId sandbox) {
        Sandbox owned = sandboxes.get(caller, sandbox);
        Map<ContextId, NodeContext> seen = new HashMap<>();
        if (owned.state() == SandboxState.RUNNING) {
            seen(owned).forEach(context -> seen.put(context.id(), busy(context)));
        }
        return store.contexts(sandbox).stream()
                .map(context -> new SeenContext(context, Optional.ofNullable(seen.get(context.id()))))
                .toList();
    }

    private NodeContext busy(NodeContext context) {
        return context.state() == NodeContext.State.IDLE && busy.test(context.id()) ? context.running() : context;
    }

    private List<NodeContext> seen(Sandbox sandbox) {
        try {
            return node.contexts(sandbox.box());
        } catch (AtollException e) {
            // It ended in this moment.
            if (e.code() == ErrorCode.NOT_FOUND || e.code() == ErrorCode.CONFLICT) {
                return List.of();
            }
            throw e;
        }
    }

    @Override
    public SeenContext get(Caller caller, SandboxId sandbox, ContextId id) {
        return list(caller, sandbox).stream()
                .filter(seen -> seen.context().id().equals(id))
                .findFirst()
                .orElseThrow(() -> notFound(sandbox, id));
    }

    @Override
    public SeenContext restart(Caller caller, SandboxId sandbox, ContextId id) {
        caller.require(Scope.EXECUTE);
        LiveSandbox alive = sandboxes.requireRunning(caller, sandbox);
        Context context = sandboxes.context(alive, id, Optional.empty());
        try {
            return new SeenContext(context, Optional.of(node.restartContext(alive.box(), id)));
        } catch (AtollException e) {
            RuntimeException told = sandboxes.translated(alive, e);
            if (told == e && e.code() == ErrorCode.NOT_FOUND) {
                // The node has lost it: opened again, it is as fresh as after a restart.
                return new SeenContext(
                        context, Optional.of(node.openContext(alive.box(), SandboxService.spec(context))));
            }
            throw told;
        }
    }

    @Override
    public void close(Caller caller, SandboxId sandbox, ContextId id) {
        LiveSandbox alive = sandboxes.requireRunning(caller, sandbox);
        Context context = sandboxes.context(alive, id, Optional.empty());
        // Stored first: what the node still has then is never used again and goes with its box.
        store.closeContextLater(id, clock.instant());
        alive.remove(context);
        try {
            node.closeContext(alive.box(), id);
        } catch (AtollException e) {
            if (e.code() != ErrorCode.NOT_FOUND) {
                throw sandboxes.translated(alive, e);
            }
        }
    }

    private static AtollException notFound(SandboxId sandbox, ContextId id) {
        return new AtollException(
                ErrorCode.CONTEXT_NOT_FOUND,
                "context: " + id + " was not found in sandbox " + sandbox,
                "There is none of that id, or it was closed.",
                "GET /v1/sandboxes/" + sandbox + "/contexts lists those that are there.");
    }
}

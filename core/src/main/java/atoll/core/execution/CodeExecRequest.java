package atoll.core.execution;

import atoll.core.AtollException;
import atoll.core.ContextId;
import atoll.core.ErrorCode;
import atoll.core.SandboxId;
import atoll.core.sandbox.Labels;
import atoll.core.store.OnceByKey;
import atoll.core.template.LimitChanges;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/**
 * One run of code, as a caller asks for it.
 *
 * @param template the template of a new sandbox, by id; without it the one of the language, or the default
 * @param language a name that {@link atoll.core.Language#parse} knows; without it the sandbox's or the template's own
 * @param sandboxId the sandbox to run in; without it one is taken from the template's pool
 * @param contextId the context to run in; without it the sandbox's default one of the language
 * @param timeout from the moment the code starts; without it the template's
 * @param env set for this execution only
 * @param limits of a new sandbox, where they differ from the template's
 * @param labels of a new sandbox
 * @param listFiles whether the outcome is to list the files that it has made or changed
 * @param idempotencyKey the same key with the same request gives the same execution; with another request, {@code CONFLICT}
 */
public record CodeExecRequest(
        String code,
        Optional<String> template,
        Optional<String> language,
        Optional<SandboxId> sandboxId,
        Optional<ContextId> contextId,
        Optional<Duration> timeout,
        Map<String, String> env,
        LimitChanges limits,
        Map<String, String> labels,
        Optional<String> idempotencyKey,
        boolean listFiles) {

    /** Longer code is refused; the node takes no more. */
    public static final int MAX_CODE_BYTES = 16 * 1024 * 1024;

    public CodeExecRequest {
        env = Variables.check(Map.copyOf(env));
        labels = Labels.check(Map.copyOf(labels));
        long bytes = Variables.utf8Bytes(code);
        if (bytes > MAX_CODE_BYTES) {
            throw new AtollException(
                    ErrorCode.REQUEST_TOO_LARGE,
                    "code: " + bytes + " bytes (expected: at most " + MAX_CODE_BYTES + ")",
                    "",
                    "Put large data into a file of the sandbox and read it from there.");
        }
        timeout.ifPresent(CodeExecRequest::checkTimeout);
        idempotencyKey.ifPresent(OnceByKey::check);
        if (sandboxId.isPresent() && template.isPresent()) {
            throw AtollException.invalid(
                    "template: \"" + template.get() + "\" with a sandbox_id (expected: one of both)",
                    "A sandbox keeps the template it was made from: leave the template out.");
        }
        if (sandboxId.isPresent() && (!limits.equals(LimitChanges.NONE) || !labels.isEmpty())) {
            throw AtollException.invalid(
                    "limits or labels with a sandbox_id (expected: only for a new sandbox)",
                    "PATCH /v1/sandboxes/" + sandboxId.get() + " changes those of a sandbox that is there.");
        }
        if (contextId.isPresent() && sandboxId.isEmpty()) {
            throw AtollException.invalid(
                    "context_id without sandbox_id (expected: both)", "Name the sandbox that the context is in.");
        }
    }

    public static CodeExecRequest of(String code) {
        return new CodeExecRequest(
                code,
                Optional.empty(),
                Optional.empty(),
                Optional.empty(),
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                LimitChanges.NONE,
                Map.of(),
                Optional.empty(),
                false);
    }

    public CodeExecRequest in(SandboxId sandbox) {
        return new CodeExecRequest(
                code,
                template,
                language,
                Optional.of(sandbox),
                contextId,
                timeout,
                env,
                limits,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest in(ContextId context) {
        return new CodeExecRequest(
                code,
                template,
                language,
                sandboxId,
                Optional.of(context),
                timeout,
                env,
                limits,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest withTemplate(String id) {
        return new CodeExecRequest(
                code,
                Optional.of(id),
                language,
                sandboxId,
                contextId,
                timeout,
                env,
                limits,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest withLanguage(String name) {
        return new CodeExecRequest(
                code,
                template,
                Optional.of(name),
                sandboxId,
                contextId,
                timeout,
                env,
                limits,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest withTimeout(Duration limit) {
        return new CodeExecRequest(
                code,
                template,
                language,
                sandboxId,
                contextId,
                Optional.of(limit),
                env,
                limits,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest withEnv(Map<String, String> variables) {
        return new CodeExecRequest(
                code,
                template,
                language,
                sandboxId,
                contextId,
                timeout,
                variables,
                limits,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest withLimits(LimitChanges changes) {
        return new CodeExecRequest(
                code,
                template,
                language,
                sandboxId,
                contextId,
                timeout,
                env,
                changes,
                labels,
                idempotencyKey,
                listFiles);
    }

    public CodeExecRequest withLabels(Map<String, String> named) {
        return new CodeExecRequest(
                code, template, language, sandboxId, contextId, timeout, env, limits, named, idempotencyKey, listFiles);
    }

    public CodeExecRequest withIdempotencyKey(String key) {
        return new CodeExecRequest(
                code,
                template,
                language,
                sandboxId,
                contextId,
                timeout,
                env,
                limits,
                labels,
                Optional.of(key),
                listFiles);
    }

    public CodeExecRequest withFilesListed() {
        return new CodeExecRequest(
                code, template, language, sandboxId, contextId, timeout, env, limits, labels, idempotencyKey, true);
    }

    private static void checkTimeout(Duration timeout) {
        if (timeout.compareTo(Duration.ofMillis(1)) < 0) {
            throw AtollException.invalid(
                    "timeout: " + timeout.toNanos() / 1e9 + " s (expected: at least 0.001 s)",
                    "Give a longer timeout, or leave it out for the template's.");
        }
    }
}

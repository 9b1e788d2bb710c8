package atoll.core;

import atoll.core.execution.CodeExecution;
import atoll.core.execution.Executions;
import atoll.core.sandbox.Sandboxes;
import atoll.core.template.Templates;

/** Everything that callers can do, as one object for adapters. Made by {@code AtollCore.start}. */
public interface Atoll {
    CodeExecution codeExecution();

    Executions executions();

    Keys keys();

    Sandboxes sandboxes();

    Templates templates();

    ServerStatus status();
}

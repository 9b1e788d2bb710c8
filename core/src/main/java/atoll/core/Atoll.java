package atoll.core;

import atoll.core.event.Events;
import atoll.core.execution.CodeExecution;
import atoll.core.execution.Executions;
import atoll.core.file.Files;
import atoll.core.port.Ports;
import atoll.core.process.Processes;
import atoll.core.sandbox.Contexts;
import atoll.core.sandbox.Forks;
import atoll.core.sandbox.Sandboxes;
import atoll.core.snapshot.Snapshots;
import atoll.core.stats.Stats;
import atoll.core.template.BuildUploads;
import atoll.core.template.Images;
import atoll.core.template.Registries;
import atoll.core.template.Templates;
import atoll.core.usage.Usage;

/** Everything that callers can do, as one object for adapters. Made by {@code AtollCore.start}. */
public interface Atoll {
    CodeExecution codeExecution();

    Contexts contexts();

    Executions executions();

    Events events();

    Files files();

    Forks forks();

    Keys keys();

    Ports ports();

    Processes processes();

    Sandboxes sandboxes();

    Sessions sessions();

    Snapshots snapshots();

    Templates templates();

    BuildUploads uploads();

    Images images();

    Registries registries();

    SandboxTokens tokens();

    Usage usage();

    Stats stats();

    ServerStatus status();
}

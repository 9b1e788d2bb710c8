package atoll.ui;

import atoll.core.Atoll;
import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.PageRequest;
import atoll.core.ProcessId;
import atoll.core.ProjectId;
import atoll.core.SandboxId;
import atoll.core.Scope;
import atoll.core.SnapshotId;
import atoll.core.event.EventQuery;
import atoll.core.execution.ExecutionOutcome;
import atoll.core.execution.ExecutionQuery;
import atoll.core.execution.ExecutionRecord;
import atoll.core.execution.ExitReason;
import atoll.core.process.ProcessQuery;
import atoll.core.process.ProcessRecord;
import atoll.core.process.ProcessRef;
import atoll.core.sandbox.EndReason;
import atoll.core.sandbox.ForkSandbox;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.OnTimeout;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxQuery;
import atoll.core.sandbox.SandboxState;
import atoll.core.snapshot.CreateSnapshot;
import atoll.core.snapshot.Snapshot;
import atoll.core.snapshot.SnapshotKind;
import atoll.core.snapshot.SnapshotQuery;
import atoll.http.Form;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** One sandbox: what happened to it, what ran in it, what it is a copy of; its terminal, files and processes; and what can be done with it. */
public final class SandboxPage implements Page {
    private static final int SHOWN_EVENTS = 50;
    private static final int SHOWN_EXECUTIONS = 10;
    private static final int SHOWN_SNAPSHOTS = 20;
    private static final int SHOWN_PROCESSES = 50;
    private static final int SHOWN_CHARS = 1000;
    private static final int MOST_IN_TREE = 200;
    private static final int MOST_LOOKED_AT = 5000;
    private static final int MOST_ANCESTORS = 50;

    private final Atoll atoll;
    private final String domain;
    private final Map<ProjectId, Known> known = new ConcurrentHashMap<>();

    SandboxPage(Atoll atoll, UiSettings settings) {
        this.atoll = atoll;
        this.domain = settings.domain().orElse("");
    }

    /** Who is a copy of whom, as it was after that event: nothing changes without one. */
    private record Known(long cursor, Map<SandboxId, List<SandboxId>> copies) {}

    /**
     * What every tab shows above its own.
     *
     * @param expires what its lifetime comes to, in words
     */
    public record Head(
            SandboxesPage.Row row, String expires, String disk, String labels, String formToken, boolean mayChange) {}

    public record Happening(long cursor, String at, String kind, String color, String detail) {}

    /** One execution, its texts cut. */
    public record Ran(
            String id,
            String language,
            String at,
            String state,
            String color,
            String duration,
            String code,
            String output) {}

    public record Kept(
            String id, String name, String kind, String state, String size, String at, boolean ready, boolean pause) {}

    /** A sandbox in the tree of forks; {@code self} is the one whose page it is. */
    public record Branch(
            String id, String label, String state, String color, String reason, boolean self, List<Branch> forks) {}

    public record Program(
            String id,
            String pid,
            String command,
            String user,
            String at,
            String state,
            String color,
            String detail,
            boolean terminal,
            boolean running) {}

    public record Tab(String path, String title, boolean current) {}

    public record Programs(String sandbox, List<Program> programs, String formToken, boolean mayChange) {}

    /** The first tab. */
    public record Overview(
            Head head, List<Happening> events, List<Ran> executions, List<Kept> snapshots, Optional<Branch> tree) {}

    @Override
    public void addTo(Site site) {
        site.page(
                        "/ui/sandboxes/{id}",
                        visit -> tab(visit, "", "sandboxes/detail")
                                .with("model", overview(visit))
                                .live("/ui/live/sandboxes/" + id(visit))
                                .style("vendor/uplot.min.css")
                                .script("vendor/uplot.min.js")
                                .script("sandbox-usage.js"))
                .live("/ui/live/sandboxes/{id}", this::overviewLive)
                .page(
                        "/ui/sandboxes/{id}/terminal",
                        visit -> tab(visit, "terminal", "sandboxes/terminal")
                                .live("/ui/live/sandboxes/" + id(visit) + "/head")
                                .style("vendor/xterm.css")
                                .script("vendor/xterm.js")
                                .script("vendor/xterm-fit.js")
                                .script("sandbox-terminal.js")
                                .allowInlineStyles())
                .page(
                        "/ui/sandboxes/{id}/files",
                        visit -> tab(visit, "files", "sandboxes/files")
                                .live("/ui/live/sandboxes/" + id(visit) + "/head")
                                .script("sandbox-files.js"))
                .live(
                        "/ui/live/sandboxes/{id}/head",
                        visit -> Map.of(
                                "head", View.fragment("sandboxes/head").with("head", head(visit, sandbox(visit)))))
                .page(
                        "/ui/sandboxes/{id}/processes",
                        visit -> tab(visit, "processes", "sandboxes/processes")
                                .with("model", programs(visit))
                                .with("domain", domain)
                                .live("/ui/live/sandboxes/" + id(visit) + "/processes")
                                .script("sandbox-processes.js"))
                .live(
                        "/ui/live/sandboxes/{id}/processes",
                        visit -> Map.of(
                                "head", View.fragment("sandboxes/head").with("head", head(visit, sandbox(visit))),
                                "programs", View.fragment("sandboxes/programs").with("model", programs(visit))));
        actions(site);
    }

    private void actions(Site site) {
        site.action("/ui/sandboxes/{id}/pause", (visit, form) -> {
                    SnapshotKind keep = form.text("keep").equals("files") ? SnapshotKind.FILES : SnapshotKind.MEMORY;
                    atoll.sandboxes().pause(visit.caller(), id(visit), keep);
                    return back(visit, form).saying("Paused");
                })
                .action("/ui/sandboxes/{id}/resume", (visit, form) -> {
                    atoll.sandboxes().resume(visit.caller(), id(visit), Optional.empty());
                    return back(visit, form).saying("Resumed");
                })
                .action("/ui/sandboxes/{id}/kill", (visit, form) -> {
                    atoll.sandboxes().delete(visit.caller(), id(visit));
                    return back(visit, form).saying("Ended");
                })
                .action("/ui/sandboxes/{id}/fork", this::fork)
                .action("/ui/sandboxes/{id}/snapshot", (visit, form) -> {
                    SnapshotKind kind = form.text("kind").equals("files") ? SnapshotKind.FILES : SnapshotKind.MEMORY;
                    var request =
                            new CreateSnapshot(kind, form.given("name"), Optional.empty(), Map.of(), Optional.empty());
                    Snapshot made = atoll.snapshots().create(visit.caller(), id(visit), request);
                    return Outcome.to(path(id(visit)))
                            .saying("Snapshot made: " + Format.bytes(made.sizeBytes())
                                    + ", the sandbox stood still for " + Format.duration(made.stopped()));
                })
                .action("/ui/sandboxes/{id}/rollback", (visit, form) -> {
                    atoll.snapshots().rollback(visit.caller(), id(visit), SnapshotId.parse(form.text("snapshot")));
                    return Outcome.to(path(id(visit))).saying("Rolled back");
                })
                .action("/ui/sandboxes/{id}/snapshots/{snapshot}/delete", (visit, _) -> {
                    atoll.snapshots().delete(visit.caller(), SnapshotId.parse(visit.path("snapshot")));
                    return Outcome.to(path(id(visit))).saying("Snapshot deleted");
                })
                .action("/ui/sandboxes/{id}/processes/{process}/kill", (visit, _) -> {
                    ProcessRef process = ProcessRef.of(id(visit), ProcessId.parse(visit.path("process")));
                    atoll.processes().kill(visit.caller(), process);
                    return Outcome.to(path(id(visit)) + "/processes").saying("Killed");
                });
    }

    private Outcome fork(Visit visit, Form form) throws InterruptedException {
        int count = form.given("count")
                .map(text -> SandboxesPage.number("count", text).intValue())
                .orElse(1);
        var request =
                new ForkSandbox(count, Map.of(), Map.of(), form.given("name"), LifecycleChanges.NONE, Optional.empty());
        List<Sandbox> copies = atoll.forks().fork(visit.caller(), id(visit), request);
        return copies.size() == 1
                ? Outcome.to(path(copies.getFirst().id())).saying("This is the fork")
                : Outcome.to(path(id(visit))).saying(copies.size() + " forks made");
    }

    static String path(SandboxId id) {
        return SandboxesPage.PATH + "/" + id;
    }

    private static SandboxId id(Visit visit) {
        return SandboxId.parse(visit.path("id"));
    }

    /** Where the form was: the list, or this sandbox. */
    private static Outcome back(Visit visit, Form form) {
        return Outcome.to(form.text("from").equals("list") ? SandboxesPage.PATH : path(id(visit)));
    }

    private Sandbox sandbox(Visit visit) {
        visit.caller().require(Scope.READ);
        return atoll.sandboxes().get(visit.caller(), id(visit));
    }

    private View tab(Visit visit, String tab, String template) {
        Sandbox sandbox = sandbox(visit);
        String path = path(sandbox.id());
        List<Tab> tabs = new ArrayList<>();
        tabs.add(new Tab(path, "Overview", tab.isEmpty()));
        for (String one : List.of("terminal", "files", "processes")) {
            String title = switch (one) {
                case "terminal" -> "Terminal";
                case "files" -> "Files";
                default -> "Processes and ports";
            };
            tabs.add(new Tab(path + "/" + one, title, tab.equals(one)));
        }
        String title = sandbox.name().orElse(sandbox.id().toString());
        return View.page(Nav.SANDBOXES, title, template)
                .with("head", head(visit, sandbox))
                .with("tabs", List.copyOf(tabs));
    }

    private static Head head(Visit visit, Sandbox sandbox) {
        return new Head(
                SandboxesPage.row(sandbox),
                expires(sandbox),
                Format.bytes(sandbox.limits().diskBytes()),
                String.join(
                        ", ",
                        sandbox.labels().entrySet().stream()
                                .sorted(Map.Entry.comparingByKey())
                                .map(label -> label.getKey() + "=" + label.getValue())
                                .toList()),
                visit.formToken(),
                visit.mayExecute());
    }

    private static String expires(Sandbox sandbox) {
        if (sandbox.end().isPresent()) {
            return "";
        }
        String what = sandbox.lifecycle().onTimeout() == OnTimeout.PAUSE ? "paused" : "ended";
        String idle = sandbox.lifecycle()
                .idleTimeout()
                .map(time -> what + " when not used for " + Format.duration(time))
                .orElse("");
        return sandbox.expiresAt()
                .map(at -> what + " at " + Format.time(at) + (idle.isEmpty() ? "" : ", or " + idle))
                .orElse(idle.isEmpty() ? "no bound" : idle);
    }

    private Overview overview(Visit visit) {
        Caller caller = visit.caller();
        Sandbox sandbox = sandbox(visit);
        var page = new PageRequest(SHOWN_EVENTS, Optional.empty());
        return new Overview(
                head(visit, sandbox),
                atoll
                        .events()
                        .ofSandbox(
                                caller,
                                sandbox.id(),
                                new EventQuery(Optional.empty(), Set.of(), EventQuery.Order.NEWEST_FIRST, page))
                        .items()
                        .stream()
                        .map(event -> new Happening(
                                event.cursor(),
                                Format.time(event.at()),
                                words(event.kind()),
                                color(event.kind()),
                                event.kind().equals("sandbox.ended") ? reason(event.detail()) : event.detail()))
                        .toList(),
                atoll
                        .executions()
                        .list(
                                caller,
                                new ExecutionQuery(
                                        Optional.of(sandbox.id()),
                                        Optional.empty(),
                                        Optional.empty(),
                                        new PageRequest(SHOWN_EXECUTIONS, Optional.empty())))
                        .items()
                        .stream()
                        .map(SandboxPage::ran)
                        .toList(),
                atoll
                        .snapshots()
                        .list(
                                caller,
                                new SnapshotQuery(
                                        Optional.of(sandbox.id()),
                                        Optional.empty(),
                                        Optional.empty(),
                                        Map.of(),
                                        new PageRequest(SHOWN_SNAPSHOTS, Optional.empty())))
                        .items()
                        .stream()
                        .map(snapshot -> kept(snapshot, sandbox))
                        .toList(),
                tree(caller, sandbox));
    }

    private Map<String, View> overviewLive(Visit visit) {
        Overview now = overview(visit);
        return Map.of(
                "head", View.fragment("sandboxes/head").with("head", now.head()),
                "timeline", View.fragment("sandboxes/timeline").with("model", now),
                "executions", View.fragment("sandboxes/executions").with("model", now),
                "snapshots", View.fragment("sandboxes/snapshots").with("model", now),
                "tree", View.fragment("sandboxes/tree").with("model", now));
    }

    /** {@code sandbox.rolled_back} as {@code Rolled back}. */
    private static String words(String kind) {
        String text = kind.replace("sandbox.", "").replace('.', ' ').replace('_', ' ');
        return text.isEmpty() ? kind : text.substring(0, 1).toUpperCase(Locale.ROOT) + text.substring(1);
    }

    /** Of the event of an end, which names the reason as the API does. */
    private static String reason(String text) {
        return Arrays.stream(EndReason.values())
                .filter(reason -> reason.text().equals(text))
                .findFirst()
                .map(SandboxesPage::words)
                .orElse(text);
    }

    private static String color(String kind) {
        return switch (kind) {
            case "sandbox.started", "sandbox.resumed" -> "good";
            case "sandbox.paused" -> "info";
            case "sandbox.ended" -> "bad";
            default -> "";
        };
    }

    private static Ran ran(ExecutionRecord record) {
        Optional<ExecutionOutcome> outcome = record.outcome();
        return new Ran(
                record.id().toString(),
                record.language().text(),
                Format.time(record.createdAt()),
                outcome.map(end -> end.exitReason().text().replace('_', ' ')).orElse("running"),
                outcome.map(end -> color(end.exitReason())).orElse("info"),
                outcome.map(end -> Format.duration(end.duration())).orElse(""),
                beginning(record.code()),
                outcome.map(SandboxPage::output).orElse(""));
    }

    private static String output(ExecutionOutcome outcome) {
        String error = outcome.error()
                .map(thrown ->
                        thrown.traceback().isEmpty() ? thrown.name() + ": " + thrown.message() : thrown.traceback())
                .orElse(outcome.detail());
        String printed = Format.plain(outcome.output().text());
        return beginning(printed.isEmpty() ? Format.plain(error) : printed);
    }

    private static String color(ExitReason reason) {
        return switch (reason) {
            case COMPLETED, EXITED -> "good";
            case INTERRUPTED, TIMEOUT, SANDBOX_ENDED, LOST -> "warn";
            case ERROR, OUT_OF_MEMORY, KERNEL_DIED -> "bad";
        };
    }

    private static String beginning(String text) {
        if (text.length() <= SHOWN_CHARS) {
            return text;
        }
        int end = Character.isHighSurrogate(text.charAt(SHOWN_CHARS - 1)) ? SHOWN_CHARS - 1 : SHOWN_CHARS;
        return text.substring(0, end) + "…";
    }

    private static Kept kept(Snapshot snapshot, Sandbox sandbox) {
        String state = snapshot.state().text();
        return new Kept(
                snapshot.id().toString(),
                snapshot.name().orElse(""),
                snapshot.kind().text(),
                snapshot.detail().isEmpty() ? state : state + ": " + snapshot.detail(),
                Format.bytes(snapshot.sizeBytes()),
                Format.time(snapshot.createdAt()),
                state.equals("ready"),
                sandbox.pausedIn().filter(snapshot.id()::equals).isPresent());
    }

    // The tree of forks.

    private Optional<Branch> tree(Caller caller, Sandbox self) {
        Map<SandboxId, List<SandboxId>> copies = copies(caller);
        Sandbox root = self;
        Set<SandboxId> above = new HashSet<>(Set.of(self.id()));
        Optional<SandboxId> parent = parent(root);
        while (parent.isPresent() && above.size() < MOST_ANCESTORS && above.add(parent.get())) {
            Optional<Sandbox> next = find(caller, parent.get());
            if (next.isEmpty()) {
                break;
            }
            root = next.get();
            parent = parent(root);
        }
        if (root.id().equals(self.id())
                && copies.getOrDefault(self.id(), List.of()).isEmpty()) {
            return Optional.empty();
        }
        return Optional.of(branch(caller, root, self.id(), copies, new HashSet<>()));
    }

    private Branch branch(
            Caller caller,
            Sandbox sandbox,
            SandboxId self,
            Map<SandboxId, List<SandboxId>> copies,
            Set<SandboxId> shown) {
        shown.add(sandbox.id());
        List<Branch> forks = new ArrayList<>();
        for (SandboxId copy : copies.getOrDefault(sandbox.id(), List.of())) {
            if (shown.size() < MOST_IN_TREE && !shown.contains(copy)) {
                find(caller, copy).ifPresent(there -> forks.add(branch(caller, there, self, copies, shown)));
            }
        }
        return new Branch(
                sandbox.id().toString(),
                sandbox.name().orElse(sandbox.id().toString()),
                sandbox.state().text(),
                SandboxesPage.color(sandbox.state()),
                sandbox.end().map(end -> SandboxesPage.words(end.reason())).orElse(""),
                sandbox.id().equals(self),
                forks);
    }

    private static Optional<SandboxId> parent(Sandbox sandbox) {
        return sandbox.origin().flatMap(Sandbox.Origin::sandbox);
    }

    /** It may be past its retention. */
    private Optional<Sandbox> find(Caller caller, SandboxId id) {
        try {
            return Optional.of(atoll.sandboxes().get(caller, id));
        } catch (AtollException _) {
            return Optional.empty();
        }
    }

    /** Looked up anew only when something has happened: pages ask for it twice a second. */
    private Map<SandboxId, List<SandboxId>> copies(Caller caller) {
        var newest = new EventQuery(
                Optional.empty(), Set.of(), EventQuery.Order.NEWEST_FIRST, new PageRequest(1, Optional.empty()));
        long cursor = atoll.events().list(caller, newest).items().stream()
                .mapToLong(event -> event.cursor())
                .findFirst()
                .orElse(0);
        Known before = known.get(caller.project());
        if (before != null && before.cursor() == cursor) {
            return before.copies();
        }
        Map<SandboxId, List<SandboxId>> copies = new HashMap<>();
        Optional<String> from = Optional.empty();
        int looked = 0;
        do {
            var query = new SandboxQuery(
                    Set.<SandboxState>of(),
                    Optional.empty(),
                    Optional.empty(),
                    Map.of(),
                    new PageRequest(PageRequest.MAX_LIMIT, from));
            atoll.core.Page<Sandbox> page = atoll.sandboxes().list(caller, query);
            for (Sandbox sandbox : page.items()) {
                parent(sandbox)
                        .ifPresent(of -> copies.computeIfAbsent(of, _ -> new ArrayList<>())
                                .addFirst(sandbox.id()));
            }
            looked += page.items().size();
            from = page.next();
        } while (from.isPresent() && looked < MOST_LOOKED_AT);
        known.put(caller.project(), new Known(cursor, copies));
        return copies;
    }

    // Processes.

    private Programs programs(Visit visit) {
        var query = new ProcessQuery(
                Optional.of(id(visit)), Optional.empty(), Map.of(), new PageRequest(SHOWN_PROCESSES, Optional.empty()));
        return new Programs(
                visit.path("id"),
                atoll.processes().list(visit.caller(), query).items().stream()
                        .map(SandboxPage::program)
                        .toList(),
                visit.formToken(),
                visit.mayExecute());
    }

    private static Program program(ProcessRecord process) {
        return new Program(
                process.id().toString(),
                process.pid() == 0 ? "" : String.valueOf(process.pid()),
                beginning(process.command().orElse(String.join(" ", process.argv()))),
                process.user(),
                Format.time(process.createdAt()),
                process.end().map(end -> end.reason().text().replace('_', ' ')).orElse("running"),
                process.end()
                        .map(end -> end.exitCode().orElse(1) == 0 ? "" : "warn")
                        .orElse("good"),
                process.end()
                        .map(end -> end.exitCode().isPresent()
                                ? "exit code " + end.exitCode().getAsInt()
                                : end.detail())
                        .orElse(""),
                process.terminal().isPresent(),
                process.running());
    }
}

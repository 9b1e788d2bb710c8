package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.execution.CodeExecRequest;
import atoll.core.node.BoxState;
import atoll.core.node.Image;
import atoll.core.node.ImageSource;
import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.IfExists;
import atoll.core.sandbox.LifecycleChanges;
import atoll.core.sandbox.Sandbox;
import atoll.core.sandbox.SandboxState;
import atoll.core.sandbox.Term;
import atoll.core.template.Build;
import atoll.core.template.BuildEvent;
import atoll.core.template.BuildLog;
import atoll.core.template.BuildSecrets;
import atoll.core.template.LimitChanges;
import atoll.core.template.Packages;
import atoll.core.template.StartCommand;
import atoll.core.template.Template;
import atoll.core.template.TemplateDraft;
import atoll.core.template.TemplateFile;
import atoll.core.template.TemplateUsage;
import atoll.core.template.Templates;
import atoll.core.template.Templates.BuildState;
import atoll.core.testing.CoreFixture;
import atoll.core.testing.Eventually;
import atoll.core.testing.FakeImages;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Templates that callers make: their versions, the builds of their images, and sandboxes of them. */
class TemplateTest {
    private CoreFixture fixture = new CoreFixture(Map.of("pool.depth", "1", "templates.wait_seconds", "60")).ready();

    @AfterEach
    void close() {
        fixture.close();
    }

    private Templates templates() {
        return fixture.core().templates();
    }

    private Caller caller() {
        return fixture.caller();
    }

    private static TemplateDraft dockerfile(String text) {
        return new TemplateDraft().name("Mine").dockerfile(text);
    }

    private Templates.Detail create(String id, TemplateDraft draft) {
        return templates().create(caller(), id, draft.definition());
    }

    private Templates.Detail detail(String id) {
        return templates().detail(caller(), id, Optional.empty());
    }

    private Build build(String id) {
        return templates().build(caller(), id, Optional.empty(), false, BuildSecrets.NONE);
    }

    private Build ended(Build build) {
        Eventually.until(() -> look(build).state().isOver(), () -> look(build));
        return look(build);
    }

    private Build look(Build build) {
        return templates().build(caller(), build.template(), build.id());
    }

    private Sandbox sandbox(String template) throws InterruptedException {
        return sandbox(template, LifecycleChanges.NONE, Map.of());
    }

    private Sandbox sandbox(String template, LifecycleChanges lifecycle, Map<String, String> env)
            throws InterruptedException {
        var request = new CreateSandbox(
                Optional.of(template),
                Optional.empty(),
                env,
                Map.of(),
                LimitChanges.NONE,
                Optional.empty(),
                Optional.empty(),
                IfExists.FAIL,
                lifecycle,
                Optional.empty(),
                Optional.empty());
        return fixture.core().sandboxes().createOrGet(caller(), request).sandbox();
    }

    private static <T> CompletableFuture<T> later(Callable<T> call) {
        var done = new CompletableFuture<T>();
        Thread thread = Thread.ofVirtual().unstarted(() -> {
            try {
                done.complete(call.call());
            } catch (Throwable e) {
                done.completeExceptionally(e);
            }
        });
        thread.start();
        return done;
    }

    private static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    private static void assertFails(ErrorCode code, ThrowingCallable call) {
        assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    private String imageOf(Sandbox sandbox) {
        return fixture.node.boxes().stream()
                .filter(box -> box.id().equals(sandbox.box()))
                .findFirst()
                .map(box -> fixture.node.imageOf(box.id()))
                .orElseThrow();
    }

    @Test
    void eight_templates_come_with_atoll_the_default_one_first() {
        List<String> ids = templates().list(caller()).stream().map(Template::id).toList();
        assertThat(ids)
                .containsExactly(
                        "typescript-bun", "typescript-node", "nodejs", "python", "deno", "go", "data-science", "base");
        assertThat(detail("typescript-bun").summary().build()).isEqualTo(BuildState.READY);
        assertThat(detail("typescript-bun").summary().isDefault()).isTrue();
        assertThat(detail("go").summary().build()).isEqualTo(BuildState.NONE);
        assertThat(templates().get(caller(), "go").defaultLanguage()).contains(Language.GO);
    }

    @Test
    void the_first_use_of_one_that_is_not_built_builds_it_once_for_all_who_wait() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN wait gate\n"));
        List<CompletableFuture<Sandbox>> makers = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            makers.add(later(() -> sandbox("mine")));
        }
        Eventually.until(() -> fixture.node.making().running() == 1, fixture.node.making()::requests);
        assertThat(detail("mine").summary().build()).isEqualTo(BuildState.BUILDING);
        fixture.node.open("gate");
        for (CompletableFuture<Sandbox> maker : makers) {
            assertThat(get(maker).state()).isEqualTo(SandboxState.RUNNING);
        }
        assertThat(fixture.node.making().requests()).hasSize(1);
        Build build = templates().builds(caller(), "mine").getFirst();
        assertThat(build.state()).isEqualTo(Build.State.READY);
        assertThat(build.cause()).isEqualTo(Build.Cause.FIRST_USE);
        assertThat(detail("mine").summary().imageDigest()).isEqualTo(build.imageDigest());
    }

    @Test
    void code_in_a_language_of_an_unbuilt_template_builds_it_first() throws Exception {
        var request = new CodeExecRequest(
                "print x",
                Optional.of("go"),
                Optional.of("go"),
                Optional.empty(),
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                LimitChanges.NONE,
                Map.of(),
                Optional.empty(),
                false);
        assertThat(fixture.run(request).output().text()).isEqualTo("x");
        assertThat(fixture.node.making().requests().getFirst().source()).isEqualTo(new ImageSource.Recipe("go"));
    }

    @Test
    void who_waits_longer_than_the_settings_allow_is_told_which_build_to_follow() throws Exception {
        fixture.close();
        fixture = new CoreFixture(Map.of("pool.depth", "0", "templates.wait_seconds", "0")).ready();
        create("mine", dockerfile("FROM atoll/python\nRUN wait gate\n"));
        assertThatThrownBy(() -> sandbox("mine")).isInstanceOfSatisfying(AtollException.class, e -> {
            assertThat(e.code()).isEqualTo(ErrorCode.TEMPLATE_BUILDING);
            Build build = templates().builds(caller(), "mine").getFirst();
            assertThat(e.reason()).contains(build.id().toString());
            assertThat(e.remediation()).contains("follow=1");
        });
        fixture.node.open("gate");
        Build done = ended(templates().builds(caller(), "mine").getFirst());
        assertThat(done.state()).isEqualTo(Build.State.READY);
        assertThat(sandbox("mine").template()).isEqualTo("mine");
    }

    @Test
    void a_failed_step_is_told_with_its_last_lines_and_not_tried_again_by_each_use() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say before\nRUN fail no such package\n"));
        for (int i = 0; i < 2; i++) {
            assertThatThrownBy(() -> sandbox("mine")).isInstanceOfSatisfying(AtollException.class, e -> {
                assertThat(e.code()).isEqualTo(ErrorCode.TEMPLATE_BUILD_FAILED);
                assertThat(e.message()).containsOnlyOnce("step 3").containsOnlyOnce("RUN fail no such package");
                assertThat(e.reason()).contains("before", "no such package");
            });
        }
        assertThat(fixture.node.making().requests()).hasSize(1);
        assertThat(detail("mine").summary().build()).isEqualTo(BuildState.FAILED);
        templates().update(caller(), "mine", draft -> draft.dockerfile("FROM atoll/python\nRUN say fine\n"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(2);
    }

    @Test
    void the_dockerfile_that_is_shown_ends_with_the_user_of_the_image_that_it_is_made_of() {
        create("lower", dockerfile("FROM atoll/python\nRUN say lower\n"));
        create("mine", new TemplateDraft().image("atoll/lower").commands(List.of("make")));
        assertThat(ended(build("lower")).state()).isEqualTo(Build.State.READY);
        assertThat(templates().dockerfile(caller(), "mine", Optional.empty()))
                .isEqualTo("FROM atoll/lower\nUSER root\nRUN make\nUSER user\n");
        create("other", new TemplateDraft().image("r.example/x").commands(List.of("make")));
        assertThat(templates().dockerfile(caller(), "other", Optional.empty()))
                .isEqualTo("FROM r.example/x\nUSER root\nRUN make\n");
    }

    @Test
    void of_many_templates_that_have_a_language_some_are_named() throws Exception {
        for (int i = 0; i < 9; i++) {
            create("python-" + i, dockerfile("FROM atoll/python\nRUN say " + i + "\n"));
            assertThat(ended(build("python-" + i)).state()).isEqualTo(Build.State.READY);
        }
        SandboxId bun = sandbox("typescript-bun").id();
        var code = CodeExecRequest.of("print").in(bun).withLanguage("python");
        assertThatThrownBy(() -> fixture.run(code)).isInstanceOfSatisfying(AtollException.class, e -> {
            assertThat(e.code()).isEqualTo(ErrorCode.LANGUAGE_UNAVAILABLE);
            assertThat(e.remediation().split(" or ")).hasSize(4);
            assertThat(e.remediation()).contains("python");
        });
    }

    @Test
    void what_failed_for_want_of_a_registry_is_tried_again_by_the_next_use() {
        create("mine", new TemplateDraft().image(FakeImages.AWAY + "x"));
        for (int i = 1; i <= 2; i++) {
            assertFails(ErrorCode.TEMPLATE_BUILD_FAILED, () -> sandbox("mine"));
            assertThat(fixture.node.making().requests()).hasSize(i);
        }
    }

    @Test
    void a_new_version_is_current_once_it_is_built_and_running_sandboxes_keep_theirs() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        Sandbox first = sandbox("mine");
        fixture.full();
        Templates.Detail changed =
                templates().update(caller(), "mine", draft -> draft.dockerfile("FROM atoll/python\nRUN wait gate\n"));
        assertThat(changed.summary().newest()).isEqualTo(2);
        Build build = build("mine");
        Sandbox meanwhile = sandbox("mine");
        assertThat(meanwhile.templateVersion()).isEqualTo(1);
        fixture.node.open("gate");
        assertThat(ended(build).state()).isEqualTo(Build.State.READY);
        Sandbox second = sandbox("mine");
        assertThat(second.templateVersion()).isEqualTo(2);
        assertThat(imageOf(second)).isEqualTo(look(build).imageDigest().orElseThrow());
        assertThat(imageOf(first)).isNotEqualTo(imageOf(second));
        assertThat(fixture.core().sandboxes().get(caller(), first.id()).state()).isEqualTo(SandboxState.RUNNING);
        fixture.full();
        // The pool of the old version is drained: only its sandboxes have the old image.
        Eventually.until(
                () -> fixture.node.boxes().stream()
                                .filter(box -> box.state() == BoxState.READY || box.state() == BoxState.PREPARED)
                                .filter(box -> fixture.node.imageOf(box.id()).equals(imageOf(first)))
                                .count()
                        == 2,
                fixture.node::boxes);
    }

    @Test
    void a_failed_build_leaves_the_old_version_current() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(1);
        templates().update(caller(), "mine", draft -> draft.dockerfile("FROM atoll/python\nRUN fail it\n"));
        assertThat(ended(build("mine")).state()).isEqualTo(Build.State.FAILED);
        assertThat(sandbox("mine").templateVersion()).isEqualTo(1);
        assertThat(detail("mine").summary().build()).isEqualTo(BuildState.FAILED);
    }

    @Test
    void a_change_of_anything_but_the_image_is_current_at_once_and_the_same_is_no_change() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(1);
        templates().update(caller(), "mine", draft -> draft.description("Better"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(2);
        assertThat(fixture.node.making().requests()).hasSize(1);
        templates().update(caller(), "mine", draft -> draft.description("Better"));
        assertThat(detail("mine").summary().newest()).isEqualTo(2);
        assertThat(templates().versions(caller(), "mine")).hasSize(2);
    }

    @Test
    void two_builds_of_a_template_come_one_after_another_and_a_second_for_the_same_joins() {
        create("mine", dockerfile("FROM atoll/python\nRUN wait gate\n"));
        Build first = build("mine");
        assertThat(build("mine").id()).isEqualTo(first.id());
        templates().update(caller(), "mine", draft -> draft.dockerfile("FROM atoll/python\nRUN say two\n"));
        Build second = build("mine");
        assertThat(second.id()).isNotEqualTo(first.id());
        Eventually.until(() -> fixture.node.making().running() == 1, () -> look(first));
        assertThat(look(second).state()).isEqualTo(Build.State.QUEUED);
        fixture.node.open("gate");
        assertThat(ended(second).state()).isEqualTo(Build.State.READY);
        assertThat(look(first).state()).isEqualTo(Build.State.READY);
        assertThat(fixture.node.making().requests()).hasSize(2);
    }

    @Test
    void a_build_is_cancelled_whether_it_runs_or_waits() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN wait for-ever\n"));
        Build running = build("mine");
        Eventually.until(() -> fixture.node.making().running() == 1, () -> look(running));
        Build waiting = templates().build(caller(), "mine", Optional.empty(), true, BuildSecrets.NONE);
        assertThat(templates().cancel(caller(), "mine", waiting.id()).state()).isEqualTo(Build.State.CANCELLED);
        assertThat(templates().cancel(caller(), "mine", running.id()).state()).isEqualTo(Build.State.CANCELLED);
        assertThat(fixture.node.making().cancelled()).isEqualTo(1);
        assertThat(templates().cancel(caller(), "mine", running.id()).state()).isEqualTo(Build.State.CANCELLED);
        assertThat(detail("mine").summary().build()).isEqualTo(BuildState.CANCELLED);
    }

    @Test
    void a_build_that_takes_too_long_has_failed_with_that_reason() {
        fixture.close();
        fixture = new CoreFixture(Map.of("pool.depth", "0", "build.timeout_seconds", "1")).ready();
        create("mine", dockerfile("FROM atoll/python\nRUN wait for-ever\n"));
        Build late = ended(build("mine"));
        assertThat(late.state()).isEqualTo(Build.State.FAILED);
        assertThat(late.failure().orElseThrow().message()).contains("build.timeout_seconds");
    }

    @Test
    void a_build_that_a_stopped_server_left_has_failed_and_the_next_use_begins_another() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say hello\nRUN wait gate\n"));
        Build left = build("mine");
        Eventually.until(() -> look(left).step().number() == 2, () -> look(left));
        fixture.restart();
        assertThat(look(left).state()).isEqualTo(Build.State.FAILED);
        assertThat(look(left).failure().orElseThrow().message()).contains("server was stopped");
        assertThat(look(left).failure().orElseThrow().lastLines()).isEqualTo("hello");
        fixture.node.open("gate");
        assertThat(sandbox("mine").state()).isEqualTo(SandboxState.RUNNING);
    }

    @Test
    void other_projects_templates_are_named_in_no_error_and_chosen_for_nobody() throws Exception {
        create("hidden-python", dockerfile("FROM atoll/python\nRUN say x\n"));
        assertThat(ended(build("hidden-python")).state()).isEqualTo(Build.State.READY);
        templates().setDefault(caller(), "hidden-python");
        var stranger = new Caller(ProjectId.random(), caller().key(), caller().scopes());
        SandboxId theirs;
        try (var first = fixture.core().codeExecution().start(stranger, CodeExecRequest.of("print"))) {
            theirs = first.await().sandboxId();
        }
        assertThat(fixture.core().sandboxes().get(stranger, theirs).template()).isEqualTo("typescript-bun");
        var python = CodeExecRequest.of("print").in(theirs).withLanguage("python");
        assertThatThrownBy(() -> fixture.core().codeExecution().start(stranger, python))
                .isInstanceOfSatisfying(AtollException.class, e -> {
                    assertThat(e.code()).isEqualTo(ErrorCode.LANGUAGE_UNAVAILABLE);
                    assertThat(e.remediation()).contains("python").doesNotContain("hidden");
                });
        assertThatThrownBy(() -> templates().get(stranger, "no-such"))
                .isInstanceOfSatisfying(
                        AtollException.class,
                        e -> assertThat(e.message()).contains("python").doesNotContain("hidden"));
    }

    @Test
    void templates_and_their_images_outlive_the_server() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say hello\n").env(Map.of("A", "1")));
        String image = imageOf(sandbox("mine"));
        templates().setDefault(caller(), "mine");
        templates().delete(caller(), "deno");
        fixture.restart();
        assertThat(fixture.core().templates().list(caller()).getFirst().id()).isEqualTo("mine");
        assertFails(ErrorCode.TEMPLATE_NOT_FOUND, () -> templates().get(caller(), "deno"));
        assertThat(imageOf(sandbox("mine"))).isEqualTo(image);
        assertThat(fixture.node.making().requests()).hasSize(1);
    }

    @Test
    void a_log_is_followed_from_its_beginning_to_the_end() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say a\\tb\nRUN wait gate\nRUN say last\n"));
        Build build = build("mine");
        Eventually.until(() -> look(build).step().number() == 2, () -> look(build));
        CompletableFuture<List<BuildEvent>> followed = later(() -> events(build, true));
        List<BuildEvent> soFar = events(build, false);
        assertThat(soFar).contains(new BuildEvent.Log("a\\tb\n", false));
        assertThat(soFar).noneMatch(event -> event instanceof BuildEvent.Done);
        fixture.node.open("gate");
        List<BuildEvent> all = get(followed);
        assertThat(all.getFirst()).isEqualTo(new BuildEvent.Step(1, 4, "FROM atoll/python", false));
        assertThat(all).containsSubsequence(new BuildEvent.Log("a\\tb\n", false), new BuildEvent.Log("last\n", false));
        assertThat(((BuildEvent.Done) all.getLast()).build().state()).isEqualTo(Build.State.READY);
        assertThat(events(build, true)).isEqualTo(all);
    }

    private List<BuildEvent> events(Build build, boolean follow) throws InterruptedException {
        List<BuildEvent> events = new ArrayList<>();
        try (BuildLog log = templates().log(caller(), "mine", build.id(), follow)) {
            while (!log.isOver()) {
                log.next(Duration.ofSeconds(1)).ifPresent(events::add);
            }
        }
        return events;
    }

    @Test
    void a_template_may_be_made_of_another_which_is_built_first() throws Exception {
        create("lower", dockerfile("FROM atoll/python\nRUN say lower\n"));
        create("upper", dockerfile("FROM atoll/lower AS x\nCOPY --from=atoll/python /a /b\n"));
        assertThat(sandbox("upper").state()).isEqualTo(SandboxState.RUNNING);
        assertThat(fixture.node.making().requests()).hasSize(2);
        var source = (ImageSource.Dockerfile)
                fixture.node.making().requests().getLast().source();
        assertThat(source.namedImages()).containsOnlyKeys("atoll/lower", "atoll/python");
        assertThat(templates().builds(caller(), "lower").getFirst().cause()).isEqualTo(Build.Cause.BASE);
    }

    @Test
    void one_that_is_made_of_itself_by_a_detour_is_refused() {
        create("a", new TemplateDraft().image("atoll/b"));
        create("b", dockerfile("FROM atoll/a\n"));
        assertThatThrownBy(() -> sandbox("a"))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.message()).contains("made of itself"));
    }

    @Test
    void one_that_is_another_ones_image_needs_no_build_of_its_own() throws Exception {
        create("mine", new TemplateDraft().image("atoll/python").env(Map.of("A", "template", "B", "template")));
        Sandbox made = sandbox("mine", LifecycleChanges.NONE, Map.of("B", "caller"));
        assertThat(imageOf(made)).isEqualTo("a".repeat(64));
        assertThat(fixture.node.making().requests()).isEmpty();
        assertThat(fixture.node.envOf(made.box()))
                .containsEntry("A", "template")
                .containsEntry("B", "caller");
    }

    @Test
    void what_the_template_says_of_a_life_and_limits_counts_and_the_caller_more() throws Exception {
        create(
                "mine",
                new TemplateDraft()
                        .image("atoll/python")
                        .limits(new LimitChanges(
                                OptionalLong.of(512L << 20),
                                OptionalInt.of(250),
                                OptionalLong.empty(),
                                OptionalInt.empty(),
                                OptionalInt.empty()))
                        .timeout(Optional.of(Duration.ofSeconds(7)))
                        .lifecycle(new LifecycleChanges(
                                Optional.of(Term.of(Duration.ofMinutes(5))),
                                Optional.of(Term.of(Duration.ofMinutes(2))),
                                Optional.empty(),
                                Optional.of(false)))
                        .maxLifetime(Optional.of(Duration.ofMinutes(10))));
        Sandbox plain = sandbox("mine");
        assertThat(plain.limits().memoryBytes()).isEqualTo(512L << 20);
        assertThat(plain.lifecycle().lifetime()).contains(Duration.ofMinutes(5));
        assertThat(plain.lifecycle().idleTimeout()).contains(Duration.ofMinutes(2));
        assertThat(plain.lifecycle().autoResume()).isFalse();
        assertThat(templates().get(caller(), "mine").timeout()).isEqualTo(Duration.ofSeconds(7));
        var own = new LifecycleChanges(
                Optional.of(Term.of(Duration.ofMinutes(9))), Optional.empty(), Optional.empty(), Optional.empty());
        assertThat(sandbox("mine", own, Map.of()).lifecycle().lifetime()).contains(Duration.ofMinutes(9));
        var tooLong = new LifecycleChanges(
                Optional.of(Term.of(Duration.ofMinutes(11))), Optional.empty(), Optional.empty(), Optional.empty());
        assertFails(ErrorCode.INVALID_REQUEST, () -> sandbox("mine", tooLong, Map.of()));
    }

    @Test
    void packages_files_and_commands_become_a_dockerfile_and_its_context() throws Exception {
        create(
                "mine",
                new TemplateDraft()
                        .image("atoll/python")
                        .packages(new Packages(
                                List.of("curl", "g++"),
                                List.of("requests>=2; python_version>'3'"),
                                List.of(),
                                List.of()))
                        .files(List.of(new TemplateFile(
                                "/srv/it's $HOME.txt",
                                Base64.getEncoder().encodeToString("hello".getBytes(StandardCharsets.UTF_8)),
                                0600,
                                "user")))
                        .commands(List.of("echo plain", "cat <<X\n$HOME\nX", "[ -d /tmp ]"))
                        .workdir("/srv"));
        assertThat(sandbox("mine").state()).isEqualTo(SandboxState.RUNNING);
        var source = (ImageSource.Dockerfile)
                fixture.node.making().requests().getFirst().source();
        assertThat(source.text().lines().toList())
                .startsWith("FROM atoll-base", "USER root")
                .contains(
                        "COPY --chmod=0600 --chown=user [\".atoll/files/0\", \"/srv/it\\\\'s \\\\$HOME.txt\"]",
                        "RUN echo plain",
                        "RUN [\"/bin/sh\", \"-c\", \"cat <<X\\n$HOME\\nX\"]",
                        "RUN [\"/bin/sh\", \"-c\", \"[ -d /tmp ]\"]",
                        "WORKDIR \"/srv\"");
        assertThat(source.text()).contains("'curl' 'g++'").contains("'requests>=2; python_version>'\\\\''3'\\\\'''");
        assertThat(source.namedImages()).containsEntry("atoll-base", "a".repeat(64));
        String tar = new String(fixture.node.making().bodyOf("mine@1"), StandardCharsets.ISO_8859_1);
        assertThat(tar)
                .hasSize(4 * 512)
                .startsWith(".atoll/files/0\0")
                .contains("ustar")
                .contains("hello");
        assertThat(templates().dockerfile(caller(), "mine", Optional.empty())).contains("RUN echo plain");
    }

    @Test
    void an_uploaded_context_goes_with_the_dockerfile_and_another_one_is_another_version() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nCOPY a /a\n"));
        byte[] tar = "a tar".getBytes(StandardCharsets.UTF_8);
        assertThat(templates()
                        .putContext(caller(), "mine", new ByteArrayInputStream(tar))
                        .summary()
                        .newest())
                .isEqualTo(2);
        assertThat(templates()
                        .putContext(caller(), "mine", new ByteArrayInputStream(tar))
                        .summary()
                        .newest())
                .isEqualTo(2);
        assertThat(sandbox("mine").templateVersion()).isEqualTo(2);
        assertThat(fixture.node.making().bodyOf("mine@2")).isEqualTo(tar);
        create("image", new TemplateDraft().image("atoll/python"));
        assertFails(
                ErrorCode.INVALID_REQUEST,
                () -> templates().putContext(caller(), "image", new ByteArrayInputStream(tar)));
    }

    @Test
    void a_sandbox_is_saved_as_a_template_and_used() throws Exception {
        Sandbox from = sandbox("python");
        Templates.Detail saved = templates().saveSandbox(caller(), from.id(), "saved", Optional.of("Saved"));
        assertThat(saved.summary().build()).isEqualTo(BuildState.READY);
        assertThat(saved.summary().template().defaultLanguage()).contains(Language.PYTHON);
        assertThat(imageOf(sandbox("saved")))
                .isEqualTo(saved.summary().imageDigest().orElseThrow());
        assertFails(ErrorCode.CONFLICT, () -> templates().saveSandbox(caller(), from.id(), "saved", Optional.empty()));
    }

    @Test
    void any_but_the_default_one_is_deleted_and_its_sandboxes_run_on() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say x\n"));
        Sandbox left = sandbox("mine");
        assertFails(ErrorCode.CONFLICT, () -> templates().delete(caller(), "typescript-bun"));
        templates().delete(caller(), "mine");
        assertFails(ErrorCode.TEMPLATE_NOT_FOUND, () -> sandbox("mine"));
        var request = new CodeExecRequest(
                "print on",
                Optional.empty(),
                Optional.empty(),
                Optional.of(left.id()),
                Optional.empty(),
                Optional.empty(),
                Map.of(),
                LimitChanges.NONE,
                Map.of(),
                Optional.empty(),
                false);
        assertThat(fixture.run(request).output().text()).isEqualTo("on");
        create("mine", new TemplateDraft().image("atoll/python"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(2);
        assertThat(fixture.core().status().pools())
                .extracting(pool -> pool.template())
                .contains("mine");
    }

    @Test
    void a_duplicate_shares_the_image_and_the_default_can_be_another_one() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say x\n"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(1);
        templates().duplicate(caller(), "mine", "twin", Optional.empty());
        assertThat(detail("twin").summary().build()).isEqualTo(BuildState.READY);
        assertThat(detail("twin").definition().name()).isEqualTo("Mine (copy)");
        templates().setDefault(caller(), "twin");
        assertThat(templates().list(caller()).getFirst().id()).isEqualTo("twin");
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        assertThat(fixture.node.making().requests()).hasSize(1);
        assertFails(ErrorCode.CONFLICT, () -> create("twin", new TemplateDraft().image("x")));
    }

    @Test
    void a_built_in_template_can_be_changed_and_built_upon() throws Exception {
        templates()
                .update(
                        caller(),
                        "python",
                        draft -> draft.packages(new Packages(List.of(), List.of("six"), List.of(), List.of())));
        assertThat(sandbox("python").templateVersion()).isEqualTo(1);
        assertThat(ended(build("python")).state()).isEqualTo(Build.State.READY);
        assertThat(sandbox("python").templateVersion()).isEqualTo(2);
        var source = (ImageSource.Dockerfile)
                fixture.node.making().requests().getFirst().source();
        assertThat(source.namedImages()).containsEntry("atoll-base", "a".repeat(64));
        assertThat(source.text()).startsWith("FROM atoll-base\n").contains("'six'");
    }

    @Test
    void uses_are_counted() throws Exception {
        fixture.clock.stop();
        assertThat(fixture.run("print x").output().text()).isEqualTo("x");
        assertThat(fixture.run("print y").output().text()).isEqualTo("y");
        assertThat(detail("typescript-bun").summary().usage())
                .isEqualTo(new TemplateUsage(2, Optional.of(fixture.clock.instant())));
        fixture.restart();
        assertThat(detail("typescript-bun").summary().usage().executions()).isEqualTo(2);
    }

    @Test
    void images_that_nothing_needs_are_pruned_and_others_never() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        Sandbox old = sandbox("mine");
        templates().update(caller(), "mine", draft -> draft.dockerfile("FROM atoll/python\nRUN say two\n"));
        assertThat(ended(build("mine")).state()).isEqualTo(Build.State.READY);
        Image pulled = fixture.core().images().pull(caller(), "debian:bookworm", _ -> {});
        fixture.clock.advance(Duration.ofDays(8));
        fixture.core().sweep();
        assertThat(fixture.node.images()).doesNotContain(pulled);
        assertThat(digests())
                .contains(imageOf(old), detail("mine").summary().imageDigest().orElseThrow());
        assertThat(digests()).contains("a".repeat(64), "b".repeat(64));
        String gone = imageOf(old);
        assertThat(fixture.core().sandboxes().delete(caller(), old.id()).state())
                .isEqualTo(SandboxState.ENDED);
        Eventually.until(
                () -> {
                    fixture.core().sweep();
                    return !digests().contains(gone);
                },
                fixture.node::images);
    }

    private List<String> digests() {
        return fixture.node.images().stream().map(Image::digest).toList();
    }

    @Test
    void an_image_of_a_template_is_not_deleted_and_others_are() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        assertThat(sandbox("mine").templateVersion()).isEqualTo(1);
        String its = detail("mine").summary().imageDigest().orElseThrow();
        var images = fixture.core().images();
        assertFails(ErrorCode.CONFLICT, () -> images.deleteImage(caller(), its));
        Image pulled = images.pull(caller(), "debian:bookworm", _ -> {});
        assertThat(images.deleteImage(caller(), pulled.digest())).isPositive();
        assertFails(ErrorCode.IMAGE_NOT_FOUND, () -> images.deleteImage(caller(), pulled.digest()));
        Image imported = images.importArchive(
                caller(), "mine", new ByteArrayInputStream("tar".getBytes(StandardCharsets.UTF_8)));
        create("of-it", new TemplateDraft().image(imported.digest()));
        assertThat(imageOf(sandbox("of-it"))).isEqualTo(imported.digest());
        assertThat(images.images(caller())).anyMatch(used -> used.templates().equals(List.of("of-it")));
    }

    @Test
    void registries_open_with_what_was_sealed_and_never_tell_it() throws Exception {
        var registries = fixture.core().registries();
        registries.put(caller(), "registry.example:5000", "me", "secret");
        create("mine", new TemplateDraft().image("registry.example:5000/x:1"));
        assertThat(ended(build("mine")).state()).isEqualTo(Build.State.READY);
        var source = (ImageSource.Registry)
                fixture.node.making().requests().getFirst().source();
        assertThat(source.credentials())
                .containsExactly(new ImageSource.Credentials("registry.example:5000", "me", "secret"));
        assertThat(registries.list(caller()).toString()).contains("me").doesNotContain("secret");
        assertThat(fixture.store.registries(ProjectId.DEFAULT).getFirst().sealedPassword())
                .doesNotContain("secret");
        registries.delete(caller(), "registry.example:5000");
        assertThat(registries.list(caller())).isEmpty();
        assertFails(ErrorCode.INVALID_REQUEST, () -> registries.put(caller(), "a/b", "me", "x"));
    }

    @Test
    void secrets_reach_the_node_with_their_build_and_nothing_else() throws Exception {
        create("mine", dockerfile("FROM atoll/python\nRUN --mount=type=secret,id=token say one\n"));
        var secrets = new BuildSecrets(Map.of("token", "s3cret-value"));
        Build done = ended(templates().build(caller(), "mine", Optional.empty(), false, secrets));
        assertThat(done.state()).isEqualTo(Build.State.READY);
        assertThat(sent()).isEqualTo(secrets);
        assertThat(done + " " + detail("mine") + " " + fixture.node.making().requests())
                .contains("token")
                .doesNotContain("s3cret-value");
        assertThat(ended(build("mine")).state()).isEqualTo(Build.State.READY);
        assertThat(sent()).isEqualTo(BuildSecrets.NONE);
    }

    private BuildSecrets sent() {
        var request = fixture.node.making().requests().getLast();
        return ((ImageSource.Dockerfile) request.source()).secrets();
    }

    @Test
    void a_build_with_other_secrets_is_another_build() {
        create("mine", dockerfile("FROM atoll/python\nRUN wait gate\n"));
        Build first = templates().build(caller(), "mine", Optional.empty(), false, BuildSecrets.NONE);
        Build second =
                templates().build(caller(), "mine", Optional.empty(), false, new BuildSecrets(Map.of("token", "a")));
        fixture.node.open("gate");
        assertThat(second.id()).isNotEqualTo(first.id());
        assertThat(ended(first).state()).isEqualTo(Build.State.READY);
        assertThat(ended(second).state()).isEqualTo(Build.State.READY);
        assertFails(ErrorCode.INVALID_REQUEST, () -> new BuildSecrets(Map.of("a b", "x")));
        assertFails(ErrorCode.INVALID_REQUEST, () -> new BuildSecrets(Map.of("a", "x".repeat(70_000))));
    }

    @Test
    void no_image_is_built_on_a_disk_that_is_nearly_full() {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        fixture.node.setDisk(1000 << 20, 50 << 20);
        Build failed = ended(build("mine"));
        assertThat(failed.failure().orElseThrow().code()).isEqualTo("disk_full");
    }

    @Test
    void a_definition_that_makes_no_sense_is_refused() {
        List<TemplateDraft> wrong = List.of(
                new TemplateDraft(),
                new TemplateDraft().image("a").dockerfile("FROM b"),
                new TemplateDraft().image("a b"),
                dockerfile("FROM a\nRUN x \\\n"),
                dockerfile("FROM a").commands(List.of("x")),
                new TemplateDraft().image("a").workdir("relative"),
                new TemplateDraft().image("a").user("a b"),
                new TemplateDraft().image("a").runtime("vm"),
                new TemplateDraft().image("a").env(Map.of("A=B", "x")));
        for (TemplateDraft draft : wrong) {
            assertFails(ErrorCode.INVALID_REQUEST, draft::definition);
        }
        assertFails(
                ErrorCode.INVALID_REQUEST, () -> new Packages(List.of("--option"), List.of(), List.of(), List.of()));
        assertFails(ErrorCode.INVALID_REQUEST, () -> new Packages(List.of("a;b"), List.of(), List.of(), List.of()));
        assertFails(ErrorCode.INVALID_REQUEST, () -> new TemplateFile("/a/../b", "", 0644, ""));
        assertFails(ErrorCode.INVALID_REQUEST, () -> new TemplateFile("/a", "!", 0644, ""));
        assertFails(ErrorCode.INVALID_REQUEST, () -> create("Not An Id", new TemplateDraft().image("a")));
        assertFails(
                ErrorCode.INVALID_REQUEST,
                () -> create(
                        "x",
                        new TemplateDraft()
                                .image("a")
                                .limits(new LimitChanges(
                                        OptionalLong.of(1L << 50),
                                        OptionalInt.empty(),
                                        OptionalLong.empty(),
                                        OptionalInt.empty(),
                                        OptionalInt.empty()))));
    }

    @Test
    void what_a_template_starts_runs_in_each_box_before_it_is_handed_out() throws Exception {
        var ready = new StartCommand.Ready(new StartCommand.Check.Started(), Duration.ofSeconds(60));
        create(
                "server",
                new TemplateDraft().image("atoll/python").start(Optional.of(new StartCommand("wait for-ever", ready))));
        Sandbox made = sandbox("server");
        assertThat(fixture.node.processes().list(Optional.of(made.box())))
                .anyMatch(held -> held.process().spec().argv().contains("wait for-ever"));
    }

    @Test
    void a_start_command_that_never_gets_ready_is_told() {
        var ready = new StartCommand.Ready(new StartCommand.Check.Port(8080), Duration.ofSeconds(1));
        create(
                "server",
                new TemplateDraft()
                        .image("atoll/python")
                        .poolDepth(OptionalInt.of(0))
                        .start(Optional.of(new StartCommand("wait for-ever", ready))));
        assertThatThrownBy(() -> sandbox("server")).isInstanceOfSatisfying(AtollException.class, e -> {
            assertThat(e.code()).isEqualTo(ErrorCode.SANDBOX_START_FAILED);
            assertThat(e.message()).contains("not ready in time");
        });
    }

    @Test
    void asking_for_a_language_finds_the_template_whose_own_it_is() throws Exception {
        assertThat(fixture.core().templates().get(caller(), "python").languages())
                .contains(Language.PYTHON);
        create("also", new TemplateDraft().image("atoll/python"));
        var request = new CreateSandbox(
                Optional.empty(), Optional.of("python"), Map.of(), Map.of(), LimitChanges.NONE, Optional.empty());
        Sandbox made = fixture.core().sandboxes().createOrGet(caller(), request).sandbox();
        assertThat(made.template()).isEqualTo("python");
        assertThat(made.templateVersion()).isEqualTo(1);
    }

    @Test
    void asking_a_build_of_another_template_finds_nothing() {
        create("mine", dockerfile("FROM atoll/python\nRUN say one\n"));
        Build build = ended(build("mine"));
        assertFails(ErrorCode.BUILD_NOT_FOUND, () -> templates().build(caller(), "python", build.id()));
        assertFails(ErrorCode.BUILD_NOT_FOUND, () -> templates().build(caller(), "mine", BuildId.random()));
    }
}

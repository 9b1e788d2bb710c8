package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.sandbox.CreateSandbox;
import atoll.core.sandbox.Sandbox;
import atoll.core.template.LimitChanges;
import atoll.core.testing.CoreFixture;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class SandboxTokensTest {
    private CoreFixture fixture;
    private Caller caller;

    @BeforeEach
    void start() throws InterruptedException {
        fixture = new CoreFixture().ready();
        caller = fixture.caller();
    }

    @AfterEach
    void stop() {
        fixture.close();
    }

    private Sandbox sandbox() throws InterruptedException {
        return fixture.core()
                .sandboxes()
                .create(
                        caller,
                        new CreateSandbox(
                                Optional.of("python"),
                                Optional.empty(),
                                Map.of(),
                                Map.of(),
                                LimitChanges.NONE,
                                Optional.empty()));
    }

    private SandboxTokens tokens() {
        return fixture.core().tokens();
    }

    @Test
    void a_token_opens_its_own_sandbox_for_its_own_purpose_only() throws Exception {
        Sandbox mine = sandbox();
        Sandbox other = sandbox();
        String token = tokens().token(caller, mine.id(), "a");
        SandboxTokens.Bearer bearer = tokens().authenticate(mine.id(), "a", token);
        assertThat(bearer.sandbox()).isEqualTo(mine.id());
        assertThat(bearer.caller().project()).isEqualTo(caller.project());
        assertThat(bearer.caller().scopes()).containsExactlyInAnyOrder(Scope.READ, Scope.EXECUTE);
        for (String wrong : new String[] {"", token + "0", token.toUpperCase(java.util.Locale.ROOT) + "é", "x"}) {
            assertRefused(mine.id(), "a", wrong);
        }
        assertRefused(other.id(), "a", token);
        assertRefused(mine.id(), "b", token);
        assertThat(tokens().token(caller, mine.id(), "b")).isNotEqualTo(token);
    }

    private void assertRefused(SandboxId id, String purpose, String token) {
        assertThatThrownBy(() -> tokens().authenticate(id, purpose, token))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAUTHENTICATED));
    }

    @Test
    void a_token_is_the_same_after_a_restart_and_needs_the_right_to_execute() throws Exception {
        Sandbox mine = sandbox();
        String token = tokens().token(caller, mine.id(), "a");
        fixture.restart();
        assertThat(tokens().token(caller, mine.id(), "a")).isEqualTo(token);
        var reader = new Caller(caller.project(), caller.key(), Set.of(Scope.READ));
        assertThatThrownBy(() -> tokens().token(reader, mine.id(), "a")).isInstanceOf(AtollException.class);
        var stranger = new Caller(ProjectId.random(), caller.key(), caller.scopes());
        assertThatThrownBy(() -> tokens().token(stranger, mine.id(), "a"))
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(ErrorCode.SANDBOX_NOT_FOUND));
    }

    @Test
    void what_is_signed_with_a_token_finds_its_sandbox_while_that_lives() throws Exception {
        Sandbox mine = sandbox();
        String token = tokens().token(caller, mine.id(), "a");
        assertThat(tokens().find("a", token::equals).map(SandboxTokens.Bearer::sandbox))
                .contains(mine.id());
        assertThat(tokens().find("b", token::equals)).isEmpty();
        Sandbox ended = fixture.core().sandboxes().delete(caller, mine.id());
        assertThat(ended.end()).isPresent();
        assertThat(tokens().find("a", token::equals)).isEmpty();
    }
}

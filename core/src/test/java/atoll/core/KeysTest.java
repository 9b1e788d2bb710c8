package atoll.core;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import atoll.core.testing.CoreFixture;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class KeysTest {
    private final CoreFixture core = new CoreFixture().ready();

    @AfterEach
    void stop() {
        core.close();
    }

    private Keys keys() {
        return core.core().keys();
    }

    private CreatedKey made(Scope... scopes) {
        return keys().create(core.caller(), new CreateKey("ci", Set.of(scopes), Optional.empty()));
    }

    private static void assertCode(ErrorCode code, Runnable call) {
        assertThatThrownBy(call::run)
                .isInstanceOfSatisfying(
                        AtollException.class, e -> assertThat(e.code()).isEqualTo(code));
    }

    @Test
    void a_made_key_opens_what_its_scopes_allow() {
        CreatedKey made = made(Scope.READ);
        Caller caller = keys().authenticate(made.secret());
        assertThat(caller.scopes()).containsExactly(Scope.READ);
        assertThat(caller.key()).isEqualTo(made.key().id());
        assertCode(ErrorCode.FORBIDDEN, () -> caller.require(Scope.EXECUTE));
        assertThat(made.secret()).startsWith(made.key().shownPrefix()).hasSizeGreaterThan(40);
        assertThat(made.toString()).doesNotContain(made.secret());
    }

    @Test
    void a_key_is_listed_without_its_secret_and_with_its_last_use() {
        core.clock.stop();
        CreatedKey made = made(Scope.READ);
        assertThat(keys().get(core.caller(), made.key().id()).lastUsedAt()).isEmpty();
        Instant used = core.clock.instant();
        assertThat(keys().authenticate(made.secret()).key())
                .isEqualTo(made.key().id());
        assertThat(keys().list(core.caller()))
                .filteredOn(key -> key.id().equals(made.key().id()))
                .singleElement()
                .satisfies(key -> assertThat(key.lastUsedAt()).contains(used));
        assertThat(keys().list(core.caller()).toString()).doesNotContain(made.secret());
    }

    @Test
    void use_goes_on_record_once_a_minute() {
        core.clock.stop();
        CreatedKey made = made(Scope.READ);
        Instant first = core.clock.instant();
        assertThat(keys().authenticate(made.secret()).key())
                .isEqualTo(made.key().id());
        core.clock.advance(Duration.ofSeconds(20));
        assertThat(keys().authenticate(made.secret()).key())
                .isEqualTo(made.key().id());
        assertThat(keys().get(core.caller(), made.key().id()).lastUsedAt()).contains(first);
        core.clock.advance(Duration.ofSeconds(50));
        assertThat(keys().authenticate(made.secret()).key())
                .isEqualTo(made.key().id());
        assertThat(keys().get(core.caller(), made.key().id()).lastUsedAt()).contains(first.plusSeconds(70));
    }

    @Test
    void a_key_allows_no_more_than_its_maker() {
        Caller admin = keys().authenticate(made(Scope.READ, Scope.ADMIN).secret());
        assertCode(
                ErrorCode.FORBIDDEN,
                () -> keys().create(admin, new CreateKey("k", Set.of(Scope.EXECUTE), Optional.empty())));
        assertThat(keys().create(admin, new CreateKey("k", Set.of(Scope.READ), Optional.empty()))
                        .key()
                        .scopes())
                .containsExactly(Scope.READ);
    }

    @Test
    void only_admins_see_and_change_keys() {
        CreatedKey made = made(Scope.READ, Scope.EXECUTE);
        Caller caller = keys().authenticate(made.secret());
        assertCode(ErrorCode.FORBIDDEN, () -> keys().list(caller));
        assertCode(ErrorCode.FORBIDDEN, () -> keys().get(caller, made.key().id()));
        assertCode(ErrorCode.FORBIDDEN, () -> keys().revoke(caller, made.key().id()));
        assertCode(
                ErrorCode.FORBIDDEN,
                () -> keys().create(caller, new CreateKey("k", Set.of(Scope.READ), Optional.empty())));
    }

    @Test
    void a_revoked_key_opens_nothing_at_once() {
        CreatedKey made = made(Scope.READ);
        assertThat(keys().authenticate(made.secret()).key())
                .isEqualTo(made.key().id());
        keys().revoke(core.caller(), made.key().id());
        assertCode(ErrorCode.UNAUTHENTICATED, () -> keys().authenticate(made.secret()));
        assertCode(
                ErrorCode.NOT_FOUND, () -> keys().get(core.caller(), made.key().id()));
        core.restart();
        assertCode(ErrorCode.UNAUTHENTICATED, () -> keys().authenticate(made.secret()));
    }

    @Test
    void a_key_opens_until_it_expires_also_over_a_restart() {
        Instant end = core.clock.instant().plusSeconds(100);
        CreatedKey made = keys().create(core.caller(), new CreateKey("short", Set.of(Scope.READ), Optional.of(end)));
        core.restart();
        assertThat(keys().authenticate(made.secret()).key())
                .isEqualTo(made.key().id());
        core.clock.advance(Duration.ofSeconds(101));
        assertCode(ErrorCode.UNAUTHENTICATED, () -> keys().authenticate(made.secret()));
        assertThat(keys().get(core.caller(), made.key().id()).expiresAt()).contains(end);
    }

    @Test
    void the_operators_key_is_not_revoked() {
        KeyId own = core.caller().key();
        assertCode(ErrorCode.CONFLICT, () -> keys().revoke(core.caller(), own));
        assertThat(core.caller().key()).isEqualTo(own);
    }

    @Test
    void a_key_needs_a_name_a_scope_and_a_time_to_come() {
        assertCode(ErrorCode.INVALID_REQUEST, () -> new CreateKey(" ", Set.of(Scope.READ), Optional.empty()));
        assertCode(ErrorCode.INVALID_REQUEST, () -> new CreateKey("a\nb", Set.of(Scope.READ), Optional.empty()));
        assertCode(ErrorCode.INVALID_REQUEST, () -> new CreateKey("k", Set.of(), Optional.empty()));
        CreateKey past = new CreateKey("k", Set.of(Scope.READ), Optional.of(core.clock.instant()));
        assertCode(ErrorCode.INVALID_REQUEST, () -> keys().create(core.caller(), past));
    }
}

package atoll.api;

import atoll.core.ApiKey;
import atoll.core.Caller;
import atoll.core.CreateKey;
import atoll.core.CreatedKey;
import atoll.core.KeyId;
import atoll.core.Keys;
import atoll.core.Scope;
import atoll.http.Exchange;
import java.io.IOException;
import java.time.Instant;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;

/** {@code /v1/keys}: API keys of a project. */
final class KeysApi {
    private static final Set<String> CREATE = Set.of("name", "scopes", "expires_at");

    private final Keys keys;

    KeysApi(Keys keys) {
        this.keys = keys;
    }

    record KeyView(
            String keyId,
            String name,
            String prefix,
            List<String> scopes,
            Instant createdAt,
            Optional<Instant> expiresAt,
            Optional<Instant> lastUsedAt) {
        static KeyView of(ApiKey key) {
            return new KeyView(
                    key.id().toString(),
                    key.name(),
                    key.shownPrefix(),
                    key.scopes().stream().sorted().map(KeysApi::text).toList(),
                    key.createdAt(),
                    key.expiresAt(),
                    key.lastUsedAt());
        }
    }

    /** The one answer with the key itself. */
    record CreatedView(
            String key,
            String keyId,
            String name,
            String prefix,
            List<String> scopes,
            Instant createdAt,
            Optional<Instant> expiresAt,
            Optional<Instant> lastUsedAt) {
        static CreatedView of(CreatedKey created) {
            KeyView view = KeyView.of(created.key());
            return new CreatedView(
                    created.secret(),
                    view.keyId,
                    view.name,
                    view.prefix,
                    view.scopes,
                    view.createdAt,
                    view.expiresAt,
                    view.lastUsedAt);
        }
    }

    private static String text(Scope scope) {
        return scope.name().toLowerCase(Locale.ROOT);
    }

    void create(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), CREATE);
        Set<Scope> scopes = EnumSet.noneOf(Scope.class);
        for (String word : fields.textList("scopes").orElse(List.of())) {
            scopes.add(Choices.of("scopes", word, Scope.values(), KeysApi::text));
        }
        var request = new CreateKey(
                fields.requiredText("name"), scopes, fields.text("expires_at").map(KeysApi::time));
        exchange.json(201, CreatedView.of(keys.create(caller, request)));
    }

    private static Instant time(String text) {
        return Times.parse("expires_at", text);
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(
                200,
                new Wire.Items<>(keys.list(caller).stream().map(KeyView::of).toList(), Optional.empty()));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, KeyView.of(keys.get(caller, id(exchange))));
    }

    void revoke(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        keys.revoke(caller, id(exchange));
        exchange.empty(204);
    }

    private static KeyId id(Exchange exchange) {
        return KeyId.parse(exchange.path("key_id"));
    }
}

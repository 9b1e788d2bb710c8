package atoll.ui;

import atoll.core.ApiKey;
import atoll.core.Atoll;
import atoll.core.KeyId;
import atoll.core.Scope;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** API keys. One is made by the page's script, since the key itself is in that one answer alone and is put in no place where it stays. */
public final class KeysPage implements Page {
    private static final String PATH = "/ui/keys";
    private static final String LIVE = "/ui/live/keys";

    private final Atoll atoll;

    KeysPage(Atoll atoll) {
        this.atoll = atoll;
    }

    /**
     * A key.
     *
     * @param own whether the visitor is logged in with it
     */
    public record Row(
            String id,
            String name,
            String prefix,
            List<String> scopes,
            String created,
            String expires,
            boolean expired,
            String lastUsed,
            boolean own) {}

    public record Model(List<Row> rows, String formToken, boolean mayAdmin, List<String> scopes) {}

    @Override
    public void addTo(Site site) {
        site.page(
                        PATH,
                        visit -> View.page(Nav.KEYS, "Keys", "keys")
                                .with("model", model(visit))
                                .live(LIVE)
                                .script("keys.js"))
                .live(LIVE, visit -> Map.of("list", View.fragment("keys/list").with("model", model(visit))))
                .action("/ui/keys/{id}/revoke", (visit, _) -> {
                    KeyId id = KeyId.parse(visit.path("id"));
                    atoll.keys().revoke(visit.caller(), id);
                    return Outcome.to(PATH).saying("The key is revoked");
                });
    }

    private Model model(Visit visit) {
        Instant now = Instant.now();
        return new Model(
                visit.mayAdmin()
                        ? atoll.keys().list(visit.caller()).stream()
                                .map(key -> row(
                                        key, now, key.id().equals(visit.caller().key())))
                                .toList()
                        : List.of(),
                visit.formToken(),
                visit.mayAdmin(),
                texts(visit.caller().scopes()));
    }

    private static Row row(ApiKey key, Instant now, boolean own) {
        return new Row(
                key.id().toString(),
                key.name(),
                key.shownPrefix() + "…",
                texts(key.scopes()),
                Format.time(key.createdAt()),
                Format.time(key.expiresAt(), "never"),
                key.expiresAt().map(now::isAfter).orElse(false),
                Format.time(key.lastUsedAt(), "never"),
                own);
    }

    private static List<String> texts(java.util.Set<Scope> scopes) {
        return scopes.stream()
                .sorted()
                .map(scope -> scope.name().toLowerCase(Locale.ROOT))
                .toList();
    }
}

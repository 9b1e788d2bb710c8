package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.Caller;
import atoll.core.ProjectId;
import atoll.core.Scope;
import atoll.core.node.ImageSource;
import atoll.core.store.Store;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;

/** What opens registries, sealed in the store. */
public final class RegistryService implements Registries {
    private static final Pattern HOST =
            Pattern.compile("(\\[[0-9a-fA-F:]+\\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?");
    private static final int LONGEST = 8192;

    private final Store store;
    private final Sealing sealing;
    private final InstantSource clock;

    public RegistryService(Store store, Sealing sealing, InstantSource clock) {
        this.store = store;
        this.sealing = sealing;
        this.clock = clock;
    }

    @Override
    public List<Registry> list(Caller caller) {
        caller.require(Scope.ADMIN);
        return store.registries(caller.project()).stream()
                .map(RegistryService::seen)
                .toList();
    }

    private static Registry seen(StoredRegistry stored) {
        return new Registry(stored.host(), stored.username(), stored.updatedAt());
    }

    @Override
    public Registry put(Caller caller, String host, String username, String password) {
        caller.require(Scope.ADMIN);
        if (!HOST.matcher(host).matches()) {
            throw AtollException.invalid(
                    "host: \"" + TemplateDefinition.shown(host)
                            + "\" (expected: a registry's host, with :port if it has one)",
                    "Name it as in an image's reference, such as registry.example:5000.");
        }
        if (password.isEmpty() || password.length() > LONGEST || username.length() > LONGEST) {
            throw AtollException.invalid(
                    "password: " + password.length() + " characters (expected: 1 to " + LONGEST
                            + ", and a username of at most as many)",
                    "Send the password, or the token, of the registry.");
        }
        StoredRegistry stored =
                new StoredRegistry(caller.project(), host, username, sealing.seal(password), clock.instant());
        store.saveRegistry(stored);
        return seen(stored);
    }

    @Override
    public void delete(Caller caller, String host) {
        caller.require(Scope.ADMIN);
        store.removeRegistry(caller.project(), host);
    }

    List<ImageSource.Credentials> credentials(ProjectId project) {
        List<ImageSource.Credentials> all = new ArrayList<>();
        for (StoredRegistry stored : store.registries(project)) {
            try {
                all.add(new ImageSource.Credentials(
                        stored.host(), stored.username(), sealing.unseal(stored.sealedPassword())));
            } catch (IllegalArgumentException e) {
                System.getLogger(RegistryService.class.getName())
                        .log(
                                System.Logger.Level.WARNING,
                                "the password of registry " + stored.host() + " can't be read; set it again: "
                                        + e.getMessage());
            }
        }
        return all;
    }
}

package atoll.api;

import atoll.core.Caller;
import atoll.core.node.Image;
import atoll.core.template.Images;
import atoll.core.template.Registries;
import atoll.http.BodyInput;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;

/** {@code /v1/images} and {@code /v1/registries}: what the node has, and where more comes from. */
final class ImagesApi {
    private final Supplier<Images> images;
    private final Supplier<Registries> registries;

    ImagesApi(Supplier<Images> images, Supplier<Registries> registries) {
        this.images = images;
        this.registries = registries;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<TemplateViews.ImageView> all = images.get().images(caller).stream()
                .map(TemplateViews.ImageView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void pull(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), Set.of("reference"));
        Image image = images.get().pull(caller, fields.requiredText("reference"), _ -> {});
        exchange.json(201, TemplateViews.ImageView.of(image));
    }

    void importArchive(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        String name = Optional.ofNullable(exchange.query("name")).orElse("imported");
        try (var body = new BodyInput(exchange.bodyStream())) {
            Image image;
            try {
                image = images.get().importArchive(caller, name, body);
            } catch (IOException | RuntimeException e) {
                body.rethrow();
                throw e;
            }
            exchange.json(201, TemplateViews.ImageView.of(image));
        }
    }

    void delete(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, new TemplateViews.Freed(images.get().deleteImage(caller, exchange.path("digest"))));
    }

    void prune(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJsonIfAny(), Set.of());
        assert !fields.has("digest");
        exchange.json(200, TemplateViews.PrunedView.of(images.get().prune(caller)));
    }

    void registries(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<TemplateViews.RegistryView> all = registries.get().list(caller).stream()
                .map(TemplateViews.RegistryView::of)
                .toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void putRegistry(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        var fields = new Fields(exchange.readJson(), Set.of("username", "password"));
        Registries.Registry kept = registries
                .get()
                .put(
                        caller,
                        exchange.path("host"),
                        fields.text("username").orElse(""),
                        fields.requiredText("password"));
        exchange.json(200, TemplateViews.RegistryView.of(kept));
    }

    void deleteRegistry(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        registries.get().delete(caller, exchange.path("host"));
        exchange.empty(204);
    }
}

package atoll.api;

import atoll.core.Caller;
import atoll.core.template.Templates;
import atoll.http.Exchange;
import java.io.IOException;
import java.util.List;
import java.util.Optional;

/** {@code /v1/templates}. */
final class TemplatesApi {
    private final Templates templates;

    TemplatesApi(Templates templates) {
        this.templates = templates;
    }

    void list(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        List<Wire.TemplateView> all =
                templates.list(caller).stream().map(Wire.TemplateView::of).toList();
        exchange.json(200, new Wire.Items<>(all, Optional.empty()));
    }

    void get(Exchange exchange, Caller caller) throws IOException, InterruptedException {
        exchange.json(200, Wire.TemplateView.of(templates.get(caller, exchange.path("template_id"))));
    }
}

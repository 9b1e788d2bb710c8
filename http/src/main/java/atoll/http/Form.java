package atoll.http;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The fields of a form as browsers send it ({@code application/x-www-form-urlencoded}); a name may be there more than once. */
public final class Form {
    static final String TYPE = "application/x-www-form-urlencoded";
    private static final int MOST_FIELDS = 1000;

    private final Map<String, List<String>> fields;

    private Form(Map<String, List<String>> fields) {
        this.fields = fields;
    }

    static boolean isForm(String contentType) {
        int semicolon = contentType.indexOf(';');
        return (semicolon < 0 ? contentType : contentType.substring(0, semicolon))
                .strip()
                .equalsIgnoreCase(TYPE);
    }

    static Form parse(byte[] bytes, int length) {
        return parse(new String(bytes, 0, length, StandardCharsets.UTF_8));
    }

    /** Of the text of a form, which is also that of a query. */
    public static Form parse(String text) {
        var fields = new LinkedHashMap<String, List<String>>();
        if (text.isEmpty()) {
            return new Form(fields);
        }
        String[] pairs = text.split("&", MOST_FIELDS + 1);
        if (pairs.length > MOST_FIELDS) {
            throw HttpFailure.badRequest(
                    "invalid_request", "the form has more than %d fields".formatted(MOST_FIELDS), "send fewer");
        }
        for (String pair : pairs) {
            int equals = pair.indexOf('=');
            String name = decode(equals < 0 ? pair : pair.substring(0, equals));
            String value = equals < 0 ? "" : decode(pair.substring(equals + 1));
            fields.computeIfAbsent(name, _ -> new ArrayList<>()).add(value);
        }
        return new Form(fields);
    }

    private static String decode(String raw) {
        try {
            return URLDecoder.decode(raw, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException _) {
            throw HttpFailure.badRequest(
                    "invalid_request", "the form holds a broken escape", "send it as a browser does");
        }
    }

    /** The first value; empty if there is none. */
    public String text(String name) {
        List<String> values = fields.get(name);
        return values == null ? "" : values.getFirst();
    }

    /** The first value without blanks around it, if anything is left. */
    public Optional<String> given(String name) {
        String text = text(name).strip();
        return text.isEmpty() ? Optional.empty() : Optional.of(text);
    }

    public List<String> all(String name) {
        return List.copyOf(fields.getOrDefault(name, List.of()));
    }

    public boolean has(String name) {
        return fields.containsKey(name);
    }
}

package atoll.core.execution;

import java.util.Optional;

/**
 * A displayed value in one or more forms: one JSON object from MIME type to value, e.g. {@code {"text/plain":"2"}}. The node client
 * has parsed it, so {@code json} is valid and may be put into a reply as it is.
 *
 * @param plainText the value of {@code text/plain}, if there is one
 */
public record MimeBundle(String json, Optional<String> plainText) {}

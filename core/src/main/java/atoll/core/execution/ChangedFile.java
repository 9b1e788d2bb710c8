package atoll.core.execution;

import java.time.Instant;

/**
 * A file that an execution has made or changed.
 *
 * @param path absolute, inside the sandbox
 * @param modifiedAt as programs see it, who may have set it themselves
 */
public record ChangedFile(String path, long sizeBytes, Instant modifiedAt) {
    /** What its name says it is; {@code application/octet-stream} where it says nothing. */
    public String mimeType() {
        return FileTypes.of(path);
    }
}

package atoll.core.template;

import atoll.core.BuildId;
import java.io.IOException;
import java.io.InputStream;
import java.time.Instant;
import java.util.Optional;
import java.util.Set;

/** What templates keep as files: logs of builds, and build contexts. Failures of the disk are {@code DISK_FULL} or {@code INTERNAL}. */
public interface TemplateFiles {
    /** Adds to the end of a log, which begins with the first call. */
    void append(BuildId build, byte[] data);

    /** At most {@code most} bytes from {@code offset} on; none at the end, or where there is no log. */
    byte[] read(BuildId build, long offset, int most);

    Set<BuildId> logs();

    /** No error if it is not there. */
    void deleteLog(BuildId build);

    /** Keeps a build context; {@code REQUEST_TOO_LARGE} beyond {@code most} bytes, and then nothing is kept. Reads {@code data} to its end. */
    BuildContext putContext(InputStream data, long most) throws IOException;

    /** Empty if it is not there. The caller closes it. */
    Optional<InputStream> context(String digest);

    /** Those that were kept before that time. */
    Set<String> contexts(Instant before);

    void deleteContext(String digest);

    /** Keeps an upload, in the place of what was there; {@code REQUEST_TOO_LARGE} beyond {@code most} bytes. Reads {@code data} to its end. */
    void putUpload(String id, InputStream data, long most) throws IOException;

    /** Whether it is there; it counts as kept now. */
    boolean touchUpload(String id);

    /** Empty if it is not there. The caller closes it. */
    Optional<InputStream> upload(String id);

    /** Removes those that were kept before that time. */
    void deleteUploads(Instant before);
}

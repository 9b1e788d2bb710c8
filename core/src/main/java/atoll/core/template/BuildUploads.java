package atoll.core.template;

import atoll.core.Caller;
import java.io.IOException;
import java.io.InputStream;
import java.util.Optional;
import java.util.SequencedMap;

/**
 * What clients send ahead of a build, by names of their choosing: for protocols in which a build's files come in pieces before the template is
 * defined. Kept for a day after it was last asked for; a name that is put again holds what came last.
 */
public interface BuildUploads {
    /** Reads {@code content} to its end; {@code REQUEST_TOO_LARGE} beyond what a build context may have. */
    void put(Caller caller, String name, InputStream content) throws IOException;

    /** Whether it is there; if so, it stays for another day. */
    boolean has(Caller caller, String name);

    /** Empty if it is not there. The caller closes it. */
    Optional<InputStream> open(Caller caller, String name);

    /** Lets whoever holds it put this one upload, without a key, for an hour. Letters, digits, dots, dashes and low lines. */
    String ticket(Caller caller, String name);

    /** The same as {@code put} for the one who made the ticket; {@code UNAUTHENTICATED} if it is none, or its hour has passed. */
    void putByTicket(String ticket, InputStream content) throws IOException;

    /**
     * A build context of several uploads, tars as they are or packed by gzip.
     *
     * @param byFolder the folder that each is to lie in, and the upload's name
     */
    BuildContext context(Caller caller, SequencedMap<String, String> byFolder) throws IOException;
}

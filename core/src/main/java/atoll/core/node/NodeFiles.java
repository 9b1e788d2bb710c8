package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.file.FileEvent;
import atoll.core.file.FileOperation;
import atoll.core.file.FileReader;
import atoll.core.file.FileReply;
import atoll.core.file.FileWriter;
import atoll.core.file.ReadFile;
import atoll.core.file.WriteFile;

/**
 * Files inside boxes. Unlike other calls of a node these fail with {@code FILE_NOT_FOUND} and {@code FILE_CONFLICT} also where it is the box that is not there or
 * has ended: the two can't be told apart here.
 */
public interface NodeFiles {
    FileReply file(BoxId box, String user, FileOperation operation);

    /** Returns when the file has been opened. */
    FileReader readFile(BoxId box, String user, ReadFile what);

    /** Returns at once; what is wrong with the path comes with a write or the commit. */
    FileWriter writeFile(BoxId box, String user, WriteFile what);

    NodeStream<FileEvent> watchFiles(BoxId box, String user, String path, boolean recursive);
}

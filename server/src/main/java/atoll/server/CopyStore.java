package atoll.server;

import atoll.store.StoreBackup;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.SQLException;

/**
 * For {@code ./atoll backup}: copies the store of a data folder to {@code atoll.db} in another folder, and writes what it names to {@code named.json} there. The
 * server may be running or not.
 */
public final class CopyStore {
    private static final int USAGE = 2;
    private static final int FAILED = 1;

    private CopyStore() {}

    public static void main(String[] arguments) {
        if (arguments.length != 2) {
            System.err.println("usage: CopyStore DATA-FOLDER FOLDER");
            System.exit(USAGE);
            return;
        }
        Path into = Path.of(arguments[1]);
        try {
            StoreBackup.Named named =
                    StoreBackup.copy(Path.of(arguments[0]).resolve("atoll.db"), into.resolve("atoll.db"));
            Path written = Files.writeString(into.resolve("named.json"), named.toJson());
            assert written.isAbsolute() == into.isAbsolute();
        } catch (SQLException | IOException e) {
            System.err.println("the store could not be copied: " + e.getMessage());
            System.exit(FAILED);
        }
    }
}

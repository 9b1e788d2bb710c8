package atoll.compat.e2b;

import atoll.core.file.FileStat;
import atoll.core.file.FileType;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/** Files as this protocol shows them. */
final class FileViews {
    /** Extended attributes of this protocol stand below that name, in lower case. */
    static final String ATTRIBUTE = "e2b.";

    private FileViews() {}

    static ObjectNode entry(FileStat file) {
        ObjectNode entry = JsonNodeFactory.instance.objectNode();
        entry.put("name", file.name());
        FileType shown = file.type() == FileType.SYMLINK ? file.targetType().orElse(FileType.SYMLINK) : file.type();
        entry.put(
                "type",
                switch (shown) {
                    case FILE -> "FILE_TYPE_FILE";
                    case DIRECTORY -> "FILE_TYPE_DIRECTORY";
                    case SYMLINK -> "FILE_TYPE_SYMLINK";
                    case OTHER -> "FILE_TYPE_UNSPECIFIED";
                });
        entry.put("path", file.path());
        entry.put("size", Long.toString(file.size()));
        entry.put("mode", file.mode());
        entry.put("permissions", permissions(file));
        entry.put("owner", file.owner());
        entry.put("group", file.group());
        entry.put("modifiedTime", Text.time(file.modifiedAt()));
        file.linkTarget().ifPresent(target -> entry.put("symlinkTarget", target));
        entry.set("metadata", metadata(file));
        entry.put("isSymlink", file.type() == FileType.SYMLINK);
        return entry;
    }

    static ObjectNode metadata(FileStat file) {
        ObjectNode metadata = JsonNodeFactory.instance.objectNode();
        file.attributes().forEach((name, value) -> {
            if (name.startsWith(ATTRIBUTE)) {
                metadata.put(name.substring(ATTRIBUTE.length()), value);
            }
        });
        return metadata;
    }

    /** As {@code ls -l} writes them. */
    private static String permissions(FileStat file) {
        var text = new StringBuilder(10);
        text.append(
                switch (file.type()) {
                    case DIRECTORY -> 'd';
                    case SYMLINK -> 'L';
                    case FILE, OTHER -> '-';
                });
        for (int bit = 8; bit >= 0; bit--) {
            text.append((file.mode() >> bit & 1) == 1 ? "xwr".charAt(bit % 3) : '-');
        }
        return text.toString();
    }
}

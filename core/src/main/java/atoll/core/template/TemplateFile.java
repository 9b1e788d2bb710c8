package atoll.core.template;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import java.util.Base64;

/**
 * A file that a template puts into its image.
 *
 * @param path absolute
 * @param base64 what is in it
 * @param mode permissions, such as 0644
 * @param owner {@code user}, {@code user:group} or numbers; empty: root
 */
public record TemplateFile(String path, String base64, int mode, String owner) {
    public static final int MODE = 0644;

    public TemplateFile {
        TemplateDefinition.checkPath("files.path", path);
        if (path.endsWith("/")) {
            throw AtollException.invalid(
                    "files.path: \"" + TemplateDefinition.shown(path) + "\" (expected: a file's, not a folder's)",
                    "Name the file; its folder is made.");
        }
        if (mode < 0 || mode > 0777) {
            throw AtollException.invalid(
                    "files.mode: " + Integer.toOctalString(mode) + " (expected: 0 to 0777, octal)",
                    "Leave out set-user-id and the like; a command can set them.");
        }
        if (!owner.isEmpty()) {
            TemplateDefinition.checkUser("files.owner", owner);
        }
        try {
            byte[] content = Base64.getDecoder().decode(base64);
            assert content.length <= base64.length();
        } catch (IllegalArgumentException e) {
            throw new AtollException(
                    ErrorCode.INVALID_REQUEST,
                    "files.content_base64 of \"" + TemplateDefinition.shown(path) + "\": " + e.getMessage()
                            + " (expected: base64)",
                    "",
                    "Encode the bytes of the file, or send its text as content.",
                    e);
        }
    }

    byte[] content() {
        return Base64.getDecoder().decode(base64);
    }

    /** About how many bytes it holds. */
    long size() {
        return base64.length() * 3L / 4;
    }
}

package atoll.core;

import java.util.UUID;

/** Names a project, which owns everything that callers make. The first one is called {@code default}. */
public record ProjectId(String text) {
    public static final String PREFIX = "prj-";
    public static final ProjectId DEFAULT = new ProjectId("default");

    public ProjectId {
        if (!text.equals("default")) {
            IdText.parse(PREFIX, text, "project", ErrorCode.NOT_FOUND);
        }
    }

    public static ProjectId random() {
        return new ProjectId(IdText.format(PREFIX, UUID.randomUUID()));
    }

    @Override
    public String toString() {
        return text;
    }
}

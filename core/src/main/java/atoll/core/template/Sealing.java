package atoll.core.template;

/** Makes text unreadable for everyone but this installation. */
public interface Sealing {
    String seal(String secret);

    /** Fails with {@code IllegalArgumentException} for what this installation did not seal. */
    String unseal(String sealed);
}

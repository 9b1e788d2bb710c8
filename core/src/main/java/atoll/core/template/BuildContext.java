package atoll.core.template;

/** The files that a Dockerfile copies from: an uploaded tar, by the SHA-256 of its bytes. */
public record BuildContext(String digest, long bytes) {}

package atoll.http;

import java.time.Duration;
import java.util.Objects;

/**
 * How the server listens and what it puts up with. The defaults suit a server on a loopback address or behind a proxy.
 *
 * @param port 0 picks a free one
 * @param maxBodyBytes of one request body
 * @param maxBodiesInFlightBytes of all large request bodies being held at once
 * @param headerTimeout from the first byte of a request to the end of its headers
 * @param bodyTimeout for a whole request body to arrive
 * @param writeTimeout for a reader to take one piece of at most 64 KiB; a slower one is dropped
 * @param idleTimeout of a kept-alive connection without a request
 * @param stopTimeout for running requests to end when the server stops
 */
public record HttpServerConfig(
        String host,
        int port,
        long maxBodyBytes,
        long maxBodiesInFlightBytes,
        int maxHeaderBytes,
        int maxConnections,
        Duration headerTimeout,
        Duration bodyTimeout,
        Duration writeTimeout,
        Duration idleTimeout,
        Duration stopTimeout) {

    public HttpServerConfig {
        Objects.requireNonNull(host, "host");
        if (port < 0 || port > 65_535) {
            throw new IllegalArgumentException("port: %s (expected: 0 to 65535)".formatted(port));
        }
        requirePositive("maxBodyBytes", maxBodyBytes);
        requirePositive("maxHeaderBytes", maxHeaderBytes);
        requirePositive("maxConnections", maxConnections);
        if (maxBodiesInFlightBytes < maxBodyBytes) {
            throw new IllegalArgumentException("maxBodiesInFlightBytes: %s (expected: >= maxBodyBytes, which is %s)"
                    .formatted(maxBodiesInFlightBytes, maxBodyBytes));
        }
        requirePositive("headerTimeout", headerTimeout.toMillis());
        requirePositive("bodyTimeout", bodyTimeout.toMillis());
        requirePositive("writeTimeout", writeTimeout.toMillis());
        requirePositive("idleTimeout", idleTimeout.toMillis());
    }

    public static HttpServerConfig defaults() {
        return new HttpServerConfig(
                "127.0.0.1",
                8080,
                // Code of 16 MiB, with room for its JSON escapes.
                40L << 20,
                160L << 20,
                16 << 10,
                10_000,
                Duration.ofSeconds(20),
                Duration.ofSeconds(60),
                Duration.ofSeconds(30),
                Duration.ofSeconds(60),
                Duration.ofSeconds(5));
    }

    public HttpServerConfig listeningOn(String newHost, int newPort) {
        return new HttpServerConfig(
                newHost,
                newPort,
                maxBodyBytes,
                maxBodiesInFlightBytes,
                maxHeaderBytes,
                maxConnections,
                headerTimeout,
                bodyTimeout,
                writeTimeout,
                idleTimeout,
                stopTimeout);
    }

    public HttpServerConfig withMaxBodyBytes(long newMaxBodyBytes) {
        return new HttpServerConfig(
                host,
                port,
                newMaxBodyBytes,
                Math.max(newMaxBodyBytes, maxBodiesInFlightBytes),
                maxHeaderBytes,
                maxConnections,
                headerTimeout,
                bodyTimeout,
                writeTimeout,
                idleTimeout,
                stopTimeout);
    }

    public HttpServerConfig withTimeouts(Duration header, Duration body, Duration write, Duration idle) {
        return new HttpServerConfig(
                host,
                port,
                maxBodyBytes,
                maxBodiesInFlightBytes,
                maxHeaderBytes,
                maxConnections,
                header,
                body,
                write,
                idle,
                stopTimeout);
    }

    private static void requirePositive(String name, long value) {
        if (value <= 0) {
            throw new IllegalArgumentException("%s: %s (expected: > 0)".formatted(name, value));
        }
    }
}

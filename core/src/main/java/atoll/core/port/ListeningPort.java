package atoll.core.port;

import java.util.Optional;

/**
 * A TCP port that something in the sandbox listens on.
 *
 * @param address as it was bound, for example {@code 127.0.0.1} or {@code ::}
 * @param pid 0 where it could not be told
 * @param processId of the process that it descends from, where that was started by our API
 */
public record ListeningPort(int port, String address, int pid, String command, Optional<String> processId) {}

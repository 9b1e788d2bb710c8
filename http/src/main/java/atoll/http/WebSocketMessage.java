package atoll.http;

import java.nio.ByteBuffer;

/** What the other side says. */
public sealed interface WebSocketMessage {
    /** A whole text message. */
    record Text(String text) implements WebSocketMessage {}

    /** Bytes, as they come: a long message comes in several pieces of at most 64 KiB. The buffer belongs to the receiver. */
    record Binary(ByteBuffer bytes) implements WebSocketMessage {}
}

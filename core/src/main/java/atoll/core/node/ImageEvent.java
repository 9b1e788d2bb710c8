package atoll.core.node;

import java.nio.ByteBuffer;

/** What happens while an image is made. */
public sealed interface ImageEvent {
    /** A step has begun; counted from 1. */
    record Step(int number, int total, String text, boolean cached) implements ImageEvent {}

    /** What a step printed. */
    record Log(ByteBuffer data, boolean stderr) implements ImageEvent {}

    /** How far something is; {@code totalBytes} is 0 where that is not known. */
    record Progress(String what, long doneBytes, long totalBytes) implements ImageEvent {}

    /** It is on the node. */
    record Done(Image image) implements ImageEvent {}
}

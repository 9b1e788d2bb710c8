package atoll.core.template;

/** What happens in a build, as its followers see it. */
public sealed interface BuildEvent {
    /** A step has begun. */
    record Step(int number, int total, String text, boolean cached) implements BuildEvent {}

    /** Text that a step printed. */
    record Log(String text, boolean stderr) implements BuildEvent {}

    /** How far something is; {@code totalBytes} is 0 where that is not known. */
    record Progress(String what, long doneBytes, long totalBytes) implements BuildEvent {}

    /** It has ended; the last event. */
    record Done(Build build) implements BuildEvent {}
}

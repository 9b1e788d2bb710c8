package atoll.core.process;

/** What a signal goes to. */
public enum SignalTarget {
    PROCESS,
    /** Its process group; with a terminal, the group in the foreground. */
    GROUP,
    /** All that it has started, whatever session or parent that has now. */
    TREE
}

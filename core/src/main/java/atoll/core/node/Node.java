package atoll.core.node;

import atoll.core.BoxId;
import atoll.core.ContextId;
import atoll.core.ExecutionId;
import atoll.core.execution.OutputReader;
import atoll.core.execution.StandardStream;
import atoll.core.template.Limits;
import java.util.List;
import java.util.Optional;

/**
 * The engine of one node. Every call may be made again after a lost answer: ids come from here.
 *
 * <p>Failures are {@code AtollException}s: {@code NODE_UNAVAILABLE} when the node or the box cannot be reached right now (try
 * again), {@code NOT_FOUND} for what the node does not know, {@code CONFLICT} when a box has ended or a newer server owns the node,
 * {@code NODE_FULL}, {@code DISK_FULL}, {@code INVALID_REQUEST} and {@code INTERNAL}; {@code SANDBOX_PAUSED} where the inside of a
 * box was needed and it is paused. What was said and how things ended can be read of a paused box too, and whoever follows something
 * in it hears nothing until it goes on.
 */
public interface Node extends NodeFiles, NodeImages, NodePorts, NodeSnapshots, AutoCloseable {
    NodeInfo info();

    /** Owns the node from now on; calls by servers with a smaller epoch are refused. */
    void claim(long epoch);

    /** Returns when the box is ready with its warm contexts. A failed start leaves no box behind. */
    Box createBox(BoxId id, BoxSpec spec);

    Box assignBox(BoxId id, BoxAssignment assignment);

    /** Changes what a live box may use; all but disk and open files, which are fixed. {@code CONFLICT} if it uses more already. */
    Box updateLimits(BoxId id, Limits limits);

    Optional<Box> box(BoxId id);

    /** All boxes, those ended and not yet deleted too. */
    List<Box> boxes();

    /** Ends and removes it, whatever state it is in; no error if it is not there. */
    void deleteBox(BoxId id);

    /** First every box as it is, then each change. */
    NodeStream<Box> watchBoxes();

    NodeContext openContext(BoxId id, ContextSpec spec);

    /** Starts its interpreter afresh; what runs in it ends. */
    NodeContext restartContext(BoxId id, ContextId context);

    /** No error if it is not there. */
    void closeContext(BoxId id, ContextId context);

    List<NodeContext> contexts(BoxId id);

    /**
     * Starts the execution, or follows it from its first event on if it exists. It is sure to be under way once an event has come:
     * a stream that is closed before may have taken the request along.
     */
    NodeStream<NodeEvent> execute(BoxId box, ExecutionSpec spec);

    /** The events after {@code afterSeq} of an execution that runs, or that ended and has its spool. */
    NodeStream<NodeEvent> attach(BoxId box, ExecutionId id, long afterSeq);

    void interrupt(BoxId box, ExecutionId id);

    List<NodeExecution> executions();

    OutputReader readOutput(BoxId box, ExecutionId id, StandardStream stream, long offset, boolean follow);

    /** These are on record here. With {@code keepSpool} their output stays readable until they are forgotten without it. */
    void forgetExecutions(List<ExecutionId> ids, boolean keepSpool);

    NodeProcesses processes();

    /** What every live box uses at this moment. */
    List<BoxUsage> sampleUsage();

    @Override
    void close();
}

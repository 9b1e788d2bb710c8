package atoll.core.process;

import atoll.core.AtollException;
import atoll.core.BoxId;
import atoll.core.ErrorCode;
import atoll.core.node.EventFollower;
import atoll.core.node.NodeEvent;
import atoll.core.node.NodeStream;
import atoll.core.node.PatientNode;
import java.util.Optional;

/** One reader of a process, with a stream of its own: how fast it reads concerns nobody else. */
final class AttachedProcess implements ProcessFeed {
    /** Who keeps the record. */
    interface Owner {
        /** As it is on record now. */
        ProcessRecord now();

        /** Something was read. */
        void passed();

        /** The reader has come to the end; returns the record with it. */
        ProcessRecord ended(ProcessEnd end, long stdoutBytes, long stderrBytes);

        /** What a failure to read means to the caller. */
        AtollException unreadable(AtollException e);
    }

    private final ProcessRecord process;
    private final EventFollower events;
    private final Owner owner;
    private boolean over;
    private volatile boolean closed;

    AttachedProcess(ProcessRecord process, BoxId box, PatientNode node, long afterSeq, Owner owner) {
        this.process = process;
        this.owner = owner;
        this.events = new EventFollower("process " + process.id(), node, afterSeq, new EventFollower.Source() {
            @Override
            public NodeStream<NodeEvent> openAfter(long seq) {
                return node.processes().attach(box, process.id(), seq);
            }

            @Override
            public boolean isOver() {
                return !owner.now().running();
            }
        });
        events.begin();
    }

    @Override
    public ProcessRecord process() {
        return process;
    }

    @Override
    public Optional<ProcessUpdate> next() throws InterruptedException {
        while (!over && !closed) {
            Optional<NodeEvent> event;
            try {
                event = events.next();
            } catch (AtollException e) {
                over = true;
                throw e.code() == ErrorCode.NODE_UNAVAILABLE ? e : owner.unreadable(e);
            }
            if (closed) {
                break;
            }
            if (event.isEmpty()) {
                // All that it said had been seen before.
                over = true;
                return Optional.of(new ProcessUpdate.Ended(events.lastSeq(), owner.now()));
            }
            owner.passed();
            Optional<ProcessUpdate> update = update(event.get());
            if (update.isPresent()) {
                return update;
            }
        }
        return Optional.empty();
    }

    private Optional<ProcessUpdate> update(NodeEvent event) {
        return switch (event) {
            case NodeEvent.Started started ->
                Optional.of(new ProcessUpdate.Started(started.seq(), owner.now().pid(), started.at()));
            case NodeEvent.Output output ->
                Optional.of(new ProcessUpdate.Output(output.seq(), output.stream(), output.offset(), output.data()));
            case NodeEvent.Gap gap ->
                Optional.of(new ProcessUpdate.Gap(gap.seq(), gap.stream(), gap.offset(), gap.bytes()));
            // No process displays values.
            case NodeEvent.Result _ -> Optional.empty();
            case NodeEvent.Finished finished -> {
                over = true;
                NodeEvent.Finish finish = finished.finish();
                yield Optional.of(new ProcessUpdate.Ended(
                        finished.seq(),
                        owner.ended(ProcessEnd.of(finish), finish.stdoutBytes(), finish.stderrBytes())));
            }
        };
    }

    @Override
    public void close() {
        closed = true;
        events.stop();
    }
}

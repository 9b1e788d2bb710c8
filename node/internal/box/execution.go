package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
	"atoll/node/internal/spool"
)

const (
	// ackEvery is how much may be safe on file before the agent is told. The agent
	// stops reading at 1 MiB unacknowledged.
	ackEvery = 128 << 10
	// settleAfter is how long after its end an execution may stay in memory alone.
	settleAfter = 5 * time.Second
)

// execution drains one execution's, or one process's, events from the agent to its log. It outlives
// the connection only as the log: after a reconnection a new one goes on.
type execution struct {
	log    *spool.Log
	link   *link
	stream *frame.Stream
	logger *slog.Logger
	// explain corrects an end whose reason only the host can know. It may be nil.
	explain func(*execv1.Finished)

	mu sync.Mutex
	// All below is guarded by mu.
	acknowledged uint64
	settle       *time.Timer
	released     bool
}

// attachExecution goes on with one that the agent holds.
func attachExecution(l *link, log *spool.Log, logger *slog.Logger) (*execution, error) {
	return openExecution(l, log, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Attach{Attach: &agentv1.Attach{
		ExecutionId: log.Owner().ExecutionID, AfterSeq: log.Last(),
	}}}, logger)
}

// openExecution sends an execution's or a process's first message to the agent.
func openExecution(l *link, log *spool.Log, first *agentv1.ExecuteRequest, logger *slog.Logger) (*execution, error) {
	// No caller's context: whoever asked may go, the execution does not.
	stream, err := l.session.Open(context.Background(), agentrpc.Execute)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(first); err != nil {
		stream.Cancel()
		return nil, err
	}
	return &execution{log: log, link: l, stream: stream, logger: logger}, nil
}

// errRefused wraps the agent's answer to an execution that it did not take.
var errRefused = errors.New("the agent refused the execution")

// drain runs until the execution is acknowledged or the connection fails.
func (e *execution) drain() error {
	var unacknowledged int
	for {
		event := &execv1.ExecutionEvent{}
		err := e.stream.Receive(event)
		if err != nil {
			e.stop()
			return e.ended(err)
		}
		if f := event.GetFinished(); f != nil && e.explain != nil {
			e.explain(f)
		}
		if err := e.log.Append(event); err != nil {
			e.stop()
			e.stream.Cancel()
			if errors.Is(err, spool.ErrOutOfOrder) {
				return &violation{fmt.Sprintf("execution %s: %v", e.log.Owner().ExecutionID, err)}
			}
			return nil
		}
		unacknowledged += len(event.GetOutput().GetData()) + 64
		if event.GetFinished() != nil {
			e.finish()
		} else if unacknowledged >= ackEvery {
			unacknowledged = 0
			e.acknowledgeSafe()
		}
	}
}

// violation is an agent's breach of the protocol.
type violation struct{ what string }

func (v *violation) Error() string { return "the agent broke the protocol: " + v.what }

// ended judges why the stream is over.
func (e *execution) ended(err error) error {
	finished := e.log.Finished() != nil
	var status *frame.Status
	switch {
	case finished:
		return nil
	case !e.link.alive():
		return err
	case err == io.EOF: // not a pipe's end of file, which comes wrapped
		return &violation{fmt.Sprintf("execution %s has no end", e.log.Owner().ExecutionID)}
	case errors.As(err, &status) && e.log.Last() == 0:
		return fmt.Errorf("%w: %w", errRefused, err)
	case errors.As(err, &status):
		return &violation{fmt.Sprintf("execution %s ended with %v", e.log.Owner().ExecutionID, status)}
	}
	return err
}

// finish is called when the last event is in the log.
func (e *execution) finish() {
	if e.log.OnFile() {
		e.acknowledgeSafe()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.released {
		e.settle = time.AfterFunc(settleAfter, func() {
			if err := e.log.Spill(); err != nil {
				e.logger.Warn("output stays in memory", "error", err)
				return
			}
			e.acknowledgeSafe()
		})
	}
}

// acknowledgeSafe tells the agent what it need not keep. Errors are the drain's to notice.
func (e *execution) acknowledgeSafe() {
	e.acknowledge(e.log.Safe())
}

// release is called when the server has the execution on record.
func (e *execution) release() { e.acknowledge(e.log.Last()) }

func (e *execution) acknowledge(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seq <= e.acknowledged {
		return
	}
	e.acknowledged = seq
	acknowledge := &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_AcknowledgeSeq{AcknowledgeSeq: seq}}
	if e.log.Finished() != nil {
		e.released = true
		if e.settle != nil {
			e.settle.Stop()
		}
		// All is said; the agent only keeps it a moment longer.
		_ = e.stream.SendLater(acknowledge)
		return
	}
	_ = e.stream.Send(acknowledge)
}

// stop ends the timer of an execution whose connection is over.
func (e *execution) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released = true
	if e.settle != nil {
		e.settle.Stop()
	}
}

// seenContexts are the box's contexts, with those running that an execution has begun in: the agent tells of an interpreter's state only when it
// starts or fails, not for each cell.
func (b *box) seenContexts() []*execv1.Context {
	b.linkMu.Lock()
	running := map[string]bool{}
	for _, e := range b.executions {
		if owner := e.log.Owner(); owner.Process == nil && e.log.Started() != nil && e.log.Finished() == nil {
			running[owner.ContextID] = true
		}
	}
	b.linkMu.Unlock()
	contexts := b.contexts.list()
	for i, c := range contexts {
		if running[c.GetContextId()] && c.GetState() == execv1.ContextState_CONTEXT_STATE_IDLE {
			contexts[i] = proto.CloneOf(c)
			contexts[i].State = execv1.ContextState_CONTEXT_STATE_RUNNING
		}
	}
	return contexts
}

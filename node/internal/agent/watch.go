package agent

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/frame"
)

const (
	// A reader that falls this far behind loses late output, and nothing else.
	watcherLateBytes = 256 << 10
	watcherEvents    = 1024
)

// watcher is one Watch stream and what waits for it.
type watcher struct {
	mu     sync.Mutex
	queue  []proto.Message // guarded by mu
	late   int             // bytes of late output in queue; guarded by mu
	filled chan struct{}
}

func (a *Agent) watch(stream *frame.Stream) error {
	if err := stream.Receive(&agentv1.WatchRequest{}); err != nil {
		return err
	}
	w := &watcher{filled: make(chan struct{}, 1)}
	a.mu.Lock()
	a.watchers[w] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, w)
	}()
	for {
		batch, err := w.take(stream.Context())
		if err != nil {
			return err
		}
		if err := stream.SendAll(batch...); err != nil {
			return err
		}
	}
}

func (w *watcher) take(ctx context.Context) ([]proto.Message, error) {
	for {
		w.mu.Lock()
		batch := w.queue
		w.queue, w.late = nil, 0
		w.mu.Unlock()
		if len(batch) > 0 {
			return batch, nil
		}
		select {
		case <-w.filled:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *watcher) put(event *agentv1.AgentEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if late := event.GetLateOutput(); late != nil {
		if w.late+len(late.Data) > watcherLateBytes || len(w.queue) >= watcherEvents/2 {
			return
		}
		w.late += len(late.Data)
	}
	if len(w.queue) >= watcherEvents {
		return
	}
	w.queue = append(w.queue, event)
	select {
	case w.filled <- struct{}{}:
	default:
	}
}

func (a *Agent) publish(event *agentv1.AgentEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watchers {
		w.put(event)
	}
}

// late passes on what was printed after its execution had ended, at a bounded rate. It is a courtesy: what exceeds the rate is dropped.
func (a *Agent) late(executionID string, stream execv1.Stream, data []byte) {
	if executionID == "" || len(executionID) > 128 || len(data) == 0 {
		return
	}
	a.mu.Lock()
	known := !a.onlyOwn || a.executions[executionID] != nil || a.done[executionID]
	a.mu.Unlock()
	if !known {
		return // of a cell that another sandbox has asked for
	}
	a.lateMu.Lock()
	now := time.Now()
	a.lateBudget = min(watcherLateBytes, a.lateBudget+int(now.Sub(a.lateAt).Seconds()*watcherLateBytes))
	if a.lateAt.IsZero() {
		a.lateBudget = watcherLateBytes
	}
	a.lateAt = now
	allowed := a.lateBudget >= len(data)
	if allowed {
		a.lateBudget -= len(data)
	}
	a.lateMu.Unlock()
	if allowed {
		a.publish(&agentv1.AgentEvent{Event: &agentv1.AgentEvent_LateOutput{LateOutput: &agentv1.LateOutput{
			ExecutionId: executionID, Stream: stream, Data: append([]byte(nil), data...),
		}}})
	}
}

func (a *Agent) contextChanged(c *kernelContext) {
	a.publish(&agentv1.AgentEvent{Event: &agentv1.AgentEvent_ContextChanged{ContextChanged: c.describe()}})
}

package agent

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
)

const (
	chunkBytes = 64 << 10
	// What an execution may have waiting for acknowledgement before its output is no longer read.
	unacknowledgedBytes = 1 << 20
	// What an event costs in memory beside its data.
	eventCost = 160
	// A Started event waits this long for company: on its own it is worth no message.
	startedDelay = 5 * time.Millisecond
	// At most this much goes into one write of the frame layer.
	batchBytes = 256 << 10
)

// execution is one run of code and the log of what it said. It lives from start until its last event is acknowledged.
type execution struct {
	spec    *execv1.ExecutionSpec
	context *kernelContext
	// Set where it is no code of a context but a program.
	process *process
	// interrupt asks the context's worker to end it. Buffered: asked once is enough.
	interrupt chan time.Duration
	// forgotten is closed when nobody is interested any more, though it may run on.
	forgotten chan struct{}

	mu   sync.Mutex
	cond *sync.Cond // of mu; room in the log, or something to send
	// Events after acknowledged, dense. All below guarded by mu.
	events       []*execv1.ExecutionEvent
	acknowledged uint64
	lastSeq      uint64
	sentSeq      uint64 // highest that any reader has been given: later ones may still grow
	wakeSeq      uint64 // highest that readers are to be woken for
	waiting      int    // bytes not acknowledged
	stdoutBytes  uint64
	stderrBytes  uint64
	finished     bool
	started      time.Time
	announcing   *time.Timer // wakes readers for a Started event alone
	victim       *inner.Victim
}

func newExecution(spec *execv1.ExecutionSpec, context *kernelContext) *execution {
	e := &execution{spec: spec, context: context, interrupt: make(chan time.Duration, 1), forgotten: make(chan struct{})}
	e.cond = sync.NewCond(&e.mu)
	return e
}

func cost(event *execv1.ExecutionEvent) int {
	switch body := event.Event.(type) {
	case *execv1.ExecutionEvent_Output:
		return eventCost + len(body.Output.Data)
	case *execv1.ExecutionEvent_Result:
		return eventCost + len(body.Result.DataJson) + len(body.Result.MetadataJson) + len(body.Result.DisplayId)
	case *execv1.ExecutionEvent_Finished:
		return eventCost + proto.Size(body.Finished)
	}
	return eventCost
}

// append adds an event. Requires: mu is held.
func (e *execution) append(event *execv1.ExecutionEvent) {
	if e.finished {
		return
	}
	e.lastSeq++
	event.Seq = e.lastSeq
	e.events = append(e.events, event)
	e.waiting += cost(event)
}

// wake lets the readers send what there is. Requires: mu is held.
func (e *execution) wake() {
	e.wakeSeq = e.lastSeq
	e.cond.Broadcast()
}

func (e *execution) start(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = now
	e.append(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Started{Started: &execv1.Started{AtUnixMs: now.UnixMilli()}}})
}

// announce sees to it that the start is told though nothing else is for a while.
func (e *execution) announce() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.announcing = time.AfterFunc(startedDelay-time.Since(e.started), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.wake()
	})
}

// ran is how long it has run.
func (e *execution) ran() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.started)
}

func (e *execution) hasRoom() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting < unacknowledgedBytes
}

// output adds bytes of a stream, to the last chunk where nobody has seen that yet.
func (e *execution) output(stream execv1.Stream, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished {
		return
	}
	counter := &e.stdoutBytes
	if stream == execv1.Stream_STREAM_STDERR {
		counter = &e.stderrBytes
	}
	if n := len(e.events); n > 0 && e.lastSeq > e.sentSeq {
		last := e.events[n-1].GetOutput()
		if last != nil && last.Stream == stream && len(last.Data)+len(data) <= chunkBytes {
			last.Data = append(last.Data, data...)
			e.waiting += len(data)
			*counter += uint64(len(data))
			e.wake()
			return
		}
	}
	for len(data) > 0 {
		piece := data[:min(len(data), chunkBytes)]
		data = data[len(piece):]
		e.append(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Output{Output: &execv1.Output{
			Stream: stream, Offset: *counter, Data: append([]byte(nil), piece...),
		}}})
		*counter += uint64(len(piece))
	}
	e.wake()
}

// result adds a displayed value. Nobody is woken for the main one: the end is on its heels.
func (e *execution) result(result *execv1.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.append(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Result{Result: result}})
	if !result.Main {
		e.wake()
	}
}

// finish adds the last event. A process that the memory guard ended decides the reason, whatever the kernel says.
func (e *execution) finish(finished *execv1.Finished) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.finished {
		return
	}
	if e.victim != nil {
		finished.Reason = execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY
		finished.MemoryLimitBytes = e.victim.LimitBytes
		finished.MemoryPeakBytes = e.victim.PeakBytes
		finished.Detail = victimSentence(e.victim, finished.StateKept)
	}
	if !e.started.IsZero() {
		finished.StartedAtUnixMs = e.started.UnixMilli()
		if finished.DurationUs == 0 {
			finished.DurationUs = time.Since(e.started).Microseconds()
		}
	}
	if finished.EndedAtUnixMs == 0 {
		finished.EndedAtUnixMs = time.Now().UnixMilli()
	}
	finished.StdoutBytes, finished.StderrBytes = e.stdoutBytes, e.stderrBytes
	e.append(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Finished{Finished: finished}})
	e.finished = true
	if e.announcing != nil {
		e.announcing.Stop()
	}
	e.wake()
}

// disown makes what runs nobody's: what it says is dropped from now on, and never keeps it from going on.
func (e *execution) disown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isForgotten() {
		return
	}
	close(e.forgotten)
	e.finished = true // for the log, which takes nothing more
	e.events, e.waiting = nil, 0
	e.acknowledged = e.lastSeq
	e.wake()
}

func (e *execution) isForgotten() bool {
	select {
	case <-e.forgotten:
		return true
	default:
		return false
	}
}

func (e *execution) outOfMemory(victim *inner.Victim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.victim != nil {
		victim.PeakBytes = max(victim.PeakBytes, e.victim.PeakBytes)
	}
	e.victim = victim
}

func (e *execution) isOutOfMemory() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.victim != nil
}

// acknowledge drops events up to seq and says whether the last one was among them.
func (e *execution) acknowledge(seq uint64) (done bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seq = min(seq, e.lastSeq)
	if seq <= e.acknowledged {
		return e.finished && e.acknowledged == e.lastSeq
	}
	n := int(seq - e.acknowledged)
	for i := range n {
		e.waiting -= cost(e.events[i])
		e.events[i] = nil
	}
	e.events = e.events[n:]
	e.acknowledged = seq
	e.sentSeq = max(e.sentSeq, seq)
	e.cond.Broadcast()
	return e.finished && e.acknowledged == e.lastSeq
}

// waitForRoom returns when the log has room, or when gone is closed.
func (e *execution) waitForRoom(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting < unacknowledgedBytes {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.cond.Broadcast()
	})
	defer stop()
	for e.waiting >= unacknowledgedBytes && !e.finished && ctx.Err() == nil {
		e.cond.Wait()
	}
}

// next waits for events after seq and returns what is ready, up to batchBytes; none when the execution is over and all was sent, or ctx ended.
func (e *execution) next(ctx context.Context, seq uint64, batch []proto.Message) []proto.Message {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.wakeSeq <= seq && !(e.finished && e.lastSeq <= seq) && ctx.Err() == nil {
		e.cond.Wait()
	}
	if ctx.Err() != nil {
		return batch
	}
	seq = max(seq, e.acknowledged)
	size := 0
	for _, event := range e.events[seq-e.acknowledged:] {
		size += cost(event)
		if len(batch) > 0 && size > batchBytes {
			break
		}
		batch = append(batch, event)
		e.sentSeq = max(e.sentSeq, event.Seq)
	}
	return batch
}

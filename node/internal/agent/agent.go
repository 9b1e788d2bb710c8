// Package agent is PID 1 of a sandbox: it starts the language kernels, runs executions in them and tells the engine, over the sandbox's
// stdin and stdout, everything that they say. It decides nothing; what must outlive it, the engine keeps.
package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agent/files"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/agent/outward"
	"atoll/node/internal/agent/ports"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

// Version is set by the build.
var Version = "dev"

const (
	maxCodeBytes = 16 << 20
	// MaxMessage from the engine: the largest code, and 1 MiB for what else an execution says (its environment above all).
	MaxMessage = maxCodeBytes + 1<<20
	// Ids of executions that were acknowledged, kept so that a late second start does not run them twice.
	rememberedIDs        = 512
	defaultMaxProcesses  = 256
	defaultMaxOpenFiles  = 4096
	maxHeldExecutions    = 4096
	guardIdleDelay       = time.Second
	freeMemoryAfterBytes = 8 << 20
)

// InOrder are the calls that must not overtake one another: what came later to a context runs later in it, and an interrupt, a restart
// and a close find what was sent before them.
var InOrder = []string{agentrpc.Execute, agentrpc.Interrupt, agentrpc.RestartContext, agentrpc.CloseContext}

// Agent serves one engine at a time. Locks are taken in the order Agent.mu, kernelContext.mu, kernel.ioMu, execution.mu.
type Agent struct {
	place   inner.Place
	files   *files.Files
	outward outward.Outward

	mu         sync.Mutex
	hello      *agentv1.HelloRequest     // the last one; guarded by mu
	greeted    bool                      // this engine has said hello; guarded by mu
	user       *user                     // guarded by mu
	tree       *tree                     // guarded by mu
	contexts   map[string]*kernelContext // guarded by mu
	executions map[string]*execution     // held, not acknowledged; guarded by mu
	done       map[string]bool           // acknowledged; guarded by mu
	doneOrder  []string                  // guarded by mu
	watchers   map[*watcher]bool         // guarded by mu
	processes  map[string]*process       // being started, or held; guarded by mu
	// Those whose end was not told yet; guarded by mu.
	runningProcesses int
	// Processes that were forgotten while they ran, until their end; guarded by mu.
	strays map[*process]bool
	// Ids of processes that were forgotten: what descends from them still bears them inside. Guarded by mu.
	forgotten map[string]bool
	// Since something was forgotten, what nobody knows says nothing; guarded by mu.
	onlyOwn bool
	// Not nil while the sandbox's name is being made to resolve; guarded by mu.
	named chan struct{}
	// Counts the hellos that gave the sandbox an identity. Changed with hello, under mu.
	generation atomic.Uint64

	deadline deadline

	activity activity

	helloMu sync.Mutex // one hello at a time

	// Held while a tree is started, or told its limits; taken before mu, which is not held meanwhile: a tree's answers come after what it
	// tells of victims of the memory guard, and that takes mu.
	treeMu sync.Mutex

	busyMu    sync.Mutex
	active    int         // executions that run; guarded by busyMu
	guardBusy bool        // what the init was told; guarded by busyMu
	idleTimer *time.Timer // guarded by busyMu

	lateMu     sync.Mutex
	lateBudget int       // guarded by lateMu
	lateAt     time.Time // guarded by lateMu
}

// Place is what an agent must know of what it runs in.
type Place = inner.Place

// New makes an agent.
func New(place Place) *Agent {
	a := &Agent{
		deadline:   deadline{end: func() { os.Exit(DeadlineStatus) }},
		strays:     map[*process]bool{},
		forgotten:  map[string]bool{},
		place:      place,
		contexts:   map[string]*kernelContext{},
		executions: map[string]*execution{},
		done:       map[string]bool{},
		watchers:   map[*watcher]bool{},
		processes:  map[string]*process{},
	}
	a.files = a.newFiles()
	return a
}

// Reset forgets the hello: a host has taken over, and is answered nothing before its own.
func (a *Agent) Reset(uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.greeted = false
	clear(a.watchers)
}

// Close ends everything that the agent has started.
func (a *Agent) Close() {
	a.deadline.set(0)
	a.treeMu.Lock()
	a.mu.Lock()
	t := a.tree
	a.tree = nil
	contexts := slices.Collect(maps.Values(a.contexts))
	a.mu.Unlock()
	a.treeMu.Unlock()
	a.files.Close()
	for _, c := range contexts {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
	}
	if t != nil {
		t.end()
	}
}

// Serve handles one stream of the frame layer.
func (a *Agent) Serve(stream *frame.Stream) {
	err := a.serve(stream)
	var status *frame.Status
	switch {
	case err == nil, errors.As(err, &status):
	case stream.Context().Err() != nil:
		// The engine has gone; nobody reads this.
	default:
		log.Printf("%s: %v", stream.Method(), err)
		err = &frame.Status{Code: codes.Internal, Message: err.Error()}
	}
	if err == nil && stream.Method() == agentrpc.Execute {
		// The engine has acknowledged the last event and waits for nothing.
		stream.EndLater(nil)
		return
	}
	stream.End(err)
}

func (a *Agent) serve(stream *frame.Stream) error {
	if stream.Method() == agentrpc.Hello {
		return unary(stream, &agentv1.HelloRequest{}, a.Hello)
	}
	a.mu.Lock()
	greeted := a.greeted
	a.mu.Unlock()
	if !greeted {
		return &frame.Status{Code: codes.FailedPrecondition, Message: "the first call after a connection is Hello"}
	}
	if err := a.awaitName(stream.Context()); err != nil {
		return err
	}
	switch stream.Method() {
	case agentrpc.OpenContext:
		return unary(stream, &agentv1.OpenContextRequest{}, a.OpenContext)
	case agentrpc.RestartContext:
		if err := stream.WaitTurn(); err != nil {
			return err
		}
		return unary(stream, &agentv1.ContextRequest{}, func(_ context.Context, r *agentv1.ContextRequest) (*agentv1.OpenContextReply, error) {
			return a.restartContext(r, stream.PassTurn)
		})
	case agentrpc.CloseContext:
		if err := stream.WaitTurn(); err != nil {
			return err
		}
		return unary(stream, &agentv1.ContextRequest{}, func(_ context.Context, r *agentv1.ContextRequest) (*agentv1.Empty, error) {
			return a.closeContext(r, stream.PassTurn), nil
		})
	case agentrpc.Interrupt:
		// Of an execution that was sent just before it, too.
		if err := stream.WaitTurn(); err != nil {
			return err
		}
		stream.PassTurn()
		return unary(stream, &agentv1.InterruptRequest{}, a.Interrupt)
	case agentrpc.Execute:
		return a.execute(stream)
	case agentrpc.Watch:
		return a.watch(stream)
	case agentrpc.WriteInput:
		return unary(stream, &execv1.WriteInputRequest{}, a.WriteInput)
	case agentrpc.Signal:
		return unary(stream, &execv1.SignalRequest{}, a.Signal)
	case agentrpc.Resize:
		return unary(stream, &execv1.ResizeRequest{}, a.Resize)
	case agentrpc.ListProcesses:
		return unary(stream, &agentv1.ListProcessesRequest{}, a.ListProcesses)
	case agentrpc.ListGuestProcesses:
		return unary(stream, &agentv1.Empty{}, a.ListGuestProcesses)
	case agentrpc.File:
		return unary(stream, &filev1.FileRequest{}, a.files.File)
	case agentrpc.ReadFile:
		return a.files.Read(stream)
	case agentrpc.WriteFile:
		return a.files.Write(stream)
	case agentrpc.WatchFiles:
		return a.files.Watch(stream)
	case agentrpc.ListPorts:
		return unary(stream, &agentv1.Empty{}, a.listPorts)
	case agentrpc.Tunnel:
		return ports.Tunnel(stream)
	case agentrpc.ListenOutward:
		return a.outward.Listen(stream)
	case agentrpc.Outward:
		return a.outward.Serve(stream)
	case agentrpc.Mount:
		return unary(stream, &agentv1.MountRequest{}, a.Mount)
	case agentrpc.Unmount:
		return unary(stream, &agentv1.UnmountRequest{}, a.Unmount)
	}
	return &frame.Status{Code: codes.Unimplemented, Message: "the agent has no call " + stream.Method()}
}

func unary[Request, Reply proto.Message](stream *frame.Stream, request Request, call func(context.Context, Request) (Reply, error)) error {
	if err := stream.Receive(request); err != nil {
		return err
	}
	if err := stream.Context().Err(); err != nil {
		// Its host has been replaced, and may have begun the same call anew.
		return err
	}
	reply, err := call(stream.Context(), request)
	if err != nil {
		return err
	}
	return stream.Reply(reply)
}

// OpenContext makes a context, or finds it, and waits for its kernel.
func (a *Agent) OpenContext(ctx context.Context, request *agentv1.OpenContextRequest) (*agentv1.OpenContextReply, error) {
	spec := request.GetSpec()
	if spec.GetContextId() == "" {
		return nil, &frame.Status{Code: codes.InvalidArgument, Message: "context without an id"}
	}
	a.mu.Lock()
	if err := ctx.Err(); err != nil {
		a.mu.Unlock()
		return nil, err
	}
	c, known := a.contexts[spec.ContextId]
	if !known {
		c = newContext(a, spec, a.markOf(spec.ContextId))
		a.contexts[spec.ContextId] = c
	}
	a.mu.Unlock()
	if known && c.spec.Language != spec.Language {
		return nil, &frame.Status{Code: codes.AlreadyExists,
			Message: fmt.Sprintf("context %s speaks %s (asked for: %s)", spec.ContextId, c.spec.Language, spec.Language)}
	}
	if known {
		if described := c.describe(); described.State == execv1.ContextState_CONTEXT_STATE_IDLE || described.State == execv1.ContextState_CONTEXT_STATE_RUNNING {
			return &agentv1.OpenContextReply{Context: described}, nil
		}
	}
	var err error
	c.do(func() { _, err = c.ensure() })
	var refused *startError
	if errors.As(err, &refused) && refused.missing {
		a.mu.Lock()
		delete(a.contexts, c.id())
		a.mu.Unlock()
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: refused.detail}
	}
	return &agentv1.OpenContextReply{Context: c.describe()}, nil
}

func (a *Agent) find(contextID string) (*kernelContext, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, known := a.contexts[contextID]
	if !known {
		return nil, &frame.Status{Code: codes.NotFound, Message: "no context " + contextID}
	}
	return c, nil
}

// restartContext ends the kernel with all that it has started, and starts a new one. What waits in the queue behind the running
// execution then runs in that. It calls passTurn when what comes later no longer belongs to the old kernel.
func (a *Agent) restartContext(request *agentv1.ContextRequest, passTurn func()) (*agentv1.OpenContextReply, error) {
	c, err := a.find(request.ContextId)
	if err != nil {
		return nil, err
	}
	wait := c.end("restarted", false, func() { _, _ = c.ensure() }) // how that went is in the description
	passTurn()
	wait()
	return &agentv1.OpenContextReply{Context: c.describe()}, nil
}

// closeContext ends a context with all that it has started. Closing one that is not there is no error.
func (a *Agent) closeContext(request *agentv1.ContextRequest, passTurn func()) *agentv1.Empty {
	c, err := a.find(request.ContextId)
	if err != nil {
		return &agentv1.Empty{}
	}
	wait := c.end("closed", true, func() {})
	passTurn()
	wait()
	a.mu.Lock()
	delete(a.contexts, c.id())
	a.mu.Unlock()
	return &agentv1.Empty{}
}

// Interrupt ends an execution. One that is over, or was never heard of, needs no interrupt.
func (a *Agent) Interrupt(_ context.Context, request *agentv1.InterruptRequest) (*agentv1.Empty, error) {
	a.mu.Lock()
	e, held := a.executions[request.ExecutionId]
	if !held {
		e, held = a.runsUnheld(request.ExecutionId)
	}
	known := held || a.done[request.ExecutionId]
	a.mu.Unlock()
	if !known {
		return nil, &frame.Status{Code: codes.NotFound, Message: "no execution " + request.ExecutionId}
	}
	if held && e.process != nil {
		return nil, &frame.Status{Code: codes.InvalidArgument, Message: request.ExecutionId + " is a process (remedy: signal it)"}
	}
	if held {
		grace := time.Duration(request.GraceMs) * time.Millisecond
		if grace == 0 {
			grace = defaultGrace
		}
		e.context.interrupt(e, grace)
	}
	return &agentv1.Empty{}, nil
}

// runsUnheld finds the cell of a forgotten execution. Requires: mu is held.
func (a *Agent) runsUnheld(id string) (*execution, bool) {
	for _, c := range a.contexts {
		c.mu.Lock()
		e := c.running
		c.mu.Unlock()
		if e != nil && e.spec.ExecutionId == id {
			return e, true
		}
	}
	return nil, false
}

func (a *Agent) execute(stream *frame.Stream) error {
	first := &agentv1.ExecuteRequest{}
	if err := stream.Receive(first); err != nil {
		return err
	}
	// What came later to a context runs later in it.
	if err := stream.WaitTurn(); err != nil {
		return err
	}
	var e *execution
	var after uint64
	var err error
	switch message := first.Message.(type) {
	case *agentv1.ExecuteRequest_Start:
		e, after, err = a.begin(stream.Context(), message.Start)
		stream.PassTurn()
	case *agentv1.ExecuteRequest_StartProcess:
		stream.PassTurn()
		e, after, err = a.beginProcess(stream.Context(), message.StartProcess)
	case *agentv1.ExecuteRequest_Attach:
		stream.PassTurn()
		after = message.Attach.AfterSeq
		e, err = a.attach(message.Attach)
	default:
		err = &frame.Status{Code: codes.InvalidArgument, Message: "the first message is start or attach"}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	acknowledged := make(chan error, 1)
	go func() {
		acknowledged <- a.acknowledgements(stream, e)
		// A half-closed stream still gets its events; a broken one ends by its own context.
	}()
	stop := context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.cond.Broadcast()
	})
	defer stop()
	var batch []proto.Message
	for {
		batch = e.next(ctx, after, batch[:0])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(batch) == 0 {
			break
		}
		last := batch[len(batch)-1].(*execv1.ExecutionEvent)
		if err := stream.SendAll(batch...); err != nil {
			return err
		}
		after = last.Seq
		clear(batch)
	}
	select {
	case err := <-acknowledged:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acknowledgements reads them until the last event is acknowledged or the engine sends no more.
func (a *Agent) acknowledgements(stream *frame.Stream, e *execution) error {
	for {
		request := &agentv1.ExecuteRequest{}
		if err := stream.Receive(request); err != nil {
			// End of the requests: whoever attaches next acknowledges the rest.
			return nil //nolint:nilerr // a broken stream ends by its context
		}
		acknowledge, ok := request.Message.(*agentv1.ExecuteRequest_AcknowledgeSeq)
		if !ok {
			return &frame.Status{Code: codes.InvalidArgument, Message: "start or attach in the middle of a call"}
		}
		if e.acknowledge(acknowledge.AcknowledgeSeq) {
			a.forget(e)
			return nil
		}
	}
}

// begin starts an execution, or finds the one of that id. With ctx the host has gone that asked for it; the next one asks again.
func (a *Agent) begin(ctx context.Context, spec *execv1.ExecutionSpec) (*execution, uint64, error) {
	if spec.ExecutionId == "" || len(spec.Code) > maxCodeBytes {
		return nil, 0, &frame.Status{Code: codes.InvalidArgument,
			Message: fmt.Sprintf("execution %q with %d bytes of code (expected: an id, at most %d bytes)", spec.ExecutionId, len(spec.Code), maxCodeBytes)}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if e, held := a.executions[spec.ExecutionId]; held {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e, e.acknowledged, nil
	}
	if a.done[spec.ExecutionId] {
		return nil, 0, &frame.Status{Code: codes.AlreadyExists,
			Message: "execution " + spec.ExecutionId + " has ended and its events were acknowledged; it does not run twice"}
	}
	if len(a.executions) >= maxHeldExecutions {
		return nil, 0, &frame.Status{Code: codes.ResourceExhausted,
			Message: fmt.Sprintf("%d executions run, wait or are not acknowledged", len(a.executions))}
	}
	c, known := a.contexts[spec.ContextId]
	if !known {
		return nil, 0, &frame.Status{Code: codes.NotFound, Message: "no context " + spec.ContextId}
	}
	e := newExecution(spec, c)
	if err := c.enqueue(e); err != nil {
		return nil, 0, err
	}
	a.executions[spec.ExecutionId] = e
	return e, 0, nil
}

func (a *Agent) attach(attach *agentv1.Attach) (*execution, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, held := a.executions[attach.ExecutionId]
	if !held {
		return nil, &frame.Status{Code: codes.NotFound, Message: "no execution " + attach.ExecutionId}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if attach.AfterSeq < e.acknowledged || attach.AfterSeq > e.lastSeq {
		return nil, &frame.Status{Code: codes.OutOfRange,
			Message: fmt.Sprintf("execution %s holds the events after %d up to %d (asked for: after %d)", attach.ExecutionId, e.acknowledged, e.lastSeq, attach.AfterSeq)}
	}
	return e, nil
}

func (a *Agent) forget(e *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := e.spec.ExecutionId
	if a.executions[id] != e {
		return
	}
	delete(a.executions, id)
	delete(a.processes, id)
	a.done[id] = true
	a.doneOrder = append(a.doneOrder, id)
	if len(a.doneOrder) > rememberedIDs {
		delete(a.done, a.doneOrder[0])
		a.doneOrder = a.doneOrder[1:]
	}
	if len(a.executions) == 0 && len(e.spec.Code) > freeMemoryAfterBytes {
		go debug.FreeOSMemory()
	}
}

// busy counts the executions that run, so that the memory is watched closely while any does. The init hears of it at most twice a second.
func (a *Agent) busy(change int) {
	a.busyMu.Lock()
	defer a.busyMu.Unlock()
	a.active += change
	switch {
	case a.active > 0 && !a.guardBusy:
		a.guardBusy = true
		a.tellGuard(true)
	case a.active == 0 && a.guardBusy && a.idleTimer == nil:
		a.idleTimer = time.AfterFunc(guardIdleDelay, a.calmDown)
	}
}

// runsOne says whether no more than one execution runs.
func (a *Agent) runsOne() bool {
	a.busyMu.Lock()
	defer a.busyMu.Unlock()
	return a.active <= 1
}

func (a *Agent) calmDown() {
	a.busyMu.Lock()
	defer a.busyMu.Unlock()
	a.idleTimer = nil
	if a.active == 0 && a.guardBusy {
		a.guardBusy = false
		a.tellGuard(false)
	}
}

// tellGuard requires busyMu.
func (a *Agent) tellGuard(busy bool) {
	a.mu.Lock()
	t, limit := a.tree, a.hello.GetLimits().GetMemoryBytes()
	a.mu.Unlock()
	if t != nil {
		_ = t.send(&inner.Request{Guard: &inner.Guard{Busy: busy, LimitBytes: limit}}) // a dead tree needs no guard
	}
}

// currentTree returns the living tree, starting one where the last has died.
func (a *Agent) currentTree() (*tree, error) {
	if t := a.livingTree(); t != nil {
		return t, nil
	}
	a.treeMu.Lock()
	defer a.treeMu.Unlock()
	if t := a.livingTree(); t != nil {
		return t, nil
	}
	t, err := startTree(a.place, a.memoryGuard)
	if err != nil {
		return nil, err
	}
	if err := a.limit(t); err != nil {
		t.end()
		return nil, err
	}
	a.mu.Lock()
	a.tree = t
	a.mu.Unlock()
	go a.watchTree(t)
	return t, nil
}

// livingTree is nil where the last tree has died.
func (a *Agent) livingTree() *tree {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tree == nil || a.tree.isDead() {
		return nil
	}
	return a.tree
}

// limit requires treeMu, and not mu.
func (a *Agent) limit(t *tree) error {
	a.mu.Lock()
	wanted := a.hello.GetLimits()
	a.mu.Unlock()
	limits := &inner.Limits{
		Processes: uint64(wanted.GetMaxProcesses()),
		OpenFiles: uint64(wanted.GetMaxOpenFiles()),
	}
	if limits.Processes == 0 {
		limits.Processes = defaultMaxProcesses
	}
	if limits.OpenFiles == 0 {
		limits.OpenFiles = defaultMaxOpenFiles
	}
	if _, err := t.call(context.Background(), &inner.Request{Limits: limits}); err != nil {
		return fmt.Errorf("limits of the sandbox: %w", err)
	}
	if memory := wanted.GetMemoryBytes(); memory != 0 {
		// Our gVisor reads there when to refuse a fork (node/runsc/patches).
		if err := unix.Setrlimit(unix.RLIMIT_RSS, &unix.Rlimit{Cur: memory, Max: unix.RLIM_INFINITY}); err != nil {
			return fmt.Errorf("limits of the sandbox: memory: %w", err)
		}
	}
	// That it dies is for whoever calls it next to find out.
	if err := t.send(&inner.Request{Guard: &inner.Guard{LimitBytes: wanted.GetMemoryBytes()}}); !errors.Is(err, errTreeDied) {
		return err
	}
	return nil
}

// limitAnew tells the living tree, if there is one, the limits of the hello if they differ from those before. Requires: treeMu is held.
func (a *Agent) limitAnew(previous *agentv1.HelloRequest) error {
	a.mu.Lock()
	same := proto.Equal(a.hello.GetLimits(), previous.GetLimits())
	a.mu.Unlock()
	if t := a.livingTree(); t != nil && !same {
		// The next tree is told as it starts.
		if err := a.limit(t); !errors.Is(err, errTreeDied) {
			return err
		}
	}
	return nil
}

func (a *Agent) watchTree(t *tree) {
	<-t.dead
	a.mu.Lock()
	closed := a.tree == nil
	a.mu.Unlock()
	if closed {
		return // the agent itself has ended it
	}
	// Whoever needed a tree first may have started the next one already: this one's end is told all the same.
	log.Printf("the inner tree died: %s", t.detail)
	a.publish(&agentv1.AgentEvent{Event: &agentv1.AgentEvent_TreeDied{TreeDied: &agentv1.TreeDied{
		Detail: t.detail + ": every process in the sandbox has ended with it; contexts are started afresh when they are used.",
	}}})
	if _, err := a.currentTree(); err != nil {
		log.Printf("a new inner tree: %v", err)
	}
	a.busyMu.Lock()
	defer a.busyMu.Unlock()
	if a.guardBusy {
		a.tellGuard(true)
	}
}

// others names what lives on when c is ended.
func (a *Agent) others(c *kernelContext) (roots []int, contexts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.contexts {
		if other == c {
			continue
		}
		contexts = append(contexts, other.mark)
		other.mu.Lock()
		if other.kernel != nil {
			roots = append(roots, other.kernel.pid)
		}
		other.mu.Unlock()
	}
	for p := range a.everyProcess() {
		if p.running() {
			contexts = append(contexts, p.owner())
		}
	}
	return roots, contexts
}

// everyProcess yields those that are held and those that were forgotten. Requires: mu is held.
func (a *Agent) everyProcess() iter.Seq[*process] {
	return func(yield func(*process) bool) {
		for _, p := range a.processes {
			if !yield(p) {
				return
			}
		}
		for p := range a.strays {
			if !yield(p) {
				return
			}
		}
	}
}

// marked finds the context that is called so inside. Requires: mu is held.
func (a *Agent) marked(mark string) *kernelContext {
	for _, c := range a.contexts {
		if c.mark == mark {
			return c
		}
	}
	return nil
}

// memoryGuard gives the end of a process to the execution that it belonged to.
func (a *Agent) memoryGuard(victim *inner.Victim) {
	a.mu.Lock()
	c := a.marked(victim.Context)
	id, isProcess := strings.CutPrefix(victim.Context, inner.ProcessOwner)
	p := a.processes[id]
	if !isProcess {
		p = nil
	}
	if c == nil && !isProcess {
		// Its origin is unknown. When one context is busy, it was that one's doing.
		var busy []*kernelContext
		for _, one := range a.contexts {
			one.mu.Lock()
			if one.running != nil {
				busy = append(busy, one)
			}
			one.mu.Unlock()
		}
		var running []*process
		for one := range a.everyProcess() {
			if one.running() {
				running = append(running, one)
			}
		}
		switch {
		case len(busy) == 1 && len(running) == 0:
			c = busy[0]
		case len(busy) == 0 && len(running) == 1:
			p = running[0]
		}
	}
	a.mu.Unlock()
	var e *execution
	if c != nil {
		c.mu.Lock()
		e = c.running
		c.mu.Unlock()
	}
	event := &agentv1.MemoryGuard{
		Pid:        int32(victim.Pid),
		Command:    strings.ToValidUTF8(victim.Command, "\uFFFD"),
		RssBytes:   victim.RSSBytes,
		LimitBytes: victim.LimitBytes,
	}
	if p != nil {
		p.outOfMemory(victim)
	}
	if p != nil && !p.events.isForgotten() {
		event.ExecutionId = p.spec.ProcessId
	}
	if e != nil {
		e.outOfMemory(victim)
	}
	if e != nil && !e.isForgotten() {
		event.ExecutionId = e.spec.ExecutionId
	}
	log.Printf("memory guard: ended process %d (%q, %d MB) with %d MB of %d MB left", victim.Pid, victim.Command,
		victim.RSSBytes>>20, victim.AvailableBytes>>20, victim.LimitBytes>>20)
	a.publish(&agentv1.AgentEvent{Event: &agentv1.AgentEvent_MemoryGuard{MemoryGuard: event}})
}

func victimSentence(victim *inner.Victim, stateKept bool) string {
	command := strings.ToValidUTF8(victim.Command, "\uFFFD")
	text := fmt.Sprintf("The sandbox was about to run out of memory (limit %d MB, peak %d MB): ", victim.LimitBytes>>20, victim.PeakBytes>>20)
	if victim.Processes > 1 {
		text += fmt.Sprintf("%d processes of this context, the largest %s (%d MB), were ended.", victim.Processes, command, victim.RSSBytes>>20)
	} else {
		text += fmt.Sprintf("its largest process, %s (%d MB), was ended.", command, victim.RSSBytes>>20)
	}
	if victim.Processes <= 1 && victim.RSSBytes < victim.PeakBytes/4 {
		text += " Most of the memory was not in that process: look for large files in /dev/shm or another tmpfs."
	}
	if !stateKept {
		text += " The interpreter is started afresh, the state is lost."
	}
	return text
}

func (t *tree) isDead() bool {
	select {
	case <-t.dead:
		return true
	default:
		return false
	}
}

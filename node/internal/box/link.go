package box

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/driver"
	"atoll/node/internal/frame"
)

const (
	// How long an agent may take to answer when a connection is made. A fresh one
	// answers after 30 to 60 ms; the rest is for a machine that starts many.
	connectTimeout = 20 * time.Second
	callTimeout    = 30 * time.Second
	// The agent itself gives an interpreter a minute to start.
	contextTimeout = 75 * time.Second
	// The largest message that an agent sends is a result, which it cuts at 8 MiB (agent.maxResultBytes); the rest is what protobuf and
	// the event's other fields add. It bounds what a hostile agent can make the engine hold: four of these for each box, see frame.
	maxAgentMessage = 9 << 20
	pipeBytes       = 512 << 10
	// Texts of the agent's that are kept or shown.
	maxText = 4096
)

// link is one connection to a box's agent. It ends with the first error.
type link struct {
	session  *frame.Session
	stdin    *os.File
	stdout   *os.File
	contexts *contextTable
	held     []*agentv1.HeldExecution
	// pumps are the goroutines that drain executions.
	pumps  sync.WaitGroup
	pumpMu sync.Mutex
	// dropped says that no more pumps may begin; guarded by pumpMu.
	dropped bool
	once    sync.Once
	// calls are under way; closing says that no more may begin.
	calls   atomic.Int64
	closing atomic.Bool
	idle    chan struct{}
}

// enter begins a call that a pause waits for a little; leave ends it.
func (l *link) enter() bool {
	l.calls.Add(1)
	if l.closing.Load() {
		l.leave()
		return false
	}
	return true
}

func (l *link) leave() {
	if l.calls.Add(-1) == 0 && l.closing.Load() {
		select {
		case l.idle <- struct{}{}:
		default:
		}
	}
}

// drainCalls lets no more calls begin, and waits for those under way, but not for long.
func (l *link) drainCalls(ctx context.Context) {
	l.closing.Store(true)
	for l.calls.Load() > 0 {
		select {
		case <-l.idle:
		case <-ctx.Done():
			return
		}
	}
}

// greeting is what a hello says beside the box's record.
type greeting struct {
	// reconfigure says that identity, environment or limits have changed.
	reconfigure bool
	// rename are new ids of contexts that came with a snapshot, by their ids there.
	rename map[string]string
	// forget has the agent drop what ran when the snapshot was made.
	forget bool
}

// connect takes a box's agent over and says hello.
func connect(ctx context.Context, r *record, dir string, key [32]byte, epoch uint64, g greeting, contexts *contextTable) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	// One direction each: the sandbox holds both ends, so these opens succeed while
	// it lives, and reading ends when it dies.
	stdout, err := os.OpenFile(filepath.Join(dir, driver.StdoutName), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	stdin, err := os.OpenFile(filepath.Join(dir, driver.StdinName), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(err, stdout.Close())
	}
	// A sandbox with much to say is then woken less often. Where the machine allows no more, the usual 64 KiB do as well.
	if raw, err := stdout.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeBytes) })
	}
	session, err := frame.Connect(ctx, stdout, stdin, frame.HostOptions{Epoch: epoch, Key: key, MaxMessage: maxAgentMessage})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the agent: %w", err), stdin.Close(), stdout.Close())
	}
	l := &link{session: session, stdin: stdin, stdout: stdout, contexts: contexts, idle: make(chan struct{}, 1)}
	reply, err := l.hello(ctx, r, epoch, g)
	if err != nil {
		l.close()
		return nil, err
	}
	if !g.forget {
		l.held = reply.GetExecutions()
	}
	l.contexts.replace(reply.GetContexts())
	return l, nil
}

func (l *link) hello(ctx context.Context, r *record, epoch uint64, g greeting) (*agentv1.HelloReply, error) {
	entropy := make([]byte, 32)
	if _, err := rand.Read(entropy); err != nil {
		return nil, err
	}
	m := r.image.Metadata
	request := &agentv1.HelloRequest{
		BoxId: r.box.GetBoxId(), Epoch: epoch, SandboxId: r.box.GetSandboxId(), Hostname: r.hostname,
		Env: map[string]string{}, WallTimeUnixMs: time.Now().UnixMilli(), Entropy: entropy, Limits: r.box.GetLimits(),
		User: m.User, Home: m.Home, Workdir: m.Workdir, Reconfigure: g.reconfigure, RenameContexts: g.rename, ForgetHeld: g.forget, DeadlineUnixMs: r.box.GetDeadlineUnixMs(),
	}
	if r.build {
		// What its image says is for who makes another of it to apply.
		request.User, request.Home, request.Workdir, request.Untouched = "root", "", "/", true
		return l.greet(ctx, request)
	}
	maps.Copy(request.Env, m.Env)
	maps.Copy(request.Env, r.env)
	for language, kernel := range m.Kernels {
		request.Kernels = append(request.Kernels, &agentv1.Kernel{Language: language, Argv: kernel.Argv, Env: kernel.Env})
	}
	return l.greet(ctx, request)
}

func (l *link) greet(ctx context.Context, request *agentv1.HelloRequest) (*agentv1.HelloReply, error) {
	reply := &agentv1.HelloReply{}
	if err := frame.Call(ctx, l.session, agentrpc.Hello, request, reply); err != nil {
		return nil, fmt.Errorf("the agent does not answer the hello: %w", err)
	}
	return reply, nil
}

// close ends the connection. The agent goes on.
func (l *link) close() {
	l.once.Do(func() {
		l.session.Close()
		l.stdin.Close()
		l.stdout.Close()
	})
}

func (l *link) alive() bool {
	select {
	case <-l.session.Done():
		return false
	default:
		return true
	}
}

// addPump begins a pump, unless the link is dropped.
func (l *link) addPump() bool {
	l.pumpMu.Lock()
	defer l.pumpMu.Unlock()
	if !l.dropped {
		l.pumps.Add(1)
	}
	return !l.dropped
}

// awaitPumps lets no more pumps begin, and waits for the others. Requires: the link is closed.
func (l *link) awaitPumps() {
	l.pumpMu.Lock()
	l.dropped = true
	l.pumpMu.Unlock()
	l.pumps.Wait()
}

// abandon lets the agent forget an execution whose book is closed: what it
// still says of it is of no interest to anyone.
func (l *link) abandon(h *agentv1.HeldExecution) {
	// Whatever is not over by then is found again by the next connection.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	stream, err := l.session.Open(ctx, agentrpc.Execute)
	if err != nil {
		cancel()
		return
	}
	acknowledge := func(seq uint64) *agentv1.ExecuteRequest {
		return &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_AcknowledgeSeq{AcknowledgeSeq: seq}}
	}
	// An error means that the connection is over; the next one finds the execution again.
	attach := &agentv1.Attach{ExecutionId: h.GetExecutionId(), AfterSeq: h.GetLastSeq()}
	if stream.SendAll(&agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Attach{Attach: attach}}, acknowledge(h.GetLastSeq())) != nil {
		cancel()
		return
	}
	switch {
	case h.GetFinished():
	case h.GetProcess():
		go func() {
			request := &execv1.SignalRequest{ProcessId: h.GetExecutionId(), Signal: int32(unix.SIGKILL), Target: execv1.SignalTarget_SIGNAL_TARGET_TREE}
			_ = frame.Call(ctx, l.session, agentrpc.Signal, request, &agentv1.Empty{})
		}()
	default:
		go func() {
			request := &agentv1.InterruptRequest{ExecutionId: h.GetExecutionId(), GraceMs: uint32(interruptGrace.Milliseconds())}
			_ = frame.Call(ctx, l.session, agentrpc.Interrupt, request, &agentv1.Empty{})
		}()
	}
	go func() {
		defer cancel()
		event := &execv1.ExecutionEvent{}
		for stream.Receive(event) == nil {
			if stream.Send(acknowledge(event.GetSeq())) != nil {
				return
			}
		}
	}()
}

// watch takes in what the agent reports of its own accord, until the connection ends.
func (l *link) watch(logger *slog.Logger) {
	stream, err := l.session.Open(context.Background(), agentrpc.Watch)
	if err != nil {
		return
	}
	if err := stream.Send(&agentv1.WatchRequest{}); err != nil {
		return
	}
	if err := stream.CloseSend(); err != nil {
		return
	}
	for {
		event := &agentv1.AgentEvent{}
		if err := stream.Receive(event); err != nil {
			return
		}
		switch e := event.GetEvent().(type) {
		case *agentv1.AgentEvent_ContextChanged:
			l.contexts.put(e.ContextChanged)
		case *agentv1.AgentEvent_MemoryGuard:
			logger.Info("agent's memory guard ended a process", "pid", e.MemoryGuard.GetPid(), "command", clip(e.MemoryGuard.GetCommand()),
				"rss_bytes", e.MemoryGuard.GetRssBytes(), "limit_bytes", e.MemoryGuard.GetLimitBytes(), "execution", clip(e.MemoryGuard.GetExecutionId()))
		case *agentv1.AgentEvent_TreeDied:
			logger.Warn("the user's processes died at once and were started anew", "detail", clip(e.TreeDied.GetDetail()))
		}
	}
}

// contextTable is what is known of a box's contexts.
type contextTable struct {
	mu sync.Mutex
	// byID is guarded by mu.
	byID map[string]*execv1.Context
}

// A hostile agent may invent contexts; a real one has as many as were opened.
const maxContexts = 1024

func newContextTable() *contextTable { return &contextTable{byID: map[string]*execv1.Context{}} }

func (t *contextTable) put(c *execv1.Context) {
	c = clipContext(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.byID[c.GetContextId()]; known || len(t.byID) < maxContexts {
		t.byID[c.GetContextId()] = c
	}
}

func (t *contextTable) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}

func (t *contextTable) replace(contexts []*execv1.Context) {
	t.mu.Lock()
	t.byID = map[string]*execv1.Context{}
	t.mu.Unlock()
	for _, c := range contexts {
		t.put(c)
	}
}

func (t *contextTable) list() []*execv1.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	contexts := make([]*execv1.Context, 0, len(t.byID))
	for _, c := range t.byID {
		contexts = append(contexts, c)
	}
	return contexts
}

func clipContext(c *execv1.Context) *execv1.Context {
	c = proto.CloneOf(c)
	c.ContextId, c.Language, c.Version = clip(c.GetContextId()), clip(c.GetLanguage()), clip(c.GetVersion())
	c.Cwd, c.Detail = clip(c.GetCwd()), clip(c.GetDetail())
	return c
}

// clip bounds a text that came from a sandbox.
func clip(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// Refusal is an agent's answer that callers get as it is: what it says of a path, a program or a port of the sandbox.
type Refusal struct {
	Code    codes.Code
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// answered is the error of a call that was passed through.
func answered(err error) error {
	var status *frame.Status
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &status):
		return &Refusal{Code: status.Code, Message: strings.ToValidUTF8(clip(status.Message), "\uFFFD")}
	}
	return fault(Unavailable, "the connection to the sandbox's agent was lost: %v", err)
}

// agentFault turns an agent's answer into ours.
func agentFault(what string, err error) error {
	var status *frame.Status
	if !errors.As(err, &status) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return fault(Unavailable, "%s: the sandbox's agent is being reached again: %v", what, err)
	}
	kind := Internal
	switch status.Code {
	case codes.NotFound:
		kind = NotFound
	case codes.AlreadyExists:
		kind = AlreadyExists
	case codes.InvalidArgument:
		kind = Invalid
	case codes.FailedPrecondition:
		kind = FailedPrecondition
	case codes.ResourceExhausted:
		kind = Exhausted
	case codes.Unavailable:
		kind = Unavailable
	case codes.Canceled, codes.DeadlineExceeded:
		return status
	}
	return fault(kind, "%s: %s", what, clip(status.Message))
}

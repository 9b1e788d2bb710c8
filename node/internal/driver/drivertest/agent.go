package drivertest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

const agentVariable = "ATOLL_FAKE_AGENT"

// RunAgentIfAsked turns the test binary into the agent of a Fake sandbox. TestMain calls it first.
func RunAgentIfAsked() {
	if os.Getenv(agentVariable) == "" {
		return
	}
	if err := runAgent(); err != nil {
		fmt.Fprintln(os.Stderr, "fake agent:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fakeAgent keeps the agent's promises about executions, and breaks them when the code says so:
//
//	print N     N outputs of 100 bytes
//	hold        runs until it is interrupted
//	allocate N  touches N MiB
//	exit N      ends the agent
//	skip        leaves out a seq
//	endless     ends the stream without a last event
//	echo, cat   (a process) prints what it is given to read, until that ends
//	sip         (a process) reads one byte, which it is said to have done once the call's wait_ms is over
//	missing     (a process) is refused
//
// In a hello it obeys rename_contexts and forget_held, and the deadline without any grace.
type fakeAgent struct {
	mu sync.Mutex
	// All below is guarded by mu.
	key   [32]byte
	epoch uint64
	// files are those written below /tmp.
	files      map[string][]byte
	deadline   *time.Timer
	contexts   map[string]*execv1.Context
	executions map[string]*fakeExecution
	// open counts calls that are not over, by method.
	open map[string]int
}

type fakeExecution struct {
	events       []*execv1.ExecutionEvent
	acknowledged uint64
	offset       uint64
	finished     bool
	changed      chan struct{}
	interrupt    chan struct{}
	interrupted  bool
	contextID    string
	// code is what it does.
	code string
	// scripted counts the events that the code has brought forth; replay is how many of them are there already, from before a snapshot.
	scripted, replay int
	// process is nil for code.
	process     *execv1.ProcessSpec
	input       uint64
	inputClosed bool
}

func newFakeExecution(process *execv1.ProcessSpec) *fakeExecution {
	return &fakeExecution{changed: make(chan struct{}), interrupt: make(chan struct{}), process: process}
}

func runAgent() error {
	a := &fakeAgent{contexts: map[string]*execv1.Context{}, executions: map[string]*fakeExecution{}, open: map[string]int{}, files: map[string][]byte{}}
	if _, err := hex.Decode(a.key[:], []byte(os.Getenv("ATOLL_FRAME_KEY"))); err != nil {
		return err
	}
	control := os.NewFile(3, "control")
	listener, err := net.FileListener(control)
	if err != nil {
		return err
	}
	control.Close()
	ready := make(chan struct{})
	go a.serveControl(listener, ready)
	<-ready
	if delay, err := time.ParseDuration(os.Getenv("ATOLL_FAKE_DELAY")); err == nil {
		time.Sleep(delay)
	}
	in, err := frame.OpenFIFO("/proc/self/fd/0")
	if err != nil {
		return err
	}
	out, err := frame.OpenFIFO("/proc/self/fd/1")
	if err != nil {
		return err
	}
	return frame.Serve(context.Background(), in, out, frame.GuestOptions{Key: a.key, AfterEpoch: a.epoch, OnReset: func(epoch uint64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.epoch = epoch
	}, Handler: func(s *frame.Stream) {
		a.count(s.Method(), 1)
		err := a.serve(s)
		a.count(s.Method(), -1)
		s.End(err)
	}})
}

func refuse(code codes.Code, format string, values ...any) error {
	return &frame.Status{Code: code, Message: fmt.Sprintf(format, values...)}
}

func (a *fakeAgent) serve(s *frame.Stream) error {
	switch s.Method() {
	case agentrpc.Hello:
		hello := &agentv1.HelloRequest{}
		if err := s.Receive(hello); err != nil {
			return err
		}
		return s.Send(a.hello(hello))
	case agentrpc.OpenContext:
		request := &agentv1.OpenContextRequest{}
		if err := s.Receive(request); err != nil {
			return err
		}
		if request.GetSpec().GetLanguage() == "broken" {
			return refuse(codes.FailedPrecondition, "no kernel for it")
		}
		c := &execv1.Context{ContextId: request.GetSpec().GetContextId(), Language: request.GetSpec().GetLanguage(), State: execv1.ContextState_CONTEXT_STATE_IDLE}
		a.mu.Lock()
		a.contexts[c.GetContextId()] = c
		a.mu.Unlock()
		return s.Send(&agentv1.OpenContextReply{Context: c})
	case agentrpc.Interrupt:
		request := &agentv1.InterruptRequest{}
		if err := s.Receive(request); err != nil {
			return err
		}
		a.interrupt(request.GetExecutionId())
		return s.Send(&agentv1.Empty{})
	case agentrpc.Watch:
		if err := s.Receive(&agentv1.WatchRequest{}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	case agentrpc.Execute:
		return a.execute(s)
	}
	if call, ok := insideCalls[s.Method()]; ok {
		return call(a, s)
	}
	return refuse(codes.Unimplemented, "%s", s.Method())
}

func (a *fakeAgent) hello(hello *agentv1.HelloRequest) *agentv1.HelloReply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if hello.GetForgetHeld() {
		clear(a.executions)
	}
	for old, id := range hello.GetRenameContexts() {
		if c := a.contexts[old]; c != nil {
			delete(a.contexts, old)
			c.ContextId = id
			a.contexts[id] = c
		}
	}
	if a.deadline != nil {
		a.deadline.Stop()
	}
	if at := hello.GetDeadlineUnixMs(); at != 0 {
		a.deadline = time.AfterFunc(time.Until(time.UnixMilli(at)), func() { os.Exit(124) })
	}
	reply := &agentv1.HelloReply{AgentVersion: "fake"}
	for _, c := range a.contexts {
		reply.Contexts = append(reply.Contexts, c)
	}
	for id, e := range a.executions {
		reply.Executions = append(reply.Executions, &agentv1.HeldExecution{
			ExecutionId: id, ContextId: e.contextID, AcknowledgedSeq: e.acknowledged, LastSeq: uint64(len(e.events)), Finished: e.finished, Process: e.process != nil,
		})
	}
	return reply
}

func (a *fakeAgent) execute(s *frame.Stream) error {
	first := &agentv1.ExecuteRequest{}
	if err := s.Receive(first); err != nil {
		return err
	}
	id, after := first.GetAttach().GetExecutionId(), first.GetAttach().GetAfterSeq()
	if spec := first.GetStart(); spec != nil {
		id = spec.GetExecutionId()
		a.mu.Lock()
		if a.contexts[spec.GetContextId()] == nil {
			a.mu.Unlock()
			return refuse(codes.NotFound, "no context %s", spec.GetContextId())
		}
		if a.executions[id] == nil {
			e := newFakeExecution(nil)
			e.code, e.contextID = spec.GetCode(), spec.GetContextId()
			a.executions[id] = e
			go a.run(e)
		}
		a.mu.Unlock()
	}
	if spec := first.GetStartProcess(); spec != nil {
		id = spec.GetProcessId()
		if spec.GetArgv()[0] == "missing" {
			return refuse(codes.NotFound, "%s: no such program", spec.GetArgv()[0])
		}
		a.mu.Lock()
		if a.executions[id] == nil {
			e := newFakeExecution(spec)
			e.code = strings.Join(spec.GetArgv(), " ")
			a.executions[id] = e
			go a.run(e)
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	e := a.executions[id]
	a.mu.Unlock()
	if e == nil {
		return refuse(codes.NotFound, "no execution %s", id)
	}
	done := make(chan struct{})
	go a.takeAcknowledgements(s, id, e, done)
	for {
		a.mu.Lock()
		events, changed := e.events[min(after, uint64(len(e.events))):], e.changed
		a.mu.Unlock()
		for _, event := range events {
			if event == nil {
				return nil
			}
			after++
			if event.GetSeq() == 0 {
				continue
			}
			if err := s.Send(event); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-done:
			return nil
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (a *fakeAgent) takeAcknowledgements(s *frame.Stream, id string, e *fakeExecution, done chan struct{}) {
	defer close(done)
	for {
		request := &agentv1.ExecuteRequest{}
		if s.Receive(request) != nil {
			return
		}
		a.mu.Lock()
		e.acknowledged = max(e.acknowledged, request.GetAcknowledgeSeq())
		forget := e.finished && e.acknowledged >= uint64(len(e.events))
		if forget {
			delete(a.executions, id)
		}
		a.mu.Unlock()
		if forget {
			return
		}
	}
}

func (a *fakeAgent) interrupt(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.executions[id]; e != nil && !e.interrupted {
		e.interrupted = true
		close(e.interrupt)
	}
}

// add appends an event; nil ends the stream, an event of seq 0 is left out.
func (a *fakeAgent) add(e *fakeExecution, events ...*execv1.ExecutionEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.add(events...)
}

// script appends events of the code itself, but for those that are there from before a snapshot.
func (a *fakeAgent) script(e *fakeExecution, events ...*execv1.ExecutionEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, event := range events {
		if e.replay > 0 {
			e.replay--
			continue
		}
		e.scripted++
		e.add(event)
	}
}

// add requires the agent's lock.
func (e *fakeExecution) add(events ...*execv1.ExecutionEvent) {
	for _, event := range events {
		if event != nil {
			event.Seq = uint64(len(e.events) + 1)
			if o := event.GetOutput(); o != nil {
				o.Offset = e.offset
				e.offset += uint64(len(o.GetData()))
			}
			e.finished = event.GetFinished() != nil
		}
		e.events = append(e.events, event)
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

func (a *fakeAgent) run(e *fakeExecution) {
	word, argument, _ := strings.Cut(e.code, " ")
	n, _ := strconv.Atoi(argument)
	end := &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_COMPLETED}
	started := &execv1.Started{AtUnixMs: time.Now().UnixMilli()}
	if e.process != nil {
		end.Reason = execv1.ExitReason_EXIT_REASON_EXITED
		started.Pid = 42
	}
	a.script(e, &execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Started{Started: started}})
	switch word {
	case "print":
		for i := range n {
			a.script(e, output(fmt.Sprintf("%099d\n", i)))
		}
	case "hold":
		a.script(e, output("holding\n"))
		<-e.interrupt
		if e.process == nil {
			end.Reason = execv1.ExitReason_EXIT_REASON_INTERRUPTED
		} else {
			end.Signal = 15
		}
	case "echo", "cat", "sip":
		<-e.interrupt
	case "allocate":
		a.script(e, output("allocating\n"))
		var all [][]byte
		for range n {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		end.ExitCode = int32(len(all))
	case "exit":
		a.script(e, output("leaving\n"))
		// What was said is on its way; the engine acknowledges nothing so small.
		<-time.After(50 * time.Millisecond)
		os.Exit(n)
	case "status":
		end.ExitCode = int32(n)
	case "skip":
		a.mu.Lock()
		if e.replay > 0 {
			e.replay--
		} else {
			e.scripted++
			e.events = append(e.events, &execv1.ExecutionEvent{})
		}
		a.mu.Unlock()
		a.script(e, output("after the hole\n"))
		<-e.interrupt
	case "endless":
		a.script(e, nil)
		<-e.interrupt
	}
	a.script(e, &execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Finished{Finished: end}})
}

func output(text string) *execv1.ExecutionEvent {
	return &execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Output{Output: &execv1.Output{Stream: execv1.Stream_STREAM_STDOUT, Data: []byte(text)}}}
}

// Dial connects to the agent of a started sandbox and says hello, as the engine does.
func Dial(ctx context.Context, dir string, key [32]byte, epoch uint64) (*frame.Session, error) {
	out, err := frame.OpenFIFO(dir + "/stdout")
	if err != nil {
		return nil, err
	}
	in, err := frame.OpenFIFO(dir + "/stdin")
	if err != nil {
		return nil, err
	}
	session, err := frame.Connect(ctx, out, in, frame.HostOptions{Epoch: epoch, Key: key})
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go func() {
		<-session.Done()
		in.Close()
		out.Close()
	}()
	hello := &agentv1.HelloRequest{BoxId: "box", Epoch: epoch, User: "user", Home: "/home/user", Entropy: make([]byte, 32), Reconfigure: epoch == 1}
	if err := frame.Call(ctx, session, agentrpc.Hello, hello, &agentv1.HelloReply{}); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}

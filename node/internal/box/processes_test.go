package box

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/patience"
	"atoll/node/internal/spool"
)

func program(argv ...string) *execv1.ProcessSpec {
	return &execv1.ProcessSpec{ProcessId: newID("proc"), Argv: argv, Labels: map[string]string{"of": "test"}}
}

func (r *rig) startProcess(box string, argv ...string) *execv1.Process {
	r.t.Helper()
	p, err := r.StartProcess(r.t.Context(), box, program(argv...))
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) wait(box, id string) *execv1.Process {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience.Of(30*time.Second))
	defer cancel()
	p, err := r.WaitProcess(ctx, box, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// text is all that a process or an execution has said.
func (r *rig) text(box, id string) string {
	r.t.Helper()
	log, err := r.Output(r.t.Context(), box, id)
	if err != nil {
		r.t.Fatal(err)
	}
	_, text, err := finish(r.t.Context(), log)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// restart stands for an engine that was killed: a new one takes over what the old one left, which is stopped from doing any more.
func (r *rig) restart() {
	r.t.Helper()
	for _, b := range r.boxes {
		if err := b.do(r.t.Context(), func() error { b.done = true; return nil }); err != nil {
			r.t.Fatal(err)
		}
		<-b.gone
		if l := b.currentLink(); l != nil {
			l.close()
			l.pumps.Wait()
		}
	}
	spools, problems, err := spool.Open(filepath.Join(r.dir, "spool"), spool.Sizes{})
	if err != nil || len(problems) > 0 {
		r.t.Fatal(err, problems)
	}
	config := r.config
	config.Spool = spools
	if r.Node, err = Open(config); err != nil {
		r.t.Fatal(err)
	}
}

func TestProcessRunsAndIsFoundUntilItIsForgotten(t *testing.T) {
	r := newRig(t)
	box := r.create()
	spec := program("print", "300")
	p, err := r.StartProcess(t.Context(), box, spec)
	if err != nil {
		t.Fatal(err)
	}
	if p.GetPid() != 42 || p.GetStartedAtUnixMs() == 0 || !proto.Equal(p.GetSpec(), spec) || !p.GetStdinClosed() {
		t.Fatalf("%v", p)
	}
	p = r.wait(box, spec.GetProcessId())
	if p.GetRunning() || p.GetFinished().GetReason() != execv1.ExitReason_EXIT_REASON_EXITED || p.GetStdoutBytes() != 30_000 {
		t.Fatalf("%v", p)
	}
	if text := r.text(box, spec.GetProcessId()); len(text) != 30_000 {
		t.Fatalf("%d bytes", len(text))
	}
	if records := r.Executions(""); len(records) != 0 {
		t.Fatalf("listed as executions: %v", records)
	}
	list := r.Processes(t.Context(), "")
	if len(list) != 1 || list[0].GetBoxId() != box || !proto.Equal(list[0].GetProcess(), p) {
		t.Fatalf("%v", list)
	}
	if err := r.Forget([]string{spec.GetProcessId()}, true); err != nil {
		t.Fatal(err)
	}
	_, err = r.Process(t.Context(), box, spec.GetProcessId())
	wantKind(t, err, NotFound)
	if text := r.text(box, spec.GetProcessId()); len(text) != 30_000 {
		t.Fatalf("kept: %d bytes", len(text))
	}
	_, err = r.StartProcess(t.Context(), box, spec)
	wantKind(t, err, AlreadyExists)
}

func TestProcessWithTheSameIDIsStartedOnce(t *testing.T) {
	r := newRig(t)
	box, other := r.create(), r.create()
	spec := program("echo")
	spec.Stdin = true
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if p, err := r.StartProcess(t.Context(), box, spec); err != nil || !p.GetRunning() {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
	group.Wait()
	if list := r.Processes(t.Context(), box); len(list) != 1 {
		t.Fatalf("%v", list)
	}
	_, err := r.StartProcess(t.Context(), other, spec)
	wantKind(t, err, AlreadyExists)
	changed := proto.CloneOf(spec)
	changed.Argv = []string{"print", "1"}
	_, err = r.StartProcess(t.Context(), box, changed)
	wantKind(t, err, AlreadyExists)
	_, err = r.Execute(t.Context(), box, &execv1.ExecutionSpec{ExecutionId: spec.GetProcessId(), ContextId: "ctx", Code: "print 1"})
	wantKind(t, err, AlreadyExists)
}

func TestProcessThatCannotStartIsRefusedWithTheAgentsWordsAndLeavesNoLog(t *testing.T) {
	r := newRig(t)
	box := r.create()
	spec := program("missing")
	_, err := r.StartProcess(t.Context(), box, spec)
	wantRefusal(t, err, codes.NotFound, "missing: no such program")
	if list := r.Processes(t.Context(), ""); len(list) != 0 {
		t.Fatalf("%v", list)
	}
	_, err = r.Output(t.Context(), box, spec.GetProcessId())
	wantKind(t, err, NotFound)
	for name, spec := range map[string]*execv1.ProcessSpec{
		"no program":    {ProcessId: "proc-1"},
		"empty program": {ProcessId: "proc-1", Argv: []string{""}},
		"path as id":    {ProcessId: "../x", Argv: []string{"true"}},
		"tilde in id":   {ProcessId: "a~log", Argv: []string{"true"}},
		"too large":     {ProcessId: "proc-1", Argv: []string{"true", strings.Repeat("x", 1<<20)}},
		"large labels":  {ProcessId: "proc-1", Argv: []string{"true"}, Labels: map[string]string{"a": strings.Repeat("x", 2<<20)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.StartProcess(t.Context(), box, spec)
			wantKind(t, err, Invalid)
		})
	}
}

func wantRefusal(t *testing.T, err error, code codes.Code, message string) {
	t.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code != code || refusal.Message != message {
		t.Fatalf("error %v (expected: %v, %q)", err, code, message)
	}
}

func TestInputIsWrittenOnceHoweverOftenItIsSent(t *testing.T) {
	r := newRig(t)
	box := r.create()
	spec := program("echo")
	spec.Stdin = true
	id := spec.GetProcessId()
	if _, err := r.StartProcess(t.Context(), box, spec); err != nil {
		t.Fatal(err)
	}
	write := func(offset uint64, data string, close bool) (*execv1.WriteInputReply, error) {
		return r.WriteInput(t.Context(), box, &execv1.WriteInputRequest{ProcessId: id, Offset: &offset, Data: []byte(data), Close: close})
	}
	for range 3 {
		if reply, err := write(0, "hello ", false); err != nil || reply.GetOffset() != 6 {
			t.Fatal(reply, err)
		}
	}
	_, err := write(9, "hole", false)
	wantRefusal(t, err, codes.FailedPrecondition, "offset 9, expected at most 6")
	if err := r.Resize(t.Context(), box, &execv1.ResizeRequest{ProcessId: id, Size: &execv1.TerminalSize{Columns: 80, Rows: 24}}); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Process(t.Context(), box, id); err != nil || p.GetStdinOffset() != 6 || p.GetStdinClosed() {
		t.Fatal(p, err)
	}
	if reply, err := write(6, "world", true); err != nil || reply.GetOffset() != 11 || !reply.GetClosed() {
		t.Fatal(reply, err)
	}
	if p := r.wait(box, id); p.GetStdinOffset() != 11 || !p.GetStdinClosed() {
		t.Fatalf("%v", p)
	}
	if text := r.text(box, id); text != "hello 80x24\nworld" {
		t.Fatalf("%q", text)
	}
	_, err = write(11, "more", false)
	wantKind(t, err, FailedPrecondition)
	_, err = r.WriteInput(t.Context(), box, &execv1.WriteInputRequest{ProcessId: id, Data: make([]byte, 256<<10+1)})
	wantKind(t, err, Invalid)
}

func TestInputOfAProcessThatDoesNotReadIsAnsweredBeforeTheDeadline(t *testing.T) {
	r := newRig(t)
	box := r.create()
	p := r.startProcess(box, "hold")
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(2*time.Second))
	defer cancel()
	reply, err := r.WriteInput(ctx, box, &execv1.WriteInputRequest{ProcessId: p.GetSpec().GetProcessId(), Data: []byte("unread")})
	if err != nil || reply.GetOffset() != 0 || ctx.Err() != nil {
		t.Fatal(reply, err)
	}
}

func TestAgentIsToldHowLongTheCallerWaitsForInputToBeTaken(t *testing.T) {
	r := newRig(t)
	box := r.create()
	id := r.startProcess(box, "sip").GetSpec().GetProcessId()
	limit := patience.Of(2 * time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	// The offset is the agent's answer to this call: who asks it afterwards hears that nothing was read.
	reply, err := r.WriteInput(ctx, box, &execv1.WriteInputRequest{ProcessId: id, Data: []byte("ab")})
	if err != nil || reply.GetOffset() != 1 || ctx.Err() != nil {
		t.Fatal(reply, err)
	}
	// Who says himself how long is heard, and a caller without a deadline waits for as long as the agent does by itself.
	if _, err := r.WriteInput(t.Context(), box, &execv1.WriteInputRequest{ProcessId: id, Data: []byte("ab"), WaitMs: 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteInput(t.Context(), box, &execv1.WriteInputRequest{ProcessId: id, Data: []byte("ab")}); err == nil || !strings.Contains(err.Error(), "no wait_ms") {
		t.Fatal(err)
	}
	if err := r.Signal(t.Context(), box, &execv1.SignalRequest{ProcessId: id, Signal: 15}); err != nil {
		t.Fatal(err)
	}
	r.wait(box, id)
	var told, own uint32
	if _, err := fmt.Sscanf(r.text(box, id), "wait_ms %d\nwait_ms %d\n", &told, &own); err != nil {
		t.Fatal(err)
	}
	if most := uint32(limit.Milliseconds()); told >= most || told < most/3 || own != 7 {
		t.Errorf("wait_ms %d and %d (expected: somewhat less than %d, and 7)", told, own, most)
	}
}

func TestWaitingAnswersWithTheStateBeforeTheDeadline(t *testing.T) {
	r := newRig(t)
	box := r.create()
	id := r.startProcess(box, "hold").GetSpec().GetProcessId()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(time.Second))
	defer cancel()
	p, err := r.WaitProcess(ctx, box, id)
	if err != nil || !p.GetRunning() || ctx.Err() != nil {
		t.Fatal(p, err)
	}
	waiting := make(chan *execv1.Process, 1)
	go func() { waiting <- r.wait(box, id) }()
	if err := r.Signal(t.Context(), box, &execv1.SignalRequest{ProcessId: id, Signal: 15}); err != nil {
		t.Fatal(err)
	}
	if p := <-waiting; p.GetRunning() || p.GetFinished().GetSignal() != 15 {
		t.Fatal(p)
	}
	_, err = r.WaitProcess(t.Context(), box, "proc-none")
	wantKind(t, err, NotFound)
}

func TestEndOfTheBoxIsTheEndOfItsProcesses(t *testing.T) {
	r := newRig(t)
	box := r.create()
	held := r.startProcess(box, "hold").GetSpec().GetProcessId()
	ended := r.startProcess(box, "status", "3").GetSpec().GetProcessId()
	r.wait(box, ended)
	exits := r.startProcess(box, "exit", "3").GetSpec().GetProcessId()
	for _, id := range []string{held, exits} {
		if f := r.wait(box, id).GetFinished(); f.GetReason() != execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED || f.GetDetail() == "" {
			t.Fatalf("%v", f)
		}
	}
	if err := r.Delete(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	r.restart()
	for id, want := range map[string]string{held: "holding\n", exits: "leaving\n", ended: ""} {
		p, err := r.Process(t.Context(), box, id)
		if err != nil || p.GetRunning() || p.GetPid() != 42 || p.GetSpec().GetLabels()["of"] != "test" {
			t.Fatal(p, err)
		}
		if text := r.text(box, id); text != want {
			t.Fatalf("%q (expected: %q)", text, want)
		}
	}
	if p, _ := r.Process(t.Context(), box, ended); p.GetFinished().GetExitCode() != 3 {
		t.Fatalf("%v", p)
	}
}

func TestOutOfMemoryIsTheReasonOfItsProcesses(t *testing.T) {
	r := newRig(t)
	box := r.create()
	f := r.wait(box, r.startProcess(box, "allocate", "400").GetSpec().GetProcessId()).GetFinished()
	if f.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || f.GetMemoryLimitBytes() != 64<<20 || f.GetMemoryPeakBytes() < 64<<20 || f.GetStdoutBytes() != 11 {
		t.Fatalf("%v", f)
	}
}

func TestProcessesAreFoundAgainByTheNextEngine(t *testing.T) {
	r := newRig(t)
	box := r.create()
	echo := program("echo")
	echo.Stdin = true
	if _, err := r.StartProcess(t.Context(), box, echo); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteInput(t.Context(), box, &execv1.WriteInputRequest{ProcessId: echo.GetProcessId(), Data: []byte("before ")}); err != nil {
		t.Fatal(err)
	}
	long := r.startProcess(box, "print", "20000").GetSpec().GetProcessId()
	short := r.startProcess(box, "status", "7").GetSpec().GetProcessId()
	r.wait(box, long)
	r.wait(box, short)
	r.restart()
	// At once: each of these waits for the box to be reached.
	if list := r.Processes(t.Context(), ""); len(list) != 3 {
		t.Fatalf("%v", list)
	}
	p, err := r.Process(t.Context(), box, echo.GetProcessId())
	if err != nil || !p.GetRunning() || p.GetStdinOffset() != 7 || !proto.Equal(p.GetSpec(), echo) || p.GetPid() != 42 {
		t.Fatal(p, err)
	}
	if f := r.wait(box, short).GetFinished(); f.GetExitCode() != 7 {
		t.Fatal(f)
	}
	if text := r.text(box, long); len(text) != 2_000_000 {
		t.Fatalf("%d bytes", len(text))
	}
	if _, err := r.WriteInput(t.Context(), box, &execv1.WriteInputRequest{ProcessId: echo.GetProcessId(), Data: []byte("after"), Close: true}); err != nil {
		t.Fatal(err)
	}
	r.wait(box, echo.GetProcessId())
	if text := r.text(box, echo.GetProcessId()); text != "before after" {
		t.Fatalf("%q", text)
	}
	if records := r.Executions(""); len(records) != 0 {
		t.Fatalf("listed as executions: %v", records)
	}
}

func TestProcessOnRecordThatTheAgentMayStillHoldIsNotListedAgain(t *testing.T) {
	r := newRig(t)
	box := r.create()
	id := r.startProcess(box, "status", "0").GetSpec().GetProcessId()
	r.wait(box, id)
	if err := r.Forget([]string{id}, true); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.await(box, enginev1.BoxState_BOX_STATE_READY)
	if list := r.Processes(t.Context(), ""); len(list) != 0 {
		t.Fatalf("%v", list)
	}
}

func TestManyWaitersAndReadersOfOneProcess(t *testing.T) {
	r := newRig(t)
	box := r.create()
	id := r.startProcess(box, "hold").GetSpec().GetProcessId()
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if p, err := r.WaitProcess(t.Context(), box, id); err != nil || p.GetRunning() {
				t.Error(p, err)
			}
		})
		group.Go(func() {
			log, err := r.Output(t.Context(), box, id)
			if err == nil {
				_, _, err = finish(t.Context(), log)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := r.Signal(t.Context(), box, &execv1.SignalRequest{ProcessId: id, Signal: int32(unix.SIGTERM)}); err != nil {
		t.Fatal(err)
	}
	group.Wait()
}

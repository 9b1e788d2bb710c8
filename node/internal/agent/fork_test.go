package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agent"
	"atoll/node/internal/agentrpc"
)

// become has another engine take the box over as a new one, as after a restore.
func (b *box) become(change func(*agentv1.HelloRequest)) *agentv1.HelloReply {
	b.t.Helper()
	b.disconnect()
	b.connect()
	b.hello.Reconfigure, b.hello.RenameContexts, b.hello.ForgetHeld = true, nil, false
	b.hello.Entropy = bytes.Repeat([]byte{byte(b.epoch)}, 32)
	change(b.hello)
	return b.sayHello()
}

func ids(contexts []*execv1.Context) (found []string) {
	for _, c := range contexts {
		found = append(found, c.ContextId)
	}
	return found
}

func TestFork_gives_contexts_new_ids_and_keeps_what_marks_their_processes(t *testing.T) {
	b := newBox(t)
	b.open("a", "python")
	b.open("sh", "bash")
	b.exec("a", "import os, subprocess; x = 7; child = subprocess.Popen(['sleep', '1234'], start_new_session=True)")
	reply := b.become(func(hello *agentv1.HelloRequest) {
		hello.BoxId, hello.RenameContexts = "box-fork", map[string]string{"a": "b", "sh": "sh2", "never": "was"}
	})
	if got := ids(reply.Contexts); !slices.Equal(got, []string{"b", "sh2"}) {
		t.Fatalf("contexts %q", got)
	}
	b.exec("b", "print(x, os.environ['ATOLL_CONTEXT_ID'])").prints("7 a\n")
	err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "a"}, &agentv1.OpenContextReply{})
	expectCode(t, err, codes.NotFound)
	// A context by the former id is another one, and each ends its own processes alone.
	b.open("a", "python")
	b.exec("a", "import os, subprocess; print(os.environ['ATOLL_CONTEXT_ID']); child = subprocess.Popen(['sleep', '4321'], start_new_session=True)").prints("a~2\n")
	owners := map[string]string{}
	for _, guest := range b.guests() {
		owners[strings.Join(guest.Argv, " ")] = guest.ContextId
	}
	if owners["sleep 1234"] != "b" || owners["sleep 4321"] != "a" {
		t.Errorf("%v", owners)
	}
	if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "b"}, &agentv1.OpenContextReply{}); err != nil {
		t.Fatal(err)
	}
	if b.alive("sleep 1234") || !b.alive("sleep 4321") {
		t.Errorf("the restarted context's process lives: %t, the other's: %t (expected: false, true)", b.alive("sleep 1234"), b.alive("sleep 4321"))
	}
	b.exec("b", "import os; print(os.environ['ATOLL_CONTEXT_ID'], 'x' in globals())").prints("a False\n")
	b.exec("sh2", "echo $ATOLL_CONTEXT_ID").prints("sh\n")
}

func TestFork_marks_never_clash_over_generations(t *testing.T) {
	b := newBox(t)
	const generations = 5
	b.open("ctx", "bash")
	for i := range generations {
		rename := map[string]string{"ctx": fmt.Sprintf("ctx~%d", i+2)} // what the agent itself may come upon
		b.become(func(hello *agentv1.HelloRequest) { hello.RenameContexts = rename })
		b.open("ctx", "bash")
	}
	marks := map[string]bool{}
	for _, c := range b.become(func(*agentv1.HelloRequest) {}).Contexts {
		mark := string(b.exec(c.ContextId, "echo $ATOLL_CONTEXT_ID").stdout)
		if marks[mark] {
			t.Errorf("%q marks two contexts", mark)
		}
		marks[mark] = true
	}
	if len(marks) != generations+1 {
		t.Errorf("%d marks", len(marks))
	}
}

func TestFork_hello_that_is_repeated_renames_once_and_a_clash_is_refused(t *testing.T) {
	b := newBox(t)
	b.open("a", "bash")
	b.open("other", "bash")
	for _, wrong := range []map[string]string{{"a": ""}, {"a": "other"}, {"a": "x", "other": "x"}} {
		b.hello.Reconfigure, b.hello.RenameContexts = true, wrong
		expectCode(t, call(b, agentrpc.Hello, b.hello, &agentv1.HelloReply{}), codes.InvalidArgument)
	}
	for range 2 {
		reply := b.become(func(hello *agentv1.HelloRequest) { hello.RenameContexts = map[string]string{"a": "b"} })
		if got := ids(reply.Contexts); !slices.Equal(got, []string{"b", "other"}) {
			t.Fatalf("%q", got)
		}
	}
	if got := ids(b.become(func(hello *agentv1.HelloRequest) {
		hello.RenameContexts = map[string]string{"b": "other", "other": "b"}
	}).Contexts); !slices.Equal(got, []string{"b", "other"}) {
		t.Fatalf("%q", got)
	}
}

// touched is how often a program has said, in a file, that it goes on.
func (b *box) touched(name string) int {
	text, _ := b.readFile(name)
	return len(text)
}

// goesOn waits until a program has said twice more that it does.
func (b *box) goesOn(name string) {
	b.t.Helper()
	before := b.touched(name)
	b.eventually(name+" goes on", func() error {
		if now := b.touched(name); now < before+2 {
			return fmt.Errorf("%d marks, %d before", now, before)
		}
		return nil
	})
}

func TestFork_forgotten_cell_runs_on_unread_without_a_limit_and_can_be_ended(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	loop := "import time\nmark = open('%s', 'a')\nwhile True:\n    print('x' * 100000); mark.write('.'); mark.flush(); time.sleep(0.01)"
	first := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-first", ContextId: "py", Code: fmt.Sprintf(loop, "first"), TimeoutMs: 3000})
	defer first.cancel()
	queued := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-queued", ContextId: "py", Code: "open('queued', 'w')"})
	defer queued.cancel()
	if _, err := first.next(); err != nil {
		t.Fatal(err)
	}
	b.exec("sh", "true")
	began := time.Now()
	reply := b.become(func(hello *agentv1.HelloRequest) { hello.BoxId, hello.ForgetHeld = "box-fork", true })
	if len(reply.Executions) != 0 || len(reply.Contexts) != 2 || reply.Contexts[0].State != execv1.ContextState_CONTEXT_STATE_RUNNING {
		t.Fatalf("%v (expected: nothing held, a context that runs)", reply)
	}
	b.goesOn("first") // although nobody has read a megabyte of it
	b.eventually("the former time limit is over", func() error {
		if left := 4*time.Second - time.Since(began); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	b.goesOn("first")
	request := b.request("exec-first", &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Attach{Attach: &agentv1.Attach{ExecutionId: "exec-first"}}})
	_, err := request.next()
	expectCode(t, err, codes.NotFound)
	request.cancel()
	// What is asked for here comes after it, once it is interrupted by the name that it had.
	next := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "py", Code: "print(mark.name)"})
	if err := call(b, agentrpc.Interrupt, &agentv1.InterruptRequest{ExecutionId: "exec-first", GraceMs: 20000}, &agentv1.Empty{}); err != nil {
		t.Fatal(err)
	}
	next.wait().prints("first\n")
	if _, err := b.readFile("queued"); err == nil {
		t.Error("what waited where the box came from was run here")
	}
	// A restart ends it too.
	second := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-second", ContextId: "py", Code: fmt.Sprintf(loop, "second")})
	if _, err := second.next(); err != nil {
		t.Fatal(err)
	}
	second.cancel()
	b.become(func(hello *agentv1.HelloRequest) { hello.ForgetHeld = true })
	b.goesOn("second")
	if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "py"}, &agentv1.OpenContextReply{}); err != nil {
		t.Fatal(err)
	}
	b.exec("py", "print('mark' in globals())").prints("False\n")
}

func TestFork_late_output_of_another_sandboxs_cell_is_dropped(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.exec("py", "import threading, time\ndef go():\n    while True: print('late'); open('late', 'a').write('.'); time.sleep(0.02)\nthreading.Thread(target=go, daemon=True).start()")
	b.become(func(hello *agentv1.HelloRequest) { hello.ForgetHeld = true })
	ctx, cancel := context.WithCancel(b.life)
	defer cancel()
	stream, err := b.session.Open(ctx, agentrpc.Watch)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&agentv1.WatchRequest{}); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1)
	go func() {
		for {
			event := &agentv1.AgentEvent{}
			if err := stream.Receive(event); err != nil {
				return
			}
			if late := event.GetLateOutput(); late != nil {
				heard <- late.ExecutionId
				return
			}
		}
	}()
	for range 3 {
		b.goesOn("late")
	}
	own := b.exec("py", "threading.Thread(target=lambda: (time.sleep(0.3), print('mine')), daemon=True).start()")
	select {
	case id := <-heard:
		if id != own.id {
			t.Errorf("late output of %s (expected: none of %s)", id, r.id)
		}
	case <-time.After(20 * time.Second):
		t.Error("no late output of the box's own cell")
	}
}

func TestFork_forgotten_processes_run_on_unread_and_are_found_by_pid(t *testing.T) {
	b := newBox(t)
	loop := "while :; do head -c 100000 /dev/zero; printf . >>%s; sleep 0.02; done"
	plain := b.start(&execv1.ProcessSpec{ProcessId: "proc-plain", Argv: []string{"/bin/sh", "-c", fmt.Sprintf(loop, "plain")}, TimeoutMs: 3000})
	terminal := b.start(&execv1.ProcessSpec{ProcessId: "proc-tty", Argv: []string{"/bin/sh", "-c", fmt.Sprintf(loop, "tty")}, Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}})
	reader := b.start(&execv1.ProcessSpec{ProcessId: "proc-reader", Argv: []string{"/bin/sh", "-c", "read line; echo got $line >got"}, Stdin: true})
	ended := b.start(&execv1.ProcessSpec{ProcessId: "proc-ended", Argv: []string{"true"}})
	pids := []int32{plain.pid(), terminal.pid(), reader.pid()}
	for ended.finished == nil {
		if _, err := ended.next(); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*run{plain, terminal, reader, ended} {
		r.cancel()
	}
	began := time.Now()
	if reply := b.become(func(hello *agentv1.HelloRequest) { hello.BoxId, hello.ForgetHeld = "box-fork", true }); len(reply.Executions) != 0 {
		t.Fatalf("%v", reply.Executions)
	}
	list := &agentv1.ListProcessesReply{}
	if err := call(b, agentrpc.ListProcesses, &agentv1.ListProcessesRequest{}, list); err != nil || len(list.Processes) != 0 {
		t.Errorf("%v %v (expected: none)", list, err)
	}
	b.eventually("the former time limit is over", func() error {
		if left := 4*time.Second - time.Since(began); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	b.goesOn("plain")
	b.goesOn("tty")
	for _, guest := range b.guests() {
		if guest.ProcessId != "" {
			t.Errorf("%v is said to belong to a process of another sandbox", guest)
		}
	}
	expectCode(t, b.signal("proc-plain", unix.SIGKILL, wholeTree), codes.NotFound)
	expectCode(t, b.refused(&execv1.ProcessSpec{ProcessId: "proc-plain", Argv: []string{"true"}}), codes.AlreadyExists)
	// It waits for its input, which has not ended.
	if !b.alive("read line") {
		t.Error("a program that reads has ended")
	}
	mine := b.shell("sleep 0.2; echo mine")
	mine.pid()
	for _, pid := range pids {
		if err := call(b, agentrpc.Signal, &execv1.SignalRequest{Pid: pid, Signal: int32(unix.SIGKILL), Target: wholeTree}, &agentv1.Empty{}); err != nil {
			t.Error(err)
		}
	}
	mine.wait().endsWith(0, "mine\n")
	b.eventually("they have ended", func() error {
		if guests := b.guests(); len(guests) != 0 {
			return fmt.Errorf("%v", guests)
		}
		return nil
	})
}

func TestFork_children_of_the_agent_are_spared_by_the_end_of_other_contexts(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	stray := b.shell("while :; do printf . >>stray; sleep 0.02; done")
	stray.pid()
	stray.cancel()
	b.become(func(hello *agentv1.HelloRequest) { hello.ForgetHeld = true })
	if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "py"}, &agentv1.OpenContextReply{}); err != nil {
		t.Fatal(err)
	}
	b.execWithin("py", "import time; time.sleep(60)", 100*time.Millisecond)
	b.goesOn("stray")
}

func TestReseed_comes_before_the_next_cell_of_a_kernel_that_was_busy(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	b.exec("py", "import os, random, time; random.seed(5); first = random.random()")
	b.exec("sh", "RANDOM=5; first=$RANDOM")
	cells := []*run{
		b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "py", Code: "open('py', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\nrandom.seed(5)"}),
		b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "sh", Code: "touch sh; until [ -e go ]; do sleep 0.02; done; RANDOM=5"}),
	}
	held := []string{cells[0].id, cells[1].id}
	for _, name := range []string{"py", "sh"} {
		b.eventually("its cell runs", func() error { _, err := b.readFile(name); return err })
	}
	reply := b.become(func(hello *agentv1.HelloRequest) {
		hello.Env = map[string]string{"PATH": os.Getenv("PATH"), "NEW": "env"}
	})
	if len(reply.Executions) != 2 {
		t.Fatalf("%v", reply)
	}
	b.inside("touch " + filepath.Join(b.home, "go"))
	for _, id := range held {
		b.attach(id, 0).wait().prints("")
	}
	b.exec("py", "print(random.random() != first, os.environ['NEW'], 'GREETING' in os.environ)").prints("True env False\n")
	b.exec("sh", "(( RANDOM != first )) && echo $NEW ${GREETING-gone}").prints("env gone\n")
}

func TestReseed_that_fails_costs_the_kernel_and_no_cell_runs_in_it(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import sys, types\nx = 1\nbroken = types.ModuleType('torch')\ndef manual_seed(n): raise OSError('no seed')\nbroken.manual_seed = manual_seed\nsys.modules['torch'] = broken")
	b.become(func(*agentv1.HelloRequest) {})
	r := b.exec("py", "print('x' in globals())").prints("False\n")
	if r.finished.StateKept || !strings.Contains(r.finished.Detail, "no seed") {
		t.Errorf("%v", r.finished)
	}
	b.open("sh", "bash")
	b.exec("sh", "readonly RANDOM; x=1")
	b.become(func(*agentv1.HelloRequest) {})
	if r := b.exec("sh", "echo ${x-gone}").prints("gone\n"); r.finished.StateKept {
		t.Errorf("%v", r.finished)
	}
	// What is no generator is no failure.
	b.exec("sh", "unset RANDOM; RANDOM=3; set -u; false")
	b.become(func(*agentv1.HelloRequest) {})
	b.exec("sh", "echo $? $RANDOM").prints("1 3\n").ends(completed, true)
}

func TestReseed_that_a_kernel_does_not_answer_is_waited_for_and_can_be_given_up(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	pid := strings.TrimSpace(string(b.exec("py", "import os, random; random.seed(5); first = random.random(); random.seed(5); print(os.getpid())").stdout))
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(signal unix.Signal) {
		t.Helper()
		if err := call(b, agentrpc.Signal, &execv1.SignalRequest{Pid: int32(number), Signal: int32(signal), Target: process}, &agentv1.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	tell(unix.SIGSTOP)
	for range 6 {
		b.become(func(*agentv1.HelloRequest) {})
	}
	b.execWithin("py", "print('never')", 300*time.Millisecond).ends(timedOut, true)
	waits := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-waits", ContextId: "py", Code: "print('never')"})
	b.eventually("it waits for the kernel", func() error {
		if state := b.sayHello().Contexts[0].State; state != execv1.ContextState_CONTEXT_STATE_RUNNING {
			return fmt.Errorf("%v", state)
		}
		return nil
	})
	if err := call(b, agentrpc.Interrupt, &agentv1.InterruptRequest{ExecutionId: "exec-waits"}, &agentv1.Empty{}); err != nil {
		t.Fatal(err)
	}
	waits.wait().ends(interrupted, true)
	next := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "py", Code: "print(random.random() != first)"})
	tell(unix.SIGCONT)
	next.wait().prints("True\n").ends(completed, true)
	// A restart helps too.
	tell(unix.SIGSTOP)
	b.become(func(*agentv1.HelloRequest) {})
	stuck := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "py", Code: "print('never')"})
	if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "py"}, &agentv1.OpenContextReply{}); err != nil {
		t.Fatal(err)
	}
	stuck.wait().ends(interrupted, false)
	b.exec("py", "print('first' in globals())").prints("False\n")
}

func TestReseed_and_environment_reach_a_kernel_that_was_just_starting(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	kernel := b.hello.Kernels[0]
	kernel.Argv = append([]string{"/bin/sh", "-c", "touch starting; until [ -e go ]; do sleep 0.02; done; exec \"$@\"", "sh"}, kernel.Argv...)
	b.sayHello()
	opened := make(chan error, 1)
	go func() {
		opened <- call(b, agentrpc.OpenContext, &agentv1.OpenContextRequest{Spec: &execv1.ContextSpec{ContextId: "py", Language: "python"}}, &agentv1.OpenContextReply{})
	}()
	b.eventually("the kernel starts", func() error { _, err := b.readFile("starting"); return err })
	b.become(func(hello *agentv1.HelloRequest) { hello.Env["GREETING"] = "new" })
	<-opened // its host has gone
	b.inside("touch " + filepath.Join(b.home, "go"))
	b.open("py", "python")
	b.exec("py", "import os; print(os.environ['GREETING'])").prints("new\n")
}

func TestIdentity_is_seen_everywhere_and_what_programs_have_stays(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	b.openSpec(&execv1.ContextSpec{ContextId: "own", Language: "bash", Env: map[string]string{"GREETING": "own"}})
	b.exec("py", "import os, platform, socket; print(os.environ['HOSTNAME'], platform.node()); os.environ['MINE'] = '1'; os.environ['GREETING'] = 'changed'").prints("sandbox sandbox\n")
	runs := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "read x; echo $HOSTNAME $GREETING"}, Stdin: true})
	runs.pid()
	b.become(func(hello *agentv1.HelloRequest) { hello.Hostname = "fork" })
	b.exec("py", "print(os.environ['HOSTNAME'], platform.node(), socket.gethostname(), os.environ['MINE'], os.environ['GREETING'])").prints("fork fork fork 1 changed\n")
	b.exec("sh", "echo $HOSTNAME $GREETING; hostname").prints("fork hello\nfork\n")
	b.shell("echo $HOSTNAME; hostname; grep -c 127.0.1.1 /etc/hosts; getent hosts fork").wait().endsWith(0, "fork\nfork\n1\n127.0.1.1       fork\n")
	b.become(func(hello *agentv1.HelloRequest) { hello.Env["GREETING"] = "forked" })
	b.exec("py", "print(os.environ['GREETING'])").prints("forked\n")
	b.exec("own", "echo $GREETING").prints("own\n")
	b.shell("echo $GREETING").wait().endsWith(0, "forked\n")
	// What ran then has the environment that it was started with.
	again := b.attach(runs.id, 1)
	b.write(runs.id, 0, "\n", true)
	again.events = []*execv1.ExecutionEvent{{Seq: 1}}
	again.wait().endsWith(0, "sandbox hello\n")
}

func TestTerminals_watches_and_background_go_on_over_a_new_connection(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import os, socket, threading, time\nf = open('kept', 'w+'); f.write('open '); f.flush()\n"+
		"s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); d, _ = s.accept()\n"+
		"n = 0\ndef count():\n    global n\n    while True: n += 1; time.sleep(0.01)\nthreading.Thread(target=count, daemon=True).start()")
	terminal := b.interactive()
	b.typed(terminal, "x=kept\n")
	terminal.untilPrinted("x=kept")
	last := terminal.events[len(terminal.events)-1].Seq
	b.become(func(hello *agentv1.HelloRequest) { hello.Hostname = "resumed" })
	again := b.attach(terminal.id, last)
	again.stdout, again.events = terminal.stdout, []*execv1.ExecutionEvent{{Seq: last}}
	b.typed(again, "echo $x$x\n")
	again.untilPrinted("keptkept")
	b.exec("py", "before = n; time.sleep(0.2); c.sendall(b'still'); f.write(d.recv(10).decode()); f.flush(); print(n > before, open('kept').read())").prints("True open still\n")
	b.typed(again, "exit\n")
	again.wait()
}

// cutWriter loses what is written to it beyond a limit, as a host that is killed does.
type cutWriter struct {
	*os.File

	mu      sync.Mutex
	left    int // guarded by mu
	offered int // since left was set; guarded by mu
}

func (w *cutWriter) cutAfter(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.offered = n, 0
}

func (w *cutWriter) took() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.offered
}

func (w *cutWriter) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(w.left, len(data))
	w.left -= n
	w.offered += len(data)
	if n > 0 {
		if _, err := w.File.Write(data[:n]); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// losesHost has a host speak until a byte, whoever waits for the rest, and says how many bytes it would have been.
func (b *box) losesHost(after, round int, port uint32) int {
	b.t.Helper()
	b.disconnect()
	lossy := &cutWriter{left: 1 << 40}
	b.connectBy(func(out *os.File) io.Writer { lossy.File = out; return lossy })
	b.sayHello()
	lossy.cutAfter(after)
	ctx, cancel := context.WithCancel(b.life)
	defer cancel()
	send := func(method string, messages ...proto.Message) {
		stream, err := b.session.Open(ctx, method)
		for _, message := range messages {
			if err == nil {
				err = stream.Send(message)
			}
		}
		if err != nil {
			b.t.Errorf("%s: %v", method, err)
		}
	}
	start := func(id string) proto.Message {
		return &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Start{Start: lostExecution(id)}}
	}
	name := fmt.Sprintf("%s/work/file%d", b.home, round)
	send(agentrpc.WatchFiles, &filev1.WatchFilesRequest{User: "root", Path: b.home + "/work"})
	send(agentrpc.Execute, start(fmt.Sprint("exec-lost-", round)))
	send(agentrpc.WriteFile, &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: &filev1.WriteFileOpen{User: "root", Path: name}}},
		&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: bytes.Repeat([]byte("x"), 5000)}},
		&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: []byte("y")}})
	send(agentrpc.Execute, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_StartProcess{StartProcess: lostProcess(fmt.Sprint("proc-lost-", round))}})
	send(agentrpc.Tunnel, &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Open{Open: &execv1.TunnelOpen{Port: port}}},
		&execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: []byte("hello")}})
	send(agentrpc.Watch, &agentv1.WatchRequest{})
	send(agentrpc.Execute, start(fmt.Sprint("exec-lost-too-", round)))
	if after == everything {
		if err := call(b, agentrpc.ListPorts, &agentv1.Empty{}, &execv1.ListPortsReply{}); err != nil {
			b.t.Error(err)
		}
	}
	b.eventually("all of it was written", func() error {
		if took := lossy.took(); took < after && after != everything {
			return fmt.Errorf("%d of %d bytes", took, after)
		}
		return nil
	})
	return lossy.took()
}

const everything = 1 << 40

func lostExecution(id string) *execv1.ExecutionSpec {
	return &execv1.ExecutionSpec{ExecutionId: id, ContextId: "py", Code: fmt.Sprintf("ran[%q] += 1", id)}
}

func lostProcess(id string) *execv1.ProcessSpec {
	return &execv1.ProcessSpec{ProcessId: id, Argv: []string{"/bin/sh", "-c", "echo " + id + " >>started"}}
}

func TestHost_that_is_lost_at_any_byte_leaves_nothing_half_done(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import collections, socket, threading\nran = collections.Counter(); s = socket.create_server(('127.0.0.1', 0)); open_now = 0\n"+
		"def serve():\n    global open_now\n    while True:\n        c = s.accept()[0]; open_now += 1\n        threading.Thread(target=drain, args=(c,), daemon=True).start()\n"+
		"def drain(c):\n    global open_now\n    try:\n        while c.recv(100): pass\n    except OSError: pass\n    open_now -= 1\n"+
		"threading.Thread(target=serve, daemon=True).start()")
	port, err := strconv.Atoi(strings.TrimSpace(string(b.exec("py", "print(s.getsockname()[1])").stdout)))
	if err != nil {
		t.Fatal(err)
	}
	b.inside("mkdir -m 777 -p " + filepath.Join(b.home, "work"))
	const rounds = 48
	round, descriptors := 0, 0
	lose := func(after int) int {
		written := b.losesHost(after, round, uint32(port))
		b.disconnect()
		b.connect()
		b.sayHello()
		id, too, process := fmt.Sprint("exec-lost-", round), fmt.Sprint("exec-lost-too-", round), fmt.Sprint("proc-lost-", round)
		b.begin(lostExecution(id)).wait().prints("")
		b.begin(lostExecution(too)).wait().prints("")
		b.exec("py", fmt.Sprintf("print(ran[%q], ran[%q])", id, too)).prints("1 1\n")
		b.start(lostProcess(process)).wait().endsWith(0, "")
		if text, _ := b.readFile("started"); strings.Count(text, process+"\n") != 1 {
			t.Errorf("cut after %d bytes: the process was started %d times", after, strings.Count(text, process+"\n"))
		}
		b.eventually("nothing is left of the upload", func() error {
			if found := b.inside("ls -A " + filepath.Join(b.home, "work")); found != "" {
				return errors.New(found)
			}
			return nil
		})
		b.eventually("the tunnel has ended", func() error {
			if r := b.exec("py", "print(open_now)"); string(r.stdout) != "0\n" {
				return fmt.Errorf("%q are open", r.stdout)
			}
			return nil
		})
		round++
		return written
	}
	total := lose(everything) - 200 // the last call is for that one alone
	descriptors = b.descriptors()
	for i := range rounds {
		lose(total * (i + 1) / (rounds + 1))
	}
	b.eventually("no descriptor is left", func() error {
		if now := b.descriptors(); now > descriptors {
			return fmt.Errorf("%d, %d at the beginning", now, descriptors)
		}
		return nil
	})
}

func TestDeadline_that_nobody_moves_ends_the_sandbox_with_its_status(t *testing.T) {
	b := newBox(t)
	b.hello.DeadlineUnixMs = time.Now().Add(-time.Hour).UnixMilli()
	b.sayHello()
	b.hello.DeadlineUnixMs = 0
	b.sayHello() // takes it back
	b.hello.DeadlineUnixMs = time.Now().Add(-55 * time.Second).UnixMilli()
	b.sayHello()
	b.closing.Store(true)
	began := time.Now()
	select {
	case <-b.gone:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if took := time.Since(began); b.command.ProcessState.ExitCode() != agent.DeadlineStatus || took < 4*time.Second {
		t.Errorf("exit status %d after %s (expected: %d, after 5 s)", b.command.ProcessState.ExitCode(), took, agent.DeadlineStatus)
	}
}

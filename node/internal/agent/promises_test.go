package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
)

const (
	completed   = execv1.ExitReason_EXIT_REASON_COMPLETED
	failed      = execv1.ExitReason_EXIT_REASON_ERROR
	exited      = execv1.ExitReason_EXIT_REASON_EXITED
	timedOut    = execv1.ExitReason_EXIT_REASON_TIMEOUT
	interrupted = execv1.ExitReason_EXIT_REASON_INTERRUPTED
	outOfMemory = execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY
	kernelDied  = execv1.ExitReason_EXIT_REASON_KERNEL_DIED
)

func TestNothing_is_answered_before_hello(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	err := call(b, agentrpc.OpenContext, &agentv1.OpenContextRequest{Spec: &execv1.ContextSpec{ContextId: "c", Language: "bash"}}, &agentv1.OpenContextReply{})
	expectCode(t, err, codes.FailedPrecondition)
	b.sayHello()
	b.open("c", "bash")
	b.disconnect()
	b.connect()
	err = call(b, agentrpc.CloseContext, &agentv1.ContextRequest{ContextId: "c"}, &agentv1.Empty{})
	expectCode(t, err, codes.FailedPrecondition)
	if reply := b.sayHello(); len(reply.Contexts) != 1 || reply.Contexts[0].ContextId != "c" {
		t.Fatalf("%v (expected: the context c)", reply)
	}
}

func TestHello_for_another_box_is_refused_without_reconfigure(t *testing.T) {
	b := newBox(t)
	b.hello.BoxId = "box-other"
	expectCode(t, call(b, agentrpc.Hello, b.hello, &agentv1.HelloReply{}), codes.FailedPrecondition)
}

func TestHello_sets_hostname_and_environment(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import os, socket\nprint(socket.gethostname(), os.environ['GREETING'], os.environ['HOME'] == os.getcwd())").prints("sandbox hello True\n")
	b.exec("py", "print(socket.gethostbyname('sandbox'), socket.gethostbyname('localhost'))").prints("127.0.1.1 127.0.0.1\n")
}

func TestReconfigure_changes_environment_of_running_kernels_and_seeds_them_apart(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	b.exec("py", "import random, os; random.seed(1)")
	b.exec("sh", "RANDOM=1")
	seen := map[string]bool{}
	for round := range 2 {
		b.hello.Reconfigure = true
		b.hello.Entropy = bytes.Repeat([]byte{byte(round + 1)}, 32)
		b.hello.Env = map[string]string{"PATH": os.Getenv("PATH"), "ROUND": fmt.Sprint(round)}
		b.hello.Hostname = fmt.Sprintf("box%d", round)
		b.sayHello()
		b.exec("py", "import socket; print(os.environ['ROUND'], 'GREETING' in os.environ, socket.gethostname())").prints(fmt.Sprintf("%d False box%d\n", round, round))
		b.exec("py", "print([line.split() for line in open('/etc/hosts') if line.startswith('127.0.1.1')])").prints(fmt.Sprintf("[['127.0.1.1', 'box%d']]\n", round))
		b.exec("sh", "echo $ROUND ${GREETING-gone}").prints(fmt.Sprintf("%d gone\n", round))
		for _, r := range []*run{b.exec("py", "print(random.random())"), b.exec("sh", "echo $RANDOM$RANDOM")} {
			if seen[string(r.stdout)] {
				t.Errorf("%q was drawn before", r.stdout)
			}
			seen[string(r.stdout)] = true
		}
	}
}

func TestStart_of_a_known_execution_attaches_and_never_runs_twice(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "n = 0")
	spec := &execv1.ExecutionSpec{ExecutionId: "exec-once", ContextId: "py", Code: "n += 1; print(n)"}
	first := b.begin(spec)
	for first.finished == nil {
		if _, err := first.next(); err != nil {
			t.Fatal(err)
		}
	}
	second := b.begin(spec).wait().prints("1\n")
	first.cancel()
	if len(second.events) != len(first.events) {
		t.Fatalf("%d events on attaching (expected: %d)", len(second.events), len(first.events))
	}
	third := b.begin(spec)
	defer third.cancel()
	_, err := third.next()
	expectCode(t, err, codes.AlreadyExists)
	b.exec("py", "print(n)").prints("1\n")
}

func TestExecution_is_held_over_a_reconnect_until_acknowledged(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	spec := &execv1.ExecutionSpec{ExecutionId: "exec-long", ContextId: "py",
		Code: "import time\nfor i in range(40):\n    print(i, flush=True); time.sleep(0.01)"}
	r := b.begin(spec)
	for len(r.stdout) < 6 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	seen := r.events[len(r.events)-1].Seq
	if err := r.acknowledge(1); err != nil {
		t.Fatal(err)
	}
	b.disconnect()
	b.connect()
	held := b.sayHello().Executions
	if len(held) != 1 || held[0].ExecutionId != "exec-long" {
		t.Fatalf("held: %v (expected: exec-long)", held)
	}
	again := b.attach("exec-long", seen)
	again.stdout = r.stdout
	again.events = []*execv1.ExecutionEvent{{Seq: seen}}
	again.wait()
	var all strings.Builder
	for i := range 40 {
		fmt.Fprintln(&all, i)
	}
	again.prints(all.String())
	if held := b.sayHello().Executions; len(held) != 0 {
		t.Fatalf("held after the last acknowledgement: %v", held)
	}
}

func TestAttaching_after_events_that_were_dropped_is_refused(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-a", ContextId: "py", Code: "print(1)"})
	for r.finished == nil {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.acknowledge(2); err != nil {
		t.Fatal(err)
	}
	b.eventually("the acknowledgement is known", func() error {
		if held := b.sayHello().Executions; len(held) != 1 || held[0].AcknowledgedSeq != 2 {
			return fmt.Errorf("held: %v", held)
		}
		return nil
	})
	again := b.attach("exec-a", 1)
	defer again.cancel()
	_, err := again.next()
	expectCode(t, err, codes.OutOfRange)
	unknown := b.attach("exec-never", 0)
	defer unknown.cancel()
	_, err = unknown.next()
	expectCode(t, err, codes.NotFound)
}

func TestExecutions_of_one_context_run_in_order(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "seen = []")
	var runs []*run
	for i := range 64 {
		runs = append(runs, b.begin(&execv1.ExecutionSpec{ExecutionId: fmt.Sprintf("exec-q%d", i), ContextId: "py", Code: fmt.Sprintf("seen.append(%d)", i)}))
		// The order in which separate calls arrive is the order in which they were sent.
		b.eventually("the call has arrived", func() error {
			for _, held := range b.sayHello().Executions {
				if held.ExecutionId == fmt.Sprintf("exec-q%d", i) {
					return nil
				}
			}
			return fmt.Errorf("exec-q%d is not held", i)
		})
	}
	for _, r := range runs {
		r.wait()
	}
	b.exec("py", "print(seen == list(range(64)))").prints("True\n")
}

func TestContexts_of_one_sandbox_run_at_once(t *testing.T) {
	b := newBox(t)
	b.open("a", "python")
	b.open("b", "python")
	// Each waits for the other's file: one after the other would never end.
	meet := func(mine, other string) string {
		return fmt.Sprintf("import os, time\nopen(%q, 'w').close()\nwhile not os.path.exists(%q): time.sleep(0.005)\nprint('met')", mine, other)
	}
	first := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-1a", ContextId: "a", Code: meet("one", "two"), TimeoutMs: 20000})
	second := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-1b", ContextId: "b", Code: meet("two", "one"), TimeoutMs: 20000})
	first.wait().prints("met\n")
	second.wait().prints("met\n")
}

func TestEnvironment_of_one_execution_is_put_back(t *testing.T) {
	b := newBox(t)
	for language, code := range map[string]string{
		"python": "import os; print(os.environ.get('GREETING'), os.environ.get('ONCE'))",
		"bash":   "echo ${GREETING-None} ${ONCE-None}",
	} {
		b.open(language, language)
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: language, Code: code, Env: map[string]string{"GREETING": "it's", "ONCE": "1"}})
		r.wait().prints("it's 1\n")
		b.exec(language, code).prints("hello None\n")
	}
}

func TestOrder_across_stdout_and_stderr_is_kept(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.exec("py", "import sys\nfor i in range(500):\n    print(f'o{i}'); print(f'e{i}', file=sys.stderr)")
	var want strings.Builder
	for i := range 500 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	if string(r.order) != want.String() {
		t.Fatalf("%d bytes in the wrong order", len(r.order))
	}
}

func TestLast_byte_comes_before_the_end(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	for i := range 200 {
		b.exec("py", fmt.Sprintf("print('x' * %d)", i*7)).prints(strings.Repeat("x", i*7) + "\n")
	}
	for range 50 {
		b.exec("sh", "/bin/echo one; /bin/echo two").prints("one\ntwo\n")
	}
}

func TestOutput_of_any_bytes_passes_unchanged(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	b.exec("py", "import sys; n = sys.stdout.buffer.write(bytes(range(256)))").prints(string(every))
	b.exec("py", "import sys; print('🏝' * 30000)").prints(strings.Repeat("🏝", 30000) + "\n")
}

func TestProgram_waits_when_its_output_is_not_acknowledged(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-big", ContextId: "py",
		Code: "import os\nfor i in range(100):\n    os.write(1, b'y' * 100000)\n    open('written', 'w').write(str(i))"})
	got := 0
	for got < 900<<10 {
		event, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		got += len(event.GetOutput().GetData())
	}
	// 1 MiB of log and 64 KiB of pipe hold no 3 MB, however long one waits; it stands still when it stays the same for a while.
	last, same := "", 0
	b.eventually("the program stands still", func() error {
		text, _ := b.readFile("written")
		if text == last {
			same++
		} else {
			last, same = text, 0
		}
		if same < 30 {
			return fmt.Errorf("at %s", last)
		}
		return nil
	})
	if n := 0; true {
		_, _ = fmt.Sscan(last, &n)
		if n > 20 {
			t.Fatalf("the program has written %d00 kB with nothing acknowledged", n)
		}
	}
	for _, event := range r.events {
		if err := r.acknowledge(event.Seq); err != nil {
			t.Fatal(err)
		}
	}
	r.wait()
	if len(r.stdout) != 10000000 {
		t.Fatalf("%d bytes (expected: 10000000)", len(r.stdout))
	}
}

func TestDaemon_that_holds_the_pipe_delays_nothing(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.exec("py", "import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True); print('started')").prints("started\n")
	if r.took > 5*time.Second {
		t.Fatalf("took %s", r.took)
	}
	r = b.exec("py", "import os; os._exit(3)").ends(kernelDied, false)
	if r.finished.ExitCode != 3 || r.took > 5*time.Second {
		t.Fatalf("%v after %s (expected: exit code 3 at once)", r.finished, r.took)
	}
}

func TestOutput_between_cells_never_reaches_the_next_cell(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch, err := b.session.Open(ctx, agentrpc.Watch)
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(&agentv1.WatchRequest{}); err != nil {
		t.Fatal(err)
	}
	b.open("py", "python")
	first := b.exec("py", "import subprocess; p = subprocess.Popen('sleep 0.2; echo late; touch done', shell=True)").prints("")
	b.eventually("the daemon has printed", func() error { _, err := b.readFile("done"); return err })
	b.exec("py", "print('mine')").prints("mine\n")
	for {
		event := &agentv1.AgentEvent{}
		if err := watch.Receive(event); err != nil {
			t.Fatal(err)
		}
		if late := event.GetLateOutput(); late != nil {
			if late.ExecutionId != first.id || string(late.Data) != "late\n" {
				t.Fatalf("%v (expected: late output of %s)", late, first.id)
			}
			return
		}
	}
}

func TestTimeout_interrupts_first_and_keeps_the_state(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "x = 41")
	r := b.execWithin("py", "print('before', flush=True)\nwhile True: pass", 300*time.Millisecond).ends(timedOut, true)
	if string(r.stdout) != "before\n" || r.took < 300*time.Millisecond || r.took > 2*time.Second {
		t.Fatalf("%q after %s (expected: the partial output after 0.3 s)", r.stdout, r.took)
	}
	if !strings.Contains(r.finished.Detail, "300ms") {
		t.Fatalf("detail without the limit: %q", r.finished.Detail)
	}
	b.exec("py", "print(x + 1)").prints("42\n")
}

func TestTimeout_kills_what_ignores_the_interrupt(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "x = 1")
	r := b.execWithin("py", "import signal, time\nprint('on')\nwhile True:\n    try:\n        time.sleep(100)\n    except BaseException: pass", 300*time.Millisecond)
	r.ends(timedOut, false)
	if r.took > 3*time.Second || string(r.stdout) != "on\n" {
		t.Fatalf("%q after %s", r.stdout, r.took)
	}
	b.exec("py", "print('x' in globals())").prints("False\n")
	if restarts := b.sayHello().Contexts[0].Restarts; restarts != 1 {
		t.Fatalf("restarts: %d (expected: 1)", restarts)
	}
}

func TestTimeout_ends_the_children_of_its_cell_and_spares_daemons_of_earlier_ones(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	mark := fmt.Sprint(os.Getpid())
	b.exec("py", "import subprocess, time\nd = subprocess.Popen(['sleep', '9001."+mark+"'])\ntime.sleep(0.05)")
	for name, code := range map[string]string{
		"run":      "subprocess.run(['sleep', '9002." + mark + "'])",
		"deaf":     "subprocess.run(['sh', '-c', 'trap \"\" INT; sleep 9002." + mark + "; sleep 9002." + mark + "'])",
		"setsid":   "subprocess.Popen(['setsid', 'sleep', '9002." + mark + "'])\nwhile True: pass",
		"orphan":   "subprocess.run('(setsid sleep 9002." + mark + " &)', shell=True)\nwhile True: pass",
		"unmarked": "subprocess.run('(setsid env -i /bin/sleep 9002." + mark + " &)', shell=True)\nwhile True: pass",
	} {
		r := b.execWithin("py", code, 400*time.Millisecond).ends(timedOut, true)
		if r.took > 3*time.Second {
			t.Errorf("%s: took %s", name, r.took)
		}
		if b.alive("sleep 9002." + mark) {
			t.Errorf("%s: the child lives on", name)
		}
		if !b.alive("sleep 9001." + mark) {
			t.Fatalf("%s: the daemon of an earlier cell is gone", name)
		}
	}
	b.exec("py", "print(d.poll()); d.kill()").prints("None\n")
}

func TestKilling_a_context_ends_all_of_it_and_spares_the_others(t *testing.T) {
	b := newBox(t)
	b.open("a", "python")
	b.open("b", "bash")
	mark := fmt.Sprint(os.Getpid())
	b.exec("b", "y=7; (setsid sleep 9003."+mark+" &)")
	b.exec("a", "import subprocess\nsubprocess.run('(setsid sleep 9004."+mark+" &)', shell=True)\nsubprocess.Popen(['sleep', '9004."+mark+"'])")
	if err := call(b, agentrpc.CloseContext, &agentv1.ContextRequest{ContextId: "a"}, &agentv1.Empty{}); err != nil {
		t.Fatal(err)
	}
	if b.alive("sleep 9004." + mark) {
		t.Error("a process of the closed context lives on")
	}
	if !b.alive("sleep 9003." + mark) {
		t.Error("a process of the other context is gone")
	}
	b.exec("b", "echo $y").prints("7\n")
}

func TestInterrupt_ends_a_running_execution_and_keeps_the_state(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-int", ContextId: "py", Code: "v = 5\nprint('go', flush=True)\nimport time; time.sleep(60)"})
	for len(r.stdout) == 0 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := call(b, agentrpc.Interrupt, &agentv1.InterruptRequest{ExecutionId: "exec-int", GraceMs: 2000}, &agentv1.Empty{}); err != nil {
		t.Fatal(err)
	}
	r.wait().ends(interrupted, true)
	b.exec("py", "print(v)").prints("5\n")
	expectCode(t, call(b, agentrpc.Interrupt, &agentv1.InterruptRequest{ExecutionId: "exec-none"}, &agentv1.Empty{}), codes.NotFound)
}

func TestInterrupt_takes_a_queued_execution_out(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	first := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-first", ContextId: "py", Code: "import time; print('on', flush=True); time.sleep(0.5)"})
	for len(first.stdout) == 0 {
		if _, err := first.next(); err != nil {
			t.Fatal(err)
		}
	}
	second := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-second", ContextId: "py", Code: "never = 1"})
	b.eventually("the second is queued", func() error {
		if held := b.sayHello().Executions; len(held) != 2 {
			return fmt.Errorf("held: %v", held)
		}
		return nil
	})
	if err := call(b, agentrpc.Interrupt, &agentv1.InterruptRequest{ExecutionId: "exec-second"}, &agentv1.Empty{}); err != nil {
		t.Fatal(err)
	}
	second.wait().ends(interrupted, true)
	first.wait().ends(completed, true)
	b.exec("py", "print('never' in globals())").prints("False\n")
}

func TestKernel_that_dies_is_reported_and_replaced(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.exec("py", "import os\nprint('last words', flush=True)\nos._exit(7)").ends(kernelDied, false)
	if string(r.stdout) != "last words\n" || r.finished.ExitCode != 7 {
		t.Fatalf("%q, %v", r.stdout, r.finished)
	}
	r = b.exec("py", "import os; os.kill(os.getpid(), 11)").ends(kernelDied, false)
	if r.finished.Signal != 11 {
		t.Fatalf("%v (expected: signal 11)", r.finished)
	}
	b.exec("py", "print('fresh')").prints("fresh\n").ends(completed, true)
}

func TestKernel_that_died_between_cells_is_told_with_the_next_one(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import os, subprocess; x = 1\np = subprocess.Popen(f'sleep 0.1; kill -9 {os.getpid()}; touch killed', shell=True)")
	b.eventually("the kernel is killed", func() error { _, err := b.readFile("killed"); return err })
	b.eventually("another is there", func() error {
		if c := b.sayHello().Contexts[0]; c.Restarts != 1 || c.State != execv1.ContextState_CONTEXT_STATE_IDLE {
			return fmt.Errorf("%v", c)
		}
		return nil
	})
	r := b.exec("py", "print('x' in globals())").prints("False\n").ends(completed, false)
	if !strings.Contains(r.finished.Detail, "SIGKILL") {
		t.Fatalf("detail: %q (expected: how it was lost)", r.finished.Detail)
	}
	b.exec("py", "1").ends(completed, true)
}

func TestKernel_that_cannot_start_fails_the_context_with_its_last_words(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	b.hello.Kernels = append(b.hello.Kernels,
		&agentv1.Kernel{Language: "broken", Argv: []string{"/bin/sh", "-c", "echo no such module >&2; exit 3"}},
		&agentv1.Kernel{Language: "absent", Argv: []string{"/usr/bin/no-such-interpreter"}})
	b.sayHello()
	reply := &agentv1.OpenContextReply{}
	if err := call(b, agentrpc.OpenContext, &agentv1.OpenContextRequest{Spec: &execv1.ContextSpec{ContextId: "c", Language: "broken"}}, reply); err != nil {
		t.Fatal(err)
	}
	if c := reply.Context; c.State != execv1.ContextState_CONTEXT_STATE_FAILED || !strings.Contains(c.Detail, "no such module") || !strings.Contains(c.Detail, "status 3") {
		t.Fatalf("%v (expected: failed, with exit status and stderr)", c)
	}
	b.exec("c", "1").ends(kernelDied, false)
	for _, language := range []string{"absent", "cobol"} {
		err := call(b, agentrpc.OpenContext, &agentv1.OpenContextRequest{Spec: &execv1.ContextSpec{ContextId: "d", Language: language}}, reply)
		expectCode(t, err, codes.FailedPrecondition)
	}
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-x", ContextId: "d", Code: "1"})
	defer r.cancel()
	_, err := r.next()
	expectCode(t, err, codes.NotFound)
}

func TestRestart_gives_a_fresh_kernel(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "x = 1")
	running := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-r", ContextId: "py", Code: "print('on', flush=True)\nwhile True: pass"})
	for len(running.stdout) == 0 {
		if _, err := running.next(); err != nil {
			t.Fatal(err)
		}
	}
	reply := &agentv1.OpenContextReply{}
	if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "py"}, reply); err != nil {
		t.Fatal(err)
	}
	running.wait().ends(kernelDied, false)
	if reply.Context.Restarts != 1 || reply.Context.State != execv1.ContextState_CONTEXT_STATE_IDLE {
		t.Fatalf("%v (expected: idle, restarted once)", reply.Context)
	}
	b.exec("py", "print('x' in globals())").prints("False\n")
}

func TestRestart_ends_an_execution_that_was_sent_just_before_it(t *testing.T) {
	b := newBox(t)
	b.open("sh", "bash")
	for range 50 {
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "sh", Code: "sleep 1000"})
		if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "sh"}, &agentv1.OpenContextReply{}); err != nil {
			t.Fatal(err)
		}
		if r.wait(); r.finished.StateKept {
			t.Fatalf("%v", r.finished)
		}
	}
	b.exec("sh", "echo on").prints("on\n")
}

func TestClose_ends_an_execution_that_was_sent_just_before_it(t *testing.T) {
	b := newBox(t)
	for range 20 {
		b.open("sh", "bash")
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "sh", Code: "sleep 1000"})
		if err := call(b, agentrpc.CloseContext, &agentv1.ContextRequest{ContextId: "sh"}, &agentv1.Empty{}); err != nil {
			t.Fatal(err)
		}
		r.wait()
	}
}

func TestKill_of_everything_inside_ends_the_inner_tree_only(t *testing.T) {
	b := newBox(t)
	watch, err := b.session.Open(context.Background(), agentrpc.Watch)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Cancel()
	if err := watch.Send(&agentv1.WatchRequest{}); err != nil {
		t.Fatal(err)
	}
	b.open("py", "python")
	b.open("sh", "bash")
	// Linux, unlike gVisor, protects PID 1 from its own namespace: here the init is ended from outside.
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-tree", ContextId: "py", Code: "print('on', flush=True)\nimport time; time.sleep(60)"})
	for len(r.stdout) == 0 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	b.signalInit(unix.SIGKILL)
	r.wait().ends(kernelDied, false)
	if !strings.Contains(r.finished.Detail, "Every process") {
		t.Fatalf("detail: %q", r.finished.Detail)
	}
	for {
		event := &agentv1.AgentEvent{}
		if err := watch.Receive(event); err != nil {
			t.Fatal(err)
		}
		if event.GetTreeDied() != nil {
			break
		}
	}
	b.exec("py", "print('again')").prints("again\n")
	b.exec("sh", "echo again").prints("again\n").ends(completed, false)
}

func TestInit_that_is_stopped_is_replaced(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.signalInit(unix.SIGSTOP)
	// Its help is needed to end this one.
	r := b.execWithin("py", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 200*time.Millisecond)
	if r.finished.Reason != timedOut || r.finished.StateKept {
		t.Fatalf("%v", r.finished)
	}
	b.exec("py", "print('again')").prints("again\n")
}

func TestAgent_cannot_be_seen_from_inside(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", `
import os
lines = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        lines.append((int(pid), open(f'/proc/{pid}/cmdline').read().split('\0')[1:2]))
    except OSError:
        pass
print([pid for pid, argv in sorted(lines) if argv == ['init']], any('meminfo' in str(argv) for _, argv in lines))
print('ATOLL_FRAME_KEY' in open('/proc/self/environ').read(), sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) < 200)[:3])
import subprocess
print(subprocess.check_output(['sh', '-c', 'for f in /proc/self/fd/*; do readlink $f; done; true']).decode().count('socket:'))
`).prints("[1] False\nFalse [0, 1, 2]\n0\n")
}

func TestPrograms_inherit_nothing_but_the_standard_descriptors(t *testing.T) {
	b := newBox(t)
	for _, language := range []string{"python", "bash"} {
		b.open(language, language)
	}
	b.exec("bash", "ls /proc/self/fd | tr '\\n' ' '").prints("0 1 2 3 ") // 3 is the folder that ls reads
	b.exec("python", "import subprocess; print(subprocess.check_output('ls /proc/self/fd', shell=True).split())").prints("[b'0', b'1', b'2', b'3']\n")
}

func TestUser_cannot_reach_past_the_init(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	b.hello.User = "nobody"
	b.sayHello()
	b.open("py", "python")
	b.exec("py", `
import os
def tries(f):
    try: f(); return 'done'
    except OSError as e: return e.strerror
print(os.getuid() != 0, os.getgroups() == [os.getgid()])
print(tries(lambda: os.kill(1, 9)), '|', tries(lambda: open('/proc/1/environ').read()), '|', tries(lambda: os.listdir('/proc/1/fd')))
`).prints("True True\nOperation not permitted | Permission denied | Permission denied\n")
}

func TestRoot_inside_has_no_right_to_mount_or_to_raise_limits(t *testing.T) {
	b := newBox(t)
	b.open("sh", "bash")
	b.exec("sh", "mount -t tmpfs none /mnt 2>/dev/null && echo mounted; umount /proc 2>/dev/null && echo unmounted; ulimit -Hu; ulimit -c").prints("256\n0\n")
}

func TestEverything_is_reaped(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import subprocess, time\nfor i in range(100): subprocess.run('(true &) ; (setsid true &)', shell=True)\n"+
		"def zombies():\n    import os\n    n = 0\n    for p in filter(str.isdigit, os.listdir('/proc')):\n        try: n += open(f'/proc/{p}/stat').read().rpartition(')')[2].split()[0] == 'Z'\n        except OSError: pass\n    return n\n"+
		"until = time.time() + 10\nwhile zombies() and time.time() < until: time.sleep(0.01)\nprint(zombies())").prints("0\n")
}

func TestForkBomb_is_held_and_ended_and_the_agent_answers_meanwhile(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	// A user of its own, so that only its processes count; the machine's root is busy with other things.
	b.hello.User = "nobody"
	b.hello.Limits.MaxProcesses = 60
	b.sayHello()
	b.open("py", "python")
	b.open("other", "bash")
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-bomb", ContextId: "py", TimeoutMs: 1500,
		Code: "import os\nprint('boom', flush=True)\nwhile True:\n    try: os.fork()\n    except OSError: pass"})
	for len(r.stdout) == 0 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		began := time.Now()
		b.sayHello()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("hello took %s", took)
		}
	}
	r.wait()
	// In a small sandbox its memory ends it before its time does.
	if (r.finished.Reason != timedOut && r.finished.Reason != outOfMemory) || r.took > 8*time.Second {
		t.Fatalf("%v after %s", r.finished, r.took)
	}
	b.exec("py", "print('well')").prints("well\n")
	b.exec("other", "echo well").prints("well\n")
}

func TestMemoryGuard_ends_the_largest_process_and_says_so(t *testing.T) {
	// The guard reads this file: outside gVisor the machine's memory is not the sandbox's.
	b := startBox(t, "meminfo")
	write := func(available int) {
		t.Helper()
		b.writeFile("meminfo", fmt.Sprintf("MemTotal:  262144 kB\nMemFree: 1 kB\nMemAvailable: %7d kB\n", available))
	}
	b.hello.Limits.MemoryBytes = 256 << 20
	b.sayHello()
	b.open("py", "python")
	b.open("other", "bash")
	b.exec("other", "y=3")
	r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-mem", ContextId: "py", Code: "x = bytearray(100 << 20)\nprint('big', flush=True)\nimport time; time.sleep(60)"})
	for len(r.stdout) == 0 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	write(5000)
	r.wait().ends(outOfMemory, false)
	write(200000)
	if r.finished.MemoryLimitBytes != 256<<20 || r.finished.MemoryPeakBytes < 200<<20 {
		t.Fatalf("%v (expected: limit and peak)", r.finished)
	}
	b.exec("other", "echo $y").prints("3\n").ends(completed, true)
	b.exec("py", "print('x' in globals())").prints("False\n")

	// A child of the cell: the interpreter lives on, and its state.
	b.exec("py", "x = 1")
	r = b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-child", ContextId: "py",
		Code: "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = bytearray(150 << 20); print(1, flush=True); import time; time.sleep(60)'])"})
	for len(r.stdout) == 0 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	// Memory stays low after the child has gone: nobody else has to go for that.
	write(5000)
	r.wait().ends(outOfMemory, true)
	write(200000)
	b.exec("py", "print(x)").prints("1\n")
}

func TestCode_of_10_MB_runs(t *testing.T) {
	b := newBox(t)
	big := strings.Repeat("#", 10<<20)
	b.open("py", "python")
	b.exec("py", big+"\nprint('end')").prints("end\n")
	b.open("sh", "bash")
	b.exec("sh", big+"\necho end").prints("end\n")
}

func TestStream_of_any_call_is_refused_by_name(t *testing.T) {
	b := newBox(t)
	expectCode(t, call(b, "atoll.agent.v1.Agent.Nothing", &agentv1.Empty{}, &agentv1.Empty{}), codes.Unimplemented)
}

func TestTimeout_kills_a_computation_that_sees_no_interrupt(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.execWithin("py", "print('on', flush=True)\nsum(range(10**13))", 300*time.Millisecond)
	r.ends(timedOut, false)
	if r.took > 15*time.Second {
		t.Fatalf("took %s", r.took)
	}
	b.exec("py", "print('back')").prints("back\n")
}

func TestInterrupt_finds_an_execution_that_was_sent_just_before_it(t *testing.T) {
	b := newBox(t)
	b.open("sh", "bash")
	for range 50 {
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "sh", Code: "sleep 1000"})
		if err := call(b, agentrpc.Interrupt, &agentv1.InterruptRequest{ExecutionId: r.id, GraceMs: 2000}, &agentv1.Empty{}); err != nil {
			t.Fatal(err)
		}
		if r.wait(); r.finished.Reason != execv1.ExitReason_EXIT_REASON_INTERRUPTED {
			t.Fatalf("%v", r.finished)
		}
	}
}

package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

const (
	sandboxEnded = execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED
	process      = execv1.SignalTarget_SIGNAL_TARGET_PROCESS
	group        = execv1.SignalTarget_SIGNAL_TARGET_GROUP
	wholeTree    = execv1.SignalTarget_SIGNAL_TARGET_TREE
)

// start starts a process.
func (b *box) start(spec *execv1.ProcessSpec) *run {
	b.t.Helper()
	if spec.ProcessId == "" {
		spec.ProcessId = newID()
	}
	return b.request(spec.ProcessId, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_StartProcess{StartProcess: spec}})
}

func (b *box) shell(script string) *run {
	b.t.Helper()
	return b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", script}})
}

// refused says how a start failed.
func (b *box) refused(spec *execv1.ProcessSpec) error {
	b.t.Helper()
	r := b.start(spec)
	defer r.cancel()
	event, err := r.next()
	if err == nil {
		b.t.Fatalf("%v was started: %v", spec.Argv, event)
	}
	return err
}

// until receives and acknowledges until enough has come.
func (r *run) until(what string, enough func() bool) *run {
	r.t.Helper()
	for !enough() {
		event, err := r.next()
		if err != nil {
			r.t.Fatalf("%s: waiting for %s: %v; stdout %q, stderr %q", r.id, what, err, clip(r.stdout), clip(r.stderr))
		}
		if err := r.acknowledge(event.Seq); err != nil {
			r.t.Fatal(err)
		}
		if r.finished != nil && !enough() {
			r.t.Fatalf("%s: ended before %s: %v, stdout %q, stderr %q", r.id, what, r.finished, clip(r.stdout), clip(r.stderr))
		}
	}
	return r
}

func (r *run) untilPrinted(text string) *run {
	r.t.Helper()
	return r.until(fmt.Sprintf("%q", text), func() bool { return strings.Contains(string(r.stdout), text) })
}

func (r *run) pid() int32 {
	r.t.Helper()
	r.until("the start", func() bool { return len(r.events) > 0 })
	return r.events[0].GetStarted().GetPid()
}

// endsWith fails unless the process ended by itself with this code and these outputs.
func (r *run) endsWith(code int32, stdout string) *run {
	r.t.Helper()
	if f := r.finished; f.Reason != exited || f.ExitCode != code || f.Signal != 0 || string(r.stdout) != stdout {
		r.t.Fatalf("%s: %v, stdout %q, stderr %q (expected: exit code %d, %q)", r.id, f, clip(r.stdout), clip(r.stderr), code, stdout)
	}
	return r
}

func (b *box) write(id string, offset uint64, data string, end bool) *execv1.WriteInputReply {
	b.t.Helper()
	reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: id, Offset: &offset, Data: []byte(data), Close: end})
	if err != nil {
		b.t.Fatal(err)
	}
	return reply
}

func (b *box) tryWrite(request *execv1.WriteInputRequest) (*execv1.WriteInputReply, error) {
	reply := &execv1.WriteInputReply{}
	return reply, call(b, agentrpc.WriteInput, request, reply)
}

// feed writes all of data and ends the input.
func (b *box) feed(id string, data []byte, end bool) {
	b.t.Helper()
	for at := 0; at < len(data) || end; {
		piece := data[at:min(at+256<<10, len(data))]
		offset := uint64(at)
		reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: id, Offset: &offset, Data: piece, Close: end && at+len(piece) == len(data)})
		if err != nil {
			b.t.Error(err)
			return
		}
		at = int(reply.Offset)
		if reply.Closed {
			return
		}
	}
}

func (b *box) signal(id string, number unix.Signal, target execv1.SignalTarget) error {
	return call(b, agentrpc.Signal, &execv1.SignalRequest{ProcessId: id, Signal: int32(number), Target: target}, &agentv1.Empty{})
}

func (b *box) listed(id string) *execv1.Process {
	b.t.Helper()
	reply := &agentv1.ListProcessesReply{}
	if err := call(b, agentrpc.ListProcesses, &agentv1.ListProcessesRequest{ProcessId: id}, reply); err != nil {
		b.t.Fatal(err)
	}
	return reply.Processes[0]
}

func (b *box) guests() []*execv1.GuestProcess {
	b.t.Helper()
	reply := &execv1.ListGuestProcessesReply{}
	if err := call(b, agentrpc.ListGuestProcesses, &agentv1.Empty{}, reply); err != nil {
		b.t.Fatal(err)
	}
	return reply.Processes
}

func TestProcess_prints_and_ends_with_its_exit_code(t *testing.T) {
	b := newBox(t)
	r := b.shell("echo out; echo err >&2; exit 7").wait().endsWith(7, "out\n")
	if string(r.stderr) != "err\n" || r.finished.StdoutBytes != 4 || r.finished.StderrBytes != 4 || r.finished.DurationUs == 0 {
		t.Fatalf("%q, %v", r.stderr, r.finished)
	}
	if started := r.events[0].GetStarted(); started.GetPid() <= 1 || started.GetAtUnixMs() == 0 {
		t.Fatalf("%v (expected: Started with a pid)", r.events[0])
	}
}

func TestProcess_ended_by_a_signal_says_which(t *testing.T) {
	b := newBox(t)
	for _, number := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV} {
		r := b.shell(fmt.Sprintf("kill -%d $$", number)).wait()
		if r.finished.Reason != exited || r.finished.Signal != int32(number) || r.finished.ExitCode != 0 {
			t.Errorf("%v (expected: signal %d)", r.finished, number)
		}
	}
}

func TestProcess_without_input_reads_the_end_at_once(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"cat"}}).wait().endsWith(0, "")
	_, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte("x")})
	expectCode(t, err, codes.FailedPrecondition)
	r = b.start(&execv1.ProcessSpec{Argv: []string{"sleep", "60"}})
	r.pid()
	_, err = b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte("x")})
	expectCode(t, err, codes.FailedPrecondition)
	if err := b.signal(r.id, unix.SIGKILL, process); err != nil {
		t.Fatal(err)
	}
	r.wait()
}

func TestProcess_that_cannot_be_started_is_refused_by_name_and_nothing_runs(t *testing.T) {
	b := newBox(t)
	b.writeFile("plain", "text")
	b.writeFile("nonsense", "no program")
	b.writeFile("orphan", "#!/no/such/interpreter\n")
	b.shell("chmod 755 nonsense orphan; mkdir closed; printf '#!/bin/sh\necho ran\n' >closed/program; chmod 755 closed/program; chmod 700 closed").wait().endsWith(0, "")
	for _, one := range []struct {
		spec *execv1.ProcessSpec
		code codes.Code
		says string
	}{
		{&execv1.ProcessSpec{Argv: []string{"no-such-program"}}, codes.NotFound, "no-such-program"},
		{&execv1.ProcessSpec{Argv: []string{"/no/such/program"}}, codes.NotFound, "/no/such/program"},
		{&execv1.ProcessSpec{Argv: []string{"./plain"}}, codes.PermissionDenied, "./plain"},
		{&execv1.ProcessSpec{Argv: []string{"/"}}, codes.PermissionDenied, "/"},
		{&execv1.ProcessSpec{Argv: []string{"./nonsense"}}, codes.InvalidArgument, "./nonsense"},
		{&execv1.ProcessSpec{Argv: []string{"./orphan"}}, codes.NotFound, "interpreter"},
		{&execv1.ProcessSpec{Argv: []string{"closed/program"}, User: "nobody"}, codes.PermissionDenied, "closed/program"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, User: "nobody", Cwd: "closed", Env: map[string]string{"HOME": "/"}}, codes.InvalidArgument, "folder"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, Cwd: "/no/such/folder"}, codes.InvalidArgument, "/no/such/folder"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, Cwd: b.home + "/plain"}, codes.InvalidArgument, "plain"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, User: "no-such-user"}, codes.InvalidArgument, "no-such-user"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, User: "root:no-such-group"}, codes.InvalidArgument, "no-such-group"},
		{&execv1.ProcessSpec{Argv: []string{"true", strings.Repeat("x", 1<<20)}}, codes.InvalidArgument, "at most"},
		{&execv1.ProcessSpec{Argv: []string{"true", "a\x00b"}}, codes.InvalidArgument, "NUL"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}}, codes.InvalidArgument, "A=B"},
		{&execv1.ProcessSpec{Argv: []string{"true"}, Terminal: &execv1.TerminalSize{Columns: 80}}, codes.InvalidArgument, "rows"},
		{&execv1.ProcessSpec{Argv: []string{""}}, codes.InvalidArgument, "program"},
		{&execv1.ProcessSpec{}, codes.InvalidArgument, "program"},
	} {
		if one.spec.User == "nobody" && one.spec.Cwd == "closed" {
			one.spec.Cwd = b.home + "/closed"
		}
		err := b.refused(one.spec)
		if frame.StatusOf(err) != one.code || !strings.Contains(err.Error(), one.says) {
			t.Errorf("%v: %v (expected: %s, with %q)", one.spec, err, one.code, one.says)
		}
	}
	if held := b.sayHello().Executions; len(held) != 0 {
		t.Fatalf("held: %v", held)
	}
}

func TestProcess_program_is_found_in_the_path_of_its_environment_relative_to_its_folder(t *testing.T) {
	b := newBox(t)
	b.shell("mkdir -p sub/bin; printf '#!/bin/sh\necho mine $0\n' >sub/bin/tool; chmod 755 sub/bin/tool; mkdir first; echo x >first/tool").wait().endsWith(0, "")
	b.start(&execv1.ProcessSpec{Argv: []string{"tool"}, Cwd: "sub", Env: map[string]string{"PATH": b.home + "/first:bin"}}).wait().endsWith(0, "mine "+b.home+"/sub/bin/tool\n")
	b.start(&execv1.ProcessSpec{Argv: []string{"./bin/tool"}, Cwd: "~/sub"}).wait().endsWith(0, "mine "+b.home+"/sub/bin/tool\n")
	b.start(&execv1.ProcessSpec{Argv: []string{"sub/bin/tool"}, Cwd: "~"}).wait().endsWith(0, "mine "+b.home+"/sub/bin/tool\n")
	b.start(&execv1.ProcessSpec{Argv: []string{"./bin/tool"}, Cwd: b.home + "/sub"}).wait().endsWith(0, "mine "+b.home+"/sub/bin/tool\n")
}

func TestProcess_runs_as_the_named_user_with_that_users_environment(t *testing.T) {
	b := newBox(t)
	script := `echo $(id -u):$(id -g) $HOME $USER $LOGNAME $SHELL $GREETING $EXTRA`
	asked := func(user string) string {
		r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", script}, User: user, Env: map[string]string{"EXTRA": "more"}, Cwd: "/"}).wait()
		return strings.TrimSpace(string(r.stdout))
	}
	for user, expected := range map[string]string{
		"":           "0:0 " + b.home + " root root /bin/bash hello more",
		"root":       "0:0 " + b.home + " root root /bin/bash hello more",
		"nobody":     "65534:65534 /nonexistent nobody nobody /usr/sbin/nologin hello more",
		"65534":      "65534:65534 /nonexistent nobody nobody /usr/sbin/nologin hello more",
		"4242":       "4242:0 / 4242 4242 /bin/sh hello more",
		"4242:4343":  "4242:4343 / 4242 4242 /bin/sh hello more",
		"nobody:bin": "65534:2 /nonexistent nobody nobody /usr/sbin/nologin hello more",
	} {
		if got := asked(user); got != expected {
			t.Errorf("user %q: %s (expected: %s)", user, got, expected)
		}
	}
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo $HOME $GREETING; pwd"}, Env: map[string]string{"HOME": "/tmp", "GREETING": "bye"}}).wait()
	r.endsWith(0, "/tmp bye\n"+b.home+"\n")
	// A program may open its standard streams again by name, whoever it runs as.
	b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo again >/dev/stdout; echo on >/proc/self/fd/2"}, User: "nobody"}).wait().endsWith(0, "again\n")
}

func TestProcess_supplementary_groups_are_those_of_the_image(t *testing.T) {
	b := newBox(t)
	name := ""
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) == 4 && fields[3] != "" {
			name = strings.Split(fields[3], ",")[0]
		}
	}
	if name == "" {
		name = "root"
	}
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "test \"$(id -G | tr ' ' '\\n' | sort -n)\" = \"$(id -G " + name + " | tr ' ' '\\n' | sort -n)\" && echo same"}, User: name, Cwd: "/"}).wait()
	r.endsWith(0, "same\n")
}

func TestProcess_second_start_with_its_id_finds_the_first_and_never_runs_twice(t *testing.T) {
	b := newBox(t)
	spec := &execv1.ProcessSpec{ProcessId: "proc-once", Argv: []string{"/bin/sh", "-c", "echo run >>count; until [ -e go ]; do sleep 0.01; done; cat count"}}
	first, second := b.start(spec), b.start(spec)
	first.pid()
	second.pid()
	second.cancel()
	b.writeFile("go", "")
	first.wait().endsWith(0, "run\n")
	err := b.refused(spec)
	expectCode(t, err, codes.AlreadyExists)
}

func TestProcess_is_held_over_a_reconnect_until_its_end_is_acknowledged(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{ProcessId: "proc-held", Argv: []string{"/bin/sh", "-c", "echo one; until [ -e go ]; do sleep 0.01; done; echo two"}, Labels: map[string]string{"a": "b"}})
	r.untilPrinted("one\n")
	seen := r.events[len(r.events)-1].Seq
	b.disconnect()
	b.writeFile("go", "")
	b.connect()
	var held *agentv1.HeldExecution
	b.eventually("the end is held", func() error {
		executions := b.sayHello().Executions
		if len(executions) != 1 || !executions[0].Finished {
			return fmt.Errorf("held: %v", executions)
		}
		held = executions[0]
		return nil
	})
	if held.ExecutionId != "proc-held" || !held.Process || held.ContextId != "" || held.AcknowledgedSeq > seen {
		t.Fatalf("%v", held)
	}
	if listed := b.listed("proc-held"); listed.Running || listed.Finished == nil || listed.Spec.Labels["a"] != "b" || listed.StdoutBytes != 8 {
		t.Fatalf("%v", listed)
	}
	again := b.attach("proc-held", seen)
	again.stdout = []byte("one\n")
	again.wait()
	if string(again.stdout) != "one\ntwo\n" {
		t.Fatalf("%q", again.stdout)
	}
	if held := b.sayHello().Executions; len(held) != 0 {
		t.Fatalf("held after the last acknowledgement: %v", held)
	}
	reply := &agentv1.ListProcessesReply{}
	expectCode(t, call(b, agentrpc.ListProcesses, &agentv1.ListProcessesRequest{ProcessId: "proc-held"}, reply), codes.FailedPrecondition)
}

func TestProcess_20_at_once_miss_no_byte_over_reconnects(t *testing.T) {
	b := newBox(t)
	const many = 20
	script := "i=0; while [ $i -lt 400 ]; do echo \"$1 line $i\"; i=$((i+1)); if [ $((i % 100)) = 0 ]; then sleep 0.05; fi; done; exit $1"
	expected := func(n int) string {
		text := &strings.Builder{}
		for i := range 400 {
			fmt.Fprintf(text, "%d line %d\n", n, i)
		}
		return text.String()
	}
	got := make([][]byte, many)
	seen := make([]uint64, many)
	runs := make([]*run, 0, many)
	for n := range many {
		runs = append(runs, b.start(&execv1.ProcessSpec{ProcessId: fmt.Sprintf("proc-many-%d", n), Argv: []string{"/bin/sh", "-c", script, "sh", fmt.Sprint(n)}}))
	}
	for round := range 3 {
		for n, r := range runs {
			wanted := (round + 1) * 1000
			r.until("some output", func() bool { return len(r.stdout) >= wanted || r.finished != nil })
			got[n] = r.stdout
			if len(r.events) > 0 {
				seen[n] = r.events[len(r.events)-1].Seq
			}
		}
		b.disconnect()
		b.connect()
		reply := b.sayHello()
		for n := range runs {
			if !slices.ContainsFunc(reply.Executions, func(h *agentv1.HeldExecution) bool { return h.ExecutionId == runs[n].id && h.Process }) && runs[n].finished == nil {
				t.Fatalf("%s is not held: %v", runs[n].id, reply.Executions)
			}
			if runs[n].finished != nil {
				continue
			}
			runs[n] = b.attach(runs[n].id, seen[n])
			runs[n].stdout = got[n]
		}
	}
	for n, r := range runs {
		if r.finished == nil {
			r.wait()
		}
		if string(r.stdout) != expected(n) || r.finished.ExitCode != int32(n) {
			t.Fatalf("%s: %d bytes, %v", r.id, len(r.stdout), r.finished)
		}
	}
}

func TestProcess_emoji_split_at_every_offset_arrives_whole(t *testing.T) {
	b := newBox(t)
	text := "a👩‍👩‍👧‍👦é🏳️‍🌈z"
	for at := range len(text) {
		r := b.start(&execv1.ProcessSpec{Argv: []string{"cat"}, Stdin: true})
		r.pid()
		b.write(r.id, 0, text[:at], false)
		r.until("the first part", func() bool { return len(r.stdout) == at && len(r.events) > 0 })
		b.write(r.id, uint64(at), text[at:], true)
		r.wait().endsWith(0, text)
	}
}

func TestProcess_every_byte_value_passes_both_ways(t *testing.T) {
	b := newBox(t)
	data := make([]byte, 0, 256*256)
	for i := range 256 {
		for j := range 256 {
			data = append(data, byte(i*j+j))
		}
	}
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "tee /dev/stderr"}, Stdin: true})
	r.pid()
	go b.feed(r.id, data, true)
	r.wait()
	if !bytes.Equal(r.stdout, data) || !bytes.Equal(r.stderr, data) {
		t.Fatalf("%d and %d bytes (expected: %d, the same)", len(r.stdout), len(r.stderr), len(data))
	}
}

func TestProcess_order_of_its_streams_is_kept_where_it_can_be_seen(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "for i in 1 2 3 4 5; do read x; echo o$i; read x; echo e$i >&2; done"}, Stdin: true})
	r.pid()
	expected := ""
	for i := 1; i <= 5; i++ {
		for _, name := range []string{"o", "e"} {
			expected += fmt.Sprintf("%s%d\n", name, i)
			if _, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte("\n")}); err != nil {
				t.Fatal(err)
			}
			r.until(expected, func() bool { return string(r.order) == expected })
		}
	}
	r.wait()
}

func TestProcess_waits_when_100_MB_are_not_acknowledged_and_the_agent_stays_small(t *testing.T) {
	b := newBox(t)
	const size = 100 << 20
	r := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c",
		"import sys\nb = bytes(range(256)) * 4096\nfor i in range(100): sys.stdout.buffer.write(b); open('at', 'w').write(str(i))"}})
	received := 0
	for received < 1<<20 {
		event, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		received += len(event.GetOutput().GetData())
	}
	// Nothing is acknowledged: what may lie in the log, a pipe and a chunk is all that the program gets ahead.
	at := ""
	b.eventually("the program stands still", func() error {
		before := at
		at, _ = b.readFile("at")
		time.Sleep(200 * time.Millisecond)
		if at == "" || at != before {
			return fmt.Errorf("it came from %q to %q", before, at)
		}
		return nil
	})
	if n := 0; true {
		if _, err := fmt.Sscan(at, &n); err != nil || n > 4 {
			t.Fatalf("it has written %s MB (expected: at most 4): %v", at, err)
		}
	}
	// Others are not held up meanwhile.
	b.shell("echo quick").wait().endsWith(0, "quick\n")
	sum := sha256.New()
	total := 0
	for _, event := range r.events {
		sum.Write(event.GetOutput().GetData())
		total += len(event.GetOutput().GetData())
	}
	last := r.events[len(r.events)-1].Seq
	r.events, r.stdout = nil, nil
	fresh := &execv1.ExecutionEvent{}
	for r.finished == nil {
		if err := r.acknowledge(last); err != nil {
			t.Fatal(err)
		}
		fresh.Reset()
		if err := r.stream.Receive(fresh); err != nil {
			t.Fatal(err)
		}
		last = fresh.Seq
		sum.Write(fresh.GetOutput().GetData())
		total += len(fresh.GetOutput().GetData())
		r.finished = fresh.GetFinished()
	}
	if err := r.acknowledge(last); err != nil {
		t.Fatal(err)
	}
	expected := sha256.New()
	piece := make([]byte, 256)
	for i := range piece {
		piece[i] = byte(i)
	}
	expected.Write(bytes.Repeat(piece, size/256))
	if total != size || !bytes.Equal(sum.Sum(nil), expected.Sum(nil)) {
		t.Fatalf("%d bytes (expected: %d, unchanged)", total, size)
	}
}

func TestProcess_last_byte_comes_before_the_end(t *testing.T) {
	b := newBox(t)
	for i := range 30 {
		r := b.shell(fmt.Sprintf("head -c %d /dev/zero; head -c 3 /dev/zero >&2", i*7001)).wait()
		if len(r.stdout) != i*7001 || len(r.stderr) != 3 || r.events[len(r.events)-1].GetFinished() == nil {
			t.Fatalf("%d and %d bytes", len(r.stdout), len(r.stderr))
		}
	}
}

func TestProcess_ends_although_a_grandchild_holds_its_output_and_that_one_lives_on(t *testing.T) {
	b := newBox(t)
	r := b.shell("(while [ ! -e stop ]; do echo tick >>ticks; echo noise; sleep 0.02; done; echo $? >over) & echo said").wait()
	if r.finished.ExitCode != 0 || !strings.HasPrefix(string(r.stdout), "said\n") && !strings.Contains(string(r.stdout), "\nsaid\n") {
		t.Fatalf("%q, %v", clip(r.stdout), r.finished)
	}
	before, _ := b.readFile("ticks")
	b.eventually("the grandchild goes on", func() error {
		if now, _ := b.readFile("ticks"); len(now) <= len(before)+20 {
			return fmt.Errorf("%d ticks", len(now)/5)
		}
		return nil
	})
	b.writeFile("stop", "")
	b.eventually("the grandchild ends by itself, not of its closed output", func() error {
		_, err := b.readFile("over")
		return err
	})
	// One that writes without a pause does not hold it up either.
	b.shell("yes & echo $! >yes.pid; exit 3").wait()
	b.shell("kill $(cat yes.pid)").wait()
}

func TestProcess_output_of_a_grandchild_shortly_after_the_end_still_counts(t *testing.T) {
	b := newBox(t)
	b.shell("(sleep 0.02; echo late) & true").wait().endsWith(0, "late\n")
}

func TestProcess_time_limit_ends_the_whole_tree_with_what_was_printed(t *testing.T) {
	b := newBox(t)
	mark := fmt.Sprint(os.Getpid(), "1")
	r := b.start(&execv1.ProcessSpec{TimeoutMs: 700, Argv: []string{pythonPath(t), "-u", "-c", `
import os, subprocess, time
print("begun")
subprocess.Popen(["sleep", "8001.` + mark + `"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "8002.` + mark + `"])
    os._exit(0)
os.wait()
subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM INT HUP; sleep 8003.` + mark + `; true"])
time.sleep(60)`}}).wait()
	if r.finished.Reason != timedOut || r.finished.Signal != 9 || string(r.stdout) != "begun\n" || !strings.Contains(r.finished.Detail, "700ms") {
		t.Fatalf("%v, %q", r.finished, r.stdout)
	}
	b.eventually("all of the tree has ended", func() error {
		for _, name := range []string{"8001.", "8002.", "8003."} {
			if b.alive("sleep " + name + mark) {
				return fmt.Errorf("sleep %s lives", name)
			}
		}
		return nil
	})
}

func TestProcess_kill_of_its_tree_ends_daemons_and_spares_everything_else(t *testing.T) {
	b := newBox(t)
	b.open("sh", "bash")
	mark := fmt.Sprint(os.Getpid(), "2")
	b.exec("sh", "setsid sleep 8101."+mark+" & disown; x=kept")
	other := b.start(&execv1.ProcessSpec{Argv: []string{"sleep", "8102." + mark}})
	other.pid()
	// The daemon's environment holds no mark any more, but its session does.
	r := b.shell("setsid sh -c 'sleep 8103." + mark + " & exec sleep 8104." + mark + "' & env -i sleep 8105." + mark + " & echo ready; wait").untilPrinted("ready")
	b.eventually("all runs", func() error {
		for _, name := range []string{"8101.", "8102.", "8103.", "8104.", "8105."} {
			if !b.alive("sleep " + name + mark) {
				return fmt.Errorf("sleep %s does not run", name)
			}
		}
		return nil
	})
	if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	r.wait()
	for _, name := range []string{"8103.", "8104.", "8105."} {
		if b.alive("sleep " + name + mark) {
			t.Errorf("sleep %s lives", name)
		}
	}
	for _, name := range []string{"8101.", "8102."} {
		if !b.alive("sleep " + name + mark) {
			t.Errorf("sleep %s was ended too", name)
		}
	}
	b.exec("sh", "echo $x").prints("kept\n")
	if err := b.signal(other.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	other.wait()
}

func TestProcess_tree_that_has_outlived_it_can_still_be_killed_until_it_is_forgotten(t *testing.T) {
	b := newBox(t)
	mark := fmt.Sprint(os.Getpid(), "3")
	r := b.shell("sleep 8201." + mark + " >/dev/null 2>&1 & setsid env -i sleep 8202." + mark + " >/dev/null 2>&1 & sleep 0.2")
	for r.finished == nil {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if !b.alive("sleep 8201." + mark) {
		t.Fatal("the background process has ended with its parent")
	}
	expectCode(t, b.signal(r.id, unix.SIGTERM, process), codes.FailedPrecondition)
	if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	b.eventually("it has ended", func() error {
		if b.alive("sleep 8201."+mark) || b.alive("sleep 8202."+mark) {
			return fmt.Errorf("it lives")
		}
		return nil
	})
	r.cancel()
}

func TestTimeout_of_a_cell_spares_processes(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo up; read x; echo $x"}, Stdin: true}).untilPrinted("up\n")
	b.execWithin("py", "import subprocess\nsubprocess.run(['sleep', '60'])", 200*time.Millisecond).ends(timedOut, true)
	if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "py"}, &agentv1.OpenContextReply{}); err != nil {
		t.Fatal(err)
	}
	b.write(r.id, 0, "alive\n", false)
	r.wait().endsWith(0, "up\nalive\n")
}

func TestSignal_reaches_the_process_its_group_or_its_tree(t *testing.T) {
	b := newBox(t)
	script := `trap 'echo parent' USR1; sh -c "trap 'echo child' USR1; echo c; while :; do sleep 0.01; done" & setsid sh -c "trap 'echo far' USR1; echo f; while :; do sleep 0.01; done" & echo p; while :; do sleep 0.01; done`
	ready := func(r *run) *run {
		return r.until("all three", func() bool { return len(r.stdout) == 6 })
	}
	signalled := func(target execv1.SignalTarget) string {
		r := ready(b.shell(script))
		if err := b.signal(r.id, unix.SIGUSR1, target); err != nil {
			t.Fatal(err)
		}
		r.untilPrinted("parent\n")
		time.Sleep(100 * time.Millisecond)
		if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
			t.Fatal(err)
		}
		r.wait()
		lines := strings.Fields(string(r.stdout[6:]))
		slices.Sort(lines)
		return strings.Join(lines, " ")
	}
	for target, expected := range map[execv1.SignalTarget]string{process: "parent", group: "child parent", wholeTree: "child far parent"} {
		if got := signalled(target); got != expected {
			t.Errorf("%v: heard by %q (expected: %q)", target, got, expected)
		}
	}
}

func TestSignal_to_any_process_of_the_sandbox_and_to_none(t *testing.T) {
	b := newBox(t)
	r := b.shell("sleep 60 & echo $!; wait $!; echo ended $?")
	r.until("the child's id", func() bool { return bytes.HasSuffix(r.stdout, []byte("\n")) })
	pid := int32(0)
	if _, err := fmt.Sscan(string(r.stdout), &pid); err != nil {
		t.Fatal(err)
	}
	direct := func(pid, number int32, target execv1.SignalTarget) error {
		return call(b, agentrpc.Signal, &execv1.SignalRequest{Pid: pid, Signal: number, Target: target}, &agentv1.Empty{})
	}
	if err := direct(pid, 15, process); err != nil {
		t.Fatal(err)
	}
	r.wait()
	if !strings.HasSuffix(string(r.stdout), "ended 143\n") {
		t.Fatalf("%q", r.stdout)
	}
	expectCode(t, direct(pid, 15, process), codes.NotFound)
	expectCode(t, direct(1, 9, process), codes.PermissionDenied)
	expectCode(t, direct(1, 9, wholeTree), codes.PermissionDenied)
	expectCode(t, direct(-1, 9, process), codes.InvalidArgument)
	expectCode(t, direct(0, 9, process), codes.InvalidArgument)
	expectCode(t, direct(pid, 0, process), codes.InvalidArgument)
	expectCode(t, direct(pid, 65, process), codes.InvalidArgument)
	expectCode(t, b.signal("proc-never", 15, process), codes.NotFound)
	b.shell("echo alive").wait().endsWith(0, "alive\n")
}

func TestGuestProcesses_are_listed_with_whose_they_are(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import subprocess\np = subprocess.Popen(['sleep', '6001'])")
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "setsid sleep 6002 & echo ready; wait"}, User: "nobody", Cwd: "/"}).untilPrinted("ready")
	var inContext, inProcess *execv1.GuestProcess
	b.eventually("both sleeps are listed", func() error {
		inContext, inProcess = nil, nil
		for _, guest := range b.guests() {
			if guest.Pid == 1 {
				t.Fatalf("Atoll's own process: %v", guest)
			}
			switch strings.Join(guest.Argv, " ") {
			case "sleep 6001":
				inContext = guest
			case "sleep 6002":
				inProcess = guest
			}
		}
		if inContext == nil || inProcess == nil {
			return fmt.Errorf("%v", b.guests())
		}
		return nil
	})
	if inContext.ContextId != "py" || inContext.ProcessId != "" || inContext.User != "root" || inContext.Command != "sleep" {
		t.Errorf("%v", inContext)
	}
	if inProcess.ProcessId != r.id || inProcess.ContextId != "" || inProcess.User != "nobody" || inProcess.Uid != 65534 || inProcess.State == "" {
		t.Errorf("%v", inProcess)
	}
	if age := time.Since(time.UnixMilli(inProcess.StartedAtUnixMs)); age < -5*time.Second || age > time.Minute {
		t.Errorf("started %s ago", age)
	}
	if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	r.wait()
	b.exec("py", "p.kill()")
}

func TestInput_written_again_is_taken_once_and_a_hole_is_refused(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"cat"}, Stdin: true})
	r.pid()
	if reply := b.write(r.id, 0, "hello", false); reply.Offset != 5 || reply.Closed {
		t.Fatalf("%v", reply)
	}
	if reply := b.write(r.id, 0, "hello", false); reply.Offset != 5 {
		t.Fatalf("%v", reply)
	}
	if reply := b.write(r.id, 3, "lo world", false); reply.Offset != 11 {
		t.Fatalf("%v", reply)
	}
	offset := uint64(12)
	_, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Offset: &offset, Data: []byte("x")})
	expectCode(t, err, codes.FailedPrecondition)
	reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte("!")})
	if err != nil || reply.Offset != 12 {
		t.Fatalf("%v, %v", reply, err)
	}
	if listed := b.listed(r.id); listed.StdinOffset != 12 || listed.StdinClosed {
		t.Fatalf("%v", listed)
	}
	for range 2 {
		if reply := b.write(r.id, 12, "", true); reply.Offset != 12 || !reply.Closed {
			t.Fatalf("%v", reply)
		}
	}
	if reply := b.write(r.id, 0, "hello", false); reply.Offset != 12 || !reply.Closed {
		t.Fatalf("%v", reply)
	}
	_, err = b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte("x")})
	expectCode(t, err, codes.FailedPrecondition)
	r.wait().endsWith(0, "hello world!")
	_, err = b.tryWrite(&execv1.WriteInputRequest{ProcessId: "proc-never", Data: []byte("x")})
	expectCode(t, err, codes.NotFound)
	_, err = b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: make([]byte, 256<<10+1)})
	expectCode(t, err, codes.InvalidArgument)
}

func TestInput_of_a_program_that_does_not_read_is_taken_in_part_and_blocks_nobody(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "until [ -e go ]; do sleep 0.01; done; exec wc -c"}, Stdin: true})
	r.pid()
	data := make([]byte, 256<<10)
	taken := uint64(0)
	for {
		reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: data, WaitMs: 100})
		if err != nil {
			t.Fatal(err)
		}
		if reply.Offset-taken < uint64(len(data)) {
			taken = reply.Offset
			break
		}
		taken = reply.Offset
	}
	if taken == 0 || taken > 1<<20 {
		t.Fatalf("%d bytes were taken", taken)
	}
	// A writer that waits, and one whose caller has gone, hold up neither the agent nor other processes.
	waiting := make(chan *execv1.WriteInputReply, 1)
	go func() {
		reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Offset: &taken, Data: data, WaitMs: 50_000})
		if err != nil {
			t.Error(err)
		}
		waiting <- reply
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	answer := &execv1.WriteInputReply{}
	gone := frame.Call(ctx, b.session, agentrpc.WriteInput, &execv1.WriteInputRequest{ProcessId: r.id, Offset: &taken, Data: data}, answer)
	if frame.StatusOf(gone) != codes.DeadlineExceeded {
		t.Fatalf("%v, %v (expected: that the caller's time is up), taken %d", gone, answer, taken)
	}
	b.shell("echo quick").wait().endsWith(0, "quick\n")
	b.writeFile("go", "")
	reply := <-waiting
	if reply.Offset != taken+uint64(len(data)) {
		t.Fatalf("%v (expected: %d)", reply, taken+uint64(len(data)))
	}
	b.write(r.id, reply.Offset, "", true)
	r.wait().endsWith(0, fmt.Sprintf("%d\n", reply.Offset))
}

func TestInput_that_nobody_reads_any_more_is_refused_and_output_goes_on(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "exec <&-; echo closed; until [ -e go ]; do sleep 0.01; done; echo on"}, Stdin: true}).untilPrinted("closed\n")
	_, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte("x")})
	expectCode(t, err, codes.FailedPrecondition)
	b.writeFile("go", "")
	r.wait().endsWith(0, "closed\non\n")
}

func TestInput_that_ends_after_several_writes_leaves_the_output_open(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "cat; echo ended; until [ -e go ]; do sleep 0.01; done; echo on"}, Stdin: true})
	r.pid()
	for i, word := range []string{"one ", "two ", "three "} {
		_ = i
		if _, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte(word)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Close: true}); err != nil {
		t.Fatal(err)
	}
	r.untilPrinted("ended\n")
	b.writeFile("go", "")
	r.wait().endsWith(0, "one two three ended\non\n")
}

func TestInput_blocked_writer_is_freed_by_the_end_of_the_process(t *testing.T) {
	b := newBox(t)
	// A daemon that holds the input keeps the pipe open.
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "sleep 7001 <&0 >/dev/null 2>&1 & until [ -e go ]; do sleep 0.01; done"}, Stdin: true})
	r.pid()
	answered := make(chan error, 1)
	go func() {
		for {
			if _, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: make([]byte, 256<<10), WaitMs: 50_000}); err != nil {
				answered <- err
				return
			}
		}
	}()
	b.writeFile("go", "")
	for r.finished == nil {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	expectCode(t, <-answered, codes.FailedPrecondition)
	if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	r.cancel()
}

func TestProcess_that_dies_with_the_whole_tree_says_so(t *testing.T) {
	b := newBox(t)
	r := b.shell("echo up; sleep 60").untilPrinted("up\n")
	b.signalInit(unix.SIGKILL)
	r.wait()
	if r.finished.Reason != sandboxEnded || !strings.Contains(r.finished.Detail, "Every process") {
		t.Fatalf("%v", r.finished)
	}
	b.shell("echo again").wait().endsWith(0, "again\n")
}

func TestMemoryGuard_ends_a_process_as_out_of_memory_and_names_it(t *testing.T) {
	b := startBox(t, "meminfo")
	b.hello.Limits.MemoryBytes = 256 << 20
	b.sayHello()
	watch, err := b.session.Open(context.Background(), agentrpc.Watch)
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(&agentv1.WatchRequest{}); err != nil {
		t.Fatal(err)
	}
	low := "MemTotal: 262144 kB\nMemAvailable:    1024 kB\nMemFree: 1 kB\n"
	well := "MemTotal: 262144 kB\nMemAvailable:  200000 kB\nMemFree: 1 kB\n"
	inPlace := func(text string) {
		b.writeFile("meminfo", text)
	}
	hog := "x = bytearray(80 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(1234, flush=True)\nimport time; time.sleep(60)"
	r := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c", hog}}).untilPrinted("1234")
	inPlace(low)
	r.wait()
	inPlace(well)
	if r.finished.Reason != outOfMemory || r.finished.MemoryLimitBytes != 256<<20 || r.finished.MemoryPeakBytes == 0 || r.finished.Signal != 9 {
		t.Fatalf("%v", r.finished)
	}
	for {
		event := &agentv1.AgentEvent{}
		if err := watch.Receive(event); err != nil {
			t.Fatal(err)
		}
		if guard := event.GetMemoryGuard(); guard != nil {
			if guard.ExecutionId != r.id {
				t.Fatalf("%v (expected: of %s)", guard, r.id)
			}
			break
		}
	}
	// A child's end is its parent's failure if that fails of it, and only a remark if it goes on.
	for after, reason := range map[string]execv1.ExitReason{"exit $?": outOfMemory, "exit 0": exited} {
		b.writeFile("hog.py", hog)
		r := b.shell(pythonPath(t) + " hog.py; " + after).untilPrinted("1234")
		inPlace(low)
		r.wait()
		inPlace(well)
		if r.finished.Reason != reason || !strings.Contains(r.finished.Detail, "memory") {
			t.Errorf("%s: %v (expected: %v)", after, r.finished, reason)
		}
	}
}

func TestProcess_zombies_of_others_are_reaped_and_orphans_found(t *testing.T) {
	b := newBox(t)
	b.shell("for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 & sleep 0.01 & sleep 0.01 &) ; done").wait()
	b.eventually("nothing is left", func() error {
		if guests := b.guests(); len(guests) != 0 {
			return fmt.Errorf("%v", guests)
		}
		return nil
	})
}

func TestProcess_descriptors_are_the_standard_ones_and_nothing_of_the_agent_leaks(t *testing.T) {
	b := newBox(t)
	for _, spec := range []*execv1.ProcessSpec{{}, {Stdin: true}, {Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}}} {
		spec.Argv = []string{"/bin/sh", "-c", "ls -l /proc/$$/fd; printenv ATOLL_FRAME_KEY"}
		r := b.start(spec).wait()
		// A test may inherit what its caller left open; sockets, masters of terminals and the transport are the agent's.
		for _, own := range []string{"socket:", "ptmx", b.inPath, b.outPath} {
			if text := string(r.stdout); strings.Contains(text, own) || !strings.Contains(text, " 2 -> ") || r.finished.ExitCode != 1 {
				t.Errorf("%v: %q", spec, text)
			}
		}
	}
}

// limitsOf are a python program's own limits, which it prints for every line it reads.
const limitsOf = `import resource, sys
for line in sys.stdin: print(resource.getrlimit(resource.RLIMIT_NPROC), resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)`

func TestLimits_that_are_lowered_hold_for_what_runs_already(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC))").prints("(256, 256)\n")
	running := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c", limitsOf}, Stdin: true})
	modest := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (70, 2000))\n" + limitsOf}, Stdin: true})
	running.pid()
	modest.pid()
	b.write(running.id, 0, "1\n", false)
	running.untilPrinted("(256, 256) (4096, 4096)\n")
	b.write(modest.id, 0, "1\n", false)
	modest.untilPrinted("(256, 256) (70, 2000)\n")
	b.hello.Limits.MaxProcesses, b.hello.Limits.MaxOpenFiles, b.hello.Reconfigure = 200, 1000, true
	b.sayHello()
	b.write(running.id, 2, "2\n", true)
	running.wait().endsWith(0, "(256, 256) (4096, 4096)\n(200, 200) (1000, 1000)\n")
	b.write(modest.id, 2, "2\n", true)
	modest.wait().endsWith(0, "(256, 256) (70, 2000)\n(200, 200) (70, 1000)\n")
	b.exec("py", "print(resource.getrlimit(resource.RLIMIT_NPROC), resource.getrlimit(resource.RLIMIT_NOFILE))").prints("(200, 200) (1000, 1000)\n")
	b.shell("ulimit -n").wait().endsWith(0, "1000\n")
}

func TestProcess_says_that_its_time_was_up_also_where_all_had_to_be_ended(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo on; exec sleep 1000"}, TimeoutMs: 3000})
	r.untilPrinted("on\n")
	// Its help is needed to end this one.
	b.signalInit(unix.SIGSTOP)
	r.wait()
	if r.finished.Reason != timedOut || !strings.Contains(r.finished.Detail, "3s") || !strings.Contains(r.finished.Detail, "every process") {
		t.Fatalf("%v", r.finished)
	}
}

package agent_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
)

func (b *box) terminal(argv ...string) *run {
	b.t.Helper()
	return b.start(&execv1.ProcessSpec{Argv: argv, Terminal: &execv1.TerminalSize{Columns: 101, Rows: 37}})
}

func (b *box) interactive() *run {
	b.t.Helper()
	r := b.start(&execv1.ProcessSpec{
		Argv: []string{"/bin/bash", "--norc", "--noprofile", "-i"}, Terminal: &execv1.TerminalSize{Columns: 101, Rows: 37},
		Env: map[string]string{"PS1": "ready> ", "HISTFILE": ""},
	})
	return r.untilPrinted("ready> ")
}

func (b *box) typed(r *run, text string) {
	b.t.Helper()
	if _, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: []byte(text)}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) resize(id string, columns, rows uint32) error {
	return call(b, agentrpc.Resize, &execv1.ResizeRequest{ProcessId: id, Size: &execv1.TerminalSize{Columns: columns, Rows: rows}}, &agentv1.Empty{})
}

func TestTerminal_has_its_size_and_type_before_the_program_starts(t *testing.T) {
	b := newBox(t)
	r := b.terminal("/bin/sh", "-c", "stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && echo terminal; echo to stderr >&2; tty </dev/tty >/dev/null && echo controlling").wait()
	r.endsWith(0, "37 101\r\nxterm-256color\r\nterminal\r\nto stderr\r\ncontrolling\r\n")
	if len(r.stderr) != 0 {
		t.Fatalf("stderr: %q", r.stderr)
	}
	r = b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo $TERM"}, Terminal: &execv1.TerminalSize{Columns: 1, Rows: 1}, Env: map[string]string{"TERM": "vt100"}}).wait()
	r.endsWith(0, "vt100\r\n")
}

func TestTerminal_belongs_to_the_user_of_the_program(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "stat -c %u $(tty); echo again >$(tty)"}, User: "nobody", Cwd: "/", Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}}).wait()
	r.endsWith(0, "65534\r\nagain\r\n")
}

func TestTerminal_resize_reaches_the_foreground_program(t *testing.T) {
	b := newBox(t)
	r := b.terminal("/bin/bash", "-c", "trap 'stty size' WINCH; echo up; while [ ! -e stop ]; do sleep 0.01; done").untilPrinted("up")
	if err := b.resize(r.id, 133, 55); err != nil {
		t.Fatal(err)
	}
	r.untilPrinted("55 133")
	expectCode(t, b.resize(r.id, 0, 55), codes.InvalidArgument)
	expectCode(t, b.resize(r.id, 80, 70000), codes.InvalidArgument)
	b.writeFile("stop", "")
	r.wait()
	other := b.shell("sleep 60")
	other.pid()
	expectCode(t, b.resize(other.id, 80, 24), codes.FailedPrecondition)
	if err := b.signal(other.id, unix.SIGKILL, group); err != nil {
		t.Fatal(err)
	}
	other.wait()
	expectCode(t, b.resize("proc-never", 80, 24), codes.NotFound)
}

func TestTerminal_key_for_interrupt_ends_the_foreground_program_and_not_the_shell(t *testing.T) {
	b := newBox(t)
	r := b.interactive()
	b.typed(r, "sleep 60; echo status=$?\n")
	b.eventually("the program runs", func() error {
		for _, guest := range b.guests() {
			if strings.Join(guest.Argv, " ") == "sleep 60" {
				return nil
			}
		}
		return fmt.Errorf("%v", b.guests())
	})
	b.typed(r, "\x03")
	r.until("the prompt again", func() bool { return bytes.Count(r.stdout, []byte("ready> ")) >= 2 })
	b.typed(r, "echo still $((40 + 2))\n")
	r.untilPrinted("still 42")
	b.typed(r, "exit 5\n")
	r.wait()
	if r.finished.ExitCode != 5 || r.finished.Reason != exited {
		t.Fatalf("%v", r.finished)
	}
}

func TestTerminal_job_control_works(t *testing.T) {
	b := newBox(t)
	r := b.interactive()
	b.typed(r, "sleep 61\n")
	running := func() error {
		for _, guest := range b.guests() {
			if strings.Join(guest.Argv, " ") == "sleep 61" {
				return nil
			}
		}
		return fmt.Errorf("%v", b.guests())
	}
	b.eventually("the program runs", running)
	b.typed(r, "\x1a")
	r.untilPrinted("Stopped")
	b.typed(r, "bg; jobs; echo listed\n")
	r.untilPrinted("Running")
	b.typed(r, "kill %1; wait; echo go''ne\n")
	r.untilPrinted("gone")
	b.typed(r, "exit\n")
	r.wait()
}

func TestTerminal_signal_to_its_group_is_for_the_foreground(t *testing.T) {
	b := newBox(t)
	for _, number := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		r := b.interactive()
		b.typed(r, "sh -c 'sleep 62; true'\n")
		b.eventually("the program runs", func() error {
			for _, guest := range b.guests() {
				if strings.Join(guest.Argv, " ") == "sleep 62" {
					return nil
				}
			}
			return fmt.Errorf("%v", b.guests())
		})
		if err := b.signal(r.id, number, group); err != nil {
			t.Fatal(err)
		}
		r.until("the prompt again", func() bool { return bytes.Count(r.stdout, []byte("ready> ")) >= 2 })
		b.typed(r, "echo =$?=\n")
		r.untilPrinted(fmt.Sprintf("=%d=", 128+int(number)))
		b.typed(r, "exit\n")
		r.wait()
	}
}

func TestTerminal_output_is_whole_to_the_last_byte(t *testing.T) {
	b := newBox(t)
	for i := range 15 {
		size := 1 + i*i*701
		r := b.terminal("/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; printf END", size)).wait()
		if len(r.stdout) != size+3 || !bytes.HasSuffix(r.stdout, []byte("xEND")) {
			t.Fatalf("%d bytes, ending in %q (expected: %d)", len(r.stdout), r.stdout[max(0, len(r.stdout)-10):], size+3)
		}
	}
	// With more than fits anywhere, and with nobody acknowledging for a while.
	r := b.terminal(pythonPath(t), "-c", "import sys\nsys.stdout.write('0123456789abcde\\n' * 500000)")
	for len(r.stdout) < 900_000 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.acknowledge(r.events[len(r.events)-1].Seq); err != nil {
		t.Fatal(err)
	}
	r.wait()
	if !bytes.Equal(r.stdout, bytes.Repeat([]byte("0123456789abcde\r\n"), 500000)) {
		t.Fatalf("%d bytes", len(r.stdout))
	}
}

func TestTerminal_in_raw_mode_passes_every_byte_both_ways(t *testing.T) {
	b := newBox(t)
	data := make([]byte, 0, 128<<10)
	for i := range 128 << 10 {
		data = append(data, byte(i*7+i>>8))
	}
	r := b.terminal("/bin/sh", "-c", fmt.Sprintf("stty raw -echo; echo go; head -c %d", len(data))).untilPrinted("go\n")
	go b.feed(r.id, data, false)
	r.wait()
	if got := r.stdout[3:]; !bytes.Equal(got, data) {
		t.Fatalf("%d bytes (expected: %d, the same)", len(got), len(data))
	}
}

func TestTerminal_input_waits_for_a_program_that_does_not_read(t *testing.T) {
	b := newBox(t)
	r := b.terminal("/bin/sh", "-c", "stty raw -echo; echo go; until [ -e go ]; do sleep 0.01; done; head -c 600000 | wc -c").untilPrinted("go\n")
	data := make([]byte, 256<<10)
	taken := uint64(0)
	for {
		reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Data: data, WaitMs: 200})
		if err != nil {
			t.Fatal(err)
		}
		full := reply.Offset-taken < uint64(len(data))
		taken = reply.Offset
		if full {
			break
		}
	}
	if taken > 1<<20 {
		t.Fatalf("%d bytes were taken", taken)
	}
	b.shell("echo quick").wait().endsWith(0, "quick\n")
	b.writeFile("go", "")
	for taken < 600000 {
		offset := taken
		reply, err := b.tryWrite(&execv1.WriteInputRequest{ProcessId: r.id, Offset: &offset, Data: data[:min(len(data), int(600000-taken))]})
		if err != nil {
			t.Fatal(err)
		}
		taken = reply.Offset
	}
	r.wait()
	if !strings.Contains(string(r.stdout), "600000") {
		t.Fatalf("%q", r.stdout)
	}
}

func TestTerminal_end_of_input_is_its_character(t *testing.T) {
	b := newBox(t)
	r := b.terminal("/bin/sh", "-c", "stty -echo; echo go; cat; echo first; cat; echo second").untilPrinted("go")
	b.write(r.id, 0, "a line\n", true)
	r.untilPrinted("a line\r\nfirst")
	// The same again is harmless; an unfinished line is handed over whole.
	b.write(r.id, 0, "a line\n", true)
	b.write(r.id, 7, "no newline", true)
	r.wait().endsWith(0, "go\r\na line\r\nfirst\r\nno newlinesecond\r\n")
}

func TestTerminal_is_attached_again_in_the_middle_and_goes_on_without_anyone(t *testing.T) {
	b := newBox(t)
	r := b.interactive()
	b.typed(r, "x=kept; echo before\n")
	r.until("the second prompt", func() bool { return bytes.Count(r.stdout, []byte("ready> ")) >= 2 })
	seen, stdout := r.events[len(r.events)-1].Seq, r.stdout
	b.disconnect()
	b.connect()
	b.sayHello()
	b.typed(r, "echo $x on\n")
	again := b.attach(r.id, seen)
	again.stdout = stdout
	again.untilPrinted("kept on\r\n")
	b.typed(r, "exit\n")
	again.wait()
	if !bytes.HasPrefix(again.stdout, stdout) {
		t.Fatalf("%q", again.stdout)
	}
}

func TestTerminal_lives_on_when_its_program_lets_go_of_it_for_a_while(t *testing.T) {
	b := newBox(t)
	b.terminal("/bin/sh", "-c", "exec <&- >&- 2>&-; sleep 0.2; echo back >/dev/tty").wait().endsWith(0, "back\r\n")
}

func TestTerminal_ends_although_background_jobs_hold_it_and_they_live_on(t *testing.T) {
	b := newBox(t)
	r := b.terminal("/bin/bash", "-c", "(trap '' HUP; touch trapped; sleep 2; echo survived >after) & until [ -e trapped ]; do sleep 0.01; done; echo said").wait()
	r.endsWith(0, "said\r\n")
	b.eventually("the job lives on", func() error {
		text, err := b.readFile("after")
		if err == nil && text != "survived\n" {
			err = fmt.Errorf("%q", text)
		}
		return err
	})
}

func TestTerminal_time_limit_and_kill_end_everything_on_it(t *testing.T) {
	b := newBox(t)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/bash", "-c", "trap '' HUP TERM INT; echo up; sleep 63 & sleep 63"}, TimeoutMs: 500, Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}}).wait()
	if r.finished.Reason != timedOut || string(r.stdout) != "up\r\n" {
		t.Fatalf("%v, %q", r.finished, r.stdout)
	}
	r = b.interactive()
	b.typed(r, "sleep 64 & setsid sleep 64\n")
	time.Sleep(100 * time.Millisecond)
	if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	r.wait()
	b.eventually("nothing is left", func() error {
		if guests := b.guests(); len(guests) != 0 {
			return fmt.Errorf("%v", guests)
		}
		return nil
	})
}

func TestTerminal_sudo_works(t *testing.T) {
	b := newBox(t)
	// The machine's sudo may ask nothing of root.
	b.terminal("sudo", "-n", "id", "-u").wait().endsWith(0, "0\r\n")
	b.start(&execv1.ProcessSpec{Argv: []string{"sudo", "-n", "-u", "nobody", "id", "-u"}}).wait().endsWith(0, "65534\n")
}

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	execv1 "atoll/node/gen/execv1"
)

func newBash(t *testing.T) (*box, func(code string) *run) {
	t.Helper()
	b := newBox(t)
	b.open("sh", "bash")
	return b, func(code string) *run { t.Helper(); return b.exec("sh", code) }
}

func TestBash_exit_ends_the_cell_and_not_the_state(t *testing.T) {
	_, sh := newBash(t)
	sh("x=1; declare -A map=([a]='b c'); export E=e; list=(1 '2 3'); f() { echo f$1; }; alias g='echo g'; cd /usr; set -o pipefail; shopt -s nullglob; umask 027; set -- p 'q r'")
	r := sh("leave() { exit 3; }; echo before; leave; echo never").ends(exited, true)
	if string(r.stdout) != "before\n" || r.finished.ExitCode != 3 {
		t.Fatalf("%q, %v", r.stdout, r.finished)
	}
	sh("echo $? $x ${map[a]} $E \"${list[1]}\" $2; f 1; g; pwd; set -o | grep pipefail | tr -d '\\t '; shopt -q nullglob && echo null; umask; echo $(printenv E)").
		prints("3 1 b c e 2 3 q r\nf1\ng\n/usr\npipefailon\nnull\n0027\ne\n")
}

func TestBash_errexit_ends_the_cell_and_lasts_for_it_only(t *testing.T) {
	_, sh := newBash(t)
	r := sh("y=2\nset -euo pipefail\necho a\nfalse\necho never").ends(exited, true)
	if string(r.stdout) != "a\n" || r.finished.ExitCode != 1 {
		t.Fatalf("%q, %v", r.stdout, r.finished)
	}
	sh("false; echo $y").prints("2\n")
	sh("set -e; true").prints("")
	sh("false; echo on").prints("on\n")
}

func TestBash_unbound_variable_ends_the_cell_with_its_message(t *testing.T) {
	_, sh := newBash(t)
	r := sh("set -u; z=1; echo $nothing; echo never").ends(exited, true)
	if !strings.Contains(string(r.stderr), "nothing: unbound variable") {
		t.Fatalf("stderr %q", r.stderr)
	}
	sh("set +u; echo $z").prints("1\n")
}

func TestBash_syntax_error_is_reported_with_its_line(t *testing.T) {
	_, sh := newBash(t)
	r := sh("echo one\nif true; then\necho two\n)\n").ends(failed, true)
	if !strings.Contains(r.finished.Error.Message, "syntax error near unexpected token") || !strings.Contains(r.finished.Error.Message, "line 4") {
		t.Fatalf("%v", r.finished.Error)
	}
	if !strings.Contains(string(r.stderr), "line 4: syntax error") {
		t.Fatalf("stderr %q", r.stderr)
	}
	sh("echo 'unclosed").ends(failed, true)
	sh("echo ok").prints("ok\n")
}

func TestBash_failing_command_completes_with_its_status(t *testing.T) {
	_, sh := newBash(t)
	r := sh("echo x\nno-such-command").ends(completed, true)
	if r.finished.ExitCode != 127 || string(r.stderr) != "bash: line 2: no-such-command: command not found\n" {
		t.Fatalf("%q, %v", r.stderr, r.finished)
	}
	if r := sh("(exit 2)").ends(completed, true); r.finished.ExitCode != 2 {
		t.Fatalf("%v", r.finished)
	}
}

func TestBash_heredocs_and_multiline_constructs_work(t *testing.T) {
	_, sh := newBash(t)
	sh("cat <<'END'\na $x\nEND\nfor i in 1 2\ndo\n  echo $i\ndone\nwhile read -r l; do echo \"<$l>\"; done <<< $'p\\nq'").prints("a $x\n1\n2\n<p>\n<q>\n")
	sh("cat <<END").prints("")
}

// patientTries is how often a test waits for a machine that is too busy for the grace of an interrupt.
const patientTries = 5

func TestBash_background_jobs_go_on(t *testing.T) {
	b, sh := newBash(t)
	mark := fmt.Sprint(os.Getpid())
	for tries := 1; ; tries++ {
		sh("sleep 9005." + mark + " & echo started").prints("started\n")
		sh("jobs -p | wc -l; kill -0 $! && echo alive").prints("1\nalive\n")
		sh("exit 1")
		if !b.alive("sleep 9005." + mark) {
			t.Fatal("the job is gone after exit")
		}
		r := b.execWithin("sh", "sleep 60", 200*time.Millisecond)
		// A shell that did not react within the grace is ended with its jobs.
		if r.finished.StateKept || tries == patientTries {
			r.ends(timedOut, true)
			break
		}
	}
	if !b.alive("sleep 9005." + mark) {
		t.Fatal("the job is gone after a later cell's timeout")
	}
}

func TestBash_timeout_interrupts_and_keeps_the_state(t *testing.T) {
	b, sh := newBash(t)
	sh("x=5; cd /usr")
	for _, code := range []string{
		"echo on; sleep 60; echo never", "echo on; while :; do :; done", "echo on; f() { while true; do sleep 0.01; done; }; f; echo never",
		"echo on; sleep 60 | cat; echo never", "echo on; (sleep 60); echo never", "echo on; read line < <(sleep 60); echo never",
		"echo on; bash -c 'sleep 60; echo never'; echo never",
	} {
		r := b.execWithin("sh", code, 300*time.Millisecond)
		// On a busy machine a shell may not get the CPU that it needs to react within the grace. Not every time.
		for tries := 1; !r.finished.StateKept && tries < patientTries; tries++ {
			sh("x=5; cd /usr")
			r = b.execWithin("sh", code, 300*time.Millisecond)
		}
		if !r.finished.StateKept {
			sh("x=5; cd /usr")
			t.Errorf("%s: %v, %q", code, r.finished, r.stderr)
			continue
		}
		if string(r.stdout) != "on\n" || r.took > 30*time.Second {
			t.Fatalf("%s: %q after %s", code, r.stdout, r.took)
		}
		sh("echo $x; pwd").prints("5\n/usr\n")
	}
}

func TestBash_exit_trap_belongs_to_its_cell(t *testing.T) {
	_, sh := newBash(t)
	sh("trap 'echo bye' EXIT; echo work").prints("work\nbye\n")
	sh("echo next").prints("next\n")
	r := sh("trap 'echo bye $?' EXIT; x=9; exit 4").ends(exited, true)
	if string(r.stdout) != "bye 4\n" || r.finished.ExitCode != 4 {
		t.Fatalf("%q, %v", r.stdout, r.finished)
	}
	sh("echo $x").prints("9\n")
	sh("(trap 'echo sub' EXIT); echo main").prints("sub\nmain\n")
}

func TestBash_shell_that_is_killed_is_a_kernel_that_died(t *testing.T) {
	_, sh := newBash(t)
	r := sh("kill -9 $$").ends(kernelDied, false)
	if r.finished.Signal != 9 {
		t.Fatalf("%v", r.finished)
	}
	sh("echo fresh").prints("fresh\n")
	r = sh("exec true").ends(kernelDied, false)
	if r.finished.ExitCode != 0 {
		t.Fatalf("%v", r.finished)
	}
}

func TestBash_reads_nothing_from_stdin(t *testing.T) {
	_, sh := newBash(t)
	sh("cat; read x || echo none").prints("none\n")
}

func TestBash_trace_shows_the_cells_own_lines_only(t *testing.T) {
	_, sh := newBash(t)
	r := sh("set -x; echo hi").prints("hi\n")
	if string(r.stderr) != "++ echo hi\n" {
		t.Fatalf("stderr %q", r.stderr)
	}
	if r := sh("echo ho"); len(r.stderr) != 0 {
		t.Fatalf("stderr %q", r.stderr)
	}
}

func TestBash_code_with_a_NUL_byte_is_refused(t *testing.T) {
	b, sh := newBash(t)
	b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "sh", Code: "echo a\x00b"}).wait().ends(failed, true)
	sh("echo ok").prints("ok\n")
}

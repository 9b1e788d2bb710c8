//go:build gvisor

package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
)

// With the tag `gvisor` every test of this package drives an agent that is PID 1 of a gVisor container: the machine's own root, read-only
// with a memory overlay. It needs our runsc (node/runsc/build.sh).

// builtRunsc is looked for once: a sandbox is ended by the runsc that has made it.
var builtRunsc = sync.OnceValues(func() (string, error) {
	// The cache may hold other builds too.
	where, err := exec.Command("../../runsc/build.sh", "--where").Output()
	if err != nil {
		return "", fmt.Errorf("node/runsc/build.sh --where: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(where)), "runsc")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no runsc: %w (remedy: run node/runsc/build.sh)", err)
	}
	return path, nil
})

func runscPath(t *testing.T) string {
	t.Helper()
	path, err := builtRunsc()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *box) runsc(args ...string) *exec.Cmd {
	return exec.Command(runscPath(b.t), append([]string{"--root", filepath.Join(b.hostFolder(), ".runsc"), "--network=none", "--overlay2=root:memory",
		"--allow-suid", "--sidecar-usage-policy=STRICT", "--restore-spec-validation=ignore"}, args...)...)
}

// hostFolder is where a box keeps its pipes.
func (b *box) hostFolder() string { return filepath.Dir(b.inPath) }

// containerID has a fixed length: runsc matches ids by prefix.
func (b *box) containerID() string {
	name := sha256.Sum256([]byte(b.inPath))
	return "agenttest" + hex.EncodeToString(name[:8])
}

// What the user is promised, and what the engine gives beyond that (node/internal/box/limits.go).
const (
	memoryBytes   = 256 << 20
	overheadBytes = 144 << 20
)

// ownLimits always name the memory, as the engine does: the host's limit lies above it by what the guard needs to be in time. Held to
// MemTotal, which gVisor takes from the host's limit, the guard is late, and a bomb ends the sentry.
func ownLimits() *execv1.Limits { return &execv1.Limits{MaxProcesses: 256, MemoryBytes: memoryBytes} }

func (b *box) launch(stdin, stdout *os.File) {
	b.t.Helper()
	b.runs(stdin, stdout, "run", "--bundle", b.bundle(), b.containerID())
}

func (b *box) runs(stdin, stdout *os.File, args ...string) {
	b.t.Helper()
	b.command = b.runsc(args...)
	b.command.Stdin, b.command.Stdout, b.command.Stderr = stdin, stdout, b.log
	if err := b.command.Start(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) bundle() string {
	b.t.Helper()
	bundle := b.t.TempDir()
	capabilities := []string{"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
		"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"}
	type m = map[string]any
	spec, err := json.Marshal(m{
		"ociVersion": "1.0.0",
		"process": m{
			"user": m{"uid": 0, "gid": 0}, "cwd": "/", "args": []string{agentBinary, "-memory", b.meminfo},
			"env":          []string{"ATOLL_FRAME_KEY=" + hex.EncodeToString(b.key[:]), "PATH=" + os.Getenv("PATH")},
			"capabilities": m{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
		},
		"root": m{"path": "/", "readonly": false}, "hostname": "box",
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/small", "type": "tmpfs", "source": "tmpfs", "options": []string{"size=16m", "mode=1777"}},
		},
		"linux": m{
			"cgroupsPath": "/" + b.containerID(),
			"resources":   m{"memory": m{"limit": memoryBytes + overheadBytes, "swap": memoryBytes + overheadBytes}},
			"namespaces":  []m{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}},
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return bundle
}

func (b *box) shutDown() {
	if out, err := b.runsc("delete", "--force", b.containerID()).CombinedOutput(); err != nil {
		b.t.Errorf("deleting the container: %v: %s", err, out)
	}
	<-b.gone
	// A gofer leaves this mount behind.
	_ = unix.Unmount(filepath.Join(b.hostFolder(), ".runsc", "null-netns"), unix.MNT_DETACH)
}

func (b *box) inside(script string) string {
	b.t.Helper()
	out, err := b.runsc("exec", b.containerID(), "/bin/sh", "-c", script).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// descriptors counts those of the agent.
func (b *box) descriptors() int {
	b.t.Helper()
	count, err := strconv.Atoi(strings.TrimSpace(b.inside("ls /proc/1/fd | wc -l")))
	if err != nil {
		b.t.Fatal(err)
	}
	return count
}

func (b *box) readFile(name string) (string, error) {
	out, err := b.runsc("exec", b.containerID(), "/bin/cat", filepath.Join(b.home, name)).Output()
	return string(out), err
}

func (b *box) writeFile(name, text string) {
	b.t.Helper()
	// In place: the guard keeps the file open.
	b.inside(fmt.Sprintf("printf %%s '%s' 1<>'%s'", text, filepath.Join(b.home, name)))
}

func (b *box) alive(text string) bool {
	b.t.Helper()
	// The brackets keep the search from finding itself.
	return strings.Contains(b.inside("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), text)
}

func (b *box) signalInit(number unix.Signal) {
	b.t.Helper()
	b.inside(fmt.Sprintf("for p in /proc/[0-9]*; do if [ \"$(tr '\\0' ' ' <$p/cmdline | cut -d' ' -f2)\" = init ]; then kill -%d ${p#/proc/}; fi; done", number))
}

func TestGvisor_root_that_kills_PID_1_ends_the_inner_tree_only(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	r := b.exec("py", "import os; os.kill(1, 9)\nimport time; time.sleep(10)").ends(kernelDied, false)
	if !strings.Contains(r.finished.Detail, "Every process") {
		t.Fatalf("%v", r.finished)
	}
	b.exec("py", "print('again')").prints("again\n")
}

func TestGvisor_memory_bombs_end_as_out_of_memory_and_the_box_lives(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	b.exec("sh", "y=3")
	for name, code := range map[string]string{
		"touched":  "x = bytearray(1 << 30)",
		"growing":  "x = []\nwhile True: x.append(bytearray(1 << 20))",
		"child":    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(1 << 30)'])",
		"/dev/shm": "f = open('/dev/shm/big', 'wb')\nfor i in range(1000): f.write(bytes(1 << 20))",
	} {
		began := time.Now()
		r := b.exec("py", code)
		if r.finished.Reason != outOfMemory || r.finished.MemoryPeakBytes < 150<<20 || r.finished.MemoryLimitBytes != memoryBytes {
			t.Errorf("%s: %v", name, r.finished)
		}
		t.Logf("%s: %s after %s", name, r.finished.Detail, time.Since(began))
		b.exec("sh", "rm -f /dev/shm/big; echo $y").prints("3\n")
		b.exec("py", "print('well')").prints("well\n")
	}
	if r := b.exec("sh", "true"); r.finished.Reason != execv1.ExitReason_EXIT_REASON_COMPLETED {
		t.Fatalf("%v", r.finished)
	}
}

func TestGvisor_what_grows_while_nothing_is_executed_is_ended_and_the_box_lives(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	b.exec("sh", "y=3")
	for range 2 {
		// By then the guard has left the looking to its watch.
		r := b.exec("py", `import threading, time
def grow():
    time.sleep(3)
    x = []
    while True: x.append(bytearray(1 << 20)); time.sleep(.002)
threading.Thread(target=grow, daemon=True).start()
import os; print(os.getpid())`)
		pid := strings.TrimSpace(string(r.stdout))
		waited := b.exec("sh", "while kill -0 "+pid+" 2>/dev/null; do sleep .05; done; echo $y")
		waited.prints("3\n")
		b.exec("py", "print('well')").prints("well\n")
	}
}

func TestGvisor_key_is_not_to_be_found(t *testing.T) {
	b := newBox(t)
	b.open("sh", "bash")
	b.exec("sh", "cat /proc/gvisor/spec_environ /proc/*/environ 2>/dev/null | grep -c ATOLL_FRAME_KEY").prints("0\n")
}

func TestGvisor_round_trip_is_measured(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "x = 0")
	began := time.Now()
	const rounds = 300
	for range rounds {
		b.exec("py", "x += 1; print(x)")
	}
	t.Logf("x += 1; print(x): %s a round, acknowledged and ended", time.Since(began)/rounds)
}

func TestGvisor_processes_and_keys_are_measured(t *testing.T) {
	b := newBox(t)
	const rounds = 100
	median := func(what string, once func() time.Duration) {
		var took []time.Duration
		for range rounds {
			took = append(took, once())
		}
		slices.Sort(took)
		t.Logf("%s: p10 %s, p50 %s, p95 %s", what, took[rounds/10], took[rounds/2], took[rounds*95/100])
	}
	median("echo hi", func() time.Duration {
		return b.start(&execv1.ProcessSpec{Argv: []string{"echo", "hi"}}).wait().endsWith(0, "hi\n").took
	})
	median("echo hi on a terminal", func() time.Duration {
		return b.start(&execv1.ProcessSpec{Argv: []string{"echo", "hi"}, Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}}).wait().endsWith(0, "hi\r\n").took
	})
	b.open("py", "python")
	inside := b.exec("py", `import subprocess, time
took = []
for _ in range(100):
    began = time.perf_counter(); subprocess.run(["echo", "hi"], capture_output=True); took.append(time.perf_counter() - began)
print(round(sorted(took)[10] * 1e6), "µs,", round(sorted(took)[50] * 1e6), "µs")`)
	t.Logf("the same by Python, inside: p10 and p50 %s", inside.stdout)
	r := b.start(&execv1.ProcessSpec{Argv: []string{"cat"}, Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}})
	r.pid()
	keys := 0
	median("the echo of a key", func() time.Duration {
		began := time.Now()
		b.typed(r, "x")
		keys++
		r.until("its echo", func() bool { return len(r.stdout) == keys })
		return time.Since(began)
	})
	if err := b.signal(r.id, unix.SIGKILL, wholeTree); err != nil {
		t.Fatal(err)
	}
	r.wait()
}

func TestGvisor_memory_bombs_of_processes_end_as_out_of_memory_and_the_box_lives(t *testing.T) {
	b := newBox(t)
	python := pythonPath(t)
	bystander := b.start(&execv1.ProcessSpec{Argv: []string{"cat"}, Stdin: true})
	bystander.pid()
	for name, spec := range map[string]*execv1.ProcessSpec{
		"touched":       {Argv: []string{python, "-c", "x = bytearray(1 << 30)"}},
		"growing":       {Argv: []string{python, "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"}},
		"child":         {Argv: []string{"/bin/sh", "-c", python + " -c 'x = bytearray(1 << 30)'; exit $?"}},
		"on a terminal": {Argv: []string{python, "-c", "x = bytearray(1 << 30)"}, Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24}},
	} {
		r := b.start(spec).wait()
		if r.finished.Reason != outOfMemory || r.finished.MemoryPeakBytes < 150<<20 || r.finished.MemoryLimitBytes != memoryBytes {
			t.Errorf("%s: %v", name, r.finished)
		}
		t.Logf("%s: %s after %s", name, r.finished.Detail, r.took)
		b.shell("echo well").wait().endsWith(0, "well\n")
	}
	b.write(bystander.id, 0, "alive", true)
	bystander.wait().endsWith(0, "alive")
}

// works waits until the context "py" works again: a bomb may outlive its cell, and have the guard end the next one's interpreter.
func (b *box) works(after string) {
	b.t.Helper()
	b.eventually(after+": the context works again", func() error {
		if r := b.exec("py", "print('well')"); r.finished.Reason != completed || !strings.HasSuffix(string(r.stdout), "well\n") {
			return fmt.Errorf("%q %v", clip(r.stdout), r.finished)
		}
		return nil
	})
}

// hostilePrograms go on until they are ended.
var hostilePrograms = map[string]string{
	"fork bomb":         "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
	"thread bomb":       "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: time.sleep(0.01)",
	"threads and forks": "import os, threading\ndef go():\n    while True:\n        try: os.fork()\n        except OSError: pass\nfor _ in range(8): threading.Thread(target=go).start()\ngo()",
	"zombies":           "import os\nwhile True:\n    try:\n        if os.fork() == 0: os._exit(0)\n    except OSError: pass",
	"daemons":           "import os, time\nfor i in range(40):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            time.sleep(600)\n        os._exit(0)\n    os.wait()\ntime.sleep(600)",
	"bomb of daemons":   "import os\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: pass",
	"runaways":          "import os, time\nwhile True:\n    try:\n        if os.fork() > 0: time.sleep(0.01) if os.getsid(0) == os.getpid() else os._exit(0)\n        else: os.setpgid(0, 0)\n    except OSError: pass",
	"shell bomb":        "import os, time\nos.system('b() { b | b & b; }; b')\ntime.sleep(600)",
	"stop and go":       "import os, signal\nfor _ in range(20):\n    if os.fork() == 0: break\nwhile True:\n    for pid in filter(str.isdigit, os.listdir('/proc')):\n        if int(pid) not in (1, os.getpid()):\n            try: os.kill(int(pid), signal.SIGCONT)\n            except OSError: pass",
	"PID 1":             "import os, signal, time\nfor n in (signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV, signal.SIGQUIT, signal.SIGABRT):\n    try: os.kill(1, n)\n    except OSError: pass\ntime.sleep(600)",
}

func TestGvisor_hostile_cells_are_held_and_end_in_time(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	// Root inside can stop PID 1, which costs everything that runs there.
	b.hello.User = "nobody"
	b.sayHello()
	b.open("py", "python")
	b.open("sh", "bash")
	b.exec("sh", "y=3")
	for name, code := range hostilePrograms {
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "py", Code: code, TimeoutMs: 3000}).wait()
		t.Logf("%s: %v %s after %s", name, r.finished.Reason, r.finished.Detail, r.took)
		if r.took > 30*time.Second {
			t.Errorf("%s: %v after %s", name, r.finished, r.took)
		}
		b.works(name)
		b.exec("sh", "echo $y").prints("3\n")
		if err := call(b, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: "py"}, &agentv1.OpenContextReply{}); err != nil {
			t.Fatal(err) // the threads of a bomb of them would live as long as the interpreter
		}
		b.eventually(name+": nothing is left", func() error {
			if guests := b.guests(); len(guests) > 6 {
				return fmt.Errorf("%d processes: %v", len(guests), guests)
			}
			return nil
		})
	}
}

// Nothing of these processes is copied, so gVisor has no reason to refuse the next one: whether the guard is in time is a matter of luck.
func TestGvisor_interpreters_that_start_interpreters_end_as_out_of_memory_or_the_sandbox_does(t *testing.T) {
	b := newBox(t)
	b.closing.Store(true)
	r := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c", spawnBomb}, TimeoutMs: 5000})
	for r.finished == nil {
		if _, err := r.next(); err != nil {
			break
		}
	}
	switch {
	case r.finished == nil && b.life.Err() != nil:
		t.Logf("the sandbox has ended: %v", context.Cause(b.life))
	case r.finished == nil || r.finished.Reason != timedOut && r.finished.Reason != outOfMemory:
		t.Errorf("%v", r.finished)
	default:
		b.shell("echo well").wait().endsWith(0, "well\n")
	}
}

const spawnBomb = "import os, sys\ncode = 'import os, sys\\nwhile True:\\n    try: os.posix_spawn(sys.executable, [sys.executable, \"-c\", sys.argv[1], sys.argv[1]], os.environ)\\n    except OSError: pass'\nos.execv(sys.executable, [sys.executable, '-c', code, code])"

func TestGvisor_hostile_processes_are_held_and_end_with_their_tree(t *testing.T) {
	b := newBox(t)
	python := pythonPath(t)
	for name, code := range hostilePrograms {
		r := b.start(&execv1.ProcessSpec{Argv: []string{python, "-c", code}, TimeoutMs: 2000, User: "nobody", Cwd: "/"})
		r.pid()
		b.guests() // is answered meanwhile
		r.wait()
		t.Logf("%s: %v %s after %s", name, r.finished.Reason, r.finished.Detail, r.took)
		if r.finished.Reason != timedOut && r.finished.Reason != outOfMemory {
			t.Errorf("%s: %v, %s", name, r.finished, clip(r.stderr))
		}
		b.shell("echo well").wait().endsWith(0, "well\n")
		b.eventually(name+": nothing is left", func() error {
			if guests := b.guests(); len(guests) != 0 {
				return fmt.Errorf("%d processes: %v", len(guests), guests[0])
			}
			return nil
		})
	}
}

func TestGvisor_fork_bombs_are_held_and_the_box_lives(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	for name, code := range map[string]string{
		"dogged":  "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
		"plain":   "import os\nwhile True: os.fork()",
		"a child": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os\\nwhile True: os.fork()'])",
	} {
		b.exec("sh", "y=3")
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: "exec-" + strings.Fields(name)[0], ContextId: "py", Code: code, TimeoutMs: 4000}).wait()
		t.Logf("%s: %v %s after %s", name, r.finished.Reason, r.finished.Detail, r.took)
		if r.finished.Signal == int32(unix.SIGHUP) || r.took > 12*time.Second {
			t.Errorf("%s: %v after %s", name, r.finished, r.took)
		}
		b.works(name)
		b.exec("sh", "echo $y").prints("3\n")
		b.eventually(name+": the bomb is over", func() error {
			running := 0
			for _, guest := range b.guests() {
				if guest.State != "Z" { // an interpreter that lives on is in no hurry to reap
					running++
				}
			}
			if running > 6 {
				return fmt.Errorf("%d processes run", running)
			}
			return nil
		})
	}
}

func TestGvisor_stopped_children_do_not_hang_up_on_their_kernel(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import os, signal, time\nkids = []\nfor _ in range(4):\n    pid = os.fork()\n    if pid == 0:\n        time.sleep(60); os._exit(0)\n    kids.append(pid)\n"+
		"for pid in kids: os.kill(pid, signal.SIGSTOP)\ntime.sleep(0.1)\nfor pid in kids:\n    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)\nprint('alive')").prints("alive\n").ends(completed, true)
}

func TestGvisor_many_small_processes_and_a_pool_of_workers_are_no_bomb(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("sh", "bash")
	b.exec("sh", "for i in $(seq 60); do sleep 20 & done; jobs | wc -l; kill $(jobs -p); wait 2>/dev/null").prints("60\n")
	b.exec("py", "from multiprocessing import Pool\ndef f(x): return x * x\nwith Pool(12) as p: print(sum(p.map(f, range(1000))))").prints("332833500\n")
	b.exec("py", "import subprocess\nps = [subprocess.Popen(['sleep', '20']) for _ in range(100)]\nprint(len(ps))\nfor p in ps: p.kill(); p.wait()").prints("100\n")
}

func TestGvisor_limits_that_are_raised_hold_for_what_runs_already(t *testing.T) {
	b := startBox(t, "/proc/meminfo")
	b.hello.Limits.MaxProcesses, b.hello.Limits.MaxOpenFiles = 100, 1000
	b.sayHello()
	b.open("py", "python")
	b.exec("py", "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC), resource.getrlimit(resource.RLIMIT_NOFILE))").prints("(100, 100) (1000, 1000)\n")
	running := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c", limitsOf}, Stdin: true, User: "nobody", Cwd: "/"})
	modest := b.start(&execv1.ProcessSpec{Argv: []string{pythonPath(t), "-c", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (70, 150))\n" + limitsOf}, Stdin: true})
	running.pid()
	modest.pid()
	b.write(running.id, 0, "1\n", false)
	running.untilPrinted("(100, 100) (1000, 1000)\n")
	b.write(modest.id, 0, "1\n", false)
	modest.untilPrinted("(100, 100) (70, 150)\n")
	b.hello.Limits.MaxProcesses, b.hello.Limits.MaxOpenFiles, b.hello.Reconfigure = 150, 2000, true
	b.sayHello()
	b.write(running.id, 2, "2\n", true)
	running.wait().endsWith(0, "(100, 100) (1000, 1000)\n(150, 150) (2000, 2000)\n")
	b.write(modest.id, 2, "2\n", true)
	modest.wait().endsWith(0, "(100, 100) (70, 150)\n(150, 150) (70, 150)\n")
	b.exec("py", "print(len([open('/dev/null') for _ in range(1500)]))").prints("1500\n")
	// What a user's process may raise, is for its own rights: none.
	b.exec("py", "try: resource.prlimit(0, resource.RLIMIT_NOFILE, (3000, 3000))\nexcept (ValueError, PermissionError): print('refused')").prints("refused\n")
}

func TestGvisor_foreground_group_of_a_terminal_gets_any_signal(t *testing.T) {
	b := newBox(t)
	r := b.interactive()
	// The group in the foreground has started a younger one behind it.
	b.typed(r, `bash -c 'set -m; sleep 61 & set +m; trap "echo it was m\e; exit 7" USR1; echo tra\pped; while :; do sleep 0.1; done'`+"\n")
	r.untilPrinted("trapped")
	if err := b.signal(r.id, unix.SIGUSR1, group); err != nil {
		t.Fatal(err)
	}
	r.untilPrinted("it was me")
	b.typed(r, "echo =$?=\n")
	r.untilPrinted("=7=")
	if !slices.ContainsFunc(b.guests(), func(guest *execv1.GuestProcess) bool { return strings.Join(guest.Argv, " ") == "sleep 61" }) {
		t.Errorf("the group behind got the signal too: %v", b.guests())
	}
	b.typed(r, "exit\n")
	r.wait()
}

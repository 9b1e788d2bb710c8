//go:build gvisor

package agent_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	execv1 "atoll/node/gen/execv1"
)

// With the tag `gvisor` every test of this package drives an agent that is PID 1 of a gVisor container: the machine's own root, read-only
// with a memory overlay. It needs our runsc (node/runsc/build.sh).

func runscPath(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("ATOLL_CACHE")
	if cache == "" {
		cache = "/var/cache/atoll"
	}
	found, _ := filepath.Glob(filepath.Join(cache, "runsc", "*", "runsc"))
	if len(found) == 0 {
		t.Fatalf("no runsc in %s/runsc: run node/runsc/build.sh", cache)
	}
	return found[0]
}

func (b *box) runsc(args ...string) *exec.Cmd {
	return exec.Command(runscPath(b.t), append([]string{"--root", filepath.Join(b.home, ".runsc"), "--network=none", "--overlay2=root:memory",
		"--allow-suid", "--sidecar-usage-policy=STRICT"}, args...)...)
}

// containerID has a fixed length: runsc matches ids by prefix.
func (b *box) containerID() string { return "agenttest" + hex.EncodeToString(b.key[:8]) }

// memoryBytes of the container; gVisor shows it as MemTotal.
const memoryBytes = 256 << 20

func (b *box) launch(stdin, stdout *os.File) {
	b.t.Helper()
	bundle := b.t.TempDir()
	capabilities := []string{"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
		"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"}
	type m = map[string]any
	spec, err := json.Marshal(m{
		"ociVersion": "1.0.0",
		"process": m{
			"user": m{"uid": 0, "gid": 0}, "cwd": "/", "args": []string{agentBinary, "-meminfo", b.meminfo},
			"env":          []string{"ATOLL_FRAME_KEY=" + hex.EncodeToString(b.key[:]), "PATH=" + os.Getenv("PATH")},
			"capabilities": m{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
		},
		"root": m{"path": "/", "readonly": false}, "hostname": "box",
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs"},
		},
		"linux": m{
			"cgroupsPath": "/" + b.containerID(),
			"resources":   m{"memory": m{"limit": memoryBytes, "swap": memoryBytes}},
			"namespaces":  []m{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}},
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.command = b.runsc("run", "--bundle", bundle, b.containerID())
	b.command.Stdin, b.command.Stdout, b.command.Stderr = stdin, stdout, b.log
	if err := b.command.Start(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) shutDown() {
	if out, err := b.runsc("delete", "--force", b.containerID()).CombinedOutput(); err != nil {
		b.t.Errorf("deleting the container: %v: %s", err, out)
	}
	_ = b.command.Wait()
	// A gofer leaves this mount behind.
	_ = unix.Unmount(filepath.Join(b.home, ".runsc", "null-netns"), unix.MNT_DETACH)
}

func (b *box) inside(script string) string {
	b.t.Helper()
	out, err := b.runsc("exec", b.containerID(), "/bin/sh", "-c", script).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
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
	b := startBox(t, "/proc/meminfo")
	b.hello.Limits.MemoryBytes = memoryBytes
	b.sayHello()
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

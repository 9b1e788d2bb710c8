//go:build !gvisor

package agent_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	execv1 "atoll/node/gen/execv1"
)

// launch starts the agent as a process of this machine, with a host name and an /etc/hosts of its own.
func (b *box) launch(stdin, stdout *os.File) {
	b.t.Helper()
	hosts := filepath.Join(b.t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.command = exec.Command("/bin/sh", "-c", `mount --bind "$1" /etc/hosts && shift && exec "$@"`, "sh", hosts, agentBinary, "-memory", b.meminfo)
	b.command.Env = []string{"ATOLL_FRAME_KEY=" + hex.EncodeToString(b.key[:]), "PATH=" + os.Getenv("PATH")}
	b.command.Stdin, b.command.Stdout, b.command.Stderr = stdin, stdout, b.log
	b.command.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS, Unshareflags: unix.CLONE_NEWNS}
	if err := b.command.Start(); err != nil {
		b.t.Fatal(err)
	}
}

// ownLimits are what a sandbox of these tests has.
func ownLimits() *execv1.Limits { return &execv1.Limits{MaxProcesses: 256} }

func (b *box) shutDown() {
	_ = b.command.Process.Kill()
	<-b.gone
	// The inner tree goes with the agent; what is left over names its home.
	b.eventually("every process of the sandbox has ended", func() error {
		for pid, text := range b.machine("environ") {
			if strings.Contains(text, "HOME="+b.home+"\x00") {
				return fmt.Errorf("left over: %d", pid)
			}
		}
		return nil
	})
}

// machine reads a file of every process of this machine.
func (b *box) machine(file string) map[int]string {
	entries, _ := os.ReadDir("/proc")
	found := map[int]string{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if text, err := os.ReadFile("/proc/" + entry.Name() + "/" + file); err == nil {
			found[pid] = string(text)
		}
	}
	return found
}

// alive says whether a process whose command line holds text runs in the box.
func (b *box) alive(text string) bool {
	for _, line := range b.machine("cmdline") {
		if strings.Contains(strings.ReplaceAll(line, "\x00", " "), text) {
			return true
		}
	}
	return false
}

// signalInit sends a signal to the inner init from outside: unlike gVisor, Linux protects PID 1 from its own namespace.
func (b *box) signalInit(number unix.Signal) {
	b.t.Helper()
	for pid, stat := range b.machine("stat") {
		fields := bytes.Fields([]byte(stat[strings.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(b.command.Process.Pid) {
			if err := unix.Kill(pid, number); err != nil {
				b.t.Fatal(err)
			}
			return
		}
	}
	b.t.Fatal("the agent has no child")
}

// descriptors counts those of the agent.
func (b *box) descriptors() int {
	b.t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.command.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(names)
}

func (b *box) readFile(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(b.home, name))
	return string(text), err
}

func (b *box) writeFile(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.home, name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) inside(script string) string {
	b.t.Helper()
	out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

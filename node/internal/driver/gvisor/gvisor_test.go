package gvisor_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/driver/drivertest"
	"atoll/node/internal/driver/gvisor"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/net"
	"atoll/node/internal/patience"
	"atoll/node/internal/reap"
)

// reaper is this process's, which has one at most.
var reaper = sync.OnceValues(reap.Start)

func subject(t testing.TB, runsc, runtimes string) drivertest.Subject {
	t.Helper()
	r, err := reaper()
	if err != nil {
		t.Fatal(err)
	}
	files := enginetest.Files(t)
	h := drivertest.Hierarchy(t, fmt.Sprintf("dtg%d", os.Getpid()))
	run := t.TempDir()
	netns := filepath.Join(run, "netns")
	if err := net.Shared(netns); err != nil {
		t.Fatal(err)
	}
	d, err := gvisor.New(gvisor.Options{RunscDir: runsc, RuntimesDir: runtimes, RunDir: run, NetworkNamespace: netns, Reaper: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		if err := errors.Join(d.Unmount(), net.Remove(netns)); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(filepath.Join(run, "runsc"))
		if err != nil || len(left) > 0 {
			t.Errorf("runsc left %v, %v", left, err)
		}
	})
	return drivertest.Subject{Driver: d, Cgroups: h, Image: files.Image("python"), AgentImagePath: files.Agent}
}

func TestGvisorKeepsTheContract(t *testing.T) {
	files := enginetest.Files(t)
	drivertest.Contract(t, func(t *testing.T) drivertest.Subject { return subject(t, files.Runsc, "") })
}

func TestSandboxIsDrivenByTheBuildItWasMadeWith(t *testing.T) {
	files := enginetest.Files(t)
	data := t.TempDir()
	newer, older := otherBuild(t, files.Runsc), keep(t, data, files.Runsc)
	// Kept as well, as an engine does at its start: it is not there twice.
	keep(t, data, newer)
	drivertest.OlderBuild(t, subject(t, newer, gvisor.RuntimesDir(data)), older)
}

// otherBuild is a copy of a build that calls itself another version, of the same length.
func otherBuild(t *testing.T, build string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(build, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(text))
	other := version[:len(version)-1] + "x"
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "gvisor-bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"VERSION", "WORKER", "runsc", "gvisor-bin/gvisor_sentry", "gvisor-bin/gvisor-sentry-prewarmer"} {
		content, err := os.ReadFile(filepath.Join(build, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), bytes.ReplaceAll(content, []byte(version), []byte(other)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWorkerThatCrashesFailsWhatItDidAndNoSandbox(t *testing.T) {
	files := enginetest.Files(t)
	s := subject(t, files.Runsc, "")
	signal := func(signal unix.Signal) func() {
		return func() {
			if err := unix.Kill(worker(t), signal); err != nil {
				t.Fatal(err)
			}
		}
	}
	drivertest.HelperCrash(t, s, signal(unix.SIGSTOP), signal(unix.SIGKILL))
	s.Driver.(*gvisor.Driver).Close()
	if pids := workers(t); len(pids) > 0 {
		t.Errorf("workers left: %v", pids)
	}
}

func TestSnapshotThatDoesNotFitOnTheDiskEndsNoSandbox(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	drivertest.FullDisk(t, subject(t, enginetest.Files(t).Runsc, ""), small)
}

func TestWorkerOfAnOlderBuildEndsWhenItHasNothingToDo(t *testing.T) {
	gvisor.SetWorkerIdle(t, 10*time.Millisecond)
	files := enginetest.Files(t)
	data := t.TempDir()
	older := keep(t, data, files.Runsc)
	s := subject(t, otherBuild(t, files.Runsc), gvisor.RuntimesDir(data))
	gone := func() {
		t.Helper()
		for deadline := time.Now().Add(patience.Of(20 * time.Second)); len(workers(t)) > 0; {
			if time.Now().After(deadline) {
				t.Fatal("a worker that has nothing to do is still there")
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	for range 5 {
		// That there is no such sandbox is the worker's to find out.
		if err := s.Driver.Pause(t.Context(), "box-missing00000000000000000", "", older); err == nil || !strings.Contains(err.Error(), "loading container") {
			t.Fatalf("%v (expected: no such container)", err)
		}
		gone()
	}
	// While it comes and goes, it never fails.
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if err := s.Driver.Pause(t.Context(), "box-missing00000000000000000", "", older); err == nil || !strings.Contains(err.Error(), "loading container") {
					t.Errorf("%v (expected: no such container)", err)
				}
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	group.Wait()
	gone()
}

// TestBuildWithoutAWorkerIsExecuted has the whole contract kept by executing runsc, as builds from before the worker are driven.
func TestBuildWithoutAWorkerIsExecuted(t *testing.T) {
	files := enginetest.Files(t)
	without := t.TempDir()
	if err := errors.Join(os.CopyFS(without, os.DirFS(files.Runsc)), os.Remove(filepath.Join(without, "WORKER"))); err != nil {
		t.Fatal(err)
	}
	drivertest.Contract(t, func(t *testing.T) drivertest.Subject { return subject(t, without, "") })
	if pids := workers(t); len(pids) > 0 {
		t.Errorf("workers %v (expected: none)", pids)
	}
}

func worker(t *testing.T) int {
	t.Helper()
	pids := workers(t)
	if len(pids) != 1 {
		t.Fatalf("workers: %v (expected: one)", pids)
	}
	return pids[0]
}

// workers are this process's, dead ones not among them.
func workers(t *testing.T) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		status, err := os.ReadFile(filepath.Join(path, "status"))
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(path, "cmdline"))
		if err != nil || !strings.HasSuffix(string(line), "\x00worker\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

package reap_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/patience"
	"atoll/node/internal/reap"
)

func TestProcessesAreStartedAwaitedAndKilled(t *testing.T) {
	r, err := reap.Start()
	if err != nil {
		t.Fatal(err)
	}
	shell := func(script string) reap.Command {
		return reap.Command{Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(), Dir: "/", Files: []*os.File{nil, nil, nil}}
	}
	if status, err := r.Run(t.Context(), shell("exit 3")); err != nil || status.ExitStatus() != 3 {
		t.Errorf("%v, %v (expected: exit status 3)", status, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Run(ctx, shell("exec sleep 1000")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v (expected: the deadline)", err)
	}
	if _, err := r.Start(reap.Command{Path: "/no/such/file", Files: []*os.File{nil, nil, nil}}); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("%v (expected: an error that names the file)", err)
	}

	running, err := r.Start(shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if status, ended, err := running.Kill(); err != nil || ended || status.Signal() != unix.SIGKILL {
		t.Errorf("%v, %v, %v (expected: killed)", status, ended, err)
	}
	if err := unix.Kill(running.Pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("%v (expected: no such process)", err)
	}

	done, err := r.Start(shell("exit 4"))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience.Of(10 * time.Second)); unix.Kill(done.Pid, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
		<-time.After(time.Millisecond)
	}
	// It is reaped, but may not be told yet.
	for deadline := time.Now().Add(patience.Of(10 * time.Second)); len(done.Status) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("its end is not told")
		}
		<-time.After(time.Millisecond)
	}
	if status, ended, err := done.Kill(); err != nil || !ended || status.ExitStatus() != 4 {
		t.Errorf("%v, %v, %v (expected: exit status 4, before)", status, ended, err)
	}
}

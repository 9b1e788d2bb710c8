package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/patience"
)

// dieAt has the engine end itself at a step of something, and starts it again.
func dieAt(t *testing.T, e *enginetest.Engine, step string, do func(ctx context.Context) error) {
	t.Helper()
	e.Kill()
	e.FailPoints = step + "=kill"
	e.Launch()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(60*time.Second))
	defer cancel()
	err := do(ctx)
	if !e.Ended(patience.Of(30 * time.Second)) {
		t.Fatalf("%s: the engine lives on (the call: %v)", step, err)
	}
	e.Kill()
	e.FailPoints = ""
	e.Launch()
}

func stateOf(t *testing.T, e *enginetest.Engine, box string) enginev1.BoxState {
	t.Helper()
	var state enginev1.BoxState
	enginetest.Await(t, 30*time.Second, func() (bool, string) {
		b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box})
		state = b.GetState()
		return err == nil && (state == enginev1.BoxState_BOX_STATE_READY || state == enginev1.BoxState_BOX_STATE_PAUSED), fmt.Sprint(b, err)
	})
	return state
}

func TestEngineKilledAtEachStepOfPauseAndResumeLosesNoSandbox(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "n = 0\nimport threading, time\nticks = 0\ndef tick():\n  global ticks\n  while True:\n    ticks += 1; time.sleep(0.01)\nthreading.Thread(target=tick, daemon=True).start()")
	for i, step := range append(failpoint.Of("pause"), failpoint.Of("resume")...) {
		pausing := slices.Contains(failpoint.Of("pause"), step)
		if !pausing {
			box.Pause(t.Context())
		}
		dieAt(t, e, step, func(ctx context.Context) error {
			var err error
			if pausing {
				_, err = e.PauseBox(ctx, &enginev1.PauseBoxRequest{BoxId: box.Box, SnapshotId: enginetest.NewID("snap")})
			} else {
				_, err = e.ResumeBox(ctx, &enginev1.ResumeBoxRequest{BoxId: box.Box})
			}
			return err
		})
		state := stateOf(t, e, box.Box)
		t.Logf("%s: %v", step, state)
		if state == enginev1.BoxState_BOX_STATE_PAUSED {
			box.Resume(t.Context())
		}
		wantOutput(t, box.Run(t.Context(), "n += 1\nbefore = ticks\ntime.sleep(0.2)\nprint(n, ticks > before)"), fmt.Sprintf("%d True\n", i+1))
	}
	box.Delete(t.Context())
	wantNoBoxes(t, e)
}

func TestEngineKilledAtEachStepOfRestoreAndRollbackLeavesNothingHalf(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "n = 0")
	s := box.Snapshot(t.Context(), memorySnapshot)
	for _, step := range append(append(failpoint.Of("restore"), failpoint.Of("rollback")...), failpoint.Of("snapshot")...) {
		fork, made := enginetest.NewID("box"), enginetest.NewID("snap")
		dieAt(t, e, step, func(ctx context.Context) error {
			var err error
			switch {
			case slices.Contains(failpoint.Of("restore"), step):
				_, err = e.RestoreBox(ctx, &enginev1.RestoreBoxRequest{BoxId: fork, SnapshotId: s.GetSnapshotId()})
			case slices.Contains(failpoint.Of("rollback"), step):
				_, err = e.RollbackBox(ctx, &enginev1.RollbackBoxRequest{BoxId: box.Box, SnapshotId: s.GetSnapshotId()})
			default:
				_, err = e.CreateSnapshot(ctx, &enginev1.CreateSnapshotRequest{BoxId: box.Box, SnapshotId: made, Kind: memorySnapshot})
			}
			return err
		})
		if state := stateOf(t, e, box.Box); state != enginev1.BoxState_BOX_STATE_READY {
			t.Fatalf("%s: %v", step, state)
		}
		wantOutput(t, box.Run(t.Context(), "print(n)"), "0\n")
		if b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: fork}); status.Code(err) != codes.NotFound {
			if step != "restore.saved" {
				t.Fatalf("%s: %v, %v", step, b, err)
			}
			stateOf(t, e, fork)
		}
		if err := e.Remove(t.Context(), fork); err != nil {
			t.Fatal(err)
		}
		if _, err := e.DeleteSnapshot(t.Context(), &enginev1.SnapshotRequest{SnapshotId: made}); err != nil {
			t.Fatal(err)
		}
	}
	box.Delete(t.Context())
	if _, err := e.DeleteSnapshot(t.Context(), &enginev1.SnapshotRequest{SnapshotId: s.GetSnapshotId()}); err != nil {
		t.Fatal(err)
	}
	wantNoBoxes(t, e)
}

// smallDisk is a folder on a disk of its own.
func smallDisk(t *testing.T, megabytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all that is left of a disk, and returns what gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func TestFullDiskCostsThePauseAndNotTheSandbox(t *testing.T) {
	disk := smallDisk(t, 1024)
	e := enginetest.StartIn(t, disk)
	box := e.Python(t.Context())
	box.Run(t.Context(), "n = 0\nimport os\ndata = os.urandom(20 << 20)")
	for i, step := range failpoint.Of("pause") {
		if step == "pause.freed" {
			continue
		}
		path := filepath.Join(t.TempDir(), "go")
		e.Kill()
		e.FailPoints = step + "=hold@" + path
		e.Launch()
		stateOf(t, e, box.Box)
		failed := make(chan error, 1)
		go func() {
			_, err := e.PauseBox(t.Context(), &enginev1.PauseBoxRequest{BoxId: box.Box, SnapshotId: enginetest.NewID("snap")})
			failed <- err
		}()
		enginetest.Await(t, 30*time.Second, func() (bool, string) {
			_, err := os.Stat(path + ".reached")
			return err == nil, step + " is not reached"
		})
		free := fill(t, disk)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := <-failed
		t.Logf("%s: %v", step, err)
		if err != nil {
			wantCode(t, err, codes.ResourceExhausted)
		}
		free()
		e.Kill()
		e.FailPoints = ""
		e.Launch()
		if state := stateOf(t, e, box.Box); state == enginev1.BoxState_BOX_STATE_PAUSED {
			if err != nil {
				t.Fatalf("%s: the pause failed, and the box is paused", step)
			}
			free := fill(t, disk)
			_, err := e.ResumeBox(t.Context(), &enginev1.ResumeBoxRequest{BoxId: box.Box})
			wantCode(t, err, codes.ResourceExhausted)
			free()
			box.Resume(t.Context())
		}
		wantOutput(t, box.Run(t.Context(), "n += 1; print(n, len(data))"), fmt.Sprintf("%d %d\n", i+1, 20<<20))
	}
	free := fill(t, disk)
	_, err := e.PauseBox(t.Context(), &enginev1.PauseBoxRequest{BoxId: box.Box, SnapshotId: enginetest.NewID("snap")})
	wantCode(t, err, codes.ResourceExhausted)
	_, err = e.CreateSnapshot(t.Context(), &enginev1.CreateSnapshotRequest{BoxId: box.Box, SnapshotId: enginetest.NewID("snap"), Kind: memorySnapshot})
	wantCode(t, err, codes.ResourceExhausted)
	if err := e.Remove(t.Context(), box.Box); err != nil {
		t.Fatalf("a full disk is in the way of a deletion: %v", err)
	}
	free()
	wantNoBoxes(t, e)
}

// The engine dies at any moment of a pause, also while the sandbox is being written.
func TestEngineKilledInTheMiddleOfWritingLosesNoSandbox(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "import os\nn = 0\ndata = os.urandom(60 << 20)")
	for i := range 16 {
		called := make(chan struct{})
		go func() {
			defer close(called)
			_, _ = e.PauseBox(t.Context(), &enginev1.PauseBoxRequest{BoxId: box.Box, SnapshotId: enginetest.NewID("snap")})
		}()
		enginetest.Await(t, 30*time.Second, func() (bool, string) {
			b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
			return err == nil && b.GetState() != enginev1.BoxState_BOX_STATE_READY, fmt.Sprint(b, err)
		})
		// Wherever that is.
		<-time.After(time.Duration(i*i) * 2 * time.Millisecond)
		e.Kill()
		<-called
		e.Launch()
		began := time.Now()
		state := stateOf(t, e, box.Box)
		t.Logf("%v after %v", state, time.Since(began))
		if state == enginev1.BoxState_BOX_STATE_PAUSED {
			box.Resume(t.Context())
		}
		wantOutput(t, box.Run(t.Context(), "n += 1; print(n, len(data))"), fmt.Sprintf("%d %d\n", i+1, 60<<20))
	}
	box.Delete(t.Context())
	wantNoBoxes(t, e)
}

package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
	"atoll/node/internal/patience"
)

// Subject is a driver under test.
type Subject struct {
	Driver                driver.Driver
	Cgroups               cgroup.Hierarchy
	Image, AgentImagePath string
}

type sandbox struct {
	spec  driver.Spec
	key   [32]byte
	group cgroup.Group
	pid   int
}

const (
	firstID  = "box-aaaaaaaaaaaaaaaaaaaaaaaaaa"
	secondID = "box-bbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func (s Subject) make(t testing.TB, id string) *sandbox {
	t.Helper()
	group, err := s.Cgroups.Create(id, cgroup.Limits{MemoryBytes: 304 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := &sandbox{group: group}
	_, _ = rand.Read(b.key[:])
	dir := filepath.Join(t.TempDir(), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.spec = driver.Spec{
		ID: id, Dir: dir, ImagePath: s.Image, AgentImagePath: s.AgentImagePath, CgroupPath: group.Path(),
		DiskBytes: 64 << 20, ShmBytes: 16 << 20, MaxOpenFiles: 65536, Hostname: "sandbox",
		AgentEnv: []string{"ATOLL_FRAME_KEY=" + hex.EncodeToString(b.key[:])},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience.Of(10*time.Second))
		defer cancel()
		if err := errors.Join(s.Driver.Delete(ctx, id, b.spec.Build), group.Remove(ctx)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// prepared is a sandbox that nothing runs in yet.
func (s Subject) prepared(t testing.TB, id string, change ...func(*driver.Spec)) *sandbox {
	t.Helper()
	b := s.make(t, id)
	for _, f := range change {
		f(&b.spec)
	}
	pid, err := s.Driver.Prepare(t.Context(), b.spec)
	b.check(t, err)
	b.pid = pid
	return b
}

func (s Subject) start(t testing.TB, id string, change ...func(*driver.Spec)) *sandbox {
	t.Helper()
	b := s.prepared(t, id, change...)
	b.check(t, s.Driver.Launch(t.Context(), id, b.spec.Dir, b.spec.Build))
	return b
}

// check fails the test with what the sandbox said.
func (b *sandbox) check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v; log: %s", err, driver.Tail(filepath.Join(b.spec.Dir, driver.StderrName), 2048))
	}
}

// hello fails the test if the agent does not answer.
func (b *sandbox) hello(t testing.TB, epoch uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(20*time.Second))
	defer cancel()
	session, err := Dial(ctx, b.spec.Dir, b.key, epoch)
	b.check(t, err)
	session.Close()
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

// Contract runs the suite. Each subtest gets a fresh subject.
func Contract(t *testing.T, subject func(t *testing.T) Subject) {
	t.Run("StartedAgentAnswersOnItsPipes", func(t *testing.T) {
		subject(t).start(t, firstID).hello(t, 1)
	})
	t.Run("AgentAnswersAgainOverNewPipeEnds", func(t *testing.T) {
		b := subject(t).start(t, firstID)
		for epoch := range uint64(3) {
			b.hello(t, epoch+1)
		}
	})
	t.Run("SandboxIsInItsGroup", func(t *testing.T) {
		b := subject(t).start(t, firstID)
		b.hello(t, 1)
		pids, err := b.group.Pids()
		if err != nil || !slices.Contains(pids, b.pid) {
			t.Fatalf("%v, %v (expected: %d among them)", pids, err, b.pid)
		}
	})
	t.Run("DeleteEndsTheSandboxAndKeepsTheGroup", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		if ids, err := s.Driver.List(); err != nil || !slices.Equal(ids, []string{firstID}) {
			t.Fatalf("%v, %v (expected: the one)", ids, err)
		}
		if err := s.Driver.Delete(t.Context(), firstID, ""); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool { return !alive(b.pid) })
		if ids, err := s.Driver.List(); err != nil || len(ids) != 0 {
			t.Fatalf("%v, %v (expected: none)", ids, err)
		}
		if !b.group.Exists() {
			t.Fatal("the group is gone, and with it why the sandbox ended")
		}
		if err := s.Driver.Delete(t.Context(), firstID, ""); err != nil {
			t.Fatalf("deleting again: %v", err)
		}
	})
	t.Run("EndOfTheProcessIsTheEndOfTheSandbox", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		if err := unix.Kill(b.pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool {
			pids, err := b.group.Pids()
			return err == nil && len(pids) == 0
		})
		if err := s.Driver.Delete(t.Context(), firstID, ""); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("DeleteOfOneLeavesTheOther", func(t *testing.T) {
		s := subject(t)
		s.start(t, firstID)
		other := s.start(t, secondID)
		if err := s.Driver.Delete(t.Context(), firstID, ""); err != nil {
			t.Fatal(err)
		}
		other.hello(t, 1)
	})
	t.Run("FailedStartLeavesNothingAfterDelete", func(t *testing.T) {
		s := subject(t)
		b := s.make(t, firstID)
		b.spec.ImagePath = filepath.Join(t.TempDir(), "missing.erofs")
		if _, err := s.Driver.Prepare(t.Context(), b.spec); err == nil {
			t.Fatal("a sandbox was started without an image")
		}
		if err := s.Driver.Delete(t.Context(), firstID, ""); err != nil {
			t.Fatal(err)
		}
		if ids, err := s.Driver.List(); err != nil || len(ids) != 0 {
			t.Fatalf("%v, %v (expected: none)", ids, err)
		}
		if pids, err := b.group.Pids(); err != nil || len(pids) != 0 {
			t.Fatalf("%v, %v (expected: no process)", pids, err)
		}
	})
	t.Run("DiskThatIsUsedIsKnown", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		b.hello(t, 1)
		if used, err := s.Driver.DiskUsed(b.spec.Dir, b.pid, b.spec.Build); err != nil || used > 64<<20 {
			t.Fatalf("%d bytes, %v (expected: at most the disk's size)", used, err)
		}
	})
	if t.Run("WhatItCantDoIsRefused", func(t *testing.T) { refusals(t, subject(t)) }); subject(t).Driver.Can(driver.MemorySnapshots, "") {
		snapshots(t, subject)
	}
	t.Run("CancelledStartLeavesNothingAfterDelete", func(t *testing.T) {
		s := subject(t)
		b := s.make(t, firstID)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Driver.Prepare(ctx, b.spec); err == nil {
			t.Fatal("a cancelled start succeeded")
		}
		if err := s.Driver.Delete(t.Context(), firstID, ""); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), patience.Of(5*time.Second))
		defer stop()
		if err := b.group.Remove(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// refusals checks that a driver says the same of what it can't do before and when it is asked.
func refusals(t *testing.T, s Subject) {
	b := s.start(t, firstID)
	b.hello(t, 1)
	image := filepath.Join(t.TempDir(), "image")
	asked := map[driver.Ability][]func() error{
		driver.MemorySnapshots: {
			func() error { return s.Driver.Pause(t.Context(), firstID, b.spec.Dir, b.spec.Build) },
			func() error { return s.Driver.Resume(t.Context(), firstID, b.spec.Dir, b.spec.Build) },
			func() error { return s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, b.spec.Build, image) },
			func() error { return s.Driver.Restore(t.Context(), firstID, b.spec.Dir, b.spec.Build, image) },
		},
		driver.FilesSnapshots: {
			func() error { return s.Driver.CheckpointFiles(t.Context(), firstID, b.spec.Dir, b.spec.Build, image) },
			func() error {
				other := s.make(t, secondID)
				other.spec.FilesFrom = image
				_, err := s.Driver.Prepare(t.Context(), other.spec)
				return err
			},
		},
	}
	asked[driver.Export] = []func() error{
		func() error {
			return s.Driver.ExportChanges(t.Context(), firstID, b.spec.Dir, b.spec.Build, io.Discard)
		},
	}
	for ability, calls := range asked {
		if s.Driver.Can(ability, "") {
			continue
		}
		for _, call := range calls {
			if err := call(); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("%s: %v (expected: %v)", ability, err, driver.ErrUnsupported)
			}
		}
	}
	b.hello(t, 2)
}

func await(t testing.TB, condition func() bool) {
	t.Helper()
	within := patience.Of(5 * time.Second)
	for deadline := time.Now().Add(within); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v", within)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// Hierarchy is the host's, for one test, and must be empty at its end.
func Hierarchy(t testing.TB, instance string) cgroup.Hierarchy {
	t.Helper()
	h, err := cgroup.Detect(cgroup.Root, instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if boxes, err := h.Boxes(); err != nil || len(boxes) > 0 {
			t.Errorf("groups left behind: %v, %v", boxes, err)
		}
		if err := h.Remove(); err != nil {
			t.Error(err)
		}
	})
	return h
}

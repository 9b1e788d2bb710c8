//go:build cgroup2

package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// These tests make trees of their own, which version 1 does not have. node/test/vm runs them on a kernel with version 2.

// groupWithProcess is an ordinary group with a process in it, as a container's root is.
func groupWithProcess(t *testing.T) (string, *child) {
	t.Helper()
	if err := (&v2{root: Root}).delegate(Root); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(Root, fmt.Sprintf("container-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := removeDir(ctx, dir, func() error { return write(dir, "cgroup.kill", "1") }); err != nil {
			t.Error(err)
		}
	})
	return dir, startChild(t, (&v2{root: Root}).Open(filepath.Base(dir)))
}

func TestBoxesFindAPlaceInAGroupThatHasProcesses(t *testing.T) {
	dir, c := groupWithProcess(t)
	c.say("fork 3")
	before, err := readPids(dir)
	if err != nil || len(before) != 4 {
		t.Fatalf("processes %v, %v (expected: the child and three more)", before, err)
	}
	h, err := Detect(dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	g := create(t, h, Limits{MemoryBytes: 64 << 20, CPUMillis: 500, MaxPids: 10})
	if oom, err := g.OutOfMemory(); err != nil || oom.LimitBytes != 64<<20 {
		t.Fatalf("%+v, %v (expected: the limit of 64 MiB)", oom, err)
	}
	startChild(t, g).say("spin 1")
	if pids, err := readPids(dir); err != nil || len(pids) > 0 {
		t.Fatalf("processes %v, %v (expected: moved away)", pids, err)
	}
	if err := g.Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(); err != nil {
		t.Fatal(err)
	}
	after, err := readPids(dir)
	if err != nil || len(after) != len(before) {
		t.Fatalf("processes %v, %v (expected: %v are back)", after, err, before)
	}
	if left, err := subdirectories(dir); err != nil || len(left) > 0 {
		t.Fatalf("groups %v, %v (expected: none)", left, err)
	}
}

func TestAnInstanceThatGoesLeavesTheOthersTheirLimits(t *testing.T) {
	dir, _ := groupWithProcess(t)
	var all []Hierarchy
	for _, instance := range []string{"x", "y"} {
		h, err := Detect(dir, instance)
		if err != nil {
			t.Fatal(err)
		}
		create(t, h, Limits{MemoryBytes: 64 << 20})
		all = append(all, h)
	}
	remove := func(h Hierarchy) {
		if err := h.Open("box-1").Remove(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := h.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	remove(all[0])
	if oom, err := all[1].Open("box-1").OutOfMemory(); err != nil || oom.LimitBytes != 64<<20 {
		t.Fatalf("%+v, %v (expected: the limit of 64 MiB)", oom, err)
	}
	remove(all[1])
}

func TestAKernelThatKillsOneProcessOfABoxKillsAll(t *testing.T) {
	g := create(t, hierarchy(t), Limits{MemoryBytes: 64 << 20})
	idle, greedy := startChild(t, g), startChild(t, g)
	idle.say("spin 1")
	if answer := greedy.say("allocate 128"); answer == "done" {
		t.Fatal("128 MiB were allocated within a limit of 64 MiB")
	}
	if answer := idle.say("spin 1"); answer == "done" {
		t.Fatal("the other process lives on")
	}
	// Its pipe is closed a moment before it has left the group.
	var pids []int
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		if pids, err = g.Pids(); err != nil {
			t.Fatal(err)
		}
		if len(pids) == 0 {
			return
		}
	}
	t.Fatalf("processes %v (expected: none)", pids)
}

// Package cgroup owns the control groups of an instance's boxes, on version 1
// and version 2 behind one interface.
//
// Each box has the group /atoll-<instance>/<box>. The groups are made before
// the runtime starts, so that the runtime neither sets limits in them nor
// removes them: who reads why a box died must find the counters still there.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Root is where every current distribution mounts control groups.
const Root = "/sys/fs/cgroup"

// cpuPeriod is the kernel's default. A shorter one would smooth small quotas
// and cost every box more timer interrupts.
const cpuPeriod = 100 * time.Millisecond

// Limits of one box's group. Zero means no limit.
type Limits struct {
	MemoryBytes uint64
	CPUMillis   uint32
	MaxPids     uint64
}

// OutOfMemory is what the kernel recorded about a group's memory.
type OutOfMemory struct {
	// Kills counts processes the kernel killed for want of memory.
	Kills      uint64
	PeakBytes  uint64
	LimitBytes uint64
}

// Usage of a group at one moment.
type Usage struct {
	// MemoryBytes without what the kernel gives up at once when memory is short: contents of files that nobody has used lately.
	MemoryBytes uint64
	PeakBytes   uint64
	CPU         time.Duration
	// Throttled is time in which the CPU limit held it up.
	Throttled time.Duration
	// Pids counts the host's threads, Processes its processes. A sandbox's runtime has some of its own.
	Pids      uint64
	Processes uint64
}

// Hierarchy makes and finds the groups of one instance.
type Hierarchy interface {
	// Version is 1 or 2.
	Version() int
	// Create makes the group of a box and sets its limits. The group must not exist.
	Create(box string, limits Limits) (Group, error)
	// Open names a box's group, whether it exists or not.
	Open(box string) Group
	// Boxes lists the groups that exist.
	Boxes() ([]string, error)
	// Remove removes the instance's own group. Requires: no box is left in it.
	Remove() error
}

// Group is one box's group.
type Group interface {
	// Path as the OCI specification wants it.
	Path() string
	Exists() bool
	// Add moves a process into the group; its later children are born there.
	Add(pid int) error
	// Set changes the limits of a running box.
	Set(limits Limits) error
	// OutOfMemory reads what the kernel recorded. It must be asked before Remove.
	OutOfMemory() (OutOfMemory, error)
	Usage() (Usage, error)
	// Pids are the host processes in the group.
	Pids() ([]int, error)
	// Remove kills what is left in the group and removes it. Succeeds if there is none.
	Remove(ctx context.Context) error
}

// Detect finds out which version the host uses, and answers for the groups of one instance.
func Detect(root, instance string) (Hierarchy, error) {
	parent := "atoll-" + instance
	if fileExists(filepath.Join(root, "cgroup.controllers")) {
		return newV2(root, parent)
	}
	return newV1(root, parent)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func write(dir, file, value string) error {
	// Not os.WriteFile: a group's file must exist already, and creating one in a
	// folder that is no group would hide the mistake.
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("writing %q: %w", value, err)
	}
	return nil
}

func readUint(dir, file string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s/%s: %q (expected: a number)", dir, file, text)
	}
	return n, nil
}

// readKey finds "key value" in a flat-keyed file.
func readKey(dir, file, key string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && name == key {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s/%s has no %q", dir, file, key)
}

// lessInactive is memory in use less what is only cached.
func lessInactive(dir, key string, current uint64) (uint64, error) {
	inactive, err := readKey(dir, "memory.stat", key)
	if err != nil {
		return 0, err
	}
	return current - min(inactive, current), nil
}

func countProcesses(dir string) (uint64, error) {
	pids, err := readPids(dir)
	return uint64(len(pids)), err
}

func readPids(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%s/cgroup.procs: %q (expected: a process id)", dir, field)
		}
		// 0 stands for a process of another pid namespace, which cannot be a box's.
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// removeDir kills what is in a group until it can be removed.
func removeDir(ctx context.Context, dir string, kill func() error) error {
	for wait := time.Millisecond; ; wait = min(wait*2, 50*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing group %s: %w", dir, err)
		}
		if err := kill(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			pids, _ := readPids(dir)
			return fmt.Errorf("removing group %s: still busy (processes %v): %w", dir, pids, ctx.Err())
		case <-time.After(wait):
		}
	}
}

func killAll(dir string) error {
	pids, err := readPids(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing process %d of group %s: %w", pid, dir, err)
		}
	}
	return nil
}

func subdirectories(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

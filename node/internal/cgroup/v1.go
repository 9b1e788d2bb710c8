package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// v1Limits are the controllers that limit a box.
var v1Limits = []string{"memory", "cpu", "pids"}

// v1 has one folder tree per controller. The runtime makes the box's folder in
// the controllers that are not named in v1Limits too, and removes the leaf when
// the container is deleted; the parents, and all after a crash, are ours.
type v1 struct {
	root, parent string
	// All mounted controllers.
	controllers []string
}

func newV1(root, parent string) (*v1, error) {
	names, err := subdirectories(root)
	if err != nil {
		return nil, fmt.Errorf("control groups: %w", err)
	}
	h := &v1{root: root, parent: parent}
	for _, name := range names {
		if fileExists(filepath.Join(root, name, "cgroup.procs")) && !fileExists(filepath.Join(root, name, "cgroup.controllers")) {
			h.controllers = append(h.controllers, name)
		}
	}
	for _, needed := range v1Limits {
		if !fileExists(filepath.Join(root, needed, "cgroup.procs")) {
			return nil, fmt.Errorf("control groups: the %s controller is not mounted under %s (remedy: boot with cgroup v2, or mount it)", needed, root)
		}
	}
	return h, nil
}

func (h *v1) Version() int { return 1 }

func (h *v1) Create(box string, limits Limits) (Group, error) {
	g := &v1Group{h: h, box: box}
	for _, controller := range v1Limits {
		if err := os.MkdirAll(filepath.Join(h.root, controller, h.parent), 0o755); err != nil {
			return nil, fmt.Errorf("making group: %w", err)
		}
		if err := os.Mkdir(g.dir(controller), 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("making group: %w", err), g.Remove(context.Background()))
		}
	}
	if err := g.Set(limits); err != nil {
		return nil, errors.Join(err, g.Remove(context.Background()))
	}
	return g, nil
}

func (h *v1) Open(box string) Group { return &v1Group{h: h, box: box} }

func (h *v1) Boxes() ([]string, error) {
	seen := map[string]bool{}
	var boxes []string
	for _, controller := range h.controllers {
		names, err := subdirectories(filepath.Join(h.root, controller, h.parent))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				boxes = append(boxes, name)
			}
		}
	}
	return boxes, nil
}

func (h *v1) Remove() error {
	for _, controller := range h.controllers {
		dir := filepath.Join(h.root, controller, h.parent)
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing group %s: %w", dir, err)
		}
	}
	return nil
}

type v1Group struct {
	h   *v1
	box string
	// Setting memory needs a fixed order of two files; two setters must not mix.
	mu sync.Mutex
}

func (g *v1Group) dir(controller string) string {
	return filepath.Join(g.h.root, controller, g.h.parent, g.box)
}

func (g *v1Group) Path() string { return "/" + g.h.parent + "/" + g.box }

func (g *v1Group) Exists() bool { return fileExists(g.dir("memory")) }

func (g *v1Group) Add(pid int) error {
	for _, controller := range v1Limits {
		if err := write(g.dir(controller), "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("moving process %d into a group: %w", pid, err)
		}
	}
	return nil
}

func (g *v1Group) Set(limits Limits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.setMemory(limits.MemoryBytes); err != nil {
		return fmt.Errorf("setting the memory limit: %w", err)
	}
	quota := "-1"
	if limits.CPUMillis > 0 {
		quota = strconv.FormatInt(cpuPeriod.Microseconds()*int64(limits.CPUMillis)/1000, 10)
	}
	if err := write(g.dir("cpu"), "cpu.cfs_quota_us", quota); err != nil {
		return fmt.Errorf("setting the CPU limit: %w", err)
	}
	pids := "max"
	if limits.MaxPids > 0 {
		pids = strconv.FormatUint(limits.MaxPids, 10)
	}
	if err := write(g.dir("pids"), "pids.max", pids); err != nil {
		return fmt.Errorf("setting the process limit: %w", err)
	}
	return nil
}

// setMemory sets memory, and memory with swap, to the same value: no swap. The
// kernel demands memory <= memory with swap at each step, so raising starts
// with the second and lowering with the first.
func (g *v1Group) setMemory(bytes uint64) error {
	dir := g.dir("memory")
	value := "-1"
	if bytes > 0 {
		value = strconv.FormatUint(bytes, 10)
	}
	before, err := readUint(dir, "memory.limit_in_bytes")
	if err != nil {
		return err
	}
	files := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	if bytes == 0 || bytes > before {
		files = []string{"memory.memsw.limit_in_bytes", "memory.limit_in_bytes"}
	}
	for _, file := range files {
		err := write(dir, file, value)
		// A kernel without swap accounting lacks the second file.
		if err != nil && !(file == "memory.memsw.limit_in_bytes" && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

func (g *v1Group) OutOfMemory() (OutOfMemory, error) {
	dir := g.dir("memory")
	kills, err := readKey(dir, "memory.oom_control", "oom_kill")
	if err != nil {
		return OutOfMemory{}, err
	}
	peak, err := readUint(dir, "memory.max_usage_in_bytes")
	if err != nil {
		return OutOfMemory{}, err
	}
	limit, err := readUint(dir, "memory.limit_in_bytes")
	if err != nil {
		return OutOfMemory{}, err
	}
	return OutOfMemory{Kills: kills, PeakBytes: peak, LimitBytes: limit}, nil
}

func (g *v1Group) Usage() (Usage, error) {
	dir := g.dir("memory")
	current, err := readUint(dir, "memory.usage_in_bytes")
	if err != nil {
		return Usage{}, err
	}
	if current, err = lessInactive(dir, "total_inactive_file", current); err != nil {
		return Usage{}, err
	}
	peak, err := readUint(dir, "memory.max_usage_in_bytes")
	if err != nil {
		return Usage{}, err
	}
	// In nanoseconds.
	throttled, err := readKey(g.dir("cpu"), "cpu.stat", "throttled_time")
	if err != nil {
		return Usage{}, err
	}
	processes, err := countProcesses(g.dir("pids"))
	if err != nil {
		return Usage{}, err
	}
	pids, err := readUint(g.dir("pids"), "pids.current")
	if err != nil {
		return Usage{}, err
	}
	// The runtime joins cpuacct as well where it is mounted; without it the
	// box's CPU time stays 0.
	cpu, err := readUint(g.dir("cpuacct"), "cpuacct.usage")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Usage{}, err
	}
	return Usage{
		MemoryBytes: current, PeakBytes: peak, CPU: time.Duration(cpu), Throttled: time.Duration(throttled), Pids: pids, Processes: processes,
	}, nil
}

func (g *v1Group) Pids() ([]int, error) {
	seen := map[int]bool{}
	var all []int
	for _, controller := range g.h.controllers {
		pids, err := readPids(g.dir(controller))
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			if !seen[pid] {
				seen[pid] = true
				all = append(all, pid)
			}
		}
	}
	return all, nil
}

func (g *v1Group) Remove(ctx context.Context) error {
	var failures []error
	for _, controller := range g.h.controllers {
		dir := g.dir(controller)
		failures = append(failures, removeDir(ctx, dir, func() error { return killAll(dir) }))
	}
	return errors.Join(failures...)
}

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var v2Controllers = []string{"cpu", "memory", "pids"}

// v2 is the unified hierarchy.
type v2 struct {
	root, parent string
}

func newV2(root, parent string) (*v2, error) {
	available, err := controllersIn(root, "cgroup.controllers")
	if err != nil {
		return nil, fmt.Errorf("control groups: %w", err)
	}
	for _, needed := range v2Controllers {
		if !slices.Contains(available, needed) {
			return nil, fmt.Errorf("control groups: the %s controller is not available in %s (found: %s)", needed, root, strings.Join(available, " "))
		}
	}
	return &v2{root: root, parent: parent}, nil
}

func controllersIn(dir, file string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(b)), nil
}

func (h *v2) Version() int { return 2 }

func (h *v2) Create(box string, limits Limits) (Group, error) {
	parent := filepath.Join(h.root, h.parent)
	if err := h.delegate(h.root); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("making group: %w", err)
	}
	if err := h.delegate(parent); err != nil {
		return nil, err
	}
	g := &v2Group{h: h, box: box}
	if err := os.Mkdir(g.dir(), 0o755); err != nil {
		return nil, fmt.Errorf("making group: %w", err)
	}
	err := g.Set(limits)
	if err == nil {
		// Half a sandbox is no sandbox: a kernel that kills one process of it kills all.
		err = write(g.dir(), "memory.oom.group", "1")
	}
	if err != nil {
		return nil, errors.Join(err, g.Remove(context.Background()))
	}
	return g, nil
}

// delegate lets the children of a group have limits.
func (h *v2) delegate(dir string) error {
	enabled, err := controllersIn(dir, "cgroup.subtree_control")
	if err != nil {
		return fmt.Errorf("delegating controllers: %w", err)
	}
	var missing []string
	for _, controller := range v2Controllers {
		if !slices.Contains(enabled, controller) {
			missing = append(missing, "+"+controller)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	value := strings.Join(missing, " ")
	err = write(dir, "cgroup.subtree_control", value)
	// A few rounds, since the processes may start others meanwhile.
	for round := 0; errors.Is(err, unix.EBUSY) && round < 10; round++ {
		// In a container the root of our cgroup namespace is an ordinary group with
		// processes in it, and such a group can't have children with limits. Its
		// processes (the container's own) move into a leaf first.
		if err := moveProcesses(dir, filepath.Join(dir, restName)); err != nil {
			return fmt.Errorf("delegating controllers in %s: %w", dir, err)
		}
		err = write(dir, "cgroup.subtree_control", value)
	}
	if err != nil {
		return fmt.Errorf("delegating controllers in %s: %w", dir, err)
	}
	return nil
}

// restName is the leaf for processes that were in the root of our cgroup namespace.
const restName = "atoll-rest"

func moveProcesses(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	pids, err := readPids(from)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := write(to, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("moving process %d to %s: %w", pid, to, err)
		}
	}
	return nil
}

// giveBack undoes what delegate did to the processes in the root, once no instance needs it.
func (h *v2) giveBack() error {
	rest := filepath.Join(h.root, restName)
	children, err := subdirectories(h.root)
	if err != nil || !slices.Equal(children, []string{restName}) {
		return err
	}
	enabled, err := controllersIn(h.root, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	if len(enabled) > 0 {
		if err := write(h.root, "cgroup.subtree_control", "-"+strings.Join(enabled, " -")); err != nil {
			return fmt.Errorf("giving controllers back to %s: %w", h.root, err)
		}
	}
	for round := 0; ; round++ {
		if err := moveProcesses(rest, h.root); err != nil {
			return err
		}
		if err := os.Remove(rest); err == nil || round == 10 {
			return err
		}
	}
}

func (h *v2) Open(box string) Group { return &v2Group{h: h, box: box} }

func (h *v2) Boxes() ([]string, error) { return subdirectories(filepath.Join(h.root, h.parent)) }

func (h *v2) Remove() error {
	dir := filepath.Join(h.root, h.parent)
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing group %s: %w", dir, err)
	}
	return h.giveBack()
}

type v2Group struct {
	h   *v2
	box string
}

func (g *v2Group) dir() string { return filepath.Join(g.h.root, g.h.parent, g.box) }

func (g *v2Group) Path() string { return "/" + g.h.parent + "/" + g.box }

func (g *v2Group) Exists() bool { return fileExists(g.dir()) }

func (g *v2Group) Add(pid int) error {
	if err := write(g.dir(), "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("moving process %d into a group: %w", pid, err)
	}
	return nil
}

func v2Value(n uint64) string {
	if n == 0 {
		return "max"
	}
	return strconv.FormatUint(n, 10)
}

func (g *v2Group) Set(limits Limits) error {
	if err := g.setMemory(limits.MemoryBytes); err != nil {
		return fmt.Errorf("setting the memory limit: %w", err)
	}
	// A kernel built without swap has no such file, and nothing to forbid.
	if err := write(g.dir(), "memory.swap.max", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forbidding swap: %w", err)
	}
	quota := "max"
	if limits.CPUMillis > 0 {
		quota = strconv.FormatInt(cpuPeriod.Microseconds()*int64(limits.CPUMillis)/1000, 10)
	}
	if err := write(g.dir(), "cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod.Microseconds())); err != nil {
		return fmt.Errorf("setting the CPU limit: %w", err)
	}
	if err := write(g.dir(), "pids.max", v2Value(limits.MaxPids)); err != nil {
		return fmt.Errorf("setting the process limit: %w", err)
	}
	return nil
}

// setMemory refuses a limit that the box can't be brought below, as version 1
// does: the kernel would take it, and kill the box to keep it.
func (g *v2Group) setMemory(bytes uint64) error {
	current, err := readUint(g.dir(), "memory.current")
	if err != nil {
		return err
	}
	if bytes > 0 && current > bytes {
		// Above "high" nobody is killed; the kernel takes back what it can, and is done when the write returns.
		err := write(g.dir(), "memory.high", v2Value(bytes))
		defer func() { _ = write(g.dir(), "memory.high", "max") }()
		if err != nil {
			return err
		}
		if current, err = readUint(g.dir(), "memory.current"); err != nil {
			return err
		}
		if current > bytes {
			return fmt.Errorf("%d bytes: %d are in use: %w", bytes, current, unix.EBUSY)
		}
	}
	return write(g.dir(), "memory.max", v2Value(bytes))
}

func (g *v2Group) OutOfMemory() (OutOfMemory, error) {
	kills, err := readKey(g.dir(), "memory.events", "oom_kill")
	if err != nil {
		return OutOfMemory{}, err
	}
	peak, err := g.peak()
	if err != nil {
		return OutOfMemory{}, err
	}
	limit, err := readUint(g.dir(), "memory.max")
	if err != nil {
		return OutOfMemory{}, err
	}
	if kills > 0 && peak == 0 {
		peak = limit
	}
	return OutOfMemory{Kills: kills, PeakBytes: peak, LimitBytes: limit}, nil
}

// peak is 0 on kernels before 5.19, which don't keep it.
func (g *v2Group) peak() (uint64, error) {
	peak, err := readUint(g.dir(), "memory.peak")
	if errors.Is(err, os.ErrNotExist) && g.Exists() {
		return 0, nil
	}
	return peak, err
}

func (g *v2Group) Usage() (Usage, error) {
	current, err := readUint(g.dir(), "memory.current")
	if err != nil {
		return Usage{}, err
	}
	if current, err = lessInactive(g.dir(), "inactive_file", current); err != nil {
		return Usage{}, err
	}
	peak, err := g.peak()
	if err != nil {
		return Usage{}, err
	}
	pids, err := readUint(g.dir(), "pids.current")
	if err != nil {
		return Usage{}, err
	}
	micros, err := readKey(g.dir(), "cpu.stat", "usage_usec")
	if err != nil {
		return Usage{}, err
	}
	throttled, err := readKey(g.dir(), "cpu.stat", "throttled_usec")
	if err != nil {
		return Usage{}, err
	}
	processes, err := countProcesses(g.dir())
	if err != nil {
		return Usage{}, err
	}
	return Usage{
		MemoryBytes: current, PeakBytes: peak, CPU: time.Duration(micros) * time.Microsecond,
		Throttled: time.Duration(throttled) * time.Microsecond, Pids: pids, Processes: processes,
	}, nil
}

func (g *v2Group) Pids() ([]int, error) { return readPids(g.dir()) }

func (g *v2Group) Remove(ctx context.Context) error {
	return removeDir(ctx, g.dir(), func() error {
		err := write(g.dir(), "cgroup.kill", "1")
		if err == nil || errors.Is(err, unix.ENODEV) {
			return nil
		}
		if errors.Is(err, os.ErrNotExist) {
			// Kernels before 5.14.
			return killAll(g.dir())
		}
		return err
	})
}

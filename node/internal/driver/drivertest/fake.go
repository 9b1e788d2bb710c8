// Package drivertest has the promises that every driver keeps, as tests, and a
// driver without isolation that keeps them: what is built on drivers is tested
// with it, and the suite sees to it that the fake does as the real ones do.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
)

// Fake runs the test binary itself as the agent, in the box's control group.
type Fake struct {
	// Dir keeps what a restarted driver must know.
	Dir     string
	Cgroups cgroup.Hierarchy
	// Delay is an agent's start-up time.
	Delay string
}

func (f *Fake) Name() string { return "fake" }

// Version of the runtime.
func (f *Fake) Version() string { return "fake-1" }

func (f *Fake) stateFile(id string) string { return filepath.Join(f.Dir, id+".pid") }

// Start starts an agent.
func (f *Fake) Start(ctx context.Context, spec driver.Spec) (int, error) {
	if _, err := os.Stat(spec.ImagePath); err != nil {
		return 0, err
	}
	pipes, err := driver.MakePipes(spec.Dir)
	if err != nil {
		return 0, err
	}
	defer pipes.Close()
	command := exec.Command("/proc/self/exe")
	command.Env = append([]string{agentVariable + "=1", "ATOLL_FAKE_DELAY=" + f.Delay, "TMPDIR=" + os.TempDir()}, spec.AgentEnv...)
	command.Stdin, command.Stdout, command.Stderr = pipes.Stdin, pipes.Stdout, pipes.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return 0, err
	}
	pid := command.Process.Pid
	// Reaped here; how it ended is of no interest to the tests of the fake.
	go func() { _ = command.Wait() }()
	err = errors.Join(os.WriteFile(f.stateFile(spec.ID), []byte(strconv.Itoa(pid)), 0o600), f.Cgroups.Open(spec.ID).Add(pid), ctx.Err())
	if err != nil {
		return 0, errors.Join(err, f.Delete(context.Background(), spec.ID))
	}
	return pid, nil
}

// Delete ends an agent.
func (f *Fake) Delete(_ context.Context, id string) error {
	text, err := os.ReadFile(f.stateFile(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("state of %s: %w", id, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return os.Remove(f.stateFile(id))
}

// DiskUsed is what the sandbox's own folder "overlay" takes; the fake agent writes there.
func (f *Fake) DiskUsed(dir string, _ int) (used uint64, err error) {
	err = filepath.WalkDir(filepath.Join(dir, "overlay"), func(_ string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			used += uint64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		}
		return err
	})
	return used, err
}

// GuestProcesses of a sandbox without isolation are the host's.
func (f *Fake) GuestProcesses(host uint64) uint64 { return host }

// List names the agents that were started and not deleted.
func (f *Fake) List() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(f.Dir, "*.pid"))
	var ids []string
	for _, path := range paths {
		ids = append(ids, strings.TrimSuffix(filepath.Base(path), ".pid"))
	}
	return ids, err
}

var _ driver.Driver = (*Fake)(nil)

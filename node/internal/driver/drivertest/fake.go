// Package drivertest has the promises that every driver keeps, as tests, and a
// driver without isolation that keeps them: what is built on drivers is tested
// with it, and the suite sees to it that the fake does as the real ones do.
package drivertest

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
)

// Fake runs the test binary itself as the agent, in the box's control group. Its snapshots hold what its agent knows: contexts,
// executions and processes with all they said, and files below /tmp.
type Fake struct {
	// Dir keeps what a restarted driver must know.
	Dir     string
	Cgroups cgroup.Hierarchy
	// Delay is an agent's start-up time.
	Delay string
	// Builds are versions beside the current one that it can drive.
	Builds []string
	// Lacks is what it is to say that it can't do.
	Lacks []driver.Ability
	// Fail is asked before each operation ("prepare", "launch", "restore", "pause", "resume", "checkpoint", "checkpointFiles", "exportChanges",
	// "delete");
	// its error becomes the operation's. It may be nil.
	Fail func(operation, id string) error
}

func (f *Fake) Name() string { return "fake" }

// Version of the runtime.
func (f *Fake) Version() string { return "fake-1" }

// Can says yes, but for what Lacks has.
func (f *Fake) Can(what driver.Ability, _ string) bool { return !slices.Contains(f.Lacks, what) }

// Versions are the current one and Builds.
func (f *Fake) Versions() []string { return append([]string{f.Version()}, f.Builds...) }

func (f *Fake) stateFile(id string) string { return filepath.Join(f.Dir, id+".pid") }

// pausedFile is there while a sandbox is paused, and holds its snapshot.
func (f *Fake) pausedFile(id string) string { return filepath.Join(f.Dir, id+".paused") }

func (f *Fake) begin(operation, id, build string) error {
	if build != "" && !slices.Contains(f.Versions(), build) {
		return fmt.Errorf("no build of the runtime has version %s", build)
	}
	if f.Fail != nil {
		return f.Fail(operation, id)
	}
	return nil
}

// Prepare starts an agent that waits for Launch or Restore.
func (f *Fake) Prepare(ctx context.Context, spec driver.Spec) (int, error) {
	if err := f.begin("prepare", spec.ID, spec.Build); err != nil {
		return 0, err
	}
	if _, err := os.Stat(spec.ImagePath); err != nil {
		return 0, err
	}
	pipes, err := driver.MakePipes(spec.Dir)
	if err != nil {
		return 0, err
	}
	defer pipes.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.control(spec.ID), Net: "unix"})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	control, err := listener.File()
	if err != nil {
		return 0, err
	}
	defer control.Close()
	command := exec.Command("/proc/self/exe")
	command.Env = append([]string{
		agentVariable + "=1", filesVariable + "=" + spec.FilesFrom, buildVariable + "=" + cmp.Or(spec.Build, f.Version()), "ATOLL_FAKE_DELAY=" + f.Delay, "TMPDIR=" + os.TempDir(),
	}, spec.AgentEnv...)
	command.Stdin, command.Stdout, command.Stderr = pipes.Stdin, pipes.Stdout, pipes.Stderr
	command.ExtraFiles = []*os.File{control}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return 0, err
	}
	pid := command.Process.Pid
	// Reaped here; how it ended is of no interest to the tests of the fake.
	go func() { _ = command.Wait() }()
	err = errors.Join(os.WriteFile(f.stateFile(spec.ID), []byte(strconv.Itoa(pid)), 0o600), f.Cgroups.Open(spec.ID).Add(pid), ctx.Err())
	if err != nil {
		return 0, errors.Join(err, f.remove(spec.ID))
	}
	return pid, nil
}

// control is the address of an agent's control socket, which has no file and ends with the agent.
func (f *Fake) control(id string) string {
	digest := sha256.Sum256([]byte(f.Dir + "/" + id))
	return "@atoll-fake-" + hex.EncodeToString(digest[:16])
}

func (f *Fake) ask(ctx context.Context, id string, request controlRequest) (controlReply, error) {
	var reply controlReply
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", f.control(id))
	if err != nil {
		return reply, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	err = errors.Join(json.NewEncoder(c).Encode(request), json.NewDecoder(c).Decode(&reply))
	if err == nil && reply.Error != "" {
		err = errors.New(reply.Error)
	}
	return reply, err
}

// Launch starts the prepared agent.
func (f *Fake) Launch(ctx context.Context, id, _, build string) error {
	if err := f.begin("launch", id, build); err != nil {
		return err
	}
	_, err := f.ask(ctx, id, controlRequest{Operation: "launch"})
	return err
}

// Restore has the prepared agent go on where a snapshot's was.
func (f *Fake) Restore(ctx context.Context, id, _, build, image string) error {
	if err := f.begin("restore", id, build); err != nil {
		return err
	}
	state, err := os.ReadFile(filepath.Join(image, snapshotFiles[0]))
	if err != nil {
		return err
	}
	_, err = f.ask(ctx, id, controlRequest{Operation: "restore", State: state})
	return err
}

func (f *Fake) pid(id string) (int, error) {
	text, err := os.ReadFile(f.stateFile(id))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, fmt.Errorf("state of %s: %w", id, err)
	}
	return pid, nil
}

// Pause stops the agent's process.
func (f *Fake) Pause(ctx context.Context, id, _, build string) error {
	if err := f.begin("pause", id, build); err != nil {
		return err
	}
	pid, err := f.pid(id)
	if err != nil {
		return err
	}
	if _, err := os.Stat(f.pausedFile(id)); err == nil {
		return fmt.Errorf("%s is paused already", id)
	}
	reply, err := f.ask(ctx, id, controlRequest{Operation: "pause"})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(f.pausedFile(id), reply.State, 0o600), unix.Kill(pid, unix.SIGSTOP))
}

// Resume lets the agent's process go on.
func (f *Fake) Resume(ctx context.Context, id, _, build string) error {
	if err := f.begin("resume", id, build); err != nil {
		return err
	}
	pid, err := f.pid(id)
	if err != nil {
		return err
	}
	if err := os.Remove(f.pausedFile(id)); err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		return err
	}
	_, err = f.ask(ctx, id, controlRequest{Operation: "resume"})
	return err
}

var (
	snapshotFiles      = []string{"checkpoint.img", "pages.img", "pages_meta.img"}
	filesSnapshotFiles = []string{"multitar.img", "pages.img", "pages_meta.img", "fscheckpoint.pb"}
)

// Checkpoint writes what the agent knows.
func (f *Fake) Checkpoint(ctx context.Context, id, _, build, image string) error {
	return f.checkpoint(ctx, "checkpoint", id, build, image, snapshotFiles)
}

// CheckpointFiles writes the same; only the files are taken of it.
func (f *Fake) CheckpointFiles(ctx context.Context, id, _, build, image string) error {
	return f.checkpoint(ctx, "checkpointFiles", id, build, image, filesSnapshotFiles)
}

// ExportChanges writes the files below /tmp.
func (f *Fake) ExportChanges(ctx context.Context, id, _, build string, w io.Writer) error {
	if err := f.begin("exportChanges", id, build); err != nil {
		return err
	}
	reply, err := f.ask(ctx, id, controlRequest{Operation: "save"})
	if err != nil {
		return err
	}
	var saved savedAgent
	if err := json.Unmarshal(reply.State, &saved); err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, path := range slices.Sorted(maps.Keys(saved.Files)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, "/"), Mode: 0o644, Size: int64(len(saved.Files[path]))}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(saved.Files[path]); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (f *Fake) checkpoint(ctx context.Context, operation, id, build, image string, names []string) error {
	if err := os.Mkdir(image, 0o700); err != nil {
		return err
	}
	if err := f.begin(operation, id, build); err != nil {
		return err
	}
	state, err := os.ReadFile(f.pausedFile(id))
	if errors.Is(err, os.ErrNotExist) {
		var reply controlReply
		reply, err = f.ask(ctx, id, controlRequest{Operation: "save"})
		state = reply.State
	}
	if err != nil {
		return err
	}
	for i, name := range names {
		content := state
		if i > 0 {
			// A page, as the real ones have.
			content = append([]byte(name), make([]byte, 4096-len(name))...)
		}
		if err := os.WriteFile(filepath.Join(image, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Delete ends an agent.
func (f *Fake) Delete(_ context.Context, id, _ string) error {
	if err := f.begin("delete", id, ""); err != nil {
		return err
	}
	return f.remove(id)
}

func (f *Fake) remove(id string) error {
	pid, err := f.pid(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	if err := os.Remove(f.pausedFile(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Remove(f.stateFile(id))
}

// DiskUsed is what the sandbox's own folder "overlay" takes; the fake agent writes there.
func (f *Fake) DiskUsed(dir string, _ int, _ string) (used uint64, err error) {
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
func (f *Fake) GuestProcesses(host uint64, _ string) uint64 { return host }

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

// Package gvisor runs boxes in gVisor: it executes runsc to make a sandbox, and
// has one runsc that stays, the worker, do the rest.
package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"atoll/node/internal/driver"
	"atoll/node/internal/reap"
)

// Driver uses the runsc of the build that a sandbox was made with.
type Driver struct {
	// builds knows the folders of the builds, version is the current one.
	builds builds
	// root is where runsc keeps its state; of this instance alone.
	root string
	// netns is the path of the shared network namespace.
	netns string
	// empty is a folder without content, the mount point of every root.
	empty   string
	version string
	reaper  *reap.Reaper
	workers workers
}

// Options of New.
type Options struct {
	// RunscDir holds runsc, gvisor-bin/ and VERSION.
	RunscDir string
	// RuntimesDir holds one folder like that for each build that sandboxes or snapshots still need; empty: none.
	RuntimesDir string
	// RunDir is the instance's folder under /run.
	RunDir string
	// NetworkNamespace is the path of the namespace boxes share.
	NetworkNamespace string
	Reaper           *reap.Reaper
}

// New checks the build and prepares the instance's folders.
func New(o Options) (*Driver, error) {
	version, err := readVersion(o.RunscDir)
	if err != nil {
		return nil, fmt.Errorf("no runsc build in %s (remedy: run ./atoll up, which builds it): %w", o.RunscDir, err)
	}
	d := &Driver{
		builds: builds{current: o.RunscDir, kept: o.RuntimesDir}, root: filepath.Join(o.RunDir, "runsc"), netns: o.NetworkNamespace,
		empty: filepath.Join(o.RunDir, "empty"), version: version, reaper: o.Reaper,
	}
	for _, dir := range []string{d.root, d.empty} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *Driver) Name() string { return "gvisor" }

func (d *Driver) Version() string { return d.version }

func (d *Driver) Can(driver.Ability, string) bool { return true }

func (d *Driver) Versions() []string { return d.builds.versions(d.version) }

// runsc is the path of a build's binary.
func (d *Driver) runsc(build string) (string, error) {
	dir, err := d.builds.folder(d.version, build)
	return filepath.Join(dir, "runsc"), err
}

// overlayDir holds the box's writable layer, a file that runsc unlinks at once.
func overlayDir(dir string) string { return filepath.Join(dir, "overlay") }

func (d *Driver) flags(dir string) []string {
	flags := []string{
		"--root", d.root,
		"--platform=systrap",
		"--network=sandbox",
		"--sidecar-usage-policy=STRICT",
		"--allow-suid",
		"--host-settings=ignore",
		// It would have a sandbox and a snapshot's source agree on the paths of their images. What must agree, the engine compares.
		"--restore-spec-validation=ignore",
	}
	if dir != "" {
		flags = append(flags, "--overlay2=root:dir="+overlayDir(dir))
	}
	return flags
}

func (d *Driver) Prepare(ctx context.Context, spec driver.Spec) (int, error) {
	if err := os.MkdirAll(overlayDir(spec.Dir), 0o700); err != nil {
		return 0, err
	}
	config, err := ociConfig(spec, d.empty, d.netns)
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(spec.Dir, "config.json"), config, 0o600); err != nil {
		return 0, err
	}
	pipes, err := driver.MakePipes(spec.Dir)
	if err != nil {
		return 0, err
	}
	defer pipes.Close()
	pidFile := filepath.Join(spec.Dir, "pid")
	// "run --detach" would save one process start (7 of 90 ms), but on a failed
	// start it destroys the container before anyone could ask why.
	args := append(d.flags(spec.Dir), "create", "--bundle", spec.Dir, "--pid-file", pidFile)
	if spec.FilesFrom != "" {
		if err := checkFilesSnapshot(spec.FilesFrom); err != nil {
			return 0, err
		}
		args = append(args, "--fs-restore-image-path", spec.FilesFrom)
	}
	call := call{name: "create", build: spec.Build, args: append(args, spec.ID), pipes: pipes, dir: spec.Dir, env: sentryThreads(spec.CPUMillis)}
	if err := d.run(ctx, call); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, fmt.Errorf("runsc create left no process id: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("runsc create: process id %q (expected: a number above 1)", text)
	}
	return pid, nil
}

func (d *Driver) Launch(ctx context.Context, id, _, build string) error {
	return d.operate(ctx, operation{Operation: "start", Container: id}, build)
}

func (d *Driver) Restore(ctx context.Context, id, _, build, image string) error {
	return d.operate(ctx, operation{Operation: "restore", Container: id, Image: image}, build)
}

func (d *Driver) Pause(ctx context.Context, id, _, build string) error {
	return d.operate(ctx, operation{Operation: "pause", Container: id}, build)
}

func (d *Driver) Resume(ctx context.Context, id, _, build string) error {
	return d.operate(ctx, operation{Operation: "resume", Container: id}, build)
}

func (d *Driver) Checkpoint(ctx context.Context, id, _, build, image string) error {
	if err := os.Mkdir(image, 0o700); err != nil {
		return err
	}
	return d.operate(ctx, operation{Operation: "checkpoint", Container: id, Image: image}, build)
}

func (d *Driver) CheckpointFiles(ctx context.Context, id, _, build, image string) error {
	if err := os.Mkdir(image, 0o700); err != nil {
		return err
	}
	if err := d.operate(ctx, operation{Operation: "fscheckpoint", Container: id, Image: image}, build); err != nil {
		return err
	}
	return checkFilesSnapshot(image)
}

// ExportChanges is no operation of the worker, whose protocol builds speak that are older than it.
func (d *Driver) ExportChanges(ctx context.Context, id, _, build string, w io.Writer) error {
	// The sentry writes to the pipe itself, and is told by its end when nobody reads any more.
	ours, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ours.Close()
	copied := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, ours, make([]byte, 256<<10))
		if err != nil {
			ours.Close()
		}
		copied <- err
	}()
	stop := context.AfterFunc(ctx, func() { ours.Close() })
	defer stop()
	err = d.run(ctx, call{name: "tar rootfs-upper", build: build, args: append(d.flags(""), "tar", "rootfs-upper", "--file", "/dev/fd/3", id), extra: theirs})
	theirs.Close()
	if failed := <-copied; failed != nil && ctx.Err() == nil {
		// The reason why runsc failed too.
		return failed
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// filesSnapshot are the files of a files snapshot. Where they are missing, runsc starts with nothing and says nothing.
var filesSnapshot = []string{"fscheckpoint.pb", "multitar.img", "pages.img", "pages_meta.img"}

func checkFilesSnapshot(dir string) error {
	for _, name := range filesSnapshot {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("files snapshot: %w", err)
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("files snapshot: %s is no file", filepath.Join(dir, name))
		}
	}
	return nil
}

// DiskUsed finds the writable layer among the sentry's open files, since its name is gone; by the name it had, since the folder it was in
// may have another by now.
func (d *Driver) DiskUsed(_ string, pid int, _ string) (uint64, error) {
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	folder, err := os.Open(fds)
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		path := filepath.Join(fds, name)
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(filepath.Base(target), "runsc-filestore-") {
			continue
		}
		var s unix.Stat_t
		if err := unix.Stat(path, &s); err != nil {
			return 0, err
		}
		return uint64(s.Blocks) * 512, nil
	}
	return 0, fmt.Errorf("the sandbox's process %d has no writable layer open", pid)
}

// GuestProcesses goes by what systrap has on the host: the sentry, one process to make others from, and for each process inside one for
// its memory and one for each of its threads. So it is exact where nothing has threads. To look closer would take a file for each of them.
func (d *Driver) GuestProcesses(host uint64, _ string) uint64 {
	return (max(host, 2) - 2) / 2
}

// sentryThreads says for how many CPUs the sentry serves system calls at once. Programs in the sandbox compute on as many CPUs as
// their group has in any case. Handing work from one of the sentry's threads to another costs more than a short call takes: with as
// many as the machine has CPUs (two), an execution took 34 % more CPU time than with one, and two processes that do nothing but
// system calls were no faster.
func sentryThreads(cpuMillis uint32) []string {
	if cpuMillis == 0 {
		return nil
	}
	return []string{"GOMAXPROCS=" + strconv.Itoa(min(runtime.NumCPU(), int(cpuMillis+999)/1000))}
}

// call is one execution of runsc.
type call struct {
	name, build string
	args        []string
	// pipes become the sandbox's, and dir is where they are; nil where none is made.
	pipes *driver.Pipes
	dir   string
	// env is added to the environment, which the sentry inherits.
	env []string
	// extra is its file 3; nil where it has none.
	extra *os.File
}

// execute does an operation by executing runsc, for builds without a worker.
func (d *Driver) execute(ctx context.Context, o operation, build string) error {
	args := append(d.flags(""), o.Operation)
	switch o.Operation {
	case "restore":
		args = append(args, "--detach", "--image-path", o.Image)
	case "checkpoint", "fscheckpoint":
		// Not left running, a sandbox whose snapshot fails (a full disk) would be lost with it.
		args = append(args, "--leave-running", "--image-path", o.Image)
	case "delete":
		args = append(args, "--force")
	}
	return d.run(ctx, call{name: o.Operation, build: build, args: append(args, o.Container)})
}

// run executes runsc; what it prints ends up in the error.
func (d *Driver) run(ctx context.Context, c call) error {
	runsc, err := d.runsc(c.build)
	if err != nil {
		return err
	}
	output, err := newOutputFile()
	if err != nil {
		return err
	}
	defer output.Close()
	// create's standard error becomes the sandbox's, so its own messages go there as well.
	files := []*os.File{nil, output, output}
	if c.extra != nil {
		files = append(files, c.extra)
	}
	if c.pipes != nil {
		files = []*os.File{c.pipes.Stdin, c.pipes.Stdout, c.pipes.Stderr}
	}
	status, err := d.reaper.Run(ctx, reap.Command{Path: runsc, Args: c.args, Files: files, Env: append(os.Environ(), c.env...), Dir: "/"})
	if err != nil {
		return fmt.Errorf("runsc %s: %w", c.name, err)
	}
	if status.ExitStatus() == 0 {
		return nil
	}
	said := readAll(output)
	if c.pipes != nil {
		said = driver.Tail(filepath.Join(c.dir, driver.StderrName), 2048)
	}
	return &commandError{name: c.name, status: status, output: said}
}

type commandError struct {
	name   string
	status unix.WaitStatus
	output string
}

func (e *commandError) Error() string {
	how := fmt.Sprintf("exit status %d", e.status.ExitStatus())
	if e.status.Signaled() {
		how = "signal " + e.status.Signal().String()
	}
	return fmt.Sprintf("runsc %s failed (%s): %s", e.name, how, strings.TrimSpace(e.output))
}

func newOutputFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("runsc-output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "runsc-output"), nil
}

// readAll reads the beginning.
func readAll(f *os.File) string {
	b := make([]byte, 4096)
	n, err := f.ReadAt(b, 0)
	if n == 0 && err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b[:n]))
}

func (d *Driver) Delete(ctx context.Context, id, build string) error {
	kept, err := d.keeps(id)
	if err != nil {
		return err
	}
	if !kept {
		return nil
	}
	if _, err := d.runsc(build); err != nil {
		// Any build can kill what another made.
		build = ""
	}
	if err := d.operate(ctx, operation{Operation: "delete", Container: id}, build); err != nil {
		// A create that was cut off leaves files which runsc itself can't load any
		// more. The processes are killed through the control group; the files are
		// removed here.
		return errors.Join(d.removeState(id), ctx.Err())
	}
	return d.removeState(id)
}

// stateFiles are the files runsc keeps per container: <id>_sandbox:<id>.state, .lock and so on.
func (d *Driver) stateFiles(id string) ([]string, error) {
	return filepath.Glob(filepath.Join(d.root, id+"_sandbox:*"))
}

func (d *Driver) keeps(id string) (bool, error) {
	files, err := d.stateFiles(id)
	return len(files) > 0, err
}

func (d *Driver) removeState(id string) error {
	files, err := d.stateFiles(id)
	if err != nil {
		return err
	}
	// The control socket is named after the sandbox.
	files = append(files, filepath.Join(d.root, "runsc-"+id+".sock"))
	var failures []error
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (d *Driver) List() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(d.root, "*_sandbox:*"))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var ids []string
	for _, file := range files {
		id, _, _ := strings.Cut(filepath.Base(file), "_sandbox:")
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ForPurge returns a driver that can list and delete, even where the build is missing.
func ForPurge(o Options) *Driver {
	return &Driver{
		builds: builds{current: o.RunscDir, kept: o.RuntimesDir}, root: filepath.Join(o.RunDir, "runsc"), netns: o.NetworkNamespace, reaper: o.Reaper,
	}
}

// Unmount removes the mount that runsc leaves for its gofers' network. Requires: no sandbox is left.
func (d *Driver) Unmount() error {
	path := filepath.Join(d.root, "null-netns")
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("unmounting %s: %w", path, err)
}

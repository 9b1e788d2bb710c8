// Package driver is what the engine asks of a sandbox runtime.
//
// A driver starts an agent behind two FIFOs and removes what it started. Which
// boxes exist, their control groups, and how they ended are the caller's: so a
// driver keeps nothing that a restarted engine would need.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Names inside a box's folder.
const (
	StdinName  = "stdin"
	StdoutName = "stdout"
	StderrName = "stderr.log"
)

// Spec is what a sandbox is started with.
type Spec struct {
	// ID is as long as every other id: runsc matches ids by prefix.
	ID string
	// Dir is the box's own folder, which exists. The driver may keep files in it, and after Prepare needs none of them but the streams.
	Dir string
	// ImagePath and AgentImagePath are EROFS files.
	ImagePath      string
	AgentImagePath string
	// CgroupPath of a group that exists already, as the OCI specification wants it.
	CgroupPath string
	// DiskBytes is how much the sandbox may write.
	DiskBytes uint64
	// ShmBytes is the size of /dev/shm.
	ShmBytes     uint64
	MaxOpenFiles uint32
	Hostname     string
	// CPUMillis is how much CPU the sandbox is made for, in thousandths; 0: no limit. The limit itself is the group's, and may change.
	CPUMillis uint32
	// AgentEnv is the agent's environment; user processes don't inherit it.
	AgentEnv []string
	// FilesFrom is the folder of a files snapshot to start from; empty: the image as it is.
	FilesFrom string
	// Build is the version of the runtime to use, one of the driver's Versions; empty: the current one.
	Build string
}

// ErrUnsupported is what a runtime answers that can't do at all what it was asked for.
var ErrUnsupported = errors.New("the sandbox's runtime can't do that")

// Ability is what not every runtime can do.
type Ability string

const (
	// MemorySnapshots: Restore, Pause, Resume, Checkpoint.
	MemorySnapshots Ability = "memory_snapshots"
	// FilesSnapshots: CheckpointFiles, and Spec.FilesFrom.
	FilesSnapshots Ability = "files_snapshots"
	// Export: ExportChanges.
	Export Ability = "export"
)

// Driver is a sandbox runtime. Its methods may be called at the same time for different ids.
//
// A sandbox is prepared, then launched or restored, then it runs or is paused;
// Delete ends it at any stage. id, dir and build are those of the Spec it was
// prepared with, but for one thing: the streams in the folder may be moved to
// another folder once it is prepared, and dir is where they are now.
type Driver interface {
	Name() string
	// Version of the runtime that new sandboxes get.
	Version() string
	// Versions are those of all builds that sandboxes can be driven with, Version first.
	Versions() []string
	// Can says whether sandboxes of a build, empty for the current one, can be asked for something. What can't be done fails with ErrUnsupported.
	Can(what Ability, build string) bool
	// Prepare makes the FIFOs in the folder and all of a sandbox but what runs in it. It returns
	// the host process whose end is the sandbox's end. On error nothing is left but
	// what Delete removes.
	Prepare(ctx context.Context, spec Spec) (pid int, err error)
	// Launch starts the agent in what was prepared.
	Launch(ctx context.Context, id, dir, build string) error
	// Restore brings the memory snapshot in the folder image to life in what was prepared, and it runs at once, whether
	// its source ran or was paused. Source and copy may differ in all of the Spec but DiskBytes, ShmBytes, MaxOpenFiles and the contents of
	// the images, which the snapshot brings along; the environment, and the number of CPUs that programs see, stay the source's. On error the prepared sandbox is of no more use, and the snapshot as it was.
	Restore(ctx context.Context, id, dir, build, image string) error
	// Pause stops everything in a running sandbox. Pausing a paused one is an error.
	Pause(ctx context.Context, id, dir, build string) error
	// Resume goes on with a paused one.
	Resume(ctx context.Context, id, dir, build string) error
	// Checkpoint writes a memory snapshot into the folder image, which it makes. The sandbox goes on as it was, running or paused,
	// also on error; then what lies in image is of no use. Nothing is synced.
	Checkpoint(ctx context.Context, id, dir, build, image string) error
	// CheckpointFiles writes what the sandbox changed in its file system into the folder image, which it makes, for Spec.FilesFrom. The
	// rest as Checkpoint.
	CheckpointFiles(ctx context.Context, id, dir, build, image string) error
	// ExportChanges writes what a running sandbox changed in its file system, as a tar in overlayfs's form: names are relative, what was
	// removed is a character device 0,0 or a hard link to one, and a folder that hides the image's has the attribute trusted.overlay.opaque.
	// Mount points of the runtime are among it. The sandbox's file system may stand still as long as w takes. It ends with w's first error.
	ExportChanges(ctx context.Context, id, dir, build string, w io.Writer) error
	// Delete ends a sandbox and removes what the runtime keeps of it. Succeeds where there is none.
	Delete(ctx context.Context, id, build string) error
	// DiskUsed is how much of the host's disk a running sandbox's writable layer takes. It does not ask the sandbox.
	DiskUsed(dir string, pid int, build string) (uint64, error)
	// GuestProcesses is about how many processes run in a sandbox whose group has so many on the host.
	GuestProcesses(host uint64, build string) uint64
	// List returns the ids of which the runtime keeps anything.
	List() ([]string, error)
}

// Pipes are a sandbox's standard streams as the sandbox gets them.
type Pipes struct {
	Stdin, Stdout, Stderr *os.File
}

// MakePipes makes the FIFOs and the log in a box's folder. The FIFOs are open
// for both directions, so that neither side sees an end of file when the other goes.
func MakePipes(dir string) (*Pipes, error) {
	for _, name := range []string{StdinName, StdoutName} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			return nil, fmt.Errorf("making FIFO %s: %w", name, err)
		}
	}
	p := &Pipes{}
	var err error
	open := func(name string, flags int) *os.File {
		if err != nil {
			return nil
		}
		// Opened without the runtime's poller: the sandbox must get a description in blocking mode.
		var fd int
		if fd, err = unix.Open(filepath.Join(dir, name), flags|unix.O_CLOEXEC, 0o600); err != nil {
			err = fmt.Errorf("opening %s: %w", name, err)
			return nil
		}
		return os.NewFile(uintptr(fd), name)
	}
	p.Stdin = open(StdinName, unix.O_RDWR)
	p.Stdout = open(StdoutName, unix.O_RDWR)
	p.Stderr = open(StderrName, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close closes this side's copies. They must not be used once the sandbox runs:
// it makes the shared description non-blocking.
func (p *Pipes) Close() {
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// RemovePipes removes what MakePipes made.
func RemovePipes(dir string) error {
	var failures []error
	for _, name := range []string{StdinName, StdoutName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

package build

import (
	"context"
	"errors"
	"io"
	"time"

	"atoll/node/gen/execv1"
)

// Sandboxes makes build boxes.
type Sandboxes interface {
	// Start makes one of an image.
	Start(ctx context.Context, image string, limits *execv1.Limits) (Sandbox, error)
	// Restore makes one of a snapshot that Sandbox.Save made. ErrNoSnapshot where there is none that can be used.
	Restore(ctx context.Context, snapshot string, limits *execv1.Limits) (Sandbox, error)
	// Version changes whenever snapshots made before are of no more use.
	Version() string
	// Snapshots lists those that can be used, with their sizes; Remove removes one.
	Snapshots() map[string]uint64
	Remove(snapshot string) error
}

// ErrNoSnapshot says that a snapshot is not there, or of no use.
var ErrNoSnapshot = errors.New("no such snapshot")

// ErrNoFile says that a path in a sandbox does not exist.
var ErrNoFile = errors.New("no such file or folder")

// Command is a program that runs in a sandbox.
type Command struct {
	Argv []string
	Dir  string
	Env  map[string]string
	// User is a name of the image, or "uid", or either with ":group".
	User    string
	Timeout time.Duration
	// Network lets it reach out as serve decides; nil: it can't.
	Network func(ctx context.Context, c Conn)
}

// Conn is a connection of a program that reaches out.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Outcome is how a program ended.
type Outcome struct {
	ExitCode int
	// Problem says what ended it where it did not end by itself: a signal, its time limit, want of memory. Empty otherwise.
	Problem string
}

// FileKind is what a path is.
type FileKind int

// Kinds of files.
const (
	RegularFile FileKind = iota + 1
	Folder
	Symlink
	OtherFile
)

// File is one in a sandbox.
type File struct {
	Name string
	Kind FileKind
	// Target of a symlink.
	Target string
	Mode   uint32
	UID    uint32
	GID    uint32
}

// Mount is something that appears at a path while a program runs.
type Mount struct {
	// Target exists and has no symlinks in it.
	Target string
	// Source is a path of the sandbox; empty: memory of so many bytes and with this mode.
	Source   string
	ReadOnly bool
	Bytes    uint64
	Mode     uint32
}

// Sandbox is a build box. Its paths are absolute, and resolved inside. Calls come one after the other.
type Sandbox interface {
	// Run runs a program to its end. output gets what it prints, and is not called any more when Run returns.
	Run(ctx context.Context, c Command, output func(data []byte, stderr bool)) (Outcome, error)
	// Unpack unpacks a tar, with owners and modes as it says, into a folder that is there.
	Unpack(ctx context.Context, folder string, archive io.Reader) error
	// Pack writes a folder's contents, or one file, as a tar with relative names.
	Pack(ctx context.Context, path string, w io.Writer) error
	// Stat follows symlinks, if follow says so. ErrNoFile.
	Stat(ctx context.Context, path string, follow bool) (File, error)
	// List returns the entries of a folder, in order.
	List(ctx context.Context, folder string) ([]File, error)
	// MakeFolders makes a folder and those above it that are missing, as root's.
	MakeFolders(ctx context.Context, path string) error
	// Change sets the mode, where it is not nil, and the owner of a path.
	Change(ctx context.Context, path string, mode *uint32, uid, gid uint32, recursive bool) error
	Remove(ctx context.Context, path string) error
	// ReadSmall reads a file of at most limit bytes. ErrNoFile.
	ReadSmall(ctx context.Context, path string, limit int) ([]byte, error)
	Mount(ctx context.Context, mounts []Mount) error
	Unmount(ctx context.Context, targets []string) error
	// Save keeps the files as a snapshot. One that is there already stays.
	Save(ctx context.Context, snapshot string) error
	// Export writes what differs from the image, as a tar in overlayfs's form.
	Export(ctx context.Context, w io.Writer) error
	// Close ends it, whatever it does.
	Close() error
}

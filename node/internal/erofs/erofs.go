// Package erofs reads and writes EROFS file systems of the kind that gVisor
// can map: not compressed, no extended attributes, and the content of every
// regular file in blocks of its own.
//
// # Layout
//
// Block 0 holds the superblock, then come the contents of files, and the
// metadata last: so contents are written as they arrive, and only what is
// known of each file is kept in memory. Directories and symbolic links that
// fit lie beside their inode. Everything that is not content (order, ids,
// padding) follows from the tree alone: the same calls give the same bytes.
//
// Format: https://docs.kernel.org/filesystems/erofs.html
package erofs

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// BlockSize is the only block size that is read and written; gVisor wants that of its pages.
const BlockSize = 4096

// Limits of the format.
const (
	MaxName   = 255
	MaxTarget = BlockSize - 1
	maxBlocks = math.MaxUint32
)

const (
	magic            = 0xE0F5E1E2
	superblockOffset = 1024
	superblockSize   = 128
	compactSize      = 32
	extendedSize     = 64
	slotSize         = 32
	direntSize       = 12

	layoutPlain  = 0
	layoutInline = 2

	featureChecksum = 1
	featureMtime    = 2
)

// ErrFormat says that a file is no file system that this package reads.
var ErrFormat = errors.New("not an EROFS file system of the expected kind")

// Inode is a file, directory or link. Names that are hard links to each other share one.
type Inode struct {
	// Mode is the type (unix.S_IFREG and so on) and the permissions, set-user-id and sticky bits included.
	Mode      uint32
	UID, GID  uint32
	Mtime     int64
	MtimeNsec uint32
	// Size and Offset of a regular file's content in the image that it was read from or written to. Offset is a multiple of BlockSize.
	Size   uint64
	Offset uint64
	// Target of a symbolic link.
	Target string
	// Children of a directory, by name.
	Children map[string]*Inode

	// Links counts names; the reader fills it, the writer sets it.
	Links uint32
	// Layer and Stored are for those who merge trees: which one it came from, and whether its content is where it is to be.
	Layer  int32
	Stored bool

	nid uint64
}

// Type is the type's bits of the mode.
func (i *Inode) Type() uint32 { return i.Mode & unix.S_IFMT }

// IsDir says whether it is a directory.
func (i *Inode) IsDir() bool { return i.Type() == unix.S_IFDIR }

// IsRegular says whether it is a regular file.
func (i *Inode) IsRegular() bool { return i.Type() == unix.S_IFREG }

// IsSymlink says whether it is a symbolic link.
func (i *Inode) IsSymlink() bool { return i.Type() == unix.S_IFLNK }

// NewDir makes a directory of root's.
func NewDir(permissions uint32) *Inode {
	return &Inode{Mode: unix.S_IFDIR | permissions&0o7777, Children: map[string]*Inode{}}
}

func blocksOf(size uint64) uint64 { return (size + BlockSize - 1) / BlockSize }

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

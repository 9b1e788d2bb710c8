package files

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// How contents are replaced at once: all data goes to a temporary file in the same folder, which is then given the name. Where that
// can't be (the folder is not writable, but the file is; the file has other names too, or an owner that would be lost; something is
// mounted there) the data still waits in a temporary file until all has come, and is then copied into the old file.

const (
	// TemporaryPrefix begins the names of files that hold what has not come in full.
	TemporaryPrefix = ".atoll-write-"
	// What follows the prefix says whether the contents of a file that is there are replaced; a watch tells that.
	replacing = "r-"
	creating  = "c-"
	maxLinks  = 40
)

// target is where contents are to go.
type target struct {
	files  *Files
	path   string
	parent int // the folder that holds it
	name   string

	exists  bool
	old     unix.Stat_t
	create  bool   // it must not be there
	inPlace bool   // copy instead of renaming
	mode    uint32 // of a new file

	temporary     int
	temporaryName string // "" where it has none any more
	journal       string
}

// Close ends the work. What was not committed leaves nothing behind.
func (g *target) Close() error {
	if g.temporaryName != "" {
		_ = unix.Unlinkat(g.parent, g.temporaryName, 0)
		g.temporaryName = ""
	}
	g.files.forgetTemporary(g.journal)
	g.journal = ""
	for _, fd := range []*int{&g.temporary, &g.parent} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
	return nil
}

// newTarget prepares to write the file at path; mode is that of a new one.
func (f *Files) newTarget(t *thread, path string, create, parents bool, mode uint32) (*target, error) {
	parent, name, err := t.openParent(path, parents)
	if err != nil {
		return nil, err
	}
	return f.newTargetAt(t, parent, name, path, create, mode)
}

// newTargetAt takes the descriptor of the folder over.
func (f *Files) newTargetAt(t *thread, parent int, name, path string, create bool, mode uint32) (g *target, err error) {
	g = &target{files: f, path: path, parent: parent, name: name, create: create, mode: mode, temporary: -1}
	defer func() {
		if err != nil {
			_ = g.Close()
			g = nil
			err = failure(path, err)
		}
	}()
	if create {
		err = unix.Fstatat(g.parent, g.name, &g.old, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil {
			return g, unix.EEXIST
		}
	} else {
		err = g.follow()
	}
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return g, err
	default:
		if err := g.examine(t); err != nil {
			return g, err
		}
	}
	err = g.makeTemporary()
	if g.exists && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)) {
		g.inPlace = true
		err = g.makeTemporaryElsewhere()
	}
	return g, err
}

// follow goes to what a symlink leads to, as opening it would.
func (g *target) follow() error {
	for range maxLinks {
		err := unix.Fstatat(g.parent, g.name, &g.old, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return err
		}
		if g.old.Mode&unix.S_IFMT != unix.S_IFLNK {
			g.exists = true
			return nil
		}
		link, err := readLink(g.parent, g.name)
		if err != nil {
			return err
		}
		name := strings.TrimRight(link, "/")
		folder := "."
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			folder, name = name[:i+1], name[i+1:]
		}
		if name == "" || name == "." || name == ".." || len(name) != len(link) && strings.HasSuffix(link, "/") {
			return unix.EISDIR
		}
		next, err := open(g.parent, folder, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		_ = unix.Close(g.parent)
		g.parent, g.name = next, name
	}
	return unix.ELOOP
}

// examine looks at the file that is there.
func (g *target) examine(t *thread) error {
	switch g.old.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return unix.EISDIR
	default:
		return status(codes.FailedPrecondition, g.path, "is no regular file")
	}
	err := unix.Faccessat2(g.parent, g.name, unix.W_OK, unix.AT_EACCESS)
	if err != nil && !errors.Is(err, unix.ETXTBSY) {
		return err
	}
	id := t.identity
	keepsOwner := id == nil || id.Uid == 0 || g.old.Uid == id.Uid && id.member(g.old.Gid)
	g.inPlace = g.old.Nlink > 1 || !keepsOwner
	return nil
}

func temporaryName(kind string) string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return TemporaryPrefix + kind + hex.EncodeToString(random[:])
}

func (g *target) makeTemporary() error {
	kind := creating
	if g.exists {
		kind = replacing
	}
	name := temporaryName(kind)
	g.journal = g.files.noteTemporary(g.parent, name, g.path)
	fd, err := open(g.parent, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		g.files.forgetTemporary(g.journal)
		g.journal = ""
		return err
	}
	g.temporary, g.temporaryName = fd, name
	return nil
}

// makeTemporaryElsewhere makes a file without a name.
func (g *target) makeTemporaryElsewhere() error {
	path := "/tmp/" + temporaryName(replacing)
	fd, err := open(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return status(codes.PermissionDenied, g.path, "neither its folder nor /tmp takes a temporary file: %v", err)
	}
	g.temporary = fd
	return unix.Unlink(path)
}

// commit puts the size bytes of the temporary file in place.
func (g *target) commit(ctx context.Context, attributes map[string]string, size int64) error {
	if !g.inPlace {
		err := g.rename(attributes)
		if err == nil {
			return nil
		}
		// Something is mounted there, or the folder is sticky and the file another's.
		if !g.exists || !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return failure(g.path, err)
		}
	}
	return failure(g.path, g.copyOver(ctx, attributes, size))
}

func (g *target) rename(attributes map[string]string) error {
	mode := g.mode
	if g.exists {
		mode = g.old.Mode & permissionBits
		var now unix.Stat_t
		if err := unix.Fstat(g.temporary, &now); err != nil {
			return err
		}
		if now.Uid != g.old.Uid || now.Gid != g.old.Gid {
			if err := unix.Fchown(g.temporary, int(g.old.Uid), int(g.old.Gid)); err != nil {
				return err
			}
		}
		if old, err := open(g.parent, g.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err == nil {
			copyAttributes(old, g.temporary)
			_ = unix.Close(old)
		}
	}
	// After chown, which takes set-id bits.
	if err := unix.Fchmod(g.temporary, mode); err != nil {
		return err
	}
	if err := setAttributes(g.temporary, g.path, attributes); err != nil {
		return err
	}
	var err error
	if g.create {
		err = unix.Renameat2(g.parent, g.temporaryName, g.parent, g.name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			if err := unix.Linkat(g.parent, g.temporaryName, g.parent, g.name, 0); err != nil {
				return err
			}
			return nil // Close removes the temporary name
		}
	} else {
		err = unix.Renameat(g.parent, g.temporaryName, g.parent, g.name)
	}
	if err == nil {
		g.temporaryName = ""
	}
	return err
}

// copyOver writes into the file that is there. The space that it needs beyond the old size is taken first, so that a full disk
// leaves the old contents.
func (g *target) copyOver(ctx context.Context, attributes map[string]string, size int64) error {
	fd, err := open(g.parent, g.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if now.Ino != g.old.Ino || now.Dev != g.old.Dev {
		return status(codes.Aborted, g.path, "another file has taken its place")
	}
	if err := setAttributes(fd, g.path, attributes); err != nil {
		return err
	}
	if size > now.Size {
		err := unix.Fallocate(fd, 0, now.Size, size-now.Size)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
			_ = unix.Ftruncate(fd, now.Size)
			return err
		}
	}
	if err := copyData(ctx, g.temporary, fd, size, false); err != nil {
		return err
	}
	return unix.Ftruncate(fd, size)
}

// copyData copies size bytes. Into a fresh file, holes are left holes, as far as the file system shows them.
func copyData(ctx context.Context, from, to int, size int64, fresh bool) error {
	buffer := pieces.Get().(*[]byte)
	defer pieces.Put(buffer)
	// How much a file takes on the disk does not tell of holes everywhere: look for them by what is read, too.
	seeks := fresh && size > int64(len(*buffer))
	for offset := int64(0); offset < size; {
		end := size
		if seeks {
			start, err := unix.Seek(from, offset, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				break // nothing but a hole
			}
			if seeks = err == nil; seeks {
				offset = start
				if hole, err := unix.Seek(from, offset, unix.SEEK_HOLE); err == nil {
					end = min(hole, size)
				}
			}
		}
		for offset < end {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			n, err := readAt(from, (*buffer)[:min(int64(len(*buffer)), end-offset)], offset)
			if err != nil {
				return err
			}
			if n == 0 {
				return unix.ESTALE // shorter meanwhile
			}
			if !fresh || !zero((*buffer)[:n]) {
				if err := writeAt(to, (*buffer)[:n], offset); err != nil {
					return err
				}
			}
			offset += int64(n)
		}
	}
	return nil
}

var zeros [pieceBytes]byte

func zero(p []byte) bool { return bytes.Equal(p, zeros[:len(p)]) }

// noteTemporary remembers a temporary file, so that one that outlives its agent is found. Nothing inside may change the journal.
func (f *Files) noteTemporary(parent int, name, path string) (note string) {
	if f.journal == "" {
		return ""
	}
	// The system says what the folder is called: the working folder is this thread's own.
	if err := unix.Fchdir(parent); err != nil {
		return ""
	}
	folder, err := unix.Getwd()
	_ = unix.Chdir("/")
	if err != nil || !strings.HasPrefix(folder, "/") {
		return ""
	}
	outside(func() {
		note = filepath.Join(f.journal, name)
		err := os.Symlink(folder+"/"+name, note)
		if os.IsNotExist(err) {
			if err = os.MkdirAll(f.journal, 0o700); err == nil {
				err = os.Symlink(folder+"/"+name, note)
			}
		}
		if err != nil {
			log.Printf("files: %s is not noted: %v", show(path), err)
			note = ""
		}
	})
	return note
}

func (f *Files) forgetTemporary(note string) {
	if note != "" {
		outside(func() { _ = os.Remove(note) })
	}
}

// loan is a descriptor for work on a thread that may outlast its call.
type loan struct {
	fd    int
	taken atomic.Bool
}

func lend(fd int) (*loan, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return &loan{fd: own}, err
}

// take makes the caller its owner, once.
func (l *loan) take() bool { return !l.taken.Swap(true) }

// end closes what was not taken.
func (l *loan) end() {
	if l.take() {
		_ = unix.Close(l.fd)
	}
}

// outside runs call on a thread that acts for the agent, whoever the caller's acts for.
func outside(call func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	<-done
}

// sweep removes what was noted by an agent that is no more.
func (f *Files) sweep() {
	if f.journal == "" {
		return
	}
	notes, err := os.ReadDir(f.journal)
	if err != nil {
		return
	}
	for _, note := range notes {
		where := filepath.Join(f.journal, note.Name())
		path, err := os.Readlink(where)
		if err == nil && strings.HasPrefix(filepath.Base(path), TemporaryPrefix) {
			if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
				log.Printf("files: %s stays: %v", show(path), err)
			}
		}
		_ = os.Remove(where)
	}
}

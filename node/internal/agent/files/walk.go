package files

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// A walk goes through a folder and all below it by way of descriptors, never by long paths: depth is not limited, a symlink is never
// followed, and whoever moves folders about meanwhile does not lead it elsewhere. It holds few descriptors and little memory, whatever
// it meets: folders far above are closed and opened again by way of "..", and names are read in batches, each of the smallest names after
// the last one, in byte order.

const (
	listingBytes = 32 << 10
	batchNames   = 8192
	// Names that wait in all levels. Beyond, those of the upper levels are read again.
	maxPendingBytes = 4 << 20
	maxOpenLevels   = 32
)

var listings = sync.Pool{New: func() any {
	buffer := make([]byte, listingBytes)
	return &buffer
}}

type level struct {
	fd       int // -1: closed for the time being
	device   uint64
	inode    uint64
	pathSize int // of the walk's path, without what is in this folder

	pending []entry // names that come next
	bytes   int
	last    string // everything up to it is done
	from    string // where to begin, in the first batch
	all     bool   // nothing comes after pending
	started bool
}

type walk struct {
	levels []level
	path   []byte // below the root, of the current folder
	batch  int
	// Names come as the folder gives them, each level is read until its end; for those who remove what they meet.
	unsorted bool
	pending  int
	open     int
	closed   int // levels from 1 to this one are closed
}

// newWalk begins in an open folder, which it closes in the end.
func newWalk(root int) (*walk, error) {
	w := &walk{batch: batchNames}
	if err := w.push(root); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *walk) push(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return err
	}
	w.levels = append(w.levels, level{fd: fd, device: stat.Dev, inode: stat.Ino, pathSize: len(w.path)})
	w.open++
	if w.open > maxOpenLevels {
		// The root stays open: nothing leads back to it but itself.
		w.closed++
		oldest := &w.levels[w.closed]
		_ = unix.Close(oldest.fd)
		oldest.fd = -1
		w.open--
	}
	return nil
}

func (w *walk) top() *level { return &w.levels[len(w.levels)-1] }

// fd is the current folder.
func (w *walk) fd() int { return w.top().fd }

func (w *walk) depth() int { return len(w.levels) }

// below is the path of a name in the current folder, relative to the root.
func (w *walk) below(name string) string {
	if len(w.path) == 0 {
		return name
	}
	return string(w.path) + "/" + name
}

// next is the next name in the current folder.
func (w *walk) next() (entry, bool, error) {
	l := w.top()
	if len(l.pending) == 0 && !l.all {
		if err := w.fill(l); err != nil {
			return entry{}, false, err
		}
	}
	if len(l.pending) == 0 {
		return entry{}, false, nil
	}
	e := l.pending[0]
	l.pending[0] = entry{}
	l.pending = l.pending[1:]
	l.last = e.name
	l.bytes -= len(e.name)
	w.pending -= len(e.name)
	return e, true, nil
}

func (w *walk) fill(l *level) error {
	buffer := listings.Get().(*[]byte)
	defer listings.Put(buffer)
	if w.unsorted {
		return w.fillUnsorted(l, *buffer)
	}
	if _, err := unix.Seek(l.fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	var names []entry
	size, cut, largest := 0, false, ""
	trim := func() {
		slices.SortFunc(names, func(a, b entry) int { return strings.Compare(a.name, b.name) })
		if len(names) > w.batch {
			clear(names[w.batch:])
			names = names[:w.batch]
			cut = true
		}
		size = 0
		for i := range names {
			size += len(names[i].name)
			if size > maxPendingBytes/2 && i+1 < len(names) {
				clear(names[i+1:])
				names = names[:i+1]
				cut = true
				break
			}
		}
		if len(names) > 0 {
			largest = names[len(names)-1].name
		}
	}
	for {
		n, err := unix.ReadDirent(l.fd, *buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		entries((*buffer)[:n], func(name []byte, kind uint8) {
			if l.started && string(name) <= l.last || !l.started && string(name) < l.from {
				return
			}
			if cut && string(name) > largest {
				return // like those that were cut off
			}
			names = append(names, entry{string(name), kind})
			size += len(name)
			if len(names) >= 2*w.batch || size > maxPendingBytes {
				trim()
			}
		})
	}
	trim()
	l.started = true
	l.pending, l.bytes, l.all = names, size, !cut
	w.pending += size
	w.forgetUpper()
	return nil
}

// fillUnsorted reads on. A level that was closed meanwhile begins anew, with what is left in it.
func (w *walk) fillUnsorted(l *level, buffer []byte) error {
	for {
		n, err := unix.ReadDirent(l.fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			l.all = true
			return nil
		}
		entries(buffer[:n], func(name []byte, kind uint8) {
			l.pending = append(l.pending, entry{string(name), kind})
			l.bytes += len(name)
			w.pending += len(name)
		})
		if len(l.pending) > 0 {
			break
		}
	}
	w.forgetUpper()
	return nil
}

// forgetUpper drops names of the upper levels when too many wait: they are read again.
func (w *walk) forgetUpper() {
	for i := 0; w.pending > maxPendingBytes && i < len(w.levels)-1; i++ {
		upper := &w.levels[i]
		if len(upper.pending) == 0 {
			continue
		}
		w.pending -= upper.bytes
		upper.pending, upper.bytes, upper.all = nil, 0, false
		if w.unsorted && upper.fd >= 0 {
			_, _ = unix.Seek(upper.fd, 0, unix.SEEK_SET)
		}
	}
}

// descend goes into a folder of the current one.
func (w *walk) descend(name string) error {
	fd, err := openFolderAt(w.fd(), name)
	if err != nil {
		return err
	}
	return w.enter(name, fd)
}

// enter goes into a folder of the current one that is open already, and takes the descriptor over.
func (w *walk) enter(name string, fd int) error {
	before := len(w.path)
	if before > 0 {
		w.path = append(w.path, '/')
	}
	w.path = append(w.path, name...)
	if err := w.push(fd); err != nil {
		w.path = w.path[:before]
		return err
	}
	return nil
}

// ascend goes back to the folder above.
func (w *walk) ascend() error {
	leaving := w.top()
	w.pending -= leaving.bytes
	above := &w.levels[len(w.levels)-2]
	if above.fd < 0 {
		fd, err := open(leaving.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		above.fd = fd
		w.open++
		w.closed = len(w.levels) - 3
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return err
		}
		if stat.Dev != above.device || stat.Ino != above.inode {
			return status(codes.Aborted, string(w.path), "the folder was moved meanwhile")
		}
	}
	_ = unix.Close(leaving.fd)
	w.open--
	w.levels = w.levels[:len(w.levels)-1]
	w.path = w.path[:w.top().pathSize]
	return nil
}

func (w *walk) close() {
	for i := range w.levels {
		if fd := w.levels[i].fd; fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	w.levels = nil
}

// isFolder looks where the folder did not tell the type.
func isFolder(dir int, e entry) bool {
	if e.kind != unix.DT_UNKNOWN {
		return e.kind == unix.DT_DIR
	}
	var stat unix.Stat_t
	return unix.Fstatat(dir, e.name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// openFolder opens the folder that a walk begins in, by way of symlinks too.
func openFolder(path string) (int, error) {
	return open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
}

// openFolderAt opens a folder that is no symlink.
func openFolderAt(dir int, name string) (int, error) {
	return openFolderWith(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
}

// openFolderWith does without O_DIRECTORY: with it, gVisor follows a symlink in spite of O_NOFOLLOW.
func openFolderWith(dir int, name string, flags int) (int, error) {
	var stat unix.Stat_t
	// What is no folder is not opened: that could do things already.
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	fd, err := open(dir, name, flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Fstat(fd, &stat)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

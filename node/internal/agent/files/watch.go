package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/frame"
)

const (
	maxWatches       = 128
	maxWatchedOfOne  = 8192
	maxWatchedOfAll  = 32768
	watchBufferBytes = 32 << 10
	maxTold          = 10_000
	toldFor          = 10 * time.Second
	watchMask        = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	eventHeader = int(unsafe.Sizeof(unix.InotifyEvent{}))
)

// watching is one WatchFiles call. A folder is watched by the user, by way of its descriptor; the kernel says by number what it saw.
type watching struct {
	files     *Files
	ctx       context.Context
	user      string
	recursive bool
	root      string
	rootWatch int32
	single    string // the name, where a file is watched: its folder is
	notify    *os.File
	fd        int
	folders   map[int32]string // below the root, "" for itself
	numbers   map[string]int32
	events    []proto.Message
	// What was told when a new folder was listed, and may come as an event again, with the time of that.
	told map[string]time.Time
	// The last temporary file of ours that got another name.
	cookie   uint32
	replaced bool
}

// Watch serves WatchFiles.
func (f *Files) Watch(stream *frame.Stream) error {
	request := &filev1.WatchFilesRequest{}
	if err := stream.Receive(request); err != nil {
		return err
	}
	f.watchMu.Lock()
	if f.watches >= maxWatches {
		f.watchMu.Unlock()
		return tooMany("watches", maxWatches)
	}
	f.watches++
	f.watchMu.Unlock()
	w := &watching{
		files: f, ctx: stream.Context(), user: request.User, recursive: request.Recursive,
		folders: map[int32]string{}, numbers: map[string]int32{}, told: map[string]time.Time{},
	}
	defer w.end()
	// Made by the agent: how many of these a user may have is no matter of ours.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return failure("inotify", err)
	}
	w.fd = fd
	w.notify = os.NewFile(uintptr(fd), "inotify")
	stop := context.AfterFunc(w.ctx, func() { _ = w.notify.SetReadDeadline(time.Now()) })
	defer stop()
	if err := w.begin(request.Path); err != nil {
		return err
	}
	ready := w.event(filev1.FileEventType_FILE_EVENT_TYPE_READY, "", filev1.FileType_FILE_TYPE_DIRECTORY)
	if w.single != "" {
		ready = w.event(filev1.FileEventType_FILE_EVENT_TYPE_READY, w.single, filev1.FileType_FILE_TYPE_FILE)
	}
	if err := stream.Send(ready); err != nil {
		return err
	}
	buffer := make([]byte, watchBufferBytes)
	for {
		n, err := w.notify.Read(buffer)
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		if err != nil {
			return failure(w.root, err)
		}
		gone, err := w.take(buffer[:n])
		if len(w.events) > 0 {
			if err := stream.SendAll(w.events...); err != nil {
				return err
			}
			clear(w.events)
			w.events = w.events[:0]
		}
		if err != nil {
			return err
		}
		if gone {
			return status(codes.NotFound, w.root, "is not there any more")
		}
	}
}

func (w *watching) end() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
	f := w.files
	f.watchMu.Lock()
	f.watches--
	f.watched -= len(w.folders)
	f.watchMu.Unlock()
}

func (w *watching) begin(given string) error {
	type start struct {
		root, single string
	}
	s, err := do(w.ctx, w.files.threads, w.files.threads.long, w.user, func(t *thread) (start, error) {
		path, err := t.absolute(given)
		if err != nil {
			return start{}, err
		}
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err != nil {
			return start{}, failure(path, err)
		}
		s := start{root: canonical(path)}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			folder, name := split(canonical(path))
			s.root, s.single = canonical(folder), name
		}
		return s, nil
	})
	if err != nil {
		return err
	}
	w.root, w.single = s.root, s.single
	if w.single != "" {
		w.recursive = false
	}
	if err := w.add("", false); err != nil {
		return err
	}
	w.rootWatch = w.numbers[""]
	return nil
}

// added is what watching folders found.
type added struct {
	folders []watched
	created []proto.Message
	err     error
}

type watched struct {
	number int32
	below  string
}

// add watches a folder and, where asked for, those below it. What is in them is told as created with tell: it was made before the watch.
func (w *watching) add(below string, tell bool) error {
	w.files.watchMu.Lock()
	room := min(maxWatchedOfOne-len(w.folders), maxWatchedOfAll-w.files.watched)
	if below == "" {
		room += len(w.folders) // they are watched anew, not in addition
	}
	w.files.watchMu.Unlock()
	root, fd, recursive := w.root, w.fd, w.recursive
	own, err := lend(fd)
	if err != nil {
		return failure(w.root, err)
	}
	defer own.end()
	ctx := w.ctx
	result, err := do(ctx, w.files.threads, w.files.threads.long, w.user, func(t *thread) (*added, error) {
		if !own.take() {
			return nil, ctx.Err()
		}
		defer unix.Close(own.fd)
		return t.watchBelow(ctx, own.fd, root, below, recursive, tell, room)
	})
	if err != nil {
		return err
	}
	if tell && len(w.told) < maxTold {
		now := time.Now()
		for _, event := range result.created {
			w.told[event.(*filev1.FileEvent).Name] = now
		}
	}
	w.files.watchMu.Lock()
	for _, one := range result.folders {
		if _, known := w.folders[one.number]; !known {
			w.files.watched++
		} else if old := w.folders[one.number]; w.numbers[old] == one.number {
			delete(w.numbers, old)
		}
		w.folders[one.number] = one.below
		w.numbers[one.below] = one.number
	}
	w.files.watchMu.Unlock()
	w.events = append(w.events, result.created...)
	return result.err
}

func (t *thread) watchBelow(ctx context.Context, notify int, root, below string, recursive, tell bool, room int) (*added, error) {
	result := &added{}
	fd, err := openFolder(root)
	if err == nil && below != "" {
		var inside int
		inside, err = walkTo(fd, strings.Split(below, "/"), false)
		_ = unix.Close(fd)
		fd = inside
	}
	if err != nil {
		if below != "" {
			return result, nil // gone meanwhile, or nothing that the user may look into
		}
		return nil, failure(root, err)
	}
	defer func() { _ = unix.Chdir("/") }()
	watch := func(fd int, below string) error {
		if len(result.folders) >= room {
			return status(codes.ResourceExhausted, root, "more than %d folders would be watched", min(maxWatchedOfOne, maxWatchedOfAll))
		}
		// By way of the working folder, which is this thread's own: no name can be changed on the way.
		if err := unix.Fchdir(fd); err != nil {
			return err
		}
		number, err := unix.InotifyAddWatch(notify, ".", watchMask|unix.IN_ONLYDIR)
		if errors.Is(err, unix.ENOSPC) {
			return status(codes.ResourceExhausted, pathIn(root, below), "the system watches no more folders")
		}
		if err != nil {
			return err
		}
		result.folders = append(result.folders, watched{int32(number), below})
		return nil
	}
	if err := watch(fd, below); err != nil {
		_ = unix.Close(fd)
		if below == "" {
			return nil, failure(root, err)
		}
		result.err = exhaustion(err)
		return result, nil
	}
	if !recursive && !tell {
		_ = unix.Close(fd)
		return result, nil
	}
	walk, err := newWalk(fd)
	if err != nil {
		return nil, failure(root, err)
	}
	defer walk.close()
	now := time.Now().UnixMilli()
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e, ok, err := walk.next()
		if err != nil || !ok {
			if walk.depth() == 1 {
				return result, nil
			}
			if err := walk.ascend(); err != nil {
				return result, nil //nolint:nilerr // moved meanwhile: its own event tells
			}
			continue
		}
		name := walk.below(e.name)
		if below != "" {
			name = below + "/" + name
		}
		folder := isFolder(walk.fd(), e)
		if tell {
			kind := filev1.FileType_FILE_TYPE_FILE
			var stat unix.Stat_t
			if unix.Fstatat(walk.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
				kind = typeOf(stat.Mode)
			}
			result.created = append(result.created, newEvent(filev1.FileEventType_FILE_EVENT_TYPE_CREATE, root, name, kind, now))
		}
		if !folder || !recursive {
			continue
		}
		if err := walk.descend(e.name); err != nil {
			continue // gone, or nothing that the user may look into
		}
		if err := watch(walk.fd(), name); err != nil {
			if result.err = exhaustion(err); result.err != nil {
				return result, nil
			}
		}
	}
}

// exhaustion lets pass what ends a watch: other failures concern one folder that is gone, or may not be looked at.
func exhaustion(err error) error {
	if codeIs(err, codes.ResourceExhausted) {
		return err
	}
	return nil
}

func newEvent(kind filev1.FileEventType, root, below string, fileType filev1.FileType, at int64) *filev1.FileEvent {
	return &filev1.FileEvent{
		Type: kind, Path: strings.ToValidUTF8(pathIn(root, below), "\uFFFD"), Name: strings.ToValidUTF8(below, "\uFFFD"),
		FileType: fileType, AtUnixMs: at,
	}
}

func (w *watching) event(kind filev1.FileEventType, below string, fileType filev1.FileType) *filev1.FileEvent {
	return newEvent(kind, w.root, below, fileType, time.Now().UnixMilli())
}

func (w *watching) tell(kind filev1.FileEventType, below string, fileType filev1.FileType) {
	event := w.event(kind, below, fileType)
	if n := len(w.events); n > 0 && kind == filev1.FileEventType_FILE_EVENT_TYPE_WRITE {
		// Many writes at once are one.
		if last := w.events[n-1].(*filev1.FileEvent); last.Type == kind && last.Path == event.Path {
			return
		}
	}
	w.events = append(w.events, event)
}

// take reads what the kernel saw. gone: the watched folder itself is not there any more.
func (w *watching) take(raw []byte) (gone bool, err error) {
	for len(raw) >= eventHeader {
		number := int32(binary.NativeEndian.Uint32(raw))
		mask := binary.NativeEndian.Uint32(raw[4:])
		cookie := binary.NativeEndian.Uint32(raw[8:])
		length := int(binary.NativeEndian.Uint32(raw[12:]))
		if len(raw) < eventHeader+length {
			return false, fmt.Errorf("inotify: an event of %d bytes in %d", eventHeader+length, len(raw))
		}
		name, _, _ := bytes.Cut(raw[eventHeader:eventHeader+length], []byte{0})
		raw = raw[eventHeader+length:]
		ended, err := w.one(number, mask, cookie, string(name))
		if err != nil {
			return false, err
		}
		gone = gone || ended
	}
	return gone, nil
}

func (w *watching) one(number int32, mask, cookie uint32, name string) (gone bool, err error) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.tell(filev1.FileEventType_FILE_EVENT_TYPE_OVERFLOW, "", filev1.FileType_FILE_TYPE_DIRECTORY)
		if w.recursive {
			// Folders that appeared meanwhile are watched from now on.
			err = w.add("", false)
		}
		return false, err
	}
	folder, known := w.folders[number]
	if !known {
		return false, nil
	}
	if mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF) != 0 {
		w.forget(number)
		return number == w.rootWatch, nil
	}
	if mask&unix.IN_MOVE_SELF != 0 {
		if number == w.rootWatch {
			return true, nil
		}
		return false, nil // the folder above tells
	}
	if name == "" || w.single != "" && name != w.single {
		return false, nil
	}
	below := name
	if folder != "" {
		below = folder + "/" + name
	}
	fileType := filev1.FileType_FILE_TYPE_FILE
	isFolder := mask&unix.IN_ISDIR != 0
	if isFolder {
		fileType = filev1.FileType_FILE_TYPE_DIRECTORY
	}
	switch {
	case mask&unix.IN_CREATE != 0, mask&unix.IN_MOVED_TO != 0:
		if temporary(name) {
			return false, nil
		}
		if mask&unix.IN_MOVED_TO != 0 && cookie != 0 && cookie == w.cookie {
			// Contents that we have replaced at once, or a new file with its contents.
			if !w.replaced {
				w.tell(filev1.FileEventType_FILE_EVENT_TYPE_CREATE, below, fileType)
			}
			w.tell(filev1.FileEventType_FILE_EVENT_TYPE_WRITE, below, fileType)
			return false, nil
		}
		if w.wasTold(below) {
			return false, nil
		}
		w.tell(filev1.FileEventType_FILE_EVENT_TYPE_CREATE, below, fileType)
		if isFolder && w.recursive {
			return false, w.add(below, true)
		}
	case mask&unix.IN_MOVED_FROM != 0:
		delete(w.told, below)
		if isFolder {
			w.forgetBelow(below)
		}
		if temporary(name) {
			w.cookie, w.replaced = cookie, strings.HasPrefix(name, TemporaryPrefix+replacing)
			return false, nil
		}
		w.tell(filev1.FileEventType_FILE_EVENT_TYPE_RENAME, below, fileType)
	case mask&unix.IN_DELETE != 0:
		delete(w.told, below)
		if isFolder {
			w.forgetBelow(below)
		}
		if !temporary(name) {
			w.tell(filev1.FileEventType_FILE_EVENT_TYPE_REMOVE, below, fileType)
		}
	case temporary(name):
	case mask&unix.IN_MODIFY != 0:
		w.tell(filev1.FileEventType_FILE_EVENT_TYPE_WRITE, below, fileType)
	case mask&unix.IN_ATTRIB != 0:
		w.tell(filev1.FileEventType_FILE_EVENT_TYPE_CHMOD, below, fileType)
	}
	return false, nil
}

// temporary says whether a name is that of one of our temporary files, of which nothing is told.
func temporary(name string) bool { return strings.HasPrefix(name, TemporaryPrefix) }

// wasTold says whether a creation was told already when its folder was listed.
func (w *watching) wasTold(below string) bool {
	if len(w.told) == 0 {
		return false
	}
	at, known := w.told[below]
	delete(w.told, below)
	if !known || time.Since(at) < toldFor {
		return known
	}
	clear(w.told) // old: what waited in the queue then has been read
	return false
}

func (w *watching) forget(number int32) {
	folder, known := w.folders[number]
	if !known {
		return
	}
	delete(w.folders, number)
	if w.numbers[folder] == number {
		delete(w.numbers, folder)
	}
	w.files.watchMu.Lock()
	w.files.watched--
	w.files.watchMu.Unlock()
}

// forgetBelow drops the watches of a folder that has left, and of those in it: it may be watched again under another name.
func (w *watching) forgetBelow(below string) {
	for folder, number := range w.numbers {
		if folder == below || strings.HasPrefix(folder, below+"/") {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(number))
			w.forget(number)
		}
	}
}

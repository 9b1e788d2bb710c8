// Package files serves the calls of atoll.agent.v1.Agent that are about files: it resolves paths inside the sandbox with the rights of
// the user that a call names, and lets the kernel decide. What it holds in memory does not grow with files, folders or their number.
package files

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/frame"
)

// Options of the calls.
type Options struct {
	// Namespace is the path of the mount namespace in which paths are resolved; "" for that of the process.
	Namespace func() (string, error)
	// Template is the user of calls that name none.
	Template func() Identity
	// Journal is a folder of root's, in which the names of temporary files are kept while they exist; "" for none.
	Journal string
}

// Files serves the calls of one sandbox.
type Files struct {
	threads   *threads
	journal   string
	transfers atomic.Int32

	watchMu sync.Mutex
	watches int // streams; guarded by watchMu
	watched int // folders of all streams; guarded by watchMu
}

// New makes the service. Temporary files that an agent before this one left are removed.
func New(options Options) *Files {
	f := &Files{threads: newThreads(options.Namespace, options.Template), journal: options.Journal}
	f.sweep()
	return f
}

// Close ends the threads that wait for work.
func (f *Files) Close() { f.threads.close() }

// Inside runs call where the mounts are those that the sandbox's programs see, with all the rights of the agent.
func (f *Files) Inside(ctx context.Context, call func()) error {
	_, err := asAgent(ctx, f.threads, f.threads.long, func(*thread) (struct{}, error) {
		call()
		return struct{}{}, nil
	})
	return err
}

// File does one operation.
func (f *Files) File(ctx context.Context, request *filev1.FileRequest) (*filev1.FileReply, error) {
	p := f.threads
	user := request.User
	switch operation := request.Operation.(type) {
	case *filev1.FileRequest_Stat:
		return do(ctx, p, p.short, user, func(t *thread) (*filev1.FileReply, error) { return t.stat(operation.Stat) })
	case *filev1.FileRequest_List:
		c := p.short
		if operation.List.Depth > 1 {
			c = p.long
		}
		return do(ctx, p, c, user, func(t *thread) (*filev1.FileReply, error) { return t.list(ctx, operation.List) })
	case *filev1.FileRequest_MakeDirectory:
		return do(ctx, p, p.short, user, func(t *thread) (*filev1.FileReply, error) { return t.makeDirectory(operation.MakeDirectory) })
	case *filev1.FileRequest_Move:
		reply, err := do(ctx, p, p.short, user, func(t *thread) (*filev1.FileReply, error) { return t.move(operation.Move) })
		if errors.Is(err, errOtherFileSystem) {
			return do(ctx, p, p.long, user, func(t *thread) (*filev1.FileReply, error) { return f.moveAcross(ctx, t, operation.Move) })
		}
		return reply, err
	case *filev1.FileRequest_Copy:
		return do(ctx, p, p.long, user, func(t *thread) (*filev1.FileReply, error) { return f.copy(ctx, t, operation.Copy) })
	case *filev1.FileRequest_Remove:
		c := p.short
		if operation.Remove.Recursive {
			c = p.long
		}
		return do(ctx, p, c, user, func(t *thread) (*filev1.FileReply, error) { return t.remove(ctx, operation.Remove) })
	case *filev1.FileRequest_Chmod:
		c := p.short
		if operation.Chmod.Recursive {
			c = p.long
		}
		return do(ctx, p, c, user, func(t *thread) (*filev1.FileReply, error) { return t.chmod(ctx, operation.Chmod) })
	case *filev1.FileRequest_Find:
		return do(ctx, p, p.long, user, func(t *thread) (*filev1.FileReply, error) { return t.find(ctx, operation.Find) })
	case *filev1.FileRequest_Replace:
		return do(ctx, p, p.long, user, func(t *thread) (*filev1.FileReply, error) { return f.replace(ctx, t, operation.Replace) })
	case *filev1.FileRequest_MakeSymlink:
		return do(ctx, p, p.short, user, func(t *thread) (*filev1.FileReply, error) { return t.makeSymlink(operation.MakeSymlink) })
	case *filev1.FileRequest_DiskUsage:
		return do(ctx, p, p.short, user, func(t *thread) (*filev1.FileReply, error) { return t.diskUsage(operation.DiskUsage) })
	}
	return nil, &frame.Status{Code: codes.Unimplemented, Message: "the agent has no such operation on files"}
}

func (t *thread) stat(request *filev1.Stat) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	info, err := t.lookUp(path, request.Follow)
	if err != nil {
		return nil, err
	}
	if request.Attributes && (info.Type == filev1.FileType_FILE_TYPE_FILE || info.Type == filev1.FileType_FILE_TYPE_DIRECTORY) {
		if info.Attributes, err = attributes(path); err != nil {
			return nil, failure(path, err)
		}
	}
	return &filev1.FileReply{File: info}, nil
}

func (t *thread) makeDirectory(request *filev1.MakeDirectory) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	mode := request.Mode
	if mode == 0 {
		mode = 0o755
	}
	if mode > permissionBits {
		return nil, status(codes.InvalidArgument, path, "mode %#o (expected: at most 07777)", mode)
	}
	if request.Parents {
		parent, _ := split(path)
		if err := makeFolders(parent); err != nil {
			return nil, err
		}
	}
	err = unix.Mkdir(path, mode)
	changed := err == nil
	if errors.Is(err, unix.EEXIST) && request.ExistOk {
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = nil
		}
	}
	if err != nil {
		return nil, failure(path, err)
	}
	if changed && mode&^0o1777 != 0 {
		// mkdir takes no set-id bits.
		if err := unix.Chmod(path, mode); err != nil {
			return nil, failure(path, err)
		}
	}
	info, err := t.lookUp(path, true)
	if err != nil {
		return nil, err
	}
	return &filev1.FileReply{File: info, Changed: changed}, nil
}

func (t *thread) makeSymlink(request *filev1.MakeSymlink) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	if request.Target == "" || len(request.Target) > maxPathBytes || strings.IndexByte(request.Target, 0) >= 0 {
		return nil, status(codes.InvalidArgument, path, "a target of %d bytes (expected: 1 to %d, without NUL)", len(request.Target), maxPathBytes)
	}
	if err := unix.Symlink(request.Target, path); err != nil {
		return nil, failure(path, err)
	}
	info, err := t.lookUp(path, false)
	if err != nil {
		return nil, err
	}
	return &filev1.FileReply{File: info, Changed: true}, nil
}

func (t *thread) diskUsage(request *filev1.DiskUsage) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return nil, failure(path, err)
	}
	reply := &filev1.FileReply{
		DiskUsedBytes:  (stat.Blocks - stat.Bfree) * uint64(stat.Bsize),
		DiskLimitBytes: stat.Blocks * uint64(stat.Bsize),
		InodesUsed:     stat.Files - stat.Ffree,
	}
	if stat.Blocks > 1<<50 {
		reply.DiskLimitBytes = 0 // how a file system says that it has no limit
	}
	return reply, nil
}

// maxPageBytes keeps a page of long names as small as one of many.
const maxPageBytes = 1 << 20

func (t *thread) list(ctx context.Context, request *filev1.List) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	limit := int(request.Limit)
	if limit == 0 || limit > 10_000 {
		limit = 10_000
	}
	depth := max(int(request.Depth), 1)
	var cursor []string
	if request.After != "" {
		if cursor, err = decodeCursor(request.After); err != nil {
			return nil, status(codes.InvalidArgument, path, "`after` is not of an earlier reply")
		}
	}
	root, err := openFolder(path)
	if err != nil {
		return nil, failure(path, err)
	}
	w, err := newWalk(root)
	if err != nil {
		return nil, failure(path, err)
	}
	defer w.close()
	w.batch = min(batchNames, limit+1)
	shown := canonical(path)
	reply := &filev1.FileReply{}
	last, size, examined := "", 0, 0
	// While the walk is on the cursor's path, onCursor is its depth there.
	onCursor := len(cursor) > 0
	if onCursor {
		w.top().from = cursor[0]
	}
	for {
		if examined++; examined%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e, ok, err := w.next()
		if err != nil {
			return nil, failure(pathIn(shown, w.below("")), err)
		}
		if !ok {
			if w.depth() == 1 {
				return reply, nil
			}
			if err := w.ascend(); err != nil {
				return nil, failure(shown, err)
			}
			onCursor = false
			continue
		}
		if !request.Hidden && strings.HasPrefix(e.name, ".") {
			continue
		}
		below := w.below(e.name)
		seen := false
		if onCursor {
			level := w.depth()
			seen = level <= len(cursor) && e.name == cursor[level-1]
			onCursor = seen
		}
		if !seen {
			var stat unix.Stat_t
			if err := unix.Fstatat(w.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // gone meanwhile
			}
			info := t.describe(w.fd(), e.name, pathIn(shown, below), &stat)
			if len(reply.Entries) == limit || size > maxPageBytes {
				reply.Next = encodeCursor(last)
				return reply, nil
			}
			reply.Entries = append(reply.Entries, info)
			size += proto.Size(info)
			last = below
		}
		if w.depth() < depth && isFolder(w.fd(), e) {
			if err := w.descend(e.name); err != nil {
				if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
					reply.Problems = problem(reply.Problems, failure(pathIn(shown, below), err))
				}
				continue
			}
			if onCursor && w.depth() <= len(cursor) {
				w.top().from = cursor[w.depth()-1]
			} else {
				onCursor = false
			}
		}
	}
}

func pathIn(folder, below string) string {
	if below == "" {
		return folder
	}
	return strings.TrimRight(folder, "/") + "/" + below
}

func problem(problems []string, err error) []string {
	if len(problems) >= 100 {
		return problems
	}
	var s *frame.Status
	if errors.As(err, &s) {
		return append(problems, s.Message)
	}
	return append(problems, err.Error())
}

func (t *thread) move(request *filev1.Move) (*filev1.FileReply, error) {
	from, to, err := t.pair(request.From, request.To)
	if err != nil {
		return nil, err
	}
	if request.Parents {
		if _, err := os.Lstat(from); err != nil {
			return nil, failure(from, err)
		}
		parent, _ := split(to)
		if err := makeFolders(parent); err != nil {
			return nil, err
		}
	}
	flags := uint(0)
	if !request.Overwrite {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	if errors.Is(err, unix.EINVAL) && flags != 0 {
		// A file system without the flag, or a folder into itself, which is refused again.
		var stat unix.Stat_t
		if unix.Lstat(to, &stat) == nil {
			err = unix.EEXIST
		} else {
			err = unix.Rename(from, to)
		}
	}
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, errOtherFileSystem
	case errors.Is(err, unix.ENOENT):
		// Either may be missing: say which.
		if _, missing := os.Lstat(from); missing == nil {
			return nil, failure(to, err)
		}
		return nil, failure(from, err)
	case errors.Is(err, unix.EEXIST) && request.Overwrite:
		return nil, failure(to, unix.ENOTEMPTY) // some file systems say the one, some the other
	case err != nil:
		return nil, failure(to, err)
	}
	info, err := t.lookUp(to, false)
	if err != nil {
		return nil, err
	}
	return &filev1.FileReply{File: info, Changed: true}, nil
}

func (t *thread) pair(from, to string) (string, string, error) {
	from, err := t.absolute(from)
	if err != nil {
		return "", "", err
	}
	to, err = t.absolute(to)
	return from, to, err
}

var errOtherFileSystem = errors.New("on another file system")

func (t *thread) chmod(ctx context.Context, request *filev1.Chmod) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	change := attributeChange{uid: -1, gid: -1, modified: request.ModifiedUnixNs}
	if request.Mode != nil {
		if *request.Mode > permissionBits {
			return nil, status(codes.InvalidArgument, path, "mode %#o (expected: at most 07777)", *request.Mode)
		}
		change.mode = request.Mode
	}
	if request.Owner != "" {
		uid, err := t.users.userID(request.Owner)
		if err != nil {
			return nil, status(codes.InvalidArgument, path, "user %q is not known in this sandbox", request.Owner)
		}
		change.uid = int(uid)
	}
	if request.Group != "" {
		gid, err := t.users.groupID(request.Group)
		if err != nil {
			return nil, status(codes.InvalidArgument, path, "group %q is not known in this sandbox", request.Group)
		}
		change.gid = int(gid)
	}
	reply := &filev1.FileReply{Changed: true}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return nil, failure(path, err)
	}
	if request.Recursive && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := t.chmodBelow(ctx, path, change, reply); err != nil {
			return nil, err
		}
	}
	if err := t.change(unix.AT_FDCWD, path, &stat, change, true); err != nil {
		return nil, failure(path, err)
	}
	reply.File, err = t.lookUp(path, true)
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func (t *thread) chmodBelow(ctx context.Context, path string, change attributeChange, reply *filev1.FileReply) error {
	root, err := openFolder(path)
	if err != nil {
		return failure(path, err)
	}
	w, err := newWalk(root)
	if err != nil {
		return failure(path, err)
	}
	defer w.close()
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e, ok, err := w.next()
		if err != nil {
			return failure(pathIn(path, w.below("")), err)
		}
		if !ok {
			if w.depth() == 1 {
				return nil
			}
			if err := w.ascend(); err != nil {
				return failure(path, err)
			}
			continue
		}
		var stat unix.Stat_t
		if unix.Fstatat(w.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		where := pathIn(path, w.below(e.name))
		folder := stat.Mode&unix.S_IFMT == unix.S_IFDIR
		// A folder is changed before it is entered, by way of its descriptor: a mode that lets nobody in would end the walk otherwise,
		// and one that lets its owner in may be what is asked for.
		fd := -1
		if folder {
			fd, _ = openFolderAt(w.fd(), e.name)
		}
		if err := t.change(w.fd(), e.name, &stat, change, false); err != nil {
			reply.Problems = problem(reply.Problems, failure(where, err))
		}
		if !folder {
			continue
		}
		if fd < 0 {
			if fd, err = openFolderAt(w.fd(), e.name); err != nil {
				reply.Problems = problem(reply.Problems, failure(where, err))
				continue
			}
		}
		if err := w.enter(e.name, fd); err != nil {
			return failure(where, err)
		}
	}
}

type attributeChange struct {
	mode     *uint32
	uid, gid int
	modified *int64
}

// change never follows a symlink that has taken the place of a file unless follow says so; a symlink itself gets the owner only.
func (t *thread) change(dir int, name string, stat *unix.Stat_t, change attributeChange, follow bool) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	if change.uid >= 0 || change.gid >= 0 {
		if err := unix.Fchownat(dir, name, change.uid, change.gid, flags); err != nil {
			return err
		}
	}
	link := stat.Mode&unix.S_IFMT == unix.S_IFLNK
	if change.mode != nil && !link {
		if err := t.setMode(dir, name, stat, *change.mode, follow); err != nil {
			return err
		}
	}
	if change.modified != nil && !link {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(*change.modified)}
		return unix.UtimesNanoAt(dir, name, times, flags)
	}
	return nil
}

func (t *thread) setMode(dir int, name string, stat *unix.Stat_t, mode uint32, follow bool) error {
	if follow {
		return fchmodat(dir, name, mode)
	}
	kind := stat.Mode & unix.S_IFMT
	if kind == unix.S_IFREG || kind == unix.S_IFDIR {
		fd, err := open(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			defer unix.Close(fd)
			return unix.Fchmod(fd, mode)
		}
		if errors.Is(err, unix.ELOOP) {
			return status(codes.Aborted, name, "a symlink has taken the place of the file")
		}
	}
	// What can't be opened. By name, a swapped symlink would be followed: with root's rights that must not be.
	if t.identity != nil && t.identity.Uid != 0 {
		return fchmodat(dir, name, mode)
	}
	err := unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EOPNOTSUPP) && kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return status(codes.FailedPrecondition, name, "the mode of a FIFO, socket or device is not changed recursively here")
	}
	return err
}

func fchmodat(dir int, name string, mode uint32) error {
	err := unix.Fchmodat(dir, name, mode, 0)
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func codeIs(err error, code codes.Code) bool {
	var s *frame.Status
	return errors.As(err, &s) && s.Code == code
}

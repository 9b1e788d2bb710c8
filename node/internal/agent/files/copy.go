package files

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
)

func (f *Files) copy(ctx context.Context, t *thread, request *filev1.Copy) (*filev1.FileReply, error) {
	from, to, err := t.pair(request.From, request.To)
	if err != nil {
		return nil, err
	}
	c := &copier{files: f, thread: t, ctx: ctx, overwrite: request.Overwrite}
	return c.run(from, to, request.Recursive, request.Parents)
}

// moveAcross moves to another file system: a copy, then the removal of the original. If the copy fails, the original is whole.
func (f *Files) moveAcross(ctx context.Context, t *thread, request *filev1.Move) (*filev1.FileReply, error) {
	from, to, err := t.pair(request.From, request.To)
	if err != nil {
		return nil, err
	}
	c := &copier{files: f, thread: t, ctx: ctx, overwrite: request.Overwrite, exact: true}
	parent, name, err := t.openParent(from, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(parent)
	var source, there unix.Stat_t
	if err := unix.Fstatat(parent, name, &source, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, failure(from, err)
	}
	if source.Mode&unix.S_IFMT == unix.S_IFDIR && unix.Lstat(to, &there) == nil {
		// A folder takes the place of an empty folder only: make it one that is not there.
		if !request.Overwrite {
			return nil, failure(to, unix.EEXIST)
		}
		if err := unix.Rmdir(to); err != nil {
			return nil, failure(to, err)
		}
	}
	reply, err := c.run(from, to, true, request.Parents)
	if err != nil {
		return nil, err
	}
	if err := removeAt(ctx, parent, name, from, true); err != nil {
		return nil, failure(from, err)
	}
	return reply, nil
}

type copier struct {
	files     *Files
	thread    *thread
	ctx       context.Context
	overwrite bool
	exact     bool // nothing may be left out, and times are kept: for a move
	problems  []string
	// the folder that everything goes to, so that a folder is not copied into itself for ever
	device, inode uint64
}

func (c *copier) run(from, to string, recursive, parents bool) (*filev1.FileReply, error) {
	source, sourceName, err := c.thread.openParent(from, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(source)
	var stat unix.Stat_t
	if err := unix.Fstatat(source, sourceName, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, failure(from, err)
	}
	folder := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if folder && !recursive {
		return nil, status(codes.FailedPrecondition, from, "is a folder (copy it with `recursive`)")
	}
	target, targetName, err := c.thread.openParent(to, parents)
	if err != nil {
		return nil, err
	}
	defer unix.Close(target)
	if !folder {
		if typeOf(stat.Mode) == filev1.FileType_FILE_TYPE_OTHER {
			return nil, status(codes.FailedPrecondition, from, "is no regular file")
		}
		var its unix.Stat_t
		if unix.Fstatat(target, targetName, &its, 0) == nil && its.Ino == stat.Ino && its.Dev == stat.Dev {
			return nil, status(codes.InvalidArgument, to, "is the same file as %s", show(from))
		}
		if err := c.one(source, sourceName, target, targetName, to, &stat); err != nil {
			return nil, failure(to, err)
		}
	} else if err := c.folder(source, sourceName, target, targetName, from, to, &stat); err != nil {
		return nil, err
	}
	info, err := c.thread.lookUp(to, false)
	if err != nil {
		return nil, err
	}
	return &filev1.FileReply{File: info, Changed: true, Problems: c.problems}, nil
}

// one copies a file or symlink.
func (c *copier) one(source int, name string, target int, targetName, path string, stat *unix.Stat_t) error {
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		link, err := readLink(source, name)
		if err != nil {
			return err
		}
		err = unix.Symlinkat(link, target, targetName)
		if errors.Is(err, unix.EEXIST) && c.overwrite {
			if err := unix.Unlinkat(target, targetName, 0); err != nil {
				return err
			}
			err = unix.Symlinkat(link, target, targetName)
		}
		return err
	case unix.S_IFREG:
	default:
		return status(codes.FailedPrecondition, path, "a FIFO, socket or device is not copied")
	}
	fd, now, err := openRegular(source, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mode := now.Mode & 0o1777
	if c.exact {
		mode = now.Mode & permissionBits
	}
	// Without O_EXCL it could be a FIFO, or lead elsewhere.
	to, err := open(target, targetName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.EEXIST) && c.overwrite {
		return c.replace(fd, &now, target, targetName, path, mode)
	}
	if err != nil {
		return err
	}
	err = c.fill(fd, to, &now, mode)
	_ = unix.Close(to)
	if err != nil {
		_ = unix.Unlinkat(target, targetName, 0)
	}
	return err
}

func (c *copier) fill(from, to int, stat *unix.Stat_t, mode uint32) error {
	if err := copyData(c.ctx, from, to, stat.Size, true); err != nil {
		return err
	}
	if err := unix.Ftruncate(to, stat.Size); err != nil {
		return err
	}
	copyAttributes(from, to)
	if err := unix.Fchmod(to, mode); err != nil {
		return err
	}
	if c.exact {
		return setTime(to, stat.Mtim)
	}
	return nil
}

// replace copies over a file that is there.
func (c *copier) replace(from int, stat *unix.Stat_t, folder int, name, path string, mode uint32) error {
	own, err := unix.FcntlInt(uintptr(folder), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	g, err := c.files.newTargetAt(c.thread, own, name, path, false, mode)
	if err != nil {
		return err
	}
	defer g.Close()
	if err := c.fill(from, g.temporary, stat, mode); err != nil {
		return err
	}
	return g.commit(c.ctx, nil, stat.Size)
}

func (c *copier) folder(source int, sourceName string, target int, targetName, from, to string, stat *unix.Stat_t) error {
	root, err := openFolderAt(source, sourceName)
	if err != nil {
		return failure(from, err)
	}
	w, err := newWalk(root)
	if err != nil {
		return failure(from, err)
	}
	defer w.close()
	made, err := c.makeFolder(target, targetName, stat)
	if err != nil {
		return failure(to, err)
	}
	out, err := newWalk(made)
	if err != nil {
		return failure(to, err)
	}
	defer out.close()
	c.device, c.inode = out.top().device, out.top().inode
	if w.top().device == c.device && w.top().inode == c.inode {
		return status(codes.InvalidArgument, to, "is the same folder as %s", show(from))
	}
	// Modes of folders that their owner may not write to come last.
	modes := []uint32{stat.Mode}
	for {
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		e, ok, err := w.next()
		if err != nil {
			return failure(pathIn(from, w.below("")), err)
		}
		if !ok {
			if err := c.finishFolder(out.fd(), w.fd(), modes[len(modes)-1]); err != nil {
				return failure(pathIn(to, out.below("")), err)
			}
			modes = modes[:len(modes)-1]
			if w.depth() == 1 {
				return nil
			}
			if err := w.ascend(); err != nil {
				return failure(from, err)
			}
			if err := out.ascend(); err != nil {
				return failure(to, err)
			}
			continue
		}
		var its unix.Stat_t
		if err := unix.Fstatat(w.fd(), e.name, &its, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // gone meanwhile
		}
		if its.Mode&unix.S_IFMT != unix.S_IFDIR {
			path := pathIn(to, out.below(e.name))
			if err := c.one(w.fd(), e.name, out.fd(), e.name, path, &its); err != nil {
				if err = c.tolerate(failure(path, err)); err != nil {
					return err
				}
			}
			continue
		}
		if its.Dev == c.device && its.Ino == c.inode {
			if c.exact {
				return status(codes.InvalidArgument, to, "lies in %s", show(from))
			}
			continue // the copy itself
		}
		if err := w.descend(e.name); err != nil {
			if err = c.tolerate(failure(pathIn(from, w.below(e.name)), err)); err != nil {
				return err
			}
			continue
		}
		made, err := c.makeFolder(out.fd(), e.name, &its)
		if err == nil {
			err = out.enter(e.name, made)
		}
		if err != nil {
			return failure(pathIn(to, out.below(e.name)), err)
		}
		modes = append(modes, its.Mode)
	}
}

// tolerate turns what concerns one file into a problem of the reply, but for a move, and for what ends everything.
func (c *copier) tolerate(err error) error {
	if c.exact || c.ctx.Err() != nil || codeIs(err, codes.ResourceExhausted) || codeIs(err, codes.AlreadyExists) {
		return err
	}
	c.problems = problem(c.problems, err)
	return nil
}

// makeFolder makes a folder or opens the one that is there.
func (c *copier) makeFolder(parent int, name string, stat *unix.Stat_t) (int, error) {
	err := unix.Mkdirat(parent, name, stat.Mode&0o777|0o700)
	if err != nil && (!errors.Is(err, unix.EEXIST) || !c.overwrite) {
		return -1, err
	}
	return openFolderAt(parent, name)
}

func (c *copier) finishFolder(folder, source int, mode uint32) error {
	var now unix.Stat_t
	if err := unix.Fstat(folder, &now); err != nil {
		return err
	}
	if now.Mode&permissionBits != mode&permissionBits {
		if err := unix.Fchmod(folder, mode&0o1777); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if !c.exact {
		return nil
	}
	var old unix.Stat_t
	if err := unix.Fstat(source, &old); err != nil {
		return err
	}
	return setTime(folder, old.Mtim)
}

func setTime(fd int, modified unix.Timespec) error {
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}
	return futimens(fd, &times)
}

// openRegular opens a regular file for reading, and nothing else, and never waits.
func openRegular(dir int, name string) (int, unix.Stat_t, error) {
	return openRegularWith(dir, name, unix.O_NOFOLLOW)
}

func openRegularWith(dir int, name string, flags int) (fd int, stat unix.Stat_t, err error) {
	at := 0
	if flags&unix.O_NOFOLLOW != 0 {
		at = unix.AT_SYMLINK_NOFOLLOW
	}
	// Opening some devices, or a FIFO on which somebody waits, does things already.
	if err := unix.Fstatat(dir, name, &stat, at); err != nil {
		return -1, stat, err
	}
	if err := regular(&stat); err != nil {
		return -1, stat, err
	}
	fd, err = open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
	if err != nil {
		return -1, stat, err
	}
	if err = unix.Fstat(fd, &stat); err == nil {
		err = regular(&stat)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, stat, err
	}
	return fd, stat, nil
}

func regular(stat *unix.Stat_t) error {
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return errNoRegularFile
}

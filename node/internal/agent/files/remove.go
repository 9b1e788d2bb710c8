package files

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
)

func (t *thread) remove(ctx context.Context, request *filev1.Remove) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	parent, name, err := t.openParent(path, false)
	if err == nil {
		defer unix.Close(parent)
		err = failure(path, removeAt(ctx, parent, name, path, request.Recursive))
	}
	if request.Force && codeIs(err, codes.NotFound) {
		return &filev1.FileReply{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &filev1.FileReply{Changed: true}, nil
}

func removeAt(ctx context.Context, parent int, name, path string, recursive bool) error {
	err := unix.Unlinkat(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if gone := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); gone == nil {
		return nil
	} else if !errors.Is(gone, unix.ENOTDIR) {
		err = gone
	}
	if errors.Is(err, unix.EEXIST) {
		err = unix.ENOTEMPTY
	}
	if !errors.Is(err, unix.ENOTEMPTY) || !recursive {
		return err
	}
	root, err := openFolderAt(parent, name)
	if err != nil {
		return err
	}
	if err := removeBelow(ctx, root, path); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// removeBelow empties a folder, and ends at the first thing that can't be removed. Unlike other walks it does not sort names: what
// has been removed is not met again, so one pass is enough, even where a folder holds a million files.
func removeBelow(ctx context.Context, root int, path string) error {
	w, err := newWalk(root)
	if err != nil {
		return err
	}
	defer w.close()
	w.unsorted = true
	for examined := 0; ; examined++ {
		if examined%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e, ok, err := w.next()
		if err != nil {
			return failure(pathIn(path, w.below("")), err)
		}
		if ok {
			if e.kind != unix.DT_DIR {
				err = unix.Unlinkat(w.fd(), e.name, 0)
				if err == nil || errors.Is(err, unix.ENOENT) {
					continue
				}
				if e.kind != unix.DT_UNKNOWN || !isFolder(w.fd(), e) {
					return failure(pathIn(path, w.below(e.name)), err)
				}
			}
			err = unix.Unlinkat(w.fd(), e.name, unix.AT_REMOVEDIR)
			if err == nil || errors.Is(err, unix.ENOENT) {
				continue
			}
			if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
				err = w.descend(e.name)
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return failure(pathIn(path, w.below(e.name)), err)
			}
			continue
		}
		if w.depth() == 1 {
			return nil
		}
		name := string(w.path[w.levels[len(w.levels)-2].pathSize:])
		if name[0] == '/' {
			name = name[1:]
		}
		if err := w.ascend(); err != nil {
			return failure(path, err)
		}
		err = unix.Unlinkat(w.fd(), name, unix.AT_REMOVEDIR)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			// ENOTEMPTY: something was made in it meanwhile.
			return failure(pathIn(path, w.below(name)), err)
		}
	}
}

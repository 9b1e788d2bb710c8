package files

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	execv1 "atoll/node/gen/execv1"
)

const (
	// A list for people and programs that want to know what a run of code has left, not a backup.
	maxChangedFiles = 1000
	maxChangedBytes = 256 << 10 // of all paths
	// Names looked at. In gVisor one takes some 30 us, and more where the sandbox has half a CPU.
	maxLookedAt   = 20000
	maxLookedDeep = 32
)

// Changed lists the regular files below a folder whose content, name or rights have changed since a moment, by their change time, which
// programs can't set. It looks at so many names at most, and until ctx ends.
func (f *Files) Changed(ctx context.Context, folder string, since time.Time) (*execv1.ChangedFiles, error) {
	return asAgent(ctx, f.threads, f.threads.long, func(*thread) (*execv1.ChangedFiles, error) {
		return changed(ctx, folder, since)
	})
}

func changed(ctx context.Context, folder string, since time.Time) (*execv1.ChangedFiles, error) {
	root, err := openFolder(folder)
	if err != nil {
		return nil, failure(folder, err)
	}
	w, err := newWalk(root)
	if err != nil {
		return nil, failure(folder, err)
	}
	defer w.close()
	found := &execv1.ChangedFiles{}
	begin := strings.TrimSuffix(folder, "/") + "/"
	bytes := 0
	for looked := 0; ; {
		if ctx.Err() != nil {
			found.Incomplete = true
			return found, nil
		}
		e, ok, err := w.next()
		if err != nil {
			found.Incomplete = true
			ok = false
		}
		if !ok {
			if w.depth() == 1 {
				return found, nil
			}
			if w.ascend() != nil {
				found.Incomplete = true // moved meanwhile
				return found, nil
			}
			continue
		}
		looked++
		if looked > maxLookedAt {
			found.Incomplete = true
			return found, nil
		}
		if passedOver(e.name) {
			continue
		}
		if isFolder(w.fd(), e) {
			// One that can't be opened has been removed meanwhile, or is no folder any more.
			if w.depth() >= maxLookedDeep || w.descend(e.name) != nil {
				found.Incomplete = found.Incomplete || w.depth() >= maxLookedDeep
			}
			continue
		}
		if e.kind != unix.DT_REG && e.kind != unix.DT_UNKNOWN {
			continue
		}
		var stat unix.Stat_t
		if unix.Fstatat(w.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if time.Unix(stat.Ctim.Unix()).Before(since) {
			continue
		}
		path := begin + w.below(e.name)
		bytes += len(path)
		if len(found.Files) >= maxChangedFiles || bytes > maxChangedBytes {
			found.Incomplete = true
			return found, nil
		}
		found.Files = append(found.Files, &execv1.ChangedFile{
			Path:             strings.ToValidUTF8(path, "\uFFFD"),
			SizeBytes:        uint64(max(0, stat.Size)),
			ModifiedAtUnixMs: time.Unix(stat.Mtim.Unix()).UnixMilli(),
		})
	}
}

// passedOver says whether a name is of something that tools keep for themselves.
func passedOver(name string) bool {
	return strings.HasPrefix(name, ".") || name == "__pycache__" || name == "node_modules"
}

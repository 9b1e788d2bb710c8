package assemble

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"atoll/node/internal/erofs"
)

const (
	maxPath = 4096
	// maxDepth is what a path of maxPath can have.
	maxDepth = maxPath / 2
	maxLinks = 40
)

// tree is the image as it grows. Paths are looked up in it, and nowhere else: a link leads to a place in it, or nowhere.
type tree struct {
	root   *erofs.Inode
	limits Limits
	// entries and nameBytes are what it takes.
	entries, nameBytes int
	// freed are contents that nothing names any more.
	freed []extent
}

type extent struct{ offset, size uint64 }

var (
	errLoop     = errors.New("too many symbolic links")
	errNotDir   = errors.New("not a directory")
	errNotFound = fs.ErrNotExist
)

// split cleans a path of a layer into names. Errors: one that could lead out of the root, or that no file system has.
func split(name string) ([]string, error) {
	if len(name) > maxPath {
		return nil, invalid("a path of %d bytes (expected: at most %d): %q", len(name), maxPath, clip(name))
	}
	if strings.IndexByte(name, 0) >= 0 {
		return nil, invalid("the path %q holds a zero byte", clip(name))
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return nil, invalid("the path %q leads upwards", clip(name))
		case len(part) > erofs.MaxName:
			return nil, invalid("a name of %d bytes (expected: at most %d): %q", len(part), erofs.MaxName, clip(part))
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// count takes the room of one more entry.
func (t *tree) count(nameBytes int) error {
	t.entries++
	t.nameBytes += nameBytes
	if t.entries > t.limits.Entries {
		return tooLarge("more than %d files (remedy: make the image smaller)", t.limits.Entries)
	}
	if t.nameBytes > t.limits.NameBytes {
		return tooLarge("more than %d bytes of names (remedy: make the image smaller)", t.limits.NameBytes)
	}
	return nil
}

// directory follows a path to a directory, symbolic links too, as a process whose root this tree is would. Where one is missing it is
// made, if layer is not negative.
func (t *tree) directory(parts []string, layer int32) (*erofs.Inode, error) {
	at := []*erofs.Inode{t.root}
	rest := parts
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		here := at[len(at)-1]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(at) > 1 {
				at = at[:len(at)-1]
			}
			continue
		}
		child := here.Children[name]
		if child == nil {
			if layer < 0 {
				return nil, errNotFound
			}
			if len(name) > erofs.MaxName {
				return nil, invalid("a name of %d bytes (expected: at most %d)", len(name), erofs.MaxName)
			}
			if err := t.count(len(name)); err != nil {
				return nil, err
			}
			child = erofs.NewDir(0o755)
			child.Layer, child.Links = layer, 1
			here.Children[name] = child
		}
		switch {
		case child.IsDir():
			if len(at) >= maxDepth {
				return nil, invalid("directories more than %d deep", maxDepth)
			}
			at = append(at, child)
		case child.IsSymlink():
			if links++; links > maxLinks {
				return nil, errLoop
			}
			if strings.HasPrefix(child.Target, "/") {
				at = at[:1]
			}
			rest = append(strings.Split(child.Target, "/"), rest...)
		default:
			return nil, errNotDir
		}
	}
	return at[len(at)-1], nil
}

// find follows a path to the end, and tells the path without symbolic links.
func (t *tree) find(name string) (*erofs.Inode, string, error) {
	name = path.Clean("/" + name)
	for links := 0; ; {
		if name == "/" {
			return t.root, name, nil
		}
		dir, real, err := t.resolve(path.Dir(name))
		if err != nil {
			return nil, "", err
		}
		child := dir.Children[path.Base(name)]
		if child == nil {
			return nil, "", errNotFound
		}
		name = path.Join(real, path.Base(name))
		if !child.IsSymlink() {
			return child, name, nil
		}
		if links++; links > maxLinks {
			return nil, "", errLoop
		}
		name = joinTarget(real, child.Target)
	}
}

func joinTarget(dir, target string) string {
	if strings.HasPrefix(target, "/") {
		return path.Clean(target)
	}
	return path.Join(dir, target)
}

// resolve follows a path to a directory, and tells its path without symbolic links.
func (t *tree) resolve(name string) (*erofs.Inode, string, error) {
	type step struct {
		inode *erofs.Inode
		name  string
	}
	at := []step{{t.root, ""}}
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = at[:max(1, len(at)-1)]
			continue
		}
		child := at[len(at)-1].inode.Children[part]
		switch {
		case child == nil:
			return nil, "", errNotFound
		case child.IsDir():
			at = append(at, step{child, part})
		case child.IsSymlink():
			if links++; links > maxLinks {
				return nil, "", errLoop
			}
			if strings.HasPrefix(child.Target, "/") {
				at = at[:1]
			}
			rest = append(strings.Split(child.Target, "/"), rest...)
		default:
			return nil, "", errNotDir
		}
	}
	var names []string
	for _, s := range at {
		names = append(names, s.name)
	}
	return at[len(at)-1].inode, "/" + strings.TrimPrefix(strings.Join(names, "/"), "/"), nil
}

// put gives a directory an entry. A directory over a directory changes its attributes only; anything else replaces what was there.
func (t *tree) put(dir *erofs.Inode, name string, i *erofs.Inode) error {
	old := dir.Children[name]
	if old == i {
		return nil
	}
	if old != nil && old.IsDir() && i.IsDir() {
		old.Mode, old.UID, old.GID, old.Mtime, old.MtimeNsec, old.Layer = i.Mode, i.UID, i.GID, i.Mtime, i.MtimeNsec, i.Layer
		return nil
	}
	// First, since what is replaced can be a directory that holds its other name.
	i.Links++
	if old != nil {
		t.drop(dir, name)
	}
	if err := t.count(len(name) + len(i.Target)); err != nil {
		return err
	}
	dir.Children[name] = i
	return nil
}

// drop removes an entry with all below it.
func (t *tree) drop(dir *erofs.Inode, name string) {
	i := dir.Children[name]
	delete(dir.Children, name)
	t.entries--
	t.nameBytes -= len(name) + len(i.Target)
	if i.Links--; i.Links == 0 && i.IsRegular() && i.Stored && i.Size > 0 {
		t.freed = append(t.freed, extent{i.Offset, i.Size})
	}
	for child := range i.Children {
		t.drop(i, child)
	}
}

// hide removes what an entry was before a layer, and keeps what the layer itself has put there, in whatever order the two came.
func (t *tree) hide(dir *erofs.Inode, name string, layer int32) {
	i := dir.Children[name]
	if i == nil {
		return
	}
	if i.IsDir() {
		t.hideChildren(i, layer)
	}
	if i.Layer < layer && len(i.Children) == 0 {
		t.drop(dir, name)
	}
}

func (t *tree) hideChildren(dir *erofs.Inode, layer int32) {
	for name := range dir.Children {
		t.hide(dir, name, layer)
	}
}

// adopt counts what a base image has.
func (t *tree) adopt(dir *erofs.Inode) error {
	for name, child := range dir.Children {
		switch child.Type() {
		case unix.S_IFCHR, unix.S_IFBLK:
			// As with layers: gVisor gives a sandbox the devices that it has.
			delete(dir.Children, name)
			continue
		}
		if err := t.count(len(name) + len(child.Target)); err != nil {
			return err
		}
		if child.IsDir() {
			if err := t.adopt(child); err != nil {
				return err
			}
		}
	}
	return nil
}

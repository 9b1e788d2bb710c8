package build

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const (
	maxEntries   = 500_000
	maxNameBytes = 128 << 20
	maxLinks     = 40
	ignoreName   = ".dockerignore"
	maxIgnore    = 1 << 20
)

// node is a file of the build context.
type node struct {
	name     string
	kind     FileKind
	mode     int64
	modified time.Time
	target   string // of a symlink
	// Of a regular file: where in the blob file its content is.
	offset, size int64
	sum          string
	children     map[string]*node
}

// buildContext is the files that come with a Dockerfile: their contents lie one after the other in a single file on the host, which
// nothing but this index knows by name. No path of theirs becomes a path of the host's.
type buildContext struct {
	root  *node
	blobs *os.File
}

func folderNode(name string) *node {
	return &node{name: name, kind: Folder, mode: 0o755, children: map[string]*node{}}
}

// readContext takes a tar, as it is or compressed with gzip. The files that .dockerignore names are left out. What it returns is
// to be closed, also with an error.
func readContext(ctx context.Context, archive io.Reader, dir string, limit int64) (*buildContext, error) {
	c := &buildContext{root: folderNode("")}
	if archive == nil {
		return c, nil
	}
	blobs, err := os.CreateTemp(dir, "context-")
	if err != nil {
		return c, err
	}
	c.blobs = blobs
	if err := os.Remove(blobs.Name()); err != nil {
		return c, err
	}
	if err := c.read(ctx, archive, limit); err != nil {
		return c, err
	}
	return c, c.ignore()
}

func (c *buildContext) close() {
	if c.blobs != nil {
		c.blobs.Close()
	}
}

func (c *buildContext) read(ctx context.Context, archive io.Reader, limit int64) error {
	wrong := func(err error) error {
		var known *InvalidError
		if errors.As(err, &known) || ctx.Err() != nil {
			return err
		}
		return invalid(0, "the build context is no tar archive: %v", err)
	}
	buffered := bufio.NewReaderSize(archive, 256<<10)
	magic, err := buffered.Peek(2)
	if errors.Is(err, io.EOF) && len(magic) == 0 {
		return nil
	}
	var plain io.Reader = buffered
	if len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return wrong(err)
		}
		plain = unzipped
	}
	entries := tar.NewReader(plain)
	names, count, offset := 0, 0, int64(0)
	buffer := make([]byte, 256<<10)
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			// What follows is the sender's padding.
			_, err := io.CopyBuffer(io.Discard, io.LimitReader(struct{ io.Reader }{buffered}, 1<<20), buffer)
			return err
		}
		if err != nil {
			return wrong(err)
		}
		count++
		if names += len(header.Name) + len(header.Linkname); count > maxEntries || names > maxNameBytes {
			return invalid(0, "the build context has more than %d files, or names of more than %d MiB (remedy: a .dockerignore)", maxEntries, maxNameBytes>>20)
		}
		n := &node{mode: header.Mode & 0o7777, modified: header.ModTime}
		switch header.Typeflag {
		case tar.TypeDir:
			n.kind, n.children = Folder, map[string]*node{}
		case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
			n.kind, n.offset = RegularFile, offset
			sum := sha256.New()
			if offset+header.Size > limit {
				return invalid(0, "the build context has more than %d MiB (remedy: a .dockerignore)", limit>>20)
			}
			if n.size, err = io.CopyBuffer(io.MultiWriter(c.blobs, sum), struct{ io.Reader }{entries}, buffer); err != nil {
				return wrong(err)
			}
			if offset += n.size; offset > limit {
				return invalid(0, "the build context has more than %d MiB (remedy: a .dockerignore)", limit>>20)
			}
			n.sum = hex.EncodeToString(sum.Sum(nil))
		case tar.TypeSymlink:
			n.kind, n.target = Symlink, header.Linkname
		case tar.TypeLink:
			linked, err := c.at(header.Linkname)
			if err != nil || linked.kind != RegularFile {
				return invalid(0, "the build context's %q is a link to %q, which is no file before it", shorten(header.Name, 200), shorten(header.Linkname, 200))
			}
			copied := *linked
			n = &copied
		default:
			continue // devices, FIFOs, and what describes other entries
		}
		if err := c.put(header.Name, n); err != nil {
			return err
		}
	}
}

// parts are the names on the way to a path of the context; ".." leads no further up than its root.
func parts(name string) []string {
	clean := strings.Trim(path.Clean("/"+filepath.ToSlash(name)), "/")
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

func (c *buildContext) put(name string, n *node) error {
	if strings.ContainsRune(name, 0) || slices.Contains(strings.Split(name, "/"), "..") {
		return invalid(0, "the build context has an entry %q (expected: names below its folder)", shorten(name, 200))
	}
	way := parts(name)
	if len(way) == 0 {
		if n.kind == Folder {
			c.root.mode, c.root.modified = n.mode, n.modified
		}
		return nil
	}
	at := c.root
	for _, part := range way[:len(way)-1] {
		next := at.children[part]
		if next == nil || next.kind != Folder {
			next = folderNode(part)
			at.children[part] = next
		}
		at = next
	}
	last := way[len(way)-1]
	if have := at.children[last]; have != nil && have.kind == Folder && n.kind == Folder {
		have.mode, have.modified = n.mode, n.modified
		return nil
	}
	n.name = last
	at.children[last] = n
	return nil
}

// at finds an entry without following symlinks.
func (c *buildContext) at(name string) (*node, error) {
	at := c.root
	for _, part := range parts(name) {
		if at = at.children[part]; at == nil {
			return nil, ErrNoFile
		}
	}
	return at, nil
}

// follow finds what a path leads to, by way of symlinks, which never lead out of the context.
func (c *buildContext) follow(name string) (*node, error) {
	todo := parts(name)
	var way []*node
	at := c.root
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case ".", "":
			continue
		case "..":
			if len(way) > 0 {
				at, way = way[len(way)-1], way[:len(way)-1]
			}
			continue
		}
		next := at.children[part]
		if next == nil {
			return nil, ErrNoFile
		}
		if next.kind == Symlink {
			if links++; links > maxLinks {
				return nil, fmt.Errorf("%w: too many symlinks", ErrNoFile)
			}
			if strings.HasPrefix(next.target, "/") {
				at, way = c.root, nil
			}
			todo = append(strings.Split(next.target, "/"), todo...)
			continue
		}
		way, at = append(way, at), next
	}
	return at, nil
}

// ignore leaves out what .dockerignore says.
func (c *buildContext) ignore() error {
	n, err := c.follow(ignoreName)
	if err != nil || n.kind != RegularFile {
		return nil //nolint:nilerr // most contexts have none
	}
	if n.size > maxIgnore {
		return invalid(0, "%s has %d bytes (expected: at most %d)", ignoreName, n.size, maxIgnore)
	}
	patterns, err := ignorefile.ReadAll(c.content(n))
	if err != nil {
		return invalid(0, "%s: %v", ignoreName, err)
	}
	if len(patterns) == 0 {
		return nil
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return invalid(0, "%s: %v", ignoreName, err)
	}
	return c.prune(c.root, "", matcher, patternmatcher.MatchInfo{})
}

// prune removes what matches. A folder that matches stays where something in it does not.
func (c *buildContext) prune(at *node, prefix string, matcher *patternmatcher.PatternMatcher, parent patternmatcher.MatchInfo) error {
	for _, name := range slices.Sorted(maps.Keys(at.children)) {
		child := at.children[name]
		matched, info, err := matcher.MatchesUsingParentResults(prefix+name, parent)
		if err != nil {
			return invalid(0, "%s: %v", ignoreName, err)
		}
		if child.kind == Folder {
			if err := c.prune(child, prefix+name+"/", matcher, info); err != nil {
				return err
			}
			matched = matched && len(child.children) == 0
		}
		if matched {
			delete(at.children, name)
		}
	}
	return nil
}

func (c *buildContext) content(n *node) io.Reader {
	return io.NewSectionReader(c.blobs, n.offset, n.size)
}

// match is one file or folder that a source of COPY stands for.
type match struct {
	// name is what it is called where it is copied to.
	name string
	// path is where it is, for --parents.
	path string
	node *node
}

// find expands a pattern. Symlinks at its end and on its way are followed.
func (c *buildContext) find(pattern string) ([]match, error) {
	way := parts(pattern)
	if !strings.ContainsAny(pattern, `*?[\`) {
		n, err := c.follow(pattern)
		if err != nil {
			return nil, err
		}
		return []match{{name: path.Base("/" + strings.Join(way, "/")), path: strings.Join(way, "/"), node: n}}, nil
	}
	found := []match{{node: c.root}}
	for _, part := range way {
		var next []match
		for _, m := range found {
			if m.node.kind != Folder {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(m.node.children)) {
				fits, err := path.Match(part, name)
				if err != nil {
					return nil, fmt.Errorf("pattern %q: %w", pattern, err)
				}
				if !fits {
					continue
				}
				full := path.Join(m.path, name)
				n, err := c.follow(full)
				if err != nil {
					// A symlink that leads nowhere: nothing to copy.
					continue
				}
				next = append(next, match{name: name, path: full, node: n})
			}
		}
		found = next
	}
	if len(found) == 0 {
		return nil, ErrNoFile
	}
	return found, nil
}

// walk calls f for each entry of a folder, folders before what is in them, with the path below it.
func (n *node) walk(prefix string, f func(name string, n *node) error) error {
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		child := n.children[name]
		full := path.Join(prefix, name)
		if err := f(full, child); err != nil {
			return err
		}
		if child.kind == Folder {
			if err := child.walk(full, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// digest is over all that is copied of a node: names, kinds, modes and contents, not times.
func (n *node) digest(exclude *patternmatcher.PatternMatcher) (string, error) {
	sum := sha256.New()
	add := func(name string, n *node) error {
		fmt.Fprintf(sum, "%q %d %o %q %s\n", name, n.kind, n.mode, n.target, n.sum)
		return nil
	}
	if err := add("", n); err != nil {
		return "", err
	}
	err := n.walk("", func(name string, n *node) error {
		left, err := excluded(exclude, name)
		if err != nil || left {
			return err
		}
		return add(name, n)
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

func excluded(matcher *patternmatcher.PatternMatcher, name string) (bool, error) {
	if matcher == nil {
		return false, nil
	}
	return matcher.MatchesOrParentMatches(name)
}

package assemble

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"atoll/node/internal/erofs"
)

const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	opaqueRecord   = "SCHILY.xattr.trusted.overlay.opaque"
	// maxWindow is the largest a zstd stream may ask for; `zstd --long` uses 2^27.
	maxWindow = 1 << 27
	maxMtime  = 1 << 40
)

// merger applies layers to a tree and writes their contents.
type merger struct {
	tree   *tree
	out    *os.File
	writer *erofs.Writer
	// streamed and contents are counted against the limit.
	streamed, contents uint64
	headers            int
	devices            int
	progress           func(read uint64)
	buffer             []byte
}

// plain is a layer's stream without compression.
func plain(r io.Reader) (stream io.Reader, end func(), err error) {
	buffered := bufio.NewReaderSize(r, 1<<20)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, invalid("not gzip: %v", err)
		}
		return z, func() { _ = z.Close() }, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, invalid("not zstd: %v", err)
		}
		return z, z.Close, nil
	}
	return buffered, func() {}, nil
}

// counted counts what is read of all streams, and ends with an error at the limit: a small file can stand for a stream without end.
type counted struct {
	m *merger
	r io.Reader
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	before := c.m.streamed
	c.m.streamed += uint64(n)
	if c.m.streamed > c.m.tree.limits.Bytes {
		return 0, tooLarge("the layers are more than %d MiB without compression (remedy: make the image smaller)", c.m.tree.limits.Bytes>>20)
	}
	const every = 16 << 20
	if before/every != c.m.streamed/every {
		c.m.progress(c.m.streamed)
	}
	return n, err
}

// layer merges one, and returns its DiffID.
func (m *merger) layer(number int32, l Layer, r io.Reader) (string, error) {
	root, err := split(l.Root)
	if err != nil {
		return "", err
	}
	stream, end, err := plain(r)
	if err != nil {
		return "", err
	}
	defer end()
	sum := sha256.New()
	all := io.TeeReader(counted{m, stream}, sum)
	entries := tar.NewReader(all)
	a := &applied{merger: m, overlay: l.Overlay, number: number, root: root, whiteouts: map[string]bool{}}
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", asInvalid(err, "not a tar archive")
		}
		if m.headers++; m.headers > 4*m.tree.limits.Entries {
			return "", tooLarge("more than %d entries (remedy: make the image smaller)", 4*m.tree.limits.Entries)
		}
		if err := a.entry(header, entries); err != nil {
			return "", asInvalid(err, fmt.Sprintf("%q", clip(header.Name)))
		}
	}
	// The end of an archive is padded, and the sum is over all of it.
	if _, err := io.CopyBuffer(io.Discard, all, m.buffer); err != nil {
		return "", asInvalid(err, "not a whole archive")
	}
	diffID := hex.EncodeToString(sum.Sum(nil))
	if l.DiffID != "" && l.DiffID != diffID {
		return "", invalid("its content has sha256 %s (expected: %s)", diffID, l.DiffID)
	}
	return diffID, nil
}

// asInvalid says that an error comes from what a layer holds, unless it says otherwise itself.
func asInvalid(err error, what string) error {
	var known *Error
	if errors.As(err, &known) {
		return &Error{Kind: known.Kind, Text: what + ": " + known.Text}
	}
	var system *os.PathError
	var number unix.Errno
	if errors.As(err, &system) || errors.As(err, &number) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return invalid("%s: %v", what, err)
}

// applied is a layer while it is merged.
type applied struct {
	*merger
	overlay bool
	number  int32
	root    []string
	// whiteouts are the names of devices 0/0, to which further deletions are hard links.
	whiteouts map[string]bool
}

func (a *applied) entry(h *tar.Header, content io.Reader) error {
	parts, err := split(h.Name)
	if err != nil {
		return err
	}
	parts = slices.Concat(a.root, parts)
	switch h.Typeflag {
	case tar.TypeXGlobalHeader, tar.TypeXHeader:
		return nil
	}
	if len(parts) == 0 {
		if h.Typeflag != tar.TypeDir {
			return invalid("the root is a directory")
		}
		return a.attributes(a.tree.root, h)
	}
	parents, name := parts[:len(parts)-1], parts[len(parts)-1]
	if !a.overlay && strings.HasPrefix(name, whiteoutPrefix) {
		return a.whiteout(parents, name)
	}
	if a.overlay {
		key := strings.Join(parts, "/")
		deleted := h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0
		if h.Typeflag == tar.TypeLink {
			target, err := split(h.Linkname)
			if err != nil {
				return err
			}
			deleted = a.whiteouts[strings.Join(slices.Concat(a.root, target), "/")]
		}
		if deleted {
			a.whiteouts[key] = true
			return a.remove(parents, name)
		}
	}
	dir, err := a.tree.directory(parents, a.number)
	if err != nil {
		return err
	}
	i := &erofs.Inode{}
	if err := a.attributes(i, h); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		i.Mode |= unix.S_IFDIR
		i.Children = map[string]*erofs.Inode{}
		if err := a.tree.put(dir, name, i); err != nil {
			return err
		}
		if a.overlay && h.PAXRecords[opaqueRecord] == "y" {
			a.tree.hideChildren(dir.Children[name], a.number)
		}
		return nil
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont, '\x00':
		i.Mode |= unix.S_IFREG
		if err := a.store(i, h.Size, content); err != nil {
			return err
		}
		return a.tree.put(dir, name, i)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > erofs.MaxTarget || strings.IndexByte(h.Linkname, 0) >= 0 {
			return invalid("a symbolic link to %d bytes (expected: 1 to %d, none of them zero)", len(h.Linkname), erofs.MaxTarget)
		}
		i.Mode, i.Target = unix.S_IFLNK|0o777, h.Linkname
		return a.tree.put(dir, name, i)
	case tar.TypeLink:
		return a.link(dir, name, h.Linkname)
	case tar.TypeFifo:
		i.Mode |= unix.S_IFIFO
		return a.tree.put(dir, name, i)
	case tar.TypeChar, tar.TypeBlock:
		// A sandbox has the devices that gVisor gives it, and no others. What was there before is gone, as if the device were there.
		a.devices++
		if dir.Children[name] != nil {
			a.tree.drop(dir, name)
		}
		return nil
	}
	return invalid("an entry of type %q (expected: file, directory, link, pipe or device)", h.Typeflag)
}

// attributes takes what a header says, all but the type.
func (a *applied) attributes(i *erofs.Inode, h *tar.Header) error {
	if h.Uid < 0 || h.Gid < 0 || h.Uid >= 1<<32-1 || h.Gid >= 1<<32-1 {
		return invalid("owner %d:%d (expected: 0 to %d)", h.Uid, h.Gid, uint32(1<<32-2))
	}
	i.UID, i.GID = uint32(h.Uid), uint32(h.Gid)
	permissions := uint32(h.Mode) & 0o7777
	if i == a.tree.root {
		// An archive of a folder that was private says so of its root, which nobody in the sandbox could enter then.
		permissions = permissions | 0o555 | unix.S_IFDIR
	}
	i.Mode = permissions
	if t := h.ModTime.Unix(); t > 0 && t < maxMtime {
		i.Mtime, i.MtimeNsec = t, uint32(h.ModTime.Nanosecond())
	}
	i.Layer = a.number
	return nil
}

func (a *applied) whiteout(parents []string, name string) error {
	if name == opaqueName {
		dir, err := a.tree.directory(parents, a.number)
		if err == nil {
			a.tree.hideChildren(dir, a.number)
		}
		return err
	}
	name = strings.TrimPrefix(name, whiteoutPrefix)
	if strings.HasPrefix(name, whiteoutPrefix) {
		// aufs kept things of its own under such names.
		return nil
	}
	if name == "" || name == "." || name == ".." {
		return invalid("a deletion of %q", name)
	}
	return a.remove(parents, name)
}

// remove takes away what was there before the layer. What was not there is no fault.
func (a *applied) remove(parents []string, name string) error {
	dir, err := a.tree.directory(parents, -1)
	if errors.Is(err, errNotFound) || errors.Is(err, errNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	a.tree.hide(dir, name, a.number)
	return nil
}

func (a *applied) link(dir *erofs.Inode, name, target string) error {
	parts, err := split(target)
	if err != nil {
		return err
	}
	parts = slices.Concat(a.root, parts)
	if len(parts) == 0 {
		return invalid("a hard link to a directory")
	}
	from, err := a.tree.directory(parts[:len(parts)-1], -1)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", clip(target), err)
	}
	i := from.Children[parts[len(parts)-1]]
	if i == nil {
		return fmt.Errorf("hard link to %q: %w", clip(target), errNotFound)
	}
	if i.IsDir() {
		return invalid("a hard link to a directory")
	}
	if i.Links >= 1<<31 {
		return invalid("too many hard links to one file")
	}
	if dir.Children[name] == i {
		return nil
	}
	if err := a.tree.put(dir, name, i); err != nil {
		return err
	}
	// The name is of this layer, and so is the file from now on: a deletion in the same layer means what was there before.
	i.Layer = a.number
	return nil
}

var zeros [erofs.BlockSize]byte

// store writes a file's content, without blocks that are all zero.
func (m *merger) store(i *erofs.Inode, size int64, content io.Reader) error {
	if size < 0 {
		return invalid("a size of %d", size)
	}
	if m.contents += uint64(size); m.contents > m.tree.limits.Bytes {
		return tooLarge("its files are more than %d MiB (remedy: make the image smaller)", m.tree.limits.Bytes>>20)
	}
	offset, err := m.writer.Reserve(uint64(size))
	if err != nil {
		return tooLarge("%v", err)
	}
	i.Size, i.Offset, i.Stored = uint64(size), offset, true
	if size == 0 {
		i.Offset = 0
	}
	for at := int64(offset); size > 0; {
		n, err := io.ReadFull(content, m.buffer[:min(int64(len(m.buffer)), size)])
		if err != nil {
			return err
		}
		if err := m.write(m.buffer[:n], at); err != nil {
			return err
		}
		at += int64(n)
		size -= int64(n)
	}
	return nil
}

// write leaves out blocks of zeros: the file has a hole there. Requires: at is a multiple of the block size.
func (m *merger) write(b []byte, at int64) error {
	begin := 0
	for n := 0; n < len(b); n += erofs.BlockSize {
		end := min(n+erofs.BlockSize, len(b))
		if !bytes.Equal(b[n:end], zeros[:end-n]) {
			continue
		}
		if n > begin {
			if _, err := m.out.WriteAt(b[begin:n], at+int64(begin)); err != nil {
				return err
			}
		}
		begin = end
	}
	if begin < len(b) {
		_, err := m.out.WriteAt(b[begin:], at+int64(begin))
		return err
	}
	return nil
}

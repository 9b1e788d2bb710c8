package erofs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"sort"

	"golang.org/x/sys/unix"
)

// id is the same for all, since nothing but the content is to decide the digest.
var id = [16]byte{0xa7, 0x01, 0x1a, 0x70, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 2}

// Output is where an image is written: a file.
type Output interface {
	io.WriterAt
	Truncate(size int64) error
}

// Writer writes one image. It is not safe for concurrent use.
type Writer struct {
	out Output
	// next is where the next content goes.
	next uint64
}

// NewWriter writes to an empty file.
func NewWriter(out Output) *Writer { return &Writer{out: out, next: BlockSize} }

// Reserve returns the offset of room for a content of size bytes, which the caller writes there. What it leaves out is zero.
func (w *Writer) Reserve(size uint64) (offset uint64, err error) {
	blocks := blocksOf(size)
	if w.next/BlockSize+blocks > maxBlocks {
		return 0, fmt.Errorf("an image of more than %d blocks", uint64(maxBlocks))
	}
	offset = w.next
	w.next += blocks * BlockSize
	return offset, nil
}

// Used is how far contents reach.
func (w *Writer) Used() uint64 { return w.next }

// Finish writes the metadata of a tree whose contents are written, and returns the size of the image.
func (w *Writer) Finish(root *Inode) (size uint64, err error) {
	if !root.IsDir() {
		return 0, errors.New("the root of an image must be a directory")
	}
	meta := w.next
	p := &plan{meta: meta, seen: map[*Inode]bool{}}
	if err := p.add(root, root); err != nil {
		return 0, err
	}
	// Directories that do not fit beside their inode get blocks behind all inodes.
	end := roundUp(meta+p.next, BlockSize)
	for i := range p.items {
		item := &p.items[i]
		if whole := item.whole(); whole > 0 {
			item.address = end / BlockSize
			end += roundUp(whole, BlockSize)
		}
	}
	if end/BlockSize > maxBlocks {
		return 0, fmt.Errorf("an image of more than %d blocks", uint64(maxBlocks))
	}
	if err := w.out.Truncate(int64(end)); err != nil {
		return 0, err
	}
	if err := p.write(w.out); err != nil {
		return 0, err
	}
	return end, w.superblock(meta, end, uint64(len(p.items)))
}

func (w *Writer) superblock(meta, end, inodes uint64) error {
	block := make([]byte, BlockSize)
	b := block[superblockOffset:]
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	le.PutUint32(b[8:], featureChecksum|featureMtime)
	b[12] = 12
	le.PutUint16(b[14:], firstNid)
	le.PutUint64(b[16:], inodes)
	le.PutUint32(b[36:], uint32(end/BlockSize))
	le.PutUint32(b[40:], uint32(meta/BlockSize))
	copy(b[48:64], id[:])
	le.PutUint32(b[4:], ^crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	_, err := w.out.WriteAt(block, 0)
	return err
}

// firstNid is the root's. Not 0: programs take an entry with inode 0 for a deleted one.
const firstNid = 2

// plan is where everything of the metadata goes.
type plan struct {
	meta uint64
	// next is an offset from meta.
	next  uint64
	items []item
	seen  map[*Inode]bool
}

type item struct {
	inode, parent *Inode
	// at is the offset from meta.
	at uint64
	// names in the order of the directory, "." and ".." among them.
	names []string
	// content is the size of a directory or link; of it, tail bytes lie beside the inode.
	content, tail uint64
	// address is the block of what does not lie beside it.
	address uint64
	links   uint32
}

func (i *item) whole() uint64 { return i.content - i.tail }

func (p *plan) add(i, parent *Inode) error {
	p.seen[i] = true
	it := item{inode: i, parent: parent, links: 1}
	switch i.Type() {
	case unix.S_IFDIR:
		it.links = 2
		it.names = make([]string, 0, len(i.Children)+2)
		it.names = append(it.names, ".", "..")
		for name, child := range i.Children {
			if len(name) == 0 || len(name) > MaxName {
				return fmt.Errorf("a name of %d bytes (expected: 1 to %d)", len(name), MaxName)
			}
			it.names = append(it.names, name)
			if child.IsDir() {
				it.links++
			}
		}
		sort.Strings(it.names)
		it.content = direntBytes(it.names)
	case unix.S_IFLNK:
		if len(i.Target) == 0 || len(i.Target) > MaxTarget {
			return fmt.Errorf("a link to %d bytes (expected: 1 to %d)", len(i.Target), MaxTarget)
		}
		it.content = uint64(len(i.Target))
	case unix.S_IFREG:
		if i.Offset%BlockSize != 0 || i.Size > 0 && (i.Offset < BlockSize || i.Offset+i.Size > p.meta) {
			return fmt.Errorf("a content of %d bytes at %d, outside of the image", i.Size, i.Offset)
		}
	case unix.S_IFIFO, unix.S_IFSOCK:
	default:
		return fmt.Errorf("a file of mode %#o (expected: no device)", i.Mode)
	}
	if i.Mode > math.MaxUint16 {
		return fmt.Errorf("mode %#o", i.Mode)
	}
	if p.next == 0 {
		p.next = firstNid * slotSize
	}
	it.tail = it.content % BlockSize
	if it.tail > BlockSize-extendedSize {
		it.tail = 0
	}
	// What lies beside an inode does not cross the end of a block.
	if it.tail > 0 && (p.next+extendedSize)%BlockSize+it.tail > BlockSize {
		p.next = roundUp(p.next, BlockSize)
	}
	it.at = p.next
	i.nid = p.next / slotSize
	p.next = roundUp(p.next+extendedSize+it.tail, slotSize)
	at := len(p.items)
	p.items = append(p.items, it)
	i.Links = it.links
	for _, name := range p.items[at].names {
		if name == "." || name == ".." {
			continue
		}
		child := i.Children[name]
		if p.seen[child] {
			if child.IsDir() {
				return errors.New("a directory with two names")
			}
			child.Links++
			continue
		}
		if err := p.add(child, i); err != nil {
			return fmt.Errorf("%s/%w", name, err)
		}
	}
	return nil
}

// direntBytes is the size of a directory: full blocks, and a last one that ends with its last name.
func direntBytes(names []string) uint64 {
	var size uint64
	for len(names) > 0 {
		n, used := fitting(names)
		names = names[n:]
		if len(names) > 0 {
			used = BlockSize
		}
		size += uint64(used)
	}
	return size
}

// fitting is how many entries one block takes.
func fitting(names []string) (n, used int) {
	for n < len(names) && used+direntSize+len(names[n]) <= BlockSize {
		used += direntSize + len(names[n])
		n++
	}
	return n, used
}

func typeOf(i *Inode) byte {
	switch i.Type() {
	case unix.S_IFREG:
		return 1
	case unix.S_IFDIR:
		return 2
	case unix.S_IFIFO:
		return 5
	case unix.S_IFSOCK:
		return 6
	case unix.S_IFLNK:
		return 7
	}
	return 0
}

func (it *item) bytes() []byte {
	if it.inode.IsSymlink() {
		return []byte(it.inode.Target)
	}
	le := binary.LittleEndian
	content := make([]byte, 0, it.content)
	for names := it.names; len(names) > 0; {
		n, used := fitting(names)
		block := make([]byte, used, BlockSize)
		at := n * direntSize
		for k, name := range names[:n] {
			child := it.inode.Children[name]
			switch name {
			case ".":
				child = it.inode
			case "..":
				child = it.parent
			}
			e := block[k*direntSize:]
			le.PutUint64(e, child.nid)
			le.PutUint16(e[8:], uint16(at))
			e[10] = typeOf(child)
			at += copy(block[at:], name)
		}
		if names = names[n:]; len(names) > 0 {
			block = block[:BlockSize]
		}
		content = append(content, block...)
	}
	return content
}

func (p *plan) write(out Output) error {
	inodes := bufio.NewWriterSize(io.NewOffsetWriter(out, int64(p.meta)), 1<<20)
	var at uint64
	pad := make([]byte, BlockSize)
	for n := range p.items {
		it := &p.items[n]
		if _, err := inodes.Write(pad[:it.at-at]); err != nil {
			return err
		}
		var content []byte
		if it.content > 0 {
			content = it.bytes()
		}
		if _, err := inodes.Write(it.head(n)); err != nil {
			return err
		}
		if _, err := inodes.Write(content[it.whole():]); err != nil {
			return err
		}
		at = it.at + extendedSize + it.tail
		if it.whole() > 0 {
			if _, err := out.WriteAt(content[:it.whole()], int64(it.address*BlockSize)); err != nil {
				return err
			}
		}
	}
	return inodes.Flush()
}

// head is the inode itself.
func (it *item) head(number int) []byte {
	i := it.inode
	b := make([]byte, extendedSize)
	le := binary.LittleEndian
	layout, size, address := uint16(layoutPlain), it.content, it.address
	if it.tail > 0 {
		layout = layoutInline
	}
	if i.IsRegular() {
		size, address = i.Size, i.Offset/BlockSize
	}
	le.PutUint16(b, 1|layout<<1)
	le.PutUint16(b[4:], uint16(i.Mode))
	le.PutUint64(b[8:], size)
	le.PutUint32(b[16:], uint32(address))
	le.PutUint32(b[20:], uint32(number+1))
	le.PutUint32(b[24:], i.UID)
	le.PutUint32(b[28:], i.GID)
	le.PutUint64(b[32:], uint64(i.Mtime))
	le.PutUint32(b[40:], i.MtimeNsec)
	le.PutUint32(b[44:], i.Links)
	return b
}

package erofs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// maxDirectory bounds how much of a damaged image is taken for one directory.
const maxDirectory = 1 << 30

// Read returns the root of the file system in r. Contents stay where they are: see Inode.Offset. It holds for damaged images too,
// which give ErrFormat.
func Read(r io.ReaderAt, size int64) (*Inode, error) {
	head := make([]byte, superblockSize)
	if _, err := r.ReadAt(head, superblockOffset); err != nil {
		return nil, fmt.Errorf("%w: no superblock: %w", ErrFormat, err)
	}
	le := binary.LittleEndian
	if got := le.Uint32(head); got != magic {
		return nil, fmt.Errorf("%w: magic %#x (expected: %#x)", ErrFormat, got, uint32(magic))
	}
	if bits := head[12]; 1<<bits != BlockSize {
		return nil, fmt.Errorf("%w: blocks of 2^%d bytes (expected: %d)", ErrFormat, bits, BlockSize)
	}
	if features := le.Uint32(head[80:]); features != 0 {
		return nil, fmt.Errorf("%w: features %#x (expected: none, such as compression)", ErrFormat, features)
	}
	v := &reader{
		r: r, size: uint64(size), meta: uint64(le.Uint32(head[40:])) * BlockSize, inodes: map[uint64]*Inode{},
		buildTime: int64(le.Uint64(head[24:])), buildNsec: le.Uint32(head[32:]), block: make([]byte, BlockSize), blockAt: ^uint64(0),
	}
	root, err := v.inode(uint64(le.Uint16(head[14:])))
	if err != nil {
		return nil, err
	}
	if !root.IsDir() {
		return nil, fmt.Errorf("%w: its root is no directory", ErrFormat)
	}
	root.Links = 1
	return root, v.fill(root)
}

type reader struct {
	r          io.ReaderAt
	size, meta uint64
	buildTime  int64
	buildNsec  uint32
	inodes     map[uint64]*Inode
	// directories are where the contents of those are that are not read yet.
	directories map[*Inode][]extent
	// block is the one at blockAt.
	block   []byte
	blockAt uint64
}

type extent struct{ offset, size uint64 }

// bytes reads n bytes, most often of the block that was read last.
func (v *reader) bytes(offset, n uint64) ([]byte, error) {
	if n > maxDirectory || offset > v.size || n > v.size-offset {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", ErrFormat, n, offset, v.size)
	}
	if at := offset / BlockSize * BlockSize; offset+n <= at+BlockSize {
		if at != v.blockAt {
			v.blockAt = ^uint64(0)
			got, err := v.r.ReadAt(v.block[:min(BlockSize, v.size-at)], int64(at))
			if uint64(got) < min(BlockSize, v.size-at) {
				return nil, err
			}
			v.blockAt = at
		}
		return bytes.Clone(v.block[offset-at : offset-at+n]), nil
	}
	b := make([]byte, n)
	if got, err := v.r.ReadAt(b, int64(offset)); uint64(got) < n {
		return nil, err
	}
	return b, nil
}

func (v *reader) inode(nid uint64) (*Inode, error) {
	if known := v.inodes[nid]; known != nil {
		return known, nil
	}
	if nid > v.size/slotSize {
		return nil, fmt.Errorf("%w: inode %d is outside", ErrFormat, nid)
	}
	offset := v.meta + nid*slotSize
	b, err := v.bytes(offset, compactSize)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	format := le.Uint16(b)
	i := &Inode{Mode: uint32(le.Uint16(b[4:])), nid: nid}
	headSize := uint64(compactSize)
	address := uint64(le.Uint32(b[16:]))
	if format&1 == 0 {
		i.Size = uint64(le.Uint32(b[8:]))
		i.UID, i.GID = uint32(le.Uint16(b[24:])), uint32(le.Uint16(b[26:]))
		i.Mtime, i.MtimeNsec = v.buildTime, v.buildNsec
	} else {
		headSize = extendedSize
		if b, err = v.bytes(offset, extendedSize); err != nil {
			return nil, err
		}
		i.Size = le.Uint64(b[8:])
		i.UID, i.GID = le.Uint32(b[24:]), le.Uint32(b[28:])
		i.Mtime, i.MtimeNsec = int64(le.Uint64(b[32:])), le.Uint32(b[40:])
	}
	if n := uint64(le.Uint16(b[2:])); n > 0 {
		headSize += 12 + (n-1)*4
	}
	content, err := v.content(i, format>>1&7, address*BlockSize, offset+headSize)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", nid, err)
	}
	switch i.Type() {
	case unix.S_IFREG:
		if len(content) > 1 {
			return nil, fmt.Errorf("%w: inode %d holds content beside itself", ErrFormat, nid)
		}
		if len(content) == 1 {
			i.Offset = content[0].offset
		}
	case unix.S_IFLNK:
		if i.Size > MaxTarget {
			return nil, fmt.Errorf("%w: inode %d: a link to %d bytes", ErrFormat, nid, i.Size)
		}
		for _, e := range content {
			part, err := v.bytes(e.offset, e.size)
			if err != nil {
				return nil, err
			}
			i.Target += string(part)
		}
		i.Size = 0
	case unix.S_IFDIR:
		i.Children = map[string]*Inode{}
		i.Size = 0
		if v.directories == nil {
			v.directories = map[*Inode][]extent{}
		}
		v.directories[i] = content
	case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO, unix.S_IFSOCK:
		i.Size = 0
	default:
		return nil, fmt.Errorf("%w: inode %d has mode %#o", ErrFormat, nid, i.Mode)
	}
	v.inodes[nid] = i
	return i, nil
}

// content says where an inode's content lies: in whole blocks, then in the rest beside it. A regular file's is never split.
func (v *reader) content(i *Inode, layout uint16, at, beside uint64) ([]extent, error) {
	if i.Size == 0 || i.Type() == unix.S_IFCHR || i.Type() == unix.S_IFBLK {
		return nil, nil
	}
	if i.Size > v.size {
		return nil, fmt.Errorf("%w: %d bytes in an image of %d", ErrFormat, i.Size, v.size)
	}
	var parts []extent
	switch layout {
	case layoutPlain:
		parts = []extent{{at, i.Size}}
	case layoutInline:
		tail := i.Size % BlockSize
		if i.IsRegular() {
			// Marked as two, whatever its size.
			return []extent{{at, i.Size - tail}, {beside, tail}}, nil
		}
		if whole := i.Size - tail; whole > 0 {
			parts = append(parts, extent{at, whole})
		}
		if tail > 0 {
			parts = append(parts, extent{beside, tail})
		}
	default:
		return nil, fmt.Errorf("%w: data layout %d (expected: plain or inline)", ErrFormat, layout)
	}
	for _, p := range parts {
		if p.offset > v.size || p.size > v.size-p.offset {
			return nil, fmt.Errorf("%w: content outside of the image", ErrFormat)
		}
	}
	return parts, nil
}

// fill reads the directories below one. Each is the child of one directory at most, so a damaged image can't be a loop.
func (v *reader) fill(root *Inode) error {
	waiting := []*Inode{root}
	for len(waiting) > 0 {
		dir := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		for _, e := range v.directories[dir] {
			for done := uint64(0); done < e.size; done += BlockSize {
				block, err := v.bytes(e.offset+done, min(BlockSize, e.size-done))
				if err != nil {
					return err
				}
				children, err := v.entries(dir, block)
				if err != nil {
					return err
				}
				waiting = append(waiting, children...)
			}
		}
		delete(v.directories, dir)
	}
	return nil
}

// entries reads one block of a directory and returns the directories in it.
func (v *reader) entries(dir *Inode, block []byte) (directories []*Inode, err error) {
	le := binary.LittleEndian
	damaged := func() ([]*Inode, error) {
		return nil, fmt.Errorf("%w: directory %d is damaged", ErrFormat, dir.nid)
	}
	if len(block) < direntSize {
		return damaged()
	}
	count := int(le.Uint16(block[8:])) / direntSize
	if count == 0 || count*direntSize > len(block) {
		return damaged()
	}
	for n := range count {
		e := block[n*direntSize:]
		begin, end := int(le.Uint16(e[8:])), len(block)
		if n+1 < count {
			end = int(le.Uint16(e[direntSize+8:]))
		}
		if begin < count*direntSize || begin >= end || end > len(block) {
			return damaged()
		}
		name := block[begin:end]
		if zero := bytes.IndexByte(name, 0); zero >= 0 {
			name = name[:zero]
		}
		if len(name) == 0 || len(name) > MaxName || bytes.IndexByte(name, '/') >= 0 {
			return damaged()
		}
		if string(name) == "." || string(name) == ".." {
			continue
		}
		child, err := v.inode(le.Uint64(e))
		if err != nil {
			return nil, err
		}
		if _, twice := dir.Children[string(name)]; twice || child.IsDir() && child.Links > 0 {
			return damaged()
		}
		child.Links++
		dir.Children[string(name)] = child
		if child.IsDir() {
			directories = append(directories, child)
		}
	}
	return directories, nil
}

package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func regular(w *Writer, f *os.File, t testing.TB, content []byte) *Inode {
	t.Helper()
	offset, err := w.Reserve(uint64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, int64(offset)); err != nil {
		t.Fatal(err)
	}
	return &Inode{Mode: unix.S_IFREG | 0o644, Size: uint64(len(content)), Offset: offset}
}

func symlink(target string) *Inode { return &Inode{Mode: unix.S_IFLNK | 0o777, Target: target} }

func written(t testing.TB, build func(w *Writer, f *os.File) *Inode) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := NewWriter(f)
	size, err := w.Finish(build(w, f))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || uint64(info.Size()) != size || size%BlockSize != 0 {
		t.Fatalf("%v, %v (expected: %d bytes)", info, err, size)
	}
	return f
}

// text writes a tree down, with the content of its files.
func text(t testing.TB, f *os.File, root *Inode) string {
	t.Helper()
	var b strings.Builder
	seen := map[*Inode]string{}
	var walk func(path string, i *Inode)
	walk = func(path string, i *Inode) {
		if first, again := seen[i]; again {
			fmt.Fprintf(&b, "%s = %s\n", path, first)
			return
		}
		seen[i] = path
		fmt.Fprintf(&b, "%s %o %d:%d %d.%d %d %d %s", path, i.Mode, i.UID, i.GID, i.Mtime, i.MtimeNsec, i.Size, i.Links, i.Target)
		if i.IsRegular() {
			content := make([]byte, i.Size)
			if n, err := f.ReadAt(content, int64(i.Offset)); n < len(content) {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, " %x", content[:min(len(content), 16)])
		}
		b.WriteByte('\n')
		var names []string
		for name := range i.Children {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			walk(path+"/"+name, i.Children[name])
		}
	}
	walk("", root)
	return b.String()
}

// random is a tree with all kinds of files, whose names and links come in all lengths.
func random(r *rand.Rand, w *Writer, f *os.File, t testing.TB) *Inode {
	var files []*Inode
	var fill func(dir *Inode, depth int)
	fill = func(dir *Inode, depth int) {
		for range 10 + r.IntN(20) {
			name := strings.Repeat(string(rune('!'+r.IntN(90))), 1+r.IntN(MaxName))
			name = strings.ReplaceAll(name, "/", "_") + fmt.Sprint(len(dir.Children))
			name = name[max(0, len(name)-MaxName):]
			var i *Inode
			switch r.IntN(6) {
			case 0:
				if depth < 2 {
					i = NewDir(uint32(r.IntN(0o10000)))
					fill(i, depth+1)
					break
				}
				fallthrough
			case 1:
				i = symlink(strings.Repeat("t", 1+r.IntN(MaxTarget)))
			case 2:
				if len(files) > 0 {
					i = files[r.IntN(len(files))]
					break
				}
				fallthrough
			case 3:
				i = &Inode{Mode: unix.S_IFIFO | 0o600}
			default:
				content := make([]byte, r.IntN(3*BlockSize))
				for k := range content {
					content[k] = byte(r.Uint32())
				}
				i = regular(w, f, t, content)
				files = append(files, i)
			}
			if i.Links == 0 {
				i.UID, i.GID, i.Mtime, i.MtimeNsec = r.Uint32(), r.Uint32(), r.Int64N(1<<40), uint32(r.IntN(1_000_000_000))
			}
			i.Links = 1
			dir.Children[name] = i
		}
	}
	root := NewDir(0o755)
	fill(root, 0)
	return root
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		var root *Inode
		f := written(t, func(w *Writer, f *os.File) *Inode {
			root = random(r, w, f, t)
			return root
		})
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Read(f, info.Size())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// The root's own links are "." and "..", which the reader does not count.
		want, got := text(t, f, root), text(t, f, back)
		if normal(want) != normal(got) {
			t.Fatalf("seed %d: it came back differently", seed)
		}
	}
}

// normal takes the number of links of directories away.
func normal(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		fields := strings.SplitN(line, " ", 7)
		if len(fields) == 7 && strings.HasPrefix(fields[1], "4") {
			fields[5] = ""
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return strings.Join(lines, "")
}

func TestSameTreeGivesTheSameBytes(t *testing.T) {
	var images [2][]byte
	for n := range images {
		f := written(t, func(w *Writer, f *os.File) *Inode { return random(rand.New(rand.NewPCG(7, 7)), w, f, t) })
		var err error
		if images[n], err = os.ReadFile(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two images of one tree differ")
	}
}

func TestDirectoryOf100000FilesAndAFileOf5GigabytesOfNothing(t *testing.T) {
	const entries = 100_000
	f := written(t, func(w *Writer, f *os.File) *Inode {
		root := NewDir(0o755)
		dir := NewDir(0o755)
		root.Children["many"] = dir
		for n := range entries {
			dir.Children[fmt.Sprintf("%040d", n)] = &Inode{Mode: unix.S_IFREG | 0o600}
		}
		const size = 5 << 30
		offset, err := w.Reserve(size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("end"), int64(offset)+size-3); err != nil {
			t.Fatal(err)
		}
		root.Children["sparse"] = &Inode{Mode: unix.S_IFREG | 0o600, Size: size, Offset: offset}
		return root
	})
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 64<<20 {
		t.Errorf("%d MiB on disk (expected: no room for nothing)", st.Blocks*512>>20)
	}
	root, err := Read(f, st.Size)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(root.Children["many"].Children); got != entries {
		t.Errorf("%d files", got)
	}
	if i := root.Children["sparse"]; i.Size != 5<<30 {
		t.Errorf("%+v", i)
	}
}

func TestTreesThatTheFormatHasNotAreRefused(t *testing.T) {
	loop := NewDir(0o755)
	loop.Children["twice"] = NewDir(0o755)
	loop.Children["again"] = loop.Children["twice"]
	for what, root := range map[string]*Inode{
		"a file as the root":      {Mode: unix.S_IFREG},
		"a device":                {Mode: unix.S_IFDIR, Children: map[string]*Inode{"d": {Mode: unix.S_IFCHR}}},
		"a name of 256 bytes":     {Mode: unix.S_IFDIR, Children: map[string]*Inode{strings.Repeat("n", 256): {Mode: unix.S_IFIFO}}},
		"an empty name":           {Mode: unix.S_IFDIR, Children: map[string]*Inode{"": {Mode: unix.S_IFIFO}}},
		"an empty link":           {Mode: unix.S_IFDIR, Children: map[string]*Inode{"l": symlink("")}},
		"a link of 4096 bytes":    {Mode: unix.S_IFDIR, Children: map[string]*Inode{"l": symlink(strings.Repeat("t", 4096))}},
		"content past the end":    {Mode: unix.S_IFDIR, Children: map[string]*Inode{"f": {Mode: unix.S_IFREG, Size: 1, Offset: 1 << 30}}},
		"content in between":      {Mode: unix.S_IFDIR, Children: map[string]*Inode{"f": {Mode: unix.S_IFREG, Size: 1, Offset: 5000}}},
		"a folder with two names": loop,
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "image"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewWriter(f).Finish(root); err == nil {
			t.Errorf("%s was written", what)
		}
		f.Close()
	}
}

// Damage of any kind gives an error or a tree whose contents lie in the image, and ends soon.
func FuzzRead(f *testing.F) {
	image := written(f, func(w *Writer, file *os.File) *Inode {
		root := NewDir(0o755)
		root.Children["f"] = regular(w, file, f, []byte("content"))
		root.Children["l"] = symlink("f")
		root.Children["d"] = NewDir(0o700)
		for n := range 300 {
			root.Children["d"].Children[fmt.Sprintf("name-%d", n)] = &Inode{Mode: unix.S_IFREG | 0o600}
		}
		return root
	})
	good, err := os.ReadFile(image.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, []byte(nil), len(good))
	for at := superblockOffset; at < superblockOffset+superblockSize; at++ {
		f.Add(at, []byte{0xff, 0xff}, len(good))
	}
	for at := 2 * BlockSize; at < len(good); at += 37 {
		f.Add(at, []byte{0xff, 0x01}, len(good))
	}
	f.Fuzz(func(t *testing.T, at int, change []byte, size int) {
		b := bytes.Clone(good)
		if at >= 0 && at < len(b) {
			copy(b[at:], change)
		}
		if size < 0 || size > len(b) {
			size = len(b)
		}
		b = b[:size]
		root, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		var walk func(i *Inode, depth int)
		walk = func(i *Inode, depth int) {
			if depth > 10_000 {
				t.Fatal("a loop")
			}
			if i.IsRegular() && i.Size > 0 && i.Offset+i.Size > uint64(len(b)) {
				t.Fatalf("content of %d bytes at %d in %d", i.Size, i.Offset, len(b))
			}
			for name, child := range i.Children {
				if name == "" || strings.ContainsAny(name, "/\x00") || name == ".." {
					t.Fatalf("name %q", name)
				}
				walk(child, depth+1)
			}
		}
		walk(root, 0)
	})
}

func TestDamagedImageIsNoPanic(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, 100), make([]byte, 5000)} {
		if _, err := Read(bytes.NewReader(b), int64(len(b))); !errors.Is(err, ErrFormat) {
			t.Errorf("%v", err)
		}
	}
}

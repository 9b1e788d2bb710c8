package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/erofs"
	"atoll/node/internal/reap"
)

var reaper = sync.OnceValues(reap.Start)

var builder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "atoll-image-test")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	r, err := reaper()
	if err != nil {
		return "", err
	}
	gobin, err := exec.LookPath("go")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "atoll-image")
	// Not os/exec: the reaper would take its child.
	status, err := r.Run(context.Background(), reap.Command{
		Path: gobin, Args: []string{"build", "-o", out, "atoll/node/cmd/atoll-image"}, Env: append(os.Environ(), "CGO_ENABLED=0"), Files: []*os.File{nil, os.Stderr, os.Stderr},
	})
	if err == nil && status != 0 {
		err = fmt.Errorf("go build: status %#x", uint32(status))
	}
	return out, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if b, err := builder(); err == nil {
		os.RemoveAll(filepath.Dir(b))
	}
	os.Exit(code)
}

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	b, err := builder()
	if err != nil {
		t.Fatal(err)
	}
	r, err := reaper()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Recipes: filepath.Join(dir, "recipes"), Dir: filepath.Join(dir, "images"), Builder: b, Reaper: r})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a program with the reaper.
func run(t testing.TB, path string, arguments ...string) string {
	t.Helper()
	r, err := reaper()
	if err != nil {
		t.Fatal(err)
	}
	full, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("%v (remedy: install it)", err)
	}
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	status, err := r.Run(t.Context(), reap.Command{Path: full, Args: arguments, Env: os.Environ(), Files: []*os.File{nil, out, out}})
	text, _ := os.ReadFile(out.Name())
	if err != nil || status != 0 {
		t.Fatalf("%s %v: %v, status %#x: %s", path, arguments, err, uint32(status), text)
	}
	return string(text)
}

type file struct {
	tar.Header
	content string
}

func regular(name, content string) file {
	return file{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: time.Unix(1_700_000_000, 0)}, content}
}

func program(name string) file {
	f := regular(name, "\x7fELF")
	f.Mode = 0o755
	return f
}

func directory(name string) file {
	return file{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func symlink(name, target string) file {
	return file{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, ""}
}

func hardlink(name, target string) file {
	return file{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}, ""}
}

func layer(t testing.TB, files ...file) Layer {
	t.Helper()
	return Layer{Reader: bytes.NewReader(archive(t, files...))}
}

func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := f.Header
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(f.content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// inside is an image as it is read back.
type inside struct {
	t    testing.TB
	file *os.File
	root *erofs.Inode
}

func look(t testing.TB, i Image) inside {
	t.Helper()
	f, err := os.Open(i.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	root, err := erofs.Read(f, int64(i.Size))
	if err != nil {
		t.Fatal(err)
	}
	return inside{t, f, root}
}

// at does not follow links.
func (v inside) at(name string) *erofs.Inode {
	i := v.root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if i == nil {
			return nil
		}
		i = i.Children[part]
	}
	return i
}

func (v inside) content(name string) string {
	v.t.Helper()
	i := v.at(name)
	if i == nil || !i.IsRegular() {
		return fmt.Sprintf("%s is no file", name)
	}
	b := make([]byte, i.Size)
	if n, err := v.file.ReadAt(b, int64(i.Offset)); n < len(b) {
		v.t.Fatal(err)
	}
	return string(b)
}

func (v inside) names(dir string) []string {
	var names []string
	i := v.root
	if dir != "" {
		i = v.at(dir)
	}
	if i == nil {
		return nil
	}
	for name := range i.Children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func make1(t testing.TB, s *Store, r Request) Image {
	t.Helper()
	if r.Name == "" {
		r.Name = "test"
	}
	i, err := s.Assemble(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if leftovers, _ := filepath.Glob(filepath.Join(s.made, ".work-*")); len(leftovers) > 0 {
		t.Errorf("left behind: %v", leftovers)
	}
	run(t, "fsck.erofs", i.Path)
	return i
}

func TestLayersBecomeAnImageThatOtherToolsRead(t *testing.T) {
	s := openStore(t, t.TempDir())
	suid := regular("usr/bin/sudo", "root")
	suid.Mode = 0o4755
	owned := regular("home/me/file", "mine")
	owned.Uid, owned.Gid = 100_000, 4_000_000_000
	long := strings.Repeat("n", 255)
	i := make1(t, s, Request{Layers: []Layer{
		layer(t, directory("usr/"), directory("usr/bin/"), suid, owned, regular("./a/"+long, strings.Repeat("x", 5000)), hardlink("b", "a/"+long),
			symlink("c", "a/"+long), regular("empty", ""), symlink("far", strings.Repeat("t/", 2000))),
		layer(t, regular("a/.wh.none", ""), regular("a/second", "2")),
	}})
	v := look(t, i)
	if n := v.at("usr/bin/sudo"); n == nil || n.Mode != unix.S_IFREG|0o4755 {
		t.Errorf("%+v (expected: set-user-id)", n)
	}
	if n := v.at("home/me/file"); n == nil || n.UID != 100_000 || n.GID != 4_000_000_000 || n.Mtime != 1_700_000_000 {
		t.Errorf("%+v", n)
	}
	if n := v.at("b"); n == nil || n != v.at("a/"+long) || n.Links != 2 || n.Offset%erofs.BlockSize != 0 {
		t.Errorf("%+v (expected: one file with two names)", n)
	}
	if got := v.content("b"); got != strings.Repeat("x", 5000) {
		t.Errorf("%d bytes", len(got))
	}
	if n := v.at("far"); n == nil || n.Target != strings.Repeat("t/", 2000) {
		t.Errorf("%+v", n)
	}
	if got := v.content("etc/passwd"); !strings.Contains(got, "user:x:1000:1000::/home/user:") {
		t.Errorf("passwd: %q", got)
	}
	if m := i.Metadata; m.User != "user" || m.UID != 1000 || m.Workdir != "/home/user" || m.Env["HOME"] != "/home/user" {
		t.Errorf("%+v", m)
	}
}

func TestFileThatIsNoTarIsRefusedAndLeavesNothing(t *testing.T) {
	s := openStore(t, t.TempDir())
	_, err := s.Assemble(t.Context(), Request{Name: "x", Layers: []Layer{{Reader: strings.NewReader(strings.Repeat("hello", 1000))}}})
	if !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(s.made); len(names) != 1 {
		t.Errorf("%v", names)
	}
}

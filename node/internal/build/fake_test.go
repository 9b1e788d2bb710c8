package build

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/node/gen/execv1"
	"atoll/node/internal/image"
)

// fakeFile is a file of a fake sandbox.
type fakeFile struct {
	kind     FileKind
	mode     int64
	uid, gid int
	content  string
	target   string
}

func (f fakeFile) String() string {
	switch f.kind {
	case Folder:
		return fmt.Sprintf("folder %o %d:%d", f.mode, f.uid, f.gid)
	case Symlink:
		return fmt.Sprintf("-> %s %d:%d", f.target, f.uid, f.gid)
	}
	return fmt.Sprintf("%q %o %d:%d", f.content, f.mode, f.uid, f.gid)
}

// files are those of a fake sandbox, by their absolute paths. Symlinks are not followed: no test needs it.
type files map[string]fakeFile

func (f files) clone() files { return maps.Clone(f) }

// fakeNode stands for a node with its images. What a program does is to append its command line to /ran.
type fakeNode struct {
	t         *testing.T
	images    map[string]fakeImage
	snapshots map[string]files
	pulled    []string
	commands  []Command
	open      int
	started   int
	// run is asked for each command; nil: all succeed.
	run func(c Command, output func([]byte, bool)) (Outcome, error)
	// noSave has snapshots fail.
	noSave bool
}

type fakeImage struct {
	image image.Image
	files files
}

func newFakeNode(t *testing.T) *fakeNode {
	n := &fakeNode{t: t, images: map[string]fakeImage{}, snapshots: map[string]files{}}
	base := files{
		"/etc":        {kind: Folder, mode: 0o755},
		"/etc/passwd": {kind: RegularFile, mode: 0o644, content: "root:x:0:0::/root:/bin/sh\napp:x:77:78::/home/app:/bin/sh\n"},
		"/etc/group":  {kind: RegularFile, mode: 0o644, content: "root:x:0:\nstaff:x:50:app\n"},
		"/usr":        {kind: Folder, mode: 0o755},
	}
	n.add("base", base, image.Config{Env: []string{"PATH=/bin", "FROM_BASE=1"}, Cmd: []string{"base-cmd"}, Labels: map[string]string{"base": "yes"}})
	return n
}

func (n *fakeNode) add(name string, f files, c image.Config) image.Image {
	digest := fmt.Sprintf("%064d", len(n.images)+1)
	i := image.Image{Metadata: image.Metadata{Name: name, Digest: digest, Config: &c}}
	n.images[digest] = fakeImage{i, f}
	return i
}

func (n *fakeNode) Find(digest string) (image.Image, error) {
	if i, known := n.images[digest]; known {
		return i.image, nil
	}
	return image.Image{}, image.ErrNotFound
}

func (n *fakeNode) Pull(_ context.Context, reference string, _ func(Event)) (image.Image, error) {
	n.pulled = append(n.pulled, reference)
	for _, i := range n.images {
		if i.image.Metadata.Name == reference {
			return i.image, nil
		}
	}
	return image.Image{}, fmt.Errorf("no registry knows %s", reference)
}

func (n *fakeNode) Assemble(_ context.Context, a Assembly) (image.Image, error) {
	f := files{}
	if a.Base != nil {
		f = n.images[a.Base.Metadata.Digest].files.clone()
	}
	if a.Changes != nil {
		if err := f.unpack("/", a.Changes); err != nil {
			return image.Image{}, err
		}
	}
	return n.add(a.Name, f, a.Config), nil
}

func (n *fakeNode) Start(_ context.Context, digest string, _ *execv1.Limits) (Sandbox, error) {
	n.open++
	n.started++
	return &fakeSandbox{node: n, base: n.images[digest].files, files: n.images[digest].files.clone()}, nil
}

func (n *fakeNode) Restore(_ context.Context, snapshot string, _ *execv1.Limits) (Sandbox, error) {
	f, there := n.snapshots[snapshot]
	if !there || f == nil {
		return nil, ErrNoSnapshot
	}
	n.open++
	return &fakeSandbox{node: n, files: f.clone()}, nil
}

func (n *fakeNode) Version() string { return "fake" }

func (n *fakeNode) Snapshots() map[string]uint64 {
	sizes := map[string]uint64{}
	for id := range n.snapshots {
		sizes[id] = 100
	}
	return sizes
}

func (n *fakeNode) Remove(snapshot string) error {
	delete(n.snapshots, snapshot)
	return nil
}

type fakeSandbox struct {
	node   *fakeNode
	base   files
	files  files
	mounts []string
}

func (s *fakeSandbox) Run(ctx context.Context, c Command, output func([]byte, bool)) (Outcome, error) {
	c.Env["MOUNTS"] = strings.Join(s.mounts, " ")
	s.node.commands = append(s.node.commands, c)
	ran := s.files["/ran"]
	s.files["/ran"] = fakeFile{kind: RegularFile, mode: 0o644, content: ran.content + strings.Join(c.Argv, " ") + "\n"}
	if s.node.run != nil {
		return s.node.run(c, output)
	}
	return Outcome{}, ctx.Err()
}

func (f files) unpack(folder string, archive io.Reader) error {
	entries := tar.NewReader(archive)
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, archive)
			return err
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			return err
		}
		name := path.Join(folder, h.Name)
		kind := map[byte]FileKind{tar.TypeReg: RegularFile, tar.TypeDir: Folder, tar.TypeSymlink: Symlink}[h.Typeflag]
		if have, there := f[name]; there && (have.kind == Folder) != (kind == Folder) {
			return fmt.Errorf("%s is in the way", name)
		}
		for above := path.Dir(name); above != "/"; above = path.Dir(above) {
			if _, there := f[above]; !there {
				f[above] = fakeFile{kind: Folder, mode: 0o755}
			}
		}
		f[name] = fakeFile{kind: kind, mode: h.Mode, uid: h.Uid, gid: h.Gid, content: string(content), target: h.Linkname}
	}
}

func (s *fakeSandbox) Unpack(_ context.Context, folder string, archive io.Reader) error {
	if folder != "/" && s.files[folder].kind != Folder {
		return fmt.Errorf("%w: %s", ErrNoFile, folder)
	}
	return s.files.unpack(folder, archive)
}

func (f files) pack(name string, w io.Writer) error {
	out := tar.NewWriter(w)
	one := func(as, full string) error {
		file := f[full]
		h := &tar.Header{Name: as, Typeflag: tar.TypeReg, Mode: file.mode, Uid: file.uid, Gid: file.gid, Size: int64(len(file.content)), Linkname: file.target}
		switch file.kind {
		case Folder:
			h.Typeflag, h.Name = tar.TypeDir, as+"/"
		case Symlink:
			h.Typeflag = tar.TypeSymlink
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.WriteString(out, file.content)
		return err
	}
	if file, there := f[name]; there && file.kind != Folder {
		if err := one(path.Base(name), name); err != nil {
			return err
		}
		return out.Close()
	}
	prefix := strings.TrimSuffix(name, "/") + "/"
	for _, full := range slices.Sorted(maps.Keys(f)) {
		if below, ok := strings.CutPrefix(full, prefix); ok {
			if err := one(below, full); err != nil {
				return err
			}
		}
	}
	return out.Close()
}

func (s *fakeSandbox) Pack(_ context.Context, name string, w io.Writer) error {
	return s.files.pack(name, w)
}

func (s *fakeSandbox) Stat(_ context.Context, name string, _ bool) (File, error) {
	if name == "/" {
		return File{Name: "/", Kind: Folder, Mode: 0o755}, nil
	}
	f, there := s.files[name]
	if !there {
		return File{}, fmt.Errorf("%w: %s", ErrNoFile, name)
	}
	return File{Name: path.Base(name), Kind: f.kind, Mode: uint32(f.mode), UID: uint32(f.uid), GID: uint32(f.gid), Target: f.target}, nil
}

func (s *fakeSandbox) List(ctx context.Context, folder string) (all []File, err error) {
	for _, full := range slices.Sorted(maps.Keys(s.files)) {
		if path.Dir(full) == path.Clean(folder) {
			f, err := s.Stat(ctx, full, false)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

func (s *fakeSandbox) MakeFolders(_ context.Context, name string) error {
	for ; name != "/"; name = path.Dir(name) {
		if f, there := s.files[name]; there && f.kind != Folder {
			return fmt.Errorf("%s is no folder", name)
		} else if !there {
			s.files[name] = fakeFile{kind: Folder, mode: 0o755}
		}
	}
	return nil
}

func (s *fakeSandbox) Change(_ context.Context, name string, mode *uint32, uid, gid uint32, recursive bool) error {
	for full, f := range s.files {
		if full != name && !(recursive && strings.HasPrefix(full, name+"/")) {
			continue
		}
		f.uid, f.gid = int(uid), int(gid)
		if mode != nil {
			f.mode = int64(*mode)
		}
		s.files[full] = f
	}
	return nil
}

func (s *fakeSandbox) Remove(_ context.Context, name string) error {
	for full := range s.files {
		if full == name || strings.HasPrefix(full, name+"/") {
			delete(s.files, full)
		}
	}
	return nil
}

func (s *fakeSandbox) ReadSmall(_ context.Context, name string, _ int) ([]byte, error) {
	f, there := s.files[name]
	if !there {
		return nil, ErrNoFile
	}
	return []byte(f.content), nil
}

func (s *fakeSandbox) Mount(_ context.Context, mounts []Mount) error {
	for _, m := range mounts {
		if _, there := s.files[m.Target]; !there {
			return fmt.Errorf("%s is not there", m.Target)
		}
		s.mounts = append(s.mounts, m.Target)
	}
	return nil
}

func (s *fakeSandbox) Unmount(context.Context, []string) error {
	s.mounts = nil
	return nil
}

func (s *fakeSandbox) Save(_ context.Context, snapshot string) error {
	if s.node.noSave {
		return errors.New("no room")
	}
	if _, there := s.node.snapshots[snapshot]; !there {
		s.node.snapshots[snapshot] = s.files.clone()
	}
	return nil
}

func (s *fakeSandbox) Export(_ context.Context, w io.Writer) error { return s.files.pack("/", w) }

func (s *fakeSandbox) Close() error {
	s.node.open--
	return nil
}

// result is what a build on the fake node said and made.
type result struct {
	err    error
	config image.Config
	files  files
	steps  []Step
	log    string
	ran    string
}

func (n *fakeNode) build(dockerfile string, contextFiles map[string]string, change ...func(*Spec)) result {
	n.t.Helper()
	cache, err := OpenCache(n, n.t.TempDir(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		n.t.Fatal(err)
	}
	return n.buildWith(cache, dockerfile, contextFiles, change...)
}

func (n *fakeNode) buildWith(cache *Cache, dockerfile string, contextFiles map[string]string, change ...func(*Spec)) (r result) {
	n.t.Helper()
	b := &Builder{Sandboxes: n, Images: n, Cache: cache, Dir: n.t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	spec := Spec{Name: "test", Dockerfile: dockerfile, StepTimeout: time.Minute}
	for _, f := range change {
		f(&spec)
	}
	var archive io.Reader
	if contextFiles != nil {
		archive = packed(n.t, contextFiles)
	}
	n.commands, n.pulled = nil, nil
	var made image.Image
	made, r.err = b.Run(n.t.Context(), spec, archive, func(e Event) {
		switch e := e.(type) {
		case Step:
			r.steps = append(r.steps, e)
		case Log:
			r.log += string(e.Data)
		}
	})
	if n.open != 0 {
		n.t.Errorf("%d sandboxes are left", n.open)
	}
	if r.err == nil {
		r.config, r.files = *made.Metadata.Config, n.images[made.Metadata.Digest].files
		r.ran = r.files["/ran"].content
	}
	return r
}

// packed is a tar of files: a name with / at its end is a folder, "-> x" a symlink, "#!" makes it executable.
func packed(t testing.TB, all map[string]string) io.Reader {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		content := all[name]
		h := &tar.Header{Name: name, Mode: 0o640, Typeflag: tar.TypeReg, Uid: 501, Gid: 20, Size: int64(len(content))}
		switch target, isLink := strings.CutPrefix(content, "-> "); {
		case strings.HasSuffix(name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o750
		case isLink:
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, target, 0, ""
		case strings.HasPrefix(content, "#!"):
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &text
}

// describe is files as text, without those of the base image.
func (f files) describe(n *fakeNode) string {
	var text strings.Builder
	base := n.images[fmt.Sprintf("%064d", 1)].files
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if base[name] != f[name] {
			fmt.Fprintf(&text, "%s %v\n", name, f[name])
		}
	}
	return text.String()
}

func text(v any) string {
	encoded, _ := json.Marshal(v)
	return string(encoded)
}

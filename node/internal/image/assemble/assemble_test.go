package assemble

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/node/internal/erofs"
)

type entry struct {
	kind    byte
	name    string
	content string
	mode    int64
}

func file(name, content string) entry { return entry{tar.TypeReg, name, content, 0o644} }
func program(name string) entry       { return entry{tar.TypeReg, name, "\x7fELF", 0o755} }
func holding(name, text string) entry { return entry{tar.TypeReg, name, "\x7fELF" + text, 0o755} }
func link(name, target string) entry  { return entry{tar.TypeSymlink, name, target, 0o777} }
func directory(name string) entry     { return entry{tar.TypeDir, name, "", 0o755} }
func passwd(lines ...string) entry    { return file("etc/passwd", strings.Join(lines, "\n")) }
func hard(name, target string) entry  { return entry{tar.TypeLink, name, target, 0} }
func device(name string) entry        { return entry{tar.TypeChar, name, "", 0o666} }
func withMode(e entry, m int64) entry { e.mode = m; return e }

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.content))
		} else {
			h.Linkname = e.content
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := io.WriteString(w, e.content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// made does a job in this process, and returns the image's tree too.
func made(t testing.TB, job Job, layers ...[]byte) (*Result, *tree, *os.File, error) {
	t.Helper()
	fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	out := os.NewFile(uintptr(fd), "image")
	t.Cleanup(func() { out.Close() })
	var readers []io.Reader
	for n, l := range layers {
		readers = append(readers, bytes.NewReader(l))
		if len(job.Layers) <= n {
			job.Layers = append(job.Layers, Layer{})
		}
	}
	result, err := run(job, out, nil, readers, func(uint64) {})
	if err != nil {
		return nil, nil, nil, err
	}
	root, err := erofs.Read(out, int64(result.Size))
	if err != nil {
		t.Fatal(err)
	}
	return result, &tree{root: root}, out, nil
}

func must(t testing.TB, job Job, layers ...[]byte) (*Result, *tree, *os.File) {
	t.Helper()
	r, tr, f, err := made(t, job, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return r, tr, f
}

func content(t testing.TB, tr *tree, f *os.File, name string) string {
	t.Helper()
	i, _, err := tr.find(name)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, i.Size)
	if n, err := f.ReadAt(b, int64(i.Offset)); n < len(b) {
		t.Fatal(err)
	}
	return string(b)
}

func TestUserIsTheImagesOrMadeWhereThereIsNone(t *testing.T) {
	root := "root:x:0:0:root:/root:/bin/sh"
	node := "node:x:1000:1000::/home/node:/bin/sh"
	user := "user:x:1234:55::/srv/user:/bin/sh"
	groups := file("etc/group", "root:x:0:\nstaff:x:50:\nbusy:x:1001:\n")
	for what, c := range map[string]struct {
		user    string
		entries []entry
		want    string
	}{
		"nothing at all": {"", nil, "user 1000:1000 /home/user"},
		"root":           {"root", []entry{passwd(root), groups}, "user 1000:1000 /home/user"},
		"0:0":            {"0:0", []entry{passwd(root)}, "user 1000:1000 /home/user"},
		"1000 is taken by a user, 1001 by a group": {"", []entry{passwd(root, node), groups}, "user 1002:1002 /home/user"},
		"user is there":                     {"", []entry{passwd(root, user)}, "user 1234:55 /srv/user"},
		"by name":                           {"node", []entry{passwd(root, node)}, "node 1000:1000 /home/node"},
		"by name and group":                 {"node:staff", []entry{passwd(root, node), groups}, "node 1000:50 /home/node"},
		"by number":                         {"1000", []entry{passwd(root, node)}, "node 1000:1000 /home/node"},
		"by a number that nobody has":       {"4321", []entry{passwd(root, node)}, "user 4321:0 /home/user"},
		"by a number where user is another": {"4321:7", []entry{passwd(root, user)}, "user4321 4321:7 /home/user"},
		"passwd through a link":             {"", []entry{link("etc/passwd", "../lib/passwd"), file("lib/passwd", root+"\n"+user)}, "user 1234:55 /srv/user"},
		"a passwd of rubbish":               {"", []entry{passwd("", "x", ":::::", "a:b:c:d:e:f:g", "\x00\xff")}, "user 1000:1000 /home/user"},
	} {
		r, tr, f := must(t, Job{Config: Config{User: c.user}}, archive(t, c.entries...))
		if got := fmt.Sprintf("%s %d:%d %s", r.User, r.UID, r.GID, r.Home); got != c.want {
			t.Errorf("%s: %s (expected: %s)", what, got, c.want)
		}
		text := content(t, tr, f, "/etc/passwd")
		if !strings.Contains("\n"+text, fmt.Sprintf("\n%s:x:%d:", r.User, r.UID)) {
			t.Errorf("%s: %s is not in %q", what, r.User, text)
		}
		if r.Workdir != r.Home {
			t.Errorf("%s: works in %s", what, r.Workdir)
		}
	}
	for _, bad := range []string{"none", "node:none", "4294967295", "../x"} {
		if _, _, _, err := made(t, Job{Config: Config{User: bad}}, archive(t, passwd(root, node))); err == nil {
			t.Errorf("USER %s was taken", bad)
		}
	}
}

func TestWorkdirAndHomeAreMadeForTheUser(t *testing.T) {
	_, tr, f := must(t, Job{Config: Config{Workdir: "/srv/app"}}, archive(t, file("etc/shadow", "root:*:1::::::"), directory("etc/sudoers.d"), withMode(directory("./"), 0o700)))
	for _, path := range []string{"/srv/app", "/home/user"} {
		if i, _, err := tr.find(path); err != nil || !i.IsDir() || i.UID != 1000 || i.GID != 1000 {
			t.Errorf("%s: %+v, %v", path, i, err)
		}
	}
	if i, _, err := tr.find("/tmp"); err != nil || i.Mode&0o7777 != 0o1777 {
		t.Errorf("%+v, %v", i, err)
	}
	if got := content(t, tr, f, "/etc/sudoers.d/user"); got != "user ALL=(ALL:ALL) NOPASSWD: ALL\n" {
		t.Errorf("%q", got)
	}
	if got := content(t, tr, f, "/etc/shadow"); !strings.Contains(got, "\nuser:!:") {
		t.Errorf("%q", got)
	}
	if tr.root.Mode&0o7777 != 0o755 {
		t.Errorf("%o (expected: a root that all may enter)", tr.root.Mode)
	}
	// What is no folder can't become one.
	if _, _, _, err := made(t, Job{Config: Config{Workdir: "/f/x"}}, archive(t, file("f", ""))); err == nil {
		t.Error("a folder below a file was made")
	}
	// A bare image is left as it is.
	_, tr, _ = must(t, Job{Bare: true}, archive(t, file("f", "")))
	if len(tr.root.Children) != 1 {
		t.Errorf("%v", tr.root.Children)
	}
}

func TestInterpretersAreFoundOnTheImagesPathThroughLinks(t *testing.T) {
	for what, c := range map[string]struct {
		env     []string
		entries []entry
		want    string
	}{
		"nothing": {nil, nil, ""},
		"Debian's Python": {nil, []entry{link("usr/bin/python3", "python3.11"), program("usr/bin/python3.11"), link("bin", "usr/bin"), program("usr/bin/bash")},
			"python3=/usr/bin/python3@3.11 bash=/usr/bin/bash@"},
		"through alternatives": {nil, []entry{link("usr/bin/python3", "/etc/alternatives/python3"), link("etc/alternatives/python3", "/usr/local/bin/python3.12"), program("usr/local/bin/python3.12")},
			"python3=/usr/bin/python3@3.12"},
		"a file of that name":    {nil, []entry{program("usr/local/bin/python3"), file("usr/local/lib/python3.9/os.py", ""), file("usr/local/lib/python3.10/os.py", "")}, "python3=/usr/local/bin/python3@3.10"},
		"too old":                {nil, []entry{link("usr/bin/python3", "python3.7"), program("usr/bin/python3.7")}, ""},
		"not executable":         {nil, []entry{file("usr/bin/python3.11", ""), link("usr/bin/python3", "python3.11")}, ""},
		"a link to nowhere":      {nil, []entry{link("usr/bin/python3", "python3.11")}, ""},
		"a loop":                 {nil, []entry{link("usr/bin/python3", "python"), link("usr/bin/python", "python3")}, ""},
		"a folder":               {nil, []entry{directory("usr/bin/bash/")}, ""},
		"PATH of the image":      {[]string{"PATH=/opt/x/bin:relative:/usr/bin"}, []entry{program("opt/x/bin/bun"), program("usr/local/bin/deno"), program("usr/bin/bash")}, "bun=/opt/x/bin/bun@ bash=/usr/bin/bash@"},
		"Node by its variable":   {[]string{"NODE_VERSION=20.11.1"}, []entry{program("usr/local/bin/node")}, "node=/usr/local/bin/node@20.11.1"},
		"Node by its header":     {nil, []entry{program("usr/local/bin/node"), file("usr/local/include/node/node_version.h", "#define NODE_MAJOR_VERSION 22\n#define NODE_MINOR_VERSION 1\n#define NODE_PATCH_VERSION 0\n")}, "node=/usr/local/bin/node@22.1.0"},
		"Node by Debian's list":  {nil, []entry{program("usr/bin/node"), file("var/lib/dpkg/status", "Package: a\nVersion: 1\n\nPackage: nodejs\nVersion: 20.19.2+dfsg-1\n\n")}, "node=/usr/bin/node@20.19.2"},
		"Node by Alpine's list":  {nil, []entry{program("usr/bin/node"), file("lib/apk/db/installed", "P:nodejs\nV:22.3.0-r1\n\n")}, "node=/usr/bin/node@22.3.0"},
		"Node by what it says":   {nil, []entry{holding("usr/bin/node", "node-v20.20.2.tar.gz")}, "node=/usr/bin/node@20.20.2"},
		"Node 18":                {[]string{"NODE_VERSION=18.20.0"}, []entry{program("usr/local/bin/node")}, ""},
		"Node that says nothing": {nil, []entry{program("usr/bin/node")}, ""},
		"Deno":                   {nil, []entry{holding("usr/bin/deno", "Deno/0.80.0 Deno/2.9.6 Deno/2.9.6")}, "deno=/usr/bin/deno@2.9.6"},
		"Deno 1":                 {nil, []entry{holding("usr/bin/deno", "Deno/1.46.3")}, ""},
		"Go":                     {[]string{"PATH=/go/bin:/usr/local/go/bin:/usr/bin"}, []entry{program("usr/local/go/bin/go"), file("usr/local/go/VERSION", "go1.22.12\ntime x\n")}, "go=/usr/local/go/bin/go@1.22.12"},
	} {
		r, _, _ := must(t, Job{Config: Config{Env: c.env}}, archive(t, c.entries...))
		var got []string
		for _, i := range r.Interpreters {
			got = append(got, fmt.Sprintf("%s=%s@%s", i.Name, i.Path, i.Version))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v (expected: %s)", what, got, c.want)
		}
	}
}

func TestBaseIsChangedAndItsContentsAreCopied(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 100_000)
	_, _, base := must(t, Job{}, archive(t, file("kept/a", big), file("kept/b", "b"), file("gone", big), hard("kept/c", "kept/b"), file("zeros", strings.Repeat("\x00", 1<<20))))
	out, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	result, err := run(Job{HasBase: true, Layers: []Layer{{Overlay: true}}}, out, base,
		[]io.Reader{bytes.NewReader(archive(t, device("gone"), hard("also", "gone"), file("new", "new"), hard("linked", "kept/a")))}, func(uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	root, err := erofs.Read(out, int64(result.Size))
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{root: root}
	for name, want := range map[string]string{"kept/a": big, "kept/b": "b", "kept/c": "b", "new": "new", "linked": big, "zeros": strings.Repeat("\x00", 1<<20)} {
		if got := content(t, tr, out, name); got != want {
			t.Errorf("%s: %d bytes (expected: %d)", name, len(got), len(want))
		}
	}
	if _, _, err := tr.find("gone"); !errors.Is(err, errNotFound) {
		t.Errorf("%v (expected: gone)", err)
	}
	if root.Children["linked"] != root.Children["kept"].Children["a"] {
		t.Error("a hard link to a file of the base is another file")
	}
}

func TestLayerMayLieInAFolder(t *testing.T) {
	_, tr, f := must(t, Job{Bare: true, Layers: []Layer{{}, {Root: "/srv/app"}}}, archive(t, link("srv", "var/srv"), directory("var/srv/"), file("var/srv/app/old", "o")), archive(t, file("x", "x"), hard("y", "x"), file(".wh.old", "")))
	if got := content(t, tr, f, "/var/srv/app/y"); got != "x" {
		t.Errorf("%q", got)
	}
	if i, _, err := tr.find("/srv/app"); err != nil || len(i.Children) != 2 {
		t.Errorf("%v %v", i, err)
	}
}

// FuzzLayers merges what a few bytes stand for, and what they are: whatever it is, it is refused or gives a sound image.
func FuzzLayers(f *testing.F) {
	f.Add([]byte(nil), []byte(nil))
	f.Add([]byte("\x00\x01\x02\x10\x11\x12\x20\x31\x42\x53\x64\x75"), []byte("\x05\x15\x25\x35\x45\x55\x65\x75"))
	f.Add(archive(f, file("a", "x"), link("b", "a"), hard("c", "a")), archive(f, device("a"), hard("b", "a")))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		for _, layers := range [][][]byte{{archive(t, script(one)...), archive(t, script(two)...)}, {one, two}} {
			for _, overlay := range []bool{false, true} {
				job := Job{Limits: Limits{Bytes: 1 << 20, Entries: 5000, NameBytes: 1 << 16}, Layers: []Layer{{Overlay: overlay}, {Overlay: overlay}}}
				_, tr, _, err := made(t, job, layers...)
				if err != nil {
					continue
				}
				sound(t, tr.root)
			}
		}
	})
}

// script makes entries of bytes: few names, so that they meet.
func script(b []byte) []entry {
	names := []string{"a", "b", "a/b", "a/c", "b/a", "a/b/c", ".wh.a", "a/.wh.b", "a/.wh..wh..opq", "b/.wh.a", "a/b/.wh.c", ".wh.b", "etc/passwd", "etc", "/a", "./b/c"}
	var entries []entry
	for n := 0; n+1 < len(b) && len(entries) < 60; n += 2 {
		name, other := names[b[n]%16], names[b[n]>>4]
		switch b[n+1] % 6 {
		case 0:
			entries = append(entries, file(name, strings.Repeat("x", int(b[n+1])*64)))
		case 1:
			entries = append(entries, directory(name))
		case 2:
			entries = append(entries, link(name, other))
		case 3:
			entries = append(entries, hard(name, other))
		case 4:
			entries = append(entries, device(name))
		case 5:
			entries = append(entries, link(name, "../"+other+"/.."))
		}
	}
	return entries
}

// sound checks that files don't share blocks, and links count right.
func sound(t *testing.T, root *erofs.Inode) {
	t.Helper()
	links := map[*erofs.Inode]uint32{}
	var files []*erofs.Inode
	var walk func(i *erofs.Inode)
	walk = func(i *erofs.Inode) {
		for _, child := range i.Children {
			links[child]++
			if child.IsRegular() && links[child] == 1 && child.Size > 0 {
				files = append(files, child)
			}
			if child.IsDir() {
				walk(child)
			}
		}
	}
	walk(root)
	for i, n := range links {
		if !i.IsDir() && i.Links != n {
			t.Errorf("%d links (expected: %d)", i.Links, n)
		}
	}
	slices.SortFunc(files, func(a, b *erofs.Inode) int { return int(int64(a.Offset) - int64(b.Offset)) })
	for n := 1; n < len(files); n++ {
		if files[n-1].Offset+files[n-1].Size > files[n].Offset {
			t.Error("two files overlap")
		}
	}
}

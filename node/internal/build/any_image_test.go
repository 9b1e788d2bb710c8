//go:build gvisor

package build_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/box"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/image"
	"atoll/node/internal/patience"
	"atoll/node/internal/reap"
)

// probe is a static program.
func probe(t *testing.T) string {
	t.Helper()
	gobin, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	r, err := reaper()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "probe")
	status, err := r.Run(t.Context(), reap.Command{
		Path: gobin, Args: []string{"build", "-ldflags", "-s -w", "-o", out, "./testdata/probe"}, Env: append(os.Environ(), "CGO_ENABLED=0"),
		Files: []*os.File{nil, os.Stderr, os.Stderr},
	})
	if err != nil || status != 0 {
		t.Fatalf("go build: %v, status %#x", err, uint32(status))
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func tarOf(t *testing.T, headers []tar.Header, contents map[string]string) *bytes.Buffer {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, h := range headers {
		h.Size = int64(len(contents[h.Name]))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(contents[h.Name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &text
}

func (b *bench) assemble(config image.Config, layer *bytes.Buffer) image.Image {
	b.t.Helper()
	made, err := b.images.Assemble(b.t.Context(), image.Request{Name: "tiny", Origin: image.FromArchive, Config: config, Layers: []image.Layer{{Reader: layer}}})
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func TestGvisor_images_with_next_to_nothing_run(t *testing.T) {
	b := newBench(t)
	program := probe(t)
	// A program that needs a loader, as any of this machine does.
	dynamic, err := os.ReadFile("/bin/ls")
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{"p": program, "etc/passwd": "app:x:1000:1000::/srv/app:/bin/false\n", "script": "#!/no/interpreter -x\n", "dynamic": string(dynamic), "text": "no program"}
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755} }
	folder := func(name string, mode int64) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	for name, c := range map[string]struct {
		config  image.Config
		entries []tar.Header
		want    string
	}{
		"one file":           {image.Config{}, []tar.Header{file("p")}, "uid=1000 gid=1000 cwd=/home/user <nil> home=/home/user user=user\nwrite /tmp/x: <nil>\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"a user by number":   {image.Config{User: "1234:5678", Workdir: "/w"}, []tar.Header{file("p")}, "uid=1234 gid=5678 cwd=/w <nil> home=/home/user user=user\nwrite /tmp/x: <nil>\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"a user by name":     {image.Config{User: "app"}, []tar.Header{file("p"), folder("etc", 0o755), file("etc/passwd")}, "uid=1000 gid=1000 cwd=/srv/app <nil> home=/srv/app user=app\nwrite /tmp/x: <nil>\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"uid 1000 is taken":  {image.Config{}, []tar.Header{file("p"), folder("etc", 0o755), file("etc/passwd")}, "uid=1001 gid=1001 cwd=/home/user <nil> home=/home/user user=user\nwrite /tmp/x: <nil>\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"closed folders":     {image.Config{Workdir: "/locked"}, []tar.Header{file("p"), folder("etc", 0o500), folder("home", 0o555), folder("locked", 0o555)}, "uid=1000 gid=1000 cwd=/locked <nil> home=/home/user user=user\nwrite /tmp/x: <nil>\nwrite x: open x: permission denied\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"an own /tmp":        {image.Config{}, []tar.Header{file("p"), folder("tmp", 0o755)}, "uid=1000 gid=1000 cwd=/home/user <nil> home=/home/user user=user\nwrite /tmp/x: open /tmp/x: permission denied\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"/tmp is a symlink":  {image.Config{}, []tar.Header{file("p"), folder("var", 0o755), folder("var/tmp", 0o1777), link("tmp", "var/tmp")}, "uid=1000 gid=1000 cwd=/home/user <nil> home=/home/user user=user\nwrite /tmp/x: <nil>\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
		"/home is a symlink": {image.Config{}, []tar.Header{file("p"), folder("var", 0o755), folder("var/home", 0o755), link("home", "/var/home")}, "uid=1000 gid=1000 cwd=/var/home/user <nil> home=/home/user user=user\nwrite /tmp/x: <nil>\nwrite x: <nil>\nwrite /dev/shm/x: <nil>\nwrite /x: open /x: permission denied\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			i := b.assemble(c.config, tarOf(t, c.entries, contents))
			wantText(t, b.in(i, "/p", "/tmp/x", "x", "/dev/shm/x", "/x"), c.want)
		})
	}
	b.t = t

	i := b.assemble(image.Config{}, tarOf(t, []tar.Header{file("p"), file("script"), file("dynamic"), file("text")}, contents))
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(time.Minute))
	defer cancel()
	id := enginetest.NewID("box")
	if _, err := b.node.Create(ctx, &enginev1.CreateBoxRequest{BoxId: id, Spec: &enginev1.BoxSpec{ImageDigest: i.Metadata.Digest}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.node.Delete(context.Background(), id); err != nil {
			t.Error(err)
		}
	}()
	for program, wants := range map[string][]string{
		"sh":       {"sh is not in PATH"},
		"/bin/sh":  {"/bin/sh", "no such file"},
		"/script":  {"/script", "/no/interpreter", "missing"},
		"/dynamic": {"/dynamic", "/lib", "missing"},
		"/text":    {"/text", "neither a binary of this machine nor a script"},
	} {
		_, err := b.node.StartProcess(ctx, id, &execv1.ProcessSpec{ProcessId: enginetest.NewID("proc"), Argv: []string{program}})
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v (expected: %q in it)", program, err, want)
			}
		}
	}
	_, err = b.node.StartProcess(ctx, id, &execv1.ProcessSpec{ProcessId: enginetest.NewID("proc"), Argv: []string{"/p"}, User: "ghost"})
	if err == nil || !strings.Contains(err.Error(), `"ghost"`) {
		t.Errorf("%v (expected: which user is missing)", err)
	}
	for language, want := range map[string]string{"python": "no interpreter", "typescript": "no interpreter", "bash": "neither bash nor sh"} {
		opened, err := b.node.OpenContext(ctx, id, &execv1.ContextSpec{ContextId: enginetest.NewID("ctx"), Language: language})
		said := opened.GetDetail()
		var known *box.Fault
		if errors.As(err, &known) {
			said = known.Message
		}
		if opened.GetState() == execv1.ContextState_CONTEXT_STATE_IDLE || !strings.Contains(said, want) {
			t.Errorf("a context of %s: %v, %q (expected: that it is missing)", language, opened.GetState(), said)
		}
	}
}

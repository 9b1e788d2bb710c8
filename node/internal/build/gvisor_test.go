//go:build gvisor

package build_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/box"
	"atoll/node/internal/build"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver/gvisor"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/image"
	"atoll/node/internal/net"
	"atoll/node/internal/patience"
	"atoll/node/internal/reap"
	"atoll/node/internal/snapshot"
	"atoll/node/internal/spool"
)

var reaper = sync.OnceValues(reap.Start)

// imageBuilder is the program that writes images.
var imageBuilder = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("ATOLL_IMAGE_BUILDER"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "atoll-build-test")
	if err != nil {
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
	return out, errors.Join(err, os.Chmod(dir, 0o755))
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("ATOLL_IMAGE_BUILDER") == "" {
		if path, err := imageBuilder(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

// bench is a node with a builder, as an engine has them.
type bench struct {
	t       *testing.T
	node    *box.Node
	images  *image.Store
	builder *build.Builder
	data    string
	run     string
	groups  cgroup.Hierarchy
	close   func()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("builds need root (remedy: run the tests with sudo)")
	}
	b := &bench{t: t, data: t.TempDir(), run: t.TempDir()}
	b.open()
	t.Cleanup(func() {
		defer func() { b.close() }()
		b.wantNothingLeft()
	})
	return b
}

var instances int

func (b *bench) open() {
	t := b.t
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := reaper()
	must(err)
	writer, err := imageBuilder()
	must(err)
	files := enginetest.Files(t)
	logger := slog.New(slog.NewTextHandler(testLog{t}, nil))
	netns := filepath.Join(b.run, "netns")
	must(net.Shared(netns))
	if b.groups == nil {
		instances++
		b.groups, err = cgroup.Detect(cgroup.Root, fmt.Sprintf("bt%dx%d", os.Getpid(), instances))
		must(err)
	}
	runtime, err := gvisor.New(gvisor.Options{
		RunscDir: files.Runsc, RuntimesDir: gvisor.RuntimesDir(b.data), RunDir: b.run, NetworkNamespace: netns, Reaper: r,
	})
	must(err)
	agent, err := gvisor.KeepAgent(b.data, files.Agent)
	must(err)
	spools, _, err := spool.Open(filepath.Join(b.data, "spool"), spool.Sizes{})
	must(err)
	snapshots, err := snapshot.Open(b.data, logger)
	must(err)
	b.images, err = image.Open(image.Options{Recipes: files.Images, Dir: filepath.Join(b.data, "images"), Builder: writer, Reaper: r})
	must(err)
	b.node, err = box.Open(box.Config{
		DataDir: b.data, Driver: runtime, Cgroups: b.groups, Images: b.images, Spool: spools, Snapshots: snapshots, Reaper: r, Logger: logger,
		Kept: box.Kept{Agent: agent, AgentPath: func(digest string) string { return gvisor.AgentImage(b.data, digest) }},
	})
	must(err)
	boxes, err := build.NewBoxes(b.node)
	must(err)
	cache, err := build.OpenCache(boxes, filepath.Join(b.data, "build-cache"), 0, logger)
	must(err)
	b.builder = &build.Builder{
		Sandboxes: boxes, Cache: cache, Dir: filepath.Join(b.data, "builds"), Logger: logger,
		Images: build.StoreImages{Store: b.images, PullReference: func(_ context.Context, reference string, _ func(build.Event)) (image.Image, error) {
			return image.Image{}, fmt.Errorf("no registry knows %s", reference)
		}},
	}
	must(b.builder.Open())
	b.close = func() {
		b.node.Close()
		snapshots.Close()
		runtime.Close()
		if err := errors.Join(runtime.Unmount(), net.Remove(netns), b.groups.Remove()); err != nil {
			t.Error(err)
		}
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	// After the end of a test, nothing may be logged to it.
	defer func() { _ = recover() }()
	if os.Getenv("ATOLL_BUILD_LOG") != "" {
		os.Stderr.Write(p)
	}
	return len(p), nil
}

// wantNothingLeft fails the test if a box, a mount, a group or a file of a build is there.
func (b *bench) wantNothingLeft() {
	b.t.Helper()
	deadline := time.Now().Add(patience.Of(30 * time.Second))
	for {
		var left []string
		for _, pattern := range []string{"boxes/*", "builds/*", "spool/*"} {
			found, _ := filepath.Glob(filepath.Join(b.data, pattern))
			left = append(left, found...)
		}
		state, _ := filepath.Glob(filepath.Join(b.run, "runsc", "*_sandbox*"))
		groups, err := b.groups.Boxes()
		if err != nil {
			b.t.Error(err)
		}
		left = append(append(left, state...), groups...)
		mounts, _ := os.ReadFile("/proc/self/mounts")
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, b.data) {
				left = append(left, line)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("left: %v", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// recipe is the digest of the newest image of a recipe.
func (b *bench) recipe(name string) string {
	b.t.Helper()
	images, _ := b.images.List()
	var found image.Image
	for _, i := range images {
		if i.Metadata.Name == name && i.Built.After(found.Built) {
			found = i
		}
	}
	if found.Metadata.Digest == "" {
		b.t.Fatalf("no image %q (remedy: ./atoll up builds it)", name)
	}
	return found.Metadata.Digest
}

// outcome is what a build said and made.
type outcome struct {
	image image.Image
	err   error
	steps []build.Step
	log   string
}

// ran are the texts of the steps that were run.
func (o outcome) ran() (texts []string) {
	for _, s := range o.steps {
		if !s.Cached {
			texts = append(texts, s.Text)
		}
	}
	return texts
}

// spec is a build on the Python image, named "python".
func (b *bench) spec(dockerfile string) build.Spec {
	return build.Spec{
		Name: "test", Dockerfile: dockerfile, NamedImages: map[string]string{"python": b.recipe("python")},
		Limits: &execv1.Limits{MemoryBytes: 512 << 20, DiskBytes: 1 << 30},
	}
}

func (b *bench) try(ctx context.Context, spec build.Spec, context io.Reader, on func(build.Event)) (o outcome) {
	var log strings.Builder
	o.image, o.err = b.builder.Run(ctx, spec, context, func(e build.Event) {
		switch e := e.(type) {
		case build.Step:
			o.steps = append(o.steps, e)
		case build.Log:
			log.Write(e.Data)
		}
		if on != nil {
			on(e)
		}
	})
	o.log = log.String()
	return o
}

func (b *bench) build(spec build.Spec, context io.Reader) outcome {
	b.t.Helper()
	o := b.try(b.t.Context(), spec, context, nil)
	if o.err != nil {
		b.t.Fatalf("%v\n%s", o.err, o.log)
	}
	return o
}

// in runs a script in a sandbox of an image, as its user, and returns what it prints.
func (b *bench) in(i image.Image, argv ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience.Of(time.Minute))
	defer cancel()
	id := enginetest.NewID("box")
	if _, err := b.node.Create(ctx, &enginev1.CreateBoxRequest{BoxId: id, Spec: &enginev1.BoxSpec{ImageDigest: i.Metadata.Digest}}); err != nil {
		b.t.Fatal(err)
	}
	defer func() {
		if err := b.node.Delete(context.Background(), id); err != nil {
			b.t.Error(err)
		}
	}()
	process := enginetest.NewID("proc")
	if _, err := b.node.StartProcess(ctx, id, &execv1.ProcessSpec{ProcessId: process, Argv: argv}); err != nil {
		b.t.Fatal(err)
	}
	log, err := b.node.Output(ctx, id, process)
	if err != nil {
		b.t.Fatal(err)
	}
	reader := log.Read(0)
	var said []byte
	for {
		event, err := reader.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			b.t.Fatal(err)
		}
		said = append(said, event.GetOutput().GetData()...)
	}
	reader.Close()
	if err := b.node.Forget([]string{process}, false); err != nil {
		b.t.Error(err)
	}
	return string(said)
}

// archive is a tar of files by their names; a name that ends with / is a folder, a content that begins with "-> " a symlink.
func archive(t testing.TB, files map[string]string) io.Reader {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg, Uid: 501, Gid: 20, ModTime: time.Unix(1700000000, 0)}
		content := files[name]
		switch target, isLink := strings.CutPrefix(content, "-> "); {
		case strings.HasSuffix(name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
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

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nexpected:\n%s", got, want)
	}
}

func TestGvisor_image_is_built_of_steps_in_sandboxes(t *testing.T) {
	b := newBench(t)
	spec := b.spec(`
ARG VERSION=1
FROM python AS made
ARG VERSION
ENV GREETING="hello $VERSION" EMPTY=
WORKDIR /srv/app
RUN echo "$GREETING" >greeting && id -un >who && pwd >where && echo "$HOME" >home && ln greeting twin && rm -rf /usr/share/doc
COPY --chown=1234:4321 script.sh sub/ ./
COPY --chmod=600 script.sh secret.sh
RUN <<EOF
cat /etc/hosts | grep -c localhost >hosts
echo 'in a heredoc' >heredoc
EOF
RUN <<EOF
#!/usr/bin/python3
open("/srv/app/python", "w").write("by python")
EOF
USER 1234:4321
RUN id -u >/tmp/uid

FROM python
COPY --from=made /srv/app /app
COPY --from=made /tmp/uid /usr/bin/env /copied/
COPY <<one.txt <<"two.txt" /here/
$PATH
one.txt
$PATH
two.txt
LABEL a=b
EXPOSE 80 81/udp
ENTRYPOINT ["/bin/echo"]
CMD ["x"]
WORKDIR /app
`)
	spec.Args = map[string]string{"VERSION": "2"}
	o := b.build(spec, archive(t, map[string]string{"script.sh": "#!/bin/sh\necho ok\n", "sub/": "", "sub/file": "content", "sub/link": "-> file", "other": "x"}))
	wantText(t, b.in(o.image, "/bin/sh", "-c", `cd /app; cat greeting who where home hosts heredoc python; echo; stat -c '%n %a %u:%g' *; cat link; echo; cat /copied/uid
ls /copied; cat /here/one.txt /here/two.txt; ./script.sh; ls -a / | tr '\n' ' '; pwd; id -un`),
		`hello 2
root
/srv/app
/root
2
in a heredoc
by python
file 644 1234:4321
greeting 644 0:0
heredoc 644 0:0
home 644 0:0
hosts 644 0:0
link 777 1234:4321
python 644 0:0
script.sh 755 1234:4321
secret.sh 600 0:0
twin 644 0:0
where 644 0:0
who 644 0:0
content
1234
env
uid
/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
$PATH
ok
. .. .atoll app bin boot copied dev etc here home lib lib64 media mnt opt proc root run sbin srv sys tmp usr var /app
user
`)
	if c := o.image.Metadata.Config; c == nil || !slices.Equal(c.Entrypoint, []string{"/bin/echo"}) || !slices.Equal(c.ExposedPorts, []string{"80/tcp", "81/udp"}) || c.Labels["a"] != "b" {
		t.Errorf("configuration %+v", c)
	}
}

func TestGvisor_second_build_runs_only_what_changed(t *testing.T) {
	b := newBench(t)
	spec := b.spec(`
FROM python AS tools
RUN echo tool >/tool
FROM python
ENV A=1
RUN echo first >/first && rm -r /usr/share/doc /etc/issue && mv /etc/skel /etc/skeletons && mkdir /etc/skel && ln /first /twin && chmod 4755 /first && \
    chown 7:8 /etc/skel && touch -h -d @1000 /etc/skel && mkfifo /fifo && python3 -c 'import os; os.setxattr("/first", "user.k", b"\\xff\\x00")'
COPY data /data
RUN cat /data /first >/both
COPY --from=tools /tool /tool
RUN touch /last
CMD ["python3"]
`)
	files := map[string]string{"data": "one", "README": "x"}
	first := b.build(spec, archive(t, files))
	if len(first.ran()) != len(first.steps) {
		t.Fatalf("ran %q of %d steps (expected: all)", first.ran(), len(first.steps))
	}
	// What is not copied does not count, nor do times.
	files["README"] = "y"
	second := b.build(spec, archive(t, files))
	if second.image.Metadata.Digest != first.image.Metadata.Digest {
		t.Errorf("image %s (expected: the same as before, %s)", second.image.Metadata.Digest, first.image.Metadata.Digest)
	}
	for _, s := range second.steps {
		if !s.Cached && !strings.HasPrefix(s.Text, "ENV") && !strings.HasPrefix(s.Text, "CMD") {
			t.Errorf("step %q ran", s.Text)
		}
	}
	files["data"] = "two"
	wantText(t, b.in(second.image, "/bin/sh", "-c", "ls /usr/share/doc /etc/issue 2>&1 | wc -l; ls -A /etc/skel /etc/skeletons | wc -l; stat -c '%a %u:%g %h' /twin /etc/skel"),
		"2\n6\n4755 0:0 2\n755 7:8 1\n")
	third := b.build(spec, archive(t, files))
	if want := []string{"COPY data /data", "RUN cat /data /first >/both", "COPY --from=tools /tool /tool", "RUN touch /last"}; !containsOnly(third.ran(), want, "ENV", "CMD") {
		t.Errorf("ran %q (expected: %q)", third.ran(), want)
	}
	wantText(t, b.in(third.image, "/bin/sh", "-c", "cat /both /tool"), "twofirst\ntool\n")

	// A restarted node has it still.
	b.close()
	b.open()
	fourth := b.build(spec, archive(t, files))
	if !containsOnly(fourth.ran(), nil, "ENV", "CMD") {
		t.Errorf("after a restart %q ran", fourth.ran())
	}
	// What is damaged counts as not there.
	for _, name := range []string{"multitar.img", "pages.img"} {
		found, err := filepath.Glob(filepath.Join(b.data, "snapshots", "snap-*", "image", name))
		if err != nil || len(found) == 0 {
			t.Fatalf("%v, %v (expected: snapshots)", found, err)
		}
		for _, path := range found {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{0x5a}, 600), 0)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	fifth := b.build(spec, archive(t, files))
	wantText(t, b.in(fifth.image, "/bin/sh", "-c", "cat /both /tool"), "twofirst\ntool\n")

	spec.NoCache = true
	sixth := b.build(spec, archive(t, files))
	if len(sixth.ran()) != len(sixth.steps) {
		t.Errorf("ran %q of %d steps without the cache (expected: all)", sixth.ran(), len(sixth.steps))
	}
	if b.builder.Cache.Clear() == 0 || len(b.node.BuildSnapshots()) != 0 {
		t.Error("the cache is not cleared")
	}
}

// containsOnly compares, but for texts that begin in some way.
func containsOnly(got, want []string, but ...string) bool {
	got = slices.DeleteFunc(slices.Clone(got), func(text string) bool {
		return slices.ContainsFunc(but, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
	})
	return slices.Equal(got, want)
}

func TestGvisor_failing_step_says_which_and_why(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		dockerfile string
		timeout    time.Duration
		line       int
		wants      []string
	}{
		"exit code":    {"FROM python\nRUN true\nRUN echo the reason >&2; \\\n  exit 7\n", 0, 3, []string{"step 3 of 3", "exit code 7", "the reason"}},
		"signal":       {"FROM python\nRUN kill -9 $$\n", 0, 2, []string{"signal 9"}},
		"timeout":      {"FROM python\nRUN echo begun; sleep 1000\n", 6 * time.Second, 2, []string{"time limit", "begun"}},
		"memory":       {"FROM python\nRUN python3 -c 'x = bytearray(2 << 30)'\n", 0, 2, []string{"memory"}},
		"disk":         {"FROM python\nRUN head -c 2G /dev/zero >/large\n", 0, 2, []string{"No space left"}},
		"no shell":     {"FROM scratch\nRUN true\n", 0, 2, []string{"/bin/sh"}},
		"no program":   {"FROM python\nRUN [\"/no/such\"]\n", 0, 2, []string{"/no/such"}},
		"no user":      {"FROM python\nUSER nobody-such\nRUN true\n", 0, 3, []string{"nobody-such"}},
		"no owner":     {"FROM python\nCOPY --chown=nobody-such x /x\n", 0, 2, []string{"nobody-such", "/etc/passwd"}},
		"file, folder": {"FROM python\nCOPY x /etc/passwd/\n", 0, 2, []string{"/etc/passwd", "no folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := b.spec(c.dockerfile)
			spec.StepTimeout = c.timeout
			o := b.try(t.Context(), spec, archive(t, map[string]string{"x": "x"}), nil)
			if o.err == nil {
				t.Fatal("it was built")
			}
			line := 0
			var failed *build.StepError
			var wrong *build.InvalidError
			switch {
			case errors.As(o.err, &failed):
				line = failed.Line
			case errors.As(o.err, &wrong):
				line = wrong.Line
			}
			if line != c.line {
				t.Errorf("line %d of %v (expected: %d)", line, o.err, c.line)
			}
			for _, want := range c.wants {
				if !strings.Contains(o.err.Error(), want) {
					t.Errorf("%v (expected: %q in it)", o.err, want)
				}
			}
			b.wantNothingLeft()
		})
	}
}

func TestGvisor_cancelled_build_leaves_nothing(t *testing.T) {
	b := newBench(t)
	for _, where := range []string{"RUN", "COPY"} {
		ctx, cancel := context.WithCancel(t.Context())
		o := b.try(ctx, b.spec("FROM python\nCOPY x /x\nRUN echo begun && sleep 1000\n"), archive(t, map[string]string{"x": strings.Repeat("x", 8<<20)}), func(e build.Event) {
			if s, ok := e.(build.Step); ok && where == "COPY" && strings.HasPrefix(s.Text, "COPY") {
				cancel()
			}
			if l, ok := e.(build.Log); ok && strings.Contains(string(l.Data), "begun") {
				cancel()
			}
		})
		cancel()
		if !errors.Is(o.err, context.Canceled) {
			t.Errorf("%s: %v (expected: cancelled)", where, o.err)
		}
		b.wantNothingLeft()
	}
}

func TestGvisor_mounts_of_a_step_are_not_in_the_image(t *testing.T) {
	b := newBench(t)
	spec := b.spec(`
FROM python AS other
RUN mkdir /o && echo from-other >/o/f
FROM python
WORKDIR /w
RUN --mount=type=bind,source=dir,target=bound --mount=type=bind,from=other,source=/o/f,target=/mnt/file \
    --mount=type=secret,id=token,target=/run/secrets/t --mount=type=secret,id=token,env=TOKEN --mount=type=tmpfs,target=/scratch,size=1m \
    --mount=type=cache,target=/var/cache/apt \
    cat bound/in /mnt/file /run/secrets/t >/w/all && echo "$TOKEN" >>/w/all && df -k /scratch | tail -1 | awk '{print $2}' >>/w/all && touch /scratch/x /var/cache/apt/x && \
    ! touch bound/y && echo changed >/etc/hosts
RUN ls /mnt /run/secrets /scratch /var/cache/apt/x /w >/w/after 2>&1; true
RUN --network=none env | grep -ci proxy >/w/none; true
`)
	spec.Secrets = map[string][]byte{"token": []byte("s3cret\n")}
	spec.Network = true
	o := b.build(spec, archive(t, map[string]string{"dir/in": "bound\n"}))
	got := b.in(o.image, "/bin/sh", "-c", "cat /w/all; cat /w/after; cat /w/none; cat /etc/hosts | grep -c changed")
	wantText(t, got, `bound
from-other
s3cret
s3cret

1024
ls: cannot access '/run/secrets': No such file or directory
ls: cannot access '/scratch': No such file or directory
ls: cannot access '/var/cache/apt/x': No such file or directory
/mnt:

/w:
after
all
0
0
`)
	if !strings.Contains(o.log, "type=cache") {
		t.Errorf("log %q (expected: a warning of the cache mount)", o.log)
	}
	spec.Secrets = nil
	if o := b.try(t.Context(), spec, archive(t, map[string]string{"dir/in": "x"}), nil); o.err == nil || !strings.Contains(o.err.Error(), "token") {
		t.Errorf("%v (expected: the secret is missing)", o.err)
	}
}

func TestGvisor_steps_reach_what_they_may(t *testing.T) {
	b := newBench(t)
	var served []string
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, r.URL.Path)
		fmt.Fprintf(w, "answer to %s", r.URL.Path)
	}))
	defer server.Close()
	fetch := "import urllib.request, urllib.error\n" +
		"try: print(urllib.request.urlopen('" + server.URL + "/run').read().decode())\n" +
		"except urllib.error.HTTPError as e: print(e.code, e.read().decode())\n"
	spec := b.spec("FROM python\nCOPY fetch.py /\nRUN python3 /fetch.py >/said\n")
	// Else the sandbox's own loopback would be meant.
	spec.Network, spec.StepEnv = true, map[string]string{"no_proxy": "", "NO_PROXY": ""}
	o := b.build(spec, archive(t, map[string]string{"fetch.py": fetch}))
	if said := b.in(o.image, "cat", "/said"); !strings.HasPrefix(said, "403 127.0.0.1 is not reachable from a build") || !strings.Contains(said, "build.allow") {
		t.Errorf("a step that reaches for the host's loopback is told %q", said)
	}
	mu.Lock()
	if len(served) != 0 {
		t.Errorf("the server was asked for %q", served)
	}
	mu.Unlock()
	spec.Allow, spec.NoCache = []string{"127.0.0.1"}, true
	spec.Dockerfile += "ADD " + server.URL + "/file.txt /added/\nRUN python3 -c \"import socket; s = socket.socket(); s.settimeout(5); print(s.connect_ex(('8.8.8.8', 53)))\" >/direct\n"
	o = b.build(spec, archive(t, map[string]string{"fetch.py": fetch}))
	if said := b.in(o.image, "/bin/sh", "-c", "cat /said /direct"); !strings.HasPrefix(said, "answer to /run\n") || strings.HasSuffix(said, "\n0\n") {
		t.Errorf("a step that may reach the server, and nothing else directly, says %q", said)
	}
	if text := b.in(o.image, "sh", "-c", "env | grep -ci proxy; stat -c %A /added/file.txt"); text != "0\n-rw-------\n" {
		t.Errorf("%q (expected: no proxy in the image, and the file)", text)
	}
	spec.Network, spec.StepEnv = false, nil
	spec.Dockerfile = "FROM python\nRUN env | grep -ci proxy >/n; true\n"
	if text := b.in(b.build(spec, nil).image, "cat", "/n"); text != "0\n" {
		t.Errorf("%s proxies are set without a network", text)
	}
}

// Packages of the tools that most Dockerfiles call, where this machine reaches their servers.
func TestGvisor_package_managers_work_through_the_build_network(t *testing.T) {
	b := newBench(t)
	hosts := []string{"deb.debian.org:80", "deb.debian.org:443", "pypi.org:443", "files.pythonhosted.org:443"}
	for _, address := range []string{"http://deb.debian.org/debian/dists/bookworm/InRelease", "https://pypi.org/simple/six/"} {
		client := http.Client{Timeout: 20 * time.Second}
		response, err := client.Head(address)
		if err != nil {
			t.Skipf("no network for this test: %v", err)
		}
		response.Body.Close()
	}
	spec := b.spec(`
FROM python
RUN apt-get update && apt-get install -y --no-install-recommends hello && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,source=ca.crt,target=/ca.crt python3 -m pip install --no-cache-dir --break-system-packages six==1.17.0
RUN /usr/bin/hello >/hello && python3 -c 'import six; print(six.__version__)' >>/hello
`)
	// A mirror of this machine's network may have a certificate that only this machine knows.
	authorities, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		t.Fatal(err)
	}
	spec.Network, spec.Allow, spec.StepEnv = true, hosts, map[string]string{"PIP_CERT": "/ca.crt"}
	spec.Limits = &execv1.Limits{MemoryBytes: 1 << 30, DiskBytes: 2 << 30}
	o := b.build(spec, archive(t, map[string]string{"ca.crt": string(authorities)}))
	wantText(t, b.in(o.image, "cat", "/hello"), "Hello, world!\n1.17.0\n")
}

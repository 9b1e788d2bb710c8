package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/engine/enginetest"
)

// staticProgram is a program that needs nothing of its image. It says who it is and what it sees.
var staticProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "atoll-static")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := `package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	text, _ := os.ReadFile("/etc/motd")
	dir, _ := os.Getwd()
	_, shell := os.Stat("/bin/sh")
	fmt.Println(os.Getuid(), dir, os.Getenv("HOME"), os.Getenv("FROM_IMAGE"), strings.TrimSpace(string(text)), shell == nil)
}
`
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, "static"), filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	return os.ReadFile(filepath.Join(dir, "static"))
})

type entry struct {
	tar.Header
	content []byte
}

func executable(path string, content []byte) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o755}, content}
}

func text(path, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644}, []byte(content)}
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func static(t testing.TB) []byte {
	t.Helper()
	program, err := staticProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// ociImage is one without a shell: a program and two files, the second of which replaces the first.
func ociImage(t testing.TB, env ...string) v1.Image {
	t.Helper()
	var layers []v1.Layer
	for _, content := range [][]byte{
		tarOf(t, executable("app/static", static(t)), text("etc/motd", "old"), text("gone", "x")),
		tarOf(t, text("etc/motd", "hello"), text(".wh.gone", "")),
	} {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, l)
	}
	i, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config = v1.Config{Env: append([]string{"PATH=/app", "FROM_IMAGE=yes"}, env...), WorkingDir: "/app/work", Cmd: []string{"/app/static"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}}}
	if i, err = mutate.ConfigFile(i, c); err != nil {
		t.Fatal(err)
	}
	return i
}

func serveRegistry(t testing.TB) (host string) {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func push(t testing.TB, reference string, i v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, i); err != nil {
		t.Fatal(err)
	}
}

// making is what a MakeImage said.
type making struct {
	image    *enginev1.Image
	steps    []string
	log      string
	progress int
	stream   grpc.BidiStreamingClient[enginev1.MakeImageRequest, enginev1.MakeImageEvent]
}

func begin(ctx context.Context, e *enginetest.Engine, b *enginev1.MakeImageBegin, data io.Reader) (*making, error) {
	stream, err := e.MakeImage(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&enginev1.MakeImageRequest{Message: &enginev1.MakeImageRequest_Begin{Begin: b}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for piece := make([]byte, 256<<10); data != nil; {
		n, err := data.Read(piece)
		if n > 0 && stream.Send(&enginev1.MakeImageRequest{Message: &enginev1.MakeImageRequest_Data{Data: bytes.Clone(piece[:n])}}) != nil {
			// Why it is refused is what comes back.
			break
		}
		if err != nil {
			break
		}
	}
	return &making{stream: stream}, stream.CloseSend()
}

// finish reads events to the last.
func (m *making) finish() error {
	for {
		event, err := m.stream.Recv()
		if errors.Is(err, io.EOF) {
			if m.image == nil {
				return errors.New("it ended without an image")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if m.image != nil {
			return errors.New("an event after the last")
		}
		switch x := event.GetEvent().(type) {
		case *enginev1.MakeImageEvent_Step:
			m.steps = append(m.steps, x.Step.GetText())
		case *enginev1.MakeImageEvent_Log:
			m.log += string(x.Log.GetData())
		case *enginev1.MakeImageEvent_Progress:
			m.progress++
		case *enginev1.MakeImageEvent_Done:
			m.image = x.Done
		}
	}
}

func makeImage(ctx context.Context, e *enginetest.Engine, b *enginev1.MakeImageBegin, data io.Reader) (*making, error) {
	m, err := begin(ctx, e, b, data)
	if err != nil {
		return m, err
	}
	return m, m.finish()
}

func fromRegistry(reference string) *enginev1.MakeImageBegin {
	return &enginev1.MakeImageBegin{Name: "test@1", Source: &enginev1.MakeImageBegin_Registry{Registry: &enginev1.RegistrySource{Reference: reference}}}
}

func fromArchive() *enginev1.MakeImageBegin {
	return &enginev1.MakeImageBegin{Name: "test@1", Source: &enginev1.MakeImageBegin_Archive{Archive: &enginev1.ArchiveSource{}}}
}

func mustMake(t testing.TB, e *enginetest.Engine, b *enginev1.MakeImageBegin, data io.Reader) *enginev1.Image {
	t.Helper()
	m, err := makeImage(t.Context(), e, b, data)
	if err != nil {
		t.Fatal(err)
	}
	return m.image
}

// boxOf makes a box of an image, without contexts.
func boxOf(t testing.TB, e *enginetest.Engine, digest string) string {
	t.Helper()
	id := enginetest.NewID("box")
	if _, err := e.CreateBox(t.Context(), &enginev1.CreateBoxRequest{BoxId: id, Spec: &enginev1.BoxSpec{ImageDigest: digest}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AssignBox(t.Context(), &enginev1.AssignBoxRequest{BoxId: id, SandboxId: enginetest.NewID("sb-exec"), Hostname: "box"}); err != nil {
		t.Fatal(err)
	}
	return id
}

func runIn(t testing.TB, e *enginetest.Engine, box string, argv ...string) string {
	t.Helper()
	spec := &execv1.ProcessSpec{ProcessId: enginetest.NewID("proc"), Argv: argv}
	startProcess(t, e, box, spec)
	waitProcess(t, e, box, spec.GetProcessId())
	return outputOf(t, e, box, spec.GetProcessId(), execv1.Stream_STREAM_STDOUT, 0)
}

func TestImageOfARegistryWithoutAShellRunsInASandbox(t *testing.T) {
	e := start(t)
	reference := serveRegistry(t) + "/team/static:v1"
	push(t, reference, ociImage(t))
	m, err := makeImage(t.Context(), e, fromRegistry(reference), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.steps) != 2 || m.progress == 0 {
		t.Errorf("%v, %d parts (expected: two steps)", m.steps, m.progress)
	}
	made := m.image
	if made.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_REGISTRY || !strings.Contains(made.GetSource(), "/team/static@sha256:") || made.GetName() != "test@1" {
		t.Errorf("%v", made)
	}
	var metadata struct {
		User, Workdir string
		Config        struct {
			Cmd          []string
			ExposedPorts []string `json:"exposed_ports"`
		}
	}
	if err := json.Unmarshal([]byte(made.GetMetadataJson()), &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.User != "user" || metadata.Workdir != "/app/work" || !slices.Equal(metadata.Config.Cmd, []string{"/app/static"}) || !slices.Equal(metadata.Config.ExposedPorts, []string{"8080/tcp"}) {
		t.Errorf("%s", made.GetMetadataJson())
	}
	box := boxOf(t, e, made.GetDigest())
	// The program is found on the image's PATH.
	if got := runIn(t, e, box, "static"); got != "1000 /app/work /home/user yes hello false\n" {
		t.Errorf("%q", got)
	}

	// Again, it is the same image, and so is one of the same files with other variables but for its digest.
	if again := mustMake(t, e, fromRegistry(reference), nil); again.GetDigest() != made.GetDigest() {
		t.Errorf("%s (expected: %s)", again.GetDigest(), made.GetDigest())
	}
	push(t, reference, ociImage(t, "OTHER=1"))
	other := mustMake(t, e, fromRegistry(reference), nil)
	if other.GetDigest() == made.GetDigest() {
		t.Error("an image with another environment has the same digest")
	}
	if files, _ := filepath.Glob(filepath.Join(e.Data, "images", "*.erofs")); len(files) != 1 {
		t.Errorf("%v (expected: one file that both share)", files)
	}

	// What a box needs can't be removed, and what shares its file can.
	_, err = e.DeleteImage(t.Context(), &enginev1.ImageRequest{Digest: made.GetDigest()})
	wantCode(t, err, codes.FailedPrecondition)
	if reply, err := e.DeleteImage(t.Context(), &enginev1.ImageRequest{Digest: other.GetDigest()}); err != nil || reply.GetFreedBytes() != 0 {
		t.Errorf("%v, %v (expected: removed, its file stays)", reply, err)
	}
	if got := runIn(t, e, box, "static"); !strings.Contains(got, "hello") {
		t.Errorf("%q", got)
	}
	if _, err := e.DeleteBox(t.Context(), &enginev1.BoxRequest{BoxId: box}); err != nil {
		t.Fatal(err)
	}
	if reply, err := e.DeleteImage(t.Context(), &enginev1.ImageRequest{Digest: made.GetDigest()}); err != nil || reply.GetFreedBytes() == 0 {
		t.Errorf("%v, %v", reply, err)
	}
	if files, _ := filepath.Glob(filepath.Join(e.Data, "images", "*.*")); len(files) > 1 {
		t.Errorf("left: %v", files)
	}
	_, err = e.CreateBox(t.Context(), &enginev1.CreateBoxRequest{BoxId: enginetest.NewID("box"), Spec: &enginev1.BoxSpec{ImageDigest: made.GetDigest()}})
	wantCode(t, err, codes.NotFound)
}

func TestRegistryIsReachedThroughTheProxyOfTheEnvironment(t *testing.T) {
	host := serveRegistry(t)
	push(t, host+"/team/static:v1", ociImage(t))
	var through atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		through.Add(1)
		if r.URL.Host != "registry.invalid:5000" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		r.URL.Host, r.RequestURI = host, ""
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", "")
	t.Setenv("NO_PROXY", "")
	e := start(t)
	begin := fromRegistry("registry.invalid:5000/team/static:v1")
	if _, err := makeImage(t.Context(), e, begin, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("%v (expected: unavailable, nobody said that it speaks no TLS)", err)
	}
	begin.GetRegistry().PlainHttp = []string{"registry.invalid:5000"}
	mustMake(t, e, begin, nil)
	if through.Load() == 0 {
		t.Error("the proxy was not used")
	}
}

func TestSavedSandboxIsAnImageWithItsFiles(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	wantOutput(t, box.Run(t.Context(), "import os; open('/home/user/kept', 'w').write('kept'); os.remove('/home/user/.bashrc'); print(1)"), "1\n")
	m, err := makeImage(t.Context(), e, &enginev1.MakeImageBegin{Name: "saved@1", Source: &enginev1.MakeImageBegin_Box{Box: &enginev1.BoxSource{BoxId: box.Box}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if made := m.image; made.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_BOX || made.GetDefaultLanguage() != "python" || !slices.Contains(made.GetLanguages(), "bash") {
		t.Errorf("%v", made)
	}
	request := e.Request(t.Context(), "saved@1", "python")
	if _, err := e.CreateBox(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AssignBox(t.Context(), &enginev1.AssignBoxRequest{BoxId: request.GetBoxId(), SandboxId: enginetest.NewID("sb-exec"), Hostname: "box"}); err != nil {
		t.Fatal(err)
	}
	copied := e.Sandbox(request)
	wantOutput(t, copied.Run(t.Context(), "import os, requests; print(open('/home/user/kept').read(), os.path.exists('/home/user/.bashrc'), os.getuid(), os.getcwd())"), "kept False 1000 /home/user\n")
	// The box goes on.
	wantOutput(t, box.Run(t.Context(), "print(2)"), "2\n")
	_, err = makeImage(t.Context(), e, &enginev1.MakeImageBegin{Source: &enginev1.MakeImageBegin_Box{Box: &enginev1.BoxSource{BoxId: enginetest.NewID("box")}}}, nil)
	wantCode(t, err, codes.NotFound)
}

func TestArchivesOfAllKindsBecomeImages(t *testing.T) {
	e := start(t)
	i := ociImage(t)
	tag, err := name.NewTag("local/static:v1")
	if err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := tarball.Write(tag, i, &saved); err != nil {
		t.Fatal(err)
	}
	plain := tarOf(t, executable("app/static", static(t)), text("etc/motd", "plain"))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plain)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	fromSave := mustMake(t, e, fromArchive(), &saved)
	if fromSave.GetSource() != "local/static:v1" || fromSave.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_ARCHIVE {
		t.Errorf("%v", fromSave)
	}
	fromPlain, fromZipped := mustMake(t, e, fromArchive(), bytes.NewReader(plain)), mustMake(t, e, fromArchive(), &zipped)
	if fromPlain.GetDigest() != fromZipped.GetDigest() {
		t.Error("the same files, compressed, are another image")
	}
	if got := runIn(t, e, boxOf(t, e, fromSave.GetDigest()), "static"); !strings.Contains(got, "hello") {
		t.Errorf("%q", got)
	}
	if got := runIn(t, e, boxOf(t, e, fromPlain.GetDigest()), "/app/static"); !strings.Contains(got, "plain") {
		t.Errorf("%q", got)
	}
	before, _ := filepath.Glob(filepath.Join(e.Data, "*", "*"))
	_, err = makeImage(t.Context(), e, fromArchive(), strings.NewReader(strings.Repeat("no archive ", 1000)))
	wantCode(t, err, codes.InvalidArgument)
	_, err = makeImage(t.Context(), e, fromArchive(), bytes.NewReader(tarOf(t, text("../../../../tmp/atoll-escaped", "x"))))
	wantCode(t, err, codes.InvalidArgument)
	if _, err := os.Stat("/tmp/atoll-escaped"); err == nil {
		t.Error("a layer wrote outside")
	}
	if after, _ := filepath.Glob(filepath.Join(e.Data, "*", "*")); !slices.Equal(before, after) {
		t.Errorf("%v (expected: %v)", after, before)
	}
}

func TestImageOfADockerDaemonComesOverItsSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	e := enginetest.StartWith(t, "", "--docker-socket", socket)
	daemonSource := func(reference string) *enginev1.MakeImageBegin {
		return &enginev1.MakeImageBegin{Name: "d@1", Source: &enginev1.MakeImageBegin_DockerDaemon{DockerDaemon: &enginev1.DockerDaemonSource{Reference: reference}}}
	}
	_, err := makeImage(t.Context(), e, daemonSource("local/static:v1"), nil)
	wantCode(t, err, codes.Unavailable)
	tag, err := name.NewTag("local/static:v1")
	if err != nil {
		t.Fatal(err)
	}
	i := ociImage(t)
	id, err := i.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/images/local/static:v1/json":
			fmt.Fprintf(w, `{"Id": %q}`, id)
		case "/images/local/static:v1/get":
			_ = tarball.Write(tag, i, w)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message": "no such image"}`)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	made := mustMake(t, e, daemonSource("local/static:v1"), nil)
	if made.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_DOCKER_DAEMON || made.GetSource() != "local/static:v1@"+id.String() {
		t.Errorf("%v", made)
	}
	_, err = makeImage(t.Context(), e, daemonSource("other"), nil)
	wantCode(t, err, codes.NotFound)
}

func TestDockerfileIsBuiltInASandboxOnAnImageOfARegistry(t *testing.T) {
	e := start(t)
	reference := serveRegistry(t) + "/team/base:v1"
	push(t, reference, ociImage(t))
	source := func(dockerfile string) *enginev1.MakeImageBegin {
		return &enginev1.MakeImageBegin{Name: "built@1", Source: &enginev1.MakeImageBegin_Dockerfile{Dockerfile: &enginev1.DockerfileSource{Dockerfile: dockerfile}}}
	}
	context := tarOf(t, text("motd", "built"))
	m, err := makeImage(t.Context(), e, source("FROM "+reference+"\nCOPY motd /etc/motd\nENV FROM_IMAGE=built\nWORKDIR /srv\nRUN [\"/app/static\"]\n"), bytes.NewReader(context))
	if err != nil {
		t.Fatal(err)
	}
	if m.image.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_DOCKERFILE || !strings.Contains(m.log, "0 /srv / built built false") {
		t.Errorf("%v, log %q (expected: what the step printed)", m.image, m.log)
	}
	if got := runIn(t, e, boxOf(t, e, m.image.GetDigest()), "static"); got != "1000 /srv /home/user built built false\n" {
		t.Errorf("%q", got)
	}
	m, err = makeImage(t.Context(), e, source("FROM "+reference+"\nRUN [\"/app/none\"]\n"), nil)
	wantCode(t, err, codes.FailedPrecondition)
	if step := m.stream.Trailer().Get("atoll-build-step"); len(step) != 1 {
		t.Errorf("trailer %v", m.stream.Trailer())
	}
	_, err = makeImage(t.Context(), e, source("NONSENSE x\n"), nil)
	wantCode(t, err, codes.InvalidArgument)
	_, err = makeImage(t.Context(), e, source("FROM "+strings.Replace(reference, "base", "none", 1)+"\n"), nil)
	wantCode(t, err, codes.NotFound)
	// The base is there for builds, and in no list.
	list, err := e.ListImages(t.Context(), &enginev1.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list.GetImages() {
		if i.GetOrigin() == enginev1.ImageOrigin_IMAGE_ORIGIN_REGISTRY {
			t.Errorf("%v is listed", i)
		}
	}
}

// fakeRecipes is a folder whose builder does what a test says.
func fakeRecipes(t testing.TB, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "recipes", "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{"recipes/mine/recipe.json": "{}", "build.sh": "#!/bin/bash\nset -eu\n" + script} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func fromRecipe(recipe string) *enginev1.MakeImageBegin {
	return &enginev1.MakeImageBegin{Name: recipe, Source: &enginev1.MakeImageBegin_Recipe{Recipe: &enginev1.RecipeSource{Recipe: recipe}}}
}

func TestRecipeIsBuiltByItsScriptWithTheLogAsItIsWritten(t *testing.T) {
	files := enginetest.Files(t)
	have := files.Image("python")
	recipes := fakeRecipes(t, "echo building $1 in $ATOLL_CACHE >&2; echo "+have)
	e := enginetest.StartWith(t, "", "--recipes", recipes)
	info, err := e.GetInfo(t.Context(), &enginev1.GetInfoRequest{})
	if err != nil || !slices.Equal(info.GetRecipes(), []string{"mine"}) {
		t.Errorf("%v, %v", info.GetRecipes(), err)
	}
	m, err := makeImage(t.Context(), e, fromRecipe("mine"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.image.GetName() != "python" || m.log != "building mine in "+filepath.Dir(files.Images)+"\n" || m.image.GetOrigin() != enginev1.ImageOrigin_IMAGE_ORIGIN_RECIPE {
		t.Errorf("%v %q", m.image, m.log)
	}
	_, err = e.DeleteImage(t.Context(), &enginev1.ImageRequest{Digest: m.image.GetDigest()})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = makeImage(t.Context(), e, fromRecipe("other"), nil)
	wantCode(t, err, codes.NotFound)
	_, err = makeImage(t.Context(), e, fromRecipe("../mine"), nil)
	wantCode(t, err, codes.InvalidArgument)
}

func TestRecipeThatFailsSaysWhyAndOneThatIsCancelledIsGone(t *testing.T) {
	recipes := fakeRecipes(t, `
if [[ -e $0.fail ]]; then echo "the mirror is away" >&2; exit 3; fi
sleep 1000 &
echo "child $!" >&2
wait
`)
	e := enginetest.StartWith(t, "", "--recipes", recipes)
	if err := os.WriteFile(filepath.Join(recipes, "build.sh.fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := makeImage(t.Context(), e, fromRecipe("mine"), nil)
	wantCode(t, err, codes.FailedPrecondition)
	if !strings.Contains(status.Convert(err).Message(), "the mirror is away") || !slices.Equal(m.stream.Trailer().Get("atoll-build-step"), []string{"1"}) {
		t.Errorf("%v, trailer %v", err, m.stream.Trailer())
	}
	if err := os.Remove(filepath.Join(recipes, "build.sh.fail")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m, err = begin(ctx, e, fromRecipe("mine"), nil)
	if err != nil {
		t.Fatal(err)
	}
	child := 0
	for child == 0 {
		event, err := m.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Sscanf(string(event.GetLog().GetData()), "child %d", &child)
	}
	cancel()
	enginetest.Await(t, 60*time.Second, func() (bool, string) {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/cmdline", child))
		return err != nil, fmt.Sprintf("process %d of the recipe is still there", child)
	})
}

func TestPruneRemovesWhatNothingNeedsAndNobodyNames(t *testing.T) {
	e := start(t)
	var digests []string
	for n := range 3 {
		digests = append(digests, mustMake(t, e, fromArchive(), bytes.NewReader(tarOf(t, executable("static", static(t)), text("n", fmt.Sprint(n))))).GetDigest())
	}
	boxOf(t, e, digests[0])
	if reply, err := e.PruneImages(t.Context(), &enginev1.PruneImagesRequest{BuiltBeforeUnixMs: time.Now().Add(-time.Hour).UnixMilli()}); err != nil || len(reply.GetRemovedDigests()) != 0 {
		t.Errorf("%v, %v (expected: none is that old)", reply, err)
	}
	reply, err := e.PruneImages(t.Context(), &enginev1.PruneImagesRequest{KeepDigests: []string{digests[1]}, BuiltBeforeUnixMs: time.Now().Add(time.Hour).UnixMilli()})
	if err != nil || !slices.Equal(reply.GetRemovedDigests(), digests[2:]) || reply.GetFreedBytes() == 0 {
		t.Errorf("%v, %v (expected: the one that is neither used nor named)", reply, err)
	}
	list, err := e.ListImages(t.Context(), &enginev1.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, digest := range digests[:2] {
		if !slices.ContainsFunc(list.GetImages(), func(i *enginev1.Image) bool { return i.GetDigest() == digest }) {
			t.Errorf("%s is gone", digest)
		}
	}
}

func TestEngineKilledWhileItMakesAnImageLeavesNothing(t *testing.T) {
	e := start(t)
	for _, step := range []string{"image.written", "image.renamed"} {
		e.Kill()
		e.FailPoints = step + "=kill"
		e.Launch()
		archive := tarOf(t, executable("static", static(t)), text("step", step))
		if _, err := makeImage(t.Context(), e, fromArchive(), bytes.NewReader(archive)); status.Code(err) != codes.Unavailable {
			t.Fatalf("%s: %v (expected: the engine dies)", step, err)
		}
		e.Kill()
		e.FailPoints = ""
		e.Launch()
		list, err := e.ListImages(t.Context(), &enginev1.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list.GetImages() {
			if i.GetName() == "test@1" {
				t.Errorf("%s: half an image is listed: %v", step, i)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(e.Data, "images", "[^.]*")); len(left) != 0 {
			t.Errorf("%s: left: %v", step, left)
		}
		if left, _ := filepath.Glob(filepath.Join(e.Data, "images", ".work*")); len(left) != 0 {
			t.Errorf("%s: left: %v", step, left)
		}
		made := mustMake(t, e, fromArchive(), bytes.NewReader(archive))
		if _, err := e.DeleteImage(t.Context(), &enginev1.ImageRequest{Digest: made.GetDigest()}); err != nil {
			t.Error(err)
		}
	}
}

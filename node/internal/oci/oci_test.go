package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func TestMain(m *testing.M) {
	firstWait = time.Millisecond
	os.Exit(m.Run())
}

// server is a registry whose requests a test can tamper with.
type server struct {
	*httptest.Server
	host string
	// intercept answers a request itself, or returns false.
	intercept atomic.Pointer[func(http.ResponseWriter, *http.Request, http.Handler) bool]
	requests  atomic.Int64
}

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{}
	inner := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if f := s.intercept.Load(); f != nil && (*f)(w, r, inner) {
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(s.URL, "http://")
	return s
}

func (s *server) tamper(f func(w http.ResponseWriter, r *http.Request, next http.Handler) bool) {
	s.intercept.Store(&f)
}

func (s *server) push(t testing.TB, reference string, what remote.Taggable) string {
	t.Helper()
	ref, err := name.ParseReference(s.host + "/" + reference)
	if err != nil {
		t.Fatal(err)
	}
	switch x := what.(type) {
	case v1.Image:
		err = remote.Write(ref, x)
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

func tarOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

// testLayer is compressed content with what it is without compression.
type testLayer struct {
	v1.Layer
	diffID v1.Hash
}

func (l testLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

func layerOf(plain, sent []byte, mediaType types.MediaType) v1.Layer {
	sum := sha256.Sum256(plain)
	return testLayer{static.NewLayer(sent, mediaType), v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}}
}

func imageOf(t testing.TB, architecture string, layers ...v1.Layer) v1.Image {
	t.Helper()
	i, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", architecture
	c.Config = v1.Config{
		Env: []string{"A=1", "PATH=/bin"}, User: "1234", WorkingDir: "/srv", Entrypoint: []string{"/entry"}, Cmd: []string{"go"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}}, Labels: map[string]string{"l": "v"}, StopSignal: "SIGINT",
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "true"}}, Volumes: map[string]struct{}{"/data": {}},
	}
	if i, err = mutate.ConfigFile(i, c); err != nil {
		t.Fatal(err)
	}
	return i
}

func simple(t testing.TB) v1.Image {
	t.Helper()
	one, two := tarOf(t, map[string]string{"one": strings.Repeat("1", 100_000)}), tarOf(t, map[string]string{"two": "2"})
	return imageOf(t, runtime.GOARCH, layerOf(one, gzipped(t, one), types.DockerLayer), layerOf(two, zstded(t, two), types.MediaType("application/vnd.oci.image.layer.v1.tar+zstd")))
}

func cacheIn(t testing.TB, quota uint64) *Cache {
	t.Helper()
	c, err := OpenCache(filepath.Join(t.TempDir(), "layers"), quota)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pull(t testing.TB, c *Cache, r PullRequest) *Pulled {
	t.Helper()
	p, err := c.Pull(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func sumsOf(t testing.TB, p *Pulled) []string {
	t.Helper()
	layers, err := p.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var sums []string
	for _, l := range layers {
		h := sha256.New()
		if _, err := io.Copy(h, l.Reader); err != nil {
			t.Fatal(err)
		}
		sums = append(sums, hex.EncodeToString(h.Sum(nil)))
	}
	return sums
}

func checkLayers(t testing.TB, p *Pulled, want v1.Image) {
	t.Helper()
	layers, err := want.Layers()
	if err != nil {
		t.Fatal(err)
	}
	sums := sumsOf(t, p)
	if len(sums) != len(layers) {
		t.Fatalf("%d layers (expected: %d)", len(sums), len(layers))
	}
	for n, l := range layers {
		if d, _ := l.Digest(); d.Hex != sums[n] {
			t.Errorf("layer %d: %s (expected: %s)", n, sums[n], d.Hex)
		}
	}
}

func TestPullBringsLayersAndConfigurationAndPinsTheDigest(t *testing.T) {
	s := serve(t)
	i := simple(t)
	ref := s.push(t, "team/app:v1", i)
	c := cacheIn(t, 1<<30)
	var told atomic.Int64
	p := pull(t, c, PullRequest{Reference: ref, Progress: func(what string, done, total uint64) {
		if !strings.HasPrefix(what, "layer sha256:") || done > total {
			t.Errorf("%q %d %d", what, done, total)
		}
		told.Add(1)
	}})
	checkLayers(t, p, i)
	if told.Load() == 0 {
		t.Error("no progress")
	}
	digest, _ := i.Digest()
	if want := s.host + "/team/app@" + digest.String(); p.Reference != want {
		t.Errorf("%s (expected: %s)", p.Reference, want)
	}
	k := p.Config
	if fmt.Sprintln(k.Env, k.User, k.Workdir, k.Entrypoint, k.Cmd, k.ExposedPorts, k.Labels, k.StopSignal, k.Volumes) !=
		"[A=1 PATH=/bin] 1234 /srv [/entry] [go] [80/tcp] map[l:v] SIGINT [/data]\n" || !strings.Contains(string(k.Healthcheck), `"CMD"`) {
		t.Errorf("%+v", k)
	}
	// By digest, and a second time: all but the manifest is there.
	before := s.requests.Load()
	checkLayers(t, pull(t, c, PullRequest{Reference: s.host + "/team/app@" + digest.String()}), i)
	if got := s.requests.Load() - before; got > 3 {
		t.Errorf("%d requests (expected: one for the manifest, and those to get in)", got)
	}
}

func TestIndexGivesTheImageOfThisArchitecture(t *testing.T) {
	s := serve(t)
	other := tarOf(t, map[string]string{"other": "x"})
	wanted := simple(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, "s390x", layerOf(other, gzipped(t, other), types.DockerLayer)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: wanted, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})
	p := pull(t, cacheIn(t, 1<<30), PullRequest{Reference: s.push(t, "multi", index)})
	checkLayers(t, p, wanted)
	alone := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, "s390x", layerOf(other, gzipped(t, other), types.DockerLayer)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: imageOf(t, "mips", layerOf(other, gzipped(t, other), types.DockerLayer)), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "mips"}}})
	_, err := cacheIn(t, 1<<30).Pull(t.Context(), PullRequest{Reference: s.push(t, "foreign", alone)})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("%v (expected: not found, with what there is)", err)
	}
}

func TestUnknownReferenceAndRefusedCredentialsAreToldApart(t *testing.T) {
	s := serve(t)
	ref := s.push(t, "private", simple(t))
	c := cacheIn(t, 1<<30)
	if _, err := c.Pull(t.Context(), PullRequest{Reference: s.host + "/none:v9"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v (expected: not found)", err)
	}
	s.tamper(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		user, password, _ := r.BasicAuth()
		if user == "me" && password == "secret" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	for _, auths := range [][]Auth{nil, {{Registry: s.host, Username: "me", Password: "wrong"}}, {{Registry: "other.example", Username: "me", Password: "secret"}}} {
		if _, err := c.Pull(t.Context(), PullRequest{Reference: ref, Auths: auths}); !errors.Is(err, ErrDenied) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%v (expected: denied)", err)
		}
	}
	pull(t, c, PullRequest{Reference: ref, Auths: []Auth{{Registry: s.host, Username: "me", Password: "secret"}}})
	if _, err := c.Pull(t.Context(), PullRequest{Reference: "Not A Reference"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v (expected: invalid)", err)
	}
	s.Close()
	if _, err := c.Pull(t.Context(), PullRequest{Reference: ref}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v (expected: unavailable)", err)
	}
}

func TestTokenIsFetchedFromTheRealmThatTheRegistryNames(t *testing.T) {
	s := serve(t)
	ref := s.push(t, "team/private", simple(t))
	s.tamper(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.URL.Path == "/token" {
			user, password, _ := r.BasicAuth()
			if user != "me" || password != "secret" || !strings.Contains(r.URL.Query().Get("scope"), "team/private:pull") {
				w.WriteHeader(http.StatusForbidden)
				return true
			}
			fmt.Fprint(w, `{"token": "the-token"}`)
			return true
		}
		if r.Header.Get("Authorization") == "Bearer the-token" {
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="s"`, s.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	pull(t, cacheIn(t, 1<<30), PullRequest{Reference: ref, Auths: []Auth{{Registry: s.host, Username: "me", Password: "secret"}}})
	pull(t, cacheIn(t, 1<<30), PullRequest{Reference: ref, Auths: []Auth{{Registry: s.host, Token: "the-token"}}})
	if _, err := cacheIn(t, 1<<30).Pull(t.Context(), PullRequest{Reference: ref}); !errors.Is(err, ErrDenied) {
		t.Errorf("%v (expected: denied)", err)
	}
}

func TestBusyRegistryIsAskedAgain(t *testing.T) {
	s := serve(t)
	ref := s.push(t, "busy", simple(t))
	var refused atomic.Int64
	s.tamper(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		// Three in a row, then one that goes through.
		n := refused.Add(1)
		if n%4 == 0 {
			return false
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway}[n%3])
		return true
	})
	pull(t, cacheIn(t, 1<<30), PullRequest{Reference: ref})
	s.tamper(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if _, err := cacheIn(t, 1<<30).Pull(t.Context(), PullRequest{Reference: ref}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v (expected: unavailable)", err)
	}
}

// breaking sends a blob's bytes from the asked offset on, and breaks the connection after some.
func breaking(t testing.TB, s *server, content []byte, sum string, after int, ranges bool, asked *[]string) {
	t.Helper()
	s.tamper(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/blobs/sha256:"+sum) {
			return false
		}
		*asked = append(*asked, r.Header.Get("Range"))
		from := 0
		if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && ranges {
			from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
			w.Header().Set("Content-Length", strconv.Itoa(len(content)-from))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		}
		end := len(content)
		if ranges || len(*asked) < 3 {
			end = min(end, from+after)
		}
		_, _ = w.Write(content[from:end])
		if end < len(content) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return true
	})
}

func TestBrokenDownloadGoesOnWhereItWas(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		s := serve(t)
		plain := tarOf(t, map[string]string{"file": strings.Repeat("0123456789", 20_000)})
		i := imageOf(t, runtime.GOARCH, layerOf(plain, plain, types.MediaType("application/vnd.oci.image.layer.v1.tar")))
		ref := s.push(t, "broken", i)
		sum := sha256.Sum256(plain)
		var asked []string
		breaking(t, s, plain, hex.EncodeToString(sum[:]), 30_000, ranges, &asked)
		checkLayers(t, pull(t, cacheIn(t, 1<<30), PullRequest{Reference: ref}), i)
		if ranges && (len(asked) < 3 || asked[0] != "" || asked[1] == "" || asked[1] == asked[2]) {
			t.Errorf("asked for %q (expected: ever later ranges)", asked)
		}
	}
}

func TestDownloadGoesOnAfterTheEngineWasKilled(t *testing.T) {
	s := serve(t)
	plain := tarOf(t, map[string]string{"file": strings.Repeat("0123456789", 20_000)})
	i := imageOf(t, runtime.GOARCH, layerOf(plain, plain, types.MediaType("application/vnd.oci.image.layer.v1.tar")))
	ref := s.push(t, "killed", i)
	sum := sha256.Sum256(plain)
	c := cacheIn(t, 1<<30)
	if err := os.WriteFile(c.path(hex.EncodeToString(sum[:]))+partSuffix, plain[:50_000], 0o600); err != nil {
		t.Fatal(err)
	}
	var asked []string
	breaking(t, s, plain, hex.EncodeToString(sum[:]), len(plain), true, &asked)
	checkLayers(t, pull(t, c, PullRequest{Reference: ref}), i)
	if len(asked) != 1 || asked[0] != "bytes=50000-" {
		t.Errorf("%q (expected: the rest)", asked)
	}
}

func TestBlobThatIsNotWhatTheManifestSaysIsRefused(t *testing.T) {
	plain := tarOf(t, map[string]string{"file": strings.Repeat("0123456789", 2_000)})
	sum := sha256.Sum256(plain)
	hexSum := hex.EncodeToString(sum[:])
	for what, change := range map[string]func([]byte) []byte{
		"another content": func(b []byte) []byte { return bytes.Replace(b, []byte("5"), []byte("6"), 1) },
		"more":            func(b []byte) []byte { return append(bytes.Clone(b), 'x') },
	} {
		s := serve(t)
		ref := s.push(t, "bad", imageOf(t, runtime.GOARCH, layerOf(plain, plain, types.MediaType("application/vnd.oci.image.layer.v1.tar"))))
		s.tamper(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if !strings.HasSuffix(r.URL.Path, hexSum) {
				return false
			}
			_, _ = w.Write(change(plain))
			return true
		})
		c := cacheIn(t, 1<<30)
		if _, err := c.Pull(t.Context(), PullRequest{Reference: ref}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v (expected: invalid)", what, err)
		}
		if _, err := os.Stat(c.path(hexSum)); err == nil {
			t.Errorf("%s: it is in the cache", what)
		}
	}
}

func TestManifestThatClaimsTooMuchIsRefusedBeforeAnythingIsFetched(t *testing.T) {
	s := serve(t)
	digest := "sha256:" + strings.Repeat("ab", 32)
	layer := func(size string) string {
		return `{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "` + digest + `", "size": ` + size + `}`
	}
	config := `"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "` + digest + `", "size": 10}`
	for what, text := range map[string]string{
		"a negative size":      `{"schemaVersion": 2, ` + config + `, "layers": [` + layer("-1") + `]}`,
		"an immense size":      `{"schemaVersion": 2, ` + config + `, "layers": [` + layer("9000000000000000000") + `,` + layer("9000000000000000000") + `]}`,
		"no layers":            `{"schemaVersion": 2, ` + config + `, "layers": []}`,
		"a digest with a path": `{"schemaVersion": 2, ` + config + `, "layers": [` + strings.ReplaceAll(layer("1"), digest, "sha256:../../../etc/passwd") + `]}`,
		"100,000 layers":       `{"schemaVersion": 2, ` + config + `, "layers": [` + strings.Repeat(`{"size":1,"digest":"`+digest+`"},`, 30_000) + layer("1") + `]}`,
		"another thing":        `{"schemaVersion": 2, ` + config + `, "layers": [` + strings.ReplaceAll(layer("1"), "image.layer.v1.tar", "helm.chart") + `]}`,
		"schema 1":             `{"schemaVersion": 1, "fsLayers": []}`,
		"no JSON":              `<html>`,
	} {
		s.tamper(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				if strings.Contains(r.URL.Path, "/blobs/") {
					t.Errorf("%s: a blob is asked for", what)
				}
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			fmt.Fprint(w, text)
			return true
		})
		if _, err := cacheIn(t, 1<<30).Pull(t.Context(), PullRequest{Reference: s.host + "/hostile"}); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v (expected: invalid or too large)", what, err)
		}
	}
}

func TestPlainHTTPOnlyWhereItIsNamed(t *testing.T) {
	tr := newTransport([]string{"named.example:5000"})
	for _, url := range []string{"http://10.1.2.3:5000/v2/", "http://registry.example/v2/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := tr.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "speaks no TLS") {
			t.Errorf("%s: %v, %v (expected: refused)", url, response, err)
		}
	}
	for host, want := range map[string]bool{"localhost:5000": true, "127.0.0.1:1": true, "[::1]:5000": true, "named.example:5000": true, "named.example": false, "10.0.0.1:80": false} {
		if got := isPlain(host, []string{"named.example:5000"}); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://169.254.169.254/latest/meta-data/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(r); err == nil || !strings.Contains(err.Error(), "out of bounds") {
		t.Errorf("%v (expected: no connection to a link-local address)", err)
	}
}

func TestCacheKeepsToItsQuotaAndKeepsWhatIsUsed(t *testing.T) {
	c := cacheIn(t, 25)
	put := func(content string) blob {
		sum := sha256.Sum256([]byte(content))
		b, err := c.get(t.Context(), hex.EncodeToString(sum[:]), int64(len(content)), func(_ context.Context, part *os.File, _ int64) error {
			_, err := part.WriteString(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old, used, young := put("0123456789"), put("abcdefghij"), put("ABCDEFGHIJ")
	past := time.Now().Add(-time.Hour)
	for _, b := range []blob{old, used} {
		if err := os.Chtimes(c.path(b.sum), past, past); err != nil {
			t.Fatal(err)
		}
	}
	old.release()
	young.release()
	if freed, err := c.Collect(); err != nil || freed != 10 {
		t.Fatalf("%d, %v (expected: the oldest that nobody uses)", freed, err)
	}
	if _, err := os.Stat(c.path(old.sum)); err == nil {
		t.Error("the oldest is still there")
	}
	if freed, err := c.Clear(); err != nil || freed != 10 {
		t.Errorf("%d, %v", freed, err)
	}
	if _, err := os.Stat(c.path(used.sum)); err != nil {
		t.Error("what is used is gone")
	}
}

func TestLayersThatWereDamagedHereAreFetchedAnew(t *testing.T) {
	s := serve(t)
	i := simple(t)
	ref := s.push(t, "damaged", i)
	c := cacheIn(t, 1<<30)
	p := pull(t, c, PullRequest{Reference: ref})
	for _, b := range p.blobs {
		content, err := os.ReadFile(c.path(b.sum))
		if err == nil {
			content[len(content)-1] ^= 1
			err = os.WriteFile(c.path(b.sum), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Discard()
	p.Close()
	checkLayers(t, pull(t, c, PullRequest{Reference: ref}), i)
}

func TestTwoPullsOfOneImageFetchEachLayerOnce(t *testing.T) {
	s := serve(t)
	i := simple(t)
	ref := s.push(t, "shared", i)
	var blobs atomic.Int64
	s.tamper(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			blobs.Add(1)
		}
		return false
	})
	c := cacheIn(t, 1<<30)
	failures := make(chan error, 8)
	for range 8 {
		go func() {
			p, err := c.Pull(t.Context(), PullRequest{Reference: ref})
			if err == nil {
				p.Close()
			}
			failures <- err
		}()
	}
	for range 8 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	// Two layers and a configuration.
	if got := blobs.Load(); got != 3 {
		t.Errorf("%d blobs were fetched (expected: 3)", got)
	}
}

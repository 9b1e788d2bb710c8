package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"atoll/node/internal/image"
)

// Auth is what one registry is given. Either a name and a password, or a token.
type Auth struct {
	// Registry is "host[:port]"; "docker.io" is Docker Hub.
	Registry, Username, Password, Token string
}

// PullRequest says what to pull.
type PullRequest struct {
	// Reference as in FROM: "python:3.12-slim", "registry.example:5000/team/image@sha256:…".
	Reference string
	Auths     []Auth
	// PlainHTTP are registries, as "host[:port]", that are spoken to without TLS. Those on loopback are anyway.
	PlainHTTP []string
	Progress  Progress
}

// Pulled is an image of a registry or an archive, whose layers stay in the cache until Close.
type Pulled struct {
	// Reference has the digest of the manifest for this machine: "docker.io/library/python@sha256:…". Of an archive: what it says it is.
	Reference string
	Config    image.Config
	diffIDs   []string
	blobs     []blob
	// readers are layers that are no blobs.
	readers []io.Reader
	open    []*os.File
	discard bool
}

// Layers opens the layers, to be merged in this order. They are closed by Close.
func (p *Pulled) Layers() ([]image.Layer, error) {
	layers := p.layersOf()
	for n, b := range p.blobs {
		f, err := b.open()
		if err != nil {
			return nil, fmt.Errorf("layer cache: %w", err)
		}
		p.open = append(p.open, f)
		l := image.Layer{Reader: f}
		if n < len(p.diffIDs) {
			l.DiffID = p.diffIDs[n]
		}
		layers = append(layers, l)
	}
	return layers, nil
}

// Discard has Close remove the layers: what they hold was not what it should be, and may have been damaged here.
func (p *Pulled) Discard() { p.discard = true }

// Close gives the layers back to the cache, which may remove them then.
func (p *Pulled) Close() {
	for _, f := range p.open {
		f.Close()
	}
	for _, b := range p.blobs {
		b.release()
		if p.discard {
			b.cache.remove(b.sum)
		}
	}
	p.open, p.blobs, p.readers = nil, nil, nil
}

// parallel is how many layers of an image come at the same time.
const parallel = 3

// Pull fetches an image for this machine's architecture.
func (c *Cache) Pull(ctx context.Context, r PullRequest) (*Pulled, error) {
	ref, err := parseReference(r.Reference, r.PlainHTTP)
	if err != nil {
		return nil, err
	}
	registry, err := connect(ctx, ref.Context(), r)
	if err != nil {
		return nil, err
	}
	manifest, digest, err := registry.manifest(ctx, ref, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Reference, err)
	}
	p := &Pulled{Reference: ref.Context().Name() + "@" + digest}
	if err := c.fill(ctx, p, manifest, registry, r.Progress); err != nil {
		p.Close()
		return nil, fmt.Errorf("%s: %w", r.Reference, err)
	}
	return p, nil
}

// ParseReference checks a reference, and returns it in full: "python" is "index.docker.io/library/python:latest".
func ParseReference(reference string) (string, error) {
	ref, err := parseReference(reference, nil)
	if err != nil {
		return "", err
	}
	return ref.Name(), nil
}

func parseReference(reference string, plainHTTP []string) (name.Reference, error) {
	parse := func(options ...name.Option) (name.Reference, error) {
		ref, err := name.ParseReference(reference, options...)
		if err != nil {
			return nil, fmt.Errorf("%w: reference %.200q: %w (expected: as in FROM, for example python:3.12-slim)", ErrInvalid, reference, err)
		}
		return ref, nil
	}
	ref, err := parse()
	if err != nil {
		return nil, err
	}
	if isPlain(ref.Context().RegistryStr(), plainHTTP) {
		return parse(name.Insecure)
	}
	return ref, nil
}

// manifest is what an image's or an index's manifest says.
type manifest struct {
	MediaType string       `json:"mediaType"`
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
	// SchemaVersion 1 is what Docker wrote before 2016.
	SchemaVersion int `json:"schemaVersion"`
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	Platform  *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
		Variant      string `json:"variant"`
	} `json:"platform"`
	Annotations map[string]string `json:"annotations"`
}

func parseManifest(text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: its manifest is no JSON: %w", ErrInvalid, err)
	}
	if m.SchemaVersion == 1 {
		return m, fmt.Errorf("%w: its manifest is of schema 1 (remedy: push it again with a Docker of this decade)", ErrInvalid)
	}
	return m, nil
}

// choose returns the manifest of an index that is for this machine.
func (m manifest) choose() (descriptor, error) {
	var others []string
	var found *descriptor
	for n, d := range m.Manifests {
		if d.Platform == nil {
			if len(m.Manifests) == 1 {
				return d, nil
			}
			continue
		}
		if d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			// Of several, the plainest: "v8" of arm64 is what it is anyway, and "v3" of amd64 is not for all machines.
			if found == nil || found.Platform.Variant != "" && d.Platform.Variant == "" {
				found = &m.Manifests[n]
			}
			continue
		}
		if d.Platform.OS != "unknown" {
			others = append(others, d.Platform.OS+"/"+d.Platform.Architecture)
		}
	}
	if found == nil {
		return descriptor{}, fmt.Errorf("%w for linux/%s (there is one for: %.300s)", ErrNotFound, runtime.GOARCH, strings.Join(others, ", "))
	}
	return *found, nil
}

// blobSource is where an image's blobs come from.
type blobSource interface {
	// fetch appends a blob's bytes from an offset on.
	fetch(ctx context.Context, d descriptor, part *os.File, from int64, tell func(done int64)) error
}

// fill brings configuration and layers.
func (c *Cache) fill(ctx context.Context, p *Pulled, m manifest, from blobSource, progress Progress) error {
	if m.Config == nil || len(m.Layers) == 0 {
		return fmt.Errorf("%w: its manifest names no configuration or no layers", ErrInvalid)
	}
	if len(m.Layers) > maxLayers {
		return fmt.Errorf("%w: %d layers (expected: at most %d)", ErrTooLarge, len(m.Layers), maxLayers)
	}
	var total int64
	for _, d := range append([]descriptor{*m.Config}, m.Layers...) {
		if _, err := sha256Of(d.Digest); err != nil {
			return err
		}
		if d.Size < 0 || d.Size > maxCompressed-total {
			return fmt.Errorf("%w: its layers are more than %d MiB", ErrTooLarge, maxCompressed>>20)
		}
		total += d.Size
	}
	if m.Config.Size > maxConfig {
		return fmt.Errorf("%w: a configuration of %d bytes (expected: at most %d)", ErrTooLarge, m.Config.Size, maxConfig)
	}
	for _, d := range m.Layers {
		if !strings.Contains(d.MediaType, "layer") && !strings.Contains(d.MediaType, "rootfs.diff") && d.MediaType != "" {
			return fmt.Errorf("%w: it holds %.100s (expected: layers of a file system)", ErrInvalid, d.MediaType)
		}
		if strings.Contains(d.MediaType, "encrypted") {
			return fmt.Errorf("%w: its layers are encrypted", ErrInvalid)
		}
	}
	text, err := c.small(ctx, *m.Config, from)
	if err != nil {
		return err
	}
	if p.Config, p.diffIDs, err = parseConfig(text, len(m.Layers)); err != nil {
		return err
	}
	return c.layers(ctx, p, m.Layers, from, progress)
}

// small returns a blob's content.
func (c *Cache) small(ctx context.Context, d descriptor, from blobSource) ([]byte, error) {
	b, err := c.blob(ctx, d, from, nil)
	if err != nil {
		return nil, err
	}
	defer b.release()
	return os.ReadFile(c.path(b.sum))
}

func (c *Cache) blob(ctx context.Context, d descriptor, from blobSource, tell func(int64)) (blob, error) {
	sum, err := sha256Of(d.Digest)
	if err != nil {
		return blob{}, err
	}
	return c.get(ctx, sum, d.Size, func(ctx context.Context, part *os.File, at int64) error {
		return from.fetch(ctx, d, part, at, tell)
	})
}

func (c *Cache) layers(ctx context.Context, p *Pulled, layers []descriptor, from blobSource, progress Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	blobs := make([]blob, len(layers))
	slots := make(chan struct{}, parallel)
	var group sync.WaitGroup
	for n, d := range layers {
		group.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return
			}
			what := "layer " + d.Digest[:min(len(d.Digest), len("sha256:")+12)]
			b, err := c.blob(ctx, d, from, func(done int64) { progress.tell(what, uint64(done), uint64(d.Size)) })
			if err != nil {
				cancel(fmt.Errorf("%s: %w", what, err))
				return
			}
			blobs[n] = b
			progress.tell(what, uint64(d.Size), uint64(d.Size))
		})
	}
	group.Wait()
	for _, b := range blobs {
		if b.cache != nil {
			p.blobs = append(p.blobs, b)
		}
	}
	return context.Cause(ctx)
}

// registry is one repository of a registry that has let us in.
type registry struct {
	repository name.Repository
	transport  http.RoundTripper
	client     *http.Client
}

func connect(ctx context.Context, repository name.Repository, r PullRequest) (*registry, error) {
	base := newTransport(r.PlainHTTP)
	wrapped, err := transport.NewWithContext(ctx, repository.Registry, authFor(repository.RegistryStr(), r.Auths), base, []string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", repository.RegistryStr(), fault(err))
	}
	return &registry{repository: repository, transport: wrapped, client: &http.Client{Transport: wrapped, CheckRedirect: checkRedirect}}, nil
}

func authFor(host string, auths []Auth) authn.Authenticator {
	for _, a := range auths {
		if canonicalHost(a.Registry) == canonicalHost(host) {
			return authn.FromConfig(authn.AuthConfig{Username: a.Username, Password: a.Password, RegistryToken: a.Token})
		}
	}
	return authn.Anonymous
}

// canonicalHost is one name for Docker Hub, which has many.
func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://"), "/")
	switch host {
	case "docker.io", "registry-1.docker.io", "index.docker.io", "index.docker.io/v1", "":
		return name.DefaultRegistry
	}
	return host
}

// manifest returns an image's manifest, and its digest.
func (r *registry) manifest(ctx context.Context, ref name.Reference, depth int) (manifest, string, error) {
	got, err := remote.Get(ref, remote.WithContext(ctx), remote.WithTransport(r.transport), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err != nil {
		return manifest{}, "", fault(err)
	}
	m, err := parseManifest(got.Manifest)
	if err != nil {
		return m, "", err
	}
	sum := sha256.Sum256(got.Manifest)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if len(m.Manifests) == 0 {
		return m, digest, nil
	}
	if depth > 2 {
		return m, "", fmt.Errorf("%w: indexes in indexes", ErrInvalid)
	}
	d, err := m.choose()
	if err != nil {
		return m, "", err
	}
	if _, err := sha256Of(d.Digest); err != nil {
		return m, "", err
	}
	return r.manifest(ctx, r.repository.Digest(d.Digest), depth+1)
}

// fetch goes on where a connection broke, as long as each attempt brings something.
func (r *registry) fetch(ctx context.Context, d descriptor, part *os.File, from int64, tell func(int64)) error {
	barren := 0
	for {
		got, err := r.fetchFrom(ctx, d, part, from, tell)
		if err == nil && got == d.Size {
			return nil
		}
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		var permanent *permanentError
		if errors.As(err, &permanent) || ctx.Err() != nil {
			return errors.Join(fault(err), ctx.Err())
		}
		if barren++; got > from {
			barren = 0
		}
		from = got
		if barren >= attempts {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if err := pause(ctx, barren, ""); err != nil {
			return err
		}
	}
}

// permanentError is one that another attempt does not help.
type permanentError struct{ error }

func (p *permanentError) Unwrap() error { return p.error }

// fetchFrom returns how much of the blob is there.
func (r *registry) fetchFrom(ctx context.Context, d descriptor, part *os.File, from int64, tell func(int64)) (int64, error) {
	url := fmt.Sprintf("%s://%s/v2/%s/blobs/%s", r.repository.Scheme(), r.repository.RegistryStr(), r.repository.RepositoryStr(), d.Digest)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return from, &permanentError{err}
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	response, err := r.client.Do(request)
	if err != nil {
		return from, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusPartialContent && strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)):
	case response.StatusCode == http.StatusOK:
		// The registry does not know ranges, so it begins anew.
		from = 0
	case response.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		if err := part.Truncate(0); err != nil {
			return 0, &permanentError{err}
		}
		return 0, fmt.Errorf("the registry has no bytes from %d on", from)
	default:
		if err := transport.CheckError(response, http.StatusOK); err != nil {
			return from, &permanentError{err}
		}
		return from, &permanentError{fmt.Errorf("unexpected status %s", response.Status)}
	}
	if err := part.Truncate(from); err != nil {
		return from, &permanentError{err}
	}
	w := &offsetWriter{part, from, tell}
	// One byte more than it may be, to see that it is more.
	_, err = io.Copy(w, io.LimitReader(response.Body, d.Size-from+1))
	if w.failed(err) {
		return w.at, &permanentError{err}
	}
	if w.at > d.Size {
		return w.at, &permanentError{fmt.Errorf("%w: the blob %s has more than the %d bytes that its manifest says", ErrInvalid, d.Digest, d.Size)}
	}
	return w.at, err
}

type offsetWriter struct {
	f    *os.File
	at   int64
	tell func(int64)
}

func (w *offsetWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	if w.tell != nil && n > 0 {
		w.tell(w.at)
	}
	return n, err
}

// failed says that an error of a copy is this side's.
func (w *offsetWriter) failed(err error) bool {
	var path *os.PathError
	return errors.As(err, &path)
}

// readAll reads a small thing, up to a limit.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return b.Bytes(), err
}

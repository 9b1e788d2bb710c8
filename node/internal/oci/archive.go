package oci

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"atoll/node/internal/image"
)

const (
	// maxArchive is how much an archive may be without compression.
	maxArchive = 32 << 30
	// maxEntries is how many entries are looked at: a root file system has many.
	maxEntries = 4_000_000
	// maxLinks is how many links of old `docker save` files are followed.
	maxLinks = 5
	// maxWindow is the largest a zstd stream may ask for.
	maxWindow = 1 << 27
)

// Import takes an archive: what `docker save` writes, an OCI layout, or a root file system; a tar, also compressed with gzip or zstd. It is
// read to its end, into the cache's folder, and is gone from there after Close.
func (c *Cache) Import(ctx context.Context, r io.Reader, progress Progress) (*Pulled, error) {
	spool, err := os.CreateTemp(c.dir, "archive-*"+partSuffix)
	if err != nil {
		return nil, fmt.Errorf("layer cache: %w", err)
	}
	// Without a name it is gone with the process, too.
	if err := os.Remove(spool.Name()); err != nil {
		return nil, errors.Join(err, spool.Close())
	}
	a := &archive{cache: c, file: spool, progress: progress}
	p, err := a.read(ctx, r)
	if err != nil {
		spool.Close()
		return nil, err
	}
	p.open = append(p.open, spool)
	return p, nil
}

// archive is a tar file with random access.
type archive struct {
	cache    *Cache
	file     *os.File
	progress Progress
	// files and links are by cleaned name.
	files map[string]extent
	links map[string]string
}

type extent struct{ offset, size int64 }

func (a *archive) read(ctx context.Context, r io.Reader) (*Pulled, error) {
	if err := a.spool(ctx, r); err != nil {
		return nil, err
	}
	if err := a.index(ctx); err != nil {
		return nil, err
	}
	var saved []savedImage
	if text, err := a.small("manifest.json", maxManifest); err == nil && json.Unmarshal(text, &saved) == nil && len(saved) > 0 && len(saved[0].Layers) > 0 {
		return a.docker(saved)
	}
	if _, ok := a.files["oci-layout"]; ok {
		if text, err := a.small("index.json", maxManifest); err == nil {
			return a.layout(ctx, text)
		}
	}
	if len(a.files) == 0 {
		return nil, fmt.Errorf("%w: an archive without files (expected: docker save, an OCI layout, or a root file system)", ErrInvalid)
	}
	return &Pulled{readers: []io.Reader{a.all()}}, nil
}

func (a *archive) all() io.Reader {
	size, _ := a.file.Seek(0, io.SeekEnd)
	return io.NewSectionReader(a.file, 0, size)
}

// spool writes the archive to the disk, without compression.
func (a *archive) spool(ctx context.Context, r io.Reader) error {
	buffered := bufio.NewReaderSize(&until{ctx, r}, 256<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var stream io.Reader = buffered
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return fmt.Errorf("%w: not gzip: %w", ErrInvalid, err)
		}
		defer z.Close()
		stream = z
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return fmt.Errorf("%w: not zstd: %w", ErrInvalid, err)
		}
		defer z.Close()
		stream = z
	}
	const piece = 64 << 20
	var total int64
	for {
		if err := a.cache.room(piece); err != nil {
			return err
		}
		n, err := io.CopyN(a.file, stream, piece)
		total += n
		a.progress.tell("archive", uint64(total), 0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var system *os.PathError
		switch {
		case errors.As(err, &system):
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("%w: it can't be read to its end: %w", ErrInvalid, err)
		case total >= maxArchive:
			return fmt.Errorf("%w: more than %d MiB without compression", ErrTooLarge, maxArchive>>20)
		}
	}
}

// until reads as long as a context lasts.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// index notes where each file lies. Only names that an image's own files can have are kept.
func (a *archive) index(ctx context.Context) error {
	if err := seekStart(a.file); err != nil {
		return err
	}
	a.files, a.links = map[string]extent{}, map[string]string{}
	entries := tar.NewReader(a.file)
	for n := 0; ; n++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: not a tar archive: %w (expected: docker save, an OCI layout, or a root file system)", ErrInvalid, err)
		}
		if n >= maxEntries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, maxEntries)
		}
		if n%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		name := path.Clean(h.Name)
		// A root file system has a million names that nobody asks for; those of an image's files are few and flat.
		if len(a.files) > 10_000 || len(name) > 300 || strings.Count(name, "/") > 3 {
			continue
		}
		switch h.Typeflag {
		case tar.TypeReg:
			// The reader has read the header and nothing after it.
			at, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.files[name] = extent{at, h.Size}
		case tar.TypeSymlink, tar.TypeLink:
			target := path.Clean(h.Linkname)
			if h.Typeflag == tar.TypeSymlink {
				target = path.Join(path.Dir(name), h.Linkname)
			}
			a.links[name] = target
		}
	}
}

func (a *archive) find(name string) (extent, error) {
	name = path.Clean(name)
	for range maxLinks {
		if e, ok := a.files[name]; ok {
			return e, nil
		}
		target, ok := a.links[name]
		if !ok {
			break
		}
		name = target
	}
	return extent{}, fmt.Errorf("%w: the archive lacks its file %.200q", ErrInvalid, name)
}

func (a *archive) small(name string, limit int64) ([]byte, error) {
	e, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if e.size > limit {
		return nil, fmt.Errorf("%w: %.200q has %d bytes (expected: at most %d)", ErrTooLarge, name, e.size, limit)
	}
	b := make([]byte, e.size)
	_, err = a.file.ReadAt(b, e.offset)
	return b, err
}

// savedImage is an element of a `docker save`'s manifest.json.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *archive) docker(saved []savedImage) (*Pulled, error) {
	if len(saved) != 1 {
		return nil, fmt.Errorf("%w: the archive holds %d images (expected: one; remedy: docker save with a single name)", ErrInvalid, len(saved))
	}
	s := saved[0]
	if len(s.Layers) > maxLayers {
		return nil, fmt.Errorf("%w: %d layers (expected: at most %d)", ErrTooLarge, len(s.Layers), maxLayers)
	}
	text, err := a.small(s.Config, maxConfig)
	if err != nil {
		return nil, err
	}
	p := &Pulled{}
	if len(s.RepoTags) > 0 {
		p.Reference = s.RepoTags[0]
	}
	if p.Config, p.diffIDs, err = parseConfig(text, len(s.Layers)); err != nil {
		return nil, err
	}
	for _, name := range s.Layers {
		e, err := a.find(name)
		if err != nil {
			return nil, err
		}
		p.readers = append(p.readers, io.NewSectionReader(a.file, e.offset, e.size))
	}
	return p, nil
}

// layout takes the image of an OCI layout.
func (a *archive) layout(ctx context.Context, index []byte) (*Pulled, error) {
	m, err := parseManifest(index)
	if err != nil {
		return nil, err
	}
	p := &Pulled{}
	for depth := 0; len(m.Manifests) > 0; depth++ {
		if depth > 3 {
			return nil, fmt.Errorf("%w: indexes in indexes", ErrInvalid)
		}
		d, err := m.choose()
		if err != nil {
			return nil, err
		}
		if name := d.Annotations["org.opencontainers.image.ref.name"]; name != "" && p.Reference == "" {
			p.Reference = name
		}
		text, err := a.cache.small(ctx, d, a)
		if err != nil {
			return nil, err
		}
		if m, err = parseManifest(text); err != nil {
			return nil, err
		}
	}
	if err := a.cache.fill(ctx, p, m, a, a.progress); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// fetch takes a blob out of the archive.
func (a *archive) fetch(_ context.Context, d descriptor, part *os.File, from int64, tell func(int64)) error {
	sum, err := sha256Of(d.Digest)
	if err != nil {
		return err
	}
	e, err := a.find("blobs/sha256/" + sum)
	if err != nil {
		return err
	}
	if e.size != d.Size {
		return fmt.Errorf("%w: the blob %s has %d bytes (expected: %d)", ErrInvalid, d.Digest, e.size, d.Size)
	}
	_, err = io.Copy(&offsetWriter{part, from, tell}, io.NewSectionReader(a.file, e.offset+from, e.size-from))
	return err
}

var _ blobSource = (*archive)(nil)

// layersOf are an archive's layers that are no blobs of the cache.
func (p *Pulled) layersOf() []image.Layer {
	var layers []image.Layer
	for n, r := range p.readers {
		l := image.Layer{Reader: r}
		if n < len(p.diffIDs) {
			l.DiffID = p.diffIDs[n]
		}
		layers = append(layers, l)
	}
	return layers
}

// Package image finds the root file systems that boxes are made of: EROFS files
// with a metadata file beside each, in one folder, written by the image builder.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Image is one root file system.
type Image struct {
	Path     string
	Size     uint64
	Built    time.Time
	Metadata Metadata
	// JSON is the metadata file as it is.
	JSON string
}

// Metadata is what the builder says about an image.
type Metadata struct {
	Name            string            `json:"name"`
	Digest          string            `json:"digest"`
	SizeBytes       uint64            `json:"size_bytes"`
	Languages       []string          `json:"languages"`
	DefaultLanguage string            `json:"default_language"`
	Kernels         map[string]Kernel `json:"kernels"`
	Env             map[string]string `json:"env"`
	User            string            `json:"user"`
	UID             uint32            `json:"uid"`
	GID             uint32            `json:"gid"`
	Home            string            `json:"home"`
	Workdir         string            `json:"workdir"`
}

// Kernel is how a language's interpreter is started inside the sandbox.
type Kernel struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
}

// UnmarshalJSON also takes the bare list of arguments.
func (k *Kernel) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &k.Argv); err == nil {
		return nil
	}
	type plain Kernel
	return json.Unmarshal(text, (*plain)(k))
}

// ErrNotFound says that no complete image has a digest.
var ErrNotFound = errors.New("no such image")

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Store reads the images of one folder. It reads a metadata file again only
// when it changed, so asking is cheap.
type Store struct {
	dir string

	mu sync.Mutex
	// cached by metadata path; guarded by mu.
	cached map[string]entry
}

type entry struct {
	modified time.Time
	built    time.Time
	size     int64
	image    Image
	err      error
}

// NewStore answers for the images in dir, which need not exist yet.
func NewStore(dir string) *Store {
	return &Store{dir: dir, cached: map[string]entry{}}
}

// List returns the complete images, of each name the newest, since an older one
// is what a recipe was before; problems are sentences about the incomplete ones.
func (s *Store) List() (images []Image, problems []string) {
	all, problems := s.all()
	newest := map[string]int{}
	for _, image := range all {
		at, seen := newest[image.Metadata.Name]
		switch {
		case !seen:
			newest[image.Metadata.Name] = len(images)
			images = append(images, image)
		case image.Built.After(images[at].Built):
			images[at] = image
		}
	}
	return images, problems
}

func (s *Store) all() (images []Image, problems []string) {
	paths, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	if err != nil {
		return nil, []string{fmt.Sprintf("images: %v", err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range paths {
		image, err := s.read(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			// Removed just now, or its EROFS file not there yet: not complete.
		case err != nil:
			problems = append(problems, err.Error())
		default:
			images = append(images, image)
		}
	}
	return images, problems
}

// Find returns the image with a digest, be it the newest of its name or not.
func (s *Store) Find(digest string) (Image, error) {
	images, _ := s.all()
	for _, image := range images {
		if image.Metadata.Digest == digest {
			return image, nil
		}
	}
	return Image{}, fmt.Errorf("%w: %s", ErrNotFound, digest)
}

// Requires: s.mu is held.
func (s *Store) read(path string) (Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Image{}, err
	}
	erofs := strings.TrimSuffix(path, ".json") + ".erofs"
	file, err := os.Stat(erofs)
	if err != nil {
		return Image{}, err
	}
	if old, ok := s.cached[path]; ok && old.modified.Equal(info.ModTime()) && old.built.Equal(file.ModTime()) && old.size == file.Size() {
		return old.image, old.err
	}
	image, err := parse(path, erofs, file)
	s.cached[path] = entry{modified: info.ModTime(), built: file.ModTime(), size: file.Size(), image: image, err: err}
	return image, err
}

func parse(path, erofs string, file os.FileInfo) (Image, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Image{}, err
	}
	image := Image{Path: erofs, Size: uint64(file.Size()), Built: file.ModTime(), JSON: string(text)}
	if err := json.Unmarshal(text, &image.Metadata); err != nil {
		return Image{}, fmt.Errorf("image metadata %s: %w", path, err)
	}
	m := &image.Metadata
	m.Digest = strings.TrimPrefix(m.Digest, "sha256:")
	if !digestPattern.MatchString(m.Digest) {
		return Image{}, fmt.Errorf("image metadata %s: digest %q (expected: 64 hex digits)", path, m.Digest)
	}
	if m.SizeBytes != 0 && m.SizeBytes != image.Size {
		return Image{}, fmt.Errorf("image %s: %d bytes (expected: %d, as its metadata says)", erofs, image.Size, m.SizeBytes)
	}
	return image, nil
}

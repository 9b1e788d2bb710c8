// Package image keeps the root file systems that boxes are made of: EROFS files, and a metadata file for each image.
//
// Those of recipes lie in a cache that the installations of a machine share: NAME-HASH.erofs with a NAME-HASH.json beside it, written by
// images/build.sh. All others are made here and lie below the installation's data folder: DIGEST.json names its EROFS file, which has its
// own sha256 as its name, so that images of the same files share one. The metadata is written last: without it there is no image.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"atoll/node/internal/image/assemble"
	"atoll/node/internal/reap"
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
	// File is the name of the EROFS file; empty: the metadata's own with another ending.
	File string `json:"file,omitempty"`
	// Origin is one of the Origins; empty: a recipe. Source is what it was made of: a reference with its digest, for instance.
	Origin string `json:"origin,omitempty"`
	Source string `json:"source,omitempty"`
	// BuiltAt is in milliseconds since 1970; 0: when the file was changed last.
	BuiltAt int64 `json:"built_at_unix_ms,omitempty"`
	// Config is what the image itself says about how it wants to be run.
	Config *Config `json:"config,omitempty"`
	// Bare is an image without what a sandbox wants, for others to be built on.
	Bare bool `json:"bare,omitempty"`
	// Format is the way of making it; one that was made in another way is made anew of the same source.
	Format int `json:"format,omitempty"`
}

// Config is how an image wants to be run.
type Config = assemble.Config

// Origins.
const (
	FromRecipe     = "recipe"
	FromRegistry   = "registry"
	FromArchive    = "archive"
	FromDockerfile = "dockerfile"
	FromBox        = "box"
	FromDaemon     = "docker_daemon"
)

// Config is how the image wants to be run, to be changed and given to Assemble.
func (i Image) Config() Config {
	if i.Metadata.Config != nil {
		return *i.Metadata.Config
	}
	// A recipe has no such thing. What its sandboxes get comes from the user, but for the rest.
	var c Config
	for _, name := range slices.Sorted(maps.Keys(i.Metadata.Env)) {
		switch name {
		case "HOME", "USER", "LOGNAME", "SHELL":
		default:
			c.Env = append(c.Env, name+"="+i.Metadata.Env[name])
		}
	}
	return c
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

// Store has the images of a node. It reads a metadata file again only when it changed, so asking is cheap.
type Store struct {
	// recipes and made are folders; made is empty where nothing is made.
	recipes, made string
	builder       string
	reaper        *reap.Reaper

	// changing is held while an image is added or removed, so that an EROFS file which two share is not removed with the first.
	changing sync.Mutex

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

// NewStore answers for the images of recipes in a folder, which need not exist yet.
func NewStore(recipes string) *Store {
	return &Store{recipes: recipes, cached: map[string]entry{}}
}

// List returns the complete images, of each recipe the newest, since an older one
// is what it was before; problems are sentences about the incomplete ones.
func (s *Store) List() (images []Image, problems []string) {
	all, problems := s.all()
	newest := map[string]int{}
	for _, image := range all {
		if !image.OfRecipe() {
			images = append(images, image)
			continue
		}
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
	var paths []string
	for _, dir := range []string{s.recipes, s.made} {
		if dir == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			return nil, []string{fmt.Sprintf("images: %v", err)}
		}
		paths = append(paths, found...)
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

// At returns the image whose EROFS file is at a path.
func (s *Store) At(path string) (Image, error) {
	images, problems := s.all()
	for _, image := range images {
		if image.Path == path {
			return image, nil
		}
	}
	return Image{}, fmt.Errorf("%w at %s %s", ErrNotFound, path, strings.Join(problems, "; "))
}

// Requires: s.mu is held.
func (s *Store) read(path string) (Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Image{}, err
	}
	old, known := s.cached[path]
	if known && old.modified.Equal(info.ModTime()) {
		file, err := os.Stat(old.image.Path)
		if err != nil {
			return Image{}, err
		}
		if old.built.Equal(file.ModTime()) && old.size == file.Size() {
			return old.image, old.err
		}
	}
	image, file, err := parse(path)
	if file == nil {
		return Image{}, err
	}
	s.cached[path] = entry{modified: info.ModTime(), built: file.ModTime(), size: file.Size(), image: image, err: err}
	return image, err
}

// parse returns the EROFS file's state with an error too, if that is there.
func parse(path string) (Image, os.FileInfo, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Image{}, nil, err
	}
	image := Image{Path: strings.TrimSuffix(path, ".json") + ".erofs", JSON: string(text)}
	parsed := json.Unmarshal(text, &image.Metadata)
	m := &image.Metadata
	if m.File != "" {
		if m.File != filepath.Base(m.File) {
			return Image{}, nil, fmt.Errorf("image metadata %s: file %q (expected: a name)", path, m.File)
		}
		image.Path = filepath.Join(filepath.Dir(path), m.File)
	}
	file, err := os.Stat(image.Path)
	if err != nil {
		return Image{}, nil, err
	}
	image.Size, image.Built = uint64(file.Size()), file.ModTime()
	if m.BuiltAt != 0 {
		image.Built = time.UnixMilli(m.BuiltAt)
	}
	if parsed != nil {
		return image, file, fmt.Errorf("image metadata %s: %w", path, parsed)
	}
	m.Digest = strings.TrimPrefix(m.Digest, "sha256:")
	if !digestPattern.MatchString(m.Digest) {
		return image, file, fmt.Errorf("image metadata %s: digest %q (expected: 64 hex digits)", path, m.Digest)
	}
	if m.SizeBytes != 0 && m.SizeBytes != image.Size {
		return image, file, fmt.Errorf("image %s: %d bytes (expected: %d, as its metadata says)", image.Path, image.Size, m.SizeBytes)
	}
	return image, file, nil
}

// OfRecipe says whether it was built from one of the pinned recipes.
func (i Image) OfRecipe() bool { return i.Metadata.Origin == "" || i.Metadata.Origin == FromRecipe }

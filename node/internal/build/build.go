// Package build makes images from Dockerfiles. Steps run in build boxes, never on the host; files of the context, and of other stages,
// reach a box through its agent, so that no path of theirs is ever resolved here.
//
// A build is planned whole before anything runs: of each instruction that changes files it is known what its result depends on, and a key
// made of that names a snapshot of the box's files. What has a snapshot is not run again, and stages that only such steps need are left out.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"atoll/node/gen/execv1"
	"atoll/node/internal/egress"
	"atoll/node/internal/image"
)

// Spec is what to build.
type Spec struct {
	// Name and Source are the image's, as image.Metadata has them.
	Name, Source string
	Dockerfile   string
	Args         map[string]string
	// Target is the stage to build, by name or number; empty: the last.
	Target string
	// NamedImages are what FROM and --from may name beside references: a name to the digest of an image that is here.
	NamedImages map[string]string
	// Limits are those of build boxes; what is 0 has a default of builds.
	Limits *execv1.Limits
	// Network lets steps reach out; Allow is what they may reach beside public addresses.
	Network bool
	Allow   []string
	// StepEnv is for steps alone, not in the image.
	StepEnv map[string]string
	// Secrets are the contents of --mount=type=secret, by id.
	Secrets map[string][]byte
	NoCache bool
	// StepTimeout is how long one step may take; 0: DefaultStepTimeout.
	StepTimeout time.Duration
}

// DefaultStepTimeout is how long a step may take where nothing else is said.
const DefaultStepTimeout = 30 * time.Minute

// Event is something that happens in a build: a Step, a Log or a Progress.
type Event interface{ event() }

// Step has begun.
type Step struct {
	// Number counts from 1.
	Number, Total int
	Text          string
	// Cached says that it is not run, since its result is there.
	Cached bool
}

// Log is something that a step printed, or that the build has to say.
type Log struct {
	Data   []byte
	Stderr bool
}

// Progress of something that takes long.
type Progress struct {
	What        string
	Done, Total uint64
}

func (Step) event()     {}
func (Log) event()      {}
func (Progress) event() {}

// InvalidError says what is wrong with a Dockerfile, or with what it is built with.
type InvalidError struct {
	// Line of the Dockerfile, from 1; 0: none in particular.
	Line int
	Text string
}

func (e *InvalidError) Error() string {
	if e.Line == 0 {
		return e.Text
	}
	return fmt.Sprintf("line %d of the Dockerfile: %s", e.Line, e.Text)
}

func invalid(line int, format string, values ...any) error {
	return &InvalidError{Line: line, Text: fmt.Sprintf(format, values...)}
}

// StepError says which step failed and how.
type StepError struct {
	Step Step
	Line int
	// Text says how; Output is the end of what the step printed.
	Text   string
	Output string
}

func (e *StepError) Error() string {
	text := fmt.Sprintf("step %d of %d failed (line %d: %s): %s", e.Step.Number, e.Step.Total, e.Line, shorten(e.Step.Text, 200), e.Text)
	if e.Output != "" {
		text += "\n" + e.Output
	}
	return text
}

// Builder makes images. Its fields are not changed once it is used.
type Builder struct {
	Sandboxes Sandboxes
	Images    Images
	// Dir is for files that live as long as a build. It is emptied by Open.
	Dir    string
	Cache  *Cache
	Logger *slog.Logger
	// MaxContext bounds a build context; 0: 4 GiB.
	MaxContext int64
}

// Images is where images come from and go to.
type Images interface {
	// Find returns an image that is here.
	Find(digest string) (image.Image, error)
	// Pull returns the image that a reference names.
	Pull(ctx context.Context, reference string, emit func(Event)) (image.Image, error)
	// Assemble makes an image of a base, nil for none, and a tar of changes in overlayfs's form, nil for none.
	Assemble(ctx context.Context, r Assembly) (image.Image, error)
}

// Assembly is an image to be made.
type Assembly struct {
	Name, Source string
	Base         *image.Image
	// Changes is a tar in overlayfs's form; nil: none.
	Changes io.Reader
	Config  image.Config
	// Bare is an image that only others are made of.
	Bare bool
}

const defaultMaxContext = 4 << 30

// Open empties the folder for files of builds.
func (b *Builder) Open() error {
	if err := os.RemoveAll(b.Dir); err != nil {
		return err
	}
	return os.MkdirAll(b.Dir, 0o700)
}

// Run builds an image. contextTar is the build context, as it is or compressed with gzip; nil: none. It calls emit from one goroutine at a
// time. When ctx ends, what runs is ended at once, and nothing is left but caches.
//
// Errors: *InvalidError, *StepError, and those of Sandboxes and Images.
func (b *Builder) Run(ctx context.Context, spec Spec, contextTar io.Reader, emit func(Event)) (image.Image, error) {
	policy, err := egress.NewPolicy(spec.Allow)
	if err != nil {
		return image.Image{}, invalid(0, "build.allow: %v", err)
	}
	if spec.StepTimeout == 0 {
		spec.StepTimeout = DefaultStepTimeout
	}
	spec.Limits = withDefaults(spec.Limits)
	d, err := parse(spec.Dockerfile)
	if err != nil {
		return image.Image{}, err
	}
	dir, err := os.MkdirTemp(b.Dir, "build-")
	if err != nil {
		return image.Image{}, err
	}
	defer os.RemoveAll(dir)
	r := &run{
		builder: b, spec: spec, dockerfile: d, dir: dir, policy: policy, emit: emit,
		images: map[string]image.Image{}, sources: map[*stage]Sandbox{}, imageSources: map[string]Sandbox{},
	}
	// Whatever is open then.
	defer r.close()
	r.context = &buildContext{}
	limit := b.MaxContext
	if limit == 0 {
		limit = defaultMaxContext
	}
	if r.context, err = readContext(ctx, contextTar, dir, limit); err != nil {
		return image.Image{}, err
	}
	if err := r.plan(ctx); err != nil {
		return image.Image{}, orCancelled(ctx, err)
	}
	made, err := r.build(ctx)
	return made, orCancelled(ctx, err)
}

// orCancelled is the end of ctx where that is why something failed.
func orCancelled(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Defaults of build boxes.
const (
	defaultMemory    = 2 << 30
	defaultDisk      = 10 << 30
	defaultProcesses = 2048
	defaultOpenFiles = 65536
)

func withDefaults(l *execv1.Limits) *execv1.Limits {
	full := &execv1.Limits{
		MemoryBytes: l.GetMemoryBytes(), CpuMillis: l.GetCpuMillis(), DiskBytes: l.GetDiskBytes(), MaxProcesses: l.GetMaxProcesses(), MaxOpenFiles: l.GetMaxOpenFiles(),
	}
	if full.MemoryBytes == 0 {
		full.MemoryBytes = defaultMemory
	}
	if full.DiskBytes == 0 {
		full.DiskBytes = defaultDisk
	}
	if full.MaxProcesses == 0 {
		full.MaxProcesses = defaultProcesses
	}
	if full.MaxOpenFiles == 0 {
		full.MaxOpenFiles = defaultOpenFiles
	}
	return full
}

// shorten is a text of one line.
func shorten(text string, most int) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

var errNoContext = errors.New("the build has no context")

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/box"
	"atoll/node/internal/build"
	"atoll/node/internal/image"
	"atoll/node/internal/oci"
	"atoll/node/internal/reap"
)

// ImageMaker makes images of all that they can be made of.
type ImageMaker struct {
	Images *image.Store
	Layers *oci.Cache
	Node   *box.Node
	Reaper *reap.Reaper
	// Recipes is the folder with build.sh and recipes/; empty: there are none. Cache is where build.sh keeps what it makes.
	Recipes, Cache string
	// DockerSocket is where a Docker daemon listens.
	DockerSocket string
	// DataDir is where images lie, whose disk must have room.
	DataDir string
	// Builds makes images of Dockerfiles; nil: this engine can't. Its Images are set here, for each build its own.
	Builds *build.Builder

	once sync.Once
	// slots bound how many are made at once; the others wait.
	slots chan struct{}
}

// Emit sends an event of a build. It may be called from several goroutines; after an error the build is over.
type Emit func(*enginev1.MakeImageEvent) error

const (
	makesAtOnce = 4
	// maxFull is how full the disk may be for a new image, in percent.
	maxFull = 90
	// progressEvery is how often a part that comes is told of.
	progressEvery = 200 * time.Millisecond
)

func (e Emit) step(number, total int, format string, values ...any) error {
	return e(&enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Step{Step: &enginev1.BuildStep{
		Number: uint32(number), Total: uint32(total), Text: fmt.Sprintf(format, values...),
	}}})
}

func (e Emit) log(data []byte, stderr bool) error {
	return e(&enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Log{Log: &enginev1.BuildLog{Data: data, Stderr: stderr}}})
}

// progress tells of parts that come, not more often than anyone can read.
func (e Emit) progress() oci.Progress {
	var mu sync.Mutex
	last := map[string]time.Time{}
	return func(what string, done, total uint64) {
		mu.Lock()
		now := time.Now()
		tell := now.Sub(last[what]) >= progressEvery || done == total
		if tell {
			last[what] = now
		}
		mu.Unlock()
		if tell {
			_ = e(&enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Progress{Progress: &enginev1.BuildProgress{What: what, DoneBytes: done, TotalBytes: total}}})
		}
	}
}

// MakeImage makes an image of a source that the first message names.
func (s *Service) MakeImage(stream grpc.BidiStreamingServer[enginev1.MakeImageRequest, enginev1.MakeImageEvent]) error {
	first, err := stream.Recv()
	if err != nil || first.GetBegin() == nil {
		return status.Error(codes.InvalidArgument, "the first message of an image has no begin")
	}
	if s.Makes == nil {
		return status.Error(codes.FailedPrecondition, "this engine makes no images")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	var mu sync.Mutex
	emit := Emit(func(event *enginev1.MakeImageEvent) error {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := stream.Send(event); err != nil {
			// Nobody listens any more.
			cancel()
			return err
		}
		return nil
	})
	made, err := s.Makes.make(ctx, first.GetBegin(), &dataReader{stream: stream}, emit)
	if err != nil {
		if stream.Context().Err() != nil {
			return status.FromContextError(stream.Context().Err()).Err()
		}
		if step := failedStep(err); step > 0 {
			stream.SetTrailer(metadata.Pairs(StepKey, fmt.Sprint(step)))
		}
		return imageStatus(err)
	}
	return emit(&enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Done{Done: imageMessage(made)}})
}

// StepKey is the trailer that says which step of a build failed.
const StepKey = "atoll-build-step"

// recipeError says why a recipe can't be built.
type recipeError struct{ text string }

func (r *recipeError) Error() string { return r.text }

// failedStep is the number of the step that failed by what it is; 0: none did.
func failedStep(err error) int {
	var recipe *recipeError
	var step *build.StepError
	switch {
	case errors.As(err, &recipe):
		return 1
	case errors.As(err, &step):
		return step.Step.Number
	}
	return 0
}

// dataReader reads what comes after the first message.
type dataReader struct {
	stream grpc.BidiStreamingServer[enginev1.MakeImageRequest, enginev1.MakeImageEvent]
	rest   []byte
}

func (r *dataReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.stream.Recv()
		if err != nil {
			// io.EOF too: the caller has sent all.
			return 0, err
		}
		if m.GetBegin() != nil {
			return 0, &box.Fault{Kind: box.Invalid, Message: "an image begins twice"}
		}
		r.rest = m.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

const maxName = 200

func (m *ImageMaker) make(ctx context.Context, begin *enginev1.MakeImageBegin, data io.Reader, emit Emit) (image.Image, error) {
	name := begin.GetName()
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return image.Image{}, status.Errorf(codes.InvalidArgument, "name: %q (expected: at most %d characters of one line)", name[:min(len(name), maxName)], maxName)
	}
	if err := m.room(); err != nil {
		return image.Image{}, err
	}
	m.once.Do(func() { m.slots = make(chan struct{}, makesAtOnce) })
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return image.Image{}, ctx.Err()
	}
	switch source := begin.GetSource().(type) {
	case *enginev1.MakeImageBegin_Recipe:
		return m.recipe(ctx, source.Recipe.GetRecipe(), emit)
	case *enginev1.MakeImageBegin_Registry:
		return m.registry(ctx, name, source.Registry, emit)
	case *enginev1.MakeImageBegin_Archive:
		return m.archive(ctx, name, data, emit)
	case *enginev1.MakeImageBegin_Dockerfile:
		return m.dockerfile(ctx, name, source.Dockerfile, data, emit)
	case *enginev1.MakeImageBegin_Box:
		return m.box(ctx, name, source.Box.GetBoxId(), emit)
	case *enginev1.MakeImageBegin_DockerDaemon:
		return m.daemon(ctx, name, source.DockerDaemon.GetReference(), emit)
	}
	return image.Image{}, status.Error(codes.InvalidArgument, "source: none (expected: recipe, registry, archive, dockerfile, box or docker_daemon)")
}

// room refuses where the disk is nearly full: an image more would take what sandboxes need to go on.
func (m *ImageMaker) room() error {
	space, err := box.HostSpace(m.DataDir)
	if err != nil {
		return err
	}
	if used := space.DiskTotal - space.DiskAvailable; used*100 >= space.DiskTotal*maxFull {
		return status.Errorf(codes.ResourceExhausted, "the disk of %s is %d %% full (%d of %d MiB free): no new images from %d %% on (remedy: delete sandboxes, snapshots or images)",
			m.DataDir, used*100/max(space.DiskTotal, 1), space.DiskAvailable>>20, space.DiskTotal>>20, maxFull)
	}
	return nil
}

func (m *ImageMaker) registry(ctx context.Context, name string, source *enginev1.RegistrySource, emit Emit) (image.Image, error) {
	if err := emit.step(1, 2, "pull %s", source.GetReference()); err != nil {
		return image.Image{}, err
	}
	return m.pull(ctx, image.Request{Name: name}, source, emit.progress(), func() error { return emit.step(2, 2, "write the image") })
}

// pull makes an image of a registry's. What was pulled before is not merged again.
func (m *ImageMaker) pull(ctx context.Context, r image.Request, source *enginev1.RegistrySource, tell oci.Progress, write func() error) (image.Image, error) {
	request := oci.PullRequest{Reference: source.GetReference(), PlainHTTP: source.GetPlainHttp(), Progress: tell}
	for _, a := range source.GetAuths() {
		request.Auths = append(request.Auths, oci.Auth{Registry: a.GetRegistry(), Username: a.GetUsername(), Password: a.GetPassword(), Token: a.GetToken()})
	}
	pulled, err := m.Layers.Pull(ctx, request)
	if err != nil {
		return image.Image{}, err
	}
	defer m.collect(pulled)
	if made, err := m.Images.Made(r.Name, image.FromRegistry, pulled.Reference, r.Bare); err == nil {
		return made, nil
	}
	if err := write(); err != nil {
		return image.Image{}, err
	}
	r.Origin, r.Source = image.FromRegistry, pulled.Reference
	return m.merge(ctx, pulled, r, tell)
}

func (m *ImageMaker) archive(ctx context.Context, name string, data io.Reader, emit Emit) (image.Image, error) {
	if err := emit.step(1, 2, "read the archive"); err != nil {
		return image.Image{}, err
	}
	pulled, err := m.Layers.Import(ctx, data, emit.progress())
	if err != nil {
		return image.Image{}, err
	}
	defer m.collect(pulled)
	if err := emit.step(2, 2, "write the image"); err != nil {
		return image.Image{}, err
	}
	return m.merge(ctx, pulled, image.Request{Name: name, Origin: image.FromArchive, Source: pulled.Reference}, emit.progress())
}

func (m *ImageMaker) daemon(ctx context.Context, name, reference string, emit Emit) (image.Image, error) {
	if err := emit.step(1, 2, "take %s from the Docker daemon", reference); err != nil {
		return image.Image{}, err
	}
	pulled, err := m.Layers.FromDaemon(ctx, m.DockerSocket, reference, emit.progress())
	if err != nil {
		return image.Image{}, err
	}
	defer m.collect(pulled)
	if err := emit.step(2, 2, "write the image"); err != nil {
		return image.Image{}, err
	}
	return m.merge(ctx, pulled, image.Request{Name: name, Origin: image.FromDaemon, Source: pulled.Reference}, emit.progress())
}

// collect gives layers back, and keeps the cache to its quota.
func (m *ImageMaker) collect(pulled *oci.Pulled) {
	pulled.Close()
	_, _ = m.Layers.Collect()
}

func (m *ImageMaker) merge(ctx context.Context, pulled *oci.Pulled, r image.Request, tell oci.Progress) (image.Image, error) {
	layers, err := pulled.Layers()
	if err != nil {
		return image.Image{}, err
	}
	r.Layers, r.Config, r.Progress = layers, pulled.Config, func(read uint64) { tell("image", read, 0) }
	made, err := m.Images.Assemble(ctx, r)
	if errors.Is(err, image.ErrInvalid) {
		// Where it is a fault of this disk, the next attempt is to be a new one.
		pulled.Discard()
	}
	return made, err
}

// box saves what a sandbox has become.
func (m *ImageMaker) box(ctx context.Context, name, id string, emit Emit) (image.Image, error) {
	b, err := m.Node.Get(id)
	if err != nil {
		return image.Image{}, err
	}
	base, err := m.Images.Find(b.GetSpec().GetImageDigest())
	if err != nil {
		return image.Image{}, err
	}
	if err := emit.step(1, 1, "save the files of the sandbox"); err != nil {
		return image.Image{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, w := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		err := m.Node.ExportChanges(ctx, id, w)
		w.CloseWithError(err)
		exported <- err
	}()
	tell := emit.progress()
	source := b.GetSandboxId()
	if source == "" {
		source = id
	}
	made, err := m.Images.Assemble(ctx, image.Request{
		Name: name, Origin: image.FromBox, Source: source, Base: &base, Config: base.Config(),
		Layers: []image.Layer{{Reader: changes, Overlay: true}}, Progress: func(read uint64) { tell("image", read, 0) },
	})
	// The export ends with whoever reads it.
	_ = changes.Close()
	cancel()
	<-exported
	return made, err
}

// --- Recipes ----------------------------------------------------------------------------------------------------------------

var recipeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (m *ImageMaker) recipes() []string {
	if m == nil || m.Recipes == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(m.Recipes, "recipes", "*", "recipe.json"))
	if err != nil {
		return nil
	}
	var names []string
	for _, f := range files {
		if name := filepath.Base(filepath.Dir(f)); recipeName.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// recipe runs the builder of the pinned recipes. It is ours, so it runs on the host; what it prints is the log.
func (m *ImageMaker) recipe(ctx context.Context, name string, emit Emit) (image.Image, error) {
	if m.Recipes == "" {
		return image.Image{}, status.Error(codes.FailedPrecondition, "this engine has no recipes (remedy: start it with --recipes, as ./atoll up does)")
	}
	if !recipeName.MatchString(name) {
		return image.Image{}, status.Errorf(codes.InvalidArgument, "recipe: %.100q (expected: one of %s)", name, strings.Join(m.recipes(), ", "))
	}
	if _, err := os.Stat(filepath.Join(m.Recipes, "recipes", name, "recipe.json")); err != nil {
		return image.Image{}, status.Errorf(codes.NotFound, "no recipe %s (expected: one of %s)", name, strings.Join(m.recipes(), ", "))
	}
	if err := emit.step(1, 1, "build the recipe %s", name); err != nil {
		return image.Image{}, err
	}
	printed, err := m.runRecipe(ctx, name, emit)
	if err != nil {
		return image.Image{}, err
	}
	// The last line is where the image is.
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	made := lines[len(lines)-1]
	found, err := m.Images.At(made)
	if err != nil {
		return image.Image{}, fmt.Errorf("the builder of the recipe %s says that the image is %.200q: %w", name, made, err)
	}
	return found, nil
}

// runRecipe returns what the builder prints to its standard output.
func (m *ImageMaker) runRecipe(ctx context.Context, name string, emit Emit) (string, error) {
	out, theirOut, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer out.Close()
	log, theirLog, err := os.Pipe()
	if err != nil {
		return "", errors.Join(err, theirOut.Close())
	}
	defer log.Close()
	env := append(os.Environ(), "ATOLL_CACHE="+m.Cache)
	process, err := m.Reaper.Start(reap.Command{
		Path: filepath.Join(m.Recipes, "build.sh"), Args: []string{name}, Env: env, Dir: "/", Files: []*os.File{nil, theirOut, theirLog},
	})
	err = errors.Join(err, theirOut.Close(), theirLog.Close())
	if err != nil {
		return "", err
	}
	var printed bytes.Buffer
	var tail lastBytes
	var group sync.WaitGroup
	group.Go(func() { _, _ = io.Copy(&printed, io.LimitReader(out, 64<<10)) })
	group.Go(func() { _, _ = io.Copy(io.MultiWriter(&tail, logWriter{emit}), log) })
	var code unix.WaitStatus
	select {
	case code = <-process.Status:
	case <-ctx.Done():
		// Its own session, so its id is its group's: all of it goes. What it has in namespaces goes with the first process there.
		_ = unix.Kill(-process.Pid, unix.SIGKILL)
		<-process.Status
		// Whoever still holds the pipes is not waited for.
		out.Close()
		log.Close()
		group.Wait()
		return "", ctx.Err()
	}
	group.Wait()
	if code != 0 {
		return "", &recipeError{fmt.Sprintf("the recipe %s can't be built (status %d):\n%s", name, code.ExitStatus(), tail.String())}
	}
	return printed.String(), nil
}

// logWriter sends what is written as a build's log.
type logWriter struct{ emit Emit }

func (w logWriter) Write(p []byte) (int, error) {
	// Who no longer listens has cancelled the build; until that is seen, it writes on.
	_ = w.emit.log(bytes.Clone(p), true)
	return len(p), nil
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

const lastKept = 4 << 10

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if len(l.b) > lastKept {
		l.b = append([]byte{}, l.b[len(l.b)-lastKept:]...)
	}
	return len(p), nil
}

func (l *lastBytes) String() string { return strings.ToValidUTF8(strings.TrimSpace(string(l.b)), "?") }

// --- What is there -----------------------------------------------------------------------------------------------------------

func imageMessage(i image.Image) *enginev1.Image {
	source := i.Metadata.Source
	if i.OfRecipe() && source == "" {
		source = i.Metadata.Name
	}
	return &enginev1.Image{
		Name: i.Metadata.Name, Digest: i.Metadata.Digest, SizeBytes: i.Size, Languages: i.Metadata.Languages,
		DefaultLanguage: i.Metadata.DefaultLanguage, BuiltAtUnixMs: i.Built.UnixMilli(), MetadataJson: i.JSON,
		Origin: originOf(i.Metadata.Origin), Source: source,
	}
}

func originOf(origin string) enginev1.ImageOrigin {
	switch origin {
	case "", image.FromRecipe:
		return enginev1.ImageOrigin_IMAGE_ORIGIN_RECIPE
	case image.FromRegistry:
		return enginev1.ImageOrigin_IMAGE_ORIGIN_REGISTRY
	case image.FromArchive:
		return enginev1.ImageOrigin_IMAGE_ORIGIN_ARCHIVE
	case image.FromDockerfile:
		return enginev1.ImageOrigin_IMAGE_ORIGIN_DOCKERFILE
	case image.FromBox:
		return enginev1.ImageOrigin_IMAGE_ORIGIN_BOX
	case image.FromDaemon:
		return enginev1.ImageOrigin_IMAGE_ORIGIN_DOCKER_DAEMON
	}
	return enginev1.ImageOrigin_IMAGE_ORIGIN_UNSPECIFIED
}

// imageStatus maps the faults of images to gRPC's codes.
func imageStatus(err error) error {
	var code codes.Code
	var invalid *build.InvalidError
	switch {
	case failedStep(err) > 0, errors.Is(err, image.ErrOfRecipe):
		code = codes.FailedPrecondition
	case errors.Is(err, oci.ErrNotFound), errors.Is(err, image.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, oci.ErrDenied):
		code = codes.PermissionDenied
	case errors.Is(err, oci.ErrTooLarge), errors.Is(err, image.ErrTooLarge), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = codes.ResourceExhausted
	case errors.Is(err, oci.ErrInvalid), errors.Is(err, image.ErrInvalid), errors.As(err, &invalid):
		code = codes.InvalidArgument
	case errors.Is(err, oci.ErrUnavailable):
		code = codes.Unavailable
	default:
		return toStatus(err)
	}
	return status.Error(code, strings.ToValidUTF8(err.Error(), "?"))
}

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// needed says why an image can't be removed.
func (s *Service) needed(digest string) func() error {
	return func() error {
		if user := s.Node.ImageUser(digest); user != "" {
			return status.Errorf(codes.FailedPrecondition, "image %s is needed by %s (remedy: delete that first)", digest, user)
		}
		return nil
	}
}

// DeleteImage removes an image that nothing needs.
func (s *Service) DeleteImage(_ context.Context, r *enginev1.ImageRequest) (*enginev1.DeleteImageReply, error) {
	if !digestPattern.MatchString(r.GetDigest()) {
		return nil, status.Errorf(codes.InvalidArgument, "digest: %.100q (expected: 64 hex digits)", r.GetDigest())
	}
	freed, err := s.Images.Delete(r.GetDigest(), s.needed(r.GetDigest()))
	if err != nil {
		return nil, imageStatus(err)
	}
	return &enginev1.DeleteImageReply{FreedBytes: freed}, nil
}

// PruneImages removes what nothing needs. Images of recipes stay: they are the machine's, not the installation's.
func (s *Service) PruneImages(ctx context.Context, r *enginev1.PruneImagesRequest) (*enginev1.PruneImagesReply, error) {
	keep := map[string]bool{}
	for _, digest := range r.GetKeepDigests() {
		keep[digest] = true
	}
	reply := &enginev1.PruneImagesReply{}
	images, _ := s.Images.List()
	for _, i := range images {
		if ctx.Err() != nil {
			return nil, toStatus(ctx.Err())
		}
		digest := i.Metadata.Digest
		if i.OfRecipe() || keep[digest] || i.Built.UnixMilli() >= r.GetBuiltBeforeUnixMs() {
			continue
		}
		freed, err := s.Images.Delete(digest, s.needed(digest))
		if status.Code(err) == codes.FailedPrecondition {
			continue
		}
		if err != nil {
			return nil, imageStatus(err)
		}
		reply.RemovedDigests = append(reply.RemovedDigests, digest)
		reply.FreedBytes += freed
	}
	if s.Makes != nil {
		freed, err := s.Makes.Layers.Collect()
		if err != nil {
			return nil, imageStatus(err)
		}
		reply.FreedBytes += freed
	}
	return reply, nil
}

package engine

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/build"
	"atoll/node/internal/image"
)

// dockerfile builds in sandboxes.
func (m *ImageMaker) dockerfile(ctx context.Context, name string, source *enginev1.DockerfileSource, data io.Reader, emit Emit) (image.Image, error) {
	if m.Builds == nil {
		return image.Image{}, status.Error(codes.Unimplemented, "this engine builds no Dockerfiles")
	}
	// A caller without a context sends nothing.
	buffered := bufio.NewReaderSize(data, 64<<10)
	var files io.Reader = buffered
	if _, err := buffered.Peek(1); errors.Is(err, io.EOF) {
		files = nil
	} else if err != nil {
		return image.Image{}, err
	}
	builder := *m.Builds
	builder.Images = build.StoreImages{Store: m.Images, PullReference: func(ctx context.Context, reference string, tell func(build.Event)) (image.Image, error) {
		registry := &enginev1.RegistrySource{Reference: reference, Auths: source.GetAuths(), PlainHttp: source.GetPlainHttp()}
		// The build hears of one part at a time.
		progress := emit.progress()
		return m.pull(ctx, image.Request{Name: reference, Bare: true}, registry, progress, func() error { return nil })
	}}
	return builder.Run(ctx, build.Spec{
		Name: name, Source: fmt.Sprintf("Dockerfile sha256:%x", sha256.Sum256([]byte(source.GetDockerfile()))),
		Dockerfile: source.GetDockerfile(), Args: source.GetArgs(), Target: source.GetTarget(), NamedImages: source.GetNamedImages(),
		Limits: source.GetLimits(), Network: source.GetNetwork().GetEnabled(), Allow: source.GetNetwork().GetAllow(), StepEnv: source.GetStepEnv(),
		NoCache: source.GetNoCache(), Secrets: source.GetSecrets(), StepTimeout: time.Duration(source.GetStepTimeoutMs()) * time.Millisecond,
	}, files, func(event build.Event) { _ = emit(buildEvent(event)) })
}

func buildEvent(event build.Event) *enginev1.MakeImageEvent {
	switch x := event.(type) {
	case build.Step:
		return &enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Step{Step: &enginev1.BuildStep{
			Number: uint32(x.Number), Total: uint32(x.Total), Text: x.Text, Cached: x.Cached,
		}}}
	case build.Log:
		return &enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Log{Log: &enginev1.BuildLog{Data: x.Data, Stderr: x.Stderr}}}
	case build.Progress:
		return &enginev1.MakeImageEvent{Event: &enginev1.MakeImageEvent_Progress{Progress: &enginev1.BuildProgress{
			What: x.What, DoneBytes: x.Done, TotalBytes: x.Total,
		}}}
	}
	return &enginev1.MakeImageEvent{}
}

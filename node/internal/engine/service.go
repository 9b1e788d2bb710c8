// Package engine serves atoll.engine.v1.Engine over a node's boxes.
package engine

import (
	"context"
	"errors"
	"io"
	"runtime"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/box"
	"atoll/node/internal/image"
	"atoll/node/internal/spool"
)

// Service answers the engine's calls.
type Service struct {
	enginev1.UnsafeEngineServer

	Node   *box.Node
	Images *image.Store
	// Makes makes images; nil: this engine only has them.
	Makes  *ImageMaker
	Claims *Claims
	// Facts about this engine.
	Instance       string
	EngineVersion  string
	RuntimeVersion string
	CgroupVersion  int
	DataDir        string
	StartedAt      time.Time
	Warnings       []string
	// SnapshotKey is what this installation signs its snapshots with.
	SnapshotKey string
	// RuntimeVersions are the builds that the node can restore, the current one first.
	// Runtimes are those that boxes can ask for, the first is what they get where they ask for none.
	Runtimes        []*enginev1.Runtime
	RuntimeVersions func() []string
}

// toStatus maps our faults to gRPC's codes.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	var f *box.Fault
	if errors.As(err, &f) {
		if f.Kind == box.Paused {
			return &pausedError{status.New(codes.FailedPrecondition, err.Error())}
		}
		return status.Error(codeOf(f.Kind), err.Error())
	}
	var refusal *box.Refusal
	if errors.As(err, &refusal) {
		return status.Error(refusal.Code, refusal.Message)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, spool.ErrForgotten):
		return status.Error(codes.NotFound, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

func codeOf(kind box.FaultKind) codes.Code {
	switch kind {
	case box.NotFound:
		return codes.NotFound
	case box.AlreadyExists:
		return codes.AlreadyExists
	case box.Invalid:
		return codes.InvalidArgument
	case box.FailedPrecondition, box.Paused:
		return codes.FailedPrecondition
	case box.Unsupported:
		return codes.Unimplemented
	case box.Exhausted:
		return codes.ResourceExhausted
	case box.Unavailable:
		return codes.Unavailable
	case box.Internal:
		return codes.Internal
	}
	return codes.Unknown
}

// GetInfo says what the node has and lacks.
func (s *Service) GetInfo(context.Context, *enginev1.GetInfoRequest) (*enginev1.EngineInfo, error) {
	space, err := box.HostSpace(s.DataDir)
	if err != nil {
		return nil, toStatus(err)
	}
	_, problems := s.Images.List()
	return &enginev1.EngineInfo{
		Instance: s.Instance, EngineVersion: s.EngineVersion, RuntimeVersion: s.RuntimeVersion, CgroupVersion: uint32(s.CgroupVersion),
		MemoryTotalBytes: space.MemoryTotal, MemoryAvailableBytes: space.MemoryAvailable,
		DiskTotalBytes: space.DiskTotal, DiskAvailableBytes: space.DiskAvailable,
		Cpus: uint32(runtime.NumCPU()), Boxes: uint32(len(s.Node.List())), StartedAtUnixMs: s.StartedAt.UnixMilli(),
		Recipes: s.Makes.recipes(), Runtimes: s.Runtimes, ClaimedEpoch: s.Claims.Current(), SnapshotKey: s.SnapshotKey, RuntimeVersions: s.RuntimeVersions(), Warnings: append(append([]string{}, s.Warnings...), problems...),
	}, nil
}

// Claim makes a server this node's owner.
func (s *Service) Claim(_ context.Context, r *enginev1.ClaimRequest) (*enginev1.ClaimReply, error) {
	if err := s.Claims.Claim(r.GetEpoch()); err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.ClaimReply{}, nil
}

// ListImages lists the complete images.
func (s *Service) ListImages(context.Context, *enginev1.ListImagesRequest) (*enginev1.ListImagesReply, error) {
	images, _ := s.Images.List()
	reply := &enginev1.ListImagesReply{}
	for _, i := range images {
		// A bare one is only there for others to be built on.
		if !i.Metadata.Bare {
			reply.Images = append(reply.Images, imageMessage(i))
		}
	}
	return reply, nil
}

// CreateBox makes a box.
func (s *Service) CreateBox(ctx context.Context, r *enginev1.CreateBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Create(ctx, r)
	return b, toStatus(err)
}

// AssignBox gives a box its sandbox's identity.
func (s *Service) AssignBox(ctx context.Context, r *enginev1.AssignBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Assign(ctx, r)
	return b, toStatus(err)
}

// UpdateLimits changes the limits of a live box.
func (s *Service) UpdateLimits(ctx context.Context, r *enginev1.UpdateLimitsRequest) (*enginev1.Box, error) {
	b, err := s.Node.UpdateLimits(ctx, r.GetBoxId(), r.GetLimits())
	return b, toStatus(err)
}

// GetBox returns a box as it is.
func (s *Service) GetBox(_ context.Context, r *enginev1.BoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Get(r.GetBoxId())
	return b, toStatus(err)
}

// ListBoxes lists all boxes.
func (s *Service) ListBoxes(context.Context, *enginev1.ListBoxesRequest) (*enginev1.ListBoxesReply, error) {
	return &enginev1.ListBoxesReply{Boxes: s.Node.List()}, nil
}

// DeleteBox ends and removes a box.
func (s *Service) DeleteBox(ctx context.Context, r *enginev1.BoxRequest) (*enginev1.DeleteBoxReply, error) {
	if err := s.Node.Delete(ctx, r.GetBoxId()); err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.DeleteBoxReply{}, nil
}

// WatchBoxes sends every box as it is, then each change.
func (s *Service) WatchBoxes(_ *enginev1.WatchBoxesRequest, stream grpc.ServerStreamingServer[enginev1.Box]) error {
	subscription := s.Node.Subscribe()
	defer s.Node.Unsubscribe(subscription)
	for {
		b, err := subscription.Next(stream.Context())
		if err != nil {
			return toStatus(err)
		}
		if err := stream.Send(b); err != nil {
			return err
		}
	}
}

// OpenContext starts an interpreter.
func (s *Service) OpenContext(ctx context.Context, r *enginev1.OpenContextRequest) (*execv1.Context, error) {
	c, err := s.Node.OpenContext(ctx, r.GetBoxId(), r.GetSpec())
	return c, toStatus(err)
}

// RestartContext starts an interpreter afresh.
func (s *Service) RestartContext(ctx context.Context, r *enginev1.ContextRequest) (*execv1.Context, error) {
	c, err := s.Node.RestartContext(ctx, r.GetBoxId(), r.GetContextId())
	return c, toStatus(err)
}

// CloseContext ends an interpreter.
func (s *Service) CloseContext(ctx context.Context, r *enginev1.ContextRequest) (*enginev1.CloseContextReply, error) {
	if err := s.Node.CloseContext(ctx, r.GetBoxId(), r.GetContextId()); err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.CloseContextReply{}, nil
}

// ListContexts lists a box's interpreters.
func (s *Service) ListContexts(_ context.Context, r *enginev1.BoxRequest) (*enginev1.ListContextsReply, error) {
	contexts, err := s.Node.Contexts(r.GetBoxId())
	if err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.ListContextsReply{Contexts: contexts}, nil
}

// Execute starts an execution and sends what it says.
func (s *Service) Execute(r *enginev1.ExecuteRequest, stream grpc.ServerStreamingServer[execv1.ExecutionEvent]) error {
	log, err := s.Node.Execute(stream.Context(), r.GetBoxId(), r.GetSpec())
	if err != nil {
		return toStatus(err)
	}
	if r.GetConfirm() {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	return send(log, 0, stream)
}

// Attach sends what an execution says after a seq.
func (s *Service) Attach(r *enginev1.AttachRequest, stream grpc.ServerStreamingServer[execv1.ExecutionEvent]) error {
	log, err := s.Node.Output(stream.Context(), r.GetBoxId(), r.GetExecutionId())
	if err != nil {
		return toStatus(err)
	}
	return send(log, r.GetAfterSeq(), stream)
}

func send(log *spool.Log, after uint64, stream grpc.ServerStreamingServer[execv1.ExecutionEvent]) error {
	reader := log.Read(after)
	defer reader.Close()
	for {
		event, err := reader.Next(stream.Context())
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return toStatus(err)
		}
		if err := stream.Send(event); err != nil {
			return err
		}
	}
}

// Interrupt ends a running or queued execution.
func (s *Service) Interrupt(ctx context.Context, r *enginev1.InterruptRequest) (*enginev1.InterruptReply, error) {
	if err := s.Node.Interrupt(ctx, r.GetBoxId(), r.GetExecutionId()); err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.InterruptReply{}, nil
}

// ListExecutions lists what the node holds.
func (s *Service) ListExecutions(_ context.Context, r *enginev1.ListExecutionsRequest) (*enginev1.ListExecutionsReply, error) {
	return &enginev1.ListExecutionsReply{Executions: s.Node.Executions(r.GetBoxId())}, nil
}

// ReadOutput sends the bytes of one stream, or of both as they came, from an offset on.
func (s *Service) ReadOutput(r *enginev1.ReadOutputRequest, stream grpc.ServerStreamingServer[enginev1.OutputPiece]) error {
	switch r.GetStream() {
	case execv1.Stream_STREAM_STDOUT, execv1.Stream_STREAM_STDERR, execv1.Stream_STREAM_COMBINED:
	default:
		return status.Errorf(codes.InvalidArgument, "stream: %v (expected: STREAM_STDOUT, STREAM_STDERR or STREAM_COMBINED)", r.GetStream())
	}
	log, err := s.Node.Output(stream.Context(), r.GetBoxId(), r.GetExecutionId())
	if err != nil {
		return toStatus(err)
	}
	reader := log.Read(0)
	defer reader.Close()
	position := position{stream: r.GetStream()}
	for {
		event, err := nextOrReady(stream.Context(), reader, r.GetFollow())
		if err == io.EOF || (err == nil && event == nil) {
			return nil
		}
		if err != nil {
			return toStatus(err)
		}
		if piece := position.piece(event, r.GetOffset()); piece != nil {
			if err := stream.Send(piece); err != nil {
				return err
			}
		}
	}
}

func nextOrReady(ctx context.Context, reader *spool.Reader, follow bool) (*execv1.ExecutionEvent, error) {
	if follow {
		return reader.Next(ctx)
	}
	return reader.Ready()
}

// position follows a log from its beginning, and is how far it is in the stream that is read: one of the two, or both together.
type position struct {
	stream execv1.Stream
	at     uint64
}

// piece returns what of an event belongs to the stream and lies after an offset.
func (p *position) piece(event *execv1.ExecutionEvent, after uint64) *enginev1.OutputPiece {
	output, gap := event.GetOutput(), event.GetGap()
	if (output == nil || !p.has(output.GetStream())) && (gap == nil || !p.has(gap.GetStream())) {
		return nil
	}
	from := p.at
	p.at += uint64(len(output.GetData())) + gap.GetBytes()
	if p.at <= after {
		return nil
	}
	skipped := max(after, from) - from
	if gap != nil {
		return &enginev1.OutputPiece{Offset: p.at, GapBytes: gap.GetBytes() - skipped}
	}
	return &enginev1.OutputPiece{Offset: from + skipped, Data: output.GetData()[skipped:]}
}

func (p *position) has(stream execv1.Stream) bool {
	return p.stream == stream || p.stream == execv1.Stream_STREAM_COMBINED
}

// ForgetExecutions drops what the server has on record.
func (s *Service) ForgetExecutions(_ context.Context, r *enginev1.ForgetExecutionsRequest) (*enginev1.ForgetExecutionsReply, error) {
	if err := s.Node.Forget(r.GetExecutionIds(), r.GetKeepSpool()); err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.ForgetExecutionsReply{}, nil
}

var _ enginev1.EngineServer = (*Service)(nil)

// Version of the engine, set when it is built.
var Version = "development"

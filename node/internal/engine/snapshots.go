package engine

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/box"
)

// StateKey is the trailer of a call that failed because its box is paused: once it is resumed, the same call can be made again.
const StateKey = "atoll-box-state"

var pausedTrailer = metadata.Pairs(StateKey, "paused")

// pausedError is the status of such a call.
type pausedError struct{ *status.Status }

func (p *pausedError) Error() string { return p.Err().Error() }

// GRPCStatus is what the caller gets.
func (p *pausedError) GRPCStatus() *status.Status { return p.Status }

func isPaused(err error) bool {
	if err == nil {
		return false
	}
	var p *pausedError
	return errors.As(err, &p)
}

// tellPaused sets the trailer of unary calls.
func tellPaused(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, request)
	if isPaused(err) {
		// It fails only outside a call.
		_ = grpc.SetTrailer(ctx, pausedTrailer)
	}
	return reply, err
}

// tellPausedStream sets the trailer of streaming calls.
func tellPausedStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(server, stream)
	if isPaused(err) {
		stream.SetTrailer(pausedTrailer)
	}
	return err
}

// PrepareBox makes all of a box but what runs in it.
func (s *Service) PrepareBox(ctx context.Context, r *enginev1.PrepareBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Prepare(ctx, r)
	return b, toStatus(err)
}

// RestoreBox brings a snapshot to life as a new box.
func (s *Service) RestoreBox(ctx context.Context, r *enginev1.RestoreBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Restore(ctx, r)
	return b, toStatus(err)
}

// PauseBox writes a box to the disk and frees its memory.
func (s *Service) PauseBox(ctx context.Context, r *enginev1.PauseBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Pause(ctx, r.GetBoxId(), r.GetSnapshotId(), r.GetKind())
	return b, toStatus(err)
}

// ResumeBox goes on with a paused box.
func (s *Service) ResumeBox(ctx context.Context, r *enginev1.ResumeBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Resume(ctx, r)
	return b, toStatus(err)
}

// RollbackBox puts a box back to a snapshot of itself.
func (s *Service) RollbackBox(ctx context.Context, r *enginev1.RollbackBoxRequest) (*enginev1.Box, error) {
	b, err := s.Node.Rollback(ctx, r)
	return b, toStatus(err)
}

// SetDeadline has a box end by itself at a moment.
func (s *Service) SetDeadline(ctx context.Context, r *enginev1.SetDeadlineRequest) (*enginev1.Box, error) {
	b, err := s.Node.SetDeadline(ctx, r.GetBoxId(), r.GetDeadlineUnixMs())
	return b, toStatus(err)
}

// CreateSnapshot writes what a box is at this moment.
func (s *Service) CreateSnapshot(ctx context.Context, r *enginev1.CreateSnapshotRequest) (*enginev1.Snapshot, error) {
	snapshot, err := s.Node.CreateSnapshot(ctx, r)
	return snapshot, toStatus(err)
}

// ListSnapshots lists those that are whole, without the pauses of boxes.
func (s *Service) ListSnapshots(context.Context, *enginev1.ListSnapshotsRequest) (*enginev1.ListSnapshotsReply, error) {
	return &enginev1.ListSnapshotsReply{Snapshots: s.Node.Snapshots()}, nil
}

// DeleteSnapshot removes a snapshot.
func (s *Service) DeleteSnapshot(_ context.Context, r *enginev1.SnapshotRequest) (*enginev1.DeleteSnapshotReply, error) {
	if err := s.Node.DeleteSnapshot(r.GetSnapshotId()); err != nil {
		return nil, toStatus(err)
	}
	return &enginev1.DeleteSnapshotReply{}, nil
}

// filePart is how much of a snapshot's file goes in one message.
const filePart = 256 << 10

// ExportSnapshot sends a snapshot as one file.
func (s *Service) ExportSnapshot(r *enginev1.SnapshotRequest, stream grpc.ServerStreamingServer[enginev1.FilePart]) error {
	return toStatus(s.Node.ExportSnapshot(stream.Context(), r.GetSnapshotId(), &partWriter{stream: stream}))
}

// partWriter sends what is written in messages.
type partWriter struct {
	stream grpc.ServerStreamingServer[enginev1.FilePart]
}

func (w *partWriter) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		part := data[:min(len(data), filePart)]
		if err := w.stream.Send(&enginev1.FilePart{Data: part}); err != nil {
			return written, err
		}
		written += len(part)
		data = data[len(part):]
	}
	return written, nil
}

// ImportSnapshot takes a snapshot's file.
func (s *Service) ImportSnapshot(stream grpc.ClientStreamingServer[enginev1.ImportSnapshotRequest, enginev1.Snapshot]) error {
	first, err := stream.Recv()
	if err != nil || first.GetBegin() == nil {
		return status.Error(codes.InvalidArgument, "the first message of an import has no begin")
	}
	snapshot, err := s.Node.ImportSnapshot(stream.Context(), first.GetBegin(), &partReader{stream: stream})
	if err != nil {
		return toStatus(err)
	}
	return stream.SendAndClose(snapshot)
}

// partReader reads what comes in messages.
type partReader struct {
	stream grpc.ClientStreamingServer[enginev1.ImportSnapshotRequest, enginev1.Snapshot]
	rest   []byte
}

func (r *partReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.stream.Recv()
		if err == io.EOF {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		if m.GetBegin() != nil {
			return 0, &box.Fault{Kind: box.Invalid, Message: "an import begins twice"}
		}
		r.rest = m.GetData()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

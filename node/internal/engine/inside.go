package engine

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/box"
)

// AnsweredKey is the trailer of a call whose status is what the sandbox's agent answered, of its files, programs and ports. Without it, a
// status is the engine's, of boxes: FAILED_PRECONDITION is then an ended box, not a folder that isn't one.
const AnsweredKey = "atoll-answered"

var answeredTrailer = metadata.Pairs(AnsweredKey, "agent")

func answeredInside(err error) bool {
	var refusal *box.Refusal
	return errors.As(err, &refusal)
}

// inside is toStatus for calls that a sandbox's agent answers.
func inside(ctx context.Context, err error) error {
	if answeredInside(err) {
		// It fails only outside a call.
		_ = grpc.SetTrailer(ctx, answeredTrailer)
	}
	return toStatus(err)
}

func insideStream(stream grpc.ServerStream, err error) error {
	if answeredInside(err) {
		stream.SetTrailer(answeredTrailer)
	}
	return toStatus(err)
}

// StartProcess starts a program.
func (s *Service) StartProcess(ctx context.Context, r *enginev1.StartProcessRequest) (*execv1.Process, error) {
	p, err := s.Node.StartProcess(ctx, r.GetBoxId(), r.GetSpec())
	return p, inside(ctx, err)
}

// GetProcess returns a process as it is.
func (s *Service) GetProcess(ctx context.Context, r *enginev1.ProcessRequest) (*execv1.Process, error) {
	p, err := s.Node.Process(ctx, r.GetBoxId(), r.GetProcessId())
	return p, toStatus(err)
}

// ListProcesses lists what the node holds.
func (s *Service) ListProcesses(ctx context.Context, r *enginev1.ListProcessesRequest) (*enginev1.ListProcessesReply, error) {
	return &enginev1.ListProcessesReply{Processes: s.Node.Processes(ctx, r.GetBoxId())}, nil
}

// WaitProcess returns a process when it has ended.
func (s *Service) WaitProcess(ctx context.Context, r *enginev1.ProcessRequest) (*execv1.Process, error) {
	p, err := s.Node.WaitProcess(ctx, r.GetBoxId(), r.GetProcessId())
	return p, toStatus(err)
}

// WriteInput gives a process something to read.
func (s *Service) WriteInput(ctx context.Context, r *enginev1.WriteInputRequest) (*execv1.WriteInputReply, error) {
	reply, err := s.Node.WriteInput(ctx, r.GetBoxId(), r.GetInput())
	return reply, inside(ctx, err)
}

// SignalProcess sends a signal.
func (s *Service) SignalProcess(ctx context.Context, r *enginev1.SignalProcessRequest) (*enginev1.SignalProcessReply, error) {
	if err := s.Node.Signal(ctx, r.GetBoxId(), r.GetSignal()); err != nil {
		return nil, inside(ctx, err)
	}
	return &enginev1.SignalProcessReply{}, nil
}

// ResizeTerminal changes a terminal's size.
func (s *Service) ResizeTerminal(ctx context.Context, r *enginev1.ResizeTerminalRequest) (*enginev1.ResizeTerminalReply, error) {
	if err := s.Node.Resize(ctx, r.GetBoxId(), r.GetResize()); err != nil {
		return nil, inside(ctx, err)
	}
	return &enginev1.ResizeTerminalReply{}, nil
}

// ListGuestProcesses lists all that runs in a sandbox.
func (s *Service) ListGuestProcesses(ctx context.Context, r *enginev1.BoxRequest) (*execv1.ListGuestProcessesReply, error) {
	reply, err := s.Node.GuestProcesses(ctx, r.GetBoxId())
	return reply, inside(ctx, err)
}

// File does one operation on files.
func (s *Service) File(ctx context.Context, r *enginev1.FileCall) (*filev1.FileReply, error) {
	reply, err := s.Node.File(ctx, r.GetBoxId(), r.GetRequest())
	return reply, inside(ctx, err)
}

// ReadFile sends a file.
func (s *Service) ReadFile(r *enginev1.ReadFileCall, stream grpc.ServerStreamingServer[filev1.FilePiece]) error {
	return insideStream(stream, s.Node.ReadFile(stream.Context(), r.GetBoxId(), r.GetRequest(), encoded(stream, &filev1.FilePiece{})))
}

// WatchFiles sends what happens to files.
func (s *Service) WatchFiles(r *enginev1.WatchFilesCall, stream grpc.ServerStreamingServer[filev1.FileEvent]) error {
	return insideStream(stream, s.Node.WatchFiles(stream.Context(), r.GetBoxId(), r.GetRequest(), encoded(stream, &filev1.FileEvent{})))
}

// encoded sends messages that are encoded already: as the unknown fields of an empty one, which come out as they went in.
func encoded[M proto.Message](stream grpc.ServerStream, empty M) func([]byte) error {
	return func(raw []byte) error {
		empty.ProtoReflect().SetUnknown(raw)
		// Encoded, with a copy of the bytes, when it returns.
		return stream.SendMsg(empty)
	}
}

// WriteFile takes a file.
func (s *Service) WriteFile(stream grpc.ClientStreamingServer[enginev1.WriteFileCall, filev1.WriteFileReply]) error {
	first, err := stream.Recv()
	if err != nil {
		return status.Error(codes.InvalidArgument, "an upload without a first message")
	}
	parts := &uploadParts{stream: stream}
	reply, err := s.Node.WriteFile(stream.Context(), first.GetBoxId(), first.GetRequest(), parts.next, parts.sent)
	if err != nil {
		return insideStream(stream, err)
	}
	return stream.SendAndClose(reply)
}

// ListPorts lists what a sandbox listens on.
func (s *Service) ListPorts(ctx context.Context, r *enginev1.BoxRequest) (*execv1.ListPortsReply, error) {
	reply, err := s.Node.Ports(ctx, r.GetBoxId())
	return reply, inside(ctx, err)
}

// Tunnel carries one TCP connection.
func (s *Service) Tunnel(stream grpc.BidiStreamingServer[enginev1.TunnelCall, execv1.TunnelMessage]) error {
	first, err := stream.Recv()
	if err != nil {
		return status.Error(codes.InvalidArgument, "a tunnel without a first message")
	}
	next := func() (*execv1.TunnelMessage, error) {
		m, err := stream.Recv()
		return m.GetMessage(), err
	}
	return insideStream(stream, s.Node.Tunnel(stream.Context(), first.GetBoxId(), first.GetMessage(), next, encoded(stream, &execv1.TunnelMessage{})))
}

// SampleUsage says what every live box uses.
func (s *Service) SampleUsage(context.Context, *enginev1.SampleUsageRequest) (*enginev1.SampleUsageReply, error) {
	return &enginev1.SampleUsageReply{Boxes: s.Node.Usage(time.Now())}, nil
}

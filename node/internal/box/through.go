package box

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

// What only the agent can answer is passed through. Replies go on as the bytes that they came as: to take them apart here would cost
// copies, and a hostile guest could make a small message a large one. All that is checked is their size, and how many parts they have
// (each costs the receiver far more than the two bytes that it may be sent as).
const (
	maxReplyBytes = 4 << 20
	maxReplyParts = 25_000
	// One message from a caller.
	maxCallerPiece = 4 << 20
	// A piece of data that goes to the agent in one frame, with what surrounds it.
	framePiece = 64<<10 - 64
	// So much of what a caller has sent goes to the agent at once, where it is there already.
	burst = 256 << 10
)

func (n *Node) call(ctx context.Context, boxID, method string, request, reply proto.Message) error {
	b, l, err := n.enter(ctx, boxID)
	if err != nil {
		return err
	}
	defer l.leave()
	ctx, cancel := withLimit(ctx)
	defer cancel()
	return b.orOver(answered(frame.Call(ctx, l.session, method, request, reply)))
}

// orOver is a call's error, or the end of the box where that came meanwhile.
func (b *box) orOver(err error) error {
	if err == nil {
		return nil
	}
	return b.unlessOver(err)
}

// withLimit gives a call an end where its caller has set none.
func withLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// File does one operation on files.
func (n *Node) File(ctx context.Context, boxID string, request *filev1.FileRequest) (*filev1.FileReply, error) {
	reply := &filev1.FileReply{}
	return reply, n.passOne(ctx, boxID, agentrpc.File, request, reply)
}

// GuestProcesses lists what runs in a sandbox.
func (n *Node) GuestProcesses(ctx context.Context, boxID string) (*execv1.ListGuestProcessesReply, error) {
	reply := &execv1.ListGuestProcessesReply{}
	return reply, n.passOne(ctx, boxID, agentrpc.ListGuestProcesses, &agentv1.Empty{}, reply)
}

// Ports lists what a sandbox listens on.
func (n *Node) Ports(ctx context.Context, boxID string) (*execv1.ListPortsReply, error) {
	reply := &execv1.ListPortsReply{}
	return reply, n.passOne(ctx, boxID, agentrpc.ListPorts, &agentv1.Empty{}, reply)
}

// passOne calls the agent and puts its reply, unread, into an empty message.
func (n *Node) passOne(ctx context.Context, boxID, method string, request, reply proto.Message) error {
	ctx, cancel := withLimit(ctx)
	defer cancel()
	replies := 0
	err := n.passMany(ctx, boxID, method, request, func(raw []byte) error {
		replies++
		// The bytes are the frame layer's again when this returns.
		reply.ProtoReflect().SetUnknown(append([]byte(nil), raw...))
		return nil
	})
	if err == nil && replies != 1 {
		return fault(Internal, "the sandbox's agent gave %d replies to one call", replies)
	}
	return err
}

// ReadFile sends a file, piece by piece. The bytes that send gets are an encoded FilePiece, and are its own only until it returns.
func (n *Node) ReadFile(ctx context.Context, boxID string, request *filev1.ReadFileRequest, send func(raw []byte) error) error {
	return n.passMany(ctx, boxID, agentrpc.ReadFile, request, send)
}

// WatchFiles sends what happens to files, as encoded FileEvents.
func (n *Node) WatchFiles(ctx context.Context, boxID string, request *filev1.WatchFilesRequest, send func(raw []byte) error) error {
	return n.passMany(ctx, boxID, agentrpc.WatchFiles, request, send)
}

// passMany calls the agent and passes on what it sends, at the pace of who takes it.
func (n *Node) passMany(ctx context.Context, boxID, method string, request proto.Message, send func(raw []byte) error) error {
	b, l, err := n.enter(ctx, boxID)
	if err != nil {
		return err
	}
	if method == agentrpc.WatchFiles {
		// It may last for ever: a pause doesn't wait for it.
		l.leave()
	} else {
		defer l.leave()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.session.Open(ctx, method)
	if err != nil {
		return b.orOver(answered(err))
	}
	// The agent may have ended the call before it read the request: its answer counts.
	if err := stream.SendLast(request); err != nil && !errors.Is(err, frame.ErrEnded) {
		return b.orOver(answered(err))
	}
	return b.orOver(b.passOn(stream, send))
}

// passOn passes on what comes over a stream until it ends.
func (b *box) passOn(stream *frame.Stream, send func(raw []byte) error) error {
	for {
		err := stream.ReceiveBytes(func(raw []byte) error {
			if err := checkReply(raw); err != nil {
				b.logger.Warn("message of the agent is not passed on", "method", stream.Method(), "error", err)
				return fault(Internal, "the sandbox's agent sent what can't be passed on: %v", err)
			}
			if err := send(raw); err != nil {
				return &callerGone{err}
			}
			return nil
		})
		var mine *Fault
		var gone *callerGone
		switch {
		case err == nil:
		case err == io.EOF:
			return nil
		case errors.As(err, &mine):
			return mine
		case errors.As(err, &gone):
			return gone.err
		default:
			return answered(err)
		}
	}
}

// callerGone wraps the error of who was to get something.
type callerGone struct{ err error }

func (c *callerGone) Error() string { return c.err.Error() }

func checkReply(raw []byte) error {
	if len(raw) > maxReplyBytes {
		return fault(Internal, "%d bytes (expected: at most %d)", len(raw), maxReplyBytes)
	}
	for parts := 0; len(raw) > 0; parts++ {
		_, _, length := protowire.ConsumeField(raw)
		if length < 0 {
			return protowire.ParseError(length)
		}
		if parts >= maxReplyParts {
			return fault(Internal, "more than %d parts", maxReplyParts)
		}
		raw = raw[length:]
	}
	return nil
}

// WriteFile passes a file on to the agent. next yields the caller's messages after the first, and io.EOF. sent gets each of them back, in
// their order, once its bytes are not needed any more; not those that the end of the call overtakes. nil: they are left to the collector.
func (n *Node) WriteFile(ctx context.Context, boxID string, open *filev1.WriteFileRequest, next func() (*filev1.WriteFileRequest, error),
	sent func(*filev1.WriteFileRequest)) (*filev1.WriteFileReply, error) {
	if open.GetOpen() == nil {
		return nil, fault(Invalid, "the first message of an upload has no open")
	}
	committed := false
	split := func(m *filev1.WriteFileRequest) ([]proto.Message, error) {
		switch {
		case committed:
			return nil, fault(Invalid, "an upload goes on after its commit")
		case m.GetCommit() != nil:
			committed = true
			return []proto.Message{m}, nil
		case m.GetOpen() != nil || m.GetMessage() == nil:
			return nil, fault(Invalid, "a message of an upload that is neither data nor commit")
		}
		return pieces(m.GetData(), func(data []byte) proto.Message {
			return &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: data}}
		})
	}
	ended := func() (proto.Message, error) {
		if !committed {
			return nil, &Refusal{Code: codes.Canceled, Message: "the upload was broken off: it ended without a commit"}
		}
		return nil, nil
	}
	reply := &filev1.WriteFileReply{}
	replies := 0
	err := passBoth(ctx, n, boxID, agentrpc.WriteFile, open, next, sent, split, ended, func(raw []byte) error {
		replies++
		reply.ProtoReflect().SetUnknown(append([]byte(nil), raw...))
		return nil
	})
	if err == nil && replies != 1 {
		return nil, fault(Internal, "the sandbox's agent gave %d replies to an upload", replies)
	}
	return reply, err
}

// Tunnel carries one TCP connection. next yields the caller's messages after the first, and io.EOF; send gets encoded TunnelMessages.
func (n *Node) Tunnel(ctx context.Context, boxID string, open *execv1.TunnelMessage, next func() (*execv1.TunnelMessage, error), send func(raw []byte) error) error {
	if port := open.GetOpen().GetPort(); port < 1 || port > 65535 {
		return fault(Invalid, "port: %d (expected: 1 to 65535, in the first message of a tunnel)", port)
	}
	over := false
	split := func(m *execv1.TunnelMessage) ([]proto.Message, error) {
		switch {
		case over:
			return nil, fault(Invalid, "a tunnel goes on after its end")
		case m.GetEnd() != nil:
			over = true
			return []proto.Message{m}, nil
		case m.GetOpen() != nil || m.GetOpened() != nil || m.GetMessage() == nil:
			return nil, fault(Invalid, "a message of a tunnel that is neither data nor end")
		}
		return pieces(m.GetData(), func(data []byte) proto.Message {
			return &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: data}}
		})
	}
	ended := func() (proto.Message, error) {
		if over {
			return nil, nil
		}
		return &execv1.TunnelMessage{Message: &execv1.TunnelMessage_End{End: &execv1.TunnelEnd{}}}, nil
	}
	return passBoth(ctx, n, boxID, agentrpc.Tunnel, open, next, nil, split, ended, send)
}

// pieces cuts data so that each piece goes in one frame.
func pieces(data []byte, wrap func([]byte) proto.Message) ([]proto.Message, error) {
	if len(data) > maxCallerPiece {
		return nil, fault(Invalid, "data: %d bytes in one message (expected: at most %d)", len(data), maxCallerPiece)
	}
	var all []proto.Message
	for len(data) > 0 {
		size := min(len(data), framePiece)
		all = append(all, wrap(data[:size]))
		data = data[size:]
	}
	return all, nil
}

// passBoth passes messages on in both directions, each at the pace of who takes them, until the agent has ended the call, or the caller
// has gone. split checks a caller's message and cuts it for the agent; ended yields what is to be said when the caller has no more; for
// next and sent see WriteFile.
func passBoth[M proto.Message](ctx context.Context, n *Node, boxID, method string, open M, next func() (M, error), sent func(M),
	split func(M) ([]proto.Message, error), ended func() (proto.Message, error), send func(raw []byte) error) error {
	b, l, err := n.enter(ctx, boxID)
	if err != nil {
		return err
	}
	if method == agentrpc.Tunnel {
		l.leave()
	} else {
		defer l.leave()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := l.session.Open(ctx, method)
	if err != nil {
		return b.orOver(answered(err))
	}
	arrived := make(chan arrival[M], 4)
	go func() {
		// Ends with the caller's stream, which ends when this call returns.
		for {
			m, err := next()
			select {
			case arrived <- arrival[M]{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		if err := feed(ctx, stream, open, arrived, sent, split, ended); err != nil {
			cancel(err)
		}
	}()
	err = b.passOn(stream, send)
	// What is wrong with the caller's side has ended the stream to the agent, and is the better reason.
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return b.orOver(err)
}

type arrival[M proto.Message] struct {
	message M
	err     error
}

// feed sends a caller's messages to the agent, several in one write where they are there already. It returns an error only for what the
// caller did wrong: if the agent has ended the call, or the connection is lost, that is for who receives to say.
func feed[M proto.Message](ctx context.Context, stream *frame.Stream, open M, arrived <-chan arrival[M], sent func(M),
	split func(M) ([]proto.Message, error), ended func() (proto.Message, error)) error {
	batch := []proto.Message{open}
	var taken []M
	for {
		size := 0
		for size < burst {
			var a arrival[M]
			if len(batch) == 0 {
				select {
				case a = <-arrived:
				case <-ctx.Done():
					return nil
				}
			} else {
				select {
				case a = <-arrived:
				default:
					size = burst
					continue
				}
			}
			if a.err != nil && a.err != io.EOF {
				return a.err
			}
			if a.err == io.EOF {
				last, err := ended()
				if err != nil {
					return err
				}
				if last != nil {
					batch = append(batch, last)
				}
				_ = stream.SendLast(batch...)
				return nil
			}
			cut, err := split(a.message)
			if err != nil {
				return err
			}
			batch = append(batch, cut...)
			if sent != nil {
				taken = append(taken, a.message)
			}
			size += proto.Size(a.message)
		}
		if stream.SendAll(batch...) != nil {
			return nil
		}
		// Each was encoded, with a copy of its bytes, when SendAll returned.
		clear(batch)
		batch = batch[:0]
		for _, m := range taken {
			sent(m)
		}
		clear(taken)
		taken = taken[:0]
	}
}

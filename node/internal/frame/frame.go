// Package frame carries concurrent streams of protobuf messages over the two pipes of a sandbox.
package frame

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"
)

var errUnfinished = errors.New("frame: not written yet")

// HostOptions configure Connect.
type HostOptions struct {
	// Epoch of this host, above every epoch the guest has served before.
	Epoch uint64
	// Key authenticates RESET.
	Key [32]byte
	// MaxMessage bounds a message in bytes; 0 means 16 MiB.
	MaxMessage int
}

// GuestOptions configure Serve.
type GuestOptions struct {
	Key [32]byte
	// Handler serves one stream; it runs in a goroutine of its own and calls End.
	Handler    func(*Stream)
	MaxMessage int
	// OnReset is called when a host has taken over, after the older streams have ended and before the host is answered. May be nil.
	OnReset func(epoch uint64)
}

// Session is the host's side of a connection to a guest.
type Session struct{}

// Connect takes the guest over. It does not own r and w: the caller closes them after Session.Close.
func Connect(ctx context.Context, r io.Reader, w io.Writer, o HostOptions) (*Session, error) {
	return nil, errUnfinished
}

// Serve answers hosts until ctx ends or a pipe fails.
func Serve(ctx context.Context, r io.Reader, w io.Writer, o GuestOptions) error { return errUnfinished }

func (s *Session) Open(ctx context.Context, method string) (*Stream, error) { return nil, errUnfinished }
func (s *Session) Done() <-chan struct{}                                    { return nil }
func (s *Session) Err() error                                               { return errUnfinished }
func (s *Session) Close() error                                             { return nil }

// Stream is one call.
type Stream struct{}

func (s *Stream) Method() string                    { return "" }
func (s *Stream) Context() context.Context          { return context.Background() }
func (s *Stream) Send(m proto.Message) error        { return errUnfinished }
func (s *Stream) SendAll(ms ...proto.Message) error { return errUnfinished }
func (s *Stream) Receive(m proto.Message) error     { return errUnfinished }
func (s *Stream) CloseSend() error                  { return errUnfinished }
func (s *Stream) End(err error)                     {}
func (s *Stream) Cancel()                           {}

// Reply sends m and ends the stream with OK, in one write.
func (s *Stream) Reply(m proto.Message) error { return errUnfinished }

// Call is one request and one reply.
func Call[Req, Reply proto.Message](ctx context.Context, s *Session, method string, req Req, reply Reply) error {
	return errUnfinished
}

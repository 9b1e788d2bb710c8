package frame

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
)

// ErrReset ends the guest's streams when another host takes over.
var ErrReset = errors.New("frame: another host has taken over")

// ErrClosed is the error of a session after Close.
var ErrClosed = errors.New("frame: session is closed")

// ErrEnded is the error of sending on a stream that has ended well.
var ErrEnded = errors.New("frame: the stream has ended")

// Status is how a stream ended when it did not end well.
type Status struct {
	Code    codes.Code
	Message string
}

func (s *Status) Error() string { return fmt.Sprintf("%s: %s", s.Code, s.Message) }

// Is makes a status that came from a context match that context's error.
func (s *Status) Is(target error) bool {
	switch target {
	case context.Canceled:
		return s.Code == codes.Canceled
	case context.DeadlineExceeded:
		return s.Code == codes.DeadlineExceeded
	}
	return false
}

// StatusOf maps any error of this package to a status code; nil is OK, an error without a code is UNKNOWN.
func StatusOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	var status *Status
	if errors.As(err, &status) {
		return status.Code
	}
	var broken interface{ sessionEnded() }
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, ErrReset), errors.Is(err, ErrClosed), errors.As(err, &broken):
		return codes.Unavailable
	}
	return codes.Unknown
}

// ProtocolError ends a session whose peer broke the protocol, or whose bytes were lost on the way.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "frame: the peer broke the protocol: " + e.Reason }
func (e *ProtocolError) sessionEnded() {}

// EpochError says that the guest has served a host of a higher epoch (or another of the same): this one is replaced, or came too late.
type EpochError struct {
	Offered uint64
	Guest   uint64
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("frame: epoch %d is over, the guest serves epoch %d", e.Offered, e.Guest)
}
func (e *EpochError) sessionEnded() {}

// PipeError ends a session whose pipe failed.
type PipeError struct {
	Doing string
	Err   error
}

func (e *PipeError) Error() string {
	return fmt.Sprintf("frame: %s the other side: %v", e.Doing, e.Err)
}
func (e *PipeError) Unwrap() error { return e.Err }
func (e *PipeError) sessionEnded() {}

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
	var violation *ProtocolError
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, ErrReset), errors.Is(err, ErrClosed), errors.As(err, &violation):
		return codes.Unavailable
	}
	return codes.Unknown
}

// ProtocolError ends a session whose peer broke the protocol.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "frame: the peer broke the protocol: " + e.Reason }

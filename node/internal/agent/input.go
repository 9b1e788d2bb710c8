package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/frame"
)

const (
	maxInputBytes = 256 << 10
	// How long a program may leave its input unread before the caller hears how much of it was taken.
	inputPatience = 5 * time.Second
)

// input is what a process reads. Writes are made one after the other, in the order in which they come.
type input struct {
	file     *os.File
	terminal bool
	turn     chan struct{} // holds the right to write

	mu      sync.Mutex
	written uint64 // position of the next byte; guarded by mu
	closed  bool   // the end was sent, by the caller; guarded by mu
	ended   bool   // the process has; guarded by mu
	last    byte   // written last; guarded by mu
	// Where a terminal was given its end-of-file character last, so that a repeated write does not give it again. Guarded by mu.
	endedLineAt  uint64
	hasEndedLine bool
}

func newInput(file *os.File, terminal bool) *input {
	return &input{file: file, terminal: terminal, turn: make(chan struct{}, 1)}
}

func (in *input) position() (offset uint64, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.written, in.closed || in.ended
}

// end takes no more input: the process has ended.
func (in *input) end() {
	in.mu.Lock()
	in.ended = true
	in.mu.Unlock()
	if !in.terminal {
		_ = in.file.Close() // a second time: it was closed by the caller
	}
}

// WriteInput writes to a process's input. It waits for a program that does not read, for as long as the caller says.
func (a *Agent) WriteInput(ctx context.Context, request *execv1.WriteInputRequest) (*execv1.WriteInputReply, error) {
	if len(request.Data) > maxInputBytes {
		return nil, &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("%d bytes of input (expected: at most %d)", len(request.Data), maxInputBytes)}
	}
	p, err := a.startedProcess(request.ProcessId)
	if err != nil {
		return nil, err
	}
	if p.input == nil {
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: "process " + request.ProcessId + " was started without an input"}
	}
	a.noteActivity()
	reply, err := p.input.write(ctx, request)
	var status *frame.Status
	if err != nil && !errors.As(err, &status) {
		err = &frame.Status{Code: codes.FailedPrecondition, Message: "process " + request.ProcessId + ": " + err.Error()}
	}
	return reply, err
}

func (in *input) write(ctx context.Context, request *execv1.WriteInputRequest) (*execv1.WriteInputReply, error) {
	patience := inputPatience
	if request.WaitMs > 0 {
		patience = time.Duration(request.WaitMs) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-ctx.Done():
		offset, closed := in.position()
		return &execv1.WriteInputReply{Offset: offset, Closed: closed}, nil
	}
	in.mu.Lock()
	position, closed, ended := in.written, in.closed, in.ended
	in.mu.Unlock()
	data := request.Data
	if request.Offset != nil {
		if *request.Offset > position {
			return nil, fmt.Errorf("its input has come to byte %d (offset: %d)", position, *request.Offset)
		}
		data = data[min(position-*request.Offset, uint64(len(data))):]
	}
	switch {
	case len(data) == 0 && (!request.Close || closed || ended):
		return &execv1.WriteInputReply{Offset: position, Closed: closed || ended}, nil
	case closed:
		return nil, fmt.Errorf("its input was closed at byte %d", position)
	case ended:
		return nil, errors.New("it has ended")
	}
	n, err := in.put(ctx, data)
	in.mu.Lock()
	in.written += uint64(n)
	if n > 0 {
		in.last = data[n-1]
	}
	reply := &execv1.WriteInputReply{Offset: in.written}
	in.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if n < len(data) || !request.Close {
		return reply, nil
	}
	return in.close(ctx, request, reply)
}

// close ends the input, after all data was taken. Requires: the caller has the turn.
func (in *input) close(ctx context.Context, request *execv1.WriteInputRequest, reply *execv1.WriteInputReply) (*execv1.WriteInputReply, error) {
	reply.Closed = true
	in.mu.Lock()
	last := in.last
	repeated := in.hasEndedLine && in.endedLineAt == in.written && request.Offset != nil
	if !in.terminal {
		in.closed = true
	}
	in.mu.Unlock()
	if !in.terminal {
		_ = in.file.Close()
		return reply, nil
	}
	if repeated {
		return reply, nil
	}
	text := endOfFile(in.file, last)
	n, err := in.put(ctx, text)
	if err != nil {
		return nil, err
	}
	if n < len(text) {
		reply.Closed = false
		return reply, nil
	}
	in.mu.Lock()
	in.endedLineAt, in.hasEndedLine = in.written, true
	if len(text) > 0 {
		in.last = text[0]
	}
	in.mu.Unlock()
	return reply, nil
}

// put writes until all is taken or ctx ends, and says how much was.
func (in *input) put(ctx context.Context, data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	n, err := writeNow(in.file, data)
	if err == nil && n < len(data) {
		var more int
		more, err = in.wait(ctx, data[n:])
		n += more
	}
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return n, nil
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO):
		return n, errors.New("nobody reads its input any more")
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended || errors.Is(err, os.ErrClosed) {
		return n, errors.New("it has ended")
	}
	return n, err
}

// writeNow writes what there is room for.
func writeNow(file *os.File, data []byte) (written int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		written, failed = frame.WriteNow(fd, data)
		if errors.Is(failed, unix.EAGAIN) {
			failed = nil
		}
		return true
	})
	return written, errors.Join(err, failed)
}

func (in *input) wait(ctx context.Context, data []byte) (int, error) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = in.file.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := in.file.Write(data)
	if !stop() {
		// The next writer must not meet this one's deadline.
		<-over
		_ = in.file.SetWriteDeadline(time.Time{})
	}
	return n, err
}

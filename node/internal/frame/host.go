package frame

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// HostOptions configure Connect.
type HostOptions struct {
	// Epoch of this host, above every epoch the guest has served before.
	Epoch uint64
	// Key authenticates RESET; the guest has the same.
	Key [32]byte
	// MaxMessage bounds a message from the guest in bytes; 0 means 16 MiB.
	MaxMessage int
}

const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 4 * time.Second
)

// handshake is what the two halves of Connect share.
type handshake struct {
	mu       sync.Mutex
	attempt  uint32 // last attempt whose writing has begun
	answered bool
	result   chan error // of the reading half
	stop     chan struct{}
}

// begin starts another attempt unless an answer is there.
func (h *handshake) begin() (uint32, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answered {
		return 0, false
	}
	h.attempt++
	return h.attempt, true
}

// answer says whether an answer is to the last attempt. If another one is under way, the guest will start anew at that.
func (h *handshake) answer(attempt uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answered || attempt != h.attempt {
		return false
	}
	h.answered = true
	return true
}

// Connect takes the guest over: it ends the streams of every session before. It returns when the guest has answered, or with the
// context's error; a guest that has not been started yet answers once it runs.
//
// r and w must know deadlines (OpenFIFO, os.Pipe, net.Conn) or be closers. They stay the caller's and may be used for another Connect
// after Close or a failed Connect.
func Connect(ctx context.Context, r io.Reader, w io.Writer, o HostOptions) (*Session, error) {
	if err := checkEnds(r, w); err != nil {
		return nil, err
	}
	s := &Session{
		host: true, epoch: o.Epoch, limit: o.MaxMessage, streams: map[uint64]*Stream{},
		pipes: pipes{r, w}, done: make(chan struct{}), stopped: make(chan struct{}),
		receiveBudget: hostWindowBudget,
	}
	if s.limit <= 0 {
		s.limit = defaultMaxMessage
	}
	s.loanBudget = 4 * s.limit
	_, _ = rand.Read(s.nonce[:]) // never fails
	s.writer = newWriter(w, polled(w), false, func(err error) { s.fail(&PipeError{"writing to", err}) })
	s.writer.session = s
	h := &handshake{result: make(chan error, 1), stop: make(chan struct{})}
	source := newSource(r)
	unblocked := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(unblocked)
		unblock(r, w)
	})

	go s.read(source, h)
	written := make(chan error, 1)
	go func() { written <- s.reset(h, o.Key) }()

	var err error
	select {
	case err = <-h.result:
		if err == nil {
			// The answer was to the last attempt, so this is over or about to be.
			err = <-written
		} else {
			unblock(r, w)
			close(h.stop)
			<-written
		}
	case err = <-written:
		if err == nil {
			err = <-h.result
		}
	}
	if !unwatch() {
		<-unblocked
		err = errors.Join(contextStatus(ctx.Err()), err)
	}
	if err != nil {
		s.fail(err)
		<-s.stopped
		return nil, err
	}
	return s, nil
}

func checkEnds(r io.Reader, w io.Writer) error {
	if err := allow(r, w); err != nil {
		return fmt.Errorf("frame: a pipe without deadlines (open it with OpenFIFO): %w", err)
	}
	for _, end := range []any{r, w} {
		_, reads := end.(interface{ SetReadDeadline(time.Time) error })
		_, closes := end.(io.Closer)
		if !reads && !closes {
			return fmt.Errorf("frame: %T knows neither deadlines nor Close", end)
		}
	}
	return nil
}

// reset sends RESET until it is answered.
//
// The zero bytes before it end whatever frame the host before left unfinished: the guest takes them for the missing part, sees a wrong
// checksum, and looks for RESET. Between frames they are skipped. A frame of the host before can't be completed by RESET itself,
// as there are more zeros than a frame has bytes.
func (s *Session) reset(h *handshake, key [32]byte) error {
	wait := firstRetry
	for {
		attempt, ok := h.begin()
		if !ok {
			return nil
		}
		request := resetRequest{nonce: s.nonce, attempt: attempt, maxMessage: uint32(s.limit)}
		b := newBuffer(1 << maxBufferBits)
		b.b = b.b[:maxFrame]
		clear(b.b)
		b.b = appendFrame(b.b, header{kind: kindReset, epoch: s.epoch}, request.append(nil, &key, s.epoch))
		_, err := s.pipes.w.Write(b.b)
		b.release()
		if err != nil {
			return &PipeError{"writing to", err}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-h.stop:
			timer.Stop()
			return nil
		}
		wait = min(2*wait, lastRetry)
	}
}

// read drops everything up to the guest's answer, then takes its frames until the session ends.
func (s *Session) read(source *source, h *handshake) {
	defer close(s.stopped)
	p := &parser{source: source, lost: true}
	defer p.close()
	p.prove = func(head header, payload []byte) bool {
		reply, ok := parseResetReply(payload)
		known := head.kind == kindResetAck && head.epoch == s.epoch || head.kind == kindResetRefused
		return known && ok && reply.nonce == s.nonce && h.answer(reply.attempt)
	}
	head, payload, err := p.next()
	if err != nil {
		h.result <- &PipeError{"reading from", err}
		return
	}
	reply, _ := parseResetReply(payload)
	if head.kind == kindResetRefused {
		h.result <- &EpochError{Offered: s.epoch, Guest: reply.epoch}
		return
	}
	s.sendLimit = int(reply.maxMessage)
	s.streamLimit = min(int(reply.maxStreams), maxStreams)
	s.sendBudget = int(reply.window)
	close(h.stop)
	h.result <- nil
	s.fail(s.readFrames(p))
}

func (s *Session) readFrames(p *parser) error {
	expected := uint32(1)
	for {
		h, payload, err := p.next()
		var lost lostError
		switch {
		case errors.As(err, &lost):
			return violation("%s", string(lost))
		case err != nil:
			return &PipeError{"reading from", err}
		case h.kind == kindResetRefused:
			// Answers a host that came too late.
			continue
		case h.epoch > s.epoch, h.kind == kindResetAck:
			return &EpochError{Offered: s.epoch, Guest: h.epoch}
		case h.epoch < s.epoch:
			return violation("frame of epoch %d in epoch %d", h.epoch, s.epoch)
		case h.kind == kindAbort:
			return violation("the guest gave up: %q", truncate(string(payload), 200))
		case h.sequence != expected:
			return violation("frame %d came where frame %d was due: another process reads from this pipe", h.sequence, expected)
		}
		expected++
		if err := s.handle(h, payload); err != nil {
			return err
		}
	}
}

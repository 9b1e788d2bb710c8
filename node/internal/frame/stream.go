package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

var (
	errSendClosed = errors.New("frame: sending on this stream was closed")
	errChanged    = errors.New("frame: the message changed while it was sent")
)

// Stream is one call: messages in both directions. A stream must be received to its end or cancelled; until then it holds a share of
// the session's memory budget. Send, SendAll, CloseSend, Reply may be used beside Receive; Receive is for one goroutine at a time.
type Stream struct {
	session *Session
	id      uint64
	method  string
	ctx     context.Context
	cancel  context.CancelFunc
	// nil but for a method that is served in order
	place *place
	// unwatch ends the watch on the caller's context; nil on the guest
	unwatch func() bool
	// windows that were agreed when it was opened
	sendWindow    int
	receiveWindow int

	// sending is held for the length of one message, so that fragments of two never mix.
	sending sync.Mutex

	// guarded by the writer's mu
	opened    bool
	silent    bool
	dueCredit int

	// guarded by session.mu
	credit     int   // bytes that may be sent
	sendErr    error // why nothing can be sent any more
	sendWake   chan struct{}
	queue      []message
	queueStart int
	receiveErr error // what Receive returns once the queue is empty
	wake       chan struct{}
	// bytes the peer may still send, and those it may send again but has not been told so
	peerCredit int
	returned   int
	partial    partial
	gone       bool // not in session.streams any more
	settled    bool // its share of the budget is returned
}

type message struct {
	buffer *buffer
	cost   int // credit that goes back once it is received
	loan   int
}

// partial is a message of which fragments are missing. Its fragments get their credit back at once if the session could lend the
// whole size from its budget; else they count in the stream's window until others have returned theirs.
type partial struct {
	buffer *buffer
	total  int
	held   int
	lent   bool
}

// Method is the name the host opened the stream with.
func (st *Stream) Method() string { return st.method }

// Context ends with the stream.
func (st *Stream) Context() context.Context { return st.ctx }

// Send sends one message. It returns when the message is on its way, which says nothing about its arrival.
func (st *Stream) Send(m proto.Message) error { return st.send(m, false) }

// SendLater is Send for what nobody waits for: it goes with whatever is sent next on the session, or after laterDelay.
func (st *Stream) SendLater(m proto.Message) error { return st.send(m, true) }

func (st *Stream) send(m proto.Message, later bool) error {
	size := proto.Size(m)
	if !st.whole(size) {
		return st.sendLarge(m, size, parcel{stream: st})
	}
	st.sending.Lock()
	defer st.sending.Unlock()
	if err := st.acquire(size + headerLength); err != nil {
		return err
	}
	one := [1]proto.Message{m}
	return st.put(&parcel{stream: st, messages: one[:], size: size + headerLength, later: later})
}

// SendAll sends messages, in as few writes as their sizes and the peer's window allow.
func (st *Stream) SendAll(ms ...proto.Message) error {
	st.sending.Lock()
	defer st.sending.Unlock()
	return st.sendAll(ms, parcel{stream: st})
}

// Reply sends a guest's last message and ends the stream with OK, in one write if the message is no larger than a frame.
func (st *Stream) Reply(m proto.Message) error {
	st.sending.Lock()
	err := st.sendAll([]proto.Message{m}, parcel{stream: st, end: &Status{}})
	st.sending.Unlock()
	if err == nil {
		st.finish(ErrEnded)
	}
	return err
}

// CloseSend says that no more messages follow from the host.
func (st *Stream) CloseSend() error {
	st.sending.Lock()
	defer st.sending.Unlock()
	s := st.session
	s.mu.Lock()
	err := st.sendErr
	if err == nil {
		st.sendErr = errSendClosed
	}
	s.mu.Unlock()
	if err != nil {
		if errors.Is(err, errSendClosed) {
			return nil
		}
		return err
	}
	return st.explain(s.writer.control(&parcel{stream: st, halfClose: true, size: st.openSize() + headerLength}))
}

// SendLast is SendAll and CloseSend in one: what fits goes in one write.
func (st *Stream) SendLast(ms ...proto.Message) error {
	if len(ms) == 0 {
		return st.CloseSend()
	}
	st.sending.Lock()
	defer st.sending.Unlock()
	if err := st.sendAll(ms, parcel{stream: st, halfClose: true}); err != nil {
		return err
	}
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.sendErr == nil {
		st.sendErr = errSendClosed
	}
	return nil
}

// Requires sending. last carries what follows the last message.
func (st *Stream) sendAll(ms []proto.Message, last parcel) error {
	for len(ms) > 0 {
		count, cost := 0, 0
		size := 0
		for count < len(ms) {
			size = proto.Size(ms[count])
			if !st.whole(size) || cost+size+headerLength > st.sendWindow/2 {
				break
			}
			cost += size + headerLength
			count++
		}
		if count == 0 {
			p := parcel{stream: st}
			if len(ms) == 1 {
				p = last
			}
			if err := st.sendFragments(ms[0], size, p); err != nil {
				return err
			}
			ms = ms[1:]
			continue
		}
		if err := st.acquire(cost); err != nil {
			return err
		}
		p := parcel{stream: st}
		if count == len(ms) {
			p = last
		}
		p.messages = ms[:count]
		p.size = cost
		if err := st.put(&p); err != nil {
			return err
		}
		ms = ms[count:]
	}
	return nil
}

func (st *Stream) sendLarge(m proto.Message, size int, last parcel) error {
	st.sending.Lock()
	defer st.sending.Unlock()
	return st.sendFragments(m, size, last)
}

func (st *Stream) sendFragments(m proto.Message, size int, last parcel) error {
	if limit := st.session.sendLimit; size > limit {
		return &Status{codes.ResourceExhausted, fmt.Sprintf("message of %d bytes, at most %d are allowed", size, limit)}
	}
	whole := newBuffer(size)
	defer whole.release()
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(whole.b, m)
	if err != nil {
		return err
	}
	if len(b) != size {
		return errChanged
	}
	whole.b = b
	step := min(maxPayload, st.sendWindow/2-headerLength)
	flags := uint8(flagFirst | flagMore)
	for len(b) > 0 {
		length := step
		extra := 0
		if flags&flagFirst != 0 {
			extra = 4
		}
		length = min(length-extra, len(b))
		p := parcel{stream: st}
		if length == len(b) {
			flags &^= flagMore
			p = last
		}
		p.fragment, p.total, p.flags = b[:length], size, flags
		p.size = headerLength + extra + length
		if err := st.acquire(p.size); err != nil {
			return err
		}
		if err := st.put(&p); err != nil {
			return err
		}
		b = b[length:]
		flags &^= flagFirst
	}
	return nil
}

// whole says whether a message of this size goes in one frame. At least half the window always comes back by itself (the peer returns
// what has been received once it is half a window), so what needs no more than that can't wait for ever.
func (st *Stream) whole(size int) bool {
	return size <= maxPayload && size+headerLength <= st.sendWindow/2
}

// acquire waits for the peer's credit.
func (st *Stream) acquire(cost int) error {
	s := st.session
	for {
		s.mu.Lock()
		if st.sendErr != nil {
			err := st.sendErr
			s.mu.Unlock()
			return err
		}
		if st.credit >= cost {
			st.credit -= cost
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		<-st.sendWake
	}
}

func (st *Stream) put(p *parcel) error {
	p.size += st.openSize()
	if p.halfClose {
		p.size += headerLength
	}
	if p.end != nil {
		p.size += headerLength + 4 + min(len(p.end.Message), maxStatusMessage)
	}
	return st.explain(st.session.writer.send(p, st.ctx.Done()))
}

func (st *Stream) openSize() int {
	if st.session.host {
		return headerLength + 8 + len(st.method)
	}
	return 0
}

// explain replaces the writer's error by the reason for which the stream ended, if there is one.
func (st *Stream) explain(err error) error {
	if err == nil {
		return nil
	}
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.sendErr != nil && !errors.Is(st.sendErr, errSendClosed) {
		return st.sendErr
	}
	if s.err != nil {
		return s.err
	}
	if cancelled := st.ctx.Err(); cancelled != nil {
		return contextStatus(cancelled)
	}
	return err
}

// flush writes the OPEN frame if no message has done it yet.
func (st *Stream) flush() error {
	if !st.session.host {
		return nil
	}
	w := st.session.writer
	w.mu.Lock()
	opened := st.opened || st.silent
	w.mu.Unlock()
	if opened {
		return nil
	}
	return st.explain(w.control(&parcel{stream: st, size: st.openSize()}))
}

// Receive waits for the next message. It returns io.EOF after the peer's clean end (or half-close) and *Status after any other end.
func (st *Stream) Receive(m proto.Message) error {
	b, err := st.receive()
	if err != nil {
		return err
	}
	err = proto.Unmarshal(b.b, m)
	b.release()
	if err != nil {
		st.Cancel()
		return &Status{codes.Internal, "the peer sent bytes that are no such message: " + err.Error()}
	}
	return nil
}

// ReceiveBytes is Receive for who passes messages on unread: use gets the next one as it came, until it returns. An error of its own ends
// the stream.
func (st *Stream) ReceiveBytes(use func(encoded []byte) error) error {
	b, err := st.receive()
	if err != nil {
		return err
	}
	err = use(b.b)
	b.release()
	if err != nil {
		st.Cancel()
	}
	return err
}

func (st *Stream) receive() (*buffer, error) {
	s := st.session
	flushed := false
	for {
		s.mu.Lock()
		if st.queueStart < len(st.queue) {
			next := st.queue[st.queueStart]
			st.queue[st.queueStart] = message{}
			st.queueStart++
			if st.queueStart == len(st.queue) {
				st.queue, st.queueStart = st.queue[:0], 0
			}
			s.receivedLocked(st, next)
			return next.buffer, nil
		}
		if err := st.receiveErr; err != nil {
			s.mu.Unlock()
			return nil, err
		}
		s.mu.Unlock()
		if !flushed {
			if err := st.flush(); err != nil {
				return nil, err
			}
			flushed = true
			continue
		}
		<-st.wake
	}
}

// End ends a guest's stream: OK for nil, else the status in err, or UNKNOWN with its text. A Send in progress fails.
// Only the first end of a stream counts.
func (st *Stream) End(err error) { st.end(err, false) }

// EndLater is End for a stream whose end nobody waits for: see SendLater.
func (st *Stream) EndLater(err error) { st.end(err, true) }

func (st *Stream) end(err error, later bool) {
	status := &Status{}
	if err != nil && !errors.As(err, &status) {
		status = &Status{StatusOf(err), err.Error()}
	}
	if !st.finish(ErrEnded) {
		return
	}
	// After finish, a sender in progress leaves soon; what it has put before comes before the end.
	st.sending.Lock()
	defer st.sending.Unlock()
	size := headerLength + 4 + min(len(status.Message), maxStatusMessage)
	_ = st.session.writer.end(&parcel{stream: st, end: status, size: size, later: later})
}

// Cancel ends the stream at once: what has not been received is dropped, the peer's Context is cancelled.
func (st *Stream) Cancel() {
	st.abort(&Status{codes.Canceled, "the stream was cancelled here"})
}

func (st *Stream) abort(reason error) {
	if st.finish(reason) {
		_ = st.session.writer.control(&parcel{stream: st, cancel: true, size: headerLength})
	}
}

// finish ends the stream on this side and reports false if it had ended before.
func (st *Stream) finish(reason error) bool {
	s := st.session
	s.mu.Lock()
	first := !st.gone
	s.dropLocked(st, reason)
	s.mu.Unlock()
	st.cancelContext()
	return first
}

func (st *Stream) cancelContext() {
	if st.unwatch != nil {
		st.unwatch()
	}
	st.cancel()
}

// Call sends one request and receives one reply. The request, its stream's opening and half-close are one write.
func Call[Req, Reply proto.Message](ctx context.Context, s *Session, method string, req Req, reply Reply) error {
	st, err := s.Open(ctx, method)
	if err != nil {
		return err
	}
	st.sending.Lock()
	err = st.sendAll([]proto.Message{req}, parcel{stream: st, halfClose: true})
	st.sending.Unlock()
	// The guest may have ended the call before it read all of the request: its answer counts.
	if err != nil && st.ended() == nil {
		st.Cancel()
		return err
	}
	if err := st.Receive(reply); err != nil {
		st.Cancel()
		if err == io.EOF { // not a pipe's end of file, which comes wrapped
			return &Status{codes.Internal, "the call ended without a reply"}
		}
		return err
	}
	b, err := st.receive()
	if err == nil {
		b.release()
		st.Cancel()
		return &Status{codes.Internal, "more than one reply to a call"}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// ended returns what Receive will return at last, or nil while the stream lives.
func (st *Stream) ended() error {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.receiveErr
}

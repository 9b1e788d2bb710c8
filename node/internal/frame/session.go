package frame

import (
	"context"
	"fmt"
	"io"
	"sync"

	"encoding/binary"

	"google.golang.org/grpc/codes"
)

const (
	defaultMaxMessage = 16 << 20
	// maxWindow is a stream's window while the budget is ample; minWindow what every stream gets, however many there are.
	maxWindow = 256 << 10
	minWindow = 8 << 10
	// Budgets for windows, over all streams of a session: what unread messages may hold at most (and minWindow for each stream on top).
	hostWindowBudget  = 32 << 20
	guestWindowBudget = 8 << 20
	maxStreams        = 4096
)

// Session is the host's side of a connection to a guest.
type Session struct {
	host      bool
	epoch     uint64
	writer    *writer
	sendLimit int // bytes in a message we send
	limit     int // bytes in a message we take
	// guest only
	handler func(*Stream)
	// inOrder are the methods that are served in order; lastTurn is for the goroutine that reads
	inOrder  []string
	lastTurn <-chan struct{}
	ctx      context.Context
	stop     context.CancelFunc
	// host only
	nonce   [nonceLength]byte
	pipes   pipes
	done    chan struct{}
	stopped chan struct{} // the reader has ended

	mu sync.Mutex
	// fields below are guarded by mu
	err        error
	streams    map[uint64]*Stream
	lastStream uint64
	// streams whose memory is accounted for, ended ones with unread messages included
	unsettled   int
	streamLimit int
	// what is left of the budgets; the host keeps those of both sides
	receiveBudget int
	sendBudget    int
	loanBudget    int
	borrowers     []*Stream // waiting for a loan, first come first served
}

type pipes struct {
	r io.Reader
	w io.Writer
}

// share gives a stream its window: an eighth of what is left, so that a few streams have all they need and thousands still fit.
func share(left int) int {
	return min(max(left/8&^1023, minWindow), maxWindow)
}

// Open begins a stream. It goes out with the stream's first message (or at the first Receive), in one write. The stream ends when ctx does.
func (s *Session) Open(ctx context.Context, method string) (*Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, contextStatus(err)
	}
	if method == "" || len(method) > maxMethod {
		return nil, &Status{codes.InvalidArgument, fmt.Sprintf("method name of %d bytes (allowed: 1 to %d)", len(method), maxMethod)}
	}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	if s.unsettled >= s.streamLimit {
		defer s.mu.Unlock()
		return nil, &Status{codes.ResourceExhausted, fmt.Sprintf("%d streams are open, no more are allowed", s.unsettled)}
	}
	s.lastStream++
	st := newStream(s, s.lastStream, method, share(s.sendBudget), share(s.receiveBudget))
	st.ctx, st.cancel = context.WithCancel(ctx)
	s.sendBudget -= st.sendWindow
	s.receiveBudget -= st.receiveWindow
	s.unsettled++
	s.streams[st.id] = st
	if ctx.Done() != nil {
		// Under the lock: the stream may be ended by another goroutine as soon as it is known.
		st.unwatch = context.AfterFunc(ctx, func() { st.abort(contextStatus(ctx.Err())) })
	}
	s.mu.Unlock()
	return st, nil
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session has ended, nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and its streams, and waits until the pipes are not used any more. It leaves them open: they are the caller's.
// The guest does not hear of it before the next Connect.
func (s *Session) Close() error {
	s.fail(ErrClosed)
	<-s.stopped
	s.writer.drained.Wait()
	return nil
}

func newStream(s *Session, id uint64, method string, sendWindow, receiveWindow int) *Stream {
	return &Stream{
		session: s, id: id, method: method,
		sendWindow: sendWindow, receiveWindow: receiveWindow,
		credit: sendWindow, peerCredit: receiveWindow,
		wake: make(chan struct{}, 1), sendWake: make(chan struct{}, 1),
	}
}

func contextStatus(err error) *Status {
	return &Status{StatusOf(err), err.Error()}
}

// fail ends the session with its streams; only the first reason counts.
func (s *Session) fail(reason error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = reason
	ended := make([]*Stream, 0, len(s.streams))
	for _, st := range s.streams {
		ended = append(ended, st)
	}
	for _, st := range ended {
		s.dropLocked(st, reason)
	}
	s.mu.Unlock()
	for _, st := range ended {
		st.cancelContext()
	}
	if s.host {
		s.writer.close(reason)
		unblock(s.pipes.r, s.pipes.w)
		close(s.done)
		return
	}
	s.stop()
}

// handle takes a frame that belongs to this session. An error is a violation of the protocol by the peer.
func (s *Session) handle(h header, payload []byte) error {
	switch h.kind {
	case kindOpen:
		return s.accept(h, payload)
	case kindData:
		return s.data(h, payload)
	}
	s.mu.Lock()
	st := s.streams[h.stream]
	if st == nil {
		defer s.mu.Unlock()
		return s.strangerLocked(h.stream)
	}
	switch {
	case h.kind == kindWindow && len(payload) == 4:
		defer s.mu.Unlock()
		credit := int(binary.LittleEndian.Uint32(payload))
		if credit > st.sendWindow-st.credit {
			return violation("stream %d was given more credit than its window", st.id)
		}
		st.credit += credit
		poke(st.sendWake)
		return nil
	case h.kind == kindHalfClose && len(payload) == 0 && !s.host:
		defer s.mu.Unlock()
		if st.receiveErr != nil || st.partial.buffer != nil {
			return violation("half-close of stream %d at a wrong moment", st.id)
		}
		st.receiveErr = io.EOF
		poke(st.wake)
		return nil
	case h.kind == kindEnd && s.host:
		status, ok := parseStatus(payload)
		if !ok || status.Code == codes.OK && st.partial.buffer != nil {
			s.mu.Unlock()
			return violation("broken end of stream %d", st.id)
		}
		s.endLocked(st, status)
		s.mu.Unlock()
		st.cancelContext()
		return nil
	case h.kind == kindCancel && len(payload) == 0:
		s.dropLocked(st, &Status{codes.Canceled, "the stream was cancelled by the peer"})
		s.mu.Unlock()
		st.cancelContext()
		s.writer.silence(st)
		return nil
	}
	s.mu.Unlock()
	return violation("frame of kind %d with %d bytes for stream %d", h.kind, len(payload), h.stream)
}

// strangerLocked judges a frame for a stream that isn't there: the peer may not know yet that it has ended.
func (s *Session) strangerLocked(id uint64) error {
	if s.host && (id == 0 || id > s.lastStream) {
		return violation("frame for stream %d, which was never opened", id)
	}
	return nil
}

// accept begins a stream on the guest.
func (s *Session) accept(h header, payload []byte) error {
	guestSends, hostSends, method, ok := parseOpen(payload)
	if s.host || !ok || h.stream == 0 {
		return violation("broken opening of stream %d", h.stream)
	}
	st := newStream(s, h.stream, method, guestSends, hostSends)
	st.ctx, st.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	_, exists := s.streams[st.id]
	full := len(s.streams) >= s.streamLimit
	if !exists && !full {
		s.streams[st.id] = st
	}
	s.mu.Unlock()
	switch {
	case exists:
		st.cancel()
		return violation("stream %d was opened twice", st.id)
	case full:
		st.cancel()
		status := &Status{codes.ResourceExhausted, "too many streams are open"}
		_ = s.writer.control(&parcel{stream: st, end: status, size: headerLength + 4 + len(status.Message)})
		return nil
	}
	s.takeTurn(st)
	go func() {
		s.handler(st)
		st.End(&Status{codes.Internal, "the handler of " + method + " left its stream open"})
		st.leaveTurn()
	}()
	return nil
}

func (s *Session) data(h header, payload []byte) error {
	whole := h.flags == 0
	var copied *buffer
	if whole {
		// The usual case is copied outside the lock; whether it goes on from a fragment is seen inside.
		copied = newBuffer(len(payload))
		copied.b = append(copied.b, payload...)
	}
	s.mu.Lock()
	st := s.streams[h.stream]
	if st == nil {
		defer s.mu.Unlock()
		copied.release()
		return s.strangerLocked(h.stream)
	}
	cost := len(payload) + headerLength
	if cost > st.peerCredit {
		defer s.mu.Unlock()
		return violation("stream %d sent more than its credit", st.id)
	}
	if st.receiveErr != nil {
		defer s.mu.Unlock()
		return violation("data on stream %d after its half-close", st.id)
	}
	st.peerCredit -= cost
	if whole && st.partial.buffer == nil {
		st.queue = append(st.queue, message{buffer: copied, cost: cost})
		poke(st.wake)
		s.mu.Unlock()
		return nil
	}
	copied.release()
	credit, err := s.fragmentLocked(st, h.flags, payload, cost)
	s.mu.Unlock()
	if credit > 0 {
		s.writer.window(st, credit)
	}
	return err
}

// fragmentLocked takes one fragment and returns the credit that may be told to the peer.
func (s *Session) fragmentLocked(st *Stream, flags uint8, payload []byte, cost int) (int, error) {
	p := &st.partial
	first := flags&flagFirst != 0
	more := flags&flagMore != 0
	if flags&^(flagFirst|flagMore) != 0 || first != (p.buffer == nil) || first && (!more || len(payload) < 5) || len(payload) == 0 {
		return 0, violation("fragments of stream %d out of order", st.id)
	}
	if first {
		total := int(binary.LittleEndian.Uint32(payload))
		payload = payload[4:]
		if total > s.limit {
			return 0, violation("message of %d bytes on stream %d, at most %d are allowed", total, st.id, s.limit)
		}
		// Room is made as the bytes come: an announcement alone costs nothing.
		*p = partial{buffer: newBuffer(min(total, 2*len(payload))), total: total}
		if len(s.borrowers) == 0 && total <= s.loanBudget {
			s.loanBudget -= total
			p.lent = true
		} else {
			s.borrowers = append(s.borrowers, st)
		}
	}
	have := len(p.buffer.b) + len(payload)
	if have > p.total || more == (have == p.total) {
		return 0, violation("fragments of stream %d do not add up to %d bytes", st.id, p.total)
	}
	if cap(p.buffer.b) < have {
		p.buffer = p.buffer.grown(min(p.total, 2*have) - len(p.buffer.b))
	}
	p.buffer.b = append(p.buffer.b, payload...)
	credit := 0
	if p.lent {
		credit = st.giveBack(cost)
	} else {
		p.held += cost
	}
	if more {
		return credit, nil
	}
	whole := message{buffer: p.buffer, cost: p.held}
	if p.lent {
		whole.loan = p.total
	} else {
		s.forgetBorrowerLocked(st)
	}
	*p = partial{}
	st.queue = append(st.queue, whole)
	poke(st.wake)
	return credit, nil
}

// giveBack returns the credit to be told to the peer now, which is at least half a window or nothing. Requires session.mu.
func (st *Stream) giveBack(cost int) int {
	if st.gone || st.receiveErr != nil {
		return 0
	}
	st.returned += cost
	if st.returned < st.receiveWindow/2 {
		return 0
	}
	credit := st.returned
	st.returned = 0
	st.peerCredit += credit
	return credit
}

// receivedLocked accounts for a message that was taken by the application. Requires mu, and releases it.
func (s *Session) receivedLocked(st *Stream, m message) {
	credit := st.giveBack(m.cost)
	s.loanBudget += m.loan
	s.settleLocked(st)
	lent := s.lendLocked()
	s.mu.Unlock()
	if credit > 0 {
		s.writer.window(st, credit)
	}
	s.tell(lent)
}

type grant struct {
	stream *Stream
	credit int
}

func (s *Session) lendLocked() []grant {
	var lent []grant
	for len(s.borrowers) > 0 && s.borrowers[0].partial.total <= s.loanBudget {
		st := s.borrowers[0]
		s.borrowers[0] = nil
		s.borrowers = s.borrowers[1:]
		s.loanBudget -= st.partial.total
		st.partial.lent = true
		if credit := st.giveBack(st.partial.held); credit > 0 {
			lent = append(lent, grant{st, credit})
		}
		st.partial.held = 0
	}
	return lent
}

func (s *Session) tell(lent []grant) {
	for _, g := range lent {
		s.writer.window(g.stream, g.credit)
	}
}

func (s *Session) forgetBorrowerLocked(st *Stream) {
	for i, other := range s.borrowers {
		if other == st {
			s.borrowers = append(s.borrowers[:i], s.borrowers[i+1:]...)
			return
		}
	}
}

// endLocked takes the guest's end of a stream: what it sent before can still be received.
func (s *Session) endLocked(st *Stream, status *Status) {
	st.gone = true
	delete(s.streams, st.id)
	st.receiveErr, st.sendErr = io.EOF, ErrEnded
	if status.Code != codes.OK {
		st.receiveErr, st.sendErr = status, status
	}
	s.dropPartialLocked(st)
	s.settleLocked(st)
	poke(st.wake)
	poke(st.sendWake)
}

// dropLocked ends a stream with everything that waits in it.
func (s *Session) dropLocked(st *Stream, reason error) {
	unread := st.queue[st.queueStart:]
	if !st.gone || len(unread) > 0 {
		st.receiveErr = reason
	}
	if !st.gone {
		st.gone = true
		st.sendErr = reason
		delete(s.streams, st.id)
	}
	for _, m := range unread {
		m.buffer.release()
		s.loanBudget += m.loan
	}
	st.queue, st.queueStart = nil, 0
	s.dropPartialLocked(st)
	s.settleLocked(st)
	poke(st.wake)
	poke(st.sendWake)
	// Loans that came back may serve others; their peers hear of it from the next message that is received.
	if len(s.borrowers) > 0 && s.err == nil {
		lent := s.lendLocked()
		if len(lent) > 0 {
			go s.tell(lent)
		}
	}
}

func (s *Session) dropPartialLocked(st *Stream) {
	p := &st.partial
	if p.buffer == nil {
		return
	}
	p.buffer.release()
	if p.lent {
		s.loanBudget += p.total
	} else {
		s.forgetBorrowerLocked(st)
	}
	*p = partial{}
}

// settleLocked returns a stream's share of the budgets once it has ended and nothing unread is left.
func (s *Session) settleLocked(st *Stream) {
	if !s.host || st.settled || !st.gone || st.queueStart < len(st.queue) {
		return
	}
	st.settled = true
	s.unsettled--
	s.sendBudget += st.sendWindow
	s.receiveBudget += st.receiveWindow
}

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func violation(format string, args ...any) error {
	return &ProtocolError{Reason: fmt.Sprintf(format, args...)}
}

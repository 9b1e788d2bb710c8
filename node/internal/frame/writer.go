package frame

import (
	"io"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
)

// batchLimit is how many bytes of frames may wait while a write is in progress.
const batchLimit = 120 << 10

// laterDelay is how long what nobody waits for may stay here. While calls come one after the other it goes out with the next of them,
// which saves a wake-up on the other side.
const laterDelay = 100 * time.Millisecond

// writer puts frames on the pipe: one write per batch. While the pipe is free the caller writes its own frames; what comes during a
// write is collected and goes out in one write after it, by a goroutine that ends when nothing is left.
//
// Fairness: when the collected batch is full, streams wait in a queue, each for one frame, so every stream gets its turn.
// Control frames never wait: they are small, and windows of one stream are added up.
type writer struct {
	out io.Writer
	// raw is set on a polled file: the caller then tries one write without waiting first.
	raw syscall.RawConn
	// mayBlock: a caller with a message may wait in the write itself (a guest, whose host always reads in the end).
	mayBlock bool
	// failed is told of the first error of the pipe, without mu.
	failed func(error)
	// drained waits for the goroutine that empties the queue.
	drained sync.WaitGroup

	mu sync.Mutex
	// fields below are guarded by mu
	// session whose frames are taken; frames of any other are refused
	session  *Session
	sequence uint32
	busy     bool
	// a timer is set that writes what may wait
	later bool
	next  *buffer
	due   []*Stream
	turns []*turn
	// bytes promised to turns that have been granted and not used yet
	reserved int
	err      error

	// state of the write attempt in progress, owned by the caller that is writing
	attempt func(fd uintptr) bool
	batch   []byte
	wrote   int
	tryErr  error
}

type turn struct {
	size    int
	granted bool
	ready   chan struct{}
}

// parcel is what a stream sends in one piece.
type parcel struct {
	stream *Stream
	// whole messages, one frame each, with their sizes already cached by proto.Size
	messages []proto.Message
	// or one fragment of a message of this total size
	fragment []byte
	total    int
	flags    uint8
	// afterwards
	halfClose bool
	end       *Status
	cancel    bool
	// it may wait a moment for company
	later bool
	// an upper bound of the bytes on the wire
	size int
}

func newWriter(out io.Writer, raw syscall.RawConn, mayBlock bool, failed func(error)) *writer {
	w := &writer{out: out, raw: raw, mayBlock: mayBlock, failed: failed, sequence: 1}
	w.attempt = func(fd uintptr) bool {
		for w.wrote < len(w.batch) {
			n, err := WriteNow(fd, w.batch[w.wrote:])
			if err != nil {
				if err != syscall.EAGAIN {
					w.tryErr = err
				}
				return true
			}
			w.wrote += n
		}
		return true
	}
	return w
}

// send puts a parcel with data on the pipe, after waiting for its turn or for quit.
func (w *writer) send(p *parcel, quit <-chan struct{}) error {
	w.mu.Lock()
	if w.busy && w.err == nil && (len(w.turns) > 0 || w.full(p.size)) {
		t := &turn{size: p.size, ready: make(chan struct{})}
		w.turns = append(w.turns, t)
		w.mu.Unlock()
		select {
		case <-t.ready:
			w.mu.Lock()
		case <-quit:
			w.mu.Lock()
			w.forget(t)
			w.mu.Unlock()
			return ErrEnded
		}
		w.reserved -= p.size
	}
	return w.put(p, w.mayBlock)
}

// control puts a parcel without data on the pipe. It never waits.
func (w *writer) control(p *parcel) error {
	w.mu.Lock()
	return w.put(p, false)
}

// end puts the last parcel of a guest's stream on the pipe. It waits for no turn, but may wait in the write itself.
func (w *writer) end(p *parcel) error {
	w.mu.Lock()
	return w.put(p, w.mayBlock)
}

// window returns credit to the peer. It never waits.
func (w *writer) window(st *Stream, credit int) {
	w.mu.Lock()
	if w.session != st.session || w.err != nil || st.silent {
		w.mu.Unlock()
		return
	}
	if st.dueCredit == 0 {
		w.due = append(w.due, st)
	}
	st.dueCredit += credit
	w.start(false)
}

// silence drops what may still come from a stream that the peer has ended.
func (w *writer) silence(st *Stream) {
	w.mu.Lock()
	st.silent = true
	w.mu.Unlock()
}

// bare writes frames of the session itself, which have no sequence number: they must get through whatever happened to the others.
func (w *writer) bare(h header, payload []byte) {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		return
	}
	w.appendBare(h, payload)
	w.start(false)
}

func (w *writer) appendBare(h header, payload []byte) {
	w.next = w.next.grown(max(headerLength+len(payload), 1<<minBufferBits))
	w.next.b = appendFrame(w.next.b, h, payload)
}

// reset drops what waits for the session before and takes the next one's frames, after a first frame.
func (w *writer) reset(session *Session, first header, payload []byte) {
	w.mu.Lock()
	w.dropLocked(session)
	if w.err != nil {
		w.mu.Unlock()
		return
	}
	w.appendBare(first, payload)
	w.start(false)
}

func (w *writer) dropLocked(session *Session) {
	w.session = session
	w.sequence = 1
	w.next.release()
	w.next = nil
	clear(w.due)
	w.due = w.due[:0]
	w.wakeAll()
}

// close makes every send fail with err.
func (w *writer) close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.dropLocked(nil)
}

func (w *writer) wakeAll() {
	for _, t := range w.turns {
		t.granted = true
		w.reserved += t.size
		close(t.ready)
	}
	w.turns = nil
}

func (w *writer) full(size int) bool {
	waiting := w.reserved
	if w.next != nil {
		waiting += len(w.next.b)
	}
	return waiting > 0 && waiting+size > batchLimit
}

// forget takes back a turn whose owner has given up.
func (w *writer) forget(t *turn) {
	if t.granted {
		w.reserved -= t.size
		w.grant()
		return
	}
	for i, other := range w.turns {
		if other == t {
			w.turns = append(w.turns[:i], w.turns[i+1:]...)
			return
		}
	}
}

func (w *writer) grant() {
	for len(w.turns) > 0 && !w.full(w.turns[0].size) {
		t := w.turns[0]
		w.turns[0] = nil
		w.turns = w.turns[1:]
		t.granted = true
		w.reserved += t.size
		close(t.ready)
	}
}

// put encodes the parcel and sees to its being written. Requires mu, and releases it.
func (w *writer) put(p *parcel, mayBlock bool) error {
	err := w.encode(p)
	if p.later && err == nil && !w.busy && len(w.turns) == 0 {
		if !w.later {
			w.later = true
			time.AfterFunc(laterDelay, w.flush)
		}
		w.mu.Unlock()
		return nil
	}
	// After an error too: the turns behind this one count on it.
	w.start(mayBlock)
	return err
}

// flush writes what has waited.
func (w *writer) flush() {
	w.mu.Lock()
	w.later = false
	w.start(false)
}

func (w *writer) encode(p *parcel) error {
	st := p.stream
	switch {
	case w.err != nil:
		return w.err
	case w.session != st.session:
		return ErrReset
	case st.silent:
		return ErrEnded
	}
	if p.cancel && st.session.host && !st.opened {
		// The peer has never heard of it.
		st.silent = true
		return nil
	}
	w.next = w.next.grown(max(p.size, 1<<minBufferBits))
	before, sequence := len(w.next.b), w.sequence
	opens := st.session.host && !st.opened
	if opens {
		w.frame(st, kindOpen, 0, appendOpen(nil, st.receiveWindow, st.sendWindow, st.method))
	}
	if err := w.encodeData(p); err != nil {
		w.next.b, w.sequence = w.next.b[:before], sequence
		return err
	}
	st.opened = true
	switch {
	case p.halfClose:
		w.frame(st, kindHalfClose, 0, nil)
	case p.end != nil:
		st.silent = true
		w.frame(st, kindEnd, 0, appendStatus(nil, p.end))
	case p.cancel:
		st.silent = true
		w.frame(st, kindCancel, 0, nil)
	}
	return nil
}

func (w *writer) encodeData(p *parcel) error {
	st := p.stream
	for _, m := range p.messages {
		start := len(w.next.b)
		b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(openFrame(w.next.b), m)
		if err != nil {
			return err
		}
		if len(b)-start > maxFrame {
			return errChanged
		}
		w.next.b = b
		closeFrame(b, start, w.header(st, kindData, 0))
	}
	if p.fragment == nil {
		return nil
	}
	start := len(w.next.b)
	b := openFrame(w.next.b)
	if p.flags&flagFirst != 0 {
		b = append(b, byte(p.total), byte(p.total>>8), byte(p.total>>16), byte(p.total>>24))
	}
	b = append(b, p.fragment...)
	w.next.b = b
	closeFrame(b, start, w.header(st, kindData, p.flags))
	return nil
}

func (w *writer) header(st *Stream, k kind, flags uint8) header {
	h := header{kind: k, flags: flags, epoch: st.session.epoch, stream: st.id, sequence: w.sequence}
	w.sequence++
	return h
}

func (w *writer) frame(st *Stream, k kind, flags uint8, payload []byte) {
	w.next.b = appendFrame(w.next.b, w.header(st, k, flags), payload)
}

// start begins a write if none is in progress. Requires mu, and releases it.
func (w *writer) start(mayBlock bool) {
	if w.busy {
		w.mu.Unlock()
		return
	}
	batch := w.take()
	if batch == nil {
		w.mu.Unlock()
		return
	}
	w.busy = true
	w.drained.Add(1)
	w.mu.Unlock()

	done := 0
	var err error
	switch {
	case w.raw != nil:
		w.batch, w.wrote, w.tryErr = batch.b, 0, nil
		err = w.raw.Write(w.attempt)
		if err == nil {
			err = w.tryErr
		}
		done = w.wrote
		w.batch = nil
		if err == nil && mayBlock && done < len(batch.b) {
			_, err = w.out.Write(batch.b[done:])
			done = len(batch.b)
		}
	case mayBlock:
		_, err = w.out.Write(batch.b)
		done = len(batch.b)
	}
	if err == nil && done < len(batch.b) {
		go w.drain(batch, done)
		return
	}
	batch = w.following(batch, err)
	if batch != nil {
		go w.drain(batch, 0)
		return
	}
	w.drained.Done()
}

// drain writes until nothing waits.
func (w *writer) drain(batch *buffer, done int) {
	defer w.drained.Done()
	for batch != nil {
		_, err := w.out.Write(batch.b[done:])
		done = 0
		batch = w.following(batch, err)
	}
}

// following gives back a batch that was written, or failed to be, and takes what waits; nil says that nobody writes any more.
func (w *writer) following(written *buffer, err error) *buffer {
	written.release()
	w.mu.Lock()
	w.note(err)
	batch := w.take()
	if batch == nil {
		w.busy = false
	}
	w.mu.Unlock()
	if err != nil {
		w.failed(err)
	}
	return batch
}

func (w *writer) note(err error) {
	if err == nil || w.err != nil {
		return
	}
	w.err = err
	w.dropLocked(nil)
}

// take returns what is to be written next and lets the waiting streams fill the batch after it. Nil if there is nothing.
func (w *writer) take() *buffer {
	for i, st := range w.due {
		if !st.silent {
			w.next = w.next.grown(max(headerLength+4, 1<<minBufferBits))
			c := st.dueCredit
			w.frame(st, kindWindow, 0, []byte{byte(c), byte(c >> 8), byte(c >> 16), byte(c >> 24)})
		}
		st.dueCredit = 0
		w.due[i] = nil
	}
	w.due = w.due[:0]
	batch := w.next
	w.next = nil
	if len(w.turns) > 0 {
		w.grant()
	}
	if batch != nil && len(batch.b) == 0 {
		batch.release()
		return nil
	}
	return batch
}

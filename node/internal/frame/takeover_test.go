package frame

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

var errKilled = errors.New("killed by the test")

// cutWriter is the pipe of a process that is killed after some bytes of its writes.
type cutWriter struct {
	*os.File
	mu      sync.Mutex
	left    int
	written int
}

func (w *cutWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	keep := min(len(b), w.left)
	n, err := w.File.Write(b[:keep])
	w.left -= n
	w.written += n
	if err == nil && keep < len(b) {
		err = errKilled
	}
	return n, err
}

// cutReader is the pipe of a process that is killed after some bytes of its reads.
type cutReader struct {
	*os.File
	left int
	read int
}

func (r *cutReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, errKilled
	}
	n, err := r.File.Read(b[:min(len(b), r.left)])
	r.left -= n
	r.read += n
	return n, err
}

// movingWriter is the stdout of a guest that is checkpointed: from some byte on, what it writes is lost with the old pipe; after move,
// it goes on into the new pipe, in the middle of a frame or not.
type movingWriter struct {
	mu      sync.Mutex
	to      *os.File
	left    int
	written int
	lose    func() // called when bytes are lost for the first time
}

func (w *movingWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written += len(b)
	keep := min(len(b), w.left)
	w.left -= keep
	if keep < len(b) && w.lose != nil {
		w.lose()
		w.lose = nil
	}
	if n, err := w.to.Write(b[:keep]); err != nil {
		return n, err
	}
	return len(b), nil
}

func (w *movingWriter) move(to *os.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to, w.left = to, 1<<40
}

// trap is what a hostile user writes: frames that would end or forge something if a parser took them for frames.
func trap() []byte {
	wrongKey := [32]byte{9}
	b := appendFrame(nil, header{kind: kindReset, epoch: 99}, resetRequest{attempt: 1}.append(nil, &wrongKey, 99))
	replayed := resetRequest{attempt: 1, maxMessage: defaultMaxMessage}
	b = appendFrame(b, header{kind: kindReset, epoch: 1}, replayed.append(nil, &testKey, 1))
	b = appendFrame(b, header{kind: kindResetAck, epoch: 2}, resetReply{attempt: 1}.append(nil))
	b = appendFrame(b, header{kind: kindOpen, epoch: 1, stream: 77, sequence: 5}, appendOpen(nil, maxWindow, maxWindow, "trap"))
	return appendFrame(b, header{kind: kindData, epoch: 2, stream: 1, sequence: 1}, []byte("trap"))
}

var trapBytes = trap()

// numbered is message number index of a session's stream; checkNumbered says whether b is just that.
func numbered(epoch uint64, index, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, epoch)
	b = binary.LittleEndian.AppendUint32(b, uint32(index))
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	if index%2 == 1 && size >= len(trapBytes) {
		b = append(b, trapBytes...)
		size -= len(trapBytes)
	}
	return append(b, pattern(size, byte(index))...)
}

func checkNumbered(b []byte, epoch uint64, index int) error {
	if len(b) < 16 || !bytes.Equal(b, numbered(epoch, index, int(binary.LittleEndian.Uint32(b[12:])))) {
		return fmt.Errorf("message %d of epoch %d is another: %.24q", index, epoch, b)
	}
	return nil
}

// referee is a guest's handler that checks what it gets, and echoes it.
type referee struct {
	t  testing.TB
	mu sync.Mutex
	// current epoch, by OnReset
	epoch uint64
}

func (r *referee) reset(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The same epoch comes again where the host got no answer and repeated its RESET.
	if epoch < r.epoch {
		r.t.Errorf("reset to epoch %d after %d", epoch, r.epoch)
	}
	r.epoch = epoch
}

func (r *referee) handle(st *Stream) {
	if st.Method() != "conversation" {
		r.t.Errorf("stream %q was never opened by a host", st.Method())
	}
	epoch := st.session.epoch
	for i := 0; ; i++ {
		var m = value(nil)
		err := st.Receive(m)
		if errors.Is(err, io.EOF) {
			st.End(&Status{codes.OutOfRange, "done"})
			return
		}
		if err != nil {
			return
		}
		if err := checkNumbered(m.Value, epoch, i); err != nil {
			r.t.Errorf("guest: %v", err)
			return
		}
		if st.Send(m) != nil {
			return
		}
	}
}

var errWrong = errors.New("wrong content")

// converse runs the script; the error is errWrong if something came that must not come.
func converse(ctx context.Context, s *Session, sizes []int) error {
	st, err := s.Open(ctx, "conversation")
	if err != nil {
		return err
	}
	defer st.Cancel()
	m := value(nil)
	for i, size := range sizes {
		if err := st.Send(value(numbered(s.epoch, i, size))); err != nil {
			return err
		}
		if err := st.Receive(m); err != nil {
			return err
		}
		if err := checkNumbered(m.Value, s.epoch, i); err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	if err := st.Receive(m); StatusOf(err) != codes.OutOfRange {
		if s.Err() == nil && ctx.Err() == nil {
			return fmt.Errorf("%w: end: %w", errWrong, err)
		}
		return err
	}
	return nil
}

var script = []int{3, 500, 0, 20}

// takeOver connects a new host and requires that all works.
func takeOver(t *testing.T, where string, r, w *os.File, epoch uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := Connect(ctx, r, w, HostOptions{Epoch: epoch, Key: testKey})
	if err != nil {
		t.Fatalf("%s: connect: %v", where, err)
	}
	for range 2 {
		if err := converse(ctx, s, script); err != nil {
			t.Fatalf("%s: after taking over: %v", where, err)
		}
	}
	_ = s.Close()
}

// offsets are all of the conversation's, those of the padding before only in part: one zero is like another.
func offsets(padding, total int) []int {
	all := []int{0, 1, 3, 39, 40, 4096, padding - 1}
	for k := padding; k <= total; k++ {
		all = append(all, k)
	}
	return all
}

// cutConversation runs a conversation whose host dies as its pipes say, then another host's on the same pipes.
func cutConversation(t *testing.T, sizes []int, k int, readSide bool) (written, read int) {
	t.Helper()
	e := newEnds(t)
	judge := &referee{t: t}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, e.guestReads, e.guestWrites, GuestOptions{Key: testKey, Handler: judge.handle, OnReset: judge.reset})
	}()
	w := &cutWriter{File: e.hostWrites, left: 1 << 40}
	r := &cutReader{File: e.hostReads, left: 1 << 40}
	if readSide {
		r.left = k
	} else {
		w.left = k
	}
	s, err := Connect(ctx, r, w, HostOptions{Epoch: 1, Key: testKey})
	if err == nil {
		err = converse(ctx, s, sizes)
		_ = s.Close()
	}
	if errors.Is(err, errWrong) || ctx.Err() != nil {
		t.Fatalf("cut at %d: %v", k, err)
	}
	_ = allow(e.hostReads, e.hostWrites)
	takeOver(t, fmt.Sprintf("cut at %d (%v)", k, err), e.hostReads, e.hostWrites, 2)
	cancel()
	await(t, "the end of Serve", served)
	for _, f := range []*os.File{e.hostReads, e.guestWrites, e.guestReads, e.hostWrites} {
		_ = f.Close()
	}
	return w.written, r.read
}

func TestHostKilledAtAnyByteOfItsWritesIsReplaced(t *testing.T) {
	checkGoroutines(t)
	written, _ := cutConversation(t, script, 1<<40, false)
	for _, k := range offsets(maxFrame, written) {
		cutConversation(t, script, k, false)
	}
}

func TestHostKilledAtAnyByteOfItsReadsIsReplaced(t *testing.T) {
	checkGoroutines(t)
	_, read := cutConversation(t, script, 1<<40, true)
	for _, k := range offsets(2, read) {
		cutConversation(t, script, k, true)
	}
}

func TestHostKilledWithinALargeMessageIsReplaced(t *testing.T) {
	checkGoroutines(t)
	large := []int{200000}
	written, read := cutConversation(t, large, 1<<40, true)
	for i := range 60 {
		cutConversation(t, large, i*written/60, false)
		cutConversation(t, large, i*read/60, true)
	}
}

// A restored guest has new pipes: what was in the old ones is lost, a frame that was half written goes on in the new one.
func TestGuestRestoredAtAnyByteOfItsWritesIsTakenOver(t *testing.T) {
	checkGoroutines(t)
	total := restoreConversation(t, 1<<40)
	for k := range total {
		restoreConversation(t, k)
	}
}

func restoreConversation(t *testing.T, k int) int {
	t.Helper()
	before, after := newEnds(t), newEnds(t)
	judge := &referee{t: t}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	first, kill := context.WithCancel(ctx)
	w := &movingWriter{to: before.guestWrites, left: k, lose: kill}
	r := &movingReader{files: make(chan *os.File, 1), now: before.guestReads}
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, r, w, GuestOptions{Key: testKey, Handler: judge.handle, OnReset: judge.reset})
	}()
	s, err := Connect(first, before.hostReads, before.hostWrites, HostOptions{Epoch: 1, Key: testKey})
	if err == nil {
		err = converse(first, s, script)
		_ = s.Close()
	}
	kill()
	if errors.Is(err, errWrong) || ctx.Err() != nil {
		t.Fatalf("cut at %d: %v", k, err)
	}
	total := w.written
	w.move(after.guestWrites)
	r.files <- after.guestReads
	_ = before.guestReads.SetReadDeadline(longAgo)
	takeOver(t, fmt.Sprintf("restored at %d", k), after.hostReads, after.hostWrites, 2)
	cancel()
	_ = after.guestReads.SetReadDeadline(longAgo)
	await(t, "the end of Serve", served)
	for _, e := range []*ends{before, after} {
		for _, f := range []*os.File{e.hostReads, e.guestWrites, e.guestReads, e.hostWrites} {
			_ = f.Close()
		}
	}
	return total
}

// movingReader goes on in the new pipe when a read of the old one was interrupted.
type movingReader struct {
	now   *os.File
	files chan *os.File
}

func (r *movingReader) Read(b []byte) (int, error) {
	n, err := r.now.Read(b)
	if n > 0 || err == nil {
		return n, err
	}
	select {
	case r.now = <-r.files:
		return r.now.Read(b)
	default:
		return n, err
	}
}

// The guest is stuck in the middle of a frame, as nobody reads; the new host must get through all the same.
func TestGuestBlockedInItsOwnWriteIsTakenOver(t *testing.T) {
	checkGoroutines(t)
	e := newEnds(t)
	var blocked sync.WaitGroup
	blocked.Add(1)
	var once sync.Once
	serve(t, e.guestReads, e.guestWrites, GuestOptions{Handler: func(st *Stream) {
		if st.Method() == "echo" {
			echo(st)
			return
		}
		defer once.Do(blocked.Done)
		for st.Send(value(trapBytes)) == nil {
		}
	}})
	for epoch := uint64(1); epoch <= 5; epoch++ {
		// This host reads its answer and little else.
		r := &cutReader{File: e.hostReads, left: 1 << 40}
		if epoch%2 == 1 {
			r.left = 300000 + int(epoch)*1000
		}
		s, err := Connect(within(t), r, e.hostWrites, HostOptions{Epoch: epoch, Key: testKey})
		if err != nil {
			t.Fatal(err)
		}
		if epoch%2 == 0 {
			var reply = value(nil)
			st := open(t, s, "echo")
			if err := st.Send(value([]byte("alive"))); err != nil {
				t.Fatal(err)
			}
			if err := st.Receive(reply); err != nil || string(reply.Value) != "alive" {
				t.Fatalf("%q, %v", reply.Value, err)
			}
			_ = s.Close()
			continue
		}
		for range 3 {
			// The host may be dead before the third.
			if st, err := s.Open(within(t), "flood"); err == nil {
				_ = st.Send(value(nil))
			}
		}
		<-s.Done()
		_ = s.Close()
	}
	blocked.Wait()
}

func TestStaleEpochAndWrongKeyAreRefused(t *testing.T) {
	checkGoroutines(t)
	e := newEnds(t)
	serve(t, e.guestReads, e.guestWrites, GuestOptions{})
	s := connect(t, e.hostReads, e.hostWrites, 7)
	_ = s.Close()
	for _, epoch := range []uint64{6, 7} {
		_, err := Connect(within(t), e.hostReads, e.hostWrites, HostOptions{Epoch: epoch, Key: testKey})
		var stale *EpochError
		if !errors.As(err, &stale) || stale.Guest != 7 || stale.Offered != epoch {
			t.Fatalf("epoch %d: %v", epoch, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, e.hostReads, e.hostWrites, HostOptions{Epoch: 8}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("wrong key: %v", err)
	}
	connect(t, e.hostReads, e.hostWrites, 8)
}

func TestConnectWithoutAGuestEndsWithItsContext(t *testing.T) {
	checkGoroutines(t)
	e := newEnds(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, e.hostReads, e.hostWrites, HostOptions{Epoch: 1}); StatusOf(err) != codes.DeadlineExceeded {
		t.Fatal(err)
	}
}

// A call to a guest that doesn't read must end with its context although the pipe is full.
func TestCallEndsWithItsContextWhileThePipeIsFull(t *testing.T) {
	checkGoroutines(t)
	e := newEnds(t)
	frozen := make(chan struct{})
	serve(t, e.guestReads, e.guestWrites, GuestOptions{Handler: echo, OnReset: func(epoch uint64) {
		if epoch == 2 {
			<-frozen
		}
	}})
	s := connect(t, e.hostReads, e.hostWrites, 1)
	// The guest accepts this in the midst of the session, and reads no more.
	request := resetRequest{attempt: 1}
	if _, err := e.hostWrites.Write(appendFrame(nil, header{kind: kindReset, epoch: 2}, request.append(nil, &testKey, 2))); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		err := Call(ctx, s, "echo", value(make([]byte, 60000)), value(nil))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	await(t, "Close with a full pipe", closed)
	close(frozen)
	connect(t, e.hostReads, e.hostWrites, 3)
}

func newFIFOs(t testing.TB) (in, out string) {
	t.Helper()
	in, out = filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	for _, path := range []string{in, out} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return in, out
}

func openFIFO(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := OpenFIFO(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The old host goes on reading and writing for a while: it takes bytes from the new one, and its frames mix with the new one's.
// Wrong content must never come; once the old one has noticed, the new one has peace.
func TestTwoHostsThatOverlapNeverGetWrongContent(t *testing.T) {
	checkGoroutines(t)
	in, out := newFIFOs(t)
	judge := &referee{t: t}
	serve(t, openFIFO(t, in), openFIFO(t, out), GuestOptions{Handler: judge.handle, OnReset: judge.reset})
	epoch := uint64(0)
	for range 20 {
		epoch++
		old, err := Connect(within(t), openFIFO(t, out), openFIFO(t, in), HostOptions{Epoch: epoch, Key: testKey})
		if err != nil {
			t.Fatal(err)
		}
		oldEnded := make(chan error, 1)
		go func() {
			for {
				// It may wait for ever for an answer that the new host has read and dropped.
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				err := converse(ctx, old, []int{10, 3000, 70000})
				cancel()
				if err != nil {
					_ = old.Close()
					oldEnded <- err
					return
				}
			}
		}()
		r, w := openFIFO(t, out), openFIFO(t, in)
		peace := 0
		for peace < 5 {
			epoch++
			s, err := Connect(within(t), r, w, HostOptions{Epoch: epoch, Key: testKey})
			if err != nil {
				t.Fatal(err)
			}
			for peace < 5 {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				err := converse(ctx, s, []int{10, 3000, 70000})
				cancel()
				if errors.Is(err, errWrong) {
					t.Fatalf("new host: %v", err)
				}
				if err != nil {
					peace = 0
					break
				}
				peace++
			}
			_ = s.Close()
		}
		if err := await(t, "the old host's end", oldEnded); errors.Is(err, errWrong) {
			t.Fatalf("old host: %v", err)
		}
	}
}

func TestGarbageFromTheHostEndsTheSessionWithAReasonAndNoMore(t *testing.T) {
	checkGoroutines(t)
	random := rand.New(rand.NewPCG(1, 2))
	e := newEnds(t)
	judge := &referee{t: t}
	serve(t, e.guestReads, e.guestWrites, GuestOptions{Handler: judge.handle, OnReset: judge.reset})
	for epoch := uint64(1); epoch < 200; epoch++ {
		s := connect(t, e.hostReads, e.hostWrites, epoch)
		garbage := make([]byte, 1+random.IntN(200))
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		garbage[0] |= 1
		if epoch%3 == 0 {
			garbage = append(garbage, trapBytes...)
		}
		if _, err := e.hostWrites.Write(garbage); err != nil {
			t.Fatal(err)
		}
		err := converse(within(t), s, script)
		var broken *ProtocolError
		if !errors.As(err, &broken) {
			t.Fatalf("after %x: %v", garbage, err)
		}
		_ = s.Close()
	}
}

func TestGarbageFromTheGuestEndsTheSessionWithAReason(t *testing.T) {
	checkGoroutines(t)
	random := rand.New(rand.NewPCG(3, 4))
	e := newEnds(t)
	serve(t, e.guestReads, e.guestWrites, GuestOptions{})
	for epoch := uint64(1); epoch < 200; epoch++ {
		s := connect(t, e.hostReads, e.hostWrites, epoch)
		garbage := make([]byte, 1+random.IntN(200))
		for i := range garbage {
			garbage[i] = byte(random.Uint32())
		}
		if _, err := e.guestWrites.Write(garbage); err != nil {
			t.Fatal(err)
		}
		await(t, "the end of the session", s.Done())
		var broken *ProtocolError
		if !errors.As(s.Err(), &broken) {
			// Less than a header that begins like one is no error yet.
			t.Fatalf("after %x: %v", garbage, s.Err())
		}
		_ = s.Close()
	}
}

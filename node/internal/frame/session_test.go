package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

var testKey = [32]byte{1, 2, 3}

func TestMain(m *testing.M) {
	if os.Getenv("FRAME_TEST_CHILD") != "" {
		childMain(os.Getenv("FRAME_TEST_CHILD"))
		return
	}
	os.Exit(m.Run())
}

// limit is how long a test waits for what must happen at once.
const limit = 20 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		buffer := make([]byte, 1<<20)
		t.Fatalf("%s did not happen within %s\n%s", what, limit, buffer[:runtime.Stack(buffer, true)])
		panic("unreachable")
	}
}

// checkGoroutines fails the test if goroutines of this package outlive it.
func checkGoroutines(t testing.TB) {
	t.Cleanup(func() {
		deadline := time.Now().Add(limit)
		for {
			buffer := make([]byte, 1<<20)
			stacks := string(buffer[:runtime.Stack(buffer, true)])
			left := 0
			for _, stack := range strings.Split(stacks, "\n\n") {
				if strings.Contains(stack, "internal/frame.") && !strings.Contains(stack, "testing.tRunner") {
					left++
				}
			}
			if left == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%d goroutines are left:\n%s", left, stacks)
				return
			}
			runtime.Gosched()
		}
	})
}

type ends struct {
	hostReads, guestWrites *os.File
	guestReads, hostWrites *os.File
}

func newEnds(t testing.TB) *ends {
	t.Helper()
	var e ends
	var err error
	if e.hostReads, e.guestWrites, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if e.guestReads, e.hostWrites, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{e.hostReads, e.guestWrites, e.guestReads, e.hostWrites} {
			_ = f.Close()
		}
	})
	return &e
}

// serve runs a guest until the test ends.
func serve(t testing.TB, r io.Reader, w io.Writer, o GuestOptions) {
	t.Helper()
	o.Key = testKey
	if o.Handler == nil {
		o.Handler = echo
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, r, w, o) }()
	t.Cleanup(func() {
		cancel()
		await(t, "the end of Serve", ended)
	})
}

func connect(t testing.TB, r io.Reader, w io.Writer, epoch uint64) *Session {
	t.Helper()
	s, err := Connect(within(t), r, w, HostOptions{Epoch: epoch, Key: testKey})
	if err != nil {
		t.Fatalf("connect with epoch %d: %v", epoch, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// pair is a guest with a connected host.
func pair(t testing.TB, handler func(*Stream)) *Session {
	t.Helper()
	checkGoroutines(t)
	e := newEnds(t)
	serve(t, e.guestReads, e.guestWrites, GuestOptions{Handler: handler})
	return connect(t, e.hostReads, e.hostWrites, 1)
}

// echo returns every message until the host half-closes.
func echo(st *Stream) {
	for {
		var m wrapperspb.BytesValue
		err := st.Receive(&m)
		if errors.Is(err, io.EOF) {
			st.End(nil)
			return
		}
		if err != nil {
			return
		}
		if err := st.Send(&m); err != nil {
			return
		}
	}
}

func value(b []byte) *wrapperspb.BytesValue { return wrapperspb.Bytes(b) }

func receive(t testing.TB, st *Stream) []byte {
	t.Helper()
	var m wrapperspb.BytesValue
	if err := st.Receive(&m); err != nil {
		t.Fatalf("receive: %v", err)
	}
	return m.Value
}

func open(t testing.TB, s *Session, method string) *Stream {
	t.Helper()
	st, err := s.Open(within(t), method)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestCallReturnsTheReply(t *testing.T) {
	s := pair(t, func(st *Stream) {
		var m wrapperspb.BytesValue
		if err := st.Receive(&m); err != nil {
			st.End(err)
			return
		}
		_ = st.Reply(value(append([]byte(st.Method()+" "), m.Value...)))
	})
	for _, size := range []int{0, 1, 1000, 64 << 10, 200 << 10, 10 << 20} {
		content := pattern(size, byte(size))
		var reply wrapperspb.BytesValue
		if err := Call(within(t), s, "Agent/Test", value(content), &reply); err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		if !bytes.Equal(reply.Value, append([]byte("Agent/Test "), content...)) {
			t.Fatalf("size %d: a different reply of %d bytes", size, len(reply.Value))
		}
	}
	checkSettled(t, s)
}

// checkSettled fails unless all budgets are whole again.
func checkSettled(t testing.TB, s *Session) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsettled != 0 || len(s.streams) != 0 || s.receiveBudget != hostWindowBudget || s.sendBudget != guestWindowBudget ||
		s.loanBudget != 4*s.limit || len(s.borrowers) != 0 {
		t.Errorf("left over: %d unsettled, %d streams, receive budget %d, send budget %d, loan budget %d, %d borrowers",
			s.unsettled, len(s.streams), s.receiveBudget, s.sendBudget, s.loanBudget, len(s.borrowers))
	}
}

func pattern(size int, seed byte) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8) + seed
	}
	return b
}

func TestMessagesOfAllSizesArriveInOrder(t *testing.T) {
	s := pair(t, echo)
	st := open(t, s, "echo")
	sizes := []int{0, 1, 100, 4000, 65000, 65536, 65537, 131072, 300000, 5, 0, 1 << 20, 7}
	failed := make(chan error, 1)
	go func() {
		for i, size := range sizes {
			if err := st.Send(value(pattern(size, byte(i)))); err != nil {
				failed <- err
				return
			}
		}
		failed <- st.CloseSend()
	}()
	for i, size := range sizes {
		if got := receive(t, st); !bytes.Equal(got, pattern(size, byte(i))) {
			t.Fatalf("message %d of %d bytes came as one of %d bytes", i, size, len(got))
		}
	}
	if err := await(t, "the end of sending", failed); err != nil {
		t.Fatal(err)
	}
	var m wrapperspb.BytesValue
	if err := st.Receive(&m); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %v", err)
	}
	checkSettled(t, s)
}

func TestSendAllKeepsOrderAndFragmentsLargeOnes(t *testing.T) {
	s := pair(t, echo)
	st := open(t, s, "echo")
	all := []int{1, 2, 70000, 3, 200000, 4, 5}
	failed := make(chan error, 1)
	go func() {
		m := make([]*wrapperspb.BytesValue, len(all))
		for i, size := range all {
			m[i] = value(pattern(size, byte(i)))
		}
		failed <- st.SendAll(m[0], m[1], m[2], m[3], m[4], m[5], m[6])
	}()
	for i, size := range all {
		if got := receive(t, st); !bytes.Equal(got, pattern(size, byte(i))) {
			t.Fatalf("message %d of %d bytes came as one of %d bytes", i, size, len(got))
		}
	}
	if err := await(t, "the end of sending", failed); err != nil {
		t.Fatal(err)
	}
	st.Cancel()
}

func TestCallWhoseGuestDiesSaysSo(t *testing.T) {
	e := newEnds(t)
	called := make(chan struct{})
	serve(t, e.guestReads, e.guestWrites, GuestOptions{Handler: func(st *Stream) {
		close(called)
		<-st.Context().Done()
	}})
	session := connect(t, e.hostReads, e.hostWrites, 1)
	result := make(chan error, 1)
	go func() {
		result <- Call(within(t), session, "call", wrapperspb.Bytes(nil), &wrapperspb.BytesValue{})
	}()
	await(t, "the call", called)
	if err := e.guestWrites.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the end of the call", result); StatusOf(err) != codes.Unavailable {
		t.Fatalf("%v (expected: the connection is lost)", err)
	}
}

func TestMessagesArePassedOnUnread(t *testing.T) {
	session := pair(t, func(st *Stream) {
		for {
			m := &wrapperspb.BytesValue{}
			if err := st.Receive(m); err != nil {
				st.End(nil)
				return
			}
			if err := st.Send(m); err != nil {
				return
			}
		}
	})
	st, err := session.Open(within(t), "echo")
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, 1000, 200_000}
	var all []proto.Message
	for _, size := range sizes {
		all = append(all, wrapperspb.Bytes(make([]byte, size)))
	}
	if err := st.SendLast(all...); err != nil {
		t.Fatal(err)
	}
	if err := st.Send(all[0]); err == nil {
		t.Fatal("sent after the last")
	}
	for i := range sizes {
		want, err := proto.Marshal(all[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := st.ReceiveBytes(func(b []byte) error {
			if !bytes.Equal(b, want) {
				t.Errorf("%d bytes (expected: %d)", len(b), len(want))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.ReceiveBytes(func([]byte) error { return nil }); err != io.EOF {
		t.Fatalf("%v (expected: the end)", err)
	}
}

func TestWhoCannotPassAMessageOnEndsTheStream(t *testing.T) {
	ended := make(chan error, 1)
	session := pair(t, func(st *Stream) {
		_ = st.Send(wrapperspb.Bytes([]byte("x")))
		<-st.Context().Done()
		ended <- st.Context().Err()
	})
	st, err := session.Open(within(t), "watch")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	if err := st.ReceiveBytes(func([]byte) error { return gone }); err != gone {
		t.Fatal(err)
	}
	await(t, "the handler's end", ended)
}

func TestWhatIsSentLaterGoesWithTheNextWriteOrByItself(t *testing.T) {
	received := make(chan string, 2)
	s := pair(t, func(st *Stream) {
		var m wrapperspb.BytesValue
		if err := st.Receive(&m); err != nil {
			t.Error(err)
		}
		received <- string(m.Value)
		st.EndLater(nil)
	})
	waits, other := open(t, s, "m"), open(t, s, "m")
	if err := waits.SendLater(value([]byte("later"))); err != nil {
		t.Fatal(err)
	}
	s.writer.mu.Lock()
	held := s.writer.next != nil && len(s.writer.next.b) > 0
	s.writer.mu.Unlock()
	if !held {
		t.Error("what may wait was written at once")
	}
	if err := other.Send(value([]byte("now"))); err != nil {
		t.Fatal(err)
	}
	// Handlers run side by side: the two come in any order.
	if got := []string{await(t, "a message", received), await(t, "a message", received)}; !slices.Contains(got, "later") || !slices.Contains(got, "now") {
		t.Errorf("received %q", got)
	}
	alone := open(t, s, "m")
	if err := alone.SendLater(value([]byte("alone"))); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "a message that nothing follows", received); got != "alone" {
		t.Errorf("received %q", got)
	}
	for _, st := range []*Stream{waits, other, alone} {
		if err := st.Receive(&wrapperspb.BytesValue{}); !errors.Is(err, io.EOF) {
			t.Errorf("the end that nobody waited for: %v", err)
		}
	}
	checkSettled(t, s)
}

func TestStatusOfTheGuestReachesTheHost(t *testing.T) {
	results := map[string]error{
		"ok": nil, "status": &Status{codes.NotFound, "no such context: ä"}, "plain": errors.New("plain"),
		"wrapped": fmt.Errorf("outer: %w", &Status{codes.DataLoss, "inner"}), "long": &Status{codes.Aborted, strings.Repeat("ä", 3000)},
	}
	s := pair(t, func(st *Stream) { st.End(results[st.Method()]) })
	for method, result := range results {
		st := open(t, s, method)
		var m wrapperspb.BytesValue
		err := st.Receive(&m)
		if result == nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", method, err)
			}
			continue
		}
		if StatusOf(err) != StatusOf(result) {
			t.Errorf("%s: code %s, sent %s", method, StatusOf(err), StatusOf(result))
		}
		if sendErr := st.Send(value(nil)); StatusOf(sendErr) != StatusOf(result) {
			t.Errorf("%s: sending after the end: %v", method, sendErr)
		}
	}
	err := Call(within(t), s, "status", value(nil), value(nil))
	var status *Status
	if !errors.As(err, &status) || *status != (Status{codes.NotFound, "no such context: ä"}) {
		t.Errorf("call: %v", err)
	}
	if err := Call(within(t), s, "ok", value(nil), value(nil)); StatusOf(err) != codes.Internal {
		t.Errorf("call without a reply: %v", err)
	}
	checkSettled(t, s)
}

func TestHandlerThatForgetsToEndIsReported(t *testing.T) {
	s := pair(t, func(st *Stream) {})
	if err := Call(within(t), s, "forgets", value(nil), value(nil)); StatusOf(err) != codes.Internal {
		t.Fatal(err)
	}
}

func TestHalfCloseEndsReceivingButNotSending(t *testing.T) {
	s := pair(t, func(st *Stream) {
		var m wrapperspb.BytesValue
		for st.Receive(&m) == nil {
		}
		for i := range 3 {
			_ = st.Send(value([]byte{byte(i)}))
		}
		st.End(nil)
	})
	st := open(t, s, "late")
	if err := st.Send(value(nil)); err != nil {
		t.Fatal(err)
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	// The peer may already have answered and ended the stream.
	if err := st.Send(value(nil)); !errors.Is(err, errSendClosed) && !errors.Is(err, ErrEnded) {
		t.Fatalf("sending after the half-close: %v", err)
	}
	for i := range 3 {
		if got := receive(t, st); len(got) != 1 || got[0] != byte(i) {
			t.Fatalf("message %d: %v", i, got)
		}
	}
	if err := st.Receive(value(nil)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestCancelOfTheHostReachesTheHandler(t *testing.T) {
	started, ended := make(chan struct{}, 2), make(chan error, 2)
	s := pair(t, func(st *Stream) {
		started <- struct{}{}
		<-st.Context().Done()
		ended <- st.Send(value(nil))
	})
	st := open(t, s, "wait")
	if err := st.Send(value(nil)); err != nil {
		t.Fatal(err)
	}
	await(t, "the start of the handler", started)
	st.Cancel()
	if err := await(t, "the handler's end", ended); StatusOf(err) != codes.Canceled {
		t.Errorf("handler: %v", err)
	}
	if err := st.Receive(value(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("host: %v", err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := Call(ctx, s, "wait", value(nil), value(nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call with a deadline: %v", err)
	}
	checkSettled(t, s)
}

func TestCancelOfTheGuestReachesTheHost(t *testing.T) {
	s := pair(t, func(st *Stream) { st.Cancel() })
	st := open(t, s, "cancel")
	if err := st.Receive(value(nil)); StatusOf(err) != codes.Canceled {
		t.Errorf("host: %v", err)
	}
	await(t, "the end of the stream's context", st.Context().Done())
}

func TestStreamThatIsNotReadDoesNotStallAnother(t *testing.T) {
	s := pair(t, func(st *Stream) {
		if st.Method() == "echo" {
			echo(st)
			return
		}
		for st.Send(value(pattern(10000, 1))) == nil {
		}
	})
	for range 4 {
		flood := open(t, s, "flood")
		defer flood.Cancel()
		receive(t, flood)
	}
	// And in the other direction: a handler that doesn't read.
	st := open(t, s, "echo")
	for i := range 2000 {
		if err := st.Send(value(pattern(2000, byte(i)))); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, st); !bytes.Equal(got, pattern(2000, byte(i))) {
			t.Fatal("a different message")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.streams {
		held := 0
		for _, m := range stream.queue[stream.queueStart:] {
			held += len(m.buffer.b)
		}
		if held > maxWindow {
			t.Errorf("stream %d holds %d bytes", stream.id, held)
		}
	}
}

func TestHandlerThatDoesNotReadHoldsItsSenderBackAndNoOther(t *testing.T) {
	s := pair(t, func(st *Stream) {
		if st.Method() == "echo" {
			echo(st)
			return
		}
		<-st.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	stuck, err := s.Open(ctx, "stuck")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if err := stuck.Send(value(pattern(30000, 1))); err != nil {
				ended <- err
				return
			}
		}
	}()
	st := open(t, s, "echo")
	for range 200 {
		if err := st.Send(value([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		receive(t, st)
	}
	cancel()
	if err := await(t, "the sender's end", ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestManyLargeMessagesShareTheBudgetWithoutDeadlock(t *testing.T) {
	checkGoroutines(t)
	e := newEnds(t)
	const size, streams = 900 << 10, 20
	serve(t, e.guestReads, e.guestWrites, GuestOptions{MaxMessage: 1 << 20})
	s, err := Connect(within(t), e.hostReads, e.hostWrites, HostOptions{Epoch: 1, Key: testKey, MaxMessage: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var group sync.WaitGroup
	for i := range streams {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 3 {
				st, err := s.Open(within(t), "echo")
				if err != nil {
					t.Error(err)
					return
				}
				if err := st.Send(value(pattern(size, byte(i)))); err != nil {
					t.Error(err)
					return
				}
				_ = st.CloseSend()
				var m wrapperspb.BytesValue
				if err := st.Receive(&m); err != nil || !bytes.Equal(m.Value, pattern(size, byte(i))) {
					t.Errorf("stream %d: %d bytes, %v", i, len(m.Value), err)
				}
				if err := st.Receive(&m); !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	checkSettled(t, s)
}

func TestMessageAboveTheLimitIsRefusedBeforeItIsSent(t *testing.T) {
	s := pair(t, echo)
	st := open(t, s, "echo")
	if err := st.Send(value(make([]byte, defaultMaxMessage))); StatusOf(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	if err := st.Send(value([]byte("small"))); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, st); string(got) != "small" {
		t.Fatalf("%q", got)
	}
	st.Cancel()
}

func TestThousandStreamsAtOnce(t *testing.T) {
	s := pair(t, echo)
	streams := make([]*Stream, 1000)
	for i := range streams {
		streams[i] = open(t, s, "echo")
		if err := streams[i].Send(value(pattern(i, byte(i)))); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for i, st := range streams {
		group.Add(1)
		go func() {
			defer group.Done()
			var m wrapperspb.BytesValue
			for round, size := range []int{i, 20000, 3} {
				if round > 0 {
					if err := st.Send(value(pattern(size, byte(i)))); err != nil {
						t.Error(err)
						return
					}
				}
				if err := st.Receive(&m); err != nil || !bytes.Equal(m.Value, pattern(size, byte(i))) {
					t.Errorf("stream %d: %d bytes, %v", i, len(m.Value), err)
					return
				}
			}
			if err := st.CloseSend(); err != nil {
				t.Error(err)
			}
			if err := st.Receive(&m); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}()
	}
	group.Wait()
	checkSettled(t, s)
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	s := pair(t, func(st *Stream) { <-st.Context().Done() })
	for range maxStreams {
		if _, err := s.Open(context.Background(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Open(context.Background(), "x"); StatusOf(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
}

func TestCloseEndsStreamsAndReaders(t *testing.T) {
	s := pair(t, echo)
	st := open(t, s, "echo")
	received := make(chan error, 1)
	go func() { received <- st.Receive(value(nil)) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the end of Receive", received); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	await(t, "Done", s.Done())
	if _, err := s.Open(context.Background(), "x"); !errors.Is(err, ErrClosed) || StatusOf(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if !errors.Is(s.Err(), ErrClosed) {
		t.Fatal(s.Err())
	}
}

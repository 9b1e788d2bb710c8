package frame

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/iotest"
)

// frames makes valid frames from fuzz input, so that the fuzzer gets past the checksums: each is kind, flags, stream, sequence step,
// payload length (two bytes), payload.
func frames(input []byte, epoch uint64, rest bool) []byte {
	var b []byte
	sequence := uint32(0)
	for len(input) >= 6 {
		sequence += uint32(input[3]%8/7) + 1
		length := min(int(input[4])|int(input[5])<<8, len(input)-6)
		h := header{kind: kind(input[0] % 12), flags: input[1] % 8, epoch: epoch + uint64(input[1]>>7), stream: uint64(input[2] % 8), sequence: sequence}
		b = appendFrame(b, h, input[6:6+length])
		input = input[6+length:]
	}
	if rest {
		b = append(b, input...)
	}
	return b
}

func seeds(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{byte(kindData), 0, 1, 0, 3, 0, 1, 2, 3, byte(kindEnd), 0, 1, 0, 4, 0, 0, 0, 0, 0})
	f.Add([]byte{byte(kindData), flagFirst | flagMore, 1, 0, 6, 0, 4, 0, 0, 0, 1, 2, byte(kindData), 0, 1, 0, 2, 0, 3, 4})
	f.Add([]byte{byte(kindData), flagFirst | flagMore, 1, 0, 6, 0, 255, 255, 255, 255, 1, 2})
	f.Add([]byte{byte(kindWindow), 0, 2, 0, 4, 0, 255, 0, 0, 0, byte(kindCancel), 0, 2, 0, 0, 0, byte(kindAbort), 0, 0, 0, 2, 0, 'n', 'o'})
	f.Add(append([]byte{byte(kindOpen), 0, 3, 0, 9, 0}, appendOpen(nil, maxWindow, maxWindow, "m")...))
	f.Add(trapBytes)
}

// Whatever a guest sends, the host ends the session with an error or takes it, and holds no more than its budgets allow.
func FuzzFramesFromTheGuest(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		s := &Session{
			host: true, epoch: 5, limit: 1 << 20, sendLimit: 1 << 20, streams: map[uint64]*Stream{}, streamLimit: maxStreams,
			done: make(chan struct{}), stopped: make(chan struct{}), pipes: pipes{&bytes.Buffer{}, io.Discard},
			receiveBudget: hostWindowBudget, sendBudget: guestWindowBudget, loanBudget: 1 << 20,
		}
		s.writer = newWriter(io.Discard, nil, true, func(error) {})
		s.writer.session = s
		for range 4 {
			if _, err := s.Open(context.Background(), "x"); err != nil {
				t.Fatal(err)
			}
		}
		all := make([]*Stream, 0, 4)
		for _, st := range s.streams {
			all = append(all, st)
		}
		p := &parser{source: newSource(bytes.NewReader(frames(input, 5, true)))}
		err := s.readFrames(p)
		if err == nil {
			t.Fatal("no error at the end of the input")
		}
		for _, st := range all {
			held := 0
			for _, m := range st.queue[st.queueStart:] {
				if m.loan == 0 {
					held += m.cost
				}
			}
			if held > st.receiveWindow {
				t.Errorf("%d bytes are held, the window has %d", held, st.receiveWindow)
			}
			if cap(st.queue) > 0 && len(st.partialBytes()) > s.limit {
				t.Error("a partial message above the limit")
			}
		}
		if s.loanBudget < 0 {
			t.Errorf("loan budget %d", s.loanBudget)
		}
		s.fail(err)
		if s.loanBudget != 1<<20 || s.unsettled != 0 || len(s.borrowers) != 0 {
			// Ended streams with unread messages wait for their reader.
			for _, st := range all {
				st.Cancel()
			}
		}
		if s.loanBudget != 1<<20 || s.unsettled != 0 || s.receiveBudget != hostWindowBudget || len(s.borrowers) != 0 {
			t.Errorf("after the end: loans %d, %d unsettled, receive budget %d", s.loanBudget, s.unsettled, s.receiveBudget)
		}
		s.writer.drained.Wait()
	})
}

func (st *Stream) partialBytes() []byte {
	if st.partial.buffer == nil {
		return nil
	}
	return st.partial.buffer.b
}

// Whatever bytes come in a session, a guest survives them, and a new host takes over afterwards.
func FuzzFramesFromTheHost(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		var in bytes.Buffer
		first, second := resetRequest{attempt: 1, maxMessage: 1 << 20}, resetRequest{attempt: 1, maxMessage: 1 << 20}
		second.nonce[0] = 2
		in.Write(appendFrame(nil, header{kind: kindReset, epoch: 5}, first.append(nil, &testKey, 5)))
		in.Write(frames(input, 5, true))
		in.Write(make([]byte, maxFrame))
		in.Write(appendFrame(nil, header{kind: kindReset, epoch: 1 << 60}, second.append(nil, &testKey, 1<<60)))
		reached := uint64(0)
		err := Serve(context.Background(), iotest.OneByteReader(&in), io.Discard, GuestOptions{
			Key: testKey, MaxMessage: 1 << 16, OnReset: func(epoch uint64) { reached = epoch },
			Handler: func(st *Stream) {
				for st.Receive(value(nil)) == nil {
				}
				st.End(nil)
			},
		})
		if !errors.Is(err, io.EOF) || reached != 1<<60 {
			t.Fatalf("reached epoch %d, %v", reached, err)
		}
	})
}

// A parser in its place returns only what was encoded; a lost one only what is proven, and it finds that wherever it stands.
func FuzzParser(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		p := &parser{source: newSource(bytes.NewReader(input)), padded: true, prove: func(header, []byte) bool { return false }}
		for {
			h, payload, err := p.next()
			var lost lostError
			if errors.As(err, &lost) {
				continue
			}
			if err != nil {
				break
			}
			if !bytes.Contains(input, appendFrame(nil, h, payload)) {
				t.Fatalf("frame %+v is not in the input", h)
			}
		}
		request := resetRequest{attempt: 3}
		reset := appendFrame(nil, header{kind: kindReset, epoch: 9}, request.append(nil, &testKey, 9))
		stream := append(append(bytes.Clone(input), reset...), input...)
		g := &guest{options: GuestOptions{Key: testKey}}
		p = &parser{source: newSource(iotest.HalfReader(bytes.NewReader(stream))), lost: true, prove: g.prove}
		h, _, err := p.next()
		if err != nil || h.kind != kindReset || h.epoch != 9 && !bytes.Contains(input, magic[:]) {
			t.Fatalf("RESET was not found: %+v, %v", h, err)
		}
	})
}

func TestParserReturnsEveryFrameHoweverTheBytesAreCut(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		var stream []byte
		var want []header
		for range 1 + random.IntN(10) {
			size := random.IntN(200)
			if random.IntN(4) == 0 {
				size = random.IntN(maxPayload + 1)
			}
			h := header{kind: kind(1 + random.IntN(int(kindLimit)-1)), flags: uint8(random.IntN(4)), epoch: random.Uint64(), stream: random.Uint64(), sequence: random.Uint32(), length: size}
			stream = append(stream, make([]byte, random.IntN(3)*random.IntN(100))...)
			stream = appendFrame(stream, h, pattern(size, byte(len(want))))
			want = append(want, h)
		}
		p := &parser{source: newSource(&choppyReader{stream, random}), padded: true}
		for i, h := range want {
			got, payload, err := p.next()
			got.payloadHash = 0
			if err != nil || got != h || !bytes.Equal(payload, pattern(h.length, byte(i))) {
				t.Fatalf("frame %d: got %+v, %v; want %+v", i, got, err, h)
			}
		}
		if _, _, err := p.next(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		p.close()
	}
}

type choppyReader struct {
	rest   []byte
	random *rand.Rand
}

func (r *choppyReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+r.random.IntN(1<<r.random.IntN(18)))], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestEveryFlippedBitOfAFrameIsNoticed(t *testing.T) {
	frame := appendFrame(nil, header{kind: kindData, epoch: 3, stream: 4, sequence: 5}, []byte("payload"))
	for bit := range 8 * len(frame) {
		broken := bytes.Clone(frame)
		broken[bit/8] ^= 1 << (bit % 8)
		p := &parser{source: newSource(bytes.NewReader(broken)), prove: func(header, []byte) bool { return false }}
		if h, _, err := p.next(); err == nil {
			t.Fatalf("bit %d: %+v", bit, h)
		}
	}
}

// An idle session's reader waits without a buffer, and a message of one byte holds no large one.
func TestIdleSessionsHoldLittleMemory(t *testing.T) {
	var before, after runtime.MemStats
	const count = 200
	runtime.GC()
	runtime.ReadMemStats(&before)
	sessions := make([]*Session, count)
	for i := range sessions {
		e := newEnds(t)
		serve(t, e.guestReads, e.guestWrites, GuestOptions{})
		sessions[i] = connect(t, e.hostReads, e.hostWrites, 1)
		st := open(t, sessions[i], "echo")
		if err := st.Send(value(pattern(100000, 1))); err != nil {
			t.Fatal(err)
		}
		receive(t, st)
		st.Cancel()
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / count
	t.Logf("%d bytes for a host's and a guest's session", each)
	if each > 60<<10 {
		t.Errorf("%d bytes for an idle session", each)
	}
}

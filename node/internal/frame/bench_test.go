package frame

import (
	"context"
	"io"
	"testing"
)

// The guest of these benchmarks is another process on real FIFOs.
func benchmarkSession(b *testing.B) *Session {
	in, out := newFIFOs(b)
	startGuest(b, in, out)
	return connect(b, openFIFO(b, out), openFIFO(b, in), 1)
}

func BenchmarkCall(b *testing.B) {
	s := benchmarkSession(b)
	request, reply := value(make([]byte, 100)), value(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := Call(context.Background(), s, "call", request, reply); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRoundTripOnOneStream(b *testing.B) {
	s := benchmarkSession(b)
	st, err := s.Open(context.Background(), "echo")
	if err != nil {
		b.Fatal(err)
	}
	m := value(make([]byte, 100))
	b.ReportAllocs()
	for b.Loop() {
		if err := st.Send(m); err != nil {
			b.Fatal(err)
		}
		if err := st.Receive(m); err != nil {
			b.Fatal(err)
		}
	}
	st.Cancel()
}

func BenchmarkCallsInParallel(b *testing.B) {
	s := benchmarkSession(b)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		request, reply := value(make([]byte, 100)), value(nil)
		for pb.Next() {
			if err := Call(context.Background(), s, "call", request, reply); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkMessagesFromTheGuest64K(b *testing.B) {
	s := benchmarkSession(b)
	st, err := s.Open(context.Background(), "flood")
	if err != nil {
		b.Fatal(err)
	}
	if err := st.Send(value(nil)); err != nil {
		b.Fatal(err)
	}
	m := value(nil)
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := st.Receive(m); err != nil {
			b.Fatal(err)
		}
	}
	st.Cancel()
}

func BenchmarkMessagesToTheGuest64K(b *testing.B) {
	s := benchmarkSession(b)
	st, err := s.Open(context.Background(), "sink")
	if err != nil {
		b.Fatal(err)
	}
	m := value(pattern(64<<10-8, 1))
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := st.Send(m); err != nil {
			b.Fatal(err)
		}
	}
	if err := st.CloseSend(); err != nil {
		b.Fatal(err)
	}
	if err := st.Receive(m); err != nil {
		b.Fatal(err)
	}
	if err := st.Receive(m); err != io.EOF {
		b.Fatal(err)
	}
}

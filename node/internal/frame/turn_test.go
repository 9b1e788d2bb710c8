package frame

import (
	"testing"
)

// inOrder is a guest that tells which streams of the method "ordered" have had their turn, by what they were sent first.
func inOrder(t *testing.T, begin func(name string)) *Session {
	t.Helper()
	checkGoroutines(t)
	e := newEnds(t)
	serve(t, e.guestReads, e.guestWrites, GuestOptions{InOrder: []string{"ordered"}, Handler: func(st *Stream) {
		m := value(nil)
		if err := st.Receive(m); err != nil {
			return
		}
		if string(m.Value) == "refused" {
			st.End(&Status{Message: "refused"})
			return
		}
		if err := st.WaitTurn(); err != nil {
			return
		}
		begin(string(m.Value))
		st.PassTurn()
		_ = st.Reply(m)
	}})
	return connect(t, e.hostReads, e.hostWrites, 1)
}

func TestStreamsOfAnOrderedMethodBeginAsTheyWereOpened(t *testing.T) {
	begun := make(chan byte, 200)
	s := inOrder(t, func(name string) { begun <- name[0] })
	var streams []*Stream
	for i := range cap(begun) {
		st := open(t, s, "ordered")
		if err := st.Send(value([]byte{byte(i)})); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	for i, st := range streams {
		receive(t, st)
		if got := await(t, "the next to begin", begun); got != byte(i) {
			t.Fatalf("stream %d began as number %d", got, i)
		}
	}
}

func TestStreamWaitsForTheOneBeforeAndOthersDoNot(t *testing.T) {
	first, begun := make(chan struct{}), make(chan string, 3)
	s := inOrder(t, func(name string) {
		begun <- name
		if name == "first" {
			<-first
		}
	})
	streams := map[string]*Stream{}
	for _, name := range []string{"first", "second", "free"} {
		method := "ordered"
		if name == "free" {
			method = "other"
		}
		streams[name] = open(t, s, method)
		if err := streams[name].Send(value([]byte(name))); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{await(t, "one", begun): true, await(t, "another", begun): true}
	if !seen["first"] || !seen["free"] {
		t.Fatalf("begun: %v (expected: first and free)", seen)
	}
	receive(t, streams["free"])
	close(first)
	receive(t, streams["first"])
	receive(t, streams["second"])
}

func TestStreamThatEndsEarlyKeepsNobodyWaiting(t *testing.T) {
	s := inOrder(t, func(string) {})
	refused, broken, last := open(t, s, "ordered"), open(t, s, "ordered"), open(t, s, "ordered")
	if err := refused.Send(value([]byte("refused"))); err != nil {
		t.Fatal(err)
	}
	if err := broken.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := last.Send(value([]byte("last"))); err != nil {
		t.Fatal(err)
	}
	receive(t, last)
	broken.Cancel()
	if err := refused.Receive(value(nil)); err == nil {
		t.Fatal("no status of the refused one")
	}
}

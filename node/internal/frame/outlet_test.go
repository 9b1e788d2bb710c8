package frame_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/frame"
)

func outletAndReader(t *testing.T) (*frame.Outlet, *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	reader := os.NewFile(uintptr(fds[0]), "reader")
	outlet, err := frame.NewOutlet(fds[1], "outlet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = outlet.Close(), reader.Close() })
	return outlet, reader
}

func fill(t *testing.T, outlet *frame.Outlet) (filled int) {
	t.Helper()
	piece := make([]byte, 32<<10)
	for {
		n, err := outlet.Try(piece)
		if err != nil {
			t.Fatal(err)
		}
		filled += n
		if n < len(piece) {
			return filled
		}
	}
}

func TestAnOutletWritesAllWhileTheReaderIsSlowerThanItself(t *testing.T) {
	outlet, reader := outletAndReader(t)
	// Often enough that the poller is asked for, given up, and asked for again.
	var sent bytes.Buffer
	for i := range 300 {
		size := 10
		if i%100 == 0 {
			size = 1 << 20
		}
		sent.Write(bytes.Repeat([]byte{byte(i)}, size))
	}
	go func() {
		rest := sent.Bytes()
		for i := range 300 {
			size := 10
			if i%100 == 0 {
				size = 1 << 20
			}
			if n, err := outlet.Write(rest[:size]); err != nil || n != size {
				t.Errorf("%d, %v (expected: %d bytes written)", n, err, size)
			}
			rest = rest[size:]
		}
		_ = outlet.Close()
	}()
	got, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(got, sent.Bytes()) {
		t.Fatalf("%d bytes, %v (expected: the %d that were written)", len(got), err, sent.Len())
	}
}

func TestAFullOutletsWriteEndsAtTheDeadlineAndAtClose(t *testing.T) {
	for name, end := range map[string]func(*frame.Outlet) error{
		"deadline": func(o *frame.Outlet) error { return o.SetWriteDeadline(time.Unix(1, 0)) },
		"close":    (*frame.Outlet).Close,
	} {
		t.Run(name, func(t *testing.T) {
			outlet, _ := outletAndReader(t)
			fill(t, outlet)
			ended := make(chan error, 1)
			go func() {
				_, err := outlet.Write([]byte("no room"))
				ended <- err
			}()
			if err := end(outlet); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, os.ErrClosed) {
					t.Fatalf("%v (expected: deadline exceeded, or closed)", err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the write still waits")
			}
		})
	}
}

func TestAnOutletWorksAgainOnceItsDeadlineIsTakenBack(t *testing.T) {
	outlet, reader := outletAndReader(t)
	if err := outlet.SetWriteDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := outlet.Try([]byte("early")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v (expected: deadline exceeded)", err)
	}
	if err := outlet.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := outlet.Write([]byte("late")); n != 4 || err != nil {
		t.Fatalf("%d, %v (expected: 4 bytes written)", n, err)
	}
	got := make([]byte, 8)
	if n, err := reader.Read(got); err != nil || string(got[:n]) != "late" {
		t.Fatalf("%q, %v (expected: late)", got[:n], err)
	}
}

package ports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

const patience = 60 * time.Second

func TestTable_of_sockets_tells_those_that_listen(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 30 10 -1
   2: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4713 1
   3: 0000000000000000FFFF00000100007F:0051 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4714 1
   4: nonsense:0050 x 0A 0:0 00:0 0 0 0 4715 1
   5: 00:0050 x 0A 0:0 00:0 0 0 0 4716 1
short
`
	found, err := parseTable(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range found {
		got = append(got, fmt.Sprintf("%s %d %s", l.address, l.port, l.inode))
	}
	if text := strings.Join(got, "; "); text != "127.0.0.1 8080 4711; ::1 80 4713; ::ffff:127.0.0.1 81 4714" {
		t.Error(text)
	}
}

func FuzzTable_of_sockets(f *testing.F) {
	f.Add([]byte("  sl\n 0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 4711 1\n"))
	f.Fuzz(func(t *testing.T, table []byte) {
		found, _ := parseTable(bytes.NewReader(table))
		for _, l := range found {
			if !l.address.IsValid() {
				t.Errorf("%v", l)
			}
		}
	})
}

func TestSockets_of_the_agent_itself_are_left_out(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	reply, err := List(func(call func()) error { call(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range reply.Ports {
		if int(port.Port) == listener.Addr().(*net.TCPAddr).Port {
			t.Errorf("%v", port)
		}
	}
}

func session(t *testing.T) *frame.Session {
	t.Helper()
	guestReads, hostWrites, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	hostReads, guestWrites, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- frame.Serve(ctx, guestReads, guestWrites, frame.GuestOptions{
			MaxMessage: 1 << 20, Handler: func(stream *frame.Stream) { stream.End(Tunnel(stream)) },
		})
	}()
	connecting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	s, err := frame.Connect(connecting, hostReads, hostWrites, frame.HostOptions{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		cancel()
		<-ended
		for _, file := range []*os.File{guestReads, hostWrites, hostReads, guestWrites} {
			_ = file.Close()
		}
	})
	return s
}

// serve listens and hands each connection over.
func serve(t *testing.T, handle func(*net.TCPConn)) uint32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				handle(connection.(*net.TCPConn))
			}()
		}
	}()
	return uint32(listener.Addr().(*net.TCPAddr).Port)
}

type tunnel struct {
	t      *testing.T
	stream *frame.Stream
}

func openTunnel(t *testing.T, s *frame.Session, request *execv1.TunnelOpen) (*tunnel, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := s.Open(ctx, agentrpc.Tunnel)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_Open{Open: request}}); err != nil {
		return nil, err
	}
	message := &execv1.TunnelMessage{}
	if err := stream.Receive(message); err != nil {
		return nil, err
	}
	if message.GetOpened() == nil {
		return nil, fmt.Errorf("first message: %v", message)
	}
	return &tunnel{t: t, stream: stream}, nil
}

func (u *tunnel) send(data []byte) error {
	for len(data) > 0 {
		n := min(len(data), 60_000)
		if err := u.stream.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: data[:n]}}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (u *tunnel) end() error {
	return u.stream.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_End{End: &execv1.TunnelEnd{}}})
}

// receive returns what comes until the other side's end.
func (u *tunnel) receive() ([]byte, error) {
	var got []byte
	for {
		message := &execv1.TunnelMessage{}
		if err := u.stream.Receive(message); err != nil {
			return got, err
		}
		if message.GetEnd() != nil {
			return got, nil
		}
		got = append(got, message.GetData()...)
	}
}

func TestTunnel_keeps_half_closes_of_both_sides(t *testing.T) {
	s := session(t)
	// The program answers only after the caller's end: with half-closes alone does either get all.
	port := serve(t, func(c *net.TCPConn) {
		got, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(got))
	})
	u, err := openTunnel(t, s, &execv1.TunnelOpen{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.send([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := u.end(); err != nil {
		t.Fatal(err)
	}
	if got, err := u.receive(); err != nil || string(got) != "HELLO" {
		t.Errorf("%q %v", got, err)
	}
	if err := u.stream.Receive(&execv1.TunnelMessage{}); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the call: %v", err)
	}
	// The other way round: the program ends first, and still takes what comes.
	taken := make(chan string, 1)
	port = serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("bye"))
		_ = c.CloseWrite()
		got, _ := io.ReadAll(c)
		taken <- string(got)
	})
	if u, err = openTunnel(t, s, &execv1.TunnelOpen{Port: port, Host: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	if got, err := u.receive(); err != nil || string(got) != "bye" {
		t.Errorf("%q %v", got, err)
	}
	if err := u.send([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := u.end(); err != nil {
		t.Fatal(err)
	}
	if got := <-taken; got != "late" {
		t.Errorf("%q", got)
	}
}

func TestTunnel_to_a_port_on_which_nothing_listens_is_unavailable(t *testing.T) {
	s := session(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint32(listener.Addr().(*net.TCPAddr).Port)
	_ = listener.Close()
	for _, one := range []struct {
		open *execv1.TunnelOpen
		code codes.Code
	}{
		{&execv1.TunnelOpen{Port: port}, codes.Unavailable},
		{&execv1.TunnelOpen{Port: 0}, codes.InvalidArgument},
		{&execv1.TunnelOpen{Port: 65536}, codes.InvalidArgument},
		{&execv1.TunnelOpen{Port: 80, Host: "192.0.2.1"}, codes.InvalidArgument},
		{&execv1.TunnelOpen{Port: 80, Host: "example.org"}, codes.InvalidArgument},
		{&execv1.TunnelOpen{Port: 80, Host: "169.254.169.254"}, codes.InvalidArgument},
		{&execv1.TunnelOpen{Port: 80, Host: "0.0.0.0"}, codes.InvalidArgument},
	} {
		if _, err := openTunnel(t, s, one.open); frame.StatusOf(err) != one.code || err == nil {
			t.Errorf("%v: %v (expected: %v)", one.open, err, one.code)
		}
	}
}

func TestTunnel_holds_its_sender_back_when_the_other_side_does_not_read(t *testing.T) {
	s := session(t)
	release := make(chan struct{})
	total := make(chan int64, 1)
	port := serve(t, func(c *net.TCPConn) {
		<-release
		n, _ := io.Copy(io.Discard, c)
		total <- n
	})
	u, err := openTunnel(t, s, &execv1.TunnelOpen{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	const size = 32 << 20
	sent := make(chan error, 1)
	go func() {
		err := u.send(make([]byte, size))
		if err == nil {
			err = u.end()
		}
		sent <- err
	}()
	// Others are not held back.
	echo := serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	for range 20 {
		other, err := openTunnel(t, s, &execv1.TunnelOpen{Port: echo})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.send([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if err := other.end(); err != nil {
			t.Fatal(err)
		}
		if got, err := other.receive(); err != nil || string(got) != "ping" {
			t.Fatalf("%q %v", got, err)
		}
	}
	select {
	case err := <-sent:
		t.Fatalf("32 MiB went to a program that does not read: %v", err)
	default:
	}
	close(release)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if n := <-total; n != size {
		t.Errorf("%d bytes arrived", n)
	}
}

func TestTunnels_by_the_thousand_leave_nothing_behind(t *testing.T) {
	s := session(t)
	port := serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	one := func() error {
		u, err := openTunnel(t, s, &execv1.TunnelOpen{Port: port})
		if err != nil {
			return err
		}
		if err := u.send([]byte("ping")); err != nil {
			return err
		}
		if err := u.end(); err != nil {
			return err
		}
		if got, err := u.receive(); err != nil || string(got) != "ping" {
			return fmt.Errorf("%q %w", got, err)
		}
		if err := u.stream.Receive(&execv1.TunnelMessage{}); !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
	if err := one(); err != nil {
		t.Fatal(err)
	}
	goroutines, descriptors := runtime.NumGoroutine(), len(numbers("/proc/self/fd", 1<<20))
	var group sync.WaitGroup
	for range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 100 {
				if err := one(); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	group.Wait()
	// Some are cut off in the middle.
	for range 50 {
		u, err := openTunnel(t, s, &execv1.TunnelOpen{Port: port})
		if err != nil {
			t.Fatal(err)
		}
		u.stream.Cancel()
	}
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > goroutines+5 || len(numbers("/proc/self/fd", 1<<20)) > descriptors+5 || tunnels.Load() != 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines (%d before), %d descriptors (%d before), %d tunnels", runtime.NumGoroutine(), goroutines,
				len(numbers("/proc/self/fd", 1<<20)), descriptors, tunnels.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

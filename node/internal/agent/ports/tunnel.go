package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/frame"
)

const (
	dialPatience = 10 * time.Second
	// What a tunnel reads at once; a thousand of them may be open.
	tunnelBytes = 32<<10 - 64
	maxTunnels  = 2048
)

var tunnelBuffers = sync.Pool{New: func() any {
	buffer := make([]byte, tunnelBytes)
	return &buffer
}}

var tunnels atomic.Int32

// Tunnel serves one connection to a port of the sandbox.
func Tunnel(stream *frame.Stream) error {
	first := &execv1.TunnelMessage{}
	if err := stream.Receive(first); err != nil {
		return err
	}
	request := first.GetOpen()
	if request == nil {
		return &frame.Status{Code: codes.InvalidArgument, Message: "the first message is `open`"}
	}
	if tunnels.Add(1) > maxTunnels {
		tunnels.Add(-1)
		return &frame.Status{Code: codes.ResourceExhausted, Message: fmt.Sprintf("%d tunnels are open, which is the most", maxTunnels)}
	}
	defer tunnels.Add(-1)
	connection, err := dial(stream.Context(), request)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := stream.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_Opened{Opened: &execv1.TunnelOpened{}}}); err != nil {
		return err
	}
	stop := context.AfterFunc(stream.Context(), func() { _ = connection.Close() })
	defer stop()
	written := make(chan error, 1)
	go func() {
		err := write(stream, connection)
		if err != nil {
			// Nothing can be sent there any more: what comes from there is of no use either.
			_ = connection.Close()
		}
		written <- err
	}()
	err = read(stream, connection)
	if err != nil {
		_ = connection.Close()
		stream.End(ended(stream.Context(), err))
	}
	if other := <-written; err == nil {
		err = other
	}
	if err != nil {
		return ended(stream.Context(), err)
	}
	return nil
}

func ended(ctx context.Context, err error) error {
	var status *frame.Status
	switch {
	case errors.As(err, &status):
		return status
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &frame.Status{Code: codes.Unavailable, Message: "the connection in the sandbox has ended: " + err.Error()}
}

// read sends what comes from the program until its end.
func read(stream *frame.Stream, connection *net.TCPConn) error {
	for {
		err := readOnce(stream, connection)
		if errors.Is(err, io.EOF) {
			return stream.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_End{End: &execv1.TunnelEnd{}}})
		}
		if err != nil {
			return err
		}
	}
}

// readOnce holds a buffer only while there is something to read: an idle tunnel costs none.
func readOnce(stream *frame.Stream, connection *net.TCPConn) error {
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var buffer *[]byte
	n := 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		if buffer == nil {
			buffer = tunnelBuffers.Get().(*[]byte)
		}
		n, failed = syscall.Read(int(fd), *buffer)
		if errors.Is(failed, syscall.EAGAIN) || errors.Is(failed, syscall.EINTR) {
			tunnelBuffers.Put(buffer)
			buffer = nil
			return errors.Is(failed, syscall.EINTR)
		}
		return true
	})
	if buffer != nil {
		defer tunnelBuffers.Put(buffer)
	}
	switch {
	case err != nil:
		return err
	case errors.Is(failed, syscall.EINTR):
		return nil
	case failed != nil:
		return failed
	case n == 0:
		return io.EOF
	}
	return stream.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: (*buffer)[:n]}})
}

// write passes on what comes from the caller until its end, which may be said, or be the end of its side of the stream.
func write(stream *frame.Stream, connection *net.TCPConn) error {
	for {
		over := false
		var failed error
		err := stream.ReceiveBytes(func(message []byte) error {
			// An error returned here would cancel the stream, and the caller not hear of the reason.
			over, failed = pass(message, connection)
			return nil
		})
		if errors.Is(err, io.EOF) {
			over, err = true, nil
		}
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		if over {
			err := connection.CloseWrite()
			if errors.Is(err, syscall.ENOTCONN) {
				return nil
			}
			return err
		}
	}
}

func pass(message []byte, connection *net.TCPConn) (over bool, err error) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false, protowire.ParseError(n)
		}
		message = message[n:]
		switch {
		case field == 3 && kind == protowire.BytesType:
			data, _ := protowire.ConsumeBytes(message)
			if _, err := connection.Write(data); err != nil {
				return false, err
			}
		case field == 4:
			over = true
		default:
			return false, &frame.Status{Code: codes.InvalidArgument, Message: "after `open` come data and `end`"}
		}
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return false, protowire.ParseError(n)
		}
		message = message[n:]
	}
	return over, nil
}

// dial connects to an address of the sandbox itself.
func dial(ctx context.Context, request *execv1.TunnelOpen) (*net.TCPConn, error) {
	if request.Port == 0 || request.Port > 65535 {
		return nil, &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("port %d (expected: 1 to 65535)", request.Port)}
	}
	addresses := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	if request.Host != "" && request.Host != "localhost" {
		address, err := ownAddress(request.Host)
		if err != nil {
			return nil, err
		}
		addresses = []netip.Addr{address}
	}
	dialer := &net.Dialer{Timeout: dialPatience, KeepAlive: -1}
	var last error
	for _, address := range addresses {
		connection, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address, uint16(request.Port)).String())
		if err == nil {
			return connection.(*net.TCPConn), nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// The first one says more: there may be no IPv6 at all.
		if last == nil || errors.Is(err, syscall.ECONNREFUSED) {
			last = err
		}
	}
	where := request.Host
	if where == "" {
		where = "localhost"
	}
	var errno syscall.Errno
	reason := last.Error()
	if errors.As(last, &errno) {
		reason = errno.Error()
	}
	return nil, &frame.Status{Code: codes.Unavailable,
		Message: fmt.Sprintf("nothing listens on port %d in the sandbox (%s: %s)", request.Port, net.JoinHostPort(where, strconv.Itoa(int(request.Port))), reason)}
}

// ownAddress lets only addresses pass that are the sandbox's own: a tunnel is no way out of it.
func ownAddress(host string) (netip.Addr, error) {
	refused := &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("%q is no address of this sandbox", host)}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, refused
	}
	address = address.Unmap()
	if address.IsLoopback() {
		return address, nil
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("addresses of the sandbox: %w", err)
	}
	for _, one := range own {
		if prefix, err := netip.ParsePrefix(one.String()); err == nil && prefix.Addr().Unmap() == address {
			return address, nil
		}
	}
	return netip.Addr{}, refused
}

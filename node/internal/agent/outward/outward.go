// Package outward carries connections of programs in a sandbox to the host: a sandbox has no network, so who wants out connects to a port
// of the sandbox itself. The agent only passes bytes on. What they ask for, and whether they get it, the host decides.
package outward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	"atoll/node/internal/frame"
)

const (
	// Connections that the host has not taken up yet, and how long they wait.
	maxWaiting = 128
	patience   = 30 * time.Second
	// Connections that are open.
	maxOpen = 512
	// What is read at once; each direction of each connection holds one.
	chunkBytes = 32<<10 - 64
)

// Outward is the listener of one sandbox, and its connections.
type Outward struct {
	mu sync.Mutex
	// All below is guarded by mu.
	listening bool
	last      uint64
	waiting   map[uint64]*net.TCPConn
	open      int
}

// Listen serves one ListenOutward call.
func (o *Outward) Listen(stream *frame.Stream) error {
	request := &agentv1.ListenOutwardRequest{}
	if err := stream.Receive(request); err != nil {
		return err
	}
	if request.Port > 65535 {
		return &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("port %d (expected: 0 to 65535)", request.Port)}
	}
	if !o.begin() {
		return &frame.Status{Code: codes.FailedPrecondition, Message: "connections outward are listened for already"}
	}
	defer o.end()
	listener, err := listen(int(request.Port))
	if err != nil {
		return &frame.Status{Code: codes.Internal, Message: "listening for connections outward: " + err.Error()}
	}
	defer listener.Close()
	stop := context.AfterFunc(stream.Context(), func() { listener.Close() })
	defer stop()
	port := uint32(listener.Addr().(*net.TCPAddr).Port)
	if err := stream.Send(&agentv1.OutwardEvent{Event: &agentv1.OutwardEvent_ListeningPort{ListeningPort: port}}); err != nil {
		return err
	}
	for {
		connection, err := listener.AcceptTCP()
		if stream.Context().Err() != nil {
			if err == nil {
				connection.Close()
			}
			return stream.Context().Err()
		}
		if err != nil {
			return &frame.Status{Code: codes.Internal, Message: "taking connections outward: " + err.Error()}
		}
		id, taken := o.add(connection)
		if !taken {
			connection.Close()
			continue
		}
		if err := stream.Send(&agentv1.OutwardEvent{Event: &agentv1.OutwardEvent_Connection{Connection: id}}); err != nil {
			return err
		}
	}
}

// listen takes any port where the one that is wished for is taken.
func listen(port int) (*net.TCPListener, error) {
	local := net.IPv4(127, 0, 0, 1)
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: local, Port: port})
	if err != nil && port != 0 {
		listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: local})
	}
	return listener, err
}

func (o *Outward) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listening {
		return false
	}
	o.listening, o.waiting = true, map[uint64]*net.TCPConn{}
	return true
}

func (o *Outward) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, connection := range o.waiting {
		connection.Close()
	}
	o.listening, o.waiting = false, nil
}

func (o *Outward) add(connection *net.TCPConn) (id uint64, taken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) >= maxWaiting || o.open >= maxOpen {
		return 0, false
	}
	o.last++
	id = o.last
	o.waiting[id] = connection
	time.AfterFunc(patience, func() {
		if late := o.take(id); late != nil {
			late.Close()
		}
	})
	return id, true
}

// take returns a connection that waits, once.
func (o *Outward) take(id uint64) *net.TCPConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	connection := o.waiting[id]
	delete(o.waiting, id)
	return connection
}

// Serve carries one connection.
func (o *Outward) Serve(stream *frame.Stream) error {
	first := &agentv1.OutwardMessage{}
	if err := stream.Receive(first); err != nil {
		return err
	}
	connection := o.take(first.GetConnection())
	if connection == nil {
		return &frame.Status{Code: codes.NotFound, Message: fmt.Sprintf("no connection %d waits", first.GetConnection())}
	}
	defer connection.Close()
	o.count(1)
	defer o.count(-1)
	stop := context.AfterFunc(stream.Context(), func() { connection.Close() })
	defer stop()
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := write(stream, connection); err != nil {
			// Nothing can be sent there any more: what comes from there is of no use either.
			connection.Close()
		}
	}()
	err := read(stream, connection)
	if err != nil {
		connection.Close()
		stream.End(&frame.Status{Code: codes.Unavailable, Message: "the connection in the sandbox has ended: " + err.Error()})
	}
	<-written
	return nil
}

func (o *Outward) count(by int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open += by
}

// read sends what the program says until its end.
func read(stream *frame.Stream, connection *net.TCPConn) error {
	chunk := make([]byte, chunkBytes)
	for {
		n, err := connection.Read(chunk)
		if n > 0 {
			if err := stream.Send(&agentv1.OutwardMessage{Message: &agentv1.OutwardMessage_Data{Data: chunk[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.Send(&agentv1.OutwardMessage{Message: &agentv1.OutwardMessage_End{End: &agentv1.Empty{}}})
		}
		if err != nil {
			return err
		}
	}
}

// write passes on what the host says until its end.
func write(stream *frame.Stream, connection *net.TCPConn) error {
	for {
		message := &agentv1.OutwardMessage{}
		err := stream.Receive(message)
		if errors.Is(err, io.EOF) || err == nil && message.GetEnd() != nil {
			return connection.CloseWrite()
		}
		if err != nil {
			return err
		}
		if _, err := connection.Write(message.GetData()); err != nil {
			return err
		}
	}
}

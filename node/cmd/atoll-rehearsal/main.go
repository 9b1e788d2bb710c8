// Command atoll-rehearsal serves an engine without sandboxes on a Unix socket until it is told to stop; with --once, until its first client
// has left, or has not come for half a minute.
//
//	atoll-rehearsal [--once] SOCKET
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/rehearsal"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

const patience = 30 * time.Second

// firstClient learns from gRPC when the first connection comes and goes.
type firstClient struct {
	came, left         chan struct{}
	cameOnce, leftOnce sync.Once
}

func newFirstClient() *firstClient {
	return &firstClient{came: make(chan struct{}), left: make(chan struct{})}
}

// wait returns when the first client has left, or has not come for so long.
func (c *firstClient) wait(patience time.Duration) {
	select {
	case <-c.came:
		<-c.left
	case <-time.After(patience):
	}
}

// HandleConn implements stats.Handler.
func (c *firstClient) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.cameOnce.Do(func() { close(c.came) })
	case *stats.ConnEnd:
		c.leftOnce.Do(func() { close(c.left) })
	}
}

// TagConn implements stats.Handler.
func (c *firstClient) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *firstClient) HandleRPC(context.Context, stats.RPCStats) {}

// TagRPC implements stats.Handler.
func (c *firstClient) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func main() {
	once := flag.Bool("once", false, "end with the first client")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: atoll-rehearsal [--once] SOCKET") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	// One that was killed left its socket.
	_ = os.Remove(flag.Arg(0))
	listener, err := net.Listen("unix", flag.Arg(0))
	if err == nil {
		// Nothing is behind it that would need to be guarded.
		err = os.Chmod(flag.Arg(0), 0o666)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-rehearsal: "+err.Error())
		os.Exit(1)
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(20 << 20)}
	client := newFirstClient()
	if *once {
		options = append(options, grpc.StatsHandler(client))
	}
	server := grpc.NewServer(options...)
	enginev1.RegisterEngineServer(server, rehearsal.New())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	if *once {
		go func() {
			client.wait(patience)
			stop <- unix.SIGTERM
		}()
	}
	go func() {
		<-stop
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-rehearsal: "+err.Error())
		os.Exit(1)
	}
}

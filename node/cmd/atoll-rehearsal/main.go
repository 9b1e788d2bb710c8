// Command atoll-rehearsal serves an engine without sandboxes on a Unix socket until it is told to stop.
//
//	atoll-rehearsal SOCKET
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/rehearsal"

	"google.golang.org/grpc"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: atoll-rehearsal SOCKET")
		os.Exit(2)
	}
	listener, err := net.Listen("unix", os.Args[1])
	if err == nil {
		// Nothing is behind it that would need to be guarded.
		err = os.Chmod(os.Args[1], 0o666)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll-rehearsal: "+err.Error())
		os.Exit(1)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(20 << 20))
	enginev1.RegisterEngineServer(server, rehearsal.New())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	go func() {
		<-stop
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-rehearsal: "+err.Error())
		os.Exit(1)
	}
}

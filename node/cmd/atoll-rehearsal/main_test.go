package main

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/rehearsal"
)

func TestFirstClient_ends_the_wait_when_it_leaves_and_not_before(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	first := newFirstClient()
	server := grpc.NewServer(grpc.StatsHandler(first))
	enginev1.RegisterEngineServer(server, rehearsal.New())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	over := make(chan struct{})
	go func() {
		first.wait(time.Hour)
		close(over)
	}()
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enginev1.NewEngineClient(connection).GetInfo(context.Background(), &enginev1.GetInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
		t.Fatal("over while the client is there")
	default:
	}
	if err := connection.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("not over although the client has left")
	}
}

func TestFirstClient_is_not_waited_for_without_end(t *testing.T) {
	newFirstClient().wait(time.Millisecond)
}

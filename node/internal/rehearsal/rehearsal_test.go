package rehearsal

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
)

func client(t *testing.T) enginev1.EngineClient {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	enginev1.RegisterEngineServer(server, New())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return enginev1.NewEngineClient(connection)
}

func TestBoxLivesFromCreationToDeletion(t *testing.T) {
	ctx, c := context.Background(), client(t)
	if _, err := c.AssignBox(ctx, &enginev1.AssignBoxRequest{BoxId: "box-1", SandboxId: "sb-1"}); status.Code(err) != codes.NotFound {
		t.Fatalf("assigning a box that is not there: %v", err)
	}
	if _, err := c.CreateBox(ctx, &enginev1.CreateBoxRequest{BoxId: "box-1", Spec: &enginev1.BoxSpec{Labels: map[string]string{"pool": "p"}}}); err != nil {
		t.Fatal(err)
	}
	box, err := c.AssignBox(ctx, &enginev1.AssignBoxRequest{BoxId: "box-1", SandboxId: "sb-1"})
	if err != nil || box.GetSandboxId() != "sb-1" || box.GetState() != enginev1.BoxState_BOX_STATE_READY {
		t.Fatalf("%v, %v", box, err)
	}
	if list, err := c.ListBoxes(ctx, &enginev1.ListBoxesRequest{}); err != nil || len(list.GetBoxes()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if _, err := c.DeleteBox(ctx, &enginev1.BoxRequest{BoxId: "box-1"}); err != nil {
		t.Fatal(err)
	}
	if list, err := c.ListBoxes(ctx, &enginev1.ListBoxesRequest{}); err != nil || len(list.GetBoxes()) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
}

func TestExecutionAnswersInDenseOrderAndEndsWithFinished(t *testing.T) {
	stream, err := client(t).Execute(context.Background(), &enginev1.ExecuteRequest{BoxId: "box-1"})
	if err != nil {
		t.Fatal(err)
	}
	var last *execv1.ExecutionEvent
	for seq := uint64(1); ; seq++ {
		event, err := stream.Recv()
		if err != nil {
			break
		}
		if event.GetSeq() != seq {
			t.Fatalf("event %d has seq %d", seq, event.GetSeq())
		}
		last = event
	}
	if last.GetFinished().GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED {
		t.Fatalf("last event: %v", last)
	}
}

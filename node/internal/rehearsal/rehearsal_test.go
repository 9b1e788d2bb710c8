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

func TestBoxIsMadeFromSnapshotsAndFromPausedBoxes(t *testing.T) {
	ctx, c := context.Background(), client(t)
	spec := &enginev1.BoxSpec{ImageDigest: "d", WarmContexts: []*execv1.ContextSpec{{ContextId: "ctx-1", Language: "python"}}}
	if _, err := c.CreateBox(ctx, &enginev1.CreateBoxRequest{BoxId: "box-1", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSnapshot(ctx, &enginev1.CreateSnapshotRequest{BoxId: "box-1", SnapshotId: "snap-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PrepareBox(ctx, &enginev1.PrepareBoxRequest{BoxId: "box-2", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	restored, err := c.RestoreBox(ctx, &enginev1.RestoreBoxRequest{
		BoxId: "box-3", SnapshotId: "snap-1", PreparedBoxId: "box-2", RenameContexts: map[string]string{"ctx-1": "ctx-2"},
	})
	if err != nil || len(restored.GetContexts()) != 1 || restored.GetContexts()[0].GetContextId() != "ctx-2" || restored.GetRestoredFrom() != "snap-1" {
		t.Fatalf("%v, %v", restored, err)
	}
	if paused, err := c.PauseBox(ctx, &enginev1.PauseBoxRequest{BoxId: "box-3", SnapshotId: "snap-2"}); err != nil || paused.GetState() != enginev1.BoxState_BOX_STATE_PAUSED {
		t.Fatalf("%v, %v", paused, err)
	}
	if forked, err := c.RestoreBox(ctx, &enginev1.RestoreBoxRequest{BoxId: "box-4", PausedBoxId: "box-3"}); err != nil || forked.GetState() != enginev1.BoxState_BOX_STATE_READY {
		t.Fatalf("%v, %v", forked, err)
	}
	if resumed, err := c.ResumeBox(ctx, &enginev1.ResumeBoxRequest{BoxId: "box-3"}); err != nil || resumed.GetState() != enginev1.BoxState_BOX_STATE_READY {
		t.Fatalf("%v, %v", resumed, err)
	}
	list, err := c.ListSnapshots(ctx, &enginev1.ListSnapshotsRequest{})
	if err != nil || len(list.GetSnapshots()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if boxes, err := c.ListBoxes(ctx, &enginev1.ListBoxesRequest{}); err != nil || len(boxes.GetBoxes()) != 3 {
		t.Fatalf("%v, %v (expected: the first, the restored and the forked one)", boxes, err)
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

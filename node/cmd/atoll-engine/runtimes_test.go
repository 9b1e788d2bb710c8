package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/internal/engine/enginetest"
)

func TestRuntimeThatIsNotThereIsRefusedWithTheReason(t *testing.T) {
	e := enginetest.StartWith(t, "", "--docker-socket", t.TempDir()+"/none.sock")
	ctx := t.Context()
	for runtime, expected := range map[string]string{"docker": "--docker-socket", "bhyve": "gvisor"} {
		request := e.Request(ctx, "python", "python")
		request.Spec.Runtime = runtime
		if _, err := e.CreateBox(ctx, request); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s: %v (expected: a reason with %q)", runtime, err, expected)
		}
	}
	request := e.Request(ctx, "python", "python")
	request.Spec.Runtime = "gvisor"
	if _, err := e.CreateBox(ctx, request); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(ctx, request.GetBoxId()); err != nil {
		t.Fatal(err)
	}
}

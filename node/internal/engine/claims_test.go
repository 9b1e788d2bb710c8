package engine

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"

	"atoll/node/gen/enginev1"
)

func as(epochs ...string) context.Context {
	md := metadata.MD{}
	md.Append(EpochKey, epochs...)
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestClaimOutlivesTheEngine(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenClaims(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, epoch := range []uint64{3, 3, 8} {
		if err := c.Claim(epoch); err != nil {
			t.Fatal(err)
		}
	}
	again, err := OpenClaims(dir)
	if err != nil || again.Current() != 8 {
		t.Fatalf("%d, %v (expected: 8)", again.Current(), err)
	}
	if err := again.Claim(7); err == nil {
		t.Fatal("an older server claimed the node")
	}
}

func TestOnlyTheLastClaimMayChangeThings(t *testing.T) {
	c, err := OpenClaims(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const change, look = enginev1.Engine_CreateBox_FullMethodName, enginev1.Engine_ListBoxes_FullMethodName
	if c.check(as("1"), change) == nil {
		t.Error("a change before any claim was allowed")
	}
	if err := c.Claim(5); err != nil {
		t.Fatal(err)
	}
	for name, ctx := range map[string]context.Context{
		"older": as("4"), "newer than the claim": as("6"), "none": context.Background(), "two": as("5", "5"), "no number": as("five"),
	} {
		if c.check(ctx, change) == nil {
			t.Errorf("%s: a change was allowed", name)
		}
		if err := c.check(ctx, look); err != nil {
			t.Errorf("%s: looking was refused: %v", name, err)
		}
	}
	if err := c.check(as("5"), change); err != nil {
		t.Error(err)
	}
}

// A call that is added to the protocol must be put on one side or the other.
func TestEveryCallIsEitherFencedOrKnownToChangeNothing(t *testing.T) {
	open := map[string]bool{
		"GetInfo": true, "Claim": true, "ListImages": true, "GetBox": true, "ListBoxes": true, "WatchBoxes": true, "ListContexts": true,
		"Attach": true, "ListExecutions": true, "ReadOutput": true, "GetProcess": true, "ListProcesses": true, "WaitProcess": true,
		"ListGuestProcesses": true, "ReadFile": true, "WatchFiles": true, "ListPorts": true, "SampleUsage": true,
		"ListSnapshots": true, "ExportSnapshot": true,
	}
	names := []string{}
	for _, m := range enginev1.Engine_ServiceDesc.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range enginev1.Engine_ServiceDesc.Streams {
		names = append(names, s.StreamName)
	}
	for _, name := range names {
		if open[name] == mutating["/"+enginev1.Engine_ServiceDesc.ServiceName+"/"+name] {
			t.Errorf("%s is neither fenced nor known to change nothing, or both", name)
		}
	}
}

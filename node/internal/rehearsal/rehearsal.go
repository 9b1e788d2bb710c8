// Package rehearsal holds an engine without sandboxes, for the server to practise on.
package rehearsal

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
)

// Engine is one without sandboxes: every execution answers "2" at once. The launcher lets a new build of the server work against it
// for some seconds while Java writes its start-up cache, so that the cache holds what the server does under load and not only how it starts.
type Engine struct {
	enginev1.UnimplementedEngineServer

	mu sync.Mutex
	// Both are guarded by mu.
	boxes     map[string]*enginev1.Box
	snapshots map[string]*enginev1.Snapshot
}

// New makes one without boxes.
func New() *Engine {
	return &Engine{boxes: make(map[string]*enginev1.Box), snapshots: make(map[string]*enginev1.Snapshot)}
}

// GetInfo says that there is room.
func (e *Engine) GetInfo(context.Context, *enginev1.GetInfoRequest) (*enginev1.EngineInfo, error) {
	return &enginev1.EngineInfo{
		Instance: "rehearsal", EngineVersion: "rehearsal", CgroupVersion: 2, Cpus: 2, MemoryTotalBytes: 8 << 30, MemoryAvailableBytes: 8 << 30,
		DiskTotalBytes: 64 << 30, DiskAvailableBytes: 64 << 30, StartedAtUnixMs: time.Now().UnixMilli(),
	}, nil
}

// Claim takes any epoch.
func (e *Engine) Claim(context.Context, *enginev1.ClaimRequest) (*enginev1.ClaimReply, error) {
	return &enginev1.ClaimReply{}, nil
}

// ListImages names the images of the two templates.
func (e *Engine) ListImages(context.Context, *enginev1.ListImagesRequest) (*enginev1.ListImagesReply, error) {
	image := func(name, digit, language string) *enginev1.Image {
		digest := ""
		for range 64 {
			digest += digit
		}
		return &enginev1.Image{
			Name: name, Digest: digest, SizeBytes: 1 << 20, Languages: []string{language, "bash"}, DefaultLanguage: language,
			BuiltAtUnixMs: time.Now().UnixMilli(), MetadataJson: "{}",
		}
	}
	return &enginev1.ListImagesReply{Images: []*enginev1.Image{image("python", "a", "python"), image("typescript-bun", "b", "typescript")}}, nil
}

// CreateBox makes one that is ready.
func (e *Engine) CreateBox(_ context.Context, q *enginev1.CreateBoxRequest) (*enginev1.Box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.add(q.GetBoxId(), q.GetSpec(), enginev1.BoxState_BOX_STATE_READY), nil
}

// AssignBox gives a box its sandbox.
func (e *Engine) AssignBox(_ context.Context, q *enginev1.AssignBoxRequest) (*enginev1.Box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	box := e.boxes[q.GetBoxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "no box %s", q.GetBoxId())
	}
	assigned := &enginev1.Box{
		BoxId: box.GetBoxId(), Spec: box.GetSpec(), State: box.GetState(), SandboxId: q.GetSandboxId(), Labels: q.GetLabels(),
		CreatedAtUnixMs: box.GetCreatedAtUnixMs(), Limits: q.GetLimits(),
	}
	e.boxes[q.GetBoxId()] = assigned
	return assigned, nil
}

// DeleteBox forgets one.
func (e *Engine) DeleteBox(_ context.Context, q *enginev1.BoxRequest) (*enginev1.DeleteBoxReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, q.GetBoxId())
	return &enginev1.DeleteBoxReply{}, nil
}

// ListBoxes lists them.
func (e *Engine) ListBoxes(context.Context, *enginev1.ListBoxesRequest) (*enginev1.ListBoxesReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply := &enginev1.ListBoxesReply{}
	for _, box := range e.boxes {
		reply.Boxes = append(reply.Boxes, box)
	}
	return reply, nil
}

// WatchBoxes has nothing to tell.
func (e *Engine) WatchBoxes(_ *enginev1.WatchBoxesRequest, stream enginev1.Engine_WatchBoxesServer) error {
	<-stream.Context().Done()
	return nil
}

// OpenContext opens any.
func (e *Engine) OpenContext(_ context.Context, q *enginev1.OpenContextRequest) (*execv1.Context, error) {
	return &execv1.Context{ContextId: q.GetSpec().GetContextId(), Language: q.GetSpec().GetLanguage(), State: execv1.ContextState_CONTEXT_STATE_IDLE}, nil
}

// Execute answers as a sandbox answers `print(1+1)`.
func (e *Engine) Execute(_ *enginev1.ExecuteRequest, stream enginev1.Engine_ExecuteServer) error {
	now := time.Now().UnixMilli()
	for _, event := range []*execv1.ExecutionEvent{
		{Seq: 1, Event: &execv1.ExecutionEvent_Started{Started: &execv1.Started{AtUnixMs: now}}},
		{Seq: 2, Event: &execv1.ExecutionEvent_Output{Output: &execv1.Output{Stream: execv1.Stream_STREAM_STDOUT, Data: []byte("2\n")}}},
		{Seq: 3, Event: &execv1.ExecutionEvent_Finished{Finished: &execv1.Finished{
			Reason: execv1.ExitReason_EXIT_REASON_COMPLETED, StateKept: true, StartedAtUnixMs: now, DurationUs: 100, StdoutBytes: 2,
		}}},
	} {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	return nil
}

// ListExecutions has none: what was executed is over.
func (e *Engine) ListExecutions(context.Context, *enginev1.ListExecutionsRequest) (*enginev1.ListExecutionsReply, error) {
	return &enginev1.ListExecutionsReply{}, nil
}

// ListProcesses implements enginev1.EngineServer.
func (e *Engine) ListProcesses(context.Context, *enginev1.ListProcessesRequest) (*enginev1.ListProcessesReply, error) {
	return &enginev1.ListProcessesReply{}, nil
}

// SampleUsage implements enginev1.EngineServer.
func (e *Engine) SampleUsage(context.Context, *enginev1.SampleUsageRequest) (*enginev1.SampleUsageReply, error) {
	return &enginev1.SampleUsageReply{}, nil
}

// ForgetExecutions has nothing to forget.
func (e *Engine) ForgetExecutions(context.Context, *enginev1.ForgetExecutionsRequest) (*enginev1.ForgetExecutionsReply, error) {
	return &enginev1.ForgetExecutionsReply{}, nil
}

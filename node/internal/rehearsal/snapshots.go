package rehearsal

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
)

// PrepareBox makes one without anything in it.
func (e *Engine) PrepareBox(_ context.Context, q *enginev1.PrepareBoxRequest) (*enginev1.Box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.add(q.GetBoxId(), q.GetSpec(), enginev1.BoxState_BOX_STATE_PREPARED), nil
}

// add returns the box of that id, made now where it is not there. Requires: mu is held.
func (e *Engine) add(id string, spec *enginev1.BoxSpec, state enginev1.BoxState) *enginev1.Box {
	box := e.boxes[id]
	if box == nil {
		box = &enginev1.Box{
			BoxId: id, Spec: spec, State: state, Labels: spec.GetLabels(), CreatedAtUnixMs: time.Now().UnixMilli(), Limits: spec.GetLimits(),
		}
		e.boxes[id] = box
	}
	return box
}

// RestoreBox makes one that is ready, as the snapshot or the paused box was.
func (e *Engine) RestoreBox(_ context.Context, q *enginev1.RestoreBoxRequest) (*enginev1.Box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	spec := &enginev1.BoxSpec{Labels: q.GetLabels(), Limits: q.GetLimits(), WarmContexts: q.GetWarmContexts()}
	var contexts []*execv1.Context
	if source := e.boxes[q.GetPausedBoxId()]; source != nil {
		spec.ImageDigest, contexts = source.GetSpec().GetImageDigest(), source.GetContexts()
		spec.Limits = source.GetLimits()
	} else if s := e.snapshots[q.GetSnapshotId()]; s != nil {
		spec.ImageDigest, contexts = s.GetImageDigest(), s.GetContexts()
		spec.Limits = s.GetLimits()
	} else {
		return nil, status.Errorf(codes.NotFound, "no snapshot %s", q.GetSnapshotId())
	}
	if q.GetLimits() != nil {
		spec.Limits = q.GetLimits()
	}
	delete(e.boxes, q.GetPreparedBoxId())
	box := e.add(q.GetBoxId(), spec, enginev1.BoxState_BOX_STATE_READY)
	box.RestoredFrom = q.GetSnapshotId()
	for _, c := range contexts {
		renamed := proto.CloneOf(c)
		if id := q.GetRenameContexts()[c.GetContextId()]; id != "" {
			renamed.ContextId = id
		}
		box.Contexts = append(box.Contexts, renamed)
	}
	if a := q.GetAssignment(); a != nil {
		box.SandboxId, box.Labels = a.GetSandboxId(), a.GetLabels()
		if a.GetLimits() != nil {
			box.Limits = a.GetLimits()
		}
	}
	return box, nil
}

// PauseBox says that it is on disk.
func (e *Engine) PauseBox(_ context.Context, q *enginev1.PauseBoxRequest) (*enginev1.Box, error) {
	return e.turn(q.GetBoxId(), func(box *enginev1.Box) {
		box.State, box.PauseSnapshotId, box.PauseSnapshotBytes = enginev1.BoxState_BOX_STATE_PAUSED, q.GetSnapshotId(), 4<<20
	})
}

// ResumeBox says that it runs.
func (e *Engine) ResumeBox(_ context.Context, q *enginev1.ResumeBoxRequest) (*enginev1.Box, error) {
	return e.turn(q.GetBoxId(), func(box *enginev1.Box) {
		delete(e.boxes, q.GetPreparedBoxId())
		box.State, box.PauseSnapshotId, box.PauseSnapshotBytes = enginev1.BoxState_BOX_STATE_READY, "", 0
	})
}

// SetDeadline takes it.
func (e *Engine) SetDeadline(_ context.Context, q *enginev1.SetDeadlineRequest) (*enginev1.Box, error) {
	return e.turn(q.GetBoxId(), func(box *enginev1.Box) { box.DeadlineUnixMs = q.GetDeadlineUnixMs() })
}

// turn changes a box. It is replaced, since the old one may be on its way to a caller.
func (e *Engine) turn(id string, change func(*enginev1.Box)) (*enginev1.Box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	box := e.boxes[id]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "no box %s", id)
	}
	box = proto.CloneOf(box)
	change(box)
	e.boxes[id] = box
	return box, nil
}

// CreateSnapshot notes what a box is.
func (e *Engine) CreateSnapshot(_ context.Context, q *enginev1.CreateSnapshotRequest) (*enginev1.Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.snapshots[q.GetSnapshotId()]; s != nil {
		return s, nil
	}
	box := e.boxes[q.GetBoxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "no box %s", q.GetBoxId())
	}
	s := &enginev1.Snapshot{
		SnapshotId: q.GetSnapshotId(), Kind: q.GetKind(), Labels: q.GetLabels(), BoxId: q.GetBoxId(), SandboxId: box.GetSandboxId(),
		ImageDigest: box.GetSpec().GetImageDigest(), RuntimeVersion: "rehearsal", SizeBytes: 4 << 20, CreatedAtUnixMs: time.Now().UnixMilli(),
		Limits: box.GetLimits(), Contexts: box.GetContexts(), StoppedMs: 1,
	}
	for _, c := range box.GetSpec().GetWarmContexts() {
		s.Contexts = append(s.Contexts, &execv1.Context{
			ContextId: c.GetContextId(), Language: c.GetLanguage(), State: execv1.ContextState_CONTEXT_STATE_IDLE,
		})
	}
	e.snapshots[q.GetSnapshotId()] = s
	return s, nil
}

// ListSnapshots lists them.
func (e *Engine) ListSnapshots(context.Context, *enginev1.ListSnapshotsRequest) (*enginev1.ListSnapshotsReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply := &enginev1.ListSnapshotsReply{}
	for _, s := range e.snapshots {
		reply.Snapshots = append(reply.Snapshots, s)
	}
	return reply, nil
}

// DeleteSnapshot forgets one.
func (e *Engine) DeleteSnapshot(_ context.Context, q *enginev1.SnapshotRequest) (*enginev1.DeleteSnapshotReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.snapshots, q.GetSnapshotId())
	return &enginev1.DeleteSnapshotReply{}, nil
}

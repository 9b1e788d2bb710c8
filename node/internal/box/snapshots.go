package box

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/driver"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/image"
	"atoll/node/internal/snapshot"
)

// Pause writes a box to the disk and frees its memory. It keeps its id and its logs; of its files alone, nothing that runs.
func (n *Node) Pause(ctx context.Context, id, snapshotID string, kind enginev1.SnapshotKind) (*enginev1.Box, error) {
	if !snapshot.ValidID(snapshotID) {
		return nil, invalidSnapshot(snapshotID)
	}
	return n.change(ctx, id, func(b *box) error {
		if err := b.require(driver.MemorySnapshots, "a pause"); err != nil {
			return err
		}
		if kind != enginev1.SnapshotKind_SNAPSHOT_KIND_FILES {
			return b.pause(snapshotID, enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY)
		}
		if err := b.require(driver.FilesSnapshots, "a pause that keeps files only"); err != nil {
			return err
		}
		return b.pause(snapshotID, kind)
	})
}

// Resume goes on with a paused box.
func (n *Node) Resume(ctx context.Context, request *enginev1.ResumeBoxRequest) (*enginev1.Box, error) {
	return n.change(ctx, request.GetBoxId(), func(b *box) error { return b.resume(request) })
}

// Rollback puts a box back to a snapshot that was made of it.
func (n *Node) Rollback(ctx context.Context, request *enginev1.RollbackBoxRequest) (*enginev1.Box, error) {
	return n.change(ctx, request.GetBoxId(), func(b *box) error { return b.rollback(request) })
}

// SetDeadline has a box end by itself at a moment; 0: never.
func (n *Node) SetDeadline(ctx context.Context, id string, deadline int64) (*enginev1.Box, error) {
	return n.change(ctx, id, func(b *box) error { return b.setDeadline(ctx, deadline) })
}

// change has a box's goroutine do something. When the caller goes, it is done all the same.
func (n *Node) change(ctx context.Context, id string, f func(b *box) error) (*enginev1.Box, error) {
	b, err := n.find(id)
	if err != nil {
		return nil, err
	}
	select {
	case <-b.started:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := b.do(ctx, func() error { return f(b) }); err != nil {
		return nil, err
	}
	return b.view(), nil
}

func invalidSnapshot(id string) error {
	return fault(Invalid, "snapshot_id: %q (expected: \"snap-\" and 26 characters of Crockford's base32)", clip(id))
}

// Restore brings a snapshot to life as a new box, and returns it when it is ready.
func (n *Node) Restore(ctx context.Context, request *enginev1.RestoreBoxRequest) (*enginev1.Box, error) {
	b, err := n.restoreOrFind(ctx, request)
	if err != nil {
		return nil, err
	}
	return b.awaitStart(ctx)
}

func (n *Node) restoreOrFind(ctx context.Context, request *enginev1.RestoreBoxRequest) (*box, error) {
	id := request.GetBoxId()
	if !validBoxID(id) {
		return nil, fault(Invalid, "box_id: %q (expected: \"box-\" and 26 characters of Crockford's base32)", clip(id))
	}
	if (request.GetSnapshotId() == "") == (request.GetPausedBoxId() == "") {
		return nil, fault(Invalid, "snapshot_id: %q, paused_box_id: %q (expected: one of them)", clip(request.GetSnapshotId()), clip(request.GetPausedBoxId()))
	}
	if b, err := n.find(id); err == nil {
		return sameRestore(b, request)
	}
	if err := checkContexts(request.GetWarmContexts()); err != nil {
		return nil, err
	}
	for old, renamed := range request.GetRenameContexts() {
		if !validID(old) || !validID(renamed) {
			return nil, fault(Invalid, "rename_contexts: %q to %q (expected: letters, digits, '.', '_' and '-')", clip(old), clip(renamed))
		}
	}
	if err := n.roomForBox(); err != nil {
		return nil, err
	}
	source := request.GetSnapshotId()
	if source == "" {
		paused, err := n.find(request.GetPausedBoxId())
		if err != nil {
			return nil, err
		}
		if source = paused.snapshot.Load().GetPauseSnapshotId(); source == "" || paused.snapshot.Load().GetState() != enginev1.BoxState_BOX_STATE_PAUSED {
			return nil, fault(FailedPrecondition, "box %s is not paused", request.GetPausedBoxId())
		}
	}
	use, err := n.useSnapshot(ctx, source)
	if err != nil {
		return nil, err
	}
	b, err := n.restored(request, source, use)
	if err != nil {
		use.Close()
		return nil, err
	}
	if have := n.add(b); have != b {
		use.Close()
		return sameRestore(have, request)
	}
	return b, nil
}

func sameRestore(b *box, request *enginev1.RestoreBoxRequest) (*box, error) {
	from := b.snapshot.Load().GetRestoredFrom()
	if from == "" || request.GetSnapshotId() != "" && from != request.GetSnapshotId() {
		return nil, fault(AlreadyExists, "box %s exists and is something else", b.id)
	}
	return b, nil
}

// restored is a new box that is to come to life from a snapshot.
func (n *Node) restored(request *enginev1.RestoreBoxRequest, source string, use *snapshot.Use) (*box, error) {
	m, s := use.Manifest, use.Manifest.Snapshot
	if kind := s.GetKind(); kind != enginev1.SnapshotKind_SNAPSHOT_KIND_FILES && len(request.GetWarmContexts()) > 0 {
		return nil, fault(Invalid, "warm_contexts: %d (expected: none, a memory snapshot has its own)", len(request.GetWarmContexts()))
	}
	found, err := n.config.Images.Find(s.GetImageDigest())
	if err != nil {
		return nil, fault(NotFound, "image %s is not on this node", clip(s.GetImageDigest()))
	}
	asked := request.GetLimits()
	if request.GetAssignment().GetLimits() != nil {
		asked = request.GetAssignment().GetLimits()
	}
	have := proto.CloneOf(s.GetLimits())
	have.DiskBytes = m.Shape.DiskBytes
	limits, err := limitsOver(have, asked)
	if err != nil {
		return nil, err
	}
	labels := request.GetLabels()
	a := request.GetAssignment()
	if a != nil {
		if a.GetSandboxId() == "" {
			return nil, fault(Invalid, "sandbox_id is empty")
		}
		labels = a.GetLabels()
	}
	hostname := a.GetHostname()
	if hostname == "" {
		hostname = "sandbox"
	}
	r := &record{image: found, hostname: hostname, env: a.GetEnv(), box: &enginev1.Box{
		BoxId: request.GetBoxId(), State: enginev1.BoxState_BOX_STATE_CREATING, Limits: limits, Labels: labels, SandboxId: a.GetSandboxId(),
		Spec: &enginev1.BoxSpec{
			ImageDigest: s.GetImageDigest(), Limits: limits, WarmContexts: request.GetWarmContexts(), Labels: request.GetLabels(),
		},
		CreatedAtUnixMs: time.Now().UnixMilli(), RuntimeVersion: s.GetRuntimeVersion(), RestoredFrom: source, DeadlineUnixMs: a.GetDeadlineUnixMs(),
	}, container: containerRecord{ID: request.GetBoxId(), Build: s.GetRuntimeVersion(), Agent: s.GetAgentDigest(), Shape: m.Shape}}
	b := newBox(n, request.GetBoxId(), r)
	b.origin = &origin{use: use, request: request}
	return b, nil
}

// useSnapshot returns a snapshot for reading that can be restored on this node.
func (n *Node) useSnapshot(ctx context.Context, id string) (*snapshot.Use, error) {
	use, err := n.snapshots.Use(ctx, id)
	if err != nil {
		return nil, snapshotFault(id, err)
	}
	if why := n.unusable(use.Manifest); why != "" {
		use.Close()
		return nil, fault(FailedPrecondition, "snapshot %s can't be restored: %s", id, why)
	}
	return use, nil
}

// unusable says why a snapshot can't be restored on this node, in a sentence; empty if it can.
func (n *Node) unusable(m *snapshot.Manifest) string {
	s := m.Snapshot
	if !slices.Contains(n.driver.Versions(), s.GetRuntimeVersion()) {
		return "it was made with build " + s.GetRuntimeVersion() + " of the runtime, which this node does not have"
	}
	if _, err := n.agentPath(s.GetAgentDigest()); err != nil {
		return "its " + err.Error()
	}
	if _, err := n.config.Images.Find(s.GetImageDigest()); err != nil {
		if errors.Is(err, image.ErrNotFound) {
			return "image " + s.GetImageDigest() + " is not on this node"
		}
		return err.Error()
	}
	return ""
}

// flights are snapshots that are being made, so that the same call again waits for the same.
type flights struct {
	mu sync.Mutex
	// byID is guarded by mu.
	byID map[string]*flight
}

type flight struct {
	request *enginev1.CreateSnapshotRequest
	done    chan struct{}
	// Set when done is closed.
	snapshot *enginev1.Snapshot
	err      error
}

// CreateSnapshot writes what a box is at this moment.
func (n *Node) CreateSnapshot(ctx context.Context, request *enginev1.CreateSnapshotRequest) (*enginev1.Snapshot, error) {
	id := request.GetSnapshotId()
	if !snapshot.ValidID(id) {
		return nil, invalidSnapshot(id)
	}
	switch request.GetKind() {
	case enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY, enginev1.SnapshotKind_SNAPSHOT_KIND_FILES:
	default:
		return nil, fault(Invalid, "kind: %v (expected: SNAPSHOT_KIND_MEMORY or SNAPSHOT_KIND_FILES)", request.GetKind())
	}
	b, err := n.find(request.GetBoxId())
	if err == nil {
		if err := b.require(abilityFor(request.GetKind())); err != nil {
			return nil, err
		}
	}
	n.making.mu.Lock()
	f := n.making.byID[id]
	if f == nil {
		if have, m, notThere := n.snapshots.Find(id); notThere == nil {
			n.making.mu.Unlock()
			if have.GetBoxId() != request.GetBoxId() || have.GetKind() != request.GetKind() || m.PausedBox != "" {
				return nil, fault(AlreadyExists, "snapshot %s exists and is something else", id)
			}
			return n.judged(have, m), nil
		}
		if err != nil {
			n.making.mu.Unlock()
			return nil, err
		}
		f = &flight{request: request, done: make(chan struct{})}
		if n.making.byID == nil {
			n.making.byID = map[string]*flight{}
		}
		n.making.byID[id] = f
		go func() {
			f.snapshot, f.err = b.takeSnapshot(request)
			n.making.mu.Lock()
			delete(n.making.byID, id)
			n.making.mu.Unlock()
			close(f.done)
		}()
	}
	n.making.mu.Unlock()
	if f.request.GetBoxId() != request.GetBoxId() || f.request.GetKind() != request.GetKind() {
		return nil, fault(AlreadyExists, "snapshot %s is being made and is something else", id)
	}
	select {
	case <-f.done:
		return f.snapshot, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// takeSnapshot has the box's goroutine write it, and makes it last afterwards.
func (b *box) takeSnapshot(request *enginev1.CreateSnapshotRequest) (*enginev1.Snapshot, error) {
	what := "snapshot " + request.GetSnapshotId() + " is not made"
	var draft *snapshot.Draft
	var m *snapshot.Manifest
	// No caller's context: what has begun is ended by the box's life alone.
	err := b.do(context.Background(), func() (err error) {
		draft, m, err = b.writeSnapshot(request)
		return err
	})
	if err != nil {
		return nil, b.unlessEnded(b.explain(what, nil, err))
	}
	s, err := draft.Commit(m)
	if err != nil {
		return nil, b.explain(what, nil, err)
	}
	b.logger.Info("snapshot is made", "snapshot", s.GetSnapshotId(), "kind", s.GetKind().String(), "bytes", s.GetSizeBytes(), "stopped_ms", s.GetStoppedMs())
	return s, nil
}

// writeSnapshot writes the box's image, or links that of its pause, as a draft.
func (b *box) writeSnapshot(request *enginev1.CreateSnapshotRequest) (draft *snapshot.Draft, m *snapshot.Manifest, err error) {
	paused := b.record.box.GetState() == enginev1.BoxState_BOX_STATE_PAUSED
	if paused {
		_, m, err := b.node.snapshots.Find(b.record.box.GetPauseSnapshotId())
		if err != nil {
			return nil, nil, snapshotFault(b.record.box.GetPauseSnapshotId(), err)
		}
		if kind := m.Snapshot.GetKind(); kind != request.GetKind() {
			return nil, nil, fault(Paused, "box %s is paused: only a snapshot of the kind of its pause can be made, %v", b.id, kind)
		}
	} else {
		if err := b.needsRunning(); err != nil {
			return nil, nil, err
		}
		if err := b.node.roomForSnapshot(b.container.Load()); err != nil {
			return nil, nil, err
		}
	}
	draft, err = b.node.snapshots.Begin(request.GetSnapshotId(), "snapshot")
	if errors.Is(err, snapshot.ErrExists) {
		return nil, nil, fault(AlreadyExists, "snapshot %s exists already", request.GetSnapshotId())
	}
	if err != nil {
		return nil, nil, err
	}
	if paused {
		m, err = b.linkPause(draft)
	} else {
		m, err = b.checkpoint(draft, request.GetKind())
	}
	if err != nil {
		return nil, nil, errors.Join(err, draft.Discard())
	}
	m.Snapshot.Labels, m.Build = request.GetLabels(), b.record.build
	return draft, m, nil
}

func (b *box) linkPause(draft *snapshot.Draft) (*snapshot.Manifest, error) {
	use, err := b.node.snapshots.Use(b.life, b.record.box.GetPauseSnapshotId())
	if err != nil {
		return nil, err
	}
	defer use.Close()
	m, err := draft.Link(b.life, use)
	if err != nil {
		return nil, err
	}
	m.PausedBox = ""
	m.Snapshot.StoppedMs, m.Snapshot.CreatedAtUnixMs = 0, time.Now().UnixMilli()
	return m, nil
}

func (b *box) checkpoint(draft *snapshot.Draft, kind enginev1.SnapshotKind) (*snapshot.Manifest, error) {
	c := b.container.Load()
	// Should the engine end in the middle, the next one sees to it that the sandbox goes on.
	b.record.frozen = true
	if err := b.save(); err != nil {
		b.record.frozen = false
		return nil, err
	}
	defer func() {
		b.record.frozen = false
		b.saveOrLog()
	}()
	if err := failpoint.Hit("snapshot.recorded"); err != nil {
		return nil, err
	}
	ctx, cancel := b.during(c, checkpointTimeout)
	defer cancel()
	write := b.node.driver.Checkpoint
	if kind == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES {
		write = b.node.driver.CheckpointFiles
	}
	m := b.manifest(c, kind, 0)
	began := time.Now()
	stop := draft.WriteBack()
	err := write(ctx, c.id, c.dir, c.spec.Build, draft.Image())
	stop()
	m.Snapshot.StoppedMs = uint32(time.Since(began).Milliseconds())
	if err != nil {
		// The runtime may notice a sandbox's end before we do.
		select {
		case <-b.life.Done():
		case <-time.After(endNotice):
		}
		return nil, b.unlessEnded(err)
	}
	return m, nil
}

// endNotice is how much later than the runtime we may hear of a sandbox's end.
const endNotice = 200 * time.Millisecond

// Snapshots returns those that are not the pause of a box.
func (n *Node) Snapshots() []*enginev1.Snapshot {
	all := n.snapshots.List()
	shown := all[:0]
	for _, s := range all {
		_, m, err := n.snapshots.Find(s.GetSnapshotId())
		if err == nil && m.Build {
			continue
		}
		if err == nil {
			s = n.judged(s, m)
		}
		shown = append(shown, s)
	}
	return shown
}

// judged says of a snapshot whether it can be restored here.
func (n *Node) judged(s *enginev1.Snapshot, m *snapshot.Manifest) *enginev1.Snapshot {
	if s.Unusable == "" {
		s.Unusable = n.unusable(m)
	}
	return s
}

// DeleteSnapshot removes a snapshot. It succeeds for one that is not there.
func (n *Node) DeleteSnapshot(id string) error {
	if !snapshot.ValidID(id) {
		return invalidSnapshot(id)
	}
	_, m, err := n.snapshots.Find(id)
	if err != nil {
		return nil
	}
	if m.PausedBox != "" {
		return fault(FailedPrecondition, "snapshot %s is what box %s was when it was paused, and goes with it", id, m.PausedBox)
	}
	if err := n.snapshots.Remove(id); err != nil {
		return fault(Internal, "snapshot %s: %v", id, err)
	}
	return nil
}

// ExportSnapshot writes a snapshot as one file.
func (n *Node) ExportSnapshot(ctx context.Context, id string, w io.Writer) error {
	if _, m, err := n.snapshots.Find(id); err == nil && m.PausedBox != "" {
		return fault(NotFound, "snapshot %s is the pause of a box", id)
	}
	return snapshotFault(id, n.snapshots.Export(ctx, id, w))
}

// ImportSnapshot takes what ExportSnapshot wrote, here or on an installation whose key is trusted.
func (n *Node) ImportSnapshot(ctx context.Context, begin *enginev1.ImportBegin, r io.Reader) (*enginev1.Snapshot, error) {
	id := begin.GetSnapshotId()
	if !snapshot.ValidID(id) {
		return nil, invalidSnapshot(id)
	}
	s, err := n.snapshots.Import(ctx, snapshot.Importing{
		ID: id, Labels: begin.GetLabels(), Trusted: begin.GetTrustedKeys(),
		Accept: func(m *snapshot.Manifest) error {
			if why := n.unusable(m); why != "" {
				return fault(FailedPrecondition, "the snapshot can't be restored here: %s", why)
			}
			if err := n.raiseEpochAbove(m.Epoch); err != nil {
				return err
			}
			return n.roomFor(m.Bytes(), "a snapshot")
		},
	}, r)
	if err != nil {
		return nil, snapshotFault(id, err)
	}
	return s, nil
}

// snapshotFault turns the store's errors into ours.
func snapshotFault(id string, err error) error {
	var known *Fault
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, snapshot.ErrNotFound):
		return fault(NotFound, "snapshot %s is not on this node", clip(id))
	case errors.Is(err, snapshot.ErrExists):
		return fault(AlreadyExists, "snapshot %s exists already", clip(id))
	case errors.Is(err, snapshot.ErrUnusable):
		return fault(FailedPrecondition, "snapshot %s: %v", clip(id), err)
	case noSpace(err):
		return fault(Exhausted, "snapshot %s: %v", clip(id), err)
	}
	return fault(Internal, "snapshot %s: %v", clip(id), err)
}

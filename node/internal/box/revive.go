package box

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/frame"
	"atoll/node/internal/snapshot"
)

// A box comes to life from a snapshot in a container that is made for it, or in that of a prepared box. The container is the box's only
// when its record names it: until then a crash, or any error, has it removed, since its folder says whose it was to be.

// origin is what a new box is restored from.
type origin struct {
	use     *snapshot.Use
	request *enginev1.RestoreBoxRequest
}

func (o *origin) close() { o.use.Close() }

// revival is what brings a box to life from a snapshot.
type revival struct {
	// operation names the fail points.
	operation string
	use       *snapshot.Use
	prepared  string
	greeting  greeting
	// own has the container carry the box's id.
	own bool
}

// restore starts the box from its origin.
func (b *box) restore() error {
	if err := failpoint.Hit("restore.recorded"); err != nil {
		return err
	}
	o := b.origin
	c, l, err := b.revive(revival{
		operation: "restore", use: o.use, prepared: o.request.GetPreparedBoxId(), own: true,
		greeting: greeting{reconfigure: true, forget: true, rename: o.request.GetRenameContexts()},
	})
	if err != nil {
		return err
	}
	b.closeUnknown(l, o.request.GetRenameContexts())
	b.setContainer(c)
	b.install(l)
	if o.use.Manifest.Snapshot.GetKind() == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES {
		ctx, cancel := context.WithTimeout(b.life, startTimeout)
		defer cancel()
		return b.openWarmContexts(ctx, l)
	}
	return nil
}

// closeUnknown ends what was being opened when the snapshot of a copy was made: nobody knows it here, and its id is another's.
func (b *box) closeUnknown(l *link, renamed map[string]string) {
	if len(renamed) == 0 {
		return
	}
	own := map[string]bool{}
	for _, id := range renamed {
		own[id] = true
	}
	for _, c := range l.contexts.list() {
		if own[c.GetContextId()] {
			continue
		}
		ctx, cancel := context.WithTimeout(b.life, callTimeout)
		err := frame.Call(ctx, l.session, agentrpc.CloseContext, &agentv1.ContextRequest{ContextId: c.GetContextId()}, &agentv1.Empty{})
		cancel()
		if err != nil {
			b.logger.Warn("a context that was being opened is not closed in a copy", "context", c.GetContextId(), "error", err)
		}
		l.contexts.remove(c.GetContextId())
	}
}

// revive makes a container in which a snapshot lives on, and a link to its agent. On error nothing of it is left.
func (b *box) revive(r revival) (c *container, l *link, err error) {
	release, err := b.node.startSlot(b.life)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	bytes := int64(r.use.Manifest.Bytes())
	b.node.reviving.Add(bytes)
	defer b.node.reviving.Add(-bytes)
	if err := b.node.roomInMemory(); err != nil {
		return nil, nil, err
	}
	if err := b.node.raiseEpochAbove(r.use.Manifest.Epoch); err != nil {
		return nil, nil, err
	}
	c, claimed := b.claim(r)
	if !claimed {
		if c, err = b.newSpare(r); err != nil {
			return nil, nil, err
		}
	}
	if l, err = b.reviveIn(c, r, claimed); err != nil {
		// Its own words, before its folder goes.
		err = b.explain("the snapshot was not brought to life", c, err)
		if c != b.container.Load() {
			err = errors.Join(err, c.free())
		}
		return nil, nil, err
	}
	return c, l, nil
}

// newSpare names a container for a revival, with a folder that says whose it is.
func (b *box) newSpare(r revival) (*container, error) {
	if r.own {
		return b.container.Load(), nil
	}
	s := r.use.Manifest.Snapshot
	c := b.node.newContainer(b, containerRecord{
		ID: newContainerID(), Build: s.GetRuntimeVersion(), Agent: s.GetAgentDigest(), Shape: r.use.Manifest.Shape,
	})
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return nil, err
	}
	if err := (&record{owner: b.id}).write(c.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	return c, nil
}

func (b *box) reviveIn(c *container, r revival, claimed bool) (*link, error) {
	m := r.use.Manifest
	files := m.Snapshot.GetKind() == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES
	// An agent from a memory snapshot has its source's key.
	c.key = m.Key()
	if err := writeKey(c.dir, c.key); err != nil {
		return nil, err
	}
	ctx, cancel := b.during(c, startTimeout)
	defer cancel()
	limits := b.record.box.GetLimits()
	if !claimed {
		making := making{imagePath: b.record.image.Path, hostname: b.record.hostname, limits: limits}
		if files {
			making.filesFrom = r.use.Image()
		}
		if err := c.make(ctx, making); err != nil {
			return nil, err
		}
	}
	if err := failpoint.Hit(r.operation + ".prepared"); err != nil {
		return nil, err
	}
	// What lives in it may take all that it may ever take from the first moment.
	if err := c.group.Set(groupLimits(limits, true)); err != nil {
		return nil, err
	}
	if files {
		if err := c.launch(ctx); err != nil {
			return nil, err
		}
	} else if err := b.node.driver.Restore(ctx, c.id, c.dir, c.spec.Build, r.use.Image()); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(r.operation + ".restored"); err != nil {
		return nil, err
	}
	l, err := connect(ctx, b.record, c.dir, c.key, b.node.nextEpoch(), r.greeting, newContextTable())
	if err != nil {
		return nil, err
	}
	if err = failpoint.Hit(r.operation + ".connected"); err == nil {
		err = c.group.Set(groupLimits(limits, b.warming()))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// claim takes the container of a prepared box, if there is one that fits.
func (b *box) claim(r revival) (*container, bool) {
	if r.prepared == "" || r.use.Manifest.Snapshot.GetKind() != enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY {
		return nil, false
	}
	p, err := b.node.find(r.prepared)
	if err == nil && p == b {
		err = errors.New("it is the box itself")
	}
	var c *container
	if err == nil && p.snapshot.Load().GetState() != enginev1.BoxState_BOX_STATE_PREPARED {
		err = errors.New("it is not a prepared one")
	}
	if err == nil {
		// Nothing may end the wait: what is given must be taken. A prepared box has nothing else to do.
		err = p.do(context.Background(), func() error {
			var err error
			c, err = p.surrender(b, r.use.Manifest)
			return err
		})
	}
	if err != nil || c == nil {
		b.logger.Info("prepared box is not used", "prepared", clip(r.prepared), "error", err)
		return nil, false
	}
	return c, true
}

// surrender gives the container of a prepared box to another, and is the prepared box's end.
func (b *box) surrender(to *box, m *snapshot.Manifest) (*container, error) {
	if b.record.box.GetState() != enginev1.BoxState_BOX_STATE_PREPARED || b.life.Err() != nil {
		return nil, fault(FailedPrecondition, "box %s is not a prepared one", b.id)
	}
	c, s := b.container.Load(), m.Snapshot
	if c.isDead() || c.spec.Build != s.GetRuntimeVersion() || c.spec.Agent != s.GetAgentDigest() || c.spec.Shape != m.Shape ||
		b.record.box.GetSpec().GetImageDigest() != s.GetImageDigest() {
		return nil, fault(FailedPrecondition, "prepared box %s is made otherwise than the snapshot", b.id)
	}
	if err := (&record{owner: to.id}).write(b.dir); err != nil {
		return nil, err
	}
	b.setContainer(nil)
	c.giveTo(to)
	b.leave()
	return c, nil
}

// assume makes an assignment what the box is from now on. It returns how to take that back.
func (b *box) assume(a *enginev1.AssignBoxRequest) (undo func(), err error) {
	before := *b.record
	before.box = proto.CloneOf(b.record.box)
	undo = func() {
		// The container is of the moment.
		before.container = b.record.container
		*b.record = before
	}
	if a == nil {
		return undo, nil
	}
	box := b.record.box
	if have := box.GetSandboxId(); have != "" && a.GetSandboxId() != have {
		return nil, fault(AlreadyExists, "box %s belongs to sandbox %s (asked for: %s)", b.id, have, a.GetSandboxId())
	}
	limits, err := limitsOver(box.GetLimits(), a.GetLimits())
	if err != nil {
		return nil, err
	}
	box.SandboxId, box.Labels, box.Limits, box.DeadlineUnixMs = a.GetSandboxId(), a.GetLabels(), limits, a.GetDeadlineUnixMs()
	b.record.env = a.GetEnv()
	if a.GetHostname() != "" {
		b.record.hostname = a.GetHostname()
	}
	return undo, nil
}

// limitsOver are new limits for a box that is there. The size of its disk is fixed.
func limitsOver(have, asked *execv1.Limits) (*execv1.Limits, error) {
	if asked == nil {
		return have, nil
	}
	limits := completeLimits(asked)
	limits.DiskBytes = have.GetDiskBytes()
	return limits, checkLimits(limits)
}

// resume goes on with a paused box.
func (b *box) resume(request *enginev1.ResumeBoxRequest) error {
	switch box := b.record.box; box.GetState() {
	case enginev1.BoxState_BOX_STATE_PAUSED:
	case enginev1.BoxState_BOX_STATE_READY:
		return nil
	default:
		if err := b.needsRunning(); err != nil {
			return err
		}
		return nil
	}
	what := fmt.Sprintf("box %s is not resumed, it is still paused", b.id)
	pause := b.record.box.GetPauseSnapshotId()
	use, err := b.node.useSnapshot(b.life, pause)
	if err != nil {
		return b.unlessEnded(b.explain(what, nil, err))
	}
	defer use.Close()
	undo, err := b.assume(request.GetAssignment())
	if err != nil {
		return err
	}
	err = b.guarded(func() error {
		err := b.tryResume(use, request.GetPreparedBoxId())
		if err == nil {
			return nil
		}
		b.logger.Warn("box is not resumed", "error", err)
		undo()
		b.record.box.State = enginev1.BoxState_BOX_STATE_PAUSED
		if b.life.Err() == nil {
			b.saveOrLog()
			b.setLink(nil)
		}
		return err
	})
	if err != nil {
		return b.unlessEnded(b.explain(what, nil, err))
	}
	b.logger.Info("box is resumed")
	go func() {
		// First: else the machine's end could bring back what has been gone on from.
		if err := syncRecord(b.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			b.logger.Error("box record not synced", "error", err)
		}
		if err := b.node.snapshots.Remove(pause); err != nil {
			b.logger.Error("snapshot of a pause that is over is still there", "snapshot", pause, "error", err)
		}
		b.hitLate("resume.cleaned")
	}()
	return nil
}

func (b *box) tryResume(use *snapshot.Use, prepared string) error {
	b.record.box.State = enginev1.BoxState_BOX_STATE_RESUMING
	// What is synced says PAUSED, which means the same to who is started after a crash.
	if err := b.save(); err != nil {
		return err
	}
	if err := failpoint.Hit("resume.recorded"); err != nil {
		return err
	}
	c, l, err := b.revive(revival{operation: "resume", use: use, prepared: prepared, greeting: greeting{reconfigure: true}})
	if err != nil {
		return err
	}
	b.setContainer(c)
	box := b.record.box
	pause, bytes := box.GetPauseSnapshotId(), box.GetPauseSnapshotBytes()
	box.State, box.PauseSnapshotId, box.PauseSnapshotBytes = enginev1.BoxState_BOX_STATE_READY, "", 0
	if err := b.save(); err != nil {
		b.setContainer(nil)
		box.PauseSnapshotId, box.PauseSnapshotBytes = pause, bytes
		l.close()
		return errors.Join(err, c.free())
	}
	b.hitLate("resume.saved")
	b.oomKills.Store(0)
	b.install(l)
	return nil
}

// rollback puts the box back to a snapshot of itself.
func (b *box) rollback(request *enginev1.RollbackBoxRequest) error {
	state := b.record.box.GetState()
	if state != enginev1.BoxState_BOX_STATE_PAUSED {
		if err := b.needsRunning(); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("box %s is not rolled back, it is as it was", b.id)
	use, err := b.node.useSnapshot(b.life, request.GetSnapshotId())
	if err != nil {
		return b.unlessEnded(b.explain(what, nil, err))
	}
	defer use.Close()
	s := use.Manifest.Snapshot
	if own := s.GetBoxId() == b.id || s.GetSandboxId() != "" && s.GetSandboxId() == b.record.box.GetSandboxId(); !own || use.Manifest.PausedBox != "" {
		return fault(FailedPrecondition, "snapshot %s was not made of box %s", request.GetSnapshotId(), b.id)
	}
	undo, err := b.assume(request.GetAssignment())
	if err != nil {
		return err
	}
	pause := b.record.box.GetPauseSnapshotId()
	err = b.guarded(func() error {
		err := b.tryRollback(use, request)
		if err == nil {
			return nil
		}
		b.logger.Warn("box is not rolled back", "error", err)
		undo()
		b.record.box.State = state
		if b.life.Err() == nil {
			b.saveOrLog()
			// Who waits for the outcome sees it; a link that was lost meanwhile is made anew by run.
			b.setLink(b.currentLink())
		}
		return err
	})
	if err != nil {
		return b.unlessEnded(b.explain(what, nil, err))
	}
	b.logger.Info("box is rolled back", "snapshot", request.GetSnapshotId())
	if pause != "" {
		go func() {
			if err := b.node.snapshots.Remove(pause); err != nil {
				b.logger.Error("snapshot of a pause that is over is still there", "snapshot", pause, "error", err)
			}
		}()
	}
	return nil
}

func (b *box) tryRollback(use *snapshot.Use, request *enginev1.RollbackBoxRequest) error {
	b.record.box.State = enginev1.BoxState_BOX_STATE_RESUMING
	if err := b.saveSynced(); err != nil {
		return err
	}
	if err := failpoint.Hit("rollback.recorded"); err != nil {
		return err
	}
	c, l, err := b.revive(revival{
		operation: "rollback", use: use, prepared: request.GetPreparedBoxId(), greeting: greeting{reconfigure: true, forget: true},
	})
	if err != nil {
		return err
	}
	old := b.container.Load()
	b.setContainer(c)
	box := b.record.box
	box.State, box.PauseSnapshotId, box.PauseSnapshotBytes, box.RestoredFrom = enginev1.BoxState_BOX_STATE_READY, "", 0, request.GetSnapshotId()
	if err := b.saveSynced(); err != nil {
		b.setContainer(old)
		l.close()
		return errors.Join(err, c.free())
	}
	b.hitLate("rollback.saved")
	if had := b.currentLink(); had != nil {
		b.dropLink(had)
	}
	for _, log := range b.node.spool.Of(b.id) {
		if log.Finished() == nil {
			finishLog(log, &execv1.Finished{
				Reason: execv1.ExitReason_EXIT_REASON_LOST, Detail: "the sandbox was rolled back to snapshot " + request.GetSnapshotId(),
			})
		}
	}
	b.oomKills.Store(0)
	b.install(l)
	if old != nil {
		b.later(func() {
			if err := old.free(); err != nil {
				b.logger.Error("what the box was before its rollback is still there", "error", err)
			}
			b.hitLate("rollback.freed")
		})
	}
	return nil
}

// setDeadline has the box end by itself at a moment.
func (b *box) setDeadline(ctx context.Context, deadline int64) error {
	state := b.record.box.GetState()
	if state != enginev1.BoxState_BOX_STATE_PAUSED {
		if err := b.needsRunning(); err != nil {
			return err
		}
	}
	before := b.record.box.GetDeadlineUnixMs()
	b.record.box.DeadlineUnixMs = deadline
	if state == enginev1.BoxState_BOX_STATE_PAUSED {
		if err := b.saveSynced(); err != nil {
			b.record.box.DeadlineUnixMs = before
			return b.explain("the deadline is not set", nil, err)
		}
		return nil
	}
	l, err := b.awaitLink(ctx)
	if err == nil {
		err = b.save()
	}
	if err != nil {
		b.record.box.DeadlineUnixMs = before
		return err
	}
	call, cancel := context.WithTimeout(b.life, callTimeout)
	defer cancel()
	if _, err := l.hello(call, b.record, b.node.nextEpoch(), greeting{}); err != nil {
		return b.unlessEnded(agentFault("telling box "+b.id+" its deadline", err))
	}
	return nil
}

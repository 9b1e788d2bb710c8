package box

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/snapshot"
)

// A pause is a transaction. Its steps, and what an engine that is started after a crash finds:
//
//	record says PAUSING and names the snapshot;     no such snapshot is whole: the sandbox goes on, what was written is removed
//	it is synced while the next steps go on
//	calls under way are waited for, a barrier       "
//	the runtime stops the sandbox                   "
//	the runtime writes <snapshot>.partial           "
//	checked, synced, renamed to <snapshot>          the snapshot is whole: the box is paused, the sandbox is removed
//	record says PAUSED, and who asked is told       " (whether or not it is synced: PAUSING and a whole snapshot mean the same)
//	the sandbox is removed                          paused
//
// Whatever fails before the rename has the sandbox go on. A pause that keeps files only goes the same way; what ran has ended from the
// rename on, which is said as soon as the record says PAUSED, or by the engine that is started after a crash.

const (
	// So long are calls waited for that a pause would cut off.
	callsPatience = time.Second
	// Writing a large sandbox to a slow disk.
	checkpointTimeout = 10 * time.Minute
	resumeTimeout     = 20 * time.Second
	// So much more must fit than memory and files take.
	snapshotReserve = 64 * mebibyte
)

var errPauseLost = errors.New("what the sandbox was when it was paused is not on the disk any more")

// pause writes the box to the disk and frees its memory.
func (b *box) pause(id string, kind enginev1.SnapshotKind) error {
	if b.record.box.GetState() == enginev1.BoxState_BOX_STATE_PAUSED {
		return nil
	}
	if err := b.needsRunning(); err != nil {
		return err
	}
	if b.node.snapshots.Has(id) {
		return fault(AlreadyExists, "snapshot %s exists already", id)
	}
	c := b.container.Load()
	if err := b.node.roomForSnapshot(c); err != nil {
		return err
	}
	what := fmt.Sprintf("box %s is not paused", b.id)
	b.record.box.State, b.record.box.PauseSnapshotId = enginev1.BoxState_BOX_STATE_PAUSING, id
	b.record.box.PauseKind = kind
	if err := b.save(); err != nil {
		b.record.box.State, b.record.box.PauseSnapshotId = enginev1.BoxState_BOX_STATE_READY, ""
		return b.explain(what, nil, err)
	}
	recorded := make(chan error, 1)
	go func() { recorded <- syncRecord(b.dir) }()
	err := b.guarded(func() error {
		p := &pausing{box: b, container: c, id: id, kind: kind, recorded: recorded}
		err := p.run()
		if err != nil {
			b.logger.Warn("box is not paused", "error", err)
			p.undo()
		}
		return err
	})
	if err != nil {
		return b.unlessEnded(b.explain(what, nil, err))
	}
	b.logger.Info("box is paused", "snapshot", id, "kind", kind.String(), "bytes", b.record.box.GetPauseSnapshotBytes())
	return nil
}

// pausing is a pause that is under way.
type pausing struct {
	box       *box
	container *container
	id        string
	kind      enginev1.SnapshotKind
	draft     *snapshot.Draft
	// recorded yields whether the record that announces the pause is on the disk.
	recorded <-chan error
	// stopped says that the runtime was asked to stop the sandbox; whole, that the snapshot is there.
	stopped, whole bool
}

func (p *pausing) run() error {
	b, c := p.box, p.container
	if err := failpoint.Hit("pause.recorded"); err != nil {
		return err
	}
	ctx, cancel := b.during(c, checkpointTimeout)
	defer cancel()
	var err error
	if p.draft, err = b.node.snapshots.Begin(p.id, "pause"); err != nil {
		return err
	}
	l, err := b.awaitOwnLink()
	if err != nil {
		return err
	}
	if err := b.quiesce(ctx, l); err != nil {
		return err
	}
	if err := failpoint.Hit("pause.quiesced"); err != nil {
		return err
	}
	began := time.Now()
	p.stopped = true
	if err := b.node.driver.Pause(ctx, c.id, c.dir, c.spec.Build); err != nil {
		return err
	}
	if err := failpoint.Hit("pause.stopped"); err != nil {
		return err
	}
	// What it has said and nobody has acknowledged is in the snapshot, with the agent.
	b.dropLink(l)
	b.putOnFile()
	write := b.node.driver.Checkpoint
	if p.filesOnly() {
		write = b.node.driver.CheckpointFiles
	}
	stop := p.draft.WriteBack()
	err = write(ctx, c.id, c.dir, c.spec.Build, p.draft.Image())
	stop()
	if err != nil {
		return err
	}
	if err := <-p.recorded; err != nil {
		return err
	}
	m := b.manifest(c, p.kind, time.Since(began))
	m.PausedBox = b.id
	s, err := p.draft.Commit(m)
	if err != nil {
		return err
	}
	p.whole = true
	// From here on the container's end is of no interest.
	b.setContainer(nil)
	b.record.box.State, b.record.box.PauseSnapshotBytes = enginev1.BoxState_BOX_STATE_PAUSED, s.GetSizeBytes()
	if err := b.save(); err != nil {
		b.setContainer(c)
		return err
	}
	if p.filesOnly() {
		b.endWithPause()
		b.publish()
	}
	b.hitLate("pause.saved")
	// Who waits for the outcome sees it.
	b.setLink(nil)
	b.later(func() {
		if err := c.free(); err != nil {
			b.logger.Error("resources of a paused box are still there", "error", err)
		}
		b.hitLate("pause.freed")
	})
	return nil
}

func (p *pausing) filesOnly() bool { return p.kind == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES }

// endWithPause says of all that ran that it is over: of the box nothing but its files is left.
func (b *box) endWithPause() {
	for _, log := range b.node.spool.Of(b.id) {
		if log.Finished() == nil {
			finishLog(log, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_LOST, Detail: "the sandbox was paused, and its files alone were kept"})
		}
	}
	b.contexts.replace(nil)
}

// putOnFile has what runs known to an engine that is started while the box is paused, when there is no agent to ask.
func (b *box) putOnFile() {
	for _, log := range b.node.spool.Of(b.id) {
		if err := log.Spill(); err != nil {
			b.logger.Warn("output stays in memory", "error", err)
		}
	}
}

// hitLate is a fail point that comes too late for an error.
func (b *box) hitLate(name string) {
	if err := failpoint.Hit(name); err != nil {
		b.logger.Warn("too late to fail", "error", err)
	}
}

// undo has the sandbox go on.
func (p *pausing) undo() {
	b := p.box
	if p.draft != nil {
		if err := p.draft.Discard(); err != nil {
			b.logger.Error("remains of a snapshot are still there", "snapshot", p.id, "error", err)
		}
	}
	if p.whole {
		if err := b.node.snapshots.Remove(p.id); err != nil {
			b.logger.Error("snapshot of a pause that failed is still there", "snapshot", p.id, "error", err)
		}
	}
	if b.life.Err() != nil {
		return
	}
	b.record.box.State, b.record.box.PauseSnapshotId, b.record.box.PauseSnapshotBytes = enginev1.BoxState_BOX_STATE_READY, "", 0
	if p.container.isDead() {
		return
	}
	if p.stopped {
		b.thaw()
	}
	if l := b.currentLink(); l != nil && l.alive() {
		l.closing.Store(false)
		b.saveOrLog()
		b.setLink(l)
		return
	}
	b.saveOrLog()
	b.reconnect()
}

func (b *box) saveOrLog() {
	if err := b.save(); err != nil {
		// What is on file says that something was under way: a restarted engine finds out by itself how it ended.
		b.logger.Error("box record not written", "error", err)
		b.publish()
	}
}

// thaw has a sandbox go on that may stand still.
func (b *box) thaw() {
	c := b.container.Load()
	ctx, cancel := b.during(c, resumeTimeout)
	defer cancel()
	// Refused where it does not stand still: whether it lives, its agent tells.
	if err := b.node.driver.Resume(ctx, c.id, c.dir, c.spec.Build); err != nil {
		b.logger.Warn("the runtime did not resume the sandbox", "error", err)
	}
}

// awaitOwnLink is the link for who runs in the box's goroutine.
func (b *box) awaitOwnLink() (*link, error) {
	if l := b.currentLink(); l != nil && l.alive() {
		return l, nil
	}
	b.reconnect()
	// reconnect says that the box is ready, or ends its life.
	b.record.box.State = enginev1.BoxState_BOX_STATE_PAUSING
	b.publish()
	if l := b.currentLink(); l != nil && l.alive() {
		return l, nil
	}
	return nil, errors.New("the agent is not reached")
}

// quiesce lets no more calls begin, waits a little for those under way, and sees to it that the agent has taken all that was started.
func (b *box) quiesce(ctx context.Context, l *link) error {
	patience, cancel := context.WithTimeout(ctx, callsPatience)
	defer cancel()
	l.drainCalls(patience)
	// What has ended is put on file, so that the agent need not hold it: it may be forgotten while the box is paused.
	for _, log := range b.node.spool.Of(b.id) {
		if log.Finished() == nil || log.Spill() != nil {
			continue
		}
		b.linkMu.Lock()
		e := b.executions[log.Owner().ExecutionID]
		b.linkMu.Unlock()
		if e != nil {
			e.acknowledgeSafe()
		}
	}
	call, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	// The agent answers it when all that was sent before has arrived.
	if _, err := l.hello(call, b.record, b.node.nextEpoch(), greeting{}); err != nil {
		return err
	}
	return nil
}

// manifest describes a snapshot of the box as it is.
func (b *box) manifest(c *container, kind enginev1.SnapshotKind, stopped time.Duration) *snapshot.Manifest {
	contexts := b.seenContexts()
	slices.SortFunc(contexts, func(x, y *execv1.Context) int { return strings.Compare(x.GetContextId(), y.GetContextId()) })
	return &snapshot.Manifest{
		Snapshot: &enginev1.Snapshot{
			Kind: kind, BoxId: b.id, SandboxId: b.record.box.GetSandboxId(), ImageDigest: b.record.box.GetSpec().GetImageDigest(),
			AgentDigest: c.spec.Agent, RuntimeVersion: c.spec.Build, CreatedAtUnixMs: time.Now().UnixMilli(), Limits: b.record.box.GetLimits(),
			Contexts: contexts, StoppedMs: uint32(stopped.Milliseconds()),
		},
		Shape: c.spec.Shape, Hostname: b.record.hostname, FrameKey: hex.EncodeToString(c.key[:]), Epoch: b.node.epoch.Load(),
	}
}

// unlessPaused names the box's pause as the reason for a lost connection.
func (b *box) unlessPaused(err error) error {
	var f *Fault
	if !errors.As(err, &f) || f.Kind != Unavailable {
		return err
	}
	// A pause ends, one way or the other.
	for {
		b.linkMu.Lock()
		changed := b.linkChanged
		b.linkMu.Unlock()
		switch b.snapshot.Load().GetState() {
		case enginev1.BoxState_BOX_STATE_PAUSED:
			return fault(Paused, "box %s was paused meanwhile", b.id)
		case enginev1.BoxState_BOX_STATE_PAUSING:
		default:
			return err
		}
		select {
		case <-changed:
		case <-b.gone:
			return err
		case <-b.life.Done():
			return err
		}
	}
}

// roomForSnapshot refuses a snapshot that would not fit, would fill the disk, or could never be restored.
func (n *Node) roomForSnapshot(c *container) error {
	if c.spec.Agent == unknownAgent {
		return fault(FailedPrecondition, "the sandbox was made by an earlier version of Atoll, which kept nothing to bring it to life again with (remedy: make a new one)")
	}
	used, err := c.group.Usage()
	if err != nil {
		return fault(Internal, "memory in use: %v", err)
	}
	files, err := n.driver.DiskUsed(c.dir, int(c.pid.Load()), c.spec.Build)
	if err != nil {
		return fault(Internal, "disk in use: %v", err)
	}
	return n.roomFor(used.MemoryBytes+files, "a snapshot")
}

func (n *Node) roomFor(bytes uint64, what string) error {
	total, available, err := n.disk()
	if err != nil {
		return fault(Internal, "disk space: %v", err)
	}
	need := bytes + snapshotReserve
	if need <= available && (total-available+need)*100 < total*maxDiskPercent {
		return nil
	}
	return fault(Exhausted, "%s of %d MiB does not fit on the disk of %s: %d of %d MiB are free, and it is to stay below %d %% (remedy: delete sandboxes, snapshots or images)",
		what, need/mebibyte, n.config.DataDir, available/mebibyte, total/mebibyte, maxDiskPercent)
}

// diskIsFull says whether next to nothing can be written any more.
func (n *Node) diskIsFull() bool {
	_, available, err := n.disk()
	return err == nil && available < mebibyte
}

// noSpace says whether an error, be it a runtime's text, is that of a full disk.
func noSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, snapshot.ErrNoRoom) || strings.Contains(err.Error(), "no space left on device")
}

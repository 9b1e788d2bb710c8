package box

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/frame"
	"atoll/node/internal/snapshot"
	"atoll/node/internal/spool"
)

const (
	startTimeout = 60 * time.Second
	// How long an agent that lost its connection is tried again before the box counts as broken.
	reconnectFor = 30 * time.Second
	// An agent that loses more connections than these in a while is broken, or not ours any more.
	maxLosses    = 20
	lossesWithin = 10 * time.Second
	// A call for a box that is being reached again waits this long before it is refused.
	reconnectPatience = 2 * time.Second
	// How long a dead box's last output may take to be read from its pipe.
	lastOutput     = 500 * time.Millisecond
	removalTimeout = 20 * time.Second
	// A sandbox that ends so soon after the kernel took one of its processes ended by that.
	oomAftermath = 2 * time.Second
	// How long a box that is reached again may take to say what happened meanwhile, before it counts as reached.
	catchUp = time.Second
	// What the agent exits with when its deadline has passed and nobody has moved it.
	deadlineStatus = 124
	// A live box's log of its agent and sentry.
	maxStderr = 256 << 10
)

// box is one sandbox's body.
//
// One goroutine, run, changes it: it executes commands one after the other, and
// what must not wait for a long one (death, deletion) ends the box's life, a
// context that every long command obeys. Others read the published snapshot,
// and talk to the agent over the current link.
type box struct {
	node   *Node
	id     string
	dir    string
	logger *slog.Logger

	commands chan func()
	// gone is closed when run has ended: the box was deleted, or never came to be.
	gone chan struct{}
	// started is closed when the box is ready or has failed; startErr is set before.
	started  chan struct{}
	startErr error

	// hidden says that it is a build box; set before run begins.
	hidden bool

	life    context.Context
	endLife context.CancelCauseFunc

	snapshot atomic.Pointer[enginev1.Box]

	guardMu sync.Mutex
	// container is what the box lives in, nil where it is on disk only. It is changed with guardMu held, by run.
	container atomic.Pointer[container]
	// isGuarded is guarded by guardMu: the end of the container is not the box's.
	isGuarded bool

	linkMu sync.Mutex
	// All below is guarded by linkMu.
	link        *link
	linkChanged chan struct{}
	executions  map[string]*execution
	// forgotten are executions that were forgotten while no link was there to tell the agent.
	forgotten map[string]bool

	contexts *contextTable
	// oomKills is how many kills by the host's kernel have been told to somebody.
	oomKills atomic.Uint64
	// oomKilledAt is when the last was told, as Unix nanoseconds.
	oomKilledAt atomic.Int64

	// All below belongs to run.
	record *record
	// origin is what the box is restored from, nil where it is started.
	origin *origin
	// lost yields the link that ended.
	lost chan *link
	// losses are the times of the last lost connections.
	losses []time.Time
	done   bool
	// prepared says that the box is to have nothing that runs in it.
	prepared bool
	// afterwards is done when the command under way has been answered.
	afterwards []func()
}

// Why a life ended.
var (
	errDeleted = errors.New("the sandbox was deleted")
	errDied    = errors.New("the sandbox ended")
	errBroken  = errors.New("the sandbox's agent could not be reached")
)

func newBox(n *Node, id string, r *record) *box {
	b := &box{
		node: n, id: id, dir: n.boxDir(id), logger: n.logger.With("box", id), record: r,
		commands: make(chan func()), gone: make(chan struct{}), started: make(chan struct{}),
		linkChanged: make(chan struct{}), executions: map[string]*execution{}, forgotten: map[string]bool{}, contexts: newContextTable(),
		lost: make(chan *link),
	}
	b.life, b.endLife = context.WithCancelCause(context.Background())
	if r.container.ID != "" {
		b.container.Store(n.newContainer(b, r.container))
	}
	b.snapshot.Store(proto.CloneOf(r.box))
	return b
}

// run is the box's goroutine. first starts the box or takes it over.
func (b *box) run(first func()) {
	defer close(b.gone)
	first()
	for !b.done {
		dead := b.life.Done()
		if b.ended() {
			dead = nil
		}
		select {
		case command := <-b.commands:
			command()
		case <-dead:
			b.end()
		case l := <-b.lost:
			if l == b.currentLink() {
				b.reconnect()
			}
		}
	}
}

// do runs f in the box's goroutine.
func (b *box) do(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	select {
	case b.commands <- func() {
		result <- f()
		for _, do := range b.afterwards {
			do()
		}
		b.afterwards = nil
	}:
	case <-b.gone:
		return fault(NotFound, "box %s does not exist", b.id)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// later has run do something when the command under way has been answered.
func (b *box) later(do func()) { b.afterwards = append(b.afterwards, do) }

func (b *box) ended() bool { return b.record.box.GetState() == enginev1.BoxState_BOX_STATE_ENDED }

// save writes the record and publishes it.
func (b *box) save() error {
	b.noteContainer()
	if err := b.record.write(b.dir); err != nil {
		return err
	}
	b.publish()
	return nil
}

// saveSynced is save for what the machine's end must not undo.
func (b *box) saveSynced() error {
	b.noteContainer()
	if err := b.record.writeSynced(b.dir); err != nil {
		return err
	}
	b.publish()
	return nil
}

// noteContainer puts the container that the box lives in on record.
func (b *box) noteContainer() {
	b.record.container = containerRecord{}
	if c := b.container.Load(); c != nil {
		b.record.container = c.spec
	}
}

func (b *box) publish() {
	box := proto.CloneOf(b.record.box)
	b.snapshot.Store(box)
	if !b.hidden {
		b.node.announce(box)
	}
}

// start makes the box, from nothing or from a snapshot.
func (b *box) start() {
	defer close(b.started)
	if b.origin != nil {
		defer b.origin.close()
	}
	err := b.tryStart()
	if err == nil {
		b.record.box.State = enginev1.BoxState_BOX_STATE_READY
		if b.prepared {
			b.record.box.State = enginev1.BoxState_BOX_STATE_PREPARED
		}
		if err = b.save(); err == nil && b.origin != nil {
			err = failpoint.Hit("restore.saved")
		}
	}
	if err != nil {
		if cause := context.Cause(b.life); cause != nil {
			err = errors.Join(cause, err)
		}
		b.startErr = b.explainStart(err)
		b.logger.Warn("box did not start", "error", b.startErr)
		b.endLife(errBroken)
		if err := b.removeAll(); err != nil {
			b.logger.Error("what a failed start left is still there", "error", err)
		}
		// The agent answers before the contexts are ready: somebody may have started something in it already.
		b.record.box.EndReason, b.record.box.EndDetail = enginev1.BoxEndReason_BOX_END_REASON_START_FAILED, clip(b.startErr.Error())
		b.closeBooks()
		b.leave()
		return
	}
	b.logger.Info("box is ready", "ms", time.Now().UnixMilli()-b.record.box.GetCreatedAtUnixMs(), "restored_from", b.record.box.GetRestoredFrom())
}

// explainStart adds what the sandbox itself said.
func (b *box) explainStart(err error) error {
	if errors.Is(err, errDeleted) {
		return fault(NotFound, "box %s was deleted while it started", b.id)
	}
	if b.origin == nil && !noSpace(err) {
		// Whatever the agent called it, it is not the caller's.
		err = errors.New(err.Error())
	}
	return b.explain(fmt.Sprintf("box %s did not start", b.id), b.container.Load(), err)
}

// explain adds to an error what the kernel and the sandbox itself said.
func (b *box) explain(what string, c *container, err error) error {
	kind := Internal
	var known *Fault
	switch {
	case errors.As(err, &known) && known.Kind != Unavailable:
		kind = known.Kind
	case noSpace(err):
		kind = Exhausted
	case errors.Is(err, snapshot.ErrUnusable):
		kind = FailedPrecondition
	case errors.Is(err, snapshot.ErrNotFound):
		kind = NotFound
	case known == nil && b.node.diskIsFull():
		// The sentry calls what it could not write an I/O error.
		kind = Exhausted
	}
	if kind == Exhausted && known == nil {
		b.logger.Warn("the disk is full", "error", err)
		err = errors.New("the disk is full (remedy: delete sandboxes, snapshots or images)")
	}
	// Paths of the host are for the log.
	text := strings.ReplaceAll(fmt.Sprintf("%s: %v", what, err), b.node.config.DataDir+"/", "")
	if c != nil && kind == Internal {
		if oom, e := c.group.OutOfMemory(); e == nil && oom.Kills > 0 {
			text += fmt.Sprintf("; the kernel ended it for want of memory (limit %d bytes)", oom.LimitBytes)
		}
		if tail := driver.Tail(filepath.Join(c.dir, driver.StderrName), 2048); tail != "" {
			text += "; its log ends with: " + tail
		}
	}
	return fault(kind, "%s", text)
}

func (b *box) tryStart() error {
	// Intent first: a crash from here on finds a folder that says "creating", and removes what goes with it.
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return err
	}
	if err := b.save(); err != nil {
		return err
	}
	if b.origin != nil {
		return b.restore()
	}
	c := b.container.Load()
	if _, err := rand.Read(c.key[:]); err != nil {
		return err
	}
	if err := writeKey(c.dir, c.key); err != nil {
		return err
	}
	return b.startFresh(c, "")
}

// startFresh starts an agent in the box's own container.
func (b *box) startFresh(c *container, filesFrom string) error {
	release, err := b.node.startSlot(b.life)
	if err != nil {
		return err
	}
	defer release()
	// Counted from here: in a crowd, a box may wait long for its turn.
	ctx, cancel := context.WithTimeout(b.life, startTimeout)
	defer cancel()
	limits := b.record.box.GetLimits()
	if err := c.make(ctx, making{imagePath: b.record.image.Path, hostname: b.record.hostname, limits: limits, filesFrom: filesFrom}); err != nil {
		return err
	}
	if err := b.save(); err != nil {
		return err
	}
	if b.prepared {
		return nil
	}
	if err := c.launch(ctx); err != nil {
		return err
	}
	if err := c.group.Set(groupLimits(limits, b.warming())); err != nil {
		return err
	}
	l, err := b.connect(greeting{reconfigure: true})
	if err != nil {
		return err
	}
	return b.openWarmContexts(ctx, l)
}

// connect makes a new link to the agent of the box's container, and installs it.
func (b *box) connect(g greeting) (*link, error) {
	l, err := b.dial(b.life, b.container.Load(), g)
	if err != nil {
		return nil, err
	}
	b.install(l)
	return l, nil
}

// dial makes a new link to the agent in a container.
func (b *box) dial(ctx context.Context, c *container, g greeting) (*link, error) {
	return connect(ctx, b.record, c.dir, c.key, b.node.nextEpoch(), g, b.contexts)
}

// install makes a link the box's, and has it watched.
func (b *box) install(l *link) {
	if l.contexts != b.contexts {
		b.contexts.replace(l.contexts.list())
		l.contexts = b.contexts
	}
	b.resumeExecutions(l)
	b.setLink(l)
	go l.watch(b.logger)
	go func() {
		<-l.session.Done()
		select {
		case b.lost <- l:
		case <-b.gone:
		}
	}()
}

func (b *box) setLink(l *link) {
	b.linkMu.Lock()
	defer b.linkMu.Unlock()
	b.link = l
	close(b.linkChanged)
	b.linkChanged = make(chan struct{})
}

func (b *box) currentLink() *link {
	b.linkMu.Lock()
	defer b.linkMu.Unlock()
	return b.link
}

// awaitLink returns a live link, waiting a little if the box is being reached again.
func (b *box) awaitLink(ctx context.Context) (*link, error) {
	deadline := time.NewTimer(reconnectPatience)
	defer deadline.Stop()
	for {
		b.linkMu.Lock()
		l, changed := b.link, b.linkChanged
		b.linkMu.Unlock()
		box := b.snapshot.Load()
		switch box.GetState() {
		case enginev1.BoxState_BOX_STATE_ENDED:
			return nil, fault(FailedPrecondition, "box %s has ended: %s", b.id, box.GetEndDetail())
		case enginev1.BoxState_BOX_STATE_PAUSED:
			return nil, fault(Paused, "box %s is paused", b.id)
		case enginev1.BoxState_BOX_STATE_PREPARED:
			return nil, fault(FailedPrecondition, "box %s is only prepared: nothing runs in it", b.id)
		case enginev1.BoxState_BOX_STATE_PAUSING, enginev1.BoxState_BOX_STATE_RESUMING:
			// It decides itself when this is over.
			deadline.Reset(reconnectPatience)
			l = nil
		}
		if l != nil && l.alive() && !l.closing.Load() {
			return l, nil
		}
		select {
		case <-changed:
		case <-b.gone:
			return nil, fault(NotFound, "box %s does not exist", b.id)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline.C:
			if s := b.snapshot.Load().GetState(); s == enginev1.BoxState_BOX_STATE_PAUSING || s == enginev1.BoxState_BOX_STATE_RESUMING {
				continue
			}
			return nil, fault(Unavailable, "box %s is being reached again: try again", b.id)
		}
	}
}

func (b *box) openWarmContexts(ctx context.Context, l *link) error {
	specs := b.record.box.GetSpec().GetWarmContexts()
	results := make(chan error, len(specs))
	for _, spec := range specs {
		go func() {
			opened, err := openContext(ctx, l, spec)
			if err == nil && opened.GetState() == execv1.ContextState_CONTEXT_STATE_FAILED {
				err = fmt.Errorf("the %s context did not start: %s", spec.GetLanguage(), opened.GetDetail())
			}
			results <- err
		}()
	}
	var failures []error
	for range specs {
		failures = append(failures, <-results)
	}
	return errors.Join(failures...)
}

func openContext(ctx context.Context, l *link, spec *execv1.ContextSpec) (*execv1.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, contextTimeout)
	defer cancel()
	reply := &agentv1.OpenContextReply{}
	if err := frame.Call(ctx, l.session, agentrpc.OpenContext, &agentv1.OpenContextRequest{Spec: spec}, reply); err != nil {
		return nil, agentFault("opening the "+spec.GetLanguage()+" context", err)
	}
	if reply.GetContext().GetContextId() != spec.GetContextId() {
		return nil, fault(Internal, "the agent answered for context %q (asked: %q)", clip(reply.GetContext().GetContextId()), spec.GetContextId())
	}
	l.contexts.put(reply.GetContext())
	return clipContext(reply.GetContext()), nil
}

// recover takes over a box whose process lives.
func (b *box) recover() {
	// Kills of an earlier engine's time that the box has outlived are no news.
	if oom, err := b.container.Load().group.OutOfMemory(); err == nil && b.life.Err() == nil {
		b.oomKills.Store(oom.Kills)
	}
	if b.record.frozen {
		b.thaw()
	}
	b.reconnect()
}

// reconnect reaches the agent again. A box whose agent can't be reached any more is ended.
func (b *box) reconnect() {
	if l := b.currentLink(); l != nil {
		b.dropLink(l)
	}
	if b.life.Err() != nil {
		return
	}
	b.record.box.State = enginev1.BoxState_BOX_STATE_RECONNECTING
	b.publish()
	now := time.Now()
	b.losses = slices.DeleteFunc(append(b.losses, now), func(at time.Time) bool { return now.Sub(at) > lossesWithin })
	if len(b.losses) > maxLosses {
		b.endLife(fmt.Errorf("%w: its connection was lost %d times within %v", errBroken, len(b.losses), lossesWithin))
		return
	}
	deadline := now.Add(reconnectFor)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		_, err := b.connect(greeting{})
		if err == nil {
			break
		}
		if b.life.Err() != nil {
			return
		}
		b.logger.Warn("agent not reached", "error", err)
		if time.Now().After(deadline) {
			b.endLife(fmt.Errorf("%w: %w", errBroken, err))
			return
		}
		select {
		case <-time.After(wait):
		case <-b.life.Done():
			return
		}
	}
	b.record.box.State = enginev1.BoxState_BOX_STATE_READY
	b.publish()
}

// dropLink ends a link and waits until nothing drains over it any more.
func (b *box) dropLink(l *link) {
	b.linkMu.Lock()
	if b.link == l {
		b.link = nil
	}
	b.linkMu.Unlock()
	l.close()
	l.awaitPumps()
}

// resumeExecutions goes on draining what the agent holds over a new link, and
// closes the books on what it does not hold any more.
func (b *box) resumeExecutions(l *link) {
	held := map[string]bool{}
	// One limit for all that is asked: an agent that doesn't answer holds nothing up for long.
	ctx, cancel := context.WithTimeout(b.life, connectTimeout)
	defer cancel()
	behind := map[*spool.Log]uint64{}
	for _, h := range l.held {
		if !validID(h.GetExecutionId()) || held[h.GetExecutionId()] {
			continue
		}
		held[h.GetExecutionId()] = true
		if b.node.spool.Kept(h.GetExecutionId()) || b.wasForgotten(h.GetExecutionId()) {
			// The server has it on record; only the agent was not told any more.
			l.abandon(h)
			continue
		}
		owner := spool.Owner{ExecutionID: h.GetExecutionId(), BoxID: b.id, ContextID: clip(h.GetContextId()), SandboxID: b.record.box.GetSandboxId()}
		var process *execv1.Process
		if h.GetProcess() {
			process = l.process(ctx, h.GetExecutionId())
			owner.Process = process.GetSpec()
		}
		log, _ := b.node.spool.Add(owner)
		if log.Owner().BoxID != b.id || (log.Owner().Process != nil) != h.GetProcess() {
			continue
		}
		log.SetInput(process.GetStdinOffset(), process.GetStdinClosed())
		if log.Finished() != nil && (!h.GetFinished() || h.GetLastSeq() != log.Last()) {
			// Its book was closed here, since the agent broke the protocol over it.
			l.abandon(h)
			continue
		}
		e, err := attachExecution(l, log, b.logger)
		if err != nil {
			return
		}
		b.pump(l, e)
		if log.Finished() != nil {
			e.finish()
		}
		behind[log] = h.GetLastSeq()
	}
	for _, log := range b.node.spool.Of(b.id) {
		if log.Finished() == nil && !held[log.Owner().ExecutionID] {
			finishLog(log, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_LOST, Detail: "the sandbox's agent does not know it any more"})
		}
	}
	// Who looks once the box is reached sees what happened meanwhile, if the agent is as far as it says.
	ctx, cancel = context.WithTimeout(b.life, catchUp)
	defer cancel()
	for log, seq := range behind {
		_ = log.Await(ctx, seq)
	}
}

// wasForgotten says whether an execution was forgotten without the agent's knowledge.
func (b *box) wasForgotten(id string) bool {
	b.linkMu.Lock()
	defer b.linkMu.Unlock()
	forgotten := b.forgotten[id]
	delete(b.forgotten, id)
	return forgotten
}

// pump drains an execution in the background. It returns false if the link is dropped: then somebody else goes on with it.
func (b *box) pump(l *link, e *execution) bool {
	if !l.addPump() {
		return false
	}
	id := e.log.Owner().ExecutionID
	e.explain = b.explainKill
	b.linkMu.Lock()
	b.executions[id] = e
	b.linkMu.Unlock()
	go func() {
		defer l.pumps.Done()
		err := e.drain()
		b.linkMu.Lock()
		if b.executions[id] == e {
			delete(b.executions, id)
		}
		b.linkMu.Unlock()
		var broken *violation
		switch {
		case errors.Is(err, errRefused):
			_ = b.node.spool.Discard(e.log, refusal(e.log, err))
		case errors.As(err, &broken):
			b.logger.Warn("connection to the agent is ended", "error", err)
			// First, so that who sees the end waits for the next connection.
			l.session.Close()
			finishLog(e.log, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_LOST, Detail: clip(err.Error())})
		}
	}()
	return true
}

// refusal is what the agent said to something that it did not start.
func refusal(log *spool.Log, err error) error {
	if log.Owner().Process != nil {
		return answered(err)
	}
	return agentFault("execution "+log.Owner().ExecutionID, err)
}

// explainKill corrects the end of an execution whose interpreter was killed by
// the host's kernel for want of memory while the sandbox lives on: on control
// groups version 1 the kernel may take one process of the sandbox, and inside
// that looks like any SIGKILL.
func (b *box) explainKill(f *execv1.Finished) {
	died := f.GetReason() == execv1.ExitReason_EXIT_REASON_KERNEL_DIED || f.GetReason() == execv1.ExitReason_EXIT_REASON_EXITED
	if !died || f.GetSignal() != int32(unix.SIGKILL) {
		return
	}
	process := f.GetReason() == execv1.ExitReason_EXIT_REASON_EXITED
	c := b.container.Load()
	if c == nil {
		return
	}
	oom, err := c.group.OutOfMemory()
	if err != nil || b.oomKills.Swap(oom.Kills) >= oom.Kills {
		return
	}
	b.oomKilledAt.Store(time.Now().UnixNano())
	limit := b.snapshot.Load().GetLimits().GetMemoryBytes()
	f.Reason = execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY
	f.MemoryLimitBytes, f.MemoryPeakBytes = limit, oom.PeakBytes
	f.Detail = fmt.Sprintf("the sandbox used more memory than its limit of %d MiB; ", limit/mebibyte)
	if process {
		f.Detail += "the process was ended"
	} else {
		f.Detail += "the interpreter was ended and is started afresh, its state is lost"
	}
}

func finishLog(log *spool.Log, finished *execv1.Finished) {
	finished.StdoutBytes, finished.StderrBytes = log.Ends()
	now := time.Now().UnixMilli()
	finished.StartedAtUnixMs, finished.EndedAtUnixMs = now, now
	if started := log.Started(); started != nil {
		finished.StartedAtUnixMs = started.GetAtUnixMs()
		finished.DurationUs = max(0, now-started.GetAtUnixMs()) * 1000
	}
	event := &execv1.ExecutionEvent{Seq: log.Last() + 1, Event: &execv1.ExecutionEvent_Finished{Finished: finished}}
	// Refused only if the execution has ended by itself, or was forgotten.
	_ = log.Append(event)
}

// assign gives the box its sandbox.
func (b *box) assign(ctx context.Context, request *enginev1.AssignBoxRequest) error {
	if err := b.needsRunning(); err != nil {
		return err
	}
	if have := b.record.box.GetSandboxId(); have != "" && have != request.GetSandboxId() {
		return fault(AlreadyExists, "box %s belongs to sandbox %s (asked for: %s)", b.id, have, request.GetSandboxId())
	}
	limits := b.record.box.GetLimits()
	if request.GetLimits() != nil {
		limits = completeLimits(request.GetLimits())
		// The size of the writable layer is fixed when the box is made.
		limits.DiskBytes = b.record.box.GetLimits().GetDiskBytes()
	}
	if err := checkLimits(limits); err != nil {
		return err
	}
	l, err := b.awaitLink(ctx)
	if err != nil {
		return err
	}
	b.record.box.SandboxId = request.GetSandboxId()
	b.record.box.Labels = request.GetLabels()
	b.record.box.Limits = limits
	b.record.env = request.GetEnv()
	b.record.hostname = request.GetHostname()
	b.record.box.DeadlineUnixMs = request.GetDeadlineUnixMs()
	if err := b.save(); err != nil {
		return err
	}
	if err := b.container.Load().group.Set(groupLimits(limits, false)); err != nil {
		return fault(Internal, "box %s: %v", b.id, err)
	}
	callCtx, cancel := context.WithTimeout(b.life, callTimeout)
	defer cancel()
	reply, err := l.hello(callCtx, b.record, b.node.nextEpoch(), greeting{reconfigure: true})
	if err != nil {
		return b.unlessEnded(agentFault("assigning box "+b.id, err))
	}
	b.contexts.replace(reply.GetContexts())
	return nil
}

// needsRunning says why a box that has ended or does not run can't do what only a running one can.
func (b *box) needsRunning() error {
	switch box := b.record.box; box.GetState() {
	case enginev1.BoxState_BOX_STATE_ENDED:
		return fault(FailedPrecondition, "box %s has ended: %s", b.id, box.GetEndDetail())
	case enginev1.BoxState_BOX_STATE_PAUSED:
		return fault(Paused, "box %s is paused", b.id)
	case enginev1.BoxState_BOX_STATE_PREPARED:
		return fault(FailedPrecondition, "box %s is only prepared: nothing runs in it", b.id)
	}
	return nil
}

// unlessOver names the end of the box, or its pause, as the reason for an error that came with it. Not for the box's goroutine.
func (b *box) unlessOver(err error) error {
	if b.life.Err() == nil {
		err = b.unlessPaused(err)
	}
	return b.unlessEnded(err)
}

// unlessEnded names the end of the box as the reason for an error that came with it.
func (b *box) unlessEnded(err error) error {
	cause := context.Cause(b.life)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, errDeleted):
		return fault(NotFound, "box %s was deleted meanwhile", b.id)
	}
	return fault(FailedPrecondition, "box %s has ended meanwhile: %v", b.id, cause)
}

func (b *box) updateLimits(ctx context.Context, limits *execv1.Limits) error {
	if err := b.needsRunning(); err != nil {
		return err
	}
	limits = completeLimits(limits)
	limits.DiskBytes = b.record.box.GetLimits().GetDiskBytes()
	if err := checkLimits(limits); err != nil {
		return err
	}
	l, err := b.awaitLink(ctx)
	if err != nil {
		return err
	}
	if err := b.container.Load().group.Set(groupLimits(limits, false)); err != nil {
		// The text names paths of the host, which are for the log.
		b.logger.Warn("limits not changed", "error", err)
		if errors.Is(err, unix.EBUSY) {
			return fault(FailedPrecondition, "%d MiB of memory are less than what is in use", limits.GetMemoryBytes()>>20)
		}
		return fault(FailedPrecondition, "the node could not set them")
	}
	b.record.box.Limits = limits
	if err := b.save(); err != nil {
		return err
	}
	callCtx, cancel := context.WithTimeout(b.life, callTimeout)
	defer cancel()
	if _, err := l.hello(callCtx, b.record, b.node.nextEpoch(), greeting{reconfigure: true}); err != nil {
		return b.unlessEnded(agentFault("telling box "+b.id+" its limits", err))
	}
	return nil
}

// end is called once the box's life is over. It finds out why, tells, and frees what the box held.
func (b *box) end() {
	if l := b.currentLink(); l != nil {
		// What the sandbox said before it died is still in the pipe.
		if errors.Is(context.Cause(b.life), errDied) {
			select {
			case <-l.session.Done():
			case <-time.After(lastOutput):
			}
		}
		b.dropLink(l)
	}
	b.judge()
	b.record.box.State = enginev1.BoxState_BOX_STATE_ENDED
	b.record.box.EndedAtUnixMs = time.Now().UnixMilli()
	pause := b.record.box.GetPauseSnapshotId()
	b.noteContainer()
	if err := b.record.write(b.dir); err != nil {
		b.logger.Error("box record not written", "error", err)
	}
	b.closeBooks()
	b.publish()
	b.setLink(nil)
	b.logger.Info("box has ended", "reason", b.record.box.GetEndReason().String(), "detail", b.record.box.GetEndDetail())
	if err := errors.Join(b.free(), b.node.snapshots.Remove(pause)); err != nil {
		b.logger.Error("resources of an ended box are still there", "error", err)
	}
}

// judge finds out why the box ended. Requires: its control group is still there.
func (b *box) judge() {
	box := b.record.box
	cause := context.Cause(b.life)
	var oom cgroup.OutOfMemory
	var exit *unix.WaitStatus
	c := b.container.Load()
	if c != nil {
		var err error
		if oom, err = c.group.OutOfMemory(); err != nil && c.group.Exists() {
			b.logger.Error("memory counters not read", "error", err)
		}
	}
	if errors.Is(cause, errDied) && c != nil {
		exit = c.exit()
	}
	switch {
	case errors.Is(cause, errDeleted):
		box.EndReason, box.EndDetail = enginev1.BoxEndReason_BOX_END_REASON_DELETED, "the sandbox was deleted"
	case oom.Kills > b.oomKills.Load(), time.Since(time.Unix(0, b.oomKilledAt.Load())) < oomAftermath:
		box.EndReason = enginev1.BoxEndReason_BOX_END_REASON_OUT_OF_MEMORY
		// Both less what the sandbox itself may use, to match what the user was promised.
		box.MemoryLimitBytes = box.GetLimits().GetMemoryBytes()
		box.MemoryPeakBytes = oom.PeakBytes
		box.EndDetail = fmt.Sprintf("the sandbox used more memory than its limit of %d MiB and was ended by the kernel", box.GetLimits().GetMemoryBytes()/mebibyte)
	case errors.Is(cause, errLost):
		box.EndReason, box.EndDetail = enginev1.BoxEndReason_BOX_END_REASON_LOST, "the machine, or the container, was started again"
	case errors.Is(cause, errBroken):
		box.EndReason, box.EndDetail = enginev1.BoxEndReason_BOX_END_REASON_EXITED, clip(cause.Error())
	case errors.Is(cause, errPauseLost):
		box.EndReason, box.EndDetail = enginev1.BoxEndReason_BOX_END_REASON_LOST, clip(cause.Error())
	case exit != nil && exit.Exited() && exit.ExitStatus() == deadlineStatus && box.GetDeadlineUnixMs() != 0 && time.Now().UnixMilli() >= box.GetDeadlineUnixMs():
		box.EndReason = enginev1.BoxEndReason_BOX_END_REASON_DEADLINE
		box.EndDetail = "its time was over: the deadline was " + time.UnixMilli(box.GetDeadlineUnixMs()).UTC().Format(time.RFC3339)
	default:
		box.EndReason, box.EndDetail = enginev1.BoxEndReason_BOX_END_REASON_EXITED, exitDetail(c, exit)
	}
}

func exitDetail(c *container, exit *unix.WaitStatus) string {
	detail := "the sandbox's first process ended"
	switch {
	case exit == nil:
	case exit.Signaled():
		detail = fmt.Sprintf("the sandbox was ended by signal %d (%s)", exit.Signal(), exit.Signal())
	default:
		detail = fmt.Sprintf("the sandbox's first process ended with exit status %d", exit.ExitStatus())
	}
	if c == nil {
		return detail
	}
	if tail := driver.Tail(filepath.Join(c.dir, driver.StderrName), 1024); tail != "" {
		detail += "; its log ends with: " + tail
	}
	return detail
}

// closeBooks ends the executions of a box that has ended, and puts on file what
// only the agent could have repeated.
func (b *box) closeBooks() {
	box := b.record.box
	for _, log := range b.node.spool.Of(b.id) {
		finished := &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED, Detail: box.GetEndDetail()}
		if box.GetEndReason() == enginev1.BoxEndReason_BOX_END_REASON_OUT_OF_MEMORY {
			finished.Reason = execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY
			finished.MemoryLimitBytes, finished.MemoryPeakBytes = box.GetMemoryLimitBytes(), box.GetMemoryPeakBytes()
		}
		if log.Finished() == nil {
			finishLog(log, finished)
		}
		if err := log.Spill(); err != nil {
			b.logger.Warn("output stays in memory", "error", err)
		}
	}
}

// free removes all of the box but its record, its log and its pause. It may be called again.
func (b *box) free() error {
	c := b.container.Load()
	if c == nil {
		return nil
	}
	return c.free()
}

// removeAll removes every trace of the box but its spools.
func (b *box) removeAll() error {
	if l := b.currentLink(); l != nil {
		b.dropLink(l)
	}
	return errors.Join(b.free(), b.node.snapshots.Remove(b.record.box.GetPauseSnapshotId()), failpoint.Hit("delete.freed"), os.RemoveAll(b.dir))
}

// remove is the end of a box that is deleted. Requires: its life has ended.
func (b *box) remove() error {
	err := failpoint.Hit("delete.begun")
	if !b.ended() {
		b.end()
	}
	err = errors.Join(err, failpoint.Hit("delete.ended"))
	err = errors.Join(err, b.removeAll(), failpoint.Hit("delete.removed"))
	if err != nil {
		return fault(Internal, "box %s is deleted but not all of it is gone: %v", b.id, err)
	}
	b.leave()
	return nil
}

// leave takes the box out of the node.
func (b *box) leave() {
	b.done = true
	b.record.box.State = enginev1.BoxState_BOX_STATE_DELETED
	b.node.drop(b)
	b.publish()
}

// boundStderr keeps the log of a live box small. The writer appends, so it goes on at the new end.
func (b *box) boundStderr() error {
	c := b.container.Load()
	if c == nil {
		return nil
	}
	path := filepath.Join(c.dir, driver.StderrName)
	info, err := os.Stat(path)
	if err != nil || info.Size() <= maxStderr {
		return nil
	}
	tail := driver.Tail(path, maxStderr/4)
	if err := os.Truncate(path, 0); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("(earlier lines were dropped)\n" + tail + "\n")
	return errors.Join(err, f.Close())
}

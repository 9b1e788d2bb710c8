// Package box holds the boxes of a node: how each is started, taken over,
// assigned, watched, ended and removed, and the executions in it.
//
// All that the node must know lies in <data>/boxes/<box_id>/, written before
// each step, so a process that is killed at any moment and started again finds
// every box, or finishes removing it.
package box

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
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
	"atoll/node/internal/frame"
	"atoll/node/internal/image"
	"atoll/node/internal/spool"
)

// Config of a node.
type Config struct {
	// DataDir holds boxes/ and the epoch of this engine.
	DataDir string
	// AgentImage is the EROFS file that is mounted at /.atoll.
	AgentImage string
	Driver     driver.Driver
	Cgroups    cgroup.Hierarchy
	Images     *image.Store
	Spool      *spool.Store
	Reaper     StatusReader
	Logger     *slog.Logger
}

// StatusReader yields the exit status of processes that have become our children.
type StatusReader interface {
	Status(pid int) <-chan unix.WaitStatus
	Forget(pid int)
}

const (
	// A disk fuller than this takes no new boxes.
	maxDiskPercent = 90
	maxCodeBytes   = 16 << 20
	maxWarm        = 16
	// interruptGrace is how long a kernel may take to end a cell by itself.
	interruptGrace = time.Second
	stderrInterval = 5 * time.Second
)

var errLost = errors.New("the machine, or the container, was started again")

// Node is all boxes.
type Node struct {
	config  Config
	driver  driver.Driver
	cgroups cgroup.Hierarchy
	spool   *spool.Store
	reaper  StatusReader
	logger  *slog.Logger
	bootID  string
	epoch   atomic.Uint64
	slots   chan struct{}

	mu sync.Mutex
	// All below is guarded by mu.
	boxes       map[string]*box
	subscribers map[*Subscription]bool
}

// Open takes over what an earlier engine left.
func Open(config Config) (*Node, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	n := &Node{
		config: config, driver: config.Driver, cgroups: config.Cgroups, spool: config.Spool, reaper: config.Reaper, logger: config.Logger,
		bootID: boot, boxes: map[string]*box{}, subscribers: map[*Subscription]bool{},
		// One more than there are CPUs: a start waits for its sandbox part of the time.
		slots: make(chan struct{}, runtime.NumCPU()+1),
	}
	if err := n.raiseEpoch(); err != nil {
		return nil, err
	}
	if err := n.takeOver(); err != nil {
		return nil, err
	}
	go n.boundLogs()
	return n, nil
}

// raiseEpoch makes every connection of this process newer than any of an earlier one.
func (n *Node) raiseEpoch() error {
	path := filepath.Join(n.config.DataDir, "epoch")
	var last uint64
	text, err := os.ReadFile(path)
	if err == nil {
		if last, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err != nil {
			return fmt.Errorf("%s: %w (remedy: end all boxes with \"atoll-engine purge\")", path, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := replaceFile(path, []byte(strconv.FormatUint(last+1, 10))); err != nil {
		return err
	}
	n.epoch.Store((last + 1) << 32)
	return nil
}

func (n *Node) nextEpoch() uint64 { return n.epoch.Add(1) }

func (n *Node) boxesDir() string { return filepath.Join(n.config.DataDir, "boxes") }

func (n *Node) boxDir(id string) string { return filepath.Join(n.boxesDir(), id) }

// takeOver registers the boxes on disk, and removes what was cut off in the making.
func (n *Node) takeOver() error {
	if err := os.MkdirAll(n.boxesDir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(n.boxesDir())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !validBoxID(entry.Name()) {
			continue
		}
		if err := n.takeOverBox(entry.Name()); err != nil {
			n.logger.Error("box not taken over", "box", entry.Name(), "error", err)
		}
	}
	return n.sweep()
}

func (n *Node) takeOverBox(id string) error {
	r, err := readRecord(n.boxDir(id))
	if err != nil || r.box.GetBoxId() != id || r.box.GetState() == enginev1.BoxState_BOX_STATE_CREATING {
		n.logger.Info("removing a box that was not finished", "box", id, "error", err)
		return n.removeUnknown(id)
	}
	b := newBox(n, id, r)
	if r.box.GetState() == enginev1.BoxState_BOX_STATE_ENDED {
		close(b.started)
		b.endLife(errDied)
		n.boxes[id] = b
		go b.run(func() {
			b.closeBooks()
			// What the earlier engine may not have come to.
			if err := b.free(); err != nil {
				b.logger.Error("resources of an ended box are still there", "error", err)
			}
		})
		return nil
	}
	if b.key, err = readKey(b.dir); err != nil {
		n.logger.Error("box has no key", "box", id, "error", err)
	}
	b.record.box.State = enginev1.BoxState_BOX_STATE_RECONNECTING
	b.snapshot.Store(proto.CloneOf(b.record.box))
	n.boxes[id] = b
	if r.process.BootID != n.bootID {
		b.endLife(errLost)
	} else if err := b.watchProcess(); err != nil {
		b.endLife(errDied)
	} else {
		b.status = n.reaper.Status(r.process.PID)
	}
	go b.run(b.recover)
	return nil
}

// removeUnknown removes all that may exist of a box that has no usable record.
func (n *Node) removeUnknown(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removalTimeout)
	defer cancel()
	group := n.cgroups.Open(id)
	// The processes first: a runsc that was cut off can't be asked.
	return errors.Join(group.Remove(ctx), n.driver.Delete(ctx, id, ""), group.Remove(ctx), os.RemoveAll(n.boxDir(id)))
}

// sweep removes groups and runtime state of no known box, and ends the logs of such.
func (n *Node) sweep() error {
	groups, err := n.cgroups.Boxes()
	if err != nil {
		return err
	}
	states, err := n.driver.List()
	if err != nil {
		return err
	}
	for _, id := range append(groups, states...) {
		if n.boxes[id] == nil && validBoxID(id) {
			n.logger.Info("removing what is left of an unknown box", "box", id)
			if err := n.removeUnknown(id); err != nil {
				n.logger.Error("remains of a box are still there", "box", id, "error", err)
			}
		}
	}
	for _, log := range n.spool.All() {
		if n.boxes[log.Owner().BoxID] == nil && log.Finished() == nil {
			finishLog(log, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_LOST, Detail: "the sandbox is not there any more"})
		}
	}
	return nil
}

// Purge ends every box of the instance and removes what is left of them.
func Purge(ctx context.Context, dataDir string, d driver.Driver, cgroups cgroup.Hierarchy) error {
	ids := map[string]bool{}
	groups, err := cgroups.Boxes()
	if err != nil {
		return err
	}
	states, err := d.List()
	if err != nil {
		return err
	}
	for _, id := range append(groups, states...) {
		ids[id] = true
	}
	entries, err := os.ReadDir(filepath.Join(dataDir, "boxes"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		ids[entry.Name()] = true
	}
	var failures []error
	for id := range ids {
		group := cgroups.Open(id)
		failures = append(failures, group.Remove(ctx), d.Delete(ctx, id, ""), group.Remove(ctx))
	}
	failures = append(failures, os.RemoveAll(filepath.Join(dataDir, "boxes")), cgroups.Remove())
	return errors.Join(failures...)
}

func (n *Node) startSlot(ctx context.Context) (release func(), err error) {
	select {
	case n.slots <- struct{}{}:
		return func() { <-n.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *Node) find(id string) (*box, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b, ok := n.boxes[id]; ok {
		return b, nil
	}
	return nil, fault(NotFound, "box %s does not exist", clip(id))
}

func (n *Node) drop(b *box) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.boxes[b.id] == b {
		delete(n.boxes, b.id)
	}
}

func (n *Node) announce(box *enginev1.Box) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.subscribers {
		s.put(box)
	}
}

// Subscribe returns a subscription that begins with every box as it is.
func (n *Node) Subscribe() *Subscription {
	s := newSubscription()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.boxes {
		s.put(b.snapshot.Load())
	}
	n.subscribers[s] = true
	return s
}

// Unsubscribe ends a subscription.
func (n *Node) Unsubscribe(s *Subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.subscribers, s)
}

var (
	boxIDPattern = regexp.MustCompile(`^box-[0-9a-hjkmnp-tv-z]{26}$`)
	idPattern    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

func validBoxID(id string) bool { return boxIDPattern.MatchString(id) }

// validID says whether an id may name a file.
func validID(id string) bool { return idPattern.MatchString(id) }

// Create makes a box and returns it when it is ready.
func (n *Node) Create(ctx context.Context, request *enginev1.CreateBoxRequest) (*enginev1.Box, error) {
	b, err := n.createOrFind(request)
	if err != nil {
		return nil, err
	}
	select {
	case <-b.started:
	case <-ctx.Done():
		// The box goes on starting; the same call finds it.
		return nil, ctx.Err()
	}
	if b.startErr != nil {
		return nil, b.startErr
	}
	return b.snapshot.Load(), nil
}

func (n *Node) createOrFind(request *enginev1.CreateBoxRequest) (*box, error) {
	id, spec := request.GetBoxId(), request.GetSpec()
	if !validBoxID(id) {
		return nil, fault(Invalid, "box_id: %q (expected: \"box-\" and 26 characters of Crockford's base32)", clip(id))
	}
	if b, err := n.find(id); err == nil {
		if !proto.Equal(b.snapshot.Load().GetSpec(), spec) {
			return nil, fault(AlreadyExists, "box %s exists with another specification", id)
		}
		return b, nil
	}
	limits := completeLimits(spec.GetLimits())
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	if len(spec.GetWarmContexts()) > maxWarm {
		return nil, fault(Invalid, "warm_contexts: %d (expected: at most %d)", len(spec.GetWarmContexts()), maxWarm)
	}
	for _, c := range spec.GetWarmContexts() {
		if !validID(c.GetContextId()) {
			return nil, fault(Invalid, "context_id: %q (expected: letters, digits, '.', '_' and '-')", clip(c.GetContextId()))
		}
	}
	found, err := n.config.Images.Find(spec.GetImageDigest())
	if err != nil {
		return nil, fault(NotFound, "image %s is not on this node", clip(spec.GetImageDigest()))
	}
	if err := n.roomForBox(); err != nil {
		return nil, err
	}
	r := &record{image: found, hostname: "sandbox", box: &enginev1.Box{
		BoxId: id, Spec: spec, State: enginev1.BoxState_BOX_STATE_CREATING, Labels: spec.GetLabels(), Limits: limits,
		CreatedAtUnixMs: time.Now().UnixMilli(), RuntimeVersion: n.driver.Version(),
	}}
	n.mu.Lock()
	defer n.mu.Unlock()
	if b, ok := n.boxes[id]; ok {
		// Asked for twice at the same moment; the loser compares as well.
		if !proto.Equal(b.snapshot.Load().GetSpec(), spec) {
			return nil, fault(AlreadyExists, "box %s exists with another specification", id)
		}
		return b, nil
	}
	b := newBox(n, id, r)
	n.boxes[id] = b
	go b.run(b.start)
	return b, nil
}

// roomForBox refuses what would endanger the boxes that are there.
func (n *Node) roomForBox() error {
	total, available, err := diskSpace(n.config.DataDir)
	if err != nil {
		return fault(Internal, "disk space: %v", err)
	}
	if used := total - available; used*100 >= total*maxDiskPercent {
		return fault(Exhausted, "the disk of %s is %d %% full (%d of %d MiB free): no new boxes from %d %% on (remedy: delete sandboxes, snapshots or images)",
			n.config.DataDir, used*100/total, available/mebibyte, total/mebibyte, maxDiskPercent)
	}
	memory, err := hostMemory()
	if err != nil {
		return fault(Internal, "memory: %v", err)
	}
	// An idle box takes about 20 MiB. The reserve is for those that are there to grow.
	reserve := max(memory.total/20, 256*mebibyte)
	starting := uint64(n.starting()+1) * 64 * mebibyte
	if memory.available < reserve+starting {
		return fault(Exhausted, "the node has %d MiB of memory left (%d MiB are kept in reserve, %d MiB needed for the boxes being started): no new boxes",
			memory.available/mebibyte, reserve/mebibyte, starting/mebibyte)
	}
	return nil
}

func (n *Node) starting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, b := range n.boxes {
		if b.snapshot.Load().GetState() == enginev1.BoxState_BOX_STATE_CREATING {
			count++
		}
	}
	return count
}

// Assign gives a box its sandbox's identity.
func (n *Node) Assign(ctx context.Context, request *enginev1.AssignBoxRequest) (*enginev1.Box, error) {
	if request.GetSandboxId() == "" {
		return nil, fault(Invalid, "sandbox_id is empty")
	}
	b, err := n.find(request.GetBoxId())
	if err != nil {
		return nil, err
	}
	if err := b.do(ctx, func() error { return b.assign(ctx, request) }); err != nil {
		return nil, err
	}
	return b.snapshot.Load(), nil
}

// UpdateLimits changes the limits of a box.
func (n *Node) UpdateLimits(ctx context.Context, id string, limits *execv1.Limits) (*enginev1.Box, error) {
	b, err := n.find(id)
	if err != nil {
		return nil, err
	}
	if err := b.do(ctx, func() error { return b.updateLimits(ctx, limits) }); err != nil {
		return nil, err
	}
	return b.snapshot.Load(), nil
}

// Get returns a box as it is.
func (n *Node) Get(id string) (*enginev1.Box, error) {
	b, err := n.find(id)
	if err != nil {
		return nil, err
	}
	return b.snapshot.Load(), nil
}

// List returns all boxes as they are.
func (n *Node) List() []*enginev1.Box {
	n.mu.Lock()
	defer n.mu.Unlock()
	boxes := make([]*enginev1.Box, 0, len(n.boxes))
	for _, b := range n.boxes {
		boxes = append(boxes, b.snapshot.Load())
	}
	return boxes
}

// Delete ends and removes a box, whatever it is doing.
func (n *Node) Delete(ctx context.Context, id string) error {
	if !validBoxID(id) {
		return fault(Invalid, "box_id: %q (expected: \"box-\" and 26 characters of Crockford's base32)", clip(id))
	}
	b, err := n.find(id)
	if err != nil {
		return nil
	}
	b.endLife(errDeleted)
	err = b.do(ctx, b.remove)
	var gone *Fault
	if errors.As(err, &gone) && gone.Kind == NotFound {
		return nil
	}
	return err
}

// OpenContext starts an interpreter.
func (n *Node) OpenContext(ctx context.Context, id string, spec *execv1.ContextSpec) (*execv1.Context, error) {
	if !validID(spec.GetContextId()) {
		return nil, fault(Invalid, "context_id: %q (expected: letters, digits, '.', '_' and '-')", clip(spec.GetContextId()))
	}
	_, l, err := n.reach(ctx, id)
	if err != nil {
		return nil, err
	}
	return openContext(ctx, l, spec)
}

// RestartContext starts a context's interpreter afresh.
func (n *Node) RestartContext(ctx context.Context, id, contextID string) (*execv1.Context, error) {
	_, l, err := n.reach(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, contextTimeout)
	defer cancel()
	reply := &agentv1.OpenContextReply{}
	if err := frame.Call(ctx, l.session, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: contextID}, reply); err != nil {
		return nil, agentFault("restarting context "+clip(contextID), err)
	}
	l.contexts.put(reply.GetContext())
	return clipContext(reply.GetContext()), nil
}

// CloseContext ends a context's interpreter.
func (n *Node) CloseContext(ctx context.Context, id, contextID string) error {
	_, l, err := n.reach(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := frame.Call(ctx, l.session, agentrpc.CloseContext, &agentv1.ContextRequest{ContextId: contextID}, &agentv1.Empty{}); err != nil {
		return agentFault("closing context "+clip(contextID), err)
	}
	l.contexts.remove(contextID)
	return nil
}

// Contexts lists what is known of a box's contexts.
func (n *Node) Contexts(id string) ([]*execv1.Context, error) {
	b, err := n.find(id)
	if err != nil {
		return nil, err
	}
	return b.seenContexts(), nil
}

func (n *Node) reach(ctx context.Context, id string) (*box, *link, error) {
	b, err := n.find(id)
	if err != nil {
		return nil, nil, err
	}
	l, err := b.awaitLink(ctx)
	return b, l, err
}

// Execute starts an execution, or finds the one that has its id.
func (n *Node) Execute(ctx context.Context, boxID string, spec *execv1.ExecutionSpec) (*spool.Log, error) {
	if !validID(spec.GetExecutionId()) {
		return nil, fault(Invalid, "execution_id: %q (expected: letters, digits, '.', '_' and '-')", clip(spec.GetExecutionId()))
	}
	if len(spec.GetCode()) > maxCodeBytes {
		return nil, fault(Invalid, "code: %d bytes (expected: at most %d)", len(spec.GetCode()), maxCodeBytes)
	}
	owner := spool.Owner{ExecutionID: spec.GetExecutionId(), BoxID: boxID, ContextID: spec.GetContextId()}
	return n.begin(ctx, owner, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Start{Start: spec}})
}

// begin has something started, or finds what has its id.
func (n *Node) begin(ctx context.Context, owner spool.Owner, first *agentv1.ExecuteRequest) (*spool.Log, error) {
	if log, ok := n.spool.Find(owner.ExecutionID); ok {
		return same(log, owner)
	}
	b, l, err := n.reach(ctx, owner.BoxID)
	if err != nil {
		return nil, err
	}
	owner.SandboxID = b.snapshot.Load().GetSandboxId()
	log, added := n.spool.Add(owner)
	if !added {
		return same(log, owner)
	}
	if n.spool.Kept(owner.ExecutionID) {
		// It runs once, whatever has been forgotten of it.
		err := fault(AlreadyExists, "%s has ended and is on record", owner.ExecutionID)
		return nil, errors.Join(err, n.spool.Discard(log, err))
	}
	e, err := openExecution(l, log, first, b.logger)
	if err != nil {
		err = agentFault("starting "+owner.ExecutionID, err)
		return nil, errors.Join(err, n.spool.Discard(log, err))
	}
	b.pump(l, e)
	return log, nil
}

// same says whether a log is what was asked for. Of code, which isn't kept here, only the place is compared.
func same(log *spool.Log, asked spool.Owner) (*spool.Log, error) {
	have := log.Owner()
	if have.BoxID != asked.BoxID {
		return nil, fault(AlreadyExists, "%s belongs to box %s (asked for: %s)", have.ExecutionID, have.BoxID, clip(asked.BoxID))
	}
	if !proto.Equal(have.Process, asked.Process) {
		return nil, fault(AlreadyExists, "%s is there already, and is something else", have.ExecutionID)
	}
	return log, nil
}

// Output returns the log of an execution or a process, forgotten ones that are kept included.
func (n *Node) Output(ctx context.Context, boxID, id string) (*spool.Log, error) {
	log, ok := n.spool.Find(id)
	if !ok {
		var err error
		log, err = n.spool.FindKept(id)
		if errors.Is(err, os.ErrNotExist) {
			return n.await(ctx, boxID, id)
		} else if err != nil {
			return nil, fault(Internal, "output of %s: %v", id, err)
		}
	}
	return ofBox(log, boxID)
}

// await finds a log that is not known yet because the box's agent has not been asked again, since the engine was started, what it holds.
func (n *Node) await(ctx context.Context, boxID, id string) (*spool.Log, error) {
	b, err := n.find(boxID)
	if err == nil && b.snapshot.Load().GetState() == enginev1.BoxState_BOX_STATE_RECONNECTING {
		if _, err := b.awaitLink(ctx); err != nil && b.snapshot.Load().GetState() == enginev1.BoxState_BOX_STATE_RECONNECTING {
			return nil, err
		}
	}
	if log, ok := n.spool.Find(id); ok {
		return ofBox(log, boxID)
	}
	return nil, fault(NotFound, "%s is not on this node", clip(id))
}

func ofBox(log *spool.Log, boxID string) (*spool.Log, error) {
	if log.Owner().BoxID != boxID {
		return nil, fault(NotFound, "%s is not of box %s", log.Owner().ExecutionID, clip(boxID))
	}
	return log, nil
}

// Interrupt ends a running or queued execution. It succeeds for one that has ended.
func (n *Node) Interrupt(ctx context.Context, boxID, executionID string) error {
	if log, ok := n.spool.Find(executionID); ok && log.Finished() != nil {
		return nil
	}
	_, l, err := n.reach(ctx, boxID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &agentv1.InterruptRequest{ExecutionId: executionID, GraceMs: uint32(interruptGrace.Milliseconds())}
	if err := frame.Call(ctx, l.session, agentrpc.Interrupt, request, &agentv1.Empty{}); err != nil {
		return agentFault("interrupting execution "+clip(executionID), err)
	}
	return nil
}

// Executions lists what is running, or has ended and is not forgotten.
func (n *Node) Executions(boxID string) []*enginev1.ExecutionRecord {
	var records []*enginev1.ExecutionRecord
	for _, log := range n.spool.All() {
		owner := log.Owner()
		if owner.Process != nil || boxID != "" && owner.BoxID != boxID {
			continue
		}
		finished := log.Finished()
		records = append(records, &enginev1.ExecutionRecord{
			ExecutionId: owner.ExecutionID, BoxId: owner.BoxID, ContextId: owner.ContextID, SandboxId: owner.SandboxID,
			Running: finished == nil, LastSeq: log.Last(), Finished: finished,
		})
	}
	return records
}

// Forget drops executions that the server has on record; with keep, their output stays readable, and is on file when this returns. Those
// that run, or can't be kept, are refused, the others are forgotten all the same.
func (n *Node) Forget(ids []string, keep bool) error {
	var failures []error
	for _, id := range ids {
		log, ok := n.spool.Find(id)
		if ok && log.Finished() == nil {
			failures = append(failures, fault(FailedPrecondition, "execution %s is running and can't be forgotten", clip(id)))
			continue
		}
		if err := n.spool.Forget(id, keep); err != nil {
			failures = append(failures, fault(Internal, "execution %s: %v", clip(id), err))
			continue
		}
		if ok {
			n.release(log.Owner())
		}
	}
	return errors.Join(failures...)
}

// release lets the agent forget an execution.
func (n *Node) release(owner spool.Owner) {
	b, err := n.find(owner.BoxID)
	if err != nil {
		return
	}
	b.linkMu.Lock()
	e := b.executions[owner.ExecutionID]
	b.linkMu.Unlock()
	if e != nil {
		e.release()
	}
}

// Close puts on file what only this process holds, and ends the connections. The boxes go on.
func (n *Node) Close() {
	for _, log := range n.spool.All() {
		if log.Finished() != nil {
			if err := log.Spill(); err != nil {
				n.logger.Warn("output not on file", "error", err)
			}
		}
	}
}

func (n *Node) boundLogs() {
	for range time.Tick(stderrInterval) {
		n.mu.Lock()
		boxes := make([]*box, 0, len(n.boxes))
		for _, b := range n.boxes {
			boxes = append(boxes, b)
		}
		n.mu.Unlock()
		for _, b := range boxes {
			if err := b.boundStderr(); err != nil {
				b.logger.Warn("log of the sandbox not shortened", "error", err)
			}
		}
	}
}

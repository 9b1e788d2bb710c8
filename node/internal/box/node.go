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
	"atoll/node/internal/snapshot"
	"atoll/node/internal/spool"
)

// Config of a node.
type Config struct {
	// DataDir holds boxes/ and the epoch of this engine.
	DataDir string
	// AgentImage is the EROFS file that is mounted at /.atoll, where none is kept.
	AgentImage string
	Kept       Kept
	Driver     driver.Driver
	Cgroups    cgroup.Hierarchy
	Images     *image.Store
	Spool      *spool.Store
	Snapshots  *snapshot.Store
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
	// snapshots are on disk.
	snapshots *snapshot.Store
	reaper    StatusReader
	logger    *slog.Logger
	// disk tells the bytes of the data folder's disk.
	disk   func() (total, available uint64, err error)
	bootID string
	epoch  atomic.Uint64
	// epochMu guards the file of the epoch.
	epochMu sync.Mutex
	slots   chan struct{}
	// reviving is how many bytes of memory are being read from snapshots.
	reviving atomic.Int64
	making   flights

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
		config: config, driver: config.Driver, cgroups: config.Cgroups, spool: config.Spool, snapshots: config.Snapshots, reaper: config.Reaper, logger: config.Logger,
		disk:   func() (total, available uint64, err error) { return diskSpace(config.DataDir) },
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
	return n.writeEpoch(last + 1)
}

// Requires: no other goroutine is here.
func (n *Node) writeEpoch(generation uint64) error {
	if err := replaceFile(filepath.Join(n.config.DataDir, "epoch"), []byte(strconv.FormatUint(generation, 10))); err != nil {
		return err
	}
	n.epoch.Store(generation << 32)
	return nil
}

// raiseEpochAbove makes every connection from now on newer than those that an agent has seen on another installation.
func (n *Node) raiseEpochAbove(epoch uint64) error {
	n.epochMu.Lock()
	defer n.epochMu.Unlock()
	if epoch < n.epoch.Load() {
		return nil
	}
	if epoch>>32 >= 1<<31 {
		return fmt.Errorf("epoch %d (expected: less than %d)", epoch, uint64(1)<<63)
	}
	return n.writeEpoch(epoch>>32 + 1)
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
	records := map[string]*record{}
	for _, entry := range entries {
		id := entry.Name()
		if !validBoxID(id) {
			continue
		}
		r, err := readRecord(n.boxDir(id))
		if err != nil || r.owner == "" && (r.box.GetBoxId() != id || r.box.GetState() == enginev1.BoxState_BOX_STATE_CREATING || r.build) {
			n.logger.Info("removing a box that was not finished", "box", id, "error", err)
			if err := n.removeUnknown(id); err != nil {
				n.logger.Error("remains of a box are still there", "box", id, "error", err)
			}
			continue
		}
		records[id] = r
	}
	for id, r := range records {
		if owner := records[r.owner]; r.owner != "" && (owner == nil || owner.container.ID != id) {
			n.logger.Info("removing a container that was not to be used", "container", id, "box", r.owner)
			if err := n.removeUnknown(id); err != nil {
				n.logger.Error("remains of a container are still there", "container", id, "error", err)
			}
		}
	}
	var starts []func()
	for id, r := range records {
		if r.owner == "" {
			starts = append(starts, n.takeOverBox(id, r))
		}
	}
	n.sweepPauses()
	if err := n.sweep(); err != nil {
		return err
	}
	n.dropUnused()
	// Only now: from here on a box's record is its own.
	for _, start := range starts {
		start()
	}
	return nil
}

// takeOverBox registers a box, and returns what starts its goroutine.
func (n *Node) takeOverBox(id string, r *record) (start func()) {
	if r.box.GetState() == enginev1.BoxState_BOX_STATE_PREPARED && r.container.Process.BootID != n.bootID {
		// Nobody lives in it.
		if err := n.removeUnknown(id); err != nil {
			n.logger.Error("remains of a box are still there", "box", id, "error", err)
		}
		return func() {}
	}
	b := newBox(n, id, r)
	close(b.started)
	n.boxes[id] = b
	c := b.container.Load()
	if r.box.GetState() == enginev1.BoxState_BOX_STATE_ENDED {
		b.endLife(errDied)
		return func() {
			go b.run(func() {
				b.closeBooks()
				// What the earlier engine may not have come to.
				if err := b.free(); err != nil {
					b.logger.Error("resources of an ended box are still there", "error", err)
				}
			})
		}
	}
	if start := b.takeOverPause(c); start != nil {
		return start
	}
	if c == nil {
		b.endLife(errDied)
		return func() { go b.run(func() {}) }
	}
	var err error
	if c.key, err = readKey(c.dir); err != nil {
		n.logger.Error("box has no key", "box", id, "error", err)
	}
	if err := c.adopt(); err != nil {
		b.endLife(err)
	}
	if r.box.GetState() == enginev1.BoxState_BOX_STATE_PREPARED {
		return func() { go b.run(func() {}) }
	}
	b.record.box.State = enginev1.BoxState_BOX_STATE_RECONNECTING
	b.snapshot.Store(proto.CloneOf(b.record.box))
	return func() {
		go b.run(func() {
			if c.id != b.id {
				// It was rolled back, and the engine ended before what it had been was removed.
				if err := n.newContainer(b, containerRecord{ID: b.id}).free(); err != nil {
					b.logger.Error("what the box was before its rollback is still there", "error", err)
				}
			}
			b.recover()
		})
	}
}

// takeOverPause finds out how a pause, a resume or a rollback has ended that an earlier engine was about. For a box that is paused, or was
// and can't come back, it returns what starts its goroutine.
func (b *box) takeOverPause(c *container) (start func()) {
	box := b.record.box
	switch box.GetState() {
	case enginev1.BoxState_BOX_STATE_PAUSING:
		if !b.node.snapshots.Has(box.GetPauseSnapshotId()) {
			// The sandbox goes on, if it is there.
			box.PauseSnapshotId, box.PauseSnapshotBytes = "", 0
			b.record.frozen = true
			return nil
		}
	case enginev1.BoxState_BOX_STATE_PAUSED:
	case enginev1.BoxState_BOX_STATE_RESUMING:
		if box.GetPauseSnapshotId() == "" {
			return nil
		}
	default:
		return nil
	}
	box.State = enginev1.BoxState_BOX_STATE_PAUSED
	b.node.snapshots.NotePause(box.GetPauseSnapshotId(), b.id)
	b.setContainer(nil)
	s, _, err := b.node.snapshots.Find(box.GetPauseSnapshotId())
	if err != nil {
		b.logger.Error("what a paused box was is gone", "snapshot", box.GetPauseSnapshotId())
		b.endLife(errPauseLost)
	} else {
		box.PauseSnapshotBytes = s.GetSizeBytes()
		b.contexts.replace(s.GetContexts())
		if s.GetKind() == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES {
			b.endWithPause()
		}
	}
	b.snapshot.Store(proto.CloneOf(box))
	// What of the container is still there, and its record.
	left := b.node.newContainer(b, containerRecord{ID: b.id})
	if c != nil {
		left = c
		if err := c.adopt(); err != nil {
			b.logger.Debug("the container of a paused box is gone", "error", err)
		}
	}
	return func() {
		go b.run(func() {
			if err := left.free(); err != nil {
				b.logger.Error("resources of a paused box are still there", "error", err)
			}
			if err := b.saveSynced(); err != nil {
				b.logger.Error("box record not written", "error", err)
			}
		})
	}
}

// sweepPauses removes the pauses of boxes that are not paused.
func (n *Node) sweepPauses() {
	for id, boxID := range n.snapshots.Pauses() {
		b := n.boxes[boxID]
		if b != nil && b.record.box.GetPauseSnapshotId() == id && !b.ended() {
			continue
		}
		n.logger.Info("removing the snapshot of a pause that is over", "snapshot", id, "box", boxID)
		if err := n.snapshots.Remove(id); err != nil {
			n.logger.Error("snapshot of a pause that is over is still there", "snapshot", id, "error", err)
		}
	}
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
	used := map[string]bool{}
	for id, b := range n.boxes {
		used[id] = true
		used[b.record.container.ID] = true
	}
	for _, id := range append(groups, states...) {
		if !used[id] && validBoxID(id) {
			n.logger.Info("removing what is left of an unknown box", "box", id)
			if err := n.removeUnknown(id); err != nil {
				n.logger.Error("remains of a box are still there", "box", id, "error", err)
			}
		}
	}
	for _, log := range n.spool.All() {
		if id := log.Owner().ExecutionID; strings.HasPrefix(id, BuildProcess) && n.boxes[log.Owner().BoxID] == nil {
			finishLog(log, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_LOST})
			if err := n.spool.Forget(id, false); err != nil {
				n.logger.Warn("output of a build is still there", "process", id, "error", err)
			}
			continue
		}
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
	failures = append(failures, os.RemoveAll(filepath.Join(dataDir, "boxes")), snapshot.RemovePauses(dataDir), cgroups.Remove())
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
		if !b.hidden {
			s.put(b.snapshot.Load())
		}
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
	b, err := n.createOrFind(request.GetBoxId(), request.GetSpec(), false)
	if err != nil {
		return nil, err
	}
	return b.awaitStart(ctx)
}

// Prepare makes all of a box but what runs in it.
func (n *Node) Prepare(ctx context.Context, request *enginev1.PrepareBoxRequest) (*enginev1.Box, error) {
	if len(request.GetSpec().GetWarmContexts()) > 0 {
		return nil, fault(Invalid, "warm_contexts: %d (expected: none, in a box where nothing runs)", len(request.GetSpec().GetWarmContexts()))
	}
	b, err := n.createOrFind(request.GetBoxId(), request.GetSpec(), true)
	if err != nil {
		return nil, err
	}
	return b.awaitStart(ctx)
}

// awaitStart returns a box when it is ready.
func (b *box) awaitStart(ctx context.Context) (*enginev1.Box, error) {
	select {
	case <-b.started:
	case <-ctx.Done():
		// The box goes on starting; the same call finds it.
		return nil, ctx.Err()
	}
	if b.startErr != nil {
		return nil, b.startErr
	}
	return b.view(), nil
}

// view is a box as it is, with its contexts.
func (b *box) view() *enginev1.Box {
	box := proto.CloneOf(b.snapshot.Load())
	box.Contexts = b.seenContexts()
	return box
}

func (n *Node) createOrFind(id string, spec *enginev1.BoxSpec, prepared bool) (*box, error) {
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
	if err := checkContexts(spec.GetWarmContexts()); err != nil {
		return nil, err
	}
	found, err := n.config.Images.Find(spec.GetImageDigest())
	if err != nil {
		return nil, fault(NotFound, "image %s is not on this node", clip(spec.GetImageDigest()))
	}
	runtime, err := driver.Named(n.driver, spec.GetRuntime())
	if err != nil {
		return nil, fault(Invalid, "%v", err)
	}
	if prepared && !runtime.Can(driver.MemorySnapshots, "") {
		return nil, unsupported(runtime.Name(), "a box to restore snapshots into")
	}
	if err := n.roomForBox(); err != nil {
		return nil, err
	}
	r := &record{image: found, hostname: "sandbox", box: &enginev1.Box{
		BoxId: id, Spec: spec, State: enginev1.BoxState_BOX_STATE_CREATING, Labels: spec.GetLabels(), Limits: limits,
		CreatedAtUnixMs: time.Now().UnixMilli(), RuntimeVersion: runtime.Version(),
	}, container: containerRecord{ID: id, Build: runtime.Version(), Agent: n.config.Kept.Agent, Shape: shapeOf(limits)}}
	b := newBox(n, id, r)
	b.prepared = prepared
	have := n.add(b)
	if have == b {
		return b, nil
	}
	// Asked for twice at the same moment; the loser compares as well.
	if !proto.Equal(have.snapshot.Load().GetSpec(), spec) {
		return nil, fault(AlreadyExists, "box %s exists with another specification", id)
	}
	return have, nil
}

func checkContexts(warm []*execv1.ContextSpec) error {
	if len(warm) > maxWarm {
		return fault(Invalid, "warm_contexts: %d (expected: at most %d)", len(warm), maxWarm)
	}
	for _, c := range warm {
		if !validID(c.GetContextId()) {
			return fault(Invalid, "context_id: %q (expected: letters, digits, '.', '_' and '-')", clip(c.GetContextId()))
		}
	}
	return nil
}

// add starts a new box, or returns the one that has its id.
func (n *Node) add(b *box) *box {
	n.mu.Lock()
	defer n.mu.Unlock()
	if have, ok := n.boxes[b.id]; ok {
		return have
	}
	n.boxes[b.id] = b
	b.hidden = b.record.build
	go b.run(b.start)
	return b
}

// roomForBox refuses what would endanger the boxes that are there.
func (n *Node) roomForBox() error {
	total, available, err := n.disk()
	if err != nil {
		return fault(Internal, "disk space: %v", err)
	}
	if used := total - available; used*100 >= total*maxDiskPercent {
		return fault(Exhausted, "the disk of %s is %d %% full (%d of %d MiB free): no new boxes from %d %% on (remedy: delete sandboxes, snapshots or images)",
			n.config.DataDir, used*100/total, available/mebibyte, total/mebibyte, maxDiskPercent)
	}
	return n.roomInMemory()
}

// roomInMemory refuses what would take the memory that those boxes need which are there.
func (n *Node) roomInMemory() error {
	memory, err := hostMemory()
	if err != nil {
		return fault(Internal, "memory: %v", err)
	}
	// An idle box takes about 20 MiB. The reserve is for those that are there to grow.
	reserve := max(memory.total/20, 256*mebibyte)
	starting := uint64(n.starting()+1)*64*mebibyte + uint64(n.reviving.Load())
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
	return b.view(), nil
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
	return b.view(), nil
}

// Get returns a box as it is.
func (n *Node) Get(id string) (*enginev1.Box, error) {
	b, err := n.find(id)
	if err != nil {
		return nil, err
	}
	return b.view(), nil
}

// List returns all boxes as they are.
func (n *Node) List() []*enginev1.Box {
	n.mu.Lock()
	defer n.mu.Unlock()
	boxes := make([]*enginev1.Box, 0, len(n.boxes))
	for _, b := range n.boxes {
		if !b.hidden {
			boxes = append(boxes, b.view())
		}
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
	b, l, err := n.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	opened, err := openContext(ctx, l, spec)
	return opened, b.orOver(err)
}

// RestartContext starts a context's interpreter afresh.
func (n *Node) RestartContext(ctx context.Context, id, contextID string) (*execv1.Context, error) {
	b, l, err := n.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	ctx, cancel := context.WithTimeout(ctx, contextTimeout)
	defer cancel()
	reply := &agentv1.OpenContextReply{}
	if err := frame.Call(ctx, l.session, agentrpc.RestartContext, &agentv1.ContextRequest{ContextId: contextID}, reply); err != nil {
		return nil, b.orOver(agentFault("restarting context "+clip(contextID), err))
	}
	l.contexts.put(reply.GetContext())
	return clipContext(reply.GetContext()), nil
}

// CloseContext ends a context's interpreter.
func (n *Node) CloseContext(ctx context.Context, id, contextID string) error {
	b, l, err := n.enter(ctx, id)
	if err != nil {
		return err
	}
	defer l.leave()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := frame.Call(ctx, l.session, agentrpc.CloseContext, &agentv1.ContextRequest{ContextId: contextID}, &agentv1.Empty{}); err != nil {
		return b.orOver(agentFault("closing context "+clip(contextID), err))
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

// enter is reach for a call that a pause is to wait for a little, until the link's leave.
func (n *Node) enter(ctx context.Context, id string) (*box, *link, error) {
	for {
		b, l, err := n.reach(ctx, id)
		if err != nil || l.enter() {
			return b, l, err
		}
		// The pause has begun just now: its outcome is waited for.
	}
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
	b, l, err := n.enter(ctx, owner.BoxID)
	if err != nil {
		return nil, err
	}
	defer l.leave()
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
		err = b.orOver(agentFault("starting "+owner.ExecutionID, err))
		return nil, errors.Join(err, n.spool.Discard(log, err))
	}
	if !b.pump(l, e) {
		// The agent may have it: then the next connection finds it, and the same call does.
		err := b.orOver(fault(Unavailable, "starting %s: the sandbox's agent is being reached again", owner.ExecutionID))
		return nil, errors.Join(err, n.spool.Discard(log, err))
	}
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
	if err == nil && b.snapshot.Load().GetState() == enginev1.BoxState_BOX_STATE_PAUSED {
		// Only its agent could say.
		return nil, fault(Paused, "%s is not known, and box %s is paused", clip(id), boxID)
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
	b, l, err := n.enter(ctx, boxID)
	if err != nil {
		return err
	}
	defer l.leave()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &agentv1.InterruptRequest{ExecutionId: executionID, GraceMs: uint32(interruptGrace.Milliseconds())}
	if err := frame.Call(ctx, l.session, agentrpc.Interrupt, request, &agentv1.Empty{}); err != nil {
		return b.orOver(agentFault("interrupting execution "+clip(executionID), err))
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
	if e == nil && b.link == nil {
		b.forgotten[owner.ExecutionID] = true
	}
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

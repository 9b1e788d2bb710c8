package box

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/enginev1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/driver"
	"atoll/node/internal/frame"
	"atoll/node/internal/snapshot"
)

// Build boxes are what images are made in. They are the node's own: no caller sees them in lists, and one that an engine left behind is
// removed by the next, since nobody would go on with the build. In them everything runs as root, and the agent writes nothing of its own
// into their files. Their snapshots are a cache: nobody sees them either.

// CreateBuild makes a build box and returns when it is ready. A call that is broken off leaves none.
func (n *Node) CreateBuild(ctx context.Context, request *enginev1.CreateBoxRequest) error {
	b, err := n.newBuild(request.GetBoxId(), request.GetSpec())
	if err != nil {
		return err
	}
	return n.awaitBuild(ctx, b)
}

func (n *Node) newBuild(id string, spec *enginev1.BoxSpec) (*box, error) {
	if !validBoxID(id) {
		return nil, fault(Invalid, "box_id: %q (expected: \"box-\" and 26 characters of Crockford's base32)", clip(id))
	}
	limits := completeLimits(spec.GetLimits())
	if err := checkLimits(limits); err != nil {
		return nil, err
	}
	found, err := n.config.Images.Find(spec.GetImageDigest())
	if err != nil {
		return nil, fault(NotFound, "image %s is not on this node", clip(spec.GetImageDigest()))
	}
	if err := n.roomForBox(); err != nil {
		return nil, err
	}
	b := newBox(n, id, &record{image: found, hostname: "build", build: true, box: &enginev1.Box{
		BoxId: id, Spec: spec, State: enginev1.BoxState_BOX_STATE_CREATING, Limits: limits,
		CreatedAtUnixMs: time.Now().UnixMilli(), RuntimeVersion: n.driver.Version(),
	}, container: containerRecord{ID: id, Build: n.driver.Version(), Agent: n.config.Kept.Agent, Shape: shapeOf(limits)}})
	if n.add(b) != b {
		return nil, fault(AlreadyExists, "box %s exists", id)
	}
	return b, nil
}

// awaitBuild returns when a build box is ready; who doesn't wait for it has it removed.
func (n *Node) awaitBuild(ctx context.Context, b *box) error {
	_, err := b.awaitStart(ctx)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), removalTimeout)
		defer cancel()
		return errors.Join(err, n.Delete(ctx, b.id))
	}
	return nil
}

// RestoreBuild makes a build box of a snapshot that SaveBuild made. Whatever is wrong with that is an error; the box is not there then.
func (n *Node) RestoreBuild(ctx context.Context, request *enginev1.RestoreBoxRequest) error {
	if !validBoxID(request.GetBoxId()) {
		return fault(Invalid, "box_id: %q (expected: \"box-\" and 26 characters of Crockford's base32)", clip(request.GetBoxId()))
	}
	if err := n.roomForBox(); err != nil {
		return err
	}
	use, err := n.useSnapshot(ctx, request.GetSnapshotId())
	if err != nil {
		return err
	}
	if !use.Manifest.Build {
		use.Close()
		return fault(FailedPrecondition, "snapshot %s is not of a build", request.GetSnapshotId())
	}
	b, err := n.restored(request, request.GetSnapshotId(), use)
	if err != nil {
		use.Close()
		return err
	}
	b.record.build, b.record.hostname = true, "build"
	if n.add(b) != b {
		use.Close()
		return fault(AlreadyExists, "box %s exists", request.GetBoxId())
	}
	return n.awaitBuild(ctx, b)
}

// SaveBuild keeps the files of a build box as a snapshot that no caller sees. One that has the id already stays.
func (n *Node) SaveBuild(ctx context.Context, boxID, snapshotID string) error {
	b, err := n.find(boxID)
	if err != nil {
		return err
	}
	if !b.hidden {
		return fault(FailedPrecondition, "box %s is not of a build", boxID)
	}
	_, err = n.CreateSnapshot(ctx, &enginev1.CreateSnapshotRequest{
		BoxId: boxID, SnapshotId: snapshotID, Kind: enginev1.SnapshotKind_SNAPSHOT_KIND_FILES,
	})
	var known *Fault
	if errors.As(err, &known) && known.Kind == AlreadyExists {
		return nil
	}
	return err
}

// BuildSnapshot is one that SaveBuild made.
type BuildSnapshot struct {
	ID    string
	Bytes uint64
	// Usable says whether a box can be made of it here, by all that is known without reading it.
	Usable bool
}

// BuildSnapshots lists those that SaveBuild made.
func (n *Node) BuildSnapshots() []BuildSnapshot {
	var found []BuildSnapshot
	n.snapshots.Each(func(m *snapshot.Manifest) {
		if m.Build {
			found = append(found, BuildSnapshot{ID: m.Snapshot.GetSnapshotId(), Bytes: m.Bytes(), Usable: true})
		}
	})
	for i, s := range found {
		view, m, err := n.snapshots.Find(s.ID)
		// Made with another build than new boxes get, it would hold on to that build.
		found[i].Usable = err == nil && view.GetUnusable() == "" && n.unusable(m) == "" &&
			m.Snapshot.GetRuntimeVersion() == n.driver.Version() && m.Snapshot.GetAgentDigest() == n.config.Kept.Agent
	}
	return found
}

// RemoveBuildSnapshot removes one that SaveBuild made.
func (n *Node) RemoveBuildSnapshot(id string) error { return n.snapshots.Remove(id) }

// BuildVersion changes whenever snapshots of builds made before are of no more use.
func (n *Node) BuildVersion() string { return n.driver.Version() + "/" + n.config.Kept.Agent }

// ExportChanges writes what a box changed in its files, as driver.Driver says.
func (n *Node) ExportChanges(ctx context.Context, boxID string, w io.Writer) error {
	b, err := n.find(boxID)
	if err != nil {
		return err
	}
	select {
	case <-b.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.do(ctx, func() error {
		if err := b.needsRunning(); err != nil {
			return err
		}
		if err := b.require(driver.Export, "an image of its files"); err != nil {
			return err
		}
		c := b.container.Load()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(b.life, cancel)
		defer stop()
		return b.unlessEnded(b.node.driver.ExportChanges(ctx, c.id, c.dir, c.spec.Build, w))
	})
}

// Mount mounts over folders and files of a build box.
func (n *Node) Mount(ctx context.Context, boxID string, mounts []*agentv1.Mount) error {
	return n.call(ctx, boxID, agentrpc.Mount, &agentv1.MountRequest{Mounts: mounts}, &agentv1.Empty{})
}

// Unmount takes mounts of Mount away.
func (n *Node) Unmount(ctx context.Context, boxID string, targets []string) error {
	return n.call(ctx, boxID, agentrpc.Unmount, &agentv1.UnmountRequest{Targets: targets}, &agentv1.Empty{})
}

// BuildProcess begins the ids of processes in build boxes, which no caller is to see.
const BuildProcess = "build-"

// outwardPort is what programs in a box reach out through, where it is free: the same each time, since some write it down.
const outwardPort = 39128

// Outward carries connections of programs in a box that connect to a port of the box itself, which listening is told of. Each is served
// by one call of serve, at most maxAtOnce at once: the others wait. It returns when ctx is done, with nil, or when the box can't be reached
// any more; connections end with it, and no call of serve goes on.
func (n *Node) Outward(ctx context.Context, boxID string, maxAtOnce int, listening func(port int), serve func(ctx context.Context, c *OutwardConn)) error {
	b, l, err := n.enter(ctx, boxID)
	if err != nil {
		return err
	}
	// It lasts as long as the caller wants: a pause doesn't wait for it.
	l.leave()
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := l.session.Open(ctx, agentrpc.ListenOutward)
	if err != nil {
		return b.orOver(answered(err))
	}
	if err := stream.SendLast(&agentv1.ListenOutwardRequest{Port: outwardPort}); err != nil && !errors.Is(err, frame.ErrEnded) {
		return b.orOver(answered(err))
	}
	slots := make(chan struct{}, maxAtOnce)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	for told := false; ; {
		event := &agentv1.OutwardEvent{}
		if err := stream.Receive(event); err != nil {
			if asked.Err() != nil {
				return nil
			}
			return b.orOver(answered(err))
		}
		switch e := event.GetEvent().(type) {
		case *agentv1.OutwardEvent_ListeningPort:
			if !told && e.ListeningPort > 0 && e.ListeningPort <= 65535 {
				told = true
				listening(int(e.ListeningPort))
			}
		case *agentv1.OutwardEvent_Connection:
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			serving.Go(func() {
				defer func() { <-slots }()
				c, err := takeUp(ctx, l, e.Connection)
				if err != nil {
					return // who made it has gone
				}
				defer c.Close()
				serve(ctx, c)
			})
		}
	}
}

// OutwardConn is one connection of a program in a box. Reading and writing may be done at the same time, each by one.
type OutwardConn struct {
	stream *frame.Stream
	cancel context.CancelFunc
	rest   []byte
	over   bool
}

func takeUp(ctx context.Context, l *link, id uint64) (*OutwardConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := l.session.Open(ctx, agentrpc.Outward)
	if err != nil {
		cancel()
		return nil, err
	}
	if err := stream.Send(&agentv1.OutwardMessage{Message: &agentv1.OutwardMessage_Connection{Connection: id}}); err != nil {
		cancel()
		return nil, err
	}
	return &OutwardConn{stream: stream, cancel: cancel}, nil
}

// Read reads what the program said.
func (c *OutwardConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.over {
			return 0, io.EOF
		}
		message := &agentv1.OutwardMessage{}
		if err := c.stream.Receive(message); err != nil {
			return 0, err
		}
		c.rest, c.over = message.GetData(), message.GetEnd() != nil
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write has the program read p.
func (c *OutwardConn) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		piece := p[:min(len(p), framePiece)]
		if err := c.stream.Send(&agentv1.OutwardMessage{Message: &agentv1.OutwardMessage_Data{Data: piece}}); err != nil {
			return written, err
		}
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

// CloseWrite has the program read end-of-file.
func (c *OutwardConn) CloseWrite() error {
	return c.stream.SendLast(&agentv1.OutwardMessage{Message: &agentv1.OutwardMessage_End{End: &agentv1.Empty{}}})
}

// Close ends the connection. It may be called again.
func (c *OutwardConn) Close() error {
	c.cancel()
	return nil
}

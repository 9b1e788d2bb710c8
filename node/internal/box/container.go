package box

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/execv1"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
	"atoll/node/internal/snapshot"
)

// container is what of a box is on the host while it runs: a sandbox of the runtime, its control group and its pipes. A box that was
// resumed, rolled back, or restored into a prepared box has another one than it began with, or one with another id.
//
// Its folder is <data>/boxes/<id>. Where that isn't the box's own, a record in it says whose it is.
type container struct {
	node  *Node
	id    string
	dir   string
	group cgroup.Group
	// All below belongs to the owner's run.
	spec  containerRecord
	key   [32]byte
	pidfd *os.File
	// status yields how the process ended.
	status <-chan unix.WaitStatus

	// pid is the process, for who only looks.
	pid atomic.Int64
	// dead is closed when the process has ended.
	dead chan struct{}

	mu sync.Mutex
	// owner is told of the end; guarded by mu.
	owner *box
}

// containerRecord is what a restarted engine must know of a container.
type containerRecord struct {
	ID      string  `json:"id"`
	Process process `json:"process"`
	// Build is the runtime's version that made it.
	Build string `json:"build"`
	// Agent is the digest of the agent's image.
	Agent string         `json:"agent"`
	Shape snapshot.Shape `json:"shape"`
}

// newContainer names a container; nothing of it is made.
func (n *Node) newContainer(owner *box, r containerRecord) *container {
	return &container{node: n, id: r.ID, dir: n.boxDir(r.ID), group: n.cgroups.Open(r.ID), spec: r, dead: make(chan struct{}), owner: owner}
}

// newContainerID is as long as every other id: runsc matches ids by prefix.
func newContainerID() string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	id := make([]byte, 26)
	_, _ = rand.Read(id) // never fails
	for i := range id {
		id[i] = alphabet[id[i]&31]
	}
	return "box-" + string(id)
}

func shapeOf(l *execv1.Limits) snapshot.Shape {
	return snapshot.Shape{
		DiskBytes: l.GetDiskBytes(), ShmBytes: min(maxShm, l.GetMemoryBytes()/4), MaxOpenFiles: agentOpenFiles, CPUMillis: l.GetCpuMillis(),
	}
}

// making is what a container is made with.
type making struct {
	imagePath string
	hostname  string
	// limits hold until what runs in it has started: programs inside then see the memory that the user was promised.
	limits    *execv1.Limits
	filesFrom string
}

// make makes all of the container but what runs in it. Requires: its folder is there. On error, free removes what there is.
func (c *container) make(ctx context.Context, m making) error {
	agent, err := c.node.agentPath(c.spec.Agent)
	if err != nil {
		return err
	}
	group, err := c.node.cgroups.Create(c.id, startLimits(m.limits))
	if err != nil {
		return err
	}
	c.group = group
	shape := c.spec.Shape
	pid, err := c.node.driver.Prepare(ctx, driver.Spec{
		ID: c.id, Dir: c.dir, ImagePath: m.imagePath, AgentImagePath: agent, CPUMillis: shape.CPUMillis,
		CgroupPath: c.group.Path(), DiskBytes: shape.DiskBytes, ShmBytes: shape.ShmBytes,
		MaxOpenFiles: shape.MaxOpenFiles, Hostname: m.hostname, FilesFrom: m.filesFrom, Build: c.spec.Build,
		AgentEnv: []string{"ATOLL_FRAME_KEY=" + hex.EncodeToString(c.key[:])},
	})
	if err != nil {
		return err
	}
	c.status = c.node.reaper.Status(pid)
	started, err := startTime(pid)
	if err != nil {
		return fmt.Errorf("the sandbox ended at once: %w", err)
	}
	c.spec.Process = process{PID: pid, StartTime: started, BootID: c.node.bootID}
	return c.watch()
}

func (c *container) launch(ctx context.Context) error {
	return c.node.driver.Launch(ctx, c.id, c.dir, c.spec.Build)
}

// adopt finds the container's process again.
func (c *container) adopt() error {
	if c.spec.Process.BootID != c.node.bootID {
		return errLost
	}
	if err := c.watch(); err != nil {
		return errDied
	}
	c.status = c.node.reaper.Status(c.spec.Process.PID)
	return nil
}

// watch tells the owner when the process has ended.
func (c *container) watch() error {
	pidfd, err := openProcess(c.spec.Process)
	if err != nil {
		return err
	}
	c.pidfd = pidfd
	c.pid.Store(int64(c.spec.Process.PID))
	go func() {
		if err := waitProcess(pidfd); err != nil && !errors.Is(err, os.ErrClosed) {
			c.node.logger.Error("waiting for a sandbox's process failed", "container", c.id, "error", err)
		}
		close(c.dead)
		c.mu.Lock()
		owner := c.owner
		c.mu.Unlock()
		if owner != nil {
			owner.containerDied(c)
		}
	}()
	return nil
}

// giveTo makes another box the owner.
func (c *container) giveTo(b *box) {
	c.mu.Lock()
	c.owner = b
	c.mu.Unlock()
}

func (c *container) isDead() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// free removes all of the container but, in the box's own folder, the box's record and log. It may be called again.
func (c *container) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), removalTimeout)
	defer cancel()
	c.mu.Lock()
	owner := c.owner
	c.mu.Unlock()
	var failures []error
	if c.pidfd != nil {
		failures = append(failures, killProcess(c.pidfd))
	}
	failures = append(failures, c.node.driver.Delete(ctx, c.id, c.spec.Build), c.group.Remove(ctx), driver.RemovePipes(c.dir))
	if c.pidfd != nil {
		failures = append(failures, c.pidfd.Close())
		c.pidfd = nil
		c.node.reaper.Forget(c.spec.Process.PID)
	}
	if owner != nil && owner.id != c.id {
		return errors.Join(append(failures, os.RemoveAll(c.dir))...)
	}
	for _, name := range []string{keyName, "overlay", "config.json", "pid"} {
		failures = append(failures, os.RemoveAll(filepath.Join(c.dir, name)))
	}
	return errors.Join(failures...)
}

// exit says how the process ended, nil if nobody can tell.
func (c *container) exit() *unix.WaitStatus {
	if c.status == nil {
		return nil
	}
	select {
	case status := <-c.status:
		return &status
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// during is a context that ends with the box's life and with the container's process.
func (b *box) during(c *container, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(b.life)
	timed, stop := context.WithTimeout(ctx, limit)
	go func() {
		select {
		case <-c.dead:
			cancel(errDied)
		case <-timed.Done():
		}
	}()
	return timed, func() { stop(); cancel(nil) }
}

// containerDied ends the box's life with that of its container, unless a change is under way that decides itself.
func (b *box) containerDied(c *container) {
	b.guardMu.Lock()
	defer b.guardMu.Unlock()
	if b.container.Load() == c && !b.isGuarded {
		b.endLife(errDied)
	}
}

// setContainer exchanges the container that the box lives in. It may be nil.
func (b *box) setContainer(c *container) {
	b.guardMu.Lock()
	defer b.guardMu.Unlock()
	b.container.Store(c)
}

// guarded does something during which the end of a container is not the end of the box. Afterwards it is again: if the container that
// the box then lives in has died meanwhile, the box has.
func (b *box) guarded(do func() error) error {
	set := func(guarded bool) {
		b.guardMu.Lock()
		defer b.guardMu.Unlock()
		b.isGuarded = guarded
		if c := b.container.Load(); !guarded && c != nil && c.isDead() {
			b.endLife(errDied)
		}
	}
	set(true)
	defer set(false)
	return do()
}

package gvisor

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/reap"
)

// The other side is node/runsc/cmd/runsc/worker.go, which describes the protocol.

const (
	workerName     = "WORKER"
	workerProtocol = "1"
	// maxReply bounds a reply, which holds an error's text at most.
	maxReply = 1 << 20
)

// workerIdle is how long a worker of a build that is not the current one has nothing to do until it ends.
var workerIdle = time.Minute

// operation is a worker's request.
type operation struct {
	ID        uint64 `json:"id"`
	Operation string `json:"operation"`
	Container string `json:"container"`
	Image     string `json:"image,omitempty"`
}

type operationReply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error"`
}

// workers has one worker for each build that was needed.
type workers struct {
	mu sync.Mutex
	// All below is guarded by mu.
	running map[string]*worker
	closed  bool
}

// worker is a process of one build.
type worker struct {
	process *reap.Process
	conn    net.Conn
	output  *os.File
	// ended is closed when it does not answer any more; err is set before.
	ended chan struct{}
	err   error

	writing sync.Mutex

	mu sync.Mutex
	// All below is guarded by mu.
	last    uint64
	pending map[uint64]chan<- operationReply
	idle    *time.Timer
}

// errNotAsked means that an operation never reached the worker.
var errNotAsked = errors.New("the runtime's worker has ended")

// operate does what runsc would be executed for. If ctx ends first it may still be done.
func (d *Driver) operate(ctx context.Context, o operation, build string) error {
	if build == "" {
		build = d.version
	}
	dir, err := d.builds.folder(d.version, build)
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(dir, workerName)); err != nil || strings.TrimSpace(string(text)) != workerProtocol {
		return d.execute(ctx, o, build)
	}
	for attempt := 0; ; attempt++ {
		w, err := d.worker(build)
		if err != nil {
			return err
		}
		err = w.do(ctx, o)
		if errors.Is(err, errNotAsked) && attempt == 0 {
			<-w.ended
			continue
		}
		if err != nil {
			return errors.Join(fmt.Errorf("runsc %s: %w", o.Operation, err), d.forgetUnknown(o.Container))
		}
		return nil
	}
}

// forgetUnknown removes the lock that asking for a sandbox leaves that is not, or not any more, there.
func (d *Driver) forgetUnknown(id string) error {
	_, err := os.Stat(filepath.Join(d.root, id+"_sandbox:"+id+".state"))
	if errors.Is(err, os.ErrNotExist) {
		return d.removeState(id)
	}
	return nil
}

// worker returns the build's, started if there is none.
func (d *Driver) worker(build string) (*worker, error) {
	d.workers.mu.Lock()
	defer d.workers.mu.Unlock()
	if d.workers.closed {
		return nil, errors.New("the driver is closed")
	}
	if w := d.workers.running[build]; w != nil && w.alive() {
		return w, nil
	}
	w, err := d.startWorker(build)
	if err != nil {
		return nil, err
	}
	if d.workers.running == nil {
		d.workers.running = map[string]*worker{}
	}
	d.workers.running[build] = w
	return w, nil
}

func (d *Driver) startWorker(build string) (*worker, error) {
	runsc, err := d.runsc(build)
	if err != nil {
		return nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "worker"), os.NewFile(uintptr(ends[1]), "worker")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	output, err := newOutputFile()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	process, err := d.reaper.Start(reap.Command{
		Path: runsc, Args: append(d.flags(""), "worker"), Files: []*os.File{nil, output, output, theirs}, Env: os.Environ(), Dir: "/",
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close(), output.Close())
	}
	w := &worker{process: process, conn: conn, output: output, ended: make(chan struct{}), pending: map[uint64]chan<- operationReply{}}
	if build != d.version {
		w.idle = time.AfterFunc(workerIdle, w.stopIfIdle)
	}
	go w.read()
	return w, nil
}

func (w *worker) alive() bool {
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

// read hands out replies until there are no more; then it sees to it that the process is gone.
func (w *worker) read() {
	err := w.readReplies()
	status, _, killed := w.process.Kill()
	how := fmt.Sprintf("exit status %d", status.ExitStatus())
	if status.Signaled() {
		how = "signal " + status.Signal().String()
	}
	w.err = errors.Join(fmt.Errorf("the runtime's worker ended (%s, %w): %s", how, err, readAll(w.output)), killed)
	close(w.ended)
	w.conn.Close()
	w.output.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle != nil {
		w.idle.Stop()
	}
}

func (w *worker) readReplies() error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(w.conn, size[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxReply {
			return fmt.Errorf("a reply of %d bytes (expected: at most %d)", n, maxReply)
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(w.conn, text); err != nil {
			return err
		}
		var r operationReply
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		w.mu.Lock()
		waiting := w.pending[r.ID]
		w.forgetLocked(r.ID)
		w.mu.Unlock()
		if waiting != nil {
			waiting <- r
		}
	}
}

func (w *worker) forgetLocked(id uint64) {
	delete(w.pending, id)
	if w.idle != nil && len(w.pending) == 0 {
		w.idle.Reset(workerIdle)
	}
}

// stopIfIdle ends the worker; who asks meanwhile finds that it wasn't asked.
func (w *worker) stopIfIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		w.conn.Close()
	}
}

func (w *worker) do(ctx context.Context, o operation) error {
	reply := make(chan operationReply, 1)
	w.mu.Lock()
	w.last++
	o.ID = w.last
	w.pending[o.ID] = reply
	w.mu.Unlock()
	if err := w.send(o); err != nil {
		// Half of a request may be sent.
		w.conn.Close()
		w.mu.Lock()
		w.forgetLocked(o.ID)
		w.mu.Unlock()
		return fmt.Errorf("%w: %w", errNotAsked, err)
	}
	select {
	case r := <-reply:
		return r.failure()
	case <-ctx.Done():
		return ctx.Err()
	case <-w.ended:
	}
	select {
	case r := <-reply:
		return r.failure()
	default:
		return w.err
	}
}

func (r operationReply) failure() error {
	if r.Error == "" {
		return nil
	}
	return errors.New(r.Error)
}

func (w *worker) send(o operation) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	_, err = w.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// Close ends the workers, and what they were doing. The driver can't be used any more; sandboxes stay.
func (d *Driver) Close() {
	d.workers.mu.Lock()
	defer d.workers.mu.Unlock()
	d.workers.closed = true
	for _, w := range d.workers.running {
		w.conn.Close()
		<-w.ended
	}
}

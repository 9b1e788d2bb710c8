package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/agent/inner"
)

// The init answers in microseconds; when it does not for this long, somebody inside has stopped it.
const initPatience = 10 * time.Second

// errTreeDied is what calls to a tree end with that died meanwhile.
var errTreeDied = errors.New("everything that ran in the sandbox was ended at once")

// tree is one life of the inner namespaces: the init and all that descends from it. When the init ends, the kernel ends the rest,
// and another tree takes its place.
type tree struct {
	process *exec.Cmd
	control *os.File
	events  *bufio.Reader // of control; read's alone

	sendMu sync.Mutex

	mu      sync.Mutex
	nextID  uint64                            // guarded by mu
	waiting map[uint64]chan *inner.Event      // guarded by mu
	exits   map[int]chan<- syscall.WaitStatus // guarded by mu
	early   map[int]syscall.WaitStatus        // exits seen before their spawn was registered; guarded by mu

	// dead is closed when the init has ended.
	dead   chan struct{}
	detail string // what ended it; set before dead is closed

	onVictim func(*inner.Victim)
}

func startTree(place inner.Place, onVictim func(*inner.Victim)) (*tree, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("inner tree: socketpair: %w", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, fmt.Errorf("inner tree: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "init")
	defer theirs.Close()
	t := &tree{
		control:  os.NewFile(uintptr(pair[0]), "agent"),
		waiting:  map[uint64]chan *inner.Event{},
		exits:    map[int]chan<- syscall.WaitStatus{},
		early:    map[int]syscall.WaitStatus{},
		dead:     make(chan struct{}),
		onVictim: onVictim,
	}
	t.process = exec.Command("/proc/self/exe", append([]string{"init"}, place.Arguments()...)...)
	t.process.Env = []string{}
	t.process.Stderr = os.Stderr
	t.process.ExtraFiles = []*os.File{theirs}
	t.process.SysProcAttr = &syscall.SysProcAttr{
		// No Pdeathsig: to not miss a parent that died before, Go's child compares its parent's id, which in a new namespace
		// is 0, and kills itself. Linux spares a namespace's first process; gVisor does not. The init ends with its control socket.
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
	}
	if err := startLocked(t.process); err != nil {
		_ = t.control.Close()
		return nil, fmt.Errorf("inner tree: starting its init (needs CAP_SYS_ADMIN): %w", err)
	}
	var event inner.Event
	t.events = bufio.NewReader(t.control)
	if err := inner.ReadEvent(t.events, &event); err != nil || !event.Ready {
		_ = t.process.Process.Kill()
		_ = t.process.Wait()
		_ = t.control.Close()
		return nil, fmt.Errorf("inner tree: its init did not come up: %w", err)
	}
	go t.read()
	return t, nil
}

// forks serves forks from one thread that lives as long as the agent: Pdeathsig is about the thread that forked, not the process.
var forks = sync.OnceValue(func() chan func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			call()
		}
	}()
	return calls
})

func startLocked(command *exec.Cmd) error {
	done := make(chan error)
	forks() <- func() { done <- command.Start() }
	return <-done
}

func (t *tree) read() {
	for {
		event := &inner.Event{}
		if err := inner.ReadEvent(t.events, event); err != nil {
			break
		}
		switch {
		case event.Exit != nil:
			t.exited(event.Exit)
		case event.Victim != nil:
			t.onVictim(event.Victim)
		case event.ID != 0:
			t.mu.Lock()
			waiter := t.waiting[event.ID]
			delete(t.waiting, event.ID)
			t.mu.Unlock()
			if waiter != nil {
				waiter <- event
			}
		}
	}
	// Whatever ended the conversation, the tree is of no use without it.
	_ = t.process.Process.Kill()
	err := t.process.Wait()
	_ = t.control.Close()
	t.detail = "PID 1 of the sandbox ended"
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.detail = "PID 1 of the sandbox ended with " + exit.ProcessState.String()
	}
	close(t.dead)
}

func (t *tree) exited(exit *inner.Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if waiter, known := t.exits[exit.Pid]; known {
		delete(t.exits, exit.Pid)
		waiter <- exit.WaitStatus()
		return
	}
	t.early[exit.Pid] = exit.WaitStatus()
}

// call sends a request and waits for its answer. Where that is errTreeDied, the tree is dead. The answer comes by way of the goroutine that
// tells of victims, so no lock that is needed for that may be held.
func (t *tree) call(ctx context.Context, request *inner.Request, files ...int) (*inner.Event, error) {
	answer := make(chan *inner.Event, 1)
	t.mu.Lock()
	t.nextID++
	request.ID = t.nextID
	t.waiting[request.ID] = answer
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		delete(t.waiting, request.ID)
		t.mu.Unlock()
	}
	if err := t.send(request, files...); err != nil {
		forget()
		if errors.Is(err, errTreeDied) {
			// Its socket is closed some time before its end is known. Who asks for another tree must not be given this one again.
			<-t.dead
		}
		return nil, err
	}
	patience := newAlarm(initPatience)
	defer patience.stop()
	select {
	case event := <-answer:
		if event.Error != "" {
			return nil, &initError{message: event.Error, errno: syscall.Errno(event.Errno)}
		}
		return event, nil
	case <-t.dead:
		return nil, errTreeDied
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	case <-patience.passed:
		forget()
		log.Printf("the inner init has not answered for %s and is ended", initPatience)
		_ = t.process.Process.Kill()
		<-t.dead
		return nil, errTreeDied
	}
}

// initError is a refusal of the init.
type initError struct {
	message string
	errno   syscall.Errno
}

func (e *initError) Error() string { return e.message }
func (e *initError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// send is for what needs no answer.
func (t *tree) send(request *inner.Request, files ...int) error {
	header, body, err := inner.Encode(request)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	message := append(header[:], body...)
	t.sendMu.Lock()
	defer t.sendMu.Unlock()
	raw, err := t.control.SyscallConn()
	if err != nil {
		return errTreeDied
	}
	sent := 0
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		sent, sendErr = unix.SendmsgN(int(fd), message, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN) && !errors.Is(sendErr, unix.EINTR)
	})
	if err == nil {
		err = sendErr
	}
	if err == nil && sent < len(message) {
		_, err = t.control.Write(message[sent:])
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return errTreeDied
	}
	if err != nil {
		return fmt.Errorf("the inner init is not to be reached: %w", err)
	}
	return nil
}

// spawn starts a process. Its wait status arrives on exited, once, unless the tree dies.
func (t *tree) spawn(ctx context.Context, spawn *inner.Spawn, exited chan<- syscall.WaitStatus, files ...int) (int, error) {
	event, err := t.call(ctx, &inner.Request{Spawn: spawn}, files...)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if status, early := t.early[event.Pid]; early {
		delete(t.early, event.Pid)
		exited <- status
	} else {
		t.exits[event.Pid] = exited
	}
	return event.Pid, nil
}

func (t *tree) end() {
	_ = t.process.Process.Kill()
	<-t.dead
}

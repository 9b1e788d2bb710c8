package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

// How a call gets the rights of its user. Credentials, mount namespace and working folder belong to a thread in Linux, so each call runs
// on an operating system thread that has entered the inner mount namespace and taken the user's effective ids and no capability that the
// user would not have: the kernel itself then judges every path, and a race between a check and a use gains nobody anything. The real and
// saved ids stay root's: nobody inside may signal such a thread, and it can turn to the next user. It never runs code of the user's.
//
// Reading and writing what is open needs no such thread: transfers hold descriptors, and a slow reader holds none of the threads.

const (
	maxShort    = 16
	maxLong     = 8
	maxArchives = 16
	// Threads are cheap to make; a few wait for the next call.
	maxIdle     = 4
	idleTimeout = 30 * time.Second
)

// class keeps long work from standing in the way of short.
type class chan struct{}

type threads struct {
	namespace func() (string, error)
	template  func() Identity
	short     class
	long      class
	archives  class

	mu    sync.Mutex
	idle  []*thread // guarded by mu
	users *users    // guarded by mu
}

// thread is an operating system thread inside. Its fields are its own, but for those that the pool reads while it is idle.
type thread struct {
	pool      *threads
	namespace string
	jobs      chan job
	identity  *Identity // nil: root with all capabilities
	permitted [2]unix.CapUserData
	users     *users
}

// job is one call. What it returns is run when the thread can be taken again: whoever waits for the call may make the next one.
type job func(*thread) (deliver func(), usable bool)

func newThreads(namespace func() (string, error), template func() Identity) *threads {
	return &threads{
		namespace: namespace, template: template,
		short: make(class, maxShort), long: make(class, maxLong), archives: make(class, maxArchives),
	}
}

func (c class) enter(ctx context.Context) error {
	select {
	case c <- struct{}{}:
		return nil
	default:
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c class) leave() { <-c }

// do runs call with the rights of a user. When ctx ends first, call goes on alone; a result that can be closed then is.
func do[Result any](ctx context.Context, p *threads, c class, user string, call func(*thread) (Result, error)) (Result, error) {
	return on(ctx, p, c, func(t *thread) (Result, error) {
		if err := t.takeUser(user); err != nil {
			var none Result
			return none, err
		}
		return call(t)
	})
}

// asAgent runs call inside with all the rights of the agent.
func asAgent[Result any](ctx context.Context, p *threads, c class, call func(*thread) (Result, error)) (Result, error) {
	return on(ctx, p, c, func(t *thread) (Result, error) {
		if err := t.become(nil); err != nil {
			var none Result
			return none, err
		}
		return call(t)
	})
}

func on[Result any](ctx context.Context, p *threads, c class, call func(*thread) (Result, error)) (Result, error) {
	var none Result
	if err := c.enter(ctx); err != nil {
		return none, err
	}
	t, err := p.take()
	if err != nil {
		c.leave()
		return none, err
	}
	type outcome struct {
		result Result
		err    error
	}
	done := make(chan outcome, 1)
	t.jobs <- func(t *thread) (deliver func(), usable bool) {
		defer c.leave()
		defer func() {
			if reason := recover(); reason != nil {
				log.Printf("files: %v\n%s", reason, debug.Stack())
				deliver = func() { done <- outcome{err: fmt.Errorf("files: %v", reason)} }
				usable = false
			}
		}()
		result, err := call(t)
		return func() { done <- outcome{result, err} }, !errors.Is(err, errThread)
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		go func() {
			o := <-done
			if closer, ok := any(o.result).(io.Closer); ok && o.err == nil {
				_ = closer.Close()
			}
		}()
		return none, ctx.Err()
	}
}

// errThread marks a thread that can't be used any more.
var errThread = errors.New("a thread could not take the rights of a user")

// take finds an idle thread or starts one.
func (p *threads) take() (*thread, error) {
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	var stale []*thread
	p.idle = slices.DeleteFunc(p.idle, func(t *thread) bool {
		if t.namespace != namespace {
			stale = append(stale, t)
			return true
		}
		return false
	})
	var t *thread
	if n := len(p.idle); n > 0 {
		t = p.idle[n-1]
		p.idle = p.idle[:n-1]
	}
	p.mu.Unlock()
	for _, one := range stale {
		close(one.jobs)
	}
	if t != nil {
		return t, nil
	}
	t = &thread{pool: p, namespace: namespace, jobs: make(chan job)}
	started := make(chan error)
	go t.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return t, nil
}

func (t *thread) run(started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread stays as it is: /proc/self shows it. It is free again once the other one has a thread.
		moved := make(chan error)
		go t.run(moved)
		err := <-moved
		runtime.UnlockOSThread()
		started <- err
		return
	}
	// The goroutine ends without unlocking, and the thread with it.
	err := t.enter()
	started <- err
	if err != nil {
		return
	}
	timer := time.NewTimer(idleTimeout)
	defer timer.Stop()
	for {
		select {
		case next, more := <-t.jobs:
			if !more {
				return
			}
			deliver, usable := next(t)
			timer.Reset(idleTimeout)
			usable = usable && t.rest()
			deliver()
			if !usable {
				return
			}
		case <-timer.C:
			p := t.pool
			p.mu.Lock()
			i := slices.Index(p.idle, t)
			if i >= 0 {
				p.idle = slices.Delete(p.idle, i, i+1)
			}
			p.mu.Unlock()
			if i >= 0 {
				return
			}
			// Taken at this moment: a job follows.
		}
	}
}

func (t *thread) rest() bool {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= maxIdle {
		return false
	}
	p.idle = append(p.idle, t)
	return true
}

func (t *thread) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("files: a working folder of its own: %w", err)
	}
	if t.namespace != "" {
		fd, err := open(unix.AT_FDCWD, t.namespace, unix.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("files: the inner mount namespace: %w", err)
		}
		err = unix.Setns(fd, unix.CLONE_NEWNS)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("files: entering the inner mount namespace: %w", err)
		}
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("files: /: %w", err)
	}
	unix.Umask(0) // modes are said exactly
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &t.permitted[0]); err != nil {
		return fmt.Errorf("files: capabilities: %w", err)
	}
	return nil
}

// takeUser makes the thread act as a user.
func (t *thread) takeUser(user string) error {
	p := t.pool
	p.mu.Lock()
	known := p.users
	p.mu.Unlock()
	if !known.fresh() {
		if err := t.become(nil); err != nil {
			return err
		}
		known = readUsers()
		p.mu.Lock()
		p.users = known
		p.mu.Unlock()
	}
	t.users = known
	id, err := known.resolve(user, p.template())
	if err != nil {
		return err
	}
	return t.become(id)
}

const unchanged = ^uintptr(0)

// become changes the effective ids and capabilities of this thread alone: the functions of package syscall change those of all.
func (t *thread) become(id *Identity) error {
	if t.identity.equal(id) {
		t.identity = id // the home folder may differ
		return nil
	}
	fail := func(what string, err error) error {
		return fmt.Errorf("%w: %s: %w", errThread, what, err)
	}
	// Root's effective id first, and with it all capabilities that are permitted.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, 0, unchanged); errno != 0 {
		return fail("setresuid", errno)
	}
	if err := t.limit(func(int) bool { return true }); err != nil {
		return fail("capset", err)
	}
	gid, groups := uint32(0), []uint32(nil)
	if id != nil {
		gid, groups = id.Gid, id.Groups
	}
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return fail("setgroups", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, unchanged, uintptr(gid), unchanged); errno != 0 {
		return fail("setresgid", errno)
	}
	switch {
	case id == nil:
	case id.Uid == 0:
		if err := t.limit(inner.UserCapability); err != nil {
			return fail("capset", err)
		}
	default:
		// The kernel takes all effective capabilities with root's effective id.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(id.Uid), unchanged); errno != 0 {
			return fail("setresuid", errno)
		}
	}
	t.identity = id
	return nil
}

// limit makes those of the permitted capabilities effective that pass.
func (t *thread) limit(pass func(capability int) bool) error {
	sets := t.permitted
	for i := range sets {
		sets[i].Effective = 0
		for bit := range 32 {
			if sets[i].Permitted&(1<<bit) != 0 && pass(32*i+bit) {
				sets[i].Effective |= 1 << bit
			}
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capset(&header, &sets[0])
}

// close ends the threads that wait.
func (p *threads) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, t := range idle {
		close(t.jobs)
	}
}

// tooMany is the answer where waiting could last for ever.
func tooMany(what string, limit int) error {
	return &frame.Status{Code: codes.ResourceExhausted, Message: fmt.Sprintf("%d %s are under way, which is the most", limit, what)}
}

// Package reap makes the process the reaper of everything that descends from
// it, and runs commands under that regime.
//
// The runtime's command ends and leaves the sandbox behind, which then becomes
// our child: so its exit status is ours to read. A process that reaps strangers
// must not leave any wait to os/exec, since either might take the other's
// child; every command of the engine is started here.
package reap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unclaimedKept bounds the statuses of processes nobody has asked about (the
// sentry's helpers, for the most part).
const unclaimedKept = 1024

// Reaper collects every child that ends.
type Reaper struct {
	// forks are executed by one thread that lives as long as the process.
	forks chan func()

	// Starting holds this for reading, reaping for writing: so no child is reaped
	// between its start and the registration of who waits for it.
	starting sync.RWMutex

	mu sync.Mutex
	// waiting and unclaimed are guarded by mu.
	waiting   map[int]chan unix.WaitStatus
	unclaimed map[int]unix.WaitStatus
	order     []int
}

// Start makes this process a sub-reaper. Call it once.
func Start() (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming a sub-reaper: %w", err)
	}
	r := &Reaper{forks: make(chan func()), waiting: map[int]chan unix.WaitStatus{}, unclaimed: map[int]unix.WaitStatus{}}
	go func() {
		// The parent-death signal is about the thread that forked.
		runtime.LockOSThread()
		for fork := range r.forks {
			fork()
		}
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	go func() {
		for range signals {
			r.reap()
		}
	}()
	return r, nil
}

func (r *Reaper) reap() {
	r.starting.Lock()
	defer r.starting.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if !status.Exited() && !status.Signaled() {
			continue
		}
		r.mu.Lock()
		if waiter, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			waiter <- status
		} else {
			r.unclaimed[pid] = status
			r.order = append(r.order, pid)
			if len(r.order) > unclaimedKept {
				delete(r.unclaimed, r.order[0])
				r.order = r.order[1:]
			}
		}
		r.mu.Unlock()
	}
}

// Status returns a channel that yields the status of a child, or of one that
// becomes a child by losing its parent. It yields nothing for other processes.
func (r *Reaper) Status(pid int) <-chan unix.WaitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiter := make(chan unix.WaitStatus, 1)
	if status, ok := r.unclaimed[pid]; ok {
		delete(r.unclaimed, pid)
		waiter <- status
		return waiter
	}
	r.waiting[pid] = waiter
	return waiter
}

// Forget drops the interest in a process.
func (r *Reaper) Forget(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, pid)
}

// Command is one program run.
type Command struct {
	Path string
	Args []string
	Env  []string
	Dir  string
	// Files are the standard input, output and error, and any after; nil is /dev/null.
	Files []*os.File
}

func (r *Reaper) fork(command Command, files []uintptr) (pid int, status <-chan unix.WaitStatus, err error) {
	done := make(chan struct{})
	r.forks <- func() {
		defer close(done)
		r.starting.RLock()
		defer r.starting.RUnlock()
		pid, err = syscall.ForkExec(command.Path, append([]string{command.Path}, command.Args...), &syscall.ProcAttr{
			Dir: command.Dir, Env: command.Env, Files: files,
			// Own session: a Ctrl-C in the engine's terminal is not for the sandboxes.
			// It dies with us: else it could go on making a sandbox after the next engine
			// has cleaned up.
			Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
		if err == nil {
			status = r.Status(pid)
		}
	}
	<-done
	return pid, status, err
}

// Process is a command that was started.
type Process struct {
	Pid int
	// Status yields its status when it has ended, once.
	Status <-chan unix.WaitStatus
	// command is for messages.
	command string
}

// Start starts a command, which ends with this process at the latest.
func (r *Reaper) Start(command Command) (*Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := make([]uintptr, len(command.Files))
	for i, f := range command.Files {
		if f == nil {
			f = null
		}
		files[i] = f.Fd()
	}
	pid, status, err := r.fork(command, files)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Path, err)
	}
	return &Process{Pid: pid, Status: status, command: command.Path}, nil
}

// Kill kills a process and waits for its end. Requires: nobody else receives from Status. ended says that it had ended before, and how.
func (p *Process) Kill() (status unix.WaitStatus, ended bool, err error) {
	// The status channel is still empty or the process has just been reaped; in
	// the second case the id can't have been given to another process yet only if
	// we look again first.
	select {
	case s := <-p.Status:
		return s, true, nil
	default:
		_ = unix.Kill(p.Pid, unix.SIGKILL)
	}
	select {
	case s := <-p.Status:
		return s, false, nil
	case <-time.After(10 * time.Second):
		return 0, false, fmt.Errorf("%s (process %d) does not die", p.command, p.Pid)
	}
}

// Run starts a command and waits for its end; when ctx ends it is killed.
func (r *Reaper) Run(ctx context.Context, command Command) (unix.WaitStatus, error) {
	p, err := r.Start(command)
	if err != nil {
		return 0, err
	}
	select {
	case s := <-p.Status:
		return s, nil
	case <-ctx.Done():
	}
	s, ended, err := p.Kill()
	if ended {
		return s, nil
	}
	return 0, errors.Join(fmt.Errorf("%s: %w", command.Path, ctx.Err()), err)
}

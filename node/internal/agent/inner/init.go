package inner

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The capabilities that a process of the user may ever have, by sudo for example: those that Docker gives too, less raw sockets.
// Without CAP_SYS_ADMIN and CAP_SYS_RESOURCE the process limit holds for root as well, and /proc stays the inner one.
var userCapabilities = map[int]bool{
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true, unix.CAP_KILL: true,
	unix.CAP_SETGID: true, unix.CAP_SETUID: true, unix.CAP_SETPCAP: true, unix.CAP_SETFCAP: true, unix.CAP_NET_BIND_SERVICE: true,
	unix.CAP_SYS_CHROOT: true, unix.CAP_MKNOD: true, unix.CAP_AUDIT_WRITE: true,
}

// Init is the program of PID 1. The one thread that starts processes is the main one: the capability bounding set is a property of
// a thread, and children inherit it from theirs.
type initProcess struct {
	control socket

	sendMu sync.Mutex

	// mu is held while a process is started, so that its exit is never reported before its start.
	mu      sync.Mutex
	spawned map[int]string // pid -> owner: a context's id, or ProcessOwner and a process's; guarded by mu
	// Owners of sessions whose leader has ended; guarded by mu.
	sessions map[int]string
	// born is signalled when a process was started: the reaper waits for it when there are no children.
	born chan struct{}

	guard *guard
}

// Main runs the init until the agent's end of the socket closes. The arguments are those of a Place.
// Requires: called from the main goroutine, locked to the main thread, as PID 1 of fresh PID and mount namespaces.
func Main(arguments []string) error {
	place, err := parsePlace(arguments)
	if err != nil {
		return fmt.Errorf("inner init: %w", err)
	}
	debug.SetGCPercent(50)
	// Two goroutines sit in system calls that block. With one processor between them, the reaper got it only once Go's monitor had taken
	// it from the other, up to 20 ms after a child had ended (TestGvisor_processes_and_keys_are_measured).
	runtime.GOMAXPROCS(4)
	runtime.LockOSThread()
	p := &initProcess{control: ControlFd, spawned: map[int]string{}, sessions: map[int]string{}, born: make(chan struct{}, 1)}
	unix.CloseOnExec(ControlFd)
	// Before the mounts are made ready, which may hide what it reads.
	if p.guard, err = newGuard(place.Memory, p); err != nil {
		return err
	}
	_, err = os.Stat("/proc/gvisor")
	isGvisor := err == nil
	if err := p.setUp(place); err != nil {
		return err
	}
	if isGvisor {
		if err := p.guard.haveWatched(); err != nil {
			return fmt.Errorf("inner init: %w", err)
		}
	}
	go p.reap()
	go p.guard.run()
	p.send(&Event{Ready: true})
	for {
		request := &Request{}
		fds, err := p.control.receive(request)
		if err != nil {
			return fmt.Errorf("inner init: the agent is gone: %w", err)
		}
		p.serve(request, fds)
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

func (p *initProcess) setUp(place Place) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("inner init: dumpable: %w", err)
	}
	// A signal sent by root inside must not end the init by way of the Go runtime's handlers. Notify, unlike Ignore, is not inherited.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGABRT, unix.SIGTRAP, unix.SIGSYS, unix.SIGXCPU)
	go func() {
		for range ignored {
		}
	}()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("inner init: making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("inner init: mounting /proc: %w", err)
	}
	// gVisor shows the container's first environment, with the agent's key in it, and its checkpoint control there.
	if _, err := os.Stat("/proc/gvisor"); err == nil {
		if err := unix.Mount("tmpfs", "/proc/gvisor", "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=4k"); err != nil {
			return fmt.Errorf("inner init: hiding /proc/gvisor: %w", err)
		}
	}
	if err := place.hide(); err != nil {
		return fmt.Errorf("inner init: %w", err)
	}
	for capability := 0; capability <= unix.CAP_LAST_CAP; capability++ {
		if userCapabilities[capability] && (!place.SharedKernel || !reachesHost[capability]) {
			continue
		}
		// EINVAL: a kernel that does not know the capability.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("inner init: dropping capability %d: %w", capability, err)
		}
	}
	unix.Umask(0o022)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	if place.SharedKernel {
		return forbidCalls()
	}
	return nil
}

func (p *initProcess) send(event *Event) {
	header, body, err := Encode(event)
	if err != nil {
		fmt.Fprintln(os.Stderr, "inner init:", err)
		return
	}
	message := append(header[:], body...)
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	for len(message) > 0 {
		n, err := unix.Write(int(p.control), message)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			// The main loop sees the end of the socket and ends the tree.
			return
		}
		message = message[n:]
	}
}

func (p *initProcess) serve(request *Request, fds []int) {
	switch {
	case request.Spawn != nil:
		p.spawn(request.ID, request.Spawn, fds)
	case request.Signal != nil:
		go p.signal(request.ID, request.Signal)
	case request.Kill != nil:
		go p.kill(request.ID, request.Kill)
	case request.Deliver != nil:
		// What is sent first arrives first, unless it takes a search of all processes.
		if request.Deliver.Target == "tree" {
			go p.deliver(request.ID, request.Deliver)
		} else {
			p.deliver(request.ID, request.Deliver)
		}
	case request.List:
		go p.list(request.ID)
	case request.Look != 0:
		p.look(request.ID, request.Look)
	case request.Limits != nil:
		p.answer(request.ID, p.limit(request.Limits))
	case request.Guard != nil:
		p.guard.configure(request.Guard)
		if request.ID != 0 {
			p.answer(request.ID, nil)
		}
	case request.Mounts != nil:
		p.answer(request.ID, p.mounts(request.Mounts))
	case request.Ping:
		p.answer(request.ID, nil)
	}
}

func (p *initProcess) answer(id uint64, err error) {
	event := &Event{ID: id}
	if err != nil {
		event.Error = err.Error()
		var errno syscall.Errno
		if errors.As(err, &errno) {
			event.Errno = int(errno)
		}
	}
	p.send(event)
}

func (p *initProcess) spawn(id uint64, spawn *Spawn, fds []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pid, err := start(spawn, fds)
	if err != nil {
		p.answer(id, err)
		return
	}
	p.spawned[pid] = ownerOf(spawn.Env)
	delete(p.sessions, pid)
	p.send(&Event{ID: id, Pid: pid})
	select {
	case p.born <- struct{}{}:
	default:
	}
}

// reap collects every child, also those that others left behind, and reports the ones that the agent knows.
func (p *initProcess) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			<-p.born
		case err != nil:
			fmt.Fprintln(os.Stderr, "inner init: wait:", err)
			<-p.born
		default:
			p.mu.Lock()
			if owner, known := p.spawned[pid]; known {
				delete(p.spawned, pid)
				p.rememberSession(pid, owner)
				p.send(&Event{Exit: &Exit{Pid: pid, Status: uint32(status)}})
			}
			p.mu.Unlock()
		}
	}
}

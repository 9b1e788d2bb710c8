package frame

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// calmWrites is after how many writes that fitted at once the poller stops watching a pipe that was full before.
const calmWrites = 64

// Outlet is the writing end of a pipe. The runtime's poller watches it only while somebody waits for room: it would otherwise be told,
// and wake a thread, each time that the other side has read something, which it does after nearly every write.
type Outlet struct {
	name string

	mu       sync.Mutex
	fd       int       // -1 once it is closed; guarded by mu
	deadline time.Time // guarded by mu
	// polled is a copy of fd that waits for room, from the first time that there is none; guarded by mu.
	polled  *os.File
	waiting int // writers that use polled; guarded by mu
	calm    int // writes since the pipe was full; guarded by mu
}

// NewOutlet takes over a descriptor, which it makes non-blocking.
func NewOutlet(fd int, name string) (*Outlet, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, &os.PathError{Op: "nonblock", Path: name, Err: err}
	}
	return &Outlet{fd: fd, name: name}, nil
}

// Write writes all of p, or what was possible before the deadline or Close.
func (o *Outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	written, err := o.tryLocked(p)
	if err != nil || written == len(p) {
		o.mu.Unlock()
		return written, err
	}
	file, err := o.patientLocked()
	if err != nil {
		o.mu.Unlock()
		return written, err
	}
	o.waiting++
	o.mu.Unlock()
	n, err := file.Write(p[written:])
	o.mu.Lock()
	o.waiting--
	o.mu.Unlock()
	return written + n, err
}

// Try writes what there is room for.
func (o *Outlet) Try(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tryLocked(p)
}

func (o *Outlet) tryLocked(p []byte) (written int, err error) {
	switch {
	case o.fd < 0:
		return 0, os.ErrClosed
	case !o.deadline.IsZero() && !time.Now().Before(o.deadline):
		return 0, os.ErrDeadlineExceeded
	}
	for written < len(p) {
		n, err := WriteNow(uintptr(o.fd), p[written:])
		if err == syscall.EAGAIN {
			o.calm = 0
			return written, nil
		}
		if err != nil {
			return written, &os.PathError{Op: "write", Path: o.name, Err: err}
		}
		written += n
	}
	if o.polled != nil && o.waiting == 0 {
		if o.calm++; o.calm >= calmWrites {
			_ = o.polled.Close()
			o.polled = nil
		}
	}
	return written, nil
}

func (o *Outlet) patientLocked() (*os.File, error) {
	if o.polled != nil {
		return o.polled, nil
	}
	fd, err := unix.FcntlInt(uintptr(o.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "dup", Path: o.name, Err: err}
	}
	file := os.NewFile(uintptr(fd), o.name)
	if err := file.SetWriteDeadline(o.deadline); err != nil {
		_ = file.Close()
		return nil, err
	}
	o.polled = file
	return file, nil
}

// SetWriteDeadline is os.File's.
func (o *Outlet) SetWriteDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fd < 0 {
		return os.ErrClosed
	}
	o.deadline = t
	if o.polled != nil {
		return o.polled.SetWriteDeadline(t)
	}
	return nil
}

// Close ends writers that wait.
func (o *Outlet) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fd < 0 {
		return os.ErrClosed
	}
	if o.polled != nil {
		_ = o.polled.Close()
		o.polled = nil
	}
	err := unix.Close(o.fd)
	o.fd = -1
	return err
}

// eager makes an outlet look like a polled file of which one write is tried first.
type eager struct{ outlet *Outlet }

func (e eager) Write(attempt func(fd uintptr) bool) error {
	o := e.outlet
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.tryLocked(nil); err != nil {
		return err
	}
	attempt(uintptr(o.fd))
	return nil
}

func (eager) Control(func(fd uintptr)) error   { return syscall.EINVAL }
func (eager) Read(func(fd uintptr) bool) error { return syscall.EINVAL }

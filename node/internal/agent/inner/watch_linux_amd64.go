package inner

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watch looks at how much memory is free on a thread of its own that is none of Go's. A look by a goroutine wakes three threads, of which
// Go's monitor sleeps in steps of 20 us, each of them a millisecond of timers in the sentry: two looks a second of an idle sandbox woke the
// sentry's threads 90 times. This one sleeps in the kernel until memory is low.
// The thread reads it by offsets (watch_linux_amd64.s); it is never freed.
type watch struct {
	interval unix.Timespec // 0
	mark     uint64        // 16: tells when less is free; written while the thread reads it
	event    int64         // 24: an eventfd
	one      uint64        // 32
	_        uint64
	info     unix.Sysinfo_t // 48, Freeram at 88
}

const watchStackBytes = 4096

var watchStack [watchStackBytes]byte

// The thread's, which no goroutine points at for good.
var theWatch watch

//go:noescape
func startWatch(stack uintptr, w *watch) (tid int)

// newWatch starts the one watch of the process, which tells nothing before it is given a mark.
func newWatch(interval time.Duration) (*watch, *os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, nil, fmt.Errorf("watch of the memory: %w", err)
	}
	w := &theWatch
	w.interval, w.event, w.one, w.info = unix.NsecToTimespec(interval.Nanoseconds()), int64(fd), 1, unix.Sysinfo_t{}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	tid := startWatch(uintptr(unsafe.Pointer(&watchStack))+watchStackBytes, w)
	err = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	if tid < 0 {
		return nil, nil, errors.Join(fmt.Errorf("watch of the memory: %w", unix.Errno(-tid)), err, unix.Close(fd))
	}
	return w, os.NewFile(uintptr(fd), "memory is low"), err
}

// below has the watch tell each time that it finds less free than so many bytes; 0: never.
func (w *watch) below(bytes uint64) {
	if w != nil {
		atomic.StoreUint64(&w.mark, bytes)
	}
}

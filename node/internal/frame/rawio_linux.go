//go:build linux && !race

package frame

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadNow and WriteNow are for descriptors that never block. They don't tell the Go scheduler of the call, which would wake its
// monitor thread: in gVisor that costs more than the call itself (the thread then polls every 20 µs until the process is idle again).

// ReadNow reads what is there, without waiting. The descriptor must be non-blocking.
func ReadNow(fd uintptr, p []byte) (int, error) { return now(syscall.SYS_READ, fd, p) }

// ReadAtNow is ReadNow at an offset, for files that are made as they are read, like those of /proc.
func ReadAtNow(fd uintptr, p []byte, offset int64) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(offset), 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// WriteNow writes what there is room for, without waiting. The descriptor must be non-blocking.
func WriteNow(fd uintptr, p []byte) (int, error) { return now(syscall.SYS_WRITE, fd, p) }

// Await waits until there is something to read, at most for limit, and says whether there is. The thread sleeps and, as far as the
// scheduler knows, works: nothing else runs on it. For waits that end within a millisecond; they are two thread switches cheaper than the poller's.
func Await(fd uintptr, limit time.Duration) bool {
	poll := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	timeout := unix.NsecToTimespec(int64(limit))
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	return errno == 0 && n > 0
}

func now(call, fd uintptr, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

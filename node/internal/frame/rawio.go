//go:build !linux || race

package frame

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ReadNow reads what is there, without waiting. The descriptor must be non-blocking.
func ReadNow(fd uintptr, p []byte) (int, error) { return retry(syscall.Read, fd, p) }

// ReadAtNow is ReadNow at an offset, for files that are made as they are read, like those of /proc.
func ReadAtNow(fd uintptr, p []byte, offset int64) (int, error) {
	return retry(func(fd int, p []byte) (int, error) { return syscall.Pread(fd, p, offset) }, fd, p)
}

// WriteNow writes what there is room for, without waiting. The descriptor must be non-blocking.
func WriteNow(fd uintptr, p []byte) (int, error) { return retry(syscall.Write, fd, p) }

// Await waits until there is something to read, at most for limit, and says whether there is.
func Await(fd uintptr, limit time.Duration) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds())+1)
	return err == nil && n > 0
}

func retry(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

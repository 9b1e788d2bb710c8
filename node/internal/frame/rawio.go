//go:build !linux || race

package frame

import "syscall"

// ReadNow reads what is there, without waiting. The descriptor must be non-blocking.
func ReadNow(fd uintptr, p []byte) (int, error) { return retry(syscall.Read, fd, p) }

// WriteNow writes what there is room for, without waiting. The descriptor must be non-blocking.
func WriteNow(fd uintptr, p []byte) (int, error) { return retry(syscall.Write, fd, p) }

func retry(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

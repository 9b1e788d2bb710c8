package box

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startTime tells one process from a later one with the same id.
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; the fields after it are plain.
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	const field = 22 - 3
	if end < 0 || len(fields) <= field {
		return 0, fmt.Errorf("/proc/%d/stat: %q (expected: 22 fields)", pid, text)
	}
	return strconv.ParseUint(fields[field], 10, 64)
}

var errProcessGone = errors.New("process is gone")

// openProcess returns a pidfd of exactly that process.
func openProcess(p process) (*os.File, error) {
	if p.PID <= 1 {
		return nil, errProcessGone
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, errProcessGone
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd of %d: %w", p.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	boot, err := bootID()
	if err != nil {
		f.Close()
		return nil, err
	}
	// Compared after the pidfd is open, so that it can't be another's by now.
	now, err := startTime(p.PID)
	if err != nil || now != p.StartTime || boot != p.BootID {
		f.Close()
		return nil, errProcessGone
	}
	return f, nil
}

// waitProcess returns when the process has ended.
func waitProcess(pidfd *os.File) error {
	connection, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = connection.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			failure = err
			return err != nil || n > 0
		}
	})
	return errors.Join(failure, err)
}

func killProcess(pidfd *os.File) error {
	connection, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = connection.Control(func(fd uintptr) {
		failure = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0)
	})
	if errors.Is(failure, unix.ESRCH) {
		failure = nil
	}
	return errors.Join(failure, err)
}

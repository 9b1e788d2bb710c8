package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/frame"
)

func checkSize(size *execv1.TerminalSize) error {
	if size.GetColumns() < 1 || size.GetColumns() > math.MaxUint16 || size.GetRows() < 1 || size.GetRows() > math.MaxUint16 {
		return &frame.Status{Code: codes.InvalidArgument,
			Message: fmt.Sprintf("terminal of %d columns and %d rows (expected: 1 to %d)", size.GetColumns(), size.GetRows(), math.MaxUint16)}
	}
	return nil
}

// openTerminal makes a terminal of that size for a user: the descriptors of our side, which does not block, and of the program's.
func openTerminal(size *execv1.TerminalSize, uid, gid uint32) (master, slave int, err error) {
	// What root inside may have put in its place must not hold us up.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return -1, -1, err
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return -1, -1, err
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, winsize(size)); err != nil {
		return -1, -1, err
	}
	opened, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	peer := int(opened)
	if errno != 0 {
		peer, err = unix.Open("/dev/pts/"+strconv.FormatUint(uint64(number), 10), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, -1, err
	}
	if settings, err := unix.IoctlGetTermios(peer, unix.TCGETS); err == nil {
		// So that backspace takes a whole character back.
		settings.Iflag |= unix.IUTF8
		_ = unix.IoctlSetTermios(peer, unix.TCSETS, settings)
	}
	// As grantpt(3) does it. Where it fails, the program can use the terminal, and not open it again by name.
	_ = unix.Fchown(peer, int(uid), int(gid))
	_ = unix.Fchmod(peer, 0o620)
	return fd, peer, nil
}

func winsize(size *execv1.TerminalSize) *unix.Winsize {
	return &unix.Winsize{Col: uint16(size.Columns), Row: uint16(size.Rows)}
}

// Resize tells a terminal, and whom it is in the foreground for, of its new size.
func (a *Agent) Resize(_ context.Context, request *execv1.ResizeRequest) (*agentv1.Empty, error) {
	if err := checkSize(request.Size); err != nil {
		return nil, err
	}
	p, err := a.startedProcess(request.ProcessId)
	if err != nil {
		return nil, err
	}
	if p.terminal == nil {
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: "process " + request.ProcessId + " has no terminal"}
	}
	err = control(p.terminal, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, winsize(request.Size)) })
	if errors.Is(err, os.ErrClosed) {
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: "process " + request.ProcessId + " has ended"}
	}
	return &agentv1.Empty{}, err
}

// control calls act with the descriptor of a file that stays open meanwhile.
func control(file *os.File, act func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = act(int(fd)) }); err != nil {
		if failed == nil {
			return os.ErrClosed
		}
	}
	return failed
}

// signalForeground signals the foreground group of the terminal, and says whether it could.
func (p *process) signalForeground(number unix.Signal) bool {
	done := false
	_ = control(p.terminal, func(fd int) error {
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && group > 1 {
			done = unix.Kill(-group, number) == nil
		}
		return nil
	})
	return done
}

// endOfFile is what a terminal takes for the end of its input: its character, if it reads lines.
func endOfFile(terminal *os.File, last byte) []byte {
	var text []byte
	_ = control(terminal, func(fd int) error {
		settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil || settings.Lflag&unix.ICANON == 0 || settings.Cc[unix.VEOF] == 0 {
			return err
		}
		character := settings.Cc[unix.VEOF]
		text = []byte{character}
		if last != 0 && last != '\n' && last != '\r' && last != character {
			// The first one only hands an unfinished line over.
			text = append(text, character)
		}
		return nil
	})
	return text
}

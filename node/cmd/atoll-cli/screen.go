package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// screen is the terminal that the CLI was started on, if it was.
type screen struct {
	input, output int
	stdinIsTTY    bool
	before        *unix.Termios
}

func openScreen(t terminal) *screen {
	s := &screen{input: -1, output: -1}
	if file, ok := t.stdin.(*os.File); ok && isTerminal(file) {
		s.input, s.stdinIsTTY = int(file.Fd()), true
	}
	if file, ok := t.stdout.(*os.File); ok && isTerminal(file) {
		s.output = int(file.Fd())
	}
	return s
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// size is 80 by 24 where there is no terminal.
func (s *screen) size() (columns, rows int) {
	for _, fd := range []int{s.output, s.input} {
		if fd >= 0 {
			if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
				return int(size.Col), int(size.Row)
			}
		}
	}
	return 80, 24
}

// raw hands every key to the program; restore undoes it and may be called more than once.
func (s *screen) raw() error {
	if !s.stdinIsTTY || s.before != nil {
		return nil
	}
	before, err := unix.IoctlGetTermios(s.input, unix.TCGETS)
	if err != nil {
		return err
	}
	after := *before
	after.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	after.Oflag &^= unix.OPOST
	after.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	after.Cflag &^= unix.CSIZE | unix.PARENB
	after.Cflag |= unix.CS8
	after.Cc[unix.VMIN], after.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(s.input, unix.TCSETS, &after); err != nil {
		return err
	}
	s.before = before
	return nil
}

// usual ends modes that a program may have left on: the alternate screen, bracketed paste, mouse reports, a hidden cursor, colours.
const usual = "\x1b[?1049l\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?25h\x1b[0m"

func (s *screen) restore(broken bool) {
	if s.before == nil {
		return
	}
	if broken && s.output >= 0 {
		unix.Write(s.output, []byte(usual))
	}
	unix.IoctlSetTermios(s.input, unix.TCSETSF, s.before)
	s.before = nil
}

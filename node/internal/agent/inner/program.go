package inner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// nowhere is the name of a program that doesn't exist: trying to run it tells whether all that comes before running one succeeds.
const nowhere = "/.atoll/no-such-program"

func start(spawn *Spawn, fds []int) (int, error) {
	if len(spawn.Argv) == 0 {
		return 0, errors.New("no program named")
	}
	if info, err := os.Stat(spawn.Cwd); err != nil {
		return 0, fmt.Errorf("working folder: %w", err)
	} else if !info.IsDir() {
		return 0, fmt.Errorf("working folder %s: %w", spawn.Cwd, unix.ENOTDIR)
	}
	candidates, err := lookUp(spawn.Argv[0], spawn.Cwd, spawn.Env)
	if err != nil {
		return 0, err
	}
	attributes := &syscall.ProcAttr{
		Dir:   spawn.Cwd,
		Env:   spawn.Env,
		Files: make([]uintptr, len(fds)),
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Setctty:    spawn.Terminal,
			Credential: &syscall.Credential{Uid: spawn.Uid, Gid: spawn.Gid, Groups: spawn.Groups},
		},
	}
	for i, fd := range fds {
		attributes.Files[i] = uintptr(fd)
	}
	var refused error
	for _, path := range candidates {
		pid, err := syscall.ForkExec(path, spawn.Argv, attributes)
		if err == nil {
			return pid, nil
		}
		if !errors.Is(err, unix.EACCES) {
			return 0, explained(path, err)
		}
		if refused == nil {
			refused = fmt.Errorf("program %s: %w", path, err)
		}
	}
	// The fork doesn't say which of its steps failed.
	if _, err := syscall.ForkExec(nowhere, []string{nowhere}, attributes); errors.Is(err, unix.EACCES) {
		return 0, fmt.Errorf("working folder %s: %w", spawn.Cwd, err)
	}
	return 0, refused
}

func explained(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		if named := interpreterOf(path); named != "" {
			return fmt.Errorf("program %s: the interpreter or loader that it names, %s, is missing in this image: %w", path, named, err)
		}
		return fmt.Errorf("program %s: the interpreter or loader that it names is missing: %w", path, err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("program %s: neither a binary of this machine nor a script with a #! line: %w", path, err)
	}
	return fmt.Errorf("program %s: %w", path, err)
}

const maxInterpreter = 256

// interpreterOf is the interpreter that a script names in its first line, or the loader that a binary names; empty where neither is to be seen.
func interpreterOf(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	at := func(offset uint64, size int) []byte {
		text := make([]byte, size)
		n, err := unix.Pread(fd, text, int64(offset&(1<<62-1)))
		if err != nil {
			return nil
		}
		return text[:n]
	}
	head := at(0, maxInterpreter)
	if line, isScript := bytes.CutPrefix(head, []byte("#!")); isScript {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if words := bytes.Fields(line); len(words) > 0 {
			return strings.ToValidUTF8(string(words[0]), "?")
		}
		return ""
	}
	// A binary of 64 bits in little-endian order.
	if len(head) < 64 || !bytes.HasPrefix(head, []byte("\x7fELF\x02\x01")) {
		return ""
	}
	order := binary.LittleEndian
	size, count := uint64(order.Uint16(head[0x36:])), uint64(order.Uint16(head[0x38:]))
	for i := range min(count, 64) {
		segment := at(order.Uint64(head[0x20:])+i*size, 56)
		const isInterpreter = 3
		if len(segment) < 56 || order.Uint32(segment) != isInterpreter {
			continue
		}
		name, _, _ := bytes.Cut(at(order.Uint64(segment[8:]), int(min(order.Uint64(segment[0x20:]), maxInterpreter))), []byte{0})
		return strings.ToValidUTF8(string(name), "?")
	}
	return ""
}

// lookUp finds the files that a program's name may stand for, in the order in which to try them, as the C library does.
func lookUp(program, cwd string, env []string) ([]string, error) {
	if strings.Contains(program, "/") {
		path := program
		if !filepath.IsAbs(path) {
			path = filepath.Join(cwd, path)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", program, errors.Unwrap(err))
		}
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("program %s: not an executable file: %w", program, unix.EACCES)
		}
		return []string{path}, nil
	}
	var found []string
	missing := unix.ENOENT
	searched := ""
	for _, pair := range env {
		path, isPath := strings.CutPrefix(pair, "PATH=")
		if !isPath || program == "" {
			continue
		}
		searched = path
		for folder := range strings.SplitSeq(path, ":") {
			if !filepath.IsAbs(folder) {
				folder = filepath.Join(cwd, folder)
			}
			candidate := folder + "/" + program
			switch info, err := os.Stat(candidate); {
			case err != nil || !info.Mode().IsRegular():
			case info.Mode()&0o111 == 0:
				missing = unix.EACCES
			default:
				found = append(found, candidate)
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	if missing == unix.EACCES {
		return nil, fmt.Errorf("program %s: not an executable file in PATH (%s): %w", program, searched, missing)
	}
	return nil, fmt.Errorf("program %s is not in PATH (%s): %w", program, searched, missing)
}

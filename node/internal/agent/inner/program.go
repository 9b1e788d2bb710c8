package inner

import (
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
		return fmt.Errorf("program %s: the interpreter or loader that it names is missing: %w", path, err)
	case errors.Is(err, unix.ENOEXEC):
		return fmt.Errorf("program %s: neither a binary of this machine nor a script with a #! line: %w", path, err)
	}
	return fmt.Errorf("program %s: %w", path, err)
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

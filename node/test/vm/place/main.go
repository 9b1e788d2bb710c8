// Command place runs a command where an engine may find itself on a machine with cgroup v2.
//
//	place host      COMMAND...   in the root of the hierarchy
//	place service   COMMAND...   in a group below it that has processes, as under a service manager
//	place container COMMAND...   the same, with that group as the root of a cgroup namespace, as in a container
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"atoll/node/internal/cgroup"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "place: "+err.Error())
		os.Exit(125)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: place host|service|container COMMAND [ARGUMENT]")
	}
	where, command := arguments[0], arguments[1:]
	switch where {
	case "host":
	case "service", "container":
		if err := enter(filepath.Join(cgroup.Root, where)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("place %q (expected: host, service or container)", where)
	}
	if where == "container" {
		if err := isolate(); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return unix.Exec(path, command, os.Environ())
}

func enter(group string) error {
	// What a service manager or a container runtime delegates.
	if err := os.WriteFile(filepath.Join(cgroup.Root, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
		return err
	}
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

func isolate() error {
	// Namespaces belong to a thread, and exec keeps those of the one that calls it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Unmount(cgroup.Root, 0); err != nil {
		return fmt.Errorf("unmounting %s: %w", cgroup.Root, err)
	}
	if err := unix.Mount("cgroup2", cgroup.Root, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", cgroup.Root, err)
	}
	return nil
}

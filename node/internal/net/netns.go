// Package net owns the network namespaces of an instance.
//
// Boxes without a network of their own share one namespace in which only the
// loopback device is up. Their network stacks stay private, being the
// sentry's, and forwarding a port into such a box still works, which it does
// not without a namespace.
package net

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Shared returns the path of the instance's shared namespace, made if it is not there.
func Shared(path string) error {
	if isNamespace(path) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o710); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	f.Close()
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and with it the
		// namespace it was in, so no other goroutine ever runs there.
		runtime.LockOSThread()
		done <- makeNamespace(path)
	}()
	if err := <-done; err != nil {
		return errors.Join(fmt.Errorf("network namespace: %w", err), os.Remove(path))
	}
	return nil
}

func makeNamespace(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	source := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("keeping it at %s: %w", path, err)
	}
	return nil
}

func isNamespace(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// Remove removes a namespace that Shared made.
func Remove(path string) error {
	for isNamespace(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("network namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

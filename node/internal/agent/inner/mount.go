package inner

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Mounts changes what is mounted in the inner namespace.
type Mounts struct {
	Add []Mount
	// Remove are targets of mounts.
	Remove []string
}

// Mount is one of them: a folder or a file at another place or, without a source, memory.
type Mount struct {
	Target   string
	Source   string
	ReadOnly bool
	// Of memory.
	Bytes uint64
	Mode  uint32
}

func (p *initProcess) mounts(mounts *Mounts) error {
	var failures []error
	for _, target := range slices.Backward(mounts.Remove) {
		// EINVAL: nothing is mounted there.
		if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			failures = append(failures, fmt.Errorf("unmounting %s: %w", target, err))
		}
	}
	for i, m := range mounts.Add {
		if err := mount(m); err != nil {
			for _, done := range slices.Backward(mounts.Add[:i]) {
				failures = append(failures, unix.Unmount(done.Target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
			}
			return errors.Join(append([]error{fmt.Errorf("mounting %s: %w", m.Target, err)}, failures...)...)
		}
	}
	return errors.Join(failures...)
}

func mount(m Mount) error {
	if !filepath.IsAbs(m.Target) || strings.ContainsRune(m.Target, 0) {
		return fmt.Errorf("%w: no absolute path", unix.EINVAL)
	}
	var flags uintptr
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if m.Source == "" {
		return unix.Mount("tmpfs", m.Target, "tmpfs", flags|unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("mode=%04o,size=%d", m.Mode, m.Bytes))
	}
	if err := unix.Mount(m.Source, m.Target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if !m.ReadOnly {
		return nil
	}
	if err := unix.Mount("", m.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return errors.Join(err, unix.Unmount(m.Target, unix.MNT_DETACH))
	}
	return nil
}

package inner

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is what an agent and its init must know of what they run in.
type Place struct {
	// Memory is what the guard reads: a file like /proc/meminfo, or the folder of a control group.
	Memory string
	// Hidden is a folder whose mounts are not for the user's eyes; empty: none.
	Hidden string
	// SharedKernel says that the kernel is the host's: what of it reaches beyond a container is kept from the user's processes, root's
	// included. gVisor's kernel is the sandbox's own.
	SharedKernel bool
}

// Arguments are what the init is started with.
func (p Place) Arguments() []string {
	arguments := []string{"-memory=" + p.Memory, "-hidden=" + p.Hidden}
	if p.SharedKernel {
		arguments = append(arguments, "-shared-kernel")
	}
	return arguments
}

func parsePlace(arguments []string) (Place, error) {
	var p Place
	flags := flag.NewFlagSet("init", flag.ContinueOnError)
	flags.StringVar(&p.Memory, "memory", "/proc/meminfo", "")
	flags.StringVar(&p.Hidden, "hidden", "", "")
	flags.BoolVar(&p.SharedKernel, "shared-kernel", false, "")
	if err := flags.Parse(arguments); err != nil {
		return p, err
	}
	if flags.NArg() > 0 {
		return p, fmt.Errorf("unknown arguments %q", flags.Args())
	}
	return p, nil
}

// reachesHost are capabilities that a container's root may have in gVisor alone. A device file leads to the host's device where nothing
// else forbids it, and what forbids it in Docker is a property of the control group, which a box does not stay in.
var reachesHost = map[int]bool{unix.CAP_MKNOD: true}

// What of /proc a container's root could change, or learn, of the host: the same that Docker keeps from it.
var (
	procReadOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	procMasked   = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/timer_list", "/proc/timer_stats",
	}
)

// hide takes from the init's mount namespace what is not for the user. Requires: /proc is the inner one.
func (p Place) hide() error {
	if p.Hidden != "" {
		mounts, err := mountsBelow(p.Hidden)
		if err != nil {
			return err
		}
		for _, mount := range mounts {
			if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("hiding %s: %w", mount, err)
			}
		}
	}
	if !p.SharedKernel {
		return nil
	}
	for _, path := range procReadOnly {
		err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}
		if err != nil {
			return fmt.Errorf("making %s read-only: %w", path, err)
		}
	}
	for _, path := range procMasked {
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && info.IsDir() {
			err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=4k")
		} else if err == nil {
			err = unix.Mount(os.DevNull, path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("masking %s: %w", path, err)
		}
	}
	return nil
}

// mountsBelow lists the mount points in a folder, the innermost first.
func mountsBelow(folder string) ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == folder || strings.HasPrefix(fields[4], filepath.Clean(folder)+"/")) {
			found = append(found, fields[4])
		}
	}
	slices.Reverse(found)
	return found, nil
}

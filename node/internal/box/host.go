package box

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// diskSpace counts what an ordinary user may use.
func diskSpace(path string) (total, available uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	// As df does: without the part that is reserved for root.
	return (s.Blocks - s.Bfree + s.Bavail) * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}

type memory struct{ total, available uint64 }

func hostMemory() (memory, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return memory{}, err
	}
	defer f.Close()
	var m memory
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			m.total = kib << 10
		case "MemAvailable:":
			m.available = kib << 10
		}
	}
	if m.total == 0 || m.available == 0 {
		return memory{}, fmt.Errorf("/proc/meminfo has no MemTotal or MemAvailable (%v)", lines.Err())
	}
	return m, nil
}

// Space is what the host has.
type Space struct {
	MemoryTotal, MemoryAvailable uint64
	DiskTotal, DiskAvailable     uint64
}

// HostSpace reads the host's memory, and the disk that path is on.
func HostSpace(path string) (Space, error) {
	m, err := hostMemory()
	if err != nil {
		return Space{}, err
	}
	total, available, err := diskSpace(path)
	if err != nil {
		return Space{}, err
	}
	return Space{MemoryTotal: m.total, MemoryAvailable: m.available, DiskTotal: total, DiskAvailable: available}, nil
}

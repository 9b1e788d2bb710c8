package box

import (
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/execv1"
	"atoll/node/internal/cgroup"
)

const (
	mebibyte = 1 << 20

	defaultMemory    = 256 * mebibyte
	defaultDisk      = 1024 * mebibyte
	defaultProcesses = 256
	defaultOpenFiles = 4096

	minMemory = 32 * mebibyte
	// What the sentry and the agent need beside what the user was promised.
	memoryOverhead = 48 * mebibyte
	// The agent's own bound; it sets the user's for each process.
	agentOpenFiles = 65536
	maxShm         = 64 * mebibyte
)

// completeLimits fills in the defaults.
func completeLimits(l *execv1.Limits) *execv1.Limits {
	full := &execv1.Limits{}
	if l != nil {
		full = proto.CloneOf(l)
	}
	if full.MemoryBytes == 0 {
		full.MemoryBytes = defaultMemory
	}
	if full.DiskBytes == 0 {
		full.DiskBytes = defaultDisk
	}
	if full.MaxProcesses == 0 {
		full.MaxProcesses = defaultProcesses
	}
	if full.MaxOpenFiles == 0 {
		full.MaxOpenFiles = defaultOpenFiles
	}
	return full
}

func checkLimits(l *execv1.Limits) error {
	switch {
	case l.GetMemoryBytes() < minMemory || l.GetMemoryBytes() > 1<<44:
		return fault(Invalid, "memory_bytes: %d (expected: at least %d)", l.GetMemoryBytes(), minMemory)
	case l.GetDiskBytes() < mebibyte || l.GetDiskBytes() > 1<<50:
		return fault(Invalid, "disk_bytes: %d (expected: at least %d)", l.GetDiskBytes(), mebibyte)
	case l.GetCpuMillis() != 0 && l.GetCpuMillis() < 10:
		// The kernel refuses quotas below 1 ms.
		return fault(Invalid, "cpu_millis: %d (expected: 0 for no limit, or at least 10)", l.GetCpuMillis())
	case l.GetMaxProcesses() > 1<<20:
		return fault(Invalid, "max_processes: %d (expected: at most %d)", l.GetMaxProcesses(), 1<<20)
	case l.GetMaxOpenFiles() > agentOpenFiles:
		return fault(Invalid, "max_open_files: %d (expected: at most %d)", l.GetMaxOpenFiles(), agentOpenFiles)
	}
	return nil
}

// groupLimits are what the host enforces. While a box warms up it has all the
// CPU it can get: the limit counts from assignment on.
func groupLimits(l *execv1.Limits, warming bool) cgroup.Limits {
	limits := cgroup.Limits{
		MemoryBytes: l.GetMemoryBytes() + memoryOverhead,
		CPUMillis:   l.GetCpuMillis(),
		// A guest process costs up to two host processes; the agent's own rlimit holds
		// a fork bomb, and this is only a backstop: reaching it ends the sentry.
		MaxPids: 4*uint64(l.GetMaxProcesses()) + 200,
	}
	if warming {
		limits.CPUMillis = 0
	}
	return limits
}

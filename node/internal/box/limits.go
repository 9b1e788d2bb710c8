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
	// What the host gives beyond what the user was promised, to which the agent's memory guard holds him: for the sentry and the agent
	// (measured: 25 MB), for each process the host's page tables and stacks (measured: 0.33 MB), and for what a program takes before
	// the guard sees it.
	memoryOverhead           = 48 * mebibyte
	memoryOverheadPerProcess = 384 << 10
	maxMemoryOverhead        = 512 * mebibyte
	// gVisor takes the group's limit at the start for the memory to show inside, and needs that much to start.
	minStartMemory = 96 * mebibyte
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
		MemoryBytes: l.GetMemoryBytes() + min(memoryOverhead+memoryOverheadPerProcess*uint64(l.GetMaxProcesses()), maxMemoryOverhead),
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

// warming says that nobody has the box yet. A build box is in use from its start.
func (b *box) warming() bool { return b.record.box.GetSandboxId() == "" && !b.record.build }

// startLimits hold until gVisor has started: programs inside then see the
// memory that the user was promised.
func startLimits(l *execv1.Limits) cgroup.Limits {
	limits := groupLimits(l, true)
	limits.MemoryBytes = max(l.GetMemoryBytes(), minStartMemory)
	return limits
}

package inner

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// limitRounds bounds the search for processes that were born while the limits of their parents were being changed.
const limitRounds = 20

// limit holds everything that runs, and whatever is started from now on, to new limits.
func (p *initProcess) limit(limits *Limits) error {
	// What is being started has either its old limits and is found below, or the new ones.
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, change := range []struct {
		name     string
		resource int
		value    uint64
	}{{"processes", unix.RLIMIT_NPROC, limits.Processes}, {"open files", unix.RLIMIT_NOFILE, limits.OpenFiles}} {
		if change.value == 0 {
			continue
		}
		var former unix.Rlimit
		if err := unix.Getrlimit(change.resource, &former); err != nil {
			return fmt.Errorf("limit of %s: %w", change.name, err)
		}
		limit := unix.Rlimit{Cur: change.value, Max: change.value}
		if err := unix.Setrlimit(change.resource, &limit); err != nil {
			return fmt.Errorf("limit of %s to %d: %w", change.name, change.value, err)
		}
		if former.Max == limit.Max {
			continue
		}
		if err := relimit(change.resource, former.Max, limit.Max); err != nil {
			return fmt.Errorf("limit of %s of what runs to %d: %w", change.name, change.value, err)
		}
	}
	return nil
}

// relimit changes a limit of every process that runs. A child has its parent's limits, so there is nobody left once a round finds
// nobody new.
func relimit(resource int, former, value uint64) error {
	seen := map[int]bool{}
	for range limitRounds {
		fresh := false
		for _, pid := range pids() {
			if seen[pid] {
				continue
			}
			seen[pid], fresh = true, true
			var has unix.Rlimit
			err := unix.Prlimit(pid, resource, nil, &has)
			if wanted := relimited(has, former, value); err == nil && wanted != has {
				err = unix.Prlimit(pid, resource, &wanted, nil)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !fresh {
			break
		}
	}
	return nil
}

// relimited is a process's limit after the sandbox's has changed. What it has lowered for itself stays below.
func relimited(has unix.Rlimit, former, value uint64) unix.Rlimit {
	if has.Max == former || has.Max > value {
		has.Max = value
	}
	if has.Cur == former || has.Cur > has.Max {
		has.Cur = has.Max
	}
	return has
}

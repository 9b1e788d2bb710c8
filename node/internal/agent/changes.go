package agent

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	execv1 "atoll/node/gen/execv1"
)

// How long the end of an execution waits for the list of its files. What was found until then is told.
const listingPatience = 300 * time.Millisecond

// changes is what it takes to tell which files an execution has changed; nil where nobody asked.
type changes struct {
	agent  *Agent
	folder string
	since  time.Time
}

// changesSince notes the present for an execution that is to list its files.
func (c *kernelContext) changesSince(e *execution) *changes {
	if !e.spec.ListFiles {
		return nil
	}
	// Files bear the time of this clock, which on Linux is some milliseconds behind the usual one.
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil
	}
	return &changes{agent: c.agent, folder: c.agent.cwdOf(c.spec), since: time.Unix(now.Unix())}
}

// list adds the changed files to the end of an execution. The time that this takes is not the execution's.
func (c *changes) list(e *execution, finished *execv1.Finished, tell func(*execv1.Finished)) {
	if c == nil {
		tell(finished)
		return
	}
	if finished.DurationUs == 0 {
		finished.DurationUs = max(1, e.ran().Microseconds())
	}
	ctx, cancel := context.WithTimeout(context.Background(), listingPatience)
	defer cancel()
	files, err := c.agent.files.Changed(ctx, c.folder, c.since)
	if err != nil {
		// The inner tree has died, or the folder is gone.
		files = &execv1.ChangedFiles{Incomplete: true}
	}
	finished.Files = files
	tell(finished)
}

package agent

import (
	"sync/atomic"
	"time"
)

// activityTime is how long the memory is watched closely after a process was last seen to do something. Beyond it a process that only
// waits, a server for instance, costs no CPU.
const activityTime = time.Minute

// activity says when a process last did something.
type activity struct {
	last  atomic.Int64 // nanoseconds since begin
	tells atomic.Bool  // the guard is told that something is busy
}

var activityBegin = time.Now()

// noteActivity notes that a process does something: it starts, prints or is written to.
func (a *Agent) noteActivity() {
	a.activity.last.Store(int64(time.Since(activityBegin)))
	if a.activity.tells.CompareAndSwap(false, true) {
		a.busy(1)
		time.AfterFunc(activityTime, a.checkActivity)
	}
}

func (a *Agent) checkActivity() {
	idle := time.Since(activityBegin) - time.Duration(a.activity.last.Load())
	if left := activityTime - idle; left > 0 {
		time.AfterFunc(left, a.checkActivity)
		return
	}
	a.activity.tells.Store(false)
	a.busy(-1)
}

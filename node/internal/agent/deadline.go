package agent

import (
	"log"
	"sync"
	"time"
)

const (
	// DeadlineStatus is the exit status of an agent that has ended its sandbox because nobody did so in time.
	DeadlineStatus = 124
	// So long after the deadline the agent ends the sandbox itself: the engine, which knows why and for whom, comes first.
	deadlineGrace = 60 * time.Second
	// How often the clock is looked at. The deadline is a moment of the wall clock, which can be set, and timers do not follow it.
	deadlineStep = 15 * time.Second
	// A look that comes so much too late, or finds that wall clock and timers have gone so far apart, follows a standstill (the sandbox
	// was stored and restored) or a change of the clock: whoever did that is given the grace again to say what is to hold now.
	deadlineLeap = 10 * time.Second
)

// deadline ends the sandbox some time after a moment of the wall clock, unless it is moved.
type deadline struct {
	end func() // does not return

	mu    sync.Mutex
	state deadlineState // guarded by mu
	timer *time.Timer   // nil: no deadline; guarded by mu
	armed int           // how often it was set: a tick of an older one does nothing; guarded by mu
}

// deadlineState is what is decided from, without clocks of its own.
type deadlineState struct {
	at       time.Time     // the deadline; wall clock
	lastWall time.Time     // of the last look
	lastRun  time.Duration // of the last look, on a clock that nobody sets
	dueRun   time.Duration // when the next look is to come
	notUntil time.Duration // the sandbox is not ended before, after a leap
}

// look says whether the time has come, and else how long to wait for the next look.
func (s *deadlineState) look(wall time.Time, run time.Duration) (over bool, wait time.Duration) {
	drift := wall.Sub(s.lastWall) - (run - s.lastRun)
	if late := run - s.dueRun; late > deadlineLeap || drift > deadlineLeap || drift < -deadlineLeap {
		s.notUntil = run + deadlineGrace
	}
	s.lastWall, s.lastRun = wall, run
	left := max(s.at.Add(deadlineGrace).Sub(wall), s.notUntil-run)
	if left <= 0 {
		return true, 0
	}
	wait = min(left, deadlineStep)
	s.dueRun = run + wait
	return false, wait
}

// wallNow carries no reading of the monotonic clock, so that differences are those of the wall clock.
func wallNow() time.Time { return time.Now().Round(0) }

func runningFor() time.Duration { return time.Since(activityBegin) }

// set makes unixMs the deadline, in place of what was set before. 0: there is none.
func (d *deadline) set(unixMs int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.armed++
	if unixMs == 0 {
		return
	}
	wall, run := wallNow(), runningFor()
	d.state = deadlineState{at: time.UnixMilli(unixMs), lastWall: wall, lastRun: run, dueRun: run}
	armed := d.armed
	// Even one that has long passed ends nothing in the middle of the hello that carries it.
	_, wait := d.state.look(wall, run)
	d.timer = time.AfterFunc(max(wait, time.Second), func() { d.tick(armed) })
}

func (d *deadline) tick(armed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed != armed {
		return
	}
	over, wait := d.state.look(wallNow(), runningFor())
	if over {
		log.Printf("the sandbox's deadline (%s) passed %s ago, and nobody has ended or moved it", d.state.at.UTC().Format(time.RFC3339), deadlineGrace)
		d.end()
		return
	}
	d.timer = time.AfterFunc(wait, func() { d.tick(armed) })
}

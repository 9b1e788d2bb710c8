package agent

import (
	"sync"
	"time"
)

// A time limit counts the time in which the sandbox ran. A sandbox that was stored for an hour and goes on must not find every limit
// passed, whether or not its clocks have moved meanwhile: so a limit is waited for in steps, and a step that ended much too late, as
// nothing ran in between, does not count.
const (
	shortestStep = time.Second
	longestStep  = 15 * time.Second
	stepsOfLimit = 16
	// A step that ends later than this was interrupted by a standstill. A busy machine delays timers too, so a limit disregards only so
	// many steps in a row.
	standstill    = 2 * time.Second
	maxDisregards = 2
)

// stopwatch is the rest of a time limit: a value that can be tested without waiting.
type stopwatch struct {
	left        time.Duration
	disregarded int
}

func (s stopwatch) step() time.Duration {
	return min(s.left, max(shortestStep, min(s.left/stepsOfLimit, longestStep)))
}

// after is what is left when a step has ended so much too late.
func (s stopwatch) after(step, late time.Duration) stopwatch {
	if late > standstill && s.disregarded < maxDisregards {
		return stopwatch{left: s.left, disregarded: s.disregarded + 1}
	}
	return stopwatch{left: s.left - step - max(0, late)}
}

// timeLimit calls a function once the sandbox has run for so long.
type timeLimit struct {
	act func()

	mu    sync.Mutex
	watch stopwatch     // guarded by mu
	size  time.Duration // of the step under way; guarded by mu
	due   time.Time     // guarded by mu
	timer *time.Timer   // nil once it is over; guarded by mu
}

func afterRunning(limit time.Duration, act func()) *timeLimit {
	t := &timeLimit{act: act, watch: stopwatch{left: limit}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	return t
}

// begin requires mu.
func (t *timeLimit) begin() {
	t.size = t.watch.step()
	t.due = time.Now().Add(t.size)
	t.timer = time.AfterFunc(t.size, t.tick)
}

func (t *timeLimit) tick() {
	t.mu.Lock()
	if t.timer == nil {
		t.mu.Unlock()
		return
	}
	t.watch = t.watch.after(t.size, time.Since(t.due))
	if t.watch.left > 0 {
		t.begin()
		t.mu.Unlock()
		return
	}
	t.timer = nil
	t.mu.Unlock()
	t.act()
}

// stop keeps the function from being called, unless it was already.
func (t *timeLimit) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// alarm is a time limit as a channel that is closed when it has passed.
type alarm struct {
	*timeLimit
	passed chan struct{}
}

func newAlarm(limit time.Duration) *alarm {
	a := &alarm{passed: make(chan struct{})}
	a.timeLimit = afterRunning(limit, func() { close(a.passed) })
	return a
}

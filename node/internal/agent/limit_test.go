package agent

import (
	"math/rand/v2"
	"testing"
	"time"
)

// elapse lets a stopwatch run to its end, each step late by what late says, and returns how long that took.
func elapse(limit time.Duration, late func(step int) time.Duration) time.Duration {
	took := time.Duration(0)
	watch := stopwatch{left: limit}
	for step := 0; watch.left > 0; step++ {
		size, delay := watch.step(), late(step)
		took += size + delay
		watch = watch.after(size, delay)
	}
	return took
}

func TestLimit_counts_the_time_in_which_the_sandbox_ran(t *testing.T) {
	for _, limit := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 5 * time.Second, time.Hour, maxTimeout} {
		if took := elapse(limit, func(int) time.Duration { return 0 }); took != limit {
			t.Errorf("%s: %s on an idle machine", limit, took)
		}
		slow := elapse(limit, func(int) time.Duration { return rand.N(standstill) })
		if slow < limit || slow > limit+standstill {
			t.Errorf("%s: %s on a machine whose timers are late", limit, slow)
		}
	}
}

func TestLimit_does_not_count_how_long_the_sandbox_was_stored(t *testing.T) {
	const stored = 10 * 24 * time.Hour
	for _, limit := range []time.Duration{300 * time.Millisecond, 5 * time.Second, time.Hour} {
		for at := range 3 {
			took := elapse(limit, func(step int) time.Duration {
				if step == at {
					return stored
				}
				return 0
			})
			if took >= stored { // there was such a step
				took -= stored
			}
			if took < limit || took > limit+longestStep {
				t.Errorf("%s, stored in step %d: %s", limit, at, took)
			}
		}
	}
}

func TestLimit_passes_however_late_all_timers_are(t *testing.T) {
	if took := elapse(time.Minute, func(int) time.Duration { return 3 * time.Second }); took > 4*time.Minute {
		t.Errorf("%s for a minute", took)
	}
}

func TestLimit_that_is_stopped_does_nothing(t *testing.T) {
	acted := make(chan struct{})
	other := afterRunning(time.Hour, func() { close(acted) })
	other.stop()
	limit := newAlarm(10 * time.Millisecond)
	<-limit.passed
	select {
	case <-acted:
		t.Error("it was stopped")
	default:
	}
	limit.stop()
}

// world is a sandbox's two clocks, and a deadline that is looked at as its timers say.
type world struct {
	wall  time.Time
	run   time.Duration
	state deadlineState
	wait  time.Duration
	over  bool
}

func newWorld(untilDeadline time.Duration) *world {
	w := &world{wall: time.Unix(1_800_000_000, 0), run: time.Hour}
	w.state = deadlineState{at: w.wall.Add(untilDeadline), lastWall: w.wall, lastRun: w.run, dueRun: w.run}
	w.look()
	return w
}

func (w *world) look() { w.over, w.wait = w.state.look(w.wall, w.run) }

// goes lets time pass, and says for how long it went on.
func (w *world) goes(limit time.Duration) time.Duration {
	gone := time.Duration(0)
	for !w.over && gone < limit {
		w.wall, w.run, gone = w.wall.Add(w.wait), w.run+w.wait, gone+w.wait
		w.look()
	}
	return gone
}

func TestDeadline_ends_the_sandbox_a_grace_after_it(t *testing.T) {
	for _, until := range []time.Duration{-time.Hour, -deadlineGrace, -time.Second, 0, time.Minute, 1000 * time.Hour} {
		w := newWorld(until)
		if gone, wanted := w.goes(2000*time.Hour), max(0, until+deadlineGrace); !w.over || gone != wanted {
			t.Errorf("%s: ended %t after %s (expected: after %s)", until, w.over, gone, wanted)
		}
	}
}

func TestDeadline_that_passed_while_the_sandbox_was_stored_leaves_time_for_a_new_one(t *testing.T) {
	for name, clocks := range map[string]struct{ wall, run time.Duration }{
		"the wall clock alone has moved": {24 * time.Hour, 0},
		"both clocks have moved":         {24 * time.Hour, 24 * time.Hour},
		"a clock that was set forward":   {time.Hour, 0},
	} {
		w := newWorld(30 * time.Minute)
		w.goes(5 * time.Minute)
		w.wall, w.run = w.wall.Add(clocks.wall), w.run+clocks.run
		w.look()
		if w.over {
			t.Errorf("%s: ended at once", name)
		}
		if gone := w.goes(time.Hour); !w.over || gone != deadlineGrace {
			t.Errorf("%s: ended %t after %s", name, w.over, gone)
		}
	}
}

func TestDeadline_follows_a_clock_that_was_set_back(t *testing.T) {
	w := newWorld(30 * time.Minute)
	w.wall = w.wall.Add(-time.Hour)
	w.look()
	if gone := w.goes(10 * time.Hour); !w.over || gone != 90*time.Minute+deadlineGrace {
		t.Errorf("ended %t after %s", w.over, gone)
	}
}

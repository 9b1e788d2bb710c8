package test

import (
	"encoding/json"
	"testing"
	"time"
)

// clocks are as the guest has them.
type clocks struct {
	Before, Boot, Real, Uptime, After, BootedAt, Started, Child, TimerFD, Interval, Loop, Alarms, Nap int64
	// sent and received are the host's clock around the question.
	sent, received time.Time
}

func (g *guest) clocks() clocks {
	g.t.Helper()
	c := clocks{sent: time.Now()}
	answer := g.ask("clocks")
	c.received = time.Now()
	if err := json.Unmarshal([]byte(answer), &c); err != nil {
		g.t.Fatalf("clocks: %q: %v", answer, err)
	}
	return c
}

// agree checks that all clocks of one sandbox tell the same.
func (c clocks) agree(t *testing.T, who string) {
	t.Helper()
	const (
		exact   = 5 * time.Millisecond
		hundred = 25 * time.Millisecond // /proc tells hundredths of a second
		second  = time.Second + hundred
	)
	within := func(what string, value, low, high int64, tolerance time.Duration) {
		if value < low-int64(tolerance) || value > high+int64(tolerance) {
			t.Errorf("%s: %s is %v (expected: %v to %v, give or take %v)", who, what, time.Duration(value), time.Duration(low), time.Duration(high), tolerance)
		}
	}
	within("the boot clock", c.Boot, c.Before, c.After, exact)
	within("the uptime", c.Uptime, c.Before, c.After, hundred)
	within("the wall clock", c.Real, c.sent.UnixNano(), c.received.UnixNano(), exact)
	within("the time of the boot", c.BootedAt, c.Real-c.After, c.Real-c.Before, second)
	// Between the readings and the answer, so at most that much later.
	within("a new process's start", c.Child, c.Before, c.After+c.received.Sub(c.sent).Nanoseconds(), hundred)
}

func TestTimeStandsStillInASnapshotButForTheWallClock(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	if got := source.ask("timers"); got != "ticking" {
		t.Fatal(got)
	}
	before := source.clocks()
	before.agree(t, "source")
	image := b.checkpoint("source")
	// How long the snapshot lies is what this test is about.
	lain := time.Now()
	time.Sleep(3 * time.Second)
	lay := time.Since(lain)
	for _, id := range []string{"copy", "copy-of-the-copy"} {
		restored := b.restore(id, image)
		after := restored.clocks()
		after.agree(t, id)
		const tick = 20 * time.Millisecond
		// The monotonic clock, and so what timers may have brought.
		elapsed := time.Duration(after.After - before.Before)
		most := after.received.Sub(before.sent) - lay
		if elapsed < 0 || elapsed > most {
			t.Errorf("%s: the monotonic clock advanced by %v (expected: 0 to %v, without the %v that the snapshot lay)", id, elapsed, most, lay)
		}
		for name, ticks := range map[string]int64{"timerfd": after.TimerFD - before.TimerFD, "ticker": after.Interval - before.Interval, "sleeping loop": after.Loop - before.Loop} {
			if most := int64(most/tick) + 2; ticks < 0 || ticks > most {
				t.Errorf("%s: %s fired %d times (expected: at most %d)", id, name, ticks, most)
			}
		}
		if after.Alarms != 0 {
			t.Errorf("%s: a timer of an hour fired", id)
		}
		if after.Started != before.Started {
			t.Errorf("%s: the first process started at %v (expected: %v as in the source)", id, time.Duration(after.Started), time.Duration(before.Started))
		}
		// And its timers go on.
		deadline := time.Now().Add(answerLimit)
		for now := after; now.TimerFD == after.TimerFD || now.Interval == after.Interval || now.Loop == after.Loop; now = restored.clocks() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: timers that stand still: %+v after %+v", id, now, after)
			}
		}
		// A sleep that began before the snapshot is as long as it was to be.
		nap := restored.clocks()
		for ; nap.Nap == 0 && time.Now().Before(deadline); nap = restored.clocks() {
			time.Sleep(tick)
		}
		if nap.Nap < (3200 * time.Millisecond).Nanoseconds() {
			t.Errorf("%s: a sleep of 3.2 s took %v", id, time.Duration(nap.Nap))
		}
		before = restored.clocks()
		image = b.checkpoint(id)
		lain = time.Now()
		time.Sleep(time.Second)
		lay = time.Since(lain)
	}
	last := source.clocks()
	last.agree(t, "the source afterwards")
}

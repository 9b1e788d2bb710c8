package test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSentryGivesBackWhatASnapshotNeeded(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	image := b.checkpoint("source")
	restored := b.restore("copy", image)
	restored.ask("count")
	source.ask("count")
	sandboxes := map[string]int{"source": b.sandboxPid("source"), "copy": b.sandboxPid("copy")}
	before := map[string]int{}
	for id, pid := range sandboxes {
		before[id] = anonymous(t, pid)
	}
	// Of its own, Go would collect after two minutes, and give back little.
	deadline := time.Now().Add(answerLimit)
	for id, pid := range sandboxes {
		for now := before[id]; now > before[id]*4/5; now = anonymous(t, pid) {
			if time.Now().After(deadline) {
				t.Fatalf("the sentry of the %s has %d kB, and had %d when all was done (expected: a fifth less)", id, now, before[id])
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%s: %d kB, then %d", id, before[id], anonymous(t, pid))
	}
	for name, g := range map[string]*guest{"source": source, "copy": restored} {
		if got := g.ask("count"); got != "2" {
			t.Errorf("count in the %s: %s (expected: 2)", name, got)
		}
	}
}

// What was never touched is neither read nor, for that, made: it took more than half of a snapshot's time.
func TestSnapshotLeavesUntouchedMemoryAlone(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	if got := source.ask("sparse"); got != "touched" {
		t.Fatal(got)
	}
	want := source.ask("sum")
	pid := b.sandboxPid("source")
	before := pageFaults(t, pid)
	image := b.checkpoint("source")
	faults := pageFaults(t, pid) - before
	const pages = 256 << 20 / 4096
	if t.Logf("%d page faults", faults); faults > pages/4 {
		t.Errorf("%d page faults in the sentry (expected: far less than the %d pages that nobody touched)", faults, pages)
	}
	restored := b.restore("copy", image)
	// Once more, of memory that has been in a snapshot, and of a copy.
	again := b.restore("again", b.checkpoint("copy"))
	for name, g := range map[string]*guest{"source": source, "copy": restored, "copy's copy": again} {
		if got := g.ask("sum"); got != want {
			t.Errorf("memory of the %s: %s (expected: %s)", name, got, want)
		}
	}
}

// pageFaults is how many a process has had that needed no reading.
func pageFaults(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	// The tenth field; the third is the first after the name.
	if n, err = strconv.Atoi(strings.Fields(after)[7]); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// anonymous is a process's memory that is nobody else's and no file's, in kB.
func anonymous(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nRssAnon:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

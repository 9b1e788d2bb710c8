package test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stateFile is where runsc keeps what it knows of a container.
func (b *bench) stateFile(id string) string {
	return filepath.Join(b.folder, "root", id+"_sandbox:"+id+".state")
}

func TestFileOfAContainerIsReplacedAsAWhole(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, b.stateFile("source"), unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"pause", "resume"} {
		if text, err := b.command(operation, "source").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", operation, err, text)
		}
	}
	// Who writes into the file itself leaves half of it, or nothing, when it is killed.
	events := make([]byte, 4096)
	n, err := unix.Read(watch, events)
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&events[at]))
		if event.Mask&unix.IN_MODIFY != 0 {
			t.Fatal("the file was written into (expected: replaced)")
		}
		at += unix.SizeofInotifyEvent + int(event.Len)
	}
	if got := source.ask("count"); got != "1" {
		t.Errorf("count: %s (expected: 1)", got)
	}
}

func TestWhatRunsAndIsOnFileAsPausedCanBeResumed(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	must := func(operation string) {
		t.Helper()
		if text, err := b.command(operation, "source").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", operation, err, text)
		}
	}
	must("pause")
	paused, err := os.ReadFile(b.stateFile("source"))
	if err != nil {
		t.Fatal(err)
	}
	must("resume")
	// As left by a runsc that was killed before the sandbox stood still, or after it went on.
	if err := os.WriteFile(b.stateFile("source"), paused, 0o640); err != nil {
		t.Fatal(err)
	}
	must("resume")
	if got := source.ask("count"); got != "1" {
		t.Errorf("count: %s (expected: 1)", got)
	}
	must("pause")
	must("resume")
	if got := source.ask("count"); got != "2" {
		t.Errorf("count: %s (expected: 2)", got)
	}
}

func TestSandboxGoesOnWhereverItsPauseIsKilled(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	source.ask("count")
	began := time.Now()
	for _, operation := range []string{"pause", "resume"} {
		if text, err := b.command(operation, "source").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", operation, err, text)
		}
	}
	both := time.Since(began)
	const rounds = 100
	for round := range rounds {
		pause := b.command("pause", "source")
		if err := pause.Start(); err != nil {
			t.Fatal(err)
		}
		// Over all of a pause, and a little more.
		time.Sleep(both * time.Duration(round) / rounds)
		_ = pause.Process.Kill()
		_ = pause.Wait()
		text, err := b.command("resume", "source").CombinedOutput()
		if err != nil && !strings.Contains(string(text), "in state running") {
			t.Fatalf("resume after a kill in the middle of a pause: %v\n%s", err, text)
		}
		if got := source.ask("nothing"); got != "unknown" {
			t.Fatalf("round %d: %s (expected: an answer)", round, got)
		}
	}
	if left, err := os.ReadFile(b.stateFile("source")); err != nil || !bytes.HasPrefix(left, []byte("{")) {
		t.Errorf("%q, %v", left, err)
	}
}

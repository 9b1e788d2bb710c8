package test

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"
)

func TestInputThatComesWhileASnapshotIsMadeIsForTheSourceAlone(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	asked := 0
	ask := func() {
		t.Helper()
		asked++
		if _, err := io.WriteString(source.in, "count\n"); err != nil {
			t.Fatal(err)
		}
	}
	answered := func() {
		t.Helper()
		if got := source.next(); got != fmt.Sprint(asked) {
			t.Fatalf("answer %s (expected: %d)", got, asked)
		}
	}
	// Paused, so that for certain the input is there and not read.
	for round := range 3 {
		if text, err := b.command("pause", "source").CombinedOutput(); err != nil {
			t.Fatalf("pause: %v\n%s", err, text)
		}
		ask()
		image := filepath.Join(b.folder, fmt.Sprintf("paused-%d", round))
		for _, arguments := range [][]string{{"checkpoint", "--leave-running", "--image-path=" + image, "source"}, {"resume", "source"}} {
			if text, err := b.command(arguments...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", arguments, err, text)
			}
		}
		answered()
		id := fmt.Sprintf("copy-%d", round)
		restored := b.restore(id, image)
		// Were the source's question in it, its answer would be the first.
		if got := restored.ask("nothing"); got != "unknown" {
			t.Errorf("%s answers %q to what was asked of its source", id, got)
		}
		if got := restored.ask("count"); got != fmt.Sprint(asked) {
			t.Errorf("%s answers %s (expected: %d, as who was not asked yet)", id, got, asked)
		}
	}
	// And while it runs, at all moments of the snapshot.
	for round := range 20 {
		image := filepath.Join(b.folder, fmt.Sprintf("running-%d", round))
		checkpoint := b.command("checkpoint", "--leave-running", "--image-path="+image, "source")
		if err := checkpoint.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round) * 2 * time.Millisecond)
		ask()
		answered()
		if err := checkpoint.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

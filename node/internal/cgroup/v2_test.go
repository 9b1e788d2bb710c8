package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryLimitBelowWhatIsInUseIsRefusedAndKillsNobody(t *testing.T) {
	// Room for the race detector, which takes several bytes for each.
	g := create(t, hierarchy(t), Limits{MemoryBytes: 1 << 30})
	c := startChild(t, g)
	if answer := c.say("allocate 128"); answer != "done" {
		t.Fatal(answer)
	}
	if err := g.Set(Limits{MemoryBytes: 64 << 20}); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("%v (expected: busy)", err)
	}
	if answer := c.say("allocate 32"); answer != "done" {
		t.Fatalf("after the refusal: %s", answer)
	}
	if oom, err := g.OutOfMemory(); err != nil || oom.Kills != 0 || oom.LimitBytes != 1<<30 {
		t.Fatalf("%+v, %v (expected: no kill, and the limit as it was)", oom, err)
	}
}

func TestLimitStandsForThePeakOnKernelsThatKeepNone(t *testing.T) {
	root := t.TempDir()
	g := (&v2{root: root, parent: "atoll-x"}).Open("box-1")
	for name, text := range map[string]string{"memory.events": "low 0\noom 1\noom_kill 3\n", "memory.max": "67108864\n"} {
		path := filepath.Join(root, "atoll-x", "box-1", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if oom, err := g.OutOfMemory(); err != nil || (oom != OutOfMemory{Kills: 3, PeakBytes: 64 << 20, LimitBytes: 64 << 20}) {
		t.Fatalf("%+v, %v", oom, err)
	}
}

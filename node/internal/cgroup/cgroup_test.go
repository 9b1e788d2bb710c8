package cgroup

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests take the host's hierarchy as they find it, version 1 or 2, and make real groups in it. They need root.

// helperVariable makes the test binary a process that obeys lines on its standard input.
const helperVariable = "ATOLL_CGROUP_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		helper()
		return
	}
	os.Exit(m.Run())
}

var sink [][]byte

// helper answers each line when it has done what it says.
func helper() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var n int
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "allocate "):
			_, _ = fmt.Sscanf(line, "allocate %d", &n)
			for range n {
				b := make([]byte, 1<<20)
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1
				}
				sink = append(sink, b)
			}
			fmt.Println("done")
		case strings.HasPrefix(line, "spin "):
			_, _ = fmt.Sscanf(line, "spin %d", &n)
			for end := time.Now().Add(time.Duration(n) * time.Millisecond); time.Now().Before(end); {
			}
			fmt.Println("done")
		case strings.HasPrefix(line, "fork "):
			_, _ = fmt.Sscanf(line, "fork %d", &n)
			started := 0
			for range n {
				c := exec.Command("/bin/sleep", "60")
				c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
				if c.Start() == nil {
					started++
				}
			}
			fmt.Println("started", started)
		}
	}
}

type child struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startChild(t *testing.T, g Group) *child {
	t.Helper()
	c := &child{t: t, command: exec.Command("/proc/self/exe")}
	c.command.Env = append(os.Environ(), helperVariable+"=1", "GOMAXPROCS=1")
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close() })
	c.command.Stdin, c.command.Stdout = theirIn, theirOut
	c.in, c.out = in, bufio.NewReader(out)
	err = c.command.Start()
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() {
		_ = c.command.Wait()
		close(reaped)
	}()
	t.Cleanup(func() {
		_ = c.command.Process.Kill()
		<-reaped
	})
	if err := g.Add(c.command.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) say(line string) string {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return err.Error()
	}
	answer, err := c.out.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(answer)
}

func hierarchy(t *testing.T) Hierarchy {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("control groups need root (remedy: run the tests with sudo)")
	}
	h, err := Detect(Root, fmt.Sprintf("cgtest%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		boxes, err := h.Boxes()
		if err != nil {
			t.Error(err)
		}
		for _, box := range boxes {
			if err := h.Open(box).Remove(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if err := h.Remove(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(Root + "/*/atoll-cgtest*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return h
}

func create(t *testing.T, h Hierarchy, limits Limits) Group {
	t.Helper()
	g, err := h.Create("box-1", limits)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestMemoryAboveTheLimitIsRecordedAsOutOfMemory(t *testing.T) {
	g := create(t, hierarchy(t), Limits{MemoryBytes: 64 << 20})
	c := startChild(t, g)
	if before, err := g.OutOfMemory(); err != nil || before.Kills != 0 {
		t.Fatalf("%+v, %v (expected: nothing recorded)", before, err)
	}
	if answer := c.say("allocate 128"); answer == "done" {
		t.Fatal("128 MiB were allocated within a limit of 64 MiB")
	}
	oom, err := g.OutOfMemory()
	if err != nil {
		t.Fatal(err)
	}
	if oom.Kills == 0 || oom.LimitBytes != 64<<20 || oom.PeakBytes < 60<<20 || oom.PeakBytes > 65<<20 {
		t.Fatalf("%+v (expected: a kill, limit 64 MiB, peak near it)", oom)
	}
}

func TestMemoryLimitCanBeRaisedAndLoweredWhileTheBoxRuns(t *testing.T) {
	g := create(t, hierarchy(t), Limits{MemoryBytes: 64 << 20})
	c := startChild(t, g)
	for _, mib := range []uint64{256, 200, 300} {
		if err := g.Set(Limits{MemoryBytes: mib << 20}); err != nil {
			t.Fatalf("to %d MiB: %v", mib, err)
		}
	}
	if answer := c.say("allocate 128"); answer != "done" {
		t.Fatalf("128 MiB within a raised limit: %s", answer)
	}
	usage, err := g.Usage()
	if err != nil || usage.MemoryBytes < 120<<20 || usage.PeakBytes < usage.MemoryBytes {
		t.Fatalf("usage %+v, %v (expected: above 120 MiB)", usage, err)
	}
}

func TestCPULimitCanBeChangedWhileTheBoxRuns(t *testing.T) {
	g := create(t, hierarchy(t), Limits{})
	c := startChild(t, g)
	for _, millis := range []uint32{100, 300} {
		if err := g.Set(Limits{CPUMillis: millis}); err != nil {
			t.Fatal(err)
		}
		before := cpuTime(t, c.command.Process.Pid)
		began := time.Now()
		c.say("spin 1000")
		share := float64(cpuTime(t, c.command.Process.Pid)-before) / float64(time.Since(began))
		if limit := float64(millis) / 1000; share > 1.4*limit+0.03 {
			t.Errorf("used %.2f of a CPU (expected: at most %.2f)", share, limit)
		}
	}
	if usage, err := g.Usage(); err != nil || usage.Throttled == 0 || usage.Processes != 1 {
		t.Errorf("usage %+v, %v (expected: one process, held up for a while)", usage, err)
	}
}

// cpuTime is read from the process, so that it is not the group's own word.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100)
}

func TestProcessesAboveTheLimitAreRefused(t *testing.T) {
	g := create(t, hierarchy(t), Limits{MaxPids: 30})
	c := startChild(t, g)
	var started int
	if _, err := fmt.Sscanf(c.say("fork 60"), "started %d", &started); err != nil {
		t.Fatal(err)
	}
	if started == 0 || started >= 30 {
		t.Fatalf("%d processes started (expected: some, below 30)", started)
	}
}

func TestRemoveKillsWhatIsLeft(t *testing.T) {
	h := hierarchy(t)
	g := create(t, h, Limits{})
	c := startChild(t, g)
	c.say("fork 5")
	pids, err := g.Pids()
	if err != nil || len(pids) < 6 || !slices.Contains(pids, c.command.Process.Pid) {
		t.Fatalf("pids %v, %v (expected: the child and five more)", pids, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := g.Remove(ctx); err != nil {
		t.Fatal(err)
	}
	if g.Exists() {
		t.Fatal("the group is still there")
	}
	if err := g.Remove(ctx); err != nil {
		t.Fatalf("removing it again: %v", err)
	}
}

func TestBoxesListsGroupsThatExist(t *testing.T) {
	h := hierarchy(t)
	if boxes, err := h.Boxes(); err != nil || len(boxes) != 0 {
		t.Fatalf("%v, %v (expected: none)", boxes, err)
	}
	create(t, h, Limits{})
	if boxes, err := h.Boxes(); err != nil || !slices.Equal(boxes, []string{"box-1"}) {
		t.Fatalf("%v, %v (expected: box-1)", boxes, err)
	}
	if _, err := h.Create("box-1", Limits{}); err == nil {
		t.Fatal("a group was made twice")
	}
}

func TestPathIsTheOneProcessesSee(t *testing.T) {
	g := create(t, hierarchy(t), Limits{})
	c := startChild(t, g)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), ":"+g.Path()+"\n") {
		t.Fatalf("path %s, but the process is in:\n%s", g.Path(), text)
	}
}

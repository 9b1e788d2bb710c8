// Package vm holds the engine's contract with the host's kernel. The tests take control groups as they find them: on the machine at hand, and by test.sh on a
// kernel with version 2.
package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/engine/enginetest"
)

const mebibyte = 1 << 20

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.RemoveBuild()
	os.Exit(code)
}

// start starts an engine, and checks at the end that purge leaves nothing of its instance.
func start(t *testing.T) *enginetest.Engine {
	t.Helper()
	var e *enginetest.Engine
	t.Cleanup(func() {
		if e != nil {
			enginetest.NothingRemains(t, "atoll-"+e.Instance, "/run")
		}
		// Where the engine had to make room for its groups, all is as it was.
		if left, err := filepath.Glob(filepath.Join(cgroup.Root, "atoll-rest")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	e = enginetest.Start(t)
	return e
}

// limits with few processes, since the host gives some memory beyond the limit for each of them.
func limits(mib uint64, cpuMillis uint32) *execv1.Limits {
	return &execv1.Limits{MemoryBytes: mib * mebibyte, CpuMillis: cpuMillis, MaxProcesses: 16, MaxOpenFiles: 8192}
}

// sandbox makes and assigns a box with a Python context and 192 MiB of memory.
func sandbox(t *testing.T, e *enginetest.Engine) *enginetest.Sandbox {
	t.Helper()
	request := e.Request(t.Context(), "python", "python")
	request.Spec.Limits = limits(192, 1000)
	if _, err := e.CreateBox(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AssignBox(t.Context(), &enginev1.AssignBoxRequest{BoxId: request.GetBoxId(), SandboxId: enginetest.NewID("sb-exec"), Hostname: "box"}); err != nil {
		t.Fatal(err)
	}
	return e.Sandbox(request)
}

func group(t *testing.T, e *enginetest.Engine, box string) cgroup.Group {
	t.Helper()
	h, err := cgroup.Detect(cgroup.Root, e.Instance)
	if err != nil {
		t.Fatal(err)
	}
	return h.Open(box)
}

func wantOutput(t *testing.T, r *enginetest.Result, want string) {
	t.Helper()
	if string(r.Stdout) != want || r.Finished.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED {
		t.Fatalf("output %q, errors %q, end %v (expected: output %q)", r.Stdout, r.Stderr, r.Finished, want)
	}
}

// limit is the kernel's, which is the user's and a constant for the sentry and the agent.
func limit(t *testing.T, g cgroup.Group) uint64 {
	t.Helper()
	oom, err := g.OutOfMemory()
	if err != nil {
		t.Fatal(err)
	}
	return oom.LimitBytes
}

func share(t *testing.T, e *enginetest.Engine, box *enginetest.Sandbox) float64 {
	t.Helper()
	before, began := e.CPUOf(box.Box), time.Now()
	box.Run(t.Context(), "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass")
	return float64(e.CPUOf(box.Box)-before) / float64(time.Since(began))
}

// One sandbox for all, since starting one on an emulated machine takes longer than everything else.
func TestSandboxOnThisKernel(t *testing.T) {
	e := start(t)
	box := sandbox(t, e)
	g := group(t, e, box.Box)
	var overhead uint64

	t.Run("EachOfItsProcessesIsInItsGroup", func(t *testing.T) {
		members, err := g.Pids()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, line := range enginetest.Remains(box.Box) {
			var pid int
			if _, err := fmt.Sscanf(line, "process %d ", &pid); err != nil || pid == e.Pid() {
				continue
			}
			found++
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
			if err != nil || !strings.Contains(string(text), ":"+g.Path()+"\n") {
				t.Errorf("%s: %v, in:\n%s", line, err, text)
			}
		}
		if found == 0 || len(members) == 0 {
			t.Fatalf("%d processes carry its name, %v are in its group (expected: some)", found, members)
		}
	})

	t.Run("MemoryLimitIsSetAndChangesLive", func(t *testing.T) {
		overhead = limit(t, g) - 192*mebibyte
		if overhead == 0 || overhead > 100*mebibyte {
			t.Fatalf("limit %d bytes (expected: 192 MiB and a little)", limit(t, g))
		}
		for _, mib := range []uint64{256, 160} {
			if _, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{BoxId: box.Box, Limits: limits(mib, 1000)}); err != nil {
				t.Fatal(err)
			}
			if have := limit(t, g); have != mib*mebibyte+overhead {
				t.Fatalf("limit %d bytes (expected: %d MiB and %d)", have, mib, overhead)
			}
		}
		wantOutput(t, box.Run(t.Context(), "kept = b'x' * (80 << 20)\nprint(len(kept) >> 20)"), "80\n")
	})

	t.Run("MemoryLimitBelowWhatItUsesIsRefusedAndItLivesOn", func(t *testing.T) {
		_, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{BoxId: box.Box, Limits: limits(32, 1000)})
		if err == nil || !strings.Contains(err.Error(), "less than what is in use") || strings.Contains(err.Error(), "cgroup") {
			t.Fatalf("%v (expected: refused)", err)
		}
		wantOutput(t, box.Run(t.Context(), "print(len(kept) >> 20)"), "80\n")
	})

	t.Run("CPULimitHoldsAndChangesLive", func(t *testing.T) {
		for _, millis := range []uint32{200, 600} {
			if _, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{
				BoxId: box.Box, Limits: limits(160, millis),
			}); err != nil {
				t.Fatal(err)
			}
			used := share(t, e, box)
			if most := float64(millis)/1000*1.3 + 0.05; used > most {
				t.Errorf("used %.2f of a CPU (expected: at most %.2f)", used, most)
			}
			t.Logf("used %.2f of a CPU of %.2f", used, float64(millis)/1000)
		}
	})

	t.Run("IsTakenOverWhenTheEngineWasKilled", func(t *testing.T) {
		id := enginetest.NewID("exec")
		stream, err := box.Begin(t.Context(), id, "import time\nfor i in range(20):\n    print(i, flush=True); time.sleep(0.05)\nprint(len(kept) >> 20)")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		e.Kill()
		e.Launch()
		var want strings.Builder
		for i := range 20 {
			fmt.Fprintln(&want, i)
		}
		want.WriteString("80\n")
		r := &enginetest.Result{ID: id}
		enginetest.Await(t, 10*time.Second, func() (bool, string) {
			stream, err := e.Attach(t.Context(), &enginev1.AttachRequest{BoxId: box.Box, ExecutionId: id, AfterSeq: r.LastSeq})
			if err == nil {
				err = enginetest.Collect(stream, r)
			}
			return err == nil, fmt.Sprint(err)
		})
		wantOutput(t, r, want.String())
		if have := limit(t, g); have != 160*mebibyte+overhead {
			t.Fatalf("limit %d bytes after the take-over (expected: 160 MiB and %d)", have, overhead)
		}
	})

	t.Run("EndsForWantOfMemoryWithLimitAndPeak", func(t *testing.T) {
		// What pipes hold is the sentry's own memory, which the agent's guard doesn't see: the kernel has to act.
		stream, err := box.Begin(t.Context(), enginetest.NewID("exec"), "import os\npipes = []\nprint('begin', flush=True)\n"+
			"for _ in range(3500):\n    pipe = os.pipe(); pipes.append(pipe); os.write(pipe[1], bytes(65536))")
		if err != nil {
			t.Fatal(err)
		}
		r := &enginetest.Result{}
		if err := enginetest.Collect(stream, r); err != nil {
			t.Fatal(err)
		}
		if r.Finished.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || string(r.Stdout) != "begin\n" {
			t.Fatalf("output %q, end %v (expected: out of memory)", r.Stdout, r.Finished)
		}
		var b *enginev1.Box
		enginetest.Await(t, 5*time.Second, func() (bool, string) {
			b, err = e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
			return err == nil && b.GetState() == enginev1.BoxState_BOX_STATE_ENDED, fmt.Sprint(b, err)
		})
		peak := b.GetMemoryPeakBytes()
		if b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_OUT_OF_MEMORY || b.GetMemoryLimitBytes() != 160*mebibyte ||
			peak < 160*mebibyte || peak > 160*mebibyte+overhead+mebibyte {
			t.Fatalf("%v (expected: out of memory, limit 160 MiB, peak near it)", b)
		}
	})

	t.Run("LeavesNothingOnTheHost", func(t *testing.T) {
		enginetest.NothingRemains(t, box.Box, e.Run)
		box.Delete(t.Context())
		enginetest.NothingRemains(t, box.Box, e.Run, filepath.Join(e.Data, "boxes"))
	})
}

// Wherever the engine finds itself, it makes groups that hold, and purge removes them with what is in them.
func TestSandboxOfAKilledEngineGoesWithItsInstance(t *testing.T) {
	e := start(t)
	box := sandbox(t, e)
	if have := limit(t, group(t, e, box.Box)); have < 192*mebibyte || have > 292*mebibyte {
		t.Errorf("limit %d bytes (expected: 192 MiB and a little)", have)
	}
	box.Run(t.Context(), "x = 1")
	e.Kill()
	e.Launch()
	enginetest.Await(t, 10*time.Second, func() (bool, string) {
		r, err := box.TryRun(t.Context(), "print(x + 1)")
		return err == nil && string(r.Stdout) == "2\n", fmt.Sprint(r, err)
	})
}

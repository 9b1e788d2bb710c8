package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/cgroup"
)

// Measure reports the medians of what drivers take for operations on a sandbox whose programs hold so many megabytes of random bytes. The
// drivers take turns, so that a machine that is busy now and then is so for all of them.
func Measure(b *testing.B, subjects map[string]Subject, megabytes, rounds int) {
	names := []string{}
	for name := range subjects {
		names = append(names, name)
	}
	slices.Sort(names)
	took := map[string][]float64{}
	record := func(name, operation string, f func() error) {
		began := time.Now()
		if err := f(); err != nil {
			b.Fatalf("%s %s: %v", name, operation, err)
		}
		took[operation+"-"+name] = append(took[operation+"-"+name], float64(time.Since(began).Microseconds())/1000)
	}
	roomy := func(box *sandbox) {
		if err := box.group.Set(cgroup.Limits{MemoryBytes: uint64(304+2*megabytes) << 20}); err != nil {
			b.Fatal(err)
		}
	}
	sources := map[string]*sandbox{}
	for i, name := range names {
		source := subjects[name].make(b, fmt.Sprintf("box-source%020d", i))
		roomy(source)
		_, err := subjects[name].Driver.Prepare(b.Context(), source.spec)
		source.check(b, err)
		source.check(b, subjects[name].Driver.Launch(b.Context(), source.spec.ID, source.spec.Dir, ""))
		l := source.dial(b, 1).startCat()
		l.write("here\n")
		l.expect("here\n")
		if megabytes > 0 {
			l.hold(megabytes)
		}
		l.session.Close()
		sources[name] = source
	}
	for round := range rounds {
		for i, name := range names {
			s, source := subjects[name], sources[name]
			ctx, dir, id := b.Context(), source.spec.Dir, source.spec.ID
			image := filepath.Join(b.TempDir(), "image")
			record(name, "checkpoint", func() error { return s.Driver.Checkpoint(ctx, id, dir, "", image) })
			record(name, "pause", func() error { return s.Driver.Pause(ctx, id, dir, "") })
			record(name, "resume", func() error { return s.Driver.Resume(ctx, id, dir, "") })
			target := s.make(b, fmt.Sprintf("box-target%012d%08d", round, i)).become(source)
			roomy(target)
			var err error
			record(name, "prepare", func() error { target.pid, err = s.Driver.Prepare(ctx, target.spec); return err })
			record(name, "restore", func() error { return s.Driver.Restore(ctx, target.spec.ID, target.spec.Dir, "", image) })
			if round == 0 {
				target.dial(b, 2)
				b.ReportMetric(pss(b, target.group), "PSS-MB-restored-"+name)
				b.ReportMetric(pss(b, source.group), "PSS-MB-source-"+name)
			}
			record(name, "delete", func() error { return s.Driver.Delete(ctx, target.spec.ID, "") })
			target.remove(b, s)
			if err := os.RemoveAll(image); err != nil {
				b.Fatal(err)
			}
		}
	}
	for what, times := range took {
		slices.Sort(times)
		b.ReportMetric(times[len(times)/2], what+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// hold has a program in the sandbox that keeps so many megabytes of random bytes.
func (l *line) hold(megabytes int) {
	l.t.Helper()
	stream, err := l.session.Open(context.Background(), agentrpc.Execute)
	l.box.check(l.t, err)
	code := fmt.Sprintf("import os,time; x=[os.urandom(1<<20) for _ in range(%d)]; print('held',flush=True); time.sleep(1e6)", megabytes)
	l.box.check(l.t, stream.Send(&agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_StartProcess{StartProcess: &execv1.ProcessSpec{
		ProcessId: "proc-bbbbbbbbbbbbbbbbbbbbbbbbbb", Argv: []string{"python3", "-c", code},
	}}}))
	for text := ""; !strings.Contains(text, "held"); {
		event := &execv1.ExecutionEvent{}
		l.box.check(l.t, stream.Receive(event))
		if event.GetFinished() != nil {
			l.t.Fatalf("the program ended: %q %v", text, event)
		}
		text += string(event.GetOutput().GetData())
	}
}

// pss is the proportional memory of all processes of a group, in megabytes.
func pss(t testing.TB, group cgroup.Group) float64 {
	t.Helper()
	pids, err := group.Pids()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(text), "\n") {
			if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
				kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
				if err != nil {
					t.Fatal(err)
				}
				total += kilobytes
			}
		}
	}
	return float64(total) / 1024
}

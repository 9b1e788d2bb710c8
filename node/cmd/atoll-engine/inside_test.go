package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/engine"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/patience"
)

func python(code string) *execv1.ProcessSpec {
	return &execv1.ProcessSpec{ProcessId: enginetest.NewID("proc"), Argv: []string{"python3", "-uc", code}}
}

func startProcess(t testing.TB, e *enginetest.Engine, box string, spec *execv1.ProcessSpec) *execv1.Process {
	t.Helper()
	p, err := e.StartProcess(t.Context(), &enginev1.StartProcessRequest{BoxId: box, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func waitProcess(t testing.TB, e *enginetest.Engine, box, id string) *execv1.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(60*time.Second))
	defer cancel()
	p, err := e.WaitProcess(ctx, &enginev1.ProcessRequest{BoxId: box, ProcessId: id})
	if err != nil || p.GetRunning() {
		t.Fatalf("%v, %v (expected: ended)", p, err)
	}
	return p
}

// outputOf reads one stream, or both, from an offset on to the end.
func outputOf(t testing.TB, e *enginetest.Engine, box, id string, stream execv1.Stream, offset uint64) string {
	t.Helper()
	pieces, err := e.ReadOutput(t.Context(), &enginev1.ReadOutputRequest{BoxId: box, ExecutionId: id, Stream: stream, Offset: offset, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for {
		piece, err := pieces.Recv()
		if errors.Is(err, io.EOF) {
			return string(all)
		}
		if err != nil {
			t.Fatal(err)
		}
		if piece.GetOffset() != offset+uint64(len(all)) {
			t.Fatalf("a piece at %d (expected: %d)", piece.GetOffset(), offset+uint64(len(all)))
		}
		all = append(all, piece.GetData()...)
	}
}

func TestProcessIsStartedReadAndWaitedFor(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	spec := python("import sys, os\nfor i in range(3):\n  print('out', i); print('err', i, file=sys.stderr)\nprint(os.getcwd(), os.environ['COLOUR']); sys.exit(7)")
	spec.Cwd, spec.Env = "/tmp", map[string]string{"COLOUR": "red"}
	p := startProcess(t, e, box.Box, spec)
	if p.GetPid() <= 0 || p.GetStartedAtUnixMs() == 0 {
		t.Fatalf("%v", p)
	}
	f := waitProcess(t, e, box.Box, spec.GetProcessId()).GetFinished()
	if f.GetReason() != execv1.ExitReason_EXIT_REASON_EXITED || f.GetExitCode() != 7 {
		t.Fatalf("%v", f)
	}
	const out, err = "out 0\nout 1\nout 2\n/tmp red\n", "err 0\nerr 1\nerr 2\n"
	id := spec.GetProcessId()
	if got := outputOf(t, e, box.Box, id, execv1.Stream_STREAM_STDOUT, 0); got != out {
		t.Errorf("stdout %q", got)
	}
	if got := outputOf(t, e, box.Box, id, execv1.Stream_STREAM_STDERR, 6); got != err[6:] {
		t.Errorf("stderr from 6 on %q", got)
	}
	both := outputOf(t, e, box.Box, id, execv1.Stream_STREAM_COMBINED, 0)
	if len(both) != len(out)+len(err) || outputOf(t, e, box.Box, id, execv1.Stream_STREAM_COMBINED, 10) != both[10:] {
		t.Errorf("both %q", both)
	}
	var trailer metadata.MD
	_, missing := e.StartProcess(t.Context(), &enginev1.StartProcessRequest{BoxId: box.Box, Spec: &execv1.ProcessSpec{
		ProcessId: enginetest.NewID("proc"), Argv: []string{"no-such-program"},
	}}, grpc.Trailer(&trailer))
	wantCode(t, missing, codes.NotFound)
	if len(trailer.Get(engine.AnsweredKey)) != 1 {
		t.Errorf("trailer %v (expected: that it is the agent's answer)", trailer)
	}
	if !strings.Contains(missing.Error(), "no-such-program") {
		t.Errorf("%v (expected: the program's name)", missing)
	}
	if list, err := e.ListProcesses(t.Context(), &enginev1.ListProcessesRequest{}); err != nil || len(list.GetProcesses()) != 1 {
		t.Errorf("%v, %v (expected: the one that was started)", list, err)
	}
}

// partOf is what a process has said, once that is so much.
func partOf(t *testing.T, e *enginetest.Engine, box, id string, least int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(30*time.Second))
	defer cancel()
	pieces, err := e.ReadOutput(ctx, &enginev1.ReadOutputRequest{BoxId: box, ExecutionId: id, Stream: execv1.Stream_STREAM_STDOUT, Follow: true})
	var all []byte
	for err == nil && len(all) < least {
		var piece *enginev1.OutputPiece
		piece, err = pieces.Recv()
		all = append(all, piece.GetData()...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func TestOutputOfAProcessStaysAfterItsEndAndItsBoxs(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	ended := python("print('ended')")
	startProcess(t, e, box.Box, ended)
	waitProcess(t, e, box.Box, ended.GetProcessId())
	running := python("print('running')\nimport time; time.sleep(1000)")
	startProcess(t, e, box.Box, running)
	partOf(t, e, box.Box, running.GetProcessId(), 8)
	box.Delete(t.Context())
	for range 2 {
		for id, want := range map[string]execv1.ExitReason{
			ended.GetProcessId(): execv1.ExitReason_EXIT_REASON_EXITED, running.GetProcessId(): execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED,
		} {
			if f := waitProcess(t, e, box.Box, id).GetFinished(); f.GetReason() != want {
				t.Fatalf("%v (expected: %v)", f, want)
			}
		}
		if got := outputOf(t, e, box.Box, running.GetProcessId(), execv1.Stream_STREAM_COMBINED, 0); got != "running\n" {
			t.Fatalf("%q", got)
		}
		e.Kill()
		e.Launch()
	}
	r := attach(t, e, box.Box, ended.GetProcessId(), 0)
	if string(r.Stdout) != "ended\n" {
		t.Fatalf("%q", r.Stdout)
	}
}

func TestMemoryBombInAProcessIsReportedAsOutOfMemory(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	spec := python("print('before')\ndata = []\nwhile True: data.append(bytearray(8 << 20))")
	startProcess(t, e, box.Box, spec)
	f := waitProcess(t, e, box.Box, spec.GetProcessId()).GetFinished()
	if f.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || f.GetMemoryLimitBytes() == 0 || f.GetMemoryPeakBytes() == 0 || f.GetDetail() == "" {
		t.Fatalf("%v (expected: out of memory, with limit and peak)", f)
	}
	if got := outputOf(t, e, box.Box, spec.GetProcessId(), execv1.Stream_STREAM_STDOUT, 0); got != "before\n" {
		t.Fatalf("%q", got)
	}
}

func usageOf(t *testing.T, e *enginetest.Engine, box string) *enginev1.BoxUsage {
	t.Helper()
	reply, err := e.SampleUsage(t.Context(), &enginev1.SampleUsageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, usage := range reply.GetBoxes() {
		if usage.GetBoxId() == box {
			return usage
		}
	}
	t.Fatalf("box %s is not in %v", box, reply)
	return nil
}

func TestUsageShowsWhatABoxTakes(t *testing.T) {
	e := start(t)
	box, idle := e.Python(t.Context()), e.Python(t.Context())
	if _, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{BoxId: box.Box, Limits: &execv1.Limits{CpuMillis: 300}}); err != nil {
		t.Fatal(err)
	}
	before, idleBefore := usageOf(t, e, box.Box), usageOf(t, e, idle.Box)
	box.Run(t.Context(), `
import os, time
memory = bytearray(os.urandom(1 << 20)) * 40
with open('/tmp/disk', 'wb') as f: f.write(os.urandom(1 << 20) * 20)
end = time.monotonic() + 1
while time.monotonic() < end: pass
children = [os.posix_spawn('/bin/sleep', ['sleep', '1000'], {}) for _ in range(10)]`)
	after, idleAfter := usageOf(t, e, box.Box), usageOf(t, e, idle.Box)
	t.Logf("before %v\nafter  %v\nidle   %v", before, after, idleAfter)
	if used := after.GetCpuUs() - before.GetCpuUs(); used < 100_000 {
		t.Errorf("CPU: %d us", used)
	}
	if after.GetThrottledUs() == 0 {
		t.Error("it was held up by its CPU limit for no time")
	}
	if grown := int64(after.GetMemoryBytes()) - int64(before.GetMemoryBytes()); grown < 35<<20 {
		t.Errorf("memory grew by %d bytes (expected: 40 MiB)", grown)
	}
	if grown := int64(after.GetDiskBytes()) - int64(before.GetDiskBytes()); grown < 20<<20 || grown > 24<<20 {
		t.Errorf("disk grew by %d bytes (expected: 20 MiB)", grown)
	}
	if grown := int(after.GetProcesses()) - int(before.GetProcesses()); grown < 10 || grown > 15 {
		t.Errorf("processes grew by %d (expected: 10)", grown)
	}
	if after.GetLimits().GetCpuMillis() != 300 || after.GetSandboxId() == "" || after.GetMemoryPeakBytes() < after.GetMemoryBytes() {
		t.Errorf("%v", after)
	}
	if grown := int64(idleAfter.GetDiskBytes()) - int64(idleBefore.GetDiskBytes()); grown > 1<<20 {
		t.Errorf("the disk of another box grew by %d bytes", grown)
	}
}

func TestLimitsOfProcessesAndOpenFilesChangeLive(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	const open = "import os\nfs = []\ntry:\n  while len(fs) < 3000: fs.append(os.open('/dev/null', os.O_RDONLY))\nexcept OSError: pass\nprint(len(fs))"
	const fork = "import os\nps = []\ntry:\n  while len(ps) < 200: ps.append(os.posix_spawn('/bin/sleep', ['sleep', '1000'], {}))\nexcept OSError: pass\nprint(len(ps))\nfor p in ps: os.kill(p, 9); os.waitpid(p, 0)"
	for _, limits := range []*execv1.Limits{{MaxProcesses: 60, MaxOpenFiles: 500}, {MaxProcesses: 150, MaxOpenFiles: 2000}} {
		if _, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{BoxId: box.Box, Limits: limits}); err != nil {
			t.Fatal(err)
		}
		// The interpreter was there before.
		want := fmt.Sprintf("%d %d\n", limits.GetMaxProcesses(), limits.GetMaxOpenFiles())
		if r := box.Run(t.Context(), "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[1], resource.getrlimit(resource.RLIMIT_NOFILE)[1])"); string(r.Stdout) != want {
			t.Errorf("the interpreter has the limits %q (expected: %q)", r.Stdout, want)
		}
		for code, most := range map[string]int{open: int(limits.GetMaxOpenFiles()), fork: int(limits.GetMaxProcesses())} {
			spec := python(code)
			startProcess(t, e, box.Box, spec)
			waitProcess(t, e, box.Box, spec.GetProcessId())
			var got int
			if _, err := fmt.Sscan(outputOf(t, e, box.Box, spec.GetProcessId(), execv1.Stream_STREAM_STDOUT, 0), &got); err != nil {
				t.Fatal(err)
			}
			if got > most || got < most*7/10-20 {
				t.Errorf("with %v: %d (expected: up to %d)", limits, got, most)
			}
		}
	}
}

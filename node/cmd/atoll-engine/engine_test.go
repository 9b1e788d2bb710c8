package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/engine"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/patience"
)

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
	})
	e = enginetest.Start(t)
	return e
}

func wantOutput(t *testing.T, r *enginetest.Result, want string) {
	t.Helper()
	if string(r.Stdout) != want || r.Finished.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED {
		t.Fatalf("output %q, errors %q, end %v (expected: output %q)", r.Stdout, r.Stderr, r.Finished, want)
	}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Fatalf("error %v (expected: %v)", err, want)
	}
}

func awaitState(t *testing.T, e *enginetest.Engine, box string, want enginev1.BoxState) *enginev1.Box {
	t.Helper()
	var found *enginev1.Box
	enginetest.Await(t, 10*time.Second, func() (bool, string) {
		b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box})
		found = b
		return err == nil && b.GetState() == want, fmt.Sprint(b, err)
	})
	return found
}

func TestStateLivesOnBetweenExecutions(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	wantOutput(t, box.Run(t.Context(), "x = 1 + 1\nprint(x)"), "2\n")
	wantOutput(t, box.Run(t.Context(), "print(x)"), "2\n")
}

func TestDeletedBoxLeavesNothing(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	if len(enginetest.Remains(box.Box, e.Data, e.Run)) == 0 {
		t.Fatal("a live box is not found by its id: the check can't fail")
	}
	box.Delete(t.Context())
	enginetest.NothingRemains(t, box.Box, e.Data, e.Run)
	_, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
	wantCode(t, err, codes.NotFound)
	box.Delete(t.Context())
}

func TestCreateIsIdempotent(t *testing.T) {
	e := start(t)
	request := e.Request(t.Context(), "python", "python")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if b, err := e.CreateBox(t.Context(), request); err != nil || b.GetState() != enginev1.BoxState_BOX_STATE_READY {
				t.Errorf("box %v, error %v", b, err)
			}
		})
	}
	group.Wait()
	request.Spec.Labels = map[string]string{"pool": "other"}
	_, err := e.CreateBox(t.Context(), request)
	wantCode(t, err, codes.AlreadyExists)
}

func TestBoxIsAssignedOnce(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	have, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.AssignBox(t.Context(), &enginev1.AssignBoxRequest{BoxId: box.Box, SandboxId: have.GetSandboxId(), Hostname: "box"})
	if err != nil || again.GetSandboxId() != have.GetSandboxId() {
		t.Fatalf("second assignment: %v, %v", again, err)
	}
	_, err = e.AssignBox(t.Context(), &enginev1.AssignBoxRequest{BoxId: box.Box, SandboxId: "sb-exec-other"})
	wantCode(t, err, codes.AlreadyExists)
}

func TestAssignedEnvironmentAndHostnameAreSeenInside(t *testing.T) {
	e := start(t)
	request := e.Request(t.Context(), "python", "python")
	if _, err := e.CreateBox(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := e.AssignBox(t.Context(), &enginev1.AssignBoxRequest{
		BoxId: request.GetBoxId(), SandboxId: "sb-exec-1", Hostname: "apple", Env: map[string]string{"FRUIT": "red"},
	}); err != nil {
		t.Fatal(err)
	}
	box := e.Sandbox(request)
	wantOutput(t, box.Run(t.Context(), "import os, socket\nprint(os.environ['FRUIT'], socket.gethostname())"), "red apple\n")
}

func TestOutputIsCompleteAfterEngineWasKilledInTheMiddle(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "kept = 'state'")
	id := enginetest.NewID("exec")
	stream, err := box.Begin(t.Context(), id, "import time\nfor i in range(60):\n    print(i, flush=True); time.sleep(0.02)\nprint(kept)")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	e.Kill()
	e.Launch()
	awaitState(t, e, box.Box, enginev1.BoxState_BOX_STATE_READY)
	var want strings.Builder
	for i := range 60 {
		fmt.Fprintln(&want, i)
	}
	want.WriteString("state\n")
	wantOutput(t, attach(t, e, box.Box, id, 0), want.String())
	wantOutput(t, box.Run(t.Context(), "print(kept)"), "state\n")
}

func attach(t *testing.T, e *enginetest.Engine, box, id string, after uint64) *enginetest.Result {
	t.Helper()
	r := &enginetest.Result{ID: id, LastSeq: after}
	enginetest.Await(t, 10*time.Second, func() (bool, string) {
		stream, err := e.Attach(t.Context(), &enginev1.AttachRequest{BoxId: box, ExecutionId: id, AfterSeq: r.LastSeq})
		if err == nil {
			err = enginetest.Collect(stream, r)
		}
		// Not found: the agent has not been asked yet what it holds.
		if err != nil && status.Code(err) != codes.Unavailable && status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
	return r
}

// numbered makes n lines whose content says where they belong.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%07d %s\n", i, strings.Repeat("x", 91))
	}
	return b.Bytes()
}

// printNumbered prints the same in blocks of 100 lines.
const printNumbered = "import sys\nfor i in range(0, %d, 100):\n    sys.stdout.write(''.join('%%07d %%s\\n' %% (n, 'x' * 91) for n in range(i, i + 100)))\n"

func TestLongOutputIsCompleteAfterEngineWasKilledAgainAndAgain(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	id := enginetest.NewID("exec")
	const lines = 150_000
	if _, err := box.Begin(t.Context(), id, fmt.Sprintf(printNumbered, lines)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		enginetest.Await(t, 10*time.Second, func() (bool, string) {
			entries, err := filepath.Glob(filepath.Join(e.Data, "spool", box.Box, id, "head"))
			return len(entries) > 0, fmt.Sprint(err)
		})
		e.Kill()
		e.Launch()
		awaitState(t, e, box.Box, enginev1.BoxState_BOX_STATE_READY)
	}
	r := attach(t, e, box.Box, id, 0)
	if want := numbered(lines); !bytes.Equal(r.Stdout, want) {
		t.Fatalf("%d bytes, end %v (expected: %d bytes, all in order)", len(r.Stdout), r.Finished, len(want))
	}
}

func TestHugeOutputKeepsHeadAndTailWithExactCounts(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	id := enginetest.NewID("exec")
	const lines = 1_200_000
	stream, err := box.Begin(t.Context(), id, fmt.Sprintf(printNumbered, lines))
	if err != nil {
		t.Fatal(err)
	}
	if err := enginetest.Collect(stream, &enginetest.Result{ID: id}); err != nil {
		t.Fatal(err)
	}
	r := attach(t, e, box.Box, id, 0)
	want := numbered(lines)
	if len(r.Gaps) != 1 || r.Finished.GetStdoutBytes() != uint64(len(want)) {
		t.Fatalf("gaps %v, end %v (expected: one gap, %d bytes)", r.Gaps, r.Finished, len(want))
	}
	gap := r.Gaps[0]
	if uint64(len(r.Stdout))+gap.GetBytes() != uint64(len(want)) {
		t.Fatalf("%d bytes kept and %d dropped (expected: %d together)", len(r.Stdout), gap.GetBytes(), len(want))
	}
	head, tail := r.Stdout[:gap.GetOffset()], r.Stdout[gap.GetOffset():]
	if !bytes.Equal(head, want[:len(head)]) || !bytes.Equal(tail, want[len(want)-len(tail):]) {
		t.Fatal("head or tail is not what was printed")
	}
	if len(head) < 30<<20 || len(tail) < 30<<20 {
		t.Fatalf("head %d, tail %d bytes (expected: about 32 MiB each)", len(head), len(tail))
	}
}

func TestKilledSandboxEndsItsExecutionsWithTheReason(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	stream, err := box.Begin(t.Context(), enginetest.NewID("exec"), "import time\nprint('here', flush=True)\ntime.sleep(60)")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	pid := sandboxPid(t, e, box.Box)
	killed := time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	event, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(killed); took > patience.Of(time.Second) {
		t.Errorf("the end was told after %v", took)
	}
	if got := event.GetFinished().GetReason(); got != execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED {
		t.Fatalf("event %v (expected: the sandbox ended)", event)
	}
	if event.GetFinished().GetStdoutBytes() != uint64(len("here\n")) {
		t.Errorf("%v (expected: 5 bytes of stdout)", event.GetFinished())
	}
	b := awaitState(t, e, box.Box, enginev1.BoxState_BOX_STATE_ENDED)
	if b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_EXITED || !strings.Contains(b.GetEndDetail(), "signal 9") {
		t.Fatalf("reason %v, %q (expected: exited by signal 9)", b.GetEndReason(), b.GetEndDetail())
	}
	_, err = box.TryRun(t.Context(), "print(1)")
	wantCode(t, err, codes.FailedPrecondition)
	enginetest.Await(t, 5*time.Second, func() (bool, string) {
		remains := enginetest.Remains(box.Box, e.Run)
		return len(remains) == 0, strings.Join(remains, "\n")
	})
	box.Delete(t.Context())
}

func sandboxPid(t *testing.T, e *enginetest.Engine, box string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.Data, "boxes", box, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestSandboxThatDiedWhileTheEngineWasDownIsReported(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	pid := sandboxPid(t, e, box.Box)
	e.Kill()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.Launch()
	b := awaitState(t, e, box.Box, enginev1.BoxState_BOX_STATE_ENDED)
	if b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_EXITED {
		t.Fatalf("reason %v, %q (expected: exited)", b.GetEndReason(), b.GetEndDetail())
	}
	box.Delete(t.Context())
	enginetest.NothingRemains(t, box.Box, e.Data, e.Run)
}

func TestMemoryBombIsReportedAsOutOfMemory(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	r := box.Run(t.Context(), "print('before', flush=True)\ndata = []\nwhile True: data.append(bytearray(8 << 20))")
	if r.Finished.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || string(r.Stdout) != "before\n" {
		t.Fatalf("output %q, end %v (expected: out of memory)", r.Stdout, r.Finished)
	}
}

func TestTwentyBoxesAtOnceAllComeAndGo(t *testing.T) {
	e := start(t)
	var group sync.WaitGroup
	started := time.Now()
	var requests []*enginev1.CreateBoxRequest
	for range 20 {
		requests = append(requests, e.Request(t.Context(), "python", "python"))
	}
	for i, request := range requests {
		group.Go(func() {
			if _, err := e.CreateBox(t.Context(), request); err != nil {
				t.Error(err)
				return
			}
			box := e.Sandbox(request)
			r, err := box.TryRun(t.Context(), fmt.Sprintf("print(%d * 2)", i))
			if err != nil || string(r.Stdout) != fmt.Sprintln(i*2) {
				t.Errorf("%v %v", r, err)
			}
			if err := e.Remove(t.Context(), request.GetBoxId()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	t.Logf("20 boxes made, used and deleted in %v", time.Since(started))
	for _, request := range requests {
		enginetest.NothingRemains(t, request.GetBoxId(), e.Data, e.Run)
	}
}

func TestBoxDeletedWhileItStartsLeavesNothing(t *testing.T) {
	e := start(t)
	for _, delay := range []time.Duration{0, 5, 20, 40, 60, 80, 100, 130, 160, 200} {
		request := e.Request(t.Context(), "python", "python")
		result := make(chan error, 1)
		go func() {
			_, err := e.CreateBox(t.Context(), request)
			result <- err
		}()
		<-time.After(delay * time.Millisecond)
		if err := e.Remove(t.Context(), request.GetBoxId()); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil && status.Code(err) != codes.NotFound {
			t.Fatalf("after %d ms: %v", delay, err)
		}
		if _, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: request.GetBoxId()}); err == nil {
			// Deleted before it was asked for: then it is there now.
			if err := e.Remove(t.Context(), request.GetBoxId()); err != nil {
				t.Fatal(err)
			}
		}
		enginetest.NothingRemains(t, request.GetBoxId(), e.Data, e.Run)
	}
}

func TestEngineKilledWhileABoxStartsLeavesTheBoxWholeOrNothing(t *testing.T) {
	e := start(t)
	for _, delay := range []time.Duration{1, 5, 10, 20, 40, 60, 80, 100, 150, 250} {
		request := e.Request(t.Context(), "python", "python")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = e.CreateBox(ctx, request) }()
		<-time.After(delay * time.Millisecond)
		e.Kill()
		cancel()
		e.Launch()
		b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: request.GetBoxId()})
		if status.Code(err) == codes.NotFound {
			enginetest.NothingRemains(t, request.GetBoxId(), e.Data, e.Run)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		awaitState(t, e, b.GetBoxId(), enginev1.BoxState_BOX_STATE_READY)
		wantOutput(t, e.Sandbox(request).Run(t.Context(), "print(1)"), "1\n")
		if err := e.Remove(t.Context(), b.GetBoxId()); err != nil {
			t.Fatal(err)
		}
		enginetest.NothingRemains(t, request.GetBoxId(), e.Data, e.Run)
	}
}

func TestReaderThatNeverReadsStallsNobody(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	id := enginetest.NewID("exec")
	const lines = 200_000
	dead, err := box.Begin(t.Context(), id, fmt.Sprintf(printNumbered, lines))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dead.Recv(); err != nil {
		t.Fatal(err)
	}
	r := attach(t, e, box.Box, id, 0)
	if want := numbered(lines); !bytes.Equal(r.Stdout, want) {
		t.Fatalf("%d bytes (expected: %d)", len(r.Stdout), len(want))
	}
	late := &enginetest.Result{LastSeq: 1}
	if err := enginetest.Collect(dead, late); err != nil || len(late.Stdout) != len(r.Stdout) {
		t.Fatalf("the reader that had paused got %d bytes, %v", len(late.Stdout), err)
	}
}

func TestOutputSurvivesDeletionUntilForgotten(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	id := enginetest.NewID("exec")
	stream, err := box.Begin(t.Context(), id, fmt.Sprintf(printNumbered, 10_000))
	if err != nil {
		t.Fatal(err)
	}
	if err := enginetest.Collect(stream, &enginetest.Result{}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ForgetExecutions(t.Context(), &enginev1.ForgetExecutionsRequest{ExecutionIds: []string{id}, KeepSpool: true}); err != nil {
		t.Fatal(err)
	}
	box.Delete(t.Context())
	e.Kill()
	e.Launch()
	list, err := e.ListExecutions(t.Context(), &enginev1.ListExecutionsRequest{})
	if err != nil || len(list.GetExecutions()) != 0 {
		t.Fatalf("executions %v, error %v (expected: none that the server must still record)", list, err)
	}
	if got := readOutput(t, e, box.Box, id, 500_000); !bytes.Equal(got, numbered(10_000)[500_000:]) {
		t.Fatalf("%d bytes from offset 500000", len(got))
	}
	if _, err := e.ForgetExecutions(t.Context(), &enginev1.ForgetExecutionsRequest{ExecutionIds: []string{id}}); err != nil {
		t.Fatal(err)
	}
	enginetest.NothingRemains(t, box.Box, e.Data, e.Run)
}

func readOutput(t *testing.T, e *enginetest.Engine, box, id string, offset uint64) []byte {
	t.Helper()
	stream, err := e.ReadOutput(t.Context(), &enginev1.ReadOutputRequest{
		BoxId: box, ExecutionId: id, Stream: execv1.Stream_STREAM_STDOUT, Offset: offset, Follow: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, piece.GetData()...)
	}
}

func TestExecutionWithTheSameIDRunsOnce(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "n = 0")
	id := enginetest.NewID("exec")
	for range 3 {
		stream, err := box.Begin(t.Context(), id, "n += 1; print(n)")
		if err != nil {
			t.Fatal(err)
		}
		r := &enginetest.Result{}
		if err := enginetest.Collect(stream, r); err != nil {
			t.Fatal(err)
		}
		wantOutput(t, r, "1\n")
	}
}

func TestUnknownContextIsRefused(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Context = "ctx-none"
	_, err := box.TryRun(t.Context(), "print(1)")
	wantCode(t, err, codes.NotFound)
	list, err := e.ListExecutions(t.Context(), &enginev1.ListExecutionsRequest{})
	if err != nil || len(list.GetExecutions()) != 0 {
		t.Fatalf("executions %v, error %v (expected: none)", list, err)
	}
}

func TestCPULimitHoldsAfterAssignmentAndChangesLive(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	const spin = "import time\nt, c = time.monotonic(), time.process_time()\nwhile time.monotonic() - t < 1: pass\nprint(time.process_time() - c)"
	for _, millis := range []uint32{200, 600} {
		if _, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{BoxId: box.Box, Limits: &execv1.Limits{CpuMillis: millis}}); err != nil {
			t.Fatal(err)
		}
		usage := e.CPUOf(box.Box)
		began := time.Now()
		box.Run(t.Context(), spin)
		share := float64(e.CPUOf(box.Box)-usage) / float64(time.Since(began))
		if limit := float64(millis) / 1000; share > limit*1.3+0.05 {
			t.Errorf("used %.2f of a CPU (expected: at most %.2f)", share, limit)
		}
	}
}

func TestOldServerCanChangeNothing(t *testing.T) {
	e := start(t)
	if _, err := e.Claim(t.Context(), &enginev1.ClaimRequest{Epoch: 100}); err != nil {
		t.Fatal(err)
	}
	_, err := e.DeleteBox(t.Context(), &enginev1.BoxRequest{BoxId: enginetest.NewID("box")})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = e.Claim(t.Context(), &enginev1.ClaimRequest{Epoch: 99})
	wantCode(t, err, codes.FailedPrecondition)
	if _, err := e.ListBoxes(t.Context(), &enginev1.ListBoxesRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = e.Plain().DeleteBox(metadata.AppendToOutgoingContext(t.Context(), engine.EpochKey, "100"), &enginev1.BoxRequest{BoxId: enginetest.NewID("box")})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatcherSeesABoxComeAndGo(t *testing.T) {
	e := start(t)
	watch, err := e.WatchBoxes(t.Context(), &enginev1.WatchBoxesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	box := e.Python(t.Context())
	box.Delete(t.Context())
	var last enginev1.BoxState
	for last != enginev1.BoxState_BOX_STATE_DELETED {
		b, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if b.GetBoxId() != box.Box {
			t.Fatalf("box %v", b)
		}
		last = b.GetState()
	}
}

// The agent's guard goes by the memory that the sandbox was made with. Lowered
// afterwards, it is the kernel on the host that finds the limit crossed.
func TestMemoryLimitLoweredLaterIsStillReportedAsOutOfMemory(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	if _, err := e.UpdateLimits(t.Context(), &enginev1.UpdateLimitsRequest{BoxId: box.Box, Limits: &execv1.Limits{MemoryBytes: 64 << 20}}); err != nil {
		t.Fatal(err)
	}
	id := enginetest.NewID("exec")
	stream, err := box.Begin(t.Context(), id, "print('before', flush=True)\ndata = []\nwhile True: data.append(bytearray(8 << 20))")
	if err != nil {
		t.Fatal(err)
	}
	r := &enginetest.Result{ID: id}
	if err := enginetest.Collect(stream, r); err != nil {
		t.Fatal(err)
	}
	if r.Finished.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || string(r.Stdout) != "before\n" {
		t.Fatalf("output %q, end %v (expected: out of memory)", r.Stdout, r.Finished)
	}
	b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("box: %v, %q", b.GetState(), b.GetEndDetail())
	if b.GetState() == enginev1.BoxState_BOX_STATE_ENDED && b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_OUT_OF_MEMORY {
		t.Fatalf("box %v", b)
	}
}

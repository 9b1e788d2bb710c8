package box

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver/drivertest"
	"atoll/node/internal/image"
	"atoll/node/internal/patience"
	"atoll/node/internal/snapshot"
	"atoll/node/internal/spool"
)

func TestMain(m *testing.M) {
	drivertest.RunAgentIfAsked()
	os.Exit(m.Run())
}

// noStatuses stands for a reaper whose children are all someone else's.
type noStatuses struct{}

func (noStatuses) Status(int) <-chan unix.WaitStatus { return nil }
func (noStatuses) Forget(int)                        {}

type rig struct {
	*Node
	t      *testing.T
	dir    string
	driver *drivertest.Fake
	images string
	digest string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// What the agent keeps for the time of an upload goes with the test.
	t.Setenv("TMPDIR", t.TempDir())
	r := &rig{t: t, dir: t.TempDir()}
	h := drivertest.Hierarchy(t, fmt.Sprintf("bt%d", os.Getpid()))
	r.driver = &drivertest.Fake{Dir: t.TempDir(), Cgroups: h}
	images := t.TempDir()
	r.images = images
	digest := sha256.Sum256(nil)
	r.digest = hex.EncodeToString(digest[:])
	metadata, err := json.Marshal(image.Metadata{Name: "test", Digest: r.digest, User: "user"})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"test-1.json": metadata, "test-1.erofs": nil} {
		if err := os.WriteFile(filepath.Join(images, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spools, _, err := spool.Open(filepath.Join(r.dir, "spool"), spool.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	snapshots, err := snapshot.Open(r.dir, logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snapshots.Close)
	if r.Node, err = Open(Config{
		DataDir: r.dir, Driver: r.driver, Cgroups: h, Images: image.NewStore(images), Spool: spools, Snapshots: snapshots, Reaper: noStatuses{}, Logger: logger,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, b := range r.List() {
			if err := r.Delete(context.Background(), b.GetBoxId()); err != nil {
				t.Error(err)
			}
		}
		for _, id := range r.snapshotFolders() {
			if err := r.snapshots.Remove(id); err != nil {
				t.Error(err)
			}
		}
		// Checksums that are being made keep one a little longer.
		r.wantSnapshots()
		r.nothingIsLeft()
	})
	return r
}

func (r *rig) nothingIsLeft() {
	r.t.Helper()
	folders, err := os.ReadDir(filepath.Join(r.dir, "boxes"))
	if err != nil || len(folders) > 0 {
		r.t.Errorf("folders left: %v, %v", folders, err)
	}
	groups, err := r.cgroups.Boxes()
	if err != nil || len(groups) > 0 {
		r.t.Errorf("groups left: %v, %v", groups, err)
	}
	ids, err := r.driver.List()
	if err != nil || len(ids) > 0 {
		r.t.Errorf("sandboxes left: %v, %v", ids, err)
	}
}

const base32 = "0123456789abcdefghjkmnpqrstvwxyz"

func newID(prefix string) string {
	var b strings.Builder
	b.WriteString(prefix + "-")
	for range 26 {
		b.WriteByte(base32[rand.IntN(32)])
	}
	return b.String()
}

func (r *rig) request() *enginev1.CreateBoxRequest {
	return &enginev1.CreateBoxRequest{BoxId: newID("box"), Spec: &enginev1.BoxSpec{
		ImageDigest: r.digest, Limits: &execv1.Limits{MemoryBytes: 64 << 20},
		WarmContexts: []*execv1.ContextSpec{{ContextId: "ctx", Language: "test"}},
	}}
}

func (r *rig) create() string {
	r.t.Helper()
	b, err := r.Create(r.t.Context(), r.request())
	if err != nil {
		r.t.Fatal(err)
	}
	return b.GetBoxId()
}

func (r *rig) execute(box, code string) (*spool.Log, error) {
	return r.Execute(r.t.Context(), box, &execv1.ExecutionSpec{ExecutionId: newID("exec"), ContextId: "ctx", Code: code})
}

// finish reads an execution to its end.
func finish(ctx context.Context, log *spool.Log) (*execv1.Finished, string, error) {
	reader := log.Read(0)
	defer reader.Close()
	var text strings.Builder
	for {
		event, err := reader.Next(ctx)
		if err != nil {
			return nil, text.String(), err
		}
		text.Write(event.GetOutput().GetData())
		if f := event.GetFinished(); f != nil {
			return f, text.String(), nil
		}
	}
}

func (r *rig) run(box, code string) (*execv1.Finished, string) {
	r.t.Helper()
	log, err := r.execute(box, code)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	finished, text, err := finish(ctx, log)
	if err != nil {
		r.t.Fatal(err)
	}
	return finished, text
}

func (r *rig) await(box string, want enginev1.BoxState) *enginev1.Box {
	r.t.Helper()
	subscription := r.Subscribe()
	defer r.Unsubscribe(subscription)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	for {
		b, err := subscription.Next(ctx)
		if err != nil {
			r.t.Fatalf("box %s did not become %v: %v", box, want, err)
		}
		if b.GetBoxId() == box && b.GetState() == want {
			return b
		}
	}
}

func wantKind(t *testing.T, err error, want FaultKind) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) || f.Kind != want {
		t.Fatalf("error %v (expected: kind %d)", err, want)
	}
}

func TestExecutionIsDrainedToItsEnd(t *testing.T) {
	r := newRig(t)
	box := r.create()
	finished, text := r.run(box, "print 20000")
	if finished.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED || len(text) != 2_000_000 {
		t.Fatalf("%d bytes, %v", len(text), finished)
	}
}

func TestOutOfMemoryIsTheReasonOfBoxAndExecution(t *testing.T) {
	r := newRig(t)
	box := r.create()
	finished, text := r.run(box, "allocate 400")
	if finished.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || finished.GetMemoryLimitBytes() != 64<<20 || finished.GetMemoryPeakBytes() < 64<<20 {
		t.Fatalf("end %v (expected: out of memory with limit and peak)", finished)
	}
	if text != "allocating\n" || finished.GetStdoutBytes() != uint64(len(text)) {
		t.Fatalf("output %q, end %v", text, finished)
	}
	b := r.await(box, enginev1.BoxState_BOX_STATE_ENDED)
	if b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_OUT_OF_MEMORY {
		t.Fatalf("%v", b)
	}
}

func TestSandboxThatExitsTakesItsExecutionsAlongButNotTheirOutput(t *testing.T) {
	r := newRig(t)
	box := r.create()
	held, err := r.execute(box, "hold")
	if err != nil {
		t.Fatal(err)
	}
	finished, text := r.run(box, "exit 3")
	if finished.GetReason() != execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED || text != "leaving\n" {
		t.Fatalf("output %q, end %v", text, finished)
	}
	other, _, err := finish(t.Context(), held)
	if err != nil || other.GetReason() != execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED {
		t.Fatalf("the other execution: %v, %v", other, err)
	}
	r.await(box, enginev1.BoxState_BOX_STATE_ENDED)
	if !held.OnFile() {
		t.Fatal("what only the agent could have repeated is not on file")
	}
	_, err = r.execute(box, "print 1")
	wantKind(t, err, FailedPrecondition)
}

func TestDeathIsNoticedAtOnce(t *testing.T) {
	r := newRig(t)
	box := r.create()
	log, err := r.execute(box, "hold")
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.find(box)
	if err != nil {
		t.Fatal(err)
	}
	best := time.Hour
	started := time.Now()
	if err := unix.Kill(b.container.Load().spec.Process.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, _, err := finish(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	best = min(best, time.Since(started))
	t.Logf("end was told after %v", best)
	if best > patience.Of(500*time.Millisecond) {
		t.Fatalf("end was told after %v", best)
	}
}

func TestBoxWhoseGroupCannotBeMadeIsRefusedAndLeavesNothing(t *testing.T) {
	r := newRig(t)
	request := r.request()
	if _, err := r.cgroups.Create(request.GetBoxId(), cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Create(t.Context(), request)
	var fault *Fault
	if !errors.As(err, &fault) || fault.Kind != Internal || !strings.Contains(fault.Message, "group") {
		t.Fatalf("error %v (expected: a fault that names the group)", err)
	}
	r.nothingIsLeft()
}

func TestAgentThatBreaksTheProtocolLosesThatExecutionAndNothingElse(t *testing.T) {
	for _, code := range []string{"skip", "endless"} {
		t.Run(code, func(t *testing.T) {
			r := newRig(t)
			box, neighbour := r.create(), r.create()
			held, err := r.execute(neighbour, "hold")
			if err != nil {
				t.Fatal(err)
			}
			finished, _ := r.run(box, code)
			if finished.GetReason() != execv1.ExitReason_EXIT_REASON_LOST || finished.GetDetail() == "" {
				t.Fatalf("end %v (expected: lost, and why)", finished)
			}
			r.await(box, enginev1.BoxState_BOX_STATE_READY)
			if f, text := r.run(box, "print 1"); f.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED || len(text) != 100 {
				t.Fatalf("after the reconnection: %q, %v", text, f)
			}
			if held.Finished() != nil {
				t.Fatal("the neighbour's execution ended")
			}
		})
	}
}

func TestContextThatDoesNotStartFailsTheBox(t *testing.T) {
	r := newRig(t)
	request := r.request()
	request.Spec.WarmContexts[0].Language = "broken"
	_, err := r.Create(t.Context(), request)
	if err == nil || !strings.Contains(err.Error(), "no kernel for it") {
		t.Fatalf("error %v (expected: the agent's reason)", err)
	}
	if _, err := r.Get(request.GetBoxId()); err == nil {
		t.Fatal("the failed box is still there")
	}
	r.nothingIsLeft()
}

func TestRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(*enginev1.CreateBoxRequest){
		"id with a path":     func(q *enginev1.CreateBoxRequest) { q.BoxId = "box-../../../../../etc/passwd00000" },
		"short id":           func(q *enginev1.CreateBoxRequest) { q.BoxId = "box-1" },
		"too little memory":  func(q *enginev1.CreateBoxRequest) { q.Spec.Limits.MemoryBytes = 1 << 20 },
		"CPU below a tick":   func(q *enginev1.CreateBoxRequest) { q.Spec.Limits.CpuMillis = 1 },
		"context with slash": func(q *enginev1.CreateBoxRequest) { q.Spec.WarmContexts[0].ContextId = "a/b" },
	} {
		request := r.request()
		change(request)
		_, err := r.Create(t.Context(), request)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		wantKind(t, err, Invalid)
	}
	box := r.create()
	_, err := r.Execute(t.Context(), box, &execv1.ExecutionSpec{ExecutionId: "../x", ContextId: "ctx"})
	wantKind(t, err, Invalid)
	_, err = r.Execute(t.Context(), box, &execv1.ExecutionSpec{ExecutionId: "exec-1", ContextId: "ctx", Code: strings.Repeat("x", 16<<20+1)})
	wantKind(t, err, Invalid)
}

// Everything that can happen to a box happens to a few boxes at once, many
// times over: each call has one of its legal answers, and deletion always works.
func TestBoxSurvivesEverythingAtOnce(t *testing.T) {
	r := newRig(t)
	for round := range 15 {
		requests := []*enginev1.CreateBoxRequest{r.request(), r.request()}
		var group sync.WaitGroup
		act := func(f func(id string) error, legal ...FaultKind) {
			for _, request := range requests {
				group.Go(func() {
					<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond)
					err := f(request.GetBoxId())
					var known *Fault
					if err != nil && !(errors.As(err, &known) && slices.Contains(legal, known.Kind)) {
						t.Errorf("round %d: %v (expected: nil or one of %v)", round, err, legal)
					}
				})
			}
		}
		for _, request := range requests {
			group.Go(func() {
				_, err := r.Create(t.Context(), request)
				var known *Fault
				// Killed while it starts: then that is the reason.
				if err != nil && !(errors.As(err, &known) && (known.Kind == NotFound || known.Kind == Internal)) {
					t.Errorf("create: %v", err)
				}
			})
		}
		act(func(id string) error {
			_, err := r.Assign(t.Context(), &enginev1.AssignBoxRequest{BoxId: id, SandboxId: "sb-1"})
			return err
		}, NotFound, FailedPrecondition, Unavailable)
		act(func(id string) error {
			log, err := r.execute(id, "print 50")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience.Of(20*time.Second))
			defer cancel()
			_, _, err = finish(ctx, log)
			return err
		}, NotFound, FailedPrecondition, Unavailable)
		act(func(id string) error {
			b, err := r.find(id)
			if err != nil {
				return err
			}
			pids, err := b.node.cgroups.Open(id).Pids()
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			return err
		}, NotFound)
		act(func(id string) error { return r.Delete(t.Context(), id) })
		group.Wait()
		for _, request := range requests {
			if err := r.Delete(t.Context(), request.GetBoxId()); err != nil {
				t.Fatal(err)
			}
		}
		if boxes := r.List(); len(boxes) > 0 {
			t.Fatalf("round %d: boxes left: %v", round, boxes)
		}
		r.nothingIsLeft()
	}
}

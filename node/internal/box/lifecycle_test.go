package box

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/driver"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/image"
	"atoll/node/internal/patience"
	"atoll/node/internal/snapshot"
	"atoll/node/internal/spool"
)

const (
	ready      = enginev1.BoxState_BOX_STATE_READY
	paused     = enginev1.BoxState_BOX_STATE_PAUSED
	memoryKind = enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY
	filesKind  = enginev1.SnapshotKind_SNAPSHOT_KIND_FILES
)

// failAt has a step fail, until the test is over.
func failAt(t *testing.T, name string, do func() error) {
	t.Helper()
	if err := failpoint.Set(name, do); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := failpoint.Set(name, nil); err != nil {
			t.Error(err)
		}
	})
}

func heal(t *testing.T, name string) {
	t.Helper()
	if err := failpoint.Set(name, nil); err != nil {
		t.Fatal(err)
	}
}

// snapshotFolders are what is in the folder of snapshots.
func (r *rig) snapshotFolders() []string {
	r.t.Helper()
	entries, err := os.ReadDir(snapshot.Dir(r.dir))
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		// The other entry is the key that they are signed with.
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func (r *rig) wantSnapshots(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	within := patience.Of(5 * time.Second)
	deadline := time.Now().Add(within)
	for {
		have := r.snapshotFolders()
		slices.Sort(have)
		if slices.Equal(have, want) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("snapshots %q after %v (expected: %q)", have, within, want)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// crash is the end of an engine in the middle of a step: the goroutine that is in it never goes on, and nothing else of it does either.
// A new engine takes over.
func (r *rig) crash(stuck *box) {
	r.t.Helper()
	old := r.Node
	old.mu.Lock()
	boxes := make([]*box, 0, len(old.boxes))
	for _, b := range old.boxes {
		boxes = append(boxes, b)
	}
	old.mu.Unlock()
	for _, b := range boxes {
		if b != stuck {
			select {
			case b.commands <- func() { select {} }:
			case <-b.gone:
			}
		}
		if l := b.currentLink(); l != nil {
			l.close()
		}
	}
	old.snapshots.Close()
	r.takePipes()
	r.reopen()
}

// takePipes takes the ends of the sandboxes' pipes from an engine that is no more, also those that no box has as its link yet: left to it,
// they would get what is meant for the next one.
func (r *rig) takePipes() {
	r.t.Helper()
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		r.t.Fatal(err)
	}
	defer nothing.Close()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || !strings.HasPrefix(target, r.dir+"/boxes/") {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			r.t.Fatal(err)
		}
		if err := unix.Dup3(int(nothing.Fd()), fd, unix.O_CLOEXEC); err != nil {
			r.t.Fatal(err)
		}
	}
}

// reopen has a new engine take over what is on disk.
func (r *rig) reopen() {
	r.t.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	spools, _, err := spool.Open(filepath.Join(r.dir, "spool"), spool.Sizes{})
	if err != nil {
		r.t.Fatal(err)
	}
	snapshots, err := snapshot.Open(r.dir, logger)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(snapshots.Close)
	config := r.config
	config.Spool, config.Snapshots, config.Images = spools, snapshots, image.NewStore(r.images)
	if r.Node, err = Open(config); err != nil {
		r.t.Fatal(err)
	}
}

// block returns what a step does to stop there, and a channel that is closed when it is reached; it goes on when release is closed.
func block() (do func() error, reached chan struct{}, release chan struct{}) {
	reached, release = make(chan struct{}), make(chan struct{})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	return func() error {
		select {
		case <-first:
			close(reached)
			<-release
		default:
		}
		return nil
	}, reached, release
}

func awaitClosed(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience.Of(30 * time.Second)):
		t.Fatalf("%s: not so in time", what)
	}
}

// subject is a box with an execution that runs, and one that has ended.
type subject struct {
	*rig
	box  string
	held *spool.Log
}

func newSubject(t *testing.T) *subject {
	t.Helper()
	r := newRig(t)
	s := &subject{rig: r, box: r.create()}
	if _, err := r.Assign(t.Context(), &enginev1.AssignBoxRequest{BoxId: s.box, SandboxId: "sb-1", Env: map[string]string{"A": "1"}, Hostname: "host"}); err != nil {
		t.Fatal(err)
	}
	s.run(s.box, "print 3")
	var err error
	if s.held, err = r.execute(s.box, "hold"); err != nil {
		t.Fatal(err)
	}
	s.awaitHolding()
	return s
}

// awaitHolding waits until the running execution has said what it has to say.
func (s *subject) awaitHolding() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	if err := s.held.Await(ctx, 2); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subject) state() enginev1.BoxState {
	b, err := s.Get(s.box)
	if err != nil {
		s.t.Fatal(err)
	}
	return b.GetState()
}

// wellAndRunning fails the test unless the box runs, and all in it goes on as if nothing had happened.
func (s *subject) wellAndRunning() {
	s.t.Helper()
	s.await(s.box, ready)
	if f, text := s.run(s.box, "print 2"); f.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED || len(text) != 200 {
		s.t.Fatalf("%q, %v", text, f)
	}
	id := s.held.Owner().ExecutionID
	log, err := s.Output(s.t.Context(), s.box, id)
	if err != nil {
		s.t.Fatal(err)
	}
	if log.Finished() != nil {
		s.t.Fatalf("the running execution ended: %v", log.Finished())
	}
	if err := s.Interrupt(s.t.Context(), s.box, id); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	finished, text, err := finish(ctx, log)
	if err != nil || text != "holding\n" || finished.GetReason() != execv1.ExitReason_EXIT_REASON_INTERRUPTED {
		s.t.Fatalf("%q, %v, %v (expected: all that it said, once)", text, finished, err)
	}
}

func (s *subject) pause() error {
	_, err := s.Pause(s.t.Context(), s.box, newID("snap"), memoryKind)
	return err
}

func (s *subject) resume() error {
	_, err := s.Resume(s.t.Context(), &enginev1.ResumeBoxRequest{BoxId: s.box})
	return err
}

func (s *subject) mustPause() {
	s.t.Helper()
	if err := s.pause(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subject) mustResume() {
	s.t.Helper()
	if err := s.resume(); err != nil {
		s.t.Fatal(err)
	}
}

func TestPausedBoxIsOnDiskOnlyAndGoesOn(t *testing.T) {
	s := newSubject(t)
	for range 3 {
		s.mustPause()
		b, err := s.Get(s.box)
		if err != nil || b.GetState() != paused || b.GetPauseSnapshotBytes() == 0 || len(b.GetContexts()) != 1 {
			t.Fatalf("%v, %v", b, err)
		}
		_, err = s.execute(s.box, "print 1")
		wantKind(t, err, Paused)
		s.mustPause()
		s.nothingRuns()
		s.mustResume()
		s.mustResume()
		s.wantSnapshots()
	}
	s.wellAndRunning()
}

func TestBoxThatIsPausedWithItsFilesOnlyStartsAnew(t *testing.T) {
	pauses := map[string]func(s *subject){
		"paused": func(s *subject) {},
		"engine started again": func(s *subject) {
			s.crash(nil)
		},
		"engine killed once the snapshot is whole": nil,
	}
	for name, then := range pauses {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t)
			id := s.held.Owner().ExecutionID
			if then == nil {
				stop, reached, release := block()
				failAt(t, "pause.renamed", stop)
				go func() { _, _ = s.Pause(context.Background(), s.box, newID("snap"), filesKind) }()
				awaitClosed(t, reached, "the pause")
				stuck := s.Node.boxes[s.box]
				s.crash(stuck)
				t.Cleanup(func() { close(release) })
				s.await(s.box, paused)
			} else {
				if _, err := s.Pause(t.Context(), s.box, newID("snap"), filesKind); err != nil {
					t.Fatal(err)
				}
				then(s)
			}
			log, err := s.Output(t.Context(), s.box, id)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience.Of(20*time.Second))
			defer cancel()
			finished, text, err := finish(ctx, log)
			if err != nil || text != "holding\n" || finished.GetReason() != execv1.ExitReason_EXIT_REASON_LOST {
				t.Fatalf("%q, %v, %v (expected: it ended with the pause)", text, finished, err)
			}
			if finished.GetStartedAtUnixMs() == 0 || finished.GetEndedAtUnixMs() < finished.GetStartedAtUnixMs() {
				t.Fatalf("%v (expected: when it started and when it ended)", finished)
			}
			b, err := s.Get(s.box)
			if err != nil || b.GetState() != paused || b.GetPauseKind() != filesKind || len(b.GetContexts()) != 0 {
				t.Fatalf("%v, %v (expected: paused with its files alone, without contexts)", b, err)
			}
			_, err = s.CreateSnapshot(t.Context(), &enginev1.CreateSnapshotRequest{BoxId: s.box, SnapshotId: newID("snap"), Kind: memoryKind})
			wantKind(t, err, Paused)
			s.nothingRuns()
			s.mustResume()
			s.await(s.box, ready)
			s.wantSnapshots()
			if b, err = s.Get(s.box); err != nil || len(b.GetContexts()) != 0 {
				t.Fatalf("%v, %v (expected: no context)", b, err)
			}
			if _, err := s.OpenContext(t.Context(), s.box, &execv1.ContextSpec{ContextId: "ctx", Language: "test"}); err != nil {
				t.Fatal(err)
			}
			if f, text := s.run(s.box, "print 2"); f.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED || len(text) != 200 {
				t.Fatalf("%q, %v", text, f)
			}
			// What it is now is paused and resumed as ever.
			s.mustPause()
			s.mustResume()
		})
	}
}

// nothingRuns fails the test unless no container is on the host.
func (r *rig) nothingRuns() {
	r.t.Helper()
	within := patience.Of(5 * time.Second)
	deadline := time.Now().Add(within)
	for {
		groups, err := r.cgroups.Boxes()
		ids, err2 := r.driver.List()
		if err := errors.Join(err, err2); err != nil {
			r.t.Fatal(err)
		}
		if len(groups)+len(ids) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("groups %v, sandboxes %v (expected: none)", groups, ids)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func TestOutputOfAPausedBoxIsWholeAndInOrder(t *testing.T) {
	s := newSubject(t)
	const lines = 8_000
	log, err := s.execute(s.box, fmt.Sprintf("print %d", lines))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		s.mustPause()
		s.mustResume()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(60*time.Second))
	defer cancel()
	finished, text, err := finish(ctx, log)
	if err != nil || finished.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED {
		t.Fatalf("%v, %v", finished, err)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%099d\n", i)
	}
	if text != want.String() {
		t.Fatalf("%d bytes that differ from the %d printed", len(text), want.Len())
	}
}

// The steps of a pause until the one that makes it one.
var beforeTheRename = []string{"pause.recorded", "pause.quiesced", "pause.stopped", "pause.written", "pause.verified", "pause.synced", "pause.renamed"}

func TestPauseThatFailsAnywhereLeavesTheBoxRunning(t *testing.T) {
	for _, step := range beforeTheRename {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			failAt(t, step, func() error { return unix.ENOSPC })
			wantKind(t, s.pause(), Exhausted)
			s.wantSnapshots()
			heal(t, step)
			s.mustPause()
			s.mustResume()
			s.wellAndRunning()
			// It goes in the background.
			s.wantSnapshots()
		})
	}
}

func TestPauseThatTheRuntimeRefusesLeavesTheBoxRunning(t *testing.T) {
	for _, operation := range []string{"pause", "checkpoint"} {
		t.Run(operation, func(t *testing.T) {
			s := newSubject(t)
			s.driver.Fail = func(o, _ string) error {
				if o == operation {
					return errors.New("no")
				}
				return nil
			}
			wantKind(t, s.pause(), Internal)
			s.driver.Fail = nil
			s.wantSnapshots()
			s.wellAndRunning()
		})
	}
}

func TestEngineKilledWhileItPausesFindsTheBoxRunningOrPaused(t *testing.T) {
	for _, step := range failpoint.Of("pause") {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			do, reached, _ := block()
			failAt(t, step, do)
			go func() { _ = s.pause() }()
			awaitClosed(t, reached, step)
			heal(t, step)
			b, err := s.find(s.box)
			if err != nil {
				t.Fatal(err)
			}
			s.crash(b)
			if slices.Contains(beforeTheRename, step) && step != "pause.renamed" {
				s.await(s.box, ready)
				s.wantSnapshots()
			} else {
				s.await(s.box, paused)
				s.nothingRuns()
				if contexts, err := s.Contexts(s.box); err != nil || len(contexts) != 1 {
					t.Fatalf("contexts %v, %v", contexts, err)
				}
				s.mustResume()
			}
			s.wellAndRunning()
			s.wantSnapshots()
		})
	}
}

func TestEngineStartedAgainKnowsWhatRunsInPausedBoxes(t *testing.T) {
	s := newSubject(t)
	s.mustPause()
	s.crash(nil)
	s.await(s.box, paused)
	id := s.held.Owner().ExecutionID
	if !slices.ContainsFunc(s.Executions(s.box), func(r *enginev1.ExecutionRecord) bool { return r.GetExecutionId() == id && r.GetRunning() }) {
		t.Fatalf("executions %v (expected: %s, which runs)", s.Executions(s.box), id)
	}
	log, err := s.Output(t.Context(), s.box, id)
	if err != nil || log.Last() != 2 || log.Finished() != nil {
		t.Fatalf("%v, %v", log, err)
	}
	_, err = s.Output(t.Context(), s.box, "exec-unknown")
	wantKind(t, err, Paused)
	s.mustResume()
	s.wellAndRunning()
	_, err = s.Output(t.Context(), s.box, "exec-unknown")
	wantKind(t, err, NotFound)
}

func TestResumeThatFailsAnywhereLeavesTheBoxPaused(t *testing.T) {
	for _, step := range []string{"resume.recorded", "resume.prepared", "resume.restored", "resume.connected"} {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			s.mustPause()
			s.nothingRuns()
			failAt(t, step, func() error { return failpoint.ErrInjected })
			_, err := s.Resume(t.Context(), &enginev1.ResumeBoxRequest{BoxId: s.box, Assignment: &enginev1.AssignBoxRequest{
				BoxId: s.box, SandboxId: "sb-1", Hostname: "other", Labels: map[string]string{"a": "b"},
			}})
			wantKind(t, err, Internal)
			if b, err := s.Get(s.box); err != nil || b.GetState() != paused || len(b.GetLabels()) > 0 {
				t.Fatalf("%v, %v (expected: as it was)", b, err)
			}
			s.nothingRuns()
			heal(t, step)
			s.mustResume()
			s.wellAndRunning()
		})
	}
}

func TestEngineKilledWhileItResumesFindsTheBoxPausedOrRunning(t *testing.T) {
	for _, step := range failpoint.Of("resume") {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			s.mustPause()
			s.nothingRuns()
			do, reached, _ := block()
			failAt(t, step, do)
			go func() { _ = s.resume() }()
			awaitClosed(t, reached, step)
			heal(t, step)
			b, err := s.find(s.box)
			if err != nil {
				t.Fatal(err)
			}
			if step == "resume.cleaned" {
				b = nil
			}
			s.crash(b)
			if step == "resume.saved" || step == "resume.cleaned" {
				s.await(s.box, ready)
			} else {
				s.await(s.box, paused)
				s.nothingRuns()
				s.mustResume()
			}
			s.wellAndRunning()
			s.wantSnapshots()
		})
	}
}

func TestDeletedBoxLeavesNothingWhateverIsUnderWay(t *testing.T) {
	operations := map[string]func(s *subject) error{
		"pause":  func(s *subject) error { return s.pause() },
		"resume": func(s *subject) error { return s.resume() },
		"rollback": func(s *subject) error {
			_, err := s.Rollback(s.t.Context(), &enginev1.RollbackBoxRequest{BoxId: s.box, SnapshotId: s.Snapshots()[0].GetSnapshotId()})
			return err
		},
	}
	for operation, do := range operations {
		for _, step := range failpoint.Of(operation) {
			t.Run(step, func(t *testing.T) {
				s := newSubject(t)
				switch operation {
				case "resume":
					s.mustPause()
				case "rollback":
					s.mustSnapshot()
				}
				s.deleteAt(step, s.box, func() error { return do(s) })
				if log, ok := s.spool.Find(s.held.Owner().ExecutionID); !ok || log.Finished() == nil {
					t.Fatal("the execution that ran has no end")
				}
			})
		}
	}
	for _, step := range failpoint.Of("restore") {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			request := &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: s.mustSnapshot().GetSnapshotId()}
			s.deleteAt(step, request.GetBoxId(), func() error {
				_, err := s.Restore(context.Background(), request)
				return err
			})
			s.wellAndRunning()
		})
	}
	for _, step := range failpoint.Of("snapshot") {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			s.deleteAt(step, s.box, func() error {
				_, err := s.CreateSnapshot(context.Background(), &enginev1.CreateSnapshotRequest{BoxId: s.box, SnapshotId: newID("snap"), Kind: memoryKind})
				return err
			})
		})
	}
}

func TestEngineKilledWhileItDeletesLeavesNothingOnceItIsDeletedAgain(t *testing.T) {
	for _, step := range failpoint.Of("delete") {
		for _, isPaused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, paused %v", step, isPaused), func(t *testing.T) {
				s := newSubject(t)
				if isPaused {
					s.mustPause()
				}
				stuck, err := s.find(s.box)
				if err != nil {
					t.Fatal(err)
				}
				do, reached, _ := block()
				failAt(t, step, do)
				go func() { _ = s.Delete(context.Background(), s.box) }()
				awaitClosed(t, reached, step)
				heal(t, step)
				s.crash(stuck)
				if err := s.Delete(t.Context(), s.box); err != nil {
					t.Fatal(err)
				}
				s.nothingIsLeft()
			})
		}
	}
}

// deleteAt deletes a box while something is at a step, and fails the test if anything is left of either.
func (s *subject) deleteAt(step, box string, do func() error) {
	s.t.Helper()
	stop, reached, release := block()
	failAt(s.t, step, stop)
	done := make(chan error, 1)
	go func() { done <- do() }()
	awaitClosed(s.t, reached, step)
	b, err := s.find(box)
	if err != nil {
		s.t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- s.Delete(context.Background(), box) }()
	awaitClosed(s.t, b.life.Done(), "deletion has begun")
	close(release)
	if err := <-deleted; err != nil {
		s.t.Fatal(err)
	}
	<-done
	_, err = s.Get(box)
	wantKind(s.t, err, NotFound)
	if box == s.box {
		s.nothingIsLeft()
	}
	var whole []string
	for _, snapshot := range s.Snapshots() {
		whole = append(whole, snapshot.GetSnapshotId())
	}
	s.wantSnapshots(whole...)
}

func (s *subject) mustSnapshot() *enginev1.Snapshot {
	s.t.Helper()
	made, err := s.CreateSnapshot(s.t.Context(), &enginev1.CreateSnapshotRequest{BoxId: s.box, SnapshotId: newID("snap"), Kind: memoryKind})
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

func TestSnapshotThatFailsAnywhereLeavesTheBoxRunningAndNoFile(t *testing.T) {
	for _, step := range []string{"snapshot.recorded", "snapshot.written", "snapshot.verified", "snapshot.synced", "snapshot.renamed"} {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			failAt(t, step, func() error { return unix.ENOSPC })
			_, err := s.CreateSnapshot(t.Context(), &enginev1.CreateSnapshotRequest{BoxId: s.box, SnapshotId: newID("snap"), Kind: memoryKind})
			wantKind(t, err, Exhausted)
			s.wantSnapshots()
			heal(t, step)
			s.wantSnapshots(s.mustSnapshot().GetSnapshotId())
			s.wellAndRunning()
		})
	}
}

func TestEngineKilledWhileItMakesASnapshotHasAllOfItOrNothing(t *testing.T) {
	for _, step := range failpoint.Of("snapshot") {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			do, reached, _ := block()
			failAt(t, step, do)
			id := newID("snap")
			go func() {
				_, _ = s.CreateSnapshot(t.Context(), &enginev1.CreateSnapshotRequest{BoxId: s.box, SnapshotId: id, Kind: memoryKind})
			}()
			awaitClosed(t, reached, step)
			heal(t, step)
			b, err := s.find(s.box)
			if err != nil {
				t.Fatal(err)
			}
			if step != "snapshot.recorded" {
				b = nil
			}
			s.crash(b)
			s.wellAndRunning()
			if step != "snapshot.renamed" && step != "snapshot.sealed" {
				s.wantSnapshots()
				return
			}
			s.wantSnapshots(id)
			s.restored(id)
		})
	}
}

// restored makes a box from a snapshot.
func (s *subject) restored(id string) string {
	s.t.Helper()
	b, err := s.Restore(s.t.Context(), &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: id})
	if err != nil {
		s.t.Fatal(err)
	}
	if f, text := s.run(b.GetBoxId(), "print 1"); f.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED || len(text) != 100 {
		s.t.Fatalf("%q, %v", text, f)
	}
	return b.GetBoxId()
}

func TestRestoreThatFailsAnywhereLeavesNoBox(t *testing.T) {
	for _, step := range failpoint.Of("restore") {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			made := s.mustSnapshot()
			for _, prepared := range []string{"", s.prepare()} {
				failAt(t, step, func() error { return failpoint.ErrInjected })
				id := newID("box")
				_, err := s.Restore(t.Context(), &enginev1.RestoreBoxRequest{BoxId: id, SnapshotId: made.GetSnapshotId(), PreparedBoxId: prepared})
				wantKind(t, err, Internal)
				_, err = s.Get(id)
				wantKind(t, err, NotFound)
				heal(t, step)
			}
			s.restored(made.GetSnapshotId())
			s.wellAndRunning()
		})
	}
}

// What a runtime says then is not always that there is no space.
func TestRestoreThatFailsOnAFullDiskIsToldAsOne(t *testing.T) {
	s := newSubject(t)
	made := s.mustSnapshot()
	disk := s.disk
	failAt(t, "restore.recorded", func() error {
		s.disk = func() (total, available uint64, err error) { return 1 << 30, 0, nil }
		return unix.EIO
	})
	_, err := s.Restore(t.Context(), &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: made.GetSnapshotId()})
	wantKind(t, err, Exhausted)
	heal(t, "restore.recorded")
	s.disk = disk
	s.restored(made.GetSnapshotId())
}

func (s *subject) prepare() string {
	s.t.Helper()
	request := s.request()
	request.Spec.WarmContexts = nil
	b, err := s.Prepare(s.t.Context(), &enginev1.PrepareBoxRequest{BoxId: request.GetBoxId(), Spec: request.GetSpec()})
	if err != nil || b.GetState() != enginev1.BoxState_BOX_STATE_PREPARED {
		s.t.Fatalf("%v, %v", b, err)
	}
	return b.GetBoxId()
}

func TestEngineKilledWhileItRestoresLeavesNoHalfBox(t *testing.T) {
	for _, step := range failpoint.Of("restore") {
		for _, with := range []string{"fresh", "prepared"} {
			t.Run(step+"/"+with, func(t *testing.T) {
				s := newSubject(t)
				made := s.mustSnapshot()
				do, reached, _ := block()
				failAt(t, step, do)
				request := &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: made.GetSnapshotId()}
				if with == "prepared" {
					request.PreparedBoxId = s.prepare()
				}
				go func() { _, _ = s.Restore(t.Context(), request) }()
				awaitClosed(t, reached, step)
				heal(t, step)
				b, err := s.find(request.GetBoxId())
				if err != nil {
					t.Fatal(err)
				}
				s.crash(b)
				s.wellAndRunning()
				if step == "restore.saved" {
					s.await(request.GetBoxId(), ready)
				} else {
					_, err = s.Get(request.GetBoxId())
					wantKind(t, err, NotFound)
				}
				// What the first attempt did not leave is not in the way of the second.
				if _, err := s.Restore(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				if f, _ := s.run(request.GetBoxId(), "print 1"); f.GetReason() != execv1.ExitReason_EXIT_REASON_COMPLETED {
					t.Fatalf("%v", f)
				}
			})
		}
	}
}

func TestRollbackThatFailsAnywhereLeavesTheBoxAsItWas(t *testing.T) {
	for _, step := range []string{"rollback.recorded", "rollback.prepared", "rollback.restored", "rollback.connected"} {
		t.Run(step, func(t *testing.T) {
			s := newSubject(t)
			made := s.mustSnapshot()
			failAt(t, step, func() error { return failpoint.ErrInjected })
			_, err := s.Rollback(t.Context(), &enginev1.RollbackBoxRequest{BoxId: s.box, SnapshotId: made.GetSnapshotId()})
			wantKind(t, err, Internal)
			heal(t, step)
			s.wellAndRunning()
			if _, err := s.Rollback(t.Context(), &enginev1.RollbackBoxRequest{BoxId: s.box, SnapshotId: made.GetSnapshotId()}); err != nil {
				t.Fatal(err)
			}
			s.run(s.box, "print 1")
		})
	}
}

func TestEngineKilledWhileItRollsBackHasTheOldOrTheNew(t *testing.T) {
	for _, step := range failpoint.Of("rollback") {
		for _, from := range []string{"running", "paused"} {
			t.Run(step+"/"+from, func(t *testing.T) {
				if from == "paused" && step == "rollback.freed" {
					t.Log("a paused box has nothing to free")
					return
				}
				s := newSubject(t)
				made := s.mustSnapshot()
				if from == "paused" {
					s.mustPause()
				}
				do, reached, _ := block()
				failAt(t, step, do)
				go func() {
					_, _ = s.Rollback(t.Context(), &enginev1.RollbackBoxRequest{BoxId: s.box, SnapshotId: made.GetSnapshotId()})
				}()
				awaitClosed(t, reached, step)
				heal(t, step)
				b, err := s.find(s.box)
				if err != nil {
					t.Fatal(err)
				}
				s.crash(b)
				switch {
				case step == "rollback.saved" || step == "rollback.freed":
					s.await(s.box, ready)
					s.run(s.box, "print 1")
				case from == "paused":
					s.await(s.box, paused)
					s.nothingRuns()
					s.mustResume()
					s.wellAndRunning()
				default:
					s.wellAndRunning()
				}
				s.wantSnapshots(made.GetSnapshotId())
			})
		}
	}
}

func TestRollbackEndsWhatRan(t *testing.T) {
	s := newSubject(t)
	made := s.mustSnapshot()
	if _, err := s.Rollback(t.Context(), &enginev1.RollbackBoxRequest{BoxId: s.box, SnapshotId: made.GetSnapshotId()}); err != nil {
		t.Fatal(err)
	}
	f := s.held.Finished()
	if f.GetReason() != execv1.ExitReason_EXIT_REASON_LOST || !strings.Contains(f.GetDetail(), made.GetSnapshotId()) {
		t.Fatalf("end %v (expected: lost, and to which snapshot)", f)
	}
	s.run(s.box, "print 1")
	other := s.create()
	_, err := s.Rollback(t.Context(), &enginev1.RollbackBoxRequest{BoxId: other, SnapshotId: made.GetSnapshotId()})
	wantKind(t, err, FailedPrecondition)
}

func TestForksHaveNamesOfTheirOwnAndNothingOfWhatRan(t *testing.T) {
	s := newSubject(t)
	made := s.mustSnapshot()
	s.mustPause()
	for _, request := range []*enginev1.RestoreBoxRequest{{SnapshotId: made.GetSnapshotId()}, {PausedBoxId: s.box}} {
		request.BoxId = newID("box")
		request.RenameContexts = map[string]string{"ctx": "ctx-2"}
		request.Assignment = &enginev1.AssignBoxRequest{SandboxId: "sb-fork"}
		b, err := s.Restore(t.Context(), request)
		if err != nil || b.GetSandboxId() != "sb-fork" || len(b.GetContexts()) != 1 || b.GetContexts()[0].GetContextId() != "ctx-2" {
			t.Fatalf("%v, %v", b, err)
		}
		if again, err := s.Restore(t.Context(), request); err != nil || again.GetBoxId() != b.GetBoxId() {
			t.Fatalf("the same call again: %v, %v", again, err)
		}
		if records := s.Executions(b.GetBoxId()); len(records) != 0 {
			t.Fatalf("executions %v (expected: none)", records)
		}
	}
	if s.state() != paused {
		t.Fatalf("the source is %v", s.state())
	}
	s.mustResume()
	s.wellAndRunning()
}

// Its caller waits for it in the source; in a copy nobody knows it, and its id is the source's.
func TestForkHasNoContextThatWasJustBeingOpened(t *testing.T) {
	s := newSubject(t)
	if _, err := s.OpenContext(t.Context(), s.box, &execv1.ContextSpec{ContextId: "ctx-late", Language: "test"}); err != nil {
		t.Fatal(err)
	}
	b, err := s.find(s.box)
	if err != nil {
		t.Fatal(err)
	}
	// As before the agent's answer.
	b.contexts.remove("ctx-late")
	made := s.mustSnapshot()
	fork, err := s.Restore(t.Context(), &enginev1.RestoreBoxRequest{
		BoxId: newID("box"), SnapshotId: made.GetSnapshotId(), RenameContexts: map[string]string{"ctx": "ctx-2"},
		Assignment: &enginev1.AssignBoxRequest{SandboxId: "sb-fork"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if have := fork.GetContexts(); len(have) != 1 || have[0].GetContextId() != "ctx-2" {
		t.Fatalf("contexts %v (expected: ctx-2)", have)
	}
	// The agent does not have it any more either: its name is free.
	if _, err := s.OpenContext(t.Context(), fork.GetBoxId(), &execv1.ContextSpec{ContextId: "ctx-late", Language: "test"}); err != nil {
		t.Fatal(err)
	}
}

func TestPreparedBoxThatDoesNotFitIsDoneWithout(t *testing.T) {
	s := newSubject(t)
	made := s.mustSnapshot()
	request := s.request()
	request.Spec.WarmContexts = nil
	request.Spec.Limits.DiskBytes = 64 << 20
	small, err := s.Prepare(t.Context(), &enginev1.PrepareBoxRequest{BoxId: request.GetBoxId(), Spec: request.GetSpec()})
	if err != nil {
		t.Fatal(err)
	}
	for _, prepared := range []string{small.GetBoxId(), newID("box"), s.box} {
		if _, err := s.Restore(t.Context(), &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: made.GetSnapshotId(), PreparedBoxId: prepared}); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := s.Get(small.GetBoxId()); err != nil || b.GetState() != enginev1.BoxState_BOX_STATE_PREPARED {
		t.Fatalf("%v, %v (expected: still prepared)", b, err)
	}
	_, err = s.execute(small.GetBoxId(), "print 1")
	wantKind(t, err, FailedPrecondition)
	s.wellAndRunning()
}

func TestPreparedBoxOutlivesTheEngine(t *testing.T) {
	s := newSubject(t)
	made := s.mustSnapshot()
	prepared := s.prepare()
	s.crash(nil)
	s.await(prepared, enginev1.BoxState_BOX_STATE_PREPARED)
	b, err := s.Restore(t.Context(), &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: made.GetSnapshotId(), PreparedBoxId: prepared})
	if err != nil {
		t.Fatal(err)
	}
	s.run(b.GetBoxId(), "print 1")
	_, err = s.Get(prepared)
	wantKind(t, err, NotFound)
	found, err := s.find(b.GetBoxId())
	if err != nil || found.container.Load().id != prepared {
		t.Fatalf("container %v (expected: %s)", found.container.Load(), prepared)
	}
	s.crash(nil)
	s.await(b.GetBoxId(), ready)
	s.run(b.GetBoxId(), "print 1")
}

func TestDeadlineIsKeptByTheAgentAndReported(t *testing.T) {
	s := newSubject(t)
	if _, err := s.SetDeadline(t.Context(), s.box, time.Now().Add(time.Hour).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	s.mustPause()
	b, err := s.SetDeadline(t.Context(), s.box, 0)
	if err != nil || b.GetDeadlineUnixMs() != 0 {
		t.Fatalf("%v, %v", b, err)
	}
	s.mustResume()
	s.wellAndRunning()
}

func TestCallsThatMeetAPauseAreToldOrAnswered(t *testing.T) {
	s := newSubject(t)
	stop, reached, release := block()
	failAt(t, "pause.written", stop)
	done := make(chan error, 1)
	go func() { done <- s.pause() }()
	awaitClosed(t, reached, "the pause has begun")
	call := make(chan error, 1)
	go func() {
		_, err := s.execute(s.box, "print 1")
		call <- err
	}()
	select {
	case err := <-call:
		t.Fatalf("a call during the pause did not wait for its end: %v", err)
	case <-time.After(3 * reconnectPatience):
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-call, Paused)
	if _, ok := s.spool.Find("none"); ok {
		t.Fatal("found")
	}
	s.mustResume()
	s.wellAndRunning()
}

func TestPausedBoxWhoseManifestIsDamagedStaysPausedAndIsDeleted(t *testing.T) {
	damages := map[string]func(path string) error{
		"gone": os.Remove,
		"changed": func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return os.WriteFile(path, text, 0o600)
		},
	}
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			s := newSubject(t)
			s.mustPause()
			pause := s.snapshotFolders()[0]
			s.crash(nil)
			if err := damage(filepath.Join(snapshot.Dir(s.dir), pause, "manifest.json")); err != nil {
				t.Fatal(err)
			}
			s.crash(nil)
			for range 2 {
				wantKind(t, s.resume(), FailedPrecondition)
				if have := s.state(); have != paused {
					t.Fatalf("%v (expected: paused)", have)
				}
				// It is no snapshot of a user's, who might remove it, or whose server would.
				if all := s.Snapshots(); len(all) > 0 {
					t.Fatalf("snapshots %v (expected: none)", all)
				}
				wantKind(t, s.DeleteSnapshot(pause), FailedPrecondition)
				s.crash(nil)
			}
			if err := s.Delete(t.Context(), s.box); err != nil {
				t.Fatal(err)
			}
			s.nothingIsLeft()
			s.wantSnapshots()
		})
	}
}

func TestLimitsOfAPausedBoxWaitForItsResume(t *testing.T) {
	s := newSubject(t)
	s.mustPause()
	_, err := s.UpdateLimits(t.Context(), s.box, &execv1.Limits{MemoryBytes: 128 << 20})
	wantKind(t, err, Paused)
	b, err := s.Resume(t.Context(), &enginev1.ResumeBoxRequest{BoxId: s.box, Assignment: &enginev1.AssignBoxRequest{
		SandboxId: "sb-1", Limits: &execv1.Limits{MemoryBytes: 128 << 20}, DeadlineUnixMs: time.Now().Add(time.Hour).UnixMilli(),
	}})
	if err != nil || b.GetLimits().GetMemoryBytes() != 128<<20 || b.GetDeadlineUnixMs() == 0 {
		t.Fatalf("%v, %v", b, err)
	}
	s.wellAndRunning()
}

func TestSnapshotOfABuildThatIsNotHereIsListedAndRefused(t *testing.T) {
	s := newSubject(t)
	s.driver.Builds = nil
	made := s.mustSnapshot()
	b, err := s.find(s.box)
	if err != nil {
		t.Fatal(err)
	}
	_ = b
	id := made.GetSnapshotId()
	old := s.config.Driver
	s.Node.driver = otherBuild{old}
	defer func() { s.Node.driver = old }()
	list := s.Snapshots()
	if len(list) != 1 || !strings.Contains(list[0].GetUnusable(), made.GetRuntimeVersion()) {
		t.Fatalf("%v (expected: unusable, and why)", list)
	}
	_, err = s.Restore(t.Context(), &enginev1.RestoreBoxRequest{BoxId: newID("box"), SnapshotId: id})
	wantKind(t, err, FailedPrecondition)
}

// otherBuild is a driver of which nothing that exists was made.
type otherBuild struct{ driver.Driver }

func (otherBuild) Version() string    { return "fake-9" }
func (otherBuild) Versions() []string { return []string{"fake-9"} }

// statuses is a reaper that knows how each process ended.
type statuses unix.WaitStatus

func (s statuses) Status(int) <-chan unix.WaitStatus {
	c := make(chan unix.WaitStatus, 1)
	c <- unix.WaitStatus(s)
	return c
}

func (statuses) Forget(int) {}

func TestBoxThatEndedAtItsDeadlineSaysSo(t *testing.T) {
	r := newRig(t)
	r.reaper = statuses(deadlineStatus << 8)
	box := r.create()
	if _, err := r.SetDeadline(t.Context(), box, time.Now().Add(50*time.Millisecond).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if b := r.await(box, enginev1.BoxState_BOX_STATE_ENDED); b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_DEADLINE {
		t.Fatalf("%v", b)
	}
	// An exit like that without a deadline is just that.
	other := r.create()
	r.run(other, "exit 124")
	if b := r.await(other, enginev1.BoxState_BOX_STATE_ENDED); b.GetEndReason() != enginev1.BoxEndReason_BOX_END_REASON_EXITED {
		t.Fatalf("%v", b)
	}
}

func TestBoxOfAnEngineThatKeptNoAgentRunsOnAndCannotBePaused(t *testing.T) {
	s := newSubject(t)
	b, err := s.find(s.box)
	if err != nil {
		t.Fatal(err)
	}
	b.container.Load().spec.Agent = unknownAgent
	wantKind(t, s.pause(), FailedPrecondition)
	_, err = s.CreateSnapshot(t.Context(), &enginev1.CreateSnapshotRequest{BoxId: s.box, SnapshotId: newID("snap"), Kind: memoryKind})
	wantKind(t, err, FailedPrecondition)
	s.wellAndRunning()
}

func TestCallsThatAPauseCutsOffAreToldThatItWasOne(t *testing.T) {
	s := newSubject(t)
	begun := make(chan struct{})
	watch := make(chan error, 1)
	go func() {
		watch <- s.WatchFiles(t.Context(), s.box, &filev1.WatchFilesRequest{}, func([]byte) error { close(begun); return nil })
	}()
	awaitClosed(t, begun, "the watch")
	stuck := make(chan error, 1)
	go func() {
		_, err := s.File(t.Context(), s.box, &filev1.FileRequest{Operation: &filev1.FileRequest_Stat{Stat: &filev1.Stat{Path: "stuck"}}})
		stuck <- err
	}()
	b, err := s.find(s.box)
	if err != nil {
		t.Fatal(err)
	}
	// The watch is not counted.
	for b.currentLink().calls.Load() != 1 {
		<-time.After(time.Millisecond)
	}
	s.mustPause()
	wantKind(t, <-watch, Paused)
	wantKind(t, <-stuck, Paused)
	s.mustResume()
	s.wellAndRunning()
}

// Everything that a life cycle has happens to boxes at once: each call has one of its legal answers, deletion always works, and nothing is left.
func TestLifeCycleSurvivesEverythingAtOnce(t *testing.T) {
	r := newRig(t)
	for round := range 12 {
		boxes := []string{r.create(), r.create()}
		var made sync.Map
		var group sync.WaitGroup
		act := func(name string, times int, f func(id string) error) {
			for _, id := range boxes {
				group.Go(func() {
					for range times {
						<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
						err := f(id)
						var known *Fault
						legal := []FaultKind{NotFound, FailedPrecondition, Unavailable, Paused}
						if err != nil && !(errors.As(err, &known) && slices.Contains(legal, known.Kind)) {
							t.Errorf("round %d: %s: %v", round, name, err)
						}
					}
				})
			}
		}
		act("pause", 3, func(id string) error { _, err := r.Pause(t.Context(), id, newID("snap"), memoryKind); return err })
		act("resume", 4, func(id string) error {
			_, err := r.Resume(t.Context(), &enginev1.ResumeBoxRequest{BoxId: id})
			return err
		})
		act("snapshot", 2, func(id string) error {
			request := &enginev1.CreateSnapshotRequest{BoxId: id, SnapshotId: newID("snap"), Kind: memoryKind}
			_, err := r.CreateSnapshot(t.Context(), request)
			if err == nil {
				made.Store(id, request.GetSnapshotId())
			}
			return err
		})
		act("rollback", 1, func(id string) error {
			from, ok := made.Load(id)
			if !ok {
				return nil
			}
			_, err := r.Rollback(t.Context(), &enginev1.RollbackBoxRequest{BoxId: id, SnapshotId: from.(string)})
			return err
		})
		act("fork", 2, func(id string) error {
			request := &enginev1.RestoreBoxRequest{BoxId: newID("box"), PausedBoxId: id}
			if from, ok := made.Load(id); ok && rand.IntN(2) == 0 {
				request.SnapshotId, request.PausedBoxId = from.(string), ""
			}
			_, err := r.Restore(t.Context(), request)
			return err
		})
		act("execute", 4, func(id string) error {
			_, err := r.execute(id, "print 20")
			return err
		})
		if round%2 == 1 {
			act("delete", 1, func(id string) error { return r.Delete(t.Context(), id) })
		}
		group.Wait()
		for _, b := range r.List() {
			switch b.GetState() {
			case paused, ready, enginev1.BoxState_BOX_STATE_RECONNECTING:
			default:
				t.Errorf("round %d: %v", round, b)
			}
			if err := r.Delete(t.Context(), b.GetBoxId()); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range r.Snapshots() {
			if err := r.DeleteSnapshot(s.GetSnapshotId()); err != nil {
				t.Fatal(err)
			}
		}
		r.nothingIsLeft()
		r.wantSnapshots()
	}
}

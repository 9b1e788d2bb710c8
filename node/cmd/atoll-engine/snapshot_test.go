package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/engine"
	"atoll/node/internal/engine/enginetest"
)

const (
	memorySnapshot = enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY
	filesSnapshot  = enginev1.SnapshotKind_SNAPSHOT_KIND_FILES
)

func TestPausedBoxGoesOnWhereItWas(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "n = 0\nf = open('/tmp/open', 'w+')")
	for round := range 10 {
		paused := box.Pause(t.Context())
		if paused.GetState() != enginev1.BoxState_BOX_STATE_PAUSED || paused.GetPauseSnapshotBytes() == 0 {
			t.Fatalf("box %v", paused)
		}
		resumed := box.Resume(t.Context())
		if resumed.GetState() != enginev1.BoxState_BOX_STATE_READY || resumed.GetPauseSnapshotId() != "" {
			t.Fatalf("box %v", resumed)
		}
		wantOutput(t, box.Run(t.Context(), "n += 1\nf.write(str(n)); f.flush()\nprint(n, open('/tmp/open').read())"), fmt.Sprintf("%d %s\n", round+1, "12345678910"[:round+1+(round+1)/10]))
	}
}

func TestForksOfARunningBoxGoOnFromWhereItWas(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "import random, ssl, os\nx = 40\nopen('/tmp/f', 'w').write('from the source')")
	s := box.Snapshot(t.Context(), memorySnapshot)
	if len(s.GetContexts()) != 1 || s.GetContexts()[0].GetContextId() != box.Context || s.GetSizeBytes() == 0 || s.GetUnusable() != "" {
		t.Fatalf("snapshot %v", s)
	}
	prepared, err := e.PrepareBox(t.Context(), &enginev1.PrepareBoxRequest{
		BoxId: enginetest.NewID("box"), Spec: &enginev1.BoxSpec{ImageDigest: s.GetImageDigest()},
	})
	if err != nil || prepared.GetState() != enginev1.BoxState_BOX_STATE_PREPARED {
		t.Fatalf("%v, %v (expected: a prepared box)", prepared, err)
	}
	var forks []*enginetest.Sandbox
	for _, prepared := range []string{prepared.GetBoxId(), prepared.GetBoxId(), ""} {
		forks = append(forks, e.Restore(t.Context(), &enginev1.RestoreBoxRequest{SnapshotId: s.GetSnapshotId(), PreparedBoxId: prepared}, box.Context))
	}
	if _, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: prepared.GetBoxId()}); status.Code(err) != codes.NotFound {
		t.Fatalf("error %v (expected: the prepared box is a part of another)", err)
	}
	wantOutput(t, box.Run(t.Context(), "x += 1; print(x)"), "41\n")
	seen := map[string]bool{}
	for _, fork := range forks {
		wantOutput(t, fork.Run(t.Context(), "x += 2; print(x, open('/tmp/f').read())"), "42 from the source\n")
		dice := fork.Run(t.Context(), "print(random.random(), ssl.RAND_bytes(8).hex())")
		if seen[string(dice.Stdout)] {
			t.Fatalf("two forks roll the same dice: %s", dice.Stdout)
		}
		seen[string(dice.Stdout)] = true
	}
	// An engine that is started again finds those that live in a container of another name too.
	e.Kill()
	e.Launch()
	for _, fork := range forks {
		awaitState(t, e, fork.Box, enginev1.BoxState_BOX_STATE_READY)
		wantOutput(t, fork.Run(t.Context(), "print(x)"), "42\n")
		fork.Delete(t.Context())
	}
	if _, err := e.DeleteSnapshot(t.Context(), &enginev1.SnapshotRequest{SnapshotId: s.GetSnapshotId()}); err != nil {
		t.Fatal(err)
	}
	box.Delete(t.Context())
	wantNoBoxes(t, e)
}

// wantNoBoxes fails the test if anything of any box, or of any snapshot, is on the host.
func wantNoBoxes(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	enginetest.Await(t, 5*time.Second, func() (bool, string) {
		found := enginetest.Remains("box-", filepath.Join(e.Data, "boxes"), filepath.Join(e.Run, "runsc"))
		found = slices.DeleteFunc(found, func(line string) bool { return !strings.Contains(line, e.Instance) && !strings.Contains(line, e.Data) })
		found = append(found, enginetest.Remains("snap-", e.Data)...)
		return len(found) == 0, strings.Join(found, "\n")
	})
}

func TestForkOfAPausedBoxLeavesItPaused(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "x = 1")
	box.Pause(t.Context())
	fork := e.Restore(t.Context(), &enginev1.RestoreBoxRequest{
		PausedBoxId: box.Box, RenameContexts: map[string]string{box.Context: "ctx-renamed"},
	}, "ctx-renamed")
	wantOutput(t, fork.Run(t.Context(), "x += 1; print(x)"), "2\n")
	if b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: box.Box}); err != nil || b.GetState() != enginev1.BoxState_BOX_STATE_PAUSED {
		t.Fatalf("%v, %v (expected: paused)", b, err)
	}
	linked := box.Snapshot(t.Context(), memorySnapshot)
	box.Resume(t.Context())
	wantOutput(t, box.Run(t.Context(), "print(x)"), "1\n")
	late := e.Restore(t.Context(), &enginev1.RestoreBoxRequest{SnapshotId: linked.GetSnapshotId()}, box.Context)
	wantOutput(t, late.Run(t.Context(), "print(x)"), "1\n")
}

func TestRollbackForgetsWhatCameAfter(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "x = 'before'\nopen('/tmp/f', 'w').write('before')")
	s := box.Snapshot(t.Context(), memorySnapshot)
	box.Run(t.Context(), "x = 'after'\nopen('/tmp/f', 'w').write('after')")
	id := enginetest.NewID("exec")
	stream, err := box.Begin(t.Context(), id, "import time; print('begun', flush=True); time.sleep(600)")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	rolled, err := e.RollbackBox(t.Context(), &enginev1.RollbackBoxRequest{BoxId: box.Box, SnapshotId: s.GetSnapshotId()})
	if err != nil || rolled.GetState() != enginev1.BoxState_BOX_STATE_READY {
		t.Fatalf("%v, %v", rolled, err)
	}
	wantOutput(t, box.Run(t.Context(), "print(x, open('/tmp/f').read())"), "before before\n")
	last, err := stream.Recv()
	if f := last.GetFinished(); err != nil || f.GetReason() != execv1.ExitReason_EXIT_REASON_LOST || !strings.Contains(f.GetDetail(), s.GetSnapshotId()) {
		t.Fatalf("%v, %v (expected: lost, and why)", last, err)
	}
	other := e.Python(t.Context())
	_, err = e.RollbackBox(t.Context(), &enginev1.RollbackBoxRequest{BoxId: other.Box, SnapshotId: s.GetSnapshotId()})
	wantCode(t, err, codes.FailedPrecondition)
}

func TestFilesSnapshotStartsAnewWithTheFiles(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "x = 1\nopen('/tmp/f', 'w').write('kept')")
	s := box.Snapshot(t.Context(), filesSnapshot)
	wantOutput(t, box.Run(t.Context(), "print(x)"), "1\n")
	fresh := enginetest.NewID("ctx")
	anew := e.Restore(t.Context(), &enginev1.RestoreBoxRequest{
		SnapshotId: s.GetSnapshotId(), WarmContexts: []*execv1.ContextSpec{{ContextId: fresh, Language: "python"}},
	}, fresh)
	wantOutput(t, anew.Run(t.Context(), "print(open('/tmp/f').read(), 'x' in globals())"), "kept False\n")
}

func export(t *testing.T, e *enginetest.Engine, id string) []byte {
	t.Helper()
	stream, err := e.ExportSnapshot(t.Context(), &enginev1.SnapshotRequest{SnapshotId: id})
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part.GetData()...)
	}
}

func importFile(ctx context.Context, e *enginetest.Engine, begin *enginev1.ImportBegin, file []byte) (*enginev1.Snapshot, error) {
	stream, err := e.ImportSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&enginev1.ImportSnapshotRequest{Message: &enginev1.ImportSnapshotRequest_Begin{Begin: begin}}); err != nil && err != io.EOF {
		return nil, err
	}
	for len(file) > 0 {
		part := file[:min(len(file), 1<<20)]
		file = file[len(part):]
		if err := stream.Send(&enginev1.ImportSnapshotRequest{Message: &enginev1.ImportSnapshotRequest_Data{Data: part}}); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}

func TestExportedSnapshotLivesOnAnotherInstallationThatTrustsTheKey(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "x = 'travelled'")
	s := box.Snapshot(t.Context(), memorySnapshot)
	file := export(t, e, s.GetSnapshotId())
	info, err := e.GetInfo(t.Context(), &enginev1.GetInfoRequest{})
	if err != nil || len(info.GetSnapshotKey()) != 64 || len(info.GetRuntimeVersions()) == 0 || info.GetRuntimeVersions()[0] != info.GetRuntimeVersion() {
		t.Fatalf("%v, %v", info, err)
	}
	other := start(t)
	id := enginetest.NewID("snap")
	_, err = importFile(t.Context(), other, &enginev1.ImportBegin{SnapshotId: id}, file)
	wantCode(t, err, codes.FailedPrecondition)
	trusted := &enginev1.ImportBegin{SnapshotId: id, Labels: map[string]string{"name": "guest"}, TrustedKeys: []string{info.GetSnapshotKey()}}
	for name, bad := range map[string][]byte{
		"truncated": file[:len(file)-len(file)/3],
		"changed":   append(append(slices.Clone(file[:len(file)/2]), file[len(file)/2]^1), file[len(file)/2+1:]...),
		"no file":   []byte("hello"),
	} {
		if _, err := importFile(t.Context(), other, trusted, bad); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: error %v (expected: refused)", name, err)
		}
	}
	taken, err := importFile(t.Context(), other, trusted, file)
	if err != nil || taken.GetSnapshotId() != id || taken.GetLabels()["name"] != "guest" || taken.GetUnusable() != "" {
		t.Fatalf("%v, %v", taken, err)
	}
	guest := other.Restore(t.Context(), &enginev1.RestoreBoxRequest{SnapshotId: id}, box.Context)
	wantOutput(t, guest.Run(t.Context(), "print(x)"), "travelled\n")
}

// buildCalled is a copy of the newest build of runsc with a version of its own.
func buildCalled(t *testing.T, version string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), version)
	if err := os.CopyFS(dir, os.DirFS(enginetest.Files(t).Runsc)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "VERSION"), []byte(version), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBoxesAndSnapshotsOutliveTheBuildThatMadeThem(t *testing.T) {
	e := start(t)
	e.Kill()
	first := buildCalled(t, "atoll-first")
	e.Runsc = first
	e.Launch()
	box, running := e.Python(t.Context()), e.Python(t.Context())
	box.Run(t.Context(), "x = 1")
	running.Run(t.Context(), "x = 2")
	s := running.Snapshot(t.Context(), memorySnapshot)
	box.Pause(t.Context())
	e.Kill()
	// As an update does.
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	e.Runsc = buildCalled(t, "atoll-second")
	e.Launch()
	versions := func() []string {
		t.Helper()
		info, err := e.GetInfo(t.Context(), &enginev1.GetInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return info.GetRuntimeVersions()
	}
	if have := versions(); !slices.Equal(have, []string{"atoll-second", "atoll-first"}) {
		t.Fatalf("builds %q", have)
	}
	box.Resume(t.Context())
	wantOutput(t, box.Run(t.Context(), "print(x)"), "1\n")
	awaitState(t, e, running.Box, enginev1.BoxState_BOX_STATE_READY)
	running.Pause(t.Context())
	running.Resume(t.Context())
	wantOutput(t, running.Run(t.Context(), "print(x)"), "2\n")
	// A prepared box of the new build is no place for a snapshot of the old one.
	prepared, err := e.PrepareBox(t.Context(), &enginev1.PrepareBoxRequest{BoxId: enginetest.NewID("box"), Spec: &enginev1.BoxSpec{ImageDigest: s.GetImageDigest()}})
	if err != nil || prepared.GetRuntimeVersion() != "atoll-second" {
		t.Fatalf("%v, %v", prepared, err)
	}
	fork := e.Restore(t.Context(), &enginev1.RestoreBoxRequest{SnapshotId: s.GetSnapshotId(), PreparedBoxId: prepared.GetBoxId()}, running.Context)
	wantOutput(t, fork.Run(t.Context(), "print(x)"), "2\n")
	if b, err := e.GetBox(t.Context(), &enginev1.BoxRequest{BoxId: fork.Box}); err != nil || b.GetRuntimeVersion() != "atoll-first" {
		t.Fatalf("%v, %v", b, err)
	}
	for _, id := range []string{box.Box, running.Box, fork.Box, prepared.GetBoxId()} {
		if err := e.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	e.Kill()
	e.Launch()
	if have := versions(); len(have) != 2 {
		t.Fatalf("builds %q (expected: both, for the snapshot)", have)
	}
	if _, err := e.DeleteSnapshot(t.Context(), &enginev1.SnapshotRequest{SnapshotId: s.GetSnapshotId()}); err != nil {
		t.Fatal(err)
	}
	e.Kill()
	e.Launch()
	if have := versions(); !slices.Equal(have, []string{"atoll-second"}) {
		t.Fatalf("builds %q (expected: the one that is used)", have)
	}
}

// What is paused stays so when all of the host's memory of it is gone.
func TestPausedBoxOutlivesAMachine(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Run(t.Context(), "x = 1")
	stream, err := box.Begin(t.Context(), "exec-paused", "import time\nprint('a', flush=True)\ntime.sleep(1)\nprint('b')")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	box.Pause(t.Context())
	e.Kill()
	// Nothing of the run folder is there after a start of the machine.
	if err := os.RemoveAll(filepath.Join(e.Run, "runsc")); err != nil {
		t.Fatal(err)
	}
	e.Launch()
	if state := stateOf(t, e, box.Box); state != enginev1.BoxState_BOX_STATE_PAUSED {
		t.Fatalf("%v", state)
	}
	box.Resume(t.Context())
	attached, err := e.Attach(t.Context(), &enginev1.AttachRequest{BoxId: box.Box, ExecutionId: "exec-paused"})
	if err != nil {
		t.Fatal(err)
	}
	r := &enginetest.Result{}
	if err := enginetest.Collect(attached, r); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, r, "a\nb\n")
}

func TestCallsForAPausedBoxSaySo(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	box.Pause(t.Context())
	var trailer metadata.MD
	_, err := e.ListPorts(t.Context(), &enginev1.BoxRequest{BoxId: box.Box}, grpc.Trailer(&trailer))
	wantCode(t, err, codes.FailedPrecondition)
	if state := trailer.Get(engine.StateKey); !slices.Equal(state, []string{"paused"}) {
		t.Fatalf("trailer %v", trailer)
	}
	stream, err := box.Begin(t.Context(), enginetest.NewID("exec"), "print(1)")
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, err, codes.FailedPrecondition)
	if state := stream.Trailer().Get(engine.StateKey); !slices.Equal(state, []string{"paused"}) {
		t.Fatalf("trailer %v", stream.Trailer())
	}
	contexts, err := e.ListContexts(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
	if err != nil || len(contexts.GetContexts()) != 1 {
		t.Fatalf("%v, %v", contexts, err)
	}
}

package drivertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/driver"
	"atoll/node/internal/frame"
	"atoll/node/internal/patience"
)

// line is a connection to an agent with one process, cat, that prints what it is given.
type line struct {
	t       testing.TB
	box     *sandbox
	session *frame.Session
	stream  *frame.Stream
	output  string
}

const catID = "proc-aaaaaaaaaaaaaaaaaaaaaaaaaa"

func (b *sandbox) dial(t testing.TB, epoch uint64) *line {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(20*time.Second))
	defer cancel()
	session, err := Dial(ctx, b.spec.Dir, b.key, epoch)
	b.check(t, err)
	t.Cleanup(func() { session.Close() })
	return &line{t: t, box: b, session: session}
}

func (l *line) open(first *agentv1.ExecuteRequest) *line {
	l.t.Helper()
	var err error
	l.stream, err = l.session.Open(l.t.Context(), agentrpc.Execute)
	l.box.check(l.t, err)
	l.box.check(l.t, l.stream.Send(first))
	return l
}

func (l *line) startCat() *line {
	l.t.Helper()
	l.open(&agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_StartProcess{StartProcess: &execv1.ProcessSpec{
		ProcessId: catID, Argv: []string{"cat"}, Stdin: true,
	}}})
	l.box.check(l.t, l.stream.Receive(&execv1.ExecutionEvent{}))
	return l
}

// attach takes over the process from its first output on.
func (l *line) attach() *line {
	l.t.Helper()
	return l.open(&agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Attach{Attach: &agentv1.Attach{ExecutionId: catID}}})
}

func (l *line) write(text string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	request := &execv1.WriteInputRequest{ProcessId: catID, Data: []byte(text), WaitMs: 10_000}
	l.box.check(l.t, frame.Call(ctx, l.session, agentrpc.WriteInput, request, &execv1.WriteInputReply{}))
}

// expect reads until all that was printed is the text.
func (l *line) expect(text string) {
	l.t.Helper()
	within := patience.Of(20 * time.Second)
	giveUp := time.AfterFunc(within, l.stream.Cancel)
	defer giveUp.Stop()
	for l.output != text {
		event := &execv1.ExecutionEvent{}
		if err := l.stream.Receive(event); err != nil {
			l.t.Fatalf("%v after %q (expected: %q within %v)", err, l.output, text, within)
		}
		l.output += string(event.GetOutput().GetData())
	}
}

func (l *line) writeFile(path, content string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	s, err := l.session.Open(ctx, agentrpc.WriteFile)
	l.box.check(l.t, err)
	l.box.check(l.t, errors.Join(
		s.Send(&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: &filev1.WriteFileOpen{Path: path}}}),
		s.Send(&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: []byte(content)}}),
		s.Send(&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Commit_{Commit: &filev1.WriteFileRequest_Commit{}}}),
		s.Receive(&filev1.WriteFileReply{})))
}

func (l *line) readFile(path string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience.Of(20*time.Second))
	defer cancel()
	s, err := l.session.Open(ctx, agentrpc.ReadFile)
	l.box.check(l.t, err)
	l.box.check(l.t, s.Send(&filev1.ReadFileRequest{Path: path}))
	var content []byte
	for {
		piece := &filev1.FilePiece{}
		if err := s.Receive(piece); err == io.EOF {
			return string(content)
		} else if err != nil {
			l.t.Fatal(err)
		}
		content = append(content, piece.GetData()...)
	}
}

// become is the sandbox with the key that came with a snapshot of another.
func (b *sandbox) become(source *sandbox) *sandbox {
	b.key = source.key
	return b
}

// move renames the streams to another folder, as the engine does when it gives what was prepared to a box.
func (b *sandbox) move(t testing.TB) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "moved")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{driver.StdinName, driver.StdoutName, driver.StderrName} {
		if err := os.Rename(filepath.Join(b.spec.Dir, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(b.spec.Dir); err != nil {
		t.Fatal(err)
	}
	b.spec.Dir = dir
}

// copyImages has a sandbox use copies of its images elsewhere.
func copyImages(t testing.TB) func(*driver.Spec) {
	return func(s *driver.Spec) {
		dir := t.TempDir()
		for _, path := range []*string{&s.ImagePath, &s.AgentImagePath} {
			if *path == "" {
				continue
			}
			from, err := os.Open(*path)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			to, err := os.Create(filepath.Join(dir, filepath.Base(*path)+".copy"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(to, from); err != nil {
				t.Fatal(err)
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			*path = to.Name()
		}
	}
}

func snapshots(t *testing.T, subject func(t *testing.T) Subject) {
	t.Run("SnapshotLivesOnInAnotherSandboxElsewhere", func(t *testing.T) {
		s := subject(t)
		source := s.start(t, firstID)
		l := source.dial(t, 1).startCat()
		l.write("before\n")
		l.expect("before\n")
		l.writeFile("/tmp/kept", "content")
		image := filepath.Join(t.TempDir(), "image")
		source.check(t, s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", image))
		l.write("source\n")
		l.expect("before\nsource\n")

		target := s.prepared(t, secondID, copyImages(t), func(s *driver.Spec) { s.Hostname, s.CPUMillis = "other", 1000 }).become(source)
		if err := target.group.Set(cgroup.Limits{MemoryBytes: 400 << 20, CPUMillis: 1500}); err != nil {
			t.Fatal(err)
		}
		target.move(t)
		target.check(t, s.Driver.Restore(t.Context(), secondID, target.spec.Dir, "", image))
		m := target.dial(t, 2).attach()
		m.write("copy\n")
		m.expect("before\ncopy\n")
		if content := m.readFile("/tmp/kept"); content != "content" {
			t.Fatalf("file %q (expected: as in the source)", content)
		}
		if used, err := s.Driver.DiskUsed(target.spec.Dir, target.pid, target.spec.Build); err != nil || used > 64<<20 {
			t.Fatalf("disk used %d, %v", used, err)
		}
		l.write("again\n")
		l.expect("before\nsource\nagain\n")
		// The copy is a sandbox like any other.
		second := filepath.Join(t.TempDir(), "second")
		target.check(t, s.Driver.Checkpoint(t.Context(), secondID, target.spec.Dir, "", second))
		m.write("more\n")
		m.expect("before\ncopy\nmore\n")
	})
	t.Run("SnapshotMayBeUsedTwiceAndOutlivesItsSource", func(t *testing.T) {
		s := subject(t)
		source := s.start(t, firstID)
		l := source.dial(t, 1).startCat()
		l.write("before\n")
		l.expect("before\n")
		image := filepath.Join(t.TempDir(), "image")
		source.check(t, s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", image))
		source.check(t, s.Driver.Delete(t.Context(), firstID, ""))
		for epoch := range uint64(2) {
			target := s.prepared(t, secondID).become(source)
			target.check(t, s.Driver.Restore(t.Context(), secondID, target.spec.Dir, "", image))
			m := target.dial(t, epoch+2).attach()
			m.write("copy\n")
			m.expect("before\ncopy\n")
			target.remove(t, s)
		}
	})
	t.Run("PausedSandboxStandsStillUntilResumed", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		l := b.dial(t, 1).startCat()
		b.check(t, s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""))
		if err := s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""); err == nil {
			t.Fatal("a paused sandbox was paused")
		}
		written := make(chan error, 1)
		go func() {
			request := &execv1.WriteInputRequest{ProcessId: catID, Data: []byte("late\n"), WaitMs: 10_000}
			written <- frame.Call(t.Context(), l.session, agentrpc.WriteInput, request, &execv1.WriteInputReply{})
		}()
		select {
		case err := <-written:
			t.Fatalf("a paused sandbox answered: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		b.check(t, s.Driver.Resume(t.Context(), firstID, b.spec.Dir, ""))
		l.expect("late\n")
		b.check(t, <-written)
		if err := s.Driver.Resume(t.Context(), firstID, b.spec.Dir, ""); err == nil {
			t.Fatal("a running sandbox was resumed")
		}
	})
	t.Run("SnapshotOfPausedSandboxLeavesItPausedAndItsCopyRuns", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		l := b.dial(t, 1).startCat()
		l.write("before\n")
		l.expect("before\n")
		b.check(t, s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""))
		for _, name := range []string{"first", "second"} {
			image := filepath.Join(t.TempDir(), name)
			b.check(t, s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", image))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := frame.Call(ctx, l.session, agentrpc.ListProcesses, &agentv1.ListProcessesRequest{}, &agentv1.ListProcessesReply{}); err == nil {
				t.Fatal("a paused sandbox answered after its snapshot")
			}
			target := s.prepared(t, secondID).become(b)
			target.check(t, s.Driver.Restore(t.Context(), secondID, target.spec.Dir, "", image))
			m := target.dial(t, 2).attach()
			m.write("copy\n")
			m.expect("before\ncopy\n")
			target.remove(t, s)
		}
		b.check(t, s.Driver.Resume(t.Context(), firstID, b.spec.Dir, ""))
		l.write("source\n")
		l.expect("before\nsource\n")
	})
	t.Run("RequestThatComesDuringASnapshotIsAnsweredByTheSourceAlone", func(t *testing.T) {
		s := subject(t)
		source := s.start(t, firstID)
		l := source.dial(t, 1).startCat()
		said := ""
		for i := range 8 {
			image := filepath.Join(t.TempDir(), "image")
			done := make(chan error, 1)
			go func() { done <- s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", image) }()
			<-time.After(time.Duration(i) * 3 * time.Millisecond)
			l.write("during\n")
			said += "during\n"
			l.expect(said)
			source.check(t, <-done)
		}
		source.check(t, s.Driver.Pause(t.Context(), firstID, source.spec.Dir, ""))
		written := make(chan error, 1)
		go func() {
			request := &execv1.WriteInputRequest{ProcessId: catID, Data: []byte("source\n"), WaitMs: 10_000}
			written <- frame.Call(t.Context(), l.session, agentrpc.WriteInput, request, &execv1.WriteInputReply{})
		}()
		select {
		case err := <-written:
			t.Fatalf("a paused sandbox answered: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		image := filepath.Join(t.TempDir(), "image")
		source.check(t, s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", image))
		target := s.prepared(t, secondID).become(source)
		target.check(t, s.Driver.Restore(t.Context(), secondID, target.spec.Dir, "", image))
		m := target.dial(t, 2).attach()
		m.write("copy\n")
		m.expect(said + "copy\n")
		source.check(t, s.Driver.Resume(t.Context(), firstID, source.spec.Dir, ""))
		source.check(t, <-written)
		l.expect(said + "source\n")
	})
	t.Run("FailedSnapshotLeavesTheSandboxAsItWas", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		l := b.dial(t, 1).startCat()
		existing := t.TempDir()
		if err := s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", existing); err == nil {
			t.Fatal("a snapshot was written into a folder that is there already")
		}
		if err := s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", filepath.Join(existing, "missing", "image")); err == nil {
			t.Fatal("a snapshot was written nowhere")
		}
		l.write("running\n")
		l.expect("running\n")
		b.check(t, s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""))
		if err := s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", existing); err == nil {
			t.Fatal("a snapshot was written into a folder that is there already")
		}
		b.check(t, s.Driver.Resume(t.Context(), firstID, b.spec.Dir, ""))
		l.write("resumed\n")
		l.expect("running\nresumed\n")
	})
	t.Run("SnapshotThatIsBrokenFailsItsCopyAlone", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		l := b.dial(t, 1).startCat()
		image := filepath.Join(t.TempDir(), "image")
		b.check(t, s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", image))
		path := filepath.Join(image, snapshotFiles[0])
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()/2); err != nil {
			t.Fatal(err)
		}
		target := s.prepared(t, secondID)
		if err := s.Driver.Restore(t.Context(), secondID, target.spec.Dir, "", image); err == nil {
			t.Fatal("half a snapshot was restored")
		}
		target.remove(t, s)
		l.write("source\n")
		l.expect("source\n")
	})
	t.Run("FilesSnapshotStartsAnAgentAnew", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		l := b.dial(t, 1).startCat()
		l.writeFile("/tmp/kept", "content")
		image := filepath.Join(t.TempDir(), "image")
		b.check(t, s.Driver.CheckpointFiles(t.Context(), firstID, b.spec.Dir, "", image))
		l.write("source\n")
		l.expect("source\n")
		l.writeFile("/tmp/kept", "changed")
		target := s.start(t, secondID, copyImages(t), func(s *driver.Spec) { s.FilesFrom = image })
		m := target.dial(t, 1)
		if content := m.readFile("/tmp/kept"); content != "content" {
			t.Fatalf("file %q (expected: as in the snapshot)", content)
		}
		m.startCat()
		m.write("new\n")
		m.expect("new\n")
		// Half a files snapshot is none.
		if err := os.Remove(filepath.Join(image, "multitar.img")); err != nil {
			t.Fatal(err)
		}
		target.remove(t, s)
		half := s.make(t, secondID)
		half.spec.FilesFrom = image
		_, err := s.Driver.Prepare(t.Context(), half.spec)
		if err == nil {
			err = s.Driver.Launch(t.Context(), secondID, half.spec.Dir, "")
		}
		if err == nil {
			t.Fatal("a sandbox was started from half a files snapshot")
		}
	})
	t.Run("ChangesAreExportedAndTheSandboxGoesOn", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		l := b.dial(t, 1).startCat()
		l.writeFile("/tmp/kept", "content")
		l.writeFile("/tmp/large", strings.Repeat("x", 1<<20))
		// Nobody takes it.
		gone := errors.New("gone")
		if err := s.Driver.ExportChanges(t.Context(), firstID, b.spec.Dir, "", failingWriter{gone}); !errors.Is(err, gone) {
			t.Fatalf("%v (expected: the writer's error)", err)
		}
		l.write("between\n")
		l.expect("between\n")
		var exported bytes.Buffer
		b.check(t, s.Driver.ExportChanges(t.Context(), firstID, b.spec.Dir, "", &exported))
		found := map[string]string{}
		for archive := tar.NewReader(&exported); ; {
			header, err := archive.Next()
			if err == io.EOF {
				break
			}
			b.check(t, err)
			content, err := io.ReadAll(archive)
			b.check(t, err)
			found[strings.TrimPrefix(header.Name, "./")] = string(content)
		}
		if found["tmp/kept"] != "content" || len(found["tmp/large"]) != 1<<20 {
			t.Fatalf("exported %d entries, /tmp/kept is %q and /tmp/large has %d bytes", len(found), found["tmp/kept"], len(found["tmp/large"]))
		}
		l.write("source\n")
		l.expect("between\nsource\n")
	})
	t.Run("DeleteWorksAtEachStage", func(t *testing.T) {
		s := subject(t)
		image := filepath.Join(t.TempDir(), "image")
		stages := map[string]func(b *sandbox){
			"prepared": func(*sandbox) {},
			"paused": func(b *sandbox) {
				b.check(t, s.Driver.Launch(t.Context(), firstID, b.spec.Dir, ""))
				b.dial(t, 1)
				b.check(t, s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""))
			},
			"paused with a snapshot": func(b *sandbox) {
				b.check(t, s.Driver.Launch(t.Context(), firstID, b.spec.Dir, ""))
				b.dial(t, 1)
				b.check(t, s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""))
				b.check(t, s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", image))
			},
			"restored": func(b *sandbox) {
				b.check(t, s.Driver.Restore(t.Context(), firstID, b.spec.Dir, "", image))
			},
			"killed": func(b *sandbox) {
				if err := unix.Kill(b.pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
		}
		for _, name := range []string{"prepared", "paused", "paused with a snapshot", "restored", "killed"} {
			b := s.prepared(t, firstID)
			stages[name](b)
			b.remove(t, s)
			if ids, err := s.Driver.List(); err != nil || len(ids) != 0 {
				t.Fatalf("%s: %v, %v (expected: none)", name, ids, err)
			}
		}
	})
	t.Run("OperationOnASandboxThatIsGoneFailsAndLeavesNothing", func(t *testing.T) {
		s := subject(t)
		b := s.start(t, firstID)
		b.dial(t, 1)
		b.remove(t, s)
		image := filepath.Join(t.TempDir(), "image")
		for name, operation := range map[string]func() error{
			"launch":     func() error { return s.Driver.Launch(t.Context(), firstID, b.spec.Dir, "") },
			"restore":    func() error { return s.Driver.Restore(t.Context(), firstID, b.spec.Dir, "", t.TempDir()) },
			"pause":      func() error { return s.Driver.Pause(t.Context(), firstID, b.spec.Dir, "") },
			"resume":     func() error { return s.Driver.Resume(t.Context(), firstID, b.spec.Dir, "") },
			"checkpoint": func() error { return s.Driver.Checkpoint(t.Context(), firstID, b.spec.Dir, "", image) },
		} {
			if err := operation(); err == nil {
				t.Errorf("%s of a sandbox that is gone worked", name)
			}
		}
		if ids, err := s.Driver.List(); err != nil || len(ids) != 0 {
			t.Errorf("%v, %v (expected: none)", ids, err)
		}
	})
	t.Run("UnknownBuildIsRefused", func(t *testing.T) {
		s := subject(t)
		if versions := s.Driver.Versions(); len(versions) == 0 || versions[0] != s.Driver.Version() || slices.Contains(versions, "atoll-unknown") {
			t.Fatalf("versions %v", versions)
		}
		b := s.make(t, firstID)
		b.spec.Build = "atoll-unknown"
		if _, err := s.Driver.Prepare(t.Context(), b.spec); err == nil {
			t.Fatal("a sandbox was made with an unknown build")
		}
		if err := s.Driver.Delete(t.Context(), firstID, "atoll-unknown"); err != nil {
			t.Fatal(err)
		}
	})
}

// remove deletes the sandbox and its group, and sees to it that none of its processes is left.
func (b *sandbox) remove(t testing.TB, s Subject) {
	t.Helper()
	b.check(t, s.Driver.Delete(t.Context(), b.spec.ID, b.spec.Build))
	await(t, func() bool {
		pids, err := b.group.Pids()
		return err == nil && len(pids) == 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(10*time.Second))
	defer cancel()
	if err := errors.Join(b.group.Remove(ctx), driver.RemovePipes(b.spec.Dir)); err != nil {
		t.Fatal(err)
	}
}

// OlderBuild is the contract's part about a driver that can drive an older build beside the current one.
func OlderBuild(t *testing.T, s Subject, older string) {
	if versions := s.Driver.Versions(); !slices.Equal(versions, []string{s.Driver.Version(), older}) {
		t.Fatalf("versions %v (expected: %s and %s)", versions, s.Driver.Version(), older)
	}
	made := func(spec *driver.Spec) { spec.Build = older }
	source := s.start(t, firstID, made)
	l := source.dial(t, 1).startCat()
	l.write("before\n")
	l.expect("before\n")
	source.check(t, s.Driver.Pause(t.Context(), firstID, source.spec.Dir, older))
	image := filepath.Join(t.TempDir(), "image")
	source.check(t, s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, older, image))
	source.check(t, s.Driver.Resume(t.Context(), firstID, source.spec.Dir, older))
	l.write("source\n")
	l.expect("before\nsource\n")
	source.remove(t, s)

	target := s.prepared(t, secondID, made).become(source)
	target.check(t, s.Driver.Restore(t.Context(), secondID, target.spec.Dir, older, image))
	m := target.dial(t, 2).attach()
	m.write("copy\n")
	m.expect("before\ncopy\n")
	target.remove(t, s)

	current := s.prepared(t, secondID)
	err := s.Driver.Restore(t.Context(), secondID, current.spec.Dir, "", image)
	if err == nil || !strings.Contains(err.Error(), older) {
		t.Fatalf("a snapshot was restored by another build than made it: %v (expected: an error that names %s)", err, older)
	}
}

// HelperCrash is the contract's part about a driver with a process of its own that does its operations. stop and kill are about that process.
func HelperCrash(t *testing.T, s Subject, stop, kill func()) {
	source := s.start(t, firstID)
	l := source.dial(t, 1).startCat()
	said := ""
	lives := func(text string) {
		t.Helper()
		l.write(text)
		said += text
		l.expect(said)
	}
	lives("before\n")
	operations := map[string]func() error{
		"checkpoint": func() error {
			return s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", filepath.Join(t.TempDir(), "image"))
		},
		"files": func() error {
			return s.Driver.CheckpointFiles(t.Context(), firstID, source.spec.Dir, "", filepath.Join(t.TempDir(), "image"))
		},
	}
	for name, operation := range operations {
		stop()
		failed := make(chan error, 1)
		go func() { failed <- operation() }()
		select {
		case err := <-failed:
			t.Fatalf("%s: %v while the helper stood still", name, err)
		case <-time.After(200 * time.Millisecond):
		}
		kill()
		if err := <-failed; err == nil {
			t.Fatalf("%s worked without the helper", name)
		}
		lives(name + "\n")
		source.check(t, operation())
		lives(name + " again\n")
	}
	// In the midst of it; it may have been done just before.
	image := filepath.Join(t.TempDir(), "image")
	done := make(chan error, 1)
	go func() { done <- s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", image) }()
	await(t, func() bool {
		files, err := os.ReadDir(image)
		return err == nil && len(files) > 0
	})
	kill()
	t.Logf("killed in the midst of a snapshot: %v", <-done)
	lives("midst\n")
	// A sandbox that was being restored is lost, its snapshot is not.
	image = filepath.Join(t.TempDir(), "image")
	source.check(t, s.Driver.Checkpoint(t.Context(), firstID, source.spec.Dir, "", image))
	target := s.prepared(t, secondID).become(source)
	stop()
	go func() { done <- s.Driver.Restore(t.Context(), secondID, target.spec.Dir, "", image) }()
	select {
	case err := <-done:
		t.Fatalf("restored while the helper stood still: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	kill()
	if err := <-done; err == nil {
		t.Fatal("restored without the helper")
	}
	target.remove(t, s)
	second := s.prepared(t, secondID).become(source)
	second.check(t, s.Driver.Restore(t.Context(), secondID, second.spec.Dir, "", image))
	m := second.dial(t, 2).attach()
	m.write("copy\n")
	m.expect(said + "copy\n")
}

// FullDisk is the contract's part about snapshots into a folder on a file system that is too small for them.
func FullDisk(t *testing.T, s Subject, small string) {
	b := s.start(t, firstID)
	l := b.dial(t, 1).startCat()
	said := ""
	lives := func(text string) {
		t.Helper()
		l.write(text)
		said += text
		l.expect(said)
	}
	lives("before\n")
	l.writeFile("/tmp/large", strings.Repeat("x", 1<<20))
	operations := map[string]func(ctx context.Context, id, dir, build, image string) error{"memory": s.Driver.Checkpoint, "files": s.Driver.CheckpointFiles}
	for name, operation := range operations {
		fails := func(how string) {
			t.Helper()
			image := filepath.Join(small, "image")
			if err := operation(t.Context(), firstID, b.spec.Dir, "", image); err == nil {
				t.Fatalf("%s, %s: a snapshot fits where it can't", name, how)
			}
			if err := os.RemoveAll(image); err != nil {
				t.Fatal(err)
			}
		}
		fails("running")
		lives(name + "\n")
		b.check(t, s.Driver.Pause(t.Context(), firstID, b.spec.Dir, ""))
		fails("paused")
		// Still paused: else this would be refused.
		b.check(t, s.Driver.Resume(t.Context(), firstID, b.spec.Dir, ""))
		lives(name + " resumed\n")
		b.check(t, operation(t.Context(), firstID, b.spec.Dir, "", filepath.Join(t.TempDir(), "image")))
		lives(name + " saved\n")
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// ChangesBy runs a shell script as root in a sandbox and returns the tar of what was changed then. prepare are changes of the sandbox's
// Spec.
func ChangesBy(t *testing.T, s Subject, script string, prepare ...func(*driver.Spec)) []byte {
	t.Helper()
	b := s.start(t, firstID, prepare...)
	l := b.dial(t, 1).open(&agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_StartProcess{StartProcess: &execv1.ProcessSpec{
		ProcessId: "proc-bbbbbbbbbbbbbbbbbbbbbbbbbb", Argv: []string{"/bin/bash", "-euc", script}, User: "0", Cwd: "/",
	}}})
	for said := ""; ; {
		event := &execv1.ExecutionEvent{}
		b.check(t, l.stream.Receive(event))
		said += string(event.GetOutput().GetData())
		if finished := event.GetFinished(); finished != nil {
			if finished.GetReason() != execv1.ExitReason_EXIT_REASON_EXITED || finished.GetExitCode() != 0 {
				t.Fatalf("the script ended with %v: %s", finished, said)
			}
			break
		}
	}
	var exported bytes.Buffer
	b.check(t, s.Driver.ExportChanges(t.Context(), firstID, b.spec.Dir, "", &exported))
	return exported.Bytes()
}

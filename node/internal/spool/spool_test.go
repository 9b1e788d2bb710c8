package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/execv1"
)

// small makes every bound come into play with a few kilobytes.
var small = Sizes{Memory: 600, Head: 2000, Tail: 2000, Segment: 500}

var owner = Owner{ExecutionID: "exec-1", BoxID: "box-1", ContextID: "ctx-1", SandboxID: "sb-1"}

// script makes the events of one execution.
type script struct {
	events []*execv1.ExecutionEvent
	bytes  [3][]byte
}

func (s *script) add(event *execv1.ExecutionEvent) {
	event.Seq = uint64(len(s.events) + 1)
	s.events = append(s.events, event)
}

func (s *script) output(stream execv1.Stream, data string) {
	s.add(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Output{Output: &execv1.Output{
		Stream: stream, Offset: uint64(len(s.bytes[stream])), Data: []byte(data),
	}}})
	s.bytes[stream] = append(s.bytes[stream], data...)
}

func (s *script) result(text string) {
	s.add(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Result{Result: &execv1.Result{DataJson: text}}})
}

func (s *script) finish() {
	s.add(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Finished{Finished: &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_COMPLETED}}})
}

// write makes a script with n pieces of output on both streams, and a result in between.
func write(n int) *script {
	s := &script{}
	s.add(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Started{Started: &execv1.Started{AtUnixMs: 1}}})
	for i := range n {
		stream := execv1.Stream_STREAM_STDOUT
		if i%5 == 3 {
			stream = execv1.Stream_STREAM_STDERR
		}
		s.output(stream, fmt.Sprintf("%05d %s\n", i, strings.Repeat("x", i%40)))
		if i%20 == 19 {
			s.result(fmt.Sprintf(`{"text/plain": "%d"}`, i))
		}
	}
	return s
}

func appendAll(t *testing.T, l *Log, events []*execv1.ExecutionEvent) {
	t.Helper()
	for _, event := range events {
		if err := l.Append(event); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(t *testing.T, l *Log, after uint64) []*execv1.ExecutionEvent {
	t.Helper()
	r := l.Read(after)
	defer r.Close()
	var events []*execv1.ExecutionEvent
	for {
		event, err := r.Ready()
		if err == io.EOF || (err == nil && event == nil) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
}

// check verifies that events are the script after a seq, with gaps that count exactly what is missing.
func check(t *testing.T, s *script, events []*execv1.ExecutionEvent, after uint64, last uint64) {
	t.Helper()
	var offsets [3]uint64
	for _, event := range s.events[:after] {
		if o := event.GetOutput(); o != nil {
			offsets[o.GetStream()] += uint64(len(o.GetData()))
		}
	}
	seq := after
	for _, event := range events {
		if event.GetSeq() <= seq {
			t.Fatalf("seq %d after %d", event.GetSeq(), seq)
		}
		seq = event.GetSeq()
		if gap := event.GetGap(); gap != nil {
			if gap.GetOffset() != offsets[gap.GetStream()] {
				t.Fatalf("gap %v (expected: offset %d)", gap, offsets[gap.GetStream()])
			}
			offsets[gap.GetStream()] += gap.GetBytes()
			continue
		}
		if !proto.Equal(event, s.events[seq-1]) {
			t.Fatalf("event %v (expected: %v)", event, s.events[seq-1])
		}
		if o := event.GetOutput(); o != nil {
			if o.GetOffset() != offsets[o.GetStream()] {
				t.Fatalf("output of %v at %d (expected: %d)", o.GetStream(), o.GetOffset(), offsets[o.GetStream()])
			}
			offsets[o.GetStream()] += uint64(len(o.GetData()))
		}
	}
	if seq != last {
		t.Fatalf("the last seq is %d (expected: %d)", seq, last)
	}
	var want [3]uint64
	for _, event := range s.events[:last] {
		if o := event.GetOutput(); o != nil {
			want[o.GetStream()] += uint64(len(o.GetData()))
		}
	}
	if offsets != want {
		t.Fatalf("streams end at %v (expected: %v)", offsets, want)
	}
}

func open(t *testing.T, dir string, sizes Sizes) *Store {
	t.Helper()
	s, problems, err := Open(dir, sizes)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	return s
}

func TestSmallOutputTouchesNoDisk(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, Sizes{})
	l, _ := store.Add(owner)
	s := write(50)
	s.finish()
	appendAll(t, l, s.events)
	check(t, s, readAll(t, l, 0), 0, uint64(len(s.events)))
	if l.Safe() != 0 {
		t.Fatalf("safe up to %d (expected: 0, it is only in memory)", l.Safe())
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v (expected: an empty folder)", entries, err)
	}
}

func TestReaderMayBeginAfterAnySeq(t *testing.T) {
	for _, n := range []int{10, 60, 300, 1000} {
		store := open(t, t.TempDir(), small)
		l, _ := store.Add(owner)
		s := write(n)
		s.finish()
		appendAll(t, l, s.events)
		d := l.dropped
		for after := range uint64(len(s.events)) {
			events := readAll(t, l, after)
			if after >= d.first && after < d.last {
				// In the hole it can't be known how far each stream had come.
				if events[len(events)-1].GetSeq() != uint64(len(s.events)) {
					t.Fatalf("after %d: last seq %d", after, events[len(events)-1].GetSeq())
				}
				continue
			}
			check(t, s, events, after, uint64(len(s.events)))
		}
	}
}

func TestLongOutputKeepsHeadTailAndResultsWithExactGaps(t *testing.T) {
	store := open(t, t.TempDir(), small)
	l, _ := store.Add(owner)
	s := write(1000)
	s.finish()
	appendAll(t, l, s.events)
	events := readAll(t, l, 0)
	check(t, s, events, 0, uint64(len(s.events)))
	gaps, results := 0, 0
	for _, event := range events {
		if event.GetGap() != nil {
			gaps++
		}
		if event.GetResult() != nil {
			results++
		}
	}
	if gaps != 2 || results != 50 {
		t.Fatalf("%d gaps and %d results (expected: one gap for each stream, 50 results)", gaps, results)
	}
	var size int64
	files, err := filepath.Glob(filepath.Join(l.dir, "[ht]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if limit := small.Head + small.Tail + 2*small.Segment; size > limit {
		t.Fatalf("%d bytes on file (expected: at most %d)", size, limit)
	}
}

// A process that is killed leaves the files as they were after any number of
// written bytes; each such state must load as a prefix, and go on from there.
func TestSpoolCutAtEveryByteLoadsAsAPrefixAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, Sizes{Memory: 1, Head: 1 << 20, Tail: 1 << 20})
	l, _ := store.Add(owner)
	s := write(25)
	s.finish()
	appendAll(t, l, s.events)
	l.close()
	head := filepath.Join(l.dir, headName)
	whole, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		if err := os.WriteFile(head, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, Sizes{Memory: 1, Head: 1 << 20, Tail: 1 << 20})
		got, ok := again.Find(owner.ExecutionID)
		if !ok {
			t.Fatalf("cut at %d: the log is gone", cut)
		}
		last := got.Last()
		check(t, s, readAll(t, got, 0), 0, last)
		appendAll(t, got, s.events[last:])
		check(t, s, readAll(t, got, 0), 0, uint64(len(s.events)))
		got.close()
	}
}

func TestDamagedRecordEndsTheLogBeforeIt(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, Sizes{Memory: 1})
	l, _ := store.Add(owner)
	s := write(25)
	appendAll(t, l, s.events)
	l.close()
	head := filepath.Join(l.dir, headName)
	whole, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 7 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x40
		if err := os.WriteFile(head, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _ := open(t, dir, Sizes{Memory: 1}).Find(owner.ExecutionID)
		if got.Last() >= uint64(len(s.events)) {
			t.Fatalf("byte %d damaged, and nothing was noticed", at)
		}
		check(t, s, readAll(t, got, 0), 0, got.Last())
		got.close()
	}
}

// The tail loses segments while the log grows: a crash may come between the
// note of what is dropped and the removal.
func TestSpoolThatCrashedAtEveryEventGoesOn(t *testing.T) {
	s := write(400)
	s.finish()
	for crash := 1; crash < len(s.events); crash += 11 {
		dir := t.TempDir()
		l, _ := open(t, dir, small).Add(owner)
		appendAll(t, l, s.events[:crash])
		l.close()
		again := open(t, dir, small)
		got, added := again.Add(owner)
		last := got.Last()
		if added {
			last = 0
		}
		if !added && last != uint64(crash) {
			t.Fatalf("crash after %d: last seq %d", crash, last)
		}
		appendAll(t, got, s.events[last:])
		check(t, s, readAll(t, got, 0), 0, uint64(len(s.events)))
		got.close()
	}
}

func TestSegmentNotedAsDroppedButStillThereIsDropped(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir, small).Add(owner)
	s := write(400)
	var before []byte
	var path string
	for _, event := range s.events {
		if len(l.parts) > 1 {
			content, err := os.ReadFile(l.parts[1].path)
			if err == nil && l.dropped.empty() {
				before, path = content, l.parts[1].path
			}
		}
		if err := l.Append(event); err != nil {
			t.Fatal(err)
		}
		if !l.dropped.empty() {
			break
		}
	}
	last := l.Last()
	l.close()
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	got, _ := open(t, dir, small).Find(owner.ExecutionID)
	if got.Last() != last {
		t.Fatalf("last seq %d (expected: %d)", got.Last(), last)
	}
	check(t, s, readAll(t, got, 0), 0, last)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the segment is still there: %v", err)
	}
}

func TestReadersOfAnyPaceSeeTheWholeStory(t *testing.T) {
	store := open(t, t.TempDir(), Sizes{Memory: 600, Head: 1 << 20, Tail: 1 << 20, Segment: 1 << 16})
	l, _ := store.Add(owner)
	s := write(3000)
	s.finish()
	var group sync.WaitGroup
	for reader := range 6 {
		group.Go(func() {
			r := l.Read(0)
			defer r.Close()
			random := rand.New(rand.NewPCG(uint64(reader), 1))
			var events []*execv1.ExecutionEvent
			for {
				event, err := r.Next(t.Context())
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
				events = append(events, event)
				if random.IntN(50*(reader+1)) == 0 {
					// Falls behind by many events.
					for range 1000 * reader {
						_ = proto.Size(event)
					}
				}
			}
			if len(events) != len(s.events) {
				t.Errorf("reader %d saw %d events (expected: %d)", reader, len(events), len(s.events))
			}
		})
	}
	appendAll(t, l, s.events)
	group.Wait()
	check(t, s, readAll(t, l, 0), 0, uint64(len(s.events)))
}

func TestReaderThatTheTailOvertookGetsAGapFromWhereItWas(t *testing.T) {
	store := open(t, t.TempDir(), small)
	l, _ := store.Add(owner)
	s := write(1500)
	s.finish()
	r := l.Read(0)
	defer r.Close()
	var events []*execv1.ExecutionEvent
	for i, event := range s.events {
		if err := l.Append(event); err != nil {
			t.Fatal(err)
		}
		// Follows closely at first, then reads one of ten.
		if i < 300 || i%10 == 0 {
			if got, err := r.Ready(); err != nil {
				t.Fatal(err)
			} else if got != nil {
				events = append(events, got)
			}
		}
	}
	for {
		event, err := r.Ready()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	check(t, s, events, 0, uint64(len(s.events)))
}

func TestEventsThatBreakTheProtocolAreRefused(t *testing.T) {
	finished := &execv1.ExecutionEvent_Finished{Finished: &execv1.Finished{}}
	at := func(seq, offset uint64, stream execv1.Stream) *execv1.ExecutionEvent {
		return &execv1.ExecutionEvent{Seq: seq, Event: &execv1.ExecutionEvent_Output{Output: &execv1.Output{Stream: stream, Offset: offset, Data: []byte("x")}}}
	}
	for name, events := range map[string][]*execv1.ExecutionEvent{
		"first seq is not 1":   {at(2, 0, 1)},
		"seq repeated":         {at(1, 0, 1), at(1, 1, 1)},
		"offset has a hole":    {at(1, 1, 1)},
		"offset goes back":     {at(1, 0, 1), at(2, 0, 1)},
		"unknown stream":       {at(1, 0, 7)},
		"negative stream":      {at(1, 0, -1)},
		"nothing in it":        {{Seq: 1}},
		"gap from the agent":   {{Seq: 1, Event: &execv1.ExecutionEvent_Gap{Gap: &execv1.Gap{}}}},
		"event after the last": {{Seq: 1, Event: finished}, {Seq: 2, Event: finished}},
	} {
		l := newLog(t.TempDir(), owner, small)
		var err error
		for _, event := range events {
			err = l.Append(event)
		}
		if !errors.Is(err, ErrOutOfOrder) {
			t.Errorf("%s: %v (expected: refused)", name, err)
		}
	}
}

func TestLogGoesOnWithoutADisk(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, small)
	// A file where the folder should be: every write fails.
	if err := os.WriteFile(filepath.Join(dir, owner.BoxID), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ := store.Add(owner)
	s := write(500)
	s.finish()
	appendAll(t, l, s.events)
	if l.Broken() == nil {
		t.Fatal("nobody noticed that the disk is missing")
	}
	events := readAll(t, l, 0)
	check(t, s, events, 0, uint64(len(s.events)))
	if l.ringBytes > small.Memory {
		t.Fatalf("%d bytes in memory (expected: at most %d)", l.ringBytes, small.Memory)
	}
}

func TestForgottenLogIsGoneUnlessKept(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, small)
	l, _ := store.Add(owner)
	s := write(200)
	s.finish()
	appendAll(t, l, s.events)
	if err := store.Forget(owner.ExecutionID, true); err != nil {
		t.Fatal(err)
	}
	for _, again := range []*Store{store, open(t, dir, small)} {
		if _, ok := again.Find(owner.ExecutionID); ok {
			t.Fatal("a kept log is listed as if it had not been forgotten")
		}
		kept, err := again.FindKept(owner.ExecutionID)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s, readAll(t, kept, 0), 0, uint64(len(s.events)))
	}
	if err := store.Forget(owner.ExecutionID, false); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v (expected: an empty folder)", entries, err)
	}
}

func TestWaitingReaderIsToldThatTheLogIsForgotten(t *testing.T) {
	store := open(t, t.TempDir(), small)
	l, _ := store.Add(owner)
	r := l.Read(0)
	result := make(chan error, 1)
	go func() {
		_, err := r.Next(context.Background())
		result <- err
	}()
	if err := store.Forget(owner.ExecutionID, false); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, ErrForgotten) {
		t.Fatal(err)
	}
}

// The server keeps the text of what it has on record where that is exact, and has the rest kept here: small output, too.
func TestSmallOutputThatIsToBeKeptIsReadableUntilItIsForgotten(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, Sizes{})
	l, _ := store.Add(owner)
	s := write(50)
	s.finish()
	appendAll(t, l, s.events)
	if err := store.Forget(owner.ExecutionID, true); err != nil {
		t.Fatal(err)
	}
	for _, again := range []*Store{store, open(t, dir, Sizes{})} {
		if _, ok := again.Find(owner.ExecutionID); ok || !again.Kept(owner.ExecutionID) {
			t.Fatal("a kept log is listed as if it had not been forgotten")
		}
		kept, err := again.FindKept(owner.ExecutionID)
		if err != nil {
			t.Fatal(err)
		}
		if kept.Owner() != owner {
			t.Fatalf("owner %v", kept.Owner())
		}
		check(t, s, readAll(t, kept, 0), 0, uint64(len(s.events)))
	}
	if files := filesIn(t, dir); len(files) != 1 {
		t.Fatalf("%v (expected: one file)", files)
	}
	if err := store.Forget(owner.ExecutionID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := store.FindKept(owner.ExecutionID); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("after the end: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v (expected: an empty folder)", entries, err)
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	if err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

func TestReaderOfAnEndedLogIsNeverCutByForgetting(t *testing.T) {
	for name, n := range map[string]int{"small": 10, "long": 500} {
		for _, keep := range []bool{false, true} {
			for _, onFile := range []bool{false, true} {
				for _, begun := range []int{0, 1, 9} {
					t.Run(fmt.Sprintf("%s keep=%v onFile=%v begun=%d", name, keep, onFile, begun), func(t *testing.T) {
						dir := t.TempDir()
						store := open(t, dir, small)
						l, _ := store.Add(owner)
						s := write(n)
						s.finish()
						appendAll(t, l, s.events)
						if onFile {
							if err := l.Spill(); err != nil {
								t.Fatal(err)
							}
						}
						want := readAll(t, l, 0)
						r := l.Read(0)
						for i := range want {
							if i == begun {
								if err := errors.Join(store.Forget(owner.ExecutionID, keep), store.Forget(owner.ExecutionID, false)); err != nil {
									t.Fatal(err)
								}
							}
							event, err := r.Next(t.Context())
							if err != nil || !proto.Equal(event, want[i]) {
								t.Fatalf("event %d: %v, %v (expected: %v)", i, event, err, want[i])
							}
						}
						if _, err := r.Next(t.Context()); err != io.EOF {
							t.Fatal(err)
						}
						r.Close()
						if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
							t.Fatalf("%v, %v (expected: an empty folder)", entries, err)
						}
					})
				}
			}
		}
	}
}

func TestWhatWasForgottenInTheMiddleOfReadingIsGoneAtTheNextStart(t *testing.T) {
	for _, n := range []int{10, 500} {
		dir := t.TempDir()
		store := open(t, dir, small)
		l, _ := store.Add(owner)
		s := write(n)
		s.finish()
		appendAll(t, l, s.events)
		if err := l.Spill(); err != nil {
			t.Fatal(err)
		}
		r := l.Read(0)
		if err := store.Forget(owner.ExecutionID, false); err != nil {
			t.Fatal(err)
		}
		if len(filesIn(t, dir)) == 0 {
			t.Fatal("taken from under its reader")
		}
		again := open(t, dir, small)
		if _, ok := again.Find(owner.ExecutionID); ok || again.Kept(owner.ExecutionID) {
			t.Fatal("it is back")
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Fatalf("%v, %v (expected: an empty folder)", entries, err)
		}
		r.Close()
	}
}

// The one file of a small log: cut off anywhere, what is there of it counts, and the agent has the rest.
func TestSmallLogCutAtEveryByteLoadsAsAPrefixAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	l, _ := open(t, dir, Sizes{}).Add(owner)
	s := write(8)
	s.finish()
	appendAll(t, l, s.events)
	if err := l.Spill(); err != nil {
		t.Fatal(err)
	}
	path := l.whole
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(content) + 1 {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content[:cut], 0o600)); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, Sizes{})
		got, _ := again.Add(owner)
		last := got.Last()
		if got.OnFile() != (cut == len(content)) || (last == uint64(len(s.events))) != got.OnFile() {
			t.Fatalf("cut at %d: on file %v, last seq %d", cut, got.OnFile(), last)
		}
		check(t, s, readAll(t, got, 0), 0, last)
		appendAll(t, got, s.events[last:])
		check(t, s, readAll(t, got, 0), 0, uint64(len(s.events)))
		if err := again.Forget(owner.ExecutionID, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeepingIsTriedAgainOnceTheDiskIsThere(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir, Sizes{})
	obstacle := filepath.Join(dir, owner.BoxID)
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ := store.Add(owner)
	s := write(8)
	s.finish()
	appendAll(t, l, s.events)
	if err := store.Forget(owner.ExecutionID, true); err == nil {
		t.Fatal("kept on no disk")
	}
	if _, ok := store.Find(owner.ExecutionID); !ok {
		t.Fatal("forgotten although it could not be kept")
	}
	if err := errors.Join(os.Remove(obstacle), store.Forget(owner.ExecutionID, true)); err != nil {
		t.Fatal(err)
	}
	kept, err := open(t, dir, Sizes{}).FindKept(owner.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	check(t, s, readAll(t, kept, 0), 0, uint64(len(s.events)))
}

func TestProcessAndWhatItWasGivenToReadAreFoundAgain(t *testing.T) {
	for _, n := range []int{5, 300} {
		dir := t.TempDir()
		process := owner
		process.Process = &execv1.ProcessSpec{ProcessId: "exec-1", Argv: []string{"cat", "-"}, Labels: map[string]string{"a": "b"}}
		l, _ := open(t, dir, small).Add(process)
		s := write(n)
		s.finish()
		appendAll(t, l, s.events[:len(s.events)-1])
		l.SetInput(7, false)
		l.SetInput(3, true)
		appendAll(t, l, s.events[len(s.events)-1:])
		if err := l.Spill(); err != nil {
			t.Fatal(err)
		}
		got, ok := open(t, dir, small).Find(owner.ExecutionID)
		if !ok || !proto.Equal(got.Owner().Process, process.Process) || got.Started().GetAtUnixMs() != 1 {
			t.Fatalf("%v, started %v", got.Owner(), got.Started())
		}
		if offset, closed := got.Input(); offset != 7 || !closed {
			t.Fatalf("input %d, %v (expected: 7 bytes and closed)", offset, closed)
		}
		got.close()
	}
}

// As an engine before processes wrote it.
func TestOlderSpoolIsReadable(t *testing.T) {
	s := write(5)
	s.finish()
	var head []byte
	for _, event := range s.events {
		var err error
		if head, err = appendEvent(head, event); err != nil {
			t.Fatal(err)
		}
	}
	for _, kept := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "box-1", "exec-1")
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{
			"owner.json": []byte(`{"execution_id":"exec-1","box_id":"box-1","context_id":"ctx-1","sandbox_id":"sb-1"}`), "head": head,
		}
		if kept {
			files["kept"] = nil
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(path, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		store := open(t, dir, Sizes{})
		l, ok := store.Find("exec-1")
		if kept {
			var err error
			if l, err = store.FindKept("exec-1"); err != nil {
				t.Fatal(err)
			}
		}
		if ok == kept || l.Owner() != owner {
			t.Fatalf("kept %v: found %v, owner %v", kept, ok, l.Owner())
		}
		check(t, s, readAll(t, l, 0), 0, uint64(len(s.events)))
	}
}

func BenchmarkOpenWith100000KeptLogs(b *testing.B) {
	dir := b.TempDir()
	store, _, err := Open(dir, Sizes{})
	if err != nil {
		b.Fatal(err)
	}
	s := write(3)
	s.finish()
	for i := range 100_000 {
		l, _ := store.Add(Owner{ExecutionID: fmt.Sprintf("exec-%026d", i), BoxID: fmt.Sprintf("box-%026d", i/100), ContextID: "ctx", SandboxID: "sb"})
		for _, event := range s.events {
			if err := l.Append(event); err != nil {
				b.Fatal(err)
			}
		}
		if err := store.Forget(l.Owner().ExecutionID, true); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if again, problems, err := Open(dir, Sizes{}); err != nil || len(problems) > 0 || len(again.kept) != 100_000 {
			b.Fatal(len(again.kept), problems, err)
		}
	}
}

func BenchmarkKeepSmallLog(b *testing.B) {
	store, _, err := Open(b.TempDir(), Sizes{})
	if err != nil {
		b.Fatal(err)
	}
	s := write(3)
	s.finish()
	i := 0
	for b.Loop() {
		i++
		l, _ := store.Add(Owner{ExecutionID: fmt.Sprintf("exec-%d", i), BoxID: "box"})
		for _, event := range s.events {
			if err := l.Append(event); err != nil {
				b.Fatal(err)
			}
		}
		if err := store.Forget(l.Owner().ExecutionID, true); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzLoadNeverPanics(f *testing.F) {
	record, err := appendEvent(nil, &execv1.ExecutionEvent{Seq: 1, Event: &execv1.ExecutionEvent_Started{Started: &execv1.Started{}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record, []byte{})
	f.Add([]byte{}, appendRecord(nil, kindDrop, (&dropped{first: 2, last: 3}).encode()))
	f.Fuzz(func(t *testing.T, head, middle []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{ownerName: []byte(`{}`), headName: head, middleName: middle} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l, err := load(dir, small)
		if err != nil {
			return
		}
		readAll(t, l, 0)
		l.close()
	})
}

// Package spool keeps what executions say until the server has it on record.
//
// Each execution has a Log. Small output stays in memory and never touches the
// disk: the agent keeps it as well, until it is acknowledged. What does not fit,
// or is not fetched soon, goes to files, and what is on file may be acknowledged.
// Of very long output the beginning and the end are kept; a Gap event stands for
// the middle, with exact byte counts.
//
// What is still small at its end goes to one file, <box>/<id>~log; anything
// longer has the folder <box>/<id>. Of what the server has on record and wants
// kept, the file is called <id>~kept, or the folder holds an empty file "kept":
// at its start the engine sees by the names what it need not read. What is
// forgotten while it is read is called ~gone until the last reader leaves.
//
// Nothing here is synced to the disk: files outlive a killed engine, which is
// what they are for. A machine that loses power loses its sandboxes as well.
//
// Any number of readers follow a log at their own pace. Appending never waits for them.
package spool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/execv1"
)

// Sizes are the bounds of one log. The zero value of each means the default.
type Sizes struct {
	// Memory that a log may hold before it goes to file, and holds of its end after that.
	Memory int
	// Head and Tail are the bytes of file kept from the beginning and the end.
	Head, Tail int64
	// Segment is the unit in which the tail loses its beginning.
	Segment int64
}

// The defaults.
const (
	DefaultMemory  = 256 << 10
	DefaultHead    = 32 << 20
	DefaultTail    = 32 << 20
	DefaultSegment = 4 << 20
	// maxKept bounds the results kept out of the dropped middle.
	maxKept = 1 << 20
)

func (s Sizes) withDefaults() Sizes {
	if s.Memory == 0 {
		s.Memory = DefaultMemory
	}
	if s.Head == 0 {
		s.Head = DefaultHead
	}
	if s.Tail == 0 {
		s.Tail = DefaultTail
	}
	if s.Segment == 0 {
		s.Segment = DefaultSegment
	}
	return s
}

// Owner says what a log is of.
type Owner struct {
	// ExecutionID is a process's id where the log is of a process.
	ExecutionID string `json:"execution_id"`
	BoxID       string `json:"box_id"`
	ContextID   string `json:"context_id"`
	SandboxID   string `json:"sandbox_id"`
	// Process is what a process was started with; nil for an execution of code.
	Process *execv1.ProcessSpec `json:"-"`
}

// ownerFile is what is on file of an owner, and of what it was given to read.
type ownerFile struct {
	Owner
	Process     []byte `json:"process,omitempty"`
	InputOffset uint64 `json:"input_offset,omitempty"`
	InputClosed bool   `json:"input_closed,omitempty"`
}

// ErrForgotten ends readers of a log that the server asked to forget.
var ErrForgotten = errors.New("execution was forgotten")

// ErrOutOfOrder says that an event does not follow the one before it.
var ErrOutOfOrder = errors.New("event out of order")

const (
	ownerName  = "owner.json"
	keptName   = "kept"
	headName   = "head"
	middleName = "middle"
	tailPrefix = "tail-"

	// No id has this character in it.
	wholeSuffix = "~log"
	keptSuffix  = "~kept"
	goneSuffix  = "~gone"
)

// Log is what one execution said.
type Log struct {
	owner Owner
	sizes Sizes

	mu sync.Mutex
	// All below is guarded by mu.
	dir      string
	last     uint64
	ends     [3]uint64
	started  *execv1.Started
	finished *execv1.Finished
	// done is closed once the log is finished or forgotten. It is nil until somebody waits.
	done chan struct{}
	// How much a process has been given to read, and whether that was all.
	inputOffset uint64
	inputClosed bool
	// ring holds the last events; without files, all of them.
	ring      []*execv1.ExecutionEvent
	ringBytes int
	changed   chan struct{}
	// forgotten is why the log has ended before its last event, or nil.
	forgotten error
	// readers are not closed yet. Files that were forgotten stay until they are.
	readers int
	gone    bool

	onFile bool
	// whole is the path of the one file of a log that was small at its end.
	whole   string
	broken  error
	parts   []part
	current *os.File
	scratch []byte
	dropped dropped
	// kept are the events of the dropped middle that are no output.
	kept      []*execv1.ExecutionEvent
	keptBytes int
}

// part is one file: the head, or a segment of the tail.
type part struct {
	path        string
	first, last uint64
	size        int64
}

func newLog(dir string, owner Owner, sizes Sizes) *Log {
	return &Log{owner: owner, dir: dir, sizes: sizes.withDefaults()}
}

// Owner says what the log is of.
func (l *Log) Owner() Owner { return l.owner }

// Last is the seq of the last event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Finished is the last event's content once the execution has ended.
func (l *Log) Finished() *execv1.Finished {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// Started is what the first event said, nil before it.
func (l *Log) Started() *execv1.Started {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started
}

// Input says how much a process has been given to read, and whether that was all.
func (l *Log) Input() (offset uint64, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inputOffset, l.inputClosed
}

// SetInput takes note of what a process has been given to read. It never goes back.
func (l *Log) SetInput(offset uint64, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inputOffset = max(l.inputOffset, offset)
	l.inputClosed = l.inputClosed || closed
}

// Done is closed when the log is finished or forgotten.
func (l *Log) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.finished != nil || l.forgotten != nil {
			close(l.done)
		}
	}
	return l.done
}

// tellDone closes done. Requires: l.mu is held, and the log has just been finished or forgotten, not both before.
func (l *Log) tellDone() {
	if l.done == nil {
		return
	}
	select {
	case <-l.done:
	default:
		close(l.done)
	}
}

// Ends are the numbers of bytes the streams have had so far.
func (l *Log) Ends() (stdout, stderr uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[execv1.Stream_STREAM_STDOUT], l.ends[execv1.Stream_STREAM_STDERR]
}

// Safe is the seq up to which events outlive this process: the agent may forget them.
func (l *Log) Safe() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.onFile {
		return 0
	}
	return l.last
}

// Append adds the next event. It fails only for an event that breaks the
// protocol: trouble with the disk costs output (a gap, with its size), never progress.
func (l *Log) Append(event *execv1.ExecutionEvent) error {
	size := proto.Size(event)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(event); err != nil {
		return err
	}
	if l.forgotten != nil {
		return l.forgotten
	}
	l.last = event.GetSeq()
	if output := event.GetOutput(); output != nil {
		l.ends[output.GetStream()] += uint64(len(output.GetData()))
	}
	if started := event.GetStarted(); started != nil {
		l.started = started
	}
	if finished := event.GetFinished(); finished != nil {
		l.finished = finished
		l.tellDone()
	}
	l.ring = append(l.ring, event)
	l.ringBytes += size
	if l.onFile {
		l.store(event)
		l.noteInput()
	} else if l.ringBytes > l.sizes.Memory {
		l.spill()
	}
	l.trim()
	l.wake()
	return nil
}

// Requires: l.mu is held.
func (l *Log) check(event *execv1.ExecutionEvent) error {
	if event.GetSeq() != l.last+1 {
		return fmt.Errorf("%w: seq %d (expected: %d)", ErrOutOfOrder, event.GetSeq(), l.last+1)
	}
	if l.finished != nil {
		return fmt.Errorf("%w: seq %d comes after the end", ErrOutOfOrder, event.GetSeq())
	}
	switch e := event.GetEvent().(type) {
	case *execv1.ExecutionEvent_Output:
		stream, ok := streamIndex(e.Output.GetStream())
		if !ok {
			return fmt.Errorf("%w: seq %d is of stream %d", ErrOutOfOrder, event.GetSeq(), e.Output.GetStream())
		}
		if e.Output.GetOffset() != l.ends[stream] {
			return fmt.Errorf("%w: seq %d has offset %d (expected: %d)", ErrOutOfOrder, event.GetSeq(), e.Output.GetOffset(), l.ends[stream])
		}
	case *execv1.ExecutionEvent_Started, *execv1.ExecutionEvent_Result, *execv1.ExecutionEvent_Finished:
	default:
		return fmt.Errorf("%w: seq %d is of an unknown kind", ErrOutOfOrder, event.GetSeq())
	}
	return nil
}

// trim drops from memory what the files hold, down to the memory's bound.
// Requires: l.mu is held.
func (l *Log) trim() {
	if !l.onFile && l.broken == nil {
		return
	}
	n := 0
	for n < len(l.ring)-1 && l.ringBytes > l.sizes.Memory {
		event := l.ring[n]
		if n := len(l.parts); l.broken != nil && (n == 0 || event.GetSeq() > l.parts[n-1].last) {
			l.drop(event)
		}
		l.ringBytes -= proto.Size(event)
		l.ring[n] = nil
		n++
	}
	l.ring = l.ring[n:]
}

// drop takes note that an event leaves the log.
// Requires: l.mu is held.
func (l *Log) drop(event *execv1.ExecutionEvent) {
	if event.GetOutput() == nil {
		if size := proto.Size(event); l.keptBytes+size <= maxKept {
			l.kept = append(l.kept, event)
			l.keptBytes += size
		}
	}
	l.dropped.add(event)
}

// Requires: l.mu is held.
func (l *Log) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Spill puts the log on file, if it is not there yet.
func (l *Log) Spill() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.onFile && l.forgotten == nil && l.broken == nil {
		l.spill()
	}
	return l.broken
}

// Requires: l.mu is held, the log is not on file.
func (l *Log) spill() {
	if l.broken != nil {
		return
	}
	if l.finished != nil {
		if err := l.writeWhole(); err != nil {
			l.breakDown(err)
		}
		return
	}
	if err := l.makeDir(); err != nil {
		l.breakDown(err)
		return
	}
	l.onFile = true
	for _, event := range l.ring {
		l.store(event)
	}
}

// writeWhole puts a log that has ended, and is all in memory, into one file.
// Requires: l.mu is held.
func (l *Log) writeWhole() error {
	text, err := l.describe()
	if err != nil {
		return err
	}
	content := appendRecord(make([]byte, 0, len(text)+l.ringBytes+(len(l.ring)+1)*(headerSize+4)), kindOwner, text)
	for _, event := range l.ring {
		if content, err = appendEvent(content, event); err != nil {
			return err
		}
	}
	path := l.dir + wholeSuffix
	if err := withFolder(filepath.Dir(path), func() error { return os.WriteFile(path, content, 0o600) }); err != nil {
		return errors.Join(err, os.RemoveAll(path))
	}
	l.onFile, l.whole = true, path
	l.parts = []part{{path: path, first: 1, last: l.last, size: int64(len(content))}}
	return nil
}

// withFolder does what needs a folder, which another log's end may remove at any moment.
func withFolder(dir string, do func() error) error {
	err := do()
	for round := 0; errors.Is(err, os.ErrNotExist) && round < 10; round++ {
		if err = os.MkdirAll(dir, 0o700); err == nil || errors.Is(err, os.ErrNotExist) {
			err = do()
		}
	}
	return err
}

func (l *Log) makeDir() error {
	if err := withFolder(filepath.Dir(l.dir), func() error {
		if err := os.Mkdir(l.dir, 0o700); !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	}); err != nil {
		return err
	}
	text, err := l.describe()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.dir, ownerName), text, 0o600)
}

// describe is what is on file of the owner.
// Requires: l.mu is held.
func (l *Log) describe() ([]byte, error) {
	f := ownerFile{Owner: l.owner, InputOffset: l.inputOffset, InputClosed: l.inputClosed}
	if l.owner.Process != nil {
		var err error
		if f.Process, err = proto.Marshal(l.owner.Process); err != nil {
			return nil, err
		}
	}
	return json.Marshal(f)
}

// takeOwner is the opposite of describe.
func (l *Log) takeOwner(text []byte) error {
	var f ownerFile
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	l.owner, l.inputOffset, l.inputClosed = f.Owner, f.InputOffset, f.InputClosed
	if f.Process != nil {
		l.owner.Process = &execv1.ProcessSpec{}
		return proto.Unmarshal(f.Process, l.owner.Process)
	}
	return nil
}

// noteInput writes down at a process's end what it was given to read, where that was not known when the folder was made.
// Requires: l.mu is held.
func (l *Log) noteInput() {
	if l.owner.Process == nil || l.finished == nil || l.broken != nil || l.inputOffset == 0 && !l.inputClosed {
		return
	}
	text, err := l.describe()
	path := filepath.Join(l.dir, ownerName)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		l.breakDown(err)
	}
}

// store writes one event to the right file.
// Requires: l.mu is held, the log is on file.
func (l *Log) store(event *execv1.ExecutionEvent) {
	if l.broken != nil {
		return
	}
	record, err := appendEvent(l.scratch[:0], event)
	if err != nil {
		l.breakDown(err)
		return
	}
	l.scratch = record
	if cap(l.scratch) > 1<<20 {
		l.scratch = nil
	}
	if err := l.place(event.GetSeq(), int64(len(record))); err != nil {
		l.breakDown(err)
		return
	}
	if _, err := l.current.Write(record); err != nil {
		l.breakDown(err)
		return
	}
	p := &l.parts[len(l.parts)-1]
	p.last = event.GetSeq()
	p.size += int64(len(record))
}

// place makes l.current the file that the next record belongs in.
// Requires: l.mu is held.
func (l *Log) place(seq uint64, size int64) error {
	name := headName
	if n := len(l.parts); n > 0 {
		limit := l.sizes.Segment
		if n == 1 {
			limit = l.sizes.Head
		}
		if p := l.parts[n-1]; p.size == 0 || p.size+size <= limit {
			return nil
		}
		name = tailPrefix + strconv.FormatUint(seq, 10)
		if err := l.shorten(); err != nil {
			return err
		}
	}
	path := filepath.Join(l.dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if l.current != nil {
		l.current.Close()
	}
	l.current = f
	l.parts = append(l.parts, part{path: path, first: seq})
	return nil
}

// shorten removes the oldest segments of the tail while the rest is long enough.
// Requires: l.mu is held.
func (l *Log) shorten() error {
	var tail int64
	for _, p := range l.parts[min(1, len(l.parts)):] {
		tail += p.size
	}
	for len(l.parts) > 2 && tail-l.parts[1].size >= l.sizes.Tail {
		tail -= l.parts[1].size
		if err := l.removeSegment(); err != nil {
			return err
		}
	}
	return nil
}

// removeSegment drops the oldest segment. What it takes note of is on file
// before the segment goes, so a crash in between loses neither.
// Requires: l.mu is held.
func (l *Log) removeSegment() error {
	p := l.parts[1]
	kept := len(l.kept)
	if err := eachEvent(p.path, p.size, func(event *execv1.ExecutionEvent) { l.drop(event) }); err != nil {
		return err
	}
	// Events of no known content (left out of the kept ones) still move the end.
	l.dropped.last = p.last
	var note []byte
	var err error
	for _, event := range l.kept[kept:] {
		if note, err = appendEvent(note, event); err != nil {
			return err
		}
	}
	note = appendRecord(note, kindDrop, l.dropped.encode())
	f, err := os.OpenFile(filepath.Join(l.dir, middleName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(note)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	l.parts = slices.Delete(l.parts, 1, 2)
	return os.Remove(p.path)
}

// breakDown gives up on the disk. The log goes on in memory: the head, if
// there is one, stays; the tail is dropped.
// Requires: l.mu is held.
func (l *Log) breakDown(err error) {
	l.broken = fmt.Errorf("spool of %s: %w", l.owner.ExecutionID, err)
	ringFirst := uint64(0)
	if len(l.ring) > 0 {
		ringFirst = l.ring[0].GetSeq()
	}
	for len(l.parts) > 1 {
		p := l.parts[1]
		l.parts = slices.Delete(l.parts, 1, 2)
		// Unreadable now, too: then its bytes are known only by the offsets on either side.
		_ = eachEvent(p.path, p.size, func(event *execv1.ExecutionEvent) {
			if ringFirst == 0 || event.GetSeq() < ringFirst {
				l.drop(event)
			}
		})
		_ = os.Remove(p.path)
	}
	// A head cut off in the middle of a record keeps its whole records: parts say how long it is.
	if l.current != nil {
		l.current.Close()
		l.current = nil
	}
}

// Broken says why the log can't be written to file any more, or nil.
func (l *Log) Broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// OnFile says whether the log has files.
func (l *Log) OnFile() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.onFile
}

// keep puts the log on file as one that the server has on record.
func (l *Log) keep() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forgotten != nil {
		return l.forgotten
	}
	if l.broken != nil && len(l.parts) == 0 && l.dropped.empty() {
		// All of it is in memory still: the disk may be well again.
		l.broken, l.onFile = nil, false
	}
	if !l.onFile {
		l.spill()
	}
	if l.broken != nil && len(l.parts) == 0 {
		return l.broken
	}
	if l.whole == "" {
		return os.WriteFile(filepath.Join(l.dir, keptName), nil, 0o600)
	}
	return l.rename(l.dir + keptSuffix)
}

func (l *Log) isWhole() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole != ""
}

// rename gives the log's one file another name.
// Requires: l.mu is held.
func (l *Log) rename(path string) error {
	if err := os.Rename(l.whole, path); err != nil {
		return err
	}
	l.whole, l.parts[0].path = path, path
	return nil
}

// stop ends the log: writers, and readers of one that has no end, get the cause.
func (l *Log) stop(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgotten = cause
	if l.current != nil {
		l.current.Close()
		l.current = nil
	}
	l.wake()
	l.tellDone()
}

// remove removes the log's files, when nobody reads them any more.
// Requires: the log was stopped.
func (l *Log) remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.onFile || l.gone {
		return nil
	}
	l.gone = true
	if l.readers == 0 {
		return l.removeFiles()
	}
	if l.whole != "" {
		return l.rename(l.dir + goneSuffix)
	}
	dir := l.dir + goneSuffix
	if err := os.Rename(l.dir, dir); err != nil {
		return err
	}
	l.dir = dir
	for i := range l.parts {
		l.parts[i].path = filepath.Join(dir, filepath.Base(l.parts[i].path))
	}
	return nil
}

// Requires: l.mu is held.
func (l *Log) removeFiles() error {
	path := l.dir
	if l.whole != "" {
		path = l.whole
	}
	return errors.Join(os.RemoveAll(path), removeIfEmpty(filepath.Dir(path)))
}

// close releases the file without ending the log.
func (l *Log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		l.current.Close()
		l.current = nil
	}
}

func eachEvent(path string, size int64, f func(*execv1.ExecutionEvent)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReaderSize(io.LimitReader(file, size), 256<<10)
	var buffer []byte
	for {
		kind, payload, err := readRecord(r, buffer)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		buffer = payload
		if kind != kindEvent {
			return fmt.Errorf("%s: %w", path, errTorn)
		}
		event := &execv1.ExecutionEvent{}
		if err := proto.Unmarshal(payload, event); err != nil {
			return fmt.Errorf("%s: %w", path, errTorn)
		}
		f(event)
	}
}

// load reads a log back from its folder, cutting off what a crash left incomplete.
func load(dir string, sizes Sizes) (*Log, error) {
	text, err := os.ReadFile(filepath.Join(dir, ownerName))
	if err != nil {
		return nil, err
	}
	l := newLog(dir, Owner{}, sizes)
	if err := l.takeOwner(text); err != nil {
		return nil, fmt.Errorf("%s/%s: %w", dir, ownerName, err)
	}
	l.onFile = true
	if err := l.loadMiddle(); err != nil {
		return nil, err
	}
	if err := l.loadParts(); err != nil {
		return nil, err
	}
	return l, nil
}

// loadWhole reads a log back from its one file. One that was cut off in the making is in memory only, as it was before; its agent has it
// all. It returns nil if not even its owner is known.
func loadWhole(path, dir string, sizes Sizes) (*Log, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := newLog(dir, Owner{}, sizes)
	r := bufio.NewReader(bytes.NewReader(content))
	kind, payload, err := readRecord(r, nil)
	if err != nil || kind != kindOwner {
		return nil, nil
	}
	if err := l.takeOwner(payload); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for {
		kind, payload, err := readRecord(r, nil)
		event := &execv1.ExecutionEvent{}
		if err != nil || kind != kindEvent || proto.Unmarshal(payload, event) != nil || !l.resume(event) {
			break
		}
		l.ring = append(l.ring, event)
		l.ringBytes += len(payload)
	}
	if l.finished != nil {
		l.onFile, l.whole = true, path
		l.parts = []part{{path: path, first: 1, last: l.last, size: int64(len(content))}}
		l.ring, l.ringBytes = nil, 0
	}
	return l, nil
}

func (l *Log) loadMiddle() error {
	path := filepath.Join(l.dir, middleName)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	var events []*execv1.ExecutionEvent
	var good int64
	for {
		kind, payload, err := readRecord(r, nil)
		if err == io.EOF || errors.Is(err, errTorn) {
			break
		}
		if err != nil {
			return err
		}
		good += int64(headerSize + len(payload))
		if kind == kindDrop {
			d, err := decodeDropped(payload)
			if err != nil {
				return err
			}
			l.dropped = d
			continue
		}
		event := &execv1.ExecutionEvent{}
		if err := proto.Unmarshal(payload, event); err != nil {
			return fmt.Errorf("%s: %w", path, errTorn)
		}
		events = append(events, event)
	}
	for _, event := range events {
		// Noted twice where a crash came between note and removal.
		if event.GetSeq() <= l.dropped.last && (len(l.kept) == 0 || event.GetSeq() > l.kept[len(l.kept)-1].GetSeq()) {
			l.kept = append(l.kept, event)
			l.keptBytes += proto.Size(event)
		}
	}
	return os.Truncate(path, good)
}

func (l *Log) loadParts() error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == headName {
			l.parts = append(l.parts, part{path: filepath.Join(l.dir, name), first: 1})
		} else if digits, ok := strings.CutPrefix(name, tailPrefix); ok {
			first, err := strconv.ParseUint(digits, 10, 64)
			if err != nil {
				return fmt.Errorf("spool %s: file %q (expected: %s and a number)", l.dir, name, tailPrefix)
			}
			l.parts = append(l.parts, part{path: filepath.Join(l.dir, name), first: first})
		}
	}
	slices.SortFunc(l.parts, func(a, b part) int { return int(int64(a.first) - int64(b.first)) })
	for i := 0; i < len(l.parts); i++ {
		p := &l.parts[i]
		if i > 0 && !l.dropped.empty() && p.first <= l.dropped.last {
			// Its removal was noted but did not happen.
			if err := os.Remove(p.path); err != nil {
				return err
			}
			l.parts = slices.Delete(l.parts, i, i+1)
			i--
			continue
		}
		whole, err := l.loadPart(p)
		if err != nil {
			return err
		}
		if !whole {
			if err := l.cutAfter(i); err != nil {
				return err
			}
		}
	}
	if n := len(l.parts); n > 0 {
		f, err := os.OpenFile(l.parts[n-1].path, os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		l.current = f
	}
	return nil
}

// loadPart takes in a file's events as far as they are whole and in order.
func (l *Log) loadPart(p *part) (whole bool, err error) {
	f, err := os.Open(p.path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	r := bufio.NewReaderSize(f, 256<<10)
	var buffer []byte
	for {
		kind, payload, err := readRecord(r, buffer)
		if err != nil && err != io.EOF && !errors.Is(err, errTorn) {
			return false, err
		}
		if err != nil {
			break
		}
		buffer = payload
		event := &execv1.ExecutionEvent{}
		if kind != kindEvent || proto.Unmarshal(payload, event) != nil || !l.resume(event) {
			break
		}
		p.last = event.GetSeq()
		p.size += int64(headerSize + len(payload))
	}
	return p.size == info.Size() && p.size > 0, nil
}

// resume takes in one event from file; false if it does not follow.
func (l *Log) resume(event *execv1.ExecutionEvent) bool {
	if !l.dropped.empty() && event.GetSeq() == l.dropped.last+1 && l.last+1 == l.dropped.first {
		l.last = l.dropped.last
		for stream, to := range l.dropped.to {
			l.ends[stream] = max(l.ends[stream], to)
		}
	}
	if l.check(event) != nil {
		return false
	}
	l.last = event.GetSeq()
	if output := event.GetOutput(); output != nil {
		l.ends[output.GetStream()] += uint64(len(output.GetData()))
	}
	if started := event.GetStarted(); started != nil {
		l.started = started
	}
	l.finished = event.GetFinished()
	return true
}

// cutAfter shortens part i to its whole records and removes what comes after.
func (l *Log) cutAfter(i int) error {
	if err := os.Truncate(l.parts[i].path, l.parts[i].size); err != nil {
		return err
	}
	keep := i + 1
	if l.parts[i].size == 0 {
		keep = i
	}
	for _, p := range l.parts[keep:] {
		if err := os.Remove(p.path); err != nil {
			return err
		}
	}
	l.parts = l.parts[:keep]
	return nil
}

// wait returns a channel that is closed at the next change.
// Requires: l.mu is held.
func (l *Log) wait() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// Await returns when the log has come as far as a seq, or goes no further.
func (l *Log) Await(ctx context.Context, seq uint64) error {
	for {
		l.mu.Lock()
		if l.last >= seq || l.finished != nil || l.forgotten != nil {
			l.mu.Unlock()
			return nil
		}
		wait := l.wait()
		l.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Read returns a reader of the events after a seq. Whoever reads a log that has ended gets all of it, even if it is forgotten meanwhile.
func (l *Log) Read(after uint64) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	return &Reader{log: l, after: after}
}

// Reader follows a log. It is not safe for concurrent use.
type Reader struct {
	log   *Log
	after uint64
	// offsets are how far this reader is in each stream, where it knows.
	offsets [3]uint64
	// pending are events made up for a hole.
	pending []*execv1.ExecutionEvent

	file     *os.File
	records  *bufio.Reader
	readTo   int64
	position int64
	path     string
	buffer   []byte
	closed   bool
}

// Close releases the reader. It must be called.
func (r *Reader) Close() {
	r.closeFile()
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	l.readers--
	if l.readers == 0 && l.gone {
		// What can't be removed now is found by the next engine by its name.
		_ = l.removeFiles()
	}
}

func (r *Reader) closeFile() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// Next returns the next event, waiting for it if need be; io.EOF after the last one.
func (r *Reader) Next(ctx context.Context) (*execv1.ExecutionEvent, error) {
	for {
		event, wait, err := r.step()
		if err != nil {
			return nil, err
		}
		if event != nil {
			return event, nil
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ready returns the next event if it is there already, else nil.
func (r *Reader) Ready() (*execv1.ExecutionEvent, error) {
	for {
		event, wait, err := r.step()
		if err != nil || event != nil || wait != nil {
			return event, err
		}
	}
}

// step returns an event, or a channel to wait on, or neither: then it must be called again.
func (r *Reader) step() (*execv1.ExecutionEvent, <-chan struct{}, error) {
	if len(r.pending) > 0 {
		event := r.pending[0]
		r.pending = r.pending[1:]
		r.advance(event)
		return event, nil, nil
	}
	l := r.log
	l.mu.Lock()
	if l.finished != nil && r.after >= l.last {
		l.mu.Unlock()
		return nil, nil, io.EOF
	}
	if n := len(l.ring); n > 0 && r.after+1 >= l.ring[0].GetSeq() && r.after < l.last {
		event := l.ring[r.after+1-l.ring[0].GetSeq()]
		l.mu.Unlock()
		r.closeFile()
		r.advance(event)
		return event, nil, nil
	}
	if r.after >= l.last {
		if err := l.forgotten; err != nil {
			l.mu.Unlock()
			return nil, nil, err
		}
		wait := l.wait()
		l.mu.Unlock()
		return nil, wait, nil
	}
	index := slices.IndexFunc(l.parts, func(p part) bool { return p.last > r.after })
	holeNext := index != 0 && !l.dropped.empty() && r.after < l.dropped.last && r.after+1 >= l.dropped.first
	if holeNext {
		r.pending = l.fillHole(r.after, r.offsets)
		r.after = l.dropped.last
		if len(r.pending) > 0 {
			r.after = r.pending[0].GetSeq() - 1
		}
		l.mu.Unlock()
		return nil, nil, nil
	}
	if index < 0 {
		err := fmt.Errorf("spool of %s: events after %d are missing: %w", l.owner.ExecutionID, r.after, errors.Join(l.broken, os.ErrNotExist))
		l.mu.Unlock()
		return nil, nil, err
	}
	p := l.parts[index]
	if r.file == nil || r.path != p.path {
		// Opened with the lock held: a segment can be removed at any other time.
		if err := r.open(p.path); err != nil {
			if l.forgotten != nil && l.gone {
				// It was being forgotten while this reader was made.
				err = l.forgotten
			}
			l.mu.Unlock()
			return nil, nil, err
		}
	}
	r.readTo = p.size
	l.mu.Unlock()
	event, err := r.readFile()
	return event, nil, err
}

func (r *Reader) open(path string) error {
	r.closeFile()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	r.file, r.path, r.position = f, path, 0
	r.records = bufio.NewReaderSize(f, 128<<10)
	return nil
}

// readFile reads on to the first event that is new to this reader.
func (r *Reader) readFile() (*execv1.ExecutionEvent, error) {
	for r.position < r.readTo {
		kind, payload, err := readRecord(r.records, r.buffer)
		if err != nil || kind != kindEvent && kind != kindOwner {
			return nil, fmt.Errorf("%s at %d: %w", r.path, r.position, errors.Join(err, errTorn))
		}
		r.buffer = payload
		r.position += int64(headerSize + len(payload))
		if kind == kindOwner {
			continue
		}
		event := &execv1.ExecutionEvent{}
		if err := proto.Unmarshal(payload, event); err != nil {
			return nil, fmt.Errorf("%s at %d: %w", r.path, r.position, err)
		}
		if event.GetSeq() > r.after {
			r.advance(event)
			return event, nil
		}
		r.note(event)
	}
	return nil, fmt.Errorf("%s: event %d is missing: %w", r.path, r.after+1, errTorn)
}

func (r *Reader) advance(event *execv1.ExecutionEvent) {
	r.after = event.GetSeq()
	r.note(event)
}

func (r *Reader) note(event *execv1.ExecutionEvent) {
	switch e := event.GetEvent().(type) {
	case *execv1.ExecutionEvent_Output:
		r.offsets[e.Output.GetStream()] = e.Output.GetOffset() + uint64(len(e.Output.GetData()))
	case *execv1.ExecutionEvent_Gap:
		r.offsets[e.Gap.GetStream()] = e.Gap.GetOffset() + e.Gap.GetBytes()
	}
}

// fillHole makes the events that stand for what was dropped after a seq: the
// kept ones, and a gap for each stream that lost bytes. A gap takes the seq of
// an event that is gone, so seqs go on rising.
// Requires: l.mu is held.
func (l *Log) fillHole(after uint64, offsets [3]uint64) []*execv1.ExecutionEvent {
	var events []*execv1.ExecutionEvent
	taken := map[uint64]bool{}
	for _, event := range l.kept {
		if event.GetSeq() > after && event.GetSeq() <= l.dropped.last {
			events = append(events, event)
			taken[event.GetSeq()] = true
		}
	}
	low, high := max(after+1, l.dropped.first), l.dropped.last
	seqs := []func() uint64{
		func() uint64 {
			for taken[low] {
				low++
			}
			return low
		},
		func() uint64 {
			for taken[high] {
				high--
			}
			return high
		},
	}
	for stream := range l.dropped.to {
		from := max(offsets[stream], l.dropped.from[stream])
		if l.dropped.to[stream] <= from {
			continue
		}
		seq := seqs[0]()
		seqs = seqs[1:]
		taken[seq] = true
		events = append(events, &execv1.ExecutionEvent{Seq: seq, Event: &execv1.ExecutionEvent_Gap{Gap: &execv1.Gap{
			Stream: execv1.Stream(stream), Offset: from, Bytes: l.dropped.to[stream] - from,
		}}})
	}
	slices.SortStableFunc(events, func(a, b *execv1.ExecutionEvent) int { return int(int64(a.GetSeq()) - int64(b.GetSeq())) })
	return events
}

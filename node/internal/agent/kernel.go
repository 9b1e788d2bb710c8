package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

const (
	// A line from a kernel may be 16 MiB; the rest is what JSON wraps around it.
	maxEventBytes = 17 << 20
	// How long a kernel may take to say that it is ready. A cold interpreter on a busy machine takes seconds, not this.
	readyPatience = 60 * time.Second
	// What is printed while no cell runs is read at this rate at most: it is nobody's output, and must not cost a CPU.
	lateBytesPerSecond = 1 << 20
	stderrTailBytes    = 2 << 10
	// What a kernel may write ahead of the agent: with the usual 64 KiB, the two would wake each other for every 64 KiB of output.
	kernelPipeBytes = 512 << 10
	// A result is one message to the engine, which takes 9 MiB. Broken UTF-8, which grows when it is replaced, is replaced before.
	maxResultBytes   = 8 << 20
	maxMetadataBytes = 1 << 20
	maxErrorBytes    = 1 << 20
	// Of what goes with a result: a kernel of ours keeps to less.
	maxDisplayIDBytes = 1024
	maxTypeBytes      = 1024
	maxLeftOut        = 200
	eventBufferBytes  = 4 << 10
	// A daemon's output that comes so soon after the end of a cell may count as the next one's: it is chance which of them it meets.
	freshlyDrained = 2 * time.Millisecond
	// The largest that a process without privilege can make a pipe: so much may wait in it.
	maxPipeBytes = 1 << 20
)

// kernel is one process of an interpreter and its five pipes. The context's worker gives it one cell at a time.
type kernel struct {
	context *kernelContext
	tree    *tree
	pid     int

	stdout, stderr *os.File
	commands       *frame.Outlet
	events         *os.File
	acks           *frame.Outlet

	ready      chan struct{} // closed at the ready event
	done       chan *kernelEvent
	configured chan *kernelEvent
	dead       chan struct{} // closed when the process has ended
	doomed     chan struct{} // closed when the worker is to end it; guarded by ioMu
	status     syscall.WaitStatus
	// alive ends with the process: whoever waits for room in a log then stops waiting.
	alive   context.Context
	endLife context.CancelFunc

	version string // set before ready is closed

	// What the kernel was told of the sandbox last, and of what it said that it has it. The worker's alone, once the kernel is started.
	told  identity
	known uint64 // a generation

	// ioMu makes "read from a pipe and append to the log" one step, so that what `flush` promises about the order of the two streams holds.
	ioMu    sync.Mutex
	current *execution // whose output this is; nil between cells; guarded by ioMu
	lastID  string     // guarded by ioMu
	tail    []byte     // last bytes of stderr before ready; guarded by ioMu
	buffer  []byte     // for draining; guarded by ioMu
	isReady bool       // guarded by ioMu
	problem string     // why the agent ended it, if it did; guarded by ioMu

	drainedAt time.Time // guarded by ioMu

	commandMu sync.Mutex

	// eventsMu is held by whoever reads what the kernel says: a goroutine of its own or, while a cell is short, the worker.
	eventsMu    sync.Mutex
	eventBuffer []byte // guarded by eventsMu
	eventLine   []byte // the beginning of an event whose end has not come; guarded by eventsMu
	eventsOver  bool   // nothing more is read; guarded by eventsMu
	eventsError error  // guarded by eventsMu
	hasty       bool   // the worker reads, and must not wait for room in a log; guarded by eventsMu
}

type kernelEvent struct {
	Event     string          `json:"event"`
	ID        string          `json:"id"`
	Main      bool            `json:"main"`
	Data      json.RawMessage `json:"data"`
	Metadata  json.RawMessage `json:"metadata"`
	Truncated uint64          `json:"truncated"`
	LeftOut   json.RawMessage `json:"left_out"`
	DisplayID string          `json:"display_id"`
	Update    bool            `json:"update"`
	Clear     bool            `json:"clear"`
	Unseeded  string          `json:"unseeded"`
	Stream    string          `json:"stream"`
	Text      string          `json:"text"`
	Status    string          `json:"status"`
	Error     *struct {
		Name      string `json:"name"`
		Message   string `json:"message"`
		Traceback string `json:"traceback"`
	} `json:"error"`
	ExitCode int    `json:"exit_code"`
	Version  string `json:"version"`
}

type command struct {
	Op     string            `json:"op"`
	ID     string            `json:"id,omitempty"`
	Code   *string           `json:"code,omitempty"`
	Silent bool              `json:"silent,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Unset  []string          `json:"unset,omitempty"`
	Cwd    string            `json:"cwd,omitempty"`
	Seed   string            `json:"seed,omitempty"`
}

// startKernel starts the process; it is not ready yet.
func startKernel(t *tree, c *kernelContext, spawn *inner.Spawn, known identity) (*kernel, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	k := &kernel{
		context:    c,
		tree:       t,
		ready:      make(chan struct{}),
		done:       make(chan *kernelEvent, 1),
		configured: make(chan *kernelEvent, 4),
		dead:       make(chan struct{}),
		doomed:     make(chan struct{}),
		told:       known,
		known:      known.generation,
	}
	theirs := []int{null}
	read := []**os.File{1: &k.stdout, 2: &k.stderr, 4: &k.events, 5: nil}
	written := []**frame.Outlet{3: &k.commands, 5: &k.acks}
	defer func() {
		for _, fd := range theirs {
			_ = unix.Close(fd)
		}
	}()
	for fd := 1; fd <= 5; fd++ {
		ourEnd, theirEnd, err := pipe(read[fd] != nil)
		if err == nil {
			theirs = append(theirs, theirEnd)
		}
		if err == nil && read[fd] != nil {
			enlarge(ourEnd)
			*read[fd] = os.NewFile(uintptr(ourEnd), "pipe")
		} else if err == nil {
			*written[fd], err = frame.NewOutlet(ourEnd, "pipe")
		}
		if err != nil {
			k.closeFiles()
			return nil, fmt.Errorf("pipes of a kernel: %w", err)
		}
	}
	exited := make(chan syscall.WaitStatus, 1)
	k.pid, err = t.spawn(context.Background(), spawn, exited, theirs...)
	if err != nil {
		k.closeFiles()
		return nil, err
	}
	k.alive, k.endLife = context.WithCancel(context.Background())
	go k.pump(k.stdout, execv1.Stream_STREAM_STDOUT)
	go k.pump(k.stderr, execv1.Stream_STREAM_STDERR)
	eventsEnded := make(chan struct{})
	go func() {
		defer close(eventsEnded)
		k.readEvents()
	}()
	go func() {
		select {
		case k.status = <-exited:
		case <-t.dead:
			k.status = syscall.WaitStatus(unix.SIGKILL)
		}
		// What it said last, `done` for instance, is still in its pipe. A child of it that holds the other end open must not keep us.
		_ = k.events.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		k.endLife()
		<-eventsEnded
		k.drainAll()
		_ = k.commands.Close()
		_ = k.acks.Close()
		_ = k.events.Close()
		close(k.dead)
	}()
	return k, nil
}

// pipe makes a pipe of which our end does not block and theirs does.
func pipe(weRead bool) (ours, theirs int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, -1, err
	}
	ours, theirs = fds[0], fds[1]
	if !weRead {
		ours, theirs = theirs, ours
	}
	if _, err := unix.FcntlInt(uintptr(theirs), unix.F_SETFL, 0); err != nil {
		_ = unix.Close(ours)
		_ = unix.Close(theirs)
		return -1, -1, err
	}
	return ours, theirs, nil
}

// enlarge lets more wait in a pipe. Where the kernel allows no more, the usual 64 KiB do as well.
func enlarge(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, kernelPipeBytes) }

func (k *kernel) closeFiles() {
	for _, file := range []*os.File{k.stdout, k.stderr, k.events} {
		if file != nil {
			_ = file.Close()
		}
	}
	for _, outlet := range []*frame.Outlet{k.commands, k.acks} {
		if outlet != nil {
			_ = outlet.Close()
		}
	}
}

// pump reads one pipe until its last writer is gone, which a daemon may put off for long after the kernel's own end.
func (k *kernel) pump(file *os.File, stream execv1.Stream) {
	defer file.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, chunkBytes)
	// One call for the life of the pipe: the poller reports each change, so after a read that did not fill the buffer there is nothing
	// left to try before the next report.
	_ = raw.Read(func(fd uintptr) bool {
		for {
			k.ioMu.Lock()
			n, err := frame.ReadNow(fd, buffer)
			if err != nil || n == 0 {
				k.ioMu.Unlock()
				return !errors.Is(err, unix.EAGAIN)
			}
			owner := k.current
			k.take(stream, buffer[:n])
			k.ioMu.Unlock()
			if owner != nil {
				owner.waitForRoom(k.alive)
			} else if n > 512 {
				time.Sleep(time.Duration(n) * time.Second / lateBytesPerSecond)
			}
			if n < len(buffer) {
				return false
			}
		}
	})
}

// take gives bytes to whom they belong. Requires: ioMu is held.
func (k *kernel) take(stream execv1.Stream, data []byte) {
	if k.current != nil {
		k.current.output(stream, data)
		return
	}
	if !k.isReady {
		if stream == execv1.Stream_STREAM_STDERR {
			k.tail = append(k.tail, data...)
			k.tail = k.tail[max(0, len(k.tail)-stderrTailBytes):]
		}
		return
	}
	k.context.agent.late(k.lastID, stream, data)
}

// drain takes what is in both pipes now. What a daemon adds meanwhile is not waited for. Requires: ioMu is held.
func (k *kernel) drain() {
	k.drainOne(k.stdout, execv1.Stream_STREAM_STDOUT)
	k.drainOne(k.stderr, execv1.Stream_STREAM_STDERR)
	k.drainedAt = time.Now()
}

func (k *kernel) drainOne(file *os.File, stream execv1.Stream) {
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	// Control fails where the pump has seen the end and closed the file: then everything was read.
	_ = raw.Control(func(fd uintptr) {
		if k.buffer == nil {
			k.buffer = make([]byte, chunkBytes)
		}
		for left := maxPipeBytes; left > 0; {
			n, err := frame.ReadNow(fd, k.buffer)
			if err != nil || n == 0 {
				return
			}
			k.take(stream, k.buffer[:n])
			if n < len(k.buffer) {
				return
			}
			left -= n
		}
	})
}

func (k *kernel) drainAll() {
	k.ioMu.Lock()
	defer k.ioMu.Unlock()
	k.drain()
}

// begin makes what is printed from now on the output of e.
func (k *kernel) begin(e *execution) {
	k.ioMu.Lock()
	defer k.ioMu.Unlock()
	if time.Since(k.drainedAt) > freshlyDrained {
		k.drain()
	}
	k.current, k.lastID = e, e.spec.ExecutionId
}

// end takes the last bytes of the running cell.
func (k *kernel) end() {
	k.ioMu.Lock()
	defer k.ioMu.Unlock()
	k.drain()
	k.current = nil
}

// readEvents reads what the kernel says until it has ended or breaks the protocol.
func (k *kernel) readEvents() {
	raw, err := k.events.SyscallConn()
	if err != nil {
		return
	}
	err = raw.Read(func(fd uintptr) bool {
		k.eventsMu.Lock()
		defer k.eventsMu.Unlock()
		return k.takeEvents(fd)
	})
	k.eventsMu.Lock()
	err = errors.Join(err, k.eventsError)
	k.eventsMu.Unlock()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		k.violation("cannot be read: " + err.Error())
	}
}

// takeEvents handles what can be read now and says whether that was the last. Requires: eventsMu is held.
func (k *kernel) takeEvents(fd uintptr) (over bool) {
	if k.eventBuffer == nil {
		k.eventBuffer = make([]byte, eventBufferBytes)
	}
	for !k.eventsOver {
		n, err := frame.ReadNow(fd, k.eventBuffer)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil || n == 0 {
			k.eventsError = err
			k.eventsOver = true
			break
		}
		rest, ok := k.eachEvent(k.eventLine, k.eventBuffer[:n])
		k.eventLine, k.eventsOver = rest, !ok
		if ok && n < len(k.eventBuffer) {
			return false // see pump
		}
	}
	return true
}

// hurry waits for the end of a cell that is as short as most are, and takes nothing else meanwhile: no thread is woken for each
// single thing that the cell says. It returns nil where the cell takes longer.
func (k *kernel) hurry(e *execution, limit time.Duration) (done *kernelEvent) {
	raw, err := k.events.SyscallConn()
	if err != nil || !k.eventsMu.TryLock() {
		return nil
	}
	defer k.eventsMu.Unlock()
	k.hasty = true
	defer func() { k.hasty = false }()
	deadline := time.Now().Add(limit)
	_ = raw.Control(func(fd uintptr) {
		for done == nil && e.hasRoom() {
			left := time.Until(deadline)
			if left <= 0 || !frame.Await(fd, left) || k.takeEvents(fd) {
				return
			}
			select {
			case done = <-k.done:
			default:
			}
		}
	})
	return done
}

// eachEvent handles the events that data completes and returns the beginning of the next one.
func (k *kernel) eachEvent(line, data []byte) (rest []byte, ok bool) {
	for {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			if len(line)+len(data) > maxEventBytes {
				k.violation("sent a line of more than 16 MiB")
				return nil, false
			}
			return append(line, data...), true
		}
		whole := data[:end]
		if len(line) > 0 {
			whole = append(line, whole...)
			line = nil
		}
		data = data[end+1:]
		if !utf8.Valid(whole) {
			whole = bytes.ToValidUTF8(whole, []byte("\uFFFD"))
		}
		event := &kernelEvent{}
		if err := json.Unmarshal(whole, event); err != nil {
			k.violation("sent what is not JSON: " + err.Error())
			return nil, false
		}
		if !k.handle(event) {
			return nil, false
		}
	}
}

func (k *kernel) handle(event *kernelEvent) bool {
	switch event.Event {
	case "flush":
		k.ioMu.Lock()
		k.drain()
		owner := k.current
		k.ioMu.Unlock()
		if owner != nil && !k.hasty {
			owner.waitForRoom(k.alive)
		}
		if n, err := k.acks.Try([]byte{1}); err != nil {
			return false
		} else if n == 0 {
			k.violation("does not read the answers to its flushes")
			return false
		}
	case "result":
		k.ioMu.Lock()
		defer k.ioMu.Unlock()
		if e := k.current; e != nil && e.spec.ExecutionId == event.ID {
			k.drain() // what was printed before the value was shown comes before it
			data, metadata, leftOut := fitResult(event.Data, event.Metadata)
			result := &execv1.Result{
				Main:           event.Main,
				DataJson:       jsonText(data),
				MetadataJson:   jsonText(metadata),
				TruncatedBytes: event.Truncated,
				LeftOut:        toldLeftOut(event.LeftOut),
				DisplayId:      shorten(event.DisplayID, maxDisplayIDBytes),
				Update:         event.Update,
				Clear:          event.Clear,
			}
			for name, size := range leftOut {
				if result.LeftOut == nil {
					result.LeftOut = map[string]uint64{}
				}
				result.LeftOut[name] += size
				result.TruncatedBytes += size
			}
			e.result(result)
		}
	case "done":
		k.ioMu.Lock()
		ours := k.current != nil && k.current.spec.ExecutionId == event.ID
		k.ioMu.Unlock()
		if ours {
			select {
			case k.done <- event:
			default: // a second `done` of the same cell
			}
		}
	case "late":
		stream := execv1.Stream_STREAM_STDOUT
		if event.Stream == "stderr" {
			stream = execv1.Stream_STREAM_STDERR
		}
		k.context.agent.late(event.ID, stream, []byte(event.Text))
	case "ready":
		k.ioMu.Lock()
		defer k.ioMu.Unlock()
		if !k.isReady {
			k.isReady = true
			k.version = strings.ToValidUTF8(shorten(event.Version, 64), "\uFFFD")
			close(k.ready)
		}
	case "configured":
		for said := false; !said; {
			select {
			case k.configured <- event:
				said = true
			default:
				// Only the last one counts.
				select {
				case <-k.configured:
				default:
				}
			}
		}
	}
	return true
}

// fitResult leaves out the largest representations of a value until the rest is no more than maxResultBytes, and says how many bytes
// they were, by type; those of the metadata under "metadata", and all that has no type of its own that can be told under "".
func fitResult(data, metadata json.RawMessage) (json.RawMessage, json.RawMessage, map[string]uint64) {
	leftOut := map[string]uint64{}
	if len(metadata) > maxMetadataBytes {
		leftOut["metadata"] = uint64(len(metadata))
		metadata = nil
	}
	if len(data) <= maxResultBytes-maxMetadataBytes {
		return data, metadata, leftOut
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		leftOut[""] += uint64(len(data))
		return nil, metadata, leftOut
	}
	size := 0
	names := slices.SortedFunc(maps.Keys(members), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(members[a]), len(members[b])), cmp.Compare(a, b))
	})
	for _, name := range names {
		// A character of a name takes at most six bytes in JSON.
		cost := 6*len(name) + len(members[name]) + 4
		if size+cost > maxResultBytes-maxMetadataBytes {
			told := name
			if len(name) > maxTypeBytes || len(leftOut) >= maxLeftOut {
				told = ""
			}
			leftOut[told] += uint64(len(members[name]))
			delete(members, name)
			continue
		}
		size += cost
	}
	var rest bytes.Buffer
	encoder := json.NewEncoder(&rest)
	encoder.SetEscapeHTML(false) // it would make what was measured longer
	if err := encoder.Encode(members); err != nil {
		leftOut[""] += uint64(size)
		return nil, metadata, leftOut
	}
	return bytes.TrimSpace(rest.Bytes()), metadata, leftOut
}

// toldLeftOut is what a kernel says that it has left out itself; nothing where it says that in a way that we don't know.
func toldLeftOut(raw json.RawMessage) map[string]uint64 {
	if len(raw) == 0 || len(raw) > maxMetadataBytes {
		return nil
	}
	var told map[string]uint64
	if json.Unmarshal(raw, &told) != nil {
		return nil
	}
	for name := range told {
		if len(name) > maxTypeBytes || len(told) > maxLeftOut {
			delete(told, name)
		}
	}
	return told
}

func jsonText(raw json.RawMessage) string {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return "{}"
	}
	return string(raw)
}

func shorten(text string, limit int) string {
	if len(text) > limit {
		return text[:limit]
	}
	return text
}

// violation ends a kernel that no longer speaks the protocol: there is no way to tell where its next cell would end.
func (k *kernel) violation(what string) {
	k.ioMu.Lock()
	k.problem = "its kernel " + what
	k.ioMu.Unlock()
	_ = k.tree.send(&inner.Request{Signal: &inner.Signal{Root: k.pid, Number: int(unix.SIGKILL), SinceTicks: ^uint64(0)}})
}

// send writes one command. The kernel reads them only between cells, so a full pipe is given up after patience.
func (k *kernel) send(c *command, patience time.Duration) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(c); err != nil {
		return err
	}
	k.commandMu.Lock()
	defer k.commandMu.Unlock()
	if patience > 0 {
		_ = k.commands.SetWriteDeadline(time.Now().Add(patience))
		defer func() { _ = k.commands.SetWriteDeadline(time.Time{}) }()
	}
	_, err := k.commands.Write(line.Bytes())
	return err
}

// killTree ends the kernel and everything of its context. It returns when the kernel is gone.
func (k *kernel) killTree(sinceTicks uint64) int {
	roots, contexts := k.context.agent.others(k.context)
	event, err := k.tree.call(context.Background(), &inner.Request{Kill: &inner.Kill{
		Root: k.pid, Context: k.context.mark, SinceTicks: sinceTicks, OtherRoots: roots, OtherContexts: contexts,
	}})
	if err != nil {
		<-k.dead
		return 0
	}
	patience := newAlarm(initPatience)
	defer patience.stop()
	select {
	case <-k.dead:
	case <-patience.passed:
		// It cannot be killed; with the tree it goes.
		k.tree.end()
		<-k.dead
	}
	return event.Killed
}

// doom has the worker end the kernel in the middle of a cell. problem is why.
func (k *kernel) doom(problem string) {
	k.ioMu.Lock()
	defer k.ioMu.Unlock()
	select {
	case <-k.doomed:
	default:
		k.problem = problem
		close(k.doomed)
	}
}

// endedProblem is why the agent ended it, if it did.
func (k *kernel) endedProblem() string {
	k.ioMu.Lock()
	defer k.ioMu.Unlock()
	return k.problem
}

// knows says whether the kernel has said that it is what the sandbox is in this generation.
func (k *kernel) knows(generation uint64) bool { return k.known == generation }

// recognise takes a kernel's answer to introduce.
func (k *kernel) recognise(answer *kernelEvent) {
	switch {
	case answer.ID != fmt.Sprintf("identity-%d", k.told.generation):
		// To an older one.
	case answer.Unseeded != "":
		// Two sandboxes would draw the same numbers, keys among them.
		k.violation("could not seed its random generators anew (" + strings.ToValidUTF8(shorten(answer.Unseeded, 300), "\uFFFD") + ")")
		<-k.dead
	default:
		k.known = k.told.generation
	}
}

// endedText says how the process ended.
func (k *kernel) endedText() string {
	switch problem := k.endedProblem(); {
	case problem != "":
		return "was ended by the agent, as " + problem
	case k.status.Signaled():
		return fmt.Sprintf("was ended by signal %d (%s)", int(k.status.Signal()), unix.SignalName(k.status.Signal()))
	default:
		return fmt.Sprintf("ended with exit status %d", k.status.ExitStatus())
	}
}

// cpu says how long the kernel has run so far, and whether it wants to run now. What can't be told within the limit is: not.
func (k *kernel) cpu(limit time.Duration) (ran time.Duration, wantsToRun bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	event, err := k.tree.call(ctx, &inner.Request{Look: k.pid})
	if err != nil || len(event.Guests) != 1 {
		return 0, false
	}
	guest := event.Guests[0]
	return time.Duration(guest.CPUTicks) * (time.Second / inner.TicksPerSecond), guest.State == "R"
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

const (
	// Programs that may run at once on our behalf, terminals among them.
	maxRunningProcesses = 1000
	// Arguments and environment of a process together.
	maxProcessBytes = 1 << 20
	// When a process has ended, others may still hold its output: what they write within this silence still counts as its own, …
	lingerSilence = 100 * time.Millisecond
	// … but never for longer than this.
	lingerMax = 500 * time.Millisecond
	// A process that fails this soon after the memory guard has ended one of its children failed because of that.
	victimMemory = 5 * time.Second
)

// process is a program that was started by itself, not by a context. What it says goes to the log of an execution, whose id is its own.
// It is held until its last event is acknowledged.
type process struct {
	agent  *Agent
	spec   *execv1.ProcessSpec
	events *execution

	// started is closed when the program runs, or was refused: then refusal says why. Set before started is closed.
	started    chan struct{}
	refusal    error
	tree       *tree
	pid        int
	startTicks uint64
	input      *input   // nil: it has none
	terminal   *os.File // the master's side; nil without a terminal
	slave      int      // the other side: while it is open, nobody inside can bring the terminal's end about; -1 without one

	// ended is closed when the process has ended, before the last output is read.
	ended   chan struct{}
	endedAt time.Time // set before ended is closed
	over    bool      // its end was told; guarded by agent.mu

	mu       sync.Mutex
	expired  chan struct{}    // made when the time was up, closed when the tree was killed; guarded by mu
	killed   int              // how many the time limit ended; guarded by mu
	victim   *inner.Victim    // guarded by mu
	victimAt time.Time        // guarded by mu
	finished *execv1.Finished // guarded by mu
}

func (p *process) owner() string { return inner.ProcessOwner + p.spec.ProcessId }

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// beginProcess starts a process, or finds the one of that id.
func (a *Agent) beginProcess(ctx context.Context, spec *execv1.ProcessSpec) (*execution, uint64, error) {
	if err := checkProcess(spec); err != nil {
		return nil, 0, err
	}
	id := spec.ProcessId
	a.mu.Lock()
	if err := ctx.Err(); err != nil {
		a.mu.Unlock()
		return nil, 0, err // see begin
	}
	if p, held := a.processes[id]; held {
		a.mu.Unlock()
		<-p.started
		if p.refusal != nil {
			return nil, 0, p.refusal
		}
		p.events.mu.Lock()
		defer p.events.mu.Unlock()
		return p.events, p.events.acknowledged, nil
	}
	if a.forgotten[id] {
		a.mu.Unlock()
		return nil, 0, &frame.Status{Code: codes.AlreadyExists, Message: "process " + id + " was started where this sandbox comes from; it does not run twice"}
	}
	if _, taken := a.executions[id]; taken || a.done[id] {
		a.mu.Unlock()
		return nil, 0, &frame.Status{Code: codes.AlreadyExists,
			Message: "process " + id + " has ended and its events were acknowledged; it does not run twice"}
	}
	if held := max(len(a.executions), len(a.processes)); held >= maxHeldExecutions || a.runningProcesses >= maxRunningProcesses {
		running := a.runningProcesses
		a.mu.Unlock()
		return nil, 0, &frame.Status{Code: codes.ResourceExhausted,
			Message: fmt.Sprintf("%d processes run and %d programs are held (at most: %d and %d)", running, held, maxRunningProcesses, maxHeldExecutions)}
	}
	p := &process{agent: a, spec: spec, slave: -1, started: make(chan struct{}), ended: make(chan struct{})}
	p.events = newExecution(&execv1.ExecutionSpec{ExecutionId: id}, nil)
	p.events.process = p
	a.processes[id] = p
	a.runningProcesses++
	a.mu.Unlock()
	a.noteActivity()
	err := p.start()
	a.mu.Lock()
	if err != nil {
		p.refusal = err
		delete(a.processes, id)
		a.runningProcesses--
	} else {
		a.executions[id] = p.events
	}
	a.mu.Unlock()
	close(p.started)
	if err != nil {
		return nil, 0, err
	}
	return p.events, 0, nil
}

func checkProcess(spec *execv1.ProcessSpec) error {
	invalid := func(format string, values ...any) error {
		return &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf(format, values...)}
	}
	if spec.ProcessId == "" || len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return invalid("process %q with arguments %q (expected: an id and a program)", spec.ProcessId, spec.Argv)
	}
	size := 0
	for _, argument := range spec.Argv {
		if strings.ContainsRune(argument, 0) {
			return invalid("argument %q (expected: no NUL)", shorten(argument, 100))
		}
		size += len(argument) + 1
	}
	for name, value := range spec.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return invalid("environment variable %q (expected: a name without =, no NUL in name and value)", shorten(name, 100))
		}
		size += len(name) + len(value) + 2
	}
	if size > maxProcessBytes {
		return invalid("arguments and environment of %d bytes (expected: at most %d)", size, maxProcessBytes)
	}
	if strings.ContainsRune(spec.Cwd, 0) {
		return invalid("folder %q (expected: no NUL)", shorten(spec.Cwd, 100))
	}
	if spec.Terminal != nil {
		return checkSize(spec.Terminal)
	}
	return nil
}

// spawnOfProcess says how to start it, and as whom.
func (a *Agent) spawnOfProcess(spec *execv1.ProcessSpec) (*inner.Spawn, error) {
	a.mu.Lock()
	hello, own := a.hello, a.user
	a.mu.Unlock()
	u, err := account(spec.User, own)
	if err != nil {
		return nil, &frame.Status{Code: codes.InvalidArgument, Message: err.Error()}
	}
	personal := map[string]string{"HOME": u.home, "USER": u.name, "LOGNAME": u.name, "SHELL": u.shell}
	env := baseEnv(hello)
	if spec.Terminal != nil {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, personal)
	maps.Copy(env, hello.GetEnv())
	if u.uid != own.uid {
		// The sandbox's environment speaks of the sandbox's user.
		maps.Copy(env, personal)
	}
	maps.Copy(env, spec.Env)
	delete(env, inner.ContextVariable)
	delete(env, inner.KernelPart)
	env[inner.ProcessVariable] = spec.ProcessId
	cwd := folder(spec.Cwd, u.home)
	if spec.Cwd == "" && hello.GetWorkdir() != "" {
		cwd = hello.Workdir
	}
	spawn := &inner.Spawn{Argv: spec.Argv, Cwd: cwd, Uid: u.uid, Gid: u.gid, Groups: u.groups, Terminal: spec.Terminal != nil}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		spawn.Env = append(spawn.Env, name+"="+env[name])
	}
	return spawn, nil
}

// folder is a folder's path as callers write it: a relative one, and ~, start at the home. So do those of files.
func folder(path, home string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = path[1:]
	} else if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(home, path)
}

// start starts the program. An error is a status, and then nothing has run.
func (p *process) start() error {
	spawn, err := p.agent.spawnOfProcess(p.spec)
	if err != nil {
		return err
	}
	t, err := p.agent.currentTree()
	if err != nil {
		return &frame.Status{Code: codes.Unavailable, Message: err.Error()}
	}
	p.tree = t
	pipes, err := p.connect(spawn)
	if err != nil {
		return statusOfStart(p.spec, err)
	}
	began := time.Now()
	p.startTicks = inner.NowTicks()
	exited := make(chan syscall.WaitStatus, 1)
	p.pid, err = t.spawn(context.Background(), spawn, exited, pipes.theirs...)
	if err != nil {
		pipes.closeTheirs()
		pipes.closeOurs()
		return statusOfStart(p.spec, err)
	}
	if p.spec.Terminal != nil {
		p.slave = pipes.theirs[0]
	} else {
		pipes.closeTheirs()
	}
	outputs := p.adopt(pipes)
	p.events.startProcess(began, p.pid)
	var read sync.WaitGroup
	for i, file := range outputs {
		read.Go(func() { p.pump(file, execv1.Stream(int(execv1.Stream_STREAM_STDOUT)+i)) })
	}
	go p.follow(exited, outputs, &read)
	return nil
}

// statusOfStart says why a program was not started.
func statusOfStart(spec *execv1.ProcessSpec, err error) error {
	code := codes.Internal
	switch {
	case errors.Is(err, errTreeDied):
		code = codes.Unavailable
	case strings.HasPrefix(err.Error(), "working folder"):
		code = codes.InvalidArgument
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		code = codes.NotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		code = codes.PermissionDenied
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.E2BIG), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		code = codes.InvalidArgument
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOSPC):
		return &frame.Status{Code: codes.ResourceExhausted,
			Message: fmt.Sprintf("%s could not be started, as a limit of the sandbox is reached: %v", shorten(spec.Argv[0], 1000), err)}
	}
	return &frame.Status{Code: code, Message: fmt.Sprintf("%s could not be started: %v", shorten(spec.Argv[0], 1000), err)}
}

// connection is what joins a process that is about to start with us: descriptors, of which only what is needed now is done before the
// program runs.
type connection struct {
	theirs  []int // a terminal's one is given thrice
	outputs []int // stdout, stderr; with a terminal its master's side alone
	input   int   // -1: none but the terminal's
}

// noInput is what a program without an input reads: one for all, as there is nothing in it.
var noInput = sync.OnceValues(func() (int, error) {
	return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

func (c *connection) closeTheirs() {
	shared, _ := noInput()
	for i, fd := range c.theirs {
		if fd != shared && (i == 0 || fd != c.theirs[0]) {
			_ = unix.Close(fd)
		}
	}
}

func (c *connection) closeOurs() {
	for _, fd := range append(c.outputs, c.input) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// connect makes the pipes, or the terminal, of a process.
func (p *process) connect(spawn *inner.Spawn) (*connection, error) {
	c := &connection{input: -1}
	if p.spec.Terminal != nil {
		master, slave, err := openTerminal(p.spec.Terminal, spawn.Uid, spawn.Gid)
		if err != nil {
			return nil, fmt.Errorf("a terminal: %w", err)
		}
		c.theirs, c.outputs = []int{slave, slave, slave}, []int{master}
		return c, nil
	}
	for fd := range 3 {
		ours, theirs := -1, -1
		var err error
		switch {
		case fd > 0:
			if ours, theirs, err = pipe(true); err == nil {
				c.outputs = append(c.outputs, ours)
			}
		case p.spec.Stdin:
			ours, theirs, err = pipe(false)
			c.input = ours
		default:
			theirs, err = noInput()
		}
		if err != nil {
			c.closeTheirs()
			c.closeOurs()
			return nil, fmt.Errorf("its pipes: %w", err)
		}
		c.theirs = append(c.theirs, theirs)
		if spawn.Uid != 0 && ours >= 0 {
			// A program that opens /dev/stdout again needs the right to; where a pipe has no owner, it has that.
			_ = unix.Fchown(theirs, int(spawn.Uid), int(spawn.Gid))
		}
	}
	return c, nil
}

// adopt hands our ends over to the runtime's poller, once the program runs.
func (p *process) adopt(c *connection) (outputs []*os.File) {
	if p.spec.Terminal != nil {
		p.terminal = os.NewFile(uintptr(c.outputs[0]), "ptmx")
		p.input = newInput(p.terminal, true)
		return []*os.File{p.terminal}
	}
	for _, fd := range c.outputs {
		enlarge(fd)
		outputs = append(outputs, os.NewFile(uintptr(fd), "pipe"))
	}
	if c.input >= 0 {
		p.input = newInput(os.NewFile(uintptr(c.input), "pipe"), false)
	}
	return outputs
}

// chunks are the buffers that pumps read into, only while there is something to read.
var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// take reads what is there, into the log, and says whether the end of the stream was among it. It stops early when limit bytes were read.
func (p *process) take(fd uintptr, stream execv1.Stream, limit *int) (read int, end bool) {
	chunk := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(chunk)
	for *limit > 0 {
		n, err := frame.ReadNow(fd, chunk[:])
		if errors.Is(err, unix.EAGAIN) {
			return read, false
		}
		if err != nil || n == 0 {
			return read, true // EIO: the last side of a terminal was closed
		}
		p.agent.noteActivity()
		read += n
		p.events.output(stream, chunk[:n])
		p.events.waitForRoom(context.Background())
		if !p.running() {
			*limit -= n
		}
	}
	return read, true
}

// pump reads one stream to its end, or a little beyond the end of the process.
func (p *process) pump(file *os.File, stream execv1.Stream) {
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return
	}
	// Everything that the process itself has written fits the pipe.
	left := maxPipeBytes
	var last time.Time
	for {
		end := false
		taken := func(fd uintptr) bool {
			var n int
			n, end = p.take(fd, stream, &left)
			if n > 0 {
				last = time.Now()
			}
			return end
		}
		err := raw.Read(taken)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-p.ended
			// What is there was perhaps not looked at before the deadline.
			_ = raw.Control(func(fd uintptr) { taken(fd) })
			quiet := lingerSilence
			if last.After(p.endedAt) {
				quiet -= time.Since(last)
			} else {
				quiet -= time.Since(p.endedAt)
			}
			quiet = min(quiet, lingerMax-time.Since(p.endedAt))
			if !end && quiet > 0 {
				_ = file.SetReadDeadline(time.Now().Add(quiet))
				continue
			}
			if end && left > 0 {
				_ = file.Close()
				return
			}
			break
		}
		if err != nil || left > 0 {
			_ = file.Close()
			return
		}
		break
	}
	if p.terminal != nil {
		_ = file.Close() // who is left there has lost its terminal
		return
	}
	go discard(file)
}

// discard reads what daemons still write to a pipe whose process has ended: they must not die of a closed one.
func discard(file *os.File) {
	defer file.Close()
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		chunk := chunks.Get().(*[chunkBytes]byte)
		defer chunks.Put(chunk)
		for {
			n, err := frame.ReadNow(fd, chunk[:])
			if err != nil || n == 0 {
				return !errors.Is(err, unix.EAGAIN)
			}
			if n > 512 {
				time.Sleep(time.Duration(n) * time.Second / lateBytesPerSecond)
			}
		}
	})
}

// follow waits for the end of the process and tells it after the last byte of output.
func (p *process) follow(exited <-chan syscall.WaitStatus, outputs []*os.File, read *sync.WaitGroup) {
	if p.spec.TimeoutMs > 0 {
		limit := afterRunning(time.Duration(min(p.spec.TimeoutMs, uint64(maxTimeout.Milliseconds())))*time.Millisecond, p.expire)
		defer limit.stop()
	}
	var status syscall.WaitStatus
	treeDied := false
	select {
	case status = <-exited:
	case <-p.tree.dead:
		select {
		case status = <-exited:
		default:
			status, treeDied = syscall.WaitStatus(unix.SIGKILL), true
		}
	}
	p.endedAt = time.Now()
	close(p.ended)
	if p.slave >= 0 {
		_ = unix.Close(p.slave)
	}
	for _, file := range outputs {
		// An error: its end was seen already.
		_ = file.SetReadDeadline(p.endedAt.Add(lingerSilence))
	}
	if p.input != nil && p.terminal == nil {
		p.input.end()
	}
	read.Wait()
	if p.input != nil {
		p.input.end()
	}
	p.finish(status, treeDied)
	a := p.agent
	a.mu.Lock()
	a.runningProcesses--
	p.over = true
	delete(a.strays, p)
	a.mu.Unlock()
}

// maxTimeout is more than any process lives, and little enough to compute with.
const maxTimeout = 10 * 365 * 24 * time.Hour

// expire ends a process whose time is up, with all that it has started.
func (p *process) expire() {
	p.mu.Lock()
	if !p.running() || p.events.isForgotten() {
		p.mu.Unlock()
		return
	}
	p.expired = make(chan struct{})
	p.mu.Unlock()
	defer close(p.expired)
	killed, _ := p.signalTree(unix.SIGKILL) // an error: the tree has died
	p.mu.Lock()
	p.killed = killed
	p.mu.Unlock()
}

func (p *process) finish(status syscall.WaitStatus, treeDied bool) {
	finished := &execv1.Finished{Reason: exitedReason, DurationUs: max(1, p.endedAt.Sub(p.events.started).Microseconds()), EndedAtUnixMs: p.endedAt.UnixMilli()}
	if status.Signaled() {
		finished.Signal = int32(status.Signal())
		finished.Detail = fmt.Sprintf("The process was ended by signal %d (%s).", int(status.Signal()), unix.SignalName(status.Signal()))
	} else {
		finished.ExitCode = int32(status.ExitStatus())
	}
	p.mu.Lock()
	expired, victim := p.expired, p.victim
	p.mu.Unlock()
	if expired != nil {
		<-expired
	} else if victim != nil && victim.Processes > 1 {
		// A fork bomb does not end with the process that has begun it.
		_, _ = p.signalTree(unix.SIGKILL) // an error: the tree has died
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	victim = p.victim
	switch failed := finished.Signal != 0 || finished.ExitCode != 0; {
	case victim != nil && (victim.Pid == p.pid || failed && p.endedAt.Sub(p.victimAt) < victimMemory):
		finished.Reason = execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY
		finished.MemoryLimitBytes, finished.MemoryPeakBytes = victim.LimitBytes, victim.PeakBytes
		finished.Detail = victimSentence(victim, true)
	case expired != nil:
		finished.Reason = execv1.ExitReason_EXIT_REASON_TIMEOUT
		finished.Detail = fmt.Sprintf("The time limit of %s was reached: the process was ended%s.",
			time.Duration(p.spec.TimeoutMs)*time.Millisecond, processCount(" with ", p.killed-1, " more"))
		if treeDied {
			finished.Detail = fmt.Sprintf("The time limit of %s was reached: to end the process, every process in the sandbox was ended (%s).",
				time.Duration(p.spec.TimeoutMs)*time.Millisecond, p.tree.detail)
		}
	case treeDied:
		finished.Reason = execv1.ExitReason_EXIT_REASON_SANDBOX_ENDED
		finished.Detail = fmt.Sprintf("Every process in the sandbox was ended at once (%s), this one too.", p.tree.detail)
	case victim != nil:
		finished.Detail = strings.TrimSpace(finished.Detail + " Earlier one of its children was ended: " + victimSentence(victim, true))
	}
	p.finished = finished
	p.events.finish(finished)
}

const exitedReason = execv1.ExitReason_EXIT_REASON_EXITED

func (p *process) outOfMemory(victim *inner.Victim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.victim != nil {
		victim.PeakBytes = max(victim.PeakBytes, p.victim.PeakBytes)
		if p.victim.Pid == p.victim.Root {
			return
		}
	}
	p.victim, p.victimAt = victim, time.Now()
}

// startProcess is start for a process: whoever waits for it needs its id at once.
func (e *execution) startProcess(now time.Time, pid int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = now
	e.append(&execv1.ExecutionEvent{Event: &execv1.ExecutionEvent_Started{Started: &execv1.Started{AtUnixMs: now.UnixMilli(), Pid: int32(pid)}}})
	e.wake()
}

// startedProcess finds a process that runs or is held.
func (a *Agent) startedProcess(id string) (*process, error) {
	a.mu.Lock()
	p, held := a.processes[id]
	over := a.done[id]
	a.mu.Unlock()
	if held {
		<-p.started
	}
	switch {
	case held && p.refusal == nil:
		return p, nil
	case over:
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: "process " + id + " has ended"}
	}
	return nil, &frame.Status{Code: codes.NotFound, Message: "no process " + id}
}

// ListProcesses describes the processes that run, or whose end is not acknowledged.
func (a *Agent) ListProcesses(_ context.Context, request *agentv1.ListProcessesRequest) (*agentv1.ListProcessesReply, error) {
	reply := &agentv1.ListProcessesReply{}
	if request.ProcessId != "" {
		p, err := a.startedProcess(request.ProcessId)
		if err != nil {
			return nil, err
		}
		reply.Processes = append(reply.Processes, p.describe())
		return reply, nil
	}
	a.mu.Lock()
	processes := slices.Collect(maps.Values(a.processes))
	a.mu.Unlock()
	slices.SortFunc(processes, func(a, b *process) int { return strings.Compare(a.spec.ProcessId, b.spec.ProcessId) })
	for _, p := range processes {
		if <-p.started; p.refusal == nil {
			reply.Processes = append(reply.Processes, p.describe())
		}
	}
	return reply, nil
}

func (p *process) describe() *execv1.Process {
	described := &execv1.Process{Spec: p.spec, Pid: int32(p.pid), StdinClosed: true}
	if p.input != nil {
		described.StdinOffset, described.StdinClosed = p.input.position()
	}
	p.mu.Lock()
	described.Finished = p.finished
	p.mu.Unlock()
	described.Running = described.Finished == nil
	p.events.mu.Lock()
	defer p.events.mu.Unlock()
	described.StartedAtUnixMs = p.events.started.UnixMilli()
	described.StdoutBytes, described.StderrBytes = p.events.stdoutBytes, p.events.stderrBytes
	return described
}

// settleStarts waits until the programs that are being started run or were refused, so that nothing is held that a hello has not told of.
func (a *Agent) settleStarts(ctx context.Context) error {
	a.mu.Lock()
	processes := slices.Collect(maps.Values(a.processes))
	a.mu.Unlock()
	for _, p := range processes {
		select {
		case <-p.started:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

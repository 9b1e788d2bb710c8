package agent

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

const (
	// defaultGrace is how long a kernel has to end its cell after an interrupt.
	defaultGrace = 300 * time.Millisecond
	// A kernel that wants to run and gets no CPU, on a busy machine or at its CPU limit, has the grace again, so many times at most.
	maxGraces = 4
	// It has had its chance once it ran for so long.
	chance = 100 * time.Millisecond
)

// deliveryPatience is how long the grace may be put off by an interrupt that is not delivered.
const deliveryPatience = 2 * time.Second

// shortCell is how long the worker looks at nothing but the running cell, where no other runs in the sandbox. Most end within it.
const shortCell = time.Millisecond

// bigCode is above what fits a pipe in one go: writing it could block.
const bigCode = 32 << 10

// kernelContext is a stateful interpreter: a queue of executions and, while it lives, a kernel. One worker at a time serves the queue.
type kernelContext struct {
	agent *Agent
	spec  *execv1.ContextSpec // as it was opened; its id is name's
	// mark is what names the context inside, in the environment of all that it starts. It stays when the context gets another id.
	mark string
	name atomic.Pointer[string] // changes only in a hello

	mu       sync.Mutex
	queue    []*execution        // guarded by mu
	running  *execution          // guarded by mu
	dropped  string              // why the running one, which has no kernel yet, is not to begin; guarded by mu
	working  bool                // a worker is at it; guarded by mu
	closed   bool                // guarded by mu
	kernel   *kernel             // guarded by mu
	state    execv1.ContextState // guarded by mu
	version  string              // guarded by mu
	detail   string              // guarded by mu
	restarts uint32              // guarded by mu
	started  bool                // a kernel has been ready before; guarded by mu
	lost     string              // how the last kernel ended, until an execution has said so; guarded by mu
	jobs     []func()            // what the worker does before the next execution: restart, close; guarded by mu
}

func newContext(a *Agent, spec *execv1.ContextSpec, mark string) *kernelContext {
	c := &kernelContext{agent: a, spec: spec, mark: mark, state: execv1.ContextState_CONTEXT_STATE_STARTING}
	c.name.Store(&spec.ContextId)
	return c
}

// id is what the context is called outside, at present.
func (c *kernelContext) id() string { return *c.name.Load() }

func (c *kernelContext) describe() *execv1.Context { return c.describeWith(c.agent.cwdOf(c.spec)) }

func (c *kernelContext) describeWith(cwd string) *execv1.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state
	if c.running != nil && state == execv1.ContextState_CONTEXT_STATE_IDLE {
		state = execv1.ContextState_CONTEXT_STATE_RUNNING
	}
	return &execv1.Context{
		ContextId: c.id(),
		Language:  c.spec.Language,
		Version:   c.version,
		Cwd:       cwd,
		State:     state,
		Restarts:  c.restarts,
		Detail:    c.detail,
	}
}

func (c *kernelContext) enqueue(e *execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &frame.Status{Code: codes.NotFound, Message: "context " + c.id() + " was closed"}
	}
	c.queue = append(c.queue, e)
	c.wakeWorker()
	return nil
}

// do has the worker call job between two executions, and waits for that.
func (c *kernelContext) do(job func()) {
	c.mu.Lock()
	done := c.schedule(job)
	c.mu.Unlock()
	<-done
}

// schedule has the worker call job between two executions, and then closes what it returns. Requires: mu is held.
func (c *kernelContext) schedule(job func()) (done <-chan struct{}) {
	called := make(chan struct{})
	c.jobs = append(c.jobs, func() { defer close(called); job() })
	c.wakeWorker()
	return called
}

// wakeWorker requires mu.
func (c *kernelContext) wakeWorker() {
	if !c.working {
		c.working = true
		go c.work()
	}
}

func (c *kernelContext) work() {
	for {
		c.mu.Lock()
		if len(c.jobs) > 0 {
			job := c.jobs[0]
			c.jobs = c.jobs[1:]
			c.mu.Unlock()
			job()
			continue
		}
		if len(c.queue) == 0 {
			c.queue = nil
			c.working = false
			c.mu.Unlock()
			return
		}
		e := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		c.running = e
		c.mu.Unlock()
		c.agent.busy(1)
		c.run(e)
		c.agent.busy(-1)
	}
}

// ended makes room for the next execution before the end of this one is told: who sees the end may see an idle context.
func (c *kernelContext) ended(e *execution, finished *execv1.Finished) {
	c.mu.Lock()
	c.running = nil
	c.mu.Unlock()
	e.finish(finished)
}

// removeQueued takes e out of the queue and says whether it was there.
func (c *kernelContext) removeQueued(e *execution) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, queued := range c.queue {
		if queued == e {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			return true
		}
	}
	return false
}

// startError is why there is no kernel.
type startError struct {
	// The image cannot run this language at all; trying again is of no use.
	missing bool
	detail  string
	cause   error
}

func (e *startError) Error() string { return e.detail }
func (e *startError) Unwrap() error { return e.cause }

// ensure returns a kernel that is ready, starting one where there is none. Only the worker calls it.
func (c *kernelContext) ensure() (*kernel, error) {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k != nil {
		select {
		case <-k.dead:
			c.forgetKernel(k, "between two executions the interpreter "+k.endedText())
		default:
			return k, nil
		}
	}
	k, err := c.start()
	c.mu.Lock()
	if err != nil {
		c.state, c.detail = execv1.ContextState_CONTEXT_STATE_FAILED, err.Error()
	} else {
		c.kernel, c.state, c.detail, c.version = k, execv1.ContextState_CONTEXT_STATE_IDLE, "", k.version
		if c.started {
			c.restarts++
		}
		c.started = true
	}
	c.mu.Unlock()
	c.agent.contextChanged(c)
	return k, err
}

func (c *kernelContext) start() (*kernel, error) {
	k, err := c.launch()
	if errors.Is(err, errTreeDied) {
		// All that runs inside was ended while it started, which is no fault of its own.
		return c.launch()
	}
	return k, err
}

func (c *kernelContext) launch() (*kernel, error) {
	c.mu.Lock()
	c.state = execv1.ContextState_CONTEXT_STATE_STARTING
	c.mu.Unlock()
	spawn, known, err := c.agent.spawnOf(c)
	if err != nil {
		return nil, err
	}
	t, err := c.agent.currentTree()
	if err != nil {
		return nil, &startError{detail: err.Error(), cause: err}
	}
	k, err := startKernel(t, c, spawn, known)
	if errors.Is(err, unix.ENOENT) && !strings.HasPrefix(err.Error(), "working folder") {
		return nil, &startError{missing: true, detail: fmt.Sprintf("%s cannot run in this image: %v", c.spec.Language, err)}
	}
	if err != nil {
		return nil, &startError{detail: fmt.Sprintf("the %s interpreter could not be started: %v", c.spec.Language, err), cause: err}
	}
	patience := newAlarm(readyPatience)
	defer patience.stop()
	select {
	case <-k.ready:
		go c.watch(k)
		return k, nil
	case <-k.dead:
	case <-patience.passed:
		k.ioMu.Lock()
		k.problem = fmt.Sprintf("it was not ready within %s", readyPatience)
		k.ioMu.Unlock()
		k.killTree(0)
	}
	k.ioMu.Lock()
	tail := strings.TrimSpace(strings.ToValidUTF8(string(k.tail), "\uFFFD"))
	k.ioMu.Unlock()
	detail := fmt.Sprintf("the %s interpreter %s before it was ready", c.spec.Language, k.endedText())
	switch {
	case strings.Contains(tail, "errno=11") || strings.Contains(tail, "Resource temporarily unavailable") || strings.Contains(tail, "start new thread"):
		detail += ": the sandbox's limit of processes and threads is reached; end some and try again"
	case tail != "":
		detail += ": " + tail
	}
	if t.isDead() {
		return nil, &startError{detail: detail, cause: errTreeDied}
	}
	return nil, &startError{detail: detail}
}

// watch has the worker look at a kernel that died while nothing ran, so that the context's state is told and a new one is there in time.
func (c *kernelContext) watch(k *kernel) {
	<-k.dead
	select {
	case <-k.tree.dead:
		// Started again when someone asks.
		return
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kernel != k || c.closed {
		return
	}
	c.jobs = append(c.jobs, func() {
		c.mu.Lock()
		stale := c.kernel != k || c.closed
		c.mu.Unlock()
		if !stale {
			if _, err := c.ensure(); err != nil {
				log.Printf("context %s: %v", c.id(), err)
			}
		}
	})
	c.wakeWorker()
}

func (c *kernelContext) forgetKernel(k *kernel, lost string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kernel == k {
		c.kernel = nil
		c.lost = lost
	}
}

// takeLost says, once, how the state was lost before this execution.
func (c *kernelContext) takeLost() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := c.lost
	c.lost = ""
	return lost
}

// run runs one cell to its end. Only the worker calls it.
func (c *kernelContext) run(e *execution) {
	k, finished := c.prepare(e)
	if finished != nil {
		c.ended(e, finished)
		return
	}
	lost := c.takeLost()
	k.begin(e)
	changes := c.changesSince(e)
	begun := time.Now()
	e.start(begun)
	// Files that were saved on Windows begin with a byte order mark, which no interpreter takes in a cell.
	code := strings.TrimPrefix(e.spec.Code, "\uFEFF")
	execute := &command{Op: "execute", ID: e.spec.ExecutionId, Code: &code, Silent: e.spec.Silent, Env: e.spec.Env}
	if len(e.spec.Code) > bigCode {
		go func() { _ = k.send(execute, 0) }()
	} else if err := k.send(execute, 0); err != nil {
		// It has just died, which the select below sees.
		log.Printf("execution %s: %v", e.spec.ExecutionId, err)
	}
	if len(e.spec.Code) <= bigCode && c.agent.runsOne() {
		if done := k.hurry(e, shortCell); done != nil {
			k.end()
			changes.list(e, completed(done), func(finished *execv1.Finished) { c.finish(e, lost, finished) })
			return
		}
	}
	e.announce()
	expired, stop := e.limit(time.Since(begun))
	defer stop()
	forgotten := e.forgotten
	for finished == nil {
		select {
		case done := <-k.done:
			k.end()
			finished = completed(done)
		case <-k.dead:
			finished = c.died(k, e, ticksAt(begun))
		case <-expired:
			finished = c.stop(k, e, execv1.ExitReason_EXIT_REASON_TIMEOUT, defaultGrace, ticksAt(begun))
		case <-k.doomed:
			finished = c.kill(k, e, ticksAt(begun))
		case grace := <-e.interrupt:
			finished = c.stop(k, e, execv1.ExitReason_EXIT_REASON_INTERRUPTED, grace, ticksAt(begun))
		case <-forgotten:
			// Nobody's cell has no time limit.
			expired, forgotten = nil, nil
		}
	}
	changes.list(e, finished, func(finished *execv1.Finished) { c.finish(e, lost, finished) })
}

// prepare finds, or starts, the kernel for a cell, and sees to it that it has taken the sandbox's present identity. The end of the cell
// where there is none to run it.
func (c *kernelContext) prepare(e *execution) (*kernel, *execv1.Finished) {
	var expired <-chan struct{}
	for {
		k, err := c.ensure()
		if dropped := c.takeDropped(); dropped != "" {
			return nil, notBegun(dropped)
		}
		if err != nil {
			_ = c.takeLost()
			return nil, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_KERNEL_DIED, Detail: err.Error()}
		}
		if k.knows(c.agent.generation.Load()) {
			return k, nil
		}
		if err := c.introduce(k); err != nil {
			return nil, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_KERNEL_DIED, Detail: err.Error()}
		}
		if expired == nil {
			var stop func()
			expired, stop = e.limit(0)
			defer stop()
		}
		select {
		case answer := <-k.configured:
			k.recognise(answer)
		case <-k.dead:
		case <-k.doomed:
			k.killTree(0)
			c.forgetKernel(k, "")
			return nil, notBegun(strings.TrimPrefix(k.endedProblem(), "the context was "))
		case <-expired:
			return nil, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_TIMEOUT, StateKept: true,
				Detail: fmt.Sprintf("The time limit of %s was reached before the execution had started: the interpreter was still to take on what the sandbox now is.",
					time.Duration(e.spec.TimeoutMs)*time.Millisecond)}
		case <-e.interrupt:
			return nil, &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_INTERRUPTED, StateKept: true,
				Detail: "The execution was interrupted before it had started."}
		}
	}
}

// limit is a channel that is closed once e has run for its time limit, of which used has passed; nil where it has none.
func (e *execution) limit(used time.Duration) (expired <-chan struct{}, stop func()) {
	if e.spec.TimeoutMs == 0 {
		return nil, func() {}
	}
	alarm := newAlarm(max(1, time.Duration(e.spec.TimeoutMs)*time.Millisecond-used))
	return alarm.passed, alarm.stop
}

// finish ends e. lost is how the state was lost before it, if it was.
func (c *kernelContext) finish(e *execution, lost string, finished *execv1.Finished) {
	if lost != "" && finished.StateKept {
		finished.StateKept = false
		finished.Detail = strings.TrimSpace("The state of earlier executions was lost: " + lost + ". " + finished.Detail)
	}
	c.ended(e, finished)
	if !finished.StateKept {
		c.refresh()
	}
}

// ticksAt is a moment in the past on the clock of process start times. Asked for afterwards, since most cells never need it.
func ticksAt(moment time.Time) uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return uint64(now.Nano()-int64(time.Since(moment))) / uint64(time.Second/inner.TicksPerSecond)
}

// refresh starts the next kernel ahead of the next execution, where this one's has gone.
func (c *kernelContext) refresh() {
	c.mu.Lock()
	k := c.kernel
	closed := c.closed
	c.mu.Unlock()
	if k != nil || closed {
		return
	}
	t, err := c.agent.currentTree()
	if err != nil || t.isDead() {
		return
	}
	if _, err := c.ensure(); err != nil {
		log.Printf("context %s: %v", c.id(), err)
	}
}

func completed(done *kernelEvent) *execv1.Finished {
	finished := &execv1.Finished{StateKept: true, ExitCode: int32(done.ExitCode)}
	switch done.Status {
	case "error":
		finished.Reason = execv1.ExitReason_EXIT_REASON_ERROR
	case "interrupted":
		finished.Reason = execv1.ExitReason_EXIT_REASON_INTERRUPTED
		finished.Detail = "The code was interrupted from inside the sandbox (SIGINT)."
	case "exited":
		finished.Reason = execv1.ExitReason_EXIT_REASON_EXITED
	default:
		finished.Reason = execv1.ExitReason_EXIT_REASON_COMPLETED
	}
	if done.Error != nil {
		finished.Error = &execv1.ExecutionError{
			Name:      errorText(done.Error.Name),
			Message:   errorText(done.Error.Message),
			Traceback: errorText(done.Error.Traceback),
		}
	}
	return finished
}

// errorText makes a kernel's text fit for a message: valid and bounded, whatever the kernel is.
func errorText(text string) string {
	return strings.ToValidUTF8(shorten(strings.ToValidUTF8(text, "\uFFFD"), maxErrorBytes), "")
}

// died reports a kernel that ended in the middle of a cell.
func (c *kernelContext) died(k *kernel, e *execution, sinceTicks uint64) *execv1.Finished {
	if e.isOutOfMemory() {
		// A fork bomb does not end with the interpreter.
		c.killLeft(k, sinceTicks)
	}
	k.end()
	c.forgetKernel(k, "")
	// `done` may have been its last word: a cell that ended before its kernel did.
	select {
	case done := <-k.done:
		finished := completed(done)
		finished.StateKept = false
		finished.Detail = "After the end of the cell the interpreter " + k.endedText() + ": it is started afresh, the state is lost."
		return finished
	default:
	}
	finished := &execv1.Finished{Reason: execv1.ExitReason_EXIT_REASON_KERNEL_DIED}
	if k.status.Signaled() {
		finished.Signal = int32(k.status.Signal())
	} else {
		finished.ExitCode = int32(k.status.ExitStatus())
	}
	if k.tree.isDead() {
		finished.Detail = fmt.Sprintf("Every process in the sandbox was ended at once (%s), the %s interpreter too: it is started afresh, the state is lost.",
			k.tree.detail, c.spec.Language)
		return finished
	}
	finished.Detail = fmt.Sprintf("The %s interpreter %s in the middle of the cell: it is started afresh, the state is lost.", c.spec.Language, k.endedText())
	return finished
}

// kill ends a kernel in the middle of a cell. The worker does so itself: a new kernel that starts meanwhile would be killed with the old.
func (c *kernelContext) kill(k *kernel, e *execution, sinceTicks uint64) *execv1.Finished {
	k.killTree(0)
	return c.died(k, e, sinceTicks)
}

// stop ends a running cell: by an interrupt first, which keeps the state, and by killing all of the context if that is not enough.
func (c *kernelContext) stop(k *kernel, e *execution, reason execv1.ExitReason, grace time.Duration, sinceTicks uint64) *execv1.Finished {
	why := "The execution was interrupted"
	if reason == execv1.ExitReason_EXIT_REASON_TIMEOUT {
		why = fmt.Sprintf("The time limit of %s was reached", time.Duration(e.spec.TimeoutMs)*time.Millisecond)
	}
	interrupted := time.Now()
	// On a machine that is short of CPU the signal alone may take longer than the grace, which is the kernel's.
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		// An error: the tree has died.
		_, _ = k.tree.call(context.Background(), &inner.Request{Signal: &inner.Signal{Root: k.pid, SinceTicks: sinceTicks, Number: int(unix.SIGINT)}})
	}()
	go func() { _ = k.send(&command{Op: "interrupt", ID: e.spec.ExecutionId}, grace) }()

	// A child that the cell waits for and that ignores the interrupt would keep the kernel from answering: it goes a little earlier.
	var half, whole <-chan time.Time
	var awaited <-chan struct{} = delivered
	patience := time.After(deliveryPatience) // somebody inside may have stopped the init
	begin := func() {
		awaited, patience = nil, nil
		half, whole = time.After(grace/2), time.After(grace)
	}
	var before time.Duration
	graces := 0
	for {
		select {
		case <-awaited:
			before, _ = k.cpu(grace)
			begin()
		case <-patience:
			begin()
		case done := <-k.done:
			return c.interrupted(k, done, reason, why, sinceTicks)
		case <-k.dead:
			finished := c.died(k, e, sinceTicks)
			if !k.tree.isDead() {
				finished.Reason = reason
				finished.Detail = why + ", and the interpreter " + k.endedText() + ": it is started afresh, the state is lost."
			}
			return finished
		case <-k.doomed:
			return c.kill(k, e, sinceTicks)
		case <-half:
			_ = k.tree.send(&inner.Request{Signal: &inner.Signal{Root: k.pid, SinceTicks: sinceTicks, Number: int(unix.SIGKILL), OnlyChildren: true}})
		case <-whole:
			graces++
			if now, wants := k.cpu(grace); anotherGrace(graces, now-before, wants) {
				whole = time.After(grace)
				continue
			}
			killed := k.killTree(sinceTicks)
			k.end()
			treeDied := k.tree.isDead()
			c.forgetKernel(k, "")
			detail := fmt.Sprintf("%s and the %s interpreter did not react to an interrupt within %s: it was ended%s and is started afresh, the state is lost.",
				why, c.spec.Language, time.Since(interrupted).Round(10*time.Millisecond), processCount(" with ", killed-1, " more"))
			if treeDied {
				detail = fmt.Sprintf("%s and the %s interpreter did not react: every process in the sandbox was ended, the state is lost.", why, c.spec.Language)
			}
			return &execv1.Finished{Reason: reason, Detail: detail}
		}
	}
}

// anotherGrace says whether a kernel that has not answered an interrupt so far, and ran for so long since, could only not answer yet.
func anotherGrace(graces int, ran time.Duration, wantsToRun bool) bool {
	return graces < maxGraces && wantsToRun && ran < chance
}

func (c *kernelContext) interrupted(k *kernel, done *kernelEvent, reason execv1.ExitReason, why string, sinceTicks uint64) *execv1.Finished {
	killed := 0
	if reason == execv1.ExitReason_EXIT_REASON_TIMEOUT {
		killed = c.killLeft(k, sinceTicks)
	}
	k.end()
	finished := completed(done)
	finished.Reason = reason
	finished.Detail = why + ". The code was interrupted and its context's state is kept" +
		processCount("; ", killed, " that it had started "+wasWere(killed)+" ended") + "."
	return finished
}

// killLeft ends what a cell has left running, and nobody waits for, and says how many that were. Daemons of earlier cells are older than
// it and stay.
func (c *kernelContext) killLeft(k *kernel, sinceTicks uint64) int {
	roots, contexts := c.agent.others(c)
	event, err := k.tree.call(context.Background(), &inner.Request{Kill: &inner.Kill{
		Root: k.pid, Context: c.mark, KeepRoot: true, SinceTicks: sinceTicks, OtherRoots: roots, OtherContexts: contexts,
	}})
	if err != nil {
		return 0 // the tree has died
	}
	return event.Killed
}

func processCount(before string, n int, after string) string {
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return before + "1 process" + after
	default:
		return fmt.Sprintf("%s%d processes%s", before, n, after)
	}
}

func wasWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// interrupt ends e, running or queued. It returns when that is under way.
func (c *kernelContext) interrupt(e *execution, grace time.Duration) {
	if c.removeQueued(e) {
		e.finish(&execv1.Finished{
			Reason:    execv1.ExitReason_EXIT_REASON_INTERRUPTED,
			StateKept: true,
			Detail:    "The execution was taken out of its context's queue before it had started.",
		})
		return
	}
	select {
	case e.interrupt <- grace:
	default:
	}
}

// end stops everything of the context; the worker then calls next, and what is returned waits for that. what is "closed" or "restarted".
//
// An execution at the head of the queue counts as running: to everybody outside it is, once it was taken on with nothing before it.
func (c *kernelContext) end(what string, closing bool, next func()) (wait func()) {
	c.mu.Lock()
	var unbegun []*execution
	switch {
	case closing:
		c.closed = true
		unbegun, c.queue = c.queue, nil
	case c.running == nil && len(c.queue) > 0:
		unbegun, c.queue = c.queue[:1:1], c.queue[1:]
	}
	running, k := c.running, c.kernel
	if running != nil && k == nil {
		c.dropped = what
	}
	done := c.schedule(func() {
		c.mu.Lock()
		same := k != nil && c.kernel == k
		if same {
			c.kernel = nil
		}
		c.mu.Unlock()
		if same {
			k.killTree(0)
		}
		_ = c.takeLost()
		next()
	})
	c.mu.Unlock()
	for _, e := range unbegun {
		e.finish(notBegun(what))
	}
	if running != nil && k != nil {
		k.doom("the context was " + what)
	}
	return func() { <-done }
}

// takeDropped says, once, why the running execution is not to begin; nothing where it is.
func (c *kernelContext) takeDropped() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	dropped := c.dropped
	c.dropped = ""
	return dropped
}

// notBegun is the end of an execution whose context was closed or restarted first.
func notBegun(what string) *execv1.Finished {
	return &execv1.Finished{
		Reason: execv1.ExitReason_EXIT_REASON_INTERRUPTED,
		Detail: "The context was " + what + " before the execution had started.",
	}
}

// introduceSoon has the worker tell the kernel of the sandbox's new identity, before the next execution.
func (c *kernelContext) introduceSoon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, func() {
		c.mu.Lock()
		k := c.kernel
		c.mu.Unlock()
		if k != nil {
			_ = c.introduce(k) // the next execution tries again, and says what is wrong
		}
	})
	c.wakeWorker()
}

// introduce tells a kernel, once, of what the sandbox has become since the kernel was last told. Its answer is waited for before the next
// cell. Only the worker calls it.
func (c *kernelContext) introduce(k *kernel) error {
	if k.told.generation == c.agent.generation.Load() {
		return nil
	}
	known, err := c.agent.identityOf(c)
	if err != nil {
		return err // a language that there no longer is
	}
	configure := known.differences(k.told)
	configure.ID = fmt.Sprintf("identity-%d", known.generation)
	if err := k.send(configure, initPatience); err != nil {
		// It waits for a command, so it would have read this one. Half of one may be in the pipe.
		k.violation("does not read its commands: " + err.Error())
		<-k.dead
		return nil
	}
	k.told = known
	return nil
}

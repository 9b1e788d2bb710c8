package inner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The memory guard ends the largest process before the sandbox as a whole runs out of memory, which would end everything in it. It
// holds what runs inside to the sandbox's limit; the host's own limit lies above that by what gVisor needs for itself and by what a
// program may take between two looks (node/internal/box/limits.go).
// Measured in gVisor: a look every 10 ms ended 32 of 32 memory bombs with 20 MB above the guard's mark, a look every 50 ms only 6 of 8.
const (
	reserveBytes = 8 << 20
	// A process of this size is worth ending for its own sake.
	largeBytes = 36 << 20
	// Once memory stays low with nothing large left to end (files in a tmpfs), only a further fall of this much ends another process.
	fallBytes = 4 << 20
	// So many processes of one context are a crowd: each of them can grow at once, and ending one of them is no help.
	crowd = 8
	// Added to the reserve for each process while their number rises by a crowd within burstTime. Measured: a fork of Python takes
	// 8 MB, as gVisor copies memory in pieces of 2 MB, and a fork bomb doubles its processes within 100 ms.
	reservePerNewProcess = 4 << 20
	burstTime            = 150 * time.Millisecond
	burstMemory          = time.Second
	// A context that is a crowd again so soon after its children were ended breeds them itself.
	crowdMemory = 3 * time.Second

	// How long what a crowd has bred while it was being ended is searched for.
	crowdTime = time.Second

	// How long the memory of an ended process may take to come back.
	settleTime = 300 * time.Millisecond

	pollLow      = 10 * time.Millisecond
	pollBusy     = 25 * time.Millisecond
	pollIdleLow  = 50 * time.Millisecond
	pollIdleHigh = 500 * time.Millisecond
)

type guard struct {
	init   *initProcess
	memory memory
	wake   chan struct{}

	// What looks in the guard's place while nothing runs and most of the memory is free; nil: the guard does.
	watch *watch
	total uint64

	mu    sync.Mutex
	busy  bool   // guarded by mu
	limit uint64 // guarded by mu

	lowest int64
	// Memory is low, and was settled bytes after the last kill.
	low     bool
	settled int64
	// How many processes there were at countedAt, and until when their number is taken to be rising.
	counted    int
	countedAt  time.Time
	burstUntil time.Time
	// The context whose children were ended last, and when.
	crowded   string
	crowdedAt time.Time
}

func newGuard(source string, init *initProcess) (*guard, error) {
	memory, err := openMemory(source)
	if err != nil {
		return nil, fmt.Errorf("inner init: memory guard: %w", err)
	}
	return &guard{init: init, memory: memory, wake: make(chan struct{}, 1), lowest: math.MaxInt64}, nil
}

func (g *guard) configure(request *Guard) {
	g.mu.Lock()
	woken := request.Busy && !g.busy
	g.busy = request.Busy
	if request.LimitBytes != 0 && request.LimitBytes != g.limit {
		g.limit = request.LimitBytes
		woken = true
	}
	g.mu.Unlock()
	if woken {
		g.lookNow()
	}
}

func (g *guard) lookNow() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// haveWatched has a watch look while nothing runs. Only for gVisor, where what the kernel says is free is what the guard reads.
func (g *guard) haveWatched() error {
	watch, low, err := newWatch(pollIdleHigh)
	if watch == nil {
		return err
	}
	g.watch = watch
	go func() {
		count := make([]byte, 8)
		for {
			if _, err := low.Read(count); err != nil {
				fmt.Fprintln(os.Stderr, "inner init: watch of the memory:", err)
				return
			}
			g.lookNow()
		}
	}()
	return err
}

func (g *guard) run() {
	timer := time.NewTimer(0)
	for {
		select {
		case <-timer.C:
		case <-g.wake:
		}
		next := g.look()
		mark := uint64(0)
		if next == pollIdleHigh && g.watch != nil {
			mark = g.idleMark()
		}
		g.watch.below(mark)
		if mark == 0 {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
	}
}

// idleMark is how much has to be free for less than half of the limit to be used; 0 where that can't be told by what is free.
func (g *guard) idleMark() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.limit
	if limit == 0 {
		limit = g.total
	}
	used := limit - limit/2
	if used >= g.total {
		return 0
	}
	return g.total - used
}

// look reads the memory, ends a process if it must, and says when to look again.
func (g *guard) look() time.Duration {
	limit, available, err := g.read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "inner init: memory guard:", err)
		return time.Second
	}
	g.lowest = min(g.lowest, available)
	g.mu.Lock()
	busy := g.busy
	g.mu.Unlock()
	if available < reserveBytes+g.crowdReserve(limit, available) {
		if !g.low || available+fallBytes < g.settled {
			g.end(limit, available)
		}
		return pollLow
	}
	g.low = false
	switch isLow := available < limit/2; {
	case isLow && busy:
		return pollLow
	case busy:
		return pollBusy
	case isLow:
		return pollIdleLow
	default:
		return pollIdleHigh
	}
}

// crowdReserve is what processes that multiply may take before the next look. A pool of workers stops multiplying; a fork bomb of
// interpreters does not.
func (g *guard) crowdReserve(limit, available int64) int64 {
	if available > limit/4*3 {
		return 0
	}
	count := len(pids())
	now := time.Now()
	if now.Sub(g.countedAt) > burstTime {
		if count >= g.counted+crowd && !g.countedAt.IsZero() {
			g.burstUntil = now.Add(burstMemory)
		}
		g.counted, g.countedAt = count, now
	} else if count >= g.counted+crowd {
		g.burstUntil = now.Add(burstMemory)
	}
	if !now.Before(g.burstUntil) {
		return 0
	}
	if available < reserveBytes+reservePerNewProcess*int64(count) {
		// Before somebody has to go for it: zombies take nothing.
		count = 0
		for _, one := range processes() {
			if !one.gone() {
				count++
			}
		}
	}
	return reservePerNewProcess * int64(count)
}

// read returns the sandbox's limit and what is left of it: below zero, when more is used.
func (g *guard) read() (limit, available int64, err error) {
	total, used, err := g.memory.read()
	if err != nil {
		return 0, 0, err
	}
	g.total = total
	g.mu.Lock()
	limit = int64(g.limit)
	g.mu.Unlock()
	if limit == 0 {
		limit = int64(total)
	}
	return limit, limit - int64(used), nil
}

// end ends the largest process or, where a crowd is the trouble, that: a fork bomb. Everything is stopped first, so that memory stands
// still while it is decided who has to go.
func (g *guard) end(limit, available int64) {
	// Not in the middle of a start: the child between fork and exec would be stopped, and the init wait for it.
	g.init.mu.Lock()
	roots := maps.Clone(g.init.spawned)
	stopped := stopAll()
	all := processes()
	victims, name := g.choose(all, roots, attribute(all, roots))
	dying := map[int]bool{}
	for _, one := range victims {
		dying[one.pid] = true
	}
	thaw(stopped, dying)
	for pid := range dying {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	g.low, g.settled = true, available
	if len(victims) == 0 {
		g.init.mu.Unlock()
		return
	}
	largest := victims[0]
	root := 0
	for pid := range roots {
		if descends(all, largest.pid, pid) {
			root = pid
		}
	}
	g.init.send(&Event{Victim: &Victim{
		Pid: largest.pid, Command: largest.command, Root: root, Context: name, RSSBytes: largest.rss,
		LimitBytes: uint64(limit), AvailableBytes: uint64(max(0, available)), PeakBytes: uint64(limit - g.lowest), Processes: len(victims),
	}})
	// Not before: the reaper tells of its end after this.
	g.init.mu.Unlock()
	if len(victims) > 1 {
		// A child that was being born while all were stopped was not among them, and goes on where its parents were ended.
		g.init.killAll(crowdTime, func() []int { return g.crowdOf(name) })
	}
	// Freed memory comes back some time after the process's end; until then nobody else has to go, unless another is growing.
	deadline := time.Now().Add(settleTime)
	for time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
		_, now, err := g.read()
		if err == nil && (now > largeBytes || now+fallBytes < available && !alive(largest.pid)) {
			break
		}
	}
	if _, now, err := g.read(); err == nil {
		g.settled = now
	}
	g.burstUntil, g.countedAt = time.Time{}, time.Time{}
	g.lowest = math.MaxInt64
}

// ownCommand is what the bash kernel's process is called.
const ownCommand = "atoll-agent"

// choose returns who has to go, the largest first, and their context.
func (g *guard) choose(all map[int]*process, roots, owner map[int]string) ([]*process, string) {
	var largest *process
	sums, counts := map[string]uint64{}, map[string]int{}
	for pid, one := range all {
		if one.gone() {
			continue
		}
		// A page fault of a gigabyte shows in nobody's size before it is over: a small kernel of ours is not who is growing.
		if _, root := roots[pid]; root && one.command == ownCommand && one.rss < largeBytes {
			continue
		}
		if largest == nil || one.rss > largest.rss {
			largest = one
		}
		sums[owner[pid]] += one.rss
		counts[owner[pid]]++
	}
	if largest == nil {
		return nil, ""
	}
	heaviest := owner[largest.pid]
	for name, sum := range sums {
		if sum > sums[heaviest] {
			heaviest = name
		}
	}
	bursting := time.Now().Before(g.burstUntil)
	if counts[heaviest] < crowd || (largest.rss >= largeBytes && !bursting) {
		return []*process{largest}, owner[largest.pid]
	}
	// The interpreter may be innocent of what it has started; if it is not, there is a crowd again at once.
	spareRoot := heaviest != g.crowded || time.Since(g.crowdedAt) > crowdMemory
	g.crowded, g.crowdedAt = heaviest, time.Now()
	group := members(all, roots, owner, heaviest, spareRoot)
	slices.SortFunc(group, func(a, b *process) int { return cmp.Compare(b.rss, a.rss) })
	return group, heaviest
}

// members are the processes of an owner, without what the agent has started for it where that is spared.
func members(all map[int]*process, roots, owner map[int]string, name string, spareRoot bool) []*process {
	var group []*process
	for pid, one := range all {
		if _, root := roots[pid]; one.gone() || owner[pid] != name || (root && spareRoot) || isPartOfAny(one, roots) && spareRoot {
			continue
		}
		group = append(group, one)
	}
	return group
}

// crowdOf is who is left of a crowd, for killAll.
func (g *guard) crowdOf(name string) []int {
	all := processes()
	// Who was started since, the agent has started: the next interpreter.
	left := members(all, g.init.spawned, attribute(all, g.init.spawned), name, true)
	found := make([]int, len(left))
	for i, one := range left {
		found[i] = one.pid
	}
	return found
}

func isPartOfAny(one *process, roots map[int]string) bool {
	_, child := roots[one.parent]
	return child && isKernelPart(one, one.parent)
}

func alive(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	one := parseStat(line)
	return one != nil && !one.gone()
}

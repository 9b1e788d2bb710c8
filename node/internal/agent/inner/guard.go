package inner

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The memory guard ends the largest process before the sandbox as a whole runs out of memory, which would end everything in it.
// Measured in gVisor with 256 MB: a reserve of 32 MB and a look every 10 ms ended 32 of 32 memory bombs with the agent alive,
// a look every 50 ms only 6 of 8.
const (
	reserveBytes = 36 << 20
	// Once memory stays low with nothing large left to end (files in a tmpfs), only a further fall of this much ends another process.
	fallBytes = 4 << 20
	// Below this, somebody ends whatever was said above.
	floorBytes = 12 << 20
	// So many processes of one context are a crowd: each of them can grow at once, and ending one of them is no help.
	crowd = 8
	// Added to the reserve for each process above a crowd; and for each at all while their number rises by a crowd within burstTime:
	// measured, a fork bomb in Python takes 5 MB a process and goes from 10 to 34 of them in 200 ms.
	reservePerProcess    = 256 << 10
	reservePerNewProcess = 5 << 20
	burstTime            = 150 * time.Millisecond

	// How long the memory of an ended process may take to come back.
	settleTime = 300 * time.Millisecond

	pollLow      = 10 * time.Millisecond
	pollBusy     = 50 * time.Millisecond
	pollIdleLow  = 50 * time.Millisecond
	pollIdleHigh = 500 * time.Millisecond
)

type guard struct {
	init *initProcess
	file *os.File
	wake chan struct{}

	mu    sync.Mutex
	busy  bool   // guarded by mu
	limit uint64 // guarded by mu

	buffer [512]byte
	lowest uint64
	// What was available after the last kill; 0 while memory is not low.
	settled uint64
	// How many processes there were at countedAt, and until when their number is taken to be rising.
	counted    int
	countedAt  time.Time
	burstUntil time.Time
}

func newGuard(meminfo string, init *initProcess) (*guard, error) {
	file, err := os.Open(meminfo)
	if err != nil {
		return nil, fmt.Errorf("inner init: memory guard: %w", err)
	}
	return &guard{init: init, file: file, wake: make(chan struct{}, 1), lowest: ^uint64(0)}, nil
}

func (g *guard) configure(request *Guard) {
	g.mu.Lock()
	woken := request.Busy && !g.busy
	g.busy = request.Busy
	if request.LimitBytes != 0 {
		g.limit = request.LimitBytes
	}
	g.mu.Unlock()
	if woken {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

func (g *guard) run() {
	timer := time.NewTimer(0)
	for {
		select {
		case <-timer.C:
		case <-g.wake:
		}
		timer.Reset(g.look())
	}
}

// look reads the memory, ends a process if it must, and says when to look again.
func (g *guard) look() time.Duration {
	total, available, err := g.read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "inner init: memory guard:", err)
		return time.Second
	}
	g.lowest = min(g.lowest, available)
	g.mu.Lock()
	busy := g.busy
	g.mu.Unlock()
	reserve := uint64(reserveBytes) + g.crowdReserve(total, available)
	if available < reserve {
		if g.settled == 0 || available+fallBytes < g.settled || available < floorBytes {
			g.end(total, available)
		}
		return pollLow
	}
	g.settled = 0
	switch low := available < total/2; {
	case low && busy:
		return pollLow
	case busy:
		return pollBusy
	case low:
		return pollIdleLow
	default:
		return pollIdleHigh
	}
}

// crowdReserve is what many processes may take before the next look. A fork bomb of interpreters in 256 MB fills half of it within
// 200 ms by copying pages alone; a build with many workers does not multiply like that, and is left more.
func (g *guard) crowdReserve(total, available uint64) uint64 {
	if available > total/4*3 {
		return 0
	}
	count := len(pids())
	now := time.Now()
	if now.Sub(g.countedAt) > burstTime {
		if count >= g.counted+crowd && !g.countedAt.IsZero() {
			g.burstUntil = now.Add(time.Second)
		}
		g.counted, g.countedAt = count, now
	} else if count >= g.counted+crowd {
		g.burstUntil = now.Add(time.Second)
	}
	if now.Before(g.burstUntil) {
		return reservePerNewProcess * uint64(count)
	}
	return reservePerProcess * uint64(max(0, count-crowd))
}

func (g *guard) read() (total, available uint64, err error) {
	n, err := unix.Pread(int(g.file.Fd()), g.buffer[:], 0)
	if err != nil {
		return 0, 0, err
	}
	text := g.buffer[:n]
	total, first := kilobytes(text, "MemTotal:")
	available, second := kilobytes(text, "MemAvailable:")
	if !first || !second {
		return 0, 0, fmt.Errorf("meminfo without MemTotal or MemAvailable: %q", text)
	}
	return total, available, nil
}

func kilobytes(text []byte, name string) (uint64, bool) {
	at := bytes.Index(text, []byte(name))
	if at < 0 {
		return 0, false
	}
	n, seen := uint64(0), false
	for _, c := range text[at+len(name):] {
		if c >= '0' && c <= '9' {
			n, seen = n*10+uint64(c-'0'), true
		} else if seen {
			break
		}
	}
	return n << 10, seen
}

// end ends the largest process, or, where no process is large and many are there, all of the context that they make up: a fork bomb.
// Everything is stopped first, so that memory stands still while it is decided who has to go.
func (g *guard) end(total, available uint64) {
	stopped := stopAll()
	all := processes()
	roots := g.init.roots()
	victims, name := choose(all, roots, attribute(all, roots))
	for _, one := range victims {
		_ = unix.Kill(one.pid, unix.SIGKILL)
	}
	for pid := range stopped {
		_ = unix.Kill(pid, unix.SIGCONT) // no help to the killed, no harm to them
	}
	if len(victims) == 0 {
		return
	}
	largest := victims[0]
	root := 0
	for pid := range roots {
		if descends(all, largest.pid, pid) {
			root = pid
		}
	}
	g.mu.Lock()
	limit := g.limit
	g.mu.Unlock()
	if limit == 0 {
		limit = total
	}
	g.init.send(&Event{Victim: &Victim{
		Pid: largest.pid, Command: largest.command, Root: root, Context: name, RSSBytes: largest.rss,
		LimitBytes: limit, AvailableBytes: available, PeakBytes: total - g.lowest, Processes: len(victims),
	}})
	// Freed memory comes back some time after the process's end; until then nobody else has to go, unless another is growing.
	deadline := time.Now().Add(settleTime)
	for time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
		_, now, err := g.read()
		if err == nil && (now > reserveBytes || now+fallBytes < available && !alive(largest.pid)) {
			break
		}
	}
	if _, now, err := g.read(); err == nil {
		g.settled = max(now, 1)
	}
	g.lowest = ^uint64(0)
}

// stopAll stops every process, those too that are born meanwhile, and says which.
func stopAll() map[int]bool {
	stopped := map[int]bool{}
	for range 5 {
		fresh := false
		for _, pid := range pids() {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	return stopped
}

// ownCommand is what the bash kernel's process is called.
const ownCommand = "atoll-agent"

// choose returns who has to go, the largest first, and their context.
func choose(all map[int]*process, roots, owner map[int]string) ([]*process, string) {
	var largest *process
	sums, counts := map[string]uint64{}, map[string]int{}
	for pid, one := range all {
		if one.gone() {
			continue
		}
		// A page fault of a gigabyte shows in nobody's size before it is over: a small kernel of ours is not who is growing.
		if _, root := roots[pid]; root && one.command == ownCommand && one.rss < reserveBytes {
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
	if largest.rss >= reserveBytes {
		return []*process{largest}, owner[largest.pid]
	}
	heaviest := owner[largest.pid]
	for name, sum := range sums {
		if sum > sums[heaviest] {
			heaviest = name
		}
	}
	if counts[heaviest] < crowd {
		return []*process{largest}, owner[largest.pid]
	}
	var group []*process
	for pid, one := range all {
		if !one.gone() && owner[pid] == heaviest {
			group = append(group, one)
		}
	}
	slices.SortFunc(group, func(a, b *process) int { return cmp.Compare(b.rss, a.rss) })
	return group, heaviest
}

func alive(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	one := parseStat(line)
	return one != nil && !one.gone()
}

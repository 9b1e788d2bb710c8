package inner

import (
	"bytes"
	"fmt"
	"os"
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
	if available < reserveBytes {
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

func (g *guard) end(total, available uint64) {
	all := processes()
	var largest *process
	for _, one := range all {
		if !one.gone() && (largest == nil || one.rss > largest.rss) {
			largest = one
		}
	}
	if largest == nil {
		return
	}
	roots := g.init.roots()
	name := attribute(all, roots)[largest.pid]
	root := 0
	for pid := range roots {
		if descends(all, largest.pid, pid) {
			root = pid
		}
	}
	_ = unix.Kill(largest.pid, unix.SIGKILL)
	g.mu.Lock()
	limit := g.limit
	g.mu.Unlock()
	if limit == 0 {
		limit = total
	}
	g.init.send(&Event{Victim: &Victim{
		Pid: largest.pid, Command: largest.command, Root: root, Context: name, RSSBytes: largest.rss,
		LimitBytes: limit, AvailableBytes: available, PeakBytes: total - g.lowest,
	}})
	// Freed memory comes back within milliseconds of the process's end; until then nobody else has to go.
	deadline := time.Now().Add(300 * time.Millisecond)
	for time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
		_, now, err := g.read()
		if err == nil && now > reserveBytes {
			break
		}
		if err == nil && !alive(largest.pid) {
			break
		}
	}
	if _, now, err := g.read(); err == nil {
		g.settled = max(now, 1)
	}
	g.lowest = ^uint64(0)
}

func alive(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	one := parseStat(line)
	return one != nil && !one.gone()
}

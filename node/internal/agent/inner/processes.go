package inner

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is the unit of process start times in /proc: USER_HZ, 100 on every platform Go runs on.
const TicksPerSecond = 100

// NowTicks is the present moment on the clock of process start times.
func NowTicks() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return uint64(now.Nano()) / uint64(time.Second/TicksPerSecond)
}

type process struct {
	pid, parent, group, session int
	command                     string
	state                       byte
	start                       uint64
	rss                         uint64
	cpu                         uint64 // ticks
}

func (p *process) gone() bool { return p.state == 'Z' || p.state == 'X' || p.state == 'x' }

// pids lists what runs, without the init itself.
func pids() []int {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	found := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != 1 {
			found = append(found, pid)
		}
	}
	return found
}

func processes() map[int]*process {
	found := map[int]*process{}
	for _, pid := range pids() {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		if p := parseStat(line); p != nil {
			found[pid] = p
		}
	}
	return found
}

// parseStat reads a line of /proc/PID/stat. The command may hold anything, parentheses and blanks too.
func parseStat(line []byte) *process {
	open, closing := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || closing < open {
		return nil
	}
	fields := bytes.Fields(line[closing+1:])
	if len(fields) < 22 {
		return nil
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(string(fields[i]), 10, 64)
		return n
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	if err != nil {
		return nil
	}
	return &process{
		pid:     pid,
		command: string(line[open+1 : closing]),
		state:   fields[0][0],
		parent:  int(number(1)),
		group:   int(number(2)),
		session: int(number(3)),
		start:   number(19),
		cpu:     number(11) + number(12),
		rss:     number(21) * uint64(os.Getpagesize()),
	}
}

// attribute says for each process to which root, or which context, it belongs: by descent, then by session, then by the marker in its
// environment. What has none of these is left out.
func attribute(all map[int]*process, roots map[int]string) map[int]string {
	owner := make(map[int]string, len(all))
	for pid, name := range roots {
		owner[pid] = name
	}
	var find func(pid, depth int) (string, bool)
	find = func(pid, depth int) (string, bool) {
		if name, known := owner[pid]; known {
			return name, true
		}
		p, alive := all[pid]
		if !alive || depth > len(all) {
			return "", false
		}
		name, known := find(p.parent, depth+1)
		if !known {
			name, known = roots[p.session]
		}
		if !known {
			name, known = marker(pid)
		}
		if known {
			owner[pid] = name
		}
		return name, known
	}
	for pid := range all {
		find(pid, 0)
	}
	return owner
}

// marker is the owner that a process's environment names.
func marker(pid int) (string, bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	for pair := range bytes.SplitSeq(env, []byte{0}) {
		if owner := ownerIn(string(pair)); owner != "" {
			return owner, true
		}
	}
	return "", false
}

// isKernelPart spares what a kernel itself consists of.
func isKernelPart(one *process, root int) bool {
	if one.parent != root {
		return false
	}
	_, marked := variable(one.pid, KernelPart)
	return marked
}

// variable reads the environment that a process was started with.
func variable(pid int, name string) (string, bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	for _, pair := range bytes.Split(env, []byte{0}) {
		if value, found := bytes.CutPrefix(pair, []byte(name+"=")); found {
			return string(value), true
		}
	}
	return "", false
}

// signal interrupts. The kernel comes first: a `subprocess.run` whose child died before the kernel knew of the interrupt would
// return normally, and the cell would go on for a moment.
func (p *initProcess) signal(id uint64, request *Signal) {
	if !request.OnlyChildren {
		_ = unix.Kill(request.Root, unix.Signal(request.Number))
	}
	count := 0
	all := processes()
	parts := map[int]bool{}
	for pid, one := range all {
		if isKernelPart(one, request.Root) {
			parts[pid] = true
			// A shell that hears of it after the program it waits for has died would run the next line.
			if !request.OnlyChildren {
				_ = unix.Kill(pid, unix.Signal(request.Number))
			}
		}
	}
	for pid, one := range all {
		if pid != request.Root && !parts[pid] && one.session == request.Root && one.start >= request.SinceTicks &&
			descends(all, pid, request.Root) {
			_ = unix.Kill(pid, unix.Signal(request.Number))
			count++
		}
	}
	p.send(&Event{ID: id, Killed: count})
}

func descends(all map[int]*process, pid, root int) bool {
	for range len(all) + 1 {
		if pid == root {
			return true
		}
		p, alive := all[pid]
		if !alive {
			return false
		}
		pid = p.parent
	}
	return false
}

// kill ends a context's processes. Stopping them all before the first is killed keeps a fork bomb from outrunning the loop: what is
// stopped does not fork, and every round finds fewer that run.
func (p *initProcess) kill(id uint64, request *Kill) {
	p.send(&Event{ID: id, Killed: p.killAll(killTime, func() []int { return p.targets(request) })})
}

// killTime is how long what is to be killed is searched for. It is shorter than the agent's patience.
const killTime = 4 * time.Second

// many processes take the CPU from the init that has to find out whose they are.
const many = 32

// killAll kills what targets, which needs mu, finds, until it finds nothing more or patience is over, and says how many
// that were.
func (p *initProcess) killAll(patience time.Duration, targets func() []int) int {
	killed := map[int]bool{}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		doomed := p.killFound(targets, deadline)
		if len(doomed) == 0 {
			break
		}
		maps.Copy(killed, doomed)
		waitGone(doomed, deadline)
	}
	return len(killed)
}

// killFound kills what targets finds, once it finds nothing more that runs.
func (p *initProcess) killFound(targets func() []int, deadline time.Time) map[int]bool {
	// Not in the middle of a start: what is between fork and exec has no known owner yet, and the init would wait for it.
	p.mu.Lock()
	defer p.mu.Unlock()
	var frozen map[int]bool
	if len(pids()) > many {
		frozen = stopAll()
	}
	doomed := map[int]bool{}
	for fresh := true; fresh && time.Now().Before(deadline); {
		fresh = false
		for _, pid := range targets() {
			if !doomed[pid] {
				doomed[pid], fresh = true, true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
	thaw(frozen, doomed)
	for pid := range doomed {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return doomed
}

// stopAll stops every process, those too that are born meanwhile, and says which. Every round leaves fewer that could bear any, so it
// soon finds nobody new; the bound is for those that others let go on again.
func stopAll() map[int]bool {
	const rounds = 100
	stopped := map[int]bool{}
	for range rounds {
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

// thaw lets those go on that were stopped and are not to die. It comes before the others' end: as the dead leave a process group, what is
// stopped in it may get a SIGHUP. Children go first: their shell must not find them stopped.
func thaw(stopped, dying map[int]bool) {
	for _, pid := range slices.Backward(slices.Sorted(maps.Keys(stopped))) {
		if !dying[pid] {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}

// waitGone gives the killed a moment to leave, so that the next round does not count them again.
func waitGone(pids map[int]bool, deadline time.Time) {
	for pid := range pids {
		for time.Now().Before(deadline) {
			line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if err != nil {
				break
			}
			if one := parseStat(line); one == nil || one.gone() {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// targets finds what a Kill is for. Requires: mu is held.
func (p *initProcess) targets(request *Kill) []int {
	all := processes()
	roots := maps.Clone(p.spawned)
	roots[request.Root] = request.Context
	owner := attribute(all, roots)
	alone := len(request.OtherContexts) == 0 && len(request.OtherRoots) == 0
	spared := make(map[string]bool, len(request.OtherContexts))
	for _, name := range request.OtherContexts {
		spared[name] = true
	}
	var found []int
	for pid, one := range all {
		if one.gone() || (request.KeepRoot && (pid == request.Root || one.start < request.SinceTicks || isKernelPart(one, request.Root))) {
			continue
		}
		name, known := owner[pid]
		switch {
		case known && name == request.Context:
		case known && (spared[name] || strings.HasPrefix(name, ProcessOwner)):
			continue
		case alone:
		case one.start < request.SinceTicks || request.SinceTicks == 0:
			// Nothing says whose it is, and it was there before: a daemon of another context, as likely as not.
			continue
		}
		found = append(found, pid)
	}
	return found
}

package inner

import (
	"fmt"
	"maps"
	"strings"

	"golang.org/x/sys/unix"
)

// Deliver sends a signal.
type Deliver struct {
	// Whom: an owner that the agent has started a process for, or any process by its id.
	Owner string `json:",omitempty"`
	Pid   int    `json:",omitempty"`
	// "process", "group" or "tree".
	Target string
	Number int
	// For a tree: nothing else runs, so that what started since then and has no known origin is part of it.
	Alone      bool   `json:",omitempty"`
	SinceTicks uint64 `json:",omitempty"`
}

// maxSessions bounds what is remembered of ended sessions before those without members are thrown out.
const maxSessions = 256

// ownerIn returns the owner that an environment variable names, if it does.
func ownerIn(pair string) string {
	if value, found := strings.CutPrefix(pair, ContextVariable+"="); found {
		return value
	}
	if value, found := strings.CutPrefix(pair, ProcessVariable+"="); found {
		return ProcessOwner + value
	}
	return ""
}

func ownerOf(env []string) string {
	for _, pair := range env {
		if owner := ownerIn(pair); owner != "" {
			return owner
		}
	}
	return ""
}

// rememberSession keeps whose a session was after its leader has ended: its background processes may have lost the marker. A session's
// number is not given away again while the session has members. Requires: mu is held.
func (p *initProcess) rememberSession(leader int, owner string) {
	if !strings.HasPrefix(owner, ProcessOwner) {
		return
	}
	if len(p.sessions) >= maxSessions {
		p.pruneSessions(processes())
	}
	p.sessions[leader] = owner
}

// pruneSessions requires that mu is held.
func (p *initProcess) pruneSessions(all map[int]*process) {
	members := map[int]bool{}
	for _, one := range all {
		members[one.session] = true
	}
	for leader := range p.sessions {
		if _, reused := all[leader]; reused || !members[leader] {
			delete(p.sessions, leader)
		}
	}
}

// owners says to whom each process belongs, those of ended sessions too. Requires: mu is held.
func (p *initProcess) owners(all map[int]*process) map[int]string {
	roots := maps.Clone(p.spawned)
	p.pruneSessions(all)
	for leader, owner := range p.sessions {
		if _, running := roots[leader]; !running {
			roots[leader] = owner
		}
	}
	return attribute(all, roots)
}

func (p *initProcess) deliver(id uint64, request *Deliver) {
	count, err := p.dispatch(request)
	if err != nil {
		p.answer(id, err)
		return
	}
	p.send(&Event{ID: id, Killed: count})
}

func (p *initProcess) dispatch(request *Deliver) (int, error) {
	number := unix.Signal(request.Number)
	if request.Pid == 1 {
		return 0, fmt.Errorf("process 1 holds the sandbox together: %w", unix.EPERM)
	}
	if request.Target == "tree" {
		find := func() []int { return p.tree(request) }
		if number == unix.SIGKILL {
			return p.killAll(killTime, find), nil
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		found := find()
		for _, pid := range found {
			_ = unix.Kill(pid, number) // what has ended meanwhile needs no signal
		}
		return len(found), nil
	}
	// An id stays taken until the reaper has been here, which needs mu.
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := request.Pid
	if request.Owner != "" {
		pid = 0
		for one, owner := range p.spawned {
			if owner == request.Owner {
				pid = one
			}
		}
	}
	if pid <= 0 {
		return 0, unix.ESRCH
	}
	if request.Target == "group" {
		group, err := unix.Getpgid(pid)
		if err != nil {
			return 0, err
		}
		if group <= 1 {
			return 0, unix.EPERM
		}
		pid = -group
	}
	return 1, unix.Kill(pid, number)
}

// tree finds what a Deliver to a tree is for. Requires: mu is held.
func (p *initProcess) tree(request *Deliver) []int {
	all := processes()
	var found []int
	if request.Owner == "" {
		for pid, one := range all {
			if !one.gone() && descends(all, pid, request.Pid) {
				found = append(found, pid)
			}
		}
		return found
	}
	owner := p.owners(all)
	for pid, one := range all {
		name, known := owner[pid]
		if one.gone() || (known && name != request.Owner) || (!known && (!request.Alone || one.start < request.SinceTicks)) {
			continue
		}
		found = append(found, pid)
	}
	return found
}

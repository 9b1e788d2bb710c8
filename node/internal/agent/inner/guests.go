package inner

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Guest is a process as `ps` shows it.
type Guest struct {
	Pid, Parent int
	Uid         uint32
	Command     string
	Argv        []string `json:",omitempty"`
	State       string
	CPUTicks    uint64
	RSSBytes    uint64
	StartTicks  uint64
	Owner       string `json:",omitempty"`
}

const (
	// So much of a process's arguments is shown.
	maxArgvBytes = 4 << 10
	// All guests together stay well below what one message holds.
	maxGuests = 4096
)

// list tells of every process but the init itself.
func (p *initProcess) list(id uint64) {
	p.mu.Lock()
	all := processes()
	owner := p.owners(all)
	p.mu.Unlock()
	guests := make([]Guest, 0, len(all))
	for pid, one := range all {
		if len(guests) == maxGuests {
			break
		}
		guest := Guest{
			Pid: pid, Parent: one.parent, Command: validText(one.command), State: string(rune(one.state)),
			CPUTicks: one.cpu, RSSBytes: one.rss, StartTicks: one.start, Owner: owner[pid],
		}
		folder := "/proc/" + strconv.Itoa(pid)
		if uid, found := uidOf(folder); found {
			guest.Uid = uid
		}
		guest.Argv = argvOf(folder)
		guests = append(guests, guest)
	}
	slices.SortFunc(guests, func(a, b Guest) int { return a.Pid - b.Pid })
	p.send(&Event{ID: id, Guests: guests})
}

func (p *initProcess) look(id uint64, pid int) {
	event := &Event{ID: id}
	if line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		if one := parseStat(line); one != nil {
			event.Guests = []Guest{{Pid: pid, State: string(rune(one.state)), CPUTicks: one.cpu}}
		}
	}
	p.send(event)
}

func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// uidOf is the effective one.
func uidOf(folder string) (uint32, bool) {
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return 0, false
	}
	for line := range bytes.SplitSeq(status, []byte{'\n'}) {
		rest, found := bytes.CutPrefix(line, []byte("Uid:"))
		if fields := bytes.Fields(rest); found && len(fields) >= 2 {
			uid, err := strconv.ParseUint(string(fields[1]), 10, 32)
			return uint32(uid), err == nil
		}
	}
	return 0, false
}

func argvOf(folder string) []string {
	file, err := os.Open(folder + "/cmdline")
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, maxArgvBytes)
	n, _ := file.Read(text)
	if n == 0 {
		return nil // a zombie, or a process that has wiped it
	}
	return strings.Split(validText(string(bytes.TrimSuffix(text[:n], []byte{0}))), "\x00")
}

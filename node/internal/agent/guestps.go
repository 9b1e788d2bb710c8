package agent

import (
	"cmp"
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

// ListGuestProcesses tells of every process of the sandbox, whoever has started it.
func (a *Agent) ListGuestProcesses(ctx context.Context, _ *agentv1.Empty) (*execv1.ListGuestProcessesReply, error) {
	t, err := a.currentTree()
	if err != nil {
		return nil, &frame.Status{Code: codes.Unavailable, Message: err.Error()}
	}
	event, err := t.call(ctx, &inner.Request{List: true})
	if err != nil {
		return nil, &frame.Status{Code: codes.Unavailable, Message: err.Error()}
	}
	names := map[uint32]string{}
	for fields := range records("/etc/passwd", 3) {
		if uid, err := strconv.ParseUint(fields[2], 10, 32); err == nil && names[uint32(uid)] == "" {
			names[uint32(uid)] = fields[0]
		}
	}
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		return nil, err
	}
	boot := time.Now().Add(-time.Duration(sinceBoot.Nano()))
	const tick = time.Second / inner.TicksPerSecond
	ids := map[string]string{}
	forgotten := map[string]bool{}
	a.mu.Lock()
	for _, c := range a.contexts {
		ids[c.mark] = c.id()
	}
	maps.Copy(forgotten, a.forgotten)
	a.mu.Unlock()
	reply := &execv1.ListGuestProcessesReply{}
	for _, guest := range event.Guests {
		process := &execv1.GuestProcess{
			Pid: int32(guest.Pid), ParentPid: int32(guest.Parent), Uid: guest.Uid, User: strings.ToValidUTF8(names[guest.Uid], "\uFFFD"),
			Command: guest.Command, Argv: guest.Argv, State: guest.State,
			CpuMs: guest.CPUTicks * uint64(tick.Milliseconds()), MemoryBytes: guest.RSSBytes,
			StartedAtUnixMs: boot.Add(time.Duration(guest.StartTicks) * tick).UnixMilli(),
		}
		if id, found := strings.CutPrefix(guest.Owner, inner.ProcessOwner); found && !forgotten[id] {
			process.ProcessId = strings.ToValidUTF8(id, "\uFFFD")
		} else if !found {
			process.ContextId = strings.ToValidUTF8(cmp.Or(ids[guest.Owner], guest.Owner), "\uFFFD")
		}
		reply.Processes = append(reply.Processes, process)
	}
	return reply, nil
}

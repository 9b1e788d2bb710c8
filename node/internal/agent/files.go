package agent

import (
	"context"
	"fmt"
	"os"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/files"
	"atoll/node/internal/agent/ports"
)

// Where an agent notes the temporary files of writes under way, for the one after it. Root's alone.
const writeJournal = "/var/lib/atoll/writes"

// newFiles makes the service for the calls about files, which look at paths as the programs of the living inner tree do.
func (a *Agent) newFiles() *files.Files {
	options := files.Options{
		Namespace: func() (string, error) {
			t, err := a.currentTree()
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("/proc/%d/ns/mnt", t.process.Process.Pid), nil
		},
		Template: func() files.Identity {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.user == nil {
				return files.Identity{Name: "nobody", Uid: 65534, Gid: 65534, Home: "/"}
			}
			return files.Identity{Name: a.user.name, Uid: a.user.uid, Gid: a.user.gid, Groups: a.user.groups, Home: a.user.home}
		},
	}
	if os.Getpid() == 1 {
		// The whole file system is the sandbox's.
		options.Journal = writeJournal
	}
	return files.New(options)
}

func (a *Agent) listPorts(ctx context.Context, _ *agentv1.Empty) (*execv1.ListPortsReply, error) {
	reply, err := ports.List(func(call func()) error { return a.files.Inside(ctx, call) })
	if err != nil || len(reply.GetPorts()) == 0 {
		return reply, err
	}
	guests, err := a.ListGuestProcesses(ctx, nil)
	if err != nil {
		return nil, err
	}
	started := map[int32]string{}
	for _, guest := range guests.GetProcesses() {
		started[guest.GetPid()] = guest.GetProcessId()
	}
	for _, port := range reply.GetPorts() {
		port.ProcessId = started[port.GetPid()]
	}
	return reply, nil
}

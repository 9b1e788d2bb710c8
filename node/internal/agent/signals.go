package agent

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

const lastSignal = 64

var targetNames = map[execv1.SignalTarget]string{
	execv1.SignalTarget_SIGNAL_TARGET_PROCESS: "process",
	execv1.SignalTarget_SIGNAL_TARGET_GROUP:   "group",
	execv1.SignalTarget_SIGNAL_TARGET_TREE:    "tree",
}

// Signal signals a process that was started by itself, what it has started, or any other of the sandbox.
func (a *Agent) Signal(ctx context.Context, request *execv1.SignalRequest) (*agentv1.Empty, error) {
	target, known := targetNames[request.Target]
	if request.Signal < 1 || request.Signal > lastSignal || !known {
		return nil, &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("signal %d to %v (expected: 1 to %d)", request.Signal, request.Target, lastSignal)}
	}
	if request.ProcessId == "" {
		if request.Pid <= 0 {
			return nil, &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("process %d (expected: > 0)", request.Pid)}
		}
		t, err := a.currentTree()
		if err != nil {
			return nil, &frame.Status{Code: codes.Unavailable, Message: err.Error()}
		}
		_, err = t.call(ctx, &inner.Request{Deliver: &inner.Deliver{Pid: int(request.Pid), Target: target, Number: int(request.Signal)}})
		return signalReply(fmt.Sprint("process ", request.Pid), err)
	}
	name := "process " + request.ProcessId
	p, err := a.startedProcess(request.ProcessId)
	if err != nil {
		return nil, err
	}
	if target == "tree" {
		_, err := p.signalTree(unix.Signal(request.Signal))
		return signalReply(name, err)
	}
	if !p.running() {
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: name + " has ended"}
	}
	if target == "group" && p.terminal != nil && p.signalForeground(unix.Signal(request.Signal)) {
		return &agentv1.Empty{}, nil
	}
	_, err = p.tree.call(ctx, &inner.Request{Deliver: &inner.Deliver{Owner: p.owner(), Target: target, Number: int(request.Signal)}})
	return signalReply(name, err)
}

func signalReply(name string, err error) (*agentv1.Empty, error) {
	switch {
	case err == nil:
		return &agentv1.Empty{}, nil
	case errors.Is(err, unix.ESRCH):
		return nil, &frame.Status{Code: codes.NotFound, Message: name + " does not run"}
	case errors.Is(err, unix.EPERM):
		return nil, &frame.Status{Code: codes.PermissionDenied, Message: name + ": " + err.Error()}
	case errors.Is(err, errTreeDied):
		return nil, &frame.Status{Code: codes.FailedPrecondition, Message: name + ": " + err.Error()}
	}
	return nil, err
}

// signalTree signals a process with all that it has started, also when it has itself ended.
func (p *process) signalTree(number unix.Signal) (int, error) {
	event, err := p.tree.call(context.Background(), &inner.Request{Deliver: &inner.Deliver{
		Owner: p.owner(), Target: "tree", Number: int(number), SinceTicks: p.startTicks, Alone: p.agent.runsAlone(p),
	}})
	if err != nil {
		return 0, err
	}
	return event.Killed, nil
}

// runsAlone says whether nothing but p has run since p began, so that whatever has no known origin is its.
func (a *Agent) runsAlone(p *process) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other := range a.everyProcess() {
		if other != p && (other.running() || other.endedAt.After(p.events.started)) {
			return false
		}
	}
	return len(a.contexts) == 0
}

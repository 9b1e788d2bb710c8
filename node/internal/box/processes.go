package box

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
	"atoll/node/internal/spool"
)

const (
	// Arguments and environment, by the protocol; and the whole specification, with labels and what encodes it.
	maxProgramBytes = 1 << 20
	maxProcessSpec  = 2 << 20
	maxInput        = 256 << 10
	// A call that has something to say at its caller's deadline says it so long before, or a fifth of the time before if that is less.
	beforeDeadline = 500 * time.Millisecond
)

func checkProcess(spec *execv1.ProcessSpec) error {
	if !validID(spec.GetProcessId()) {
		return fault(Invalid, "process_id: %q (expected: letters, digits, '.', '_' and '-')", clip(spec.GetProcessId()))
	}
	if len(spec.GetArgv()) == 0 || spec.GetArgv()[0] == "" {
		return fault(Invalid, "argv names no program")
	}
	size := 0
	for _, argument := range spec.GetArgv() {
		size += len(argument) + 1
	}
	for name, value := range spec.GetEnv() {
		size += len(name) + len(value) + 2
	}
	if size > maxProgramBytes {
		return fault(Invalid, "argv and env: %d bytes (expected: at most %d)", size, maxProgramBytes)
	}
	if size := proto.Size(spec); size > maxProcessSpec {
		return fault(Invalid, "process: %d bytes (expected: at most %d)", size, maxProcessSpec)
	}
	return nil
}

// StartProcess starts a program, or finds the one that has its id, and returns it when it has started.
func (n *Node) StartProcess(ctx context.Context, boxID string, spec *execv1.ProcessSpec) (*execv1.Process, error) {
	if err := checkProcess(spec); err != nil {
		return nil, err
	}
	owner := spool.Owner{ExecutionID: spec.GetProcessId(), BoxID: boxID, Process: spec}
	log, err := n.begin(ctx, owner, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_StartProcess{StartProcess: spec}})
	if err != nil {
		return nil, err
	}
	reader := log.Read(0)
	defer reader.Close()
	// Its first event, or why it was refused.
	if _, err := reader.Next(ctx); err != nil {
		return nil, err
	}
	return processOf(log), nil
}

// processOf is a process as its log has it.
func processOf(log *spool.Log) *execv1.Process {
	// The end first: what is read after it is final if it is there.
	finished := log.Finished()
	spec, started := log.Owner().Process, log.Started()
	p := &execv1.Process{
		Spec: spec, Pid: started.GetPid(), StartedAtUnixMs: started.GetAtUnixMs(), Running: finished == nil, Finished: finished,
	}
	p.StdinOffset, p.StdinClosed = log.Input()
	if finished != nil || !spec.GetStdin() && spec.GetTerminal() == nil {
		p.StdinClosed = true
	}
	p.StdoutBytes, p.StderrBytes = log.Ends()
	return p
}

// process finds the log of a process that is not forgotten.
func (n *Node) process(ctx context.Context, boxID, id string) (*spool.Log, error) {
	log, ok := n.spool.Find(id)
	if !ok {
		var err error
		if log, err = n.await(ctx, boxID, id); err != nil {
			return nil, err
		}
	}
	if log.Owner().Process == nil {
		return nil, fault(NotFound, "%s is no process", clip(id))
	}
	return ofBox(log, boxID)
}

// Process returns a process that runs, or has ended and is not forgotten.
func (n *Node) Process(ctx context.Context, boxID, id string) (*execv1.Process, error) {
	log, err := n.process(ctx, boxID, id)
	if err != nil {
		return nil, err
	}
	return processOf(log), nil
}

// Processes lists those that run, or have ended and are not forgotten. Boxes that are being reached again are waited for a little.
func (n *Node) Processes(ctx context.Context, boxID string) []*enginev1.NodeProcess {
	ctx, cancel := context.WithTimeout(ctx, reconnectPatience)
	defer cancel()
	for _, box := range n.List() {
		if box.GetState() == enginev1.BoxState_BOX_STATE_RECONNECTING && (boxID == "" || boxID == box.GetBoxId()) {
			// Who is not reached now is not listed; the box's state says so.
			_, _, _ = n.reach(ctx, box.GetBoxId())
		}
	}
	var found []*enginev1.NodeProcess
	for _, log := range n.spool.All() {
		owner := log.Owner()
		if strings.HasPrefix(owner.ExecutionID, BuildProcess) || owner.Process == nil || boxID != "" && owner.BoxID != boxID {
			continue
		}
		found = append(found, &enginev1.NodeProcess{BoxId: owner.BoxID, SandboxId: owner.SandboxID, Process: processOf(log)})
	}
	return found
}

// WaitProcess returns a process when it has ended, or as it is shortly before the caller's deadline.
func (n *Node) WaitProcess(ctx context.Context, boxID, id string) (*execv1.Process, error) {
	early, cancel := early(ctx)
	defer cancel()
	log, err := n.process(ctx, boxID, id)
	if err != nil {
		return nil, err
	}
	select {
	case <-log.Done():
		if log.Finished() == nil {
			return nil, fault(NotFound, "process %s was not started", clip(id))
		}
	case <-early.Done():
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return processOf(log), nil
}

// early ends in time for an answer before the caller's deadline, if there is one.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(beforeDeadline, left/5)))
}

// WriteInput gives a process something to read. It says how far it came, also when the program doesn't read and the caller's time is over.
func (n *Node) WriteInput(ctx context.Context, boxID string, request *execv1.WriteInputRequest) (*execv1.WriteInputReply, error) {
	if len(request.GetData()) > maxInput {
		return nil, fault(Invalid, "data: %d bytes (expected: at most %d)", len(request.GetData()), maxInput)
	}
	log, err := n.process(ctx, boxID, request.GetProcessId())
	if err != nil {
		return nil, err
	}
	if log.Finished() != nil {
		return nil, fault(FailedPrecondition, "process %s has ended", request.GetProcessId())
	}
	b, l, err := n.enter(ctx, boxID)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	early, cancel := early(ctx)
	defer cancel()
	if deadline, ok := early.Deadline(); ok && request.GetWaitMs() == 0 {
		// The agent knows no deadlines. Should its answer come late all the same, it is asked for what it has taken.
		request.WaitMs = uint32(max(1, time.Until(deadline.Add(-beforeDeadline/5)).Milliseconds()))
	}
	reply := &execv1.WriteInputReply{}
	err = frame.Call(early, l.session, agentrpc.WriteInput, request, reply)
	if err != nil && early.Err() != nil && ctx.Err() == nil {
		process, asked := l.askProcess(ctx, request.GetProcessId())
		reply.Offset, reply.Closed, err = process.GetStdinOffset(), process.GetStdinClosed(), asked
	}
	if err != nil {
		return nil, b.orOver(answered(err))
	}
	log.SetInput(reply.GetOffset(), reply.GetClosed())
	return reply, nil
}

// askProcess has the agent say how a process is.
func (l *link) askProcess(ctx context.Context, id string) (*execv1.Process, error) {
	reply := &agentv1.ListProcessesReply{}
	if err := frame.Call(ctx, l.session, agentrpc.ListProcesses, &agentv1.ListProcessesRequest{ProcessId: id}, reply); err != nil {
		return nil, err
	}
	for _, p := range reply.GetProcesses() {
		if p.GetSpec().GetProcessId() == id && proto.Size(p.GetSpec()) <= maxProcessSpec {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the agent does not say what process %s is", id)
}

// process is what the agent knows of a process that it holds; where it doesn't say, no more than the id.
func (l *link) process(ctx context.Context, id string) *execv1.Process {
	process, err := l.askProcess(ctx, id)
	if err != nil {
		return &execv1.Process{Spec: &execv1.ProcessSpec{ProcessId: id}}
	}
	return process
}

// Signal sends a signal to a process, or to what it has started.
func (n *Node) Signal(ctx context.Context, boxID string, request *execv1.SignalRequest) error {
	return n.call(ctx, boxID, agentrpc.Signal, request, &agentv1.Empty{})
}

// Resize changes the size of a process's terminal.
func (n *Node) Resize(ctx context.Context, boxID string, request *execv1.ResizeRequest) error {
	return n.call(ctx, boxID, agentrpc.Resize, request, &agentv1.Empty{})
}

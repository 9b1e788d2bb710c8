package drivertest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"atoll/node/gen/agentv1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

// insideCalls are the fake agent's answers about processes, files and ports:
//
//	file "missing"        is not there
//	file "entries/N"      a folder of N entries; of "nothings/N", each is two bytes
//	file "zeros/N"        N bytes; read in pieces of 60,000
//	file "denied"         can't be written, which is said after the first message
//	file "uploads"        how many uploads, downloads, watches and tunnels are open, as its size
//	file "/tmp/…"         is kept, and read back
//	port 7                an echo; 9: nothing listens there
var insideCalls = map[string]func(*fakeAgent, *frame.Stream) error{
	agentrpc.WriteInput:         (*fakeAgent).writeInput,
	agentrpc.Signal:             (*fakeAgent).signal,
	agentrpc.Resize:             (*fakeAgent).resize,
	agentrpc.ListProcesses:      (*fakeAgent).listProcesses,
	agentrpc.ListGuestProcesses: (*fakeAgent).listGuestProcesses,
	agentrpc.File:               (*fakeAgent).file,
	agentrpc.ReadFile:           (*fakeAgent).readFile,
	agentrpc.WriteFile:          (*fakeAgent).writeFile,
	agentrpc.WatchFiles:         (*fakeAgent).watchFiles,
	agentrpc.ListPorts:          (*fakeAgent).listPorts,
	agentrpc.Tunnel:             (*fakeAgent).tunnel,
}

func (a *fakeAgent) count(method string, by int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[method] += by
}

func (a *fakeAgent) find(id string) (*fakeExecution, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.executions[id]; e != nil {
		return e, nil
	}
	return nil, refuse(codes.NotFound, "no process %s", id)
}

func (a *fakeAgent) writeInput(s *frame.Stream) error {
	request := &execv1.WriteInputRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	e, err := a.find(request.GetProcessId())
	if err != nil {
		return err
	}
	switch e.process.GetArgv()[0] {
	case "hold":
		// It doesn't read.
		<-s.Context().Done()
		return s.Context().Err()
	case "sip":
		if request.GetWaitMs() == 0 {
			return refuse(codes.InvalidArgument, "no wait_ms")
		}
		a.add(e, output(fmt.Sprintf("wait_ms %d\n", request.GetWaitMs())))
		select {
		case <-time.After(time.Duration(request.GetWaitMs()) * time.Millisecond):
			return s.Send(&execv1.WriteInputReply{Offset: 1})
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
	a.mu.Lock()
	data := request.GetData()
	if request.Offset != nil {
		if request.GetOffset() > e.input {
			a.mu.Unlock()
			return refuse(codes.FailedPrecondition, "offset %d, expected at most %d", request.GetOffset(), e.input)
		}
		data = data[min(e.input-request.GetOffset(), uint64(len(data))):]
	}
	e.input += uint64(len(data))
	e.inputClosed = e.inputClosed || request.GetClose()
	reply := &execv1.WriteInputReply{Offset: e.input, Closed: e.inputClosed}
	a.mu.Unlock()
	if len(data) > 0 {
		a.add(e, output(string(data)))
	}
	if request.GetClose() {
		a.interrupt(request.GetProcessId())
	}
	return s.Send(reply)
}

func (a *fakeAgent) signal(s *frame.Stream) error {
	request := &execv1.SignalRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	if _, err := a.find(request.GetProcessId()); err != nil {
		return err
	}
	a.interrupt(request.GetProcessId())
	return s.Send(&agentv1.Empty{})
}

func (a *fakeAgent) resize(s *frame.Stream) error {
	request := &execv1.ResizeRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	e, err := a.find(request.GetProcessId())
	if err != nil {
		return err
	}
	a.add(e, output(strconv.Itoa(int(request.GetSize().GetColumns()))+"x"+strconv.Itoa(int(request.GetSize().GetRows()))+"\n"))
	return s.Send(&agentv1.Empty{})
}

func (a *fakeAgent) listProcesses(s *frame.Stream) error {
	request := &agentv1.ListProcessesRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	a.mu.Lock()
	reply := &agentv1.ListProcessesReply{}
	for id, e := range a.executions {
		if e.process != nil && (request.GetProcessId() == "" || request.GetProcessId() == id) {
			reply.Processes = append(reply.Processes, &execv1.Process{Spec: e.process, Pid: 42, Running: !e.finished, StdinOffset: e.input, StdinClosed: e.inputClosed})
		}
	}
	a.mu.Unlock()
	return s.Send(reply)
}

func (a *fakeAgent) listGuestProcesses(s *frame.Stream) error {
	if err := s.Receive(&agentv1.Empty{}); err != nil {
		return err
	}
	return s.Send(&execv1.ListGuestProcessesReply{Processes: []*execv1.GuestProcess{{Pid: 1, Command: "init"}, {Pid: 42, Command: "echo"}}})
}

func (a *fakeAgent) file(s *frame.Stream) error {
	request := &filev1.FileRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	path := request.GetStat().GetPath()
	word, argument := filepath.Split(path)
	n, _ := strconv.Atoi(argument)
	reply := &filev1.FileReply{File: &filev1.FileInfo{Path: path, Name: filepath.Base(path)}}
	switch {
	case path == "missing":
		return refuse(codes.NotFound, "missing: no such file or directory")
	case path == "aborted":
		return refuse(codes.Aborted, "aborted: the file changed")
	case path == "stuck":
		<-s.Context().Done()
		return s.Context().Err()
	case path == "uploads":
		a.mu.Lock()
		reply.File.Size = uint64(a.open[agentrpc.WriteFile] + a.open[agentrpc.ReadFile] + a.open[agentrpc.WatchFiles] + a.open[agentrpc.Tunnel])
		a.mu.Unlock()
	case word == "entries/":
		for i := range n {
			reply.Entries = append(reply.Entries, &filev1.FileInfo{Name: "name-" + strconv.Itoa(i), Type: filev1.FileType_FILE_TYPE_FILE})
		}
	case word == "nothings/":
		reply.Entries = make([]*filev1.FileInfo, n)
		for i := range reply.Entries {
			reply.Entries[i] = &filev1.FileInfo{}
		}
	case word == "bytes/":
		reply.Next = strings.Repeat("x", n)
	}
	return s.Send(reply)
}

func (a *fakeAgent) readFile(s *frame.Stream) error {
	request := &filev1.ReadFileRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	word, argument := filepath.Split(request.GetPath())
	a.mu.Lock()
	content, kept := a.files[request.GetPath()]
	a.mu.Unlock()
	if kept {
		return errors.Join(
			s.Send(&filev1.FilePiece{File: &filev1.FileInfo{Path: request.GetPath(), Size: uint64(len(content))}}), s.Send(&filev1.FilePiece{Data: content}))
	}
	if word != "zeros/" {
		return refuse(codes.NotFound, "%s: no such file or directory", request.GetPath())
	}
	n, _ := strconv.Atoi(argument)
	if err := s.Send(&filev1.FilePiece{File: &filev1.FileInfo{Path: request.GetPath(), Size: uint64(n)}}); err != nil {
		return err
	}
	piece := &filev1.FilePiece{Data: make([]byte, 60_000)}
	for n > 0 {
		piece.Data = piece.Data[:min(n, len(piece.Data))]
		if err := s.Send(piece); err != nil {
			return err
		}
		n -= len(piece.Data)
	}
	return nil
}

func (a *fakeAgent) writeFile(s *frame.Stream) error {
	request := &filev1.WriteFileRequest{}
	if err := s.Receive(request); err != nil {
		return err
	}
	open := request.GetOpen()
	if open.GetPath() == "denied" {
		return refuse(codes.PermissionDenied, "denied: permission denied")
	}
	temporary, err := os.CreateTemp("", "fake-upload")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	defer temporary.Close()
	var total uint64
	var content []byte
	for {
		if err := s.Receive(request); err == io.EOF {
			return refuse(codes.Canceled, "broken off")
		} else if err != nil {
			return err
		}
		if request.GetCommit() != nil {
			if strings.HasPrefix(open.GetPath(), "/tmp/") {
				a.mu.Lock()
				a.files[open.GetPath()] = content
				a.mu.Unlock()
			}
			return s.Send(&filev1.WriteFileReply{Bytes: total, Created: true, File: &filev1.FileInfo{Path: open.GetPath()}})
		}
		if open.GetPath() == "full" && total > 1<<20 {
			return refuse(codes.ResourceExhausted, "full: no space left on device")
		}
		total += uint64(len(request.GetData()))
		if strings.HasPrefix(open.GetPath(), "/tmp/") {
			content = append(content, request.GetData()...)
		}
	}
}

func (a *fakeAgent) watchFiles(s *frame.Stream) error {
	if err := s.Receive(&filev1.WatchFilesRequest{}); err != nil {
		return err
	}
	if err := s.Send(&filev1.FileEvent{Type: filev1.FileEventType_FILE_EVENT_TYPE_READY}); err != nil {
		return err
	}
	<-s.Context().Done()
	return s.Context().Err()
}

func (a *fakeAgent) listPorts(s *frame.Stream) error {
	if err := s.Receive(&agentv1.Empty{}); err != nil {
		return err
	}
	return s.Send(&execv1.ListPortsReply{Ports: []*execv1.ListeningPort{{Port: 7, Address: "127.0.0.1"}}})
}

func (a *fakeAgent) tunnel(s *frame.Stream) error {
	m := &execv1.TunnelMessage{}
	if err := s.Receive(m); err != nil {
		return err
	}
	if m.GetOpen().GetPort() != 7 {
		return refuse(codes.Unavailable, "nothing listens on port %d", m.GetOpen().GetPort())
	}
	if err := s.Send(&execv1.TunnelMessage{Message: &execv1.TunnelMessage_Opened{Opened: &execv1.TunnelOpened{}}}); err != nil {
		return err
	}
	for {
		m := &execv1.TunnelMessage{}
		if err := s.Receive(m); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
		if m.GetEnd() != nil {
			return nil
		}
	}
}

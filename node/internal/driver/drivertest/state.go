package drivertest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/execv1"
)

// filesVariable names the folder of the files snapshot that a fake agent starts from.
const filesVariable = "ATOLL_FAKE_FILES"

// buildVariable is the version of the build that it belongs to.
const buildVariable = "ATOLL_FAKE_BUILD"

// controlRequest is what the fake driver asks of an agent: launch, restore, save, pause, resume.
type controlRequest struct {
	Operation string
	// State is what to restore.
	State []byte
}

type controlReply struct {
	Error string
	// State is the answer to save and pause.
	State []byte
}

// savedAgent is a fake agent in a snapshot.
type savedAgent struct {
	Build      string
	Key        string
	Epoch      uint64
	Contexts   []json.RawMessage
	Executions map[string]savedExecution
	Files      map[string][]byte
}

type savedExecution struct {
	// Events are encoded; null is the mark of an end without a last event.
	Events       [][]byte
	Code         string
	Process      []byte
	ContextID    string
	Acknowledged uint64
	Offset       uint64
	Finished     bool
	Interrupted  bool
	Input        uint64
	InputClosed  bool
	Scripted     int
}

// serveControl obeys the fake driver until the process ends. Ready is closed once the agent is launched or restored.
func (a *fakeAgent) serveControl(listener net.Listener, ready chan struct{}) {
	launched := false
	for {
		c, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "fake agent:", err)
			os.Exit(1)
		}
		var request controlRequest
		if json.NewDecoder(c).Decode(&request) == nil {
			var reply controlReply
			var err error
			switch starts := request.Operation == "launch" || request.Operation == "restore"; {
			case starts == launched:
				err = fmt.Errorf("%s: the sandbox is launched: %v", request.Operation, launched)
			case request.Operation == "launch":
				err = a.loadFiles(os.Getenv(filesVariable))
			case request.Operation == "restore":
				err = a.restore(request.State)
			case request.Operation == "save":
				a.mu.Lock()
				reply.State, err = a.saveLocked()
				a.mu.Unlock()
			case request.Operation == "pause":
				// Held until it is resumed: what is saved is what goes on.
				a.mu.Lock()
				reply.State, err = a.saveLocked()
			case request.Operation == "resume":
				a.mu.Unlock()
			}
			if err != nil {
				reply.Error = err.Error()
			}
			_ = json.NewEncoder(c).Encode(reply)
			if !launched && err != nil {
				fmt.Fprintln(os.Stderr, "fake agent:", err)
				os.Exit(1)
			}
			if !launched {
				launched = true
				close(ready)
			}
		}
		c.Close()
	}
}

// saveLocked encodes all the agent knows. Requires: mu is held.
func (a *fakeAgent) saveLocked() ([]byte, error) {
	saved := savedAgent{Build: os.Getenv(buildVariable), Key: hex.EncodeToString(a.key[:]), Epoch: a.epoch, Executions: map[string]savedExecution{}, Files: a.files}
	for _, c := range a.contexts {
		text, err := protojson.Marshal(c)
		if err != nil {
			return nil, err
		}
		saved.Contexts = append(saved.Contexts, text)
	}
	for id, e := range a.executions {
		s := savedExecution{
			Code: e.code, ContextID: e.contextID, Acknowledged: e.acknowledged, Offset: e.offset, Finished: e.finished, Interrupted: e.interrupted,
			Input: e.input, InputClosed: e.inputClosed, Scripted: e.scripted,
		}
		for _, event := range e.events {
			var encoded []byte
			if event != nil {
				var err error
				if encoded, err = proto.Marshal(event); err != nil {
					return nil, err
				}
				encoded = append([]byte{}, encoded...)
			}
			s.Events = append(s.Events, encoded)
		}
		if e.process != nil {
			encoded, err := proto.Marshal(e.process)
			if err != nil {
				return nil, err
			}
			s.Process = append([]byte{}, encoded...)
		}
		saved.Executions[id] = s
	}
	return json.Marshal(saved)
}

// restore becomes the agent of a snapshot; its executions go on where they were.
func (a *fakeAgent) restore(state []byte) error {
	var saved savedAgent
	if err := json.Unmarshal(state, &saved); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if build := os.Getenv(buildVariable); saved.Build != build {
		return fmt.Errorf("snapshot: made by build %s (expected: %s)", saved.Build, build)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n, err := hex.Decode(a.key[:], []byte(saved.Key)); err != nil || n != len(a.key) {
		return fmt.Errorf("snapshot: key of %d bytes, %v", n, err)
	}
	a.epoch = saved.Epoch
	if saved.Files != nil {
		a.files = saved.Files
	}
	for _, text := range saved.Contexts {
		c := &execv1.Context{}
		if err := protojson.Unmarshal(text, c); err != nil {
			return err
		}
		a.contexts[c.GetContextId()] = c
	}
	for id, s := range saved.Executions {
		e := newFakeExecution(nil)
		e.code, e.contextID, e.acknowledged, e.offset, e.finished, e.interrupted = s.Code, s.ContextID, s.Acknowledged, s.Offset, s.Finished, s.Interrupted
		e.input, e.inputClosed, e.scripted, e.replay = s.Input, s.InputClosed, s.Scripted, s.Scripted
		for _, encoded := range s.Events {
			var event *execv1.ExecutionEvent
			if encoded != nil {
				event = &execv1.ExecutionEvent{}
				if err := proto.Unmarshal(encoded, event); err != nil {
					return err
				}
			}
			e.events = append(e.events, event)
		}
		if s.Process != nil {
			e.process = &execv1.ProcessSpec{}
			if err := proto.Unmarshal(s.Process, e.process); err != nil {
				return err
			}
		}
		if e.interrupted {
			close(e.interrupt)
		}
		a.executions[id] = e
		if !e.finished {
			go a.run(e)
		}
	}
	return nil
}

// loadFiles takes the files of a files snapshot.
func (a *fakeAgent) loadFiles(dir string) error {
	if dir == "" {
		return nil
	}
	var failures []error
	for _, name := range filesSnapshotFiles {
		_, err := os.Stat(filepath.Join(dir, name))
		failures = append(failures, err)
	}
	state, err := os.ReadFile(filepath.Join(dir, filesSnapshotFiles[0]))
	if err := errors.Join(append(failures, err)...); err != nil {
		return err
	}
	var saved savedAgent
	if err := json.Unmarshal(state, &saved); err != nil {
		return fmt.Errorf("files snapshot: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if saved.Files != nil {
		a.files = saved.Files
	}
	return nil
}

// Package filestest holds the promises of the calls about files as tests. They speak to an agent over the frame layer and act by its
// calls alone, so that they hold for the service by itself and for an agent in a real sandbox.
package filestest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

// Patience is for what takes no time on an idle machine.
const Patience = 60 * time.Second

// Someone is a user that no image knows.
const Someone = "12321:12321"

// Sandbox is what the promises are about.
type Sandbox struct {
	T       *testing.T
	Session *frame.Session
	// Folder is one that every user may write to.
	Folder string
	// Shell runs a script inside, as root.
	Shell func(script string) string
}

// Context ends a call that hangs.
func (s *Sandbox) Context() context.Context {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	s.T.Cleanup(cancel)
	return ctx
}

// Path is one below the folder.
func (s *Sandbox) Path(below string) string { return s.Folder + "/" + below }

// Call does an operation as a user.
func (s *Sandbox) Call(user string, operation any) (*filev1.FileReply, error) {
	s.T.Helper()
	request := &filev1.FileRequest{User: user}
	switch o := operation.(type) {
	case *filev1.Stat:
		request.Operation = &filev1.FileRequest_Stat{Stat: o}
	case *filev1.List:
		request.Operation = &filev1.FileRequest_List{List: o}
	case *filev1.MakeDirectory:
		request.Operation = &filev1.FileRequest_MakeDirectory{MakeDirectory: o}
	case *filev1.Move:
		request.Operation = &filev1.FileRequest_Move{Move: o}
	case *filev1.Copy:
		request.Operation = &filev1.FileRequest_Copy{Copy: o}
	case *filev1.Remove:
		request.Operation = &filev1.FileRequest_Remove{Remove: o}
	case *filev1.Chmod:
		request.Operation = &filev1.FileRequest_Chmod{Chmod: o}
	case *filev1.Find:
		request.Operation = &filev1.FileRequest_Find{Find: o}
	case *filev1.Replace:
		request.Operation = &filev1.FileRequest_Replace{Replace: o}
	case *filev1.MakeSymlink:
		request.Operation = &filev1.FileRequest_MakeSymlink{MakeSymlink: o}
	case *filev1.DiskUsage:
		request.Operation = &filev1.FileRequest_DiskUsage{DiskUsage: o}
	default:
		s.T.Fatalf("no operation: %T", operation)
	}
	reply := &filev1.FileReply{}
	err := frame.Call(s.Context(), s.Session, agentrpc.File, request, reply)
	return reply, err
}

// Does expects that an operation succeeds.
func (s *Sandbox) Does(user string, operation any) *filev1.FileReply {
	s.T.Helper()
	reply, err := s.Call(user, operation)
	if err != nil {
		s.T.Fatalf("%T %v as %q: %v", operation, operation, user, err)
	}
	return reply
}

// Refuses expects that an operation fails with a code.
func (s *Sandbox) Refuses(code codes.Code, user string, operation any) {
	s.T.Helper()
	_, err := s.Call(user, operation)
	s.Failed(code, err, fmt.Sprintf("%T %v as %q", operation, operation, user))
}

// Failed expects an error with a code.
func (s *Sandbox) Failed(code codes.Code, err error, what string) {
	s.T.Helper()
	if err == nil || frame.StatusOf(err) != code {
		s.T.Errorf("%s: %v (expected: %v)", what, err, code)
	}
}

// Download is what a ReadFile call brought.
type Download struct {
	File *filev1.FileInfo
	Data []byte
	Size uint64
}

// Read reads a file; take gets the pieces, or with nil they are kept.
func (s *Sandbox) Read(request *filev1.ReadFileRequest, take func([]byte) error) (*Download, error) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*Patience)
	defer cancel()
	stream, err := s.Session.Open(ctx, agentrpc.ReadFile)
	if err != nil {
		return nil, err
	}
	defer stream.Cancel()
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	download := &Download{}
	piece := &filev1.FilePiece{}
	for {
		if err := stream.Receive(piece); errors.Is(err, io.EOF) {
			return download, nil
		} else if err != nil {
			return download, err
		}
		if piece.File != nil {
			if download.File != nil || download.Size > 0 {
				return nil, errors.New("`file` is not the first message")
			}
			download.File = piece.File
		}
		download.Size += uint64(len(piece.Data))
		if take == nil {
			download.Data = append(download.Data, piece.Data...)
		} else if err := take(piece.Data); err != nil {
			return download, err
		}
	}
}

// Text reads a whole file.
func (s *Sandbox) Text(user, path string) string {
	s.T.Helper()
	download, err := s.Read(&filev1.ReadFileRequest{User: user, Path: path}, nil)
	if err != nil {
		s.T.Fatalf("reading %s as %q: %v", path, user, err)
	}
	return string(download.Data)
}

// Upload is a WriteFile call under way.
type Upload struct {
	stream *frame.Stream
	sent   error
}

// Begin opens a WriteFile call.
func (s *Sandbox) Begin(open *filev1.WriteFileOpen) *Upload {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*Patience)
	s.T.Cleanup(cancel)
	stream, err := s.Session.Open(ctx, agentrpc.WriteFile)
	if err != nil {
		s.T.Fatal(err)
	}
	u := &Upload{stream: stream}
	u.send(&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: open}})
	return u
}

func (u *Upload) send(message *filev1.WriteFileRequest) {
	if u.sent == nil {
		u.sent = u.stream.Send(message)
	}
}

// Data sends a piece.
func (u *Upload) Data(data []byte) bool {
	u.send(&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: data}})
	return u.sent == nil
}

// Write lets an Upload be the end of a pipe.
func (u *Upload) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 60<<10)
		if !u.Data(rest[:n]) {
			return 0, u.sent
		}
		rest = rest[n:]
	}
	return len(data), nil
}

// Commit ends the call and returns the answer.
func (u *Upload) Commit() (*filev1.WriteFileReply, error) {
	u.send(&filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Commit_{Commit: &filev1.WriteFileRequest_Commit{}}})
	return u.Answer()
}

// Answer waits for the end of the call.
func (u *Upload) Answer() (*filev1.WriteFileReply, error) {
	defer u.stream.Cancel()
	reply := &filev1.WriteFileReply{}
	if err := u.stream.Receive(reply); err != nil {
		return nil, err
	}
	return reply, nil
}

// BreakOff ends the call without a commit.
func (u *Upload) BreakOff() { u.stream.Cancel() }

// Write writes a whole file.
func (s *Sandbox) Write(open *filev1.WriteFileOpen, data string) (*filev1.WriteFileReply, error) {
	s.T.Helper()
	u := s.Begin(open)
	_, _ = u.Write([]byte(data))
	return u.Commit()
}

// Puts expects that writing succeeds.
func (s *Sandbox) Puts(user, path, data string) *filev1.WriteFileReply {
	s.T.Helper()
	reply, err := s.Write(&filev1.WriteFileOpen{User: user, Path: path}, data)
	if err != nil {
		s.T.Fatalf("writing %s as %q: %v", path, user, err)
	}
	return reply
}

// Names lists a folder, all pages of it.
func (s *Sandbox) Names(user string, list *filev1.List) []string {
	s.T.Helper()
	var names []string
	for {
		reply := s.Does(user, list)
		for _, entry := range reply.Entries {
			names = append(names, strings.TrimPrefix(entry.Path, strings.TrimRight(list.Path, "/")+"/"))
		}
		if reply.Next == "" {
			return names
		}
		list.After = reply.Next
	}
}

// Eventually waits for a condition.
func (s *Sandbox) Eventually(what string, check func() error) {
	s.T.Helper()
	deadline := time.Now().Add(Patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.T.Fatalf("%s: %v", what, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Watch is a WatchFiles call.
type Watch struct {
	s      *Sandbox
	stream *frame.Stream
	Seen   []*filev1.FileEvent
}

// Watches begins a watch and waits until it is ready.
func (s *Sandbox) Watches(request *filev1.WatchFilesRequest) *Watch {
	s.T.Helper()
	w, err := s.TriesToWatch(request)
	if err != nil {
		s.T.Fatalf("watching %s: %v", request.Path, err)
	}
	return w
}

// TriesToWatch is Watches for what may fail.
func (s *Sandbox) TriesToWatch(request *filev1.WatchFilesRequest) (*Watch, error) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*Patience)
	s.T.Cleanup(cancel)
	stream, err := s.Session.Open(ctx, agentrpc.WatchFiles)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	event := &filev1.FileEvent{}
	if err := stream.Receive(event); err != nil {
		return nil, err
	}
	if event.Type != filev1.FileEventType_FILE_EVENT_TYPE_READY {
		return nil, fmt.Errorf("first event: %v", event)
	}
	return &Watch{s: s, stream: stream}, nil
}

// Next is the next event.
func (w *Watch) Next() (*filev1.FileEvent, error) {
	event := &filev1.FileEvent{}
	if err := w.stream.Receive(event); err != nil {
		return nil, err
	}
	w.Seen = append(w.Seen, event)
	return event, nil
}

// Until waits for an event of a type and name.
func (w *Watch) Until(kind filev1.FileEventType, name string) *filev1.FileEvent {
	w.s.T.Helper()
	for {
		event, err := w.Next()
		if err != nil {
			w.s.T.Fatalf("waiting for %v of %q: %v; seen: %v", kind, name, err, w.Seen)
		}
		if event.Type == kind && event.Name == name {
			return event
		}
	}
}

// End ends the watch.
func (w *Watch) End() { w.stream.Cancel() }

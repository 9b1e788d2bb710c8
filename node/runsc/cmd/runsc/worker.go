package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"

	"github.com/google/subcommands"

	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/sandbox"
)

// worker does what runsc is otherwise executed for, on sandboxes that are there
// already, for one caller and without a process start (7 of 10 to 25 ms) each time.
//
// The caller has the other end of the socket that is file 3, and the worker ends
// with it. Both send messages of a length, four bytes in big-endian order, and as
// much JSON: requests one way, a reply to each the other, as they are done.
//
//	{"id": 7, "operation": "restore", "container": "box-…", "image": "/folder"}
//	{"id": 7, "error": "…"}
//
// A build tells by its file WORKER that it has this command, and which version of
// the protocol it speaks: engines talk to builds older than themselves.
type worker struct {
	util.InternalSubCommand
	conf *config.Config
}

// maxRequest bounds a message; requests hold little but two paths.
const maxRequest = 64 << 10

// gcPercent keeps a process small that has little to do.
const gcPercent = 25

type request struct {
	ID        uint64 `json:"id"`
	Operation string `json:"operation"`
	Container string `json:"container"`
	// Image is a folder.
	Image string `json:"image"`
}

type reply struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
}

func (*worker) Name() string           { return "worker" }
func (*worker) Synopsis() string       { return "serve one caller over file 3" }
func (*worker) Usage() string          { return "worker\n" }
func (*worker) SetFlags(*flag.FlagSet) {}

func (w *worker) Execute(_ context.Context, _ *flag.FlagSet, args ...any) subcommands.ExitStatus {
	debug.SetGCPercent(gcPercent)
	w.conf = args[0].(*config.Config)
	file := os.NewFile(3, "caller")
	caller, err := net.FileConn(file)
	if err != nil {
		return util.Errorf("file 3: %v", err)
	}
	file.Close()
	if err := w.serve(caller); err != nil {
		return util.Errorf("serving: %v", err)
	}
	return subcommands.ExitSuccess
}

// serve returns when the caller is gone. What is under way then ends with the process.
func (w *worker) serve(caller net.Conn) error {
	var writing sync.Mutex
	for {
		var q request
		if err := receive(caller, &q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		go func() {
			r := reply{ID: q.ID}
			if err := w.do(q); err != nil {
				r.Error = err.Error()
			}
			writing.Lock()
			defer writing.Unlock()
			if err := send(caller, r); err != nil {
				// Nobody waits for anything any more.
				os.Exit(1)
			}
		}()
	}
}

func receive(r io.Reader, message any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxRequest {
		return fmt.Errorf("a message of %d bytes (expected: at most %d)", n, maxRequest)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("a message broke off: %w", err)
	}
	return json.Unmarshal(text, message)
}

func send(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func (w *worker) do(q request) error {
	// Exact: else runsc takes the beginning of an id for the id.
	id := container.FullID{SandboxID: q.Container, ContainerID: q.Container}
	c, err := container.Load(w.conf.RootDir, id, container.LoadOpts{Exact: true})
	if errors.Is(err, os.ErrNotExist) && q.Operation == "delete" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("loading container: %w", err)
	}
	switch q.Operation {
	case "start":
		return c.Start(w.conf)
	case "restore":
		return c.Restore(w.conf, q.Image, false /* direct */, false /* background */, nil)
	case "pause":
		return c.Pause()
	case "resume":
		return c.Resume()
	case "checkpoint":
		return c.Checkpoint(w.conf, q.Image, sandbox.CheckpointOpts{Compression: statefile.CompressionLevelNone, Resume: true})
	case "fscheckpoint":
		return c.FSSave(w.conf, q.Image, sandbox.FSSaveOpts{Paths: []checkpoint.ResourceID{{Path: "/"}}})
	case "delete":
		return c.Destroy()
	}
	return fmt.Errorf("operation %q", q.Operation)
}

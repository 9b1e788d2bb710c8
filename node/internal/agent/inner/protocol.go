// Package inner is PID 1 of the namespaces in which everything of the user lives: it starts processes on the agent's behalf, reaps
// every orphan, ends whole trees and guards the memory. The agent, outside, is not visible from in there.
package inner

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// ControlFd is where the init finds its end of the socket pair.
const ControlFd = 3

// ContextVariable marks, in the environment, which context a process belongs to. It finds daemons that have left their parents.
const ContextVariable = "ATOLL_CONTEXT_ID"

// ProcessVariable marks a process that was started by itself, not by a context, and all that descends from it.
const ProcessVariable = "ATOLL_PROCESS_ID"

// ProcessOwner is what a process of ours is called beside the contexts, wherever it is said to whom a process belongs.
const ProcessOwner = "process/"

// KernelPart marks, in the environment, a child of a kernel that is part of it (the shell of the bash kernel) and not of a cell.
const KernelPart = "ATOLL_KERNEL_PART"

const maxMessageBytes = 32 << 20

// Request is one message from the agent. Exactly one of the pointers is set; requests with an ID are answered.
type Request struct {
	ID      uint64   `json:",omitempty"`
	Spawn   *Spawn   `json:",omitempty"`
	Signal  *Signal  `json:",omitempty"`
	Kill    *Kill    `json:",omitempty"`
	Deliver *Deliver `json:",omitempty"`
	List    bool     `json:",omitempty"`
	// Look tells of one process as List does, of its time and state alone.
	Look   int     `json:",omitempty"`
	Limits *Limits `json:",omitempty"`
	Guard  *Guard  `json:",omitempty"`
	Mounts *Mounts `json:",omitempty"`
	Ping   bool    `json:",omitempty"`
}

// Spawn starts a process in a session of its own. Its file descriptors travel beside it and become 0, 1, 2, …
type Spawn struct {
	Argv   []string
	Env    []string
	Cwd    string
	Uid    uint32
	Gid    uint32
	Groups []uint32
	// Its input becomes its controlling terminal.
	Terminal bool `json:",omitempty"`
}

// Signal interrupts a cell: the kernel first, then what the cell started in the kernel's session.
type Signal struct {
	Root int
	// Processes that started before are left alone.
	SinceTicks uint64
	Number     int
	// Leave the kernel itself out.
	OnlyChildren bool
}

// Kill ends processes for good and answers when none is left.
type Kill struct {
	// Kernel whose tree is meant, and its context.
	Root    int
	Context string
	// Leave the kernel itself, and whatever started before SinceTicks, alive.
	KeepRoot   bool
	SinceTicks uint64
	// Contexts that live on. When there are none, whatever cannot be told apart is taken to belong to this context.
	OtherRoots    []int
	OtherContexts []string
}

// Limits hold for the init itself, for everything that runs and for what is started from then on.
type Limits struct {
	Processes uint64
	OpenFiles uint64
}

// Guard sets how the memory is watched.
type Guard struct {
	Busy bool
	// Advertised limit, for the report. 0: MemTotal.
	LimitBytes uint64
}

// Event is one message from the init.
type Event struct {
	// Of the request that this answers.
	ID    uint64 `json:",omitempty"`
	Error string `json:",omitempty"`
	// Set with Error when it came from a system call.
	Errno  int     `json:",omitempty"`
	Pid    int     `json:",omitempty"`
	Killed int     `json:",omitempty"`
	Exit   *Exit   `json:",omitempty"`
	Victim *Victim `json:",omitempty"`
	Guests []Guest `json:",omitempty"`
	// The init is ready.
	Ready bool `json:",omitempty"`
}

// Exit says that a process that the agent had started has ended.
type Exit struct {
	Pid    int
	Status uint32
}

// Victim is a process that the memory guard has ended.
type Victim struct {
	Pid     int
	Command string
	// The process that the agent started from which this one descends; 0 if none is known.
	Root           int
	Context        string
	RSSBytes       uint64
	LimitBytes     uint64
	AvailableBytes uint64
	PeakBytes      uint64
	// How many were ended; more than one where a crowd of small ones had used the memory up.
	Processes int
}

// WaitStatus is the exit status in the system's own form.
func (e *Exit) WaitStatus() syscall.WaitStatus { return syscall.WaitStatus(e.Status) }

// Encode lays a message out for the socket.
func Encode(v any) (header [4]byte, body []byte, err error) {
	body, err = json.Marshal(v)
	if err != nil {
		return header, nil, err
	}
	if len(body) > maxMessageBytes {
		return header, nil, fmt.Errorf("inner: message of %d bytes (expected: at most %d)", len(body), maxMessageBytes)
	}
	binary.LittleEndian.PutUint32(header[:], uint32(len(body)))
	return header, body, nil
}

// ReadEvent reads one message that carries no descriptors.
func ReadEvent(r io.Reader, event *Event) error {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return err
	}
	body, err := readBody(r, header)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, event)
}

func readBody(r io.Reader, header [4]byte) ([]byte, error) {
	size := binary.LittleEndian.Uint32(header[:])
	if size > maxMessageBytes {
		return nil, fmt.Errorf("inner: message of %d bytes (expected: at most %d)", size, maxMessageBytes)
	}
	body := make([]byte, size)
	_, err := io.ReadFull(r, body)
	return body, err
}

// socket is the init's blocking end.
type socket int

func (s socket) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

// receive reads a request and the descriptors that came with its first byte.
func (s socket) receive(request *Request) ([]int, error) {
	var header [4]byte
	control := make([]byte, unix.CmsgSpace(16*4))
	var fds []int
	for got := 0; got < len(header); {
		n, controlSize, _, _, err := unix.Recvmsg(int(s), header[got:], control, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fds, err
		}
		if n == 0 {
			return fds, io.EOF
		}
		got += n
		if controlSize > 0 {
			messages, err := unix.ParseSocketControlMessage(control[:controlSize])
			if err != nil {
				return fds, err
			}
			for i := range messages {
				more, err := unix.ParseUnixRights(&messages[i])
				if err != nil {
					return fds, err
				}
				fds = append(fds, more...)
			}
		}
	}
	body, err := readBody(s, header)
	if err != nil {
		return fds, err
	}
	return fds, json.Unmarshal(body, request)
}

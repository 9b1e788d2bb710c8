package main

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Where programs do not come by chance.
	firstDescriptor = 203
	// A line to the agent is at most 16 MiB.
	maxLineBytes = 16 << 20
	// A text in a result or an error.
	maxTextBytes = 1 << 20
)

// channel is the way to the agent.
type channel struct {
	commands *os.File
	acks     *os.File

	mu     sync.Mutex
	events *os.File // guarded by mu
}

// openChannel moves the three descriptors to high numbers, where child processes do not inherit them.
func openChannel() (*channel, error) {
	var moved [3]*os.File
	for i, name := range []string{"commands", "events", "acks"} {
		fd, err := unix.FcntlInt(uintptr(3+i), unix.F_DUPFD_CLOEXEC, firstDescriptor+i)
		if err != nil {
			// A low limit on open files: then where they are, but not for children.
			if fd, err = unix.FcntlInt(uintptr(3+i), unix.F_DUPFD_CLOEXEC, 6); err != nil {
				return nil, err
			}
		}
		moved[i] = os.NewFile(uintptr(fd), name)
	}
	for fd := 3; fd <= 5; fd++ {
		_ = unix.Close(fd)
	}
	raisePoller()
	return &channel{commands: moved[0], events: moved[1], acks: moved[2]}, nil
}

// raisePoller has Go's runtime open what it waits for files with, which it does with the first pipe, above what programs close by chance.
func raisePoller() {
	var low []int
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		low = append(low, fd)
		if fd >= firstDescriptor-8 {
			break
		}
	}
	if reader, writer, err := os.Pipe(); err == nil {
		_ = reader.SetReadDeadline(time.Time{})
		_ = reader.Close()
		_ = writer.Close()
	}
	for _, fd := range low {
		_ = unix.Close(fd)
	}
}

// send writes one event. Nobody reads when the agent has gone, and then the process ends too.
func (c *channel) send(event map[string]any) {
	line := encode(event)
	if len(line) > maxLineBytes {
		line = encode(shortened(event, len(line)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.events.Write(line); err != nil {
		os.Exit(1)
	}
}

func encode(event map[string]any) []byte {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(event); err != nil {
		// What a program shows as JSON is checked before; this is for what nobody thought of.
		return []byte(`{"event":"late","stream":"stderr","text":"the kernel could not say something: ` + "it is no JSON" + `"}` + "\n")
	}
	return line.Bytes()
}

// shortened leaves out the representations of a value, of which one alone is too long for a line.
func shortened(event map[string]any, size int) map[string]any {
	short := map[string]any{}
	for name, value := range event {
		short[name] = value
	}
	short["truncated"] = size
	if _, ok := event["data"]; ok {
		short["data"] = map[string]any{"text/plain": "(a value too large to show)"}
	}
	return short
}

// flush returns once the agent has taken all that is in the pipes of stdout and stderr.
func (c *channel) flush() {
	c.send(map[string]any{"event": "flush"})
	var one [1]byte
	if _, err := c.acks.Read(one[:]); err != nil {
		os.Exit(1)
	}
}

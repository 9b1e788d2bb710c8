// Command atoll-go-kernel is the Go kernel: a persistent interpreter of Go, one process per context. It speaks the protocol of
// proto/kernel.md over the descriptors 3, 4 and 5.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// What an idle kernel keeps is mostly the interpreter's tables; a low target for the collector keeps what it leaves lying small.
const gcPercent = 50

// signalDelay is how long a signal may take from the system to the kernel's loop.
const signalDelay = 20 * time.Millisecond

type command struct {
	Op     string            `json:"op"`
	ID     string            `json:"id"`
	Code   string            `json:"code"`
	Silent bool              `json:"silent"`
	Env    map[string]string `json:"env"`
	Unset  []string          `json:"unset"`
	Cwd    string            `json:"cwd"`
	Seed   string            `json:"seed"`
}

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	channel, err := openChannel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "the kernel has no descriptors 3, 4 and 5: %v\n", err)
		os.Exit(2)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT)

	k, err := newKernel(channel)
	if err != nil {
		fmt.Fprintf(os.Stderr, "the interpreter cannot start: %v\n", err)
		os.Exit(2)
	}
	commands := make(chan *command)
	go read(channel, commands)
	k.warm()
	channel.send(map[string]any{"event": "ready", "language": "go", "version": runtime.Version()[len("go"):], "pid": os.Getpid()})
	serve(k, commands, signals)
}

// read ends the process at the end of the commands: the agent has gone, or wants it to.
func read(channel *channel, commands chan<- *command) {
	lines := bufio.NewReaderSize(channel.commands, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		c := &command{}
		if err := json.Unmarshal(line, c); err != nil {
			continue
		}
		if c.Op == "shutdown" {
			os.Exit(0)
		}
		commands <- c
	}
}

// serve is the kernel's only decider: it starts cells, interrupts the running one, and tells their ends.
func serve(k *kernel, commands <-chan *command, signals <-chan os.Signal) {
	var waiting []*command
	for {
		var ended <-chan outcome
		if k.cell != nil {
			ended = k.cell.ended
		} else if len(waiting) > 0 {
			next := waiting[0]
			waiting = waiting[1:]
			k.obey(next)
			continue
		}
		select {
		case c := <-commands:
			switch {
			case c.Op == "interrupt":
				if k.cell != nil && k.cell.id == c.ID {
					k.cell.interrupt()
				}
			case k.cell != nil:
				waiting = append(waiting, c)
			default:
				k.obey(c)
			}
		case <-signals:
			// One that was sent between two cells may come a little late; an agent that wants this cell to end sends more of them.
			if k.cell != nil && time.Since(k.cell.begun) > signalDelay {
				k.cell.interrupt()
			}
		case o := <-ended:
			k.finish(o)
		}
	}
}

func (k *kernel) obey(c *command) {
	switch c.Op {
	case "execute":
		k.execute(c)
	case "configure":
		k.configure(c)
	}
}

func (k *kernel) configure(c *command) {
	event := map[string]any{"event": "configured", "id": c.ID}
	for name, value := range c.Env {
		_ = os.Setenv(name, value)
	}
	for _, name := range c.Unset {
		_ = os.Unsetenv(name)
	}
	k.random.reseed(c.Seed)
	if c.Cwd != "" {
		if err := os.Chdir(c.Cwd); err != nil {
			var path *os.PathError
			message := err.Error()
			if errors.As(err, &path) {
				message = path.Err.Error()
			}
			event["error"] = map[string]string{"name": "ChdirError", "message": c.Cwd + ": " + message}
		}
	}
	k.channel.send(event)
}

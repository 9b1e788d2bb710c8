// Command atoll-agent is PID 1 of every sandbox. `atoll-agent` speaks the frame layer on its stdin and stdout and logs to stderr;
// `atoll-agent init` is PID 1 of the namespaces inside, and `atoll-agent kernel bash` the kernel for bash: all one file, so that any
// image can run it, with or without a C library.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"atoll/node/internal/agent"
	"atoll/node/internal/agent/bashkernel"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/driver"
	"atoll/node/internal/frame"
)

const keyVariable = "ATOLL_FRAME_KEY"

// The init starts processes from the main thread, whose capability bounding set they inherit.
func init() { runtime.LockOSThread() }

func main() {
	log.SetFlags(log.LUTC | log.Ldate | log.Lmicroseconds)
	log.SetPrefix("atoll-agent: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "init":
		return inner.Main(args[1:])
	case len(args) == 2 && args[0] == "kernel" && args[1] == "bash":
		return bashkernel.Main()
	}
	runtime.UnlockOSThread()
	flags := flag.NewFlagSet("atoll-agent", flag.ContinueOnError)
	var place agent.Place
	flags.StringVar(&place.Memory, "memory", "/proc/meminfo", "what the memory guard reads: a file like /proc/meminfo, or the folder of a control group")
	flags.BoolVar(&place.SharedKernel, "shared-kernel", false, "the kernel is the host's: keep from what runs here what reaches beyond the container")
	streams := flags.String("streams", "", "folder with the FIFOs stdin and stdout and the file stderr.log, in the place of the standard streams")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown arguments %q", flags.Args())
	}
	if *streams != "" {
		if err := takeStreams(*streams); err != nil {
			return err
		}
		place.Hidden = *streams
	}
	return serve(place)
}

// takeStreams makes the files of a folder the standard streams. FIFOs are opened for both directions, so that neither ends when the other
// side goes.
func takeStreams(folder string) error {
	for fd, file := range []struct {
		name  string
		flags int
	}{{driver.StdinName, unix.O_RDWR}, {driver.StdoutName, unix.O_RDWR}, {driver.StderrName, unix.O_WRONLY | unix.O_APPEND}} {
		opened, err := unix.Open(filepath.Join(folder, file.name), file.flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
		if err := errors.Join(unix.Dup3(opened, fd, 0), unix.Close(opened)); err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
	}
	return nil
}

func serve(place agent.Place) error {
	// Little lives in this heap for long; a small one matters in every sandbox.
	debug.SetGCPercent(50)
	// What the agent does per execution is short. A second thread that is woken to help costs more in gVisor than it brings.
	runtime.GOMAXPROCS(1)
	key, err := takeKey()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	stdin, err := transport(0, "stdin")
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(stdin), "stdin")
	stdout, err := transport(1, "stdout")
	if err != nil {
		return err
	}
	out, err := frame.NewOutlet(stdout, "stdout")
	if err != nil {
		return err
	}
	a := agent.New(place)
	defer a.Close()
	err = frame.Serve(context.Background(), in, out, frame.GuestOptions{
		Key: key, MaxMessage: agent.MaxMessage, Handler: a.Serve, InOrder: agent.InOrder, OnReset: a.Reset,
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// takeKey reads the key that authenticates the engine and removes it from the environment.
func takeKey() (key [32]byte, err error) {
	text, ok := os.LookupEnv(keyVariable)
	if err := os.Unsetenv(keyVariable); err != nil {
		return key, err
	}
	if n, err := hex.Decode(key[:], []byte(text)); !ok || err != nil || n != len(key) || len(text) != 2*len(key) {
		return key, errors.New(keyVariable + " is not 64 hexadecimal digits")
	}
	return key, nil
}

// transport moves one end of the transport off the standard descriptors, which then lead nowhere: nothing that the agent starts
// can come to share it.
func transport(fd int, name string) (moved int, err error) {
	moved, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", os.DevNull, err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, fd, 0); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if err := syscall.SetNonblock(moved, true); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return moved, nil
}

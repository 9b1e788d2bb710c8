package frame

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// childMain is the other process of the tests over real FIFOs.
func childMain(mode string) {
	switch mode {
	case "guest":
		err := Serve(context.Background(), os.Stdin, os.Stdout, GuestOptions{Key: testKey, Handler: childHandler})
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	case "host":
		epoch, _ := strconv.ParseUint(os.Getenv("FRAME_TEST_EPOCH"), 10, 64)
		err := childHost(os.Getenv("FRAME_TEST_IN"), os.Getenv("FRAME_TEST_OUT"), epoch)
		fmt.Println("host:", err)
		os.Exit(1)
	}
}

func childHandler(st *Stream) {
	switch st.Method() {
	case "echo":
		echo(st)
	case "call":
		m := value(nil)
		if err := st.Receive(m); err != nil {
			st.End(err)
			return
		}
		_ = st.Reply(m)
	case "flood":
		m := value(pattern(64<<10-8, 1))
		for st.Send(m) == nil {
		}
	case "sink":
		m := value(nil)
		for st.Receive(m) == nil {
		}
		_ = st.Reply(value(nil))
	}
}

// childHost floods both pipes until it is killed, and says so for each message.
func childHost(in, out string, epoch uint64) error {
	r, err := OpenFIFO(out)
	if err != nil {
		return err
	}
	w, err := OpenFIFO(in)
	if err != nil {
		return err
	}
	s, err := Connect(context.Background(), r, w, HostOptions{Epoch: epoch, Key: testKey})
	if err != nil {
		return err
	}
	for i := range 4 {
		st, err := s.Open(context.Background(), "echo")
		if err != nil {
			return err
		}
		go func() {
			m := value(append(pattern(i*30000, 1), trapBytes...))
			for st.Send(m) == nil {
			}
		}()
		go func() {
			for st.Receive(value(nil)) == nil {
				fmt.Println("received")
			}
		}()
	}
	<-s.Done()
	return s.Err()
}

func command(t testing.TB, mode string, environment ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), append(environment, "FRAME_TEST_CHILD="+mode)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// startGuest runs a guest on the FIFOs, as blocking files 0 and 1 that are open in both directions.
func startGuest(t testing.TB, in, out string) {
	t.Helper()
	cmd := command(t, "guest")
	files := make([]*os.File, 2)
	for i, path := range []string{in, out} {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = os.NewFile(uintptr(fd), path)
		defer files[i].Close()
	}
	cmd.Stdin, cmd.Stdout = files[0], files[1]
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func TestHostProcessKilledWhileItWritesIsReplaced(t *testing.T) {
	checkGoroutines(t)
	in, out := newFIFOs(t)
	startGuest(t, in, out)
	for round := range 20 {
		cmd := command(t, "host", "FRAME_TEST_IN="+in, "FRAME_TEST_OUT="+out, "FRAME_TEST_EPOCH="+strconv.Itoa(2*round+1))
		printed, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(printed)
		for range 1 + 7*round {
			if !lines.Scan() || lines.Text() != "received" {
				t.Fatalf("round %d: the host said %q", round, lines.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		s := connect(t, openFIFO(t, out), openFIFO(t, in), uint64(2*round+2))
		for size := 0; size < 200000; size += 33333 {
			content := pattern(size, byte(round))
			reply := value(nil)
			if err := Call(within(t), s, "call", value(content), reply); err != nil || string(reply.Value) != string(content) {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		_ = s.Close()
	}
}

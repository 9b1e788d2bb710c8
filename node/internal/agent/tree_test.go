package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
)

// treeWithoutInit is a tree whose init's side of the conversation is the test's.
func treeWithoutInit(t *testing.T, onVictim func(*inner.Victim)) (*tree, *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	one := &tree{
		process:  exec.Command("sleep", "3600"),
		control:  os.NewFile(uintptr(pair[0]), "agent"),
		waiting:  map[uint64]chan *inner.Event{},
		exits:    map[int]chan<- syscall.WaitStatus{},
		early:    map[int]syscall.WaitStatus{},
		dead:     make(chan struct{}),
		onVictim: onVictim,
	}
	one.events = bufio.NewReader(one.control)
	if err := one.process.Start(); err != nil {
		t.Fatal(err)
	}
	init := os.NewFile(uintptr(pair[1]), "init")
	t.Cleanup(func() { _ = init.Close() })
	return one, init
}

func TestTree_call_to_a_dying_tree_ends_when_that_is_dead(t *testing.T) {
	one, init := treeWithoutInit(t, nil)
	_ = init.Close()
	// As when the process is slow to be gone: its end is noticed some time after its socket has closed.
	go func() {
		time.Sleep(50 * time.Millisecond)
		one.read()
	}()
	_, err := one.call(context.Background(), &inner.Request{List: true})
	if !errors.Is(err, errTreeDied) || !one.isDead() {
		t.Fatalf("%v, dead: %v", err, one.isDead())
	}
}

func TestTree_takes_limits_while_it_tells_of_a_victim(t *testing.T) {
	a := New(inner.Place{})
	a.hello = &agentv1.HelloRequest{Limits: &execv1.Limits{MemoryBytes: 1 << 30, MaxProcesses: 7}}
	one, init := treeWithoutInit(t, a.memoryGuard)
	go one.read()
	defer func() {
		_ = init.Close()
		<-one.dead
	}()
	a.tree = one
	told := make(chan uint64, 1)
	go func() {
		var header [4]byte
		if _, err := io.ReadFull(init, header[:]); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(header[:]))
		var request inner.Request
		if _, err := io.ReadFull(init, body); err != nil || json.Unmarshal(body, &request) != nil {
			return
		}
		told <- request.Limits.Processes
		for _, event := range []*inner.Event{{Victim: &inner.Victim{Pid: 2, Command: "greedy"}}, {ID: request.ID}} {
			header, body, err := inner.Encode(event)
			if err == nil {
				_, err = init.Write(append(header[:], body...))
			}
			if err != nil {
				return
			}
		}
	}()
	done := make(chan error, 1)
	go func() {
		a.treeMu.Lock()
		defer a.treeMu.Unlock()
		done <- a.limitAnew(&agentv1.HelloRequest{})
	}()
	select {
	case err := <-done:
		if processes := <-told; err != nil || processes != 7 {
			t.Fatalf("%v, %d processes", err, processes)
		}
	case <-time.After(time.Minute):
		t.Fatal("each waits for the other")
	}
}

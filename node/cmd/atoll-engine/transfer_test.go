package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/engine/enginetest"
)

// Twenty terminals, an upload and a download, while the engine is killed twice: the terminals go on and lose no byte.
func TestTerminalsGoOnWhileTheEngineIsKilledAndTransfersFailCleanly(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	const terminals, lines = 20, 40
	// Each counts as long as the file is there, so that it is in the middle whenever the engine dies, however slow the machine is.
	writeFile(t, e, box.Box, "/tmp/go-on", nil)
	var ids []string
	for range terminals {
		spec := &execv1.ProcessSpec{
			ProcessId: enginetest.NewID("proc"), Terminal: &execv1.TerminalSize{Columns: 80, Rows: 24},
			Argv: []string{"bash", "-c", fmt.Sprintf("i=0; while [[ -e /tmp/go-on || $i -lt %d ]]; do echo line $i; i=$((i+1)); sleep 0.2; done; read -r answer; echo \"$i lines, $answer\"", lines)},
		}
		startProcess(t, e, box.Box, spec)
		ids = append(ids, spec.GetProcessId())
	}
	for round := range 2 {
		transfers := []chan error{make(chan error, 1), make(chan error, 1)}
		begun := make(chan struct{}, 2)
		go func() { transfers[0] <- uploadForever(t.Context(), e, box.Box, begun) }()
		go func() { transfers[1] <- downloadForever(t.Context(), e, box.Box, begun) }()
		<-begun
		<-begun
		if got := partOf(t, e, box.Box, ids[round], 5); len(got) < 5 {
			t.Fatalf("%q", got)
		}
		e.Kill()
		for _, transfer := range transfers {
			if err := <-transfer; status.Code(err) != codes.Unavailable {
				t.Errorf("a transfer ended with %v (expected: unavailable)", err)
			}
		}
		e.Launch()
		// At once: the engine waits for the box itself.
		list, err := e.ListProcesses(t.Context(), &enginev1.ListProcessesRequest{BoxId: box.Box})
		if err != nil || len(list.GetProcesses()) != terminals {
			t.Fatalf("%d processes, %v (expected: %d)", len(list.GetProcesses()), err, terminals)
		}
		for _, p := range list.GetProcesses() {
			if !p.GetProcess().GetRunning() || p.GetProcess().GetPid() == 0 || p.GetProcess().GetSpec().GetTerminal().GetColumns() != 80 {
				t.Fatalf("%v (expected: running, with all that is known of it)", p)
			}
		}
	}
	removeFile(t, e, box.Box, "/tmp/go-on")
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() {
			if _, err := e.WriteInput(t.Context(), &enginev1.WriteInputRequest{BoxId: box.Box, Input: &execv1.WriteInputRequest{ProcessId: id, Data: []byte("well\n")}}); err != nil {
				t.Error(err)
			}
			waitProcess(t, e, box.Box, id)
			got := strings.ReplaceAll(outputOf(t, e, box.Box, id, execv1.Stream_STREAM_STDOUT, 0), "\r\n", "\n")
			// What was typed is echoed somewhere in between.
			got = strings.Replace(got, "well\n", "", 1)
			var want strings.Builder
			n := strings.Count(got, "line ")
			for i := range n {
				fmt.Fprintf(&want, "line %d\n", i)
			}
			fmt.Fprintf(&want, "%d lines, well\n", n)
			if got != want.String() || n < lines {
				t.Errorf("%d lines; output ends with %q", n, got[max(0, len(got)-200):])
			}
		})
	}
	group.Wait()
	// What an upload that was cut off had written is gone.
	if left := box.Run(t.Context(), "import os; print([n for n in os.listdir('/tmp') if n not in ('source',)])"); strings.Contains(string(left.Stdout), "target") {
		t.Errorf("left in /tmp: %s", left.Stdout)
	}
	ids = append(ids, "proc-none")
	if _, err := e.ForgetExecutions(t.Context(), &enginev1.ForgetExecutionsRequest{ExecutionIds: ids, KeepSpool: true}); err != nil {
		t.Fatal(err)
	}
	if list, err := e.ListProcesses(t.Context(), &enginev1.ListProcessesRequest{}); err != nil || len(list.GetProcesses()) != 0 {
		t.Fatalf("%v, %v (expected: none that is not on record)", list, err)
	}
}

func uploadOpen(box string, open *filev1.WriteFileOpen) *enginev1.WriteFileCall {
	return &enginev1.WriteFileCall{BoxId: box, Request: &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: open}}}
}

func uploadData(data []byte) *enginev1.WriteFileCall {
	return &enginev1.WriteFileCall{Request: &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: data}}}
}

func uploadForever(ctx context.Context, e *enginetest.Engine, box string, begun chan<- struct{}) error {
	stream, err := e.WriteFile(ctx)
	if err == nil {
		err = stream.Send(uploadOpen(box, &filev1.WriteFileOpen{Path: "/tmp/target"}))
	}
	for n := 0; err == nil; n++ {
		if n == 10 {
			begun <- struct{}{}
		}
		err = stream.Send(uploadData(make([]byte, 1000)))
		<-time.After(time.Millisecond)
	}
	if errors.Is(err, io.EOF) {
		_, err = stream.CloseAndRecv()
	}
	return err
}

func downloadForever(ctx context.Context, e *enginetest.Engine, box string, begun chan<- struct{}) error {
	if err := upload(ctx, e, box, &filev1.WriteFileOpen{Path: "/tmp/source"}, make([]byte, 64<<20)); err != nil {
		return err
	}
	stream, err := e.ReadFile(ctx, &enginev1.ReadFileCall{BoxId: box, Request: &filev1.ReadFileRequest{Path: "/tmp/source"}})
	for n := 0; err == nil; n++ {
		if n == 3 {
			begun <- struct{}{}
		}
		_, err = stream.Recv()
		<-time.After(20 * time.Millisecond)
	}
	return err
}

// upload writes a file of any size.
func upload(ctx context.Context, e *enginetest.Engine, box string, open *filev1.WriteFileOpen, content []byte) error {
	stream, err := e.WriteFile(ctx)
	if err == nil {
		err = stream.Send(uploadOpen(box, open))
	}
	for len(content) > 0 && err == nil {
		n := min(len(content), 256<<10)
		err = stream.Send(uploadData(content[:n]))
		content = content[n:]
	}
	if err == nil {
		err = stream.Send(&enginev1.WriteFileCall{Request: &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Commit_{Commit: &filev1.WriteFileRequest_Commit{}}}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = stream.CloseAndRecv()
	return err
}

func writeFile(t testing.TB, e *enginetest.Engine, box, path string, content []byte) {
	t.Helper()
	if err := upload(t.Context(), e, box, &filev1.WriteFileOpen{Path: path}, content); err != nil {
		t.Fatal(err)
	}
}

func removeFile(t testing.TB, e *enginetest.Engine, box, path string) {
	t.Helper()
	if _, err := e.File(t.Context(), &enginev1.FileCall{BoxId: box, Request: &filev1.FileRequest{Operation: &filev1.FileRequest_Remove{Remove: &filev1.Remove{Path: path}}}}); err != nil {
		t.Fatal(err)
	}
}

// download reads a file and passes on its pieces.
func download(ctx context.Context, e *enginetest.Engine, box, path string, take func([]byte)) error {
	stream, err := e.ReadFile(ctx, &enginev1.ReadFileCall{BoxId: box, Request: &filev1.ReadFileRequest{Path: path}})
	for err == nil {
		var piece *filev1.FilePiece
		if piece, err = stream.Recv(); err == nil {
			take(piece.GetData())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func TestFilesOfAnySizeGoUpAndDownInFlatMemory(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	content := make([]byte, 48<<20)
	random := rand.NewChaCha8([32]byte{4})
	_, _ = random.Read(content)
	var first uint64
	// The large one twice: what the engine needs for it must not grow.
	for _, size := range []int{0, 1, 65_536, 1<<20 + 1, len(content), len(content)} {
		writeFile(t, e, box.Box, "/tmp/file", content[:size])
		var back bytes.Buffer
		if err := download(t.Context(), e, box.Box, "/tmp/file", func(b []byte) { back.Write(b) }); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.Bytes(), content[:size]) {
			t.Fatalf("%d bytes came back differently (%d)", size, back.Len())
		}
		used := residentBytes(t, e.Pid())
		if first == 0 {
			first = used
		}
		if used > first+uint64(len(content)) {
			t.Errorf("the engine has grown from %d to %d MiB with transfers of %d", first>>20, used>>20, len(content)>>20)
		}
	}
	err := download(t.Context(), e, box.Box, "/tmp/none", func([]byte) {})
	wantCode(t, err, codes.NotFound)
	err = upload(t.Context(), e, box.Box, &filev1.WriteFileOpen{Path: "/proc/none/file"}, content[:1<<20])
	if status.Code(err) == codes.OK {
		t.Error("a file was written in /proc")
	}
}

func TestWatcherSeesAFileComeAndGoUntilItLeaves(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := e.WatchFiles(ctx, &enginev1.WatchFilesCall{BoxId: box.Box, Request: &filev1.WatchFilesRequest{Path: "/tmp"}})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want filev1.FileEventType) {
		t.Helper()
		for {
			event, err := watch.Recv()
			if err != nil {
				t.Fatalf("%v (expected: %v)", err, want)
			}
			if event.GetType() == want && (event.GetName() == "seen" || event.GetName() == "") {
				return
			}
		}
	}
	next(filev1.FileEventType_FILE_EVENT_TYPE_READY)
	box.Run(t.Context(), "open('/tmp/seen', 'w').close()")
	next(filev1.FileEventType_FILE_EVENT_TYPE_CREATE)
	removeFile(t, e, box.Box, "/tmp/seen")
	next(filev1.FileEventType_FILE_EVENT_TYPE_REMOVE)
	cancel()
	if _, err := watch.Recv(); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	wantOutput(t, box.Run(t.Context(), "print(1)"), "1\n")
}

func residentBytes(t *testing.T, pid int) (bytes uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * uint64(os.Getpagesize())
}

const echoServer = `
import socket, threading
s = socket.create_server(('127.0.0.1', 7007), backlog=100)
print('listening')
def serve(c):
    with c:
        data = b''
        while chunk := c.recv(65536):
            c.sendall(chunk)
        c.sendall(b'bye')
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

func tunnelMessage(box string, m *execv1.TunnelMessage) *enginev1.TunnelCall {
	return &enginev1.TunnelCall{BoxId: box, Message: m}
}

func openTunnel(ctx context.Context, e *enginetest.Engine, box string, port uint32) (grpc.BidiStreamingClient[enginev1.TunnelCall, execv1.TunnelMessage], error) {
	stream, err := e.Tunnel(ctx)
	if err == nil {
		err = stream.Send(tunnelMessage(box, &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Open{Open: &execv1.TunnelOpen{Port: port}}}))
	}
	if err != nil {
		return nil, err
	}
	m, err := stream.Recv()
	if err == nil && m.GetOpened() == nil {
		err = fmt.Errorf("%v (expected: opened)", m)
	}
	return stream, err
}

// echo sends bytes through a tunnel, half-closes, and returns all that comes back.
func echo(ctx context.Context, e *enginetest.Engine, box string, content []byte) ([]byte, error) {
	stream, err := openTunnel(ctx, e, box, 7007)
	if err != nil {
		return nil, err
	}
	go func() {
		for rest := content; len(rest) > 0; rest = rest[min(len(rest), 50_000):] {
			if stream.Send(tunnelMessage("", &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: rest[:min(len(rest), 50_000)]}})) != nil {
				return
			}
		}
		_ = stream.Send(tunnelMessage("", &execv1.TunnelMessage{Message: &execv1.TunnelMessage_End{End: &execv1.TunnelEnd{}}}))
	}()
	var back []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return back, nil
		}
		if err != nil {
			return back, err
		}
		back = append(back, m.GetData()...)
	}
}

func TestTunnelReachesAServerOfTheSandboxBothWays(t *testing.T) {
	e := start(t)
	box := e.Python(t.Context())
	server := python(echoServer)
	startProcess(t, e, box.Box, server)
	partOf(t, e, box.Box, server.GetProcessId(), len("listening\n"))
	ports, err := e.ListPorts(t.Context(), &enginev1.BoxRequest{BoxId: box.Box})
	if err != nil || len(ports.GetPorts()) != 1 || ports.GetPorts()[0].GetPort() != 7007 || ports.GetPorts()[0].GetProcessId() != server.GetProcessId() {
		t.Errorf("%v, %v (expected: port 7007 of the process)", ports, err)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if back, err := echo(t.Context(), e, box.Box, content); err != nil || !bytes.Equal(back, append(bytes.Clone(content), "bye"...)) {
		t.Fatalf("%d bytes came back, %v (expected: %d)", len(back), err, len(content)+3)
	}
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			for range 20 {
				if back, err := echo(t.Context(), e, box.Box, []byte("hello")); err != nil || string(back) != "hellobye" {
					t.Errorf("%q, %v", back, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := openTunnel(ctx, e, box.Box, 7007); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	group.Wait()
	_, err = openTunnel(t.Context(), e, box.Box, 7008)
	wantCode(t, err, codes.Unavailable)
	// Every connection of a caller that went is closed inside, too.
	enginetest.Await(t, 30*time.Second, func() (bool, string) {
		r := box.Run(t.Context(), "print(sum(1 for l in open('/proc/net/tcp') if l.split()[3] == '01'))")
		return string(r.Stdout) == "0\n", string(r.Stdout)
	})
}

//go:build gvisor

package agent_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agent/files/filestest"
	"atoll/node/internal/agentrpc"
)

func TestGvisor_files(t *testing.T) {
	filestest.Run(t, func(t *testing.T) *filestest.Sandbox { return newBox(t).sandbox() })
}

func TestGvisor_full_disk_is_said_and_leaves_nothing(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	s.Folder = "/small"
	if reply := s.Does("", &filev1.DiskUsage{Path: "/small"}); reply.DiskLimitBytes != 16<<20 {
		t.Errorf("%v", reply)
	}
	s.Puts(filestest.Someone, "/small/file", "old")
	_, err := s.Write(&filev1.WriteFileOpen{User: filestest.Someone, Path: "/small/file"}, strings.Repeat("x", 20<<20))
	s.Failed(codes.ResourceExhausted, err, "20 MiB on a disk of 16")
	u := s.Begin(&filev1.WriteFileOpen{User: filestest.Someone, Path: "/small/file", ExpectedBytes: 17 << 20})
	_, err = u.Answer()
	s.Failed(codes.ResourceExhausted, err, "17 MiB announced on a disk of 16")
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	w := tar.NewWriter(zip)
	for i := range 40 {
		_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("bomb%d", i), Size: 1 << 20, Mode: 0o644})
		_, _ = w.Write(make([]byte, 1<<20))
	}
	_ = w.Close()
	_ = zip.Close()
	_, err = s.Write(&filev1.WriteFileOpen{User: filestest.Someone, Path: "/small/bomb", Archive: filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR_GZIP}, bomb.String())
	s.Failed(codes.ResourceExhausted, err, "a bomb of 40 MiB on a disk of 16")
	s.Does(filestest.Someone, &filev1.Remove{Path: "/small/bomb", Recursive: true})
	if names := s.Names("", &filev1.List{Path: "/small", Hidden: true}); !slices.Equal(names, []string{"file"}) {
		t.Errorf("%q", names)
	}
	if text := s.Text(filestest.Someone, "/small/file"); text != "old" {
		t.Errorf("%d bytes", len(text))
	}
	if reply := s.Does("", &filev1.DiskUsage{Path: "/small"}); reply.DiskUsedBytes > 1<<20 {
		t.Errorf("%v", reply)
	}
}

func TestGvisor_files_are_served_while_programs_burn_all_processors(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	b.open("sh", "bash")
	b.exec("sh", "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done")
	slowest := time.Duration(0)
	for i := range 50 {
		began := time.Now()
		s.Puts("", s.Path("file"), fmt.Sprint(i))
		if text := s.Text("", s.Path("file")); text != fmt.Sprint(i) {
			t.Fatalf("%q", text)
		}
		s.Does("", &filev1.List{Path: s.Folder})
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("a write, a read and a listing took at most %s", slowest)
	b.exec("sh", "kill $(jobs -p)")
}

func TestGvisor_files_survive_a_user_that_kills_everything(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	b.open("sh", "bash")
	for range 3 {
		b.exec("sh", "kill -9 -1")
		s.Puts("", s.Path("file"), "x")
		if text := s.Text("", s.Path("file")); text != "x" {
			t.Fatalf("%q", text)
		}
	}
}

func TestGvisor_exhausted_descriptors_and_watches_of_a_program_concern_no_call(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	b.open("py", "python")
	b.exec("py", "import os, ctypes\nlibc = ctypes.CDLL(None)\nheld = []\n"+
		"while True:\n    fd = libc.inotify_init()\n    if fd < 0: break\n    libc.inotify_add_watch(fd, b'/tmp', 2)\n    held.append(fd)\nprint(len(held) > 100)").prints("True\n")
	w := s.Watches(&filev1.WatchFilesRequest{Path: s.Folder})
	defer w.End()
	s.Puts("", s.Path("file"), "x")
	w.Until(filev1.FileEventType_FILE_EVENT_TYPE_CREATE, "file")
}

func TestGvisor_twenty_thousand_small_files_go_in_and_out_with_flat_memory(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	// More would not fit: this box keeps its disk in its memory.
	const count = 20_000
	began := time.Now()
	u := s.Begin(&filev1.WriteFileOpen{Path: s.Path("many"), Archive: filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR})
	w := tar.NewWriter(u)
	for i := range count {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("f%05d", i), Size: 10, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(w, "%010d", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if reply, err := u.Commit(); err != nil || reply.Files != count {
		t.Fatalf("%v %v", reply, err)
	}
	t.Logf("unpacked after %s", time.Since(began))
	began = time.Now()
	names := s.Names("", &filev1.List{Path: s.Path("many")})
	if len(names) != count || !slices.IsSorted(names) {
		t.Errorf("%d names", len(names))
	}
	t.Logf("listed after %s", time.Since(began))
	began = time.Now()
	download, err := s.Read(&filev1.ReadFileRequest{Path: s.Path("many"), Archive: filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR}, func([]byte) error { return nil })
	if err != nil || download.Size < count*1024 {
		t.Errorf("%v %v", download, err)
	}
	t.Logf("packed after %s", time.Since(began))
	began = time.Now()
	s.Does("", &filev1.Remove{Path: s.Path("many"), Recursive: true})
	t.Logf("removed after %s", time.Since(began))
	status := b.inside("grep -E 'VmRSS|VmHWM|Threads' /proc/1/status")
	t.Logf("the agent: %s", strings.Join(strings.Fields(status), " "))
	var kib int
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); fields[0] == "VmRSS:" {
			_, _ = fmt.Sscan(fields[1], &kib)
		}
	}
	if kib > 64<<10 {
		t.Errorf("the agent takes %d KiB", kib)
	}
}

func TestGvisor_ports_are_listed_with_their_processes_and_tunnelled_to(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import socket, os, threading\n"+
		"def serve(s):\n    while True:\n        c, _ = s.accept()\n        threading.Thread(target=lambda: (c.sendall(c.recv(100).upper()), c.close())).start()\n"+
		"a = socket.socket(); a.bind(('127.0.0.1', 8123)); a.listen()\n"+
		"b = socket.socket(socket.AF_INET6); b.bind(('::', 8124)); b.listen()\n"+
		"for s in (a, b): threading.Thread(target=serve, args=(s,), daemon=True).start()\n")
	pid := strings.TrimSpace(string(b.exec("py", "print(os.getpid())").stdout))
	reply := &execv1.ListPortsReply{}
	if err := call(b, agentrpc.ListPorts, &agentv1.Empty{}, reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Ports) != 2 || reply.Ports[0].Port != 8123 || reply.Ports[0].Address != "127.0.0.1" || reply.Ports[1].Address != "::" {
		t.Fatalf("%v", reply)
	}
	for _, port := range reply.Ports {
		if fmt.Sprint(port.Pid) != pid || !strings.Contains(port.Command, "python") {
			t.Errorf("%v (expected: of process %s)", port, pid)
		}
		ctx, cancel := context.WithTimeout(context.Background(), filestest.Patience)
		stream, err := b.session.Open(ctx, agentrpc.Tunnel)
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range []*execv1.TunnelMessage{
			{Message: &execv1.TunnelMessage_Open{Open: &execv1.TunnelOpen{Port: port.Port}}},
			{Message: &execv1.TunnelMessage_Data{Data: []byte("hello")}},
		} {
			if err := stream.Send(message); err != nil {
				t.Fatal(err)
			}
		}
		answer := &execv1.TunnelMessage{}
		for answer.GetData() == nil {
			if err := stream.Receive(answer); err != nil {
				t.Fatalf("port %d: %v", port.Port, err)
			}
		}
		if string(answer.GetData()) != "HELLO" {
			t.Errorf("%v", answer)
		}
		stream.Cancel()
		cancel()
	}
}

func TestGvisor_temporary_files_are_noted_while_they_exist(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	u := s.Begin(&filev1.WriteFileOpen{User: filestest.Someone, Path: s.Path("file")})
	u.Data([]byte("x"))
	s.Eventually("the note leads to the temporary file", func() error {
		if text := b.inside("cat /var/lib/atoll/writes/.a* 2>/dev/null || true"); text != "x" {
			return fmt.Errorf("%q: %s", text, b.inside("ls -la /var/lib/atoll/writes 2>&1 || true"))
		}
		return nil
	})
	if _, err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	if text := b.inside("ls -A /var/lib/atoll/writes"); text != "" {
		t.Errorf("%q", text)
	}
}

package files

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"atoll/node/internal/agent/files/filestest"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"

	filev1 "atoll/node/gen/filev1"
)

// The tests act as other users: they need to be root.

func TestFiles(t *testing.T) {
	filestest.Run(t, func(t *testing.T) *filestest.Sandbox { return newSandbox(t, "") })
}

func newSandbox(t *testing.T, journal string) *filestest.Sandbox {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("these tests act as several users: run them as root")
	}
	f := New(Options{
		Namespace: func() (string, error) { return "", nil },
		Template:  func() Identity { return Identity{Name: "template", Uid: 12321, Gid: 12321, Home: "/"} },
		Journal:   journal,
	})
	t.Cleanup(f.Close)
	return &filestest.Sandbox{T: t, Session: serve(t, f), Folder: folder(t), Shell: func(script string) string {
		t.Helper()
		out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}}
}

// folder is one that every user can reach and write to.
func folder(t *testing.T) string {
	t.Helper()
	path := t.TempDir()
	for above := path; above != os.TempDir() && above != "/"; above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

func serve(t *testing.T, f *Files) *frame.Session {
	t.Helper()
	var key [32]byte
	guestReads, hostWrites, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	hostReads, guestWrites, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	handler := func(stream *frame.Stream) {
		var err error
		switch stream.Method() {
		case agentrpc.File:
			request := &filev1.FileRequest{}
			if err = stream.Receive(request); err == nil {
				var reply *filev1.FileReply
				if reply, err = f.File(stream.Context(), request); err == nil {
					err = stream.Reply(reply)
				}
			}
		case agentrpc.ReadFile:
			err = f.Read(stream)
		case agentrpc.WriteFile:
			err = f.Write(stream)
		case agentrpc.WatchFiles:
			err = f.Watch(stream)
		}
		stream.End(err)
	}
	go func() {
		ended <- frame.Serve(ctx, guestReads, guestWrites, frame.GuestOptions{Key: key, MaxMessage: 1 << 20, Handler: handler})
	}()
	connecting, stop := context.WithTimeout(ctx, filestest.Patience)
	defer stop()
	session, err := frame.Connect(connecting, hostReads, hostWrites, frame.HostOptions{Epoch: 1, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("the end of the session: %v", err)
		}
		for _, file := range []*os.File{guestReads, hostWrites, hostReads, guestWrites} {
			_ = file.Close()
		}
	})
	return session
}

package agent_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agent/files/filestest"
)

// sandbox is a box as the promises about files see it.
func (b *box) sandbox() *filestest.Sandbox {
	b.t.Helper()
	s := &filestest.Sandbox{T: b.t, Session: b.session, Folder: b.home + "/work", Shell: b.inside}
	s.Does("root", &filev1.MakeDirectory{Path: s.Folder, Mode: 0o777})
	return s
}

func TestFiles_are_seen_as_the_programs_in_the_box_see_them(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	// The inner /proc: the agent is not to be found in it, the inner PID 1 is.
	if text := s.Text("root", "/proc/1/cmdline"); text == "" {
		t.Error("/proc/1/cmdline is empty")
	}
	list := s.Names("root", &filev1.List{Path: "/proc"})
	processes := 0
	for _, name := range list {
		if name[0] >= '0' && name[0] <= '9' {
			processes++
		}
	}
	if processes > 3 {
		t.Errorf("%d processes in /proc: %q", processes, list)
	}
	b.open("sh", "bash")
	b.exec("sh", "printf text > work/made; umask 077; printf x > work/secret")
	if text := s.Text("root", s.Path("made")); text != "text" {
		t.Errorf("%q", text)
	}
	_, err := s.Read(&filev1.ReadFileRequest{User: filestest.Someone, Path: s.Path("secret")}, nil)
	s.Failed(codes.PermissionDenied, err, "reading a file of root's")
	s.Puts("", "relative", "x")
	s.Puts("", "~/tilde", "y")
	b.exec("sh", "cat relative tilde").prints("xy")
	if reply := s.Does("", &filev1.List{Path: "~"}); len(reply.Entries) < 3 {
		t.Errorf("%v", reply)
	}
}

func TestFiles_work_again_after_everything_in_the_box_was_killed(t *testing.T) {
	b := newBox(t)
	s := b.sandbox()
	s.Puts("root", s.Path("file"), "before")
	u := s.Begin(&filev1.WriteFileOpen{User: "root", Path: s.Path("file")})
	u.Data([]byte("after"))
	b.signalInit(9)
	if _, err := u.Commit(); err != nil {
		t.Errorf("a write that outlived the inner tree: %v", err)
	}
	if text := s.Text("root", s.Path("file")); text != "after" {
		t.Errorf("%q", text)
	}
	b.open("sh", "bash")
	b.exec("sh", "cat work/file").prints("after")
}

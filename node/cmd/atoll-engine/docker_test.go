//go:build docker

package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/driver/docker/dockertest"
	"atoll/node/internal/engine/enginetest"
)

// reaches are attempts to get hold of the host, each of which must fail, as a line of Python that is true then.
const reaches = `
import ctypes, os, stat, subprocess
def fails(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode != 0
def root(text):
    return fails("sudo", "-n", "sh", "-c", text)
libc = ctypes.CDLL(None, use_errno=True)
seen = {
    "sudo": not fails("sudo", "-n", "true"),
    "mount": root("mount -t tmpfs none /mnt"),
    "remount": root("mount -o remount,rw /proc/sys"),
    "umount": root("umount /proc/sys"),
    "mount namespace": root("unshare -m true"),
    "user namespace": fails("unshare", "-U", "true") and libc.unshare(0x10000000) == -1,
    "clone of a namespace": libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0) == -1,
    "another's namespaces": root("nsenter -t 1 -m true"),
    "device": root("mknod /tmp/disk b 8 0"),
    # Opened only, never written.
    "core pattern": root(": >>/proc/sys/kernel/core_pattern"),
    "sysrq": root(": >>/proc/sysrq-trigger"),
    "kcore": root("test -s /proc/kcore"),
    "agent's streams": not any(stat.S_ISFIFO(os.lstat(os.path.join(folder, name)).st_mode)
                               for folder, _, names in os.walk("/.atoll-streams") for name in names),
    "agent's memory": root("cat /proc/1/environ"),
    "host's processes": len([name for name in os.listdir("/proc") if name.isdigit()]) < 30,
    "network": os.listdir("/sys/class/net") == ["lo"],
}
print(sorted(name for name, well in seen.items() if not well))
`

func TestDockerRunsBoxesToo(t *testing.T) {
	daemon := dockertest.Start(t)
	e := enginetest.StartWith(t, "", "--docker-socket", daemon.Socket)
	ctx := t.Context()
	info, err := e.GetInfo(ctx, &enginev1.GetInfoRequest{})
	if err != nil || len(info.GetRuntimes()) != 2 || !info.GetRuntimes()[1].GetAvailable() || !strings.HasPrefix(info.GetRuntimes()[1].GetVersion(), "docker-") {
		t.Fatalf("%v, %v (expected: gvisor and docker)", info.GetRuntimes(), err)
	}
	request := e.Request(ctx, "python", "python")
	request.Spec.Runtime = "docker"
	if _, err := e.CreateBox(ctx, request); err != nil {
		t.Fatal(err)
	}
	assign := &enginev1.AssignBoxRequest{BoxId: request.GetBoxId(), SandboxId: enginetest.NewID("sb-exec"), Hostname: "box", Limits: &execv1.Limits{MemoryBytes: 256 << 20}}
	if _, err := e.AssignBox(ctx, assign); err != nil {
		t.Fatal(err)
	}
	s := e.Sandbox(request)
	run := func(code, expected string) {
		t.Helper()
		if r := s.Run(ctx, code); string(r.Stdout) != expected {
			t.Fatalf("%q, %v (expected: %q)", r.Stdout, r.Finished, expected)
		}
	}
	run("x = 41\nimport socket\nprint(socket.gethostname())", "box\n")
	run(reaches, "[]\n")

	e.Kill()
	e.Launch()
	run("x += 1\nprint(x)", "42\n")

	r := s.Run(ctx, "print('before', flush=True)\nhoard = []\nwhile True: hoard.append(bytearray(1 << 20))")
	if r.Finished.GetReason() != execv1.ExitReason_EXIT_REASON_OUT_OF_MEMORY || string(r.Stdout) != "before\n" {
		t.Fatalf("%q, %v (expected: out of memory)", r.Stdout, r.Finished)
	}
	run("print(1)", "1\n")

	usage, err := e.SampleUsage(ctx, &enginev1.SampleUsageRequest{})
	if err != nil || len(usage.GetBoxes()) != 1 || usage.GetBoxes()[0].GetMemoryBytes() == 0 {
		t.Fatalf("%v, %v (expected: one box that uses memory)", usage, err)
	}

	for name, call := range map[string]func() error{
		"pause": func() error {
			_, err := e.PauseBox(ctx, &enginev1.PauseBoxRequest{BoxId: s.Box, SnapshotId: enginetest.NewID("snap")})
			return err
		},
		"snapshot": func() error {
			_, err := e.CreateSnapshot(ctx, &enginev1.CreateSnapshotRequest{BoxId: s.Box, SnapshotId: enginetest.NewID("snap"), Kind: enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY})
			return err
		},
		"files": func() error {
			_, err := e.CreateSnapshot(ctx, &enginev1.CreateSnapshotRequest{BoxId: s.Box, SnapshotId: enginetest.NewID("snap"), Kind: enginev1.SnapshotKind_SNAPSHOT_KIND_FILES})
			return err
		},
		"prepare": func() error {
			spec := &enginev1.BoxSpec{ImageDigest: request.GetSpec().GetImageDigest(), Runtime: "docker"}
			_, err := e.PrepareBox(ctx, &enginev1.PrepareBoxRequest{BoxId: enginetest.NewID("box"), Spec: spec})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "gvisor") {
			t.Errorf("%s: %v (expected: not possible in Docker, and what to do)", name, err)
		}
	}
	run("print(2)", "2\n")
	s.Delete(ctx)
}

// Package dockertest runs a Docker Engine for a test, that is gone afterwards with all it made.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/driver/docker"
	"atoll/node/internal/patience"
)

// Daemon is a Docker Engine without any network.
type Daemon struct {
	// Socket is where it listens.
	Socket  string
	folder  string
	process *exec.Cmd
}

// Start starts one for as long as the test runs.
func Start(t testing.TB) *Daemon {
	t.Helper()
	d, err := start()
	if err == nil {
		if err = d.tryOut(); err != nil {
			err = errors.Join(err, d.stop())
		}
	}
	if err != nil && os.Getenv("ATOLL_DOCKER_REQUIRED") == "" {
		// Not every machine that tests lets one run.
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// tryOut runs a container of one program, so that a machine on which Docker can run none is told from a fault of ours.
func (e *Daemon) tryOut() error {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("%w (remedy: apt-get install busybox-static)", err)
	}
	var archive bytes.Buffer
	pack := tar.NewWriter(&archive)
	header := &tar.Header{Name: "busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(busybox))}
	if err := pack.WriteHeader(header); err != nil {
		return err
	}
	_, err = pack.Write(busybox)
	if err := errors.Join(err, pack.Close()); err != nil {
		return err
	}
	for _, command := range []struct {
		input     io.Reader
		arguments []string
	}{
		{&archive, []string{"import", "-", "try:out"}},
		{nil, []string{"run", "--rm", "--network", "none", "--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined", "try:out", "/busybox", "true"}},
		{nil, []string{"rmi", "try:out"}},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience.Of(60*time.Second))
		run := exec.CommandContext(ctx, "docker", append([]string{"-H", "unix://" + e.Socket}, command.arguments...)...)
		run.Stdin = command.input
		said, err := run.CombinedOutput()
		cancel()
		if err != nil {
			return fmt.Errorf("docker %s: %w: %s", command.arguments[0], err, said)
		}
	}
	return nil
}

// Images lists what it has, by id.
func (e *Daemon) Images(t testing.TB) []string {
	t.Helper()
	text, err := exec.Command("docker", "-H", "unix://"+e.Socket, "images", "-aq").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return strings.Fields(string(text))
}

// runc leaves out what a container of this machine may not have, as in a container that holds CI: Docker's fails there.
const runc = `#!/usr/bin/env bash
set -euo pipefail
for ((i = 1; i < $#; i++)); do
  next=$((i + 1))
  if [[ ${!i} == --bundle ]]; then
    file=${!next}/config.json
    jq -c --argjson have "$(setpriv --dump | sed -n 's/^Capability bounding set: //p' | tr a-z, 'A-Z\n' | sed 's/^/CAP_/' | jq -Rnc '[inputs]')" \
      '.process.capabilities |= map_values(if . then map(select(IN($have[]))) else . end)' "$file" >"$file.new"
    mv "$file.new" "$file"
  fi
done
exec runc "$@"
`

func start() (*Daemon, error) {
	for _, tool := range []string{"dockerd", "runc", "jq", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is missing (remedy: apt-get install docker.io jq)", tool)
		}
	}
	folder, err := os.MkdirTemp("", "atoll-docker-test-")
	if err != nil {
		return nil, err
	}
	e := &Daemon{folder: folder, Socket: filepath.Join(folder, "docker.sock")}
	name := filepath.Base(folder)
	config, err := json.Marshal(map[string]any{
		"runtimes": map[string]any{"fitting": map[string]any{"path": filepath.Join(folder, "runc")}}, "default-runtime": "fitting",
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(folder, "runc"), []byte(runc), 0o755), os.WriteFile(filepath.Join(folder, "daemon.json"), config, 0o600),
	); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	e.process = exec.Command("dockerd", "--data-root", folder+"/data", "--exec-root", folder+"/exec", "--pidfile", folder+"/pid", "--host", "unix://"+e.Socket,
		"--config-file", folder+"/daemon.json", "--bridge=none", "--iptables=false", "--ip-forward=false", "--cgroup-parent", "/"+name,
		"--containerd-namespace", name, "--containerd-plugins-namespace", name+"-plugins")
	e.process.Stdout, e.process.Stderr = log, log
	if err := e.process.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience.Of(60 * time.Second)); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = docker.New(ctx, docker.Options{Socket: e.Socket, Instance: "none"})
		cancel()
		if err == nil {
			return e, nil
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return nil, errors.Join(fmt.Errorf("dockerd did not start: %w: %s", err, text[max(0, len(text)-2000):]), e.stop())
		}
	}
}

func (e *Daemon) stop() error {
	_ = e.process.Process.Signal(unix.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = e.process.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience.Of(40 * time.Second)):
		_ = e.process.Process.Kill()
		<-ended
	}
	// containerd makes groups of this name in every controller.
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(e.folder))
	for _, group := range groups {
		_ = os.Remove(group)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if path := strings.Fields(line)[4]; strings.HasPrefix(path, e.folder) {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	}
	return os.RemoveAll(e.folder)
}

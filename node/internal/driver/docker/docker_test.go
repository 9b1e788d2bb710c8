//go:build docker

package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll/node/internal/driver/docker"
	"atoll/node/internal/driver/docker/dockertest"
	"atoll/node/internal/driver/drivertest"
	"atoll/node/internal/engine/enginetest"
)

func subject(t testing.TB, daemon *dockertest.Daemon) drivertest.Subject {
	t.Helper()
	files := enginetest.Files(t)
	h := drivertest.Hierarchy(t, fmt.Sprintf("dtd%d", os.Getpid()))
	d, err := docker.New(t.Context(), docker.Options{Socket: daemon.Socket, Instance: "test", DataDir: t.TempDir(), Cgroups: h})
	if err != nil {
		t.Fatal(err)
	}
	return drivertest.Subject{Driver: d, Cgroups: h, Image: files.Image("python"), AgentImagePath: files.Agent}
}

func TestDockerKeepsTheContract(t *testing.T) {
	daemon := dockertest.Start(t)
	drivertest.Contract(t, func(t *testing.T) drivertest.Subject { return subject(t, daemon) })
	d := subject(t, daemon).Driver.(*docker.Driver)
	if images := daemon.Images(t); len(images) != 1 {
		t.Errorf("images: %v (expected: the one that all boxes had)", images)
	}
	if err := d.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if images := daemon.Images(t); len(images) != 0 {
		t.Errorf("images left: %v", images)
	}
}

func TestNoDockerSaysWhatToDo(t *testing.T) {
	_, err := docker.New(t.Context(), docker.Options{Socket: filepath.Join(t.TempDir(), "none.sock"), Instance: "test"})
	if err == nil || !strings.Contains(err.Error(), "--docker-socket") {
		t.Fatalf("%v (expected: the remedy)", err)
	}
}

func TestUnknownRuntimeOfDockerIsRefused(t *testing.T) {
	daemon := dockertest.Start(t)
	_, err := docker.New(t.Context(), docker.Options{Socket: daemon.Socket, Runtime: "no-such", Instance: "test"})
	if err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Fatalf("%v (expected: the runtime's name)", err)
	}
}

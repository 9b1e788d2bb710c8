package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"atoll/node/internal/driver/drivertest"
	"atoll/node/internal/driver/gvisor"
	"atoll/node/internal/engine/enginetest"
	"atoll/node/internal/net"
	"atoll/node/internal/reap"
)

func TestGvisorKeepsTheContract(t *testing.T) {
	reaper, err := reap.Start()
	if err != nil {
		t.Fatal(err)
	}
	files := enginetest.Files(t)
	drivertest.Contract(t, func(t *testing.T) drivertest.Subject {
		h := drivertest.Hierarchy(t, "dtgvisor")
		run := t.TempDir()
		netns := filepath.Join(run, "netns")
		if err := net.Shared(netns); err != nil {
			t.Fatal(err)
		}
		d, err := gvisor.New(gvisor.Options{RunscDir: files.Runsc, RunDir: run, NetworkNamespace: netns, Reaper: reaper})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(d.Unmount(), net.Remove(netns)); err != nil {
				t.Error(err)
			}
			left, err := os.ReadDir(filepath.Join(run, "runsc"))
			if err != nil || len(left) > 0 {
				t.Errorf("runsc left %v, %v", left, err)
			}
		})
		return drivertest.Subject{Driver: d, Cgroups: h, Image: files.Image("python"), AgentImagePath: files.Agent}
	})
}

package drivertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	RunAgentIfAsked()
	os.Exit(m.Run())
}

func TestFakeKeepsTheContract(t *testing.T) {
	Contract(t, func(t *testing.T) Subject { return fakeSubject(t) })
}

func TestFakeDrivesAnOlderBuild(t *testing.T) {
	OlderBuild(t, fakeSubject(t, "fake-0"), "fake-0")
}

func fakeSubject(t *testing.T, builds ...string) Subject {
	h := Hierarchy(t, fmt.Sprintf("dtf%d", os.Getpid()))
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return Subject{Driver: &Fake{Dir: t.TempDir(), Cgroups: h, Builds: builds}, Cgroups: h, Image: image}
}

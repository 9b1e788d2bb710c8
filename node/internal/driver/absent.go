package driver

import (
	"context"
	"fmt"
	"io"
)

// Absent stands for a runtime that can't be reached, so that boxes it made earlier are told what is wrong, and can be looked after once it
// is there again.
type Absent struct {
	Runtime string
	Reason  error
}

func (a Absent) refusal() error { return fmt.Errorf("runtime %s: %w", a.Runtime, a.Reason) }

func (a Absent) Name() string { return a.Runtime }

func (a Absent) Version() string { return "" }

func (a Absent) Versions() []string { return nil }

func (a Absent) Can(Ability, string) bool { return false }

func (a Absent) Prepare(context.Context, Spec) (int, error) { return 0, a.refusal() }

func (a Absent) Launch(context.Context, string, string, string) error { return a.refusal() }

func (a Absent) Restore(context.Context, string, string, string, string) error { return a.refusal() }

func (a Absent) Pause(context.Context, string, string, string) error { return a.refusal() }

func (a Absent) Resume(context.Context, string, string, string) error { return a.refusal() }

func (a Absent) Checkpoint(context.Context, string, string, string, string) error { return a.refusal() }

func (a Absent) CheckpointFiles(context.Context, string, string, string, string) error {
	return a.refusal()
}

func (a Absent) ExportChanges(context.Context, string, string, string, io.Writer) error {
	return a.refusal()
}

// Delete without a build succeeds: of a box that nobody knows it is not known that it was one of these.
func (a Absent) Delete(_ context.Context, _, build string) error {
	if build == "" {
		return nil
	}
	return a.refusal()
}

func (a Absent) DiskUsed(string, int, string) (uint64, error) { return 0, a.refusal() }

func (a Absent) GuestProcesses(host uint64, _ string) uint64 { return host }

func (a Absent) List() ([]string, error) { return nil, nil }

var _ Driver = Absent{}

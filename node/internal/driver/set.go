package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Set drives each sandbox with the driver that its build is one of. The first driver is the one that sandboxes get where nobody says otherwise.
type Set struct {
	first  Driver
	others []Member
}

// Member is a driver beside the first: the one of all builds that begin with Prefix.
type Member struct {
	Driver
	Prefix string
}

func NewSet(first Driver, others ...Member) *Set { return &Set{first: first, others: others} }

func (s *Set) of(build string) Driver {
	for _, other := range s.others {
		if strings.HasPrefix(build, other.Prefix) {
			return other.Driver
		}
	}
	return s.first
}

// Named is the driver of a name; empty: the first.
func (s *Set) Named(name string) (Driver, error) {
	names := []string{s.first.Name()}
	if name == "" || name == names[0] {
		return s.first, nil
	}
	for _, other := range s.others {
		absent, gone := other.Driver.(Absent)
		switch {
		case other.Name() != name:
		case gone:
			return nil, absent.refusal()
		default:
			return other.Driver, nil
		}
		if !gone {
			names = append(names, other.Name())
		}
	}
	return nil, fmt.Errorf("runtime %q is not available on this node (expected: %s)", name, strings.Join(names, " or "))
}

// Named is the driver of a name among those that d is; empty: what d gives where nobody says otherwise.
func Named(d Driver, name string) (Driver, error) {
	if set, ok := d.(*Set); ok {
		return set.Named(name)
	}
	return NewSet(d).Named(name)
}

func (s *Set) Name() string { return s.first.Name() }

func (s *Set) Version() string { return s.first.Version() }

func (s *Set) Versions() []string {
	versions := s.first.Versions()
	for _, other := range s.others {
		versions = append(versions, other.Versions()...)
	}
	return versions
}

func (s *Set) Can(what Ability, build string) bool { return s.of(build).Can(what, build) }

func (s *Set) Prepare(ctx context.Context, spec Spec) (int, error) {
	return s.of(spec.Build).Prepare(ctx, spec)
}

func (s *Set) Launch(ctx context.Context, id, dir, build string) error {
	return s.of(build).Launch(ctx, id, dir, build)
}

func (s *Set) Restore(ctx context.Context, id, dir, build, image string) error {
	return s.of(build).Restore(ctx, id, dir, build, image)
}

func (s *Set) Pause(ctx context.Context, id, dir, build string) error {
	return s.of(build).Pause(ctx, id, dir, build)
}

func (s *Set) Resume(ctx context.Context, id, dir, build string) error {
	return s.of(build).Resume(ctx, id, dir, build)
}

func (s *Set) Checkpoint(ctx context.Context, id, dir, build, image string) error {
	return s.of(build).Checkpoint(ctx, id, dir, build, image)
}

func (s *Set) CheckpointFiles(ctx context.Context, id, dir, build, image string) error {
	return s.of(build).CheckpointFiles(ctx, id, dir, build, image)
}

func (s *Set) ExportChanges(ctx context.Context, id, dir, build string, w io.Writer) error {
	return s.of(build).ExportChanges(ctx, id, dir, build, w)
}

// Delete without a build asks all: the caller found remains of which nobody knows whose they are.
func (s *Set) Delete(ctx context.Context, id, build string) error {
	if build != "" {
		return s.of(build).Delete(ctx, id, build)
	}
	failures := []error{s.first.Delete(ctx, id, "")}
	for _, other := range s.others {
		failures = append(failures, other.Delete(ctx, id, ""))
	}
	return errors.Join(failures...)
}

func (s *Set) DiskUsed(dir string, pid int, build string) (uint64, error) {
	return s.of(build).DiskUsed(dir, pid, build)
}

func (s *Set) GuestProcesses(host uint64, build string) uint64 {
	return s.of(build).GuestProcesses(host, build)
}

func (s *Set) List() ([]string, error) {
	ids, err := s.first.List()
	for _, other := range s.others {
		more, failure := other.List()
		ids, err = append(ids, more...), errors.Join(err, failure)
	}
	return ids, err
}

var _ Driver = (*Set)(nil)

package failpoint

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStepFailsAsItWasSetAndOnlyThat(t *testing.T) {
	if err := Enable("pause.written=enospc,resume.saved=error"); err != nil {
		t.Fatal(err)
	}
	if err := Hit("pause.written"); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error %v (expected: no space left)", err)
	}
	if err := Hit("resume.saved"); !errors.Is(err, ErrInjected) {
		t.Fatalf("error %v (expected: the injected one)", err)
	}
	if err := Hit("pause.saved"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pause.written", "resume.saved"} {
		if err := Set(name, nil); err != nil {
			t.Fatal(err)
		}
		if err := Hit(name); err != nil {
			t.Fatalf("%s fails after it was reset: %v", name, err)
		}
	}
	if armed.Load() {
		t.Fatal("still armed though nothing is set")
	}
}

func TestUnknownStepOrActionIsRefused(t *testing.T) {
	for _, list := range []string{"pause.nothing=error", "written=error", "pause.written=explode"} {
		if err := Enable(list); err == nil {
			t.Errorf("%q is accepted", list)
		}
	}
}

func BenchmarkHitOff(b *testing.B) {
	for b.Loop() {
		_ = Hit("pause.written")
	}
}

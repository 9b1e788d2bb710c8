package agent

import (
	"testing"
	"time"
)

func TestGrace_is_given_again_only_to_a_kernel_that_wants_to_run_and_could_not(t *testing.T) {
	for _, c := range []struct {
		graces int
		ran    time.Duration
		wants  bool
		again  bool
		why    string
	}{
		{1, 0, true, true, "got no CPU at all"},
		{maxGraces - 1, chance - 1, true, true, "got hardly any"},
		{1, chance, true, false, "ran and did not react"},
		{1, 0, false, false, "sleeps through the interrupt"},
		{maxGraces, 0, true, false, "had it often enough"},
	} {
		if again := anotherGrace(c.graces, c.ran, c.wants); again != c.again {
			t.Errorf("%s: another grace: %t", c.why, again)
		}
	}
}

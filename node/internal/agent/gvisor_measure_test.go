//go:build gvisor

package agent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	execv1 "atoll/node/gen/execv1"
)

// quantiles logs what is usual, and what is rare.
func quantiles(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	n := len(took)
	t.Logf("%s: min %s, p10 %s, p50 %s, p95 %s", what, took[0], took[n/10], took[n/2], took[n*95/100])
}

func TestGvisor_assignment_is_measured(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.exec("py", "import random")
	var hellos, both []time.Duration
	for i := range 60 {
		b.hello.Reconfigure, b.hello.SandboxId, b.hello.Hostname = true, fmt.Sprint("sandbox-", i), fmt.Sprint("box-", i)
		b.hello.Env["GREETING"] = fmt.Sprint(i)
		b.hello.Entropy = []byte(fmt.Sprintf("%032d", i))
		began := time.Now()
		b.sayHello()
		hellos = append(hellos, time.Since(began))
		r := b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: "py", Code: "print(1)"})
		for r.finished == nil {
			if _, err := r.next(); err != nil {
				t.Fatal(err)
			}
		}
		both = append(both, time.Since(began))
		if err := r.acknowledge(r.events[len(r.events)-1].Seq); err != nil {
			t.Fatal(err)
		}
		r.cancel()
	}
	quantiles(t, "a hello that assigns the box", hellos)
	quantiles(t, "the same and the first execution", both)
}

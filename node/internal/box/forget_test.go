package box

import (
	"testing"
)

func TestOutputThatIsToBeKeptStaysReadableHoweverLittleItIs(t *testing.T) {
	r := newRig(t)
	box := r.create()
	log, err := r.execute(box, "print 3")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := finish(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	id := log.Owner().ExecutionID
	if err := r.Forget([]string{id}, true); err != nil {
		t.Fatal(err)
	}
	if records := r.Executions(box); len(records) != 0 {
		t.Fatalf("%v (expected: none that the server must still record)", records)
	}
	kept, err := r.Output(t.Context(), box, id)
	if err != nil {
		t.Fatal(err)
	}
	if f, text, err := finish(t.Context(), kept); err != nil || len(text) != 300 || f == nil {
		t.Fatalf("%q, %v, %v", text, f, err)
	}
	if err := r.Forget([]string{id}, false); err != nil {
		t.Fatal(err)
	}
	_, err = r.Output(t.Context(), box, id)
	wantKind(t, err, NotFound)
}

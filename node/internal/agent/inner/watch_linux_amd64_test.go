package inner

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
)

func TestTheWatchTellsWhenLessThanItsMarkIsFree(t *testing.T) {
	w, low, err := newWatch(time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is told before there is a mark: the first count is one of those after it.
	w.below(math.MaxUint64)
	if err := low.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	count := make([]byte, 8)
	for range 3 {
		if n, err := low.Read(count); n != 8 || err != nil || binary.NativeEndian.Uint64(count) == 0 {
			t.Fatalf("%d bytes, %v, %v", n, count, err)
		}
	}
	w.below(0)
	if w.info.Freeram == 0 || w.info.Freeram > w.info.Totalram {
		t.Fatalf("%d of %d free", w.info.Freeram, w.info.Totalram)
	}
}

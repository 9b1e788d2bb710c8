package engine

import "testing"

func TestBuffersHaveTheLengthAskedForAndAreUsedAgain(t *testing.T) {
	pool := &buffers{}
	for _, length := range []int{0, 1, 255, 256, 257, 65_000, 65_537, 1 << 22, 1<<22 + 1} {
		b := pool.Get(length)
		if len(*b) != length || length > 256 && cap(*b) > 2*length {
			t.Errorf("%d bytes of %d (expected: %d of at most twice that)", len(*b), cap(*b), length)
		}
		pool.Put(b)
		if again := pool.Get(length); len(*again) != length {
			t.Errorf("%d bytes the second time (expected: %d)", len(*again), length)
		}
	}
	// A part of one that is not ours to reuse.
	odd := make([]byte, 300)
	pool.Put(&odd)
	if b := pool.Get(300); len(*b) != 300 {
		t.Errorf("%d bytes", len(*b))
	}
}

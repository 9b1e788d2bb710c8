package frame

import (
	"math/bits"
	"sync"
)

// Buffers come in powers of two(small ones are exact), so that a message never holds more than twice its size (a guest that sends tiny messages must not
// make the host hold large buffers), and are shared by all sessions, so that an idle one holds none.
const (
	minBufferBits = 9
	maxBufferBits = 17 // 128 KiB: holds one frame of maximal size and the beginning of the next
)

var bufferPools [maxBufferBits + 1]sync.Pool

type buffer struct {
	b []byte
}

// newBuffer returns an empty buffer with at least this capacity.
func newBuffer(capacity int) *buffer {
	class := bits.Len(uint(max(capacity, 1) - 1))
	if class < minBufferBits || class > maxBufferBits {
		return &buffer{b: make([]byte, 0, capacity)}
	}
	if pooled, ok := bufferPools[class].Get().(*buffer); ok {
		return pooled
	}
	return &buffer{b: make([]byte, 0, 1<<class)}
}

// release gives the buffer back; the caller must not use it any more. A nil buffer is allowed.
func (b *buffer) release() {
	if b == nil {
		return
	}
	capacity := cap(b.b)
	class := bits.Len(uint(capacity)) - 1
	if class < minBufferBits || class > maxBufferBits || capacity != 1<<class {
		return
	}
	b.b = b.b[:0]
	bufferPools[class].Put(b)
}

// grown returns a buffer with the same content and room for n more bytes; b is released if another one was needed.
func (b *buffer) grown(n int) *buffer {
	if b == nil {
		return newBuffer(n)
	}
	if cap(b.b)-len(b.b) >= n {
		return b
	}
	larger := newBuffer(len(b.b) + n)
	larger.b = append(larger.b, b.b...)
	b.release()
	return larger
}

package engine

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

// buffers are gRPC's message buffers. gRPC's own pool knows nothing between 32 KiB and 1 MiB, and clears each buffer whole: a piece of a
// file (64 KiB) cost a megabyte of zeros, a quarter of the engine's time in BenchmarkDownload. Ours are powers of two, and not cleared:
// whoever asks for one fills it.
type buffers struct {
	pools [maxBufferBits + 1]sync.Pool
}

const (
	minBufferBits = 8
	maxBufferBits = 22
)

// gRPC takes another pool before the first call only.
func init() { experimental.SetDefaultBufferPool(&buffers{}) }

var _ mem.BufferPool = (*buffers)(nil)

// Get returns a buffer of a length.
func (b *buffers) Get(length int) *[]byte {
	class := max(bits.Len(uint(max(length, 1)-1)), minBufferBits)
	if class > maxBufferBits {
		buffer := make([]byte, length)
		return &buffer
	}
	if pooled, ok := b.pools[class].Get().(*[]byte); ok {
		*pooled = (*pooled)[:length]
		return pooled
	}
	buffer := make([]byte, length, 1<<class)
	return &buffer
}

// Put takes a buffer back.
func (b *buffers) Put(buffer *[]byte) {
	capacity := cap(*buffer)
	class := bits.Len(uint(capacity)) - 1
	if class < minBufferBits || class > maxBufferBits || capacity != 1<<class {
		return
	}
	b.pools[class].Put(buffer)
}

package frame

import (
	"os"
	"syscall"
)

// OpenFIFO opens a FIFO for both directions without blocking, so that the runtime's poller serves it and deadlines work.
func OpenFIFO(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
}

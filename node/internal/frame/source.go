package frame

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// smallRead is the size of the buffer that waits for the first byte where the runtime's poller doesn't serve the file.
const smallRead = 4 << 10

// source reads. On a polled file it waits for the first byte without a buffer: a host with a thousand idle boxes holds no buffer at all.
type source struct {
	r   io.Reader
	raw syscall.RawConn
	// size of the next first read where raw is nil
	size int
	// state of the attempt in progress
	attempt func(fd uintptr) bool
	read    *buffer
	err     error
}

func newSource(r io.Reader) *source {
	s := &source{r: r, size: smallRead, raw: polled(r)}
	s.attempt = func(fd uintptr) bool {
		b := newBuffer(1 << maxBufferBits)
		n, err := ReadNow(fd, b.b[:cap(b.b)])
		if err == syscall.EAGAIN {
			b.release()
			return false
		}
		if n <= 0 {
			b.release()
			if err == nil {
				err = io.EOF
			}
			s.err = err
			return true
		}
		b.b = b.b[:n]
		s.read = b
		return true
	}
	return s
}

// first reads into a buffer of its choice.
func (s *source) first() (*buffer, error) {
	if s.raw != nil {
		s.read, s.err = nil, nil
		if err := s.raw.Read(s.attempt); err != nil {
			return nil, err
		}
		return s.read, s.err
	}
	b := newBuffer(s.size)
	n, err := s.r.Read(b.b[:cap(b.b)])
	if n <= 0 {
		b.release()
		if err == nil {
			err = io.ErrNoProgress
		}
		return nil, err
	}
	b.b = b.b[:n]
	// A full buffer announces more; a little in a large one, the end of it.
	if n == cap(b.b) {
		s.size = 1 << maxBufferBits
	} else if n < smallRead {
		s.size = smallRead
	}
	return b, nil
}

// polled returns the raw connection of a file that the runtime's poller serves, or of an Outlet, else nil.
func polled(v any) syscall.RawConn {
	if outlet, ok := v.(*Outlet); ok {
		return eager{outlet}
	}
	file, ok := v.(*os.File)
	if !ok || file.SetDeadline(time.Time{}) != nil {
		return nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

var longAgo = time.Unix(1, 0)

// unblock makes reads of r return, now and until allow is called. It closes what knows no deadline.
func unblock(r io.Reader, w io.Writer) {
	if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = d.SetReadDeadline(longAgo)
	} else if c, ok := r.(io.Closer); ok {
		_ = c.Close()
	}
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(longAgo)
	} else if c, ok := w.(io.Closer); ok {
		_ = c.Close()
	}
}

// allow undoes unblock. It fails for a file that the runtime's poller doesn't serve: a read of it could never be ended.
func allow(r io.Reader, w io.Writer) error {
	var failed error
	if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		failed = d.SetReadDeadline(time.Time{})
	}
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		failed = errors.Join(failed, d.SetWriteDeadline(time.Time{}))
	}
	return failed
}

package frame

import (
	"bytes"
	"hash/crc32"
	"io"
	"syscall"
)

// parser cuts a byte stream into frames.
//
// While it is lost, it trusts no length and no kind in the stream: it looks at every offset for a frame that prove accepts, so that
// nothing a user wrote into the payload of a frame which was cut is ever taken for a frame. It loses its place by itself when the bytes
// make no sense, and by lose when its owner finds a frame to be wrong.
type parser struct {
	source *source
	// prove says whether a frame is the authentic answer or request that puts a lost parser back into its place.
	prove func(h header, payload []byte) bool
	// padded allows zero bytes between frames.
	padded bool

	lost bool
	// buffer.b[start:] is what has not been parsed yet; nil while there is nothing.
	buffer *buffer
	start  int
	// where the frame that next returned last begins
	frameStart int
}

// next returns the next frame; its payload is valid until the next call. It returns errLost once each time it loses its place.
func (p *parser) next() (header, []byte, error) {
	for {
		h, payload, ok, err := p.scan()
		if ok || err != nil {
			return h, payload, err
		}
		if err := p.fill(); err != nil {
			return header{}, nil, err
		}
	}
}

// lose makes the parser look for an authentic frame, from the second byte of the last frame on.
func (p *parser) lose() {
	p.lost = true
	p.start = p.frameStart + 1
}

func (p *parser) pending() []byte {
	if p.buffer == nil {
		return nil
	}
	return p.buffer.b[p.start:]
}

func (p *parser) scan() (h header, payload []byte, ok bool, err error) {
	if p.lost {
		h, payload, ok = p.scanLost()
		return h, payload, ok, nil
	}
	data := p.pending()
	if p.padded {
		for len(data) > 0 && data[0] == 0 {
			data = data[1:]
			p.start++
		}
	}
	p.frameStart = p.start
	known := min(len(data), len(magic))
	if !bytes.Equal(data[:known], magic[:known]) {
		p.lose()
		return header{}, nil, false, lostError("no frame where one must begin")
	}
	if len(data) < headerLength {
		return header{}, nil, false, nil
	}
	h, ok = parseHeader(data)
	if !ok {
		p.lose()
		return header{}, nil, false, lostError("broken frame header")
	}
	if len(data) < headerLength+h.length {
		return header{}, nil, false, nil
	}
	payload = data[headerLength : headerLength+h.length]
	if crc32.Checksum(payload, castagnoli) != h.payloadHash {
		p.lose()
		return header{}, nil, false, lostError("broken frame payload")
	}
	p.start += headerLength + h.length
	return h, payload, true, nil
}

func (p *parser) scanLost() (header, []byte, bool) {
	for {
		data := p.pending()
		at := bytes.Index(data, magic[:])
		if at < 0 {
			// The magic may have begun in the last bytes.
			p.start += max(0, len(data)-len(magic)+1)
			return header{}, nil, false
		}
		p.start += at
		data = data[at:]
		if len(data) < headerLength {
			return header{}, nil, false
		}
		h, ok := parseHeader(data)
		// Only these kinds are looked for, and their length is short and fixed: a false header costs no waiting for 64 KiB.
		if ok && h.length <= max(resetRequestLength, resetReplyLength) {
			if len(data) < headerLength+h.length {
				return header{}, nil, false
			}
			payload := data[headerLength : headerLength+h.length]
			if crc32.Checksum(payload, castagnoli) == h.payloadHash && p.prove(h, payload) {
				p.frameStart = p.start
				p.start += headerLength + h.length
				p.lost = false
				return h, payload, true
			}
		}
		p.start++
	}
}

// fill reads once. It holds no buffer while it waits for the first byte, where the source can do that.
func (p *parser) fill() error {
	p.dropEmpty()
	if p.buffer == nil {
		b, err := p.source.first()
		p.buffer = b
		return err
	}
	room := p.room()
	n, err := p.source.r.Read(room)
	p.buffer.b = p.buffer.b[:len(p.buffer.b)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// room returns where the next bytes are to be read to, when there is a buffer.
func (p *parser) room() []byte {
	if p.start > 0 {
		p.buffer.b = p.buffer.b[:copy(p.buffer.b, p.buffer.b[p.start:])]
		p.start, p.frameStart = 0, 0
	}
	// What waits is a part of one frame.
	if len(p.buffer.b) == cap(p.buffer.b) || cap(p.buffer.b) < maxFrame {
		p.buffer = p.buffer.grown(1<<maxBufferBits - len(p.buffer.b))
	}
	return p.buffer.b[len(p.buffer.b):cap(p.buffer.b)]
}

// dropEmpty gives the buffer back if nothing waits in it.
func (p *parser) dropEmpty() {
	if p.buffer != nil && p.start == len(p.buffer.b) {
		p.close()
	}
}

// feed reads until nothing is left and has take handle the frames after each read. It returns when more must be waited for, or with
// done when take or the file has ended it. Requires: fd does not block.
func (p *parser) feed(fd uintptr, take func() error) (done bool, err error) {
	for {
		p.dropEmpty()
		if p.buffer == nil {
			p.buffer = newBuffer(1 << maxBufferBits)
		}
		room := p.room()
		n, err := ReadNow(fd, room)
		if err == syscall.EAGAIN {
			p.dropEmpty()
			return false, nil
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return true, err
		}
		p.buffer.b = p.buffer.b[:len(p.buffer.b)+n]
		if err := take(); err != nil {
			return true, err
		}
		// The poller reports each change: after a read that left room, there is nothing to try before the next report.
		if n < len(room) {
			p.dropEmpty()
			return false, nil
		}
	}
}

// close gives the buffer back.
func (p *parser) close() {
	p.buffer.release()
	p.buffer = nil
	p.start, p.frameStart = 0, 0
}

type lostError string

func (e lostError) Error() string { return "frame: lost the place in the stream: " + string(e) }

package spool

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"

	"atoll/node/gen/execv1"
)

// A file of the spool is a sequence of records:
//
//	length of the payload  4 bytes, little endian
//	CRC-32C                4 bytes, over kind and payload
//	kind                   1 byte
//	payload
//
// A process that is killed in the middle of a write leaves at most one record
// that is too short or has the wrong sum, at the end; reading stops there.
const (
	headerSize = 9
	maxPayload = 24 << 20

	kindEvent = 1
	kindDrop  = 2
	kindOwner = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn says that a file ends in the middle of a record, or in one that was not written by us.
var errTorn = errors.New("torn record")

func appendRecord(b []byte, kind byte, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
	b = binary.LittleEndian.AppendUint32(b, sum)
	b = append(b, kind)
	return append(b, payload...)
}

// appendEvent is appendRecord without a copy of the payload.
func appendEvent(b []byte, event *execv1.ExecutionEvent) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, headerSize)...)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, event)
	if err != nil {
		return b[:start], fmt.Errorf("encoding event %d: %w", event.GetSeq(), err)
	}
	payload := b[start+headerSize:]
	if len(payload) > maxPayload {
		return b[:start], fmt.Errorf("event %d: %d bytes (expected: at most %d)", event.GetSeq(), len(payload), maxPayload)
	}
	b[start+8] = kindEvent
	binary.LittleEndian.PutUint32(b[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(b[start+8:], castagnoli))
	return b, nil
}

// readRecord returns io.EOF at the end, errTorn before it. The payload is valid until the next call with the same buffer.
func readRecord(r *bufio.Reader, buffer []byte) (kind byte, payload []byte, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if err == io.EOF {
			return 0, nil, io.EOF
		}
		return 0, nil, tornUnlessBroken(err)
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length > maxPayload {
		return 0, nil, errTorn
	}
	if uint32(cap(buffer)) < length {
		buffer = make([]byte, length)
	}
	payload = buffer[:length]
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, tornUnlessBroken(err)
	}
	kind = header[8]
	sum := crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
	if sum != binary.LittleEndian.Uint32(header[4:]) {
		return 0, nil, errTorn
	}
	return kind, payload, nil
}

func tornUnlessBroken(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTorn
	}
	return err
}

// dropped is what has been left out of an execution's output: everything of
// seqs first to last except the events kept.
type dropped struct {
	first, last uint64
	// from and to are offsets, by stream.
	from, to [3]uint64
}

func (d *dropped) empty() bool { return d.last == 0 }

// add takes note that an output event is left out.
func (d *dropped) add(event *execv1.ExecutionEvent) {
	if d.empty() {
		d.first = event.GetSeq()
	}
	d.last = event.GetSeq()
	output := event.GetOutput()
	stream, ok := streamIndex(output.GetStream())
	if output == nil || !ok {
		return
	}
	if d.from[stream] == d.to[stream] {
		d.from[stream] = output.GetOffset()
	}
	d.to[stream] = output.GetOffset() + uint64(len(output.GetData()))
}

func (d *dropped) encode() []byte {
	b := make([]byte, 0, 64)
	for _, n := range []uint64{d.first, d.last, d.from[1], d.to[1], d.from[2], d.to[2]} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func decodeDropped(b []byte) (dropped, error) {
	if len(b) != 48 {
		return dropped{}, fmt.Errorf("drop record: %d bytes (expected: 48)", len(b))
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }
	return dropped{first: n(0), last: n(1), from: [3]uint64{0, n(2), n(4)}, to: [3]uint64{0, n(3), n(5)}}, nil
}

func streamIndex(s execv1.Stream) (int, bool) {
	return int(s), s == execv1.Stream_STREAM_STDOUT || s == execv1.Stream_STREAM_STDERR
}

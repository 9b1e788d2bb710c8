package frame

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
)

// A frame is a header, then its payload. All numbers are little endian.
//
//	 0  magic, the last byte is the version of the format
//	 4  kind
//	 5  flags
//	 6  zero
//	 8  epoch of the session
//	16  stream, 0 for the session itself
//	24  sequence number within the session and direction; bytes that another process took from the pipe show as a gap
//	28  length of the payload
//	32  CRC-32C of the payload
//	36  CRC-32C of the 36 bytes before
//
// Zero bytes between two frames of a host are padding: see Session.reset.
const (
	headerLength = 40
	maxPayload   = 64 << 10
	maxFrame     = headerLength + maxPayload
)

// The first byte is not zero, so that padding never begins a frame.
var magic = [4]byte{0xA7, 'T', 'L', 1}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type kind uint8

const (
	// From the host: ends the session before. Payload: resetRequest.
	kindReset kind = 1 + iota
	// From the guest: the answer. Payload: resetReply.
	kindResetAck
	// From the guest: the RESET was authentic, but its epoch is not above the guest's. Payload: resetReply, with the guest's epoch.
	kindResetRefused
	// From the guest: it lost its place in the host's bytes and waits for a RESET. Payload: the reason.
	kindAbort
	// From the host. Payload: the guest's send window, the host's send window, the method.
	kindOpen
	kindData
	// Payload: bytes the peer may send in addition.
	kindWindow
	// From the host: no more data on this stream.
	kindHalfClose
	// From the guest. Payload: status code, message.
	kindEnd
	kindCancel
	kindLimit
)

const (
	// flagMore: the message continues in the stream's next DATA frame.
	flagMore = 1 << iota
	// flagFirst: the payload starts with the length of the whole message, of which this is the first fragment.
	flagFirst
)

type header struct {
	kind        kind
	flags       uint8
	epoch       uint64
	stream      uint64
	sequence    uint32
	length      int
	payloadHash uint32
}

// openFrame appends room for a header; closeFrame fills it once the payload has been appended.
func openFrame(b []byte) []byte {
	return append(b, make([]byte, headerLength)...)
}

func closeFrame(b []byte, start int, h header) {
	p := b[start:]
	payload := p[headerLength:]
	copy(p, magic[:])
	p[4] = byte(h.kind)
	p[5] = h.flags
	p[6], p[7] = 0, 0
	binary.LittleEndian.PutUint64(p[8:], h.epoch)
	binary.LittleEndian.PutUint64(p[16:], h.stream)
	binary.LittleEndian.PutUint32(p[24:], h.sequence)
	binary.LittleEndian.PutUint32(p[28:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(p[32:], crc32.Checksum(payload, castagnoli))
	binary.LittleEndian.PutUint32(p[36:], crc32.Checksum(p[:36], castagnoli))
}

func appendFrame(b []byte, h header, payload []byte) []byte {
	start := len(b)
	b = append(openFrame(b), payload...)
	closeFrame(b, start, h)
	return b
}

// parseHeader reports false for anything that closeFrame cannot have made.
func parseHeader(p []byte) (header, bool) {
	if !bytes.Equal(p[:4], magic[:]) || binary.LittleEndian.Uint32(p[36:]) != crc32.Checksum(p[:36], castagnoli) {
		return header{}, false
	}
	h := header{
		kind:        kind(p[4]),
		flags:       p[5],
		epoch:       binary.LittleEndian.Uint64(p[8:]),
		stream:      binary.LittleEndian.Uint64(p[16:]),
		sequence:    binary.LittleEndian.Uint32(p[24:]),
		payloadHash: binary.LittleEndian.Uint32(p[32:]),
	}
	length := binary.LittleEndian.Uint32(p[28:])
	if h.kind == 0 || h.kind >= kindLimit || p[6] != 0 || p[7] != 0 || length > maxPayload {
		return header{}, false
	}
	h.length = int(length)
	return h, true
}

const (
	nonceLength        = 16
	resetRequestLength = nonceLength + 4 + 4 + sha256.Size
	resetReplyLength   = nonceLength + 4 + 4 + 4 + 4 + 8
)

// resetRequest is the payload of RESET. A host that gets no answer repeats it with the next attempt number, so that an answer which
// another process took from the pipe is given again, and an answer to an older attempt is known as such.
type resetRequest struct {
	nonce      [nonceLength]byte
	attempt    uint32
	maxMessage uint32
}

func (r resetRequest) authenticate(key *[32]byte, epoch uint64) []byte {
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("atoll frame reset 1"))
	var b []byte
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint32(b, r.attempt)
	b = binary.LittleEndian.AppendUint32(b, r.maxMessage)
	b = append(b, r.nonce[:]...)
	mac.Write(b)
	return mac.Sum(nil)
}

func (r resetRequest) append(b []byte, key *[32]byte, epoch uint64) []byte {
	b = append(b, r.nonce[:]...)
	b = binary.LittleEndian.AppendUint32(b, r.attempt)
	b = binary.LittleEndian.AppendUint32(b, r.maxMessage)
	return append(b, r.authenticate(key, epoch)...)
}

// parseResetRequest reports false unless the request was made with the same key for the same epoch.
func parseResetRequest(p []byte, key *[32]byte, epoch uint64) (resetRequest, bool) {
	if len(p) != resetRequestLength {
		return resetRequest{}, false
	}
	r := resetRequest{
		attempt:    binary.LittleEndian.Uint32(p[nonceLength:]),
		maxMessage: binary.LittleEndian.Uint32(p[nonceLength+4:]),
	}
	copy(r.nonce[:], p)
	return r, hmac.Equal(p[nonceLength+8:], r.authenticate(key, epoch))
}

// resetReply is the payload of RESET_ACK and RESET_REFUSED. The nonce, which only the guest has read, proves that the frame is not a
// piece of some user's data.
type resetReply struct {
	nonce      [nonceLength]byte
	attempt    uint32
	maxMessage uint32
	maxStreams uint32
	// Bytes the guest is willing to buffer over all streams.
	window uint32
	epoch  uint64
}

func (r resetReply) append(b []byte) []byte {
	b = append(b, r.nonce[:]...)
	b = binary.LittleEndian.AppendUint32(b, r.attempt)
	b = binary.LittleEndian.AppendUint32(b, r.maxMessage)
	b = binary.LittleEndian.AppendUint32(b, r.maxStreams)
	b = binary.LittleEndian.AppendUint32(b, r.window)
	return binary.LittleEndian.AppendUint64(b, r.epoch)
}

func parseResetReply(p []byte) (resetReply, bool) {
	if len(p) != resetReplyLength {
		return resetReply{}, false
	}
	r := resetReply{
		attempt:    binary.LittleEndian.Uint32(p[nonceLength:]),
		maxMessage: binary.LittleEndian.Uint32(p[nonceLength+4:]),
		maxStreams: binary.LittleEndian.Uint32(p[nonceLength+8:]),
		window:     binary.LittleEndian.Uint32(p[nonceLength+12:]),
		epoch:      binary.LittleEndian.Uint64(p[nonceLength+16:]),
	}
	copy(r.nonce[:], p)
	return r, true
}

const maxMethod = 256

func appendOpen(b []byte, guestSends, hostSends int, method string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(guestSends))
	b = binary.LittleEndian.AppendUint32(b, uint32(hostSends))
	return append(b, method...)
}

func parseOpen(p []byte) (guestSends, hostSends int, method string, ok bool) {
	if len(p) < 9 || len(p) > 8+maxMethod {
		return 0, 0, "", false
	}
	guestSends = int(binary.LittleEndian.Uint32(p))
	hostSends = int(binary.LittleEndian.Uint32(p[4:]))
	ok = guestSends >= minWindow && guestSends <= maxWindow && hostSends >= minWindow && hostSends <= maxWindow
	return guestSends, hostSends, string(p[8:]), ok
}

const maxStatusMessage = 4 << 10

func appendStatus(b []byte, s *Status) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Code))
	return append(b, truncate(s.Message, maxStatusMessage)...)
}

func parseStatus(p []byte) (*Status, bool) {
	if len(p) < 4 || len(p) > 4+maxStatusMessage {
		return nil, false
	}
	code := binary.LittleEndian.Uint32(p)
	if code > uint32(codes.Unauthenticated) || !utf8.Valid(p[4:]) {
		return nil, false
	}
	return &Status{Code: codes.Code(code), Message: string(p[4:])}, true
}

// truncate cuts s to at most limit bytes of valid UTF-8.
func truncate(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	if utf8.ValidString(s) {
		return s
	}
	valid := bytes.ToValidUTF8([]byte(s), nil)
	return string(valid)
}

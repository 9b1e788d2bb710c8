// Package frame carries many concurrent streams of protobuf messages over the two pipes that are a sandbox's stdin and stdout.
//
// # Why not yamux and gRPC
//
// A message is one frame, and a frame (or a batch of them) is one write: a whole call is one write and one wake-up in each direction.
// In gVisor a wake-up is what costs. yamux writes header and body apart, and opening, window and close in frames of their own; HTTP/2
// does the same once more above it. The agent would also carry HTTP/2 and gRPC in a sandbox of 25 MB. And under either of them a frame
// layer would be needed all the same, because these pipes outlive both ends (below).
//
// Measured with two processes on FIFOs, messages of 100 bytes and of 64 KiB, yamux 0.1.2 with bare length-prefixed messages and
// without gRPC, interleaved in one run on a busy two-core machine (load 12-15), p50 of two runs each:
//
//	                               this package      yamux            raw echo
//	in gVisor  call                264, 274 µs       840, 1116 µs
//	           round trip          107, 133 µs       308, 415 µs      54, 93 µs
//	           64 KiB messages     175, 299 MB/s     121, 132 MB/s    547, 552 MB/s
//	outside    call                 33, 52 µs        270, 303 µs
//	           round trip               25 µs         28, 72 µs       9 µs
//
// Outside gVisor the throughput of 64 KiB messages is that of yamux (on that machine 140-815 MB/s against 247-829; the spread is the
// machine's load).
//
// # What the pipes do to us
//
// Both ends hold the FIFOs open in both directions, so nobody sees an end of file when the engine dies; a new engine finds a guest
// that waits in the middle of a frame, or is blocked in the middle of its own, and stale bytes in both pipes. A restored guest goes on
// with half a frame in new pipes, while bytes in the old ones are lost. So:
//
//   - Connect fills up whatever frame may be unfinished with zeros, and sends RESET with an epoch above all before, authenticated by a
//     key, while it reads and drops everything until the guest repeats its nonce. See Session.reset.
//   - A guest that lost its place accepts nothing but such a RESET, looked for at every byte; what a user wrote is never taken for a frame.
//   - Every frame has checksums and a sequence number: bytes that another reader of the FIFO took end the session, they never go unnoticed
//     once the next frame arrives. If none ever arrives, the caller's context ends the call.
//   - A guest never stops reading because it writes, nor a host, so the pipes always move while both ends live.
//
// # What the guest can do to us
//
// It is hostile. What it may make the host hold is bounded by windows: 256 KiB for each stream, less when there are hundreds, 64 MiB
// over all (hostWindowBudget, and minWindow for each of maxStreams). A message larger than a window borrows its whole size from another
// budget of four maximal messages before its fragments get credit, so messages in progress can't block each other for ever; a stream
// whose large message isn't received makes other large messages wait, never small ones. Any violation ends the session with
// a ProtocolError. MaxMessage bounds bytes on the wire; a decoded protobuf message can be many times larger, so choose it by the schema.
package frame

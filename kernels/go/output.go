package main

import (
	"io"
	"os"
	"regexp"
	"sync"
)

// output is stdout and stderr of the program. Where the program changes from one to the other, the agent is given time to take what
// is in the first, so that their order is kept.
type output struct {
	channel *channel

	mu   sync.Mutex
	last *os.File // guarded by mu
	// After os.Exit nothing shows any more; guarded by mu.
	isMuted bool
	// What the interpreter itself says about the frames that a panic goes through, the innermost first; guarded by mu.
	frames []string
}

func (o *output) write(file *os.File, data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(data) == 0 || o.isMuted {
		return len(data), nil
	}
	if o.last != nil && o.last != file {
		o.channel.flush()
	}
	o.last = file
	return file.Write(data)
}

// settle forgets which stream was last: between two cells the agent takes everything.
func (o *output) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.isMuted = nil, false
}

func (o *output) mute() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isMuted = true
}

func (o *output) takeFrames() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames := o.frames
	o.frames = nil
	return frames
}

type stream struct {
	output *output
	file   *os.File
}

func (s stream) Write(data []byte) (int, error) { return s.output.write(s.file, data) }

// interpreterStderr is the stream on which the interpreter tells of panics too, which are for the traceback.
type interpreterStderr struct{ stream }

var panicFrame = regexp.MustCompile(`^([0-9]+/cell\.go|/[^\n]*\.go):[0-9]+:[0-9]+: panic: [^\n]*\(\.\.\.\)\n$`)

// So many frames of a panic are kept: of an endless recursion there are millions.
const mostFrames = 50

func (s interpreterStderr) Write(data []byte) (int, error) {
	if !panicFrame.Match(data) {
		return s.stream.Write(data)
	}
	s.output.mu.Lock()
	defer s.output.mu.Unlock()
	if len(s.output.frames) < mostFrames {
		s.output.frames = append(s.output.frames, string(data[:len(data)-1]))
	}
	return len(data), nil
}

// through gives the stream for a program's os.Stdout and os.Stderr, and any other writer as it is.
func (o *output) through(w io.Writer) io.Writer {
	switch w {
	case io.Writer(os.Stdout), io.Writer(os.Stderr):
		return stream{o, w.(*os.File)}
	}
	return w
}

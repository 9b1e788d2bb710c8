package frame

import (
	"context"
	"errors"
	"io"
)

// GuestOptions configure Serve.
type GuestOptions struct {
	Key [32]byte
	// Handler serves one stream in a goroutine of its own, and ends it with End or Reply.
	Handler func(*Stream)
	// InOrder names methods whose handlers can wait for their turn (Stream.WaitTurn), all of them in one order.
	InOrder []string
	// MaxMessage bounds a message from the host in bytes; 0 means 16 MiB.
	MaxMessage int
	// OnReset is called when a host takes over, after the older streams have ended and before the host is answered. May be nil.
	// Nothing is read while it runs. A host that got no answer repeats its RESET: the same epoch may come again.
	OnReset func(epoch uint64)
	// AfterEpoch is the last epoch of an earlier life; only later ones are accepted.
	AfterEpoch uint64
}

type guest struct {
	options GuestOptions
	ctx     context.Context
	parser  *parser
	writer  *writer
	// of the last accepted RESET
	epoch   uint64
	request resetRequest
	// nil before the first RESET, and from the loss of the place to the next
	session  *Session
	expected uint32
}

// Serve answers hosts until r or w fails; then it returns why (io.EOF if r has ended) and all streams have ended. Where the runtime's
// poller serves r, as it does for most pipes but not for the blocking files 0 and 1, it also returns when ctx ends.
// It doesn't wait for handlers.
//
// A process whose stdout may lose its reader should ignore SIGPIPE.
func Serve(ctx context.Context, r io.Reader, w io.Writer, o GuestOptions) error {
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMaxMessage
	}
	_ = allow(r, w)
	g := &guest{options: o, ctx: ctx, epoch: o.AfterEpoch}
	g.parser = &parser{source: newSource(r), padded: true, prove: g.prove}
	defer context.AfterFunc(ctx, func() { unblock(r, w) })()
	defer g.parser.close()
	broken := make(chan error, 1)
	g.writer = newWriter(w, polled(w), true, func(err error) {
		select {
		case broken <- err:
		default:
		}
		unblock(r, w)
	})
	err := g.serve()
	select {
	case failed := <-broken:
		err = failed
	default:
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	g.writer.close(ErrClosed)
	if g.session != nil {
		g.session.fail(ErrClosed)
	}
	return err
}

func (g *guest) serve() error {
	if raw := g.parser.source.raw; raw != nil {
		// One call for the life of the pipe: no read that only finds out that there is nothing.
		var ended error
		err := raw.Read(func(fd uintptr) (done bool) {
			done, ended = g.parser.feed(fd, g.takeAll)
			return done
		})
		return errors.Join(ended, err)
	}
	for {
		if err := g.takeAll(); err != nil {
			return err
		}
		if err := g.parser.fill(); err != nil {
			return err
		}
	}
}

// takeAll takes the frames that have been read.
func (g *guest) takeAll() error {
	for {
		h, payload, ok, err := g.parser.scan()
		if err == nil && !ok {
			return nil
		}
		g.take(h, payload, err)
	}
}

func (g *guest) take(h header, payload []byte, err error) {
	switch {
	case err != nil:
		// The parser has lost its place, and looks for the next RESET.
		g.abort(err.Error())
	case h.kind == kindReset:
		if request, ok := parseResetRequest(payload, &g.options.Key, h.epoch); ok {
			g.reset(h.epoch, request)
		} else {
			g.parser.lose()
			g.abort("RESET with a wrong key")
		}
	case g.session == nil || h.epoch != g.epoch:
		// A host that was replaced goes on writing until it learns of it.
	case h.sequence != g.expected:
		g.parser.lose()
		g.abort("frames are missing")
	default:
		g.expected++
		if err := g.session.handle(h, payload); err != nil {
			g.parser.lose()
			g.abort(err.Error())
		}
	}
}

func (g *guest) prove(h header, payload []byte) bool {
	if h.kind != kindReset {
		return false
	}
	_, ok := parseResetRequest(payload, &g.options.Key, h.epoch)
	return ok
}

// abort ends the session because the host's bytes make no sense, and tells the host, which may be alive and well.
func (g *guest) abort(reason string) {
	if g.session == nil {
		return
	}
	g.session.fail(&ProtocolError{Reason: reason})
	g.session = nil
	g.writer.reset(nil, header{kind: kindAbort, epoch: g.epoch}, []byte(truncate(reason, 200)))
}

// reset begins a session.
func (g *guest) reset(epoch uint64, request resetRequest) {
	repeated := epoch == g.epoch && request.nonce == g.request.nonce && request.attempt > g.request.attempt
	reply := resetReply{
		nonce: request.nonce, attempt: request.attempt, maxMessage: uint32(g.options.MaxMessage),
		maxStreams: maxStreams, window: guestWindowBudget, epoch: epoch,
	}
	if epoch <= g.epoch && !repeated {
		reply.epoch = g.epoch
		g.writer.bare(header{kind: kindResetRefused, epoch: g.epoch}, reply.append(nil))
		return
	}
	if g.session != nil {
		g.session.fail(ErrReset)
	}
	g.epoch, g.request, g.expected = epoch, request, 1
	g.session = &Session{
		epoch: epoch, writer: g.writer, handler: g.options.Handler, inOrder: g.options.InOrder,
		limit: g.options.MaxMessage, sendLimit: int(request.maxMessage), streamLimit: maxStreams,
		streams: map[uint64]*Stream{}, loanBudget: g.options.MaxMessage,
	}
	g.session.ctx, g.session.stop = context.WithCancel(g.ctx)
	if g.options.OnReset != nil {
		g.options.OnReset(epoch)
	}
	g.writer.reset(g.session, header{kind: kindResetAck, epoch: epoch}, reply.append(nil))
}

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// A request's first line and header.
	maxHeader      = 32 << 10
	headerPatience = 30 * time.Second
	dialPatience   = 20 * time.Second
	// How long a program may take to read the end of an answer, and what it may still send meanwhile.
	lingerPatience = 30 * time.Second
	maxLinger      = 64 << 20
	// A connection on which nothing has moved for this long is of no use to anyone.
	idleLimit = 5 * time.Minute
	copyBytes = 32 << 10
	// Names that have more addresses are looked at so far.
	maxAddresses = 16
)

// Conn is a connection of a program that reaches out.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Proxy serves the connections of one build. Its fields are not changed once it serves.
type Proxy struct {
	Policy *Policy
	// Parent is the proxy that this host itself must use for an address, as http.ProxyFromEnvironment says; nil: that of the environment.
	// What goes through it is checked all the same, by the addresses that this host resolves where it can.
	Parent func(*http.Request) (*url.URL, error)
	Logger *slog.Logger
	// lookup resolves a name; for tests.
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// answer is what a request gets that goes no further.
type answer struct {
	status int
	text   string
}

func (a *answer) Error() string { return a.text }

// Serve serves one connection until it ends, or ctx does.
func (p *Proxy) Serve(ctx context.Context, c Conn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	head := &headReader{Reader: c}
	reader := bufio.NewReaderSize(head, 4096)
	for {
		again, err := p.serveOne(ctx, c, head, reader)
		var known *answer
		if errors.As(err, &known) {
			err = respond(c, known)
			again = false
		}
		if err != nil {
			return
		}
		if !again {
			linger(c, reader)
			return
		}
	}
}

// linger ends a connection so that the program reads all that was written: closed at once, it might lose the last of it.
func linger(c Conn, reader io.Reader) {
	if err := c.CloseWrite(); err != nil {
		return
	}
	late := time.AfterFunc(lingerPatience, func() { c.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, reader, maxLinger) // whatever ends it
}

func respond(c Conn, a *answer) error {
	body := a.text + "\n"
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		a.status, http.StatusText(a.status), len(body), body)
	return err
}

// serveOne serves one request, and says whether another may follow.
func (p *Proxy) serveOne(ctx context.Context, c Conn, head *headReader, reader *bufio.Reader) (again bool, err error) {
	request, err := readRequest(c, head, reader)
	if err != nil {
		return false, err
	}
	host, port, err := target(request)
	if err != nil {
		return false, err
	}
	if request.Method == http.MethodConnect {
		upstream, err := p.dial(ctx, request, host, port)
		if err != nil {
			return false, err
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			upstream.Close()
			return false, err
		}
		return false, join(ctx, c, reader, upstream)
	}
	upstream, err := p.dial(ctx, request, host, port)
	if err != nil {
		return false, err
	}
	defer upstream.Close()
	stop := context.AfterFunc(ctx, func() { upstream.Close() })
	defer stop()
	return p.forward(c, request, upstream)
}

// readRequest reads a request's head, within bounds of size and time. Its body is read from the same reader.
func readRequest(c Conn, head *headReader, reader *bufio.Reader) (*http.Request, error) {
	late := time.AfterFunc(headerPatience, func() { c.Close() })
	defer late.Stop()
	head.left = maxHeader
	request, err := http.ReadRequest(reader)
	head.left = 1 << 62
	switch {
	case err == nil:
		return request, nil
	case errors.Is(err, errHeadTooLarge):
		return nil, &answer{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request's header has more than %d bytes", maxHeader)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	}
	return nil, &answer{http.StatusBadRequest, "no HTTP request: " + clip(err.Error())}
}

var errHeadTooLarge = errors.New("the header is too large")

// headReader bounds what is read while a head is read.
type headReader struct {
	io.Reader
	left int
}

func (h *headReader) Read(p []byte) (int, error) {
	if h.left <= 0 {
		return 0, errHeadTooLarge
	}
	n, err := h.Reader.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}

// target is whom a request is for.
func target(request *http.Request) (host string, port uint16, err error) {
	authority := request.URL.Host
	standard := "80"
	switch {
	case request.Method == http.MethodConnect:
		authority, standard = request.RequestURI, ""
	case request.URL.Scheme != "http" || authority == "":
		return "", 0, &answer{http.StatusBadRequest,
			fmt.Sprintf("%s %s: this is a proxy (expected: CONNECT host:port, or an address that begins with http://)", clip(request.Method), clip(request.RequestURI))}
	}
	text := standard
	if name, number, err := net.SplitHostPort(authority); err == nil {
		host, text = name, number
	} else {
		host = strings.Trim(authority, "[]")
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 || host == "" {
		return "", 0, &answer{http.StatusBadRequest, fmt.Sprintf("%q (expected: host:port)", clip(authority))}
	}
	if host, err = canonicalHost(host); err != nil {
		return "", 0, &answer{http.StatusBadRequest, err.Error()}
	}
	return host, uint16(number), nil
}

// dial connects to the target, directly or through the proxy that this host must use.
func (p *Proxy) dial(ctx context.Context, request *http.Request, host string, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	parent, err := p.parent(request.Method, host, port)
	if err != nil {
		return nil, err
	}
	addresses, err := p.resolve(ctx, host)
	if err != nil && parent == nil {
		return nil, &answer{http.StatusBadGateway, fmt.Sprintf("%s does not resolve: %v", clip(host), clip(err.Error()))}
	}
	// One that is not allowed is not tried, be others of the same name allowed or not.
	var refused error
	var allowed []netip.Addr
	for _, address := range addresses {
		if err := p.Policy.check(host, port, address); err != nil {
			refused = err
			continue
		}
		allowed = append(allowed, address.Unmap())
	}
	if len(allowed) == 0 && refused != nil {
		return nil, p.refuse(host, port, refused)
	}
	if parent != nil {
		// It may decide by names, so it gets the name. One that this host can't resolve is not of its network.
		return dialThrough(ctx, parent, host, port)
	}
	var failures []error
	for _, address := range allowed {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(address, port).String())
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, &answer{http.StatusBadGateway, fmt.Sprintf("%s: %s", clip(host), clip(errors.Join(failures...).Error()))}
}

func (p *Proxy) refuse(host string, port uint16, why error) error {
	if p.Logger != nil {
		p.Logger.Info("a build is refused a connection", "host", clip(host), "port", port, "reason", why.Error())
	}
	var r *refusal
	if errors.As(why, &r) {
		return &answer{http.StatusForbidden, why.Error()}
	}
	return &answer{http.StatusInternalServerError, "it can't be checked whether this is allowed"}
}

func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	lookup := p.lookup
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			// A name of the host's search list would not be the one that was asked for.
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
		}
		if host == "localhost" {
			lookup = func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
			}
		}
	}
	found, err := lookup(ctx, host)
	if len(found) > maxAddresses {
		found = found[:maxAddresses]
	}
	if err == nil && len(found) == 0 {
		err = errors.New("it has no addresses")
	}
	return found, err
}

func (p *Proxy) parent(method, host string, port uint16) (*url.URL, error) {
	find := p.Parent
	if find == nil {
		find = http.ProxyFromEnvironment
	}
	scheme := "http"
	if method == http.MethodConnect {
		scheme = "https"
	}
	found, err := find(&http.Request{URL: &url.URL{Scheme: scheme, Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}})
	if err != nil {
		return nil, &answer{http.StatusBadGateway, "the proxy in the engine's environment is no address"}
	}
	if found != nil && found.Scheme != "http" && found.Scheme != "https" {
		return nil, &answer{http.StatusBadGateway, fmt.Sprintf("the engine's proxy speaks %q (expected: http or https)", clip(found.Scheme))}
	}
	return found, nil
}

// dialThrough has the parent connect.
func dialThrough(ctx context.Context, parent *url.URL, host string, port uint16) (net.Conn, error) {
	failed := func(err error) error {
		return &answer{http.StatusBadGateway, fmt.Sprintf("%s through the engine's proxy: %s", clip(host), clip(err.Error()))}
	}
	address := parent.Host
	if parent.Port() == "" {
		address = net.JoinHostPort(parent.Hostname(), map[string]string{"http": "80", "https": "443"}[parent.Scheme])
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, failed(err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if parent.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{ServerName: parent.Hostname(), MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, failed(err)
		}
		conn = secure
	}
	authority := net.JoinHostPort(host, strconv.Itoa(int(port)))
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if user := parent.User; user != nil {
		password, _ := user.Password()
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		conn.Close()
		return nil, failed(err)
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxHeader))
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		conn.Close()
		return nil, failed(err)
	}
	_ = conn.SetDeadline(time.Time{})
	rest, _ := reader.Peek(reader.Buffered())
	return &prefixed{Conn: conn, rest: rest}, nil
}

// prefixed is a connection of which something was read already.
type prefixed struct {
	net.Conn
	rest []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		p.rest = p.rest[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

func (p *prefixed) CloseWrite() error {
	if c, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// ofHop are headers that are for the next hop alone.
var ofHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func withoutHop(h http.Header) http.Header {
	h = maps.Clone(h)
	for _, named := range h["Connection"] {
		for name := range strings.SplitSeq(named, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range ofHop {
		h.Del(name)
	}
	return h
}

// forward does one plain request over a connection of its own.
func (p *Proxy) forward(c Conn, request *http.Request, upstream net.Conn) (again bool, err error) {
	idle := newIdle(func() { upstream.Close(); c.Close() })
	defer idle.stop()
	out := request.Clone(request.Context())
	out.Header = withoutHop(request.Header)
	out.Close = true
	out.Body = io.NopCloser(idle.reader(request.Body))
	if request.ContentLength == 0 && len(request.TransferEncoding) == 0 {
		out.Body = http.NoBody
	}
	// The answer may come before the whole body is sent.
	sent := make(chan error, 1)
	go func() { sent <- out.Write(upstream) }()
	// A server's head is bounded too; its body is not.
	limited := &io.LimitedReader{R: upstream, N: 1 << 20}
	answers := bufio.NewReaderSize(limited, copyBytes)
	response, err := http.ReadResponse(answers, request)
	for err == nil && response.StatusCode < 200 {
		// That the server goes on (100), or what is to come (103): no answer yet.
		response, err = http.ReadResponse(answers, request)
	}
	if err != nil {
		upstream.Close()
		<-sent
		return false, &answer{http.StatusBadGateway, fmt.Sprintf("%s: no answer: %s", clip(request.URL.Host), clip(err.Error()))}
	}
	limited.N = 1 << 62
	defer response.Body.Close()
	response.Header = withoutHop(response.Header)
	response.Close = response.ContentLength < 0 && request.ProtoMinor == 0
	response.ProtoMajor, response.ProtoMinor = 1, 1
	if response.ContentLength < 0 && request.ProtoMinor > 0 && bodyAllowed(request, response) {
		response.TransferEncoding = []string{"chunked"}
	}
	response.Body = io.NopCloser(idle.reader(response.Body))
	err = response.Write(c)
	upstream.Close()
	if e := <-sent; err == nil {
		err = e
	}
	return err == nil && !request.Close && !response.Close, err
}

func bodyAllowed(request *http.Request, response *http.Response) bool {
	return request.Method != http.MethodHead && response.StatusCode >= 200 && response.StatusCode != http.StatusNoContent && response.StatusCode != http.StatusNotModified
}

// join carries bytes both ways until both sides have ended, or one has failed.
func join(ctx context.Context, c Conn, reader io.Reader, upstream net.Conn) error {
	defer upstream.Close()
	stop := context.AfterFunc(ctx, func() { upstream.Close() })
	defer stop()
	idle := newIdle(func() { upstream.Close(); c.Close() })
	defer idle.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.CopyBuffer(struct{ io.Writer }{upstream}, idle.reader(reader), make([]byte, copyBytes))
		if half, ok := upstream.(interface{ CloseWrite() error }); ok && err == nil {
			err = half.CloseWrite()
		}
		if err != nil {
			upstream.Close()
		}
	}()
	_, err := io.CopyBuffer(struct{ io.Writer }{c}, idle.reader(upstream), make([]byte, copyBytes))
	if err == nil {
		err = c.CloseWrite()
	}
	if err != nil {
		upstream.Close()
		c.Close()
	}
	<-done
	return errOver
}

// errOver says that both sides of a connection have ended.
var errOver = errors.New("the connection is over")

// idle ends a connection on which nothing moves.
type idle struct {
	last  atomic.Int64
	ended chan struct{}
}

func newIdle(end func()) *idle {
	i := &idle{ended: make(chan struct{})}
	i.touch()
	go func() {
		timer := time.NewTimer(idleLimit)
		defer timer.Stop()
		for {
			select {
			case <-i.ended:
				return
			case <-timer.C:
			}
			left := idleLimit - time.Since(time.Unix(0, i.last.Load()))
			if left <= 0 {
				end()
				return
			}
			timer.Reset(left)
		}
	}()
	return i
}

func (i *idle) touch() { i.last.Store(time.Now().UnixNano()) }

func (i *idle) stop() { close(i.ended) }

func (i *idle) reader(r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		i.touch()
		return n, err
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Dial connects to "host:port" where the policy allows that, for what the engine itself fetches on a build's behalf.
func (p *Proxy) Dial(ctx context.Context, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, RequestURI: address, URL: &url.URL{}}
	host, port, err := target(request)
	if err != nil {
		return nil, err
	}
	return p.dial(ctx, request, host, port)
}

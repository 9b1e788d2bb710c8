package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sys/unix"
)

const (
	// attempts is how often a request is made that fails for no fault of its own.
	attempts = 6
	// longestWait is as long as a registry may ask to be left alone.
	longestWait = 60 * time.Second
)

// firstWait is doubled with each attempt. Variable for tests.
var firstWait = 250 * time.Millisecond

// isPlain says whether a registry is spoken to without TLS.
func isPlain(host string, named []string) bool {
	if slices.Contains(named, host) {
		return true
	}
	return isLoopback(host)
}

func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// newTransport makes connections as this package wants them: through the environment's proxies, tried again after faults that pass, without
// TLS only where that was asked for, and never to a link-local address, where clouds keep their machines' secrets.
func newTransport(plainHTTP []string) http.RoundTripper {
	dialer := &net.Dialer{Timeout: 20 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil || a.Addr().Unmap().IsLinkLocalUnicast() {
			return fmt.Errorf("%s is out of bounds", address)
		}
		return nil
	}}
	return &patient{&careful{plainHTTP, &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 20 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second, IdleConnTimeout: 20 * time.Second, MaxResponseHeaderBytes: 1 << 20,
		// Blobs are compressed already, and their digests are of what is sent.
		DisableCompression: true,
	}}}
}

// careful refuses requests without TLS to whom that was not asked for.
type careful struct {
	plainHTTP []string
	next      http.RoundTripper
}

func (c *careful) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !isPlain(r.URL.Host, c.plainHTTP) {
		return nil, fmt.Errorf("%s speaks no TLS (remedy: name it as one of the registries with plain HTTP, if that is wanted)", r.URL.Host)
	}
	response, err := c.next.RoundTrip(r)
	if err == nil {
		response.Body = &stallGuard{ReadCloser: response.Body, after: stallLimit}
	}
	return response, err
}

// stallLimit is how long a connection may bring nothing before it counts as broken.
const stallLimit = 60 * time.Second

// stallGuard closes a body that brings nothing for a while, which ends the read.
type stallGuard struct {
	io.ReadCloser
	after time.Duration
}

func (s *stallGuard) Read(p []byte) (int, error) {
	timer := time.AfterFunc(s.after, func() { s.Close() })
	defer timer.Stop()
	return s.ReadCloser.Read(p)
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirects")
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return errors.New("a redirect away from TLS")
	}
	a, err := netip.ParseAddr(r.URL.Hostname())
	if err == nil && (a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()) && r.URL.Hostname() != via[0].URL.Hostname() {
		return fmt.Errorf("a redirect from %s to the private address %s", via[0].URL.Host, r.URL.Host)
	}
	return nil
}

// patient repeats requests that fail for reasons that pass. All of ours are GET or HEAD, or ask for a token.
type patient struct{ next http.RoundTripper }

func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, err := p.next.RoundTrip(r)
		if attempt == attempts || r.Context().Err() != nil || r.Body != nil && r.GetBody == nil {
			return response, err
		}
		after := ""
		switch {
		case err != nil:
			if !passes(err) {
				return nil, err
			}
		case response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500 && response.StatusCode != http.StatusNotImplemented:
			after = response.Header.Get("Retry-After")
			_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
			response.Body.Close()
		default:
			return response, nil
		}
		if err := pause(r.Context(), attempt, after); err != nil {
			return nil, err
		}
		if r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			r = r.Clone(r.Context())
			r.Body = body
		}
	}
}

// passes says whether an error may be gone at the next attempt.
func passes(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.IsTemporary || dns.IsTimeout
	}
	var network *net.OpError
	return errors.As(err, &network) && !errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pause waits before the next attempt, as long as the registry asks for, if it does.
func pause(ctx context.Context, attempt int, after string) error {
	wait := firstWait << min(attempt, 8)
	wait = wait/2 + rand.N(wait/2+1)
	if seconds, err := strconv.Atoi(after); err == nil && seconds >= 0 {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		wait = time.Until(at)
	}
	timer := time.NewTimer(max(0, min(wait, longestWait)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fault sorts the errors of registries.
func fault(err error) error {
	for _, known := range []error{ErrNotFound, ErrDenied, ErrInvalid, ErrUnavailable, ErrTooLarge, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	var answer *transport.Error
	if errors.As(err, &answer) {
		switch {
		case answer.StatusCode == http.StatusNotFound:
			return fmt.Errorf("%w: %w", ErrNotFound, err)
		case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
			return fmt.Errorf("%w: %w (remedy: check the name, and the credentials for this registry)", ErrDenied, err)
		case answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve has a proxy behind a listener, as the agent has it in a sandbox.
func serve(t *testing.T, p *Proxy) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	if p.Parent == nil {
		p.Parent = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go p.Serve(t.Context(), c.(*net.TCPConn))
		}
	}()
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}
}

func client(proxy *url.URL, roots *x509.CertPool) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fmt.Fprintf(w, "%s %s %s %q", r.Method, r.URL, body, r.Header.Get("Proxy-Authorization"))
}

func get(t *testing.T, c *http.Client, address string) (int, string) {
	t.Helper()
	response, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestAllowedServersAreReachedPlainAndByConnect(t *testing.T) {
	var served atomic.Int32
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served.Add(1); echo(w, r) })
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	c := client(serve(t, &Proxy{Policy: policy(t, "127.0.0.1")}), secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs)
	for range 3 {
		// The connection to the proxy is used again, and the bodies are not mixed up.
		response, err := c.Post(plain.URL+"/p?q=1", "text/plain", strings.NewReader("the body"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != `POST /p?q=1 the body ""` {
			t.Fatalf("%q, %v", body, err)
		}
	}
	if status, body := get(t, c, secure.URL+"/s"); status != 200 || body != `GET /s  ""` {
		t.Fatalf("%d %q", status, body)
	}
	if served.Load() != 4 {
		t.Fatalf("%d requests were served (expected: 4)", served.Load())
	}
}

func TestLargeBodiesPassBothWays(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Got", fmt.Sprint(n))
		// Without a length, so in chunks.
		for range 100 {
			_, _ = w.Write(make([]byte, 100_000))
		}
	}))
	defer server.Close()
	c := client(serve(t, &Proxy{Policy: policy(t, "127.0.0.1")}), nil)
	for range 2 {
		request, err := http.NewRequest(http.MethodPut, server.URL, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 5_000_000))})
		if err != nil {
			t.Fatal(err)
		}
		// The client waits for the server to say that it goes on.
		request.Header.Set("Expect", "100-continue")
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil || n != 10_000_000 || response.Header.Get("Got") != "5000000" {
			t.Fatalf("%d bytes, %v; the server got %s", n, err, response.Header.Get("Got"))
		}
	}
}

func TestRefusalNamesTheSetting(t *testing.T) {
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()
	proxy := serve(t, &Proxy{Policy: policy(t)})
	status, body := get(t, client(proxy, nil), server.URL)
	if status != http.StatusForbidden || !strings.Contains(body, "build.allow") || !strings.Contains(body, "127.0.0.1") {
		t.Fatalf("%d %q (expected: 403, and the setting's name)", status, body)
	}
	for _, authority := range []string{server.Listener.Addr().String(), "localhost:80", "LOCALHOST.:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80", "[64:ff9b::7f00:1]:80"} {
		status, body := connect(t, proxy, authority)
		if status != http.StatusForbidden || !strings.Contains(body, "build.allow") {
			t.Errorf("%s: %d %q (expected: 403, and the setting's name)", authority, status, body)
		}
	}
	if served.Load() != 0 {
		t.Error("the server was reached")
	}
}

func connect(t *testing.T, proxy *url.URL, authority string) (int, string) {
	t.Helper()
	return say(t, proxy, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
}

// say sends a text and reads the answer.
func say(t *testing.T, proxy *url.URL, text string) (int, string) {
	t.Helper()
	c, err := net.Dial("tcp", proxy.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() { _, _ = io.WriteString(c, text) }()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func TestNameThatLeadsInwardIsRefusedWhateverElseItLeadsTo(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	lookups := 0
	p := &Proxy{Policy: policy(t, "127.0.0.1"), lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		lookups++
		switch host {
		case "good.example":
			// The first is not tried, as it is not allowed.
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}, nil
		case "bad.example":
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, nil
		}
		return nil, errors.New("no such host")
	}}
	c := client(serve(t, p), nil)
	if status, body := get(t, c, "http://good.example:"+port+"/x"); status != 200 || !strings.HasPrefix(body, "GET /x") {
		t.Fatalf("%d %q", status, body)
	}
	if lookups != 1 {
		t.Errorf("%d look-ups (expected: one, whose addresses are dialled)", lookups)
	}
	if status, body := get(t, c, "http://bad.example:"+port); status != 403 {
		t.Errorf("%d %q (expected: 403)", status, body)
	}
	if status, body := get(t, c, "http://none.example:"+port); status != 502 || !strings.Contains(body, "none.example") {
		t.Errorf("%d %q (expected: 502)", status, body)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	proxy := serve(t, &Proxy{Policy: policy(t)})
	for text, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                        400,
		"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n":                                 400,
		"CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n":                                    400,
		"CONNECT x:0 HTTP/1.1\r\nHost: x\r\n\r\n":                                  400,
		"CONNECT x:99999 HTTP/1.1\r\nHost: x\r\n\r\n":                              400,
		"CONNECT x;y:1 HTTP/1.1\r\nHost: x\r\n\r\n":                                400,
		"\x16\x03\x01\x02\x00\r\n\r\n":                                             400,
		"GET http://x/ HTTP/1.1\r\nA: " + strings.Repeat("a", 40<<10) + "\r\n\r\n": 431,
		"GET http://x/" + strings.Repeat("a", 40<<10):                              431,
	} {
		if status, body := say(t, proxy, text); status != want {
			t.Errorf("%.40q: %d %q (expected: %d)", text, status, body, want)
		}
	}
}

func TestParentProxyIsGoneThrough(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	var asked atomic.Value
	parent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization"))
		upstream, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		defer upstream.Close()
		w.WriteHeader(200)
		c, rest, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		go func() { _, _ = io.Copy(upstream, rest) }()
		_, _ = io.Copy(c, upstream)
	}))
	defer parent.Close()
	address, err := url.Parse(parent.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("u", "p")
	through := &Proxy{Policy: policy(t, "127.0.0.1"), Parent: http.ProxyURL(address)}
	if status, body := get(t, client(serve(t, through), nil), server.URL+"/z"); status != 200 || body != `GET /z  ""` {
		t.Fatalf("%d %q", status, body)
	}
	if want := "CONNECT " + server.Listener.Addr().String() + " Basic dTpw"; asked.Load() != want {
		t.Errorf("the parent was asked %q (expected: %q)", asked.Load(), want)
	}
	// Inward stays refused, whatever the parent would do.
	closed := &Proxy{Policy: policy(t), Parent: http.ProxyURL(address)}
	if status, _ := get(t, client(serve(t, closed), nil), server.URL); status != 403 {
		t.Errorf("%d (expected: 403)", status)
	}
}

func TestConnectionsEndWithTheBuild(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	p := &Proxy{Policy: policy(t, "127.0.0.1"), Parent: func(*http.Request) (*url.URL, error) { return nil, nil }}
	go func() { p.Serve(ctx, pipeConn{theirs}); close(done) }()
	if _, err := fmt.Fprintf(ours, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", silent.Addr()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(ours).ReadString('\n')
	if err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the connection goes on")
	}
}

type pipeConn struct{ net.Conn }

func (pipeConn) CloseWrite() error { return nil }

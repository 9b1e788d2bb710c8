package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A transfer says how far it is once it takes longer than progressAfter, and then every progressEvery.
const (
	progressAfter = 500 * time.Millisecond
	progressEvery = 200 * time.Millisecond
)

// meter tells on a terminal how much of a body has passed. One goroutine reads it.
type meter struct {
	io.ReadCloser
	to            io.Writer
	what          string
	total, passed int64
	begun, told   time.Time
	shown         bool
	now           func() time.Time
}

func (m *meter) Read(into []byte) (int, error) {
	n, err := m.ReadCloser.Read(into)
	m.passed += int64(n)
	if now := m.now(); now.Sub(m.begun) >= progressAfter && now.Sub(m.told) >= progressEvery {
		m.told, m.shown = now, true
		fmt.Fprint(m.to, "\r"+m.line(now)+"\x1b[K")
	}
	if err != nil {
		m.clear()
	}
	return n, err
}

func (m *meter) Close() error {
	m.clear()
	return m.ReadCloser.Close()
}

// clear leaves nothing on the line: what comes next is the outcome.
func (m *meter) clear() {
	if m.shown {
		m.shown = false
		fmt.Fprint(m.to, "\r\x1b[K")
	}
}

func (m *meter) line(now time.Time) string {
	line := m.what + " " + size(m.passed)
	if m.total > 0 {
		line += fmt.Sprintf(" of %s, %d %%", size(m.total), 100*m.passed/m.total)
	}
	if seconds := now.Sub(m.begun).Seconds(); seconds > 0 {
		line += fmt.Sprintf(", %s/s", size(int64(float64(m.passed)/seconds)))
	}
	return line
}

// measured are the routes whose bodies may be large.
func measured(path string) bool {
	return slices.ContainsFunc([]string{"/files", "/file", "/files:archive", "/images:import", "/context"}, func(end string) bool { return strings.HasSuffix(path, end) })
}

func (s *server) meter(body io.ReadCloser, what string, total int64) io.ReadCloser {
	now := time.Now()
	return &meter{ReadCloser: body, to: s.progress, what: what, total: total, begun: now, told: now, now: time.Now}
}

// watched has a request tell how far its body is, where there is a terminal for that.
func (s *server) watched(r *http.Request) {
	if s.progress != nil && measured(r.URL.Path) && r.Body != nil && r.Body != http.NoBody {
		r.Body = s.meter(r.Body, "sent", r.ContentLength)
	}
}

// watchedReply does so for an answer.
func (s *server) watchedReply(reply *http.Response) {
	if s.progress != nil && reply.Request.Method == http.MethodGet && measured(reply.Request.URL.Path) {
		reply.Body = s.meter(reply.Body, "received", reply.ContentLength)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

func runShell(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	var o programOptions
	f := newFlags("shell")
	o.flags(f)
	process := f.String("attach", "", "")
	offset := f.Int64("offset", 0, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 1 {
		return 0, usageError(fmt.Sprintf("%d sandboxes (expected: one, or none for a new one)", len(words)))
	}
	if len(words) == 1 {
		o.sandbox = words[0]
	}
	if *process != "" && o.sandbox == "" {
		return 0, usageError("--attach without the sandbox")
	}
	done, err := o.place(ctx, s, t.stderr)
	if err != nil {
		return 0, err
	}
	screen := openScreen(t)
	to := attachment{process: *process, offset: *offset}
	if *process == "" {
		to.start = url.Values{}
		for name, value := range map[string]string{"user": o.user, "cwd": o.cwd} {
			if value != "" {
				to.start.Set(name, value)
			}
		}
		for name, value := range o.env {
			to.start.Set("env."+name, value)
		}
	}
	ended, err := attach(ctx, s, o.sandbox, to, true, screen, t)
	return finish(ended, err, done, t.stderr)
}

// attachment is a terminal of a sandbox: one that runs, or one to be started.
type attachment struct {
	process string
	offset  int64
	start   url.Values
}

// viewer joins a terminal here with one in a sandbox, over as many connections as it takes.
type viewer struct {
	*server
	sandbox  string
	to       attachment
	screen   *screen
	terminal terminal

	mu sync.Mutex
	// The rest is protected by mu. connection is nil while there is none.
	connection *websocket.Conn
	// base is how much input the terminal had taken before this viewer; sent counts what it sent; recent is the end of that, for what was under way
	// when a connection broke.
	base, sent int64
	recent     []byte
	away       bool
}

// recentInput is how much input is sent again after a break, if the terminal has not got it.
const recentInput = 64 << 10

// attach shows the terminal until its program ends. An error means that the program goes on, or that there was none.
func attach(ctx context.Context, s *server, sandbox string, to attachment, input bool, scr *screen, t terminal) (ended *process, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	v := &viewer{server: s, sandbox: sandbox, to: to, screen: scr, terminal: t}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGWINCH, os.Interrupt)
	defer signal.Stop(signals)
	// In whatever way this function is left.
	defer func() { scr.restore(ended == nil) }()
	begun := false
	err = v.follow(ctx, func() (bool, error) {
		connection, err := v.connect(ctx)
		if err != nil {
			return false, err
		}
		defer connection.CloseNow()
		first := !begun
		begun = true
		if first {
			v.patience = patient
			if err := scr.raw(); err != nil {
				return false, err
			}
			if input {
				go v.sendInput(ctx, stop)
			}
			go v.forward(ctx, signals)
		}
		v.joined(ctx, connection)
		before, begin := v.to.offset, time.Now()
		ended, err = v.show(ctx, connection)
		v.parted()
		return first || v.to.offset > before || time.Since(begin) > time.Second, err
	})
	if ended != nil {
		return ended, nil
	}
	if v.to.process == "" {
		return nil, err
	}
	goesOn := fmt.Errorf("the terminal goes on (to see it again: ./atoll shell %s --attach %s)", sandbox, v.to.process)
	switch {
	case errors.Is(context.Cause(ctx), errLeft), ctx.Err() != nil:
		return nil, fmt.Errorf("left; %w", goesOn)
	case transient(err):
		return nil, fmt.Errorf("%w; %w", err, goesOn)
	}
	return nil, err
}

func (v *viewer) connect(ctx context.Context) (*websocket.Conn, error) {
	query := url.Values{}
	columns, rows := v.screen.size()
	query.Set("cols", strconv.Itoa(columns))
	query.Set("rows", strconv.Itoa(rows))
	if v.to.process != "" {
		query = url.Values{"process_id": {v.to.process}, "offset": {strconv.FormatInt(v.to.offset, 10)}}
		taken, err := v.taken(ctx)
		if err != nil {
			return nil, err
		}
		v.resume(taken)
	} else {
		for name, values := range v.to.start {
			query[name] = values
		}
	}
	return v.dial(ctx, sandboxPath(v.sandbox, "/pty"), query)
}

// dial opens a WebSocket; what the server answers instead is an error like any other.
func (s *server) dial(ctx context.Context, path string, query url.Values) (*websocket.Conn, error) {
	address := s.url + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	connection, reply, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + s.key}},
		Subprotocols: []string{"atoll.v1"},
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if reply != nil && reply.StatusCode >= 300 {
			defer reply.Body.Close()
			return nil, readError(reply)
		}
		return nil, unreachable{s.url, err}
	}
	connection.SetReadLimit(maxEvent)
	return connection, nil
}

// taken is how much input the terminal has got.
func (v *viewer) taken(ctx context.Context) (int64, error) {
	var p process
	// The caller is the one that tries again.
	one := server{url: v.url, key: v.key}
	err := one.do(ctx, apiCall{method: http.MethodGet, path: sandboxPath(v.sandbox, "/processes/", url.PathEscape(v.to.process))}, &p)
	if err == nil && p.ID != "" {
		v.to.process = p.ID
	}
	return p.StdinOffset, err
}

// resume finds out what of the last input was lost on its way.
func (v *viewer) resume(taken int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	got := taken - v.base
	if lost := v.sent - got; lost > 0 && lost <= int64(len(v.recent)) {
		v.recent = v.recent[int64(len(v.recent))-lost:]
	} else {
		v.recent = nil
	}
	v.base, v.sent = taken, int64(len(v.recent))
}

// joined makes the connection the one that input goes to, what was lost first.
func (v *viewer) joined(ctx context.Context, connection *websocket.Conn) {
	v.mu.Lock()
	lost := v.recent
	v.connection, v.recent, v.sent, v.away = connection, nil, 0, false
	if len(lost) > 0 {
		v.sendLocked(ctx, lost)
	}
	v.mu.Unlock()
	v.resize(ctx)
}

func (v *viewer) parted() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connection, v.away = nil, true
}

// sendLocked requires mu, which keeps input in order.
func (v *viewer) sendLocked(ctx context.Context, data []byte) {
	v.sent += int64(len(data))
	v.recent = append(v.recent, data...)
	if over := len(v.recent) - recentInput; over > 0 {
		v.recent = append([]byte(nil), v.recent[over:]...)
	}
	if v.connection != nil {
		// A failed write shows in reading too, where it is dealt with.
		_ = v.connection.Write(ctx, websocket.MessageBinary, data)
	}
}

const (
	controlC   = 0x03
	endOfInput = 0x04
)

// sendInput sends what is typed. While there is no connection, Ctrl-C means the CLI.
func (v *viewer) sendInput(ctx context.Context, leave context.CancelCauseFunc) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := v.terminal.stdin.Read(buffer)
		v.mu.Lock()
		if n > 0 && v.away && v.screen.stdinIsTTY && strings.IndexByte(string(buffer[:n]), controlC) >= 0 {
			v.mu.Unlock()
			leave(errLeft)
			return
		}
		if n > 0 {
			v.sendLocked(ctx, buffer[:n])
		}
		if err != nil && errors.Is(err, io.EOF) && !v.screen.stdinIsTTY {
			v.sendLocked(ctx, []byte{endOfInput})
		}
		v.mu.Unlock()
		if err != nil && v.screen.stdinIsTTY {
			// The window was closed.
			leave(errLeft)
		}
		if err != nil {
			return
		}
	}
}

// forward passes on that the window has another size, and a Ctrl-C that came as a signal.
func (v *viewer) forward(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-signals:
			if one == unix.SIGWINCH {
				v.resize(ctx)
				continue
			}
			v.mu.Lock()
			v.sendLocked(ctx, []byte{controlC})
			v.mu.Unlock()
		}
	}
}

// resize tells the size; only a terminal that is seen on one has a say.
func (v *viewer) resize(ctx context.Context) {
	if v.screen.output < 0 && v.screen.input < 0 {
		return
	}
	columns, rows := v.screen.size()
	text, _ := json.Marshal(map[string]any{"type": "resize", "cols": columns, "rows": rows})
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.connection != nil {
		_ = v.connection.Write(ctx, websocket.MessageText, text)
	}
}

// show writes what comes over one connection and counts it.
func (v *viewer) show(ctx context.Context, connection *websocket.Conn) (*process, error) {
	for {
		kind, data, err := connection.Read(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		if kind == websocket.MessageBinary {
			if _, err := v.terminal.stdout.Write(data); err != nil {
				return nil, err
			}
			v.to.offset += int64(len(data))
			continue
		}
		var told struct {
			Type      string
			ProcessID string `json:"process_id"`
			Offset    int64
		}
		if err := json.Unmarshal(data, &told); err != nil {
			return nil, fmt.Errorf("the server said what was not expected: %w", err)
		}
		switch told.Type {
		case "started":
			if gap := told.Offset - v.to.offset; v.to.process != "" && gap > 0 {
				fmt.Fprintf(v.terminal.stderr, "[%d bytes left out]\r\n", gap)
			}
			v.to.process, v.to.offset = told.ProcessID, told.Offset
		case "gap":
			var gap struct{ Bytes int64 }
			if json.Unmarshal(data, &gap) == nil {
				v.to.offset += gap.Bytes
				fmt.Fprintf(v.terminal.stderr, "[%d bytes left out]\r\n", gap.Bytes)
			}
		case "exited":
			var ended process
			if err := json.Unmarshal(data, &ended); err != nil {
				return nil, err
			}
			connection.Close(websocket.StatusNormalClosure, "")
			return &ended, nil
		case "error":
			var failure apiError
			if err := json.Unmarshal(data, &failure); err != nil {
				return nil, err
			}
			return nil, failure
		}
	}
}

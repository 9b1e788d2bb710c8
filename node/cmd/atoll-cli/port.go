package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// listening is a port that something inside listens on.
type listening struct {
	Port      int    `json:"port"`
	Address   string `json:"address"`
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	ProcessID string `json:"process_id"`
}

// forwarding leads from a local address to a port inside.
type forwarding struct {
	local  string
	remote int
}

func parseForwarding(text string) (forwarding, error) {
	at := strings.LastIndexByte(text, ':')
	local, remote := "0", text
	if at >= 0 {
		local, remote = text[:at], text[at+1:]
	}
	address := "127.0.0.1"
	if at := strings.LastIndexByte(local, ':'); at >= 0 {
		address, local = strings.Trim(local[:at], "[]"), local[at+1:]
	}
	inside, err := strconv.Atoi(remote)
	outside, wrong := strconv.Atoi(local)
	if err != nil || wrong != nil || inside < 1 || inside > 65535 || outside < 0 || outside > 65535 {
		return forwarding{}, usageError(fmt.Sprintf("'%s' (expected: LOCAL:REMOTE, such as 8000:3000; 0 takes any local port)", text))
	}
	return forwarding{net.JoinHostPort(address, local), inside}, nil
}

func runPort(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("port")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) == 0 {
		return 0, usageError("no sandbox named")
	}
	if words[0], err = s.sandboxID(ctx, words[0]); err != nil {
		return 0, err
	}
	if len(words) == 1 {
		return 0, s.listPorts(ctx, words[0], *asJSON, t.stdout)
	}
	// Asked once, so that a sandbox that is not there is told before anybody connects.
	if err := s.do(ctx, apiCall{method: "GET", path: sandboxPath(words[0])}, nil); err != nil {
		return 0, err
	}
	var open sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, word := range words[1:] {
		to, err := parseForwarding(word)
		if err != nil {
			return 0, err
		}
		listener, err := net.Listen("tcp", to.local)
		if err != nil {
			return 0, fmt.Errorf("%s cannot be listened on: %w (remedy: another local port, or 0 for any)", to.local, err)
		}
		context.AfterFunc(ctx, func() { listener.Close() })
		if *asJSON {
			json.NewEncoder(t.stdout).Encode(map[string]any{"local": listener.Addr().String(), "remote": to.remote})
		} else {
			fmt.Fprintf(t.stdout, "%s -> %s port %d\n", listener.Addr(), words[0], to.remote)
		}
		open.Go(func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				open.Go(func() {
					defer connection.Close()
					if err := s.tunnel(ctx, words[0], to.remote, connection); err != nil && ctx.Err() == nil {
						fmt.Fprintf(t.stderr, "atoll: port %d: %v\n", to.remote, err)
					}
				})
			}
		})
	}
	open.Wait()
	return 0, nil
}

func (s *server) listPorts(ctx context.Context, sandbox string, asJSON bool, out io.Writer) error {
	ports := newTable(out, asJSON, false)
	ports.header("", "PORT", "ADDRESS", "PID", "COMMAND", "OF")
	err := list(ctx, s, sandboxPath(sandbox, "/ports"), nil, cursorParameter, func(item json.RawMessage) error {
		return ports.row("", item, func(item json.RawMessage) ([]string, error) {
			var p listening
			if err := json.Unmarshal(item, &p); err != nil {
				return nil, err
			}
			return []string{strconv.Itoa(p.Port), p.Address, strconv.Itoa(p.PID), p.Command, or(p.ProcessID, "-")}, nil
		})
	})
	if err != nil {
		return err
	}
	return ports.flush()
}

const endOfStream = `{"type":"end"}`

// tunnel joins a local connection with one to a port inside. Each side may end its own direction and still get the other's.
func (s *server) tunnel(ctx context.Context, sandbox string, port int, local net.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	remote, err := s.dial(ctx, sandboxPath(sandbox, "/ports/", strconv.Itoa(port), "/tunnel"), nil)
	if err != nil {
		return err
	}
	defer remote.CloseNow()
	context.AfterFunc(ctx, func() { local.SetDeadline(time.Unix(1, 0)) })
	var ended atomic.Int32
	// When both directions have ended, so has the tunnel.
	end := func() {
		if ended.Add(1) == 2 {
			remote.Close(websocket.StatusNormalClosure, "")
		}
	}
	go func() {
		if pump(ctx, local, remote) != nil {
			// Nobody is there any more for the other direction.
			stop()
		}
		end()
	}()
	err = drain(ctx, remote, local, end)
	if ended.Load() == 2 {
		return nil
	}
	return err
}

func pump(ctx context.Context, local net.Conn, remote *websocket.Conn) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := local.Read(buffer)
		if n > 0 {
			if err := remote.Write(ctx, websocket.MessageBinary, buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return remote.Write(ctx, websocket.MessageText, []byte(endOfStream))
		}
		if err != nil {
			return err
		}
	}
}

// drain reads to the end of the tunnel, and says when the other side has ended its direction.
func drain(ctx context.Context, remote *websocket.Conn, local net.Conn, end func()) error {
	for {
		kind, data, err := remote.Read(ctx)
		var closed websocket.CloseError
		if errors.As(err, &closed) && closed.Code == websocket.StatusNormalClosure {
			return nil
		}
		if err != nil {
			return err
		}
		if kind == websocket.MessageText {
			var told struct{ Type string }
			if json.Unmarshal(data, &told) == nil && told.Type == "end" {
				if half, ok := local.(interface{ CloseWrite() error }); ok {
					if err := half.CloseWrite(); err != nil {
						return err
					}
				}
				go end()
			}
			continue
		}
		if _, err := local.Write(data); err != nil {
			return err
		}
	}
}

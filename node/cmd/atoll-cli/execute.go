package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxEvent is more than the server puts into one event; beyond it, it is not our server.
const maxEvent = 64 << 20

// request is the body of POST /v1/code_exec.
type request struct {
	Code           string  `json:"code"`
	Language       string  `json:"language,omitempty"`
	Sandbox        string  `json:"sandbox_id,omitempty"`
	Context        string  `json:"context_id,omitempty"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	Stream         bool    `json:"stream"`
}

// outcome is the final object, as far as it is shown here.
type outcome struct {
	Sandbox    string `json:"sandbox_id"`
	ExitReason string `json:"exit_reason"`
	ExitCode   int    `json:"exit_code"`
	StateKept  *bool  `json:"state_kept"`
	Detail     string `json:"detail"`
	Error      *struct {
		Name      string `json:"name"`
		Message   string `json:"message"`
		Traceback string `json:"traceback"`
	} `json:"error"`
	// raw is all of it, as it came.
	raw json.RawMessage
}

// completed says whether the code did what it was meant to. exit() and exit(0) count.
func (o outcome) completed() bool {
	return o.ExitReason == "completed" || o.ExitReason == "exited" && o.ExitCode == 0
}

// report says on stderr how it ended and in which sandbox to go on.
func (o outcome) report(stderr io.Writer) {
	if o.Error != nil {
		text := strings.TrimRight(o.Error.Traceback, "\n")
		if text == "" {
			text = o.Error.Name + ": " + o.Error.Message
		}
		fmt.Fprintln(stderr, text)
	}
	if !o.completed() && o.ExitReason != "error" {
		line := "ended: " + o.ExitReason
		if o.ExitReason == "exited" {
			line += fmt.Sprintf(" with %d", o.ExitCode)
		}
		if o.Detail != "" {
			line += ", " + o.Detail
		}
		fmt.Fprintln(stderr, line)
	}
	if o.StateKept != nil && !*o.StateKept {
		fmt.Fprintln(stderr, "the interpreter's state is lost")
	}
	fmt.Fprintln(stderr, "sandbox: "+o.Sandbox)
}

// execute runs the code and writes what it prints as it comes.
func (s *server) execute(ctx context.Context, r request, stdout, stderr io.Writer) (outcome, error) {
	reply, err := s.open(ctx, apiCall{method: http.MethodPost, path: "/v1/code_exec", body: r, header: http.Header{"Accept": {"text/event-stream, application/json"}}})
	if err != nil {
		return outcome{}, err
	}
	defer reply.Body.Close()
	printer := printer{stdout: stdout, stderr: stderr}
	if err := readEvents(reply.Body, printer.event); err != nil && printer.done == nil {
		return outcome{}, fmt.Errorf("the connection ended before the execution did, which goes on in the sandbox: %w", err)
	}
	if printer.done == nil {
		return outcome{}, errors.New("the stream ended before the execution did, which goes on in the sandbox")
	}
	return *printer.done, nil
}

// printer turns events into output.
type printer struct {
	stdout, stderr io.Writer
	done           *outcome
}

func (p *printer) event(e event) error {
	switch e.name {
	case "output":
		var output struct {
			Stream string
			Text   string
			Base64 []byte
		}
		if err := json.Unmarshal(e.data, &output); err != nil {
			return err
		}
		to := p.stdout
		if output.Stream == "stderr" {
			to = p.stderr
		}
		_, err := to.Write(append([]byte(output.Text), output.Base64...))
		return err
	case "result":
		var result struct {
			Data map[string]any
		}
		if err := json.Unmarshal(e.data, &result); err != nil {
			return err
		}
		if text, ok := result.Data["text/plain"].(string); ok {
			_, err := fmt.Fprintln(p.stdout, text)
			return err
		}
	case "gap":
		var gap struct {
			Stream string
			Bytes  int64
		}
		if err := json.Unmarshal(e.data, &gap); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.stderr, "[%d bytes of %s left out]\n", gap.Bytes, gap.Stream)
		return err
	case "done":
		if err := json.Unmarshal(e.data, &p.done); err != nil {
			return err
		}
		p.done.raw = bytes.Clone(e.data)
	case "error":
		var failure apiError
		if err := json.Unmarshal(e.data, &failure); err != nil {
			return err
		}
		return failure
	}
	// Events of a newer server are none of ours.
	return nil
}

// event is one server-sent event.
type event struct {
	name, id string
	data     []byte
}

// readEvents calls handle for each server-sent event until the stream or handle ends it.
func readEvents(stream io.Reader, handle func(event) error) error {
	lines := bufio.NewReaderSize(stream, 64<<10)
	next := event{}
	for {
		line, err := readEventLine(lines)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			if next.data != nil {
				next.data = next.data[:len(next.data)-1]
				if err := handle(next); err != nil {
					return err
				}
			}
			next = event{}
		case string(field) == "event":
			next.name = string(value)
		case string(field) == "id":
			next.id = string(value)
		case string(field) == "data":
			if len(next.data)+len(value) > maxEvent {
				return fmt.Errorf("an event of more than %d bytes", maxEvent)
			}
			next.data = append(append(next.data, value...), '\n')
		}
	}
}

func readEventLine(lines *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(line) > maxEvent {
			return nil, fmt.Errorf("a line of more than %d bytes", maxEvent)
		}
	}
}

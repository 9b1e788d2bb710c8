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

// server is where code is run.
type server struct {
	url, key string
}

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

// apiError is the API's error form.
type apiError struct {
	Code        string `json:"code"`
	Message     string `json:"message"`
	Cause       string `json:"cause"`
	Remediation string `json:"remediation"`
}

func (e apiError) Error() string {
	text := e.Message
	if text == "" {
		text = e.Code
	}
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	if e.Remediation != "" {
		text += " (remedy: " + e.Remediation + ")"
	}
	return text
}

// execute runs the code and writes what it prints as it comes.
func (s server) execute(ctx context.Context, r request, stdout, stderr io.Writer) (outcome, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return outcome{}, err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/code_exec", bytes.NewReader(body))
	if err != nil {
		return outcome{}, err
	}
	call.Header.Set("Authorization", "Bearer "+s.key)
	call.Header.Set("Content-Type", "application/json")
	call.Header.Set("Accept", "text/event-stream, application/json")
	reply, err := http.DefaultClient.Do(call)
	if err != nil {
		return outcome{}, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return outcome{}, readError(reply)
	}
	printer := printer{stdout: stdout, stderr: stderr}
	if err := readEvents(reply.Body, printer.event); err != nil && printer.done == nil {
		return outcome{}, fmt.Errorf("the connection ended before the execution did, which goes on in the sandbox: %w", err)
	}
	if printer.done == nil {
		return outcome{}, errors.New("the stream ended before the execution did, which goes on in the sandbox")
	}
	return *printer.done, nil
}

func readError(reply *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(reply.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("HTTP %d: %w", reply.StatusCode, err)
	}
	var form struct{ Error apiError }
	if json.Unmarshal(text, &form) != nil || form.Error == (apiError{}) {
		return fmt.Errorf("HTTP %d: %s", reply.StatusCode, strings.TrimSpace(string(text)))
	}
	return form.Error
}

// printer turns events into output.
type printer struct {
	stdout, stderr io.Writer
	done           *outcome
}

func (p *printer) event(name string, data []byte) error {
	switch name {
	case "output":
		var output struct {
			Stream string
			Text   string
			Base64 []byte
		}
		if err := json.Unmarshal(data, &output); err != nil {
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
		if err := json.Unmarshal(data, &result); err != nil {
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
		if err := json.Unmarshal(data, &gap); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.stderr, "[%d bytes of %s left out]\n", gap.Bytes, gap.Stream)
		return err
	case "done":
		return json.Unmarshal(data, &p.done)
	case "error":
		var failure apiError
		if err := json.Unmarshal(data, &failure); err != nil {
			return err
		}
		return failure
	}
	// Events of a newer server are none of ours.
	return nil
}

// readEvents calls handle for each server-sent event until the stream or handle ends it.
func readEvents(stream io.Reader, handle func(name string, data []byte) error) error {
	lines := bufio.NewReaderSize(stream, 64<<10)
	name, data := "", []byte(nil)
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
			if data != nil {
				if err := handle(name, data[:len(data)-1]); err != nil {
					return err
				}
			}
			name, data = "", nil
		case string(field) == "event":
			name = string(value)
		case string(field) == "data":
			if len(data)+len(value) > maxEvent {
				return fmt.Errorf("an event of more than %d bytes", maxEvent)
			}
			data = append(append(data, value...), '\n')
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

package main

import (
	"bytes"
	"context"
	"encoding/base64"
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
	"time"
	"unicode/utf8"
)

// process is the API's view of a program that it started.
type process struct {
	ID          string    `json:"process_id"`
	SandboxID   string    `json:"sandbox_id"`
	PID         int       `json:"pid"`
	Argv        []string  `json:"argv"`
	Command     string    `json:"command"`
	User        string    `json:"user"`
	State       string    `json:"state"`
	StartedAt   time.Time `json:"started_at"`
	ExitReason  string    `json:"exit_reason"`
	ExitCode    *int      `json:"exit_code"`
	Signal      any       `json:"signal"`
	Detail      string    `json:"detail"`
	StdoutBytes int64     `json:"stdout_bytes"`
	StderrBytes int64     `json:"stderr_bytes"`
	StdinOffset int64     `json:"stdin_offset"`
}

// status is what the CLI exits with.
func (p process) status() int {
	if p.ExitCode != nil {
		return *p.ExitCode
	}
	return statusFailed
}

// report says on stderr why it ended, where it is not by itself.
func (p process) report(stderr io.Writer) {
	if p.ExitReason != "exited" && p.ExitReason != "signaled" {
		line := "ended: " + p.ExitReason
		if p.Detail != "" {
			line += ", " + p.Detail
		}
		fmt.Fprintln(stderr, line)
	}
}

// programOptions are common to run and shell.
type programOptions struct {
	sandbox, template, user, cwd string
	env                          pairs
	timeout                      float64
	keep                         bool
}

func (o *programOptions) flags(f flags) {
	o.env = pairs{}
	f.StringVar(&o.template, "template", "", "")
	f.StringVar(&o.user, "user", "", "")
	f.StringVar(&o.user, "u", "", "")
	f.StringVar(&o.cwd, "cwd", "", "")
	f.Var(o.env, "e", "")
	f.BoolVar(&o.keep, "keep", false, "")
}

// place finds the sandbox or makes one; done says what becomes of it.
func (o *programOptions) place(ctx context.Context, s *server, stderr io.Writer) (done func(keep bool), err error) {
	if o.sandbox != "" {
		if o.template != "" {
			return nil, usageError("a sandbox and a template (expected: one of them)")
		}
		if o.sandbox, err = s.sandboxID(ctx, o.sandbox); err != nil {
			return nil, err
		}
		return func(bool) {}, nil
	}
	id, end, err := s.createSandbox(ctx, o.template)
	if err != nil {
		return nil, err
	}
	o.sandbox = id
	return func(keep bool) {
		if keep || o.keep {
			fmt.Fprintln(stderr, "sandbox: "+id)
		} else {
			end()
		}
	}, nil
}

func (o *programOptions) start() map[string]any {
	fields := map[string]any{}
	for name, value := range map[string]string{"user": o.user, "cwd": o.cwd} {
		if value != "" {
			fields[name] = value
		}
	}
	if len(o.env) > 0 {
		fields["env"] = o.env
	}
	if o.timeout > 0 {
		fields["timeout_seconds"] = o.timeout
	}
	return fields
}

func runRun(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	var o programOptions
	f := newFlags("run")
	f.program = true
	o.flags(f)
	f.StringVar(&o.sandbox, "s", "", "")
	f.Float64Var(&o.timeout, "timeout", 0, "")
	interactive, onTerminal := f.Bool("i", false, ""), f.Bool("t", false, "")
	both, detached, asJSON := f.Bool("it", false, ""), f.Bool("d", false, ""), f.Bool("json", false, "")
	argv, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(argv) == 0 {
		return 0, usageError("nothing to run")
	}
	*interactive, *onTerminal = *interactive || *both, *onTerminal || *both
	if *onTerminal && *asJSON {
		return 0, usageError("-t and --json (expected: one of them)")
	}
	if *detached && (*interactive || *onTerminal) {
		return 0, usageError("-d with -i or -t (remedy: start it with -d, then ./atoll shell --attach PROCESS or ./atoll logs -f)")
	}
	done, err := o.place(ctx, s, t.stderr)
	if err != nil {
		return 0, err
	}
	fields := o.start()
	fields["argv"] = argv
	// Nobody but a terminal's program reads what nobody writes.
	fields["stdin"] = *interactive || *onTerminal
	screen := openScreen(t)
	if *onTerminal {
		columns, rows := screen.size()
		fields["pty"] = map[string]int{"cols": columns, "rows": rows}
	}
	var p process
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: sandboxPath(o.sandbox, "/processes"), body: fields, header: once()}, &p); err != nil {
		done(false)
		return startStatus(err), err
	}
	s.patience = patient
	switch {
	case *detached:
		if *asJSON {
			json.NewEncoder(t.stdout).Encode(map[string]any{"sandbox_id": o.sandbox, "process_id": p.ID, "pid": p.PID})
		} else {
			fmt.Fprintln(t.stdout, p.ID)
			fmt.Fprintln(t.stderr, "sandbox: "+o.sandbox)
		}
		return 0, nil
	case *onTerminal:
		ended, err := attach(ctx, s, o.sandbox, attachment{process: p.ID}, *interactive, screen, t)
		return finish(ended, err, done, t.stderr)
	}
	r := runner{server: s, sandbox: o.sandbox, process: p.ID, terminal: t, asJSON: *asJSON}
	if *asJSON {
		r.line("started", map[string]any{"process_id": p.ID, "sandbox_id": o.sandbox, "pid": p.PID})
	}
	ended, err := r.wait(ctx, *interactive)
	return finish(ended, err, done, t.stderr)
}

// startStatus is what shells say of a program that cannot be started.
func startStatus(err error) int {
	var refused apiError
	switch errors.As(err, &refused); refused.Code {
	case "program_not_found":
		return 127
	case "permission_denied":
		return 126
	}
	return statusNotRun
}

// finish turns the end of a program, or of the CLI's part in it, into an exit status.
func finish(ended *process, err error, done func(bool), stderr io.Writer) (int, error) {
	done(ended == nil)
	if err != nil {
		return statusNotRun, err
	}
	ended.report(stderr)
	return ended.status(), nil
}

// runner follows a program that has no terminal.
type runner struct {
	*server
	sandbox, process string
	terminal         terminal
	asJSON           bool
	// seen counts the bytes of each stream that were written.
	seen [2]int64
	last string
}

// errLeft is how following ends when the user has had enough; the program goes on.
var errLeft = errors.New("left")

// wait follows the program to its end, whatever becomes of the server meanwhile.
func (r *runner) wait(ctx context.Context, interactive bool) (*process, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	go r.forwardSignals(ctx, signals, func() { stop(errLeft) })
	if interactive {
		go func() {
			if err := r.sendInput(ctx, r.terminal.stdin); err != nil && ctx.Err() == nil {
				fmt.Fprintln(r.terminal.stderr, "atoll: input: "+err.Error())
			}
		}()
	}
	var ended *process
	err := r.follow(ctx, func() (bool, error) {
		return r.events(ctx, &ended)
	})
	if ended != nil {
		return ended, nil
	}
	if errors.Is(context.Cause(ctx), errLeft) || ctx.Err() != nil {
		return nil, r.goesOn("left")
	}
	if transient(err) {
		return nil, fmt.Errorf("%w; %w", err, r.goesOn("given up"))
	}
	return nil, err
}

func (r *runner) goesOn(why string) error {
	return fmt.Errorf("%s; the program goes on (to see it: ./atoll logs -f %s %s, to end it: ./atoll kill %s %s)", why, r.sandbox, r.process, r.sandbox, r.process)
}

// forwardSignals gives the program each Ctrl-C. Where it does not end, the third in two seconds is meant for the CLI.
func (r *runner) forwardSignals(ctx context.Context, signals <-chan os.Signal, leave func()) {
	var times []time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		times = append(times, time.Now())
		if n := len(times); n >= 3 && times[n-1].Sub(times[n-3]) < 2*time.Second {
			leave()
			return
		}
		go func() {
			path := sandboxPath(r.sandbox, "/processes/", url.PathEscape(r.process), ":signal")
			if err := r.do(ctx, apiCall{method: http.MethodPost, path: path, body: map[string]any{"signal": "INT", "target": "group"}}, nil); err != nil && ctx.Err() == nil && !transient(err) {
				fmt.Fprintln(r.terminal.stderr, "atoll: Ctrl-C: "+err.Error())
			}
		}()
	}
}

// inputPiece is what one call takes along.
const inputPiece = 256 << 10

// sendInput writes all that comes and then the end of input. Each piece carries its place, so that repeating it is harmless.
func (r *runner) sendInput(ctx context.Context, from io.Reader) error {
	var offset int64
	buffer := make([]byte, inputPiece)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if offset, err = r.writeInput(ctx, buffer[:n], offset, false); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			_, closing := r.writeInput(ctx, nil, offset, true)
			if !errors.Is(err, io.EOF) {
				return err
			}
			return closing
		}
	}
}

func (r *runner) writeInput(ctx context.Context, data []byte, offset int64, closing bool) (int64, error) {
	path := sandboxPath(r.sandbox, "/processes/", url.PathEscape(r.process), "/stdin")
	for {
		var taken struct {
			Offset int64
			Closed bool
		}
		before := offset
		err := r.follow(ctx, func() (bool, error) {
			query := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
			if closing {
				query.Set("close", "true")
			}
			request, err := r.request(ctx, http.MethodPost, path, query, bytes.NewReader(data))
			if err != nil {
				return false, err
			}
			request.Header.Set("Content-Type", "application/octet-stream")
			reply, err := r.send(request)
			if err != nil {
				return false, err
			}
			defer reply.Body.Close()
			if err := json.NewDecoder(reply.Body).Decode(&taken); err != nil {
				return false, unreachable{r.url, err}
			}
			return true, nil
		})
		var refused apiError
		if errors.As(err, &refused) && refused.status == http.StatusConflict {
			// It has ended or reads no more. Its end is told elsewhere.
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
		took := min(max(taken.Offset-before, 0), int64(len(data)))
		offset, data = before+took, data[took:]
		if len(data) == 0 || taken.Closed {
			return offset, nil
		}
	}
}

// streamNames in the order of runner.seen.
var streamNames = [2]string{"stdout", "stderr"}

// events reads the stream of events once, from behind the last one that came.
func (r *runner) events(ctx context.Context, ended **process) (progress bool, err error) {
	request, err := r.request(ctx, http.MethodGet, sandboxPath(r.sandbox, "/processes/", url.PathEscape(r.process), "/events"), nil, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set("Accept", "text/event-stream")
	if r.last != "" {
		request.Header.Set("Last-Event-ID", r.last)
	}
	reply, err := r.send(request)
	if err != nil {
		return false, err
	}
	defer reply.Body.Close()
	err = readEvents(reply.Body, func(e event) error {
		progress = true
		if err := r.event(ctx, e, ended); err != nil {
			return err
		}
		if e.id != "" {
			r.last = e.id
		}
		return nil
	})
	if *ended != nil {
		return true, nil
	}
	var written writeError
	if errors.As(err, &written) {
		return progress, err
	}
	var told apiError
	if errors.As(err, &told) {
		return progress, err
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return progress, fmt.Errorf("%w: %w", errBrokenOff, err)
}

// writeError is a reader of ours that went away.
type writeError struct{ error }

func (r *runner) event(ctx context.Context, e event, ended **process) error {
	switch e.name {
	case "stdout", "stderr":
		var output struct {
			Text   string
			Base64 []byte
			Offset *int64
		}
		if err := json.Unmarshal(e.data, &output); err != nil {
			return err
		}
		stream := 0
		if e.name == "stderr" {
			stream = 1
		}
		data := append([]byte(output.Text), output.Base64...)
		if output.Offset != nil {
			// What came again after a break is left out; what is not there any more is told.
			if again := r.seen[stream] - *output.Offset; again > 0 {
				data = data[min(again, int64(len(data))):]
			} else if again < 0 {
				r.gap(stream, -again)
			}
		}
		r.seen[stream] += int64(len(data))
		return r.write(stream, data)
	case "gap":
		var gap struct {
			Stream string
			Offset int64
			Bytes  int64
		}
		if err := json.Unmarshal(e.data, &gap); err != nil {
			return err
		}
		for i, name := range streamNames {
			if name == gap.Stream && gap.Offset+gap.Bytes > r.seen[i] {
				r.gap(i, gap.Offset+gap.Bytes-r.seen[i])
			}
		}
	case "exited":
		var p process
		if err := json.Unmarshal(e.data, &p); err != nil {
			return err
		}
		if r.asJSON {
			r.line("exited", json.RawMessage(e.data))
		}
		*ended = &p
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

func (r *runner) gap(stream int, bytes int64) {
	r.seen[stream] += bytes
	if r.asJSON {
		r.line("gap", map[string]any{"stream": streamNames[stream], "bytes": bytes})
	} else {
		fmt.Fprintf(r.terminal.stderr, "[%d bytes of %s left out]\n", bytes, streamNames[stream])
	}
}

func (r *runner) write(stream int, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if r.asJSON {
		return r.line(streamNames[stream], textOrBase64(data))
	}
	to := r.terminal.stdout
	if stream == 1 {
		to = r.terminal.stderr
	}
	if _, err := to.Write(data); err != nil {
		return writeError{err}
	}
	return nil
}

// line writes one JSON object with the name of what happened.
func (r *runner) line(event string, fields any) error {
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	text = append(fmt.Appendf(nil, `{"event":%q`, event), append([]byte{','}, text[1:]...)...)
	if _, err := r.terminal.stdout.Write(append(text, '\n')); err != nil {
		return writeError{err}
	}
	return nil
}

// textOrBase64 is how bytes stand in JSON here and in the API.
func textOrBase64(data []byte) map[string]any {
	if utf8.Valid(data) {
		return map[string]any{"text": string(data)}
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString(data)}
}

func runKill(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("kill")
	name := f.String("s", "TERM", "")
	tree, asJSON := f.Bool("tree", false, ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) < 2 {
		return 0, usageError("no process named")
	}
	box, err := s.sandboxID(ctx, words[0])
	if err != nil {
		return 0, err
	}
	var signal any = strings.TrimPrefix(strings.ToUpper(*name), "SIG")
	if number, err := strconv.Atoi(*name); err == nil {
		signal = number
	}
	status := 0
	for _, one := range words[1:] {
		body, path := map[string]any{"signal": signal}, sandboxPath(box, "/processes/", url.PathEscape(one), ":signal")
		if *tree {
			body["target"] = "tree"
		} else if _, err := strconv.Atoi(one); err == nil {
			// Any process inside, whoever started it.
			path = sandboxPath(box, "/ps/", one, ":signal")
		}
		err := s.do(ctx, apiCall{method: http.MethodPost, path: path, body: body}, nil)
		if *asJSON {
			answer := map[string]any{"process": one, "ok": err == nil}
			if err != nil {
				answer["error"] = err.Error()
			}
			json.NewEncoder(t.stdout).Encode(answer)
		} else if err != nil {
			fmt.Fprintf(t.stderr, "atoll: %s: %v\n", one, err)
		}
		if err != nil {
			status = statusFailed
		}
	}
	return status, nil
}

func runLogs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("logs")
	followed, asJSON := f.Bool("f", false, ""), f.Bool("json", false, "")
	stream, offset := f.String("stream", "combined", ""), f.Int64("offset", 0, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 2 {
		return 0, usageError(fmt.Sprintf("%d words (expected: a sandbox, and a process or an execution)", len(words)))
	}
	path := "/v1/executions/" + url.PathEscape(words[1]) + "/output"
	if !strings.HasPrefix(words[1], "exec-") {
		box, err := s.sandboxID(ctx, words[0])
		if err != nil {
			return 0, err
		}
		path = sandboxPath(box, "/processes/", url.PathEscape(words[1]), "/output")
	}
	at := *offset
	err = s.follow(ctx, func() (bool, error) {
		query := url.Values{"stream": {*stream}, "offset": {strconv.FormatInt(at, 10)}, "follow": {strconv.FormatBool(*followed)}}
		request, err := s.request(ctx, http.MethodGet, path, query, nil)
		if err != nil {
			return false, err
		}
		reply, err := s.send(request)
		if err != nil {
			return false, err
		}
		defer reply.Body.Close()
		first := s.patience == 0
		s.patience = patient
		begin := at
		err = copyOutput(reply.Body, &at, *asJSON, t.stdout)
		var written writeError
		if errors.As(err, &written) {
			return true, err
		}
		if err != nil {
			return first || at > begin, fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		if gap, err := strconv.ParseInt(reply.Trailer.Get("X-Atoll-Gap-Bytes"), 10, 64); err == nil && gap > 0 {
			fmt.Fprintf(t.stderr, "[%d bytes left out]\n", gap)
		}
		return true, nil
	})
	return 0, err
}

// copyOutput counts what it writes into `at`.
func copyOutput(from io.Reader, at *int64, asJSON bool, to io.Writer) error {
	buffer := make([]byte, 64<<10)
	kept := 0
	for {
		n, err := from.Read(buffer[kept:])
		data := buffer[:kept+n]
		if asJSON && err == nil {
			// A character that is cut in two waits for its other part.
			data = data[:wholeCharacters(data)]
		}
		if len(data) > 0 {
			var failed error
			if asJSON {
				line := textOrBase64(data)
				line["offset"] = *at
				failed = json.NewEncoder(to).Encode(line)
			} else {
				_, failed = to.Write(data)
			}
			if failed != nil {
				return writeError{failed}
			}
			*at += int64(len(data))
		}
		kept = copy(buffer, buffer[len(data):kept+n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// wholeCharacters is how many bytes are before a character that is not complete yet.
func wholeCharacters(data []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		if at := len(data) - back; utf8.RuneStart(data[at]) {
			if !utf8.FullRune(data[at:]) {
				return at
			}
			break
		}
	}
	return len(data)
}

// guestProcess is any process inside.
type guestProcess struct {
	PID       int       `json:"pid"`
	ParentPID int       `json:"parent_pid"`
	User      string    `json:"user"`
	Command   string    `json:"command"`
	Argv      []string  `json:"argv"`
	State     string    `json:"state"`
	CPU       int64     `json:"cpu_ms"`
	Memory    int64     `json:"memory_bytes"`
	StartedAt time.Time `json:"started_at"`
	ProcessID string    `json:"process_id"`
	ContextID string    `json:"context_id"`
}

func runPs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("ps")
	asJSON, all := f.Bool("json", false, ""), f.Bool("all", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 1 {
		return 0, usageError(fmt.Sprintf("%d sandboxes (expected: one, or none for all)", len(words)))
	}
	var boxes []string
	if len(words) == 1 {
		box, err := s.sandboxID(ctx, words[0])
		if err != nil {
			return 0, err
		}
		boxes = []string{box}
	} else {
		err := list(ctx, s, "/v1/sandboxes", url.Values{"state": {"running"}}, cursorParameter, func(one sandbox) error {
			boxes = append(boxes, one.ID)
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	out := newTable(t.stdout, *asJSON, len(words) == 0)
	if *all {
		out.header("SANDBOX", "PROCESS", "PID", "STATE", "ENDED BY", "CODE", "STARTED", "COMMAND")
	} else {
		out.header("SANDBOX", "PID", "PARENT", "USER", "STATE", "CPU s", "MEMORY", "STARTED", "OF", "COMMAND")
	}
	for _, box := range boxes {
		path, shown := "/ps", guestRow
		if *all {
			path, shown = "/processes", processRow
		}
		err := list(ctx, s, sandboxPath(box, path), nil, cursorParameter, func(item json.RawMessage) error {
			return out.row(box, item, shown)
		})
		var refused apiError
		if len(words) == 0 && errors.As(err, &refused) && (refused.status == http.StatusGone || refused.status == http.StatusNotFound) {
			// It ended meanwhile.
			continue
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, out.flush()
}

func guestRow(item json.RawMessage) ([]string, error) {
	var p guestProcess
	if err := json.Unmarshal(item, &p); err != nil {
		return nil, err
	}
	return []string{strconv.Itoa(p.PID), strconv.Itoa(p.ParentPID), p.User, p.State, strconv.FormatFloat(float64(p.CPU)/1000, 'f', 2, 64), size(p.Memory), clock(p.StartedAt), or(p.ProcessID, p.ContextID, "-"), or(strings.Join(p.Argv, " "), p.Command)}, nil
}

func processRow(item json.RawMessage) ([]string, error) {
	var p process
	if err := json.Unmarshal(item, &p); err != nil {
		return nil, err
	}
	code := "-"
	if p.ExitCode != nil {
		code = strconv.Itoa(*p.ExitCode)
	}
	return []string{p.ID, strconv.Itoa(p.PID), p.State, or(p.ExitReason, "-"), code, clock(p.StartedAt), or(p.Command, strings.Join(p.Argv, " "))}, nil
}

func or(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

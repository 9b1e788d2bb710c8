package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// sandbox is what is shown of one.
type sandbox struct {
	ID         string            `json:"sandbox_id"`
	Name       string            `json:"name"`
	Template   string            `json:"template"`
	State      string            `json:"state"`
	Labels     map[string]string `json:"labels"`
	CreatedAt  time.Time         `json:"created_at"`
	ExpiresAt  *time.Time        `json:"expires_at"`
	PausedAt   *time.Time        `json:"paused_at"`
	EndReason  *string           `json:"end_reason"`
	ForkedFrom *struct {
		SandboxID string `json:"sandbox_id"`
	} `json:"forked_from"`
}

// parent is the sandbox that this one was forked from, or empty.
func (s sandbox) parent() string {
	if s.ForkedFrom == nil {
		return ""
	}
	return s.ForkedFrom.SandboxID
}

const sandboxPrefix = "sb-exec-"

// liveStates are those of a sandbox that has not ended.
const liveStates = "creating,running,pausing,paused,resuming"

func sandboxPath(id string, rest ...string) string {
	return "/v1/sandboxes/" + url.PathEscape(id) + strings.Join(rest, "")
}

// sandboxID finds the sandbox that a word means: by its id, or by the name that it has until it ends.
func (s *server) sandboxID(ctx context.Context, word string) (string, error) {
	if strings.HasPrefix(word, sandboxPrefix) {
		return word, nil
	}
	var found []sandbox
	query := url.Values{"name": {word}, "state": {liveStates}}
	err := list(ctx, s, "/v1/sandboxes", query, cursorParameter, func(one sandbox) error {
		found = append(found, one)
		return nil
	})
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", notThere(fmt.Sprintf("no sandbox is called '%s' (remedy: ./atoll ls lists names and ids)", word))
	}
	return found[0].ID, nil
}

// endByItself deletes a sandbox whose command is over.
func (s *server) endByItself(ctx context.Context, id string) {
	// The command may have been interrupted; its sandbox is to go all the same.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	// Where it fails, the sandbox ends by its own time limits.
	_ = s.do(ctx, apiCall{method: http.MethodDelete, path: sandboxPath(id)}, nil)
}

// createSandbox makes one; end deletes it.
func (s *server) createSandbox(ctx context.Context, template string) (id string, end func(), err error) {
	fields := map[string]any{}
	if template != "" {
		fields["template"] = template
	}
	var made sandbox
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: "/v1/sandboxes", body: fields, header: once()}, &made); err != nil {
		return "", nil, err
	}
	return made.ID, func() { s.endByItself(ctx, made.ID) }, nil
}

// birth are the flags of what a new sandbox is to be.
type birth struct {
	name        string
	env, labels pairs
	lifetime    span
	asJSON      bool
}

func (b *birth) flags(f flags) {
	b.env, b.labels = pairs{}, pairs{}
	f.StringVar(&b.name, "name", "", "")
	f.Var(b.env, "e", "")
	f.Var(b.env, "env", "")
	f.Var(b.labels, "label", "")
	f.Var(&b.lifetime, "lifetime", "")
	f.BoolVar(&b.asJSON, "json", false, "")
}

func (b *birth) fields() map[string]any {
	fields := map[string]any{}
	if b.name != "" {
		fields["name"] = b.name
	}
	if len(b.env) > 0 {
		fields["env"] = b.env
	}
	if len(b.labels) > 0 {
		fields["labels"] = b.labels
	}
	if b.lifetime.given {
		fields["lifetime_seconds"] = b.lifetime.seconds
	}
	return fields
}

func runCreate(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("create")
	var b birth
	var idle span
	b.flags(f)
	template, snapshot := f.String("template", "", ""), f.String("snapshot", "", "")
	f.Var(&idle, "idle", "")
	action, sleeps, get := f.String("on-timeout", "", ""), f.Bool("no-auto-resume", false, ""), f.Bool("get", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	switch {
	case len(words) > 0:
		return 0, usageError(fmt.Sprintf("'%s' (expected: flags only)", words[0]))
	case *template != "" && *snapshot != "":
		return 0, usageError("a template and a snapshot (expected: one of them)")
	case *get && b.name == "":
		return 0, usageError("--get without --name")
	}
	fields := b.fields()
	if *template != "" {
		fields["template"] = *template
	}
	if *snapshot != "" {
		if fields["snapshot"], err = s.snapshotID(ctx, *snapshot); err != nil {
			return 0, err
		}
	}
	if idle.given {
		fields["idle_timeout_seconds"] = idle.orZero()
	}
	if *action != "" {
		fields["on_timeout"] = *action
	}
	if *sleeps {
		fields["auto_resume"] = false
	}
	if *get {
		fields["if_exists"] = "get"
	}
	var made json.RawMessage
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: "/v1/sandboxes", body: fields, header: once()}, &made); err != nil {
		return 0, err
	}
	return 0, printIDs(t.stdout, b.asJSON, "sandbox_id", made)
}

// printIDs prints items for programs, or the id of each, so that $(…) of a shell is one.
func printIDs(to io.Writer, asJSON bool, name string, items ...json.RawMessage) error {
	for _, item := range items {
		line := string(item)
		if !asJSON {
			fields := map[string]any{}
			if err := json.Unmarshal(item, &fields); err != nil {
				return err
			}
			line = fmt.Sprint(fields[name])
		}
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

// eachSandbox does the same with every sandbox named, and says of each what became of it.
func eachSandbox(ctx context.Context, s *server, words []string, asJSON bool, t terminal, do func(id string) (json.RawMessage, error)) (int, error) {
	if len(words) == 0 {
		return 0, usageError("no sandbox named")
	}
	status := 0
	for _, word := range words {
		view, err := func() (json.RawMessage, error) {
			id, err := s.sandboxID(ctx, word)
			if err != nil {
				return nil, err
			}
			return do(id)
		}()
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err == nil {
			err = printSandbox(t.stdout, asJSON, view)
		}
		if err != nil {
			fmt.Fprintf(t.stderr, "atoll: %s: %v\n", printable(word), err)
			status = statusFailed
		}
	}
	return status, nil
}

// printSandbox says in one line in which state a sandbox is.
func printSandbox(to io.Writer, asJSON bool, view json.RawMessage) error {
	if asJSON {
		_, err := fmt.Fprintf(to, "%s\n", view)
		return err
	}
	var one sandbox
	if err := json.Unmarshal(view, &one); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "%s  %s\n", one.ID, stateOf(one))
	return err
}

func (s *server) act(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var view json.RawMessage
	return view, s.do(ctx, apiCall{method: method, path: path, body: body}, &view)
}

func runPause(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("pause")
	asJSON := f.Bool("json", false, "")
	keep := f.String("keep", "memory", "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	return eachSandbox(ctx, s, words, *asJSON, t, func(id string) (json.RawMessage, error) {
		return s.act(ctx, http.MethodPost, sandboxPath(id, ":pause"), map[string]any{"keep": *keep})
	})
}

func runResume(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("resume")
	asJSON := f.Bool("json", false, "")
	var lifetime span
	f.Var(&lifetime, "lifetime", "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	fields := map[string]any{}
	if lifetime.given {
		fields["lifetime_seconds"] = lifetime.seconds
	}
	return eachSandbox(ctx, s, words, *asJSON, t, func(id string) (json.RawMessage, error) {
		return s.act(ctx, http.MethodPost, sandboxPath(id, ":resume"), fields)
	})
}

func runRm(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("rm")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	return eachSandbox(ctx, s, words, *asJSON, t, func(id string) (json.RawMessage, error) {
		return s.act(ctx, http.MethodDelete, sandboxPath(id), nil)
	})
}

func runExtend(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("extend")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 2 {
		return 0, usageError(fmt.Sprintf("%d words (expected: a sandbox, and a time or none)", len(words)))
	}
	var lifetime span
	if err := lifetime.Set(words[1]); err != nil {
		return 0, usageError(err.Error())
	}
	id, err := s.sandboxID(ctx, words[0])
	if err != nil {
		return 0, err
	}
	view, err := s.act(ctx, http.MethodPost, sandboxPath(id, ":extend"), map[string]any{"seconds": lifetime.seconds})
	if err != nil {
		return 0, err
	}
	if *asJSON {
		return 0, printSandbox(t.stdout, true, view)
	}
	var one sandbox
	if err := json.Unmarshal(view, &one); err != nil {
		return 0, err
	}
	end := "does not end by itself"
	if one.ExpiresAt != nil {
		end = "until " + clock(*one.ExpiresAt)
	}
	_, err = fmt.Fprintf(t.stdout, "%s  %s\n", one.ID, end)
	return 0, err
}

func runFork(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("fork")
	var b birth
	b.flags(f)
	count := f.Int("n", 1, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	switch {
	case len(words) != 1:
		return 0, usageError(fmt.Sprintf("%d sandboxes (expected: one)", len(words)))
	case *count < 1:
		return 0, usageError(fmt.Sprintf("-n %d (expected: at least 1)", *count))
	case b.name != "" && *count > 1:
		return 0, usageError("--name for several forks (expected: one, or no name)")
	}
	id, err := s.sandboxID(ctx, words[0])
	if err != nil {
		return 0, err
	}
	fields := b.fields()
	fields["count"] = *count
	var made page[json.RawMessage]
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: sandboxPath(id, ":fork"), body: fields, header: once()}, &made); err != nil {
		return 0, err
	}
	return 0, printIDs(t.stdout, b.asJSON, "sandbox_id", made.Items...)
}

func runRollback(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("rollback")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 2 {
		return 0, usageError(fmt.Sprintf("%d words (expected: a sandbox and a snapshot)", len(words)))
	}
	id, err := s.sandboxID(ctx, words[0])
	if err != nil {
		return 0, err
	}
	snapshot, err := s.snapshotID(ctx, words[1])
	if err != nil {
		return 0, err
	}
	view, err := s.act(ctx, http.MethodPost, sandboxPath(id, ":rollback"), map[string]any{"snapshot_id": snapshot})
	if err != nil {
		return 0, err
	}
	return 0, printSandbox(t.stdout, *asJSON, view)
}

// stretch is one run of a sandbox, from a start or a resume to its end or a pause.
type stretch struct {
	ID          string     `json:"run_id"`
	How         string     `json:"how"`
	StartedAt   time.Time  `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
	EndReason   string     `json:"end_reason"`
	EndDetail   string     `json:"end_detail"`
	SnapshotIn  string     `json:"snapshot_in"`
	SnapshotOut string     `json:"snapshot_out"`
}

func runRuns(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("runs")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 1 {
		return 0, usageError(fmt.Sprintf("%d sandboxes (expected: one)", len(words)))
	}
	id, err := s.sandboxID(ctx, words[0])
	if err != nil {
		return 0, err
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "RUN", "BEGAN BY", "STARTED", "FOR", "ENDED BY", "FROM SNAPSHOT")
	err = list(ctx, s, sandboxPath(id, "/runs"), nil, cursorParameter, func(item json.RawMessage) error { return out.row("", item, runRow) })
	if err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func runRow(item json.RawMessage) ([]string, error) {
	var r stretch
	if err := json.Unmarshal(item, &r); err != nil {
		return nil, err
	}
	end := time.Now()
	if r.EndedAt != nil {
		end = *r.EndedAt
	}
	return []string{r.ID, r.How, clock(r.StartedAt), age(end.Sub(r.StartedAt)), or(r.EndReason, "-"), or(r.SnapshotIn, "-")}, nil
}

// pool is what waits of one template.
type pool struct {
	Template string `json:"template"`
	Depth    int    `json:"depth"`
	Ready    int    `json:"ready"`
	Starting int    `json:"starting"`
	Prepared int    `json:"prepared"`
	Golden   *struct {
		Size int64 `json:"size_bytes"`
	} `json:"golden"`
	Hits        int64            `json:"hits"`
	Misses      map[string]int64 `json:"misses"`
	Memory      int64            `json:"memory_bytes"`
	LastFailure string           `json:"last_failure"`
}

func runPool(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("pool")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 0 {
		return 0, usageError(fmt.Sprintf("'%s' (expected: flags only)", words[0]))
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "TEMPLATE", "READY", "STARTING", "PREPARED", "MEMORY", "GOLDEN", "HITS", "MISSES", "LAST FAILURE")
	err = list(ctx, s, "/v1/pools", nil, cursorParameter, func(item json.RawMessage) error { return out.row("", item, poolRow) })
	if err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func poolRow(item json.RawMessage) ([]string, error) {
	var p pool
	if err := json.Unmarshal(item, &p); err != nil {
		return nil, err
	}
	golden, misses := "-", int64(0)
	if p.Golden != nil {
		golden = size(p.Golden.Size)
	}
	for _, count := range p.Misses {
		misses += count
	}
	return []string{p.Template, fmt.Sprintf("%d/%d", p.Ready, p.Depth), fmt.Sprint(p.Starting), fmt.Sprint(p.Prepared), size(p.Memory), golden, fmt.Sprint(p.Hits), fmt.Sprint(misses), or(p.LastFailure, "-")}, nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

func runFileWatch(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("file watch")
	recursive, user, asJSON := f.Bool("r", false, ""), f.String("user", "", ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	typed, err := one(words, "folder")
	if err != nil {
		return 0, err
	}
	where := parsePlace(typed)
	if where.sandbox == "" {
		return 0, usageError(fmt.Sprintf("'%s' (expected: SANDBOX:PATH)", typed))
	}
	if err := where.find(ctx, s); err != nil {
		return 0, err
	}
	query := url.Values{"path": {where.path}}
	if *recursive {
		query.Set("recursive", "true")
	}
	if *user != "" {
		query.Set("user", *user)
	}
	reply, err := s.open(ctx, apiCall{method: http.MethodGet, path: sandboxPath(where.sandbox, "/files:watch"), query: query, header: http.Header{"Accept": {"text/event-stream"}}})
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	err = readEvents(reply.Body, func(e event) error { return printFileEvent(t.stdout, e, *asJSON) })
	return 0, err
}

// printFileEvent shows a change. What else comes in the stream is its beginning and what keeps it open.
func printFileEvent(to io.Writer, e event, asJSON bool) error {
	var change struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	if e.name == "error" {
		var failure apiError
		if err := json.Unmarshal(e.data, &failure); err != nil {
			return err
		}
		return failure
	}
	if err := json.Unmarshal(e.data, &change); err != nil {
		return err
	}
	if change.Path == "" {
		return nil
	}
	if asJSON {
		return printRaw(to, e.data)
	}
	_, err := fmt.Fprintf(to, "%-8s  %s\n", change.Type, printable(change.Path))
	return err
}

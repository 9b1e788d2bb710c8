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
	"path/filepath"
	"strings"
	"time"
)

// snapshot is what is shown of one.
type snapshot struct {
	ID        string            `json:"snapshot_id"`
	Name      string            `json:"name"`
	Kind      string            `json:"kind"`
	SandboxID string            `json:"sandbox_id"`
	Template  string            `json:"template"`
	Size      int64             `json:"size_bytes"`
	Labels    map[string]string `json:"labels"`
	State     string            `json:"state"`
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt *time.Time        `json:"expires_at"`
	StoppedMS float64           `json:"stopped_ms"`
}

const snapshotPrefix = "snap-"

func snapshotPath(id string, rest ...string) string {
	return "/v1/snapshots/" + url.PathEscape(id) + strings.Join(rest, "")
}

// snapshotID finds the snapshot that a word means: by its id, or by its name. Those that are lost may share theirs with others.
func (s *server) snapshotID(ctx context.Context, word string) (string, error) {
	if strings.HasPrefix(word, snapshotPrefix) {
		return word, nil
	}
	var found, lost []string
	err := list(ctx, s, "/v1/snapshots", url.Values{"name": {word}}, cursorParameter, func(one snapshot) error {
		if one.State == "lost" {
			lost = append(lost, one.ID)
		} else {
			found = append(found, one.ID)
		}
		return nil
	})
	if len(found) == 0 {
		found = lost
	}
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", notThere(fmt.Sprintf("no snapshot is called '%s' (remedy: ./atoll snapshot ls lists names and ids)", word))
	case len(found) > 1:
		return "", fmt.Errorf("%d snapshots are called '%s' (remedy: name one of them by its id: %s)", len(found), word, strings.Join(found, ", "))
	}
	return found[0], nil
}

func runSnapshotCreate(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("snapshot create")
	kind, name := f.String("kind", "", ""), f.String("name", "", "")
	labels, expires := pairs{}, span{}
	f.Var(labels, "label", "")
	f.Var(&expires, "expires", "")
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
	fields := map[string]any{}
	if *kind != "" {
		fields["kind"] = *kind
	}
	if *name != "" {
		fields["name"] = *name
	}
	if len(labels) > 0 {
		fields["labels"] = labels
	}
	if expires.given {
		fields["expires_in_seconds"] = expires.seconds
	}
	var made json.RawMessage
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: sandboxPath(id, "/snapshots"), body: fields, header: once()}, &made); err != nil {
		return 0, err
	}
	return 0, printSnapshot(t, *asJSON, made)
}

// printSnapshot prints one for programs, or its id; for people, on stderr, what it took.
func printSnapshot(t terminal, asJSON bool, item json.RawMessage) error {
	if err := printIDs(t.stdout, asJSON, "snapshot_id", item); err != nil || asJSON {
		return err
	}
	var one snapshot
	if err := json.Unmarshal(item, &one); err != nil {
		return err
	}
	line := fmt.Sprintf("%s snapshot, %s", one.Kind, size(one.Size))
	if one.StoppedMS > 0 {
		line += fmt.Sprintf("; the sandbox stood still for %.0f ms", one.StoppedMS)
	}
	fmt.Fprintln(t.stderr, line)
	return nil
}

func runSnapshotLs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("snapshot ls")
	kind, name := f.String("kind", "", ""), f.String("name", "", "")
	labels := pairs{}
	f.Var(labels, "label", "")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 1 {
		return 0, usageError(fmt.Sprintf("%d sandboxes (expected: one, or none for all)", len(words)))
	}
	query := url.Values{}
	if len(words) == 1 {
		id, err := s.sandboxID(ctx, words[0])
		if err != nil {
			return 0, err
		}
		query.Set("sandbox_id", id)
	}
	for parameter, value := range map[string]string{"kind": *kind, "name": *name} {
		if value != "" {
			query.Set(parameter, value)
		}
	}
	labelQuery(query, labels)
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "SNAPSHOT", "NAME", "KIND", "STATE", "SIZE", "AGE", "EXPIRES", "OF", "LABELS")
	if err := list(ctx, s, "/v1/snapshots", query, cursorParameter, func(item json.RawMessage) error { return out.row("", item, snapshotRow) }); err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func snapshotRow(item json.RawMessage) ([]string, error) {
	var one snapshot
	if err := json.Unmarshal(item, &one); err != nil {
		return nil, err
	}
	return []string{one.ID, or(one.Name, "-"), one.Kind, one.State, size(one.Size), since(&one.CreatedAt), until(one.ExpiresAt), or(one.SandboxID, "-"), labelText(one.Labels)}, nil
}

func runSnapshotRm(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("snapshot rm")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) == 0 {
		return 0, usageError("no snapshot named")
	}
	status := 0
	for _, word := range words {
		id, err := s.snapshotID(ctx, word)
		if err == nil {
			err = s.do(ctx, apiCall{method: http.MethodDelete, path: snapshotPath(id)}, nil)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		switch {
		case err != nil:
			fmt.Fprintf(t.stderr, "atoll: %s: %v\n", printable(word), err)
			status = statusFailed
		case *asJSON:
			json.NewEncoder(t.stdout).Encode(map[string]any{"snapshot_id": id, "removed": true})
		default:
			fmt.Fprintf(t.stdout, "%s  removed\n", id)
		}
	}
	return status, nil
}

func runSnapshotExport(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("snapshot export")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) < 1 || len(words) > 2 {
		return 0, usageError(fmt.Sprintf("%d words (expected: a snapshot, and a file if you like)", len(words)))
	}
	id, err := s.snapshotID(ctx, words[0])
	if err != nil {
		return 0, err
	}
	target, told := id+".atoll-snapshot", t.stdout
	if len(words) == 2 {
		target = words[1]
	}
	if there, err := os.Stat(target); err == nil && there.IsDir() {
		target = filepath.Join(target, id+".atoll-snapshot")
	}
	request, err := s.request(ctx, http.MethodGet, snapshotPath(id, "/file"), nil, nil)
	if err != nil {
		return 0, err
	}
	// It is hardly made smaller, and packing takes longer than sending.
	request.Header.Set("Accept-Encoding", "identity")
	var bytes int64
	if target == "-" {
		told = t.stderr
		if file, ok := t.stdout.(*os.File); ok && isTerminal(file) {
			return 0, usageError("a snapshot on a terminal (expected: a file, or a pipe)")
		}
		bytes, err = s.fetch(request, t.stdout)
	} else {
		bytes, err = s.fetchFile(request, target)
	}
	if err != nil {
		return 0, err
	}
	if *asJSON {
		return 0, json.NewEncoder(told).Encode(map[string]any{"snapshot_id": id, "to": target, "bytes": bytes})
	}
	fmt.Fprintf(told, "%s  %s\n", target, size(bytes))
	return 0, nil
}

// fetch writes the body of an answer.
func (s *server) fetch(request *http.Request, to io.Writer) (int64, error) {
	reply, err := s.send(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	n, err := io.Copy(writeMarked{to}, reply.Body)
	var written writeError
	if errors.As(err, &written) {
		return n, written.error
	}
	if err != nil {
		return n, fmt.Errorf("%w after %d bytes: %w (remedy: once more, from its beginning)", errBrokenOff, n, err)
	}
	return n, nil
}

// fetchFile writes beside the target first, so that this is there in whole or not at all. What is in a snapshot is for its owner only.
func (s *server) fetchFile(request *http.Request, target string) (int64, error) {
	file, err := os.CreateTemp(filepath.Dir(target), ".atoll-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	n, err := s.fetch(request, file)
	if err != nil {
		return n, err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return n, err
	}
	return n, os.Rename(file.Name(), target)
}

func runSnapshotImport(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("snapshot import")
	name, asJSON := f.String("name", "", ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 1 {
		return 0, usageError(fmt.Sprintf("%d files (expected: one)", len(words)))
	}
	query := url.Values{}
	if *name != "" {
		query.Set("name", *name)
	}
	item, err := s.upload(ctx, words[0], t.stdin, "/v1/snapshots/file", query, "application/octet-stream", "no snapshot was made")
	if err != nil {
		return 0, err
	}
	return 0, printSnapshot(t, *asJSON, item)
}

// upload sends a file, "-" for stdin, as the body of a call; left is what there is if it breaks off.
func (s *server) upload(ctx context.Context, path string, stdin io.Reader, to string, query url.Values, contentType, left string) (json.RawMessage, error) {
	from, length := stdin, int64(-1)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if found, err := file.Stat(); err == nil && found.Mode().IsRegular() {
			length = found.Size()
		}
		from = file
	}
	// A reader of its own type: that the body is closed by the client is none of stdin's business.
	body := io.Reader(&counter{from: from})
	if length == 0 {
		body = http.NoBody
	}
	request, err := s.request(ctx, http.MethodPost, to, query, body)
	if err != nil {
		return nil, err
	}
	request.ContentLength = length
	request.Header.Set("Content-Type", contentType)
	return s.sendBody(request, left)
}

// sendBody sends a request with a large body and returns the answer; left is what there is if it breaks off.
func (s *server) sendBody(request *http.Request, left string) (json.RawMessage, error) {
	reply, err := s.send(request)
	if err != nil {
		return nil, incomplete(err, left)
	}
	defer reply.Body.Close()
	item, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, unreachable{s.url, err}
	}
	return item, nil
}

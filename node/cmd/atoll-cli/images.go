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
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// image is what is shown of one.
type image struct {
	Digest    string     `json:"digest"`
	Name      string     `json:"name"`
	Size      int64      `json:"size_bytes"`
	Languages []string   `json:"languages"`
	Origin    string     `json:"origin"`
	Source    string     `json:"source"`
	Templates []string   `json:"templates"`
	BuiltAt   *time.Time `json:"built_at"`
}

func runImageLs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("image ls")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 0 {
		return 0, usageError(fmt.Sprintf("'%s' (expected: nothing)", words[0]))
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "DIGEST", "NAME", "SIZE", "LANGUAGES", "FROM", "TEMPLATES", "AGE")
	err = list(ctx, s, "/v1/images", nil, cursorParameter, func(item json.RawMessage) error {
		return out.row("", item, func(item json.RawMessage) ([]string, error) {
			var one image
			if err := json.Unmarshal(item, &one); err != nil {
				return nil, err
			}
			from := one.Origin
			if one.Source != "" {
				from += " " + imageName(one.Source)
			}
			return []string{short(one.Digest), one.Name, size(one.Size), or(strings.Join(one.Languages, ","), "-"), from, or(strings.Join(one.Templates, ","), "-"), since(one.BuiltAt)}, nil
		})
	})
	if err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func printImage(t terminal, asJSON bool, item json.RawMessage) error {
	if asJSON {
		return printRaw(t.stdout, item)
	}
	var one image
	if err := json.Unmarshal(item, &one); err != nil {
		return err
	}
	_, err := fmt.Fprintf(t.stdout, "%s  %s, %s\n", one.Digest, printable(one.Name), size(one.Size))
	return err
}

func runImagePull(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("image pull")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	reference, err := one(words, "reference")
	if err != nil {
		return 0, err
	}
	var item json.RawMessage
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: "/v1/images:pull", body: map[string]any{"reference": reference}}, &item); err != nil {
		return 0, err
	}
	return 0, printImage(t, *asJSON, item)
}

func runImageImport(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("image import")
	name, asJSON := f.String("name", "", ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	path, err := one(words, "file")
	if err != nil {
		return 0, err
	}
	query := url.Values{}
	if *name != "" {
		query.Set("name", *name)
	}
	item, err := s.upload(ctx, path, t.stdin, "/v1/images:import", query, "application/x-tar", "no image was made")
	if err != nil {
		return 0, err
	}
	return 0, printImage(t, *asJSON, item)
}

func runImageRm(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	var all []image
	return removeEach(ctx, s, "image rm", "image", arguments, t, func(word string) string {
		// Lists show the beginning of a digest, or people name it.
		if all == nil {
			_ = list(ctx, s, "/v1/images", nil, cursorParameter, func(one image) error { all = append(all, one); return nil })
		}
		var found []string
		for _, one := range all {
			if strings.HasPrefix(one.Digest, word) || one.Name == word {
				found = append(found, one.Digest)
			}
		}
		if len(found) == 1 {
			word = found[0]
		}
		return "/v1/images/" + url.PathEscape(word)
	})
}

func runImagePrune(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("image prune")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 0 {
		return 0, usageError(fmt.Sprintf("'%s' (expected: nothing)", words[0]))
	}
	var item json.RawMessage
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: "/v1/images:prune"}, &item); err != nil {
		return 0, err
	}
	if *asJSON {
		return 0, printRaw(t.stdout, item)
	}
	var pruned struct {
		Digests []string `json:"digests"`
		Freed   int64    `json:"freed_bytes"`
	}
	if err := json.Unmarshal(item, &pruned); err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(t.stdout, "%d images removed, %s freed\n", len(pruned.Digests), size(pruned.Freed))
	return 0, err
}

// registryPath: the API takes what follows a colon for an action.
func registryPath(host string) string {
	return "/v1/registries/" + strings.ReplaceAll(url.PathEscape(host), ":", "%3A")
}

func runRegistryLs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("registry ls")
	asJSON := f.Bool("json", false, "")
	if words, err := f.parse(arguments); err != nil {
		return 0, err
	} else if len(words) > 0 {
		return 0, usageError(fmt.Sprintf("'%s' (expected: nothing)", words[0]))
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "REGISTRY", "USER", "AGE")
	err := list(ctx, s, "/v1/registries", nil, cursorParameter, func(item json.RawMessage) error {
		return out.row("", item, func(item json.RawMessage) ([]string, error) {
			var one struct {
				Host      string     `json:"host"`
				Username  string     `json:"username"`
				UpdatedAt *time.Time `json:"updated_at"`
			}
			err := json.Unmarshal(item, &one)
			return []string{one.Host, or(one.Username, "-"), since(one.UpdatedAt)}, err
		})
	})
	if err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func runRegistryLogin(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("registry login")
	user, asJSON := f.String("u", "", ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	host, err := one(words, "registry")
	if err != nil {
		return 0, err
	}
	password, err := readPassword(t)
	if err != nil {
		return 0, err
	}
	var item json.RawMessage
	fields := map[string]any{"username": *user, "password": password}
	if err := s.do(ctx, apiCall{method: http.MethodPut, path: registryPath(host), body: fields}, &item); err != nil {
		return 0, err
	}
	if *asJSON {
		return 0, printRaw(t.stdout, item)
	}
	_, err = fmt.Fprintf(t.stdout, "%s  kept\n", printable(host))
	return 0, err
}

// readPassword reads a line of stdin; of a terminal, without showing it. It is never an argument, which others can see.
func readPassword(t terminal) (string, error) {
	file, ok := t.stdin.(*os.File)
	if ok && isTerminal(file) {
		fd := int(file.Fd())
		before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return "", err
		}
		silent := *before
		silent.Lflag &^= unix.ECHO
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, &silent); err != nil {
			return "", err
		}
		defer func() {
			_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
			fmt.Fprintln(t.stderr)
		}()
		fmt.Fprint(t.stderr, "Password or token: ")
	}
	var line []byte
	for b := make([]byte, 1); len(line) < maxPassword; {
		n, err := t.stdin.Read(b)
		if n > 0 && b[0] == '\n' {
			break
		}
		line = append(line, b[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	password := strings.TrimRight(string(line), "\r")
	if password == "" {
		return "", usageError("no password on stdin")
	}
	return password, nil
}

const maxPassword = 64 << 10

func runRegistryRm(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	return removeEach(ctx, s, "registry rm", "registry", arguments, t, registryPath)
}

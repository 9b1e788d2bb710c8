package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// fileView is the API's view of a file.
type fileView struct {
	Path       string    `json:"path"`
	Name       string    `json:"name"`
	Type       string    `json:"type"`
	Size       int64     `json:"size"`
	Mode       string    `json:"mode"`
	Owner      string    `json:"owner"`
	Group      string    `json:"group"`
	ModifiedAt time.Time `json:"modified_at"`
	LinkTarget string    `json:"link_target"`
	Inode      uint64    `json:"inode"`
}

// sameAs says whether nothing was written to the file meanwhile.
func (f fileView) sameAs(other fileView) bool {
	return f.Inode == other.Inode && f.Size == other.Size && f.ModifiedAt.Equal(other.ModifiedAt)
}

// place is one side of a copy: a path here, a path in a sandbox, or stdin and stdout.
type place struct {
	sandbox, path string
	standard      bool
}

// parsePlace: what stands before the first colon is a sandbox, unless it is a path itself.
func parsePlace(text string) place {
	if text == "-" {
		return place{standard: true}
	}
	sandbox, inside, found := strings.Cut(text, ":")
	if !found || sandbox == "" || strings.ContainsAny(sandbox, "/.") {
		return place{path: text}
	}
	if inside == "" {
		inside = "."
	}
	return place{sandbox: sandbox, path: inside}
}

// find turns the name of a sandbox into its id.
func (p *place) find(ctx context.Context, s *server) (err error) {
	if p.sandbox != "" {
		p.sandbox, err = s.sandboxID(ctx, p.sandbox)
	}
	return err
}

// copier copies between here and sandboxes.
type copier struct {
	*server
	user      string
	recursive bool
	terminal  terminal
	// files and bytes are what was copied.
	files, bytes int64
}

func (c *copier) query(path string) url.Values {
	query := url.Values{"path": {path}}
	if c.user != "" {
		query.Set("user", c.user)
	}
	return query
}

func (c *copier) stat(ctx context.Context, at place) (fileView, error) {
	query := c.query(at.path)
	query.Set("follow", "true")
	var found fileView
	return found, c.do(ctx, apiCall{method: http.MethodGet, path: sandboxPath(at.sandbox, "/files:stat"), query: query}, &found)
}

func runCp(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("cp")
	c := copier{server: s, terminal: t}
	f.BoolVar(&c.recursive, "r", false, "")
	f.StringVar(&c.user, "user", "", "")
	asJSON := f.Bool("json", false, "")
	// A lone "-" ends flags for the parser, as it should: it is a word.
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 2 {
		return 0, usageError(fmt.Sprintf("%d places (expected: SRC and DST)", len(words)))
	}
	from, to := parsePlace(words[0]), parsePlace(words[1])
	if from.sandbox == "" && to.sandbox == "" {
		return 0, usageError("no side is in a sandbox (expected: SANDBOX:PATH)")
	}
	for _, side := range []*place{&from, &to} {
		if err := side.find(ctx, s); err != nil {
			return 0, err
		}
	}
	switch {
	case from.sandbox != "" && to.sandbox != "":
		err = c.across(ctx, from, to)
	case to.sandbox != "":
		err = c.upload(ctx, from, to)
	default:
		err = c.download(ctx, from, to)
	}
	if err != nil {
		return 0, err
	}
	if *asJSON {
		to := t.stdout
		if words[1] == "-" {
			to = t.stderr
		}
		json.NewEncoder(to).Encode(map[string]any{"from": words[0], "to": words[1], "files": c.files, "bytes": c.bytes})
	}
	return 0, nil
}

// into is where something called name lands: in the folder that is there, else under the path itself.
func (c *copier) into(ctx context.Context, to place, name string) (place, error) {
	found, err := c.stat(ctx, to)
	var refused apiError
	if err != nil && !(errors.As(err, &refused) && refused.Code == "file_not_found") {
		return place{}, err
	}
	if err == nil && found.Type == "directory" {
		to.path = path.Join(to.path, name)
	} else if strings.HasSuffix(to.path, "/") && !c.recursive {
		return place{}, fmt.Errorf("%s:%s is no folder (remedy: make it first, or leave the last / away)", to.sandbox, to.path)
	}
	return to, nil
}

func (c *copier) upload(ctx context.Context, from, to place) error {
	if from.standard {
		return c.put(ctx, c.terminal.stdin, -1, 0, to)
	}
	found, err := os.Stat(from.path)
	if err != nil {
		return err
	}
	absolute, err := filepath.Abs(from.path)
	if err != nil {
		return err
	}
	if to, err = c.into(ctx, to, filepath.Base(absolute)); err != nil {
		return err
	}
	if found.IsDir() {
		if !c.recursive {
			return fmt.Errorf("%s is a folder (remedy: cp -r)", from.path)
		}
		return c.uploadFolder(ctx, from.path, to)
	}
	file, err := os.Open(from.path)
	if err != nil {
		return err
	}
	defer file.Close()
	length := int64(-1)
	if found.Mode().IsRegular() {
		length = found.Size()
	}
	return c.put(ctx, file, length, found.Mode().Perm(), to)
}

// put writes one file, which is there in whole or not at all.
func (c *copier) put(ctx context.Context, from io.Reader, length int64, mode fs.FileMode, to place) error {
	query := c.query(to.path)
	if mode != 0 {
		query.Set("mode", fmt.Sprintf("%04o", mode))
	}
	counted := &counter{from: from}
	body := io.Reader(counted)
	if length == 0 {
		body = http.NoBody
	}
	request, err := c.request(ctx, http.MethodPut, sandboxPath(to.sandbox, "/files"), query, body)
	if err != nil {
		return err
	}
	request.ContentLength = length
	request.Header.Set("Content-Type", "application/octet-stream")
	reply, err := c.send(request)
	if err != nil {
		return incomplete(err, "nothing was changed there")
	}
	defer reply.Body.Close()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		return incomplete(unreachable{c.url, err}, "the file may or may not be there")
	}
	c.files++
	c.bytes += counted.count
	return nil
}

// incomplete says what a copy that broke off has left.
func incomplete(err error, left string) error {
	if transient(err) {
		return fmt.Errorf("the copy broke off and %s: %w", left, err)
	}
	return err
}

type counter struct {
	from  io.Reader
	count int64
}

func (c *counter) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.count += int64(n)
	return n, err
}

func (c *copier) download(ctx context.Context, from, to place) error {
	if to.standard && !c.recursive {
		return c.get(ctx, from, func(fileView, int64) (io.Writer, error) { return c.terminal.stdout, nil })
	}
	found, err := c.stat(ctx, from)
	if err != nil {
		return err
	}
	if found.Type == "directory" && !c.recursive {
		return fmt.Errorf("%s:%s is a folder (remedy: cp -r)", from.sandbox, from.path)
	}
	if found.Type == "directory" && to.standard {
		return fmt.Errorf("a folder cannot go to stdout (remedy: name a folder)")
	}
	target := to.path
	if there, err := os.Stat(target); err == nil && there.IsDir() {
		// The name is the sandbox's: it must not lead elsewhere.
		name := path.Base(found.Path)
		if !filepath.IsLocal(name) || name == "." {
			return fmt.Errorf("%s:%s has no name of its own (remedy: name the target in full)", from.sandbox, from.path)
		}
		target = filepath.Join(target, name)
	}
	if found.Type == "directory" {
		return c.downloadFolder(ctx, from, target)
	}
	if found.Type != "file" {
		return fmt.Errorf("%s:%s is neither file nor folder", from.sandbox, from.path)
	}
	return c.getFile(ctx, from, target)
}

// getFile writes beside the target first, so that this is there in whole or not at all.
func (c *copier) getFile(ctx context.Context, from place, target string) error {
	file, err := os.CreateTemp(filepath.Dir(target), ".atoll-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	var mode fs.FileMode
	err = c.get(ctx, from, func(view fileView, offset int64) (io.Writer, error) {
		if bits, err := strconv.ParseUint(view.Mode, 8, 32); err == nil {
			mode = fs.FileMode(bits) & 0o777
		}
		if offset == 0 {
			if err := file.Truncate(0); err != nil {
				return nil, err
			}
		}
		_, err := file.Seek(offset, io.SeekStart)
		return file, err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), target)
}

// get reads one file. Where the connection breaks it goes on at the byte that was reached, as long as the file is still the same.
func (c *copier) get(ctx context.Context, from place, open func(view fileView, offset int64) (io.Writer, error)) error {
	var offset int64
	var begun *fileView
	err := c.follow(ctx, func() (bool, error) {
		query := c.query(from.path)
		if offset > 0 {
			query.Set("offset", strconv.FormatInt(offset, 10))
		}
		request, err := c.request(ctx, http.MethodGet, sandboxPath(from.sandbox, "/files"), query, nil)
		if err != nil {
			return false, err
		}
		// Else the length is that of what is packed.
		request.Header.Set("Accept-Encoding", "identity")
		reply, err := c.send(request)
		if err != nil {
			return false, err
		}
		defer reply.Body.Close()
		var view fileView
		if err := json.Unmarshal([]byte(reply.Header.Get("X-Atoll-File")), &view); err != nil {
			return false, fmt.Errorf("the server does not say which file it sends: %w", err)
		}
		if begun != nil && !begun.sameAs(view) {
			return false, fmt.Errorf("%s:%s was changed while it was copied (remedy: copy it again)", from.sandbox, from.path)
		}
		first := begun == nil
		begun = &view
		c.patience = patient
		to, err := open(view, offset)
		if err != nil {
			return false, err
		}
		n, err := io.Copy(writeMarked{to}, reply.Body)
		offset += n
		var written writeError
		if errors.As(err, &written) {
			return true, written.error
		}
		if err != nil {
			return first || n > 0, fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		return true, nil
	})
	if err != nil {
		return incomplete(err, "nothing was changed here")
	}
	c.files++
	c.bytes += offset
	return nil
}

// writeMarked tells the reader's errors from the writer's.
type writeMarked struct{ to io.Writer }

func (w writeMarked) Write(data []byte) (int, error) {
	n, err := w.to.Write(data)
	if err != nil {
		return n, writeError{err}
	}
	return n, nil
}

// across copies from one sandbox to another (or within one) by way of here, without keeping anything.
func (c *copier) across(ctx context.Context, from, to place) error {
	found, err := c.stat(ctx, from)
	if err != nil {
		return err
	}
	if to, err = c.into(ctx, to, path.Base(found.Path)); err != nil {
		return err
	}
	kind := "/files"
	if found.Type == "directory" {
		if !c.recursive {
			return fmt.Errorf("%s:%s is a folder (remedy: cp -r)", from.sandbox, from.path)
		}
		kind = "/files:archive"
	}
	query := c.query(from.path)
	if found.Type == "directory" {
		query.Set("format", "tar")
	}
	request, err := c.request(ctx, http.MethodGet, sandboxPath(from.sandbox, kind), query, nil)
	if err != nil {
		return err
	}
	reply, err := c.send(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if found.Type == "directory" {
		return c.putArchive(ctx, reply.Body, to)
	}
	mode, _ := strconv.ParseUint(found.Mode, 8, 32)
	return c.put(ctx, reply.Body, reply.ContentLength, fs.FileMode(mode)&0o777, to)
}

func runCat(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("cat")
	c := copier{server: s, terminal: t}
	f.StringVar(&c.user, "user", "", "")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) == 0 {
		return 0, usageError("no file named")
	}
	status := 0
	for _, word := range words {
		from := parsePlace(word)
		if from.sandbox == "" {
			return 0, usageError(fmt.Sprintf("'%s' (expected: SANDBOX:PATH)", word))
		}
		if err = from.find(ctx, s); err != nil {
			// Told below.
		} else if *asJSON {
			err = c.catJSON(ctx, from)
		} else {
			err = c.get(ctx, from, func(fileView, int64) (io.Writer, error) { return t.stdout, nil })
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(t.stderr, "atoll: %s: %v\n", word, err)
			status = statusFailed
		}
	}
	return status, nil
}

func (c *copier) catJSON(ctx context.Context, from place) error {
	var content strings.Builder
	var file fileView
	err := c.get(ctx, from, func(view fileView, _ int64) (io.Writer, error) {
		file = view
		return &content, nil
	})
	if err != nil {
		return err
	}
	fields := map[string]any{"path": file.Path, "size": file.Size, "mode": file.Mode, "owner": file.Owner, "modified_at": file.ModifiedAt}
	if text := content.String(); utf8.ValidString(text) {
		fields["content"], fields["encoding"] = text, "utf8"
	} else {
		fields["content"], fields["encoding"] = base64.StdEncoding.EncodeToString([]byte(text)), "base64"
	}
	return json.NewEncoder(c.terminal.stdout).Encode(fields)
}

func runLs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("ls")
	c := copier{server: s, terminal: t}
	f.StringVar(&c.user, "user", "", "")
	var o listing
	o.flags(f)
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 1 {
		return 0, usageError(fmt.Sprintf("%d places (expected: one, or none for the sandboxes)", len(words)))
	}
	if len(words) == 0 {
		return 0, o.sandboxes(ctx, s, t.stdout)
	}
	if o.choosesSandboxes() {
		return 0, usageError("a place, and which sandboxes to list (expected: one of them)")
	}
	at := parsePlace(words[0])
	if at.sandbox == "" {
		at = place{sandbox: words[0], path: "."}
	}
	if err := at.find(ctx, s); err != nil {
		return 0, err
	}
	out := newTable(t.stdout, o.asJSON, false)
	found, err := c.stat(ctx, at)
	if err != nil {
		return 0, err
	}
	if found.Type != "directory" {
		item, err := json.Marshal(found)
		if err != nil {
			return 0, err
		}
		if err := out.row("", item, fileRow); err != nil {
			return 0, err
		}
		return 0, out.flush()
	}
	query := c.query(at.path)
	query.Set("hidden", strconv.FormatBool(o.all))
	if err := list(ctx, s, sandboxPath(at.sandbox, "/files:list"), query, "next", func(item json.RawMessage) error { return out.row("", item, fileRow) }); err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func fileRow(item json.RawMessage) ([]string, error) {
	var f fileView
	if err := json.Unmarshal(item, &f); err != nil {
		return nil, err
	}
	name := f.Name
	switch f.Type {
	case "directory":
		name += "/"
	case "symlink":
		name += " -> " + f.LinkTarget
	}
	kind := map[string]string{"file": "-", "directory": "d", "symlink": "l"}[f.Type]
	return []string{or(kind, "?") + permissions(f.Mode), f.Owner, f.Group, size(f.Size), clock(f.ModifiedAt), name}, nil
}

// permissions as in rwxr-xr-x.
func permissions(octal string) string {
	bits, err := strconv.ParseUint(octal, 8, 32)
	if err != nil {
		return octal
	}
	return fs.FileMode(bits & 0o777).String()[1:]
}

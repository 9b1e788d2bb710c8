package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// plain is a command that is one call: what is typed goes into its path, its query or its body, and the answer is shown.
type plain struct {
	name, summary string
	method, path  string
	// words are what stands behind the name, in their order.
	words []word
	// flags are what may be said besides.
	flags []option
	// columns are what is shown of the items of a list; without them the answer is one object.
	columns []column
	// all is the path where the only word is left away, if it may be.
	all string
	// document: the answer is a file, shown as it comes.
	document bool
	// once: the call carries a key by which the server knows its repetition.
	once bool
}

// word fills the next {} of the path; one with a field goes there instead. SANDBOX:PATH is both.
type word struct {
	shown, field string
	// many: it may come again and again, and its field is a list.
	many bool
}

// option is a flag and the field that it fills; a dot in the field's name stands for a field within.
type option struct {
	flag, value, field string
	kind               kind
}

type kind int

const (
	text kind = iota
	number
	// yes is a flag without a value.
	yes
	truth
	labelled
	duration
	mebibytes
)

// column is a field of an item and how it is shown.
type column struct {
	title, field string
	show         func(json.RawMessage) string
}

var fileUser = option{"user", "U", "user", text}

var plains = []plain{
	{name: "health", summary: "whether code can be run, and what keeps it from that", method: "GET", path: "/healthz"},
	{name: "show", summary: "everything about a sandbox, also after its end", method: "GET", path: "/v1/sandboxes/{}", words: []word{{shown: "SANDBOX"}}},
	{name: "set", summary: "change name, labels, limits and life of a sandbox that has not ended", method: "PATCH", path: "/v1/sandboxes/{}", words: []word{{shown: "SANDBOX"}}, flags: []option{
		{"name", "NAME", "name", text}, {"label", "K=V", "labels", labelled}, {"memory", "MIB", "limits.memory_bytes", mebibytes}, {"cpu", "N", "limits.cpu", number},
		{"disk", "MIB", "limits.disk_bytes", mebibytes}, {"processes", "N", "limits.max_processes", number}, {"open-files", "N", "limits.max_open_files", number},
		{"idle", "TIME|none", "idle_timeout_seconds", duration}, {"on-timeout", "pause|kill", "on_timeout", text}, {"auto-resume", "yes|no", "auto_resume", truth}}},
	{name: "usage", summary: "what a sandbox used of CPU, memory and disk, sampled every few seconds", method: "GET", path: "/v1/sandboxes/{}/metrics", words: []word{{shown: "SANDBOX"}},
		flags: []option{{"from", "TIME", "from", text}, {"to", "TIME", "to", text}},
		columns: []column{{"AT", "at", shownTime}, {"CPU%", "cpu_percent", plainText}, {"CPU SECONDS", "cpu_seconds", plainText}, {"MEMORY", "memory_bytes", shownSize}, {"OF", "memory_limit_bytes", shownSize},
			{"DISK", "disk_bytes", shownSize}, {"OF", "disk_limit_bytes", shownSize}, {"PROCESSES", "processes", plainText}}},

	{name: "events", summary: "what happened to a sandbox, or to all sandboxes and snapshots", method: "GET", path: "/v1/sandboxes/{}/events", all: "/v1/events", words: []word{{shown: "SANDBOX"}},
		flags:   []option{{"kind", "KIND", "kind", text}, {"subject", "ID", "subject", text}, {"order", "newest|oldest", "order", text}},
		columns: []column{{"AT", "at", shownTime}, {"KIND", "kind", plainText}, {"OF", "subject", plainText}, {"DETAIL", "detail", shownCode}}},

	{name: "execution ls", summary: "what was run, the newest first", method: "GET", path: "/v1/executions",
		flags: []option{{"sandbox", "ID", "sandbox_id", text}, {"context", "ID", "context_id", text}, {"state", "running|ended", "state", text}, {"q", "TEXT", "q", text}, {"template", "T", "template", text}, {"l", "LANGUAGE", "language", text},
			{"status", "running|ended|REASON,…", "status", text}, {"from", "TIME", "from", text}, {"until", "TIME", "until", text}},
		columns: []column{{"EXECUTION", "execution_id", plainText}, {"SANDBOX", "sandbox_id", plainText}, {"LANGUAGE", "language", plainText}, {"STATE", "state", plainText}, {"ENDED BY", "exit_reason", plainText},
			{"BEGAN", "created_at", shownTime}, {"MS", "duration_ms", plainText}, {"CODE", "code", shownCode}}},
	{name: "execution notebook", summary: "what ran in a sandbox as a Jupyter notebook, on standard output", method: "GET", path: "/v1/executions:notebook", words: []word{{shown: "SANDBOX", field: "sandbox_id"}},
		flags: []option{{"context", "ID", "context_id", text}, {"n", "CELLS", "limit", number}}, document: true},
	{name: "execution show", summary: "one execution with its code and output, also after its sandbox is gone", method: "GET", path: "/v1/executions/{}", words: []word{{shown: "EXECUTION"}}},
	{name: "execution interrupt", summary: "interrupt an execution as Ctrl-C would", method: "POST", path: "/v1/executions/{}:interrupt", words: []word{{shown: "EXECUTION"}}},

	{name: "context ls", summary: "the interpreters of a sandbox", method: "GET", path: "/v1/sandboxes/{}/contexts", words: []word{{shown: "SANDBOX"}}, columns: []column{
		{"CONTEXT", "context_id", plainText}, {"LANGUAGE", "language", plainText}, {"VERSION", "version", plainText}, {"STATE", "state", plainText}, {"DEFAULT", "default", plainText}, {"RESTARTS", "restarts", plainText}, {"FOLDER", "cwd", plainText}}},
	{name: "context create", summary: "open another interpreter in a sandbox, with a folder and variables of its own", method: "POST", path: "/v1/sandboxes/{}/contexts", words: []word{{shown: "SANDBOX"}},
		flags: []option{{"l", "LANGUAGE", "language", text}, {"cwd", "D", "cwd", text}, {"e", "K=V", "env", labelled}}, once: true},
	{name: "context show", summary: "one interpreter", method: "GET", path: "/v1/sandboxes/{}/contexts/{}", words: []word{{shown: "SANDBOX"}, {shown: "CONTEXT"}}},
	{name: "context exec", summary: "run code in it; -d: in the background, its output is in logs", method: "POST", path: "/v1/sandboxes/{}/contexts/{}/executions", words: []word{{shown: "SANDBOX"}, {shown: "CONTEXT"}, {shown: "'CODE'", field: "code"}},
		flags: []option{{"d", "", "background", yes}, {"t", "SECONDS", "timeout_seconds", number}, {"e", "K=V", "env", labelled}}, once: true},
	{name: "context restart", summary: "start it afresh; what runs in it ends", method: "POST", path: "/v1/sandboxes/{}/contexts/{}:restart", words: []word{{shown: "SANDBOX"}, {shown: "CONTEXT"}}},
	{name: "context interrupt", summary: "interrupt what runs in it as Ctrl-C would", method: "POST", path: "/v1/sandboxes/{}/contexts/{}:interrupt", words: []word{{shown: "SANDBOX"}, {shown: "CONTEXT"}}},
	{name: "context rm", summary: "end it and what runs in it", method: "DELETE", path: "/v1/sandboxes/{}/contexts/{}", words: []word{{shown: "SANDBOX"}, {shown: "CONTEXT"}}},

	{name: "process show", summary: "one program, also after its end", method: "GET", path: "/v1/sandboxes/{}/processes/{}", words: []word{{shown: "SANDBOX"}, {shown: "PROCESS"}}},
	{name: "process wait", summary: "wait for its end", method: "POST", path: "/v1/sandboxes/{}/processes/{}:wait", words: []word{{shown: "SANDBOX"}, {shown: "PROCESS"}}, flags: []option{{"t", "SECONDS", "timeout_seconds", number}}},
	{name: "process rm", summary: "kill it and all that it started", method: "DELETE", path: "/v1/sandboxes/{}/processes/{}", words: []word{{shown: "SANDBOX"}, {shown: "PROCESS"}}},

	{name: "snapshot show", summary: "everything about a snapshot", method: "GET", path: "/v1/snapshots/{}", words: []word{{shown: "SNAPSHOT"}}},
	{name: "snapshot set", summary: "change its name, labels and expiry", method: "PATCH", path: "/v1/snapshots/{}", words: []word{{shown: "SNAPSHOT"}},
		flags: []option{{"name", "NAME", "name", text}, {"label", "K=V", "labels", labelled}, {"expires", "TIME|none", "expires_in_seconds", duration}}},

	{name: "key ls", summary: "API keys, what they allow and when they were used last", method: "GET", path: "/v1/keys", columns: []column{
		{"KEY_ID", "key_id", plainText}, {"NAME", "name", plainText}, {"BEGINS", "prefix", plainText}, {"ALLOWS", "scopes", plainText}, {"MADE", "created_at", shownTime}, {"EXPIRES", "expires_at", shownTime}, {"USED", "last_used_at", shownTime}}},
	{name: "key create", summary: "make an API key, shown this once; SCOPE: read, execute, admin, as many as it is to have", method: "POST", path: "/v1/keys",
		words: []word{{shown: "NAME", field: "name"}, {shown: "SCOPE…", field: "scopes", many: true}}, flags: []option{{"expires-at", "TIME", "expires_at", text}}},
	{name: "key show", summary: "one API key, without the key itself", method: "GET", path: "/v1/keys/{}", words: []word{{shown: "KEY_ID"}}},
	{name: "key rm", summary: "revoke an API key: from now on it opens nothing", method: "DELETE", path: "/v1/keys/{}", words: []word{{shown: "KEY_ID"}}},
	{name: "node", summary: "the machine: what it has, what is used of it, and what runs there", method: "GET", path: "/v1/node"},
	{name: "stats", summary: "how much is done here, and how fast sandboxes start", method: "GET", path: "/v1/stats"},

	{name: "file stat", summary: "everything about one path", method: "GET", path: "/v1/sandboxes/{}/files:stat", words: []word{{shown: "SANDBOX:PATH", field: "path"}}, flags: []option{{"follow", "", "follow", yes}, fileUser}},
	{name: "file find", summary: "find files by name (a pattern as *.py), or lines by what is in them", method: "GET", path: "/v1/sandboxes/{}/files:find", words: []word{{shown: "SANDBOX:PATH", field: "path"}},
		flags:   []option{{"name", "PATTERN", "name", text}, {"content", "TEXT", "content", text}, {"regex", "", "regex", yes}, {"ignore-case", "", "ignore_case", yes}, {"hidden", "", "hidden", yes}, {"type", "file|directory|symlink", "type", text}, fileUser},
		columns: []column{{"PATH", "path", plainText}, {"LINE", "line", plainText}, {"TEXT", "text", shownCode}}},
	{name: "file mkdir", summary: "make a folder; -p: and those above, and none is no failure", method: "POST", path: "/v1/sandboxes/{}/files:mkdir", words: []word{{shown: "SANDBOX:PATH", field: "path"}},
		flags: []option{{"p", "", "parents,exist_ok", yes}, {"mode", "MODE", "mode", text}, fileUser}},
	{name: "file mv", summary: "move or rename inside a sandbox; -f: over what is there", method: "POST", path: "/v1/sandboxes/{}/files:move", words: []word{{shown: "SANDBOX:PATH", field: "from"}, {shown: "TO", field: "to"}},
		flags: []option{{"f", "", "overwrite", yes}, {"p", "", "parents", yes}, fileUser}},
	{name: "file cp", summary: "copy inside a sandbox, without a way through here; -r: folders", method: "POST", path: "/v1/sandboxes/{}/files:copy", words: []word{{shown: "SANDBOX:PATH", field: "from"}, {shown: "TO", field: "to"}},
		flags: []option{{"r", "", "recursive", yes}, {"f", "", "overwrite", yes}, {"p", "", "parents", yes}, fileUser}},
	{name: "file chmod", summary: "change mode, owner, group", method: "POST", path: "/v1/sandboxes/{}/files:chmod", words: []word{{shown: "SANDBOX:PATH", field: "path"}},
		flags: []option{{"mode", "MODE", "mode", text}, {"owner", "U", "owner", text}, {"group", "G", "group", text}, {"r", "", "recursive", yes}, fileUser}},
	{name: "file ln", summary: "make a symlink", method: "POST", path: "/v1/sandboxes/{}/files:symlink", words: []word{{shown: "SANDBOX:PATH", field: "path"}, {shown: "TARGET", field: "target"}}, flags: []option{fileUser}},
	{name: "file rm", summary: "remove a file, a symlink itself, or, with -r, a folder with what is in it", method: "DELETE", path: "/v1/sandboxes/{}/files", words: []word{{shown: "SANDBOX:PATH", field: "path"}}, flags: []option{{"r", "", "recursive", yes}, fileUser}},
	{name: "file replace", summary: "replace text in files", method: "POST", path: "/v1/sandboxes/{}/files:replace", words: []word{{shown: "SANDBOX"}, {shown: "PATTERN", field: "pattern"}, {shown: "REPLACEMENT", field: "replacement"}, {shown: "PATH…", field: "paths", many: true}},
		flags: []option{{"regex", "", "regex", yes}, fileUser}, columns: []column{{"PATH", "path", plainText}, {"REPLACED", "replacements", plainText}}},
}

func init() {
	commands = append(commands, command{"file watch", "[-r] [--user U] [--json] SANDBOX:PATH", "changes in a folder, as they happen; -r: below it too", statusUnable, runFileWatch})
	for _, p := range plains {
		commands = append(commands, command{p.name, p.arguments(), p.summary, statusUnable, p.run})
	}
}

// arguments is the usage behind the name.
func (p plain) arguments() string {
	var parts []string
	for _, w := range p.words {
		if p.all != "" {
			w.shown = "[" + w.shown + "]"
		}
		parts = append(parts, w.shown)
	}
	for _, o := range p.flags {
		parts = append(parts, strings.TrimSuffix("["+dashes(o.flag)+" "+o.value, " ")+"]")
	}
	if !p.document {
		parts = append(parts, "[--json]")
	}
	return strings.Join(parts, " ")
}

func dashes(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

func (p plain) run(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags(p.name)
	asJSON := new(bool)
	if !p.document {
		f.BoolVar(asJSON, "json", false, "")
	}
	fields := map[string]any{}
	for _, o := range p.flags {
		o.declare(f, fields)
	}
	typed, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if p.all != "" && len(typed) == 0 {
		p.path, p.words = p.all, nil
	}
	if least := len(p.words); len(typed) < least || len(typed) > least && (least == 0 || !p.words[least-1].many) {
		return 0, usageError(fmt.Sprintf("%d words (expected: %d)", len(typed), least))
	}
	path, err := p.fill(ctx, s, typed, fields)
	if err != nil {
		return 0, err
	}
	call := apiCall{method: p.method, path: path}
	if p.once {
		call.header = once()
	}
	if p.method == http.MethodGet || p.method == http.MethodDelete {
		call.query = url.Values{}
		for name, value := range fields {
			call.query.Set(name, fmt.Sprint(value))
		}
	} else {
		if p.method == http.MethodPatch && len(fields) == 0 {
			return 0, usageError("nothing to change")
		}
		call.body = fields
	}
	if p.columns != nil {
		return 0, p.showList(ctx, s, call, *asJSON, t)
	}
	reply, err := s.open(ctx, call)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	if p.document {
		if _, err := io.Copy(t.stdout, reply.Body); err != nil {
			return 0, unreachable{s.url, err}
		}
		return 0, nil
	}
	answer, err := io.ReadAll(reply.Body)
	if err != nil {
		return 0, unreachable{s.url, err}
	}
	if *asJSON {
		if len(bytes.TrimSpace(answer)) == 0 {
			answer = []byte("{}")
		}
		return 0, printRaw(t.stdout, bytes.TrimSpace(answer))
	}
	return 0, printObject(t.stdout, answer)
}

// fill puts words into the path and the fields.
func (p plain) fill(ctx context.Context, s *server, typed []string, fields map[string]any) (path string, err error) {
	path = p.path
	into := func(value string) {
		path = strings.Replace(path, "{}", url.PathEscape(value), 1)
	}
	for i, w := range p.words {
		value := typed[i]
		switch {
		case w.shown == "SANDBOX:PATH":
			where := parsePlace(value)
			if where.sandbox == "" {
				return "", usageError(fmt.Sprintf("'%s' (expected: SANDBOX:PATH)", value))
			}
			if err = where.find(ctx, s); err == nil {
				into(where.sandbox)
				fields[w.field] = where.path
			}
		case w.many:
			fields[w.field] = typed[i:]
		case w.shown == "SANDBOX" && w.field != "":
			fields[w.field], err = s.sandboxID(ctx, value)
		case w.field != "":
			fields[w.field] = value
		case w.shown == "SANDBOX":
			value, err = s.sandboxID(ctx, value)
			into(value)
		case w.shown == "SNAPSHOT":
			value, err = s.snapshotID(ctx, value)
			into(value)
		default:
			into(value)
		}
		if err != nil {
			return "", err
		}
	}
	return path, nil
}

// declare has the flag put what is given into its field.
func (o option) declare(f flags, fields map[string]any) {
	put := func(value any) {
		for name := range strings.SplitSeq(o.field, ",") {
			target := fields
			if outer, inner, nested := strings.Cut(name, "."); nested {
				within, ok := fields[outer].(map[string]any)
				if !ok {
					within = map[string]any{}
					fields[outer] = within
				}
				target, name = within, inner
			}
			target[name] = value
		}
	}
	if o.kind == yes {
		f.BoolFunc(o.flag, "", func(given string) error {
			on, err := strconv.ParseBool(given)
			put(on)
			return err
		})
		return
	}
	all := pairs{}
	f.Func(o.flag, "", func(given string) error {
		switch o.kind {
		case number, mebibytes:
			value, err := strconv.ParseFloat(given, 64)
			if err != nil {
				return fmt.Errorf("'%s' (expected: a number)", given)
			}
			if o.kind == mebibytes {
				put(int64(value * (1 << 20)))
			} else {
				put(json.Number(given))
			}
		case truth:
			if given != "yes" && given != "no" {
				return fmt.Errorf("'%s' (expected: yes or no)", given)
			}
			put(given == "yes")
		case labelled:
			if err := all.Set(given); err != nil {
				return err
			}
			put(all)
		case duration:
			var value span
			if err := value.Set(given); err != nil {
				return err
			}
			put(value.seconds)
		case text, yes:
			put(given)
		}
		return nil
	})
}

func (p plain) showList(ctx context.Context, s *server, call apiCall, asJSON bool, t terminal) error {
	out := newTable(t.stdout, asJSON, false)
	titles := []string{""}
	for _, c := range p.columns {
		titles = append(titles, c.title)
	}
	out.header(titles...)
	show := func(item json.RawMessage) error { return out.row("", item, p.row) }
	if call.method == http.MethodGet {
		if err := list(ctx, s, call.path, call.query, cursorParameter, show); err != nil {
			return err
		}
		return out.flush()
	}
	var answer page[json.RawMessage]
	if err := s.do(ctx, call, &answer); err != nil {
		return err
	}
	for _, item := range answer.Items {
		if err := show(item); err != nil {
			return err
		}
	}
	return out.flush()
}

func (p plain) row(item json.RawMessage) ([]string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item, &fields); err != nil {
		return nil, err
	}
	var shown []string
	for _, c := range p.columns {
		value, there := fields[c.field]
		if !there || string(value) == "null" {
			shown = append(shown, "-")
		} else {
			shown = append(shown, c.show(value))
		}
	}
	return shown, nil
}

// plainText shows a value as it is read, a text without its quotes.
func plainText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func shownTime(value json.RawMessage) string {
	at, err := time.Parse(time.RFC3339Nano, plainText(value))
	if err != nil {
		return plainText(value)
	}
	return clock(at)
}

func shownSize(value json.RawMessage) string {
	bytes, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return string(value)
	}
	return size(bytes)
}

// shownCode is the beginning of the first line.
func shownCode(value json.RawMessage) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(plainText(value)), "\n")
	if runes := []rune(line); len(runes) > 60 {
		return string(runes[:60]) + "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}

// printObject shows the fields of an object in their order, each on a line; what has lines of its own comes indented below its name.
func printObject(to io.Writer, object []byte) error {
	if len(bytes.TrimSpace(object)) == 0 {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(object))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return errors.Join(err, printRaw(to, object))
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		shown := plainText(value)
		if shown == "null" || shown == "" {
			continue
		}
		if lines := strings.Split(strings.TrimRight(shown, "\n"), "\n"); len(lines) > 1 {
			fmt.Fprintf(to, "%s\n", name)
			for _, line := range lines {
				fmt.Fprintf(to, "    %s\n", printable(line))
			}
			continue
		}
		fmt.Fprintf(to, "%-22s  %s\n", name, printable(strings.TrimRight(shown, "\n")))
	}
	return nil
}

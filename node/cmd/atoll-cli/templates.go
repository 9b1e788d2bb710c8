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
	"regexp"
	"strings"
	"time"
)

// template is what is shown of one.
type template struct {
	ID            string          `json:"id"`
	Version       int             `json:"version"`
	NewestVersion int             `json:"newest_version"`
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	Image         string          `json:"image"`
	Languages     []string        `json:"languages"`
	Limits        limits          `json:"limits"`
	Timeout       float64         `json:"timeout_seconds"`
	Default       bool            `json:"default"`
	BuiltIn       bool            `json:"built_in"`
	BuildState    string          `json:"build_state"`
	Build         *build          `json:"build"`
	Executions    int64           `json:"executions"`
	LastUsedAt    *time.Time      `json:"last_used_at"`
	Runtime       string          `json:"runtime"`
	Definition    json.RawMessage `json:"definition"`
}

// ofRecipe: one that comes with Atoll and is made of the recipe of its name. Its image may be of an earlier recipe; to build one that is not
// takes a moment.
func (t template) ofRecipe() bool { return t.BuiltIn && t.Image == t.ID }

type limits struct {
	Memory int64   `json:"memory_bytes"`
	CPU    float64 `json:"cpu"`
}

// build is one making of a template's image.
type build struct {
	ID        string     `json:"build_id"`
	Template  string     `json:"template"`
	Version   int        `json:"version"`
	State     string     `json:"state"`
	Cause     string     `json:"cause"`
	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Step      *struct {
		Number, Total int
		Text          string
	} `json:"step"`
	Failure *struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		LastLines string `json:"last_lines"`
	} `json:"failure"`
}

func templatePath(id string, rest ...string) string {
	return "/v1/templates/" + url.PathEscape(id) + strings.Join(rest, "")
}

// one is the only word that a command takes.
func one(words []string, what string) (string, error) {
	if len(words) != 1 {
		return "", usageError(fmt.Sprintf("%d %ss (expected: one)", len(words), what))
	}
	return words[0], nil
}

func runTemplateLs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template ls")
	asJSON := f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 0 {
		return 0, usageError(fmt.Sprintf("'%s' (expected: nothing)", words[0]))
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "TEMPLATE", "VERSION", "STATE", "NAME", "IMAGE", "LANGUAGES", "MEMORY", "CPU", "TIMEOUT", "EXECUTIONS", "USED")
	if err := list(ctx, s, "/v1/templates", nil, cursorParameter, func(item json.RawMessage) error { return out.row("", item, templateRow) }); err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func templateRow(item json.RawMessage) ([]string, error) {
	var one template
	if err := json.Unmarshal(item, &one); err != nil {
		return nil, err
	}
	id := one.ID
	if one.Default {
		id += " (default)"
	}
	version := fmt.Sprint(one.Version)
	if one.NewestVersion > one.Version {
		version += fmt.Sprintf(" of %d", one.NewestVersion)
	}
	cpu := "no limit"
	if one.Limits.CPU > 0 {
		cpu = fmt.Sprintf("%g", one.Limits.CPU)
	}
	return []string{
		id, version, one.BuildState, one.Name, or(imageName(one.Image), "-"), or(strings.Join(one.Languages, ","), "-"), size(one.Limits.Memory), cpu,
		fmt.Sprintf("%gs", one.Timeout), fmt.Sprint(one.Executions), since(one.LastUsedAt),
	}, nil
}

func runTemplateShow(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template show")
	version := f.Int("version", 0, "")
	dockerfile, asJSON := f.Bool("dockerfile", false, ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, err := one(words, "template")
	if err != nil {
		return 0, err
	}
	query := url.Values{}
	if *version > 0 {
		query.Set("version", fmt.Sprint(*version))
	}
	if *dockerfile {
		var text struct {
			Dockerfile string `json:"dockerfile"`
		}
		if err := s.do(ctx, apiCall{method: http.MethodGet, path: templatePath(id, "/dockerfile"), query: query}, &text); err != nil {
			return 0, err
		}
		if *asJSON {
			return 0, json.NewEncoder(t.stdout).Encode(text)
		}
		_, err := io.WriteString(t.stdout, text.Dockerfile)
		return 0, err
	}
	var item json.RawMessage
	if err := s.do(ctx, apiCall{method: http.MethodGet, path: templatePath(id), query: query}, &item); err != nil {
		return 0, err
	}
	if *asJSON {
		return 0, printRaw(t.stdout, item)
	}
	var shown template
	if err := json.Unmarshal(item, &shown); err != nil {
		return 0, err
	}
	text, err := templateFile(shown)
	if err != nil {
		return 0, err
	}
	_, err = t.stdout.Write(text)
	return 0, err
}

// change sends a template as it is to be from now on, and says what became of it.
func (s *server) change(ctx context.Context, call apiCall, building, asJSON bool, t terminal) (int, error) {
	var item json.RawMessage
	if err := s.do(ctx, call, &item); err != nil {
		return 0, err
	}
	return s.told(ctx, item, building, asJSON, t)
}

func (s *server) told(ctx context.Context, item json.RawMessage, building, asJSON bool, t terminal) (int, error) {
	var made template
	if err := json.Unmarshal(item, &made); err != nil {
		return 0, err
	}
	if asJSON {
		fmt.Fprintf(t.stdout, "%s\n", item)
	} else {
		fmt.Fprintf(t.stdout, "%s  version %d, %s\n", printable(made.ID), made.NewestVersion, made.BuildState)
	}
	if !building || made.BuildState == "ready" {
		return 0, nil
	}
	return s.buildOne(ctx, made.ID, map[string]any{}, t)
}

func runTemplateCreate(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	return changeTemplate(ctx, s, "template create", arguments, t, func(id string, fields map[string]any) apiCall {
		fields["id"] = id
		return apiCall{method: http.MethodPost, path: "/v1/templates", body: fields, header: once()}
	})
}

func runTemplateEdit(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	return changeTemplate(ctx, s, "template edit", arguments, t, func(id string, fields map[string]any) apiCall {
		return apiCall{method: http.MethodPatch, path: templatePath(id), body: fields}
	})
}

// words is a flag that may come again and again, each time with one or several, parted by commas.
type words []string

func (w *words) String() string { return "" }

func (w *words) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*w = append(*w, part)
		}
	}
	return nil
}

// lines is a flag that may come again and again.
type lines []string

func (l *lines) String() string { return "" }

func (l *lines) Set(text string) error {
	*l = append(*l, text)
	return nil
}

func changeTemplate(ctx context.Context, s *server, name string, arguments []string, t terminal, call func(string, map[string]any) apiCall) (int, error) {
	f := newFlags(name)
	texts := map[string]*string{}
	for flag, field := range map[string]string{
		"name": "name", "description": "description", "image": "image", "user": "user", "workdir": "workdir", "language": "default_language", "runtime": "runtime",
	} {
		texts[field] = f.String(flag, "", "")
	}
	packages := map[string]*words{"apt": {}, "pip": {}, "npm": {}, "go": {}}
	for kind, list := range packages {
		f.Var(list, kind, "")
	}
	var commands lines
	env, labels := pairs{}, pairs{}
	f.Var(&commands, "run", "")
	f.Var(env, "e", "")
	f.Var(env, "env", "")
	f.Var(labels, "label", "")
	dockerfile, folder := f.String("dockerfile", "", ""), f.String("context", "", "")
	memory, cpu, timeout, pool := f.Int64("memory", 0, ""), f.Float64("cpu", -1, ""), f.Float64("timeout", 0, ""), f.Int("pool", -1, "")
	building, asJSON := f.Bool("build", false, ""), f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, err := one(named, "template")
	if err != nil {
		return 0, err
	}
	fields := map[string]any{}
	for field, text := range texts {
		if *text != "" {
			fields[field] = *text
		}
	}
	kinds := map[string]any{}
	for kind, list := range packages {
		if len(*list) > 0 {
			kinds[kind] = *list
		}
	}
	if len(kinds) > 0 {
		fields["packages"] = kinds
	}
	if len(commands) > 0 {
		fields["commands"] = commands
	}
	if len(env) > 0 {
		fields["env"] = env
	}
	if len(labels) > 0 {
		fields["labels"] = labels
	}
	limited := map[string]any{}
	if *memory > 0 {
		limited["memory_bytes"] = *memory << 20
	}
	if *cpu >= 0 {
		limited["cpu"] = *cpu
	}
	if len(limited) > 0 {
		fields["limits"] = limited
	}
	if *timeout > 0 {
		fields["timeout_seconds"] = *timeout
	}
	if *pool >= 0 {
		fields["pool"] = map[string]any{"depth": *pool}
	}
	if *dockerfile != "" {
		text, err := os.ReadFile(*dockerfile)
		if err != nil {
			return 0, err
		}
		fields["dockerfile"] = string(text)
	}
	if len(fields) == 0 && *folder == "" && !*building {
		return 0, usageError("nothing said of the template")
	}
	if *folder == "" {
		return s.change(ctx, call(id, fields), *building, *asJSON, t)
	}
	// Before anything is made that would then have no context.
	if err := isFolder(*folder); err != nil {
		return 0, err
	}
	var item json.RawMessage
	if err := s.do(ctx, call(id, fields), &item); err != nil {
		return 0, err
	}
	if item, err = s.putContext(ctx, id, *folder); err != nil {
		return 0, err
	}
	return s.told(ctx, item, *building, *asJSON, t)
}

func runTemplateRm(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	return removeEach(ctx, s, "template rm", "template", arguments, t, templatePathOf)
}

func templatePathOf(id string) string { return templatePath(id) }

// removeEach deletes what is named, one after the other; one that fails does not keep the others.
func removeEach(ctx context.Context, s *server, name, what string, arguments []string, t terminal, path func(string) string) (int, error) {
	f := newFlags(name)
	asJSON := f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(named) == 0 {
		return 0, usageError("no " + what + " named")
	}
	status := 0
	for _, id := range named {
		err := s.do(ctx, apiCall{method: http.MethodDelete, path: path(id)}, nil)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		switch {
		case err != nil:
			fmt.Fprintf(t.stderr, "atoll: %s: %v\n", printable(id), err)
			status = statusFailed
		case *asJSON:
			if err := json.NewEncoder(t.stdout).Encode(map[string]any{what: id, "removed": true}); err != nil {
				return 0, err
			}
		default:
			fmt.Fprintf(t.stdout, "%s  removed\n", printable(id))
		}
	}
	return status, nil
}

func runTemplateDuplicate(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template duplicate")
	name, asJSON := f.String("name", "", ""), f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(named) != 2 {
		return 0, usageError(fmt.Sprintf("%d templates (expected: one that is there, and the id of the other)", len(named)))
	}
	fields := map[string]any{"id": named[1]}
	if *name != "" {
		fields["name"] = *name
	}
	return s.change(ctx, apiCall{method: http.MethodPost, path: templatePath(named[0], ":duplicate"), body: fields, header: once()}, false, *asJSON, t)
}

func runTemplateSave(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template save")
	name, asJSON := f.String("name", "", ""), f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(named) != 2 {
		return 0, usageError(fmt.Sprintf("%d words (expected: a sandbox, and the id of the template)", len(named)))
	}
	sandbox, err := s.sandboxID(ctx, named[0])
	if err != nil {
		return 0, err
	}
	fields := map[string]any{"id": named[1]}
	if *name != "" {
		fields["name"] = *name
	}
	return s.change(ctx, apiCall{method: http.MethodPost, path: sandboxPath(sandbox, ":save_template"), body: fields, header: once()}, false, *asJSON, t)
}

func runTemplateDefault(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template default")
	asJSON := f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, err := one(named, "template")
	if err != nil {
		return 0, err
	}
	return s.change(ctx, apiCall{method: http.MethodPost, path: templatePath(id, ":set_default")}, false, *asJSON, t)
}

func runTemplateVersions(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template versions")
	asJSON := f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, err := one(named, "template")
	if err != nil {
		return 0, err
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "VERSION", "CURRENT", "NAME", "IMAGE", "LANGUAGES", "DIGEST", "AGE")
	err = list(ctx, s, templatePath(id, "/versions"), nil, cursorParameter, func(item json.RawMessage) error {
		return out.row("", item, func(item json.RawMessage) ([]string, error) {
			var one struct {
				Version     int        `json:"version"`
				Current     bool       `json:"current"`
				Name        string     `json:"name"`
				Image       string     `json:"image"`
				Languages   []string   `json:"languages"`
				ImageDigest string     `json:"image_digest"`
				CreatedAt   *time.Time `json:"created_at"`
			}
			if err := json.Unmarshal(item, &one); err != nil {
				return nil, err
			}
			current := "-"
			if one.Current {
				current = "yes"
			}
			return []string{
				fmt.Sprint(one.Version), current, one.Name, or(imageName(one.Image), "-"), or(strings.Join(one.Languages, ","), "-"), or(short(one.ImageDigest), "-"), since(one.CreatedAt),
			}, nil
		})
	})
	if err != nil {
		return 0, err
	}
	return 0, out.flush()
}

var longDigest = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// imageName shows what a template or an image is made of: of digests as much as is needed.
func imageName(image string) string { return longDigest.ReplaceAllStringFunc(image, short) }

// short is as much of a digest as people need to tell it from others.
func short(digest string) string { return digest[:min(12, len(digest))] }

func runTemplateBuilds(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template builds")
	asJSON := f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, err := one(named, "template")
	if err != nil {
		return 0, err
	}
	out := newTable(t.stdout, *asJSON, false)
	out.header("", "BUILD", "VERSION", "STATE", "CAUSE", "AGE", "TOOK", "STEP")
	err = list(ctx, s, templatePath(id, "/builds"), nil, cursorParameter, func(item json.RawMessage) error { return out.row("", item, buildRow) })
	if err != nil {
		return 0, err
	}
	return 0, out.flush()
}

func buildRow(item json.RawMessage) ([]string, error) {
	var one build
	if err := json.Unmarshal(item, &one); err != nil {
		return nil, err
	}
	took, step := "-", "-"
	if one.StartedAt != nil && one.EndedAt != nil {
		took = age(one.EndedAt.Sub(*one.StartedAt))
	}
	if one.Step != nil {
		step = fmt.Sprintf("%d of %d: %s", one.Step.Number, one.Step.Total, cut(one.Step.Text))
	}
	return []string{one.ID, fmt.Sprint(one.Version), one.State, one.Cause, since(&one.CreatedAt), took, step}, nil
}

// cut leaves of a step's text what people read: packages are installed by long scripts.
func cut(text string) string {
	const most = 120
	if characters := []rune(text); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return text
}

// newestBuild is the one that a command means that names none.
func (s *server) newestBuild(ctx context.Context, id string) (string, error) {
	var newest *build
	err := list(ctx, s, templatePath(id, "/builds"), nil, cursorParameter, func(one build) error {
		if newest == nil || one.CreatedAt.After(newest.CreatedAt) {
			newest = &one
		}
		return nil
	})
	if err == nil && newest == nil {
		err = fmt.Errorf("template %s has never been built (remedy: ./atoll template build %s)", printable(id), printable(id))
	}
	if err != nil {
		return "", err
	}
	return newest.ID, nil
}

// templateAndBuild are the words of commands that are about a build: a template, and a build of it or its newest.
func (s *server) templateAndBuild(ctx context.Context, words []string) (id, build string, err error) {
	if len(words) < 1 || len(words) > 2 {
		return "", "", usageError(fmt.Sprintf("%d words (expected: a template, and a build if you like)", len(words)))
	}
	if len(words) == 2 {
		return words[0], words[1], nil
	}
	build, err = s.newestBuild(ctx, words[0])
	return words[0], build, err
}

func runTemplateLogs(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template logs")
	follow := f.Bool("f", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, build, err := s.templateAndBuild(ctx, named)
	if err != nil {
		return 0, err
	}
	_, err = s.followBuild(ctx, id, build, *follow, t.stdout)
	return 0, err
}

func runTemplateCancel(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template cancel")
	asJSON := f.Bool("json", false, "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	id, which, err := s.templateAndBuild(ctx, named)
	if err != nil {
		return 0, err
	}
	var item json.RawMessage
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: templatePath(id, "/builds/", url.PathEscape(which), ":cancel")}, &item); err != nil {
		return 0, err
	}
	if *asJSON {
		return 0, printRaw(t.stdout, item)
	}
	var b build
	if err := json.Unmarshal(item, &b); err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(t.stdout, "%s  %s\n", b.ID, b.State)
	return 0, err
}

// buildSecrets are those of a build, by id, said as to Docker: id=ID,src=FILE or id=ID,env=NAME. The values never stand in the command line.
type buildSecrets map[string]string

func (b buildSecrets) String() string { return "" }

func (b buildSecrets) Set(text string) error {
	var id, value string
	given := false
	for part := range strings.SplitSeq(text, ",") {
		name, said, _ := strings.Cut(part, "=")
		switch name {
		case "id":
			id = said
		case "src", "source":
			content, err := os.ReadFile(said)
			if err != nil {
				return err
			}
			value, given = string(content), true
		case "env":
			value, given = os.LookupEnv(said)
			if !given {
				return fmt.Errorf("no environment variable %s", said)
			}
		case "type":
		default:
			return fmt.Errorf("'%s' (expected: id=ID,src=FILE or id=ID,env=NAME)", name)
		}
	}
	if id == "" || !given {
		return errors.New("expected: id=ID,src=FILE or id=ID,env=NAME")
	}
	b[id] = value
	return nil
}

func runTemplateBuild(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template build")
	all, noCache, detach := f.Bool("all", false, ""), f.Bool("no-cache", false, ""), f.Bool("d", false, "")
	secrets := buildSecrets{}
	f.Var(secrets, "secret", "")
	named, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if *all == (len(named) > 0) {
		return 0, usageError("which templates? (expected: some, or --all for those that are not built)")
	}
	if *all {
		err := list(ctx, s, "/v1/templates", nil, cursorParameter, func(one template) error {
			if one.BuildState != "ready" || one.ofRecipe() || *noCache {
				named = append(named, one.ID)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if len(named) == 0 {
			fmt.Fprintln(t.stderr, "all templates are built")
		}
	}
	fields := map[string]any{}
	if *noCache {
		fields["no_cache"] = true
	}
	if len(secrets) > 0 {
		fields["secrets"] = secrets
	}
	status := 0
	for _, id := range named {
		failed, err := 0, error(nil)
		if *detach {
			var begun build
			if err = s.do(ctx, apiCall{method: http.MethodPost, path: templatePath(id, ":build"), body: fields}, &begun); err == nil {
				fmt.Fprintf(t.stdout, "%s\n", begun.ID)
			}
		} else {
			failed, err = s.buildOne(ctx, id, fields, t)
		}
		var refused apiError
		switch {
		case *all && isMissing(err):
			// It was deleted since they were listed.
		case errors.As(err, &refused) && len(named) > 1:
			fmt.Fprintf(t.stderr, "atoll: %s: %v\n", printable(id), err)
			failed = statusFailed
		case err != nil:
			return 0, err
		}
		status = max(status, failed)
	}
	return status, nil
}

// buildOne builds a template and shows how it goes. Its end ends nothing: the build goes on at the server.
func (s *server) buildOne(ctx context.Context, id string, fields map[string]any, t terminal) (int, error) {
	fmt.Fprintf(t.stderr, "== template %s\n", printable(id))
	var begun build
	if err := s.do(ctx, apiCall{method: http.MethodPost, path: templatePath(id, ":build"), body: fields}, &begun); err != nil {
		return 0, err
	}
	ended, err := s.followBuild(ctx, id, begun.ID, true, t.stderr)
	if err != nil {
		return 0, err
	}
	if ended.State != "ready" {
		reason := ""
		if ended.Failure != nil {
			// The lines of the log have been shown.
			line, _, _ := strings.Cut(ended.Failure.Message, "\n")
			reason = ": " + line
		}
		fmt.Fprintf(t.stderr, "atoll: template %s: %s%s (./atoll template logs %s)\n", printable(id), ended.State, printable(reason), printable(id))
		return statusFailed, nil
	}
	return 0, nil
}

// followBuild prints what a build says, and returns it as it ended; where it is not followed, as it was.
func (s *server) followBuild(ctx context.Context, id, which string, follow bool, to io.Writer) (*build, error) {
	query := url.Values{"format": {"events"}}
	if follow {
		query.Set("follow", "true")
	}
	var ended *build
	patient := *s
	patient.patience = max(s.patience, waitForServer)
	seen := 0
	err := patient.follow(ctx, func() (bool, error) {
		reply, err := s.open(ctx, apiCall{
			method: http.MethodGet, path: templatePath(id, "/builds/", url.PathEscape(which), "/log"), query: query, header: http.Header{"Accept": {"text/event-stream"}},
		})
		if err != nil {
			return false, err
		}
		defer reply.Body.Close()
		// A server that was away tells the log from its beginning.
		at, before := 0, seen
		err = readEvents(reply.Body, func(e event) error {
			if at++; at > seen {
				seen = at
				return printBuildEvent(to, e, &ended)
			}
			return nil
		})
		if err == nil && ended == nil && follow {
			err = errBrokenOff
		}
		return seen > before, err
	})
	if err != nil {
		return nil, err
	}
	if ended == nil {
		ended = &build{}
		return ended, s.do(ctx, apiCall{method: http.MethodGet, path: templatePath(id, "/builds/", url.PathEscape(which))}, ended)
	}
	return ended, nil
}

// waitForServer is for how long a build is followed over a restart of the server.
const waitForServer = time.Minute

func printBuildEvent(to io.Writer, e event, ended **build) error {
	switch e.name {
	case "step":
		var step struct {
			Number, Total int
			Text          string
			Cached        bool
		}
		if err := json.Unmarshal(e.data, &step); err != nil {
			return err
		}
		cached := ""
		if step.Cached {
			cached = " (cached)"
		}
		_, err := fmt.Fprintf(to, "[%d/%d] %s%s\n", step.Number, step.Total, printable(cut(step.Text)), cached)
		return err
	case "log":
		var log struct{ Text string }
		if err := json.Unmarshal(e.data, &log); err != nil {
			return err
		}
		_, err := io.WriteString(to, harmless(log.Text))
		return err
	case "progress":
		var progress struct {
			What  string
			Done  int64  `json:"done_bytes"`
			Total *int64 `json:"total_bytes"`
		}
		if err := json.Unmarshal(e.data, &progress); err != nil {
			return err
		}
		file, ok := to.(*os.File)
		if !ok || !isTerminal(file) {
			return nil
		}
		total := ""
		if progress.Total != nil {
			total = " of " + size(*progress.Total)
		}
		_, err := fmt.Fprintf(to, "\r%s: %s%s\x1b[K", printable(progress.What), size(progress.Done), total)
		if err == nil && progress.Total != nil && progress.Done >= *progress.Total {
			_, err = io.WriteString(to, "\r\x1b[K")
		}
		return err
	case "done":
		*ended = &build{}
		return json.Unmarshal(e.data, *ended)
	case "error":
		var failure apiError
		if err := json.Unmarshal(e.data, &failure); err != nil {
			return err
		}
		return failure
	}
	return nil
}

// harmless leaves of what a build prints the lines and takes what a terminal would take for commands.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n'
		}
		return []rune(printable(string(r)))[0]
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

func isMissing(err error) bool {
	var refused apiError
	return errors.As(err, &refused) && refused.Code == "template_not_found"
}

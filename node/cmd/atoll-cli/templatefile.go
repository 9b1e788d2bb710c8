package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"go.yaml.in/yaml/v3"
)

const (
	templateFileName = "atoll.template.yaml"
	ignoreFileName   = ".dockerignore"
)

// definitionFields are those of a template that a file may have. What a file does not say is as if it had never been said.
var definitionFields = []string{
	"name", "description", "image", "dockerfile", "packages", "files", "commands", "env", "user", "workdir", "start", "default_language", "limits",
	"timeout_seconds", "lifetime", "idle_timeout_seconds", "on_timeout", "auto_resume", "pool", "network", "ports", "runtime", "labels",
}

// templateOnFile is what a file says.
type templateOnFile struct {
	id     string
	fields map[string]any
	// folder is the build context; empty: none.
	folder string
}

// readTemplateFile reads a file whose fields are the API's. Paths in it are taken from where it lies: context is a folder; dockerfile is the
// name of a file, or the text itself where it has lines; a file's `from` stands for its content.
func readTemplateFile(path string) (templateOnFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return templateOnFile{}, err
	}
	told := func(err error) (templateOnFile, error) { return templateOnFile{}, fmt.Errorf("%s: %w", path, err) }
	var fields map[string]any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&fields); err != nil {
		return told(err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return told(errors.New("more than one document (expected: one template)"))
	}
	t := templateOnFile{fields: fields}
	var ok bool
	if t.id, ok = fields["id"].(string); !ok || t.id == "" {
		return told(errors.New("no id (expected: id: NAME)"))
	}
	delete(fields, "id")
	near := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(path), name)
	}
	if folder, given := fields["context"]; given {
		if t.folder, ok = folder.(string); !ok {
			return told(errors.New("context (expected: the name of a folder)"))
		}
		t.folder = near(t.folder)
		if err := isFolder(t.folder); err != nil {
			return told(fmt.Errorf("context: %w", err))
		}
		delete(fields, "context")
	}
	if name, ok := fields["dockerfile"].(string); ok && name != "" && !strings.Contains(name, "\n") {
		content, err := os.ReadFile(near(name))
		if err != nil {
			return told(fmt.Errorf("dockerfile: %w", err))
		}
		fields["dockerfile"] = string(content)
	}
	if files, ok := fields["files"].([]any); ok {
		for at, one := range files {
			file, ok := one.(map[string]any)
			if !ok {
				return told(fmt.Errorf("files[%d] (expected: path, and content or from)", at))
			}
			from, ok := file["from"].(string)
			if !ok {
				continue
			}
			content, err := os.ReadFile(near(from))
			if err != nil {
				return told(fmt.Errorf("files[%d]: %w", at, err))
			}
			delete(file, "from")
			file["content_base64"] = base64.StdEncoding.EncodeToString(content)
		}
	}
	return t, nil
}

// templateFile shows a template as a file that could be applied.
func templateFile(one template) ([]byte, error) {
	var definition map[string]any
	if err := json.Unmarshal(one.Definition, &definition); err != nil {
		return nil, fmt.Errorf("the template's definition: %w", err)
	}
	// Where it comes from can't be changed, and the context is no folder here.
	delete(definition, "recipe")
	context := definition["context"]
	delete(definition, "context")
	dropEmpty(definition)
	root := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value any) error {
		var node yaml.Node
		if err := node.Encode(whole(value)); err != nil {
			return err
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &node)
		return nil
	}
	if err := add("id", one.ID); err != nil {
		return nil, err
	}
	for _, name := range definitionFields {
		if value, given := definition[name]; given {
			if err := add(name, value); err != nil {
				return nil, err
			}
		}
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# version %d, %s\n", one.Version, one.BuildState)
	if context != nil {
		text.WriteString("# It has a build context, which is kept by the server: a folder is named here as `context`.\n")
	}
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(root), encoder.Close())
	return text.Bytes(), err
}

// dropEmpty removes what says nothing.
func dropEmpty(fields map[string]any) {
	for name, value := range fields {
		switch value := value.(type) {
		case nil:
			delete(fields, name)
		case string:
			if value == "" {
				delete(fields, name)
			}
		case []any:
			if len(value) == 0 {
				delete(fields, name)
			}
			for _, one := range value {
				if inner, ok := one.(map[string]any); ok {
					dropEmpty(inner)
				}
			}
		case map[string]any:
			if dropEmpty(value); len(value) == 0 {
				delete(fields, name)
			}
		}
	}
}

// whole turns numbers that JSON made of integers back into such, so that 256 MiB is not written as 2.68435456e+08.
func whole(value any) any {
	switch value := value.(type) {
	case float64:
		if value == float64(int64(value)) {
			return int64(value)
		}
	case []any:
		for at, one := range value {
			value[at] = whole(one)
		}
	case map[string]any:
		for name, one := range value {
			value[name] = whole(one)
		}
	}
	return value
}

func runTemplateApply(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("template apply")
	building, asJSON := f.Bool("build", false, ""), f.Bool("json", false, "")
	words, err := f.parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) == 0 {
		words = []string{templateFileName}
	}
	// All are read before anything is changed.
	var all []templateOnFile
	for _, word := range words {
		if info, err := os.Stat(word); err == nil && info.IsDir() {
			word = filepath.Join(word, templateFileName)
		}
		one, err := readTemplateFile(word)
		if err != nil {
			return 0, err
		}
		all = append(all, one)
	}
	status := 0
	for _, one := range all {
		failed, err := s.apply(ctx, one, *building, *asJSON, t)
		if err != nil {
			return 0, fmt.Errorf("template %s: %w", printable(one.id), err)
		}
		status = max(status, failed)
	}
	return status, nil
}

// apply makes the template of a file what the file says. Said again, it changes nothing.
func (s *server) apply(ctx context.Context, one templateOnFile, building, asJSON bool, t terminal) (int, error) {
	var before template
	err := s.do(ctx, apiCall{method: http.MethodGet, path: templatePath(one.id)}, &before)
	var item json.RawMessage
	switch {
	case err == nil:
		fields := map[string]any{}
		for _, name := range definitionFields {
			fields[name] = nil
		}
		for name, value := range one.fields {
			fields[name] = value
		}
		err = s.do(ctx, apiCall{method: http.MethodPatch, path: templatePath(one.id), body: fields}, &item)
	case isMissing(err):
		one.fields["id"] = one.id
		err = s.do(ctx, apiCall{method: http.MethodPost, path: "/v1/templates", body: one.fields, header: once()}, &item)
	}
	if err == nil && one.folder != "" {
		item, err = s.putContext(ctx, one.id, one.folder)
	}
	if err != nil {
		return 0, err
	}
	var after template
	if err := json.Unmarshal(item, &after); err != nil {
		return 0, err
	}
	if !asJSON {
		what := "changed"
		switch {
		case before.ID == "":
			what = "created"
		case before.NewestVersion == after.NewestVersion:
			what = "as it was"
		}
		fmt.Fprintf(t.stderr, "%s: %s\n", printable(one.id), what)
	}
	return s.told(ctx, item, building, asJSON, t)
}

// isFolder fails where a build context is not there. It is asked before anything is made or changed.
func isFolder(folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	return root.Close()
}

// putContext sends a folder as a template's build context, without what .dockerignore names. The same files make the same archive.
func (s *server) putContext(ctx context.Context, id, folder string) (json.RawMessage, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	packed, packing := io.Pipe()
	go func() { packing.CloseWithError(packContext(root, packing)) }()
	defer packed.Close()
	request, err := s.request(ctx, http.MethodPut, templatePath(id, "/context"), nil, packed)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-tar")
	return s.sendBody(request, "the template has its old context")
}

func packContext(root *os.Root, to io.Writer) error {
	ignored, err := readIgnored(root)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(to)
	// In the order of the names.
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		// The server reads these two in any case.
		if name != ignoreFileName && name != "Dockerfile" {
			skip, err := ignored.MatchesOrParentMatches(name)
			if err != nil {
				return fmt.Errorf("%s: %w", ignoreFileName, err)
			}
			if skip && entry.IsDir() && !ignored.Exclusions() {
				return fs.SkipDir
			}
			if skip {
				return nil
			}
		}
		return packForBuild(root, archive, name, entry)
	})
	return errors.Join(err, archive.Close())
}

func readIgnored(root *os.Root) (*patternmatcher.PatternMatcher, error) {
	var patterns []string
	file, err := root.Open(ignoreFileName)
	if err == nil {
		patterns, err = ignorefile.ReadAll(file)
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return patternmatcher.New(patterns)
}

// packForBuild leaves out when a file was changed, and whose it is: in a build that says nothing, and would make it another one.
func packForBuild(root *os.Root, archive *tar.Writer, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: time.Unix(0, 0)}
	switch {
	case info.IsDir():
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		header.Typeflag, header.Size = tar.TypeReg, info.Size()
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if n, err := io.Copy(archive, io.LimitReader(file, info.Size())); err != nil || n < info.Size() {
			return errors.Join(err, fmt.Errorf("%s became shorter while it was read", name))
		}
		return nil
	default:
		return nil
	}
	return archive.WriteHeader(header)
}

const sampleTemplate = `# A template of sandboxes. ./atoll template apply makes it what is said here; said again, it changes nothing.
id: %s
description: What it is for
image: python:3.12-slim
packages:
  apt: [git]
  pip: [requests]
# commands: ["make -C /opt/tool install"]     # run as root while it is built
# files: [{path: /etc/tool.conf, from: ./tool.conf}]
# dockerfile: ./Dockerfile                    # in the place of image, packages, files and commands
# context: .
env: {TZ: UTC}
limits: {memory_bytes: 536870912, cpu: 1}
timeout_seconds: 60
pool: {depth: 1}
`

func runTemplateInit(_ context.Context, _ *server, arguments []string, t terminal) (int, error) {
	words, err := newFlags("template init").parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) > 1 {
		return 0, usageError(fmt.Sprintf("%d words (expected: an id, or none)", len(words)))
	}
	id := "my-template"
	if len(words) == 1 {
		id = words[0]
	}
	file, err := os.OpenFile(templateFileName, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("%s is there already (remedy: edit it, then ./atoll template apply)", templateFileName)
	}
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(file, sampleTemplate, id); err != nil {
		return 0, errors.Join(err, file.Close())
	}
	fmt.Fprintf(t.stdout, "%s\n", templateFileName)
	return 0, file.Close()
}

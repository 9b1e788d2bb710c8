package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const shownTemplate = `{"id":"mine","version":2,"newest_version":3,"name":"Mine","image":"python:3.12-slim","languages":["python","bash"],
  "limits":{"memory_bytes":268435456,"cpu":0.5},"timeout_seconds":30.0,"default":true,"build_state":"ready","executions":7,"last_used_at":null,
  "definition":{"name":"Mine","description":"","image":"python:3.12-slim","recipe":null,"dockerfile":null,
    "packages":{"apt":["git"],"pip":[],"npm":[],"go":[]},"files":[],"commands":["make"],"context":null,"env":{"A":"b: c"},"user":null,"start":null,
    "limits":{"memory_bytes":268435456,"cpu":null},"timeout_seconds":30.0,"lifetime":{"default_seconds":null,"max_seconds":null},
    "pool":{"depth":null,"max_depth":null},"network":"none","ports":[],"labels":{}}}`

func inFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTemplateThatIsShownIsAFileThatCanBeApplied(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/templates/mine", 200, shownTemplate)
	changed := f.took("PATCH /v1/templates/mine", strings.Replace(shownTemplate, `"newest_version":3`, `"newest_version":3`, 1))
	_, text, _, err := cli(t, "", "template", "show", "mine")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(inFolder(t, map[string]string{"t.yaml": text}), "t.yaml")
	status, stdout, stderr, err := cli(t, "", "template", "apply", path)
	if err != nil || status != 0 || !strings.Contains(stderr, "as it was") || !strings.Contains(stdout, "version 3") {
		t.Fatalf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
	got := *changed
	if fmt.Sprintf("%v %v %v %v %v", got["image"], got["commands"], got["packages"], got["env"], got["limits"]) !=
		"python:3.12-slim [make] map[apt:[git]] map[A:b: c] map[memory_bytes:2.68435456e+08]" {
		t.Errorf("sent %v from %q", got, text)
	}
	for _, name := range []string{"dockerfile", "user", "start", "labels"} {
		if value, given := got[name]; !given || value != nil {
			t.Errorf("%s: %v, %v (expected: said to be nothing)", name, value, given)
		}
	}
	if _, given := got["id"]; given {
		t.Error("the id was sent with a change")
	}
}

func TestApplyMakesWhatIsNotThereWithItsContextAndFiles(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/templates/new", 404, `{"error":{"code":"template_not_found","message":"none"}}`)
	made := f.took("POST /v1/templates", `{"id":"new","version":1,"newest_version":1,"build_state":"none"}`)
	var archives []map[string]string
	f.mux.HandleFunc("PUT /v1/templates/new/context", func(w http.ResponseWriter, r *http.Request) {
		found := map[string]string{}
		for archive := tar.NewReader(r.Body); ; {
			header, err := archive.Next()
			if err != nil {
				break
			}
			content, _ := io.ReadAll(archive)
			found[header.Name] = fmt.Sprintf("%s%s %o %d", content, header.Linkname, header.Mode, header.ModTime.Unix())
		}
		archives = append(archives, found)
		io.WriteString(w, `{"id":"new","version":1,"newest_version":2,"build_state":"none"}`)
	})
	dir := inFolder(t, map[string]string{
		templateFileName: "id: new\ndockerfile: ./Dockerfile\ncontext: src\nfiles: [{path: /etc/a, from: a.conf}]\n",
		"Dockerfile":     "FROM x\nCOPY . /\n", "a.conf": "A",
		"src/keep": "K", "src/skip.log": "S", "src/deep/skip.log": "S", "src/deep/wanted.log": "W", "src/.dockerignore": "**/*.log\n!deep/wanted.log\n",
	})
	if err := os.Symlink("keep", filepath.Join(dir, "src", "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if status, _, stderr, err := cli(t, "", "template", "apply", dir); err != nil || status != 0 || !strings.Contains(stderr, "created") {
			t.Fatalf("status %d, %q, %v", status, stderr, err)
		}
	}
	if got := *made; got["id"] != "new" || got["dockerfile"] != "FROM x\nCOPY . /\n" || fmt.Sprint(got["files"]) != "[map[content_base64:QQ== path:/etc/a]]" {
		t.Errorf("made %v", got)
	}
	expected := map[string]string{
		".dockerignore": "**/*.log\n!deep/wanted.log\n 644 0", "deep/": " 755 0", "deep/wanted.log": "W 644 0", "keep": "K 644 0", "link": "keep 777 0",
	}
	for _, got := range archives {
		if fmt.Sprint(got) != fmt.Sprint(expected) {
			t.Errorf("context %v (expected: %v)", got, expected)
		}
	}
}

func TestTemplateFileThatIsWrongIsToldBeforeAnythingIsChanged(t *testing.T) {
	newFake(t)
	for text, expected := range map[string]string{
		"name: x":                             "no id",
		"id: a\n---\nid: b":                   "more than one document",
		"id: a\ndockerfile: ./missing":        "missing",
		"id: a\ncontext: 3":                   "context",
		"id: a\ncontext: missing":             "context",
		"id: a\nfiles: [3]":                   "files[0]",
		"id: a\nfiles: [{path: /x, from: y}]": "files[0]",
		"id: [":                               "yaml",
	} {
		path := filepath.Join(inFolder(t, map[string]string{"t.yaml": text}), "t.yaml")
		if status, _, _, err := cli(t, "", "template", "apply", path); status == 0 || err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: status %d, %v (expected: %q)", text, status, err, expected)
		}
	}
}

func TestFlagsOfATemplateBecomeItsFields(t *testing.T) {
	f := newFake(t)
	made := f.took("POST /v1/templates", `{"id":"t","newest_version":1,"build_state":"none"}`)
	status, _, _, err := cli(t, "", "template", "create", "t", "--image", "debian:12", "--apt", "git, curl", "--apt", "jq", "--pip", "requests==2.32", "--run", "make a, b", "--run", "true",
		"-e", "A=b", "--memory", "512", "--cpu", "0", "--timeout", "1.5", "--pool", "0", "--language", "python", "--runtime", "docker", "--label", "x=y")
	if err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	text, _ := json.Marshal(*made)
	expected := `{"commands":["make a, b","true"],"default_language":"python","env":{"A":"b"},"id":"t","image":"debian:12","labels":{"x":"y"},` +
		`"limits":{"cpu":0,"memory_bytes":536870912},"packages":{"apt":["git","curl","jq"],"pip":["requests==2.32"]},"pool":{"depth":0},"runtime":"docker","timeout_seconds":1.5}`
	if string(text) != expected {
		t.Errorf("%s\nexpected: %s", text, expected)
	}
	if status, _, _, err := cli(t, "", "template", "edit", "t"); status == 0 || err == nil {
		t.Error("a change of nothing was sent")
	}
}

func TestTemplateWhoseContextIsMissingIsNotMade(t *testing.T) {
	f := newFake(t)
	made := f.took("POST /v1/templates", `{"id":"t","newest_version":1,"build_state":"none"}`)
	for _, folder := range []string{"missing", "file"} {
		path := filepath.Join(inFolder(t, map[string]string{"file": ""}), folder)
		if status, _, _, err := cli(t, "", "template", "create", "t", "--image", "debian:12", "--context", path); status == 0 || err == nil || len(*made) > 0 {
			t.Errorf("%s: status %d, %v, made %v", folder, status, err, *made)
		}
	}
}

const buildLog = "event: step\ndata: {\"number\":1,\"total\":2,\"text\":\"RUN make\",\"cached\":true}\n\n" +
	"event: log\ndata: {\"text\":\"a\\u001b[2Jb\\r\\nc\\n\",\"stream\":\"stdout\"}\n\n" +
	"event: progress\ndata: {\"what\":\"layer\",\"done_bytes\":5}\n\n"

func TestBuildIsFollowedToItsEndAndItsFailureIsTheStatus(t *testing.T) {
	f := newFake(t)
	begun := f.took("POST /v1/templates/t:build", `{"build_id":"build-1","state":"queued"}`)
	state, tries := "ready", 0
	f.mux.HandleFunc("GET /v1/templates/t/builds/build-1/log", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, buildLog)
		// It breaks off once, and is told from its beginning then.
		if tries++; tries > 1 {
			fmt.Fprintf(w, "event: done\ndata: {\"build_id\":\"build-1\",\"state\":%q,\"failure\":{\"message\":\"RUN make: exit status 2\\nc\"}}\n\n", state)
		}
	})
	status, _, stderr, err := cli(t, "", "template", "build", "t", "--no-cache")
	if err != nil || status != 0 || !strings.HasSuffix(stderr, "[1/2] RUN make (cached)\na\uFFFD[2Jb\nc\n") || (*begun)["no_cache"] != true {
		t.Fatalf("status %d, %q, %v; %v", status, stderr, err, *begun)
	}
	state = "failed"
	status, _, stderr, err = cli(t, "", "template", "build", "t")
	if err != nil || status != statusFailed || !strings.HasSuffix(stderr, "\nc\natoll: template t: failed: RUN make: exit status 2 (./atoll template logs t)\n") {
		t.Fatalf("status %d, %q, %v", status, stderr, err)
	}
}

func TestBuildOfAllIsOfThoseThatAreNotBuiltAndOfRecipesThatMayHaveChanged(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/templates", 200, `{"items":[{"id":"a","build_state":"ready"},{"id":"b","build_state":"none"},{"id":"c","build_state":"failed"},{"id":"deno","build_state":"ready","built_in":true,"image":"deno"},{"id":"go","build_state":"ready","built_in":true,"image":"golang:1.22-alpine"}],"next":null}`)
	var built []string
	f.mux.HandleFunc("POST /v1/templates/{id}", func(w http.ResponseWriter, r *http.Request) {
		built = append(built, r.PathValue("id"))
		io.WriteString(w, `{"build_id":"build-`+r.PathValue("id")[:1]+`"}`)
	})
	status, stdout, _, err := cli(t, "", "template", "build", "--all", "-d")
	if err != nil || status != 0 || stdout != "build-b\nbuild-c\nbuild-d\n" || !slices.Equal(built, []string{"b:build", "c:build", "deno:build"}) {
		t.Fatalf("status %d, %q, %v, %v", status, stdout, built, err)
	}
	for _, arguments := range [][]string{{"template", "build"}, {"template", "build", "a", "--all"}} {
		if status, _, _, err := cli(t, "", arguments...); status == 0 || err == nil {
			t.Errorf("%v was taken", arguments)
		}
	}
}

func TestSecretsOfABuildComeFromFilesAndTheEnvironment(t *testing.T) {
	f := newFake(t)
	asked := f.took("POST /v1/templates/a:build", `{"build_id":"build-a"}`)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ATOLL_TEST_TOKEN", "of the environment")
	if status, _, _, err := cli(t, "", "template", "build", "a", "-d", "--secret", "id=one,src="+file, "--secret", "id=two,env=ATOLL_TEST_TOKEN"); err != nil || status != 0 {
		t.Fatal(status, err)
	}
	if want := map[string]any{"one": "of the file\n", "two": "of the environment"}; !reflect.DeepEqual((*asked)["secrets"], want) {
		t.Errorf("sent %v", *asked)
	}
	for _, said := range []string{"id=one", "src=" + file, "id=one,src=/no/such", "id=one,env=ATOLL_NO_SUCH", "id=one,value=x"} {
		if status, _, _, err := cli(t, "", "template", "build", "a", "--secret", said); status == 0 || err == nil {
			t.Errorf("%s was taken", said)
		}
	}
}

func TestBuildOfOneThatIsRefusedKeepsNoOther(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/templates", 200, `{"items":[{"id":"gone","build_state":"none"},{"id":"b","build_state":"none"}],"next":null}`)
	f.answer("POST /v1/templates/gone:build", 404, `{"error":{"code":"template_not_found","message":"none"}}`)
	f.answer("POST /v1/templates/b:build", 200, `{"build_id":"build-b"}`)
	if status, stdout, stderr, err := cli(t, "", "template", "build", "--all", "-d"); err != nil || status != 0 || stdout != "build-b\n" {
		t.Errorf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
	if status, stdout, stderr, err := cli(t, "", "template", "build", "-d", "gone", "b"); err != nil || status != statusFailed || stdout != "build-b\n" || !strings.Contains(stderr, "gone") {
		t.Errorf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
}

func TestLogsAndCancelMeanTheNewestBuildUnlessToldOtherwise(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/templates/t/builds", 200, `{"items":[{"build_id":"build-old","created_at":"2026-01-01T00:00:00Z"},{"build_id":"build-new","created_at":"2026-01-02T00:00:00Z"}],"next":null}`)
	f.answer("GET /v1/templates/t/builds/build-new/log", 200, buildLog)
	f.answer("GET /v1/templates/t/builds/build-new", 200, `{"build_id":"build-new","state":"building"}`)
	f.answer("POST /v1/templates/t/builds/build-old:cancel", 200, `{"build_id":"build-old","state":"cancelled"}`)
	if status, stdout, _, err := cli(t, "", "template", "logs", "t"); err != nil || status != 0 || !strings.Contains(stdout, "[1/2] RUN make") {
		t.Errorf("status %d, %q, %v", status, stdout, err)
	}
	if status, stdout, _, err := cli(t, "", "template", "cancel", "t", "build-old"); err != nil || status != 0 || stdout != "build-old  cancelled\n" {
		t.Errorf("status %d, %q, %v", status, stdout, err)
	}
}

func TestPasswordOfARegistryIsReadFromStdin(t *testing.T) {
	f := newFake(t)
	kept := map[string]any{}
	f.mux.HandleFunc("PUT /v1/registries/{host}", func(w http.ResponseWriter, r *http.Request) {
		// What follows a colon is an action to the API.
		if got := r.URL.EscapedPath(); got != "/v1/registries/r.example%3A5000" {
			t.Errorf("path %s", got)
		}
		if err := json.NewDecoder(r.Body).Decode(&kept); err != nil {
			t.Error(err)
		}
		io.WriteString(w, `{"host":"r.example:5000","username":"me"}`)
	})
	status, stdout, stderr, err := cli(t, "s3cret\nrest", "registry", "login", "r.example:5000", "-u", "me")
	if err != nil || status != 0 || kept["password"] != "s3cret" || kept["username"] != "me" || strings.Contains(stdout+stderr, "s3cret") {
		t.Fatalf("status %d, %q, %q, %v, %v", status, stdout, stderr, kept, err)
	}
	if status, _, _, err := cli(t, "\n", "registry", "login", "r.example:5000"); status == 0 || err == nil {
		t.Error("an empty password was sent")
	}
}

func TestWhatIsTooLongForALineIsCut(t *testing.T) {
	f := newFake(t)
	script, digest := strings.Repeat("é", 500), strings.Repeat("0123456789abcdef", 4)
	f.answer("GET /v1/templates/t/builds", 200, `{"items":[{"build_id":"b","step":{"number":1,"total":2,"text":"`+script+`"}}],"next":null}`)
	f.answer("GET /v1/templates", 200, `{"items":[{"id":"t","image":"`+digest+`"}],"next":null}`)
	if status, stdout, _, err := cli(t, "", "template", "builds", "t"); err != nil || status != 0 || !strings.Contains(stdout, "1 of 2: "+script[:2*119]+"…\n") {
		t.Errorf("status %d, %q, %v", status, stdout, err)
	}
	if status, stdout, _, err := cli(t, "", "template", "ls"); err != nil || status != 0 || strings.Contains(stdout, digest) || !strings.Contains(stdout, digest[:12]) {
		t.Errorf("status %d, %q, %v", status, stdout, err)
	}
}

func TestImageIsRemovedByTheBeginningOfItsDigest(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/images", 200, `{"items":[{"digest":"0123456789abcdef","name":"a@1"},{"digest":"fedcba9876543210","name":"b@1"}],"next":null}`)
	f.answer("DELETE /v1/images/fedcba9876543210", 200, `{"freed_bytes":5}`)
	if status, stdout, stderr, err := cli(t, "", "image", "rm", "fedcba987654"); err != nil || status != 0 || !strings.Contains(stdout, "removed") {
		t.Fatalf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
}

func TestSampleTemplateCanBeApplied(t *testing.T) {
	t.Chdir(t.TempDir())
	if status, _, _, err := cli(t, "", "template", "init", "mine"); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	one, err := readTemplateFile(templateFileName)
	if err != nil || one.id != "mine" || one.fields["image"] != "python:3.12-slim" {
		t.Fatalf("%v, %v", one, err)
	}
	if status, _, _, err := cli(t, "", "template", "init"); status == 0 || err == nil || !strings.Contains(err.Error(), "already") {
		t.Fatal("the file was overwritten")
	}
}

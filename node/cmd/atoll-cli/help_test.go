package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// quoted splits a line as a shell does, as far as examples go.
func quoted(line string) []string {
	var words []string
	for _, part := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(part, "'"))
	}
	return words
}

func TestEveryCommandHasAnExampleThatItTakes(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	for _, c := range commands {
		if len(examples[c.name]) == 0 {
			t.Errorf("%s has no example", c.name)
		}
		for _, line := range examples[c.name] {
			f := newFake(t)
			// Whatever is asked is refused: what is told is whether the words were understood.
			f.answer("/", 409, `{"error":{"code":"no","message":"refused"}}`)
			line = regexp.MustCompile(`^tar [^|]*\| ./atoll | [<>] \S+`).ReplaceAllString(line, "")
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			words := quoted(line)
			if !strings.HasPrefix(line, c.name+" ") && line != c.name {
				t.Errorf("%s (expected: an example of %s)", line, c.name)
			}
			_, err := run(ctx, words, terminal{strings.NewReader("secret\n"), io.Discard, io.Discard})
			stop()
			if err != nil && strings.Contains(err.Error(), "usage: atoll") {
				t.Errorf("atoll %s: %v", line, err)
			}
		}
	}
}

func TestHelpShowsExamples(t *testing.T) {
	if _, stdout, _, _ := cli(t, "", "fork", "--help"); !strings.Contains(stdout, "examples:\n  ./atoll fork work -n 3\n") {
		t.Errorf("%s (expected: an example)", stdout)
	}
}

func TestExitStatusSaysWhatKindOfFailureItWas(t *testing.T) {
	answer := func(status int) func() {
		return func() { newFake(t).answer("/", status, `{"error":{"code":"x","message":"no"}}`) }
	}
	gone := func() {
		t.Setenv("ATOLL_URL", "http://127.0.0.1:1")
		t.Setenv("ATOLL_API_KEY", "the-key")
	}
	nowhere := func() {
		t.Setenv("ATOLL_URL", "")
		t.Setenv("ATOLL_DATA_DIR", t.TempDir())
	}
	empty := func() { newFake(t).answer("/", 200, `{"items":[],"next":null}`) }
	for _, c := range []struct {
		name, typed string
		server      func()
		want        int
	}{
		{"done", "ls", empty, 0},
		{"one of several failed", "rm sb-exec-1", answer(404), statusFailed},
		{"used wrongly", "fork", empty, statusUnable},
		{"refused", "show sb-exec-1", answer(409), statusUnable},
		{"not there", "show sb-exec-1", answer(404), statusMissing},
		{"no such name", "show nobody", empty, statusMissing},
		{"no key", "ls", answer(401), statusNotAllowed},
		{"not with this key", "ls", answer(403), statusNotAllowed},
		{"no server", "ls", gone, statusUnreachable},
		{"no installation", "ls", nowhere, statusUnreachable},
		{"program not started", "run -s sb-exec-1 -- true", answer(404), statusNotRun},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.server()
			if status, _, _, err := cli(t, "", strings.Fields(c.typed)...); status != c.want {
				t.Errorf("status %d, %v (expected: %d)", status, err, c.want)
			}
		})
	}
}

func TestLauncherHandsOnEveryCommand(t *testing.T) {
	launcher, err := os.ReadFile("../../../atoll")
	if err != nil {
		t.Fatal(err)
	}
	handed := regexp.MustCompile(`(?m)^cli_commands="([^"]*)"$`).FindSubmatch(launcher)
	if handed == nil {
		t.Fatal("./atoll has no line cli_commands=")
	}
	words := strings.Fields(string(handed[1]))
	for _, c := range commands {
		if first, _, _ := strings.Cut(c.name, " "); !slices.Contains(words, first) {
			t.Errorf("./atoll does not hand on %s", first)
		}
	}
}

func TestCompletionKnowsCommandsFlagsNamesAndIds(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/sandboxes", 200, `{"items":[{"sandbox_id":"sb-exec-1","name":"work","template":"python","state":"running"}],"next":null}`)
	f.answer("GET /v1/templates", 200, `{"items":[{"id":"python","state":"ready"}],"next":null}`)
	for typed, want := range map[string]string{
		"sna":                  "snapshot",
		"snapshot exp":         "export",
		"fork ":                "work sb-exec-1",
		"fork work --na":       "--name",
		"pause work w":         "work",
		"create --template p":  "python",
		"create --on-timeout ": "pause kill",
		"cp w":                 "work:",
		"exec -l pyth":         "python",
		"doc":                  "doctor",
		"completion z":         "zsh",
		"runs work ":           "",
		"nonsense ":            "",
	} {
		words := strings.Split(typed, " ")
		_, stdout, _, err := cli(t, "", append([]string{"__complete"}, words...)...)
		var got []string
		for line := range strings.Lines(stdout) {
			value, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, value)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v (expected: %s)", typed, got, err, want)
		}
	}
}

func TestCompletionOfBashCallsTheCommandItself(t *testing.T) {
	folder := t.TempDir()
	for shell, script := range completions {
		if err := os.WriteFile(filepath.Join(folder, shell), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := "#!/bin/sh\n[ \"$1\" = __complete ] && [ \"$2\" = fork ] && printf 'work\\tpython running\\nweb:\\t\\n'\n"
	if err := os.WriteFile(filepath.Join(folder, "atoll"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	script := `source ` + folder + `/bash; compopt() { :; }; COMP_WORDS=(` + folder + `/atoll fork w); COMP_CWORD=2; _atoll; echo "${COMPREPLY[@]}"`
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	if err != nil || string(out) != "work web:\n" {
		t.Errorf("%s, %v (expected: work web:)", out, err)
	}
}

func TestTopShowsTheBusiestFirstWithThePools(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/sandboxes", 200, `{"items":[{"sandbox_id":"sb-exec-1","name":"idle","template":"python"},{"sandbox_id":"sb-exec-2","name":"busy","template":"go"},{"sandbox_id":"sb-exec-3","name":"new","template":"go"}],"next":null}`)
	sample := func(cpu string) string {
		return `{"items":[{"cpu_percent":99,"memory_bytes":1},{"cpu_percent":` + cpu + `,"cpu_seconds":1.5,"memory_bytes":1048576,"memory_limit_bytes":268435456,"disk_bytes":0,"disk_limit_bytes":1073741824,"processes":7}],"next":null}`
	}
	f.answer("GET /v1/sandboxes/sb-exec-1/metrics", 200, sample("0.4"))
	f.answer("GET /v1/sandboxes/sb-exec-2/metrics", 200, sample("48.2"))
	f.answer("GET /v1/sandboxes/sb-exec-3/metrics", 404, `{"error":{"code":"sandbox_not_found","message":"gone"}}`)
	f.answer("GET /v1/pools", 200, `{"items":[{"template":"python","depth":2,"ready":1}],"next":null}`)
	status, stdout, _, err := cli(t, "", "top", "--once")
	if err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	busy, idle, fresh := strings.Index(stdout, "busy"), strings.Index(stdout, "idle"), strings.Index(stdout, "new ")
	if !strings.HasPrefix(stdout, "3 sandboxes run, 49 % CPU, 2.0M memory\n") || busy < 0 || idle < busy || fresh < idle || !strings.Contains(stdout, "1/2") || !strings.Contains(stdout, "1.0M    256.0M") {
		t.Errorf("%s (expected: busy before idle before new, the pool, the totals)", stdout)
	}
	_, stdout, _, err = cli(t, "", "top", "--json")
	if err != nil || strings.Count(stdout, "\n") != 3 || !strings.Contains(stdout, `"usage":null`) {
		t.Errorf("%s, %v (expected: three lines, one without a sample)", stdout, err)
	}
}

func TestTransferTellsHowFarItIsAndLeavesTheLineEmpty(t *testing.T) {
	var out bytes.Buffer
	at := time.Unix(0, 0)
	m := &meter{ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 4096))), to: &out, what: "sent", total: 4096, begun: at, now: func() time.Time { return at }}
	part := make([]byte, 1024)
	m.Read(part)
	if out.Len() > 0 {
		t.Errorf("%q after no time (expected: nothing)", out.String())
	}
	at = at.Add(2 * time.Second)
	m.Read(part)
	if want := "\rsent 2.0K of 4.0K, 50 %, 1.0K/s\x1b[K"; out.String() != want {
		t.Errorf("%q (expected: %q)", out.String(), want)
	}
	io.Copy(io.Discard, m)
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("%q (expected: an empty line at the end)", out.String())
	}
}

func TestProgressIsOfLargeBodiesOnly(t *testing.T) {
	s := &server{progress: io.Discard}
	for path, want := range map[string]bool{"/v1/sandboxes/a/files": true, "/v1/snapshots/a/file": true, "/v1/sandboxes": false, "/v1/executions/a/output": false} {
		r, _ := http.NewRequest(http.MethodPut, "http://x"+path, strings.NewReader("x"))
		s.watched(r)
		if _, got := r.Body.(*meter); got != want {
			t.Errorf("%s: %t (expected: %t)", path, got, want)
		}
	}
}

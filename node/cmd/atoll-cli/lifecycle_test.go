package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// named answers the search for the sandbox called "work", and for all others that there are none.
func (f *fake) named() {
	f.mux.HandleFunc("GET /v1/sandboxes", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("state") != liveStates {
			f.t.Errorf("query %v (expected: those that have not ended)", q)
		} else if q.Get("name") == "work" {
			io.WriteString(w, `{"items":[{"sandbox_id":"sb-exec-1","name":"work"}],"next":null}`)
			return
		}
		io.WriteString(w, `{"items":[],"next":null}`)
	})
}

func TestSandboxIsFoundByItsNameInEveryCommand(t *testing.T) {
	f := newFake(t)
	f.named()
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1","pid":7}`)
	f.answer("GET "+at("/ps"), 200, `{"items":[],"next":null}`)
	f.answer("POST "+at("/ps/7:signal"), 200, "{}")
	f.answer("GET "+at("/files:stat"), 200, view("directory", 0))
	f.answer("GET "+at("/files:list"), 200, `{"items":[],"next":null}`)
	f.mux.HandleFunc("GET "+at("/files"), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Atoll-File", view("file", 0))
	})
	f.answer("PUT "+at("/files"), 200, "{}")
	f.answer("GET "+at("/processes/proc-1/output"), 200, "")
	f.answer("GET "+at("/ports"), 200, `{"items":[],"next":null}`)
	f.answer("DELETE "+at(""), 200, `{"sandbox_id":"sb-exec-1","state":"ended","end_reason":"deleted"}`)
	asked := f.took("POST /v1/code_exec", "event: done\ndata: {\"sandbox_id\":\"sb-exec-1\",\"exit_reason\":\"completed\"}\n\n")
	for _, arguments := range [][]string{{"exec", "1", "-s", "work"}, {"run", "-d", "-s", "work", "x"}, {"ps", "work"}, {"kill", "work", "7"}, {"ls", "work"}, {"ls", "work:/srv"}, {"cat", "work:f"}, {"cp", "-", "work:f"}, {"logs", "work", "proc-1"}, {"port", "work"}, {"rm", "work"}} {
		if status, _, stderr, err := cli(t, "", arguments...); err != nil || status != 0 {
			t.Errorf("%v: status %d, %q, %v", arguments, status, stderr, err)
		}
	}
	if (*asked)["sandbox_id"] != box {
		t.Errorf("code_exec in %v (expected: %s)", (*asked)["sandbox_id"], box)
	}
}

func TestNameThatNothingHasIsToldWithTheRemedy(t *testing.T) {
	f := newFake(t)
	f.named()
	f.answer("GET /v1/snapshots", 200, `{"items":[],"next":null}`)
	for _, arguments := range [][]string{{"exec", "1", "-s", "none"}, {"run", "-s", "none", "x"}, {"shell", "none"}, {"pause", "none"}, {"fork", "none"}, {"cat", "none:f"}, {"cp", "none:f", "f"}, {"snapshot", "rm", "none"}, {"rollback", "work", "none"}, {"create", "--snapshot", "none"}} {
		status, _, stderr, err := cli(t, "", arguments...)
		if told := fmt.Sprint(stderr, err); status == 0 || !strings.Contains(told, "is called 'none'") || !strings.Contains(told, "./atoll ") {
			t.Errorf("%v: status %d, %s", arguments, status, told)
		}
	}
}

func TestLsAsksForSandboxesThatHaveNotEndedUnlessToldOtherwise(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/sandboxes", 200, `{"items":[],"next":null}`)
	for _, c := range []struct{ typed, asked string }{
		{"ls", "state=creating%2Crunning%2Cpausing%2Cpaused%2Cresuming"},
		{"ls --all", ""},
		{"ls -a --label team=blue --label env=", "label.env=&label.team=blue"},
		{"ls --state paused --template python", "state=paused&template=python"},
	} {
		if status, _, _, err := cli(t, "", strings.Fields(c.typed)...); err != nil || status != 0 {
			t.Fatalf("%s: status %d, %v", c.typed, status, err)
		}
		calls := f.calls()
		if got := strings.TrimPrefix(strings.TrimPrefix(calls[len(calls)-1], "GET /v1/sandboxes"), "?"); got != c.asked {
			t.Errorf("%s asked %q (expected: %q)", c.typed, got, c.asked)
		}
	}
	for _, typed := range []string{"ls --all --state paused", "ls --tree " + box, "ls --label a=b " + box} {
		if status, _, _, err := cli(t, "", strings.Fields(typed)...); status == 0 || err == nil || !strings.Contains(err.Error(), "usage: atoll ls") {
			t.Errorf("%s: status %d, %v (expected: the usage)", typed, status, err)
		}
	}
}

func TestLsShowsNamesStatesAndTimesForPeople(t *testing.T) {
	f := newFake(t)
	ago := func(d time.Duration) string { return time.Now().Add(-d).Format(time.RFC3339Nano) }
	f.answer("GET /v1/sandboxes", 200, fmt.Sprintf(`{"items":[
		{"sandbox_id":"sb-exec-1","name":"work","template":"python","state":"paused","paused_at":%q,"created_at":%q,"expires_at":null,"labels":{"b":"2","a":"1\u001b[2J"}},
		{"sandbox_id":"sb-exec-2","name":null,"template":"python","state":"running","created_at":%q,"expires_at":%q,"labels":{}},
		{"sandbox_id":"sb-exec-3","template":"python","state":"ended","end_reason":"expired","created_at":%q,"expires_at":%q}],"next":null}`,
		ago(90*time.Minute+time.Second), ago(50*time.Hour), ago(30*time.Minute+30*time.Second), ago(-3*time.Hour-30*time.Minute), ago(100*time.Hour), ago(-time.Hour)))
	_, stdout, _, err := cli(t, "", "ls", "--all")
	want := [][]string{
		{"SANDBOX", "NAME", "TEMPLATE", "STATE", "AGE", "ENDS", "LABELS"},
		{"sb-exec-1", "work", "python", "paused", "(1h)", "2d", "-", "a=1\uFFFD[2J,b=2"},
		{"sb-exec-2", "-", "python", "running", "30m", "in", "3h", "-"},
		{"sb-exec-3", "-", "python", "ended", "(expired)", "4d", "-", "-"},
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if err != nil || len(lines) != len(want) {
		t.Fatalf("%q, %v", stdout, err)
	}
	for i, line := range lines {
		if got := strings.Fields(line); !slices.Equal(got, want[i]) {
			t.Errorf("line %d: %q (expected: %q)", i, got, want[i])
		}
		if at := strings.Index(lines[0], "STATE"); i > 0 && line[at-1] != ' ' {
			t.Errorf("columns do not line up: %q", line)
		}
	}
}

// family: 1 has the forks 2 and 4, 2 has 3; 6 is a fork of one that is not listed. The newest comes first, as the server sends it.
const family = `{"items":[
	{"sandbox_id":"sb-exec-6","state":"running","created_at":"2026-01-01T00:00:06Z","forked_from":{"sandbox_id":"sb-exec-0","snapshot_id":"snap-1"}},
	{"sandbox_id":"sb-exec-5","state":"paused","created_at":"2026-01-01T00:00:05Z","forked_from":null},
	{"sandbox_id":"sb-exec-4","state":"running","created_at":"2026-01-01T00:00:04Z","forked_from":{"sandbox_id":"sb-exec-1","snapshot_id":null}},
	{"sandbox_id":"sb-exec-3","state":"running","created_at":"2026-01-01T00:00:03Z","forked_from":{"sandbox_id":"sb-exec-2","snapshot_id":null}},
	{"sandbox_id":"sb-exec-2","state":"running","created_at":"2026-01-01T00:00:02Z","forked_from":{"sandbox_id":"sb-exec-1","snapshot_id":null}},
	{"sandbox_id":"sb-exec-1","state":"ended","end_reason":"deleted","created_at":"2026-01-01T00:00:01Z","forked_from":null}],"next":null}`

func TestTreeShowsEachForkBelowItsSource(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/sandboxes", 200, family)
	_, stdout, _, err := cli(t, "", "ls", "--all", "--tree")
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n")[1:] {
		got = append(got, strings.SplitAfter(line, "sb-exec-")[0]+strings.SplitAfter(line, "sb-exec-")[1][:1])
	}
	want := []string{"sb-exec-1", "|-- sb-exec-2", "|   `-- sb-exec-3", "`-- sb-exec-4", "sb-exec-5", "sb-exec-6"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v (expected: %q)", got, err, want)
	}
	_, stdout, _, err = cli(t, "", "ls", "--all", "--tree", "--json")
	var roots []string
	for line := range strings.Lines(stdout) {
		var root struct {
			ID    string `json:"sandbox_id"`
			From  any    `json:"forked_from"`
			Forks []struct {
				ID    string `json:"sandbox_id"`
				Forks []any
			}
		}
		if err := json.Unmarshal([]byte(line), &root); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		roots = append(roots, fmt.Sprint(root.ID, " ", len(root.Forks)))
		if len(root.Forks) == 2 && (root.Forks[0].ID != "sb-exec-2" || len(root.Forks[0].Forks) != 1) {
			t.Errorf("forks of %s: %v", root.ID, root.Forks)
		}
	}
	if want := []string{"sb-exec-1 2", "sb-exec-5 0", "sb-exec-6 0"}; err != nil || !slices.Equal(roots, want) {
		t.Errorf("%q, %v (expected: %q)", roots, err, want)
	}
}

func TestPauseAndResumeTellOfEachSandboxWhatBecameOfIt(t *testing.T) {
	f := newFake(t)
	kept := f.took("POST "+at(":pause"), `{"sandbox_id":"sb-exec-1","state":"paused"}`)
	f.answer("POST /v1/sandboxes/sb-exec-2:pause", 410, `{"error":{"code":"sandbox_ended","message":"it ended","remediation":"make another"}}`)
	status, stdout, stderr, err := cli(t, "", "pause", "sb-exec-2", box)
	if err != nil || status != 1 || stdout != "sb-exec-1  paused\n" || stderr != "atoll: sb-exec-2: it ended (remedy: make another)\n" {
		t.Errorf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
	if status, _, _, err := cli(t, "", "pause", box, "--keep", "files"); err != nil || status != 0 || !maps.Equal(*kept, map[string]any{"keep": "files"}) {
		t.Errorf("status %d, asked %v, %v (expected: to keep its files)", status, *kept, err)
	}
	asked := f.took("POST "+at(":resume"), `{"sandbox_id":"sb-exec-1","state":"running"}`)
	for typed, want := range map[string]map[string]any{"15m": {"lifetime_seconds": 900.0}, "none": {"lifetime_seconds": nil}} {
		clear(*asked)
		if status, stdout, _, err := cli(t, "", "resume", box, "--lifetime", typed); err != nil || status != 0 || stdout != "sb-exec-1  running\n" || !maps.Equal(*asked, want) {
			t.Errorf("status %d, %q, asked %v, %v (expected: %v)", status, stdout, *asked, err, want)
		}
	}
	if _, stdout, _, err := cli(t, "", "pause", "--json", box); err != nil || stdout != `{"sandbox_id":"sb-exec-1","state":"paused"}`+"\n" {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestForkPrintsTheIdsOfTheForks(t *testing.T) {
	f := newFake(t)
	var keys []string
	var asked map[string]any
	f.mux.HandleFunc("POST "+at(":fork"), func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		asked = nil
		json.NewDecoder(r.Body).Decode(&asked)
		w.WriteHeader(201)
		io.WriteString(w, `{"items":[{"sandbox_id":"sb-exec-2"},{"sandbox_id":"sb-exec-3"}]}`)
	})
	status, stdout, _, err := cli(t, "", "fork", box, "-n", "2", "--env", "A=1", "-e", "B=2", "--label", "try=x", "--lifetime", "2h")
	want := "map[count:2 env:map[A:1 B:2] labels:map[try:x] lifetime_seconds:7200]"
	if err != nil || status != 0 || stdout != "sb-exec-2\nsb-exec-3\n" || fmt.Sprint(asked) != want {
		t.Errorf("status %d, %q, asked %v, %v (expected: %s)", status, stdout, asked, err, want)
	}
	if _, stdout, _, _ = cli(t, "", "fork", box, "--json"); stdout != "{\"sandbox_id\":\"sb-exec-2\"}\n{\"sandbox_id\":\"sb-exec-3\"}\n" || asked["count"] != 1.0 {
		t.Errorf("%q, asked %v", stdout, asked)
	}
	if keys[0] == "" || keys[0] == keys[1] {
		t.Errorf("idempotency keys %q (expected: two)", keys)
	}
	for _, typed := range []string{"fork", "fork -n 0 " + box, "fork -n 2 --name x " + box, "fork --lifetime soon " + box} {
		if status, _, _, err := cli(t, "", strings.Fields(typed)...); status != 2 || err == nil || !strings.Contains(err.Error(), "usage: atoll fork") {
			t.Errorf("%s: status %d, %v (expected: the usage)", typed, status, err)
		}
	}
}

func TestCreateSaysWhatTheSandboxIsToBe(t *testing.T) {
	f := newFake(t)
	asked := f.took("POST /v1/sandboxes", `{"sandbox_id":"sb-exec-1"}`)
	f.answer("GET /v1/snapshots", 200, `{"items":[{"snapshot_id":"snap-1"}],"next":null}`)
	status, stdout, _, err := cli(t, "", "create", "--template", "python", "--name", "work", "--get", "--idle", "none", "--on-timeout", "kill", "--no-auto-resume", "--lifetime", "90")
	want := map[string]any{"template": "python", "name": "work", "if_exists": "get", "idle_timeout_seconds": 0.0, "on_timeout": "kill", "auto_resume": false, "lifetime_seconds": 90.0}
	if err != nil || status != 0 || stdout != "sb-exec-1\n" || !maps.Equal(*asked, want) {
		t.Errorf("status %d, %q, asked %v, %v (expected: %v)", status, stdout, *asked, err, want)
	}
	clear(*asked)
	if _, _, _, err := cli(t, "", "create", "--snapshot", "base"); err != nil || !maps.Equal(*asked, map[string]any{"snapshot": "snap-1"}) {
		t.Errorf("asked %v, %v", *asked, err)
	}
	for _, typed := range []string{"create x", "create --get", "create --template a --snapshot snap-1"} {
		if status, _, _, err := cli(t, "", strings.Fields(typed)...); status != 2 || err == nil || !strings.Contains(err.Error(), "usage: atoll create") {
			t.Errorf("%s: status %d, %v (expected: the usage)", typed, status, err)
		}
	}
}

func TestExtendTellsWhenTheSandboxEnds(t *testing.T) {
	f := newFake(t)
	end := "2026-01-02T03:04:05Z"
	f.mux.HandleFunc("POST "+at(":extend"), func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		json.NewDecoder(r.Body).Decode(&asked)
		if seconds, there := asked["seconds"]; !there {
			t.Error("no seconds")
		} else if seconds == nil {
			io.WriteString(w, `{"sandbox_id":"sb-exec-1","expires_at":null}`)
		} else if seconds == 172800.0 {
			fmt.Fprintf(w, `{"sandbox_id":"sb-exec-1","expires_at":%q}`, end)
		}
	})
	at, _ := time.Parse(time.RFC3339, end)
	for typed, want := range map[string]string{"2d": "sb-exec-1  until " + clock(at) + "\n", "none": "sb-exec-1  does not end by itself\n"} {
		if status, stdout, _, err := cli(t, "", "extend", box, typed); err != nil || status != 0 || stdout != want {
			t.Errorf("%s: status %d, %q, %v (expected: %q)", typed, status, stdout, err, want)
		}
	}
	if status, _, _, err := cli(t, "", "extend", box, "-5"); status != 2 || err == nil {
		t.Errorf("status %d, %v", status, err)
	}
}

func TestRollbackTakesTheSnapshotByName(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("GET /v1/snapshots", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("name") == "twice" {
			io.WriteString(w, `{"items":[{"snapshot_id":"snap-1","state":"lost"},{"snapshot_id":"snap-2","state":"lost"}],"next":null}`)
			return
		}
		io.WriteString(w, `{"items":[{"snapshot_id":"snap-0","state":"lost"},{"snapshot_id":"snap-1","state":"ready"}],"next":null}`)
	})
	asked := f.took("POST "+at(":rollback"), `{"sandbox_id":"sb-exec-1","state":"running"}`)
	status, stdout, _, err := cli(t, "", "rollback", box, "before")
	if err != nil || status != 0 || stdout != "sb-exec-1  running\n" || (*asked)["snapshot_id"] != "snap-1" {
		t.Errorf("status %d, %q, asked %v, %v", status, stdout, *asked, err)
	}
	if status, _, _, err := cli(t, "", "rollback", box, "twice"); status != 2 || err == nil || !strings.Contains(err.Error(), "snap-1, snap-2") {
		t.Errorf("status %d, %v (expected: both ids)", status, err)
	}
}

func TestSnapshotsAreMadeListedAndRemoved(t *testing.T) {
	f := newFake(t)
	asked := f.took("POST "+at("/snapshots"), `{"snapshot_id":"snap-1","kind":"memory","size_bytes":1572864,"stopped_ms":41.6}`)
	status, stdout, stderr, err := cli(t, "", "snapshot", "create", box, "--name", "base", "--kind", "memory", "--expires", "1d", "--label", "a=b")
	want := "map[expires_in_seconds:86400 kind:memory labels:map[a:b] name:base]"
	if err != nil || status != 0 || stdout != "snap-1\n" || stderr != "memory snapshot, 1.5M; the sandbox stood still for 42 ms\n" || fmt.Sprint(*asked) != want {
		t.Errorf("status %d, %q, %q, asked %v, %v (expected: %s)", status, stdout, stderr, *asked, err, want)
	}
	f.answer("GET /v1/snapshots", 200, `{"items":[{"snapshot_id":"snap-1","name":"base","kind":"memory","state":"ready","size_bytes":1572864,"created_at":"2026-01-02T03:04:05Z","sandbox_id":"sb-exec-1","labels":{}}],"next":null}`)
	if _, stdout, _, err = cli(t, "", "snapshot", "ls", box, "--kind", "memory", "--label", "a=b"); err != nil || !strings.Contains(stdout, "snap-1    base  memory  ready  1.5M") {
		t.Errorf("%q, %v", stdout, err)
	}
	if calls := f.calls(); calls[len(calls)-1] != "GET /v1/snapshots?kind=memory&label.a=b&sandbox_id=sb-exec-1" {
		t.Errorf("asked %s", calls[len(calls)-1])
	}
	f.answer("DELETE /v1/snapshots/snap-1", 204, "")
	f.answer("DELETE /v1/snapshots/snap-2", 404, `{"error":{"code":"snapshot_not_found","message":"no snapshot snap-2"}}`)
	status, stdout, stderr, err = cli(t, "", "snapshot", "rm", "snap-2", "base")
	if err != nil || status != 1 || stdout != "snap-1  removed\n" || stderr != "atoll: snap-2: no snapshot snap-2\n" {
		t.Errorf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
}

func TestExportedSnapshotIsThereInWholeOrNotAtAllAndGoesInAgain(t *testing.T) {
	f := newFake(t)
	whole := strings.Repeat("snapshot", 100_000)
	breaks := false
	f.mux.HandleFunc("GET /v1/snapshots/snap-1/file", func(w http.ResponseWriter, r *http.Request) {
		if breaks {
			io.WriteString(w, whole[:300_000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, whole)
	})
	folder := t.TempDir()
	status, stdout, _, err := cli(t, "", "snapshot", "export", "snap-1", folder)
	file := filepath.Join(folder, "snap-1.atoll-snapshot")
	if data, _ := os.ReadFile(file); err != nil || status != 0 || string(data) != whole || stdout != file+"  781.2K\n" {
		t.Fatalf("status %d, %q, %d bytes, %v", status, stdout, len(data), err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (expected: for its owner only)", info.Mode())
	}
	if _, stdout, stderr, err := cli(t, "", "snapshot", "export", "snap-1", "-", "--json"); err != nil || stdout != whole || !strings.Contains(stderr, `"bytes":800000`) {
		t.Errorf("%d bytes, %q, %v", len(stdout), stderr, err)
	}
	breaks = true
	other := t.TempDir()
	if status, _, _, err := cli(t, "", "snapshot", "export", "snap-1", filepath.Join(other, "copy")); status != 2 || err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("status %d, %v (expected: broke off)", status, err)
	}
	if left, _ := os.ReadDir(other); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	var got []string
	f.mux.HandleFunc("POST /v1/snapshots/file", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprint(string(data) == whole, " ", r.ContentLength, " ", r.URL.RawQuery))
		w.WriteHeader(201)
		io.WriteString(w, `{"snapshot_id":"snap-2","kind":"files","size_bytes":800000,"stopped_ms":0}`)
	})
	for _, arguments := range [][]string{{"snapshot", "import", file, "--name", "copy"}, {"snapshot", "import", "-"}} {
		if status, stdout, _, err := cli(t, whole, arguments...); err != nil || status != 0 || stdout != "snap-2\n" {
			t.Errorf("status %d, %q, %v", status, stdout, err)
		}
	}
	if want := []string{"true 800000 name=copy", "true -1 "}; !slices.Equal(got, want) {
		t.Errorf("%q (expected: %q)", got, want)
	}
}

func TestRefusedImportTellsWhy(t *testing.T) {
	f := newFake(t)
	f.answer("POST /v1/snapshots/file", 409, `{"error":{"code":"snapshot_unusable","message":"its signature is of no known installation"}}`)
	if status, _, _, err := cli(t, "x", "snapshot", "import", "-"); status != 2 || err == nil || err.Error() != "its signature is of no known installation" {
		t.Errorf("status %d, %v", status, err)
	}
}

func TestRunsAndPoolsAreTables(t *testing.T) {
	f := newFake(t)
	f.answer("GET "+at("/runs"), 200, `{"items":[{"run_id":"run-1","how":"start","started_at":"2026-01-01T00:00:00Z","ended_at":"2026-01-01T00:05:30Z","end_reason":"paused"},{"run_id":"run-2","how":"resume","started_at":"2026-01-01T00:00:00Z","snapshot_in":"snap-1"}],"next":null}`)
	_, stdout, _, err := cli(t, "", "runs", box)
	lines := strings.Split(stdout, "\n")
	if err != nil || len(lines) != 4 {
		t.Fatalf("%q, %v", stdout, err)
	}
	if first, second := strings.Fields(lines[1]), strings.Fields(lines[2]); !slices.Equal(first[4:], []string{"5m", "paused", "-"}) || !slices.Equal(second[5:], []string{"-", "snap-1"}) {
		t.Errorf("%q", stdout)
	}
	f.answer("GET /v1/pools", 200, `{"items":[{"template":"python","depth":4,"ready":3,"starting":1,"prepared":2,"golden":{"snapshot_id":"snap-1","size_bytes":52428800},"hits":10,"misses":{"empty":2,"limits":3},"memory_bytes":104857600,"last_failure":null}]}`)
	_, stdout, _, err = cli(t, "", "pool")
	if want := []string{"python", "3/4", "1", "2", "100.0M", "50.0M", "10", "5", "-"}; err != nil || !slices.Equal(strings.Fields(strings.Split(stdout, "\n")[1]), want) {
		t.Errorf("%q, %v (expected: %q)", stdout, err, want)
	}
}

func TestHelpOfGroupsAndOfTheirCommands(t *testing.T) {
	t.Setenv("ATOLL_URL", "")
	t.Setenv("ATOLL_DATA_DIR", t.TempDir())
	for _, c := range []struct {
		typed, want string
		status      int
	}{
		{"snapshot --help", "snapshot export SNAPSHOT", 0},
		{"snapshot create --help", "usage: atoll snapshot create SANDBOX", 0},
		{"snapshot", "usage: atoll snapshot COMMAND", 2},
		{"snapshot nonsense", "atoll snapshot --help", 2},
		{"fork --help", "usage: atoll fork SANDBOX", 0},
	} {
		status, stdout, stderr, err := cli(t, "", strings.Fields(c.typed)...)
		if told := fmt.Sprint(stdout, stderr, err); status != c.status || !strings.Contains(told, c.want) {
			t.Errorf("%s: status %d, %s (expected: %d, %s)", c.typed, status, told, c.status, c.want)
		}
	}
	if _, stdout, _, _ := cli(t, "", "snapshot", "--help"); strings.Contains(stdout, "\n  fork") {
		t.Errorf("help of snapshot lists all: %s", stdout)
	}
}

func TestTimesAreReadAsPeopleWriteThem(t *testing.T) {
	for typed, want := range map[string]float64{"90": 90, "1.5": 1.5, "90s": 90, "15m": 900, "2h": 7200, "7d": 604800} {
		var s span
		if err := s.Set(typed); err != nil || s.seconds == nil || *s.seconds != want {
			t.Errorf("%s: %v, %v (expected: %g)", typed, s.seconds, err, want)
		}
	}
	for _, typed := range []string{"", "0", "-1", "m", "1w", "nan", "inf", "1e999", "soon"} {
		if err := new(span).Set(typed); err == nil {
			t.Errorf("'%s' is taken", typed)
		}
	}
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 59 * time.Second: "59s", 61 * time.Minute: "1h", 47 * time.Hour: "47h", 50 * time.Hour: "2d"} {
		if got := age(d); got != want {
			t.Errorf("%v: %s (expected: %s)", d, got, want)
		}
	}
}

func TestPausingManyEndsWithTheCommand(t *testing.T) {
	f := newFake(t)
	ctx, stop := context.WithCancel(context.Background())
	f.mux.HandleFunc("POST "+at(":pause"), func(w http.ResponseWriter, r *http.Request) {
		// Else the server would not see that the client goes away.
		io.Copy(io.Discard, r.Body)
		// As Ctrl-C does.
		stop()
		<-r.Context().Done()
	})
	if _, err := run(ctx, []string{"pause", box, "sb-exec-2"}, terminal{strings.NewReader(""), io.Discard, io.Discard}); err == nil {
		t.Error("no error")
	}
	if calls := f.calls(); len(calls) != 1 {
		t.Errorf("calls %q (expected: none after the end)", calls)
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

// fake is a server of the routes that a test gives, in the mux's own form.
type fake struct {
	t   *testing.T
	mux *http.ServeMux
	mu  sync.Mutex
	// asked are method and URI of the calls so far. Protected by mu.
	asked []string
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, mux: http.NewServeMux()}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
		f.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer the-key" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		f.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	t.Setenv("ATOLL_URL", s.URL)
	t.Setenv("ATOLL_API_KEY", "the-key")
	return f
}

func (f *fake) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) answer(pattern string, status int, body string) {
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

// took answers a call whose JSON body is kept.
func (f *fake) took(pattern, body string) *map[string]any {
	kept := map[string]any{}
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if len(text) > 0 {
			if err := json.Unmarshal(text, &kept); err != nil {
				f.t.Errorf("%s: %v", pattern, err)
			}
		}
		io.WriteString(w, body)
	})
	return &kept
}

func cli(t *testing.T, stdin string, arguments ...string) (status int, stdout, stderr string, err error) {
	t.Helper()
	var out, problems bytes.Buffer
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	status, err = run(ctx, arguments, terminal{strings.NewReader(stdin), &out, &problems})
	return status, out.String(), problems.String(), err
}

const box, proc = "sb-exec-1", "proc-1"

func at(rest string) string { return "/v1/sandboxes/" + box + rest }

func exited(code int) string {
	return fmt.Sprintf("event: exited\ndata: {\"process_id\":%q,\"state\":\"ended\",\"exit_reason\":\"exited\",\"exit_code\":%d}\n\n", proc, code)
}

func output(id int, stream, text string, offset int) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: {\"text\":%q,\"offset\":%d}\n\n", id, stream, text, offset)
}

func TestRunPassesOutputAndExitCodeOn(t *testing.T) {
	f := newFake(t)
	asked := f.took("POST "+at("/processes"), `{"process_id":"proc-1","pid":7}`)
	f.answer("GET "+at("/processes/proc-1/events"), 200, "event: started\ndata: {}\n\n"+output(1, "stdout", "out\n", 0)+output(2, "stderr", "err\n", 0)+
		"id: 3\nevent: stdout\ndata: {\"base64\":\"/wA=\",\"offset\":4}\n\n"+exited(42))
	status, stdout, stderr, err := cli(t, "", "run", "-s", box, "--cwd", "/srv", "-e", "A=1=2", "--user", "root", "--timeout", "5", "ls", "-l", "--all")
	if err != nil || status != 42 || stdout != "out\n\xff\x00" || stderr != "err\n" {
		t.Fatalf("status %d, stdout %q, stderr %q, %v (expected: 42)", status, stdout, stderr, err)
	}
	want := map[string]any{"argv": []any{"ls", "-l", "--all"}, "cwd": "/srv", "env": map[string]any{"A": "1=2"}, "user": "root", "timeout_seconds": 5.0, "stdin": false}
	if got, wanted := fmt.Sprint(*asked), fmt.Sprint(want); got != wanted {
		t.Errorf("asked %s (expected: %s)", got, wanted)
	}
}

func TestRunGoesOnAtTheByteItHadReachedWhenTheServerComesBack(t *testing.T) {
	f := newFake(t)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1"}`)
	var tries atomic.Int32
	f.mux.HandleFunc("GET "+at("/processes/proc-1/events"), func(w http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			io.WriteString(w, output(1, "stdout", "one ", 0)+output(2, "stdout", "two ", 4))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			if got := r.Header.Get("Last-Event-ID"); got != "2" {
				t.Errorf("Last-Event-ID %q (expected: 2)", got)
			}
			// A server that begins earlier than it was asked to.
			io.WriteString(w, output(2, "stdout", "two three", 4)+exited(0))
		}
	})
	status, stdout, _, err := cli(t, "", "run", "-s", box, "--", "x")
	if err != nil || status != 0 || stdout != "one two three" {
		t.Errorf("status %d, stdout %q, %v (expected: 0, one two three)", status, stdout, err)
	}
}

func TestRunTellsWhatIsMissing(t *testing.T) {
	f := newFake(t)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1"}`)
	f.answer("GET "+at("/processes/proc-1/events"), 200, output(1, "stdout", "a", 0)+output(2, "stdout", "z", 11)+
		"event: exited\ndata: {\"exit_reason\":\"out_of_memory\",\"exit_code\":137,\"detail\":\"300 MB\"}\n\n")
	status, stdout, stderr, err := cli(t, "", "run", "-s", box, "x")
	if err != nil || status != 137 || stdout != "az" || stderr != "[10 bytes of stdout left out]\nended: out_of_memory, 300 MB\n" {
		t.Errorf("status %d, stdout %q, stderr %q, %v", status, stdout, stderr, err)
	}
}

func TestProgramThatIsNotThereGivesTheShellsStatus(t *testing.T) {
	f := newFake(t)
	f.answer("POST "+at("/processes"), 404, `{"error":{"code":"program_not_found","message":"no program x"}}`)
	if status, _, _, err := cli(t, "", "run", "-s", box, "x"); status != 127 || err == nil {
		t.Errorf("status %d, %v (expected: 127)", status, err)
	}
}

func TestRunMakesASandboxAndEndsItWithTheProgram(t *testing.T) {
	f := newFake(t)
	asked := f.took("POST /v1/sandboxes", `{"sandbox_id":"sb-exec-1"}`)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1"}`)
	f.answer("GET "+at("/processes/proc-1/events"), 200, exited(0))
	f.answer("DELETE "+at(""), 200, "{}")
	if status, _, _, err := cli(t, "", "run", "--template", "python", "x"); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	if (*asked)["template"] != "python" || !slices.Contains(f.calls(), "DELETE "+at("")) {
		t.Errorf("asked %v, calls %v (expected: the template, and a DELETE)", *asked, f.calls())
	}
	if _, _, stderr, _ := cli(t, "", "run", "--keep", "x"); stderr != "sandbox: sb-exec-1\n" {
		t.Errorf("stderr %q (expected: the sandbox)", stderr)
	}
}

func TestDetachedRunNamesTheProcessAndKeepsTheSandbox(t *testing.T) {
	f := newFake(t)
	f.answer("POST /v1/sandboxes", 201, `{"sandbox_id":"sb-exec-1"}`)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1","pid":7}`)
	status, stdout, stderr, err := cli(t, "", "run", "-d", "x")
	if err != nil || status != 0 || stdout != "proc-1\n" || stderr != "sandbox: sb-exec-1\n" {
		t.Errorf("status %d, stdout %q, stderr %q, %v", status, stdout, stderr, err)
	}
	if _, stdout, _, _ = cli(t, "", "run", "-d", "--json", "x"); stdout != `{"pid":7,"process_id":"proc-1","sandbox_id":"sb-exec-1"}`+"\n" {
		t.Errorf("stdout %q", stdout)
	}
}

func TestInputIsSentWithItsPlaceAgainAfterABreakAndThenClosed(t *testing.T) {
	f := newFake(t)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1"}`)
	closed := make(chan struct{})
	var mu sync.Mutex
	var input []byte
	var tries int
	f.mux.HandleFunc("POST "+at("/processes/proc-1/stdin"), func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if offset > len(input) {
			t.Errorf("offset %d of %d", offset, len(input))
		}
		if fresh := len(input) - offset; fresh < len(data) {
			// Takes three bytes at most at a time.
			data = data[fresh:]
			input = append(input, data[:min(3, len(data))]...)
		}
		if tries++; tries == 1 {
			// Taken, but the answer is lost.
			panic(http.ErrAbortHandler)
		}
		end := r.URL.Query().Get("close") == "true"
		fmt.Fprintf(w, `{"offset":%d,"closed":%t}`, len(input), end)
		if end {
			close(closed)
		}
	})
	f.mux.HandleFunc("GET "+at("/processes/proc-1/events"), func(w http.ResponseWriter, r *http.Request) {
		<-closed
		io.WriteString(w, exited(0))
	})
	if status, _, stderr, err := cli(t, "hello world", "run", "-i", "-s", box, "cat"); err != nil || status != 0 || stderr != "" {
		t.Fatalf("status %d, stderr %q, %v", status, stderr, err)
	}
	if string(input) != "hello world" {
		t.Errorf("input %q (expected: hello world)", input)
	}
}

func TestInterruptIsForwardedToTheProgram(t *testing.T) {
	f := newFake(t)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1"}`)
	signalled := make(chan map[string]any, 1)
	f.mux.HandleFunc("POST "+at("/processes/proc-1:signal"), func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		json.NewDecoder(r.Body).Decode(&body)
		io.WriteString(w, "{}")
		signalled <- body
	})
	f.mux.HandleFunc("GET "+at("/processes/proc-1/events"), func(w http.ResponseWriter, r *http.Request) {
		unix.Kill(os.Getpid(), unix.SIGINT)
		if body := <-signalled; body["signal"] != "INT" || body["target"] != "group" {
			t.Errorf("signal %v", body)
		}
		io.WriteString(w, "event: exited\ndata: {\"exit_reason\":\"signaled\",\"exit_code\":130}\n\n")
	})
	if status, _, _, err := cli(t, "", "run", "-s", box, "x"); err != nil || status != 130 {
		t.Errorf("status %d, %v (expected: 130)", status, err)
	}
}

func TestJSONOfRunIsOneObjectForEachEvent(t *testing.T) {
	f := newFake(t)
	f.answer("POST "+at("/processes"), 201, `{"process_id":"proc-1","pid":7}`)
	f.answer("GET "+at("/processes/proc-1/events"), 200, output(1, "stdout", "hi\n", 0)+exited(3))
	status, stdout, _, err := cli(t, "", "run", "--json", "-s", box, "x")
	var events []string
	for line := range strings.Lines(stdout) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		events = append(events, fmt.Sprint(one["event"], " ", one["text"], " ", one["exit_code"]))
	}
	want := []string{"started <nil> <nil>", "stdout hi\n <nil>", "exited <nil> 3"}
	if err != nil || status != 3 || !slices.Equal(events, want) {
		t.Errorf("status %d, events %q, %v (expected: 3, %q)", status, events, err, want)
	}
}

func TestErrorsOfUseNameTheUsage(t *testing.T) {
	newFake(t)
	for _, arguments := range [][]string{{"run"}, {"run", "-t", "--json", "x"}, {"run", "--nonsense", "x"}, {"run", "-e", "novalue", "x"}, {"kill", "a"}, {"cp", "a", "b"}, {"cp", "a"}, {"cat", "a"}, {"logs", "a"}, {"port"}, {"port", "a", "x"}, {"shell", "a", "b"}, {"shell", "--attach", "p"}, {"ls", "a", "b"}, {"ps", "a", "b"}} {
		if arguments[0] == "port" && len(arguments) == 3 {
			continue
		}
		status, _, _, err := cli(t, "", arguments...)
		if status == 0 || err == nil || !strings.Contains(err.Error(), "usage: atoll "+arguments[0]) {
			t.Errorf("%v: status %d, %v (expected: the usage)", arguments, status, err)
		}
	}
	if status, _, _, err := cli(t, "", "nonsense"); status != 2 || err == nil || !strings.Contains(err.Error(), "atoll help") {
		t.Errorf("status %d, %v", status, err)
	}
	if _, stdout, _, _ := cli(t, "", "help"); !strings.Contains(stdout, "port SANDBOX") {
		t.Errorf("help: %q", stdout)
	}
}

func TestServerThatDoesNotRunIsToldAtOnceWithTheRemedy(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ATOLL_URL", "http://"+listener.Addr().String())
	t.Setenv("ATOLL_API_KEY", "k")
	listener.Close()
	for _, arguments := range [][]string{{"run", "x"}, {"shell", box}, {"ls"}, {"ps"}, {"logs", "-f", box, proc}, {"cat", box + ":f"}, {"port", box, "0:80"}} {
		status, _, stderr, err := cli(t, "", arguments...)
		if told := fmt.Sprint(stderr, err); status == 0 || !strings.Contains(told, "./atoll up") {
			t.Errorf("%v: status %d, %s (expected: the remedy)", arguments, status, told)
		}
	}
}

func TestPsShowsWhatRunsWithoutTheTerminalCommandsInIt(t *testing.T) {
	f := newFake(t)
	f.answer("GET "+at("/ps"), 200, `{"items":[{"pid":7,"parent_pid":1,"user":"user","state":"S","cpu_ms":1500,"memory_bytes":1572864,"argv":["sh","-c","\u001b[2J"],"process_id":"proc-1"}],"next":null}`)
	_, stdout, _, err := cli(t, "", "ps", box)
	if err != nil || !strings.Contains(stdout, "1.50") || !strings.Contains(stdout, "1.5M") || !strings.Contains(stdout, "proc-1") || strings.Contains(stdout, "\x1b") {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestPsOfAllSandboxesGoesThroughEveryPageAndSkipsTheOneThatEnded(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("GET /v1/sandboxes", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "" {
			io.WriteString(w, `{"items":[{"sandbox_id":"sb-exec-0"}],"next":"more"}`)
			return
		}
		io.WriteString(w, `{"items":[{"sandbox_id":"sb-exec-1"}],"next":null}`)
	})
	f.answer("GET /v1/sandboxes/sb-exec-0/ps", 410, `{"error":{"code":"sandbox_ended","message":"gone"}}`)
	f.answer("GET "+at("/ps"), 200, `{"items":[{"pid":7}],"next":null}`)
	status, stdout, _, err := cli(t, "", "ps", "--json")
	if err != nil || status != 0 || stdout != `{"pid":7,"sandbox_id":"sb-exec-1"}`+"\n" {
		t.Errorf("status %d, %q, %v", status, stdout, err)
	}
}

func TestKillReachesOwnProcessesById_AndAllByPid(t *testing.T) {
	f := newFake(t)
	byID := f.took("POST "+at("/processes/proc-1:signal"), "{}")
	byPid := f.took("POST "+at("/ps/7:signal"), "{}")
	f.answer("POST "+at("/ps/8:signal"), 404, `{"error":{"code":"process_not_found","message":"no process 8"}}`)
	if status, _, _, err := cli(t, "", "kill", box, "proc-1", "--tree"); err != nil || status != 0 || !maps.Equal(*byID, map[string]any{"signal": "TERM", "target": "tree"}) {
		t.Errorf("%v, %v", *byID, err)
	}
	status, _, stderr, err := cli(t, "", "kill", "-s", "sigkill", box, "7", "8")
	if err != nil || status != 1 || (*byPid)["signal"] != "KILL" || !strings.Contains(stderr, "no process 8") {
		t.Errorf("status %d, %v, %q, %v", status, *byPid, stderr, err)
	}
}

func TestLogsGoOnWhereTheConnectionBroke(t *testing.T) {
	f := newFake(t)
	whole := strings.Repeat("grüße 👩‍🚀 ", 1000)
	f.mux.HandleFunc("GET "+at("/processes/proc-1/output"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") != "true" {
			t.Errorf("query %s", r.URL.RawQuery)
		}
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if end := offset + 4097; end < len(whole) {
			io.WriteString(w, whole[offset:end])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Trailer", "X-Atoll-Gap-Bytes")
		io.WriteString(w, whole[offset:])
		w.Header().Set("X-Atoll-Gap-Bytes", "5")
	})
	status, stdout, stderr, err := cli(t, "", "logs", "-f", box, proc)
	if err != nil || status != 0 || stdout != whole || stderr != "[5 bytes left out]\n" {
		t.Errorf("status %d, %d bytes, stderr %q, %v (expected: %d bytes)", status, len(stdout), stderr, err, len(whole))
	}
}

func TestLogsOfAnExecutionAsJSONKeepCharactersWhole(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("GET /v1/executions/exec-1/output", func(w http.ResponseWriter, r *http.Request) {
		for _, one := range []byte("a👩é") {
			w.Write([]byte{one})
			w.(http.Flusher).Flush()
		}
	})
	_, stdout, _, err := cli(t, "", "logs", "--json", box, "exec-1")
	var text string
	for line := range strings.Lines(stdout) {
		var one struct {
			Text   string
			Offset int
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Offset != len(text) {
			t.Fatalf("%q after %d: %v", line, len(text), err)
		}
		text += one.Text
	}
	if err != nil || text != "a👩é" {
		t.Errorf("%q, %v", text, err)
	}
}

// view is a file's, as the API sends it.
func view(kind string, size int) string {
	return fmt.Sprintf(`{"path":"/home/user/f","name":"f","type":%q,"size":%d,"mode":"0640","owner":"user","group":"user","modified_at":"2026-01-02T03:04:05Z","inode":9}`, kind, size)
}

func TestDownloadGoesOnWhereItBrokeAndIsThereInWholeOrNotAtAll(t *testing.T) {
	f := newFake(t)
	whole := make([]byte, 300_000)
	for i := range whole {
		whole[i] = byte(i * 7)
	}
	f.answer("GET "+at("/files:stat"), 200, view("file", len(whole)))
	changed := false
	f.mux.HandleFunc("GET "+at("/files"), func(w http.ResponseWriter, r *http.Request) {
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		w.Header().Set("X-Atoll-File", view("file", len(whole)))
		if offset > 0 && changed {
			w.Header().Set("X-Atoll-File", view("file", 1))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(whole)-offset))
		w.Write(whole[offset:min(offset+100_000, len(whole))])
	})
	target := filepath.Join(t.TempDir(), "copy")
	status, stdout, _, err := cli(t, "", "cp", "--json", box+":f", target)
	if err != nil || status != 0 || !strings.Contains(stdout, `"bytes":300000`) {
		t.Fatalf("status %d, %q, %v", status, stdout, err)
	}
	if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d bytes, %v (expected: all %d)", len(got), err, len(whole))
	}
	if info, _ := os.Stat(target); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v (expected: 0640)", info.Mode())
	}
	changed = true
	other := t.TempDir()
	if _, _, _, err := cli(t, "", "cp", box+":f", filepath.Join(other, "copy")); err == nil || !strings.Contains(err.Error(), "changed while") {
		t.Errorf("%v (expected: changed while)", err)
	}
	if left, _ := os.ReadDir(other); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestUploadGoesIntoTheFolderThatIsThere(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("GET "+at("/files:stat"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("path") == "/srv" {
			io.WriteString(w, view("directory", 0))
			return
		}
		w.WriteHeader(404)
		io.WriteString(w, `{"error":{"code":"file_not_found","message":"no such file"}}`)
	})
	got := map[string]string{}
	f.mux.HandleFunc("PUT "+at("/files"), func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		got[r.URL.Query().Get("path")+" "+r.URL.Query().Get("mode")] = fmt.Sprint(string(data), " ", r.ContentLength)
		io.WriteString(w, "{}")
	})
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"/srv", "/new"} {
		if status, _, _, err := cli(t, "", "cp", file, box+":"+to); err != nil || status != 0 {
			t.Fatalf("status %d, %v", status, err)
		}
	}
	if _, _, _, err := cli(t, "from stdin", "cp", "-", box+":in"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/srv/a.txt 0600": "text 4", "/new 0600": "text 4", "in ": "from stdin -1"}
	if !maps.Equal(got, want) {
		t.Errorf("%v (expected: %v)", got, want)
	}
}

func TestFolderGoesUpAndComesBackTheSame(t *testing.T) {
	f := newFake(t)
	var archive []byte
	f.mux.HandleFunc("GET "+at("/files:stat"), func(w http.ResponseWriter, r *http.Request) {
		if archive == nil {
			w.WriteHeader(404)
			io.WriteString(w, `{"error":{"code":"file_not_found","message":"no such file"}}`)
			return
		}
		io.WriteString(w, view("directory", 0))
	})
	f.mux.HandleFunc("PUT "+at("/files:archive"), func(w http.ResponseWriter, r *http.Request) {
		archive, _ = io.ReadAll(r.Body)
		io.WriteString(w, `{"files":2,"bytes":7}`)
	})
	f.mux.HandleFunc("GET "+at("/files:archive"), func(w http.ResponseWriter, r *http.Request) { w.Write(archive) })
	from := t.TempDir()
	os.MkdirAll(filepath.Join(from, "deep", "er"), 0o755)
	os.WriteFile(filepath.Join(from, "deep", "er", "file"), []byte("content"), 0o640)
	os.WriteFile(filepath.Join(from, "empty"), nil, 0o755)
	os.Symlink("deep/er/file", filepath.Join(from, "link"))
	os.Mkdir(filepath.Join(from, "closed"), 0o500)
	if _, _, _, err := cli(t, "", "cp", from, box+":w"); err == nil || !strings.Contains(err.Error(), "cp -r") {
		t.Errorf("%v (expected: the remedy cp -r)", err)
	}
	if status, _, _, err := cli(t, "", "cp", "-r", from, box+":w"); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	to := filepath.Join(t.TempDir(), "new")
	status, stdout, stderr, err := cli(t, "", "cp", "-r", "--json", box+":w", to)
	if err != nil || status != 0 || stderr != "" || !strings.Contains(stdout, `"files":2`) {
		t.Fatalf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
	data, _ := os.ReadFile(filepath.Join(to, "deep", "er", "file"))
	target, _ := os.Readlink(filepath.Join(to, "link"))
	closed, err := os.Stat(filepath.Join(to, "closed"))
	if string(data) != "content" || target != "deep/er/file" || err != nil || closed.Mode().Perm() != 0o500 {
		t.Errorf("%q, %q, %v, %v", data, target, closed, err)
	}
}

func TestArchiveOfAHostileSandboxWritesNothingOutside(t *testing.T) {
	f := newFake(t)
	outside := filepath.Join(t.TempDir(), "outside")
	os.Mkdir(outside, 0o755)
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	add := func(h tar.Header, content string) {
		h.Size, h.Mode = int64(len(content)), 0o4777
		archive.WriteHeader(&h)
		io.WriteString(archive, content)
	}
	add(tar.Header{Name: "../evil", Typeflag: tar.TypeReg}, "x")
	add(tar.Header{Name: filepath.Join(outside, "evil"), Typeflag: tar.TypeReg}, "x")
	add(tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, "")
	add(tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, "")
	add(tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}, "")
	add(tar.Header{Name: "disk", Typeflag: tar.TypeBlock, Devmajor: 8}, "")
	add(tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, "")
	add(tar.Header{Name: "there", Typeflag: tar.TypeReg}, "new")
	add(tar.Header{Name: "good", Typeflag: tar.TypeReg}, "fine")
	archive.Close()
	f.answer("GET "+at("/files:stat"), 200, view("directory", 0))
	f.mux.HandleFunc("GET "+at("/files:archive"), func(w http.ResponseWriter, r *http.Request) { w.Write(packed.Bytes()) })
	to := filepath.Join(filepath.Dir(outside), "to")
	os.MkdirAll(filepath.Join(to, "f"), 0o755)
	// Made by an earlier copy, or by the user.
	victim := filepath.Join(outside, "victim")
	os.WriteFile(victim, []byte("old"), 0o644)
	os.Symlink(victim, filepath.Join(to, "f", "there"))
	status, _, stderr, err := cli(t, "", "cp", "-r", box+":f", to)
	if err != nil || status != 0 || strings.Count(stderr, "left out: ") != 7 {
		t.Fatalf("status %d, stderr %q, %v (expected: 7 left out)", status, stderr, err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside: %v", entries)
	}
	if data, _ := os.ReadFile(victim); string(data) != "old" {
		t.Errorf("a file outside was written through a symlink: %q", data)
	}
	good, err := os.Stat(filepath.Join(to, "f", "good"))
	if err != nil || good.Mode() != 0o777 {
		t.Errorf("%v, %v (expected: a plain file without set-id bits)", good, err)
	}
}

func TestLsShowsSandboxesAndFiles(t *testing.T) {
	f := newFake(t)
	f.answer("GET /v1/sandboxes", 200, `{"items":[{"sandbox_id":"sb-exec-1","template":"python","state":"running","created_at":"2026-01-02T03:04:05Z","labels":{"a":"b"}}],"next":null}`)
	if _, stdout, _, err := cli(t, "", "ls"); err != nil || !strings.Contains(stdout, "sb-exec-1  -     python    running") {
		t.Errorf("%q, %v", stdout, err)
	}
	f.answer("GET "+at("/files:stat"), 200, view("directory", 0))
	f.mux.HandleFunc("GET "+at("/files:list"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("next") == "" {
			io.WriteString(w, `{"items":[`+view("file", 5)+`],"next":"f"}`)
			return
		}
		io.WriteString(w, `{"items":[{"name":"l","type":"symlink","mode":"0777","link_target":"/etc\n"}],"next":null}`)
	})
	_, stdout, _, err := cli(t, "", "ls", box+":/home/user")
	if err != nil || !strings.Contains(stdout, "-rw-r-----  user") || !strings.Contains(stdout, "l -> /etc\uFFFD") || strings.Count(stdout, "\n") != 2 {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestCatPrintsFilesAndTellsWhichAreNotThere(t *testing.T) {
	f := newFake(t)
	f.mux.HandleFunc("GET "+at("/files"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("path") == "none" {
			w.WriteHeader(404)
			io.WriteString(w, `{"error":{"code":"file_not_found","message":"none is not there"}}`)
			return
		}
		w.Header().Set("X-Atoll-File", view("file", 3))
		io.WriteString(w, "a\xff\n")
	})
	status, stdout, stderr, err := cli(t, "", "cat", box+":f", box+":none")
	if err != nil || status != 1 || stdout != "a\xff\n" || !strings.Contains(stderr, "none is not there") {
		t.Errorf("status %d, %q, %q, %v", status, stdout, stderr, err)
	}
	if _, stdout, _, _ = cli(t, "", "cat", "--json", box+":f"); !strings.Contains(stdout, `"content":"Yf8K","encoding":"base64"`) {
		t.Errorf("%q", stdout)
	}
}

func accept(t *testing.T, w http.ResponseWriter, r *http.Request) *websocket.Conn {
	connection, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"atoll.v1"}})
	if err != nil {
		t.Errorf("WebSocket: %v", err)
		panic(http.ErrAbortHandler)
	}
	return connection
}

func say(c *websocket.Conn, kind websocket.MessageType, text string) {
	c.Write(context.Background(), kind, []byte(text))
}

// hear returns the next message of a kind.
func hear(t *testing.T, c *websocket.Conn, wanted websocket.MessageType) string {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			t.Errorf("reading (%v): %v", wanted, err)
			panic(http.ErrAbortHandler)
		}
		if kind == wanted {
			return string(data)
		}
	}
}

func TestShellConnectsAgainWithoutMissingOrDoublingAByte(t *testing.T) {
	f := newFake(t)
	var tries atomic.Int32
	keys, typed := io.Pipe()
	lost := make(chan struct{})
	f.mux.HandleFunc("GET "+at("/pty"), func(w http.ResponseWriter, r *http.Request) {
		switch tries.Add(1) {
		case 1:
			if q := r.URL.Query(); q.Get("cols") != "80" || q.Get("user") != "root" || q.Get("env.A") != "1" {
				t.Errorf("query %v", q)
			}
			c := accept(t, w, r)
			say(c, websocket.MessageText, `{"type":"started","process_id":"proc-1","pid":7,"offset":0}`)
			say(c, websocket.MessageBinary, "first ")
			if got := hear(t, c, websocket.MessageBinary); got != "taken" {
				t.Errorf("input %q", got)
			}
			c.CloseNow()
			close(lost)
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		default:
			if q := r.URL.Query(); q.Get("process_id") != proc || q.Get("offset") != "6" {
				t.Errorf("query %v (expected: proc-1 from 6)", q)
			}
			c := accept(t, w, r)
			say(c, websocket.MessageText, `{"type":"started","process_id":"proc-1","pid":7,"offset":6}`)
			if got := hear(t, c, websocket.MessageBinary); got != "en more" {
				t.Errorf("input %q (expected: what was not taken)", got)
			}
			say(c, websocket.MessageBinary, "second")
			say(c, websocket.MessageText, `{"type":"exited","process_id":"proc-1","exit_reason":"exited","exit_code":5}`)
			c.Close(websocket.StatusNormalClosure, "")
		}
	})
	f.mux.HandleFunc("GET "+at("/processes/proc-1"), func(w http.ResponseWriter, r *http.Request) {
		if tries.Load() == 1 {
			// Until what was typed while nobody listened is in.
			typed.Write([]byte(" more"))
		}
		// The terminal got three of the five bytes.
		io.WriteString(w, `{"process_id":"proc-1","stdin_offset":3}`)
	})
	go func() {
		typed.Write([]byte("taken"))
	}()
	var out, problems bytes.Buffer
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	status, err := run(ctx, []string{"shell", box, "--user", "root", "-e", "A=1"}, terminal{keys, &out, &problems})
	<-lost
	if err != nil || status != 5 || out.String() != "first second" {
		t.Errorf("status %d, %q, %q, %v (expected: 5, first second)", status, out.String(), problems.String(), err)
	}
}

func TestRunWithATerminalIsRawAndIsRestored(t *testing.T) {
	f := newFake(t)
	asked := f.took("POST "+at("/processes"), `{"process_id":"proc-1"}`)
	f.answer("GET "+at("/processes/proc-1"), 200, `{"process_id":"proc-1"}`)
	control, window := openPty(t)
	unix.IoctlSetWinsize(int(window.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 123, Row: 45})
	before, _ := unix.IoctlGetTermios(int(window.Fd()), unix.TCGETS)
	f.mux.HandleFunc("GET "+at("/pty"), func(w http.ResponseWriter, r *http.Request) {
		c := accept(t, w, r)
		say(c, websocket.MessageText, `{"type":"started","process_id":"proc-1","offset":0}`)
		if got := hear(t, c, websocket.MessageText); got != `{"cols":123,"rows":45,"type":"resize"}` {
			t.Errorf("%s", got)
		}
		unix.IoctlSetWinsize(int(window.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 99, Row: 22})
		unix.Kill(os.Getpid(), unix.SIGWINCH)
		if got := hear(t, c, websocket.MessageText); got != `{"cols":99,"rows":22,"type":"resize"}` {
			t.Errorf("%s", got)
		}
		control.Write([]byte{controlC})
		if got := hear(t, c, websocket.MessageBinary); got != "\x03" {
			t.Errorf("input %q (expected: Ctrl-C)", got)
		}
		say(c, websocket.MessageText, `{"type":"exited","exit_reason":"signaled","exit_code":130}`)
	})
	var problems bytes.Buffer
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	status, err := run(ctx, []string{"run", "-it", "-s", box, "vi"}, terminal{window, window, &problems})
	after, _ := unix.IoctlGetTermios(int(window.Fd()), unix.TCGETS)
	if err != nil || status != 130 || *before != *after {
		t.Errorf("status %d, %v, terminal before %+v, after %+v", status, err, before, after)
	}
	if fmt.Sprint((*asked)["pty"]) != "map[cols:123 rows:45]" {
		t.Errorf("pty %v", (*asked)["pty"])
	}
}

func TestTerminalIsRestoredWhenTheCommandIsEnded(t *testing.T) {
	f := newFake(t)
	control, window := openPty(t)
	before, _ := unix.IoctlGetTermios(int(window.Fd()), unix.TCGETS)
	ctx, stop := context.WithCancel(context.Background())
	f.mux.HandleFunc("GET "+at("/pty"), func(w http.ResponseWriter, r *http.Request) {
		c := accept(t, w, r)
		say(c, websocket.MessageText, `{"type":"started","process_id":"proc-1","offset":0}`)
		hear(t, c, websocket.MessageText)
		// Once it shows what is said, it has heard of the process.
		say(c, websocket.MessageBinary, "shown")
		if _, err := io.ReadFull(control, make([]byte, len("shown"))); err != nil {
			t.Error(err)
		}
		// As a SIGTERM does.
		stop()
		c.Read(context.Background())
	})
	status, err := run(ctx, []string{"shell", box}, terminal{window, window, io.Discard})
	after, _ := unix.IoctlGetTermios(int(window.Fd()), unix.TCGETS)
	if status != statusNotRun || err == nil || !strings.Contains(err.Error(), "--attach proc-1") || *before != *after {
		t.Errorf("status %d, %v, terminal before %+v, after %+v", status, err, before, after)
	}
}

func openPty(t *testing.T) (control, window *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	window, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { window.Close() })
	return control, window
}

func TestPortForwardsBothWaysAndKeepsHalfClose(t *testing.T) {
	f := newFake(t)
	f.answer("GET "+at(""), 200, `{"sandbox_id":"sb-exec-1"}`)
	f.mux.HandleFunc("GET "+at("/ports/3000/tunnel"), func(w http.ResponseWriter, r *http.Request) {
		c := accept(t, w, r)
		var got []byte
		for {
			kind, data, err := c.Read(context.Background())
			if err != nil {
				t.Errorf("reading: %v", err)
				return
			}
			if kind == websocket.MessageText {
				break
			}
			got = append(got, data...)
		}
		say(c, websocket.MessageBinary, "got "+string(got))
		say(c, websocket.MessageText, endOfStream)
		c.Read(context.Background())
	})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	said, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := run(ctx, []string{"port", box, "0:3000", "--json"}, terminal{strings.NewReader(""), out, io.Discard})
		done <- err
	}()
	var told struct{ Local string }
	if err := json.NewDecoder(said).Decode(&told); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := net.Dial("tcp", told.Local)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(c)
		if err != nil || string(answer) != "got hello" {
			t.Errorf("%q, %v (expected: got hello)", answer, err)
		}
		c.Close()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPortsListenedOnInsideAreListed(t *testing.T) {
	f := newFake(t)
	f.answer("GET "+at("/ports"), 200, `{"items":[{"port":3000,"address":"127.0.0.1","pid":7,"command":"node"}],"next":null}`)
	if _, stdout, _, err := cli(t, "", "port", box); err != nil || !strings.Contains(stdout, "3000  127.0.0.1  7") {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestPlacesAreInASandboxOrHere(t *testing.T) {
	for text, want := range map[string]place{
		"sb-exec-1:/a:b": {sandbox: "sb-exec-1", path: "/a:b"}, "sb-exec-1:": {sandbox: "sb-exec-1", path: "."}, "-": {standard: true},
		"./a:b": {path: "./a:b"}, "/a:b": {path: "/a:b"}, "file": {path: "file"},
	} {
		if got := parsePlace(text); got != want {
			t.Errorf("%s: %+v (expected: %+v)", text, got, want)
		}
	}
}

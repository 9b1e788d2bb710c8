package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serving answers every call with a body and remembers what was asked.
func serving(t *testing.T, status int, body string) (*request, *http.Header) {
	t.Helper()
	var asked request
	var headers http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = r.Header.Clone()
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Errorf("body: %v", err)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	t.Setenv("ATOLL_URL", s.URL+"/")
	t.Setenv("ATOLL_API_KEY", "the-key")
	return &asked, &headers
}

func call(t *testing.T, arguments ...string) (status int, stdout, stderr string, err error) {
	t.Helper()
	var out, errors bytes.Buffer
	status, err = run(context.Background(), append([]string{"exec"}, arguments...), terminal{strings.NewReader("from stdin"), &out, &errors})
	return status, out.String(), errors.String(), err
}

const completed = "event: done\ndata: {\"sandbox_id\":\"sb-exec-1\",\"exit_reason\":\"completed\",\"state_kept\":true,\"error\":null}\n\n"

func TestOutputGoesToItsOwnStreamAndTheSandboxIsNamed(t *testing.T) {
	asked, headers := serving(t, 200, ": keep-alive\n\nevent: start\ndata: {}\n\n"+
		"event: output\ndata: {\"stream\":\"stdout\",\"text\":\"out\\n\"}\n\n"+
		"event: output\r\ndata: {\"stream\":\"stderr\",\"text\":\"err\\n\"}\r\n\r\n"+
		"event: output\ndata: {\"stream\":\"stdout\",\"base64\":\"/wA=\"}\n\n"+
		"event: result\ndata: {\"main\":true,\"data\":{\"text/plain\":\"42\"}}\n\n"+completed)
	status, stdout, stderr, err := call(t, "-l", "python", "print(1)", "-s", "sb-exec-1")
	if err != nil || status != 0 {
		t.Fatalf("status %d, %v (expected: 0)", status, err)
	}
	if want := "out\n\xff\x0042\n"; stdout != want {
		t.Errorf("stdout %q (expected: %q)", stdout, want)
	}
	if want := "err\nsandbox: sb-exec-1\n"; stderr != want {
		t.Errorf("stderr %q (expected: %q)", stderr, want)
	}
	if want := (request{Code: "print(1)", Language: "python", Sandbox: "sb-exec-1", Stream: true}); *asked != want {
		t.Errorf("asked %+v (expected: %+v)", *asked, want)
	}
	if got := headers.Get("Authorization"); got != "Bearer the-key" {
		t.Errorf("authorization %q", got)
	}
}

func TestCodeThatFailsGivesStatusOneAndItsTraceback(t *testing.T) {
	serving(t, 200, "event: done\ndata: {\"sandbox_id\":\"sb-exec-1\",\"exit_reason\":\"error\",\"state_kept\":true,\"error\":{\"name\":\"ValueError\",\"message\":\"no\",\"traceback\":\"Traceback\\nValueError: no\\n\"}}\n\n")
	status, _, stderr, err := call(t, "x")
	if err != nil || status != 1 {
		t.Fatalf("status %d, %v (expected: 1)", status, err)
	}
	if want := "Traceback\nValueError: no\nsandbox: sb-exec-1\n"; stderr != want {
		t.Errorf("stderr %q (expected: %q)", stderr, want)
	}
}

func TestTimeoutIsToldAsSuchAndLostStateToo(t *testing.T) {
	serving(t, 200, "event: gap\ndata: {\"stream\":\"stdout\",\"offset\":0,\"bytes\":7}\n\nevent: done\ndata: {\"sandbox_id\":\"s\",\"exit_reason\":\"timeout\",\"state_kept\":false,\"detail\":\"after 2 s\"}\n\n")
	status, _, stderr, _ := call(t, "x")
	if want := "[7 bytes of stdout left out]\nended: timeout, after 2 s\nthe interpreter's state is lost\nsandbox: s\n"; status != 1 || stderr != want {
		t.Errorf("status %d, stderr %q (expected: 1, %q)", status, stderr, want)
	}
}

func TestExitZeroCountsAsDoneAndAnotherDoesNot(t *testing.T) {
	for code, want := range map[string]int{"0": 0, "3": 1} {
		serving(t, 200, `event: done`+"\n"+`data: {"sandbox_id":"s","exit_reason":"exited","exit_code":`+code+"}\n\n")
		if status, _, _, _ := call(t, "x"); status != want {
			t.Errorf("exit(%s): status %d (expected: %d)", code, status, want)
		}
	}
}

func TestErrorsOfTheServerAreOneLineWithTheRemedy(t *testing.T) {
	body := `{"error":{"code":"unknown_language","message":"no language cobol","cause":"","remediation":"use python"}}`
	serving(t, 400, body)
	status, _, _, err := call(t, "x")
	if want := "no language cobol (remedy: use python)"; status != 2 || err == nil || err.Error() != want {
		t.Errorf("status %d, %v (expected: 2, %s)", status, err, want)
	}
	serving(t, 502, "bad gateway\n")
	if _, _, _, err := call(t, "x"); err == nil || err.Error() != "HTTP 502: bad gateway" {
		t.Errorf("%v (expected: HTTP 502: bad gateway)", err)
	}
}

func TestStreamThatBreaksOffIsNotASuccess(t *testing.T) {
	serving(t, 200, "event: output\ndata: {\"stream\":\"stdout\",\"text\":\"a\"}\n\n")
	status, stdout, _, err := call(t, "x")
	if status != 2 || err == nil || stdout != "a" {
		t.Errorf("status %d, stdout %q, %v (expected: 2, a, an error)", status, stdout, err)
	}
}

func TestEventLargerThanTheReadBufferArrivesWhole(t *testing.T) {
	long := strings.Repeat("é", 300_000)
	serving(t, 200, "event: output\ndata: {\"stream\":\"stdout\",\"text\":\""+long+"\"}\n\n"+completed)
	if _, stdout, _, err := call(t, "x"); err != nil || stdout != long {
		t.Errorf("%d bytes, %v (expected: %d)", len(stdout), err, len(long))
	}
}

func TestCodeIsReadFromStdinByADashAndWhereNoneIsGiven(t *testing.T) {
	for _, arguments := range [][]string{{"-"}, {}} {
		asked, _ := serving(t, 200, completed)
		if _, _, _, err := call(t, arguments...); err != nil {
			t.Fatal(err)
		}
		if asked.Code != "from stdin" {
			t.Errorf("%q: code %q (expected: from stdin)", arguments, asked.Code)
		}
	}
	if status, _, _, err := cli(t, " \n", "exec"); status != 2 || err == nil || !strings.Contains(err.Error(), "no code") {
		t.Errorf("status %d, %v (expected: 2, no code)", status, err)
	}
}

func TestTimeLimitHasTheNameThatItHasElsewhereToo(t *testing.T) {
	for _, flag := range []string{"-t", "--timeout"} {
		asked, _ := serving(t, 200, completed)
		if _, _, _, err := call(t, "x", flag, "2.5"); err != nil || asked.TimeoutSeconds != 2.5 {
			t.Errorf("%s: %v, %v (expected: 2.5)", flag, asked.TimeoutSeconds, err)
		}
	}
}

func TestTwoPiecesOfCodeAreRefused(t *testing.T) {
	serving(t, 200, completed)
	if status, _, _, err := call(t, "print(1)", "print(2)"); status != 2 || err == nil {
		t.Errorf("status %d, %v (expected: 2, an error)", status, err)
	}
}

func TestWithoutAServerTheRemedyIsNamed(t *testing.T) {
	t.Setenv("ATOLL_URL", "")
	t.Setenv("ATOLL_DATA_DIR", t.TempDir())
	if _, _, _, err := call(t, "x"); err == nil || !strings.Contains(err.Error(), "./atoll up") {
		t.Errorf("%v (expected: one that names ./atoll up)", err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "instance"), []byte("00000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ATOLL_DATA_DIR", folder)
	if _, _, _, err := call(t, "x"); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("%v (expected: one that says the server does not run)", err)
	}
}

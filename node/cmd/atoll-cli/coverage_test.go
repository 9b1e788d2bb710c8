package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// verbs are for each operation of the API a command line that makes that call.
var verbs = map[string]string{
	"health":                "health",
	"codeExec":              "exec 1+1",
	"listEvents":            "events",
	"listSandboxEvents":     "events sb-exec-1",
	"listExecutions":        "execution ls",
	"exportNotebook":        "execution notebook sb-exec-1",
	"getExecution":          "execution show exec-1",
	"executionOutput":       "logs sb-exec-1 exec-1",
	"interruptExecution":    "execution interrupt exec-1",
	"listSandboxes":         "ls",
	"createSandbox":         "create --template python",
	"getSandbox":            "show sb-exec-1",
	"updateSandbox":         "set sb-exec-1 --name n",
	"deleteSandbox":         "rm sb-exec-1",
	"listContexts":          "context ls sb-exec-1",
	"createContext":         "context create sb-exec-1 -l python",
	"getContext":            "context show sb-exec-1 ctx-1",
	"closeContext":          "context rm sb-exec-1 ctx-1",
	"restartContext":        "context restart sb-exec-1 ctx-1",
	"interruptContext":      "context interrupt sb-exec-1 ctx-1",
	"executeInContext":      "context exec sb-exec-1 ctx-1 1+1 -d",
	"listProcesses":         "ps sb-exec-1 --all",
	"startProcess":          "run -s sb-exec-1 -d -- sleep 1",
	"getProcess":            "process show sb-exec-1 proc-1",
	"killProcess":           "process rm sb-exec-1 proc-1",
	"processOutput":         "logs sb-exec-1 proc-1",
	"processEvents":         "run -s sb-exec-1 -- sleep 1",
	"signalProcess":         "kill sb-exec-1 proc-1",
	"waitForProcess":        "process wait sb-exec-1 proc-1",
	"listGuestProcesses":    "ps sb-exec-1",
	"signalGuestProcess":    "kill sb-exec-1 1",
	"sandboxMetrics":        "usage sb-exec-1",
	"listTemplates":         "template ls",
	"createTemplate":        "template create mine --image debian",
	"getTemplate":           "template show mine",
	"updateTemplate":        "template edit mine --image debian",
	"deleteTemplate":        "template rm mine",
	"readFile":              "cat sb-exec-1:a",
	"removeFile":            "file rm sb-exec-1:a",
	"statFile":              "file stat sb-exec-1:a",
	"listFiles":             "ls sb-exec-1:a",
	"findFiles":             "file find sb-exec-1:a --name *.py",
	"makeFolder":            "file mkdir sb-exec-1:a -p",
	"moveFile":              "file mv sb-exec-1:a b",
	"copyFile":              "file cp sb-exec-1:a b",
	"changeFile":            "file chmod sb-exec-1:a --mode 0600",
	"makeSymlink":           "file ln sb-exec-1:a b",
	"replaceInFiles":        "file replace sb-exec-1 a b c d",
	"watchFolder":           "file watch sb-exec-1:a",
	"writeFile":             "cp - sb-exec-1:a",
	"packFolder":            "cp -r sb-exec-1:a FOLDER/b",
	"unpackFolder":          "cp -r FOLDER sb-exec-1:a",
	"listPorts":             "port sb-exec-1",
	"terminal":              "shell sb-exec-1",
	"listPools":             "pool",
	"pauseSandbox":          "pause sb-exec-1",
	"resumeSandbox":         "resume sb-exec-1",
	"extendSandbox":         "extend sb-exec-1 1h",
	"listRuns":              "runs sb-exec-1",
	"forkSandbox":           "fork sb-exec-1",
	"rollbackSandbox":       "rollback sb-exec-1 snap-1",
	"createSnapshot":        "snapshot create sb-exec-1",
	"listSnapshots":         "snapshot ls",
	"getSnapshot":           "snapshot show snap-1",
	"updateSnapshot":        "snapshot set snap-1 --name n",
	"deleteSnapshot":        "snapshot rm snap-1",
	"exportSnapshot":        "snapshot export snap-1 FOLDER/s",
	"importSnapshot":        "snapshot import -",
	"duplicateTemplate":     "template duplicate mine other",
	"setDefaultTemplate":    "template default mine",
	"buildTemplate":         "template build mine -d",
	"listTemplateVersions":  "template versions mine",
	"getTemplateDockerfile": "template show mine --dockerfile",
	"putTemplateContext":    "template edit mine --context FOLDER",
	"listBuilds":            "template builds mine",
	"cancelBuild":           "template cancel mine build-1",
	"getBuildLog":           "template logs mine build-1",
	"saveSandboxAsTemplate": "template save sb-exec-1 mine",
	"listImages":            "image ls",
	"deleteImage":           "image rm 0123456789012345678901234567890123456789012345678901234567890123",
	"pullImage":             "image pull debian",
	"importImage":           "image import -",
	"pruneImages":           "image prune",
	"listRegistries":        "registry ls",
	"putRegistry":           "registry login example.org -u me",
	"deleteRegistry":        "registry rm example.org",
	"listKeys":              "key ls",
	"createKey":             "key create name read execute",
	"getKey":                "key show key-1",
	"revokeKey":             "key rm key-1",
	"getNode":               "node",
	"getStats":              "stats",
}

// noVerb are the operations that have none, and why.
var noVerb = map[string]string{
	"index":                 "says where the API is, to somebody who has only its address",
	"metrics":               "for Prometheus, which asks by itself",
	"docs":                  "a page for browsers",
	"llms":                  "for language models",
	"openapi":               "for programs that make clients",
	"mcp":                   "for MCP clients",
	"mcpStream":             "for MCP clients",
	"mcpEnd":                "for MCP clients",
	"executionEvents":       "exec shows them while they come; afterwards logs has the output",
	"listContextExecutions": "execution ls --context asks the same",
	"writeProcessInput":     "run -i sends it; tested with the program's output in TestInputIsSentWithItsPlaceAgainAfterABreakAndThenClosed",
	"resizeTerminal":        "the terminal's own connection tells of a new size",
	"batchFiles":            "several of the file commands in one call, for programs that count round trips",
	"startWatch":            "for clients that poll; file watch follows a stream",
	"endWatch":              "for clients that poll; file watch follows a stream",
	"tunnel":                "port forwards by it once something connects; tested in TestPortForwardsBothWaysAndKeepsHalfClose",
	"getBuild":              "template builds shows it, template logs how it ended",
}

// Each operation of the API document can be called from a terminal, or is in the list of those that need not, with the reason.
func TestEveryOperationOfTheAPIHasAVerb(t *testing.T) {
	document, err := os.ReadFile("../../../api/src/main/resources/atoll/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &api); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for path, methods := range api.Paths {
		for method, raw := range methods {
			if !slices.Contains([]string{"get", "put", "post", "patch", "delete"}, method) {
				continue
			}
			var operation struct {
				ID string `json:"operationId"`
			}
			if err := json.Unmarshal(raw, &operation); err != nil {
				t.Fatal(err)
			}
			known[operation.ID] = true
			line, has := verbs[operation.ID]
			_, excused := noVerb[operation.ID]
			if has == excused {
				t.Errorf("%s (%s %s): in verbs: %t, in noVerb: %t (expected: in one of them)", operation.ID, strings.ToUpper(method), path, has, excused)
				continue
			}
			if has {
				t.Run(operation.ID, func(t *testing.T) { callsFor(t, line, strings.ToUpper(method), path) })
			}
		}
	}
	for name := range verbs {
		if !known[name] {
			t.Errorf("verbs: %s (expected: an operation of openapi.json)", name)
		}
	}
	for name := range noVerb {
		if !known[name] {
			t.Errorf("noVerb: %s (expected: an operation of openapi.json)", name)
		}
	}
}

// callsFor types the line and expects that the server is asked for that route.
func callsFor(t *testing.T, line, method, path string) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile("^" + method + " " + regexp.MustCompile(`\\\{[^}]*\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/:]+") + "$")
	var mu sync.Mutex
	var asked []string
	met := make(chan struct{})
	var once sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		call := r.Method + " " + r.URL.EscapedPath()
		mu.Lock()
		asked = append(asked, call)
		mu.Unlock()
		if wanted.MatchString(call) {
			once.Do(func() { close(met) })
		}
		if strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, ":watch") {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "id: 1\nevent: finished\ndata: {\"exit_reason\":\"exited\",\"exit_code\":0}\n\n")
			return
		}
		if strings.HasSuffix(r.URL.Path, "files:stat") {
			io.WriteString(w, `{"path":"/a","name":"a","type":"`+map[bool]string{true: "directory", false: "file"}[strings.Contains(line, "-r ") || strings.HasPrefix(line, "ls ")]+`","size":0}`)
			return
		}
		io.WriteString(w, `{"items":[],"next":null,"sandbox_id":"sb-exec-1","process_id":"proc-1","execution_id":"exec-1","snapshot_id":"snap-1","build_id":"build-1","digest":"0","id":"mine","template_id":"mine","state":"running","stderr_bytes":0}`)
	}))
	t.Cleanup(s.Close)
	t.Setenv("ATOLL_URL", s.URL)
	t.Setenv("ATOLL_API_KEY", "the-key")
	// What follows something goes on until it is ended; it is as soon as it has asked.
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	done := make(chan struct{})
	go func() {
		select {
		case <-met:
		case <-done:
		}
		stop()
	}()
	words := strings.Fields(strings.ReplaceAll(line, "FOLDER", folder))
	run(ctx, words, terminal{strings.NewReader("secret\n"), io.Discard, io.Discard})
	close(done)
	mu.Lock()
	defer mu.Unlock()
	if !slices.ContainsFunc(asked, wanted.MatchString) {
		t.Errorf("atoll %s asked %q (expected: %s)", line, asked, wanted)
	}
}

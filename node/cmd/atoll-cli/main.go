// Command atoll-cli works with sandboxes of an Atoll server from a terminal; `atoll-cli help` lists what it can do.
//
// What programs print comes out on stdout and stderr while they run. The server is the one of ATOLL_URL and ATOLL_API_KEY, else the
// installation in ATOLL_DATA_DIR (default /var/lib/atoll). Where a running program can be followed the CLI outlives a restart of the server: it
// connects again and goes on at the byte it had reached.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	statusFailed      = 1
	statusUnable      = 2
	statusMissing     = 3
	statusNotAllowed  = 4
	statusUnreachable = 5
	// As in docker: the status of a program passes through, so that of the CLI's own failures is one that programs rarely use.
	statusNotRun = 125
)

// terminal is what the CLI talks to people by. Files, where it matters that they are terminals.
type terminal struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// command is one word of the command line.
type command struct {
	name, arguments, summary string
	// unable is the exit status where the server could not be asked or refused.
	unable int
	run    func(ctx context.Context, s *server, arguments []string, t terminal) (int, error)
}

// alone says that it needs no server.
func (c command) alone() bool { return c.name == "template init" || c.name == "completion" }

var commands = []command{
	{"exec", "'CODE' [-l LANGUAGE] [-s SANDBOX] [-c CONTEXT] [--timeout SECONDS] [--json]", "run code in an interpreter that keeps its state; without CODE, and as -, it comes from stdin", statusUnable, runExec},
	{"run", "[-s SANDBOX | --template T] [-i] [-t] [--user U] [--cwd D] [-e K=V] [--timeout SECONDS] [-d] [--keep] [--json] [--] ARGV…", "run a program; its exit code is passed on", statusNotRun, runRun},
	{"shell", "[SANDBOX] [--attach PROCESS] [--template T] [--user U] [--cwd D] [-e K=V] [--keep]", "a terminal in a sandbox", statusNotRun, runShell},
	{"ps", "[SANDBOX] [--all] [--json]", "what runs in a sandbox, or in all; --all: also what our API started and has ended", statusUnable, runPs},
	{"kill", "SANDBOX PROCESS|PID… [-s SIGNAL] [--tree] [--json]", "send a signal (default TERM)", statusUnable, runKill},
	{"cp", "[-r] [--user U] [--json] SRC DST", "copy; SANDBOX:PATH on either side, - for stdin or stdout; -r: folders", statusUnable, runCp},
	{"ls", "[SANDBOX[:PATH]] [-a|--all] [--state S] [--template T] [--label K=V] [-q TEXT] [--tree] [--user U] [--json]", "sandboxes, or the files of a folder; --all: also ended ones, or hidden files; --tree: which was forked from which", statusUnable, runLs},
	{"cat", "[--user U] [--json] SANDBOX:PATH…", "print files", statusUnable, runCat},
	{"logs", "[-f] [--stream stdout|stderr|combined] [--offset N] [--json] SANDBOX PROCESS|EXECUTION", "what it printed; -f: and goes on to print", statusUnable, runLogs},
	{"create", "[--template T | --snapshot SNAPSHOT] [--name NAME] [--get] [-e K=V] [--label K=V] [--lifetime TIME|none] [--idle TIME|none] [--on-timeout pause|kill] [--no-auto-resume] [--json]", "make a sandbox and print its id; --get: the one of that name, if there is one", statusUnable, runCreate},
	{"rm", "SANDBOX… [--json]", "end sandboxes, in whatever state they are", statusUnable, runRm},
	{"pause", "SANDBOX… [--keep memory|files] [--json]", "write sandboxes to disk with all that runs in them, or with their files alone, and free their memory", statusUnable, runPause},
	{"resume", "SANDBOX… [--lifetime TIME|none] [--json]", "go on with paused sandboxes where they stopped", statusUnable, runResume},
	{"extend", "SANDBOX TIME|none [--json]", "end by itself that long from now, or never; TIME is seconds, or as in 90s, 15m, 2h, 7d", statusUnable, runExtend},
	{"fork", "SANDBOX [-n N] [--name NAME] [-e|--env K=V] [--label K=V] [--lifetime TIME|none] [--json]", "make N sandboxes (default 1) with all that is in this one, which goes on; prints their ids", statusUnable, runFork},
	{"rollback", "SANDBOX SNAPSHOT [--json]", "put a sandbox back to a snapshot of itself", statusUnable, runRollback},
	{"runs", "SANDBOX [--json]", "when it ran, and why each run began and ended", statusUnable, runRuns},
	{"snapshot create", "SANDBOX [--kind memory|files] [--name NAME] [--expires TIME] [--label K=V] [--json]", "keep what a sandbox is at this moment; it goes on; prints the snapshot's id", statusUnable, runSnapshotCreate},
	{"snapshot ls", "[SANDBOX] [--kind memory|files] [--name NAME] [--label K=V] [--json]", "snapshots, of one sandbox or all", statusUnable, runSnapshotLs},
	{"snapshot rm", "SNAPSHOT… [--json]", "remove snapshots", statusUnable, runSnapshotRm},
	{"snapshot export", "SNAPSHOT [FILE] [--json]", "write a snapshot to a file (default SNAPSHOT_ID.atoll-snapshot, - for stdout)", statusUnable, runSnapshotExport},
	{"snapshot import", "FILE [--name NAME] [--json]", "take in a snapshot from a file, - for stdin", statusUnable, runSnapshotImport},
	{"template ls", "[--json]", "templates: what sandboxes are made of", statusUnable, runTemplateLs},
	{"template show", "TEMPLATE [--version N] [--dockerfile] [--json]", "a template as a file for apply; --dockerfile: what its image is built from", statusUnable, runTemplateShow},
	{"template init", "[ID]", "write a sample " + templateFileName + " to begin with", statusUnable, runTemplateInit},
	{"template apply", "[FILE…] [--build] [--json]", "make templates what files say (default " + templateFileName + "); said again, it changes nothing", statusUnable, runTemplateApply},
	{"template create", "ID [--image REF | --dockerfile FILE] [--context FOLDER] [--apt|--pip|--npm|--go PACKAGE,…] [--run COMMAND] [-e K=V] [--user U] [--workdir D] [--memory MIB] [--cpu N] [--timeout SECONDS] [--pool N] [--language L] [--runtime R] [--name TEXT] [--description TEXT] [--label K=V] [--build] [--json]", "make a template; --build: and its image now, else at its first use", statusUnable, runTemplateCreate},
	{"template edit", "ID …", "change what is said, as for create; sandboxes that run keep the version they were made of", statusUnable, runTemplateEdit},
	{"template save", "SANDBOX ID [--name TEXT] [--json]", "make a template of what a sandbox has in its files", statusUnable, runTemplateSave},
	{"template duplicate", "TEMPLATE ID [--name TEXT] [--json]", "make another of the same", statusUnable, runTemplateDuplicate},
	{"template default", "TEMPLATE [--json]", "the one that sandboxes are made of where none is named", statusUnable, runTemplateDefault},
	{"template rm", "TEMPLATE… [--json]", "remove templates; sandboxes that run go on", statusUnable, runTemplateRm},
	{"template versions", "TEMPLATE [--json]", "what it was, version by version", statusUnable, runTemplateVersions},
	{"template build", "TEMPLATE… | --all [--no-cache] [--secret id=ID,src=FILE|env=NAME…] [-d]", "build images and show how it goes; --all: of templates that are not built, and of recipes that have changed; -d: print the builds' ids and leave", statusUnable, runTemplateBuild},
	{"template builds", "TEMPLATE [--json]", "its builds, and how they ended", statusUnable, runTemplateBuilds},
	{"template logs", "TEMPLATE [BUILD] [-f]", "what a build said; -f: and goes on to say", statusUnable, runTemplateLogs},
	{"template cancel", "TEMPLATE [BUILD] [--json]", "end a build", statusUnable, runTemplateCancel},
	{"image ls", "[--json]", "images on the node", statusUnable, runImageLs},
	{"image pull", "REFERENCE [--json]", "fetch an image from a registry", statusUnable, runImagePull},
	{"image import", "FILE [--name NAME] [--json]", "take in an image: of docker save, an OCI layout, or a root file system as tar; - for stdin", statusUnable, runImageImport},
	{"image rm", "IMAGE… [--json]", "remove images that nothing needs", statusUnable, runImageRm},
	{"image prune", "[--json]", "remove all images that nothing needs", statusUnable, runImagePrune},
	{"registry login", "HOST [-u USER] [--json]", "keep credentials for a registry; the password or token is read from stdin", statusUnable, runRegistryLogin},
	{"registry ls", "[--json]", "registries with credentials", statusUnable, runRegistryLs},
	{"registry rm", "HOST… [--json]", "forget credentials", statusUnable, runRegistryRm},
	{"pool", "[--json]", "sandboxes that wait to be taken, by template", statusUnable, runPool},
	{"port", "SANDBOX [[ADDRESS:]LOCAL:REMOTE…] [--json]", "ports listened on inside, or forward local ones to them", statusUnable, runPort},
	{"top", "[--once] [-n SECONDS] [--json]", "what the sandboxes use, live; --once: one look, for scripts", statusUnable, runTop},
	{"completion", "bash|zsh|fish", "what a shell needs to complete commands, flags, names and ids", statusUnable, runCompletion},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	status, err := run(ctx, os.Args[1:], terminal{os.Stdin, os.Stdout, os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, "atoll: "+err.Error())
	}
	os.Exit(status)
}

func run(ctx context.Context, arguments []string, t terminal) (int, error) {
	if len(arguments) == 0 {
		usage(t.stderr, "")
		return statusUnable, nil
	}
	if slices.Contains([]string{"help", "--help", "-h"}, arguments[0]) {
		usage(t.stdout, "")
		return 0, nil
	}
	if group := arguments[0] + " "; isGroup(group) && (len(arguments) == 1 || asksForHelp(arguments[1:])) {
		if len(arguments) == 1 {
			usage(t.stderr, group)
			return statusUnable, nil
		}
		usage(t.stdout, group)
		return 0, nil
	}
	if arguments[0] == "__complete" {
		// Where no server is found nothing of it is offered.
		s, _ := findServer(os.Getenv)
		return runComplete(ctx, &s, arguments[1:], t)
	}
	c, arguments, err := findCommand(arguments)
	if err != nil {
		return statusUnable, err
	}
	if asksForHelp(arguments) {
		fmt.Fprintf(t.stdout, "usage: atoll %s %s\n  %s\n", c.name, c.arguments, c.summary)
		for i, line := range examples[c.name] {
			fmt.Fprintf(t.stdout, "%s  ./atoll %s\n", map[bool]string{true: "\nexamples:\n"}[i == 0], line)
		}
		return 0, nil
	}
	s, err := findServer(os.Getenv)
	// A file to begin with needs no server.
	if err != nil && !c.alone() {
		return c.statusOf(err), err
	}
	// Elsewhere Ctrl-C is the program's.
	if !slices.Contains([]string{"run", "shell"}, c.name) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	// Where what comes goes to the terminal itself, nothing is to come between.
	if file, ok := t.stderr.(*os.File); ok && isTerminal(file) && c.name != "cat" && !slices.Contains(arguments, "-") {
		s.progress = file
	}
	status, err := c.run(ctx, &s, arguments, t)
	var misuse usageError
	if errors.As(err, &misuse) {
		return c.unable, fmt.Errorf("%w (usage: atoll %s %s)", err, c.name, c.arguments)
	}
	if err != nil && (status == 0 || status == statusUnable) {
		status = c.statusOf(err)
	}
	return status, err
}

// statusOf is the exit status where the call did not come to what it was for. docs/cli.md lists them.
func (c command) statusOf(err error) int {
	if c.unable != statusUnable {
		return c.unable
	}
	var refused apiError
	var away unreachable
	var missing notThere
	switch {
	case errors.As(err, &missing), errors.As(err, &refused) && refused.status == http.StatusNotFound:
		return statusMissing
	case errors.As(err, &refused) && (refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden):
		return statusNotAllowed
	case errors.As(err, &away):
		return statusUnreachable
	}
	return statusUnable
}

// notThere is a name that nothing has.
type notThere string

func (n notThere) Error() string { return string(n) }

// findCommand returns the command that the first word names, or the first two, and the words behind its name.
func findCommand(words []string) (command, []string, error) {
	for length := min(2, len(words)); length > 0; length-- {
		name := strings.Join(words[:length], " ")
		if at := slices.IndexFunc(commands, func(c command) bool { return c.name == name }); at >= 0 {
			return commands[at], words[length:], nil
		}
	}
	if isGroup(words[0] + " ") {
		return command{}, nil, fmt.Errorf("no command '%s %s' (remedy: atoll %s --help)", words[0], words[1], words[0])
	}
	return command{}, nil, fmt.Errorf("no command '%s' (remedy: atoll help)", words[0])
}

// isGroup says whether there are commands whose names begin so.
func isGroup(prefix string) bool {
	return slices.ContainsFunc(commands, func(c command) bool { return strings.HasPrefix(c.name, prefix) })
}

func asksForHelp(words []string) bool {
	return len(words) > 0 && (words[0] == "--help" || words[0] == "-h")
}

// usage lists the commands whose names begin with the prefix.
func usage(w io.Writer, prefix string) {
	fmt.Fprintf(w, "usage: atoll %sCOMMAND\n", prefix)
	for _, c := range commands {
		if strings.HasPrefix(c.name, prefix) {
			fmt.Fprintf(w, "\n  %s %s\n      %s\n", c.name, c.arguments, c.summary)
		}
	}
}

func runExec(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	request, asJSON, err := parseExec(arguments, t.stdin)
	if err != nil {
		return statusUnable, err
	}
	if request.Sandbox != "" {
		if request.Sandbox, err = s.sandboxID(ctx, request.Sandbox); err != nil {
			return statusUnable, err
		}
	}
	stdout := t.stdout
	if asJSON {
		stdout = io.Discard
	}
	outcome, err := s.execute(ctx, request, stdout, t.stderr)
	if err != nil {
		return statusUnable, err
	}
	if asJSON {
		fmt.Fprintf(t.stdout, "%s\n", outcome.raw)
	} else {
		outcome.report(t.stderr)
	}
	if !outcome.completed() {
		return statusFailed, nil
	}
	return 0, nil
}

func parseExec(arguments []string, stdin io.Reader) (request, bool, error) {
	var r request
	flags := newFlags("exec")
	flags.StringVar(&r.Language, "l", "", "")
	flags.StringVar(&r.Sandbox, "s", "", "")
	flags.StringVar(&r.Context, "c", "", "")
	flags.Float64Var(&r.TimeoutSeconds, "t", 0, "")
	flags.Float64Var(&r.TimeoutSeconds, "timeout", 0, "")
	asJSON := flags.Bool("json", false, "")
	code, err := flags.parse(arguments)
	if err != nil {
		return request{}, false, err
	}
	file, ok := stdin.(*os.File)
	switch typed := ok && isTerminal(file); {
	case len(code) == 0 && !typed:
		code = []string{"-"}
	case len(code) != 1:
		return request{}, false, usageError(fmt.Sprintf("%d pieces of code (expected: one, in quotes; - reads it from stdin)", len(code)))
	}
	r.Code, r.Stream = code[0], true
	if r.Code == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return request{}, false, fmt.Errorf("reading the code: %w", err)
		}
		if r.Code = string(text); strings.TrimSpace(r.Code) == "" {
			return request{}, false, usageError("no code, and nothing to read on stdin")
		}
	}
	return r, *asJSON, nil
}

// findServer takes the named server, else the installation that runs on this machine.
func findServer(getenv func(string) string) (server, error) {
	s := server{url: strings.TrimRight(getenv("ATOLL_URL"), "/"), key: getenv("ATOLL_API_KEY")}
	if s.url != "" && s.key != "" {
		return s, nil
	}
	data := getenv("ATOLL_DATA_DIR")
	if data == "" {
		data = "/var/lib/atoll"
	}
	instance, err := readLine(filepath.Join(data, "instance"))
	if err != nil {
		return server{}, unreachable{data, fmt.Errorf("no installation: %w", err)}
	}
	port, err := readLine(filepath.Join("/run", "atoll-"+instance, "port"))
	if err != nil {
		return server{}, unreachable{data, fmt.Errorf("it does not run: %w", err)}
	}
	key, err := readLine(filepath.Join(data, "secret", "api-key"))
	if err != nil {
		return server{}, fmt.Errorf("the key cannot be read (remedy: sudo, or set ATOLL_URL and ATOLL_API_KEY): %w", err)
	}
	return server{url: "http://127.0.0.1:" + port, key: key}, nil
}

func readLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

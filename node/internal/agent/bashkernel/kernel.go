// Package bashkernel speaks the kernel protocol (proto/kernel.md) and drives one bash that lives from cell to cell.
//
// Each cell is one `eval` in that bash, whose stdout and stderr are the kernel's own. What would end the shell (exit, a failing command
// under `set -e`, an unbound variable, an interrupt) runs its EXIT trap, which writes variables, functions, aliases, options, traps
// and folder down; a new bash reads that, so the cell ends and the state stays. Lost on that way are the job table (the jobs go on),
// coprocesses, and descriptors opened by `exec`; locals of a function that called exit become global. An EXIT trap of the user's belongs to its cell and runs at the cell's end;
// errexit and xtrace too last for their cell only.
//
// Where an image has no bash, sh takes its place. It cannot write its state down: `exit` then ends the kernel, and the agent says so.
package bashkernel

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"atoll/node/internal/agent/inner"
)

const (
	commandsFd, eventsFd, acksFd = 3, 4, 5
	privateFd                    = 200
	// Descriptors of the shell, closed while a cell runs so that no program inherits them.
	shellPathsFd, shellStatusFd = 250, 251

	maxCommandBytes = 64 << 20
)

// One line, so that bash counts the lines of a cell from 1 in its messages.
const bashLoop = `while IFS= builtin read -r -u 250 __atoll_path; do ` +
	`builtin mapfile -d '' -t __atoll_code <"$__atoll_path"; __atoll_return "${__atoll_status:-0}"; ` +
	`builtin eval "${__atoll_code[0]-}" 250<&- 251>&-; ` +
	`{ __atoll_status=$?; set +ex; } 2>/dev/null; __atoll_code=() __atoll_args=("$@"); __atoll_end; builtin printf '%s\n' "$__atoll_status" >&251; done`

// bashSetUp comes before the first cell, and after what the last shell has left is read.
const bashSetUp = `
shopt -s expand_aliases
__atoll_return() { return "$1"; }
__atoll_end() { if [[ -n ${__atoll_exit_trap-} ]]; then local __atoll_trap=$__atoll_exit_trap; __atoll_exit_trap=; builtin eval "$__atoll_trap"; fi; }
__atoll_save() {
	{
		builtin printf 'builtin cd -- %q\nset --' "$PWD"
		(( $# )) && builtin printf ' %q' "$@"
		builtin printf '\n'
		builtin declare -p
		builtin declare -f
		builtin alias -p
		builtin shopt -p
		builtin set +o
		builtin umask -p
		builtin trap -p
		builtin printf '__atoll_complete=1\n'
	} >"$__atoll_state_path" 2>/dev/null
}
__atoll_exit() {
	__atoll_status=$?
	{ set +ex; } 2>/dev/null
	if [[ -n ${__atoll_exit_trap-} ]]; then
		local __atoll_trap=$__atoll_exit_trap
		__atoll_exit_trap=
		__atoll_return "$__atoll_status"
		builtin eval "$__atoll_trap"
	fi
	# Inside a function the arguments are that function's: the cell before has noted those of the shell.
	(( ${#FUNCNAME[@]} > 1 )) && set -- "${__atoll_args[@]}"
	__atoll_save "$@"
}
trap() {
	local __atoll_last=${!#}
	if [[ $BASH_SUBSHELL == 0 && $# -ge 2 && $1 != -p && $1 != -l && ( $__atoll_last == EXIT || $__atoll_last == 0 || $__atoll_last == SIGEXIT ) ]]; then
		[[ $1 == -- ]] && shift
		if [[ $1 == - ]]; then __atoll_exit_trap=; else __atoll_exit_trap=$1; fi
		(( $# == 2 )) && return 0
		set -- "${@:1:$#-1}"
	fi
	builtin trap "$@"
}
builtin trap '__atoll_exit "$@"' EXIT
unset ATOLL_KERNEL_PART
[[ -n $(builtin trap -p INT) ]] || builtin trap 'exit 130' INT
`

// bashReseed seeds RANDOM. Once unset, or made a variable like others, it is no generator any more; SRANDOM asks the system each time.
const bashReseed = `__atoll_unseeded=0
if [[ -n ${RANDOM-} ]]; then
	if [[ ${BASH_VERSINFO[0]} -lt 5 ]]; then RANDOM=%[1]d
	elif [[ ${RANDOM@a} == *i*r* ]]; then __atoll_unseeded=1
	elif [[ ${RANDOM@a} == *i* ]]; then RANDOM=%[1]d
	fi
fi
`

const shLoop = `printf 'up\n' >&251; __atoll_return() { return "$1"; }; trap 'exit 130' INT; while IFS= read -r __atoll_path <&250; do ` +
	`__atoll_code=$(cat "$__atoll_path"; echo .); __atoll_return "${__atoll_status:-0}"; ` +
	`eval "${__atoll_code%.}" 250<&- 251>&-; ` +
	`{ __atoll_status=$?; set +ex; } 2>/dev/null; printf '%s\n' "$__atoll_status" >&251; done`

type command struct {
	Op    string            `json:"op"`
	ID    string            `json:"id"`
	Code  string            `json:"code"`
	Env   map[string]string `json:"env"`
	Unset []string          `json:"unset"`
	Cwd   string            `json:"cwd"`
	Seed  string            `json:"seed"`
}

type failure struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

type event struct {
	Event    string   `json:"event"`
	Language string   `json:"language,omitempty"`
	Version  string   `json:"version,omitempty"`
	Pid      int      `json:"pid,omitempty"`
	ID       string   `json:"id,omitempty"`
	Status   string   `json:"status,omitempty"`
	Error    *failure `json:"error,omitempty"`
	ExitCode int      `json:"exit_code"`
	Unseeded string   `json:"unseeded,omitempty"`
}

type kernel struct {
	program string
	isBash  bool
	events  *os.File
	// Files in memory: the code of a cell, and what a shell leaves behind at its end.
	code, state         *os.File
	codePath, statePath string

	shell *shell

	mu          sync.Mutex
	running     string // id of the cell; guarded by mu
	interrupted bool   // that cell got its SIGINT; guarded by mu
}

// shell is one life of the bash.
type shell struct {
	process  *os.Process
	paths    *os.File
	statuses *bufio.Reader
	file     *os.File
	lines    chan string
	ended    chan struct{}
	status   *os.ProcessState
}

// Main runs the kernel until its commands end.
func Main() error {
	debug.SetGCPercent(50)
	k := &kernel{}
	commands, err := move(commandsFd)
	if err != nil {
		return err
	}
	if k.events, err = move(eventsFd); err != nil {
		return err
	}
	if _, err := move(acksFd); err != nil {
		return err
	}
	if err := k.find(); err != nil {
		return err
	}
	if k.code, k.codePath, err = memoryFile("cell"); err != nil {
		return err
	}
	if k.state, k.statePath, err = memoryFile("state"); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT)
	go func() {
		for range signals {
			k.interrupt("")
		}
	}()
	if err := k.startShell(os.Environ()); err != nil {
		return err
	}
	version, err := k.version()
	if err != nil {
		return err
	}
	k.say(&event{Event: "ready", Language: "bash", Version: version, Pid: os.Getpid()})
	return k.serve(commands)
}

// move takes a descriptor of the protocol out of reach of accidents.
func move(fd int) (*os.File, error) {
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, privateFd)
	if err != nil {
		return nil, fmt.Errorf("bash kernel: descriptor %d: %w", fd, err)
	}
	if err := unix.Close(fd); err != nil {
		return nil, fmt.Errorf("bash kernel: descriptor %d: %w", fd, err)
	}
	return os.NewFile(uintptr(moved), "protocol"), nil
}

// memoryFile makes a file that the shell reaches by path and that needs no disk.
func memoryFile(name string) (*os.File, string, error) {
	fd, err := unix.MemfdCreate("atoll-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", fmt.Errorf("bash kernel: memory file: %w", err)
	}
	return os.NewFile(uintptr(fd), name), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}

func (k *kernel) find() error {
	for _, candidate := range []string{"bash", "/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "sh", "/bin/sh"} {
		if path, err := exec.LookPath(candidate); err == nil {
			k.program, k.isBash = path, strings.HasSuffix(candidate, "bash")
			return nil
		}
	}
	return errors.New("bash kernel: this image has neither bash nor sh")
}

func (k *kernel) version() (string, error) {
	if !k.isBash {
		return "sh", nil
	}
	out, err := exec.Command(k.program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("bash kernel: %s --version: %w", k.program, err)
	}
	_, after, _ := strings.Cut(string(out), "version ")
	version, _, _ := strings.Cut(after, "(")
	return strings.TrimSpace(version), nil
}

func (k *kernel) startShell(env []string) error {
	pathsTheirs, paths, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("bash kernel: %w", err)
	}
	statuses, statusesTheirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("bash kernel: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("bash kernel: %w", err)
	}
	files := make([]*os.File, shellStatusFd+1)
	files[0], files[1], files[2] = null, os.Stdout, os.Stderr
	files[shellPathsFd], files[shellStatusFd] = pathsTheirs, statusesTheirs
	argv := []string{"sh", "-c", shLoop}
	if k.isBash {
		if _, err := k.state.Seek(0, io.SeekEnd); err != nil {
			return fmt.Errorf("bash kernel: %w", err)
		}
		if _, err := k.state.WriteString(bashSetUp); err != nil {
			return fmt.Errorf("bash kernel: %w", err)
		}
		argv = []string{"bash", "--norc", "--noprofile", "-c",
			"__atoll_state_path=" + k.statePath + `; builtin . "$__atoll_state_path" 2>/dev/null; builtin printf 'up\n' >&251; ` + bashLoop, "bash"}
	}
	process, err := os.StartProcess(k.program, argv, &os.ProcAttr{Files: files, Env: append(env, inner.KernelPart+"=1")})
	for _, file := range []*os.File{pathsTheirs, statusesTheirs, null} {
		_ = file.Close()
	}
	if err != nil {
		return fmt.Errorf("bash kernel: starting %s: %w", k.program, err)
	}
	s := &shell{
		process: process, paths: paths, file: statuses, statuses: bufio.NewReader(statuses),
		lines: make(chan string, 1), ended: make(chan struct{}),
	}
	go func() {
		for {
			line, err := s.statuses.ReadString('\n')
			if err != nil {
				return
			}
			s.lines <- strings.TrimSpace(line)
		}
	}()
	go func() {
		s.status, _ = process.Wait() // nil where it cannot be told, which reads as a lost shell
		close(s.ended)
	}()
	k.mu.Lock()
	k.shell = s
	k.mu.Unlock()
	// What it has to read must stay there until it has.
	select {
	case <-s.lines:
		return nil
	case <-s.ended:
		return fmt.Errorf("bash kernel: %s ended while it started: %v", k.program, s.status)
	}
}

// outcome is how a piece of code ended.
type outcome struct {
	status int
	// The shell itself ended; a new one has taken over its state.
	ended bool
	// The shell ended without writing its state down.
	lost *os.ProcessState
}

// eval runs code in the shell and waits for its end.
func (k *kernel) eval(code string) (outcome, error) {
	select {
	case <-k.shell.ended:
		// An interrupt that came too late for its cell has ended it between two cells.
		if result, err := k.revive(); err != nil || result.lost != nil {
			return result, err
		}
	default:
	}
	if err := k.state.Truncate(0); err != nil {
		return outcome{}, err
	}
	if err := k.code.Truncate(0); err != nil {
		return outcome{}, err
	}
	if _, err := k.code.WriteAt([]byte(code), 0); err != nil {
		return outcome{}, err
	}
	s := k.shell
	if _, err := s.paths.WriteString(k.codePath + "\n"); err != nil && !errors.Is(err, syscall.EPIPE) {
		return outcome{}, err
	}
	select {
	case line := <-s.lines:
		status, err := strconv.Atoi(line)
		return outcome{status: status}, err
	case <-s.ended:
	}
	select {
	case line := <-s.lines:
		// It ended right after the cell, which the next one will find.
		status, err := strconv.Atoi(line)
		return outcome{status: status}, err
	default:
	}
	return k.revive()
}

// revive starts a new shell in place of the one that has ended.
func (k *kernel) revive() (outcome, error) {
	s := k.shell
	_ = s.paths.Close()
	_ = s.file.Close()
	if s.status == nil || !k.isBash || !s.status.Exited() || !k.saved() {
		return outcome{lost: s.status}, nil
	}
	result := outcome{status: s.status.ExitCode(), ended: true}
	// Everything that was exported is in what it wrote down; what was unset must not come back.
	return result, k.startShell([]string{})
}

func (k *kernel) saved() bool {
	size, err := k.state.Seek(0, io.SeekEnd)
	if err != nil {
		return false
	}
	mark := []byte("__atoll_complete=1\n")
	end := make([]byte, len(mark))
	if _, err := k.state.ReadAt(end, max(0, size-int64(len(mark)))); err != nil {
		return false
	}
	return bytes.Equal(end, mark)
}

func (k *kernel) serve(commands io.Reader) error {
	queue := make(chan *command, 16)
	failed := make(chan error, 1)
	go func() {
		defer close(queue)
		failed <- k.read(commands, queue)
	}()
	for c := range queue {
		var err error
		switch c.Op {
		case "execute":
			err = k.execute(c)
		case "configure":
			err = k.configure(c)
		case "shutdown":
			return nil
		}
		if err != nil {
			return err
		}
	}
	return <-failed
}

// read takes commands; interrupts are acted on at once.
func (k *kernel) read(commands io.Reader, queue chan<- *command) error {
	reader := bufio.NewReader(commands)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("bash kernel: commands: %w", err)
		}
		if len(line) > maxCommandBytes {
			return fmt.Errorf("bash kernel: a command of %d bytes", len(line))
		}
		c := &command{}
		if err := json.Unmarshal(line, c); err != nil {
			return fmt.Errorf("bash kernel: commands: %w", err)
		}
		if c.Op == "interrupt" {
			k.interrupt(c.ID)
			continue
		}
		if c.Op == "execute" {
			k.mu.Lock()
			k.running, k.interrupted = c.ID, false
			k.mu.Unlock()
		}
		queue <- c
	}
}

// interrupt notes that the running cell was interrupted. The shell, and the programs that the cell waits for, have their SIGINT from the
// agent, the shell first.
func (k *kernel) interrupt(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running != "" && (id == "" || id == k.running) {
		k.interrupted = true
	}
}

func (k *kernel) execute(c *command) error {
	done := &event{Event: "done", ID: c.ID, Status: "ok"}
	if strings.ContainsRune(c.Code, 0) {
		done.Status, done.ExitCode = "error", 2
		done.Error = &failure{Name: "SyntaxError", Message: "the code holds a NUL byte, which bash cannot take"}
		k.finish(done)
		return nil
	}
	if len(c.Env) > 0 {
		if _, err := k.eval(setEnvironment(c.Env)); err != nil {
			return err
		}
	}
	result, err := k.eval(c.Code)
	if err != nil {
		return err
	}
	if result.lost != nil || k.shell.process == nil {
		return k.leave(result.lost)
	}
	if len(c.Env) > 0 {
		if _, err := k.eval(restoreEnvironment(c.Env)); err != nil {
			return err
		}
	}
	done.ExitCode = result.status
	k.mu.Lock()
	interrupted := k.interrupted
	k.mu.Unlock()
	switch {
	case result.ended && interrupted:
		done.Status = "interrupted"
	case result.ended:
		done.Status = "exited"
	case result.status == 1 || result.status == 2:
		// Only these can be a syntax error, and only bash can tell.
		if message := k.syntaxError(c.Code); message != "" {
			done.Status = "error"
			done.Error = &failure{Name: "SyntaxError", Message: message, Traceback: message}
		}
	}
	k.finish(done)
	return nil
}

// leave ends the kernel as its shell has ended, so that the agent reports how.
func (k *kernel) leave(state *os.ProcessState) error {
	if state == nil {
		return errors.New("bash kernel: the shell is gone")
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal.Reset()
		_ = unix.Kill(os.Getpid(), status.Signal())
	}
	os.Exit(max(0, state.ExitCode()))
	return nil
}

func (k *kernel) finish(done *event) {
	k.mu.Lock()
	k.running = ""
	k.mu.Unlock()
	k.say(done)
}

func (k *kernel) say(e *event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = k.events.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bash kernel: events:", err)
		os.Exit(1)
	}
}

// syntaxError returns bash's own message where it cannot parse the code, else nothing.
func (k *kernel) syntaxError(code string) string {
	if !k.isBash {
		return ""
	}
	// -n reads and does not run; the code comes from stdin so that no argument limit applies.
	check := exec.Command(k.program, "-O", "extglob", "-n")
	check.Stdin = strings.NewReader(code)
	check.Env = []string{"LC_ALL=" + os.Getenv("LANG")}
	var message bytes.Buffer
	check.Stderr = &message
	if err := check.Run(); err == nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(message.String(), k.program+": ", "bash: "))
}

func (k *kernel) configure(c *command) error {
	var script strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if isName(name) {
			fmt.Fprintf(&script, "export %s=%s\n", name, quote(c.Env[name]))
		}
	}
	for _, name := range c.Unset {
		if isName(name) {
			fmt.Fprintf(&script, "unset %s\n", name)
		}
	}
	if c.Cwd != "" {
		fmt.Fprintf(&script, "cd -- %s\n", quote(c.Cwd))
	}
	if seed, err := hex.DecodeString(c.Seed); err == nil && len(seed) >= 4 && k.isBash {
		fmt.Fprintf(&script, bashReseed, uint32(seed[0])|uint32(seed[1])<<8|uint32(seed[2])<<16|uint32(seed[3]&0x7f)<<24)
	}
	configured := &event{Event: "configured", ID: c.ID}
	result, err := k.eval("__atoll_kept=$?\n{ " + "\n" + script.String() + "\n:; } 2>/dev/null\n__atoll_return \"${__atoll_unseeded-0}\"")
	if err == nil && result.lost == nil && result.status != 0 {
		configured.Unseeded = "RANDOM cannot be assigned to"
	}
	if err == nil && result.lost == nil {
		// The status of the last cell is part of the state.
		result, err = k.eval("__atoll_return \"${__atoll_kept-0}\"")
	}
	if err != nil {
		return err
	}
	if result.lost != nil {
		return k.leave(result.lost)
	}
	k.say(configured)
	return nil
}

// setEnvironment sets variables for one cell and keeps what was there.
func setEnvironment(env map[string]string) string {
	var script strings.Builder
	script.WriteString("__atoll_kept=$?\n")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if isName(name) {
			fmt.Fprintf(&script, "__atoll_had_%[1]s=${%[1]s+x}; __atoll_old_%[1]s=${%[1]s-}; export %[1]s=%[2]s\n", name, quote(env[name]))
		}
	}
	script.WriteString("__atoll_return \"$__atoll_kept\"")
	return script.String()
}

func restoreEnvironment(env map[string]string) string {
	var script strings.Builder
	script.WriteString("__atoll_kept=$?\n")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if isName(name) {
			fmt.Fprintf(&script, "if [ -n \"$__atoll_had_%[1]s\" ]; then %[1]s=$__atoll_old_%[1]s; else unset %[1]s; fi; unset __atoll_had_%[1]s __atoll_old_%[1]s\n", name)
		}
	}
	script.WriteString("__atoll_return \"$__atoll_kept\"")
	return script.String()
}

func isName(name string) bool {
	for i, c := range name {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func hasGo() bool {
	_, err := exec.LookPath("go")
	return err == nil
}

// goRun builds and runs a whole program as `go run` does. isTheCode: false where nothing was run for a reason that is no mistake of the
// code's, or for an import or a variable alone that is not used.
func (c *cell) goRun() (o outcome, isTheCode bool) {
	folder, err := os.MkdirTemp("", "atoll-go-")
	if err != nil {
		return failed(c.compileProblem(err)), false
	}
	defer os.RemoveAll(folder)
	source := filepath.Join(folder, "main.go")
	if err := os.WriteFile(source, []byte(c.code), 0o600); err != nil {
		return failed(c.compileProblem(err)), false
	}
	program := filepath.Join(folder, "program")
	build := exec.Command("go", "build", "-o", program, source)
	build.Env = os.Environ()
	if !belowModule() {
		if err := writeModule(folder, c.code); err == nil {
			build.Args = []string{"go", "build", "-mod=mod", "-o", program, "."}
			build.Dir = folder
			build.Env = append(build.Env, "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*")
		}
	}
	if said, err := c.runChild(build, true); err != nil {
		select {
		case <-c.decided:
			return c.outcome, true
		default:
		}
		mistakes := compilerLine.FindAllStringSubmatch(said, -1)
		isUnusedAlone := !slices.ContainsFunc(mistakes, func(mistake []string) bool { return !strings.Contains(mistake[3], "not used") })
		return failed(c.goProblem(said, folder)), !isUnusedAlone
	}
	run := exec.Command(program)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	_, err = c.runChild(run, false)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return failed(&problem{Name: "ProgramError", Message: fmt.Sprintf("the program was ended by signal %d (%s)", status.Signal(), status.Signal()),
				Traceback: fmt.Sprintf("the program was ended by signal %d (%s)", status.Signal(), status.Signal())}), true
		}
		if status.ExitStatus() == 2 {
			// What a Go program that panics ends with; it has said on stderr why.
			return failed(&problem{Name: "Panic", Message: "the program panicked, or ended with exit status 2 (its stderr says which)", Traceback: "exit status 2"}), true
		}
		return outcome{status: "exited", exitCode: status.ExitStatus()}, true
	}
	if err != nil {
		return failed(&problem{Name: "ProgramError", Message: err.Error(), Traceback: err.Error()}), true
	}
	return outcome{status: "ok"}, true
}

// runChild waits for a command, and kills it where the cell is stopped.
func (c *cell) runChild(command *exec.Cmd, keepOutput bool) (string, error) {
	var said strings.Builder
	if keepOutput {
		command.Stdout, command.Stderr = &said, &said
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err.Error(), err
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-c.decided:
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		case <-ended:
		}
	}()
	err := command.Wait()
	close(ended)
	return said.String(), err
}

var compilerLine = regexp.MustCompile(`(?m)^\S*main\.go:([0-9]+):([0-9]+): (.*)$`)

// goProblem is what Go's compiler says, about the lines of the cell.
func (c *cell) goProblem(said, folder string) *problem {
	said = strings.TrimSpace(strings.ReplaceAll(said, folder+"/", ""))
	said = strings.TrimPrefix(said, "# command-line-arguments\n")
	said = strings.TrimPrefix(said, "# cell\n")
	at := compilerLine.FindStringSubmatch(said)
	if at == nil {
		return &problem{Name: "CompileError", Message: said, Traceback: "CompileError: " + said}
	}
	said = compilerLine.ReplaceAllString(said, fmt.Sprintf("cell-%d.go:$1:$2: $3", c.number))
	return &problem{Name: "CompileError", Message: at[3], Traceback: fmt.Sprintf("CompileError: %s\n    at cell-%d.go:%s:%s\n%s\n%s", at[3], c.number, at[1], at[2], c.excerpt(at[1], at[2]), said)}
}

// belowModule says whether the current folder is part of a module, whose packages a program there may use.
func belowModule() bool {
	folder, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(folder, "go.mod")); missing == nil {
			return true
		}
		if folder == "/" {
			break
		}
		folder = filepath.Dir(folder)
	}
	return false
}

// languageVersion is what the installed Go speaks, as 1.22.
func languageVersion() string {
	said, _ := exec.Command("go", "env", "GOVERSION").Output()
	if found := goVersion.FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return "1.21"
}

var goVersion = regexp.MustCompile(`^go([0-9]+\.[0-9]+)`)

var importLine = regexp.MustCompile(`"([a-z0-9.-]+\.[a-z]+/[^"\s]+)"`)

// writeModule writes a go.mod that names, of the module cache, what the program imports.
func writeModule(folder, code string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "module cell\n\ngo %s\n\n", languageVersion())
	seen := map[string]bool{}
	for _, match := range importLine.FindAllStringSubmatch(code, -1) {
		for module := match[1]; strings.Contains(module, "/"); module = module[:strings.LastIndexByte(module, '/')] {
			if found := newest(filepath.Join(moduleCache(), escape(module))); found != "" && !seen[module] {
				seen[module] = true
				fmt.Fprintf(&text, "require %s %s\n", module, found[strings.LastIndexByte(found, '@')+1:])
				break
			}
		}
	}
	return os.WriteFile(filepath.Join(folder, "go.mod"), []byte(text.String()), 0o600)
}

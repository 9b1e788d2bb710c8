package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/traefik/yaegi/interp"
	"golang.org/x/sys/unix"
)

const mainName = innerName + "_main"

// kernel is the state that lives from cell to cell. Its fields are those of the goroutine of `serve`, where nothing else is said.
type kernel struct {
	channel     *channel
	output      *output
	random      *random
	stdin       *os.File
	modules     *modules
	interpreter *interpreter
	number      int
	packages    map[string]bool // the names of imported packages; of the goroutine that runs the cell

	cell *cell

	mu      sync.Mutex
	running *cell  // cell, for the functions that programs call; guarded by mu
	lastID  string // guarded by mu
}

// outcome is how a cell ended.
type outcome struct {
	status   string
	problem  *problem
	exitCode int
}

type cell struct {
	kernel   *kernel
	id       string
	number   int
	code     string
	silent   bool
	children map[int]bool // of the kernel, before it began
	restore  func()
	begun    time.Time

	decided chan struct{} // closed when the outcome is known
	gone    chan struct{} // closed when the cell's own goroutine has ended
	ended   chan outcome

	mu      sync.Mutex
	over    bool    // guarded by mu
	outcome outcome // guarded by mu until decided is closed

	result any // the last expression's values; of the cell's own goroutine
	shown  bool
}

func newKernel(c *channel) (*kernel, error) {
	k := &kernel{
		channel: c, output: &output{channel: c}, random: newRandom(), stdin: openStdin(), modules: newModules(), packages: map[string]bool{},
	}
	var err error
	k.interpreter, err = newInterpreter(k)
	if err != nil {
		return nil, err
	}
	for _, prelude := range []string{`import ` + innerName + ` "atoll/internal"`, `import "atoll/display"`, builtins} {
		parsed, err := readCell(k.interpreter.FileSet(), 0, prelude)
		if err != nil {
			return nil, err
		}
		for _, part := range parsed.parts {
			if err := k.runPart(&part); err != nil {
				return nil, err
			}
		}
	}
	k.packages[innerName], k.packages["display"] = true, true
	return k, nil
}

// builtins are those of Go 1.21 that the interpreter does not have.
const builtins = `
import "cmp"
func min[T cmp.Ordered](x T, y ...T) T { for _, v := range y { if v < x { x = v } }; return x }
func max[T cmp.Ordered](x T, y ...T) T { for _, v := range y { if v > x { x = v } }; return x }
func clear(x any) { __atoll.Clear(x) }
`

// openStdin is the context's stdin or, without one, a file whose reads fail with a clear word rather than end a program's loop as if all were read.
func openStdin() *os.File {
	var status unix.Stat_t
	if err := unix.Fstat(0, &status); err == nil && !(status.Mode&unix.S_IFMT == unix.S_IFCHR && status.Rdev == unix.Mkdev(1, 3)) {
		return os.Stdin
	}
	fd, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.Stdin
	}
	return os.NewFile(uintptr(fd), "stdin: no stdin is connected to this execution")
}

// warm compiles and runs what a first cell would otherwise wait for.
func (k *kernel) warm() {
	parsed, err := readCell(k.interpreter.FileSet(), 0, "__atoll_warm := []int{1}\nfor _, x := range __atoll_warm { _ = x }")
	if err != nil {
		return
	}
	for _, part := range parsed.parts {
		_ = k.runPart(&part)
	}
}

func (k *kernel) execute(c *command) {
	k.number++
	one := &cell{
		kernel: k, id: c.ID, number: k.number, code: c.Code, silent: c.Silent, children: children(), restore: setEnvironment(c.Env), begun: time.Now(),
		decided: make(chan struct{}), gone: make(chan struct{}), ended: make(chan outcome, 1),
	}
	k.cell = one
	k.mu.Lock()
	k.running, k.lastID = one, one.id
	k.mu.Unlock()
	go func() {
		defer close(one.gone)
		o := one.run()
		one.decide(o)
	}()
	go one.watch()
}

func setEnvironment(env map[string]string) (restore func()) {
	type before struct {
		value string
		set   bool
	}
	old := map[string]before{}
	for name, value := range env {
		was, set := os.LookupEnv(name)
		old[name] = before{was, set}
		_ = os.Setenv(name, value)
	}
	return func() {
		for name, was := range old {
			if was.set {
				_ = os.Setenv(name, was.value)
			} else {
				_ = os.Unsetenv(name)
			}
		}
	}
}

// decide sets how the cell ends, the first time that it is called.
func (c *cell) decide(o outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.over, c.outcome = true, o
	close(c.decided)
	return true
}

// watch tells the end of the cell once nothing of it runs on. Where it cannot be stopped it tells nothing, and the agent ends the kernel.
func (c *cell) watch() {
	<-c.decided
	select {
	case <-c.gone:
	default:
		i := c.kernel.interpreter
		since := time.Now()
		for isGone, rounds := false, 0; !isGone; rounds++ {
			// Again and again: what begins to run just now takes the new number for its own.
			i.stop()
			if rounds%20 == 0 {
				// Again and again: it may be about to start one.
				c.endChildren(time.Since(since) > childPatience)
			}
			for i.wake() {
			}
			select {
			case <-c.gone:
				isGone = true
			case <-time.After(time.Millisecond):
			}
		}
		i.resume()
	}
	c.ended <- c.outcome
}

func (c *cell) interrupt() {
	c.decide(outcome{status: "interrupted", problem: &problem{Name: "Interrupted", Message: "the cell was interrupted", Traceback: "Interrupted: the cell was interrupted"}})
}

// finish is called by `serve` when a cell has ended.
func (k *kernel) finish(o outcome) {
	c := k.cell
	k.cell = nil
	k.mu.Lock()
	k.running = nil
	k.mu.Unlock()
	if o.status == "ok" && c.shown && !c.silent {
		k.sendResult(c.id, true, c.result)
	}
	c.restore()
	k.output.settle()
	done := map[string]any{"event": "done", "id": c.id, "status": o.status}
	if o.problem != nil {
		done["error"] = o.problem.cut()
	}
	if o.status == "exited" {
		done["exit_code"] = o.exitCode
	}
	k.channel.send(done)
}

func (k *kernel) sendResult(id string, isMain bool, value any) {
	data, truncated := bundle(value)
	event := map[string]any{"event": "result", "id": id, "main": isMain, "data": data, "metadata": map[string]any{}}
	if truncated > 0 {
		event["truncated"] = truncated
	}
	k.channel.send(event)
}

// --- Running --------------------------------------------------------------------------------------------------------------

func (c *cell) run() outcome {
	k := c.kernel
	k.output.takeFrames()
	parsed, err := readCell(k.interpreter.FileSet(), c.number, c.code)
	if err != nil {
		return failed(c.syntaxProblem(err))
	}
	before := k.symbolsNow()
	programs := make([]*interp.Program, len(parsed.parts))
	for i := range parsed.parts {
		// All before anything runs: what is wrong further down is to be known first.
		program, err := k.compilePart(&parsed.parts[i])
		if err != nil {
			k.restoreSymbols(before)
			if parsed.isWhole && hasGo() {
				o, _ := c.goRun()
				return o
			}
			return failed(c.compileProblem(err))
		}
		programs[i] = program
	}
	if parsed.isWhole && parsed.hasMain && hasGo() {
		// Compiled it does exactly what Go does. Its functions stay for later cells.
		if o, isTheCode := c.goRun(); isTheCode {
			if !parsed.onlyDefines() {
				k.restoreSymbols(before)
				return o
			}
			for _, program := range programs {
				if err := k.run(program); err != nil {
					k.restoreSymbols(before)
					break
				}
			}
			return o
		}
	}
	for _, program := range programs {
		select {
		case <-c.decided:
			return outcome{}
		default:
		}
		if err := k.run(program); err != nil {
			return failed(c.panicProblem(err))
		}
	}
	if parsed.hasMain && (parsed.isWhole || !hasStatements(parsed)) {
		call, err := readCell(k.interpreter.FileSet(), c.number, mainName+"()")
		if err != nil {
			return failed(c.compileProblem(err))
		}
		for _, one := range call.parts {
			one.shown = nil
			if err := k.runPart(&one); err != nil {
				return failed(c.panicProblem(err))
			}
		}
	}
	return outcome{status: "ok"}
}

// onlyDefines says whether nothing happens when the declarations of a program are run: functions, types and constants alone.
func (p *program) onlyDefines() bool {
	for _, part := range p.parts {
		file, ok := part.node.(*ast.File)
		if !ok {
			return false
		}
		for _, declaration := range file.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				if declaration.Recv == nil && declaration.Name.Name == "init" {
					return false
				}
			case *ast.GenDecl:
				if declaration.Tok == token.VAR {
					return false
				}
			}
		}
	}
	return true
}

func hasStatements(p *program) bool {
	for _, one := range p.parts {
		if one.names == nil {
			return true
		}
	}
	return false
}

func failed(p *problem) outcome { return outcome{status: "error", problem: p} }

// refusal is what the interpreter says of code that it does not compile.
type refusal struct{ cause error }

func (r *refusal) Error() string { return r.cause.Error() }

// runPart compiles and runs one part of a cell.
func (k *kernel) runPart(p *part) error {
	program, err := k.compilePart(p)
	if err != nil {
		return &refusal{err}
	}
	return k.run(program)
}

// compilePart compiles one part of a cell. What it declares may have been declared before.
func (k *kernel) compilePart(p *part) (*interp.Program, error) {
	if p.shown != nil {
		if program, err := k.compile(p.shown, nil); err == nil {
			return program, nil
		}
		// A call without a value cannot be shown.
	}
	program, err := k.compile(p.node, p.names)
	if err != nil && len(p.short) > 0 {
		// A name may get a value of another type.
		if again, second := k.compile(p.node, append(p.names, p.short...)); second == nil {
			program, err = again, nil
		}
	}
	// What it says of `for i := range n` with an integer.
	if err != nil && strings.Contains(err.Error(), "(nil type)") && (&rewriting{count: 1 << 20}).countVariables(p.node) {
		program, err = k.compile(p.node, append(p.names, p.short...))
	}
	if err != nil {
		return nil, err
	}
	for _, name := range p.names {
		if base, ok := strings.CutSuffix(name, "/"+cellFile); ok {
			k.packages[base] = true
		}
	}
	return program, nil
}

// compile takes what was declared under the same names before away first, and puts it back where the code is refused.
func (k *kernel) compile(node ast.Node, names []string) (program *interp.Program, err error) {
	restore := k.forget(names)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the interpreter cannot compile this (%v)", r)
		}
		if err == nil && program == nil {
			err = errors.New("the interpreter cannot compile this")
		}
		if err != nil {
			restore()
		}
	}()
	return k.interpreter.CompileAST(node)
}

// forget removes names from the interpreter's global scope.
func (k *kernel) forget(names []string) (restore func()) {
	symbols := k.symbolTable()
	if !symbols.IsValid() {
		return func() {}
	}
	old := map[string]reflect.Value{}
	for _, name := range names {
		key := reflect.ValueOf(name)
		old[name] = symbols.MapIndex(key)
		symbols.SetMapIndex(key, reflect.Value{})
	}
	return func() {
		for _, name := range names {
			symbols.SetMapIndex(reflect.ValueOf(name), old[name])
		}
	}
}

// symbolTable is the interpreter's map of the names that cells have declared; not valid before the first.
func (k *kernel) symbolTable() reflect.Value {
	scopes := private(reflect.ValueOf(k.interpreter.Interpreter).Elem().FieldByName("scopes"))
	scope := scopes.MapIndex(reflect.ValueOf("main"))
	if !scope.IsValid() {
		return reflect.Value{}
	}
	return private(scope.Elem().FieldByName("sym"))
}

// symbolsNow is a copy of what is declared.
func (k *kernel) symbolsNow() map[string]reflect.Value {
	now := map[string]reflect.Value{}
	for each := k.symbolTable().MapRange(); each.Next(); {
		now[each.Key().String()] = each.Value()
	}
	return now
}

// restoreSymbols takes back what code that then was refused has declared.
func (k *kernel) restoreSymbols(before map[string]reflect.Value) {
	symbols := k.symbolTable()
	for _, key := range symbols.MapKeys() {
		if _, there := before[key.String()]; !there {
			symbols.SetMapIndex(key, reflect.Value{})
		}
	}
	for name, symbol := range before {
		symbols.SetMapIndex(reflect.ValueOf(name), symbol)
	}
}

// private is a field that another package keeps to itself, to be read and changed.
func private(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}

func (k *kernel) run(program *interp.Program) error {
	// A `defer` at the top of a cell is run at its end, and would be again with each later one.
	defer func() {
		deferred := private(reflect.ValueOf(k.interpreter.Interpreter).Elem().FieldByName("frame")).Elem().FieldByName("deferred")
		private(deferred).SetZero()
	}()
	_, err := k.interpreter.Execute(program)
	return err
}

// --- What programs call -----------------------------------------------------------------------------------------------------

func (k *kernel) now() *cell {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running
}

var never = make(chan struct{})

// stopped is closed when the running cell is to stop.
func (k *kernel) stopped() <-chan struct{} {
	if c := k.now(); c != nil {
		return c.decided
	}
	return never
}

// result takes the value, or the values, of a cell's last expression.
func (k *kernel) result(values ...any) {
	c := k.now()
	if c == nil {
		return
	}
	switch {
	case len(values) == 1 && values[0] != nil:
		c.result, c.shown = values[0], true
	case len(values) > 1:
		c.result, c.shown = several(values), true
	}
}

// several is what a function with several results gave.
type several []any

func (s several) String() string {
	texts := make([]string, len(s))
	for i, value := range s {
		texts[i] = format(value)
	}
	return strings.Join(texts, ", ")
}

func (k *kernel) show(values ...any) {
	k.mu.Lock()
	id := k.lastID
	k.mu.Unlock()
	for _, value := range values {
		k.sendResult(id, false, value)
	}
}

// exit ends the cell and not the kernel. It does not return, and no deferred function of the program runs, as with the real one.
func (k *kernel) exit(code int) {
	if c := k.now(); c != nil && c.decide(outcome{status: "exited", exitCode: code & 0xff}) {
		k.output.mute()
		k.interpreter.stop()
	}
	runtime.Goexit()
}

// goroutine runs what a `go` statement starts.
func (k *kernel) goroutine(run func()) {
	c := k.now()
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		p := describePanic(value)
		p.Message += " (in a goroutine)"
		p.Traceback = strings.TrimRight(p.Traceback, "\n") + " (in a goroutine)\n" + traceback(k.output.takeFrames(), k.now())
		if c != nil && c == k.now() && c.decide(failed(p)) {
			return
		}
		k.mu.Lock()
		id := k.lastID
		k.mu.Unlock()
		text, _ := cut(p.Traceback)
		k.channel.send(map[string]any{"event": "late", "id": id, "stream": "stderr", "text": text + "\n"})
	}()
	run()
}

// --- Child processes --------------------------------------------------------------------------------------------------------

// children are the processes whose parent is this one.
func children() map[int]bool {
	found := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	own := fmt.Sprint(os.Getpid())
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state parent …; the name may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == own {
			found[pid] = true
		}
	}
	return found
}

// childPatience is how long a child process has to end after SIGINT.
const childPatience = 100 * time.Millisecond

// endChildren interrupts, and then kills, the processes that the cell has started: it may be waiting for them.
func (c *cell) endChildren(kill bool) {
	signal := unix.SIGINT
	if kill {
		signal = unix.SIGKILL
	}
	for pid := range children() {
		if !c.children[pid] {
			_ = unix.Kill(pid, signal)
		}
	}
}

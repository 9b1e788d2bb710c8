package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/traefik/yaegi/interp"
)

// problem is an error as the protocol has it.
type problem struct {
	Name      string `json:"name"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
	Truncated int    `json:"truncated,omitempty"`
}

func (p *problem) cut() *problem {
	var left [2]int
	short := *p
	short.Message, left[0] = cut(strings.ToValidUTF8(p.Message, "\uFFFD"))
	short.Traceback, left[1] = cut(strings.ToValidUTF8(p.Traceback, "\uFFFD"))
	short.Truncated = left[0] + left[1]
	return &short
}

// 3/cell.go:2:5 is line 2 of the third cell.
var cellPosition = regexp.MustCompile(`\b([0-9]+)/cell\.go:([0-9]+):([0-9]+)`)

// readable writes positions as a user reads them.
func readable(text string) string {
	text = strings.ReplaceAll(text, mainName, "main")
	return cellPosition.ReplaceAllString(text, "cell-$1.go:$2:$3")
}

var leadingPosition = regexp.MustCompile(`^[0-9]+/cell\.go:[0-9]+:[0-9]+: `)

func (c *cell) syntaxProblem(err error) *problem { return c.sourceProblem("SyntaxError", err) }

func (c *cell) compileProblem(err error) *problem {
	return c.sourceProblem("CompileError", c.unresolved(err))
}

// unresolved finds the name that is missing where the interpreter says "constant definition loop" of a variable whose value it cannot know.
func (c *cell) unresolved(err error) error {
	position, isLoop := strings.CutSuffix(err.Error(), ": constant definition loop")
	at := cellPosition.FindStringSubmatch(position)
	if !isLoop || at == nil {
		return err
	}
	known := c.kernel.symbolsNow()
	files := token.NewFileSet()
	parsed, parseErr := readCell(files, c.number, c.code)
	if parseErr != nil {
		return err
	}
	declared := map[string]bool{}
	for _, one := range parsed.parts {
		for _, name := range append(one.names, one.short...) {
			declared[strings.TrimSuffix(name, "/"+cellFile)] = true
		}
	}
	var found error
	for _, one := range parsed.parts {
		file, isFile := one.node.(*ast.File)
		ast.Inspect(one.node, func(node ast.Node) bool {
			// The name of the package, which no cell has written.
			if isFile && node == file.Name {
				return false
			}
			switch node := node.(type) {
			case *ast.SelectorExpr:
				if name, ok := node.X.(*ast.Ident); ok {
					found = cmp.Or(found, c.missing(files, name, known, declared, at[2]))
					return false
				}
			case *ast.FuncLit, *ast.FuncDecl, *ast.KeyValueExpr:
				return false
			case *ast.Ident:
				found = cmp.Or(found, c.missing(files, node, known, declared, at[2]))
			}
			return found == nil
		})
	}
	return cmp.Or(found, err)
}

// missing is the error for a name in a line that nothing declares.
func (c *cell) missing(files *token.FileSet, name *ast.Ident, known map[string]reflect.Value, declared map[string]bool, line string) error {
	position := files.Position(name.Pos())
	_, isKnown := known[name.Name]
	if strconv.Itoa(position.Line) != line || isKnown || declared[name.Name] || c.kernel.packages[name.Name] || types.Universe.Lookup(name.Name) != nil || name.Name == "_" {
		return nil
	}
	return fmt.Errorf("%s: undefined: %s", position, name.Name)
}

// sourceProblem shows the line that an error is about, with a mark below.
func (c *cell) sourceProblem(name string, err error) *problem {
	text := err.Error()
	message := readable(leadingPosition.ReplaceAllString(text, ""))
	message = strings.TrimPrefix(message, "expected statement, found ")
	if advice := adviceFor(message); advice != "" {
		message += " (" + advice + ")"
	}
	p := &problem{Name: name, Message: message}
	at := cellPosition.FindStringSubmatch(text)
	if at == nil || at[1] != strconv.Itoa(c.number) {
		p.Traceback = name + ": " + message
		return p
	}
	p.Traceback = fmt.Sprintf("%s: %s\n    at cell-%s.go:%s:%s\n%s", name, message, at[1], at[2], at[3], c.excerpt(at[2], at[3]))
	return p
}

// excerpt is a line of the cell's source, with a mark below the column.
func (c *cell) excerpt(line, column string) string {
	n, _ := strconv.Atoi(line)
	lines := strings.Split(c.code, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	source := lines[n-1]
	at, _ := strconv.Atoi(column)
	at = min(max(at-1, 0), len(source))
	blank := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, source[:at])
	return "    " + source + "\n    " + blank + "^"
}

var (
	notDefined   = regexp.MustCompile(`^undefined: ([a-zA-Z_][a-zA-Z0-9_]*)$`)
	notImported  = regexp.MustCompile(`^import "([^"]+)" error: unable to find source`)
	wellKnownPkg = map[string]string{"rand": "math/rand", "json": "encoding/json", "http": "net/http", "filepath": "path/filepath", "exec": "os/exec", "base64": "encoding/base64",
		"hex": "encoding/hex", "csv": "encoding/csv", "template": "text/template", "atomic": "sync/atomic", "big": "math/big", "url": "net/url", "sha256": "crypto/sha256", "md5": "crypto/md5",
		"list": "container/list", "heap": "container/heap", "utf8": "unicode/utf8", "ioutil": "io/ioutil", "debug": "runtime/debug"}
	plainPkg = " bufio bytes cmp context errors flag fmt io log maps math net os path reflect regexp runtime slices sort strconv strings sync testing time unicode "
)

func adviceFor(message string) string {
	if match := notDefined.FindStringSubmatch(message); match != nil {
		name := match[1]
		if path := wellKnownPkg[name]; path != "" {
			return fmt.Sprintf("remedy: import %q", path)
		}
		if strings.Contains(plainPkg, " "+name+" ") {
			return fmt.Sprintf("remedy: import %q", name)
		}
	}
	if match := notImported.FindStringSubmatch(message); match != nil {
		return fmt.Sprintf("remedy: it is neither of the standard library nor among the template's Go packages; add %q to packages.go of a template", match[1])
	}
	return ""
}

// panicProblem says what a program panicked with.
func (c *cell) panicProblem(err error) *problem {
	var thrown interp.Panic
	if !errors.As(err, &thrown) {
		return c.compileProblem(err)
	}
	p := describePanic(thrown.Value)
	p.Traceback += "\n" + traceback(c.kernel.output.takeFrames(), c)
	return p
}

// What reflection says where compiled Go has words of its own.
var reflected = []struct{ said, means string }{
	{"reflect: slice index out of range", "index out of range"},
	{"reflect: array index out of range", "index out of range"},
	{"reflect: string index out of range", "index out of range"},
	{"reflect.Value.Slice: slice index out of bounds", "slice bounds out of range"},
	{"reflect.Value.Slice: string slice index out of bounds", "slice bounds out of range"},
	{"reflect.Value.Slice3: slice index out of bounds", "slice bounds out of range"},
	{"on zero Value", "invalid memory address or nil pointer dereference"},
}

func describePanic(value any) *problem {
	for {
		inner, ok := value.(reflect.Value)
		if !ok || !inner.IsValid() || !inner.CanInterface() {
			break
		}
		value = inner.Interface()
	}
	runtimeError := func(message string) *problem {
		return &problem{Name: "RuntimeError", Message: message, Traceback: "panic: runtime error: " + message}
	}
	text := ""
	switch value := value.(type) {
	case runtime.Error:
		return runtimeError(strings.TrimPrefix(value.Error(), "runtime error: "))
	case *reflect.ValueError:
		return runtimeError(reflected[len(reflected)-1].means)
	case error:
		text = value.Error()
	case fmt.Stringer:
		text = value.String()
	case string:
		text = value
	default:
		text = format(value)
	}
	for _, known := range reflected {
		if strings.HasPrefix(text, "reflect") && strings.Contains(text, known.said) {
			return runtimeError(known.means)
		}
	}
	return &problem{Name: "Panic", Message: text, Traceback: "panic: " + text}
}

var frameParts = regexp.MustCompile(`^(.*):([0-9]+):([0-9]+): panic: (.*)\(\.\.\.\)$`)

// traceback writes the frames of a panic, the innermost first, as the Go runtime does.
func traceback(frames []string, c *cell) string {
	var text strings.Builder
	for _, frame := range frames {
		parts := frameParts.FindStringSubmatch(frame)
		if parts == nil {
			continue
		}
		function := readable(parts[4])
		if function == "" {
			function = "main"
		}
		at := readable(parts[1] + ":" + parts[2] + ":" + parts[3])
		fmt.Fprintf(&text, "\n%s(...)\n\t%s", function, at)
		if c != nil && strings.HasPrefix(parts[1], strconv.Itoa(c.number)+"/") {
			if lines := strings.Split(c.excerpt(parts[2], parts[3]), "\n"); len(lines) > 0 {
				fmt.Fprintf(&text, "\n\t%s", strings.TrimSpace(lines[0]))
			}
		}
	}
	return text.String()
}

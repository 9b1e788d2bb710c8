package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/traefik/yaegi/interp"
	"github.com/traefik/yaegi/stdlib"
	"github.com/traefik/yaegi/stdlib/generic"
	"github.com/traefik/yaegi/stdlib/syscall"
	"github.com/traefik/yaegi/stdlib/unrestricted"
	unsafesymbols "github.com/traefik/yaegi/stdlib/unsafe"
)

// What the kernel itself writes into cells, and the name it has there.
const (
	innerName    = "__atoll"
	innerPackage = "atoll/internal/" + innerName
)

// interpreter is yaegi's, with what it does not offer: that a cell can be stopped and all that was made before goes on working.
//
// Yaegi stops programs for good: each frame has the number of its run, and stopping counts the interpreter's up. A function value made
// before keeps the old number and would do nothing, without a word. So the number is put back once the cell has ended. In the same way
// channels: their operations also wait for a channel that yaegi closes; here each goroutine that waits is sent one value instead.
// Both are private to yaegi; its version is pinned, and newInterpreter looks whether they are what is expected.
type interpreter struct {
	*interp.Interpreter
	run  *uint64
	done chan struct{}
}

func newInterpreter(k *kernel) (*interpreter, error) {
	// Yaegi tells the standard logger of some things that it cannot do, before it panics with the same words.
	log.SetOutput(io.Discard)
	inner := interp.New(interp.Options{
		GoPath:               sourceRoot,
		SourcecodeFilesystem: k.modules,
		Stdin:                k.stdin,
		Stdout:               stream{k.output, os.Stdout},
		Stderr:               interpreterStderr{stream{k.output, os.Stderr}},
		Unrestricted:         true,
		Args:                 []string{"cell"},
	})
	useGenericPackages()
	for _, symbols := range []interp.Exports{stdlib.Symbols, unrestricted.Symbols, syscall.Symbols, unsafesymbols.Symbols, k.symbols()} {
		if err := inner.Use(symbols); err != nil {
			return nil, err
		}
	}
	i := &interpreter{Interpreter: inner, done: make(chan struct{})}
	private := reflect.ValueOf(inner).Elem()
	for name, value := range map[string]any{"done": i.done, "cancelChan": true} {
		field := private.FieldByName(name)
		if !field.IsValid() || field.Type() != reflect.TypeOf(value) {
			return nil, fmt.Errorf("the interpreter has no field %s of type %T", name, value)
		}
		reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(value))
	}
	run := private.FieldByName("id")
	if !run.IsValid() || run.Kind() != reflect.Uint64 {
		return nil, errors.New("the interpreter has no field id of type uint64")
	}
	i.run = (*uint64)(run.Addr().UnsafePointer())
	return i, nil
}

//go:embed generics/slices.go.txt
var slicesSource string

//go:embed generics/maps.go.txt
var mapsSource string

// useGenericPackages gives the interpreter packages slices and maps that it can compile: of its own it lacks all that sorts, and does not
// infer the types of what is declared as `[S ~[]E, E any]`.
func useGenericPackages() {
	for i, source := range generic.Sources {
		switch {
		case strings.Contains(source, "\npackage slices\n"):
			generic.Sources[i] = slicesSource
		case strings.Contains(source, "\npackage maps\n"):
			generic.Sources[i] = mapsSource
		}
	}
}

func clearAll(x any) {
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Map:
		v.Clear()
	case reflect.Slice:
		v.Clear()
	}
}

// stop has all that runs end at its next step, until resume.
func (i *interpreter) stop() { atomic.AddUint64(i.run, 1) }

// wake ends the wait of one goroutine for a channel, if one waits.
func (i *interpreter) wake() bool {
	select {
	case i.done <- struct{}{}:
		return true
	default:
		return false
	}
}

func (i *interpreter) resume() { atomic.StoreUint64(i.run, 0) }

// symbols are what differs from the standard library in a cell, and what cells have beyond it.
func (k *kernel) symbols() interp.Exports {
	out := k.output
	result, show := reflect.ValueOf(k.result), reflect.ValueOf(k.show)
	fprint := reflect.ValueOf(func(w io.Writer, a ...any) (int, error) { return fmt.Fprint(out.through(w), a...) })
	fprintf := reflect.ValueOf(func(w io.Writer, format string, a ...any) (int, error) {
		return fmt.Fprintf(out.through(w), format, a...)
	})
	fprintln := reflect.ValueOf(func(w io.Writer, a ...any) (int, error) { return fmt.Fprintln(out.through(w), a...) })
	// Values of a program's own types are shown by the method String that they have.
	own := []reflect.Type{reflect.TypeFor[fmt.Formatter](), reflect.TypeFor[fmt.Stringer]()}
	logger := log.New(interpreterStderr{stream{out, os.Stderr}}, "", log.LstdFlags)
	logs := map[string]reflect.Value{
		"Default": reflect.ValueOf(func() *log.Logger { return logger }),
		"Fatal":   reflect.ValueOf(func(v ...any) { logger.Print(v...); k.exit(1) }),
		"Fatalf":  reflect.ValueOf(func(format string, v ...any) { logger.Printf(format, v...); k.exit(1) }),
		"Fatalln": reflect.ValueOf(func(v ...any) { logger.Println(v...); k.exit(1) }),
	}
	for _, name := range []string{"Flags", "Output", "Panic", "Panicf", "Panicln", "Prefix", "Print", "Printf", "Println", "SetFlags", "SetOutput", "SetPrefix", "Writer"} {
		logs[name] = reflect.ValueOf(logger).MethodByName(name)
	}
	types := map[reflect.Value][]reflect.Type{result: own, show: own, fprint: own, fprintf: own, fprintln: own}
	for _, name := range []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln", "Print", "Printf", "Println"} {
		types[logs[name]] = own
	}
	return interp.Exports{
		".":                     {"MapTypes": reflect.ValueOf(types)},
		innerPackage:            {"Result": result, "Go": reflect.ValueOf(k.goroutine), "Clear": reflect.ValueOf(clearAll)},
		"atoll/display/display": displaySymbols(show),
		// The last part of these names counts only where there is no package yet.
		"fmt/atoll":          {"Fprint": fprint, "Fprintf": fprintf, "Fprintln": fprintln},
		"log/atoll":          logs,
		"os/atoll":           {"Exit": reflect.ValueOf(k.exit)},
		"runtime/atoll":      {"Goexit": reflect.ValueOf(runtime.Goexit)},
		"time/atoll":         {"Sleep": reflect.ValueOf(k.sleep)},
		"math/rand/atoll":    k.random.symbols(),
		"math/rand/v2/atoll": k.random.symbolsV2(),
	}
}

// sleep ends early where the cell is stopped.
func (k *kernel) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.stopped():
	}
}

"""State, values, declarations: what a cell is."""

import pytest


def ok(kernel, code, text=None, stdout=b""):
    cell = kernel.run(code)
    assert cell.status == "ok", cell
    assert cell.text == text, cell
    assert cell.stdout == stdout, cell
    return cell


def test_state_lives_from_cell_to_cell(kernel):
    ok(kernel, 'import "strings"\nx := 40\nvar names = []string{"a"}\nconst two = 2\ntype P struct{ X int }\nfunc (p P) Twice() int { return 2 * p.X }')
    ok(kernel, 'names = append(names, strings.ToUpper("b"))\nx + two', "42")
    ok(kernel, "P{21}.Twice()", "42")
    ok(kernel, "names", '["a" "B"]')


@pytest.mark.parametrize(
    "code, text",
    [
        ("1 + 1", "2"),
        ('"héllo 世界 🎉"', '"héllo 世界 🎉"'),
        ("3.5", "3.5"),
        ("true", "true"),
        ("[]int{1, 2}", "[1 2]"),
        ('map[string]int{"b": 2, "a": 1}', 'map["a":1 "b":2]'),
        ("map[int]string{10: `x`, 9: `y`}", 'map[9:"y" 10:"x"]'),
        ('struct{A int; B string}{1, "x"}', '{A:1 B:"x"}'),
        ('&struct{A []string}{[]string{"x"}}', '&{A:["x"]}'),
        ('import "errors"\nerrors.New("wrong")', "wrong"),
        ('import "strconv"\nstrconv.Atoi("5")', "5, <nil>"),
        ('type T struct{ a int }\nfunc (t T) String() string { return "I am T" }\nT{1}', "I am T"),
        ("func() int { return 7 }()", "7"),
        ("nil", None),
        ("x := 5", None),
        ("func nothing() {}\nnothing()", None),
        ('import "fmt"\nfmt.Sprint(1)', '"1"'),
        ("min(3, 1, 2) + max(4, 5)", "6"),
        ("// a comment", None),
        ("", None),
    ],
)
def test_the_last_expression_is_shown(kernel, code, text):
    ok(kernel, code, text)


def test_a_print_function_shows_no_count(kernel):
    ok(kernel, 'import "fmt"\nfmt.Println("hi")', None, b"hi\n")


def test_a_silent_cell_shows_nothing(kernel):
    assert kernel.run("1 + 1", silent=True).text is None


def test_everything_may_be_declared_again(kernel):
    ok(kernel, 'import "fmt"\nfunc f() int { return 1 }\ntype T struct{ A int }\nvar v int = 1\nx := 1\nconst c = 1')
    ok(kernel, 'import "fmt"\nfunc f() string { return "f" }\ntype T struct{ B string }\nvar v string = "v"\nx := "x"\nconst c = "c"')
    ok(kernel, "f() + v + x + c + T{B: `t`}.B", '"fvxct"')


def test_a_function_keeps_the_variable_that_it_was_made_with(kernel):
    ok(kernel, "x := 1\nfunc get() int { return x }")
    ok(kernel, "x = 2\nget()", "2")
    ok(kernel, "x := 3\nget()", "2")


def test_each_iteration_has_its_own_variables(kernel):
    ok(kernel, "var fs []func() int\nfor i := 0; i < 3; i++ { fs = append(fs, func() int { return i }) }\nfor _, v := range []int{7, 8} { fs = append(fs, func() int { return v }) }")
    ok(kernel, "got := []int{}\nfor _, f := range fs { got = append(got, f()) }\ngot", "[0 1 2 7 8]")
    ok(kernel, "n := 0\nfor i := 0; i < 6; i++ { i++; func() { n += i }() }\nn", "9")


def test_what_is_refused_leaves_what_was_declared(kernel):
    ok(kernel, "func f() int { return 1 }")
    assert kernel.run("func f() int { return missing }").status == "error"
    ok(kernel, "f()", "1")


def test_a_refused_statement_keeps_those_before_it_from_running(kernel):
    ok(kernel, "x := 1")
    for last in "missing()", "y := missing\ny", "func f() int { return missing }":
        assert kernel.run("x = 2\nz := 5\n" + last).status == "error"
        ok(kernel, "x", "1")
        assert kernel.run("z").error["message"] == "undefined: z"


def test_closures_and_generics_and_interfaces(kernel):
    ok(kernel, "counter := func() func() int { c := 0; return func() int { c++; return c } }()\ncounter()", "1")
    ok(kernel, "counter()", "2")
    ok(kernel, "func first[T any](xs []T) T { return xs[0] }\nfirst([]string{`a`})", '"a"')
    ok(kernel, "type Shape interface{ Area() int }\ntype Square struct{ s int }\nfunc (q Square) Area() int { return q.s * q.s }\nvar s Shape = Square{3}\ns.Area()", "9")


def test_loops_over_an_integer(kernel):
    ok(kernel, 'import "fmt"\nfor i := range 3 { fmt.Print(i) }\nfor range 2 { fmt.Print("x") }', None, b"012xx")
    ok(kernel, 'n := 2\nfor i := range n { fmt.Print(i) }\nfunc f(n int) (s int) { for i := range n { s += i }; return }\nf(4)', "6", b"01")
    ok(kernel, "sum := 0\nfor i := range len([]int{5, 6}) { if i == 0 { continue }; sum += i }\nsum", "1")


def test_an_import_may_come_after_declarations(kernel):
    ok(kernel, 'func f() string { return "f" }\nimport "strings"\nvar x = strings.ToUpper(f())\nx', '"F"')


def test_a_semicolon_in_a_header_ends_no_statement(kernel):
    ok(kernel, 'import "fmt"\nfor i := 0; i < 2; i++ {\n\tfmt.Print(i)\n}\nif x := 5; x > 3 {\n\tfmt.Print("big")\n}\nswitch y := 1; y {\ncase 1:\n\tfmt.Print("one")\n}', None, b"01bigone")


def test_goroutines_channels_and_locks(kernel):
    code = """
import ("sync"; "sync/atomic")
var wg sync.WaitGroup
var mu sync.Mutex
total, count := 0, int64(0)
for i := 0; i < 10; i++ {
	wg.Add(1)
	go func(n int) {
		defer wg.Done()
		mu.Lock()
		defer mu.Unlock()
		total += n
		atomic.AddInt64(&count, 1)
	}(i)
}
wg.Wait()
results := make(chan int)
go func() {
	for i := 0; i < 3; i++ {
		results <- i
	}
	close(results)
}()
sum := 0
for r := range results {
	sum += r
}
[]int{total, int(count), sum}"""
    ok(kernel, code, "[45 10 3]")


def test_a_go_statement_takes_its_arguments_at_once(kernel):
    code = """
type worker struct{ name string }
func (w *worker) run(out chan string, suffix string) { out <- w.name + suffix }
out := make(chan string, 3)
suffix := "1"
go (&worker{"a"}).run(out, suffix)
suffix = "2"
<-out"""
    ok(kernel, code, '"a1"')
    code = """
import "sort"
got := []string{}
for i, w := range []*worker{{"a"}, {"b"}, {"c"}} {
	go w.run(out, string(rune('0' + i)))
}
for range 3 {
	got = append(got, <-out)
}
sort.Strings(got)
got"""
    ok(kernel, code, '["a0" "b1" "c2"]')


def test_a_whole_program_runs_and_leaves_its_functions(kernel):
    ok(kernel, 'package main\n\nimport "fmt"\n\nfunc twice(n int) int { return 2 * n }\n\nfunc main() {\n\tfmt.Println(twice(21))\n}\n', None, b"42\n")
    ok(kernel, "twice(4)", "8")
    ok(kernel, 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("other") }', None, b"other\n")
    ok(kernel, "1", "1")


TWO_VALUES = [
    ('v, ok := m["no"]\nfmt.Println(v, ok)', None, b"0 false\n"),
    ('v, ok = m["b"]\nv', "3", b""),
    ('_, has := m["b"]\nhas', "true", b""),
    ("n, isInt := x.(int)\nfmt.Println(n, isInt)", None, b"3 true\n"),
    ("_, isStringer := x.(fmt.Stringer)\nisStringer", "false", b""),
    ("c, more := <-ch\nfmt.Println(c.A, more)", None, b"5 true\n"),
    ("_, more2 := <-ch\nmore2", "false", b""),
    ('if v, ok := m["b"]; ok { fmt.Println(v) }', None, b"3\n"),
    ('for _, s := range []string{"1", "x"} { n, err := strconv.Atoi(s); fmt.Println(n, err != nil) }', None, b"1 false\n0 true\n"),
    ('{ n, err := strconv.Atoi("5"); fmt.Println(n, err) }', None, b"5 <nil>\n"),
    ('switch v := x.(type) {\ncase int: fmt.Println("int", v)\ncase string: fmt.Println(v)\n}', None, b"int 3\n"),
    ('total := 0\nfor _, s := range []string{"1", "2"} { n, err := strconv.Atoi(s); if err != nil { break }; total += n }\ntotal', "3", b""),
]


def test_two_values_are_taken_at_the_top_of_a_cell_as_in_functions(kernel):
    ok(kernel, 'import ("fmt"; "strconv")\ntype T struct{ A int }\nm := map[string]int{"b": 3}\nvar x any = 3\nch := make(chan T, 1); ch <- T{5}; close(ch)')
    for code, text, printed in TWO_VALUES:
        ok(kernel, code, text, printed)


@pytest.mark.parametrize(
    "body, printed",
    [
        ('for i := 0; i < 3; i++ { defer fmt.Print("f", i, " ") }', b"f2 f1 f0 "),
        ('x := 1; defer fmt.Print("x", x); x = 2', b"x1"),
        # Once these waited for ever.
        ('f := func(s string) { fmt.Print(s) }; defer f("1"); defer func() { f("2") }()', b"21"),
        ('defer func(n int) { recover(); fmt.Print("got ", n) }(7); panic("boom")', b"got 7"),
    ],
)
def test_deferred_calls_get_what_was_there_at_the_statement(kernel, body, printed):
    ok(kernel, 'import "fmt"\nfunc f() { %s }\nf()' % body, None, printed)


def test_defer_at_the_top_of_a_cell_is_for_its_end(kernel):
    ok(kernel, 'import "fmt"\nfor i := 0; i < 3; i++ { defer fmt.Print(i) }\nfmt.Print("body ")', None, b"body 210")


@pytest.mark.parametrize(
    "code, text",
    [
        ("slices.Sort(s); s", "[1 2 3]"),
        ("slices.SortFunc(s, func(a, b int) int { return cmp.Compare(b, a) }); s", "[3 2 1]"),
        ("slices.Sort(ids); ids", "[1 2]"),
        ("slices.Max(s)", "3"),
        ("slices.Reverse(s); s", "[2 1 3]"),
        ("slices.BinarySearch([]int{1, 3}, 3)", "1, true"),
        ("slices.Equal(s, slices.Clone(s))", "true"),
        ("slices.Insert(s, 1, 9, 8)", "[3 9 8 1 2]"),
        ("slices.Delete(s, 0, 1)", "[1 2]"),
        ("slices.Compact([]int{1, 1, 2})", "[1 2]"),
        ("slices.IndexFunc(s, func(i int) bool { return i == 2 })", "2"),
        ('maps.Clone(m)', 'map["a":1]'),
        ('maps.Copy(m, map[string]int{"b": 2}); len(m)', "2"),
        ("clear(m); len(m)", "0"),
    ],
)
def test_slices_and_maps_of_the_standard_library(kernel, code, text):
    ok(kernel, 'import ("cmp"; "maps"; "slices")\nvar _ = cmp.Compare(1, 2)\ntype IDs []int\nids := IDs{2, 1}\ns := []int{3, 1, 2}\nm := map[string]int{"a": 1}')
    ok(kernel, code, text)


def test_a_main_function_without_a_package_clause_is_called_too(kernel):
    ok(kernel, 'import "fmt"\nfunc main() { fmt.Println("main") }', None, b"main\n")


PROGRAM = """package main

import "fmt"

func Map[T, U any](xs []T, f func(T) U) []U {
	var out []U
	for _, x := range xs {
		out = append(out, f(x))
	}
	return out
}

func main() {
	%s
	fmt.Println(Map([]int{1, 2}, func(i int) string { return fmt.Sprint("<", i) }))
}
"""


@pytest.fixture(scope="module")
def go_environment(tmp_path_factory):
    """What `go build` needs; its cache is kept between the tests, since it compiles the standard library."""
    import os
    import subprocess

    go = os.environ.get("GO") or "go"
    root = subprocess.run([go, "env", "GOROOT", "GOCACHE", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.split()
    return {"PATH": f"{root[0]}/bin:{os.environ['PATH']}", "GOCACHE": root[1], "GOMODCACHE": root[2], "GOTOOLCHAIN": "local"}


def test_a_program_that_the_interpreter_refuses_is_compiled(start, go_environment):
    kernel = start(env=go_environment)
    ok(kernel, "x := 5")
    cell = kernel.run(PROGRAM % "", deadline=300)
    assert (cell.status, cell.stdout) == ("ok", b"[<1 <2]\n"), cell
    ok(kernel, "x", "5")


AS_COMPILED = """package main

import (
	"errors"
	"fmt"
)

type coded struct{ code int }

func (c coded) Error() string { return fmt.Sprint("code ", c.code) }

func twice(n int) int { return 2 * n }

func main() {
	var err error = coded{7}
	var found coded
	fmt.Printf("%v %T %s", errors.As(fmt.Errorf("in: %w", err), &found), found, err)
}
"""


def test_a_whole_program_does_what_it_does_compiled_and_leaves_its_functions(start, go_environment):
    kernel = start(env=go_environment)
    cell = kernel.run(AS_COMPILED, deadline=300)
    assert (cell.status, cell.stdout) == ("ok", b"true main.coded code 7"), cell
    ok(kernel, "twice(4)", "8")


def test_a_program_may_use_all_that_the_installed_go_speaks(start, go_environment):
    cell = start(env=go_environment).run('package main\n\nimport "fmt"\n\nfunc main() {\n\tfor i := range 3 {\n\t\tfmt.Print(i, min(i, 1), " ")\n\t}\n}\n', deadline=300)
    assert (cell.status, cell.stdout) == ("ok", b"0 0 1 1 2 1 "), cell


def test_an_import_that_is_not_used_is_no_reason_not_to_run(start, go_environment):
    cell = start(env=go_environment).run('package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc main() { fmt.Print("runs") }\n', deadline=300)
    assert (cell.status, cell.stdout) == ("ok", b"runs"), cell


def test_the_compilers_error_names_the_users_line(start, go_environment):
    kernel = start(env=go_environment)
    cell = kernel.run(PROGRAM % "var unused int", deadline=300)
    assert (cell.status, cell.error["name"], cell.error["message"]) == ("error", "CompileError", "declared and not used: unused"), cell
    assert "cell-1.go:14:6" in cell.error["traceback"] and "var unused int" in cell.error["traceback"], cell


def test_a_compiled_program_panics_and_exits(start, go_environment):
    kernel = start(env=go_environment)
    cell = kernel.run(PROGRAM % 'panic("boom")', deadline=300)
    assert (cell.status, cell.error["name"]) == ("error", "Panic") and b"panic: boom" in cell.stderr, cell
    cell = kernel.run((PROGRAM % "os.Exit(3)").replace('import "fmt"', 'import ("fmt"; "os")'), deadline=300)
    assert (cell.status, cell.done["exit_code"]) == ("exited", 3), cell
    ok(kernel, "1", "1")


def test_packages_of_the_module_cache_are_imported(start, tmp_path):
    for version, answer in ("v1.9.0", "old"), ("v1.10.0", "new"):
        folder = tmp_path / f"go/pkg/mod/example.org/!big/lib@{version}"
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text("module example.org/Big/lib\n")
        (folder / "lib.go").write_text(f'package lib\n\nimport "example.org/Big/lib/inner"\n\nfunc Answer() string {{ return inner.Name + " {answer}" }}\n')
        (folder / "inner").mkdir()
        (folder / "inner/inner.go").write_text('package inner\n\nconst Name = "lib"\n')
    kernel = start()
    ok(kernel, 'import "example.org/Big/lib"\nlib.Answer()', '"lib new"')

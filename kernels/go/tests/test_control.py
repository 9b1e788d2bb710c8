"""Errors, interrupts, exits, output, display, and the protocol."""

import base64
import os

import pytest


def alive(kernel):
    cell = kernel.run("6 * 7")
    assert (cell.status, cell.text) == ("ok", "42"), cell


@pytest.mark.parametrize(
    "code, name, message, line",
    [
        ("x := 1\ny := 2\nz := x +", "SyntaxError", "", None),
        ("a := 1\nb := undefinedName", "CompileError", "undefined: undefinedName", "2"),
        ("var a = 1; b := undefinedName", "CompileError", "undefined: undefinedName", "1"),
        ('var s string = 5', "CompileError", "cannot convert 5 to string", "1"),
        ("strings.ToUpper(`x`)", "CompileError", 'undefined: strings (remedy: import "strings")', "1"),
        ("json.Marshal(1)", "CompileError", 'undefined: json (remedy: import "encoding/json")', "1"),
        ("a := []int{1}\ni := 3\na[i]", "RuntimeError", "index out of range", "3"),
        ("var m map[string]int\nm[`a`] = 1", "RuntimeError", "assignment to entry in nil map", "2"),
        ("type P struct{ X int }\nvar p *P\np.X", "RuntimeError", "invalid memory address or nil pointer dereference", "3"),
        ("z := 0\n1 / z", "RuntimeError", "integer divide by zero", "2"),
        ('panic("boom")', "Panic", "boom", "1"),
        ('import "errors"\npanic(errors.New("an error"))', "Panic", "an error", "2"),
        ("func g() {\n\tpanic(42)\n}\nfunc f() {\n\tg()\n}\nf()", "Panic", "42", "2"),
        ("var i any = 1\ni.(string)", "Panic", "", None),
        ("package other", "SyntaxError", "a cell is of package main", None),
        ('import "github.com/nobody/nothing"', "CompileError", "", "1"),
    ],
)
def test_errors_have_a_name_a_message_and_the_users_line(kernel, code, name, message, line):
    cell = kernel.run(code)
    assert cell.status == "error", cell
    if message:
        assert (cell.error["name"], cell.error["message"]) == (name, message), cell
    if line:
        assert f"cell-1.go:{line}:" in cell.error["traceback"], cell
    assert b"panic" not in cell.stderr and "__atoll" not in str(cell.error), cell
    alive(kernel)


def test_a_traceback_has_the_frames_innermost_first(kernel):
    trace = kernel.run("func g() {\n\tpanic(42)\n}\nfunc f() {\n\tg()\n}\nf()").error["traceback"]
    assert trace.index("main.g") < trace.index("main.f"), trace
    assert "panic(42)" in trace, trace


def test_a_panic_in_a_goroutine_ends_the_cell_and_not_the_state(kernel):
    kernel.run("x := 5")
    cell = kernel.run('import "time"\ngo func() { panic("far away") }()\ntime.Sleep(time.Hour)')
    assert (cell.status, cell.error["name"]) == ("error", "Panic") and "far away" in cell.error["message"], cell
    assert kernel.run("x").text == "5"


def test_a_panic_in_a_goroutine_of_an_ended_cell_is_told_late(kernel):
    kernel.run('gate := make(chan int)\ngo func() { <-gate; panic("too late") }()')
    cell = kernel.run("close(gate)")
    seen = list(cell.events)
    while not any(event["event"] == "late" for event in seen) and cell.status != "error":
        seen.append(kernel.next_event())
    # Which of the two comes first is the scheduler's.
    if cell.status == "error":
        assert "too late" in cell.error["message"], cell
    else:
        assert "too late" in seen[-1]["text"], seen
    alive(kernel)


PROGRAMS_THAT_GO_ON = {
    "a busy loop": 'fmt.Println("go"); for {}',
    "a sleep": 'fmt.Println("go"); time.Sleep(time.Hour)',
    "a receive": 'fmt.Println("go"); <-make(chan int)',
    "a send": 'fmt.Println("go"); make(chan int) <- 1',
    "an empty select": 'fmt.Println("go"); select {}',
    "a select": 'fmt.Println("go"); select { case <-make(chan int): case <-time.After(time.Hour): }',
    "a range over a channel": 'c := make(chan int); fmt.Println("go"); for v := range c { _ = v }',
    "a recursion": 'func fib(n int) int { if n < 2 { return n }; return fib(n-1) + fib(n-2) }\nfmt.Println("go"); fib(70)',
    "a loop that recovers": 'fmt.Println("go"); for { func() { defer func() { recover() }(); panic("x") }() }',
    "a wait for a goroutine": 'var wg sync.WaitGroup; wg.Add(1); go func() { defer wg.Done(); for {} }(); fmt.Println("go"); wg.Wait()',
    "a child process": 'fmt.Println("go"); exec.Command("sleep", "1000").Run()',
}


@pytest.mark.parametrize("what", PROGRAMS_THAT_GO_ON)
def test_an_interrupt_stops(kernel, what):
    kernel.run('import ("fmt"; "time"; "sync"; "os/exec")\ncount := func() func() int { n := 0; return func() int { n++; return n } }()\ncount()')
    cell = kernel.run_interrupted(PROGRAMS_THAT_GO_ON[what])
    assert (cell.status, cell.error["name"]) == ("interrupted", "Interrupted"), cell
    # What was made before goes on working: the interpreter's own way of stopping would leave a function that does nothing.
    assert kernel.run("count()").text == "2"


def test_an_interrupt_between_cells_does_nothing(kernel):
    import signal

    kernel.run("x := 1")
    kernel.process.send_signal(signal.SIGINT)
    kernel.send(op="interrupt", id="exec-1")
    assert kernel.run("x").text == "1"


def test_exit_ends_the_cell_and_not_the_state(kernel):
    kernel.run('import ("os"; "fmt"; "log")\nx := 5')
    cell = kernel.run('defer fmt.Println("deferred")\nfmt.Println("before")\nos.Exit(3)\nfmt.Println("after")')
    assert (cell.status, cell.done["exit_code"], cell.stdout) == ("exited", 3, b"before\n"), cell
    cell = kernel.run('log.SetFlags(0)\nlog.Fatal("bye")')
    assert (cell.status, cell.done["exit_code"], cell.stderr) == ("exited", 1, b"bye\n"), cell
    cell = kernel.run("go func() { os.Exit(4) }()\nselect {}")
    assert (cell.status, cell.done["exit_code"]) == ("exited", 4), cell
    assert kernel.run("x").text == "5"


def test_a_defer_at_the_top_runs_once_at_the_end_of_its_cell(kernel):
    assert kernel.run('import "fmt"\ndefer fmt.Println("deferred")\nfmt.Println("first")').stdout == b"first\ndeferred\n"
    assert kernel.run("1").stdout == b""


@pytest.mark.parametrize("code", ["var s string\n_, err := fmt.Scan(&s)\nerr", "_, err := bufio.NewReader(os.Stdin).ReadString('\\n')\nerr", "_, err := io.ReadAll(os.Stdin)\nerr"])
def test_reads_of_stdin_fail_at_once_with_a_clear_error(kernel, code):
    cell = kernel.run('import ("fmt"; "bufio"; "os"; "io")\n' + code)
    assert "no stdin is connected to this execution" in cell.text, cell


def test_output_is_bytes(kernel):
    cell = kernel.run('import ("os"; "fmt")\nos.Stdout.Write([]byte{0, 255, 254, 10})\nfmt.Print("é\\x00\\xff")')
    assert cell.stdout == b"\x00\xff\xfe\n\xc3\xa9\x00\xff", cell


def test_large_output_is_whole(kernel):
    cell = kernel.run('import ("fmt"; "strings")\nline := strings.Repeat("x", 1000)\nfor i := 0; i < 20000; i++ { fmt.Println(line) }', deadline=120)
    assert len(cell.stdout) == 20_000 * 1001, len(cell.stdout)


def test_a_large_value_is_cut_and_says_so(kernel):
    cell = kernel.run('import "strings"\nstrings.Repeat("é", 1 << 20)', deadline=120)
    result = next(event for event in cell.events if event["event"] == "result")
    assert len(result["data"]["text/plain"].encode()) <= 1 << 20 and result["truncated"] > 1 << 20


def test_the_order_of_the_two_streams_is_kept(kernel):
    cell = kernel.run('import ("fmt"; "os"; "log")\nlog.SetFlags(0)\nfor i := 0; i < 5; i++ { fmt.Println("o", i); fmt.Fprintln(os.Stderr, "e", i); log.Println("l", i) }')
    joined = []
    for stream, data in cell.chunks:
        if joined and joined[-1][0] == stream:
            joined[-1] = (stream, joined[-1][1] + data)
        else:
            joined.append((stream, data))
    assert joined == [pair for i in range(5) for pair in (("stdout", f"o {i}\n".encode()), ("stderr", f"e {i}\nl {i}\n".encode()))]


def test_rich_values(kernel):
    cell = kernel.run('import "atoll/display"\ndisplay.Show(display.HTML("<b>x</b>"), display.Markdown("# y"))\ndisplay.JSON(map[string]any{"a": []int{1, 2}})')
    assert [event["data"] for event in cell.events] == [
        {"text/html": "<b>x</b>", "text/plain": "<text/html>"},
        {"text/markdown": "# y", "text/plain": "<text/markdown>"},
        {"application/json": {"a": [1, 2]}, "text/plain": "<application/json>"},
    ]
    assert [event["main"] for event in cell.events] == [False, False, True]


def test_pictures(kernel):
    cell = kernel.run('import ("image"; "image/color")\npicture := image.NewRGBA(image.Rect(0, 0, 2, 2))\npicture.Set(0, 0, color.Black)\npicture')
    assert base64.b64decode(cell.events[0]["data"]["image/png"]).startswith(b"\x89PNG")
    cell = kernel.run("display.PNG([]byte{1, 2, 3})")
    assert base64.b64decode(cell.events[0]["data"]["image/png"]) == b"\x01\x02\x03"


def test_the_environment_of_a_cell_is_put_back(kernel):
    code = 'import "os"\nos.Getenv("A") + "," + os.Getenv("B")'
    kernel.send(op="configure", id="identity-1", env={"A": "1"})
    assert kernel.next_event() == {"event": "configured", "id": "identity-1"}
    assert kernel.run(code, env={"A": "2", "B": "3"}).text == '"2,3"'
    assert kernel.run(code).text == '"1,"'
    kernel.send(op="configure", id="identity-2", unset=["A"], cwd="/nowhere")
    configured = kernel.next_event()
    assert configured["id"] == "identity-2" and "/nowhere" in configured["error"]["message"]
    assert kernel.run(code).text == '","'


def test_random_numbers_follow_a_seed_of_the_program_and_a_new_identity_ends_it(kernel):
    code = 'import ("math/rand"; randv2 "math/rand/v2"; "fmt")\nfmt.Sprint(rand.Intn(1 << 30), rand.Float64(), randv2.Uint64())'
    seeded = "rand.Seed(1)\nrand.Int63()"
    kernel.run(code)
    assert kernel.run(seeded).text == kernel.run(seeded).text
    kernel.run("rand.Seed(1)")
    kernel.send(op="configure", id="identity-1", seed="0" * 64)
    kernel.next_event()
    assert kernel.run("rand.Int63()").text != kernel.run(seeded).text


def test_a_program_cannot_confuse_the_protocol(kernel):
    cell = kernel.run('import ("os"; "syscall"; "fmt")\nfor fd := 3; fd < 100; fd++ { syscall.Write(fd, []byte("{}\\n")); syscall.Close(fd) }\nfmt.Println("still here")')
    assert cell.stdout == b"still here\n", cell
    alive(kernel)


def test_child_processes_inherit_no_descriptor_of_the_kernel(kernel):
    cell = kernel.run('import ("os"; "os/exec")\nc := exec.Command("ls", "/proc/self/fd")\nc.Stdout = os.Stdout\nc.Run()')
    # `ls` opens the folder itself. The kernel's own lie above 200, where the test's own may lie too.
    assert [fd for fd in sorted(map(int, cell.stdout.split())) if fd < 200] == [0, 1, 2, 3], cell
    own = {fd for fd in map(int, os.listdir(f"/proc/{kernel.pid}/fd")) if 200 <= fd <= 205}
    assert own and own.isdisjoint(map(int, cell.stdout.split())), cell


def test_the_kernel_ends_with_its_commands(kernel):
    os.close(kernel.commands)
    kernel.commands = os.open(os.devnull, os.O_WRONLY)
    assert kernel.process.wait(60) == 0


def test_an_idle_kernel_is_small(kernel):
    kernel.run("1")
    assert kernel.resident() < 64 << 20

"""Every language against every promise: one sandbox per row, one test per cell of the table. A cell that is left out names its reason."""

import pytest

from inside import Box, await_that

# The rows: what a person calls it -> template and language.
ROWS = {
    "Python": ("python", "python"),
    "TypeScript on Bun": ("typescript-bun", "typescript"),
    "TypeScript on Node": ("typescript-node", "typescript"),
    "TypeScript on Deno": ("deno", "typescript"),
    "Go": ("go", "go"),
    "Bash": ("typescript-bun", "bash"),
}

COLUMNS = ["state", "last value", "error", "interrupt", "timeout", "stdin", "unicode", "big output", "rich result", "import"]


class Missing:
    """A cell of the table with nothing to test, and why."""

    def __init__(self, why):
        self.why = why


# --- What a cell must do. Each takes a Sandbox of one row. -------------------------------------------------------------------------


class Sandbox:
    def __init__(self, box, language):
        self.box, self.language = box, language

    def run(self, code, **fields):
        return self.box.client.exec(code, language=self.language, sandbox_id=self.box.id, timeout_seconds=fields.pop("timeout_seconds", 60), **fields)


def prints(*cells):
    """Cells one after the other in one context, each (code, its whole output)."""

    def check(sandbox):
        for code, output in cells:
            answer = sandbox.run(code)
            assert (answer["exit_reason"], answer["error"], answer["output"]) == ("completed", None, output), answer

    return check


def fails(code, name, message, line, afterwards):
    """An error with its name, a part of its message, and the user's line in what a person sees; the context goes on."""

    def check(sandbox):
        answer = sandbox.run(code)
        assert answer["exit_reason"] == "error", answer
        assert name in answer["error"]["name"] and message in answer["error"]["message"], answer
        assert line in answer["error"]["traceback"], answer
        prints(afterwards)(sandbox)

    return check


def ends_with_exit_code(code, exit_code, stderr, afterwards):
    def check(sandbox):
        answer = sandbox.run(code)
        assert (answer["exit_code"], stderr in answer["stderr"]) == (exit_code, True), answer
        prints(afterwards)(sandbox)

    return check


def stops(before, endless, afterwards):
    """`endless` prints "going" and goes on for ever; the API's interrupt ends it, and what `before` made is still there."""

    def check(sandbox):
        box = sandbox.box
        made = box.call("POST", "/contexts", {"language": sandbox.language})
        run = lambda code, **fields: box.call("POST", f"/contexts/{made['context_id']}/executions", {"code": code, **fields})  # noqa: E731
        run(before)
        started = run(endless, background=True, timeout_seconds=600)
        await_that(lambda: b"going" in box.client.call("GET", f"/v1/executions/{started['execution_id']}/output?stream=stdout"), "its output")
        box.call("POST", f"/contexts/{made['context_id']}:interrupt")
        done = await_that(
            lambda: (now := box.client.call("GET", f"/v1/executions/{started['execution_id']}"))["state"] not in ("queued", "running") and now, "the end"
        )
        assert done["exit_reason"] in ("interrupted", "error") and done["state_kept"] is True, done
        assert run(afterwards[0])["output"] == afterwards[1]

    return check


def times_out(endless, before, afterwards):
    """The time limit ends a busy program, what it printed is there, and so is the state."""

    def check(sandbox):
        sandbox.run(before)
        answer = sandbox.run(endless, timeout_seconds=2)
        assert answer["exit_reason"] == "timeout" and "going" in answer["stdout"] and answer["state_kept"] is True, answer
        prints(afterwards)(sandbox)

    return check


def has_no_stdin(code, said):
    """A read of stdin fails, or ends, at once, and says so."""

    def check(sandbox):
        answer = sandbox.run(code)
        assert answer["exit_reason"] in ("completed", "error") and said in (answer["output"] + str(answer["error"])), answer

    return check


def shows(code, mime, content):
    def check(sandbox):
        answer = sandbox.run(code)
        assert any(result["data"].get(mime) == content for result in answer["results"]), answer

    return check


BIG = 3_000_000


def prints_much(code):
    """All bytes are counted and kept; the answer may hold fewer of them."""

    def check(sandbox):
        answer = sandbox.run(code, timeout_seconds=120)
        assert (answer["exit_reason"], answer["stdout_bytes"]) == ("completed", BIG), {name: answer[name] for name in ("exit_reason", "stdout_bytes", "error", "detail")}
        whole = sandbox.box.client.call("GET", f"/v1/executions/{answer['execution_id']}/output?stream=stdout")
        assert len(whole) == BIG and set(whole) == {ord("x")}, len(whole)

    return check


TEXT = "héllo, 世界 🎉"

typescript = {
    "state": prints(("let x: number = 40\nfunction add(a: number) { return a + x }", ""), ("console.log(add(2))", "42"), ("x = 1; add(2)", "3")),
    "last value": prints(("const a: number[] = [1, 2]\na.length * 21", "42"), ("undefined", "")),
    "error": fails("const a = 1\nfunction f() {\n  throw new TypeError('boom')\n}\nf()", "TypeError", "boom", ":3:", ("a", "1")),
    "interrupt": stops("let kept = 1", "console.log('going'); for (;;) {}", ("console.log(kept)", "1")),
    "timeout": times_out("console.log('going'); for (;;) {}", "let still = 5", ("console.log(still)", "5")),
    "unicode": prints((f"const 名 = '{TEXT}'\nconsole.log(名)", TEXT)),
    "big output": prints_much(f"const line = 'x'.repeat(1000); for (let i = 0; i < {BIG // 1000}; i++) process.stdout.write(line)"),
    "rich result": shows("display({ 'text/html': '<b>x</b>' }, { raw: true })", "text/html", "<b>x</b>"),
}
bun_import = prints(("import { z } from 'zod'\nimport { chunk } from 'lodash-es'\nconsole.log(z.number().parse(4), chunk([1, 2, 3], 2).length)", "4 2"))
node_import = prints(("import { z } from 'zod'\nimport { format } from 'date-fns'\nimport os from 'node:os'\nconsole.log(z.number().parse(4), format(new Date(2026, 0, 2), 'yyyy'), typeof os.cpus)", "4 2026 function"))
deno_import = prints(("import { join } from 'node:path'\nconsole.log(join('a', 'b'), typeof Deno.version.deno)", "a/b string"))
js_stdin = has_no_stdin("for await (const chunk of process.stdin) console.log('got', chunk)", "stdin")

TABLE = {
    "Python": {
        "state": prints(("x = 40\ndef add(a): return a + x", ""), ("print(add(2))", "42"), ("x = 1\nadd(2)", "3")),
        "last value": prints(("a = [1, 2]\nlen(a) * 21", "42"), ("None", "")),
        "error": fails("a = 1\ndef f():\n    raise ValueError('boom')\nf()", "ValueError", "boom", "raise ValueError('boom')", ("a", "1")),
        "interrupt": stops("kept = 1", "print('going')\nwhile True: pass", ("print(kept)", "1")),
        "timeout": times_out("print('going')\nwhile True: pass", "still = 5", ("print(still)", "5")),
        "stdin": has_no_stdin("input()", "stdin"),
        "unicode": prints((f"名 = '{TEXT}'\nprint(名)", TEXT)),
        "big output": prints_much(f"import sys\nfor _ in range({BIG // 1000}): sys.stdout.write('x' * 1000)"),
        "rich result": shows("class Bold:\n    def _repr_html_(self): return '<b>x</b>'\nBold()", "text/html", "<b>x</b>"),
        "import": prints(("import requests, pydantic\nfrom bs4 import BeautifulSoup\nBeautifulSoup('<p>a</p>', 'html.parser').p.text", "'a'")),
    },
    "TypeScript on Bun": {**typescript, "stdin": js_stdin, "import": bun_import},
    "TypeScript on Node": {**typescript, "stdin": js_stdin, "import": node_import},
    "TypeScript on Deno": {**typescript, "stdin": js_stdin, "import": deno_import},
    "Go": {
        "state": prints(('import "fmt"\nx := 40\nfunc add(a int) int { return a + x }', ""), ("fmt.Println(add(2))", "42"), ("x = 1\nadd(2)", "3")),
        "last value": prints(("a := []int{1, 2}\nlen(a) * 21", "42"), ("nil", "")),
        "error": fails('a := 1\nfunc f() {\n\tpanic("boom")\n}\nf()', "Panic", "boom", ":3:", ("a", "1")),
        "interrupt": stops('import "fmt"\nkept := 1', 'fmt.Println("going"); for {}', ("fmt.Println(kept)", "1")),
        "timeout": times_out('fmt.Println("going"); for {}', 'import "fmt"\nstill := 5', ("fmt.Println(still)", "5")),
        "stdin": has_no_stdin('import "fmt"\nvar s string\n_, err := fmt.Scan(&s)\nerr', "no stdin is connected"),
        "unicode": prints((f'import "fmt"\n名 := "{TEXT}"\nfmt.Println(名)', TEXT)),
        "big output": prints_much(f'import ("fmt"; "strings")\nline := strings.Repeat("x", 1000)\nfor i := 0; i < {BIG // 1000}; i++ {{ fmt.Print(line) }}'),
        "rich result": shows('import "atoll/display"\ndisplay.HTML("<b>x</b>")', "text/html", "<b>x</b>"),
        "import": prints(('import ("encoding/json"; "strings"; "fmt")\ntext, _ := json.Marshal(map[string]int{"a": 1})\nfmt.Println(strings.ToUpper(string(text)))', '{"A":1}')),
    },
    "Bash": {
        "state": prints(("x=40; add() { echo $(($1 + x)); }; cd /tmp", ""), ("add 2; pwd", "42\n/tmp")),
        "last value": Missing("A shell has no values, only output."),
        "error": ends_with_exit_code("echo before; ls /nowhere", 2, "/nowhere", ("echo on", "on")),
        "interrupt": stops("kept=1", "echo going; while :; do :; done", ("echo $kept", "1")),
        "timeout": times_out("echo going; while :; do :; done", "still=5", ("echo $still", "5")),
        "stdin": has_no_stdin("read line || echo 'end of stdin'", "end of stdin"),
        "unicode": prints((f"name='{TEXT}'; echo \"$name\"", TEXT)),
        "big output": prints_much(f"head -c {BIG} /dev/zero | tr '\\0' x"),
        "rich result": Missing("A shell has output alone: bytes, of no other type than text."),
        "import": prints(("echo 'greet() { echo hi $1; }' >/tmp/lib.sh; source /tmp/lib.sh; greet you", "hi you")),
    },
}


def test_the_table_has_no_empty_cell():
    assert set(TABLE) == set(ROWS)
    for row, cells in TABLE.items():
        assert list(COLUMNS) == [column for column in COLUMNS if column in cells], row
        for column, cell in cells.items():
            assert column in COLUMNS and (not isinstance(cell, Missing) or len(cell.why) > 10), (row, column)


@pytest.fixture(scope="module")
def rows(atoll):
    """Sandboxes by row, made when first asked for: rows("Go") -> Sandbox."""
    client, made = atoll.client(timeout=600), {}

    def get(row):
        if row not in made:
            template, language = ROWS[row]
            # The first one of a template may have to wait for its image.
            answer = client.call("POST", "/v1/sandboxes", {"template": template})
            made[row] = Sandbox(Box(client, answer["sandbox_id"]), language)
        return made[row]

    yield get
    for sandbox in made.values():
        client.delete(sandbox.box.id)
    client.close()


# Rows whose image takes minutes to build where nothing has asked for it yet; the others are there from the beginning.
BUILT_ON_FIRST_USE = {"TypeScript on Node", "TypeScript on Deno", "Go"}


def cells_of_the_table():
    for row in ROWS:
        for column in COLUMNS:
            if not isinstance(TABLE[row].get(column), Missing):
                yield pytest.param(row, column, marks=[pytest.mark.long] if row in BUILT_ON_FIRST_USE else [])


@pytest.mark.parametrize("row, column", cells_of_the_table())
def test_language(rows, row, column):
    TABLE[row][column](rows(row))

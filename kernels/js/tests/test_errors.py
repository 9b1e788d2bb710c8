"""Errors as a person sees them."""

import re

import pytest


def failure(kernel, code):
    execution = kernel.run(code)
    assert execution.status == "error", execution
    traceback = execution.error["traceback"]
    assert "kernel.js" not in traceback and "__atoll" not in traceback and "atoll:" not in traceback, traceback
    return execution.error


def place(error):
    """(line, column) of the innermost frame in a cell."""
    return tuple(int(n) for n in re.search(r"at .*?cell-\d+\.ts:(\d+):(\d+)", error["traceback"]).groups())


def test_name_message_line_and_source(shared):
    error = failure(shared, "const a = 1\n\nfunction boom() {\n  throw new RangeError('too far')\n}\nboom()")
    assert (error["name"], error["message"]) == ("RangeError", "too far")
    assert place(error)[0] == 4
    assert "  throw new RangeError('too far')\n" in error["traceback"]
    assert re.search(r"at boom \(cell-\d+\.ts:4:\d+\)\n    at cell-\d+\.ts:6:\d+$", error["traceback"])


@pytest.mark.parametrize(
    "code, line, marked",
    [
        ("  missing1", 1, "missing1"),
        ("let a9: Map<string, number> = new Map<string, number>(); missing1", 1, "missing1"),
        ("for (const x of [1]) { missing1 }", 1, "missing1"),
        ("await 1; missing1", 1, "missing1"),
        ("await 1\n\n  missing1", 3, "missing1"),
        ("await 1; const { a8 } = { a8: 1 }, { b8 } = { b8: 2 }; missing1", 1, "missing1"),
        ("while (true) { while (true) { missing1 } }", 1, "missing1"),
        ("class K9 { constructor(private a: number) { missing1 } }\nnew K9(1)", 1, "missing1"),
        ("enum Z9 { A, B }\nmissing1", 2, "missing1"),
        ("const f9 = (x: any): any => x as any; f9(missing1)", 1, "missing1"),
    ],
)
def test_columns_are_those_of_the_cell_as_written(shared, code, line, marked):
    error = failure(shared, code)
    found_line, column = place(error)
    source = code.split("\n")[line - 1]
    start = source.index(marked) + 1
    assert found_line == line
    assert start <= column <= start + len(marked), error["traceback"]


def test_a_syntax_error_shows_line_caret_and_source(shared):
    error = failure(shared, "const ok = 1\nconst bad = ;\n")
    assert error["name"] == "SyntaxError"
    assert re.match(r"cell-\d+\.ts:2\nconst bad = ;\n            \^\nSyntaxError: ", error["traceback"]), error["traceback"]


@pytest.mark.parametrize("code", ["foo(", "let a = 1; let a = 2", "}", "'open", "`open", "class {", "await = ", "1 +* 2", "if (", "\u2028(", "\x00", "a b c", "break", "function f( { }"])
def test_broken_code_is_a_syntax_error_and_nothing_of_it_runs(shared, code):
    execution = shared.run(f"print('ran'); {code}")
    assert execution.status == "error" and execution.error["name"] == "SyntaxError", execution
    assert execution.stdout == b""


def test_errors_of_json_and_eval_are_the_programs_own(shared):
    assert failure(shared, "JSON.parse('{')")["name"] == "SyntaxError"
    assert failure(shared, "eval('1 +')")["name"] == "SyntaxError"


@pytest.mark.parametrize("thrown, message", [("'text'", "'text'"), ("42", "42"), ("null", "null"), ("undefined", "undefined"), ("{ a: 1 }", "{ a: 1 }"), ("Symbol('s')", "Symbol(s)")])
def test_anything_can_be_thrown(shared, thrown, message):
    error = failure(shared, f"throw {thrown}")
    assert (error["name"], error["message"]) == ("Uncaught", message)


def test_cause_and_aggregate_errors(shared):
    error = failure(shared, "throw new Error('outer', { cause: new TypeError('inner', { cause: 'root' }) })")
    assert "cause: TypeError: inner" in error["traceback"] and "cause: 'root'" in error["traceback"]
    error = failure(shared, "await Promise.any([Promise.reject(new Error('one')), Promise.reject(new Error('two'))])")
    assert error["name"] == "AggregateError"
    assert "errors[0]: Error: one" in error["traceback"] and "errors[1]: Error: two" in error["traceback"]


@pytest.mark.parametrize(
    "code",
    [
        "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); throw e",
        "const e = new Error('x'); Object.defineProperty(e, 'message', { get() { throw 1 } }); throw e",
        "const e = new Error('x'); Object.defineProperty(e, 'name', { get() { throw 1 } }); throw e",
        "const e = new Error('x'); Object.defineProperty(e, 'cause', { get() { throw 1 } }); throw e",
        "const e = new Error('x'); e.cause = e; throw e",
        "throw new Proxy({}, { get() { throw new Error('trap') }, has() { throw 1 }, getPrototypeOf() { throw 1 }, ownKeys() { throw 1 } })",
        "throw { [Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('custom') } }",
        "const e = new Error('x'); e.stack = 5; throw e",
        "const e = new Error('x'); e.name = {}; e.message = Symbol('m'); throw e",
        "class E extends Error { get name() { return 'Own' } }; throw new E('own')",
        "throw Object.freeze(new Error('frozen'))",
        "function deep() { deep() }\ndeep()",
    ],
)
def test_hostile_errors_are_reported_and_the_kernel_lives(shared, code):
    error = failure(shared, f"{{ {code} }}" if code.startswith("const") else code)
    assert isinstance(error["name"], str) and isinstance(error["message"], str)
    assert shared.run("1").text == "1"


def test_values_that_cannot_be_shown(shared):
    execution = shared.run("({ [Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('no') } })")
    assert execution.status == "ok" and "cannot be shown" in execution.text
    assert shared.run("new Proxy({}, { get() { throw 1 }, ownKeys() { throw 1 } })").status == "ok"
    assert shared.run("print({ get a() { throw new Error('no') } }); print(Object.create(null))").status == "ok"


def test_a_printed_error_has_no_frames_of_the_kernel(shared):
    text = shared.run("console.error(new Error('printed'))").stderr.decode()
    assert text.startswith("Error: printed\n    at cell-") and "kernel.js" not in text and "atoll:" not in text


def test_a_failed_import_names_package_and_place(shared):
    error = failure(shared, "const a = 1\nimport x from 'not-there'")
    assert "not-there" in error["message"] and place(error) == (2, 1)
    error = failure(shared, "import { nope } from 'fs'; nope()")
    assert error["name"] == "SyntaxError" and "'nope'" in error["message"]
    assert "not-there" in failure(shared, "require('not-there')")["message"]


def test_a_rejection_nobody_handles_is_the_cells_error(shared):
    assert failure(shared, "Promise.reject(new TypeError('lost')); 1")["message"] == "lost"
    assert failure(shared, "async function main() { await require('timers/promises').setTimeout(5); throw new Error('main') }\nmain()")["message"] == "main"
    assert failure(shared, "Promise.reject(new Error('while')); await require('timers/promises').setTimeout(10_000)")["message"] == "while"


def test_an_exception_in_a_callback_ends_the_awaiting_cell(shared):
    assert failure(shared, "setTimeout(() => { throw new Error('callback') }, 5); await require('timers/promises').setTimeout(10_000)")["message"] == "callback"
    assert failure(shared, "process.nextTick(() => { throw new Error('tick') }); await require('timers/promises').setTimeout(10_000)")["message"] == "tick"


def test_an_exception_in_a_callback_of_an_ended_cell_is_its_late_stderr(kernel):
    first = kernel.run("setTimeout(() => { throw new Error('after the end') }, 20)")
    event = kernel.next_event()
    assert (event["event"], event["id"], event["stream"]) == ("late", first.id, "stderr")
    assert re.search(r"Error: after the end\n    at (?:Timeout\._onTimeout \()?cell-1\.ts:1:", event["text"]), event
    first = kernel.run("setTimeout(() => Promise.reject(new Error('other')), 20)")
    second = kernel.run("await require('timers/promises').setTimeout(100); 'fine'")
    assert second.text == "'fine'"
    assert [event["id"] for event in second.events if event["event"] == "late"] == [first.id]


def test_a_huge_message_is_shortened_and_says_so(shared):
    error = failure(shared, "throw new Error('m'.repeat(30_000_000))")
    assert len(error["message"]) == 1 << 20 and error["truncated"] > 50_000_000

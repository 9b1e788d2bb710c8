"""What a program prints: every way to print, the order of the two streams, bytes, memory, late output."""

import os
import re
import select

import pytest


@pytest.mark.parametrize(
    "code, stdout, stderr",
    [
        ("print('a', 1, [2], {b: 'c'})", "a 1 [ 2 ] { b: 'c' }\n", ""),
        ("print()", "\n", ""),
        ("print('%s is %d', 'x', 5)", "x is 5\n", ""),
        ("console.log('l'); console.info('i'); console.debug('d')", "l\ni\nd\n", ""),
        ("console.error('e'); console.warn('w')", "", "e\nw\n"),
        ("process.stdout.write('no newline'); 0", "no newline", ""),
        ("process.stderr.write('err'); 0", "", "err"),
        ("process.stdout.end('ended'); print('on')", "endedon\n", ""),
        ("require('fs').writeSync(1, 'sync\\n'); 0", "sync\n", ""),
        ("import { writeSync } from 'fs'; writeSync(2, Buffer.from('abcd'), 1, 2); 0", "", "bc"),
        ("require('fs').writeFileSync('/dev/stdout', 'file'); 0", "file", ""),
        ("console.write('a', 'b'); 0", "ab", ""),
        ("import fs, { write } from 'fs'; await new Promise(done => write(1, 'later\\n', done)); fs.appendFileSync('/dev/stderr', 'appended')", "later\n", "appended"),
        ("console.group('g'); print('in\\nside'); console.groupEnd(); print('out')", "g\n  in\n  side\nout\n", ""),
        ("console.assert(true, 'no'); console.assert(false, 'yes')", "", "Assertion failed: yes\n"),
        ("console.count(); console.count('k'); console.count(); console.countReset(); console.count()", "default: 1\nk: 1\ndefault: 2\ndefault: 1\n", ""),
        ("console.dir({ a: { b: { c: {} } } }, { depth: 0 })", "{ a: [Object] }\n", ""),
        ("const { log } = console; log('taken'); [1].forEach(print)", "taken\n1 0 [ 1 ]\n", ""),
        ("print('\\ud83d\\ude00 \\ud800')", "\U0001f600 \ufffd\n", ""),
        ("new console.Console(process.stdout).log('own')", "own\n", ""),
    ],
)
def test_a_way_to_print(shared, code, stdout, stderr):
    execution = shared.run(code)
    assert execution.status == "ok", execution
    assert (execution.stdout.decode(), execution.stderr.decode()) == (stdout, stderr)


@pytest.mark.only("bun")
def test_a_way_to_print_of_bun(shared):
    execution = shared.run("await Bun.write(Bun.stdout, 'bun'); await Bun.write(Bun.stderr, new Blob(['err'])); 0")
    assert (execution.stdout, execution.stderr) == (b"bun", b"err")


@pytest.mark.only("deno")
def test_the_ways_to_print_of_deno(shared):
    bytes_of = "new TextEncoder().encode"
    execution = shared.run(f"Deno.stdout.writeSync({bytes_of}('a')); await Deno.stderr.write({bytes_of}('b')); const w = Deno.stdout.writable.getWriter(); await w.write({bytes_of}('c')); w.releaseLock(); Deno.stdout.close(); print('d')")
    assert execution.status == "ok", execution
    assert (execution.stdout, execution.stderr) == (b"acd\n", b"b")


def test_table_time_and_trace(shared):
    assert re.search("│ 0 +│ 1 │", shared.run("console.table([{ a: 1 }])").stdout.decode())
    assert shared.run("console.time('t'); console.timeEnd('t')").stdout.startswith(b"t: ")
    trace = shared.run("function here() { console.trace('why') }\nhere()").stderr.decode()
    assert trace.startswith("Trace: why\n    at here (cell-") and "kernel.js" not in trace


def test_the_order_of_stdout_and_stderr_is_kept(shared):
    execution = shared.run("for (let i = 0; i < 50; i++) { console.log('o' + i); console.error('e' + i) }")
    together = b"".join(data for _, data in execution.chunks).decode().split()
    assert together == [kind + str(i) for i in range(50) for kind in "oe"]


def test_output_arrives_while_a_busy_loop_runs(shared):
    execution = shared.begin("print('before'); const until = Date.now() + 600; while (Date.now() < until); print('after')")
    shared.wait_for_output(b"before\n")
    assert not select.select([shared.events], [], [], 0)[0] and b"after" not in execution.stdout
    assert shared.finish(execution).stdout == b"before\nafter\n"


def test_bytes_pass_unchanged(shared):
    execution = shared.run("process.stdout.write(Buffer.from([0, 255, 128, 10, 195])); process.stdout.write(Buffer.from([169])); 0")
    assert execution.stdout == b"\x00\xff\x80\n\xc3\xa9"


def test_a_hundred_megabytes_of_output_leave_memory_flat(kernel):
    kernel.run("print('warm')")
    before = kernel.resident()
    execution = kernel.begin("const row = 'x'.repeat(99_999); for (let i = 0; i < 1000; i++) print(row)")
    total = 0
    while True:
        readable = select.select([kernel.out, kernel.events], [], [], 20)[0]
        assert readable, "the kernel stands still"
        if kernel.out in readable:
            total += len(os.read(kernel.out, 1 << 20))
        elif kernel.events in readable:
            break
    kernel.finish(execution)
    assert total + len(execution.stdout) == 100_000_000
    assert kernel.resident() - before < 40_000_000


def test_one_line_of_fifty_megabytes(kernel):
    execution = kernel.run("process.stdout.write('y'.repeat(50_000_000)); 0")
    assert len(execution.stdout) == 50_000_000 and set(execution.stdout) == {ord("y")}


def test_a_timer_of_an_earlier_cell_prints_as_late_output_of_that_cell(kernel):
    first = kernel.run("let ticks = 0; const timer = setInterval(() => { ticks++; print('tick') }, 10)")
    second = kernel.run("const seen = ticks; while (ticks < seen + 3) await require('timers/promises').setTimeout(5); print('mine'); true")
    assert second.text == "true"
    assert second.stdout == b"mine\n"
    late = [event for event in second.events if event["event"] == "late"]
    assert len(late) > 2
    assert late[0] == {"event": "late", "id": first.id, "stream": "stdout", "text": "tick\n"}
    between = kernel.next_event()
    assert between["event"] == "late" and between["id"] == first.id
    kernel.run("clearInterval(timer)")


def test_a_callback_calls_a_function_of_a_newer_cell(kernel):
    first = kernel.run("function hook() { return 'old' }\nsetTimeout(() => console.error(hook()), 50)")
    second = kernel.run("function hook() { return 'new' }\nawait require('timers/promises').setTimeout(150)")
    assert [(event["id"], event["stream"], event["text"]) for event in second.events] == [(first.id, "stderr", "new\n")]


@pytest.mark.versions
def test_child_processes_print_into_the_pipes_and_inherit_nothing_else(kernel):
    code = "require('child_process').spawnSync('sh', ['-c', 'echo child; ls -l /proc/self/fd'], { stdio: ['ignore', 'inherit', 'inherit'] }).status"
    execution = kernel.run(code)
    lines = execution.stdout.decode().splitlines()
    assert lines[0] == "child"
    numbers = {line.split(" -> ")[0].split()[-1] for line in lines if " -> " in line}
    assert {n for n in numbers if int(n) > 3} == set(), lines
    assert not any("pipe:" in line.split(" -> ")[1] and line.split(" -> ")[0].split()[-1] == "3" for line in lines if " -> " in line)
    execution = kernel.run("require('child_process').execSync('ls /proc/self/fd').toString()")
    assert [n for n in execution.text.strip("'").split("\\n") if n and int(n) > 3] == []


def test_closing_low_descriptors_does_not_end_the_protocol(kernel):
    code = "const fs = require('fs'); for (const fd of [3, 4, 5]) { try { fs.writeSync(fd, 'x') } catch {} try { fs.closeSync(fd) } catch {} }"
    assert kernel.run(code).status == "ok"
    assert kernel.run("console.log('o'); console.error('e')").status == "ok"
    assert kernel.run("1 + 1").text == "2"

"""Interrupts, process.exit, stdin, configure, shutdown."""

import os
import resource
import signal

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "print('go'); while (true);",
        "print('go'); for (;;) { try { null.x } catch {} }",
        "print('go'); do {} while (true)",
        "print('go'); try { while (true); } finally { print('finally') }",
        "print('go'); JSON.stringify({ toJSON() { for (;;); } })",
        "print('go'); function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }\nfib(90)",
        "print('go'); /^(a+)+$/.test('a'.repeat(16) + 'b'); while (true);",
        "print('go'); await 1; while (true);",
        "print('go'); await (async () => { while (true) await 1 })()",
        "print('go'); await require('timers/promises').setTimeout(1); while (true);",
        "print('go'); await require('timers/promises').setTimeout(1); for (;;) { try { null.x } catch {} }",
        "print('go'); await require('timers/promises').setTimeout(1); function fib2(n) { return n < 2 ? n : fib2(n - 1) + fib2(n - 2) }\nfib2(90)",
        "print('go'); await require('timers/promises').setTimeout(1); const fib3 = n => n < 2 ? n : fib3(n - 1) + fib3(n - 2); fib3(90)",
        "print('go'); setTimeout(() => { while (true); }, 1); await require('timers/promises').setTimeout(1e6)",
        "print('go'); await new Promise(() => {})",
        "print('go'); await require('timers/promises').setTimeout(1e6)",
        "const server = require('http').createServer(() => {}); await new Promise(done => server.listen(0, '127.0.0.1', done)); print('go'); await fetch(`http://127.0.0.1:${server.address().port}`)",
        "print('go'); for await (const x of (async function* () { while (true) { await require('timers/promises').setTimeout(1); yield 1 } })());",
    ],
)
def test_an_interrupt_ends_it_and_keeps_the_state(shared, code):
    shared.run("let state = 'kept'")
    execution = shared.run_interrupted(code)
    assert execution.status == "interrupted", execution
    assert execution.error["name"] == "Interrupted"
    assert shared.run("state").text == "'kept'"
    shared.run("globalThis.server?.closeAllConnections?.(); globalThis.server?.close(); delete globalThis.server")


@pytest.mark.only("bun", "node")
@pytest.mark.parametrize("code", ["print('go'); new Function('while (true);')()", "print('go'); eval('for (;;);')"])
def test_an_interrupt_ends_code_that_the_kernel_has_not_seen(kernel, code):
    kernel.run("let state = 'kept'")
    assert kernel.run_interrupted(code).status == "interrupted"
    assert kernel.run("state").text == "'kept'"


@pytest.mark.only("node")
@pytest.mark.parametrize("code", ["Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", "new (require('async_hooks').AsyncResource)('own').runInAsyncScope(() => { new Function('while (true);')() })", "import { AsyncResource } from 'async_hooks'; print('go'); new AsyncResource('own').runInAsyncScope(() => { new Function('while (true);')() })"])
def test_an_interrupt_ends_what_only_node_can_end(shared, code):
    assert shared.run_interrupted(f"print('go'); {code}").status == "interrupted"
    assert shared.run("await require('timers/promises').setTimeout(1); process.nextTick(() => {}); 1").text == "1"


@pytest.mark.only("bun")
@pytest.mark.parametrize(
    "code",
    [
        "print('go'); await Bun.sleep(1); while (true) Bun.sleepSync(3)",
        "print('go'); Bun.sleepSync(1e6)",
        "print('go'); await Bun.$`sleep 2`",
        "const server = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Promise(() => {}) }); print('go'); await fetch(server.url)",
    ],
)
def test_an_interrupt_ends_what_only_bun_has(shared, code):
    assert shared.run_interrupted(code).status == "interrupted"
    shared.run("globalThis.server?.stop?.(true)")


@pytest.mark.parametrize("code", ["print('go'); await require('timers/promises').setTimeout(1); while (true);", "print('go'); await new Promise(() => {})"])
def test_the_command_alone_interrupts_where_no_signal_can(shared, code):
    assert shared.run_interrupted(code, with_signal=False).status == "interrupted"


def test_a_program_with_its_own_signal_handler_is_interrupted_too(shared):
    shared.run("process.on('SIGINT', () => {})")
    assert shared.run_interrupted("print('go'); while (true);").status == "interrupted"
    shared.run("process.removeAllListeners('SIGINT')")
    assert shared.run_interrupted("print('go'); while (true);").status == "interrupted"
    assert shared.run_interrupted("print('go'); await new Promise(() => {})").status == "interrupted"


def test_the_signal_of_an_interrupt_never_hits_the_next_cell(shared):
    for _ in range(60):
        assert shared.run_interrupted("print('go'); await new Promise(() => {})").status == "interrupted"
        assert shared.run("for (let i = 0; i < 1e5; i++); 1").text == "1"


def test_signals_between_cells_do_nothing(shared):
    shared.run("let here = 1")
    for _ in range(5):
        os.kill(shared.pid, signal.SIGINT)
    for _ in range(100):  # the signals arrive while the kernel has no cell
        shared.send(op="configure")
        assert shared.next_event() == {"event": "configured"}
    assert shared.run("here").text == "1"
    shared.send(op="interrupt", id="exec-unknown")
    assert shared.run("here").text == "1"


def test_an_interrupted_cell_keeps_no_hold_on_later_ones(shared):
    shared.run_interrupted("print('go'); await require('timers/promises').setTimeout(50); print('too late')")
    execution = shared.run("await require('timers/promises').setTimeout(150); print('own')")
    assert execution.stdout == b"own\n"


@pytest.mark.parametrize(
    "code, exit_code",
    [
        ("process.exit(3); print('after')", 3),
        ("process.exit(); print('after')", 0),
        ("process.exitCode = 4; process.exit(); print('after')", 4),
        ("try { process.exit(5) } catch { print('caught') } finally { print('finally') }\nprint('after')", 5),
        ("function quit() { process.exit(6) }\n[1].forEach(quit); print('after')", 6),
        ("(async () => { await require('timers/promises').setTimeout(1); process.exit(7) })(); await require('timers/promises').setTimeout(10_000); print('after')", 7),
        ("setTimeout(() => { process.exit(8) }, 1); await new Promise(() => {})", 8),
        ("async function main() { await require('timers/promises').setTimeout(1) }\nmain().then(() => process.exit(0)).catch((e) => { console.error(e); process.exit(1) })", 0),
        ("await require('timers/promises').setTimeout(1); try { process.exit(9) } catch (e) { print('caught', e) }\nprint('after')", 9),
        ("import { exit } from 'process'; exit(10); print('after')", 10),
    ],
)
def test_process_exit_ends_the_cell_and_not_the_state(shared, code, exit_code):
    shared.run("let kept = 1; process.exitCode = 0")
    execution = shared.run(code)
    assert (execution.status, execution.done["exit_code"]) == ("exited", exit_code), execution
    assert (execution.stdout, execution.stderr) == (b"", b"")
    assert shared.run("kept").text == "1"


def test_a_real_death_is_seen_as_one(kernel):
    kernel.begin("process.kill(process.pid, 'SIGKILL'); while (true);")
    with pytest.raises(EOFError):
        kernel.finish(kernel.current)
    assert kernel.process.wait() == -signal.SIGKILL


@pytest.mark.only("deno")
@pytest.mark.parametrize("code, exit_code", [("Deno.exit(3); print('after')", 3), ("Deno.exitCode = 4; Deno.exit()", 4), ("await 1; try { Deno.exit(5) } finally { print('finally') }", 5)])
def test_deno_exit_ends_the_cell_and_not_the_state(shared, code, exit_code):
    shared.run("let kept = 1")
    execution = shared.run(code)
    assert (execution.status, execution.done["exit_code"], execution.stdout) == ("exited", exit_code, b""), execution
    assert shared.run("Deno.exitCode = 0; kept").text == "1"


@pytest.mark.parametrize(
    "code",
    [
        "prompt('name?')",
        "confirm('sure?')",
        "alert('hello')",
        "process.stdin.on('data', () => {}); await new Promise(() => {})",
        "for await (const chunk of process.stdin) print(chunk)",
        "const rl = require('readline/promises').createInterface({ input: process.stdin, output: process.stdout }); await rl.question('name? ')",
    ],
)
def test_reading_without_stdin_fails_at_once_and_says_so(shared, code):
    execution = shared.run(code)
    assert execution.status == "error", execution
    assert "no stdin is connected" in execution.error["message"]


def test_the_end_of_stdin_comes_at_once_for_plain_reads(shared):
    assert shared.run("require('fs').readFileSync(0, 'utf8')").text == "''"


@pytest.mark.only("bun")
def test_stdin_of_bun_is_as_empty(shared):
    assert shared.run("await Bun.stdin.text()").text == "''"
    assert "no stdin is connected" in shared.run("for await (const line of console) print(line)").error["message"]


def test_configure_sets_environment_and_folder(kernel, tmp_path):
    (tmp_path / "deeper").mkdir()
    kernel.send(op="configure", env={"FRESH": "1", "GONE": "2"}, cwd=str(tmp_path / "deeper"), seed="ab" * 32)
    assert kernel.next_event() == {"event": "configured"}
    kernel.send(op="configure", unset=["GONE"])
    assert kernel.next_event() == {"event": "configured"}
    execution = kernel.run("[process.env.FRESH, globalThis.Bun ? Bun.env.FRESH : '1', process.env.GONE, require('path').basename(process.cwd())]")
    assert execution.text == "[ '1', '1', undefined, 'deeper' ]"
    assert kernel.run("require('child_process').execSync('echo $FRESH; pwd').toString().trim()").text == f"'1\\n{tmp_path}/deeper'"
    kernel.send(op="configure", id="identity-7", cwd="/no/such/folder")
    refused = kernel.next_event()
    assert "/no/such/folder" in refused["error"] and refused["id"] == "identity-7"


def test_random_numbers_are_new_after_each_configure(kernel):
    seen = set()
    for _ in range(4):
        kernel.send(op="configure", seed="00" * 32)
        kernel.next_event()
        seen.add(kernel.run("Math.random()").text)
    assert len(seen) == 4
    execution = kernel.run("let sum = 0, low = 0; for (let i = 0; i < 1e6; i++) { const r = Math.random(); sum += r; if (r < 0 || r >= 1) throw r; if (r < 0.25) low++ }\n[Math.abs(sum / 1e6 - 0.5) < 0.005, Math.abs(low / 1e6 - 0.25) < 0.005]")
    assert execution.text == "[ true, true ]"


@pytest.mark.only("node")
def test_a_kernel_that_can_not_be_reseeded_says_so(kernel):
    soft, hard = resource.prlimit(kernel.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(kernel.pid, resource.RLIMIT_NOFILE, (3, hard))
    kernel.send(op="configure")
    assert "EMFILE" in kernel.next_event()["unseeded"]
    kernel.send(op="configure", seed="00" * 32)
    assert kernel.next_event() == {"event": "configured"}
    resource.prlimit(kernel.pid, resource.RLIMIT_NOFILE, (soft, hard))
    kernel.send(op="configure")
    assert kernel.next_event() == {"event": "configured"}


def test_the_kernel_leaves_at_shutdown_and_at_the_end_of_the_agent(kernel):
    kernel.run("setInterval(() => {}, 1000); require('http').createServer(() => {}).listen(0, '127.0.0.1'); 0")
    kernel.send(op="shutdown")
    assert kernel.process.wait(30) == 0


def test_the_kernel_leaves_when_the_commands_end(kernel):
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, kernel.commands)
    os.close(null)
    assert kernel.process.wait(30) == 0


def test_a_file_named_like_a_configuration_is_not_obeyed(tmp_path, runtime):
    from kernel import Kernel

    (tmp_path / "bunfig.toml").write_text('preload = ["./evil.js"]')
    (tmp_path / "evil.js").write_text("process.abort()")
    (tmp_path / ".env").write_text("FROM_FILE=1")
    (tmp_path / "deno.json").write_text('{"imports": {"path": "./evil.js"}, "preload": ["./evil.js"]}')
    kernel = Kernel(tmp_path, runtime=runtime)
    try:
        assert kernel.run("process.env.FROM_FILE").text is None
        assert kernel.run("import { sep } from 'path'; sep").text == "'/'"
    finally:
        kernel.close()


def test_env_of_a_cell_is_set_for_that_cell_only(shared):
    shared.run("process.env.STAYS = 'mine'; delete process.env.NEW")
    env = {"STAYS": "theirs", "NEW": "né\n1"}
    assert shared.run("[process.env.STAYS, (globalThis.Bun ?? process).env.NEW]", env=env).text == "[ 'theirs', 'né\\n1' ]"
    assert shared.run("require('child_process').execSync('echo $STAYS; printf %s \"$NEW\"').toString()", env=env).text == "'theirs\\nné\\n1'"
    for code in ("[process.env.STAYS, process.env.NEW, 'NEW' in process.env]", "1"):
        assert shared.run("[process.env.STAYS, process.env.NEW, 'NEW' in process.env]").text == "[ 'mine', undefined, false ]"
        shared.run(code, env=env)


@pytest.mark.parametrize("code", ["throw new Error('x')", "let let = 1 +", "process.exit(3)", "await Promise.reject(1)", "process.env = { STAYS: 'own' }"])
def test_env_of_a_cell_is_put_back_however_it_ends(shared, code):
    shared.run("process.env.STAYS = 'mine'; delete process.env.NEW")
    shared.run(code, env={"STAYS": "theirs", "NEW": "1"})
    assert shared.run("[process.env.STAYS, process.env.NEW]").text == "[ 'mine', undefined ]"
    execution = shared.begin("print('go'); await new Promise(() => {})", env={"STAYS": "theirs"})
    shared.wait_for_output(b"go")
    shared.interrupt()
    assert shared.finish(execution).status == "interrupted"
    assert shared.run("process.env.STAYS").text == "'mine'"

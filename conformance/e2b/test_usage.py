"""What users of these SDKs do and have complained of elsewhere, one test for each."""

import asyncio
import os
import threading
import time
import urllib.error
import urllib.request

import httpx
import pytest


@pytest.fixture(scope="module")
def sdk(environment):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        import e2b_code_interpreter

        yield e2b_code_interpreter


@pytest.fixture(scope="module")
def sandbox(sdk):
    with sdk.Sandbox.create(timeout=900) as running:
        yield running


def eventually(look, seconds=120):
    until = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < until, seen
        time.sleep(0.1)
    return seen


def test_a_sandbox_that_pauses_at_its_end_does_so_after_each_connect(sdk):
    made = sdk.Sandbox.create(timeout=600, lifecycle={"on_timeout": "pause"})
    try:
        for turn in range(2):
            again = sdk.Sandbox.connect(made.sandbox_id, timeout=600)
            again.files.write(f"turn-{turn}", str(turn))
            assert again.get_info().lifecycle["on_timeout"] == "pause"
            again.set_timeout(1)
            eventually(lambda: sdk.Sandbox.get_info(made.sandbox_id).state.value == "paused")
        again = sdk.Sandbox.connect(made.sandbox_id, timeout=600)
        # Changes made after the first resume outlive the second.
        assert [again.files.read(f"turn-{turn}") for turn in range(2)] == ["0", "1"]
    finally:
        made.kill()


def test_resume_takes_a_body_or_none(sdk, environment):
    made = sdk.Sandbox.create(timeout=600)
    try:
        for body in (b"", b"{}", b'{"timeout": 300}'):
            assert made.pause()
            answer = httpx.post(f"{environment['E2B_API_URL']}/sandboxes/{made.sandbox_id}/resume", headers={"X-API-KEY": environment["E2B_API_KEY"]}, content=body, timeout=120)
            assert answer.status_code == 201 and answer.json()["sandboxID"] == made.sandbox_id
            assert made.commands.run("echo on").stdout == "on\n"
    finally:
        made.kill()


def test_a_web_server_in_the_background_is_fetched_by_its_host(sandbox, environment):
    sandbox.files.write("/home/user/site/index.html", "<h1>served</h1>")
    server = sandbox.commands.run("python3 -u -m http.server 3000", cwd="/home/user/site", background=True)
    origin = environment["E2B_SANDBOX_URL"].split("/compat/")[0]
    host = sandbox.get_host(3000)
    assert host.startswith("3000-" + sandbox.sandbox_id)

    def page():
        try:
            return urllib.request.urlopen(urllib.request.Request(origin + "/index.html", headers={"Host": host}), timeout=20).read()
        except urllib.error.HTTPError as e:
            assert e.code == 502
            return None

    assert eventually(page) == b"<h1>served</h1>"
    assert server.kill()


def test_a_callback_gets_the_output_of_a_command_while_it_runs(sandbox):
    seen = threading.Event()
    parts = []

    def told(part):
        parts.append(part)
        # What is waited for comes only after the first part was told.
        sandbox.files.write("/tmp/go", "")
        seen.set()

    done = sandbox.commands.run("echo first; until [ -e /tmp/go ]; do sleep 0.05; done; echo last", on_stdout=told, timeout=120)
    assert seen.is_set() and "".join(parts) == done.stdout == "first\nlast\n" and len(parts) >= 2


def test_callbacks_get_what_code_prints_and_shows_while_it_runs(sandbox):
    order = []
    done = sandbox.run_code(
        "import sys, time, os\nprint('a', flush=True)\nwhile not os.path.exists('/tmp/printed'): time.sleep(0.05)\nprint('b', file=sys.stderr)\n{'k': 1}",
        on_stdout=lambda line: (order.append(("out", line.line)), sandbox.files.write("/tmp/printed", "")),
        on_stderr=lambda line: order.append(("err", line.line)),
        on_result=lambda result: order.append(("result", result.json)),
        timeout=120,
    )
    assert order == [("out", "a\n"), ("err", "b\n"), ("result", {"k": 1})] and done.error is None


def test_a_command_that_is_too_long_has_ended_when_its_error_comes(sdk, sandbox):
    with pytest.raises(sdk.TimeoutException):
        sandbox.commands.run("exec -a too-long sleep 4321", timeout=1)
    eventually(lambda: "too-long" not in sandbox.commands.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout.replace("cat /proc", ""))


def test_files_of_every_byte_come_back_as_they_were(sandbox):
    content = bytes(range(256)) * 4096
    sandbox.files.write("/home/user/all.bin", content)
    assert bytes(sandbox.files.read("/home/user/all.bin", format="bytes")) == content
    assert b"".join(sandbox.files.read("/home/user/all.bin", format="stream")) == content
    written = sandbox.files.write_files([{"path": f"many/{n}.txt", "data": str(n)} for n in range(50)])
    assert len(written) == 50 and sandbox.files.read("many/49.txt") == "49"


def test_names_of_files_in_any_script(sandbox):
    for name in ("with space.txt", "größe.txt", "名前.txt", "100%.txt", "a+b&c=d.txt", "quote'\".txt", "#hash?.txt"):
        path = f"/home/user/names/{name}"
        sandbox.files.write(path, name)
        assert sandbox.files.read(path) == name and sandbox.files.get_info(path).name == name
        assert urllib.request.urlopen(sandbox.download_url(path), timeout=60).read().decode() == name
    assert len(sandbox.files.list("/home/user/names")) == 7


def test_a_terminal_is_typed_into_and_read(sandbox):
    said, ended = [], threading.Event()
    terminal = sandbox.pty.create(size=__import__("e2b").PtySize(rows=24, cols=80), timeout=120)
    reader = threading.Thread(target=lambda: (terminal.wait(on_pty=lambda data: said.append(data)), ended.set()))
    reader.start()
    sandbox.pty.send_stdin(terminal.pid, b"echo $((40 + 2)); stty size; exit\n")
    reader.join(120)
    assert ended.is_set() and b"42\r\n24 80\r\n" in b"".join(said)


def test_lists_by_metadata_give_every_sandbox_once_page_by_page(sdk):
    owner = "user-" + os.urandom(4).hex()
    made = [sdk.Sandbox.create(timeout=600, metadata={"owner": owner, "n": str(n)}) for n in range(5)]
    try:
        pages, seen = sdk.Sandbox.list(query=sdk.SandboxQuery(metadata={"owner": owner}), limit=2), []
        while pages.has_next:
            page = pages.next_items()
            assert len(page) <= 2
            seen += [one.sandbox_id for one in page]
        assert sorted(seen) == sorted(one.sandbox_id for one in made)
        (third,) = sdk.Sandbox.list(query=sdk.SandboxQuery(metadata={"owner": owner, "n": "2"})).next_items()
        assert third.metadata == {"owner": owner, "n": "2"}
    finally:
        for one in made:
            one.kill()


def test_many_programs_are_judged_at_once_each_in_its_own_sandbox(sdk):
    """As evaluations of models do it."""

    async def judged(number):
        sandbox = await sdk.AsyncSandbox.create(timeout=600, request_timeout=300)
        try:
            done = await sandbox.run_code(f"import json\nprint(json.dumps({{'score': {number} ** 2}}))", timeout=300, request_timeout=300)
            return done.logs.stdout, done.error
        finally:
            assert await sandbox.kill()

    async def all_of(count):
        return await asyncio.gather(*(judged(number) for number in range(count)))

    assert asyncio.run(all_of(12)) == [(['{"score": %d}\n' % number**2], None) for number in range(12)]


def test_a_watch_tells_of_what_a_program_writes_deep_below(sandbox):
    sandbox.files.make_dir("/home/user/watched/a/b")
    watch = sandbox.files.watch_dir("/home/user/watched", recursive=True)
    sandbox.commands.run("echo 1 >/home/user/watched/a/b/new.txt; mv /home/user/watched/a/b/new.txt /home/user/watched/moved.txt")
    seen = []
    eventually(lambda: seen.extend((event.type.value, event.name) for event in watch.get_new_events()) or "moved.txt" in {name for _, name in seen})
    assert ("create", "a/b/new.txt") in seen and any(kind == "rename" and name == "a/b/new.txt" for kind, name in seen)
    watch.stop()


def test_variables_of_a_sandbox_reach_code_commands_and_terminals_and_a_call_may_differ(sdk):
    with sdk.Sandbox.create(timeout=600, envs={"KEY": "of the sandbox", "OTHER": "kept"}) as sandbox:
        show = "import os; print(os.environ['KEY'], os.environ['OTHER'])"
        assert sandbox.run_code(show, envs={"KEY": "of the call"}).logs.stdout == ["of the call kept\n"]
        assert sandbox.run_code(show).logs.stdout == ["of the sandbox kept\n"]
        assert sandbox.commands.run("echo $KEY $OTHER", envs={"KEY": "of the command"}).stdout == "of the command kept\n"
        assert sandbox.commands.run("echo $KEY $OTHER").stdout == "of the sandbox kept\n"


def test_calls_to_what_was_killed_say_so_at_once(sdk):
    sandbox = sdk.Sandbox.create(timeout=600)
    assert sandbox.kill() and not sandbox.kill() and not sandbox.is_running()
    begin = time.monotonic()
    for call in (lambda: sandbox.commands.run("true"), lambda: sandbox.files.read("/etc/hostname"), lambda: sandbox.run_code("1")):
        with pytest.raises(sdk.TimeoutException):
            call()
    with pytest.raises(sdk.NotFoundException):
        sdk.Sandbox.connect(sandbox.sandbox_id)
    assert time.monotonic() - begin < 60

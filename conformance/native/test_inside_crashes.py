"""kill -9 of server and engine while programs run, terminals are open and files are on their way: nothing stops, no byte is missed or doubled."""

import hashlib
import json
import subprocess
import threading
import time

import pytest

import installation as installations
from inside import Box, Terminal, await_that, broken, text_or_bytes
from installation import LAUNCHER, ApiError
from test_crashes import VICTIMS, kill


@pytest.fixture(scope="module")
def crashing():
    with installations.installation() as atoll:
        yield atoll


@pytest.fixture
def box(crashing):
    client = crashing.client()
    made = client.call("POST", "/v1/sandboxes", {"template": "python", "limits": {"cpu": 0, "memory_bytes": 512 << 20}})
    yield Box(client, made["sandbox_id"])
    crashing.client().delete(made["sandbox_id"])
    client.close()


LINES = 60
# Two thirds come by themselves, the rest when the crash is over.
COUNTING = f"for i in $(seq 1 {LINES}); do echo $0-$i; echo $0-err-$i >&2; sleep 0.1; if [ $i = 40 ]; then until [ -e /tmp/go ]; do sleep 0.1; done; fi; done; exit 3"
# Each alone takes long and shows little that both together do not.
MOSTLY_BOTH = [pytest.param(("server",), marks=pytest.mark.long), pytest.param(("engine",), marks=pytest.mark.long), ("server", "engine")]


def expected(name, middle=""):
    return "".join(f"{name}-{middle}{i}\n" for i in range(1, LINES + 1)).encode()


def persistently(seconds, call):
    """Calls again while the server is away, as a client that means it does."""
    end = time.monotonic() + seconds
    while True:
        try:
            return call()
        except ApiError as e:
            if e.status not in (502, 503, 504) or time.monotonic() > end:
                raise
        except Exception as e:
            if not broken(e) or time.monotonic() > end:
                raise
        time.sleep(0.1)


class Following(threading.Thread):
    """A client attached to a process by one kind of connection, who comes back after a break where it was."""

    def __init__(self, box, process, kind):
        super().__init__(daemon=True)
        self.box, self.process, self.kind = box.again(), process, kind
        self.got, self.ended, self.breaks, self.failure, self.last, self.more = {"stdout": b"", "stderr": b""}, None, 0, None, None, True

    def run(self):
        try:
            while self.more:
                persistently(120, getattr(self, self.kind))
        except Exception as e:
            self.failure = e

    def events(self):
        try:
            for identity, event, data in self.box.events(self.process, self.last):
                if event in self.got:
                    # What comes once more after a break is known by its offset.
                    known = len(self.got[event]) - data["offset"]
                    assert known >= 0, f"{-known} bytes are missing at {data['offset']}"
                    self.got[event] += text_or_bytes(data)[known:]
                elif event == "exited":
                    self.ended, self.more = data, False
                self.last = identity or self.last
        finally:
            self.breaks += self.more

    def output(self):
        try:
            with self.box.open("GET", f"/processes/{self.process}/output", stream="stdout", follow="true", offset=len(self.got["stdout"])) as response:
                while piece := response.read1(65536):
                    self.got["stdout"] += piece
            self.more = self.box.process(self.process)["state"] == "running"
        finally:
            self.breaks += self.more

    def terminal(self):
        before = self.got["stdout"]
        t = Terminal(self.box.socket("/pty", process_id=self.process, offset=len(before)))
        try:
            assert t.offset == len(before)
            while not t.exited:
                t.receive(120)
                self.got["stdout"] = before + t.shown
            self.ended, self.more = t.exited, False
        finally:
            self.breaks += self.more
            t.socket.close()


@pytest.mark.parametrize("victims", MOSTLY_BOTH, ids="+".join)
def test_twenty_programs_and_terminals_go_on_and_their_readers_miss_no_byte(crashing, box, victims):
    started, readers = [], []
    for n in range(20):
        terminal = n % 4 == 3
        fields = {"pty": {"cols": 80, "rows": 24}} if terminal else {"stdin": True}
        process = box.start("sh", "-c", ("stty -opost; " if terminal else "") + COUNTING, f"p{n}", **fields)["process_id"]
        started.append((process, terminal))
        for kind in (("terminal",) if terminal else ("events", "output")):
            readers.append(Following(box, process, kind))
            readers[-1].start()
    await_that(lambda: all(r.got["stdout"] or r.failure for r in readers), "output at every reader", 60)
    kill(crashing, *victims)
    crashing.up()
    fresh = Box(crashing.client(), box.id)
    fresh.put("/tmp/go", b"")
    for reader in readers:
        reader.join(120)
        assert reader.failure is None and not reader.is_alive(), (reader.kind, reader.failure)
    for n, (process, terminal) in enumerate(started):
        view = fresh.wait(process)
        assert (view["exit_reason"], view["exit_code"]) == ("exited", 3), view
        both = sorted((expected(f"p{n}") + expected(f"p{n}", "err-")).splitlines())
        if terminal:
            assert sorted(fresh.output(process).splitlines()) == both
        else:
            assert fresh.output(process, "stdout") == expected(f"p{n}") and fresh.output(process, "stderr") == expected(f"p{n}", "err-")
        for reader in (r for r in readers if r.process == process):
            if terminal:
                assert sorted(reader.got["stdout"].splitlines()) == both, (reader.kind, n)
            else:
                assert reader.got["stdout"] == expected(f"p{n}"), (reader.kind, n)
            if reader.kind == "events":
                assert reader.got["stderr"] == expected(f"p{n}", "err-") and reader.ended["exit_code"] == 3
    if "server" in victims:
        assert all(r.breaks for r in readers), "some reader was not attached during the crash"


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_input_goes_on_at_its_offset(crashing, box, victims):
    process = box.start("cat", stdin=True)["process_id"]
    shell = box.terminal()
    shell.type("kept=terminal\n")
    shell.until("kept=terminal\r\n")
    box.write(process, b"before ", offset=0)
    kill(crashing, *victims)
    crashing.up()
    box = Box(crashing.client(), box.id)
    # Sent again by a client that did not see the answer.
    persistently(30, lambda: box.write(process, b"before ", offset=0))
    box.write(process, b"after", offset=7, close=True)
    assert box.wait(process)["exit_code"] == 0 and box.output(process) == b"before after"
    with box.terminal(process_id=shell.process) as t:
        t.type("echo still-$kept\n")
        t.until("still-terminal")


@pytest.mark.parametrize("victims", MOSTLY_BOTH, ids="+".join)
def test_transfers_fail_cleanly_or_are_whole(crashing, box, victims):
    box.put("/tmp/t/old", b"old", parents=True)
    box.shell("head -c 150000000 /dev/urandom > /tmp/down")
    right = box.run("sha256sum", "/tmp/down")["stdout"].split()[0]
    outcome = {}
    sending = threading.Event()

    def up():
        def pieces():
            for n in range(300):
                yield bytes(1 << 20)
                if n == 3:
                    sending.set()
                time.sleep(0.02)
        try:
            outcome["up"] = box.again().raw("PUT", "/files", pieces(), path="/tmp/t/old").status
        except Exception as e:
            outcome["up"] = e

    def down():
        """Comes back with an offset, as the CLI does."""
        digest, got, view = hashlib.sha256(), 0, None

        def once():
            nonlocal got, view
            with box.again().open("GET", "/files", path="/tmp/down", offset=got) as response:
                here = [json.loads(response.headers["X-Atoll-File"])[field] for field in ("inode", "size", "modified_at")]
                assert view in (None, here)
                view = here
                while piece := response.read1(1 << 18):
                    digest.update(piece)
                    got += len(piece)
                    time.sleep(0.004)
            if got < 150000000:
                raise ConnectionResetError("cut off")
        try:
            persistently(60, once)
            outcome["down"] = digest.hexdigest()
        except Exception as e:
            outcome["down"] = e

    threads = [threading.Thread(target=up), threading.Thread(target=down)]
    for thread in threads:
        thread.start()
    sending.wait(60)
    time.sleep(0.5)
    kill(crashing, *victims)
    crashing.up()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    fresh = Box(crashing.client(), box.id)
    if outcome["up"] == 200:
        assert fresh.stat("/tmp/t/old")["size"] == 300 << 20
    else:
        assert broken(outcome["up"]) or isinstance(outcome["up"], ApiError), outcome
        await_that(lambda: [item["name"] for item in fresh.list("/tmp/t")] == ["old"], "the clearing away of the half")
        assert fresh.get("/tmp/t/old") == b"old"
    assert outcome["down"] == right, outcome


@pytest.mark.parametrize("victims", MOSTLY_BOTH, ids="+".join)
def test_programs_that_ended_meanwhile_are_told_with_all_they_said(crashing, box, victims):
    process = box.start(command="sleep 1; echo ended while nobody looked; exit 9")["process_id"]
    earlier = box.shell("echo earlier; exit 4")["process_id"]
    kill(crashing, *victims)
    time.sleep(2)
    crashing.up()
    box = Box(crashing.client(), box.id)
    view = box.wait(process)
    assert view["exit_code"] == 9 and box.output(process) == b"ended while nobody looked\n"
    assert box.process(earlier)["exit_code"] == 4 and box.output(earlier) == b"earlier\n"


def test_main_process_that_ends_while_everything_is_down_ends_its_sandbox(crashing):
    client = crashing.client()
    made = client.call("POST", "/v1/sandboxes", {"template": "python", "main": {"command": "sleep 2; echo last words; exit 6", "ends_sandbox": True}})
    kill(crashing, "server", "engine")
    time.sleep(3)
    crashing.up()
    client = crashing.client()
    ended = await_that(lambda: (found := client.sandbox(made["sandbox_id"]))["state"] == "ended" and found)
    assert ended["end_reason"] == "main_exited", ended
    assert Box(client, made["sandbox_id"]).output(made["main_process_id"]) == b"last words\n"


def cli(atoll, *arguments, **options):
    return subprocess.Popen([str(LAUNCHER), arguments[0], "--data-dir", str(atoll.data), *arguments[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **options)


@pytest.mark.parametrize("victims", MOSTLY_BOTH, ids="+".join)
def test_cli_outlives_the_crash_without_a_missing_byte(crashing, box, victims):
    running = cli(crashing, "run", "-i", "-s", box.id, "--", "sh", "-c", COUNTING, "c", stdin=subprocess.DEVNULL)
    process = box.start("sh", "-c", COUNTING, "l")["process_id"]
    following = cli(crashing, "logs", "-f", "--stream", "stdout", box.id, process, stdin=subprocess.DEVNULL)
    # Both are attached once their first line is here.
    first = [running.stdout.readline(), following.stdout.readline()]
    assert first == [b"c-1\n", b"l-1\n"]
    kill(crashing, *victims)
    crashing.up()
    Box(crashing.client(), box.id).put("/tmp/go", b"")
    out, err = running.communicate(timeout=120)
    assert first[0] + out == expected("c") and err == expected("c", "err-") and running.returncode == 3, err
    out, err = following.communicate(timeout=120)
    assert first[1] + out == expected("l") and following.returncode == 0, err

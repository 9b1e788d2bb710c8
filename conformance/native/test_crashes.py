"""kill -9 of the server, the engine, and both, in the middle of things: sandboxes, their state and their records survive."""

import os
import signal
import threading
import time

import pytest

import installation as installations


@pytest.fixture(scope="module")
def crashing():
    with installations.installation() as atoll:
        yield atoll


def kill(atoll, *names):
    pids = [atoll.pid(name) for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    installations.await_none(lambda: {p for p in pids if os.path.exists(f"/proc/{p}") and "Z" not in open(f"/proc/{p}/stat").read().rsplit(")", 1)[1][:3]})


VICTIMS = [("server",), ("engine",), ("server", "engine")]


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_state_survives_a_crash(crashing, victims):
    client = crashing.client()
    box = client.exec("kept = {'n': 41}", language="python")["sandbox_id"]
    kill(crashing, *victims)
    crashing.up()
    client = crashing.client()
    assert client.exec("kept['n'] += 1; print(kept['n'])", sandbox_id=box)["output"] == "42"
    client.delete(box)


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_execution_that_ran_during_a_crash_is_recorded_whole(crashing, victims):
    client = crashing.client()
    box = client.exec("import time", language="python")["sandbox_id"]
    answers = []

    def call():
        try:
            answers.append(crashing.client().exec("for i in range(40): print(i); time.sleep(0.1)\nfinished = True", sandbox_id=box))
        except Exception as e:  # the connection died with the server
            answers.append(e)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(1)
    kill(crashing, *victims)
    crashing.up()
    thread.join(60)
    expected = "".join(f"{i}\n" for i in range(40))
    if victims == ("engine",):  # the waiting client notices nothing
        assert isinstance(answers[0], dict), answers
        assert answers[0]["stdout"] == expected
    client = crashing.client()
    assert client.exec("print(finished)", sandbox_id=box, timeout_seconds=30)["output"] == "True"

    def record():
        items = client.call("GET", f"/v1/executions?sandbox_id={box}")["items"]
        found = [client.call("GET", f"/v1/executions/{e['execution_id']}") for e in items]
        return [e for e in found if "range(40)" in e.get("code", "") and e["exit_reason"]]

    end = time.monotonic() + 20
    while not (records := record()) and time.monotonic() < end:
        time.sleep(0.2)
    assert records and records[0]["exit_reason"] == "completed" and records[0]["stdout"] == expected
    client.delete(box)


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_large_output_survives_a_crash_without_a_missing_byte(crashing, victims):
    client = crashing.client()
    box = client.exec("1", language="python")["sandbox_id"]
    code = "import time\nfor i in range(300): print(('%06d' % i) * 2000); time.sleep(0.01)"
    thread = threading.Thread(target=lambda: quietly(crashing.client(), code, box))
    thread.start()
    time.sleep(1.2)
    kill(crashing, *victims)
    crashing.up()
    thread.join(90)
    client = crashing.client()
    client.exec("print('queued behind it')", sandbox_id=box, timeout_seconds=30)
    # The server that came back reads in the background what it missed; until then the record says "running".
    end = time.monotonic() + 30
    while any(e["state"] == "running" for e in client.call("GET", f"/v1/executions?sandbox_id={box}")["items"]) and time.monotonic() < end:
        time.sleep(0.1)
    execution = [e for e in client.call("GET", f"/v1/executions?sandbox_id={box}")["items"] if (e["stdout_bytes"] or 0) > 100000][0]
    whole = client.call("GET", f"/v1/executions/{execution['execution_id']}/output?stream=stdout")
    assert whole == b"".join(b"%06d" % i * 2000 + b"\n" for i in range(300))
    client.delete(box)


def quietly(client, code, box):
    try:
        client.exec(code, sandbox_id=box, timeout_seconds=60)
    except Exception:
        return


def test_sandbox_that_dies_while_everything_is_down_is_reported(crashing):
    client = crashing.client()
    box = client.exec("1", language="python")["sandbox_id"]
    client.exec("import threading, time, os\ndef f():\n    time.sleep(2)\n    open('/tmp/mark', 'w')\nthreading.Thread(target=f).start()", sandbox_id=box)
    sentries = sandbox_processes(crashing)
    kill(crashing, "server", "engine")
    for pid in sentries:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    crashing.up()
    client = crashing.client()
    ended = client.sandbox(box)
    assert ended["state"] == "ended" and ended["end_reason"]
    assert client.exec("print('new')", language="python")["output"] == "new"


def sandbox_processes(atoll):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        if atoll.instance.encode() in command and b"atoll-engine" not in command and b"java" not in command and b"boot" in command:
            found.append(int(pid))
    return found


def test_crash_loops_leave_no_orphan(crashing):
    client = crashing.client()
    boxes = [client.exec(f"n = {i}", language="python")["sandbox_id"] for i in range(3)]
    for victims in [("engine",), ("server",), ("engine",), ("server", "engine")]:
        kill(crashing, *victims)
        crashing.up()
    client = crashing.client()
    for i, box in enumerate(boxes):
        assert client.exec("print(n)", sandbox_id=box)["output"] == str(i)
        client.delete(box)


def test_down_and_up_keeps_sandboxes(crashing):
    client = crashing.client()
    box = client.exec("kept = 1", language="python")["sandbox_id"]
    crashing.down()
    crashing.up()
    assert crashing.client().exec("print(kept)", sandbox_id=box)["output"] == "1"

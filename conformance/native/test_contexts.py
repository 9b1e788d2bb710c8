"""Interpreters in a sandbox: made, listed, run in, interrupted, restarted and closed."""

import concurrent.futures
import json
import time

import pytest

from inside import EMOJI, await_that, events, text_or_bytes


def context(box, language="python", **fields):
    return box.call("POST", "/contexts", {"language": language, **fields})


def execute(box, made, code, **fields):
    return box.call("POST", f"/contexts/{made['context_id']}/executions", {"code": code, **fields})


def execution(box, started):
    return box.client.call("GET", f"/v1/executions/{started['execution_id']}")


def ended(box, started, seconds=60):
    return await_that(lambda: (found := execution(box, started))["state"] == "ended" and found, "the execution's end", seconds)


def test_context_has_the_language_folder_and_environment_that_was_asked_for(box):
    made = context(box, cwd="/usr", env={"MINE": "1"})
    assert made["context_id"].startswith("ctx-") and made["language"] == "python" and made["cwd"] == "/usr" and made["default"] is False and made["restarts"] == 0
    assert execute(box, made, "import os; print(os.getcwd(), os.environ['MINE'])")["output"] == "/usr 1"
    assert box.call("GET", f"/contexts/{made['context_id']}")["state"] == "idle"
    bash = context(box, "bash", cwd="/tmp")
    assert execute(box, bash, "pwd; echo $MINE.")["output"] == "/tmp\n."


def test_contexts_are_listed_and_keep_their_own_state(box):
    box.client.exec("x = 'default'", sandbox_id=box.id)
    one, two = context(box), context(box)
    execute(box, one, "x = 'one'")
    assert execute(box, two, "'x' in globals()")["results"][0]["data"]["text/plain"] == "False"
    assert execute(box, one, "print(x)")["output"] == "one" and box.client.exec("print(x)", sandbox_id=box.id)["output"] == "default"
    listed = {c["context_id"]: c for c in box.call("GET", "/contexts")["items"]}
    assert {one["context_id"], two["context_id"]} < set(listed) and [c["default"] for c in listed.values()].count(True) >= 1
    assert [e["code"] for e in box.call("GET", f"/contexts/{one['context_id']}/executions")["items"]] == ["print(x)", "x = 'one'"]


@pytest.mark.parametrize("fields", [{"language": "cobol"}, {"language": "typescript"}, {"cwd": "/not/there", "language": "python"}, {"language": "python", "nonsense": 1}])
def test_contexts_that_cannot_be_are_refused(box, fields):
    assert 400 <= box.refused("POST", "/contexts", fields).status < 500


def test_output_streams_while_it_runs(box):
    made = context(box)
    with box.open("POST", f"/contexts/{made['context_id']}/executions", json.dumps({"code": f"import time\nfor c in {EMOJI!r}: print(c, end='', flush=True); time.sleep(0.01)", "stream": True}), {"Content-Type": "application/json"}) as response:
        seen = [(event, data) for _, event, data in events(response)]
    assert b"".join(text_or_bytes(data) for event, data in seen if event == "output").decode() == EMOJI
    assert seen[0][0] == "start" and seen[-1][0] == "done" and seen[-1][1]["exit_reason"] == "completed"


def test_long_cell_runs_in_the_background_and_is_attached_to(box):
    made = context(box)
    started = execute(box, made, "import time\nprint('begun', flush=True)\ntime.sleep(1.5)\nprint('ended')", background=True)
    assert execution(box, started)["state"] == "running"
    connection = box.client.open()
    connection.request("GET", f"/v1/executions/{started['execution_id']}/events", headers={"Authorization": f"Bearer {box.client.key}", "Accept": "text/event-stream"})
    seen = [(event, data) for _, event, data in events(connection.getresponse())]
    connection.close()
    assert b"".join(text_or_bytes(data) for event, data in seen if event == "output") == b"begun\nended\n" and seen[-1][0] == "done"
    assert ended(box, started)["stdout"] == "begun\nended\n"


def test_interrupt_stops_the_cell_and_keeps_the_state(box):
    made = context(box)
    execute(box, made, "kept = 1")
    started = execute(box, made, "import time\nprint('in', flush=True)\ntime.sleep(1000)", background=True, timeout_seconds=600)
    await_that(lambda: box.client.call("GET", f"/v1/executions/{started['execution_id']}/output?stream=stdout") == b"in\n")
    box.call("POST", f"/contexts/{made['context_id']}:interrupt")
    done = ended(box, started)
    assert done["exit_reason"] in ("interrupted", "error") and done["state_kept"] is True, done
    assert execute(box, made, "print(kept)")["output"] == "1"
    # With nothing running it does no harm.
    box.call("POST", f"/contexts/{made['context_id']}:interrupt")
    assert execute(box, made, "print(kept)")["output"] == "1"


def test_restart_forgets_the_state_and_counts(box):
    made = context(box, cwd="/usr", env={"MINE": "1"})
    execute(box, made, "x = 1")
    again = box.call("POST", f"/contexts/{made['context_id']}:restart")
    assert again["restarts"] == 1
    assert execute(box, made, "import os; print('x' in globals(), os.getcwd(), os.environ['MINE'])")["stdout"] == "False /usr 1\n"


def test_restart_ends_what_hangs(box):
    made = context(box)
    hanging = execute(box, made, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", background=True, timeout_seconds=600)
    await_that(lambda: box.call("GET", f"/contexts/{made['context_id']}")["state"] == "running")
    box.call("POST", f"/contexts/{made['context_id']}:restart")
    assert ended(box, hanging)["state_kept"] is False
    assert execute(box, made, "print(1)")["output"] == "1"


def test_deleted_context_is_gone_with_its_interpreter(box):
    made = context(box)
    pid = int(execute(box, made, "import os; print(os.getpid())")["output"])
    assert pid in [p["pid"] for p in box.ps()]
    box.call("DELETE", f"/contexts/{made['context_id']}")
    assert box.refused("POST", f"/contexts/{made['context_id']}/executions", {"code": "1"}).code == "context_not_found"
    assert made["context_id"] not in [c["context_id"] for c in box.call("GET", "/contexts")["items"]]
    await_that(lambda: pid not in [p["pid"] for p in box.ps()], "the interpreter's end")


def test_contexts_of_another_sandbox_are_not_found(box, boxes):
    theirs = context(boxes(), "bash")["context_id"]
    for method, rest, body in (("GET", "", None), ("POST", ":restart", {}), ("POST", ":interrupt", {}), ("DELETE", "", None), ("POST", "/executions", {"code": "1"})):
        assert box.refused(method, f"/contexts/{theirs}{rest}", body).status == 404


def test_sixty_four_runs_on_one_context_queue_and_all_finish(box):
    made = context(box)
    execute(box, made, "import time; order = []")
    blocker = execute(box, made, "time.sleep(2)", background=True)
    started = [execute(box, made, f"order.append({n}); print({n})", background=True, timeout_seconds=120) for n in range(64)]
    for n, one in enumerate(started):
        assert ended(box, one, 120)["stdout"] == f"{n}\n"
    assert ended(box, blocker)["exit_reason"] == "completed"
    assert execute(box, made, "print(order == list(range(64)))")["output"] == "True"


def test_sixty_four_callers_at_once_on_one_context_all_get_their_answer(box):
    made = context(box)
    execute(box, made, "n = 0")
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda i: execute(box.again(), made, f"n += 1; print('caller {i}')", timeout_seconds=120)["output"], range(64)))
    assert answers == [f"caller {i}" for i in range(64)]
    assert execute(box, made, "print(n)")["output"] == "64"


def test_contexts_of_one_sandbox_run_at_once(box):
    made = [context(box, language) for language in ("python", "python", "bash", "bash")]
    meet = {"python": "import os, time\nopen('/tmp/meet-%d', 'w')\nwhile len([f for f in os.listdir('/tmp') if f.startswith('meet-')]) < 4: time.sleep(0.02)\nprint('met')",
            "bash": "touch /tmp/meet-%d; until [ $(ls /tmp | grep -c ^meet-) -ge 4 ]; do sleep 0.05; done; echo met"}
    started = [execute(box, one, meet[one["language"]] % n, background=True, timeout_seconds=60) for n, one in enumerate(made)]
    assert [ended(box, one)["stdout"] for one in started] == ["met\n"] * 4


# Bash is the lightest interpreter; what as many Pythons need, no test machine has.
@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
def test_as_many_contexts_as_there_is_memory_for(boxes, count):
    box = boxes(limits={"memory_bytes": 2 << 30, "max_processes": 2048, "cpu": 0})
    made = []
    for n in range(count):
        made.append(context(box, "bash"))
        assert execute(box, made[-1], f"mine={n}", timeout_seconds=120)["exit_reason"] == "completed"
    for n in (0, count // 2, count - 1):
        assert execute(box, made[n], "echo $mine")["output"] == str(n)
    assert len(box.call("GET", "/contexts")["items"]) >= count


def test_context_that_dies_for_want_of_memory_says_so_and_others_go_on(box):
    one, two = context(box), context(box, "bash")
    execute(box, two, "mine=1")
    reply = execute(box, one, "l = []\nwhile True: l.append(bytearray(4 << 20))", timeout_seconds=60)
    assert reply["exit_reason"] == "out_of_memory" and reply["memory_limit_bytes"] == 256 << 20 and reply["state_kept"] is False, reply
    assert execute(box, two, "echo $mine")["output"] == "1"
    assert execute(box, one, "print(2)")["output"] == "2"
    # What a context is comes by another way than what it has run, and may be a moment later.
    await_that(lambda: box.call("GET", f"/contexts/{one['context_id']}")["restarts"] >= 1, "the restart in the context's view")


def test_interpreter_burning_cpu_answers_to_interrupt(box):
    made = context(box)
    started = execute(box, made, "while True: pass", background=True, timeout_seconds=600)
    await_that(lambda: box.call("GET", f"/contexts/{made['context_id']}")["state"] == "running")
    begin = time.monotonic()
    box.call("POST", f"/contexts/{made['context_id']}:interrupt")
    ended(box, started)
    assert time.monotonic() - begin < 60

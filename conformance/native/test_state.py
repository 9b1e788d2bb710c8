"""What code_exec promises of state: it lives on in its sandbox and nowhere else."""

import concurrent.futures
import json
import re
import time

import pytest


def test_reference_example_with_the_default_template(client):
    first = client.call("POST", "/v1/code_exec", b'{"tool":"code_exec","code":"x = 1 + 1\\nprint(x)"}')
    assert first["output"] == "2"
    assert re.fullmatch(r"sb-exec-[0-9a-hjkmnp-tv-z]{26}", first["sandbox_id"])
    second = client.exec("print(x)", sandbox_id=first["sandbox_id"])
    assert second["output"] == "2"
    assert second["sandbox_id"] == first["sandbox_id"]
    client.delete(first["sandbox_id"])


def test_reference_example_with_python(client):
    first = client.exec("x = 1 + 1\nprint(x)", language="python")
    assert first["output"] == "2"
    assert client.exec("print(x)", sandbox_id=first["sandbox_id"])["output"] == "2"
    client.delete(first["sandbox_id"])


def test_reply_has_every_documented_field(client, sandbox):
    reply = client.exec("import sys; print('out'); print('err', file=sys.stderr); 40 + 2", sandbox_id=sandbox())
    assert reply["stdout"] == "out\n" and reply["stderr"] == "err\n"
    assert reply["output"] == "out\nerr\n42"
    assert reply["results"][0]["data"]["text/plain"] == "42" if "data" in reply["results"][0] else reply["results"][0]["text/plain"] == "42"
    assert reply["error"] is None and reply["exit_reason"] == "completed" and reply["truncated"] is False
    assert reply["duration_ms"] >= 0 and reply["execution_id"].startswith("exec-") and reply["context_id"].startswith("ctx-")


def test_variables_functions_imports_files_threads_and_cwd_live_on(client, sandbox):
    box = sandbox()
    client.exec(
        "import json, os, threading, time\n"
        "def twice(n): return 2 * n\n"
        "log = open('notes.txt', 'w+'); log.write('first ')\n"
        "os.makedirs('work', exist_ok=True); os.chdir('work')\n"
        "ticks = 0\n"
        "def tick():\n    global ticks\n    while True:\n        ticks += 1; time.sleep(0.01)\n"
        "threading.Thread(target=tick, daemon=True).start()",
        sandbox_id=box,
    )
    earlier = int(client.exec("print(ticks)", sandbox_id=box)["output"])
    reply = client.exec(
        "time.sleep(0.2); log.write('second'); log.seek(0); print(json.dumps([twice(21), log.read(), os.path.basename(os.getcwd()), ticks]))",
        sandbox_id=box,
    )
    doubled, text, folder, later = json.loads(reply["output"])
    assert (doubled, text, folder) == (42, "first second", "work")
    assert later > earlier


def test_typescript_state_lives_on_and_may_be_declared_again(client, sandbox):
    box = sandbox("typescript")
    client.exec("interface P { n: number }\nconst p: P = { n: 41 };\nfunction inc(v: P): number { return v.n + 1 }", sandbox_id=box)
    assert client.exec("print(inc(p))", sandbox_id=box)["output"] == "42"
    assert client.exec("const p = { n: 1 }; inc(p)", sandbox_id=box)["output"] == "2"
    assert client.exec("import { z } from 'zod'; const r = await Promise.resolve(z.string().parse('ok')); console.log(r)", sandbox_id=box)["output"] == "ok"


def test_bash_on_an_existing_sandbox_shares_its_files_and_keeps_its_own_state(client, sandbox):
    box = sandbox()
    client.exec("open('/tmp/shared', 'w').write('from python')", sandbox_id=box)
    first = client.exec("cat /tmp/shared; x=5; cd /tmp", sandbox_id=box, language="bash")
    assert first["output"] == "from python"
    second = client.exec("echo $x; pwd", sandbox_id=box, language="bash")
    assert second["output"] == "5\n/tmp"
    assert second["context_id"] == first["context_id"]


def test_two_sandboxes_never_see_each_other(client, sandbox):
    one, two = sandbox(), sandbox()
    client.exec("secret = 'one'; open('/tmp/f', 'w').write('one')", sandbox_id=one)
    reply = client.exec("import os; print('secret' in globals(), os.path.exists('/tmp/f'))", sandbox_id=two)
    assert reply["output"] == "False False"


def test_fifty_sandboxes_in_parallel_stay_apart(atoll):
    def session(n):
        client = atoll.client()
        box = client.exec(f"mine = {n}", language="python")["sandbox_id"]
        values = [client.exec("mine += 1000; print(mine)", sandbox_id=box)["output"] for _ in range(3)]
        client.delete(box)
        client.close()
        return box, values

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(session, range(50)))
    assert len({box for box, _ in answers}) == 50
    for n, (_, values) in enumerate(answers):
        assert values == [str(n + 1000), str(n + 2000), str(n + 3000)]


def test_calls_to_one_context_queue_in_order(client, sandbox):
    box = sandbox()
    client.exec("import time; order = []; time.sleep(0.01)", sandbox_id=box)
    sent = [client.post_without_waiting(f"time.sleep(0.2); order.append({n})", sandbox_id=box) for n in range(8) if not time.sleep(0.1)]
    for connection in sent:
        assert json.loads(connection.getresponse().read())["exit_reason"] == "completed"
        connection.close()
    assert client.exec("print(order)", sandbox_id=box)["output"] == str(list(range(8)))


def test_two_contexts_of_one_sandbox_run_at_once(atoll, sandbox):
    box = sandbox()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(lambda: atoll.client().exec("import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('seen')", sandbox_id=box, timeout_seconds=20))
        atoll.client().exec("touch /tmp/go", sandbox_id=box, language="bash")
        assert waiting.result()["output"] == "seen"


def test_environment_of_one_call_ends_with_it(client, sandbox):
    box = sandbox()
    assert client.exec("import os; print(os.environ['TOKEN'])", sandbox_id=box, env={"TOKEN": "t1"})["output"] == "t1"
    assert client.exec("import os; print(os.environ.get('TOKEN'))", sandbox_id=box)["output"] == "None"


def test_records_are_readable_afterwards(client):
    reply = client.exec("print('kept')", language="python")
    client.delete(reply["sandbox_id"])
    record = client.call("GET", f"/v1/executions/{reply['execution_id']}")
    assert record["stdout"] == "kept\n" and record["exit_reason"] == "completed"
    ended = client.sandbox(reply["sandbox_id"])
    assert ended["state"] == "ended" and ended["end_reason"]
    listed = client.call("GET", "/v1/sandboxes")
    assert {"items", "next"} <= set(listed)


CELLS_AS_SCRIPTS = {
    "asyncio_run": ("import asyncio\nasync def f(): return 5\nprint(asyncio.run(f()))", "5"),
    "top_level_await": ("import asyncio\nawait asyncio.sleep(0); print('awaited')", "awaited"),
    "main_guard": ("if __name__ == '__main__': print('main')", "main"),
    "getsource": ("class A:\n    x = 1\nimport inspect; print(inspect.getsource(A).splitlines()[0])", "class A:"),
    "pickle": ("import pickle\nclass B:\n    def __init__(self): self.v = 3\nprint(pickle.loads(pickle.dumps(B())).v)", "3"),
}


@pytest.mark.parametrize("name", CELLS_AS_SCRIPTS)
def test_agents_write_cells_as_scripts(client, sandbox, name):
    code, expected = CELLS_AS_SCRIPTS[name]
    reply = client.exec(code, sandbox_id=sandbox())
    assert reply["output"] == expected, reply


def test_exit_ends_the_cell_and_not_the_state(client, sandbox):
    box = sandbox()
    reply = client.exec("kept = 1\nprint('before')\nexit(3)\nprint('after')", sandbox_id=box)
    assert (reply["output"], reply["exit_reason"], reply["exit_code"]) == ("before", "exited", 3)
    assert client.exec("print(kept)", sandbox_id=box)["output"] == "1"
    box = sandbox("typescript")
    reply = client.exec("const kept = 1; console.log('before'); process.exit(3); console.log('after')", sandbox_id=box)
    assert (reply["output"], reply["exit_reason"], reply["exit_code"]) == ("before", "exited", 3)
    assert client.exec("kept", sandbox_id=box)["output"] == "1"

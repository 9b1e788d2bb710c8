"""Programs and clients that go wrong: each gets the right answer, and the server is healthy afterwards (see conftest)."""

import base64
import http.client
import json
import socket
import threading
import time

import pytest

from installation import ApiError
from test_hostile import survived_a_bomb


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("the awaited state did not come")


def test_syntax_error_names_the_line(client, sandbox):
    reply = client.exec("x = 1\nif x\n  print(x)", sandbox_id=sandbox())
    assert reply["exit_reason"] == "error" and reply["error"]["name"] == "SyntaxError"
    assert "if x" in reply["error"]["traceback"] and "line 2" in reply["error"]["traceback"]


@pytest.mark.parametrize("language, code, name, line", [
    ("python", "def f(v):\n    return 1 / v\nf(0)", "ZeroDivisionError", "return 1 / v"),
    ("typescript", "function f(v: any) {\n  return v.a.b;\n}\nf({})", "TypeError", ":2"),
])
def test_exception_has_name_message_and_the_users_line(client, sandbox, language, code, name, line):
    reply = client.exec(code, sandbox_id=sandbox(language))
    assert reply["exit_reason"] == "error"
    assert reply["error"]["name"] == name and reply["error"]["message"] and line in reply["error"]["traceback"]


@pytest.mark.parametrize("language, code", [
    ("python", "kept = 7\nprint('partial')\nwhile True: pass"),
    ("python", "kept = 7\nprint('partial')\nimport time; time.sleep(60)"),
    ("python", "kept = 7\nprint('partial')\nimport subprocess; subprocess.run(['sleep', '60'])"),
    ("bash", "kept=7; echo partial; sleep 60"),
    ("typescript", "let kept = 7; console.log('partial'); await new Promise(r => setTimeout(r, 60000))"),
    ("typescript", "let kept = 7; console.log('partial'); while (true) {}"),
])
def test_timeout_returns_in_time_with_partial_output_and_says_what_became_of_the_state(client, sandbox, language, code):
    box = sandbox("typescript" if language == "typescript" else "python")
    client.exec("1" if language == "typescript" else "echo" if language == "bash" else "1", sandbox_id=box, language=language)
    begin = time.monotonic()
    reply = client.exec(code, sandbox_id=box, language=language, timeout_seconds=2)
    took = time.monotonic() - begin
    assert 1.9 <= took <= 2.8, took
    assert reply["exit_reason"] == "timeout" and reply["stdout"] == "partial\n"
    after = client.exec({"bash": "echo $kept", "typescript": "print(kept)", "python": "print(kept)"}[language], sandbox_id=box, language=language)
    if reply["state_kept"]:
        assert after["output"] == "7"
    else:
        assert after["output"] != "7"
    if language != "typescript":
        assert reply["state_kept"] is True


def test_code_that_swallows_the_interrupt_is_killed_and_it_is_said(client, sandbox):
    box = sandbox()
    reply = client.exec("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); print('in')\nwhile True: pass", sandbox_id=box, timeout_seconds=2)
    assert reply["exit_reason"] == "timeout" and reply["state_kept"] is False and reply["stdout"] == "in\n"
    assert client.exec("print('fresh')", sandbox_id=box)["output"] == "fresh"


def test_os_exit_reports_a_dead_interpreter_and_the_sandbox_goes_on(client, sandbox):
    box = sandbox()
    client.exec("open('/tmp/kept', 'w').write('yes')", sandbox_id=box)
    reply = client.exec("print('last words', flush=True)\nimport os; os._exit(9)", sandbox_id=box)
    assert (reply["exit_reason"], reply["exit_code"], reply["state_kept"]) == ("kernel_died", 9, False)
    assert reply["stdout"] == "last words\n"
    assert client.exec("print(open('/tmp/kept').read())", sandbox_id=box)["output"] == "yes"


def test_kill_minus_nine_of_pid_one_is_answered(client, sandbox):
    box = sandbox()
    client.exec("open('/tmp/kept', 'w').write('yes')", sandbox_id=box)
    reply = client.exec("sudo kill -9 1; sleep 1; echo still here", sandbox_id=box, language="bash")
    assert reply["exit_reason"] in ("completed", "kernel_died"), reply
    assert client.exec("print(open('/tmp/kept').read())", sandbox_id=box)["output"] == "yes"


def test_fork_bomb_is_contained(client, sandbox):
    box = sandbox()
    reply = client.exec("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", sandbox_id=box, timeout_seconds=4)
    assert reply["exit_reason"] in ("timeout", "kernel_died", "out_of_memory"), reply
    survived_a_bomb(client, box)


@pytest.mark.parametrize("bomb", ["b = bytearray(2 << 30)", "l = []\nwhile True: l.append('x' * 1000000)", "b = b'x' * (200 << 20)\nc = b + b"])
def test_memory_bomb_is_reported_with_limit_and_peak(client, sandbox, bomb):
    box = sandbox()
    client.exec("mine=kept", sandbox_id=box, language="bash")
    reply = client.exec("print('before')\n" + bomb, sandbox_id=box)
    if reply["exit_reason"] == "error":  # the interpreter itself refused the allocation
        assert reply["error"]["name"] == "MemoryError"
    else:
        assert reply["exit_reason"] == "out_of_memory", reply
        assert reply["stdout"] == "before\n"
        assert reply["memory_limit_bytes"] == 256 << 20 and reply["memory_peak_bytes"] > 128 << 20
    try:
        assert client.exec("echo $mine", sandbox_id=box, language="bash")["output"] == "kept"
    except ApiError as e:
        assert e.code == "sandbox_ended" and "memory" in json.dumps(e.error), e


def test_full_disk_is_an_error_inside_only(client, sandbox):
    box = sandbox()
    reply = client.exec(
        "import errno\ntry:\n    with open('/tmp/fill', 'wb') as f:\n        while True: f.write(b'x' * (8 << 20))\nexcept OSError as e: print(errno.errorcode[e.errno])",
        sandbox_id=box, timeout_seconds=60)
    assert reply["output"] == "ENOSPC", reply
    client.exec("rm /tmp/fill", sandbox_id=box, language="bash")
    assert client.exec("open('/tmp/small', 'w').write('ok'); print(open('/tmp/small').read())", sandbox_id=box)["output"] == "ok"


def test_hundred_megabytes_of_output_are_bounded_flagged_and_counted(client, sandbox):
    box = sandbox()
    reply = client.exec("import sys\nfor i in range(1600): sys.stdout.write(('%05d' % i) + 'x' * 65530 + '\\n')", sandbox_id=box, timeout_seconds=120)
    total = 1600 * 65536
    assert reply["exit_reason"] == "completed" and reply["truncated"] is True and reply["stdout_bytes"] == total
    assert len(reply["stdout"]) <= (1 << 20) + 200
    assert reply["stdout"].startswith("00000x") and "01599x" in reply["stdout"][-70000:]
    whole = client.call("GET", f"/v1/executions/{reply['execution_id']}/output?stream=stdout&offset={total - 65536}")
    assert whole.startswith(b"01599x") and len(whole) == 65536


def test_one_fifty_megabyte_line(client, sandbox):
    reply = client.exec("print('y' * (50 << 20))", sandbox_id=sandbox(), timeout_seconds=120)
    assert reply["stdout_bytes"] == (50 << 20) + 1 and reply["truncated"] is True and reply["stdout"].startswith("yyy")


def test_nul_bytes_and_broken_utf8(client, sandbox):
    box = sandbox()
    code = "import sys; sys.stdout.buffer.write(b'a\\x00b\\xff\\xfec\\xf0\\x9f'); sys.stdout.flush()"
    reply = client.exec(code, sandbox_id=box)
    assert reply["stdout"].startswith("a\x00b\ufffd") and "c" in reply["stdout"]
    raw = client.call("GET", f"/v1/executions/{reply['execution_id']}/output?stream=stdout")
    assert raw == b"a\x00b\xff\xfec\xf0\x9f"
    pieces = [data for event, data, _ in client.stream(code, sandbox_id=box) if event == "output"]
    joined = b"".join(base64.b64decode(p["base64"]) if "base64" in p else p["text"].encode() for p in pieces)
    assert joined == b"a\x00b\xff\xfec\xf0\x9f"


def test_emoji_split_over_chunks_stays_whole(client, sandbox):
    code = "import os, time\ndata = 'grüße 👩‍🚀 ok'.encode()\nfor b in data:\n    os.write(1, bytes([b])); time.sleep(0.002)"
    box = sandbox()
    assert client.exec(code, sandbox_id=box)["output"] == "grüße 👩‍🚀 ok"
    text = "".join(data["text"] for event, data, _ in client.stream(code, sandbox_id=box) if event == "output")
    assert text == "grüße 👩‍🚀 ok"


@pytest.mark.parametrize("language, code", [("python", "input('name? ')"), ("typescript", "prompt('name?')")])
def test_input_without_stdin_fails_at_once(client, sandbox, language, code):
    begin = time.monotonic()
    reply = client.exec(code, sandbox_id=sandbox(language))
    assert time.monotonic() - begin < 3
    assert reply["exit_reason"] == "error" and "stdin" in (reply["error"]["name"] + reply["error"]["message"]).lower()


def test_code_of_ten_megabytes(client, sandbox):
    reply = client.exec("x = '" + "z" * (10 << 20) + "'\nprint(len(x))", sandbox_id=sandbox())
    assert reply["output"] == str(10 << 20)


def test_carriage_returns_are_folded_as_in_a_terminal(client, sandbox):
    reply = client.exec("import sys\nfor p in range(0, 101, 10): sys.stdout.write(f'\\r{p}%'); sys.stdout.flush()\nprint()", sandbox_id=sandbox())
    assert reply["output"] == "100%"


@pytest.mark.parametrize("fields, status, code", [
    ({"sandbox_id": "sb-exec-00000000000000000000000000"}, 404, "sandbox_not_found"),
    ({"sandbox_id": "../../etc/passwd"}, 400, "invalid_request"),
    ({"template": "no-such-template"}, 404, "template_not_found"),
    ({"language": "cobol"}, 400, "language_not_found"),
    ({"timeout_seconds": -1}, 400, "invalid_request"),
    ({"timeout_seconds": "soon"}, 400, "invalid_request"),
    ({"env": ["A=B"]}, 400, "invalid_request"),
])
def test_wrong_fields_get_a_clear_error(client, fields, status, code):
    with pytest.raises(ApiError) as caught:
        client.exec("1", **fields)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert set(caught.value.error) == {"code", "message", "cause", "remediation"} and caught.value.error["remediation"]


def test_language_that_the_template_lacks(client, sandbox):
    with pytest.raises(ApiError) as caught:
        client.exec("1", sandbox_id=sandbox("python"), language="typescript")
    assert caught.value.status in (400, 409, 422) and "python" in json.dumps(caught.value.error)


def test_deleted_sandbox_says_so(client):
    box = client.exec("1", language="python")["sandbox_id"]
    client.delete(box)
    with pytest.raises(ApiError) as caught:
        client.exec("1", sandbox_id=box)
    assert caught.value.code == "sandbox_ended" and "delete" in json.dumps(caught.value.error)
    client.delete(box)


def raw_request(atoll, method, path, body=b"", headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", atoll.port, timeout=30)
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, text


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic Zm9v"}])
def test_wrong_key_is_refused(atoll, client, headers):
    status, body = raw_request(atoll, "POST", "/v1/code_exec", b'{"code":"1"}', headers)
    assert status == 401 and json.loads(body)["error"]["code"] == "unauthenticated"


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"code": 5}', b"{}", b"\xff\xfe", b'{"code":"1"} trailing'])
def test_malformed_body_is_refused(atoll, client, body):
    status, text = raw_request(atoll, "POST", "/v1/code_exec", body, {"Authorization": f"Bearer {atoll.key}"})
    assert status == 400 and json.loads(text)["error"]["code"] == "invalid_request", text


def test_body_too_large_is_refused(atoll, client):
    with socket.create_connection(("127.0.0.1", atoll.port), timeout=30) as s:
        s.sendall(b"POST /v1/code_exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + atoll.key.encode() + b"\r\nContent-Type: application/json\r\nContent-Length: 200000000\r\n\r\n")
        try:
            for _ in range(3000):
                s.sendall(b" " * 65536)
        except OSError:
            pass
        answer = s.recv(4096)
    assert b" 413 " in answer.split(b"\r\n", 1)[0], answer


def test_unknown_path_and_wrong_method_answer_in_the_same_form(atoll, client):
    auth = {"Authorization": f"Bearer {atoll.key}"}
    status, body = raw_request(atoll, "GET", "/v1/nothing", headers=auth)
    assert status == 404 and json.loads(body)["error"]["code"]
    status, body = raw_request(atoll, "PUT", "/v1/code_exec", headers=auth)
    assert status == 405 and json.loads(body)["error"]["code"]


def test_client_that_disconnects_does_not_kill_what_runs(atoll, client, sandbox):
    box = sandbox()
    s = socket.create_connection(("127.0.0.1", atoll.port))
    body = json.dumps({"code": "import time; time.sleep(1.5); done = 'finished'; print(done)", "sandbox_id": box}).encode()
    s.sendall(b"POST /v1/code_exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + atoll.key.encode() + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    time.sleep(0.4)
    s.close()
    assert client.exec("print(done)", sandbox_id=box)["output"] == "finished"
    listed = client.call("GET", f"/v1/executions?sandbox_id={box}")["items"]
    assert any(e["exit_reason"] == "completed" and e.get("stdout", "finished\n") == "finished\n" for e in listed)


def test_client_that_reads_slowly_stalls_nobody(atoll, client, sandbox):
    box = sandbox()
    connection = http.client.HTTPConnection("127.0.0.1", atoll.port, timeout=60)
    connection.request("POST", "/v1/code_exec", json.dumps({"code": "for i in range(800): print('x' * 65535)", "sandbox_id": box, "stream": True, "timeout_seconds": 60}),
                       {"Authorization": f"Bearer {atoll.key}", "Content-Type": "application/json"})
    response = connection.getresponse()
    response.read(1000)
    begin = time.monotonic()
    other = sandbox()
    for _ in range(5):
        assert client.exec("print(1)", sandbox_id=other)["output"] == "1"
    assert client.exec("print('same sandbox')", sandbox_id=box)["output"] == "same sandbox"
    assert time.monotonic() - begin < 30
    connection.close()


def test_stream_sends_output_while_the_code_runs(client, sandbox):
    box = sandbox()
    times = {}
    for event, data, at in client.stream("import time\nprint('one')\ntime.sleep(1)\nprint('two')", sandbox_id=box):
        times.setdefault(event if event != "output" else data["text"].strip(), at)
    assert times["one"] < 0.7 and 1.0 <= times["two"] < 2.5 and times["done"] >= times["two"]


def test_stdout_and_stderr_are_apart_and_in_order(client, sandbox):
    box = sandbox()
    code = "import sys\nfor i in range(50):\n    print('o%d' % i)\n    print('e%d' % i, file=sys.stderr)"
    seen = "".join(data["text"] for event, data, _ in client.stream(code, sandbox_id=box) if event == "output")
    assert seen.split() == [f"{k}{i}" for i in range(50) for k in "oe"]


def test_threads_that_print_after_their_cell_harm_nobody(client, sandbox):
    box = sandbox()
    client.exec("import threading, time\ndef late():\n    for _ in range(20): time.sleep(0.05); print('LATE')\nthreading.Thread(target=late).start()", sandbox_id=box)
    reply = client.exec("time.sleep(0.5); print('mine')", sandbox_id=box)
    assert reply["output"] == "mine"


def test_a_daemon_of_the_user_does_not_hold_the_answer(client, sandbox):
    box = sandbox()
    begin = time.monotonic()
    reply = client.exec("(sleep 30; echo never) & setsid sleep 30 & echo started", sandbox_id=box, language="bash")
    assert reply["output"].startswith("started") and time.monotonic() - begin < 5


def test_many_queued_calls_all_finish(atoll, client, sandbox):
    box = sandbox()
    client.exec("count = 0", sandbox_id=box)
    threads = [threading.Thread(target=lambda: atoll.client().exec("count += 1", sandbox_id=box)) for _ in range(64)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert client.exec("print(count)", sandbox_id=box)["output"] == "64"


@pytest.mark.parametrize("language, code, status", [("bash", "true; false", 1), ("bash", "(exit 7)", 7), ("python", "1", 0), ("typescript", "1", 0)])
def test_code_that_runs_to_its_end_has_an_exit_code(client, sandbox, language, code, status):
    reply = client.exec(code, sandbox_id=sandbox("typescript" if language == "typescript" else "python"), language=language)
    assert (reply["exit_reason"], reply["exit_code"]) == ("completed", status)

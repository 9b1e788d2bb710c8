"""Programs in a sandbox: started, fed, read, signalled and waited for over HTTP."""

import hashlib
import json
import threading
import time

import pytest

from inside import ALL_BYTES, EMOJI, Box, Chunked, await_that, events, new_key, text_or_bytes
from installation import ApiError


def commands(box):
    return [" ".join(p["argv"]) or p["command"] for p in box.ps()]


def joined(seen, stream):
    return b"".join(text_or_bytes(data) for _, event, data in seen if event == stream)


# Starting


def test_started_process_is_listed_and_found_by_its_id_and_by_its_pid(box):
    view = box.start("sleep", "1000", labels={"purpose": "test"})
    assert view["process_id"].startswith("proc-") and view["pid"] > 0 and view["state"] == "running" and view["sandbox_id"] == box.id
    assert view["argv"] == ["sleep", "1000"] and view["labels"] == {"purpose": "test"} and view["started_at"].endswith("Z") and view["main"] is False
    assert box.process(view["process_id"])["pid"] == view["pid"]
    assert box.process(view["pid"])["process_id"] == view["process_id"]
    ended = box.run("true")
    assert [p["process_id"] for p in box.call("GET", "/processes", state="running")["items"]] == [view["process_id"]]
    assert [p["process_id"] for p in box.call("GET", "/processes", state="ended")["items"]] == [ended["process_id"]]
    assert {p["process_id"] for p in box.call("GET", "/processes")["items"]} == {view["process_id"], ended["process_id"]}


def test_arguments_arrive_as_they_are(box):
    arguments = ["two words", "", "$HOME", "`id`", "'\"", "line\nbreak", "ünï🎉", "-n", "*"]
    reply = box.run("python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *arguments)
    assert json.loads(reply["stdout"]) == arguments


def test_command_is_the_shells(box):
    assert box.shell("echo one two | tr a-z A-Z && echo $((6 * 7))")["stdout"] == "ONE TWO\n42\n"


def test_folder_environment_and_user_are_the_callers_choice(box):
    assert box.run("pwd", cwd="/usr/lib")["stdout"] == "/usr/lib\n"
    assert box.shell("echo $A; echo $B", env={"A": "1", "B": "zwei drei"})["stdout"] == "1\nzwei drei\n"
    assert box.run("id", "-un")["stdout"] == "user\n"
    root = box.run("id", "-u", user="root")
    assert root["stdout"] == "0\n" and root["user"] == "root"
    assert box.run("id", "-u", user="1234")["stdout"] == "1234\n"
    assert box.shell("touch /etc/made-by-root && stat -c %U /etc/made-by-root", user="root")["stdout"] == "root\n"


def test_sudo_works(box):
    assert box.run("sudo", "id", "-u")["stdout"] == "0\n"


@pytest.mark.parametrize("fields, word", [
    ({"argv": ["true"], "user": "nobody-of-that-name"}, "nobody-of-that-name"),
    ({"argv": ["true"], "cwd": "/not/there"}, "/not/there"),
    ({"argv": ["no-such-program"]}, "no-such-program"),
    ({"argv": ["/etc/hostname"]}, "/etc/hostname"),
    ({"argv": []}, "argv"), ({}, "argv"), ({"argv": ["a"], "command": "b"}, "command"), ({"argv": ["a\0b"]}, ""), ({"argv": "true"}, "argv"),
    ({"argv": ["true"], "pty": {"cols": 0, "rows": 24}}, ""), ({"argv": ["true"], "timeout_seconds": -1}, "timeout"), ({"argv": ["true"], "env": {"A=B": "c"}}, ""),
    ({"argv": ["true"], "nonsense": 1}, "nonsense"), ({"argv": ["x" * (2 << 20)]}, ""),
])
def test_what_cannot_be_started_is_refused_with_the_reason(box, fields, word):
    refused = box.refused("POST", "/processes", fields)
    assert 400 <= refused.status < 500 and word in json.dumps(refused.error), refused


def test_same_key_starts_once_and_another_body_is_a_conflict(box):
    key = new_key()
    first = box.start("sh", "-c", "echo ran >> /tmp/runs; sleep 1000", key=key)
    assert box.start("sh", "-c", "echo ran >> /tmp/runs; sleep 1000", key=key)["process_id"] == first["process_id"]
    assert box.refused("POST", "/processes", {"argv": ["true"]}, {"Idempotency-Key": key}).status == 409
    await_that(lambda: box.run("cat", "/tmp/runs")["stdout"] == "ran\n")


def test_unknown_processes_and_those_of_other_sandboxes_are_not_found(box, boxes):
    theirs = boxes().start("sleep", "1000")["process_id"]
    for one in (theirs, "proc-" + "0" * 26, "999999", "nonsense"):
        for method, rest in (("GET", ""), ("GET", "/output"), ("GET", "/events"), ("POST", ":wait"), ("DELETE", "")):
            refused = box.refused(method, f"/processes/{one}{rest}", {} if method == "POST" else None)
            assert refused.status in (400, 404), refused


def test_processes_of_an_ended_sandbox_stay_readable_and_no_new_ones_start(client, boxes):
    box = boxes()
    process = box.shell("echo kept; exit 3")["process_id"]
    running = box.start("sh", "-c", "echo cut off; sleep 1000")["process_id"]
    await_that(lambda: box.output(running) == b"cut off\n")
    client.delete(box.id)
    assert box.output(process) == b"kept\n" and box.process(process)["exit_code"] == 3
    ended = box.process(running)
    assert ended["state"] == "ended" and ended["exit_reason"] == "sandbox_ended" and box.output(running) == b"cut off\n"
    refused = box.refused("POST", "/processes", {"argv": ["true"]})
    assert (refused.status, refused.code) == (410, "sandbox_ended")


# How it ends


def test_exit_code_and_signal_are_told(box):
    view = box.shell("exit 42")
    assert (view["state"], view["exit_reason"], view["exit_code"], view.get("signal")) == ("ended", "exited", 42, None)
    view = box.shell("kill -9 $$")
    assert (view["exit_reason"], view["exit_code"]) == ("signaled", 137) and view["signal"] in (9, "KILL", "SIGKILL")
    assert view["ended_at"] >= view["started_at"] and view["duration_ms"] >= 0


def test_timeout_ends_the_whole_tree_with_its_partial_output(box):
    begin = time.monotonic()
    view = box.shell("echo partial; sleep 1111 & setsid sleep 2222 & setsid setsid sleep 3333 & wait", timeout_seconds=2)
    assert 1.9 < time.monotonic() - begin < 20
    assert view["exit_reason"] == "timeout" and view["stdout"] == "partial\n" and view["exit_code"] == 137
    assert 2000 <= view["duration_ms"] < 15000
    await_that(lambda: not [c for c in commands(box) if c.startswith("sleep")], "the end of the tree")


def test_background_process_outlives_its_request_and_a_stuck_one_stops_nobody(box):
    stuck = box.start("sh", "-c", "trap '' TERM INT; while :; do sleep 1; done")
    with box.open("POST", "/processes", json.dumps({"command": "sleep 2; echo outlived"}), {"Content-Type": "application/json", "Accept": "text/event-stream"}) as stream:
        started = next(events(stream))
        process = started[2]["process_id"]
    # The connection is closed now.
    assert box.wait(process)["exit_reason"] == "exited" and box.output(process) == b"outlived\n"
    assert box.shell("cat <<E\nhere\nE")["stdout"] == "here\n"
    assert box.process(stuck["process_id"])["state"] == "running"


def test_waiting_answers_early_when_asked_to(box):
    view = box.start("sh", "-c", "echo begun; read x; echo $x", stdin=True, wait=True, wait_seconds=1)
    assert view["state"] == "running" and view["stdout"] == "begun\n"
    process = view["process_id"]
    assert box.call("POST", f"/processes/{process}:wait", {"timeout_seconds": 0.2})["state"] == "running"
    box.write(process, b"go on\n")
    assert box.wait(process)["exit_code"] == 0 and box.output(process) == b"begun\ngo on\n"


def test_memory_bomb_ends_alone_with_limit_and_peak(box):
    box.client.exec("kept = 7", sandbox_id=box.id)
    quiet = box.start("sleep", "1000")
    view = box.run("python3", "-c", "print('before', flush=True)\nl = []\nwhile True: l.append(bytearray(4 << 20))", timeout_seconds=60)
    assert view["exit_reason"] == "out_of_memory" and view["stdout"] == "before\n", view
    assert view["memory"]["limit_bytes"] == 256 << 20 and 128 << 20 < view["memory"]["peak_bytes"] < 500 << 20
    if view["exit_code"] is None:
        # The host was faster than the guard inside, as it may be on a busy machine: then the sandbox has ended, with that reason.
        ended = box.client.call("GET", f"/v1/sandboxes/{box.id}")
        assert ended["end_reason"] == "out_of_memory", ended
        return
    assert view["exit_code"] in (137, 1), view
    assert box.client.exec("print(kept)", sandbox_id=box.id)["output"] == "7"
    assert box.process(quiet["process_id"])["state"] == "running"


def test_grandchild_that_holds_the_pipe_does_not_hold_up_the_end(box):
    begin = time.monotonic()
    view = box.shell("sleep 1000 & echo done")
    assert view["stdout"] == "done\n" and view["exit_code"] == 0 and time.monotonic() - begin < 30
    assert any(c == "sleep 1000" for c in commands(box))


def test_orphans_are_reaped(box):
    box.run("python3", "-c", "import os\nfor _ in range(100):\n    if os.fork() == 0:\n        if os.fork() == 0: os._exit(0)\n        os._exit(0)\n    os.wait()")
    await_that(lambda: not [p for p in box.ps() if p["state"].startswith("Z")], "the reaping of every orphan")


# Signals


def test_signals_reach_the_process_its_group_or_its_tree(box):
    counting = "trap 'echo got TERM' TERM; trap 'echo got USR1' USR1; echo ready; while :; do sleep 0.05; done"
    process = box.start(command=counting)["process_id"]
    await_that(lambda: b"ready" in box.output(process))
    box.signal(process, "USR1", target="process")
    await_that(lambda: b"got USR1" in box.output(process))
    box.signal(process, 15)
    await_that(lambda: b"got TERM" in box.output(process))
    box.signal(process, "KILL")
    assert box.wait(process)["exit_code"] == 137
    group = box.start("sh", "-c", "sleep 4444 & sleep 4445")["process_id"]
    await_that(lambda: "sleep 4444" in commands(box))
    box.signal(group, "TERM")
    assert box.wait(group)["exit_code"] == 143
    await_that(lambda: not {"sleep 4444", "sleep 4445"} & set(commands(box)), "the end of the group")


def test_kill_and_delete_take_the_whole_tree_also_what_has_left_its_session(box):
    for end in (lambda p: box.signal(p, "KILL"), lambda p: box.call("DELETE", f"/processes/{p}")):
        process = box.start("sh", "-c", "setsid sleep 5555 & setsid sh -c 'setsid sleep 5556 & exit' & sleep 5557")["process_id"]
        await_that(lambda: len([c for c in commands(box) if c.startswith("sleep 555")]) == 3)
        end(process)
        assert box.wait(process)["exit_reason"] == "signaled"
        await_that(lambda: not [c for c in commands(box) if c.startswith("sleep 555")], "the end of the tree")


def test_signal_to_what_has_ended_says_so(box):
    process = box.run("true")["process_id"]
    assert box.signal(process, "TERM")["state"] == "ended"
    assert box.refused("POST", f"/processes/{process}:signal", {"signal": "NONSENSE"}).status == 400


def test_ps_shows_every_process_and_signals_any(box):
    box.client.exec("import subprocess\nchild = subprocess.Popen(['sleep', '6666'])", sandbox_id=box.id)
    process = box.start("sh", "-c", "sleep 7777; true")["process_id"]
    rows = await_that(lambda: {" ".join(p["argv"]): p for p in box.ps()} if {"sleep 6666", "sleep 7777"} <= set(commands(box)) else None)
    assert rows["sleep 7777"]["process_id"] == process and rows["sleep 6666"]["context_id"].startswith("ctx-")
    one = rows["sleep 6666"]
    assert one["user"] == "user" and one["uid"] == 1000 and one["parent_pid"] > 0 and one["memory_bytes"] > 0 and one["command"] == "sleep"
    assert not [c for c in commands(box) if "atoll-agent" in c]
    box.call("POST", f"/ps/{one['pid']}:signal", {"signal": "TERM"})
    assert box.client.exec("print(child.wait(30))", sandbox_id=box.id)["output"] == "-15"
    assert box.refused("POST", "/ps/999999:signal", {"signal": "TERM"}).status == 404


# Input


def test_program_without_input_reads_its_end_at_once(box):
    assert box.run("wc", "-c")["stdout"].strip() == "0"
    process = box.start("sleep", "1000")["process_id"]
    assert box.refused("POST", f"/processes/{process}/stdin", b"x").status == 409


def test_input_ends_after_several_writes(box):
    process = box.start("sort", stdin=True)["process_id"]
    for line in (b"c\n", b"a\n", b"b\n"):
        box.write(process, line)
    assert box.process(process)["stdin_offset"] == 6 and box.output(process) == b""
    assert box.write(process, b"", close=True)["closed"] is True
    assert box.wait(process)["exit_code"] == 0 and box.output(process) == b"a\nb\nc\n"
    assert box.process(process)["stdin_closed"] is True


def test_output_goes_on_after_input_has_ended(box):
    process = box.start("sh", "-c", "cat; sleep 0.3; echo after", stdin=True)["process_id"]
    box.write(process, b"before\n", close=True)
    assert box.wait(process)["exit_code"] == 0 and box.output(process) == b"before\nafter\n"


def test_repeated_input_is_taken_once_and_a_hole_is_refused(box):
    process = box.start("cat", stdin=True)["process_id"]
    assert box.write(process, b"hello ", offset=0)["offset"] == 6
    assert box.write(process, b"hello ", offset=0)["offset"] == 6
    assert box.write(process, b"lo world", offset=3)["offset"] == 11
    assert box.refused("POST", f"/processes/{process}/stdin", b"x", offset=100).status == 409
    box.write(process, b"", close=True)
    box.wait(process)
    assert box.output(process) == b"hello world"


def test_input_of_any_size_in_one_request(box):
    data = ALL_BYTES * (32 << 10)
    process = box.start("sha256sum", stdin=True)["process_id"]
    assert box.write(process, data, close=True)["offset"] == len(data)
    box.wait(process)
    assert box.output(process).split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_to_a_program_that_does_not_read_holds_nobody_up(box):
    process = box.start("sleep", "1000", stdin=True)["process_id"]
    other = box.again()
    thread = threading.Thread(target=lambda: quietly(lambda: other.write(process, bytes(4 << 20))), daemon=True)
    thread.start()
    for _ in range(5):
        assert box.shell("echo on")["stdout"] == "on\n"
    box.call("DELETE", f"/processes/{process}")
    thread.join(60)
    assert not thread.is_alive()


def quietly(call):
    try:
        return call()
    except (ApiError, OSError) as e:
        return e


# Output


def test_stdout_and_stderr_are_apart_and_together_in_order(box):
    view = box.shell("for i in 1 2 3; do echo out$i; sleep 0.1; echo err$i >&2; sleep 0.1; done")
    assert view["stdout"] == "out1\nout2\nout3\n" and view["stderr"] == "err1\nerr2\nerr3\n"
    assert view["output"] == "out1\nerr1\nout2\nerr2\nout3\nerr3" and view["truncated"] is False
    process = view["process_id"]
    assert box.output(process, "stdout") == b"out1\nout2\nout3\n" and box.output(process, "stderr") == b"err1\nerr2\nerr3\n"
    assert box.output(process) == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert (view["stdout_bytes"], view["stderr_bytes"]) == (15, 15)


def test_output_can_be_read_from_any_offset_as_often_as_wanted(box):
    process = box.shell("seq 1 1000")["process_id"]
    whole = "".join(f"{i}\n" for i in range(1, 1001)).encode()
    for offset in (0, 1, 1000, len(whole) - 1, len(whole)):
        assert box.output(process, "stdout", offset=offset) == whole[offset:]
    assert box.output(process, "stdout", offset=0) == whole


def test_output_is_followed_to_the_end(box):
    process = box.start(command="for i in $(seq 1 20); do echo $i; sleep 0.05; done")["process_id"]
    assert box.output(process, "stdout", follow=True) == "".join(f"{i}\n" for i in range(1, 21)).encode()
    assert box.process(process)["state"] == "ended"


def test_last_byte_arrives_before_the_exit_event(box):
    for n in range(15):
        process = box.start(command=f"head -c {n * 9973} /dev/zero | tr '\\0' x; printf end")["process_id"]
        seen = list(box.events(process))
        assert [event for _, event, _ in seen].count("exited") == 1 and seen[-1][1] == "exited", seen[-1]
        assert joined(seen, "stdout") == b"x" * (n * 9973) + b"end"
        assert seen[-1][2]["stdout_bytes"] == n * 9973 + 3


def test_events_can_be_resumed_after_each_of_them(box):
    process = box.shell("for i in $(seq 1 12); do echo $i; echo e$i >&2; sleep 0.02; done")["process_id"]
    whole = list(box.events(process))
    assert [event for _, event, _ in whole][0] == "started" and whole[-1][1] == "exited"
    numbers = [int(n) for n, _, _ in whole]
    assert numbers == sorted(set(numbers))
    for i in range(len(whole) - 1):
        rest = list(box.events(process, after=whole[i][0]))
        for stream in ("stdout", "stderr"):
            assert joined(whole[:i + 1], stream) + joined(rest, stream) == joined(whole, stream)
        assert rest[-1][1] == "exited"


def test_stream_of_a_start_brings_everything(box):
    with box.open("POST", "/processes", json.dumps({"command": "echo out; echo err >&2; exit 7"}), {"Content-Type": "application/json", "Accept": "text/event-stream"}) as response:
        seen = list(events(response))
    assert seen[0][1] == "started" and seen[0][2]["process_id"].startswith("proc-")
    assert joined(seen, "stdout") == b"out\n" and joined(seen, "stderr") == b"err\n"
    assert seen[-1][1] == "exited" and seen[-1][2]["exit_code"] == 7


SPLITTER = """
import os, sys, time
data = sys.argv[1].encode()
for at in range(1, len(data)):
    for piece in (data[:at], data[at:]):
        os.write(1, piece)
        time.sleep(0.004)
"""


def test_emoji_split_at_every_offset_stay_whole(box):
    data = EMOJI.encode()
    expected = EMOJI * (len(data) - 1)
    view = box.run("python3", "-c", SPLITTER, EMOJI)
    assert view["stdout"] == expected and view["output"] == expected
    seen = list(box.events(view["process_id"]))
    # As text, never cut: no event but the last resort for broken bytes is base64.
    assert "".join(data["text"] for _, event, data in seen if event == "stdout") == expected
    for offset in range(len(data) + 1):
        assert box.output(view["process_id"], "stdout", offset=offset) == expected.encode()[offset:]


def test_emoji_split_while_it_is_followed_stay_whole(box):
    process = box.start("python3", "-c", SPLITTER, EMOJI)["process_id"]
    assert "".join(data["text"] for _, event, data in box.events(process) if event == "stdout") == EMOJI * (len(EMOJI.encode()) - 1)


def test_all_256_byte_values_go_through_in_and_out(box):
    data = ALL_BYTES * 16
    process = box.start("tee", "/dev/stderr", stdin=True)["process_id"]
    box.write(process, data, close=True)
    box.wait(process)
    for stream in ("stdout", "stderr"):
        assert box.output(process, stream) == data
    assert joined(box.events(process), "stdout") == data and joined(box.events(process), "stderr") == data


def test_hundred_megabytes_with_a_slow_reader_who_holds_nobody_up_and_is_told_the_gap(box):
    box.call("PATCH", "", {"limits": {"cpu": 0}})
    total = 100 << 20
    process = box.start(command=f"head -c {total} /dev/zero; echo end")["process_id"]
    slow = Chunked(box, f"/processes/{process}/output", stream="stdout", follow="true")
    chunks = slow.chunks()
    read, last = len(next(chunks)), b""
    # It goes to its end though the one reader reads no more.
    view = box.wait(process, 120)
    assert view["stdout_bytes"] == total + 4 and view["exit_code"] == 0
    assert box.output(process, "stdout", offset=total - 1000) == bytes(1000) + b"end\n"
    for piece in chunks:
        read, last = read + len(piece), piece
    assert last.endswith(b"end\n") and read + slow.gap == total + 4 and read >= 32 << 20, (read, slow.gap)
    slow.close()


def test_dead_and_silent_readers_do_not_stall_others(box):
    box.call("PATCH", "", {"limits": {"cpu": 0}})
    process = box.start(command="for i in $(seq 1 200); do head -c 100000 /dev/zero; sleep 0.005; done")["process_id"]
    silent = []
    for rest in ("events", "output?stream=stdout&follow=true", "output?follow=true") * 3:
        connection = box.client.open()
        connection.request("GET", box.path(f"/processes/{process}/{rest}"), headers={"Authorization": f"Bearer {box.client.key}"})
        silent.append(connection)
    silent[0].sock.close()
    assert len(box.output(process, "stdout", follow=True)) == 200 * 100000
    assert box.wait(process)["exit_code"] == 0
    for connection in silent:
        connection.close()


def test_twenty_programs_at_once_keep_their_output_apart(box):
    started = [box.start(command=f"for i in $(seq 1 50); do echo {n}-$i; done")["process_id"] for n in range(20)]
    for n, process in enumerate(started):
        assert box.wait(process)["exit_code"] == 0
        assert box.output(process) == "".join(f"{n}-{i}\n" for i in range(1, 51)).encode()


# Main process


def test_main_process_ends_the_sandbox_and_its_output_stays(client):
    made = client.call("POST", "/v1/sandboxes", {"template": "python", "main": {"command": "echo main runs; read x; echo got $x; exit 5", "stdin": True, "ends_sandbox": True}})
    try:
        box = Box(client, made["sandbox_id"])
        main = made["main_process_id"]
        view = box.process(main)
        assert view["main"] is True and view["state"] == "running"
        await_that(lambda: box.output(main) == b"main runs\n")
        assert box.shell("echo beside it")["stdout"] == "beside it\n"
        box.write(main, b"input\n", close=True)
        ended = await_that(lambda: (found := client.sandbox(box.id))["state"] == "ended" and found)
        assert ended["end_reason"] == "main_exited" and "5" in ended["end_detail"], ended
        assert box.output(main) == b"main runs\ngot input\n" and box.process(main)["exit_code"] == 5
    finally:
        client.delete(made["sandbox_id"])


def test_main_process_may_end_alone(client, boxes):
    box = boxes(main={"argv": ["sh", "-c", "exit 3"], "ends_sandbox": False})
    main = client.sandbox(box.id)["main_process_id"]
    assert box.wait(main)["exit_code"] == 3
    assert box.shell("echo on")["stdout"] == "on\n"

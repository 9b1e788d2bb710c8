"""Terminals over WebSocket: what is typed and shown arrives whole, any number of viewers, any number of connections."""

import json

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from inside import ALL_BYTES, EMOJI, await_that


def test_terminal_is_a_login_shell_of_the_user(box):
    with box.terminal(cols=100, rows=30) as t:
        t.type("echo me-$(id -un) size-$(stty size | tr ' ' x) $(tty) term-$TERM- flags-$-; shopt -q login_shell && echo is''-login\n")
        t.until("is-login\r\n")
        assert b"me-user size-30x100 /dev/pts/" in t.shown and b"term--" not in t.shown
        t.type("exit 7\n")
        exited = t.to_end()
        assert exited["exit_code"] == 7 and exited["process_id"] == t.process and exited["state"] == "ended"
    view = box.process(t.process)
    assert view["pty"] == {"cols": 100, "rows": 30} and view["stdin"] is True


def test_socket_closes_normally_after_the_end(box):
    with box.terminal(command="echo bye") as t:
        t.to_end()
        with pytest.raises(ConnectionClosed):
            t.socket.recv(timeout=10)
        assert t.socket.close_code == 1000 and t.shown == b"bye\r\n"


def test_user_folder_environment_and_command_are_the_callers_choice(box):
    with box.terminal(user="root", cwd="/usr", command="echo $(id -un) $PWD $MINE", **{"env.MINE": "a=b c"}) as t:
        t.to_end()
        assert t.shown == b"root /usr a=b c\r\n"


def test_size_changes_while_it_runs(box):
    with box.terminal(cols=80, rows=24) as t:
        t.type("trap 'echo winch-$(stty size)' WINCH; echo re''ady\n")
        t.until("ready\r\n")
        t.tell(type="resize", cols=132, rows=43)
        t.type("\n")
        t.until("winch-43 132")
        box.call("POST", f"/processes/{t.process}:resize", {"cols": 90, "rows": 20})
        t.type("stty size\n")
        t.until("20 90")
        assert box.process(t.process)["pty"] == {"cols": 90, "rows": 20}
    for size in ({"cols": 0, "rows": 1}, {"cols": 100000, "rows": 24}):
        assert box.refused("POST", f"/processes/{t.process}:resize", size).status == 400


def test_ctrl_c_interrupts_and_ctrl_d_ends(box):
    with box.terminal() as t:
        t.type("echo go; sleep 1000\n")
        t.until("go\r\n")
        await_that(lambda: any(p["argv"][:2] == ["sleep", "1000"] for p in box.ps()))
        t.type("\x03")
        t.type("echo status-$?\n")
        t.until("status-130\r\n")
        # The prompt: what is typed before it, while the shell sets the terminal anew, is no Ctrl-D to it.
        while t.shown.endswith(b"status-130\r\n"):
            t.receive(60)
        t.type("\x04")
        assert t.to_end()["exit_reason"] == "exited"


def test_signals_come_as_messages_too(box):
    with box.terminal(command="trap 'echo caught; exit 3' USR1; echo ready; while :; do sleep 0.05; done") as t:
        t.until("ready")
        t.tell(type="signal", signal="USR1")
        assert t.to_end()["exit_code"] == 3 and b"caught" in t.shown


def test_long_output_is_whole(box):
    with box.terminal(command="stty -opost; seq 1 100000") as t:
        t.to_end(120)
        assert t.shown == "".join(f"{i}\n" for i in range(1, 100001)).encode()


def test_all_256_byte_values_go_through_in_and_out(box):
    data = ALL_BYTES * 8
    with box.terminal(command=f"stty raw -echo; echo ready; head -c {len(data)} | tee /tmp/typed") as t:
        t.until("ready\n")
        t.shown = b""
        for at in range(0, len(data), 100):
            t.type(data[at:at + 100])
        t.to_end()
        assert t.shown == data
    assert box.get("/tmp/typed") == data


def test_emoji_split_at_every_offset_stay_whole(box):
    data = EMOJI.encode()
    with box.terminal(command=f"stty raw -echo; echo ready; head -c {len(data) * (len(data) - 1)}") as t:
        t.until("ready\n")
        t.shown = b""
        for at in range(1, len(data)):
            t.type(data[:at])
            t.type(data[at:])
        t.to_end()
        assert t.shown.decode() == EMOJI * (len(data) - 1)


def test_closed_socket_ends_no_terminal_and_replay_misses_nothing(box):
    with box.terminal(command="stty -opost; for i in $(seq 1 60); do echo line $i; sleep 0.05; done; read x; echo got $x") as t:
        t.until("line 10\n")
    whole = "".join(f"line {i}\n" for i in range(1, 61))
    with box.terminal(process_id=t.process, offset=t.offset) as again:
        assert again.started["offset"] == t.offset
        again.until("line 30\n")
        # Not even a proper farewell.
        again.socket.socket.close()
    with box.terminal(process_id=t.process, offset=again.offset) as third:
        third.until("line 60\n")
        third.type("input\n")
        assert third.to_end()["exit_code"] == 0
    assert (t.shown + again.shown + third.shown).decode().startswith(whole) and b"got input\n" in third.shown
    with box.terminal(process_id=t.process) as replay:
        replay.to_end()
        assert replay.shown == t.shown + again.shown + third.shown


def test_viewers_see_the_same_and_all_may_type(box):
    with box.terminal() as first, box.terminal(process_id=first.process, offset=0) as second:
        first.type("echo from-$((0 + 1))\n")
        second.until("from-1\r\n")
        second.type("echo from-$((1 + 1))\n")
        first.until("from-2\r\n")
        second.until("from-2\r\n")
        first.type("exit\n")
        first.to_end()
        second.to_end()
        assert first.shown == second.shown and second.exited["exit_code"] == 0


def test_terminal_started_as_a_process_can_be_looked_at(box):
    process = box.start("sh", "-c", "stty size; read x; echo [$x]", pty={"cols": 77, "rows": 11})["process_id"]
    with box.terminal(process_id=process) as t:
        t.until("11 77\r\n")
        t.type("hi\n")
        assert t.to_end()["exit_code"] == 0
    assert box.output(process).endswith(b"[hi]\r\n")


def test_viewer_who_does_not_read_holds_nobody_up(box):
    box.call("PATCH", "", {"limits": {"cpu": 0}})
    with box.terminal(command="sleep 1; head -c 30000000 /dev/zero | tr '\\0' x; echo end") as t:
        silent = box.socket("/pty", process_id=t.process)
        t.to_end(120)
        assert t.shown.endswith(b"end\r\n") and len(t.shown) == 30000000 + 5
        silent.socket.close()


def test_endless_output_is_interrupted_by_ctrl_c(box):
    with box.terminal() as t:
        t.type("yes | head -c 1000000000000\n")
        t.until("y\r\ny\r\n")
        t.type("\x03")
        t.type("echo sta''tus-$?\n")
        t.until("status-", 120)


def test_escapes_of_a_terminal_pass_as_they_are(box):
    escapes = b"\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[?1049h\x1b[2J\x1b]8;;http://x\x07"
    box.put("/tmp/escapes", escapes)
    with box.terminal(command="stty -opost; cat /tmp/escapes") as t:
        t.to_end()
        assert t.shown == escapes


def test_browser_authenticates_by_sub_protocol(box):
    with box.socket("/pty", headers={}, subprotocols=("atoll.v1", f"atoll.bearer.{box.client.key}"), command="echo in") as s:
        assert s.subprotocol == "atoll.v1"
        assert json.loads(s.recv(timeout=30))["type"] == "started"


@pytest.mark.parametrize("headers, protocols", [({}, ("atoll.v1",)), ({"Authorization": "Bearer wrong"}, ("atoll.v1",)), ({}, ("atoll.v1", "atoll.bearer.wrong"))])
def test_nobody_without_a_key_gets_a_terminal(box, headers, protocols):
    with pytest.raises(InvalidStatus) as e:
        box.socket("/pty", headers=headers, subprotocols=protocols)
    assert e.value.response.status_code == 401


def test_terminal_of_another_sandbox_is_not_found(box, boxes):
    with boxes().terminal() as theirs:
        with pytest.raises(InvalidStatus) as e:
            box.socket("/pty", process_id=theirs.process)
        assert e.value.response.status_code == 404


def test_nonsense_of_a_client_ends_its_socket_only(box):
    with box.terminal() as t:
        for message in ("no json", "[]", '{"type":"nonsense"}', '{"type":"resize","cols":"x"}', '{"type":"signal","signal":"NONSENSE"}'):
            with box.terminal(process_id=t.process) as other:
                other.socket.send(message)
        t.type("echo still-$((40 + 2))\n")
        t.until("still-42")


def test_fifty_terminals_at_once(boxes):
    box = boxes(limits={"memory_bytes": 1 << 30, "max_processes": 1024})
    terminals = [box.terminal(command="read x; echo got-$x") for _ in range(50)]
    for n, t in enumerate(terminals):
        t.type(f"{n}\n")
    for n, t in enumerate(terminals):
        t.until(f"got-{n}\r\n")
        assert t.to_end()["exit_code"] == 0

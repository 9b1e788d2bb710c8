"""The CLI against a real server, as people and scripts call it."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import termios
import time

import pytest

from inside import ALL_BYTES, await_that
from installation import LAUNCHER
from test_ports import serving


@pytest.fixture
def cli(atoll):
    def run(*arguments, stdin=b"", status=0):
        done = subprocess.run([str(LAUNCHER), arguments[0], "--data-dir", str(atoll.data), *arguments[1:]], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        assert done.returncode == status, (done.returncode, done.stdout[-1000:], done.stderr[-1000:])
        return done.stdout
    return run


def test_run_passes_bytes_and_exit_codes_through(cli, box):
    assert cli("run", "-s", box.id, "-i", "--", "cat", stdin=ALL_BYTES * 1000) == ALL_BYTES * 1000
    assert cli("run", "-s", box.id, "-e", "A=b c", "--cwd", "/usr", "--user", "root", "sh", "-c", "echo $A $PWD $(id -un); exit 42", status=42) == b"b c /usr root\n"
    cli("run", "-s", box.id, "sh", "-c", "kill -9 $$", status=137)
    cli("run", "-s", box.id, "no-such-program", status=127)


def test_run_without_a_sandbox_leaves_none(cli, client):
    before = {s["sandbox_id"] for s in client.call("GET", "/v1/sandboxes?state=running")["items"]}
    assert cli("run", "--template", "python", "python3", "-c", "print(6 * 7)") == b"42\n"
    assert {s["sandbox_id"] for s in client.call("GET", "/v1/sandboxes?state=running")["items"]} <= before


def test_detached_program_is_listed_followed_and_killed(cli, box):
    process = cli("run", "-d", "-s", box.id, "sh", "-c", "echo begun; sleep 98765").decode().strip()
    assert process.encode() in cli("ps", box.id) and b"sleep 98765" in cli("ps", box.id)
    await_that(lambda: cli("logs", box.id, process) == b"begun\n")
    cli("kill", box.id, process, "--tree")
    assert cli("logs", "-f", box.id, process) == b"begun\n"
    ended = [json.loads(line) for line in cli("ps", "--all", "--json", box.id).splitlines()]
    assert [(p["process_id"], p["state"]) for p in ended] == [(process, "ended")]


def test_files_and_folders_go_both_ways(cli, box, tmp_path):
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "all").write_bytes(ALL_BYTES)
    (tmp_path / "src" / "script").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "src" / "script").chmod(0o755)
    (tmp_path / "src" / "link").symlink_to("deep/all")
    cli("cp", "-r", str(tmp_path / "src"), f"{box.id}:/tmp/dst")
    assert box.run("/tmp/dst/script")["stdout"] == "ran\n"
    cli("cp", "-r", f"{box.id}:/tmp/dst", str(tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "all").read_bytes() == ALL_BYTES and os.readlink(tmp_path / "back" / "link") == "deep/all" and os.access(tmp_path / "back" / "script", os.X_OK)
    cli("cp", "-", f"{box.id}:/tmp/in", stdin=ALL_BYTES)
    assert cli("cat", f"{box.id}:/tmp/in") == ALL_BYTES and cli("cp", f"{box.id}:/tmp/in", "-") == ALL_BYTES
    assert b"script" in cli("ls", f"{box.id}:/tmp/dst") and box.id.encode() in cli("ls")
    assert [json.loads(line)["name"] for line in cli("ls", "--json", f"{box.id}:/tmp/dst").splitlines()] == ["deep", "link", "script"]
    cli("cat", f"{box.id}:/none", status=1)


def test_port_is_forwarded(atoll, cli, box):
    serving(box, 3000)
    assert b"3000" in cli("port", box.id)
    forwarding = subprocess.Popen([str(LAUNCHER), "port", "--data-dir", str(atoll.data), "--json", box.id, "0:3000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    try:
        address = json.loads(forwarding.stdout.readline())["local"].rsplit(":", 1)
        for _ in range(3):
            with socket.create_connection((address[0], int(address[1])), timeout=60) as s:
                s.sendall(b"hello")
                s.shutdown(socket.SHUT_WR)
                got = b""
                while piece := s.recv(100):
                    got += piece
                assert got == b"hello|5"
    finally:
        forwarding.send_signal(signal.SIGINT)
        assert forwarding.wait(30) in (0, 2)


def test_interrupt_goes_to_the_program(atoll, box):
    running = subprocess.Popen([str(LAUNCHER), "run", "--data-dir", str(atoll.data), "-s", box.id, "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    assert running.stdout.readline() == b"ready\n"
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert out == b"caught\n" and running.returncode == 9


def test_shell_on_a_real_terminal_is_raw_and_restored(atoll, box):
    child, control = pty.fork()
    if child == 0:
        os.execv(LAUNCHER, [str(LAUNCHER), "shell", "--data-dir", str(atoll.data), box.id])
    shown, before = b"", termios.tcgetattr(control)

    def until(text, seconds=60):
        nonlocal shown
        end = time.monotonic() + seconds
        while text not in shown:
            assert time.monotonic() < end, shown
            if select.select([control], [], [], 1)[0]:
                try:
                    shown += os.read(control, 65536)
                except OSError:
                    break

    try:
        until(b"$ ")
        os.write(control, b"stty size; tty\n")
        until(b"/dev/pts/")
        os.write(control, b"sleep 1000\n")
        await_that(lambda: any(p["argv"] == ["sleep", "1000"] for p in box.ps()))
        os.write(control, b"\x03")
        os.write(control, b"echo sta''tus-$?; exit 5\n")
        until(b"status-130")
        after = None
        end = time.monotonic() + 60
        while time.monotonic() < end:
            after = termios.tcgetattr(control)
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if select.select([control], [], [], 0.1)[0]:
                try:
                    os.read(control, 65536)
                except OSError:
                    pass
        assert os.waitstatus_to_exitcode(status) == 5
        assert after[:4] == before[:4]
    finally:
        os.close(control)

"""Clocks that a pause must not disturb, and programs that mean harm to pauses, snapshots and forks (63-68 and 71-72 of the list of hostile programs)."""

import json
import subprocess
import time

import pytest

from inside import Box, at_once, await_that
from installation import ApiError

PAUSE = 6


@pytest.fixture
def box(boxes):
    return boxes(limits={"cpu": 0, "memory_bytes": 512 << 20, "max_processes": 1024, "max_open_files": 65536}, auto_resume=False)


def standing(box, seconds=PAUSE):
    """Paused for so long; returns how long the caller had to do without it."""
    begin = time.monotonic()
    box.pause()
    time.sleep(seconds)
    box.resume()
    return time.monotonic() - begin


# Clocks


@pytest.mark.parametrize("seconds", [PAUSE, pytest.param(60, marks=pytest.mark.long)])
def test_wall_clock_is_right_after_a_pause(box, seconds):
    standing(box, seconds)

    def difference(ask):
        """At most: the answer was made between question and return."""
        before = time.time()
        inside = float(ask())
        after = time.time()
        return max(before - inside, inside - after, 0)

    ways = {"date": lambda: box.shell("date +%s.%N")["stdout"], "python": lambda: box.prints("import time; print(time.time())"),
            "bun or bash": lambda: box.prints("echo $EPOCHREALTIME", language="bash")}
    # The best of some: a busy machine may answer late, but not early.
    assert {name: min(difference(ask) for _ in range(3)) < 0.5 for name, ask in ways.items()} == dict.fromkeys(ways, True)


TIMERS = """
import ctypes, os, struct, threading, time, signal
libc = ctypes.CDLL(None, use_errno=True)
timer = libc.timerfd_create(1, 0o4000)
libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, 10_000_000, 0, 10_000_000), None)
alarms = 0
def ring(*_):
    global alarms
    alarms += 1
signal.signal(signal.SIGALRM, ring)
woken = []
def wake():
    while True:
        time.sleep(0.1)
        woken.append((time.monotonic(), time.time()))
threading.Thread(target=wake, daemon=True).start()
def sleeper():
    global slept
    begin = time.monotonic()
    time.sleep(4)
    slept = time.monotonic() - begin
slept = None
threading.Thread(target=sleeper, daemon=True).start()
def expirations():
    try:
        return struct.unpack("Q", os.read(timer, 8))[0]
    except BlockingIOError:
        return 0
expirations()
"""


def test_monotonic_clock_stands_still_and_timers_fire_in_no_burst(box):
    box.prints(TIMERS)
    before = json.loads(box.prints("import json; signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02); expirations(); alarms = 0; print(json.dumps([time.monotonic(), float(open('/proc/uptime').read().split()[0]), time.clock_gettime(7), len(woken), time.time()]))"))
    away = standing(box)
    after = json.loads(box.prints("print(json.dumps([time.monotonic(), float(open('/proc/uptime').read().split()[0]), time.clock_gettime(7), len(woken), time.time(), expirations(), alarms, slept]))"))
    passed = [now - then for now, then in zip(after[:5], before)]
    wall = passed[4]
    assert wall >= PAUSE, "the wall clock went on"
    for name, value in zip(("CLOCK_MONOTONIC", "/proc/uptime", "CLOCK_BOOTTIME"), passed):
        assert 0 <= value <= wall - PAUSE + 1, f"{name} went on by {value:.1f} s while {PAUSE} s were slept of {wall:.1f} s"
    ran = passed[0]
    # As many as fit into the time it ran, and not those of the pause too.
    assert after[5] <= ran / 0.01 + 20, f"{after[5]} expirations of a timer of 10 ms in {ran:.2f} s"
    assert after[6] <= ran / 0.02 + 20, f"{after[6]} alarms of 20 ms in {ran:.2f} s"
    assert passed[3] <= ran / 0.1 + 5, f"{passed[3]} wake-ups of 100 ms in {ran:.2f} s"
    assert after[7] is None or after[7] >= 4
    # The sleep goes on where it was, and ends after its own time.
    assert 4 <= float(await_that(lambda: (slept := box.prints("print(slept or '')")) and slept, "the end of the sleep")) < 4 + away


def test_sleep_of_a_program_goes_on_after_the_pause(box):
    process = box.start(command="date +%s.%N; sleep 3; date +%s.%N")["process_id"]
    await_that(lambda: box.output(process).count(b"\n") == 1)
    time.sleep(0.5)
    standing(box)
    assert box.process(process)["state"] == "running", "the sleep ended at once: it counted the pause"
    assert box.wait(process)["exit_code"] == 0
    begin, end = map(float, box.output(process).split())
    assert end - begin >= 3 + PAUSE - 0.1


def test_clocks_cannot_be_set_and_a_pause_does_not_set_them_either(box):
    tries = "import time\nfor clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC):\n    try: time.clock_settime(clock, 1000000000.0); print('set')\n    except OSError as e: print(e.errno)"
    answer = box.run("python3", "-c", tries, user="root")
    assert "set" not in answer["stdout"] and answer["exit_code"] == 0, answer
    box.shell("date -s '2001-01-01'; hwclock --set --date 2001-01-01", user="root")
    standing(box, 0)
    assert abs(float(box.shell("date +%s.%N")["stdout"]) - time.time()) < 5


def test_certificate_issued_after_the_snapshot_is_valid_inside(box, client, tmp_path):
    box.prints("import ssl, time; context = ssl.create_default_context(); context.check_hostname = False")
    snapshot = box.snapshot()
    standing(box)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=test", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True, capture_output=True)
    started = Box(client, client.call("POST", "/v1/sandboxes", {"snapshot": snapshot["snapshot_id"]})["sandbox_id"])
    try:
        for one in (box, started):
            for name in ("key", "cert"):
                one.put(f"/tmp/{name}", (tmp_path / name).read_bytes())
            assert one.prints(
                "server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); server.load_cert_chain('/tmp/cert', '/tmp/key')\n"
                "context.load_verify_locations('/tmp/cert')\n"
                "there, back = ssl.MemoryBIO(), ssl.MemoryBIO()\n"
                "a, b = context.wrap_bio(there, back), server.wrap_bio(back, there, server_side=True)\n"
                "for _ in range(10):\n"
                "    for side in (a, b):\n"
                "        try: side.do_handshake()\n"
                "        except ssl.SSLWantReadError: pass\n"
                "print(a.version())") == "TLSv1.3"
    finally:
        started.delete()
        client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")


# 63-65


def test_pause_while_all_cpus_spin(box):
    """63."""
    code = ("import multiprocessing, ctypes\nshared = multiprocessing.Array(ctypes.c_ulonglong, 8, lock=False)\n"
            "def spin(n):\n    while True: shared[n] += 1\n"
            "started = [multiprocessing.Process(target=spin, args=(n,), daemon=True) for n in range(8)]\n"
            "for one in started: one.start()\n")
    box.prints(code)
    last = [0] * 8
    for _ in range(3):
        assert box.pause()["state"] == "paused"
        box.resume()
        seen = json.loads(await_that(lambda: (text := box.prints("print(list(shared))")) and all(now > then for now, then in zip(json.loads(text), last)) and text, "each goes on"))
        last = seen
    assert box.prints("print(all(one.is_alive() for one in started))") == "True"


WRITER = """
import hashlib, os, sys
me, n = sys.argv[1], 0
while True:
    n += 1
    data = os.urandom(20000 + n % 7777)
    with open(f"/tmp/w/{me}.new", "wb") as f:
        f.write(hashlib.sha256(data).digest() + data)
    os.rename(f"/tmp/w/{me}.new", f"/tmp/w/{me}.{n % 50}")
    if (child := os.fork()) == 0:
        open(f"/tmp/w/{me}.child", "w").write(str(n)); os._exit(0)
    os.waitpid(child, 0)
"""

CHECK = """
import glob, hashlib
def check():
    wrong = []
    for name in glob.glob('/tmp/w/*.[0-9]*'):
        whole = open(name, 'rb').read()
        if hashlib.sha256(whole[32:]).digest() != whole[:32]: wrong.append(name)
    return wrong
"""


def test_fork_and_snapshots_while_everybody_writes_and_forks(box, client):
    """64. Every file is as a moment left it: whole, by its hash."""
    box.prints(CHECK)
    box.shell("mkdir -p /tmp/w")
    box.put("/tmp/writer.py", WRITER.encode())
    writers = [box.start("python3", "/tmp/writer.py", str(n))["process_id"] for n in range(4)]
    await_that(lambda: len(box.list("/tmp/w")) > 40)
    made, snapshots = [], []
    try:
        made += box.fork(2)
        snapshots += [box.snapshot(), box.snapshot("files")]
        made += [Box(client, client.call("POST", "/v1/sandboxes", {"snapshot": one["snapshot_id"]})["sandbox_id"]) for one in snapshots]
        box.pause()
        box.resume()
        for one in made[:3]:
            # Restored in the middle of it, they write on there.
            assert await_that(lambda: sum("writer.py" in " ".join(p["argv"]) for p in one.ps()) >= 4)
            one.shell("for p in $(grep -l writer.py /proc/[0-9]*/cmdline | cut -d/ -f3); do [ $p = $$ ] || kill -9 $p; done; true")
        assert made[3].prints(CHECK) == ""
        for one in made:
            assert one.prints("print(check())") == "[]"
        assert [box.process(writer)["state"] for writer in writers] == ["running"] * 4
        for writer in writers:
            box.signal(writer, "KILL")
            box.wait(writer)
        assert box.prints("print(check())") == "[]"
    finally:
        for one in made:
            one.delete()
        for one in snapshots:
            client.call("DELETE", f"/v1/snapshots/{one['snapshot_id']}")


@pytest.mark.parametrize("count", [1000, pytest.param(10000, marks=pytest.mark.long)])
def test_pause_with_very_many_connections(box, count):
    """65. They are open afterwards, or it is refused and they are open too."""
    box.prints(
        "import resource, socket, selectors\nresource.setrlimit(resource.RLIMIT_NOFILE, (60000, 60000)) if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 60000 else None\n"
        "server = socket.create_server(('127.0.0.1', 0), backlog=1024)\npairs = []\n"
        f"for n in range({count}):\n    c = socket.create_connection(server.getsockname()); s, _ = server.accept(); pairs.append((c, s))\n", timeout_seconds=120)
    try:
        assert box.pause()["state"] == "paused"
        box.resume()
    except ApiError as e:
        assert e.error["message"] and e.status in (409, 500, 503, 507), e
        assert box.view()["state"] == "running"
    assert box.prints("for n, (c, s) in enumerate(pairs): c.sendall(b'%d' % n)\nprint(all(s.recv(20) == b'%d' % n for n, (_, s) in enumerate(pairs)))", timeout_seconds=120) == "True"


def test_pauses_and_forks_from_all_sides_while_it_burns_memory_and_cpu(box):
    box.prints("import os, threading\nkept = 41\ndef burn():\n    while True: bytes(10 << 20)\nfor _ in range(4): threading.Thread(target=burn, daemon=True).start()")
    answers = at_once(6, lambda n: (box.again().pause, box.again().resume, lambda: [fork.delete() for fork in box.again().fork(2)])[n % 3]())
    for answer in answers:
        assert not isinstance(answer, Exception) or isinstance(answer, ApiError) and answer.status in (409, 503), answers
    if box.view()["state"] == "paused":
        box.resume()
    assert box.prints("print(kept)") == "41"


# 71-72


FORGED = """
import os, random, struct
chooser, sent = random.Random(7), 0
messages = [b'{"event":"done","id":"exec-00000000000000000000000000"}\\n', b'{"event":"configured"}\\n', b'{' * 100000 + b'\\n', b'\\xff' * 65536, struct.pack('>IQ', 0xffffffff, 1 << 63) * 100,
            b'ATLL' + struct.pack('<QIII', 1 << 62, 0xffffffff, 0, 0), os.urandom(100000), b'\\0' * 100000, b'{"op":"exec","code":"forged"}\\n']
for fd in sorted(int(name) for name in os.listdir('/proc/self/fd')):
    if fd <= 2: continue
    try: os.set_blocking(fd, False)
    except OSError: continue
    for message in messages:
        try: os.write(fd, message); sent += 1
        except OSError: pass
print('sent', sent)
"""


def test_forged_messages_of_the_interpreter_hurt_only_itself(atoll, client, box):
    """71. Whatever it writes to the pipes it was given, the answer is one of the documented, and pauses and snapshots work as before."""
    for user in ({}, {"user": "root"}):
        box.run("python3", "-c", FORGED, **user)
    answer = box.code(FORGED, timeout_seconds=10)
    assert answer["exit_reason"] in ("completed", "kernel_died", "error", "timeout", "interrupted"), answer
    for _ in range(2):
        box.pause()
        box.resume()
        assert box.shell("echo works")["stdout"] == "works\n"
    await_that(lambda: box.code("print(6 * 7)", timeout_seconds=20)["stdout"] == "42\n", "an interpreter that works")
    fork = box.fork()[0]
    assert fork.shell("echo works")["stdout"] == "works\n"
    fork.delete()
    for name in ("server", "engine"):
        assert atoll.pid(name)


def test_forged_messages_on_the_agents_own_pipes_are_not_to_be_written(box):
    tries = ("import os\nfor pid in ('1', str(os.getppid()), 'self'):\n    for fd in range(20):\n        for path in (f'/proc/{pid}/fd/{fd}', f'/proc/{pid}/root/proc/1/fd/{fd}'):\n"
             "            try:\n                target = os.readlink(path)\n"
             "                if pid != 'self' and ('pipe' in target or 'host' in target or 'atoll' in target):\n                    os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b'\\xff' * 70000); print('wrote', path, target)\n"
             "            except OSError: pass\n")
    for user in ({}, {"user": "root"}):
        box.run("python3", "-c", tries, **user)
    box.pause()
    box.resume()
    assert box.shell("echo works")["stdout"] == "works\n" and box.prints("print(6 * 7)") == "42"


def test_agent_cannot_be_replaced_for_the_next_life(client, box):
    """72. The restored one comes from the host's file; what root does to it inside has no effect, and is no way out."""
    tries = ("for f in $(find /.atoll -type f 2>/dev/null | head -50) /proc/1/exe; do cp /bin/true $f; mv $f $f.old; chmod 777 $f; ln -sf /bin/true $f; done\n"
             "mount -o remount,rw /.atoll; mount --bind /tmp /.atoll; mount -t tmpfs none /.atoll; umount -l /.atoll; rm -rf /.atoll; mv /.atoll /gone; echo tried")
    assert "tried" in box.shell(tries, user="root")["stdout"]
    box.prints("kept = 41")
    box.pause()
    box.resume()
    assert box.prints("print(kept)") == "41"
    snapshot = box.snapshot("files")
    fork, started = box.fork()[0], Box(client, client.call("POST", "/v1/sandboxes", {"snapshot": snapshot["snapshot_id"]})["sandbox_id"])
    try:
        for one in (fork, started, box):
            assert one.prints("print(6 * 7)") == "42" and one.prints("echo works", language="bash") == "works" and one.shell("echo works")["stdout"] == "works\n"
    finally:
        fork.delete()
        started.delete()
        client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")

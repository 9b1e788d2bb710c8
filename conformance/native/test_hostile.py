"""Programs that mean harm: each is contained, ends with a truthful reason, and leaves sandbox and server healthy."""

import http.client
import json
import socket
import time

import pytest

from installation import ApiError


def alive(client, box):
    """The sandbox answers in every way, soon."""
    begin = time.monotonic()
    assert client.exec("print(6 * 7)", sandbox_id=box)["output"] == "42"
    assert client.exec("echo $((6 * 7))", sandbox_id=box, language="bash")["output"] == "42"
    assert time.monotonic() - begin < 10


def processes(client, box):
    return int(client.exec("ls -d /proc/[0-9]* | wc -l", sandbox_id=box, language="bash")["output"])


def survived_a_bomb(client, box):
    """The sandbox lives and the bomb is gone. Its last children may print among the next answer, or cost that its memory: then it says so."""
    end = time.monotonic() + 20
    while True:
        reply = client.exec("print(6 * 7)", sandbox_id=box)
        if "42" in reply["output"].splitlines():
            break
        assert reply["exit_reason"] != "completed" and reply["detail"] and time.monotonic() < end, reply
    # Those that have ended and that the interpreter, their parent, has not waited for are no harm.
    while not (count := client.exec("cat /proc/[0-9]*/stat 2>/dev/null | grep -vc ') Z '", sandbox_id=box, language="bash")["stdout"].strip()).isdigit() or int(count) >= 30:
        assert time.monotonic() < end, client.exec("cat /proc/[0-9]*/stat", sandbox_id=box, language="bash")["output"]
        time.sleep(0.2)
    alive(client, box)


FORK_BOMBS = {
    "python": ("python", "import os\nwhile True: os.fork()"),
    "python that goes on": ("python", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    "bash": ("bash", "bomb() { bomb | bomb & }; bomb; wait; sleep 60"),
    "a program": ("python", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import os\\nwhile True: os.fork()'])\nimport time; time.sleep(60)"),
}


@pytest.mark.parametrize("kind", FORK_BOMBS)
def test_fork_bomb_is_contained_and_the_sandbox_answers(client, sandbox, kind):
    box = sandbox()
    language, code = FORK_BOMBS[kind]
    client.exec("echo", sandbox_id=box, language="bash")
    reply = client.exec(code, sandbox_id=box, language=language, timeout_seconds=4)
    assert reply["exit_reason"] in ("timeout", "kernel_died", "out_of_memory", "error"), reply
    survived_a_bomb(client, box)


def test_fork_bomb_of_a_program_keeps_the_interpreters_state(client, sandbox):
    box = sandbox()
    client.exec("kept = 7", sandbox_id=box)
    reply = client.exec(FORK_BOMBS["a program"][1], sandbox_id=box, timeout_seconds=4)
    if reply["state_kept"]:
        assert "7" in client.exec("print(kept)", sandbox_id=box)["output"].splitlines()
    survived_a_bomb(client, box)


def test_thread_bomb_gets_an_error(client, sandbox):
    box = sandbox()
    code = "import threading\nstop = threading.Event()\ntry:\n    while True: threading.Thread(target=stop.wait).start()\nfinally:\n    print(threading.active_count() > 50); stop.set()"
    reply = client.exec(code, sandbox_id=box)
    assert reply["error"]["name"] == "RuntimeError" and "thread" in reply["error"]["message"] and reply["stdout"] == "True\n"
    alive(client, box)


def test_children_that_nobody_waits_for_hit_a_limit_and_are_cleared_away(client, sandbox):
    box = sandbox()
    code = "import os\nn = 0\ntry:\n    while n < 100000:\n        if os.fork() == 0: os._exit(0)\n        n += 1\nexcept OSError as e:\n    print(type(e).__name__)\nelse:\n    print('all')"
    reply = client.exec(code, sandbox_id=box, timeout_seconds=20)
    assert reply["output"] in ("BlockingIOError", "OSError", "all") or reply["exit_reason"] == "timeout", reply
    assert client.exec("print(6 * 7)", sandbox_id=box)["output"] == "42"
    other = client.exec("echo other", sandbox_id=box, language="bash")
    assert other["output"] == "other" or "limit" in other["detail"] and "processes" in other["detail"], other
    client.exec("import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\ntry:\n    while True: os.waitpid(-1, os.WNOHANG)\nexcept ChildProcessError: pass", sandbox_id=box, timeout_seconds=10)
    assert processes(client, box) < 30


def test_daemon_lives_on_and_ends_with_its_sandbox(client, sandbox):
    box = sandbox()
    client.exec("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True:\n            open('/tmp/beat', 'w').write(str(time.time())); time.sleep(0.05)\n    os._exit(0)\nos.wait()", sandbox_id=box)
    beat = "import time; time.sleep(0.3); print(time.time() - os.stat('/tmp/beat').st_mtime < 5)"
    assert client.exec(beat, sandbox_id=box)["output"] == "True"
    begin = time.monotonic()
    client.delete(box)
    assert time.monotonic() - begin < 5


def test_slow_leak_ends_as_out_of_memory(client, sandbox):
    box = sandbox()
    reply = client.exec("import time\nl = []\nwhile True: l.append(bytearray(4 << 20)); time.sleep(0.02)", sandbox_id=box, timeout_seconds=30)
    assert reply["exit_reason"] == "out_of_memory" and reply["memory_limit_bytes"] == 256 << 20
    assert 200 << 20 < reply["memory_peak_bytes"] < 420 << 20
    alive(client, box)


def test_shared_memory_has_a_size(client, sandbox):
    box = sandbox()
    code = "import errno\ntry:\n    with open('/dev/shm/fill', 'wb', 0) as f:\n        while True: f.write(b'x' * (1 << 20))\nexcept OSError as e: print(errno.errorcode[e.errno], f.closed)"
    assert client.exec(code, sandbox_id=box)["output"] == "ENOSPC True"
    alive(client, box)


def test_root_cannot_fill_memory_by_other_file_systems(client, sandbox):
    box = sandbox()
    reply = client.exec("for place in /dev /run /sys /proc; do sudo dd if=/dev/zero of=$place/fill bs=1M count=600 2>/dev/null; sudo rm -f $place/fill; done; echo through",
                        sandbox_id=box, language="bash", timeout_seconds=60)
    assert reply["stdout"] == "through\n" or reply["exit_reason"] == "out_of_memory", reply
    try:
        # The memory of the files comes back a moment after them.
        while (reply := client.exec("1", sandbox_id=box))["exit_reason"] != "completed":
            assert reply["exit_reason"] == "out_of_memory" and reply["detail"], reply
        alive(client, box)
    except ApiError as e:
        assert e.code == "sandbox_ended" and "memory" in json.dumps(e.error)


def test_sparse_files_of_a_terabyte_and_their_mapping(client, sandbox):
    box = sandbox()
    code = """
import mmap, os
try:
    with open('/tmp/huge', 'w+b') as f:
        f.truncate(1 << 40)
        m = mmap.mmap(f.fileno(), 1 << 40)
        m[0], m[(1 << 40) - 1] = 1, 2
        print(m[0] + m[(1 << 40) - 1])
except OSError as e: print(e.strerror)
"""
    reply = client.exec(code, sandbox_id=box)
    assert reply["output"] in ("3", "File too large", "No space left on device", "Cannot allocate memory"), reply
    alive(client, box)
    begin = time.monotonic()
    client.delete(box)
    assert time.monotonic() - begin < 5


def test_very_many_files_and_very_deep_folders_delete_fast(client, sandbox):
    box = sandbox()
    reply = client.exec("import os\nos.mkdir('/tmp/many')\nn = 0\ntry:\n    for n in range(20000): os.close(os.open(f'/tmp/many/{n}', os.O_CREAT | os.O_WRONLY))\nexcept OSError as e: print(e)\nprint(n > 1000)",
                        sandbox_id=box, timeout_seconds=60)
    assert reply["stdout"].endswith("True\n") or reply["exit_reason"] == "timeout", reply
    reply = client.exec("import os\nos.chdir('/tmp')\ntry:\n    for i in range(10000): os.mkdir('d'); os.chdir('d')\nfinally: os.chdir('/')\nprint('deep')", sandbox_id=box, timeout_seconds=60)
    assert reply["output"] == "deep" or reply["exit_reason"] in ("error", "timeout"), reply
    alive(client, box)
    begin = time.monotonic()
    client.delete(box)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("open_one", ["os.open('/dev/null', os.O_RDONLY)", "os.pipe()", "os.eventfd(0)", "socket.socketpair()[0].detach()", "libc.inotify_init()"])
def test_descriptors_run_out_inside_only(client, sandbox, open_one):
    box = sandbox()
    code = f"import os, socket, ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\nheld = []\nwhile True:\n    try:\n        one = {open_one}\n        if one == -1: raise OSError(ctypes.get_errno(), '')\n        held.append(one)\n    except OSError as e:\n        why = errno.errorcode[e.errno]; break"
    reply = client.exec(code, sandbox_id=box, timeout_seconds=30)
    assert reply["exit_reason"] == "completed", reply
    assert client.exec("echo other", sandbox_id=box, language="bash")["output"] == "other"
    reply = client.exec("print(why, len(held) > 50)\nfor one in held:\n    for fd in (one if isinstance(one, tuple) else (one,)): os.close(fd)\nos.close(os.open('/dev/null', 0))", sandbox_id=box)
    assert reply["output"] in ("EMFILE True", "ENFILE True"), reply
    alive(client, box)


def test_pipes_full_of_data_count_as_memory_and_end_nobody_else(client, sandbox):
    box = sandbox()
    code = "import os, fcntl\nheld = []\ntry:\n    for _ in range(1500):\n        r, w = os.pipe(); held += [r, w]; os.set_blocking(w, False)\n        while True:\n            try: os.write(w, b'x' * 65536)\n            except BlockingIOError: break\nexcept OSError as e: print(e)\nprint('held')"
    reply = client.exec(code, sandbox_id=box, timeout_seconds=30)
    assert reply["exit_reason"] in ("completed", "out_of_memory", "error"), reply
    try:
        alive(client, box)
    except ApiError as e:
        assert e.code == "sandbox_ended" and "memory" in json.dumps(e.error)


def test_endless_yes_is_ended_in_time_and_counted(client, sandbox):
    box = sandbox()
    client.exec("true", sandbox_id=box, language="bash")
    begin = time.monotonic()
    reply = client.exec("yes", sandbox_id=box, language="bash", timeout_seconds=2)
    assert 1.9 < time.monotonic() - begin < 10
    assert reply["exit_reason"] == "timeout" and reply["truncated"] is True and reply["stdout_bytes"] > len(reply["stdout"]) and reply["stdout"].startswith("y\ny\n")
    alive(client, box)


def test_gigabyte_of_output_is_counted_and_cut(client, sandbox):
    box = sandbox()
    reply = client.exec("head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo end", sandbox_id=box, language="bash", timeout_seconds=120)
    assert reply["truncated"] is True and len(reply["stdout"]) < 2 << 20
    assert reply["exit_reason"] == "completed" and reply["stdout_bytes"] == 1000000005 and reply["stdout"].endswith("x\nend\n"), (reply["exit_reason"], reply["stdout_bytes"])
    alive(client, box)


def test_line_of_a_hundred_megabytes_without_end(client, sandbox):
    box = sandbox()
    reply = client.exec("import sys\nfor _ in range(1600): sys.stdout.write('z' * 65536)\nprint('|end', end='')", sandbox_id=box, timeout_seconds=60)
    assert reply["stdout_bytes"] == 1600 * 65536 + 4 and reply["truncated"] is True and reply["stdout"].endswith("z|end")
    alive(client, box)


def test_alternating_bytes_of_both_streams_keep_their_order(client, sandbox):
    box = sandbox()
    reply = client.exec("import sys\nfor _ in range(2000): sys.stdout.write('o'); sys.stdout.flush(); sys.stderr.write('e'); sys.stderr.flush()", sandbox_id=box, timeout_seconds=30)
    assert reply["stdout"] == "o" * 2000 and reply["stderr"] == "e" * 2000 and reply["output"] == "oe" * 2000


def test_clients_that_send_slowly_or_stop_halfway_hold_nobody_up(atoll, client, sandbox):
    held = []
    try:
        for i in range(50):
            s = socket.create_connection(("127.0.0.1", atoll.port))
            s.sendall(b"POST /v1/code_exec HTTP/1.1\r\nHost: x\r\n" if i % 2 else
                      b"POST /v1/code_exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + atoll.key.encode() + b"\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
            held.append(s)
        box = sandbox()
        begin = time.monotonic()
        for _ in range(10):
            assert client.exec("print(1)", sandbox_id=box)["output"] == "1"
        assert time.monotonic() - begin < 10
    finally:
        for s in held:
            s.close()


@pytest.mark.parametrize("code", ["sudo kill -9 -1", "sudo kill -STOP 1; sleep 1; echo on", "sudo sh -c 'kill -STOP -1'", "kill -9 -1", "sudo kill -9 $PPID"])
def test_killing_or_stopping_everything_is_survived_and_told(client, sandbox, code):
    box = sandbox()
    client.exec("open('/tmp/kept', 'w').write('yes')\nkept = 1", sandbox_id=box)
    reply = client.exec(code, sandbox_id=box, language="bash", timeout_seconds=5)
    assert reply["exit_reason"] in ("completed", "kernel_died", "timeout"), reply
    begin = time.monotonic()
    look = "print(open('/tmp/kept').read(), 'kept' in globals())"
    after = client.exec(look, sandbox_id=box, timeout_seconds=5)
    if after["exit_reason"] == "timeout":  # its interpreter stands still, as was asked for
        assert after["state_kept"] is False and after["detail"], after
        after = client.exec(look, sandbox_id=box, timeout_seconds=5)
        assert after["stdout"] == "yes False\n", after
        return alive(client, box)
    assert time.monotonic() - begin < 25
    assert after["stdout"].startswith("yes"), after
    if after["stdout"] == "yes False\n":
        assert after["state_kept"] is False and after["detail"], after
    alive(client, box)


# What even root inside must not be able to do; each prints what it got.
REFUSED = {
    "tracing the init": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.ptrace(16, 1, 0, 0), ctypes.get_errno() != 0)",
    "the init's memory": "try: open('/proc/1/mem', 'r+b').write(b'x'); print('wrote')\nexcept OSError: print('-1 True')",
    "the init's folder": "import os\ntry: print(os.listdir('/proc/1/root/.atoll/keys'))\nexcept OSError: print('-1 True')",
    "the init's environment": "try: print('KEY' in open('/proc/1/environ').read())\nexcept OSError: print('-1 True')",
    "its program file": "try: open('/proc/1/exe', 'r+b').write(b'x'); print('wrote')\nexcept OSError: print('-1 True')",
    "the agent's program file": "try: open('/.atoll/bin/atoll-agent', 'r+b'); print('opened')\nexcept OSError: print('-1 True')",
    "kernel settings": "try: open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x'); print('wrote')\nexcept OSError: print('-1 True')",
    "kernel memory": "try: print(len(open('/proc/kcore', 'rb').read(16)))\nexcept OSError: print('-1 True')",
    "a release agent": "try: open('/sys/fs/cgroup/memory/release_agent', 'w').write('/tmp/x'); print('wrote')\nexcept OSError: print('-1 True')",
    "the clock": "import time\ntry: time.clock_settime(time.CLOCK_REALTIME, 0); print('set')\nexcept OSError: print('-1 True')",
    "mounting": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.mount(b'none', b'/mnt', b'tmpfs', 0, b''), ctypes.get_errno() != 0)",
    "bpf": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(321, 0, 0, 0), ctypes.get_errno() != 0)",
    "perf events": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(298, 0, 0, -1, -1, 0), ctypes.get_errno() != 0)",
    "userfaultfd": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(323, 0), ctypes.get_errno() != 0)",
    "io_uring": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(425, 8, 0), ctypes.get_errno() != 0)",
    "loading a module": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(175, 0, 0, 0), ctypes.get_errno() != 0)",
    "rebooting": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.reboot(0x1234567), ctypes.get_errno() != 0)",
    "opening by handle": "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.syscall(304, -100, 0, 0), ctypes.get_errno() != 0)",
    "raw sockets": "import socket\ntry: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print('made')\nexcept OSError: print('-1 True')",
    "packet sockets": "import socket\ntry: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); print('made')\nexcept OSError: print('-1 True')",
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("who", ["user", "root"])
def test_is_refused_to_everybody(client, box_of_module, what, who):
    client.exec(f"open('/tmp/probe.py', 'w').write({REFUSED[what]!r})", sandbox_id=box_of_module)
    reply = client.exec(("sudo " if who == "root" else "") + "python3 /tmp/probe.py", sandbox_id=box_of_module, language="bash", timeout_seconds=10)
    assert reply["output"] == "-1 True", reply
    alive(client, box_of_module)


@pytest.fixture(scope="module")
def box_of_module(atoll):
    client = atoll.client()
    box = client.exec("", language="python")["sandbox_id"]
    yield box
    client.delete(box)
    client.close()


def test_sysrq_of_root_does_nothing(client, box_of_module):
    client.exec("for c in b c o e i; do sudo sh -c \"echo $c > /proc/sysrq-trigger\"; done", sandbox_id=box_of_module, language="bash", timeout_seconds=10)
    alive(client, box_of_module)


def test_devices_and_keys_give_nothing_of_the_host(client, box_of_module):
    code = "sudo mknod /tmp/sda b 8 0 && sudo head -c 1 /tmp/sda; sudo mknod /tmp/mem c 1 1 && sudo head -c 1 /tmp/mem; cat /proc/keys; keyctl show; ls /dev | tr '\\n' ' '"
    reply = client.exec(code, sandbox_id=box_of_module, language="bash", timeout_seconds=10)
    for name in ("sda ", "kvm ", "mem ", "kmsg ", "loop0 "):
        assert name not in reply["stdout"], reply
    assert "tmp/mem' for reading" in reply["stderr"] or "ermission denied" in reply["stderr"] or "o such" in reply["stderr"], reply


def test_namespaces_of_the_users_own_stay_inside(client, box_of_module):
    reply = client.exec("unshare -Ur sh -c 'id -u; mount -t tmpfs none /mnt && echo mounted; cat /etc/hostname >/dev/null; ls /home'", sandbox_id=box_of_module, language="bash", timeout_seconds=10)
    assert reply["exit_reason"] == "completed", reply
    assert client.exec("mount | grep -c ' /mnt '", sandbox_id=box_of_module, language="bash")["output"] == "0"
    alive(client, box_of_module)


def test_host_is_not_to_be_reached(atoll, client, box_of_module):
    own = socket.gethostbyname(socket.gethostname())
    code = f"""
import socket
for host in ('127.0.0.1', 'localhost', '10.0.2.2', '169.254.169.254', '172.17.0.1', '192.168.0.1', {own!r}):
    for port in ({atoll.port}, 80, 22):
        s = socket.socket(); s.settimeout(0.5)
        try: s.connect((host, port)); print('reached', host, port)
        except OSError: pass
        finally: s.close()
print('none')
"""
    assert client.exec(code, sandbox_id=box_of_module, timeout_seconds=25)["output"] == "none"


def test_names_of_files_are_only_names(client, sandbox):
    box = sandbox()
    code = r"""
import os
os.makedirs('/tmp/names'); os.chdir('/tmp/names')
for name in ('line\nbreak', ' ', '-rf', 'ünï🎉', '$(touch pwned)', '; ls', 'x' * 255, '\x1b[2J'):
    open(name, 'w').write(name); assert open(name).read() == name
for name in ('x' * 256, 'a/' * 2048 + 'a', ''):
    try: open(name, 'w'); print('opened', len(name))
    except OSError as e: pass
try: open('a\0b', 'w'); print('nul')
except ValueError: pass
os.symlink('loop', 'loop')
try: open('loop'); print('loop')
except OSError as e: print(e.strerror)
os.symlink('/etc/shadow', 'link')
try: open('link', 'a'); print('shadow')
except OSError as e: print(e.strerror)
try: os.link('/etc/shadow', 'hard'); open('hard'); print('hard')
except OSError as e: print(e.strerror)
print(len(os.listdir('.')), os.path.exists('pwned'))
"""
    reply = client.exec(code, sandbox_id=box)
    lines = reply["stdout"].splitlines()
    assert lines[0] == "Too many levels of symbolic links" and lines[1] == "Permission denied" and lines[2] in ("Permission denied", "Operation not permitted"), reply
    assert lines[3].endswith(" False"), reply


def test_fifo_that_nobody_writes_ends_by_the_time_limit_and_keeps_the_state(client, sandbox):
    box = sandbox()
    reply = client.exec("import os\nkept = 1\nos.mkfifo('/tmp/fifo')\nopen('/tmp/fifo')", sandbox_id=box, timeout_seconds=1)
    assert reply["exit_reason"] == "timeout" and reply["state_kept"] is True
    assert client.exec("print(kept)", sandbox_id=box)["output"] == "1"


def test_archives_that_climb_and_archives_that_explode_stay_inside(client, sandbox):
    box = sandbox()
    code = r"""
import io, os, tarfile, zipfile, errno
os.makedirs('/tmp/out', exist_ok=True)
with tarfile.open('/tmp/slip.tar', 'w') as t:
    info = tarfile.TarInfo('../../etc/evil'); info.size = 1; t.addfile(info, io.BytesIO(b'x'))
    link = tarfile.TarInfo('dir'); link.type = tarfile.SYMTYPE; link.linkname = '/etc'; t.addfile(link)
    info = tarfile.TarInfo('dir/evil2'); info.size = 1; t.addfile(info, io.BytesIO(b'x'))
try: tarfile.open('/tmp/slip.tar').extractall('/tmp/out')
except OSError as e: print(type(e).__name__)
print(os.path.exists('/etc/evil'), os.path.exists('/etc/evil2'))
with zipfile.ZipFile('/tmp/bomb.zip', 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as z:
    with z.open('big', 'w', force_zip64=True) as f:
        for _ in range(1500): f.write(bytes(1 << 20))
try:
    zipfile.ZipFile('/tmp/bomb.zip').extractall('/tmp/out'); print('all')
except OSError as e: print(errno.errorcode[e.errno])
"""
    reply = client.exec(code, sandbox_id=box, timeout_seconds=100)
    assert "False False" in reply["stdout"] and (reply["stdout"].endswith("ENOSPC\n") or reply["exit_reason"] == "timeout"), reply
    client.exec("rm -rf /tmp/out", sandbox_id=box, language="bash")
    alive(client, box)


def test_clocks_tell_the_hosts_time_and_go_steadily(client, sandbox):
    box = sandbox()
    reply = client.exec("import time\nm = time.monotonic(); time.sleep(0.5); print(time.time(), time.monotonic() - m)", sandbox_id=box)
    now, slept = map(float, reply["output"].split())
    assert abs(now - time.time()) < 5 and 0.5 <= slept < 3

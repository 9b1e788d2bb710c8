"""stdout and stderr: every byte, in order, at once, from whoever prints."""
import os
import random

import pytest

EMOJI = "a\U0001F600b\u00e9\u4e2d\u6587\U0001F468\u200D\U0001F469\u200D\U0001F467\n"


def test_print_and_streams_keep_their_order(kernel):
    outcome = kernel.run("import sys\nfor i in range(3):\n    print('out', i)\n    print('err', i, file=sys.stderr)\nprint('end')")
    assert outcome.in_order() == [
        ("stdout", "out 0\n"), ("stderr", "err 0\n"), ("stdout", "out 1\n"), ("stderr", "err 1\n"),
        ("stdout", "out 2\n"), ("stderr", "err 2\n"), ("stdout", "end\n"),
    ]


def test_print_behaves_like_the_builtin(kernel):
    outcome = kernel.run(
        "import io\n"
        "print(1, 2, sep='-', end='!'); print(); print('a', None, sep=None, end=None); print('x', flush=True)\n"
        "s = io.StringIO(); print('y', file=s); print(repr(s.getvalue()))\n"
        "class Bad:\n    def __str__(self): raise ValueError('no')\n"
        "try: print('first', Bad())\nexcept ValueError: print('|')\n"
        "for arguments in ({'sep': 1}, {'end': 2}, {'nope': 3}):\n    try: print('q', **arguments)\n    except TypeError as e: print('TypeError')\n"
    )
    assert outcome.out == "1-2!\na None\nx\n'y\\n'\nfirst |\nTypeError\nTypeError\nTypeError\n"


def test_one_print_is_one_write(kernel):
    kernel.run("real = __import__('sys').modules['_atoll_kernel']\ncount = 0")
    outcome = kernel.run(
        "inner = real._write\ndef counting(fd, data):\n    global count\n    count += 1\n    return inner(fd, data)\n"
        "real._write = counting\nprint('a', 'b', 3)\nreal._write = inner"
    )
    assert outcome.out == "a b 3\n"
    assert kernel.run("count").value == "1"


def test_what_was_printed_before_a_wait_is_seen_before_it(kernel):
    read, write = os.pipe()
    kernel.run("import os, sys")
    kernel.start("print('no newline', end='')\nsys.stdout.write('also')\nopen(%r).read(1)\nprint('after')" % ("/proc/%d/fd/%d" % (os.getpid(), read)))
    kernel.wait_output("no newlinealso")
    assert not kernel.current.out.endswith("after\n")
    os.write(write, b"x")
    assert kernel.finish().out == "no newlinealsoafter\n"
    os.close(read)
    os.close(write)


def test_random_bytes_pass_unchanged(kernel):
    kernel.run("import sys")
    chooser = random.Random(7)
    for size in (1, 2, 255, 4095, 4096, 4097, 65536, 300001):
        data = chooser.randbytes(size) if hasattr(chooser, "randbytes") else bytes(chooser.getrandbits(8) for _ in range(size))
        assert kernel.run("sys.stdout.buffer.write(bytes.fromhex('%s'))" % data.hex(), silent=True).raw == data


def test_text_of_any_kind_passes_unchanged(kernel):
    chooser = random.Random(11)
    for _ in range(40):
        text = "".join(chr(chooser.choice((chooser.randrange(1, 128), chooser.randrange(0x80, 0xD800), chooser.randrange(0xE000, 0x110000)))) for _ in range(chooser.randrange(1, 200)))
        outcome = kernel.run("print(%s, end='')" % ascii(text))
        assert outcome.raw == text.encode()
        assert kernel.run("%s" % ascii(text)).value == repr(text)


@pytest.mark.parametrize("offset", range(1, len(EMOJI.encode())))
def test_characters_split_at_any_offset_arrive_whole(kernel, offset):
    code = "import sys\nd = %r\nsys.stdout.buffer.write(d[:%d]); sys.stdout.flush(); sys.stdout.buffer.write(d[%d:])" % (EMOJI.encode(), offset, offset)
    assert kernel.run(code, silent=True).out == EMOJI


def test_unencodable_text_never_fails(kernel):
    outcome = kernel.run("print('a\\udcffb\\ud800c\\udfff')")
    assert (outcome.raw, outcome.status) == (b"a\xffb\\ud800c\\udfff\n", "ok")
    assert kernel.run("'\\ud800'").value == "'\\ud800'"
    assert kernel.run("class S:\n    def __repr__(self): return '\\ud800'\nS()").value == "\ufffd"
    assert kernel.run("raise ValueError('\\ud800')").error["message"] == "\ufffd"


def test_nul_bytes_and_one_line_of_fifty_megabytes_pass(kernel):
    assert kernel.run("print('a\\0b')").raw == b"a\0b\n"
    assert len(kernel.run("print('x' * (50 << 20))").raw) == (50 << 20) + 1


def test_logging_warnings_and_direct_writes_work(kernel):
    outcome = kernel.run("import logging, warnings, os, sys\nlogging.warning('logged')\nwarnings.warn('warned')\nos.write(2, b'direct\\n')")
    assert "WARNING:root:logged" in outcome.err and "UserWarning: warned" in outcome.err and "direct" in outcome.err
    assert "<cell 1>:3" in outcome.err and "warnings.warn('warned')" in outcome.err
    assert kernel.run("logging.warning('again')").err == "WARNING:root:again\n"
    assert kernel.run("import ctypes; ctypes.CDLL(None).puts(b'from C'); ctypes.CDLL(None).fflush(None)", silent=True).out == "from C\n"
    assert "Current thread" in kernel.run("import faulthandler; faulthandler.enable(); faulthandler.dump_traceback()").err


def test_children_write_to_the_same_streams(kernel):
    outcome = kernel.run("import subprocess, sys\nprint('a')\nsubprocess.run(['sh', '-c', 'echo b; echo c >&2'])\nprint('d')", silent=True)
    assert (outcome.out, outcome.err) == ("a\nb\nd\n", "c\n")


def test_children_inherit_no_private_descriptor(kernel):
    kernel.run("import os, subprocess, sys\nstate = sys.modules['_atoll_kernel'].state")
    code = "import os; print([os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists('/proc/self/fd/' + f)])"
    seen = eval(kernel.run("print(subprocess.run([sys.executable, '-c', %r], close_fds=False, stdout=subprocess.PIPE).stdout.decode())" % code).out)
    private = eval(kernel.run("[os.readlink('/proc/self/fd/%d' % fd) for fd in (state.commands, state.events, state.acks)]").value)
    assert len(set(private)) == 3 and not set(private) & set(seen)
    assert kernel.run("import sys; s = sys.modules['_atoll_kernel'].state; min(s.commands, s.events, s.acks) >= 200").value == "True"


def test_closing_the_usual_descriptors_does_not_touch_the_protocol(kernel):
    outcome = kernel.run("import os\nfor fd in range(3, 100):\n    try: os.close(fd)\n    except OSError: pass\nprint('fine')")
    assert (outcome.out, outcome.status) == ("fine\n", "ok")


@pytest.mark.parametrize(
    "damage",
    [
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import sys; sys.stdout = None; sys.stderr = None",
        "import sys, io; sys.stdout = io.StringIO(); sys.stderr = sys.stdout",
        "import os; os.close(1); os.close(2)",
        "import os; os.close(0)",
        "import os; n = os.open('/dev/null', 1); os.dup2(n, 1); os.dup2(n, 2)",
        "import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8'); print('wrapped')",
        "import sys, codecs; sys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach()); print('wrapped')",
        "import sys; sys.stdout.buffer.close(); sys.stdout.reconfigure(encoding='utf-8', line_buffering=True)",
        "import sys; sys.stdin.close()",
        "import sys; del sys.stdout, sys.stderr",
        "import os, fcntl; fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_NONBLOCK)",
    ],
)
def test_damage_to_the_streams_is_repaired_for_the_next_cell(kernel, damage):
    outcome = kernel.run(damage)
    assert outcome.status == "ok"
    if "wrapped" in damage:
        assert outcome.out == "wrapped\n"
    after = kernel.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n7", timeout=5)
    assert (after.out, after.err, after.value, after.status) == ("out\n", "err\n", "7", "ok")


def test_writing_to_a_closed_stdout_is_the_cells_own_error(kernel):
    assert kernel.run("import sys; sys.stdout.close(); print('x')").error["message"] == "I/O operation on closed file."


def test_non_blocking_pipes_lose_nothing(kernel):
    outcome = kernel.run("import os\nos.set_blocking(1, False)\nfor i in range(40): print(str(i % 10) * 99999)")
    assert outcome.raw == b"".join(b"%d" % (i % 10) * 99999 + b"\n" for i in range(40))


def test_redirected_output_stays_with_the_program(kernel):
    outcome = kernel.run("import contextlib, io\ns = io.StringIO()\nwith contextlib.redirect_stdout(s): print('inside')\ns.getvalue()")
    assert (outcome.out, outcome.value) == ("", "'inside\\n'")


def test_stream_objects_look_like_a_scripts(kernel):
    outcome = kernel.run("import sys, io\no = sys.stdout\n(o.encoding, o.fileno(), o.isatty(), o.writable(), o.readable(), o.closed, isinstance(o, io.TextIOBase), o.buffer.fileno(), o is sys.__stdout__, o.write('abc'))")
    assert outcome.value == "('utf-8', 1, False, True, False, False, True, 1, True, 3)"
    assert "must be str" in kernel.run("sys.stdout.write(b'x')").error["message"]


def test_threads_of_an_ended_cell_print_as_late_events_of_that_cell(kernel):
    kernel.run("import threading, sys\ngo = threading.Event(); done = threading.Event()\n"
               "def work():\n    go.wait(10)\n    print('from the thread')\n    print('and its error', file=sys.stderr)\n    done.set()\n"
               "threading.Thread(target=work).start()")
    outcome = kernel.run("go.set(); done.wait(10)\nprint('second')", silent=True)
    assert (outcome.out, outcome.err) == ("second\n", "")
    assert [(event["id"], event["stream"], event["text"]) for event in outcome.late] == [
        ("exec-1", "stdout", "from the thread\n"), ("exec-1", "stderr", "and its error\n"),
    ]


def test_threads_print_normally_while_their_cell_runs(kernel):
    outcome = kernel.run("import threading, _thread\nts = [threading.Thread(target=print, args=(i,)) for i in range(5)]\n[t.start() for t in ts]; [t.join() for t in ts];")
    assert sorted(outcome.out.split()) == list("01234") and outcome.late == []


def test_late_output_between_cells_arrives_too(kernel):
    kernel.run("import threading\ngo = threading.Event()\ndef nested():\n    threading.Thread(target=lambda: print('grandchild')).start()\n"
               "threading.Timer(0.05, nested).start()")
    event = kernel.wait_for("late")
    assert (event["id"], event["text"]) == ("exec-1", "grandchild\n")


def test_work_given_to_an_old_pool_prints_for_the_cell_that_gave_it(kernel):
    kernel.run("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\npool.submit(print, 'one').result()")
    outcome = kernel.run("pool.submit(print, 'two').result()\npool.shutdown()")
    assert (outcome.out, outcome.late) == ("two\n", [])


def test_tasks_of_an_ended_cell_print_as_late_events(kernel):
    kernel.run("import asyncio\nasync def tick():\n    for i in range(3):\n        await asyncio.sleep(0.001)\n        print('tick', i)\nt = asyncio.create_task(tick())")
    outcome = kernel.run("await t\nprint('mine')")
    assert outcome.out == "mine\n"
    assert "".join(event["text"] for event in outcome.late) == "tick 0\ntick 1\ntick 2\n"
    assert {event["id"] for event in outcome.late} == {"exec-1"}


def test_a_thread_that_floods_after_its_cell_harms_nobody(kernel):
    kernel.run("import threading\nstop = False\ndef flood():\n    while not stop: print('x' * 1000)\nt = threading.Thread(target=flood); t.start()")
    for i in range(20):
        assert kernel.run("print(%d)" % i).out == "%d\n" % i
    assert kernel.run("stop = True; t.join()").status == "ok"


def test_an_exception_in_a_late_thread_is_told_as_late(kernel):
    kernel.run("import threading\ngo = threading.Event()\ndef bad():\n    go.wait(10)\n    raise ValueError('late trouble')\nt = threading.Thread(target=bad); t.start()")
    outcome = kernel.run("go.set(); t.join()")
    assert outcome.err == "" and "late trouble" in "".join(event["text"] for event in outcome.late)


def test_a_forked_child_that_falls_out_of_the_cell_ends_with_its_status(kernel):
    outcome = kernel.run("import os\nf = open('child.txt', 'w')\npid = os.fork()\nif pid == 0:\n    print('child')\n    f.write('flushed')\nelse:\n    print(os.waitpid(pid, 0)[1])")
    assert sorted(outcome.out.split()) == ["0", "child"] and outcome.status == "ok"
    assert kernel.run("open('child.txt').read()").value == "'flushed'"
    assert kernel.run("pid = os.fork()\nif pid == 0: raise ValueError('in the child')\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if hasattr(os, 'waitstatus_to_exitcode') else os.waitpid(pid, 0)[1] >> 8").value == "1"
    outcome = kernel.run("pid = os.fork()\nif pid == 0: raise ValueError('in the child')\nos.waitpid(pid, 0);")
    assert "ValueError: in the child" in outcome.err and outcome.status == "ok"
    assert kernel.run("import sys\npid = os.fork()\nif pid == 0: sys.exit(7)\nos.waitpid(pid, 0)[1] >> 8").value == "7"
    outcome = kernel.run("pid = os.fork()\nif pid == 0:\n    display('never an event'); sys.stderr.write('e'); print('o')\n    os._exit(0)\nos.waitpid(pid, 0)[1]")
    assert [event["data"]["text/plain"] for event in outcome.results] == ["0"]


def test_a_forked_child_of_an_async_cell_ends_too(kernel):
    outcome = kernel.run("import os, asyncio\nawait asyncio.sleep(0)\npid = os.fork()\nif pid:\n    print(os.waitpid(pid, 0)[1])")
    assert (outcome.out, outcome.status) == ("0\n", "ok")


def test_a_forked_child_may_outlive_the_cell(kernel):
    read, write = os.pipe()
    kernel.run("import os\npid = os.fork()\nif pid == 0:\n    open(%r).read(1)" % ("/proc/%d/fd/%d" % (os.getpid(), read)))
    assert kernel.run("1").value == "1"
    os.write(write, b"x")
    assert kernel.run("os.waitpid(pid, 0)[1]").value == "0"
    os.close(read)
    os.close(write)

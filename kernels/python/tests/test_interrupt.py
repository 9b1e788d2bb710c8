"""SIGINT stops the running cell and nothing else."""
import os
import random
import signal
import time

import pytest


def interrupted_while(kernel, code):
    kernel.start(code)
    kernel.wait_output("told" if "told" in code else "go")
    kernel.interrupt()
    outcome = kernel.finish(timeout=8)
    assert kernel.run("40 + 2").value == "42"
    return outcome


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "await asyncio.sleep(60)",
        "await asyncio.gather(*[asyncio.sleep(60) for _ in range(3)])",
        "asyncio.run(asyncio.sleep(60))",
        "async def f():\n    while True: pass\nawait f()",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "!sleep 60",
        "x = !sleep 60",
        "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
        "import threading; threading.Event().wait()",
        "import threading; t = threading.Thread(target=ev.wait, daemon=True); t.start(); t.join()",
        "import queue; queue.Queue().get()",
        "class R:\n    def __repr__(self):\n        print('told')\n        while True: pass\nR()",
        "class E(Exception):\n    def __str__(self):\n        print('told')\n        while True: pass\nraise E()",
        "import select; select.select([], [], [])",
        "%timeit -n 1000000000 pass",
        "sum(1 for _ in iter(int, 1))",
    ],
)
def test_interrupt_stops(kernel, body):
    kernel.run("import asyncio, threading; ev = threading.Event()")
    outcome = interrupted_while(kernel, "print('go')\n" + body)
    if "class E" in body:
        assert outcome.status == "error" and outcome.error["name"] == "E"
    else:
        assert outcome.status == "interrupted"
        assert outcome.error["name"] == "KeyboardInterrupt" and "<cell 2>" in outcome.error["traceback"]
        assert "extras.py" not in outcome.error["traceback"] and "core.py" not in outcome.error["traceback"]
    kernel.run("ev.set()")


def test_interrupt_stops_a_cell_block_of_bash_with_its_children(kernel):
    outcome = interrupted_while(kernel, "%%bash\nsleep 61 & echo $! > pid; echo go; wait")
    assert outcome.status == "interrupted"
    pid = int(kernel.run("int(open('pid').read())").value)
    kernel.wait_until(lambda: not os.path.exists("/proc/%d" % pid) or open("/proc/%d/stat" % pid).read().split()[2] == "Z" or kernel.pump(0.01))


def test_interrupt_stops_input_from_a_connected_stdin(new_kernel):
    reader, writer = os.pipe()
    kernel = new_kernel(stdin=reader)
    os.close(reader)
    assert interrupted_while(kernel, "print('go')\ninput()").status == "interrupted"
    os.close(writer)


def test_interrupt_stops_endless_printing(kernel):
    kernel.start("print('go')\nwhile True: print('y' * 5000)")
    kernel.wait_output("go")
    kernel.interrupt()
    assert kernel.finish(timeout=8).status == "interrupted"
    kernel.start("import sys\nprint('go')\nwhile True:\n    print('y')\n    print('z', file=sys.stderr)")
    kernel.wait_output("go")
    kernel.interrupt()
    assert kernel.finish(timeout=8).status == "interrupted"
    assert kernel.run("print(1)\nprint(2, file=sys.stderr)\nprint(3)").in_order() == [("stdout", "1\n"), ("stderr", "2\n"), ("stdout", "3\n")]


def test_interrupt_between_cells_does_nothing(kernel):
    for _ in range(5):
        kernel.interrupt()
    assert kernel.run("1").value == "1"
    kernel.interrupt()
    assert kernel.run("x = 2\nx").value == "2"


def test_state_survives_an_interrupt_and_finally_blocks_run(kernel):
    outcome = interrupted_while(kernel, "kept = 5\ntry:\n    print('go')\n    while True: pass\nfinally:\n    print('cleanup')")
    assert "cleanup" in outcome.out
    assert kernel.run("kept").value == "5"


def test_an_interrupted_await_is_cancelled_and_other_tasks_go_on(kernel):
    kernel.run("import asyncio\nn = 0\nasync def tick():\n    global n\n    while True:\n        await asyncio.sleep(0.001); n += 1\nt = asyncio.create_task(tick())")
    outcome = interrupted_while(kernel, "try:\n    print('go')\n    await asyncio.sleep(60)\nfinally:\n    print('cleanup')")
    assert "cleanup" in outcome.out and outcome.status == "interrupted"
    assert kernel.run("before = n\nawait asyncio.sleep(0.05)\n(n > before, t.done(), len(asyncio.all_tasks()))").value == "(True, False, 2)"


def test_a_cell_may_catch_the_interrupt(kernel):
    outcome = interrupted_while(kernel, "import time\ntry:\n    print('go')\n    time.sleep(60)\nexcept KeyboardInterrupt: print('caught')")
    assert (outcome.status, outcome.out) == ("ok", "go\ncaught\n")


def test_a_handler_of_the_user_works_in_later_cells_and_never_between_them(kernel):
    kernel.run("import signal, time\nhits = []\nsignal.signal(signal.SIGINT, lambda *a: hits.append(1));")
    kernel.interrupt()
    assert kernel.run("hits").value == "[]"
    kernel.start("print('go')\nwhile not hits: time.sleep(0.001)\nprint('hit')")
    kernel.wait_output("go")
    kernel.interrupt()
    assert kernel.finish().status == "ok"
    kernel.run("signal.signal(signal.SIGINT, signal.SIG_DFL);")
    kernel.interrupt()
    assert kernel.run("signal.signal(signal.SIGINT, signal.default_int_handler);\n1").value == "1"


@pytest.mark.parametrize("cell", ["x = 1", "print('a'); print('b', file=sys.stderr)", "await asyncio.sleep(0)", "1/0", "for i in range(300): pass"])
def test_interrupts_at_any_moment_lose_no_done_and_kill_nothing(kernel, cell):
    kernel.run("import sys, asyncio")
    chooser = random.Random(3)
    seen = set()
    for _ in range(400):
        kernel.start(cell)
        target = time.perf_counter() + chooser.random() * 0.0006
        while time.perf_counter() < target:
            pass
        for _ in range(chooser.choice((1, 1, 2, 3))):
            os.kill(kernel.pid, signal.SIGINT)
        seen.add(kernel.finish(timeout=5).status)
    assert seen <= {"ok", "error", "interrupted"}
    assert kernel.run("print(1)\nprint(2, file=sys.stderr)\n3").value == "3"

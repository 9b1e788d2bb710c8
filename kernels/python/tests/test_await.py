"""Top-level await, and every other way in which agents start event loops."""
import sys


def test_await_at_top_level_and_as_last_expression(kernel):
    outcome = kernel.run("import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\ny = await f(1)\nawait f(y + 1)")
    assert outcome.value == "2"
    assert kernel.run("[await f(i) for i in range(3)]").value == "[0, 1, 2]"
    assert kernel.run("async with asyncio.Lock():\n    print('locked')\nasync def g():\n    yield 1\nasync for v in g(): print(v)").out == "locked\n1\n"


def test_the_loop_is_the_same_in_every_cell(kernel):
    kernel.run("import asyncio\nloop = asyncio.get_running_loop() if False else None\nasync def me(): return asyncio.get_running_loop()\na = await me()")
    assert kernel.run("a is await me()").value == "True"


def test_tasks_of_earlier_cells_go_on_while_later_cells_run(kernel):
    kernel.run("import asyncio\nn = 0\nasync def tick():\n    global n\n    while True:\n        n += 1\n        await asyncio.sleep(0.001)\nt = asyncio.create_task(tick())\nawait asyncio.sleep(0)")
    assert int(kernel.run("await asyncio.sleep(0.05)\nn").value) > 3
    before = int(kernel.run("n").value)
    assert int(kernel.run("import time; time.sleep(0.01)\nn").value) >= before
    assert int(kernel.run("n").value) > before


def test_create_task_works_in_a_cell_without_await(kernel):
    kernel.run("import asyncio\nasync def f(): return 7\nt = asyncio.create_task(f())")
    assert kernel.run("await t").value == "7"


def test_asyncio_run_works_in_any_cell(kernel):
    kernel.run("import asyncio\nasync def f():\n    await asyncio.sleep(0.001)\n    return 3")
    assert kernel.run("asyncio.run(f())").value == "3"
    assert kernel.run("await f()\nasyncio.run(f())").value == "3"
    assert kernel.run("await f()").value == "3"
    assert kernel.run("async def g():\n    return asyncio.run(f()) + await f()\nawait g()").value == "6"
    assert kernel.run("asyncio.run(f())\nasyncio.get_event_loop().run_until_complete(f())").value == "3"


def test_there_is_a_current_loop_after_a_first_asyncio_run(kernel):
    kernel.run("import asyncio\nasyncio.run(asyncio.sleep(0))")
    assert kernel.run("loop = asyncio.get_event_loop()\nloop.run_until_complete(asyncio.sleep(0, 'r'))").value == "'r'"
    assert kernel.run("await asyncio.sleep(0, asyncio.get_running_loop() is loop)").value == "True"


def test_other_loops_run_beside_an_await(kernel):
    kernel.run("import asyncio\nasync def f(): return 3")
    assert kernel.run("await f()\nloop = asyncio.new_event_loop()\nloop.run_until_complete(f())").value == "3"
    assert kernel.run("await f()\nwith asyncio.Runner() as r: print(r.run(f()))" if sys.version_info >= (3, 11) else "print(3)").out == "3\n"
    assert kernel.run("import threading\nout = []\nt = threading.Thread(target=lambda: out.append(asyncio.run(f()))); t.start(); t.join()\nawait f()\nout").value == "[3]"


def test_tasks_started_by_a_hand_made_loop_go_on(kernel):
    kernel.run("import asyncio\nloop = asyncio.new_event_loop(); asyncio.set_event_loop(loop)\nasync def f(): return 9\nt = loop.create_task(f())")
    assert kernel.run("await t").value == "9"


def test_exit_in_a_task_ends_the_cell_and_the_loop_survives(kernel):
    kernel.run("import asyncio, sys\nasync def bye(): sys.exit(4)")
    assert kernel.run("asyncio.create_task(bye())\nawait asyncio.sleep(5)").done["exit_code"] == 4
    assert kernel.run("await asyncio.sleep(0)\n1").value == "1"


def test_a_closed_loop_is_replaced(kernel):
    kernel.run("import asyncio\nasync def f(): return 1\nawait f()\nasyncio.get_running_loop().stop()\nawait asyncio.sleep(1)")
    kernel.run("asyncio.get_event_loop().close()")
    assert kernel.run("await f()").value == "1"


def test_cells_without_await_import_no_asyncio(kernel):
    assert kernel.run("import sys; 'asyncio' in sys.modules").value == "False"


def test_plain_python_keeps_its_meaning_around_await(kernel):
    assert kernel.run("def f():\n    await_ = 1\n    return await_\nf()").value == "1"
    assert kernel.run("def f():\n    await x").error["name"] == "SyntaxError"

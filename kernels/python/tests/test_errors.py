"""Errors as a person would want to read them."""
import sys

import pytest


def trace(outcome):
    text = outcome.error["traceback"]
    for word in ("core.py", "extras.py", "kernel.py", "_atoll", "asyncio/runners"):
        assert word not in text
    return text


def test_an_exception_has_name_message_and_the_users_lines(kernel):
    outcome = kernel.run("def f(x):\n    return 1 / x\n\nf(0)")
    assert (outcome.status, outcome.error["name"], outcome.error["message"]) == ("error", "ZeroDivisionError", "division by zero")
    text = trace(outcome)
    assert 'File "<cell 1>", line 4, in <module>\n    f(0)' in text and 'File "<cell 1>", line 2, in f\n    return 1 / x' in text
    assert text.startswith("Traceback (most recent call last):\n") and text.endswith("ZeroDivisionError: division by zero")


def test_lines_of_earlier_cells_are_shown(kernel):
    kernel.run("def g():\n    raise KeyError('k')")
    text = trace(kernel.run("\n\ng()"))
    assert 'File "<cell 2>", line 3' in text and 'File "<cell 1>", line 2, in g\n    raise KeyError(\'k\')' in text


def test_chained_exceptions_are_all_shown(kernel):
    text = trace(kernel.run("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('second') from e"))
    assert "direct cause" in text and "1 / 0" in text and text.endswith("ValueError: second")
    text = trace(kernel.run("try:\n    1 / 0\nexcept ZeroDivisionError:\n    undefined"))
    assert "During handling" in text


def test_syntax_errors_show_the_place(kernel):
    outcome = kernel.run("x = 1\ny = (2 +\nz = = 3")
    assert outcome.error["name"] == "SyntaxError"
    assert 'File "<cell 1>", line ' in trace(outcome) and "^" in trace(outcome)
    text = trace(kernel.run("def f():\n    pass\nreturn 5"))
    assert "line 3" in text and "return 5" in text
    assert kernel.run("def f():\nx").error["name"] == "IndentationError"
    assert kernel.run("compile('a b', 'mine.py', 'exec')").error["name"] == "SyntaxError"
    assert "<cell 5>" in trace(kernel.run("eval('1 +')"))


def test_a_syntax_error_runs_nothing(kernel):
    assert kernel.run("print('never')\nx = = 1").out == ""


def test_deep_recursion_is_an_error_and_short(kernel):
    outcome = kernel.run("def f(): return f()\nf()")
    assert outcome.error["name"] == "RecursionError" and "more times" in trace(outcome) and len(trace(outcome)) < 4000
    outcome = kernel.run("def a(): b()\ndef b(): a()\na()")
    assert outcome.error["name"] == "RecursionError" and len(trace(outcome)) < 300000
    assert kernel.run("import sys\nsys.setrecursionlimit(60)\nf()").error["name"] == "RecursionError"
    assert kernel.run("sys.setrecursionlimit(1000)\n1").value == "1"


def test_exceptions_that_cannot_be_printed_are_still_told(kernel):
    outcome = kernel.run("class E(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise E()")
    assert outcome.error["name"] == "E" and "raised an exception" in outcome.error["message"] and "<cell 1>" in trace(outcome)
    assert kernel.run("class F(Exception):\n    def __str__(self): return 5\nraise F()").error["name"] == "F"
    assert kernel.run("class G(Exception):\n    def __str__(self): raise SystemExit\nraise G()").error["name"] == "G"


def test_exception_groups_show_their_members(kernel):
    outcome = kernel.run("def f():\n    raise ValueError('inner')\ntry:\n    f()\nexcept ValueError as e:\n    raise ExceptionGroup('several', [e, TypeError('other')])")
    if sys.version_info < (3, 11):
        assert outcome.error["name"] == "NameError"
        return
    text = trace(outcome)
    assert "several" in text and "ValueError: inner" in text and "TypeError: other" in text


def test_errors_in_awaited_code_show_only_the_users_frames(kernel):
    text = trace(kernel.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    raise ValueError('x')\nawait f()"))
    assert text.count("File ") == 2 and "base_events" not in text and "line 5" in text and "line 4, in f" in text


def test_huge_messages_are_shortened(kernel):
    outcome = kernel.run("raise ValueError('m' * 10_000_000)")
    assert len(outcome.error["message"]) < 100_000 and "left out" in outcome.error["message"]
    assert len(outcome.error["traceback"]) < 400_000


def test_odd_exceptions_end_only_the_cell(kernel):
    assert kernel.run("raise GeneratorExit").error["name"] == "GeneratorExit"
    assert kernel.run("class B(BaseException): pass\nraise B('b')").error["name"] == "B"
    assert kernel.run("raise KeyboardInterrupt").status == "interrupted"
    assert kernel.run("raise StopIteration(5)").error["name"] == "StopIteration"
    assert kernel.run("import asyncio\nraise asyncio.CancelledError").status == "error"
    assert kernel.run("raise MemoryError").error["name"] == "MemoryError"
    assert kernel.run("1").value == "1"


def test_frames_of_a_failed_cell_are_freed(kernel):
    kernel.run("import weakref\nclass Big: pass\ndef f():\n    global seen\n    big = Big()\n    seen = weakref.ref(big)\n    raise ValueError\nf()")
    assert kernel.run("seen() is None").value == "True"


def test_tracers_and_handlers_of_the_user_end_with_the_cell(kernel):
    kernel.run("import sys\ndef t(*a): raise RuntimeError('tracer')\ntry:\n    sys.settrace(t)\n    (lambda: 0)()\nexcept RuntimeError: pass\nsys.setprofile(None)")
    assert kernel.run("1").value == "1"
    assert kernel.run("sys.settrace(lambda *a: None)").status == "ok"
    assert kernel.run("sys.gettrace()").results == []


def test_an_alarm_that_rings_between_cells_does_not_end_the_kernel(kernel):
    kernel.run("import signal\ndef ring(*a): raise TimeoutError('late alarm')\nsignal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.02)")
    outcome = kernel.run("import time\ntry: time.sleep(0.05)\nexcept TimeoutError: pass\n4")
    assert outcome.status == "ok"
    kernel.run("signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005);")
    kernel.run("import time\nt = time.monotonic() + 0.05\nwhile time.monotonic() < t:\n    try: time.sleep(0.05)\n    except TimeoutError: pass\nsignal.setitimer(signal.ITIMER_REAL, 0);")
    assert kernel.run("5").value == "5"


@pytest.mark.parametrize("code, what", [("breakpoint()", "breakpoint()"), ("import getpass; getpass.getpass()", "getpass()"), ("input('x')", "input()")])
def test_what_would_wait_for_a_person_fails_at_once_and_says_so(kernel, code, what):
    error = kernel.run(code).error
    assert error["name"] == "EOFError" and error["message"].startswith(what + " needs a person")
    assert error["traceback"].count("\n") <= 8

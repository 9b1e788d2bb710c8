"""Cells as scripts: what lives on, what is shown, how a cell may end."""
import ast
import os
import sys
import textwrap

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


def code(text):
    return textwrap.dedent(text).strip("\n")


def test_variables_functions_imports_and_open_files_live_on(kernel):
    kernel.run("import math\nx = 1 + 1\ndef f(): return x\nfile = open('a.txt', 'w+')")
    outcome = kernel.run("file.write('hi'); file.seek(0)\nprint(x, f(), math.pi, file.read())")
    assert outcome.out == "2 2 3.141592653589793 hi\n"
    assert outcome.status == "ok"


def test_the_working_directory_lives_on(kernel):
    kernel.run("import os; os.mkdir('sub'); os.chdir('sub')")
    assert kernel.run("os.path.basename(os.getcwd())").value == "'sub'"


def test_last_expression_is_shown_and_none_is_not(kernel):
    assert kernel.run("1 + 1").value == "2"
    assert kernel.run("x = 5\nx * 2").value == "10"
    assert kernel.run("None").results == []
    assert kernel.run("x = 7").results == []
    assert kernel.run("x;").results == []
    assert kernel.run("").status == "ok"
    assert kernel.run("# only a comment").status == "ok"


def test_silent_shows_no_last_expression(kernel):
    assert kernel.run("1 + 1", silent=True).results == []


def test_underscore_is_the_last_value(kernel):
    kernel.run("6 * 7")
    assert kernel.run("_ + 1").value == "43"


def test_main_block_runs(kernel):
    assert kernel.run("if __name__ == '__main__':\n    print('main ran')").out == "main ran\n"


def test_arguments_are_those_of_a_script_without_any(kernel):
    assert kernel.run("import sys; sys.argv").value == "['']"
    outcome = kernel.run("import argparse\np = argparse.ArgumentParser(); p.add_argument('--n', default=3); p.parse_args().n")
    assert outcome.value == "3"


def test_modules_of_the_working_directory_import(kernel):
    kernel.run("open('mine.py', 'w').write('y = 11')")
    assert kernel.run("import mine; mine.y").value == "11"
    assert kernel.run("import sys; sys.path[0]").value == "''"


def test_installed_packages_are_importable(kernel):
    assert kernel.run("import pytest; pytest.__name__").value == "'pytest'"


@pytest.mark.parametrize(
    "call, code",
    [("exit()", 0), ("quit()", 0), ("exit(3)", 3), ("import sys; sys.exit(4)", 4), ("raise SystemExit(256 + 7)", 7), ("sys_exit()", 9)],
)
def test_exit_ends_the_cell_and_not_the_state(kernel, call, code):
    kernel.run("import sys\nx = 1\ndef sys_exit(): sys.exit(9)")
    outcome = kernel.run("print('before')\n%s\nprint('after')" % call)
    assert (outcome.status, outcome.done["exit_code"], outcome.out) == ("exited", code, "before\n")
    assert kernel.run("x").value == "1"


def test_exit_with_a_message_prints_it_and_gives_one(kernel):
    outcome = kernel.run("import sys\nsys.exit('bad thing')")
    assert (outcome.status, outcome.done["exit_code"], outcome.err) == ("exited", 1, "bad thing\n")


def test_exit_in_nested_places_ends_the_cell(kernel):
    assert kernel.run("def f():\n    try:\n        exit(5)\n    finally:\n        print('cleanup')\n[f() for _ in range(3)]").done["exit_code"] == 5
    assert kernel.run("import asyncio\nasync def g(): exit(6)\nawait g()").done["exit_code"] == 6
    assert kernel.run("import asyncio\nasyncio.run(g())").done["exit_code"] == 6
    assert kernel.run("class R:\n    def __repr__(self): exit(8)\nR()").done["exit_code"] == 8


def test_source_of_functions_and_classes_of_earlier_cells_is_found(kernel):
    kernel.run("def f(a):\n    return a + 1\n\nclass A:\n    def m(self):\n        return 1")
    kernel.run("class Empty:\n    x: int = 3\n\nclass Outer:\n    class Inner:\n        y = 2\n        def g(self): pass")
    kernel.run("import inspect")
    assert kernel.run("print(inspect.getsource(f), end='')").out == "def f(a):\n    return a + 1\n"
    assert kernel.run("print(inspect.getsource(A), end='')").out == "class A:\n    def m(self):\n        return 1\n"
    assert kernel.run("print(inspect.getsource(A.m), end='')").out == "    def m(self):\n        return 1\n"
    assert kernel.run("print(inspect.getsource(Empty), end='')").out == "class Empty:\n    x: int = 3\n"
    assert "class Inner" in kernel.run("print(inspect.getsource(Outer.Inner))").out
    kernel.run("class A:\n    def m(self):\n        return 'second'")
    assert "second" in kernel.run("print(inspect.getsource(A))").out
    assert kernel.run("import linecache; linecache.clearcache(); inspect.getsource(A)").status == "ok"


def test_classes_of_main_can_be_pickled(kernel):
    kernel.run("class P:\n    def __init__(self, v): self.v = v")
    assert kernel.run("import pickle\npickle.loads(pickle.dumps(P(5))).v").value == "5"
    assert kernel.run("import sys; sys.modules['__main__'].P is P and pickle.loads(pickle.dumps(print)) is print").value == "True"


def test_dataclasses_and_type_hints_resolve_names_of_cells(kernel):
    kernel.run("from __future__ import annotations\nimport dataclasses, typing\nclass B: pass")
    kernel.run("@dataclasses.dataclass\nclass D:\n    b: B\n    n: typing.Optional[int] = None")
    assert "'b': <class '__main__.B'>" in kernel.run("typing.get_type_hints(D)").value
    assert kernel.run("D(b=1)").value == "D(b=1, n=None)"


def test_future_imports_hold_for_later_cells(kernel):
    kernel.run("from __future__ import annotations")
    assert kernel.run("def f(x: undefined_name): pass\nf.__annotations__").value == "{'x': 'undefined_name'}"


def test_multiprocessing_by_fork_runs_functions_of_cells(kernel):
    outcome = kernel.run(code("""
        import multiprocessing as mp
        def square(x):
            return x * x
        with mp.get_context('fork').Pool(2) as pool:
            print(pool.map(square, range(5)))
    """))
    assert outcome.out == "[0, 1, 4, 9, 16]\n"
    assert kernel.run("1").value == "1"


def test_multiprocessing_by_spawn_runs_functions_of_modules(kernel):
    kernel.run("open('work.py', 'w').write('def twice(x): return 2 * x')")
    outcome = kernel.run("import multiprocessing as mp, work\nwith mp.get_context('spawn').Pool(1) as pool: print(pool.map(work.twice, [1, 2]))")
    assert outcome.out == "[2, 4]\n"


def test_input_without_stdin_fails_at_once_and_says_why(kernel):
    outcome = kernel.run("name = input('Name? ')")
    assert outcome.error["name"] == "EOFError"
    assert "no stdin is connected" in outcome.error["message"]
    assert 'name = input(' in outcome.error["traceback"]


def test_input_reads_a_replaced_stdin(kernel):
    outcome = kernel.run("import sys, io\nsys.stdin = io.StringIO('3\\n4\\n')\nint(input()) + int(input('? '))")
    assert (outcome.value, outcome.out) == ("7", "? ")


def test_input_reads_a_connected_stdin(new_kernel):
    reader, writer = os.pipe()
    os.write(writer, b"hello\n")
    kernel = new_kernel(stdin=reader)
    os.close(reader)
    assert kernel.run("input('> ')").value == "'hello'"
    os.close(writer)
    assert kernel.run("input()").error["name"] == "EOFError"


def test_help_does_not_page(kernel):
    outcome = kernel.run("help(len)")
    assert "Return the number of items" in outcome.out and outcome.status == "ok"


def test_ten_megabytes_of_code_run(kernel):
    big = "data = '%s'\nn = len(data)\nn + 1" % ("x" * (10 << 20))
    assert kernel.run(big).value == str((10 << 20) + 1)
    many = "a = 1\n" * 60000 + "if a:\n    b = '''\nq\n'''\n(a +\n 41)"
    assert kernel.run(many).value == "42"
    outcome = kernel.run("a = 1\n" * 60000 + "1 / 0")
    assert (outcome.error["name"], "line 60001" in outcome.error["traceback"]) == ("ZeroDivisionError", True)
    assert kernel.run("a = 1\n" * 60000 + "def f(:").error["name"] == "SyntaxError"
    assert kernel.run("a = 1\n" * 60000 + "%pwd\n").status == "ok"


def test_code_that_is_no_text_is_an_error_and_not_the_end(kernel):
    assert kernel.run("x = '\ud800'").status == "error"
    assert kernel.run("x = 1\0").status == "error"
    assert kernel.run("1").value == "1"


def test_sources_of_very_many_cells_do_not_pile_up(kernel):
    for _ in range(6):
        kernel.run("x = '%s'" % ("y" * (4 << 20)))
    assert int(kernel.run("import sys; sum(len(s) for s in sys.modules['_atoll_kernel'].state.sources.values())").value) <= 16 << 20


def test_an_installed_get_ipython_is_used_only_when_called(kernel):
    assert kernel.run("import sys; 'IPython' in sys.modules").value == "False"
    assert kernel.run("x = 3\nshell = get_ipython(); shell.user_ns['x']").value == "3"
    assert kernel.run("print('still', x)\nexit").status == "ok"
    assert kernel.run("exit(2)").done["exit_code"] == 2
    outcome = kernel.run("from IPython.display import HTML, display\ndisplay(HTML('<b>1</b>'))\nHTML('<i>2</i>')")
    assert [(event["main"], event["data"]["text/html"]) for event in outcome.results] == [(False, "<b>1</b>"), (True, "<i>2</i>")]


def test_without_ipython_get_ipython_runs_magics_and_refuses_the_rest_clearly(new_kernel):
    kernel = new_kernel(flags=("-S",))
    assert kernel.run("get_ipython().run_line_magic('pwd', '')").status == "ok"
    outcome = kernel.run("get_ipython().events")
    assert "needs IPython" in outcome.error["message"]


def test_matplotlib_backend_is_set_only_if_nobody_did(new_kernel):
    assert new_kernel().run("import os; os.environ['MPLBACKEND']").value == "'agg'"
    assert new_kernel(env={"MPLBACKEND": "svg"}).run("import os; os.environ['MPLBACKEND']").value == "'svg'"


def test_collectors_run_after_the_code_of_each_cell(kernel):
    kernel.run("import sys\nsys.modules['_atoll_kernel'].state.after_cell.append(lambda error: display('figure'))")
    assert [event["data"]["text/plain"] for event in kernel.run("1").results] == ["1", "'figure'"]


def test_names_that_cells_shadow_do_not_hurt_the_kernel(kernel):
    kernel.run("open('traceback.py', 'w').write('boom = 1')\nprint = len = str = None\nimport os\nos.write = os.read = os.fstat = None")
    assert kernel.run("1 / 0").error["name"] == "ZeroDivisionError"
    assert kernel.run("5").value == "5"


def test_ready_names_language_version_and_pid(kernel):
    assert kernel.ready == {"event": "ready", "language": "python", "version": "%d.%d.%d" % sys.version_info[:3], "pid": kernel.pid}


def test_configure_sets_environment_folder_and_time_zone(kernel, tmp_path):
    (tmp_path / "there").mkdir()
    kernel.run("import os, time; os.environ['GONE'] = '1'")
    assert kernel.configure(env={"A": "b=c", "TZ": "Asia/Tokyo"}, unset=["GONE", "NEVER"], cwd=str(tmp_path / "there")) == {"event": "configured"}
    outcome = kernel.run("print(os.environ['A'], 'GONE' in os.environ, os.path.basename(os.getcwd()), time.timezone)\n!echo $A")
    assert outcome.out.splitlines()[0] == "b=c False there -32400"
    assert "b=c" in outcome.out.splitlines()[1:]
    refused = kernel.configure(cwd=str(tmp_path / "missing"))
    assert refused["error"]["name"] == "FileNotFoundError"


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others(kernel):
    kernel.run("import random, numpy.random, ssl, tempfile")
    draws = []
    for seed in ("ab" * 32, "ab" * 32, "cd" * 32):
        kernel.configure(seed=seed)
        draws.append(kernel.run("(random.random(), numpy.random.rand())").value)
        assert kernel.run("random.random() != numpy.random.rand()").value == "True"
    assert draws[0] == draws[1] != draws[2]


def test_seeding_reaches_generators_whose_functions_were_replaced(kernel):
    kernel.run("import random, numpy as np\nrandom.seed = lambda *a: None\nnp.random.seed = None\nrandom.gauss(0, 1)")
    draws = set()
    for seed in ("ab" * 32, "cd" * 32):
        assert kernel.configure(seed=seed) == {"event": "configured"}
        draws.add(kernel.run("(random.gauss(0, 1), np.random.rand())").value)
    kernel.run("np.random.set_bit_generator(np.random.PCG64(7))")
    for seed in ("ab" * 32, "cd" * 32):
        assert kernel.configure(seed=seed) == {"event": "configured"}
        draws.add(kernel.run("np.random.rand()").value)
    assert len(draws) == 4


def test_generators_of_the_user_are_left_alone(kernel):
    kernel.run("import random, numpy as np\nmine, own = random.Random(7), np.random.default_rng(7)")
    kernel.configure(seed="ab" * 32)
    assert kernel.run("(mine.random(), own.random()) == (random.Random(7).random(), np.random.default_rng(7).random())").value == "True"


def test_seeding_says_what_it_could_not_seed_and_seeds_the_rest(kernel):
    kernel.run("import random, sys, types\ntorch = types.ModuleType('torch')\ndef manual_seed(n): raise KeyError('no')\ntorch.manual_seed = manual_seed\nsys.modules['torch'] = torch\nrandom.seed(1); old = random.random(); random.seed(1)")
    answer = kernel.configure(id="identity-7", seed="ab" * 32)
    assert answer["id"] == "identity-7" and "torch: KeyError" in answer["unseeded"]
    assert kernel.run("random.random() != old").value == "True"


def test_modules_of_the_user_by_the_names_of_others_do_no_harm(kernel, tmp_path):
    (tmp_path / "random.py").write_text("seed = 5\n")
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("")
    (tmp_path / "numpy" / "random.py").write_text("mtrand = None\n")
    (tmp_path / "uuid.py").write_text("_node = 'mine'\n")
    kernel.run("import random, numpy.random, uuid")
    assert kernel.configure(seed="ab" * 32) == {"event": "configured"}
    assert kernel.run("random.seed, uuid._node").value == "(5, 'mine')"


def test_seeding_imports_nothing(kernel):
    kernel.configure(seed="00" * 32)
    assert kernel.run("import sys; [m for m in ('random', 'numpy', 'ssl', 'json', 'asyncio', 'inspect') if m in sys.modules]").value == "[]"


def test_kernel_leaves_on_shutdown_and_on_end_of_file(new_kernel):
    first = new_kernel()
    first.send(op="shutdown")
    first.close()
    assert os.WIFEXITED(first.status) and os.WEXITSTATUS(first.status) == 0
    second = new_kernel()
    second.close()
    assert os.WEXITSTATUS(second.status) == 0
    first.close = second.close = lambda: None


@pytest.mark.parametrize("file", ["kernel.py", "core.py", "extras.py"])
def test_the_source_is_valid_python_3_8(file):
    with open(os.path.join(os.path.dirname(HERE), file)) as source:
        ast.parse(source.read(), feature_version=(3, 8))


def test_file_of_a_cell_lies_in_the_working_folder(kernel, tmp_path):
    assert kernel.run("import os\nos.path.dirname(os.path.abspath(__file__))").value == repr(str(tmp_path))
    assert kernel.run("def f(): return f'{__file__}'\nf()").value == repr(str(tmp_path / "cell.py"))
    assert kernel.run("'__file__' in globals()").value == "False"
    assert kernel.run("async def g(): return __file__\nawait g()").value == repr(str(tmp_path / "cell.py"))
    kernel.run("__file__ = 'mine'")
    assert kernel.run("__file__").value == "'mine'"

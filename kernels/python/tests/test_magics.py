"""`!`, `%` and `%%`, and that valid Python is never taken for one."""
import os
import zipfile

import pytest


def test_shell_lines_run_and_take_python_values(kernel):
    kernel.run("name = 'wörld'\nd = {'k': [1, 2]}")
    assert kernel.run("!echo hello {name} $name {d['k'][1]}").out == "hello wörld wörld 2\n"
    assert kernel.run("!echo ${HOME:+set} '{unknown}' $((1+1)) | cat").out == "set {unknown} 2\n"
    assert kernel.run("for i in range(2):\n    !echo {i}").out == "0\n1\n"
    assert kernel.run("!exit 3\n_exit_code").value == "3"
    assert kernel.run("!echo a \\\n  b").out == "a b\n"
    assert kernel.run("!printf 'a b\\n1 2\\n' | awk '{print $2}'").out == "b\n2\n"


def test_shell_output_can_be_kept(kernel):
    assert kernel.run("lines = !printf 'a\\nb\\n'\n(lines, lines.n, lines.s)").value == "(['a', 'b'], 'a\\nb', 'a b')"
    assert kernel.run("def f():\n    local = 'inner'\n    out = !echo {local}\n    return out\nf()").value == "['inner']"


def test_python_that_looks_like_a_magic_is_left_alone(kernel):
    assert kernel.run("a, b = 7, 4\n(a\n% b)").value == "3"
    assert kernel.run("s = '''\n!echo no\n%cd /\n%%bash\n'''\nlen(s)").value == "23"
    outcome = kernel.run("!echo magic\ntext = '''\n%pwd\n!ls\n'''\nprint(text)")
    assert outcome.out == "magic\n\n%pwd\n!ls\n\n"


def test_line_numbers_stay_right_beside_magics(kernel):
    text = kernel.run("!echo a \\\n  b\n%pwd\n\n1 / 0").error["traceback"]
    assert "line 5" in text and "1 / 0" in text
    text = kernel.run("%pwd\nx = = 2").error["traceback"]
    assert "line 2" in text and "x = = 2" in text


def test_cd_pwd_and_env(kernel, tmp_path):
    (tmp_path / "sub dir").mkdir()
    assert kernel.run("%cd sub dir").out == "%s\n" % (tmp_path / "sub dir")
    assert kernel.run("%pwd").value == repr(str(tmp_path / "sub dir"))
    assert kernel.run("%cd -").out == "%s\n" % tmp_path
    assert kernel.run("%cd missing").error["name"] == "FileNotFoundError"
    assert kernel.run("%env A=1 2\n!echo $A").out == "env: A=1 2\n1 2\n"
    assert kernel.run("%env A").value == "'1 2'"
    assert kernel.run("%set_env B 5\nimport os; os.environ['B']").value == "'5'"
    assert kernel.run("here = %pwd\nhere").value == repr(str(tmp_path))
    assert "is not set" in kernel.run("%env NEVER_SET").error["message"]


def test_time_and_timeit(kernel):
    outcome = kernel.run("%time sum(range(10))")
    assert outcome.value == "45" and "Wall time: " in outcome.out
    assert "per loop" in kernel.run("n = 3\n%timeit -n 10 -r 2 n + 1").out
    outcome = kernel.run("%%time\nz = 5\nz + 1")
    assert outcome.value == "6" and "CPU time: " in outcome.out
    assert kernel.run("z").value == "5"
    assert "per loop" in kernel.run("%%timeit -n 2 -r 1 q = 1\nq + 1").out
    assert "line 3" in kernel.run("%%time\n\n1 / 0").error["traceback"]
    assert kernel.run("%timeit -x 5 pass").error["name"] == "UsageError"


def test_bash_and_sh_cells(kernel):
    outcome = kernel.run("%%bash\nx=5\necho \"$x ${x}\" {a}\necho err >&2")
    assert (outcome.out, outcome.err, outcome.status) == ("5 5 {a}\n", "err\n", "ok")
    assert kernel.run("%%sh\necho sh").out == "sh\n"
    outcome = kernel.run("%%bash\necho before\nexit 4")
    assert (outcome.out, outcome.error["message"]) == ("before\n", "the script ended with exit status 4")


def test_writefile_cells(kernel, tmp_path):
    kernel.run("%%writefile a.py\nx = 'ä'\n")
    kernel.run("%%writefile -a a.py\ny = 2\n")
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == "x = 'ä'\ny = 2\n"
    assert kernel.run("%%writefile").error["name"] == "UsageError"


def test_pip_installs_a_package_that_the_next_line_imports(kernel, tmp_path):
    wheel = tmp_path / "atoll_kernel_probe-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("atoll_kernel_probe.py", "answer = 42\n")
        archive.writestr("atoll_kernel_probe-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: atoll-kernel-probe\nVersion: 1\n")
        archive.writestr("atoll_kernel_probe-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("atoll_kernel_probe-1.dist-info/RECORD", "")
    kernel.run("import sys, os\nos.mkdir('site'); sys.path.append(os.path.abspath('site'))\ntry:\n    import atoll_kernel_probe\nexcept ImportError: pass")
    outcome = kernel.run("%%pip install --no-index --target site %s\nimport atoll_kernel_probe\natoll_kernel_probe.answer" % wheel)
    assert outcome.value == "42" and "Successfully installed" in outcome.out
    assert kernel.run("%pip").error["name"] == "UsageError"
    assert "No matching" in kernel.run("%pip install --no-index atoll-kernel-no-such-package").err


@pytest.mark.parametrize("code", ["%nosuch x", "%%nosuch\nx", "x = %nosuch"])
def test_unknown_magics_are_named_with_the_known_ones(kernel, code):
    error = kernel.run(code).error
    assert error["name"] == "UsageError" and "unknown" in error["message"] and "nosuch" in error["message"] and "time" in error["message"]
    assert "core.py" not in error["traceback"] and "extras.py" not in error["traceback"]


def test_matplotlib_inline_is_accepted(kernel):
    assert kernel.run("%matplotlib inline\n1").value == "1"


def test_a_killed_script_says_so(kernel):
    assert "killed by signal 9" in kernel.run("%%sh\nkill -9 $$").error["message"]


def test_shell_programs_have_no_stdin(kernel):
    assert kernel.run("!cat; echo end").out == "end\n"
    assert os.path.exists("/dev/null")


def test_question_mark_explains_a_name(kernel):
    kernel.run("def area(r, *, unit='m'):\n    '''Of a circle.'''\n    return r * r\nclass A:\n    x = 5\na = A()")
    out = kernel.run("area?").out
    assert "area(r, *, unit='m')" in out and "Of a circle." in out and "return r" not in out
    assert "return r * r" in kernel.run("area??").out
    assert "Value:     5" in kernel.run("?a.x").out
    assert "\n" in kernel.run("len?").out
    assert kernel.run("missing?").error["name"] == "NameError"
    assert kernel.run("x = 1?").error["name"] == "SyntaxError"
    assert kernel.run("def f():\n    local = 7\n    local?\nf()").out.startswith("Type:      int")


def test_files_are_listed_shown_and_run(kernel, tmp_path):
    (tmp_path / "script.py").write_text("import sys\ndef helper(): return given * 2\nmade = helper()\nprint(sys.argv, __file__)\n")
    assert kernel.run("%ls").out == "script.py\n"
    assert "def helper" in kernel.run("%cat script.py").out
    path = str(tmp_path / "script.py")
    assert kernel.run("given = 21\n%run script.py one 'two three'").out == "%r %s\n" % ([path, "one", "two three"], path)
    assert kernel.run("made, helper(), '__file__' in globals(), sys.argv").value == "(42, 42, False, [''])"
    (tmp_path / "bad.py").write_text("x = 1\n1 / 0\n")
    text = kernel.run("%run bad.py").error["traceback"]
    assert "bad.py" in text and "line 2" in text and "ZeroDivisionError" in text
    assert kernel.run("%run missing.py").error["name"] == "FileNotFoundError"


def test_names_are_listed(kernel):
    assert kernel.run("%who").out == "no names yet\n"
    kernel.run("b = [1]\na = 'x'")
    assert kernel.run("%who").out == "a  b\n"
    assert kernel.run("%whos").out.split() == ["a", "str", "'x'", "b", "list", "[1]"]


def test_magics_of_notebooks_that_have_no_meaning_here_do_no_harm(kernel):
    assert kernel.run("%config InlineBackend.figure_format = 'retina'").error is None
    outcome = kernel.run("%load_ext autoreload\n%autoreload 2\nprint('on')")
    assert outcome.out == "on\n" and "does nothing" in outcome.err


def test_cell_magics_show_capture_and_run_python(kernel):
    outcome = kernel.run("%%html\n<b>x</b>")
    assert outcome.results[0]["data"]["text/html"] == "<b>x</b>"
    assert kernel.run("%%capture kept\nprint('quiet'); z = 3").out == ""
    assert kernel.run("kept.stdout, z").value == "('quiet\\n', 3)"
    assert kernel.run("%%python\nimport sys; print('inner', len(sys.argv))").out == "inner 1\n"


def test_names_are_forgotten_and_magics_are_listed(kernel):
    kernel.run("kept = 1")
    assert kernel.run("%reset -f").status == "ok"
    assert kernel.run("kept").error["name"] == "NameError"
    assert "%%bash" in kernel.run("%lsmagic").out


def test_script_cells_and_output_as_lines(kernel, tmp_path):
    assert kernel.run("%%script bash\nread line <<<x; echo got $line").out == "got x\n"
    assert "exit status 3" in kernel.run("%%script bash\nexit 3").error["message"]
    assert "does not exist" in kernel.run("%%script no-such-program\nx").error["message"]
    assert kernel.run("lines = %sx echo one\nlines").value == "['one']"
    assert kernel.run("%%file notes.txt\nhello").status == "ok"
    assert (tmp_path / "notes.txt").read_text().strip() == "hello"


def test_pip_that_fails_fails_the_cell(kernel):
    outcome = kernel.run("%pip install --no-index --quiet this-package-is-nowhere\nprint('not reached')")
    assert outcome.error["name"] == "ScriptError" and "exit status 1" in outcome.error["message"]
    assert "No matching distribution" in outcome.err and outcome.out == ""

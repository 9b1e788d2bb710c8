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


def test_question_marks_are_a_syntax_error(kernel):
    assert kernel.run("len?").error["name"] == "SyntaxError"


def test_a_killed_script_says_so(kernel):
    assert "killed by signal 9" in kernel.run("%%sh\nkill -9 $$").error["message"]


def test_shell_programs_have_no_stdin(kernel):
    assert kernel.run("!cat; echo end").out == "end\n"
    assert os.path.exists("/dev/null")

"""The quick-starts of the SDKs, unmodified, as a user runs them: a program of its own with three variables set."""

import asyncio
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = ["2", "Hello from user", "hello"]


def lines(command, environment, cwd=HERE):
    result = subprocess.run(command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_python(environment):
    said = lines([sys.executable, "quickstart.py"], environment)
    assert said[:3] == EXPECTED and "hello.txt" in said[3], said


def test_python_async(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    from e2b_code_interpreter import AsyncSandbox

    async def main():
        sandbox = await AsyncSandbox.create()
        try:
            await sandbox.run_code("x = 1")
            return (await sandbox.run_code("x += 1; x")).text, (await sandbox.commands.run("echo async")).stdout
        finally:
            await sandbox.kill()

    assert asyncio.run(main()) == ("2", "async\n")


def test_javascript(environment, tmp_path):
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail("no npm (remedy: apt-get install npm, or a Node.js of 20 or newer)")
    for name in ("package.json", "quickstart.mjs"):
        shutil.copy(HERE / name, tmp_path / name)
    subprocess.run([npm, "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=tmp_path, check=True, timeout=300)
    said = lines(["node", "quickstart.mjs"], environment, tmp_path)
    # Node shows a list of more than six on several lines.
    assert said[:3] == EXPECTED and "hello.txt" in "".join(said[3:]), said


def suites():
    """A larger suite of the same SDKs beside the project, where there is one."""
    folder = pathlib.Path(os.environ.get("ATOLL_CONFORMANCE", HERE.parents[2] / "shared" / "conformance")) / "e2b"
    return folder if (folder / "test_e2b.py").is_file() else None


@pytest.mark.flaky(reruns=1)
@pytest.mark.skipif(suites() is None, reason="no larger suite beside the project")
def test_larger_suite_in_python(environment, tmp_path):
    import expectations

    report = tmp_path / "report.xml"
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not slow and not optional", "--reruns", "1", f"--junitxml={report}", "--tb=short",
        str(suites() / "test_e2b.py"), "-c", str(suites() / "pytest.ini"),
    ]
    subprocess.run(command, env={**environment, "ATOLL_E2B_NO_INTERNET": "1"}, cwd=suites(), stdin=subprocess.DEVNULL, timeout=1200)
    expectations.check(report)


# Of the JavaScript suite, what this adapter does not have yet.
JAVASCRIPT_NOT_YET = [
    "volume files and mount", "secret create, list and destroy",
]

# Want pandas, matplotlib and Node.js, which the image of the template data-science has.
JAVASCRIPT_BY_IMAGE = {"rich results: png, chart and dataframe data", "language javascript", "language typescript"}


@pytest.mark.flaky(reruns=1)
@pytest.mark.skipif(suites() is None, reason="no larger suite beside the project")
def test_larger_suite_in_javascript(environment, tmp_path):
    for name in ("package.json", "e2b.test.mjs"):
        shutil.copy(suites() / name, tmp_path / name)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=tmp_path, check=True, timeout=300)
    command = ["node", "--test", "--test-concurrency=2", "--test-reporter=tap", "e2b.test.mjs"]
    result = subprocess.run(command, env={**environment, "ATOLL_E2B_NO_INTERNET": "1"}, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1200)
    failed = re.findall(r"^not ok \d+ - (.*)$", result.stdout, re.M)
    passed = re.findall(r"^ok \d+ - (.*)$", result.stdout, re.M)
    assert len(passed) > 40, result.stdout[-5000:] + result.stderr[-2000:]
    assert sorted(set(failed) - JAVASCRIPT_BY_IMAGE) == sorted(JAVASCRIPT_NOT_YET), result.stdout[-8000:]

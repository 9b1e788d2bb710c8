"""SDKs that programs pin, some lines behind: the same quick-starts, and with --all what applies of the larger suite."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import environments
import installation as installations
import pytest
import wildcard
from test_quickstart import EXPECTED, HERE, suites

TOOLS = ["pytest==8.4.2", "httpx==0.28.1", "pytest-rerunfailures==16.1"]
PYTHON = {"2.20": ["e2b==2.20.3", "e2b-code-interpreter==2.6.2"], "2.31": ["e2b==2.31.0", "e2b-code-interpreter==2.9.0"]}
BASE = [
    "green from user", "exit 3", "a note ['note.txt']", "runs True", "a note /home/user", "a note True True", "True", "True False",
]


@pytest.fixture
def old(environment):
    """Python's e2b 2.31 takes only keys of e2b_ and hexadecimal digits."""
    return {**environment, "E2B_API_KEY": "e2b_" + environment["E2B_API_KEY"].encode().hex(), "ATOLL_API_KEY": "e2b_" + environment["E2B_API_KEY"].encode().hex()}


@pytest.mark.parametrize("line", PYTHON)
def test_commands_and_files(line, old):
    assert environments.run([environments.python(*PYTHON[line], *TOOLS), "quickstart_base.py"], old, HERE) == BASE


def test_code_of_2_31(old):
    said = environments.run([environments.python(*PYTHON["2.31"], *TOOLS), "quickstart.py"], old, HERE)
    assert said[:3] == EXPECTED, said


def test_javascript_of_two_years(environment, tmp_path):
    folder = environments.node(**{"e2b": "2.20.0", "@e2b/code-interpreter": "2.4.0"})
    (tmp_path / "node_modules").symlink_to(folder / "node_modules")
    shutil.copy(HERE / "quickstart_base.mjs", tmp_path)
    said = environments.run(["node", "quickstart_base.mjs"], environment, tmp_path)
    assert said == ["green from user", "exit 3", "a note [ 'note.txt' ]", "a note"], said


@pytest.mark.long
def test_code_by_host_names_and_tls_alone(tmp_path):
    """Code interpreters before 2.9 leave E2B_SANDBOX_URL out of account: they ask https://49999-{id}.{domain} whatever is set. So do all SDKs without the two addresses."""
    port = installations.free_port()
    # Not in pytest's folder, which is root's alone: the server is another user.
    with tempfile.TemporaryDirectory(prefix="atoll-test-") as folder, wildcard.before(port, tmp_path) as (tls, command, trust):
        os.chmod(folder, 0o755)
        atoll = installations.Installation(pathlib.Path(folder) / "data", port)
        atoll.configure(domain=f"{wildcard.DOMAIN}:{tls}")
        try:
            atoll.up()
            environment = {**trust, "PATH": "/usr/local/bin:/usr/bin:/bin", "E2B_API_KEY": "e2b_" + atoll.key.encode().hex(), "E2B_API_URL": atoll.url + "/compat/e2b"}
            for line in PYTHON:
                said = environments.run(command(environments.python(*PYTHON[line], *TOOLS), HERE / "quickstart.py"), environment, tmp_path)
                assert said[:3] == EXPECTED, said
                assert environments.run(command(environments.python(*PYTHON[line], *TOOLS), HERE / "quickstart_base.py"), environment, tmp_path) == BASE
        finally:
            atoll.down(everything=True)


# Of the larger suite, what these SDKs lack or say in another way.
BEHIND = {
    "2.31": [
        "test_unknown_template_raises_sandbox_exception", "test_list_orders_by_start_time_and_filters_started_after", "test_idempotency_key_returns_the_same_sandbox",
        "test_command_returns_stdout_stderr_and_exit_code", "test_stream_input_sends_chunks_in_order", "test_upload_from_chunk_iterable",
        "test_fork_copies_state_and_then_diverges", "test_fork_keeps_interpreter_state", "test_update_network_blocks_egress_of_a_running_sandbox",
    ],
}


@pytest.mark.long
@pytest.mark.flaky(reruns=1)
@pytest.mark.skipif(suites() is None, reason="no larger suite beside the project")
@pytest.mark.parametrize("line", BEHIND)
def test_larger_suite(line, old, tmp_path):
    import expectations

    report = tmp_path / "report.xml"
    command = [
        environments.python(*PYTHON[line], *TOOLS), "-m", "pytest", "-p", "older", "-p", "no:cacheprovider", "-q", "-m", "not slow and not optional", "--reruns", "1",
        f"--junitxml={report}", "--tb=short", suites() / "test_e2b.py", "-c", suites() / "pytest.ini",
    ]
    subprocess.run([str(word) for word in command], env={**old, "ATOLL_E2B_NO_INTERNET": "1", "PYTHONPATH": str(HERE)}, cwd=suites(), stdin=subprocess.DEVNULL, timeout=1200)
    missing = {name for names in expectations.NOT_YET.values() for name in names}
    found = expectations.outcomes(report)
    either = {*expectations.RACES, *(name for names in expectations.BY_IMAGE.values() for name in names)}
    failed = {name for name, outcome in found.items() if outcome == "failed"} - missing - either
    assert failed - set(BEHIND[line]) == set(), failed
    assert sum(outcome == "passed" for outcome in found.values()) > 90

"""What of the SDKs' traps lies in sandboxes and not in the protocol; the others are tests of the adapter (E2bTrapsTest)."""

import pathlib

import expectations
import pytest


def test_every_trap_in_the_table_has_its_test():
    here = pathlib.Path(__file__).resolve()
    java = (here.parents[2] / "compat/e2b/src/test/java/atoll/compat/e2b/E2bTrapsTest.java").read_text()
    for _, tests in expectations.TRAPS:
        for name in tests:
            file, found, test = name.rpartition(": ")
            assert f"def {test}(" in (here.parent / file).read_text() if found else f"void {test}(" in java, name


@pytest.mark.parametrize("template", ["base", "code-interpreter-v1"])
def test_every_template_has_bash_and_a_user_who_may_become_root(environment, monkeypatch, template):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    from e2b import Sandbox

    with Sandbox.create(template, timeout=300) as sandbox:
        asked = "test -x /bin/bash && echo ${BASH_VERSION:+bash} && whoami && pwd && echo $HOME && sudo -n whoami"
        assert sandbox.commands.run(asked).stdout.split() == ["bash", "user", "/home/user", "/home/user", "root"]
        assert sandbox.commands.run("whoami; echo $HOME", user="root").stdout.split() == ["root", "/root"]

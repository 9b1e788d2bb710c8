"""An installation of the tests' own, and the environment that points the E2B SDKs at it."""

import os
import pathlib
import platform
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "native"))

import environments  # noqa: E402
import installation as installations  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="the long tests too")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only with --all")


def pytest_collection_modifyitems(config, items):
    """Not skipped: without --all the long ones are not part of the suite."""
    if not config.getoption("--all"):
        items[:] = [item for item in items if item.get_closest_marker("long") is None]


@pytest.fixture(scope="session")
def atoll():
    with installations.installation() as running:
        yield running


@pytest.fixture(scope="session")
def environment(atoll):
    base = atoll.url + "/compat/e2b"
    return {**os.environ, "E2B_API_URL": base, "E2B_SANDBOX_URL": base, "E2B_API_KEY": atoll.key, "ATOLL_E2B_URL": base, "ATOLL_API_KEY": atoll.key}


@pytest.fixture(scope="session")
def with_packages(environment, tmp_path_factory):
    """Makes templates that have these packages of Python: E2B's own where it has them, else a snapshot of it, since sandboxes reach no package index."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from e2b import Sandbox

        snapshots = []

        def make(modules, *pins):
            with Sandbox.create("code-interpreter-v1", timeout=900) as sandbox:
                if sandbox.commands.run(f"python3 -c 'import {modules}' || echo missing").stdout == "":
                    return "code-interpreter-v1"
                version = sandbox.commands.run("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").stdout.strip()
                folder = tmp_path_factory.mktemp("wheels")
                pip = [environments.python("pip==25.3"), "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", folder, "--python-version", version]
                systems = [f"--platform=manylinux{system}_{platform.machine()}" for system in ("_2_28", "_2_27", "_2_17", "2014")]
                subprocess.run([*pip, *systems, *pins], check=True, timeout=600)
                for wheel in folder.iterdir():
                    sandbox.files.write(f"/tmp/wheels/{wheel.name}", wheel.read_bytes())
                install = "python3 -m pip install --quiet --no-index --no-deps --no-compile --break-system-packages /tmp/wheels/*.whl && rm -r /tmp/wheels"
                sandbox.commands.run(install, user="root", timeout=600)
                snapshots.append(sandbox.create_snapshot().snapshot_id)
                return snapshots[-1]

        yield make
        for snapshot in snapshots:
            Sandbox.delete_snapshot(snapshot)

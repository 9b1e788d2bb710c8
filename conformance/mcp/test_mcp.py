"""The official MCP clients, unmodified, against a running installation of the tests' own."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "native"))

import installation as installations  # noqa: E402


@pytest.fixture(scope="module")
def environment():
    with installations.installation() as atoll:
        yield {**os.environ, "ATOLL_URL": atoll.url, "ATOLL_API_KEY": atoll.key}


def run(command, environment, folder=HERE):
    result = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-5000:]


def test_official_python_client(environment):
    run([sys.executable, "client.py"], environment)


def test_official_typescript_client(environment):
    with tempfile.TemporaryDirectory(prefix="atoll-test-") as folder:
        for name in ("package.json", "client.mjs"):
            shutil.copy(HERE / name, folder)
        run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], environment, folder)
        run(["node", "client.mjs"], environment, folder)

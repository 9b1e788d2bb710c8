"""Folders of packages, one for each set of pinned versions: what a program that nobody here wrote needs, and the SDKs that programs pin."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

CACHE = pathlib.Path(os.environ.get("ATOLL_CACHE", "/var/cache/atoll"))


def _made(kind, pins, make):
    """The folder for these pins; one that was not finished is made again."""
    name = hashlib.sha256(json.dumps([kind, pins, sys.version]).encode()).hexdigest()[:32]
    folder = CACHE / kind / name
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        (folder / ".complete").touch()
    return folder


def python(*pins):
    """A Python with these packages."""

    def make(folder):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *pins], check=True, timeout=900)

    return _made("venv", list(pins), make) / "bin" / "python"


def node(**pins):
    """A folder with these packages in its node_modules."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail("no npm (remedy: apt-get install npm, or a Node.js of 20 or newer)")

    def make(folder):
        (folder / "package.json").write_text(json.dumps({"private": True, "type": "module", "dependencies": pins}))
        subprocess.run([npm, "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder, check=True, timeout=900)

    return _made("npm", pins, make)


def run(command, environment, cwd):
    """What a program printed; it must have ended well."""
    result = subprocess.run([str(part) for part in command], env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-8000:]
    return result.stdout.splitlines()

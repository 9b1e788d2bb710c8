"""Programs that nobody here wrote, unmodified: agents with E2B tools from PyPI and npm. A scripted model (programs/scripted_model.py) drives those that want one."""

import pathlib
import platform
import shutil
import subprocess

import environments
import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
SDK = ["e2b==2.63.0", "e2b-code-interpreter==2.11.5"]
VERSIONS = {
    "agno": ["agno==3.1.10", "openai==3.57.0", *SDK],
    "smolagents": ["smolagents==1.26.0", "openai==3.57.0", "python-dotenv", *SDK],
    "langchain": ["langchain-e2b==0.0.6", "deepagents==0.6.12", "langchain-openai==1.7.4", "e2b==2.63.0"],
    "crewai": ["crewai==1.15.30", "crewai-tools==1.15.30", *SDK],
    "computesdk": {"@computesdk/e2b": "1.7.52", "e2b": "2.51.0"},
    "mastra": {"@mastra/e2b": "0.8.0", "e2b": "2.51.0"},
}


def works(name, environment, tmp_path):
    pins = VERSIONS[name]
    if isinstance(pins, dict):
        folder = environments.node(**pins)
        # Packages are looked for beside a program.
        (tmp_path / "node_modules").symlink_to(folder / "node_modules")
        shutil.copy(PROGRAMS / f"{name}.mjs", tmp_path)
        command = ["node", f"{name}.mjs"]
    else:
        command = [environments.python(*pins), PROGRAMS / f"{name}_agent.py"]
    said = environments.run(command, {**environment, "HOME": str(tmp_path)}, tmp_path)
    assert said[-1] == "works", said


def test_agno_tools(environment, tmp_path):
    works("agno", environment, tmp_path)


def test_smolagents_executor(environment, numeric_template, tmp_path):
    works("smolagents", {**environment, "E2B_PROGRAM_TEMPLATE": numeric_template}, tmp_path)


def test_computesdk(environment, tmp_path):
    works("computesdk", environment, tmp_path)


@pytest.mark.long
def test_langchain_deep_agent(environment, tmp_path):
    works("langchain", environment, tmp_path)


@pytest.mark.long
def test_crewai_tools(environment, tmp_path):
    works("crewai", environment, tmp_path)


@pytest.mark.long
def test_mastra(environment, tmp_path):
    works("mastra", environment, tmp_path)


@pytest.fixture(scope="module")
def numeric_template(environment, tmp_path_factory):
    """A template that has numpy and Pillow, which smolagents asks for: E2B's name for it, or a snapshot of it with both, since sandboxes reach no package index."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from e2b import Sandbox

        with Sandbox.create("code-interpreter-v1", timeout=600) as sandbox:
            if sandbox.commands.run("python3 -c 'import numpy, PIL' || echo missing").stdout == "":
                yield "code-interpreter-v1"
                return
            version = sandbox.commands.run("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").stdout.strip()
            folder = tmp_path_factory.mktemp("wheels")
            pip = [environments.python("pip==25.3"), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
            systems = [f"--platform=manylinux{system}_{platform.machine()}" for system in ("_2_28", "_2_27", "2014")]
            subprocess.run([*pip, "--python-version", version, *systems, "numpy==2.2.6", "pillow==11.3.0"], check=True, timeout=300)
            for wheel in folder.iterdir():
                sandbox.files.write(f"/tmp/{wheel.name}", wheel.read_bytes())
            sandbox.commands.run("python3 -m pip install --quiet --no-index --no-deps --break-system-packages /tmp/*.whl", user="root", timeout=300)
            snapshot = sandbox.create_snapshot(name="numeric")
            try:
                yield snapshot.snapshot_id
            finally:
                Sandbox.delete_snapshot(snapshot.snapshot_id)

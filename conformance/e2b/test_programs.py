"""Programs that nobody here wrote, unmodified: agents with E2B tools from PyPI and npm. A scripted model (programs/scripted_model.py) drives those that want one."""

import pathlib
import shutil

import environments
import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
SDK = ["e2b==2.63.0", "e2b-code-interpreter==2.11.5"]
VERSIONS = {
    "agno": ["agno==3.1.10", "openai==3.57.0", *SDK],
    "smolagents": ["smolagents==1.26.0", "openai==3.57.0", "python-dotenv", *SDK],
    "langchain": ["langchain-e2b==0.0.6", "deepagents==0.6.12", "langchain-openai==1.7.4", "e2b==2.63.0"],
    "crewai": ["crewai==1.15.30", "crewai-tools==1.15.30", *SDK],
    "haystack": ["e2b-haystack==2.0.0", "haystack-ai==3.4.1", "e2b==2.63.0"],
    "sandboxio": ["sandboxio-e2b==0.1.0", "sandboxio==0.1.0", *SDK],
    "cli": {"@e2b/cli": "2.19.0"},
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
    # ComputeSDK takes no other keys.
    key = "e2b_" + environment["E2B_API_KEY"]
    said = environments.run(command, {**environment, "E2B_API_KEY": key, "HOME": str(tmp_path)}, tmp_path)
    assert said[-1] == "works", said


def test_agno_tools(environment, tmp_path):
    works("agno", environment, tmp_path)


def test_smolagents_executor(environment, with_packages, tmp_path):
    template = with_packages("numpy, PIL", "numpy==2.2.6", "pillow==11.3.0")
    works("smolagents", {**environment, "E2B_PROGRAM_TEMPLATE": template}, tmp_path)


def test_computesdk(environment, tmp_path):
    works("computesdk", environment, tmp_path)


@pytest.mark.long
def test_haystack_tools(environment, tmp_path):
    works("haystack", environment, tmp_path)


@pytest.mark.long
def test_sandboxio(environment, tmp_path):
    works("sandboxio", environment, tmp_path)


@pytest.mark.long
def test_command_line(environment, tmp_path):
    works("cli", environment, tmp_path)


@pytest.mark.long
def test_langchain_deep_agent(environment, tmp_path):
    works("langchain", environment, tmp_path)


@pytest.mark.long
def test_crewai_tools(environment, tmp_path):
    works("crewai", environment, tmp_path)


@pytest.mark.long
def test_mastra(environment, tmp_path):
    works("mastra", environment, tmp_path)

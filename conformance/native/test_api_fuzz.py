"""Calls made up from the OpenAPI document, right and wrong ones, by schemathesis: none is a failure of the server."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from installation import installation

# What would fetch from a network or take a build, or would end the sandbox or the template that the other calls are about; and bodies that schemathesis can't make up.
LEFT_OUT = [
    "pullImage", "importImage", "importSnapshot", "pruneImages", "buildTemplate", "saveSandboxAsTemplate", "createTemplate", "updateTemplate", "duplicateTemplate", "setDefaultTemplate",
    "deleteSandbox", "deleteTemplate", "unpackFolder", "putTemplateContext",
]  # fmt: skip


def with_ids(document, ids):
    """The document with what is there as examples of its path parameters, beside what is not."""
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["name"] in ids:
                    parameter["schema"] = {"type": "string", "enum": [ids[parameter["name"]], "none"]}
    return document


def fuzz(atoll, client, ids, folder, seconds):
    # One worker: with more, Python up to 3.11 fails at times in ast ("recursion depth mismatch").
    document = folder / "openapi.json"
    document.write_text(json.dumps(with_ids(client.call("GET", "/openapi.json"), ids)))
    command = [str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", str(document), "--url", atoll.url, "-H", f"Authorization: Bearer {client.key}",
               "--checks", "not_a_server_error", "--phases", "coverage,fuzzing", "--max-time", str(seconds), "-n", "20", "--workers", "1", "--no-shrink",
               "--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "60", "--generation-database", "none", "--warnings", "off", "--no-color"]  # fmt: skip
    for name in LEFT_OUT:
        command += ["--exclude-operation-id", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds + 300, check=False)
    told = done.stdout + done.stderr
    print(told[-3000:])
    generated = re.search(r"(\d+) generated", told)
    return done.returncode, int(generated[1]) if generated else 0, told


@pytest.fixture(scope="module")
def atoll():
    """One of its own: nobody knows what these calls leave behind and change."""
    with installation() as running:
        yield running


@pytest.fixture
def there(client, sandbox):
    """Ids of things that are there."""
    made = sandbox()
    ran = client.exec("print(1)", sandbox_id=made)
    return {"sandbox_id": made, "execution_id": ran["execution_id"], "context_id": ran["context_id"], "template_id": "python"}


def test_no_made_up_call_is_a_failure_of_the_server(atoll, client, there, tmp_path):
    status, calls, told = fuzz(atoll, client, there, tmp_path, 45)
    assert status == 0, told[-6000:]
    assert calls > 20, told[-2000:]


@pytest.mark.long
def test_no_made_up_call_is_a_failure_of_the_server_for_long(atoll, client, there, tmp_path):
    status, calls, told = fuzz(atoll, client, there, tmp_path, 600)
    assert status == 0, told[-6000:]
    assert calls > 200, told[-2000:]

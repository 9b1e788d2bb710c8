"""The official Python client against a running Atoll, in each age of the protocol. Takes ATOLL_URL and ATOLL_API_KEY; ends with 0 when every check passed.

    pip install -r requirements.txt && python client.py
"""

import asyncio
import os
import sys
import traceback

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["ATOLL_URL"] + "/mcp"
HEADERS = {"Authorization": "Bearer " + os.environ["ATOLL_API_KEY"]}
LANGUAGE = os.environ.get("ATOLL_LANGUAGE", "python")


async def the_tool_has_its_schemas(client):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["code_exec"]
    assert "sandbox_id" in tools[0].input_schema["properties"] and "state_kept" in tools[0].output_schema["properties"]


async def state_lives_on_between_calls(client):
    first = await client.call_tool("code_exec", {"code": "x = 41 + 1\nprint(x)", "language": LANGUAGE})
    assert first.structured_content["output"] == "42", first
    second = await client.call_tool("code_exec", {"code": "print(x)", "sandbox_id": first.structured_content["sandbox_id"]})
    assert second.structured_content["output"] == "42" and second.content[0].text.startswith("42\n"), second


async def an_exception_is_an_error_result(client):
    result = await client.call_tool("code_exec", {"code": "raise ValueError('no')", "language": LANGUAGE})
    assert result.is_error and result.structured_content["error"]["name"] == "ValueError", result


async def an_unknown_sandbox_is_an_error_result_that_says_what_to_do(client):
    result = await client.call_tool("code_exec", {"code": "1", "sandbox_id": "sb-exec-00000000000000000000000000"})
    assert result.is_error and result.content[0].text.startswith("sandbox_not_found: "), result


async def progress_brings_the_output_while_it_runs(client):
    seen = []

    async def on_progress(progress, total, message):
        seen.append(message)

    code = "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.2)"
    await client.call_tool("code_exec", {"code": code, "language": LANGUAGE}, progress_callback=on_progress)
    assert "".join(seen) == "0\n1\n2\n" and len(seen) >= 2, seen


CHECKS = [
    the_tool_has_its_schemas,
    state_lives_on_between_calls,
    an_exception_is_an_error_result,
    an_unknown_sandbox_is_an_error_result_that_says_what_to_do,
    progress_brings_the_output_while_it_runs,
]


async def main():
    failed = 0
    for mode in ("legacy", "2026-07-28", "auto"):
        for check in CHECKS:
            name = f"{check.__name__} [{mode}]"
            try:
                async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as http:
                    async with Client(streamable_http_client(URL, http_client=http), mode=mode) as client:
                        await check(client)
                print("ok   ", name, flush=True)
            except Exception:
                failed += 1
                print("FAIL ", name, flush=True)
                traceback.print_exc()
    print(f"{3 * len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

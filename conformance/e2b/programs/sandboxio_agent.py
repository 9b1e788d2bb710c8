"""sandboxio on its backend for E2B: commands, code with state, streams, files and time limits through that library's own interface."""

import asyncio

import sandboxio


async def main():
    async with await sandboxio.create("e2b://code-interpreter-v1") as sandbox:
        ran = await sandbox.run(["sh", "-c", "echo $((6 * 7)); exit 3"], timeout=120)
        assert (ran.exit_code, ran.stdout) == (3, "42\n"), ran
        await sandbox.run_code("x = 20")
        assert (await sandbox.run_code("print(x + 2)")).stdout == "22\n"
        await sandbox.files.write("/home/user/input.txt", "3 4\n")
        asked = await sandbox.run_code("a, b = open('/home/user/input.txt').read().split(); print(int(a) * int(b))")
        asked.raise_for_status()
        assert asked.stdout == "12\n"
        said = b""
        async with sandbox.stream(["sh", "-c", "echo start; sleep 0.2; echo done"], timeout=120) as process:
            async for chunk in process:
                said += chunk.data
            assert (await process.wait()).exit_code == 0
        assert said == b"start\ndone\n", said
        try:
            await sandbox.run(["sleep", "999"], timeout=1)
        except sandboxio.SandboxTimeout:
            pass
        else:
            raise AssertionError("the time limit did not hold")


asyncio.run(main())
print("works")

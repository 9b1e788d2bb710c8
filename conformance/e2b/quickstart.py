"""What E2B's own documentation shows first, with its SDK as published: the address and the key are all that is Atoll's.

    export E2B_API_URL=http://127.0.0.1:8080/compat/e2b E2B_SANDBOX_URL=$E2B_API_URL E2B_API_KEY=…
    pip install e2b-code-interpreter && python quickstart.py
"""

from e2b_code_interpreter import Sandbox

with Sandbox.create() as sandbox:
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("x += 1; x")
    print(execution.text)

    print(sandbox.commands.run('echo "Hello from $USER"').stdout, end="")

    sandbox.files.write("/home/user/hello.txt", "hello")
    print(sandbox.files.read("/home/user/hello.txt"))
    print([entry.name for entry in sandbox.files.list("/home/user")])

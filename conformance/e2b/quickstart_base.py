"""What the SDK without the code interpreter does in a first hour: commands, files, a second client, a pause. Runs with every line of the SDK from 2.20 on.

    export E2B_API_URL=http://127.0.0.1:8080/compat/e2b E2B_SANDBOX_URL=$E2B_API_URL E2B_API_KEY=e2b_…
    pip install e2b && python quickstart_base.py
"""

from e2b import CommandExitException, Sandbox, SandboxQuery

sandbox = Sandbox.create(metadata={"quickstart": "base"}, envs={"COLOUR": "green"}, timeout=300)
try:
    print(sandbox.commands.run("echo $COLOUR from $USER").stdout, end="")
    try:
        sandbox.commands.run("exit 3")
    except CommandExitException as e:
        print("exit", e.exit_code)

    sandbox.files.write("/home/user/folder/note.txt", "a note")
    print(sandbox.files.read("/home/user/folder/note.txt"), [entry.name for entry in sandbox.files.list("/home/user/folder")])

    sleeper = sandbox.commands.run("sleep 600", background=True)
    print("runs" if sleeper.pid in [process.pid for process in sandbox.commands.list()] else "does not run", sleeper.kill())

    again = Sandbox.connect(sandbox.sandbox_id, timeout=300)
    print(again.files.read("/home/user/folder/note.txt"), again.commands.run("pwd").stdout, end="")

    sandbox.pause()
    woken = Sandbox.connect(sandbox.sandbox_id, timeout=300)
    print(woken.files.read("/home/user/folder/note.txt"), woken.is_running(), sandbox.is_running())

    listed = Sandbox.list(query=SandboxQuery(metadata={"quickstart": "base"})).next_items()
    print([one.sandbox_id for one in listed] == [sandbox.sandbox_id])
finally:
    print(sandbox.kill(), sandbox.kill())

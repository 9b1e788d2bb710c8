"""agno's E2BTools in one of its agents: code, a command and files, each called by the model."""

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from agno.tools.e2b import E2BTools
from scripted_model import Call, Say, scripted, told

tools = E2BTools(timeout=300)
try:
    with scripted(
        Call("run_python_code", code="total = sum(range(10))\ntotal"),
        Call("run_python_code", code="total * 2"),
        Call("run_command", command="echo hello from $USER"),
        Call("write_file_content", file_path="/home/user/note.txt", content="a note"),
        Call("read_file_content", file_path="/home/user/note.txt"),
        Call("run_python_code", code="1 / 0"),
        Say(lambda heard: " | ".join(told(heard))),
    ) as url:
        agent = Agent(model=OpenAILike(id="scripted", base_url=url, api_key="none"), tools=[tools], telemetry=False)
        said = agent.run("Add the numbers below ten, and double the sum.").content
finally:
    tools.shutdown_sandbox()

for text in ("Result 1: 45", "Result 1: 90", "hello from user", "a note", "ZeroDivisionError"):
    assert text in said, said
print("works")

"""CrewAI's three tools for E2B, called by an agent of its own."""

import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"

from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai_tools import E2BExecTool, E2BFileTool, E2BPythonTool  # noqa: E402
from e2b_code_interpreter import Sandbox  # noqa: E402
from scripted_model import Call, Say, scripted, told  # noqa: E402

sandbox = Sandbox.create(timeout=300)
try:
    tools = [kind(sandbox_id=sandbox.sandbox_id) for kind in (E2BExecTool, E2BFileTool, E2BPythonTool)]
    with scripted(
        Call("e2b_sandbox_exec", command="echo from $USER"),
        Call("e2b_sandbox_files", action="write", path="/home/user/f/n.txt", content="42"),
        Call("e2b_sandbox_python", code="int(open('/home/user/f/n.txt').read()) + 1"),
        Say(lambda heard: " | ".join(told(heard))),
    ) as url:
        agent = Agent(role="worker", goal="work", backstory="a worker", tools=tools, llm=LLM(model="openai/scripted", base_url=url, api_key="none"))
        task = Task(description="Do it.", expected_output="what was done", agent=agent)
        said = str(Crew(agents=[agent], tasks=[task]).kickoff())
finally:
    sandbox.kill()

for text in ("from user", "written", "43"):
    assert text in said, said
print("works")

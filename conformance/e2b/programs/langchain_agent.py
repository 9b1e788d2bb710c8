"""A deep agent of LangChain whose files and commands are in E2B (langchain-e2b)."""

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_openai import ChatOpenAI
from scripted_model import Call, Say, scripted, told

sandbox = Sandbox.create(timeout=300)
try:
    with scripted(
        Call("write_file", file_path="/home/user/primes.py", content="print([n for n in range(2, 20) if all(n % d for d in range(2, n))])\n"),
        Call("execute", command="python3 /home/user/primes.py"),
        Call("edit_file", file_path="/home/user/primes.py", old_string="20", new_string="10"),
        Call("execute", command="python3 /home/user/primes.py && exit 3"),
        Call("grep", pattern="range", path="/home/user"),
        Call("ls", path="/home/user"),
        Say(lambda heard: " | ".join(told(heard))),
    ) as url:
        model = ChatOpenAI(model="scripted", base_url=url, api_key="none")
        agent = create_deep_agent(model=model, backend=E2BSandbox(sandbox=sandbox))
        said = agent.invoke({"messages": [{"role": "user", "content": "Find primes."}]})["messages"][-1].content
finally:
    sandbox.kill()

for text in ("[2, 3, 5, 7, 11, 13, 17, 19]", "[2, 3, 5, 7]", "exit code 3", "primes.py"):
    assert text in said, said
print("works")

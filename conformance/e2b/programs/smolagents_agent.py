"""A CodeAgent of smolagents whose code runs in E2B: variables, prints, a tool and the final answer go there and back. It wants numpy
in the sandbox: the template is told by E2B_PROGRAM_TEMPLATE."""

import os

from scripted_model import Say, scripted
from smolagents import CodeAgent, OpenAIServerModel, tool


@tool
def shout(text: str) -> str:
    """Says it louder.

    Args:
        text: What to say.
    """
    return text.upper() + "!"


with scripted(
    Say("Thought: count.\n<code>\nnumbers = [i * i for i in range(5)]\nprint('squares', numbers)\n</code>"),
    Say(lambda heard: "Thought: answer.\n<code>\nfinal_answer({'sum': sum(numbers), 'said': shout('done')})\n</code>" if "squares" in str(heard) else "no squares"),
) as url:
    model = OpenAIServerModel(model_id="scripted", api_base=url, api_key="none")
    with CodeAgent(tools=[shout], model=model, executor_type="e2b", executor_kwargs={"template": os.environ["E2B_PROGRAM_TEMPLATE"]}, max_steps=2) as agent:
        answer = agent.run("Add the squares below five.")

assert answer == {"sum": 30, "said": "DONE!"}, answer
print("works")

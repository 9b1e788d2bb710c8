"""Haystack's tools for E2B, all in one sandbox, called as its agents call them."""

from haystack_integrations.tools.e2b import E2BToolset

toolset = E2BToolset(environment_vars={"COLOUR": "green"}, timeout=600)
toolset.warm_up()
try:
    tools = {tool.name: tool for tool in toolset}
    assert tools["run_bash_command"].invoke(command='echo "$COLOUR from $USER"; echo bad >&2; exit 3') == "exit_code: 3\nstdout:\ngreen from user\n\nstderr:\nbad\n"
    assert "written" in tools["write_file"].invoke(path="/home/user/deep/below/f.txt", content="größe\n")
    assert tools["read_file"].invoke(path="/home/user/deep/below/f.txt") == "größe\n"
    listed = tools["list_directory"].invoke(path="/home/user/deep")
    assert "below" in listed, listed
finally:
    toolset.close()
print("works")

"""What ran: searched, and exported as a notebook that Jupyter takes."""

import json

import nbformat

RICH = "from IPython.display import HTML, display\ndisplay(HTML('<b>é</b>'))\ndisplay({'application/x-mine': {'k': [1]}, 'text/plain': 'mine'}, raw=True)\n{'a': [1, None]}"


def notebook(client, **query):
    found = client.call("GET", "/v1/executions:notebook?" + "&".join(f"{name}={value}" for name, value in query.items()))
    made = nbformat.reads(json.dumps(found), as_version=4)
    nbformat.validate(found, version=4, version_minor=5)
    return made


def test_a_session_is_exported_as_a_notebook_with_streams_values_and_errors(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    codes = ["import sys\nprint('out')\nprint('err', file=sys.stderr)", RICH, "raise ValueError('wrong')", "x = 1\nx + 1", ""]
    ran = [client.exec(code, **where) for code in codes]
    context = ran[0]["context_id"]
    made = notebook(client, sandbox_id=where["sandbox_id"], context_id=context)
    cells = [cell for cell in made.cells if cell.metadata["atoll"]["execution_id"] in {one["execution_id"] for one in ran}]
    assert [cell.source for cell in cells] == codes
    assert {output["name"]: output["text"] for output in cells[0].outputs} == {"stdout": "out\n", "stderr": "err\n"}
    html, mine, value = cells[1].outputs
    assert html["output_type"] == "display_data" and html["data"]["text/html"] == "<b>é</b>"
    assert mine["data"] == {"application/x-mine": '{"k":[1]}', "text/plain": "mine"}
    assert value["output_type"] == "execute_result" and value["data"]["application/json"] == {"a": [1, None]}
    (error,) = [output for output in cells[2].outputs if output["output_type"] == "error"]
    assert error["ename"] == "ValueError" and error["evalue"] == "wrong" and any("wrong" in line for line in error["traceback"])
    assert cells[3].outputs[0]["data"]["text/plain"] == "2" and cells[4].outputs == []
    counts = [cell.execution_count for cell in cells]
    assert counts == sorted(counts) and len(set(counts)) == len(counts)


def test_a_notebook_of_several_languages_is_valid_and_one_of_another_says_its_own(client, sandbox):
    where = sandbox()
    for language, code in [("python", "1"), ("bash", "echo two; ls /none"), ("python", "3")]:
        last = client.exec(code, language=language, sandbox_id=where)
    made = notebook(client, sandbox_id=where)
    assert made.metadata["kernelspec"]["name"] == "python3"
    assert "%%bash\necho two; ls /none" in [cell.source for cell in made.cells]
    assert notebook(client, sandbox_id=where, limit=1).cells[-1].metadata["atoll"]["execution_id"] == last["execution_id"]


def test_what_ran_is_found_by_code_output_and_end(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    said = client.exec("print('one ' + 'ÄPFEL 7315')", **where)
    failed = client.exec("raise KeyError('pfel 7315')", **where)

    def found(query):
        return [one["execution_id"] for one in client.call("GET", f"/v1/executions?sandbox_id={where['sandbox_id']}&{query}")["items"]]

    assert found("q=%C3%A4pfel%207315") == [said["execution_id"]]
    assert found("q=PFEL+7315") == [failed["execution_id"], said["execution_id"]]
    assert found("q=pfel+7315&status=error,timeout") == [failed["execution_id"]]
    assert found("q=7315&language=bash") == [] and found("q=7315&template=nothing") == []

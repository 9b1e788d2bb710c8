"""What code displays, from the interpreter to the reply, the stream, the record and the MCP tool; and the files it leaves."""

import base64
import json

import pytest

CHART = "application/vnd.atoll.chart.v1+json"
TABLE = "application/vnd.atoll.table.v1+json"
PNG = b"\x89PNG\r\n\x1a\n"


def only(events, kind):
    return [data for event, data, _ in events if event == kind]


def record(client, answer):
    return client.call("GET", f"/v1/executions/{answer['execution_id']}")


def tool(client, code, **arguments):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "code_exec", "arguments": {"code": code, **arguments}}}
    return client.call("POST", "/mcp", body, {"Accept": "application/json, text/event-stream"})["result"]


def test_bundles_are_the_same_in_reply_stream_and_record(client, sandbox):
    code = "from IPython.display import HTML, Latex, display\ndisplay(HTML('<b>é</b>'))\ndisplay({'application/x-mine': {'k': [1]}}, raw=True, metadata={'a': 1})\n{'a': [1, None]}"
    where = {"sandbox_id": sandbox(), "language": "python"}
    answer = client.exec(code, **where)
    html, mine, value = answer["results"]
    assert html["data"] == {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>é</b>"} and not html["main"]
    assert mine["data"] == {"application/x-mine": {"k": [1]}} and mine["metadata"] == {"a": 1}
    assert value["main"] and value["data"]["application/json"] == {"a": [1, None]} and value["left_out"] == {}
    assert only(client.stream(code, **where), "result") == answer["results"]
    assert record(client, answer)["results"] == answer["results"]


def test_a_value_can_be_updated_and_cleared(client, sandbox):
    code = "h = display('0 %', display_id='bar')\nfor i in range(1, 50): h.update('%d %%' % i)\ndisplay('done')\nNone"
    where = {"sandbox_id": sandbox(), "language": "python"}
    events = only(client.stream(code, **where), "result")
    assert len(events) == 51 and [one.get("update", False) for one in events[:3]] == [False, True, True] and events[0]["display_id"] == "bar"
    answer = client.exec(code, **where)
    assert [one["data"]["text/plain"] for one in answer["results"]] == ["'49 %'", "'done'"]
    assert record(client, answer)["results"] == answer["results"]
    cleared = client.exec("from IPython.display import clear_output\ndisplay(1); print('kept'); clear_output(wait=True); display(2); display(3)\nNone", **where)
    assert [one["data"]["text/plain"] for one in cleared["results"]] == ["2", "3"] and "kept" in cleared["stdout"]
    assert client.exec("display(1); clear_output()\nNone", **where)["results"] == []


def test_what_is_over_a_limit_is_left_out_and_counted_by_type(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    big = client.exec("class B:\n    def _repr_html_(self): return 'h' * (7 << 20)\n    def _repr_png_(self): return b'p' * 1000\n    def __repr__(self): return 'B'\nB()", **where)["results"][0]
    assert set(big["data"]) == {"text/plain", "image/png"} and big["left_out"] == {"text/html": (7 << 20) + 2} and big["truncated_bytes"] == (7 << 20) + 2
    # A record holds less; what it has no room for is still told, and the stream of the execution has it.
    answer = client.exec("for i in range(4): display({'text/plain': 'picture %d' % i, 'image/png': 'A' * 200000}, raw=True)", **where)
    assert [len(one["data"]["image/png"]) for one in answer["results"]] == [200000] * 4
    kept = record(client, answer)
    assert kept["truncated"] and [one["data"]["text/plain"] for one in kept["results"]] == ["picture %d" % i for i in range(4)]
    assert [one["left_out"] for one in kept["results"]] == [{}] + [{"image/png": 200002}] * 3


def test_values_that_no_json_reader_takes_cost_only_their_form(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    for code in ("x = 1\nfor _ in range(900): x = [x]\n[x]", "[10 ** 4000]"):
        one = client.exec(code, **where)["results"][0]
        assert one["data"]["text/plain"] and "application/json" not in one["data"]
    deep = client.exec("x = []\nfor _ in range(5000): x = [x]\ndisplay({'a/x+json': x, 'text/plain': 'deep'}, raw=True)\nNone", **where)["results"]
    assert [one["data"] for one in deep] == [{"text/plain": "deep"}]
    assert client.exec("['\\ud800', '\\x00']", **where)["results"][0]["data"]["application/json"] == ["\ufffd", "\x00"]


def test_hostile_representations_break_nothing(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    client.exec("kept = 1", **where)
    loop = client.exec("class L:\n    def _repr_html_(self):\n        while True: pass\nL()", timeout_seconds=2, **where)
    assert loop["exit_reason"] == "timeout" and loop["state_kept"]
    assert client.exec("class R:\n    def __repr__(self): return repr(self)\nR()", **where)["exit_reason"] == "completed"
    assert client.exec("class P:\n    def _repr_html_(self): print('inside'); raise ValueError('no')\n    def __repr__(self): return 'P'\nP()", **where)["stdout"] == "inside\n"
    assert client.exec("kept", **where)["output"] == "1"


def test_files_are_listed_when_asked_for(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    client.exec("open('old.txt', 'w').write('x'); open('changed.csv', 'w').write('x')", **where)
    code = "import os\nos.makedirs('out', exist_ok=True)\nopen('out/new.png', 'wb').write(b'12345'); open('changed.csv', 'a').write('y'); open('.hidden', 'w').close(); open('/tmp/elsewhere', 'w').close()"
    answer = client.exec(code, list_files=True, **where)
    folder = answer["files"][0]["path"].rpartition("/")[0]
    assert [(one["path"][len(folder) + 1:], one["size"], one["mime_type"]) for one in answer["files"]] == [("changed.csv", 2, "text/csv"), ("out/new.png", 5, "image/png")]
    assert answer["files_incomplete"] is False and record(client, answer)["files"] == answer["files"]
    assert client.exec("pass", list_files=True, **where)["files"] == []
    assert client.exec("open('again', 'w').close()", **where)["files"] is None
    done = only(client.stream("open('bash.txt', 'w').close()", list_files=True, **where), "done")[0]
    assert [one["path"] for one in done["files"]] == [f"{folder}/bash.txt"]
    failed = client.exec("open('partial.json', 'w').write('{'); 1 / 0", list_files=True, **where)
    assert failed["exit_reason"] == "error" and [one["mime_type"] for one in failed["files"]] == ["application/json"]
    shell = client.exec("echo x > by-bash.md", sandbox_id=where["sandbox_id"], language="bash", list_files=True)
    assert [one["mime_type"] for one in shell["files"]] == ["text/markdown"]


def test_many_files_are_cut_and_said_to_be(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    answer = client.exec("import os\nos.mkdir('many')\nfor i in range(1200): open(f'many/{i}', 'w').close()", list_files=True, **where)
    assert answer["files_incomplete"] is True and 0 < len(answer["files"]) <= 1000
    again = client.exec("open('one', 'w').close()", list_files=True, **where)
    assert [one["path"].rpartition("/")[2] for one in again["files"]] == ["one"]


def test_the_tool_gives_pictures_as_images_and_names_files(client, sandbox):
    where = {"sandbox_id": sandbox(), "language": "python"}
    answer = tool(client, "display({'image/png': b'\\x89PNG', 'text/plain': 'pic'}, raw=True)\nopen('made.txt', 'w').write('abc')\n'v'", list_files=True, **where)
    text, image = answer["content"]
    assert base64.b64decode(image["data"]) == b"\x89PNG" and image["mimeType"] == "image/png"
    assert "made.txt (3 bytes)" in text["text"]
    assert answer["structuredContent"]["results"][0]["data"] == {"text/plain": "pic"} and len(answer["structuredContent"]["files"]) == 1


# --- with the libraries of the template data-science, whose image is made at its first use -------------------------------------------------


@pytest.fixture(scope="module")
def science(atoll):
    client = atoll.client(timeout=1800)
    made = client.call("POST", "/v1/sandboxes", {"template": "data-science"})["sandbox_id"]
    yield lambda code: client.exec(code, sandbox_id=made, language="python", timeout_seconds=120)
    client.delete(made)
    client.close()


@pytest.mark.long
def test_a_plot_is_a_picture_and_a_chart(science):
    answer = science("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label='L')\nplt.title('T')\nplt.xlabel('X (s)')\nplt.show()")
    assert answer["exit_reason"] == "completed", answer
    data = answer["results"][0]["data"]
    assert base64.b64decode(data["image/png"])[:8] == PNG and data["text/plain"] == "<Figure size 640x480 with 1 Axes>"
    assert data[CHART]["elements"] == [{"label": "L", "points": [[1, 4], [2, 5], [3, 6]]}] and data[CHART]["x_axis"]["unit"] == "s"


@pytest.mark.long
def test_all_kinds_of_charts(science):
    code = (
        "import numpy as np, pandas as pd, seaborn as sns, matplotlib.pyplot as plt\n"
        "f, a = plt.subplots(2, 3)\na[0, 0].scatter([1, 2], [3, 4])\na[0, 1].bar(['p', 'q'], [5, 7])\na[0, 2].pie([1, 3], labels=['u', 'v'])\n"
        "a[1, 0].boxplot([[1, 2, 3]])\nsns.lineplot(pd.DataFrame({'x': [1, 2], 'y': [3, 4], 'h': ['k', 'k']}), x='x', y='y', hue='h', ax=a[1, 1])\n"
        "pd.Series([1, 2], index=pd.date_range('2024-01-01', periods=2)).plot(ax=a[1, 2])\nNone"
    )
    chart = science(code)["results"][0]["data"][CHART]
    assert [one["type"] for one in chart["elements"]] == ["scatter", "bar", "pie", "box", "line", "line"]
    assert chart["elements"][4]["elements"][0]["label"] == "k" and chart["elements"][5]["x_axis"]["scale"] == "datetime"


@pytest.mark.long
def test_tables_figures_pictures_and_formulas(science):
    code = (
        "import pandas as pd, plotly.express as px, sympy\nfrom PIL import Image\n"
        "display(pd.DataFrame({'a': [1, 2], 'b': ['x', None]}))\npx.bar(x=['p'], y=[1]).show()\ndisplay(Image.new('RGB', (2, 2)))\nsympy.sqrt(sympy.Symbol('s'))"
    )
    frame, figure, picture, formula = [one["data"] for one in science(code)["results"]]
    assert "<table" in frame["text/html"] and [one["values"] for one in frame[TABLE]["columns"]] == [[1, 2], ["x", None]]
    assert figure["application/vnd.plotly.v1+json"]["data"][0]["type"] == "bar" and "plotly" in figure["text/html"]
    assert base64.b64decode(picture["image/png"])[:8] == PNG and "\\sqrt{s}" in formula["text/latex"]
    assert json.dumps(frame)

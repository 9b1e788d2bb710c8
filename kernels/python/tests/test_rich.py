"""What libraries show: figures and their charts, tables, formulas, pictures; and IPython.display where IPython is missing."""
import base64
import os
import site
import sys

import pytest

from driver import Kernel

CHART = "application/vnd.atoll.chart.v1+json"
TABLE = "application/vnd.atoll.table.v1+json"
PLOTLY = "application/vnd.plotly.v1+json"


def start(folder, **more):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **more.pop("env", {})}
    return Kernel(cwd=str(folder), env=env, **more)


@pytest.fixture(scope="module")
def plots(tmp_path_factory):
    """A kernel for many tests, since importing matplotlib takes long; each makes its own figures, and all are closed after each cell."""
    with start(tmp_path_factory.mktemp("plots")) as kernel:
        assert kernel.run("import matplotlib.pyplot as plt\nimport numpy as np\nimport pandas as pd", timeout=120).status == "ok"
        yield kernel


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A kernel whose interpreter has all of these libraries but IPython."""
    folder = tmp_path_factory.mktemp("bare")
    for packages in site.getsitepackages():
        for entry in os.scandir(packages):
            if not entry.name.lower().startswith(("ipython", "matplotlib_inline", "pip", "__pycache__")):
                os.symlink(entry.path, str(folder / entry.name))
    with start(folder, flags=("-S",), env={"PYTHONPATH": str(folder)}) as kernel:
        yield kernel


def shown(kernel, code, status="ok"):
    """The results of a cell, as (main, data)."""
    outcome = kernel.run(code, timeout=120)
    assert outcome.status == status, outcome.error
    return [(event["main"], event["data"]) for event in outcome.results]


def chart(kernel, code):
    results = [data for main, data in shown(kernel, code) if not main]
    assert len(results) == 1, results
    return results[0][CHART]


# --- nothing for those who use none of it ----------------------------------------------------------------------------------------------


def test_nothing_of_it_is_loaded_before_it_is_used(kernel):
    code = "import sys\nsorted(set(sys.modules) & {'json', 're', 'io_', 'weakref', '_atoll_kernel_figures', '_atoll_kernel_libraries', '_atoll_kernel_standins', 'numpy'})"
    before = kernel.run(code).value
    assert "_atoll" not in before and "numpy" not in before and "json" not in before
    kernel.run("{'a': [1]}")
    kernel.run("display(1)")
    assert kernel.run(code).value == before


# --- JSON beside the text of dicts and lists ---------------------------------------------------------------------------------------------


def test_dicts_and_lists_have_json_where_it_says_the_same(kernel):
    data = kernel.run("{'a': [1, 2.5, None, True, 'é\\n'], 'b': {'c': (1,)}}").results[0]["data"]
    assert data["application/json"] == {"a": [1, 2.5, None, True, "é\n"], "b": {"c": [1]}}
    assert kernel.run("[]").results[0]["data"] == {"text/plain": "[]", "application/json": []}
    for code in ("[float('nan')]", "{'s': {1}}", "[object]", "x = []\nx.append(x)\nx", "{(1, 2): 3}", "(1, 2)", "{1}"):
        assert set(kernel.run(code).results[0]["data"]) == {"text/plain"}, code
    deep = kernel.run("x = 1\nfor _ in range(100000): x = [x]\nx = [x]\nlen(x), x[0] is None\n[1, x][0:1]").results[0]["data"]
    assert deep["application/json"] == [1]


def test_json_of_hostile_containers_never_breaks_the_kernel(kernel):
    kernel.run("class D(dict):\n    def items(self): raise KeyError('no')\nclass S(str):\n    def encode(self, *a): return 5\n    def __len__(self): return -1\n")
    for code in ("[D(a=1)]", "{'k': D(a=1)}", "[S('x')]", "{S('k'): 1}", "x = [1]\nfor _ in range(20000): x = [x]\n[x]", "[10 ** 4000]", "['\\ud800']", "['\\x00']"):
        assert kernel.run(code).status in ("ok", "error"), code
    assert kernel.run("1 + 1").value == "2"


def test_long_lists_keep_their_json_up_to_a_bound(kernel):
    data = kernel.run("list(range(100000))").results[0]["data"]
    assert data["application/json"] == list(range(100000))
    event = kernel.run("list(range(1000000))").results[0]
    assert "application/json" not in event["data"] and event["left_out"] == {"text/plain": event["truncated"]}


# --- bundles -----------------------------------------------------------------------------------------------------------------------------


def test_what_is_left_out_is_counted_by_type(kernel):
    code = "class H:\n    def _repr_html_(self): return 'h' * (7 << 20)\n    def _repr_png_(self): return b'p' * (3 << 20)\n    def __repr__(self): return 'x' * (2 << 20)\nH()"
    event = kernel.run(code).results[0]
    assert event["left_out"] == {"text/plain": 1 << 20, "text/html": (7 << 20) + 2}
    assert event["truncated"] == sum(event["left_out"].values()) and len(event["data"]["image/png"]) == 4 << 20
    event = kernel.run("display({'text/x%d' % i: 'y' * (3 << 20) for i in range(4)}, raw=True)").results[0]
    assert len(event["data"]) == 2 and len(event["left_out"]) == 2
    assert len(kernel.run("display({'text/x%d' % i: 'y' for i in range(1000)}, raw=True)").results[0]["data"]) == 64


def test_representations_of_wrong_types_are_left_out_with_a_line(kernel):
    outcome = kernel.run("class W:\n    def _repr_html_(self): return 5\n    def _repr_png_(self): return [1]\n    def _repr_svg_(self): return b'<svg/>'\n    def __repr__(self): return 'W'\nW()")
    assert outcome.results[0]["data"] == {"text/plain": "W"}
    assert "W._repr_html_ returned int (expected: str)" in outcome.err and "W._repr_png_ returned list" in outcome.err


def test_hostile_representations_never_end_the_cell(kernel):
    kernel.run(
        "class Meta(type):\n    def __getattr__(self, name): raise RuntimeError(name)\nclass M(metaclass=Meta):\n    def __repr__(self): return 'M'\n"
        "class S(str):\n    def encode(self, *a, **k): raise ValueError('no')\n    def __len__(self): return 1 << 70\n"
        "class Text:\n    def _repr_html_(self): return S('<b>')\n    def __repr__(self): return S('text')\n"
        "class Loop:\n    def __repr__(self): return repr(self)\n    def _repr_html_(self): return self._repr_html_()\n"
        "class Keys:\n    def _repr_mimebundle_(self, **k): return {5: 'x', 'k' * 1000: 'y', None: 'z', 'text/x': 'ok', 'application/json': {1, 2}}\n"
        "class Prints:\n    def _repr_html_(self): print('inside'); display('inner'); return 'html'\n    def __repr__(self): return 'P'\n"
        "class Own:\n    def _ipython_display_(self): raise ValueError('widget')\n    def __repr__(self): return 'O'\n"
    )
    assert kernel.run("M()").value == "M"
    assert kernel.run("Text()").results[0]["data"] == {"text/plain": "text", "text/html": "<b>"}
    assert kernel.run("Loop()").status == "ok"
    keys = kernel.run("Keys()")
    assert {"text/x"} == set(keys.results[0]["data"]) - {"text/plain"} and "application/json is left out" in keys.err
    prints = kernel.run("Prints()")
    assert prints.out == "inside\n" and [event["main"] for event in prints.results] == [False, True]
    own = kernel.run("Own()")
    assert own.value == "O" and "_ipython_display_ raised ValueError" in own.err
    assert kernel.run("display({'text/plain': S('x'), 'text/html': 7, 'application/x': [1]}, raw=True)").results[0]["data"] == {"text/plain": "x", "text/html": "7", "application/x": [1]}


def test_a_value_that_shows_itself_is_shown_once(kernel):
    outcome = kernel.run("class Own:\n    def _ipython_display_(self): display('shown')\nOwn()")
    assert [(event["main"], event["data"]["text/plain"]) for event in outcome.results] == [(False, "'shown'")]


def test_pretty_texts_are_used(either):
    code = "class P:\n    def __init__(self, *inner): self.inner = inner\n    def _repr_pretty_(self, p, cycle):\n        with p.group(2, '<', '>'):\n            for one in self.inner: p.pretty(one); p.breakable()\n"
    assert shown(either, code + "P(1, P('a'))")[0][1] == {"text/plain": "<1 <'a' > >"}
    outcome = either.run("class B:\n    def _repr_pretty_(self, p, cycle): raise ValueError('odd')\n    def __repr__(self): return 'B'\nB()")
    assert outcome.value == "B" and "_repr_pretty_ raised ValueError" in outcome.err


def test_displayed_values_can_be_updated_and_cleared(kernel):
    outcome = kernel.run("h = display(1, display_id=True)\nh.update(2)\nupdate_display = h.update\ndisplay(3, display_id='mine');")
    first, second, third = outcome.results
    assert first["display_id"] == second["display_id"] and "update" not in first and second["update"] is True
    assert third["display_id"] == "mine" and "update" not in third
    assert kernel.run("h.update(4)").results[0]["update"] is True
    outcome = kernel.run("from IPython.display import clear_output\ndisplay(1)\nclear_output(wait=True)\ndisplay(2)\ndisplay(3)\nclear_output()")
    assert [(event["data"].get("text/plain"), event.get("clear", False)) for event in outcome.results] == [("1", False), ("2", True), ("3", False), (None, True)]
    assert "clear" not in kernel.run("clear_output(wait=True)\nNone").results and "clear" not in kernel.run("display(1)").results[0]


# --- IPython.display ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["installed", "stand-in"])
def either(request):
    return request.getfixturevalue("plots" if request.param == "installed" else "bare")


def test_display_classes_work_with_and_without_ipython(either):
    results = shown(
        either,
        "from IPython.display import HTML, Markdown, Latex, Math, SVG, JSON, Javascript, Image, Pretty, display, update_display, clear_output, DisplayHandle\n"
        "for one in (HTML('<b>h</b>'), Markdown('**m**'), Latex('$x$'), Math('x'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>'), JSON({'k': 1}), Javascript('1+1'), Pretty('p')):\n"
        "    display(one)\nImage(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(20), width=7)",
    )
    forms = [{mime: value for mime, value in data.items() if mime != "text/plain"} for _, data in results]
    assert forms[0] == {"text/html": "<b>h</b>"} and forms[1] == {"text/markdown": "**m**"} and forms[2] == {"text/latex": "$x$"}
    assert forms[3] == {"text/latex": "$\\displaystyle x$"} and "<svg" in forms[4]["image/svg+xml"]
    assert forms[5] == {"application/json": {"k": 1}} and forms[6] == {"application/javascript": "1+1"}
    assert results[7][1] == {"text/plain": "p"} and base64.b64decode(forms[8]["image/png"])[:4] == b"\x89PNG"
    assert results[0][1]["text/plain"] == "<IPython.core.display.HTML object>"
    assert shown(either, "from IPython.display import display as d\nd({'application/x-atoll': 'raw'}, raw=True)") == [(False, {"application/x-atoll": "raw"})]
    assert shown(either, "h = d(HTML('1'), display_id='n')\nh.update(HTML('2'))")[1][1]["text/html"] == "2"


def test_libraries_do_not_take_the_stand_in_for_ipython(bare):
    assert bare.run("import sys\nimport IPython\nfrom IPython import get_ipython\nget_ipython().run_line_magic('pwd', '')").status == "ok"
    assert bare.run("from IPython.core.interactiveshell import InteractiveShell").error["name"] == "ModuleNotFoundError"
    outcome = bare.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nimport sympy\nsympy.init_printing()\nimport pandas\nstr(pandas.DataFrame({'a': [1]}))", timeout=120)
    assert outcome.status == "ok", outcome.error
    bare.run("from matplotlib_inline.backend_inline import set_matplotlib_formats\nset_matplotlib_formats('svg')")
    assert set(shown(bare, "plt.plot([1])\nplt.show()")[0][1]) == {"text/plain", "image/svg+xml", CHART}
    bare.run("%config InlineBackend.figure_format = 'png'")


def test_files_and_sounds_are_embedded(bare, tmp_path):
    (tmp_path / "p.gif").write_bytes(b"GIF89a")
    results = shown(bare, "from IPython.display import Image, Audio, IFrame, FileLink, Code\nImage(%r)" % str(tmp_path / "p.gif"))
    assert results[0][1]["image/gif"] == base64.b64encode(b"GIF89a").decode()
    assert "data:audio/wav;base64,UklGR" in shown(bare, "Audio([0, 0.5, -0.5], rate=8000)")[0][1]["text/html"]
    assert "src=\"/x?a=1\"" in shown(bare, "IFrame('/x', 10, 20, a=1)")[0][1]["text/html"]
    assert "&lt;b&gt;" in shown(bare, "Code('<b>', language='html')")[0][1]["text/html"]
    assert bare.run("Image('missing.png')").error["name"] == "FileNotFoundError"


# --- figures -------------------------------------------------------------------------------------------------------------------------------


def test_figures_are_shown_at_show_and_at_the_end_and_closed(plots):
    results = shown(plots, "plt.figure(figsize=(2, 1))\nplt.plot([1, 2])\nplt.show()\nprint('between')\nplt.figure(figsize=(3, 1))\nplt.plot([3, 4])\n5")
    assert [(main, data["text/plain"]) for main, data in results] == [(False, "<Figure size 200x100 with 1 Axes>"), (True, "5"), (False, "<Figure size 300x100 with 1 Axes>")]
    assert base64.b64decode(results[0][1]["image/png"])[:8] == b"\x89PNG\r\n\x1a\n"
    assert shown(plots, "plt.get_fignums()")[0][1]["text/plain"] == "[]"


def test_a_figure_that_is_the_value_is_shown_once_and_again_after_a_change(plots):
    assert [main for main, _ in shown(plots, "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig")] == [True]
    assert [main for main, _ in shown(plots, "fig")] == [True]
    assert [main for main, _ in shown(plots, "fig, ax = plt.subplots()\ndisplay(fig)\nax.plot([1, 2])\nNone")] == [False, False]
    assert [main for main, _ in shown(plots, "fig = plt.figure()\nfig.show()")] == [False]


def test_figures_of_a_cell_that_fails_are_shown_and_of_one_that_is_stopped_are_not(plots):
    assert len(shown(plots, "plt.plot([1])\n1 / 0", "error")) == 1
    assert len(shown(plots, "plt.plot([1])\nraise KeyboardInterrupt", "interrupted")) == 0
    assert len(shown(plots, "plt.plot([1])\nexit()", "exited")) == 1
    assert shown(plots, "plt.get_fignums()")[0][1]["text/plain"] == "[]"
    outcome = plots.run("plt.plot([1])\nplt.title('$bad_{$')\nplt.show()", timeout=60)
    assert outcome.status == "error" and "ValueError" in outcome.error["traceback"]
    assert shown(plots, "plt.get_fignums()")[0][1]["text/plain"] == "[]"


def test_formats_of_figures_can_be_chosen(plots):
    try:
        assert set(shown(plots, "%config InlineBackend.figure_formats = ['svg', 'pdf']\nplt.plot([1])\nNone")[0][1]) == {"text/plain", "image/svg+xml", "application/pdf", CHART}
        event = plots.run("%config InlineBackend.figure_format = 'retina'\nplt.plot([1])\nplt.show()").results[0]
        header = base64.b64decode(event["data"]["image/png"])
        assert event["metadata"]["image/png"]["width"] == int.from_bytes(header[16:20], "big") // 2
        assert "no figure format bmp" in plots.run("%config InlineBackend.figure_format = 'bmp'").error["message"]
    finally:
        plots.run("%config InlineBackend.figure_format = 'png'")


def test_who_asks_for_agg_gets_files_and_no_pictures_beside_them(new_kernel):
    kernel = new_kernel()
    outcome = kernel.run("import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('f.png')\nplt.close()", timeout=120)
    assert outcome.status == "ok" and outcome.results == []
    assert len(kernel.run("plt.plot([1])\nplt.show()").results) == 1
    assert len(kernel.run("%matplotlib inline\nplt.plot([1])\nNone").results) == 1


@pytest.mark.parametrize(
    "ask", ["import matplotlib\nmatplotlib.use('TkAgg')\nimport matplotlib.pyplot as plt", "import matplotlib.pyplot as plt\nplt.switch_backend('qtagg')", "%matplotlib widget\nimport matplotlib.pyplot as plt"]
)
def test_who_asks_for_windows_gets_figures_all_the_same(new_kernel, ask):
    kernel = new_kernel()
    outcome = kernel.run(ask + "\nplt.plot([1])\nplt.show()", timeout=120)
    assert outcome.status == "ok" and "image/png" in outcome.results[0]["data"], outcome


def test_a_missing_font_is_told_once_in_a_cell(plots):
    try:
        for _ in range(2):
            outcome = plots.run("plt.rcParams['font.family'] = 'No Such Font'\nplt.plot([1, 2])\nplt.title('x')\nplt.show()", timeout=60)
            assert outcome.status == "ok" and outcome.err.count("findfont") == 1, outcome.err
    finally:
        plots.run("plt.rcdefaults()")


def test_figures_drawn_by_child_processes_disturb_nobody(plots):
    outcome = plots.run("import os\nif os.fork() == 0:\n    plt.plot([1])\n    plt.show()\n    os._exit(0)\nos.wait()[1]", timeout=60)
    assert outcome.status == "ok" and outcome.value == "0" and len(outcome.results) == 1


# --- charts --------------------------------------------------------------------------------------------------------------------------------


def test_lines(plots):
    c = chart(plots, "plt.plot([1, 2, 3], [4, 5, np.nan], label='L')\nplt.plot([1, 2], [6, 7])\nplt.axhline(5)\nplt.title('T')\nplt.xlabel('X (s)')\nplt.ylabel('Y [m]')\nplt.show()")
    assert (c["type"], c["title"]) == ("line", "T")
    assert (c["x_axis"]["label"], c["x_axis"]["unit"], c["y_axis"]["unit"], c["x_axis"]["scale"]) == ("X (s)", "s", "m", "linear")
    assert c["elements"] == [{"label": "L", "points": [[1, 4], [2, 5], [3, None]]}, {"label": "", "points": [[1, 6], [2, 7]]}]
    assert len(c["x_axis"]["ticks"]) == len(c["x_axis"]["tick_labels"]) > 2 and c["x_axis"]["ticks"][0] == float(c["x_axis"]["tick_labels"][0])


def test_scales(plots):
    c = chart(plots, "plt.plot([1, 10, 100], [1, 2, 3])\nplt.xscale('log')\nplt.yscale('symlog')\nplt.show()")
    assert (c["x_axis"]["scale"], c["y_axis"]["scale"]) == ("log", "symlog") and "10^1" in c["x_axis"]["tick_labels"]
    c = chart(plots, "plt.plot(['a', 'b'], [1, 2])\nplt.show()")
    assert c["x_axis"]["scale"] == "categorical" and c["elements"][0]["points"] == [["a", 1], ["b", 2]]
    c = chart(plots, "import datetime as dt\nplt.plot([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2, 12)], [1, 2])\nplt.show()")
    assert c["x_axis"]["scale"] == "datetime" and c["elements"][0]["points"] == [["2024-01-01T00:00:00", 1], ["2024-01-02T12:00:00", 2]]
    assert all(tick.startswith("2024-01-0") for tick in c["x_axis"]["ticks"])
    c = chart(plots, "pd.Series([1, 2, 4], index=pd.date_range('2024-01-30', periods=3, freq='D')).plot()\nNone")
    assert c["x_axis"]["scale"] == "datetime" and [point[0] for point in c["elements"][0]["points"]] == ["2024-01-30T00:00:00", "2024-01-31T00:00:00", "2024-02-01T00:00:00"]


def test_scatters(plots):
    c = chart(plots, "plt.scatter([1, 2], [3, 4], label='S')\nplt.plot([1, 2], [5, 6], 'o')\nplt.show()")
    assert c["type"] == "scatter" and [e["points"] for e in c["elements"]] == [[[1, 5], [2, 6]], [[1, 3], [2, 4]]]
    c = chart(plots, "plt.scatter([1, 2], [3, 4])\nplt.plot([1, 2], [3, 4])\nplt.show()")
    assert c["type"] == "superchart" and [e["type"] for e in c["elements"]] == ["scatter", "line"]


def test_bars(plots):
    c = chart(plots, "plt.bar(['p', 'q'], [5, 7], label='g')\nplt.show()")
    assert c["elements"] == [{"label": "p", "group": "g", "value": 5}, {"label": "q", "group": "g", "value": 7}]
    c = chart(plots, "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, index=['x', 'y']).plot.bar(stacked=True)\nNone")
    assert [(e["label"], e["group"], e["value"], e.get("base")) for e in c["elements"]] == [("x", "a", 1, None), ("y", "a", 2, None), ("x", "b", 3, 1), ("y", "b", 4, 2)]
    c = chart(plots, "at = np.arange(2)\nplt.bar(at - .2, [1, 2], .4, label='l')\nplt.bar(at + .2, [3, 4], .4, label='r')\nplt.xticks(at, ['u', 'v'])\nplt.show()")
    assert [(e["label"], e["group"]) for e in c["elements"]] == [("u", "l"), ("v", "l"), ("u", "r"), ("v", "r")]
    c = chart(plots, "plt.barh(['p', 'q'], [5, 7], xerr=[1, 1])\nplt.show()")
    assert [(e["label"], e["value"]) for e in c["elements"]] == [("p", 5), ("q", 7)] and c["type"] == "bar"
    c = chart(plots, "plt.hist([1, 2, 2, 3, 3, 3], bins=[0.5, 1.5, 2.5, 3.5])\nplt.show()")
    assert [(e["start"], e["end"], e["value"]) for e in c["elements"]] == [(0.5, 1.5, 1), (1.5, 2.5, 2), (2.5, 3.5, 3)]


def test_pies_and_boxes(plots):
    c = chart(plots, "plt.pie([1, 3], labels=['u', 'v'])\nplt.show()")
    assert c == {"type": "pie", "title": "", "elements": [{"label": "u", "angle": 90, "radius": 1}, {"label": "v", "angle": 270, "radius": 1}]}
    for code in ("plt.boxplot([[1, 2, 3, 4, 5, 50], [1, 1, 1]], patch_artist=True)", "plt.boxplot([[1, 2, 3, 4, 5, 50], [1, 1, 1]], vert=False)"):
        c = chart(plots, code + "\nplt.show()")
        assert c["type"] == "box" and [e["label"] for e in c["elements"]] == ["1", "2"]
        first = c["elements"][0]
        assert (first["min"], first["median"], first["max"], first["outliers"]) == (1, 3.5, 5, [50])
    c = chart(plots, "ax = plt.gca()\nax.boxplot([1, 2])\nax.clear()\nax.plot([1, 2])\nplt.show()")
    assert c["type"] == "line"


def test_several_axes_give_a_superchart(plots):
    c = chart(plots, "f, a = plt.subplots(2, 2)\na[0, 0].plot([1, 2])\na[0, 1].bar(['x'], [1])\na[1, 0].imshow([[1, 2], [3, 4]])\na[1, 1].axis('off')\nf.suptitle('All')\nf.colorbar(a[1, 0].images[0])\nplt.show()")
    assert (c["type"], c["title"], [e["type"] for e in c["elements"]]) == ("superchart", "All", ["line", "bar", "unknown"])


def test_charts_are_bounded_and_say_so(plots):
    c = chart(plots, "plt.plot(range(1000000))\nplt.plot([1, 2])\nplt.show()")
    first, second = c["elements"]
    assert len(first["points"]) <= 20000 and first["points_total"] == 1000000 and first["points"][1][0] > 1 and len(second["points"]) <= 2
    c = chart(plots, "plt.plot([1], label='x' * 5000)\nplt.show()")
    assert len(c["elements"][0]["label"]) == 1001


def test_no_chart_is_better_than_a_broken_figure(plots):
    outcome = plots.run("class Line(plt.Line2D):\n    def get_data(self, orig=True): raise RuntimeError('odd')\nplt.gca().add_line(Line([0, 1], [0, 1]))\nplt.show()", timeout=60)
    assert outcome.status == "ok" and set(outcome.results[0]["data"]) == {"text/plain", "image/png"}
    c = chart(plots, "plt.figure().add_subplot(projection='3d').plot([1, 2], [1, 2], [1, 2])\nplt.show()")
    assert c["type"] == "unknown"


# --- tables --------------------------------------------------------------------------------------------------------------------------------


def test_data_frames_have_text_html_and_data(plots):
    data = shown(plots, "pd.DataFrame({'a': [1, 2], 'b': ['x', None], 't': pd.to_datetime(['2024-01-01', None]), 'f': [1.5, float('inf')], 'big': [2**70, 1]})")[0][1]
    assert "<table" in data["text/html"] and data["text/plain"].startswith("   a")
    assert {c["name"]: c["values"] for c in data[TABLE]["columns"]} == {
        "a": [1, 2], "b": ["x", None], "t": ["2024-01-01T00:00:00", None], "f": [1.5, None], "big": [str(2**70), 1],
    }
    assert (data[TABLE]["row_count"], data[TABLE]["column_count"]) == (2, 5) and "index" not in data[TABLE] and "truncated" not in data[TABLE]
    data = shown(plots, "pd.Series([1, 2], index=['p', 'q'], name='s')")[0][1]
    assert data[TABLE]["columns"] == [{"name": "s", "type": "int64", "values": [1, 2]}] and data[TABLE]["index"][0]["values"] == ["p", "q"]
    data = shown(plots, "pd.DataFrame({'a': [1]}).style")[0][1]
    assert "<style" in data["text/html"] and data["text/plain"] == "   a\n0  1" and data[TABLE]["row_count"] == 1
    data = shown(plots, "pd.DataFrame({('u', 1): [1]}, index=pd.MultiIndex.from_tuples([('i', 2)]))")[0][1]
    assert data[TABLE]["columns"][0]["name"] == "u, 1" and [one["values"] for one in data[TABLE]["index"]] == [["i"], [2]]


def test_tables_are_bounded_and_say_so(plots):
    table = shown(plots, "pd.DataFrame(np.zeros((100000, 20)))")[0][1][TABLE]
    assert (table["row_count"], table["truncated"], len(table["columns"][0]["values"])) == (100000, True, 2500)
    table = shown(plots, "pd.DataFrame({'s': ['x' * 20000] * 500})")[0][1][TABLE]
    assert table["truncated"] and len(table["columns"][0]["values"][0]) == 10001 and sum(map(len, table["columns"][0]["values"])) <= 1 << 20
    table = shown(plots, "pd.DataFrame()")[0][1][TABLE]
    assert table == {"columns": [], "row_count": 0, "column_count": 0}
    table = shown(plots, "pd.DataFrame({'i': pd.array([1, None], dtype='Int64'), 'f': pd.array([1.5, None], dtype='Float64'), 'b': pd.array([True, None], dtype='boolean'), 'c': [1j, 2j], 'd': pd.to_timedelta([1, 2], unit='s')})")[0][1][TABLE]
    assert [column["values"] for column in table["columns"]] == [[1, None], [1.5, None], [True, None], ["1j", "2j"], ["0 days 00:00:01", "0 days 00:00:02"]]
    assert "text/html" not in shown(plots, "with pd.option_context('display.notebook_repr_html', False): display(pd.DataFrame({'a': [1]}))")[0][1]
    assert shown(plots, "pd.DataFrame({'o': [object(), [1, 2]]})")[0][1][TABLE]["columns"][0]["values"][1] == "[1, 2]"


def test_polars_frames_too(plots):
    data = shown(plots, "import polars as pl\npl.DataFrame({'a': [1, None], 's': ['x', 'y']})")[0][1]
    assert "<table" in data["text/html"] and [c["values"] for c in data[TABLE]["columns"]] == [[1, None], ["x", "y"]]


# --- others --------------------------------------------------------------------------------------------------------------------------------


def test_plotly_figures_are_html_and_json_as_values_and_by_show(either):
    code = "import plotly.graph_objects as go\nfig = go.Figure(go.Scatter(x=[1, 2], y=[3, 4])).update_layout(title='P')\n"
    for (main, data), expected in zip(shown(either, code + "fig.show()\nfig"), (False, True)):
        assert main is expected and data["text/plain"] == "<Figure of plotly 'P': scatter>"
        assert data[PLOTLY]["data"][0]["x"] == [1, 2] and "plotly" in data["text/html"] and len(data["text/html"]) < 100000


def test_pictures_of_pillow_are_png(either, tmp_path):
    # A program that opens pictures, as desktops have one, is not who they are shown to.
    (tmp_path / "xdg-open").write_text("#!/bin/sh\n")
    (tmp_path / "xdg-open").chmod(0o755)
    path = f"import os; os.environ['PATH'] = {str(tmp_path)!r} + os.pathsep + os.environ['PATH']\n"
    results = shown(either, path + "from PIL import Image as Pictures\nPictures.new('CMYK', (3, 2)).show()\nPictures.new('F', (3, 2))")
    for _, data in results:
        header = base64.b64decode(data["image/png"])
        assert int.from_bytes(header[16:20], "big") == 3 and set(data) == {"text/plain", "image/png"}
    assert len(results) == 2


def test_formulas_are_latex(either):
    data = shown(either, "import sympy\nsympy.sqrt(sympy.Symbol('s')) / 2")[0][1]
    assert data == {"text/plain": "sqrt(s)/2", "text/latex": "$\\displaystyle \\frac{\\sqrt{s}}{2}$"}

"""Results as MIME bundles."""
import base64


def test_rich_representations_are_collected(kernel):
    outcome = kernel.run(
        "class R:\n"
        "    def _repr_html_(self): return '<b>é</b>'\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_json_(self): return {'a': [1, None]}\n"
        "    def _repr_latex_(self): return None\n"
        "    def __repr__(self): return 'R!'\nR()"
    )
    data = outcome.results[0]["data"]
    assert data == {"text/plain": "R!", "text/html": "<b>é</b>", "image/png": base64.b64encode(b"\x89PNG").decode(), "application/json": {"a": [1, None]}}
    assert outcome.results[0]["main"] is True


def test_mimebundles_with_metadata_win(kernel):
    outcome = kernel.run(
        "class M:\n    def _repr_mimebundle_(self, include=None, exclude=None):\n"
        "        return {'application/vnd.x+json': {'k': 1}, 'text/html': 'bundle'}, {'text/html': {'isolated': True}}\n"
        "    def _repr_html_(self): return 'method'\nM()"
    )
    event = outcome.results[0]
    assert (event["data"]["text/html"], event["data"]["application/vnd.x+json"], event["metadata"]) == ("bundle", {"k": 1}, {"text/html": {"isolated": True}})
    assert "M object" in event["data"]["text/plain"]


def test_display_shows_several_values_beside_the_main_one(kernel):
    outcome = kernel.run("display(1, 'a')\ndisplay({'text/plain': 'raw'}, raw=True)\n3")
    assert [(event["main"], event["data"]["text/plain"]) for event in outcome.results] == [(False, "1"), (False, "'a'"), (False, "raw"), (True, "3")]


def test_errors_in_representations_never_end_the_cell(kernel):
    outcome = kernel.run("class B:\n    def __repr__(self): raise ValueError('broken')\n    def _repr_html_(self): raise TypeError('html')\n    def _repr_mimebundle_(self, **k): return 5\nB()")
    assert outcome.status == "ok"
    assert outcome.value == "<B object; its __repr__ raised ValueError: broken>"
    assert "_repr_html_ raised TypeError: html" in outcome.err
    assert kernel.run("class N:\n    def __repr__(self): return 7\nN()").value.startswith("<N object; its __repr__ raised TypeError")
    assert kernel.run("class J:\n    def _repr_json_(self): return object()\nJ()").status == "ok"
    assert kernel.run("x = []\nx.append(x)\nx").value == "[[...]]"


def test_classes_and_mocks_are_shown_by_their_repr(kernel):
    outcome = kernel.run("class R:\n    def _repr_html_(self): return 'x'\nR")
    assert set(outcome.results[0]["data"]) == {"text/plain"}
    assert set(kernel.run("from unittest.mock import MagicMock\nMagicMock()").results[0]["data"]) == {"text/plain"}


def test_huge_values_are_shortened_and_say_so(kernel):
    event = kernel.run("'x' * (3 << 20)").results[0]
    assert len(event["data"]["text/plain"]) == 1 << 20 and event["truncated"] == (3 << 20) + 2 - (1 << 20)
    event = kernel.run("'é' * (1 << 20)").results[0]
    assert len(event["data"]["text/plain"].encode()) <= 1 << 20 and event["truncated"] > 0
    event = kernel.run("class H:\n    def _repr_html_(self): return 'h' * (20 << 20)\n    def _repr_png_(self): return b'p' * (20 << 20)\n    def __repr__(self): return 'H'\nH()").results[0]
    assert event["data"] == {"text/plain": "H"} and event["truncated"] > 40 << 20
    assert kernel.run("class C:\n    def _repr_html_(self): return chr(1) * (2 << 20)\n    def _repr_svg_(self): return chr(1) * (2 << 20)\n    def __repr__(self): return chr(1) * (2 << 20)\nC()").status == "ok"


def test_displays_of_a_thread_belong_to_its_cell(kernel):
    kernel.run("import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(10), display('late'))); t.start()")
    outcome = kernel.run("go.set(); t.join()")
    assert outcome.results == [] and outcome.late[0]["id"] == "exec-1" and "late" in outcome.late[0]["text"]

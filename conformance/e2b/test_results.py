"""Figures, charts and tables as the SDK shows them, in a sandbox that has the libraries."""

import base64

import pytest
from installation import Client

PACKAGES = ["numpy==2.2.6", "pandas==2.2.3", "matplotlib==3.10.3"]


@pytest.fixture(scope="module")
def sandbox(atoll, with_packages):
    from e2b_code_interpreter import Sandbox

    with Sandbox.create(with_packages("pandas, matplotlib", *PACKAGES), timeout=600) as running:
        # Libraries that no image holds compiled take more than a sandbox has by itself.
        client = Client(atoll.url, atoll.key)
        client.call("PATCH", f"/v1/sandboxes/sb-exec-{running.sandbox_id}", {"limits": {"memory_bytes": 1 << 30}})
        loaded = running.run_code("import matplotlib.pyplot as plt, pandas as pd", timeout=200)
        assert loaded.error is None, loaded.error
        yield running


def chart(sandbox, code):
    done = sandbox.run_code(f"plt.figure()\n{code}\nplt.show()", timeout=200)
    assert done.error is None, done.error
    return done.results[-1].chart


pytestmark = pytest.mark.long


def test_a_table_has_its_columns(sandbox):
    result = sandbox.run_code("pd.DataFrame({'a': [1, None], 'b': ['x', 'y']})", timeout=200).results[0]
    assert result.data == {"a": [1.0, None], "b": ["x", "y"]} and "<table" in result.html and result.is_main_result


def test_a_figure_is_a_picture_and_its_points(sandbox):
    done = sandbox.run_code("plt.plot([1, 2], [3, 5], label='L')\nplt.title('T')\nplt.xlabel('X (s)')\nplt.show()", timeout=200)
    (result,) = done.results
    assert base64.b64decode(result.png)[:8] == b"\x89PNG\r\n\x1a\n"
    shown = result.chart
    assert (shown.type.value, shown.title, shown.x_label, shown.x_unit, shown.x_scale.value) == ("line", "T", "X (s)", "s", "linear")
    assert shown.elements[0].label == "L" and [tuple(map(float, point)) for point in shown.elements[0].points] == [(1, 3), (2, 5)]


def test_every_kind_of_chart(sandbox):
    assert len(chart(sandbox, "plt.scatter([1, 2], [3, 4])").elements[0].points) == 2
    bars = chart(sandbox, "plt.bar(['p', 'q'], [5, 7])")
    assert bars.type.value == "bar" and [(bar.label, float(bar.value)) for bar in bars.elements] == [("p", 5), ("q", 7)]
    pie = chart(sandbox, "plt.pie([1, 3], labels=['u', 'v'])")
    assert pie.type.value == "pie" and [(part.label, round(part.angle)) for part in pie.elements] == [("u", 90), ("v", 270)]
    box = chart(sandbox, "plt.boxplot([[1, 2, 3, 4, 5]])")
    assert box.type.value == "box_and_whisker" and float(box.elements[0].median) == 3
    both = chart(sandbox, "plt.subplot(1, 2, 1).plot([1, 2])\nplt.subplot(1, 2, 2).bar(['x'], [1])")
    assert both.type.value == "superchart" and [one.type.value for one in both.elements] == ["line", "bar"]

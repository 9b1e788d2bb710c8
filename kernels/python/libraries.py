"""Values of libraries that are not made for showing themselves here: tables (pandas, polars), plotly, Pillow, SymPy."""
import sys

import _atoll_kernel as core
import _atoll_kernel_extras as extras

TABLE = "application/vnd.atoll.table.v1+json"
MAX_ROWS = 5000
MAX_CELLS = 50000
MAX_COLUMNS = 1000
MAX_TEXT = 10000  # characters of one cell
MAX_TABLE_CHARS = 1 << 20


def forms_of(library, value):
    """(data, metadata) of a value of one of these libraries; None where its own representations do."""
    maker = _FORMS[library]
    return maker(value)


# --- tables -----------------------------------------------------------------------------------------------------------------------


def _pandas(value):
    pandas = sys.modules["pandas"]
    if isinstance(value, pandas.DataFrame):
        return {"text/plain": extras.plain(value), "text/html": value._repr_html_(), TABLE: _frame(pandas, value)}, {}
    if isinstance(value, pandas.Series):
        # Its name is the heading; a column without one gets none.
        html = value.to_frame(name=value.name if value.name is not None else "")._repr_html_()
        return {"text/plain": extras.plain(value), "text/html": html, TABLE: _frame(pandas, value.to_frame())}, {}
    if type(value).__name__ == "Styler" and hasattr(value, "data"):
        return {"text/plain": extras.plain(value.data), "text/html": value._repr_html_() or value.to_html(), TABLE: _frame(pandas, value.data)}, {}
    return None


def _room(rows, columns):
    columns = min(columns, MAX_COLUMNS)
    return min(rows, MAX_ROWS, max(1, MAX_CELLS // max(columns, 1))), columns


def _frame(pandas, frame):
    total, width = frame.shape
    rows, columns = _room(total, width)
    shown = frame.iloc[:rows, :columns]
    names = [_name(name) for name in shown.columns]
    parts = [{"name": name, "type": str(dtype), "values": _values(pandas, shown.iloc[:, i])} for i, (name, dtype) in enumerate(zip(names, shown.dtypes))]
    table = {"columns": parts}
    index = shown.index
    if not (isinstance(index, pandas.RangeIndex) and index.start == 0 and index.step == 1):
        levels = [index.get_level_values(i) for i in range(index.nlevels)]
        table["index"] = [{"name": _name(level.name) if level.name is not None else None, "type": str(level.dtype), "values": _values(pandas, level)} for level in levels]
    return _bounded(table, total, width)


def _bounded(table, total, width):
    """The table with its size; with fewer rows where its texts are long."""
    columns = table["columns"] + table.get("index", [])
    while True:
        rows = len(columns[0]["values"]) if columns else 0
        chars = sum(len(value) if type(value) is str else 8 for column in columns for value in column["values"])
        if chars <= MAX_TABLE_CHARS or rows <= 1:
            break
        rows = max(1, rows * MAX_TABLE_CHARS // chars)
        for column in columns:
            del column["values"][rows:]
    table["row_count"], table["column_count"] = total, width
    if rows < total and columns or len(table["columns"]) < width:
        table["truncated"] = True
    return table


def _name(name):
    if isinstance(name, tuple):  # of a column with several levels
        return ", ".join(str(one) for one in name)[:MAX_TEXT]
    return str(name)[:MAX_TEXT]


def _values(pandas, column):
    """JSON values: numbers, booleans and texts as they are, moments as ISO 8601, what is missing as null, all else as text."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "iub":
        values = column.tolist()
        return values if all(type(value) in (int, bool) for value in values) else [_value(value) for value in values]
    if kind == "f":
        return [value if type(value) is float and value - value == 0 else _value(value) for value in column.tolist()]
    return [_value(value) for value in column.tolist()]


def _value(value):
    kind = type(value)
    if kind is str:
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else str(value)
    if kind is bool or value is None:
        return value
    if kind is float:
        return value if value - value == 0 else None
    name = kind.__name__
    if name in ("NaTType", "NAType"):
        return None
    if hasattr(kind, "isoformat") and name != "Timedelta":
        return str(value.isoformat())
    if kind.__module__ == "numpy" and hasattr(kind, "item"):
        plain = value.item()
        return str(plain) if type(plain) is kind else _value(plain)
    return _value(extras.plain(value) if isinstance(value, (list, dict, set, tuple)) else str.__str__(str(value)))


def _polars(value):
    polars = sys.modules["polars"]
    if isinstance(value, polars.Series):
        frame = value.to_frame()
    elif isinstance(value, polars.DataFrame):
        frame = value
    else:
        return None
    total, width = frame.shape
    rows, columns = _room(total, width)
    shown = frame[:rows, :columns] if columns else frame
    parts = [{"name": _name(name), "type": str(shown[name].dtype), "values": [_value(one) for one in shown[name].to_list()]} for name in shown.columns]
    return {"text/plain": extras.plain(value), "text/html": value._repr_html_(), TABLE: _bounded({"columns": parts}, total, width)}, {}


# --- plotly -----------------------------------------------------------------------------------------------------------------------


def _plotly(value):
    base = sys.modules.get("plotly.basedatatypes")
    if base is None or not isinstance(value, base.BaseFigure):
        return None
    title = value.layout.title.text if value.layout.title else None
    kinds = ", ".join(sorted({str(trace.type) for trace in value.data})) or "no traces"
    return {
        "text/plain": "<Figure of plotly%s: %s>" % (" %r" % title[:200] if title else "", kinds),
        "text/html": value.to_html(full_html=False, include_plotlyjs="cdn"),
        "application/vnd.plotly.v1+json": extras.Raw(value.to_json(validate=False)),
    }, {}


def adapt_plotly(renderers):
    """fig.show() without a browser shows the figure as a result; a renderer that is asked for by name is still used."""
    import functools

    original = renderers.show

    @functools.wraps(original)
    def show(fig, renderer=None, validate=True, **options):
        base = sys.modules.get("plotly.basedatatypes")
        if renderer is not None or core.state.child or base is None or renderers.renderers.default not in (None, "", "browser") and not _is_for_notebooks(renderers.renderers.default):
            return original(fig, renderer=renderer, validate=validate, **options)
        if not isinstance(fig, base.BaseFigure):
            fig = sys.modules["plotly.graph_objs"].Figure(fig)
        data, metadata = _plotly(fig)
        extras.send_bundle(data, metadata, False)

    renderers.show = show


def _is_for_notebooks(name):
    return all(part in ("plotly_mimetype", "notebook", "notebook_connected", "jupyterlab", "vscode", "iframe") for part in name.split("+"))


# --- pictures and formulas --------------------------------------------------------------------------------------------------------


def _pillow(value):
    images = sys.modules.get("PIL.Image")
    if images is None or not isinstance(value, images.Image):
        return None
    import io

    image = value if value.mode in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA") else value.convert("RGBA" if value.mode in ("PA", "La", "RGBa") else "RGB")
    out = io.BytesIO()
    image.save(out, "PNG")
    return {"text/plain": extras.plain(value), "image/png": out.getvalue()}, {}


def adapt_pillow(show):
    """image.show() shows the picture as a result, also where there is a program for pictures: nobody would see its window."""

    class Result(show.Viewer):
        def show(self, image, **options):
            if core.state.child:
                return False
            data, metadata = _pillow(image)
            extras.send_bundle(data, metadata, False)
            return True

    show.register(Result(), 0)


def _sympy(value):
    printing = sys.modules.get("sympy.printing.defaults")
    if printing is None or not isinstance(value, printing.Printable):
        return None
    latex = value._repr_latex_()
    return {"text/plain": extras.plain(value), **({"text/latex": latex} if latex else {})}, {}


_FORMS = {"pandas": _pandas, "polars": _polars, "plotly": _plotly, "PIL": _pillow, "sympy": _sympy}

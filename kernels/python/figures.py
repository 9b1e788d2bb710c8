"""matplotlib: figures as pictures, shown at plt.show() and at the end of a cell and then closed, and their charts as data.

A chart is read from the artists of a figure after it has been drawn, when limits, ticks and colours are settled. What only the call
knew, the statistics of a box plot, is kept when it is made. Charts are bounded: they are for drawing again, not for moving data.
"""
import io
import os
import sys
import weakref

import _atoll_kernel as core
import _atoll_kernel_extras as extras

CHART = "application/vnd.atoll.chart.v1+json"
FORMATS = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "svg": "image/svg+xml", "pdf": "application/pdf"}
MAX_POINTS = 20000  # of one figure
MAX_ELEMENTS = 2000  # of one axes
MAX_CHARTS = 100
MAX_LABEL = 1000


class Settings:
    """`%config InlineBackend.…`; names and defaults are those of notebooks."""

    formats = ("png",)
    retina = False
    kwargs = {"bbox_inches": "tight"}
    close = True
    automatic = True  # at the end of a cell; off after matplotlib.use("agg")


_boxes = weakref.WeakKeyDictionary()  # axes -> [(statistics, artists, vertical)]
_shown = weakref.WeakKeyDictionary()  # figure -> the cell that has shown it as a value


# --- showing --------------------------------------------------------------------------------------------------------------------


def adapt(module):
    if module.__name__ == "matplotlib":
        _adapt_use(module)
    elif module.__name__ == "matplotlib.figure":
        _adapt_axes(sys.modules["matplotlib.axes"].Axes)
    else:
        _adapt_pyplot(module)


def _adapt_use(matplotlib):
    import functools

    original = matplotlib.use
    _complain_once(matplotlib)

    @functools.wraps(original)
    def use(backend, *args, **kwargs):
        if _wants_windows(backend):
            return None
        answer = original(backend, *args, **kwargs)
        # Who asks for it by name wants files, and no picture beside them but by plt.show().
        Settings.automatic = not (isinstance(backend, str) and backend.lower() == "agg")
        return answer

    matplotlib.use = use


# Backends that open windows, or talk to a notebook's page.
_WINDOWS = ("gtk", "ipympl", "macosx", "module://ipympl", "nbagg", "notebook", "qt", "tk", "webagg", "widget", "wx")


def _wants_windows(backend):
    """Whether a backend can show nothing here, which is said: figures are then shown as ever."""
    if not isinstance(backend, str) or not backend.lower().startswith(_WINDOWS) or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return False
    sys.stderr.write("matplotlib: there are no windows for %s here; figures are shown as results\n" % backend)
    return True


def _complain_once(matplotlib):
    """A font that is missing is told by each text of a figure: some dozen times. Once in a cell is enough."""
    import logging

    told = [None, set()]

    def first_time(record):
        if told[0] is not core.state.cell:
            told[:] = [core.state.cell, set()]
        message = record.getMessage()
        if not message.startswith("findfont: ") or message not in told[1]:
            told[1].add(message)
            return True
        return False

    logging.getLogger("matplotlib.font_manager").addFilter(first_time)


def _adapt_axes(axes):
    import functools

    original = axes.bxp

    @functools.wraps(original)
    def bxp(self, bxpstats, *args, **kwargs):
        artists = original(self, bxpstats, *args, **kwargs)
        try:
            vertical = kwargs.get("vert", True) is not False and kwargs.get("orientation", "vertical") == "vertical"
            _boxes.setdefault(self, []).append((list(bxpstats), artists, vertical))
        except Exception:
            pass  # a chart less
        return artists

    axes.bxp = bxp


def _adapt_pyplot(pyplot):
    import functools

    show = pyplot.show

    @functools.wraps(show)
    def show_inline(*args, **kwargs):
        if not _is_inline(pyplot):
            return show(*args, **kwargs)
        show_figures(pyplot)

    pyplot.show = show_inline
    switch = pyplot.switch_backend

    @functools.wraps(switch)
    def switch_backend(newbackend):
        if not _wants_windows(newbackend):
            switch(newbackend)

    pyplot.switch_backend = switch_backend
    manager = sys.modules["matplotlib.backend_bases"].FigureManagerBase
    show_manager = manager.show

    @functools.wraps(show_manager)
    def show_one(self):
        if not _is_inline(pyplot):
            return show_manager(self)
        show_figure(self.canvas.figure)
        if Settings.close:
            pyplot.close(self.canvas.figure)

    manager.show = show_one
    core.state.after_cell.append(lambda error: _after_cell(pyplot, error))


def _is_inline(pyplot):
    # get_backend() would choose one where none is chosen yet.
    backend = pyplot.rcParams._get_backend_or_none() if hasattr(pyplot.rcParams, "_get_backend_or_none") else pyplot.get_backend()
    return not core.state.child and isinstance(backend, str) and backend.lower() in ("agg", "inline", "module://matplotlib_inline.backend_inline")


def _after_cell(pyplot, error):
    if not pyplot.get_fignums() or not _is_inline(pyplot):
        return
    if isinstance(error, KeyboardInterrupt):
        pyplot.close("all")  # who stops a cell does not wait for its pictures
    elif Settings.automatic:
        show_figures(pyplot)


def show_figures(pyplot):
    """Shows all open figures in the order in which they were made, and closes them, also where one can't be drawn."""
    try:
        for number in sorted(pyplot.get_fignums()):
            figure = pyplot.figure(number)
            if _shown.get(figure) == core.state.count and not figure.stale:
                continue  # it was the value of the cell, or displayed, and is as it was then
            show_figure(figure)
    finally:
        if Settings.close:
            pyplot.close("all")


def show_figure(figure):
    data, metadata = forms_of("matplotlib", figure)
    extras.send_bundle(data, metadata, False)


def show_inline(automatic):
    Settings.automatic = automatic


def configure(option, value):
    """Sets what `%config InlineBackend.option = value` names."""
    if option in ("figure_format", "figure_formats"):
        names = {value} if isinstance(value, str) else set(value)
        wrong = sorted(str(name) for name in names if name not in FORMATS and name not in ("retina", "png2x"))
        if wrong:
            raise ValueError("no figure format %s (known: %s, retina)" % (", ".join(wrong), ", ".join(sorted(FORMATS))))
        Settings.retina = bool(names & {"retina", "png2x"})
        if Settings.retina:
            names = names - {"retina", "png2x"} | {"png"}
        Settings.formats = tuple(sorted(names))
    elif option == "print_figure_kwargs":
        Settings.kwargs = dict(value)
    elif option == "close_figures":
        Settings.close = bool(value)
    elif option == "rc":
        import matplotlib

        matplotlib.rcParams.update(value)


def forms_of(library, value):
    """(data, metadata) of a figure; None for what else matplotlib makes."""
    figures = sys.modules.get("matplotlib.figure")
    if figures is None or not isinstance(value, figures.Figure):
        return None
    data, metadata = {}, {}
    for name in Settings.formats:
        data[FORMATS[name]] = draw(value, name)
    if Settings.retina:
        from_header = data["image/png"]
        width, height = (int.from_bytes(from_header[at:at + 4], "big") // 2 for at in (16, 20))
        metadata["image/png"] = {"width": width, "height": height}
    data["text/plain"] = extras.plain(value)
    try:
        chart = chart_of(value)
    except Exception:
        chart = None  # of an artist that is put together in a way we don't know
    if chart is not None:
        data[CHART] = chart
    value.stale = False
    _shown[value] = core.state.count
    return data, metadata


def draw(figure, name):
    dpi = figure.dpi * (2 if Settings.retina and name == "png" else 1)
    options = {"dpi": dpi, "facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor(), **Settings.kwargs}
    out = io.BytesIO()
    figure.canvas.print_figure(out, format=name, **options)
    raw = out.getvalue()
    return raw.decode("utf-8") if name == "svg" else raw


# --- charts ---------------------------------------------------------------------------------------------------------------------


class _Room:
    """How many points there is room for in the rest of a figure."""

    def __init__(self):
        self.points = MAX_POINTS


def chart_of(figure):
    """The chart of a figure as a JSON value; None where it holds none."""
    room = _Room()
    charts = []
    for axes in figure.axes:
        if axes.get_visible() and axes.get_label() != "<colorbar>" and len(charts) < MAX_CHARTS:
            charts.extend(_charts_of_axes(axes, room))
    above = getattr(figure, "_suptitle", None)
    above = _text(above.get_text()) if above is not None else ""
    if not charts:
        return None
    if len(charts) == 1:
        charts[0]["title"] = charts[0]["title"] or above
        return charts[0]
    return {"type": "superchart", "title": above, "elements": charts}


def _charts_of_axes(axes, room):
    if hasattr(axes, "get_zlim"):
        return [{"type": "unknown", "title": _title(axes), "elements": []}]
    look = _Look(axes)
    boxes = [entry for entry in _boxes.get(axes, ()) if any(artist in axes.lines for artist in entry[1]["medians"])]
    owned = {id(artist) for _, artists, _ in boxes for group in artists.values() for artist in group}
    containers = list(axes.containers)
    found = []
    bars = [one for one in containers if type(one).__name__ == "BarContainer"]
    if bars:
        found.append(_Chart("bar", [element for one in bars for element in _bars(axes, one, look)][:MAX_ELEMENTS]))
    if boxes:
        found.append(_Chart("box", [element for entry in boxes for element in _box_elements(axes, *entry)][:MAX_ELEMENTS]))
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    if wedges:
        found.append(_Chart("pie", [_wedge(one) for one in wedges[:MAX_ELEMENTS]]))
    lines, dots = [], []
    names = {}
    for one in containers:  # of error bars and stems, where the label belongs to the container
        for artist in _lines_in(one):
            owned.add(id(artist))
        main = _main_line(one)
        if main is not None:
            owned.discard(id(main))
            names[id(main)] = look.label(one)
    for line in axes.lines[:MAX_ELEMENTS]:
        if id(line) in owned or not line.get_visible() or not _in_data_space(line, axes):
            continue
        xs, ys = line.get_data(orig=False)
        if len(xs) and not (bars and _is_error_bar(line, xs, ys)):
            name = names.get(id(line)) or look.label(line, line.get_color())
            joined = str(line.get_linestyle()).lower() not in ("none", "", " ")
            (lines if joined else dots).append(look.series(name, xs, ys, room))
    for points in list(axes.collections)[:MAX_ELEMENTS]:
        if type(points).__name__ == "PathCollection" and points.get_visible() and len(points.get_offsets()):
            dots.extend(look.scatter(points, room))
    if dots:
        found.append(_Chart("scatter", dots))
    if lines:
        found.append(_Chart("line", lines))
    if not found:
        if not (axes.images or axes.collections or axes.patches or axes.texts):
            return []
        found.append(_Chart("unknown", []))
    return [one.json(axes, look) for one in found]


class _Chart:
    def __init__(self, kind, elements):
        self.kind, self.elements = kind, elements

    def json(self, axes, look):
        chart = {"type": self.kind, "title": _title(axes)}
        if self.kind != "pie":
            chart["x_axis"], chart["y_axis"] = look.x.json(), look.y.json()
        chart["elements"] = self.elements
        return chart


class _Look:
    """What the parts of one axes have in common: its two axes, and its legend."""

    def __init__(self, axes):
        self.x, self.y = _Axis(axes.xaxis), _Axis(axes.yaxis)
        self.names = {}
        legend = axes.get_legend()
        if legend is not None:
            from matplotlib.colors import to_hex

            handles = getattr(legend, "legend_handles", None) or getattr(legend, "legendHandles", None) or ()
            for handle, text in zip(handles, legend.get_texts()):
                color = _color_of(handle)
                if color is not None:
                    self.names.setdefault(to_hex(color), _text(text.get_text()))

    def label(self, artist, color=None):
        """Its own label, or what the legend says of its colour: some libraries label only the legend."""
        own = artist.get_label()
        if own is not None and not str(own).startswith("_"):
            return _text(own)
        return self.by_color(color)

    def by_color(self, color):
        if color is None or not self.names:
            return ""
        from matplotlib.colors import to_hex

        try:
            return self.names.get(to_hex(color), "")
        except (ValueError, TypeError):
            return ""

    def series(self, name, xs, ys, room):
        total = len(xs)
        count = max(0, min(total, room.points))
        room.points -= count
        step = -(-total // count) if count else 1
        if step > 1:
            xs, ys = xs[::step], ys[::step]
        elif count < total:
            xs, ys = xs[:count], ys[:count]
        points = [list(pair) for pair in zip(self.x.values(xs), self.y.values(ys))] if count else []
        element = {"label": name, "points": points}
        if len(points) < total:
            element["points_total"] = total
        return element

    def scatter(self, collection, room):
        import numpy

        offsets = numpy.ma.filled(numpy.ma.asarray(collection.get_offsets(), dtype=float), numpy.nan)
        colors = collection.get_facecolor()
        own = collection.get_label()
        if self.names and (own is None or str(own).startswith("_")) and len(colors) == len(offsets) > 1 and collection.get_array() is None:
            groups = {}
            for index, color in enumerate(colors.tolist()):
                groups.setdefault(self.by_color(color), []).append(index)
            return [self.series(name, offsets[chosen, 0], offsets[chosen, 1], room) for name, chosen in groups.items()]
        name = self.label(collection, colors[0] if len(colors) else None)
        return [self.series(name, offsets[:, 0], offsets[:, 1], room)]


class _Axis:
    """One axis: what is written at it, and what its numbers stand for."""

    def __init__(self, axis):
        self.axis = axis
        converter = axis.get_converter() if hasattr(axis, "get_converter") else getattr(axis, "converter", None)
        dates = sys.modules.get("matplotlib.dates")
        categories = sys.modules.get("matplotlib.category")
        self.names = None
        self.frequency = getattr(axis, "freq", None)  # set by pandas, whose numbers are then periods
        self.zone = None
        if self.frequency is not None and type(converter).__name__ == "PeriodConverter":
            self.scale = "datetime"
        elif dates is not None and isinstance(converter, dates.DateConverter) or self._has_date_ticks(dates):
            self.scale, self.frequency = "datetime", None
            self.zone = axis.get_units() if hasattr(axis, "get_units") else None
        elif categories is not None and isinstance(converter, categories.StrCategoryConverter):
            self.scale = "categorical"
            self.names = {index: name for name, index in axis.units._mapping.items()} if axis.units is not None else {}
        else:
            scale = axis.get_scale()
            self.scale = scale if isinstance(scale, str) else "unknown"

    def _has_date_ticks(self, dates):
        return dates is not None and isinstance(self.axis.get_major_formatter(), (dates.DateFormatter, dates.AutoDateFormatter, dates.ConciseDateFormatter))

    def values(self, numbers):
        """JSON values of numbers of this axis: ISO 8601 texts of dates, names of categories, null for what is no number."""
        import numpy

        numbers = numpy.ma.filled(numpy.ma.asarray(numbers, dtype=float), numpy.nan)
        if self.scale == "datetime" and len(numbers):
            return self._moments(numpy, numbers)
        listed = numbers.tolist()
        if self.names:
            return [self.names.get(int(value), value) if value == value and value == int(value) else _number(value) for value in listed]
        return listed if numpy.isfinite(numbers).all() else [_number(value) for value in listed]

    def _moments(self, numpy, numbers):
        if self.frequency is not None:
            pandas = sys.modules["pandas"]
            return [pandas.Period(ordinal=int(value), freq=self.frequency).to_timestamp().isoformat() if value == value else None for value in numbers.tolist()]
        from matplotlib import dates

        finite = numpy.isfinite(numbers)
        moments = numpy.datetime64(dates.get_epoch(), "us") + numpy.round(numpy.where(finite, numbers, 0) * 86400e6).astype("timedelta64[us]")
        whole = bool((moments == moments.astype("datetime64[s]")).all())
        end = "+00:00" if self.zone is not None else ""
        texts = numpy.datetime_as_string(moments, unit="s" if whole else "us").tolist()
        return [text + end if is_finite else None for text, is_finite in zip(texts, finite.tolist())]

    def ticks(self):
        """[(place, label)] of the ticks that are seen."""
        low, high = sorted(self.axis.get_view_interval())
        edge = abs(high - low) * 1e-9
        places = list(self.axis.get_majorticklocs())[:MAX_ELEMENTS]
        labels = [_tick_text(label.get_text()) for label in self.axis.get_majorticklabels()[:MAX_ELEMENTS]]
        labels += [""] * (len(places) - len(labels))
        return [(float(place), label) for place, label in zip(places, labels) if low - edge <= place <= high + edge]

    def json(self):
        ticks = self.ticks()
        label = _text(self.axis.get_label().get_text())
        return {
            "label": label,
            "unit": _unit(label),
            "scale": self.scale,
            "ticks": self._tick_values([place for place, _ in ticks]),
            "tick_labels": [text for _, text in ticks],
        }

    def _tick_values(self, places):
        # Places are multiples of a step, computed with its rounding error.
        return self.values(places) if self.scale == "datetime" else [_number("%.12g" % place) for place in places]

    def name_at(self, place, ticks):
        """What stands at a place: the nearest label where labels are names, else the number or date itself."""
        if self.scale == "datetime":
            return self.values([place])[0] or ""
        named = type(self.axis.get_major_formatter()).__name__ == "FixedFormatter" or type(self.axis.get_major_locator()).__name__ == "FixedLocator"
        if self.scale != "categorical" and not named:
            return "%.12g" % place
        if not ticks:
            return "%.12g" % place
        places = sorted(spot for spot, _ in ticks)
        apart = min((b - a for a, b in zip(places, places[1:])), default=1.0)
        nearest, label = min(ticks, key=lambda tick: abs(tick[0] - place))
        return label if label and abs(nearest - place) <= apart / 2 else "%.12g" % place


def _bars(axes, container, look):
    upright = getattr(container, "orientation", None) != "horizontal"
    along = look.x if upright else look.y
    ticks = along.ticks()
    color = container.patches[0].get_facecolor() if container.patches else None
    group = look.label(container, color)
    elements = []
    for patch in container.patches[:MAX_ELEMENTS]:
        start, width = (patch.get_x(), patch.get_width()) if upright else (patch.get_y(), patch.get_height())
        base, value = (patch.get_y(), patch.get_height()) if upright else (patch.get_x(), patch.get_width())
        element = {"label": along.name_at(start + width / 2, ticks), "group": group, "value": _number(value)}
        if along.scale not in ("datetime", "categorical"):
            element["start"], element["end"] = _number(start), _number(start + width)
        if base and not (look.y if upright else look.x).scale == "log":
            element["base"] = _number(base)
        elements.append(element)
    return elements


def _box_elements(axes, statistics, artists, vertical):
    look = _Look(axes)
    along = look.x if vertical else look.y
    ticks = along.ticks()
    for index, one in enumerate(statistics[:MAX_ELEMENTS]):
        label = one.get("label")
        if label is None or label == "":
            median = artists["medians"][index]
            spots = median.get_xdata(orig=False) if vertical else median.get_ydata(orig=False)
            label = along.name_at((float(spots[0]) + float(spots[-1])) / 2, ticks)
        outliers = [float(value) for value in list(one.get("fliers", ()))[:MAX_ELEMENTS]]
        yield {
            "label": _text(label),
            "min": _number(one["whislo"]),
            "first_quartile": _number(one["q1"]),
            "median": _number(one["med"]),
            "third_quartile": _number(one["q3"]),
            "max": _number(one["whishi"]),
            "outliers": [_number(value) for value in outliers],
        }


def _wedge(wedge):
    label = str(wedge.get_label())
    return {"label": "" if label.startswith("_") else _text(label), "angle": _number(wedge.theta2 - wedge.theta1), "radius": _number(wedge.r)}


def _lines_in(container):
    """Lines that an error bar or stem is drawn with."""
    if type(container).__name__ not in ("ErrorbarContainer", "StemContainer"):
        return
    for child in container.get_children():
        if type(child).__name__ == "Line2D":
            yield child


def _main_line(container):
    if type(container).__name__ == "ErrorbarContainer":
        return container[0]
    return container.markerline if type(container).__name__ == "StemContainer" else None


def _in_data_space(line, axes):
    """Lines across the axes, as axhline draws, are helps and no data."""
    return line.get_transform() == axes.transData


def _is_error_bar(line, xs, ys):
    """Whether a line beside bars only says how sure their height is: seaborn draws such lines by hand."""
    import numpy

    xs, ys = (numpy.asarray(numpy.ma.filled(numpy.ma.asarray(part, dtype=float), numpy.nan)) for part in (xs, ys))
    if not (numpy.isfinite(xs) & numpy.isfinite(ys)).any():
        return True
    return str(line.get_label()).startswith("_") and len(xs) <= 8 and ((xs == xs[0]).all() or (ys == ys[0]).all())


def _color_of(handle):
    for name in ("get_facecolor", "get_color", "get_markerfacecolor"):
        method = getattr(handle, name, None)
        if method is None:
            continue
        color = method()
        if type(color).__name__ == "ndarray" and color.ndim == 2:
            color = color[0] if len(color) else None
        if color is not None and not (isinstance(color, str) and color == "none"):
            return color
    return None


def _title(axes):
    for place in ("center", "left", "right"):
        text = axes.get_title(loc=place)
        if text:
            return _text(text)
    return ""


def _text(value):
    text = str(value)
    return text if len(text) <= MAX_LABEL else text[:MAX_LABEL] + "…"


def _tick_text(text):
    """A label without the markup that is put around numbers by default."""
    if text.startswith("$\\mathdefault{") and text.endswith("}$"):
        text = text[len("$\\mathdefault{"):-2].replace("{", "").replace("}", "")
    return _text(text)


def _unit(label):
    """What stands in brackets at the end of an axis label."""
    label = label.strip()
    for opening, closing in ("()", "[]"):
        if label.endswith(closing):
            start = label.rfind(opening)
            if start >= 0:
                return label[start + 1:-1].strip() or None
    return None


def _number(value):
    """A finite float, or None."""
    value = float(value)
    return value if value - value == 0 else None

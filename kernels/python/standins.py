"""What of IPython people use to show things, for interpreters without it: `IPython.display`, and the setting of matplotlib's formats.

Same names, arguments and representations, so that a cell written for a notebook runs. Everything else of IPython is missing here, and
says so as missing modules and names do.
"""
import sys

import _atoll_kernel_extras as extras

_MIME_OF_FORMAT = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "svg": "image/svg+xml"}


def _escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


class DisplayObject:
    """Data to show, given as it is, or by the path of a file, or by a URL that is fetched."""

    _binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        import os

        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if isinstance(data, str) and url is None and filename is None:
            if data.startswith(("http:", "https:")):
                data, url = None, data
            elif len(data) < 4096 and "\0" not in data and "\n" not in data and os.path.isfile(data):
                data, filename = None, data
        self.data = data
        self.url = url
        self.filename = None if filename is None else os.fspath(filename)
        self.metadata = dict(metadata or {})
        self.reload()

    def reload(self):
        """Reads the data again from the file or URL it was made with."""
        if self.filename is not None:
            with open(self.filename, "rb") as file:
                self.data = self._read(file.read())
        elif self.url is not None:
            from urllib.request import urlopen

            with urlopen(self.url) as answer:
                self.data = self._read(answer.read())

    def _read(self, raw):
        return raw if self._binary else raw.decode("utf-8", "replace")

    def _form(self):
        return (self.data, self.metadata) if self.metadata else self.data

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class TextDisplayObject(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if data is not None and not isinstance(data, str) and not hasattr(data, "__fspath__"):
            raise TypeError("%s expects text, not %r" % (type(self).__name__, data))
        super().__init__(data, url, filename, metadata)


class Printer:
    """What `_repr_pretty_` writes to, without line breaks of its own."""

    max_width, indentation = 79, 0

    def __init__(self):
        self._parts, self._seen = [], []

    def text(self, text):
        self._parts.append(text)

    def breakable(self, sep=" "):
        self._parts.append(sep)

    def break_(self):
        self._parts.append("\n")

    def begin_group(self, indent=0, open=""):
        self._parts.append(open)

    def end_group(self, dedent=0, close=""):
        self._parts.append(close)

    def group(self, indent=0, open="", close=""):
        import contextlib

        @contextlib.contextmanager
        def grouped():
            self.begin_group(indent, open)
            yield
            self.end_group(indent, close)

        return grouped()

    def indent(self, indent):
        return self.group()

    def flush(self):
        pass

    def pretty(self, value):
        method = None if isinstance(value, type) else getattr(type(value), "_repr_pretty_", None)
        if method is None:
            self._parts.append(repr(value))
            return
        cycle = any(value is one for one in self._seen)
        self._seen.append(value)
        try:
            method(value, self, cycle)
        finally:
            self._seen.pop()

    def written(self):
        return "".join(self._parts)


def pretty(value):
    """The text that `_repr_pretty_` of the value writes: by IPython's printer, where that has been loaded."""
    real = sys.modules.get("IPython.lib.pretty")
    if real is not None:
        return real.pretty(value)
    printer = Printer()
    printer.pretty(value)
    return printer.written()


class Pretty(TextDisplayObject):
    def _repr_pretty_(self, printer, cycle):
        printer.text(self.data or "")


class HTML(TextDisplayObject):
    def _repr_html_(self):
        return self._form()

    def __html__(self):
        return self.data


class Markdown(TextDisplayObject):
    def _repr_markdown_(self):
        return self._form()


class Latex(TextDisplayObject):
    def _repr_latex_(self):
        return self._form()


class Math(TextDisplayObject):
    def _repr_latex_(self):
        text = r"$\displaystyle %s$" % self.data.strip("$")
        return (text, self.metadata) if self.metadata else text


class SVG(DisplayObject):
    def _repr_svg_(self):
        text = self.data.decode("utf-8", "replace") if isinstance(self.data, bytes) else self.data
        start = text.find("<svg") if text else -1
        text = text[start:] if start > 0 else text  # a page that embeds it wants no XML header
        return (text, self.metadata) if self.metadata else text


class JSON(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **more):
        super().__init__(data, url, filename, {"expanded": expanded, "root": root, **(metadata or {}), **more})
        if isinstance(self.data, str):
            import json

            self.data = json.loads(self.data)

    def _repr_json_(self):
        return self._form()


class GeoJSON(JSON):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"application/geo+json": self.data, "text/plain": repr(self)}, {"application/geo+json": self.metadata}

    def _repr_json_(self):
        return None


class Javascript(TextDisplayObject):
    def __init__(self, data=None, url=None, filename=None, lib=None, css=None):
        self.lib = [lib] if isinstance(lib, str) else list(lib or ())
        self.css = [css] if isinstance(css, str) else list(css or ())
        super().__init__(data, url, filename)

    def _repr_javascript_(self):
        sheets = "".join("document.head.insertAdjacentHTML('beforeend', %s);\n" % extras.to_json('<link rel="stylesheet" href="%s">' % _escape(one)) for one in self.css)
        before = "".join("new Promise((done, failed) => { const s = document.createElement('script'); s.src = %s; s.onload = done; s.onerror = failed; "
                         "document.head.appendChild(s); }).then(() => {\n" % extras.to_json(one) for one in self.lib)
        return sheets + before + self.data + "\n});" * len(self.lib)


class Code(TextDisplayObject):
    def __init__(self, data=None, url=None, filename=None, language=None):
        self.language = language
        super().__init__(data, url, filename)

    def _repr_html_(self):
        return '<pre><code class="language-%s">%s</code></pre>' % (_escape(self.language or "text"), _escape(self.data))

    def _repr_latex_(self):
        return "\\begin{verbatim}\n%s\n\\end{verbatim}" % self.data

    def __repr__(self):
        return self.data


class _Media(DisplayObject):
    _binary = True

    def __init__(self, data=None, url=None, filename=None, embed=None, metadata=None):
        import os

        if isinstance(data, str) and url is None and filename is None and not data.startswith(("http:", "https:")):
            filename, data = data, None  # bytes are data, text is a path
        elif isinstance(data, os.PathLike):
            filename, data = os.fspath(data), None
        elif isinstance(data, str):
            url, data = data, None
        self.embed = (url is None) if embed is None else embed
        super().__init__(data, url, filename, metadata)

    def reload(self):
        if self.embed:
            super().reload()

    def _source(self, mime):
        if not self.embed:
            return _escape(self.url or self.filename)
        if isinstance(self.data, str):
            return "data:%s;base64,%s" % (mime, self.data)
        import binascii

        return "data:%s;base64,%s" % (mime, binascii.b2a_base64(self.data or b"", newline=False).decode("ascii"))


def _format_of(data):
    for start, name in ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp")):
        if data[:len(start)] == start:
            return name
    return None


def size_of_png(data):
    """(width, height) in pixels of a PNG file's header."""
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


class Image(_Media):
    def __init__(self, data=None, url=None, format=None, embed=None, width=None, height=None, retina=False, unconfined=False, metadata=None, alt=None, filename=None):
        super().__init__(data, url, filename, embed, metadata)
        self.width, self.height, self.alt, self.unconfined = width, height, alt, unconfined
        self.format = (format or self._guess()).lower()
        if self.format not in _MIME_OF_FORMAT:
            raise ValueError("cannot show an image of format %r (known: %s)" % (self.format, ", ".join(sorted(_MIME_OF_FORMAT))))
        if retina and self.embed and self.format == "png" and width is None and height is None:
            self.width, self.height = (length // 2 for length in size_of_png(self.data))

    def _guess(self):
        found = _format_of(self.data) if isinstance(self.data, bytes) else None
        if found:
            return found
        name = (self.filename or self.url or "").partition("?")[0]
        end = name.rpartition(".")[2].lower()
        return end if "." in name and end in _MIME_OF_FORMAT else "png"

    def _repr_mimebundle_(self, include=None, exclude=None):
        sizes = {name: size for name, size in (("width", self.width), ("height", self.height)) if size is not None}
        if not self.embed:
            attributes = "".join(' %s="%s"' % item for item in sizes.items()) + (' alt="%s"' % _escape(self.alt) if self.alt else "")
            return {"text/html": '<img src="%s"%s/>' % (_escape(self.url or self.filename), attributes)}
        mime = _MIME_OF_FORMAT[self.format]
        data = self.data.decode("utf-8", "replace") if mime == "image/svg+xml" and isinstance(self.data, bytes) else self.data
        more = {**self.metadata, **sizes, **({"alt": self.alt} if self.alt else {}), **({"unconfined": True} if self.unconfined else {})}
        return {mime: data}, ({mime: more} if more else {})


class Video(_Media):
    def __init__(self, data=None, url=None, filename=None, embed=False, mimetype=None, width=None, height=None, html_attributes="controls"):
        super().__init__(data, url, filename, embed or isinstance(data, bytes))
        self.mimetype, self.width, self.height, self.html_attributes = mimetype or "video/mp4", width, height, html_attributes

    def _repr_html_(self):
        sizes = "".join(' %s="%s"' % (name, size) for name, size in (("width", self.width), ("height", self.height)) if size)
        return '<video src="%s" %s%s></video>' % (self._source(self.mimetype), self.html_attributes, sizes)


class Audio(_Media):
    def __init__(self, data=None, filename=None, url=None, embed=None, rate=None, autoplay=False, normalize=True, element_id=None):
        if data is not None and not isinstance(data, (str, bytes)) and not hasattr(data, "__fspath__"):
            if rate is None:
                raise ValueError("rate must be given for samples")
            data = _wave(data, rate, normalize)
        super().__init__(data, url, filename, embed)
        self.autoplay, self.element_id = autoplay, element_id

    def _repr_html_(self):
        name = self.filename or self.url or ""
        mime = "audio/mpeg" if name.endswith(".mp3") else "audio/ogg" if name.endswith(".ogg") else "audio/wav"
        more = (' id="%s"' % _escape(self.element_id) if self.element_id else "") + (" autoplay" if self.autoplay else "")
        return '<audio controls%s><source src="%s" type="%s"/></audio>' % (more, self._source(mime), mime)


def _wave(samples, rate, normalize):
    import array
    import io
    import wave

    values = samples.tolist() if hasattr(samples, "tolist") else list(samples)
    channels = values if values and isinstance(values[0], (list, tuple)) else [values]
    top = max((abs(value) for channel in channels for value in channel), default=0)
    if not normalize and top > 1:
        raise ValueError("samples lie between -1 and 1 without normalize")
    scale = 32767 / top if normalize and top else 32767
    frames = array.array("h", (int(value * scale) for frame in zip(*channels) for value in frame))
    if sys.byteorder == "big":
        frames.byteswap()
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(int(rate))
        file.writeframes(frames.tobytes())
    return out.getvalue()


class IFrame:
    def __init__(self, src, width, height, extras=None, **parameters):
        self.src, self.width, self.height, self.extras, self.params = src, width, height, list(extras or ()), parameters

    def _repr_html_(self):
        from urllib.parse import urlencode

        source = self.src + ("?" + urlencode(self.params) if self.params else "")
        more = " ".join(self.extras)
        return '<iframe width="%s" height="%s" src="%s" frameborder="0" allowfullscreen %s></iframe>' % (self.width, self.height, _escape(source), more)

    def __repr__(self):
        return "<IPython.lib.display.%s object>" % type(self).__name__


class YouTubeVideo(IFrame):
    def __init__(self, id, width=400, height=300, allow_autoplay=False, **parameters):
        super().__init__("https://www.youtube.com/embed/" + id, width, height, **parameters)
        self.id = id


class FileLink:
    def __init__(self, path, url_prefix="", result_html_prefix="", result_html_suffix="<br>"):
        self.path, self.url_prefix, self.before, self.after = str(path), url_prefix, result_html_prefix, result_html_suffix

    def _repr_html_(self):
        return "%s<a href='%s' target='_blank'>%s</a>%s" % (self.before, _escape(self.url_prefix + self.path), _escape(self.path), self.after)

    def __repr__(self):
        import os

        return os.path.abspath(self.path)


class ProgressBar:
    """A bar that is shown once and then updated; also an iterator over range(total)."""

    def __init__(self, total):
        self.total, self._progress, self._handle = total, 0, extras.DisplayHandle()

    def display(self):
        extras.display(self, display_id=self._handle.display_id)

    def update(self):
        self._handle.update(self)

    @property
    def progress(self):
        return self._progress

    @progress.setter
    def progress(self, value):
        self._progress = value
        self.update()

    def __iter__(self):
        self.display()
        self._progress = -1
        return self

    def __next__(self):
        self.progress += 1
        if self._progress < self.total:
            return self._progress
        raise StopIteration

    def __repr__(self):
        done = int(60 * min(1, self._progress / self.total)) if self.total else 60
        return "[%s%s] %s/%s" % ("=" * done, " " * (60 - done), self._progress, self.total)

    def _repr_html_(self):
        return "<progress style='width:60ex' max='%s' value='%s'></progress>" % (self.total, self._progress)


def _display_as(name, mime):
    def show(*values, **options):
        if options.pop("raw", False):
            for value in values:
                extras.display({mime: value}, raw=True, metadata=options.get("metadata"))
        else:
            extras.display(*values, include=["text/plain", mime], **options)

    show.__name__ = "display_" + name
    return show


def _get_ipython():
    """The kernel's shell for the code itself; None, as outside of IPython, for libraries that look where they are."""
    return extras.shell_of_code() if extras.is_own_code(sys._getframe(1)) else None


def set_matplotlib_formats(*formats, **options):
    extras.part("figures").configure("figure_formats", set(formats))
    if options:
        extras.part("figures").configure("print_figure_kwargs", options)


def set_matplotlib_close(close=True):
    extras.part("figures").configure("close_figures", close)


_CLASSES = (DisplayObject, TextDisplayObject, Pretty, HTML, Markdown, Latex, Math, SVG, JSON, GeoJSON, Javascript, Code, Image, Video, ProgressBar)
_FUNCTIONS = (extras.display, extras.update_display, extras.clear_output, extras.publish_display_data, extras.DisplayHandle)
_OTHERS = (Audio, IFrame, YouTubeVideo, FileLink)
_SHOWS = tuple(
    _display_as(name, mime)
    for name, mime in (
        ("pretty", "text/plain"), ("html", "text/html"), ("markdown", "text/markdown"), ("svg", "image/svg+xml"), ("png", "image/png"),
        ("jpeg", "image/jpeg"), ("latex", "text/latex"), ("json", "application/json"), ("javascript", "application/javascript"), ("pdf", "application/pdf"),
    )
)
_CONTENT = {
    "IPython.display": (*_CLASSES, *_FUNCTIONS, *_OTHERS, *_SHOWS, set_matplotlib_formats, set_matplotlib_close),
    "IPython.core.display": (*_CLASSES, *_SHOWS, set_matplotlib_formats, set_matplotlib_close),
    "IPython.core.display_functions": _FUNCTIONS,
    "matplotlib_inline.backend_inline": (set_matplotlib_formats, set_matplotlib_close),
}
for _one in (*_CLASSES, *_OTHERS):
    _one.__module__ = "IPython.core.display"  # where the real ones are found, by their names


def fill(module):
    """Gives a stand-in module its names."""
    module.__doc__ = "Stand-in for %s, which is not installed (%%pip install ipython)." % module.__name__
    for item in _CONTENT.get(module.__name__, ()):
        setattr(module, item.__name__, item)
    if module.__name__ == "IPython":
        # The level of what is offered. Libraries ask for it before they ask for anything else.
        module.version_info, module.__version__ = (8, 24, 0, ""), "8.24.0"
        module.get_ipython = _get_ipython

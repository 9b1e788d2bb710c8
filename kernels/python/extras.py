"""What only some cells need: rich results, errors as text, top-level await, magics, `configure`, and repairs of library behaviour.

Modules of the standard library are imported where they are used: each costs memory in every idle sandbox.
"""
import _ast
import builtins
import os
import sys

import _atoll_kernel as core

from _atoll_kernel import CELL_PREFIX, CO_COROUTINE, TEXT_LIMIT, TOP_LEVEL_AWAIT, armed, context_cell, send, state

_quote = core._quote
KERNEL_FILES = frozenset((core.__file__, __file__, __file__.rpartition("/")[0] + "/kernel.py"))
# Dropped from a result as a whole when longer, since half a picture or page is none; text/plain is cut at TEXT_LIMIT instead.
RICH_LIMIT = 6 << 20
RESULT_LIMIT = (7 << 20) - (64 << 10)  # with metadata and names the 8 MiB that the agent takes
MESSAGE_LIMIT = 64 << 10
TRACEBACK_LIMIT = 256 << 10


class UsageError(Exception):
    """A magic that doesn't exist or is used wrongly."""


UsageError.__module__ = "builtins"


# --- JSON ---------------------------------------------------------------------------------------------------------------------


class Raw(str):
    """Text that is JSON already."""


def to_json(value):
    """JSON of what libraries put into bundles; raises for what has none."""
    if type(value) is Raw:
        return value
    if type(value) is str:
        return _quote(value)
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    import json

    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# --- display ------------------------------------------------------------------------------------------------------------------

_REPRS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)
# Libraries whose values have more, or better, forms than their own methods give, and the module beside this file that knows them.
_LIBRARIES = {"matplotlib": "figures", "pandas": "libraries", "polars": "libraries", "plotly": "libraries", "PIL": "libraries", "sympy": "libraries"}
# A kernel's line and the engine's messages are bounded, and a value is shown for people: nobody reads the hundredth form of it.
MAX_TYPES = 64
MAX_TYPE_NAME = 256
_to_clear = False  # the next displayed value takes the place of what the cell has displayed so far


def part(name):
    """A module beside this file, which is loaded when it is needed first."""
    return sys.modules.get("_atoll_kernel_" + name) or core.load("_atoll_kernel_" + name, core.FOLDER + "/" + name + ".py")


def plain(value):
    try:
        return exact(repr(value))
    except Exception as error:
        return "<%s object; its __repr__ raised %s: %s>" % (type(value).__name__, type(error).__name__, message_of(error))


def exact(text):
    """The text of an instance of a subclass of str, which may have any methods."""
    return text if type(text) is str else str.__str__(text)


def bundle_of(value):
    """(data, metadata) of a value by the display protocol. Methods are looked up on the type: proxies answer to every name."""
    data, metadata = {}, {}
    kind = type(value)
    if not isinstance(value, type):
        forms = _forms_of_library(kind, value)
        if forms is not None:
            data, metadata = forms
        else:
            _add_bundle(kind, value, data, metadata)
            for mime, name in _REPRS:
                if mime not in data:
                    _add_form(kind, value, mime, name, data, metadata)
    if "text/plain" not in data:
        data["text/plain"] = _pretty(kind, value) or plain(value)
    return data, metadata


def _pretty(kind, value):
    """What `_repr_pretty_` writes, where a class has one; it is IPython's way of a text for people."""
    if isinstance(value, type) or _method(kind, "_repr_pretty_") is None:
        return None
    try:
        return part("standins").pretty(value)
    except Exception as error:
        _note("%s._repr_pretty_ raised %s: %s", kind, error)
        return None


def _libraries_of(kind):
    for base in kind.__mro__:
        module = base.__dict__.get("__module__")
        library = module.partition(".")[0] if type(module) is str else ""
        if library in _LIBRARIES and library in sys.modules:
            yield library


def _forms_of_library(kind, value):
    for library in _libraries_of(kind):
        try:
            forms = part(_LIBRARIES[library]).forms_of(library, value)
        except Exception as error:
            _note("showing a %s raised %s: %s", kind, error)
            return None
        if forms is not None:
            return forms
    return None


def _method(kind, name):
    try:
        return getattr(kind, name, None)
    except Exception:  # a metaclass may answer as it likes
        return None


def _add_bundle(kind, value, data, metadata):
    whole = _method(kind, "_repr_mimebundle_")
    if whole is None:
        return
    try:
        answer = whole(value, include=None, exclude=None)
        if isinstance(answer, tuple):
            answer, more = answer
            metadata.update(more or {})
        data.update(answer or {})
    except Exception as error:
        _note("%s._repr_mimebundle_ raised %s: %s", kind, error)


def _add_form(kind, value, mime, name, data, metadata):
    method = _method(kind, name)
    if method is None:
        return
    try:
        answer = method(value)
    except Exception as error:
        if type(error).__name__ != "NotImplementedError":
            _note("%s." + name + " raised %s: %s", kind, error)
        return
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):
        answer, metadata[mime] = answer
    if answer is None:
        return
    binary = mime in ("image/png", "image/jpeg", "application/pdf")
    if isinstance(answer, str) or mime == "application/json" or binary and isinstance(answer, (bytes, bytearray, memoryview)):
        data[mime] = answer
    else:
        _say("%s.%s returned %s (expected: %s)" % (kind.__name__, name, type(answer).__name__, "bytes" if binary else "str"))


def _note(what, kind, error):
    """A broken representation is worth a line, not the cell."""
    _say(what % (kind.__name__, type(error).__name__, message_of(error)))


def _say(line):
    try:
        core.stderr.write(line + "\n")
    except (OSError, ValueError):
        pass


def _encode_form(mime, value):
    """JSON of one form of a value; None where it has none."""
    json = mime == "application/json" or mime.endswith("+json")
    if isinstance(value, (bytes, bytearray, memoryview)) and not json:
        import binascii

        return _quote(binascii.b2a_base64(value, newline=False).decode("ascii"))
    if isinstance(value, str) and (not json or type(value) is not Raw):
        return _quote(exact(value))
    # Other types of one's own may hold any JSON; what is known as text stays text.
    if json or isinstance(value, (dict, list)) and not mime.startswith(("text/", "image/")):
        try:
            return to_json(value)
        except Exception as error:
            if json:
                _say("%s is left out: %s: %s" % (mime, type(error).__name__, message_of(error)))
                return None
    return _quote(plain(value))


def encode_bundle(data, metadata):
    """Returns the JSON members of a result event, within the limits, and says what was left out."""
    members = []
    left_out = {}
    total = 0
    names = [mime for mime in data if isinstance(mime, str) and len(mime) <= MAX_TYPE_NAME][:MAX_TYPES]
    for mime in sorted(map(exact, names), key=lambda m: m != "text/plain"):
        value = data[mime]
        if value is None:
            continue
        if mime == "text/plain":
            value = exact(value) if isinstance(value, str) else plain(value)
            if len(value) > TEXT_LIMIT // 4:
                value, cut = shorten(value)
                if cut:
                    left_out[mime] = cut
        text = _encode_form(mime, value)
        if text is None:
            continue
        size = len(text) if text.isascii() else len(text.encode("utf-8", "atoll.json"))
        if mime != "text/plain" and size > RICH_LIMIT or total + size > RESULT_LIMIT:
            left_out[mime] = size
            continue
        total += size
        members.append(_quote(mime) + ":" + text)
    try:
        extra = to_json(metadata) if metadata else "{}"
    except Exception:
        extra = "{}"
    if len(extra) > TEXT_LIMIT // 4:
        left_out["metadata"] = len(extra)
        extra = "{}"
    line = '"data":{%s},"metadata":%s' % (",".join(members), extra)
    if left_out:
        parts = ",".join("%s:%d" % (_quote(mime), size) for mime, size in left_out.items())
        line += ',"truncated":%d,"left_out":{%s}' % (sum(left_out.values()), parts)
    return line


def shorten(text):
    """(at most TEXT_LIMIT bytes of UTF-8 from the start, bytes left out)"""
    raw = text.encode("utf-8", "atoll.json")
    if len(raw) <= TEXT_LIMIT:
        return text, 0
    kept = raw[:TEXT_LIMIT].decode("utf-8", "ignore")
    return kept, len(raw) - len(kept.encode("utf-8"))


def send_bundle(data, metadata, main, display_id=None, update=False):
    global _to_clear
    if state.child:
        builtins.print(data.get("text/plain", ""))
        return
    cell = context_cell.get() or state.cell
    if cell is None or cell is not state.cell:
        # Results belong to a running cell; from a thread of an ended one the text is all that can still be delivered.
        text = data.get("text/plain", "")
        core.emit(core.stdout, ((exact(text) if isinstance(text, str) else plain(text)) + "\n").encode("utf-8", "atoll.output"))
        return
    marks = ""
    if display_id is not None:
        marks += ',"display_id":%s' % _quote(exact(display_id))
    if update:
        marks += ',"update":true'
    elif _to_clear is cell:
        _to_clear = False
        marks += ',"clear":true'
    members = encode_bundle(data, metadata)
    send('{"event":"result","id":%s,"main":%s%s,%s}' % (_quote(cell.id), "true" if main else "false", marks, members))


def show_rich(value, main):
    if _displays_itself(value):
        return
    data, metadata = bundle_of(value)
    if main and type(value) in (dict, list) and len(data["text/plain"]) <= TEXT_LIMIT:
        json = core.plain_json(value)
        if json is not None:
            data["application/json"] = Raw(json)
    send_bundle(data, metadata, main)


def _displays_itself(value):
    """Whether the value has shown itself, as widgets do. Where that fails, its representations are shown."""
    method = None if isinstance(value, type) else _method(type(value), "_ipython_display_")
    if method is None or next(_libraries_of(type(value)), None) is not None:
        return False
    try:
        method(value)
        return True
    except Exception as error:
        if type(error).__name__ != "NotImplementedError":
            _note("%s._ipython_display_ raised %s: %s", type(value), error)
        return False


def display(*values, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False, clear=False, **ignored):
    """Shows values as results: HTML, images and so on where the object has such a representation, else its repr.

    include, exclude: MIME types to show, or not. raw: the values are dicts from MIME type to data. display_id: a name by which
    update_display replaces what is shown, or True for a new one; a DisplayHandle is then returned. clear: as clear_output(wait=True).
    """
    if clear:
        clear_output(True)
    transient = transient or {}
    if display_id is None:
        display_id = transient.get("display_id")
    handle = None
    if display_id is not None and display_id is not False:
        handle = DisplayHandle(None if display_id is True else display_id)
    for value in values:
        if not raw and handle is None and _displays_itself(value):
            continue
        _display_one(value, include, exclude, metadata, raw, handle and handle.display_id, bool(ignored.get("update")))
    return handle


def _display_one(value, include, exclude, metadata, raw, display_id, update):
    if raw and isinstance(value, dict):
        data, extra = dict(value), {}
    else:
        data, extra = bundle_of(value)
    if include:
        data = {mime: item for mime, item in data.items() if mime in include}
    if exclude:
        data = {mime: item for mime, item in data.items() if mime not in exclude}
    send_bundle(data, {**extra, **(metadata or {})}, False, display_id, update)


def update_display(value, *, display_id, raw=False, include=None, exclude=None, metadata=None, **ignored):
    """Replaces what was displayed under this display_id."""
    _display_one(value, include, exclude, metadata, raw, DisplayHandle(display_id).display_id, True)


class DisplayHandle:
    """What display(..., display_id=...) returns: shows other values in the same place."""

    def __init__(self, display_id=None):
        self.display_id = os.urandom(16).hex() if display_id is None else str(display_id)[:MAX_TYPE_NAME]

    def display(self, value, **options):
        display(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        update_display(value, display_id=self.display_id, **options)

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id


def clear_output(wait=False):
    """Forgets what the cell has displayed so far. wait: only when something new is displayed. What was printed stays."""
    global _to_clear
    cell = context_cell.get() or state.cell
    if state.child or cell is None or cell is not state.cell:
        return
    _to_clear = cell
    if not wait:
        send_bundle({}, {}, False)


def after_failed_cell(error):
    """Calls what comes after each cell for one that an exception has ended."""
    for hook in state.after_cell:
        try:
            armed(hook, error)
        except BaseException:
            pass  # the first exception is the one to tell


# --- errors -------------------------------------------------------------------------------------------------------------------


def message_of(error):
    try:
        text = str(error)
        return text if type(text) is str else str.__str__(text)
    except Exception:
        return "<%s whose __str__ raised an exception>" % type(error).__name__


def describe_end(error, name):
    """The members of `done` for a cell that an exception ended."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            code = 0
        elif not isinstance(code, int):
            try:
                armed(lambda: core.stderr.write("%s\n" % (code,)))
            except BaseException:
                pass
            code = 1
        return '"status":"exited","exit_code":%d' % (int(code) & 0xFF)
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    limit = sys.getrecursionlimit()
    if limit < 1000:
        sys.setrecursionlimit(1000)
    try:
        try:
            message, trace = armed(_texts, error, name)
        except BaseException as second:
            message = "<its text could not be made: %s>" % type(second).__name__
            trace = _bare_trace(error) + "%s: %s" % (type(error).__name__, message)
    finally:
        if limit < 1000:
            sys.setrecursionlimit(limit)
    parts = (_quote(type(error).__name__), _quote(_cut(message, MESSAGE_LIMIT)), _quote(_cut(trace, TRACEBACK_LIMIT)))
    return '"status":"%s","error":{"name":%s,"message":%s,"traceback":%s}' % ((status,) + parts)


def _texts(error, name):
    return message_of(error), trace_of(error, name)


def _cut(text, limit):
    if len(text) <= limit:
        return text
    return "%s\n... %d characters left out ...\n%s" % (text[:limit // 4], len(text) - limit, text[-(limit - limit // 4):])


def _bare_trace(error):
    """Line numbers without the traceback module, for when that one fails."""
    lines = ["Traceback (most recent call last):\n"]
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename not in KERNEL_FILES:
            lines.append('  File "%s", line %d, in %s\n' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return "".join(lines[:1] + lines[-40:]) if len(lines) > 1 else ""


def trace_of(error, name):
    """The traceback a person would see: frames of the user and of libraries, none of the kernel's."""
    import traceback

    refill_linecache()
    if isinstance(error, SyntaxError) and error.filename == name:
        _add_source_line(error, name)
    # The frames of a very deep recursion are read only as far as they are shown.
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    _drop_kernel_frames(told, set())
    if isinstance(error, SyntaxError) and not told.stack:
        return "".join(told.format_exception_only()).rstrip("\n")
    text = "".join(told.format(chain=True))
    return text.rstrip("\n")


def _add_source_line(error, name):
    """Errors found after parsing carry no text, because the interpreter looks for the file."""
    if error.text is None and error.lineno:
        lines = state.sources.get(name, "").splitlines()
        if 0 < error.lineno <= len(lines):
            error.text = lines[error.lineno - 1]


def _drop_kernel_frames(told, seen):
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    stack = told.stack
    if stack and stack[0].filename in KERNEL_FILES:
        # Everything up to the cell is machinery: the kernel's, and asyncio's where the cell awaits.
        first = next((i for i, frame in enumerate(stack) if frame.filename.startswith(CELL_PREFIX)), 0)
        del stack[:first]
    stack[:] = [frame for frame in stack if frame.filename not in KERNEL_FILES]
    _drop_kernel_frames(told.__cause__, seen)
    _drop_kernel_frames(told.__context__, seen)
    for inner in getattr(told, "exceptions", None) or ():
        _drop_kernel_frames(inner, seen)


def refill_linecache():
    """User code and libraries may clear the cache; the text of cells exists nowhere else."""
    import linecache

    for name, code in state.sources.items():
        if name not in linecache.cache:
            linecache.cache[name] = core.cache_entry(name, code)


def restore_streams():
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if stream is not core.stdout and stream is not core.stderr:
            try:
                armed(stream.flush)
            except BaseException:
                pass
    sys.stdout, sys.stderr = core.stdout, core.stderr


def leave_child(tail):
    """A forked process has come to the end of its cell: it ends like a script would, with what it left to do, and never returns."""
    status = 0
    if '"status":"exited"' in tail[:20]:
        status = int(tail.rpartition(":")[2])
    elif '"status":"ok"' not in tail[:20]:
        status = 130 if "interrupted" in tail[:25] else 1
        try:
            trace = core._decode("{" + tail + "}", 0)[0]["error"]["traceback"]
            core.stderr.write(trace + "\n")
        except Exception:
            pass
    try:
        import atexit

        atexit._run_exitfuncs()
    except BaseException:
        pass
    try:
        import gc

        state.namespace.clear()  # closes, and so flushes, the files that only the user's names hold
        gc.collect()
    except BaseException:
        pass
    core._exit(status)


# --- compiling what is not plain Python -----------------------------------------------------------------------------------------


def future_flags(tree):
    import __future__

    flags = 0
    for node in tree.body:
        if type(node) is _ast.ImportFrom and node.module == "__future__":
            for alias in node.names:
                feature = getattr(__future__, alias.name, None)
                flags |= getattr(feature, "compiler_flag", 0)
    return flags


def compile_big(code, name):
    """Compiles a cell of megabytes from its text; the last expression is looked for in its last lines only."""
    flags = state.flags | TOP_LEVEL_AWAIT
    if "__future__" in code[:4096]:
        head = compile(code[:4096].rpartition("\n")[0], name, "exec", flags | core.ONLY_AST, True)
        state.flags |= future_flags(head)
        flags |= state.flags
    end = len(code)
    if not code.rstrip().endswith(";"):
        for _ in range(50):
            start = code.rfind("\n", 0, end) + 1
            if start == 0 or len(code) - start > core.BIG_CELL:
                break
            end = start - 1
            if code[start:start + 1] in " \t\r\n#)]}":
                continue
            try:
                tail = compile(code[start:], name, "exec", flags | core.ONLY_AST, True)
            except SyntaxError:
                continue
            if len(tail.body) != 1 or type(tail.body[0]) is not _ast.Expr:
                break
            try:
                statements = compile(code[:start], name, "exec", flags, True)
            except SyntaxError:
                break
            lines = code.count("\n", 0, start)
            tail = compile("\n" * lines + code[start:], name, "exec", flags | core.ONLY_AST, True)
            return statements, compile(_ast.Expression(tail.body[0].value), name, "eval", flags, True)
    try:
        return compile(code, name, "exec", flags, True), None
    except SyntaxError as error:
        rewritten = rewrite_line_magics(code, name, flags, error)
    return compile(rewritten, name, "exec", flags, True), None


def parse_with_magics(code, name, flags, error):
    """Valid Python never comes here, so a `%` or `!` in it keeps its meaning. Each round rewrites the line the parser stumbled on."""
    return compile(rewrite_line_magics(code, name, flags, error), name, "exec", flags, True)


def rewrite_line_magics(code, name, flags, error):
    if "%" not in code and "!" not in code and "?" not in code:
        raise error
    lines = None
    while True:
        if lines is None:
            lines = code.split("\n")
        at = (error.lineno or 0) - 1
        if not 0 <= at < len(lines) or not _rewrite_line(lines, at):
            if error.text and "__atoll_" in error.text:
                error.text = code.split("\n")[at]
            raise error
        try:
            compile("\n".join(lines), name, "exec", flags | core.ONLY_AST, True)
            return "\n".join(lines)
        except SyntaxError as next_error:
            error = next_error


def _rewrite_line(lines, at):
    """Turns one magic line into a call, in place, keeping the count of lines; false if it is none."""
    line = lines[at]
    body = line.lstrip()
    indent = line[:len(line) - len(body)]
    target = ""
    asked = body.rstrip().strip("?")
    if asked != body.rstrip() and all(part.isidentifier() for part in asked.split(".")):
        lines[at] = indent + "__atoll_help__(%r, %r)" % (asked, "??" in body)
        return True
    if body[:1] not in ("%", "!"):
        target, equals, right = body.partition("=")
        right = right.lstrip()
        if not equals or right[:1] not in ("%", "!") or not _is_target(target):
            return False
        body = right
    last = at
    while body.endswith("\\") and last + 1 < len(lines):
        last += 1
        body = body[:-1] + (lines[last].lstrip() if body[:1] == "%" else lines[last])
        lines[last] = ""
    if body.startswith("!"):
        if body.startswith("!!"):
            body, target = body[1:], target or "_"
        call = "__atoll_%s__(%r)" % ("capture" if target else "shell", body[1:].strip())
    else:
        word, _, rest = body[1:].partition(" ")
        call = "__atoll_magic__(%r, %r)" % (word.strip(), rest.strip())
    lines[at] = indent + (target.strip() + " = " if target else "") + call
    return True


def _is_target(text):
    parts = [part.strip() for part in text.split(",")]
    return all(part.replace(".", "").isidentifier() for part in parts if part) and any(parts)


def rewrite_cell_magic(code):
    first, _, rest = code.partition("\n")
    word, _, arguments = first[2:].partition(" ")
    return "__atoll_cell_magic__(%r, %r, %r)" % (word.strip(), arguments.strip(), rest)


# --- shell and magics -----------------------------------------------------------------------------------------------------------


class Lines(list):
    """Output of `x = !command`: a list of lines, `.n` as one text, `.s` joined by spaces."""

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)

    l = property(list)


def _expand(text, frame):
    """`{expression}` and `$name` of Python in a command; what is none stays for the shell."""
    if "{" not in text and "$" not in text:
        return text
    import re

    def expression(match):
        inner = match.group(1)
        try:
            if inner.isidentifier() and inner not in frame.f_locals and inner not in frame.f_globals:
                return match.group(0)
            return str(eval(inner, frame.f_globals, frame.f_locals))
        except Exception:
            return match.group(0)

    def variable(match):
        name = match.group(1)
        for scope in (frame.f_locals, frame.f_globals):
            if name in scope:
                return str(scope[name])
        return match.group(0)

    text = re.sub(r"(?<!\$)\{([^{}\n]+)\}", expression, text)
    return re.sub(r"(?<![\\$\w])\$([A-Za-z_]\w*)", variable, text)


def _shell_path():
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def run_program(argv, capture=False, feed=None):
    """Runs a program in a process group of its own, so that an interrupt of the cell ends all of it. Returns (status, output)."""
    import signal
    import subprocess

    # An interrupt between the fork and the assignment would leave a program that nobody ends.
    masked = core._get_ident() == state.main_thread and state.armed
    if masked:
        state.armed = False
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if feed is not None else subprocess.DEVNULL if state.no_stdin else None,
            stdout=subprocess.PIPE if capture else None,
            start_new_session=True,
        )
    finally:
        if masked:
            state.armed = True
    try:
        if masked and state.pending:
            state.pending = False
            raise KeyboardInterrupt
        output, _ = process.communicate(feed)
    except BaseException:
        for number, patience in ((signal.SIGINT, 1), (signal.SIGTERM, 0.5), (signal.SIGKILL, None)):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
            try:
                process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                continue
        # Shells start background programs deaf to SIGINT, so the leader's end is not yet everybody's.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        raise
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    state.namespace["_exit_code"] = process.returncode
    return process.returncode, output


def shell(command):
    run_program([_shell_path(), "-c", _expand(command, sys._getframe(1))])


def capture(command):
    _, output = run_program([_shell_path(), "-c", _expand(command, sys._getframe(1))], capture=True)
    return Lines(output.decode("utf-8", "replace").splitlines())


def _split(text):
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError("%s: %s" % (text, error)) from None


def magic_pip(text, frame):
    words = _split(_expand(text, frame))
    if not words:
        raise UsageError("%pip: say what to do, for example: %pip install requests")
    if words[0] == "uninstall" and "-y" not in words and "--yes" not in words:
        words.append("-y")  # there is nobody to ask
    # The sandbox is the agent's own; Debian's guard against mixing pip and apt would only send it in circles.
    inherited = os.environ.get("PIP_BREAK_SYSTEM_PACKAGES")
    os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    try:
        status, _ = run_program([sys.executable, "-m", "pip", "--disable-pip-version-check", *words])
    finally:
        if inherited is None:
            os.environ.pop("PIP_BREAK_SYSTEM_PACKAGES", None)
    _see_new_packages()
    if status:
        raise ScriptError("pip %s failed with exit status %d; what it says is above" % (words[0], status))


def _see_new_packages():
    """A package folder that did not exist at start (the user's own, mostly) joins sys.path now."""
    import importlib
    import site

    if site.ENABLE_USER_SITE is not False:
        folder = site.getusersitepackages()
        if os.path.isdir(folder) and folder not in sys.path:
            site.addsitedir(folder)
    importlib.invalidate_caches()
    for name in STAND_INS:  # the real one may have come
        if is_stand_in(name):
            del sys.modules[name]


def magic_cd(text, frame):
    target = _expand(text.strip().strip("\"'"), frame) or "~"
    before = os.getcwd()
    if target == "-":
        target = state.namespace.get("_oldcwd", before)
    os.chdir(os.path.expanduser(target))
    state.namespace["_oldcwd"] = before
    builtins.print(os.getcwd())


def magic_pwd(text, frame):
    return os.getcwd()


def magic_env(text, frame):
    if not text:
        return dict(os.environ)
    name, equals, value = text.partition("=") if "=" in text else text.partition(" ")
    name = name.strip()
    if equals:
        os.environ[name] = _expand(value.strip(), frame)
        builtins.print("env: %s=%s" % (name, os.environ[name]))
        return None
    if name not in os.environ:
        raise UsageError("environment variable %s is not set" % name)
    return os.environ[name]


def _in_frame(code, frame, whole_cell):
    """Runs code in the scope of the line that used the magic; returns the value of its last expression."""
    if whole_cell:
        name, code = state.cell.name, "\n" + code  # below the line of the magic, so that line numbers are the cell's
    else:
        name = "%smagic %d>" % (CELL_PREFIX, state.count)
        core.remember_source(name, code)
    statements, last = core.compile_cell(code, name)
    scope = frame.f_globals if frame.f_locals is frame.f_globals else {**frame.f_globals, **frame.f_locals}
    if any(part is not None and part.co_flags & CO_COROUTINE for part in (statements, last)):
        raise UsageError("await is not possible inside a magic")
    if statements is not None:
        eval(statements, scope)
    return eval(last, scope) if last is not None else None


def magic_time(text, frame, body=None):
    import time

    cpu, wall = time.process_time(), time.perf_counter()
    try:
        return _in_frame(text if body is None else body, frame, body is not None)
    finally:
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        builtins.print("CPU time: %s\nWall time: %s" % (_duration(cpu), _duration(wall)))


def _duration(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return "%.3g %s" % (seconds * scale, unit)
    return "%.3g ns" % (seconds * 1e9)


def magic_timeit(text, frame, body=None):
    import timeit

    number, repeat, quiet = 0, 7, False
    while text.startswith("-"):
        option, _, text = text.partition(" ")
        if option == "-q":
            quiet = True
            continue
        value = option[2:]
        if not value:
            value, _, text = text.strip().partition(" ")
        if option[:2] not in ("-n", "-r") or not value.isdigit() or int(value) < 1:
            raise UsageError("%%timeit: options are -n COUNT, -r ROUNDS and -q, not %s %s" % (option, value))
        if option[:2] == "-n":
            number = int(value)
        else:
            repeat = int(value)
        text = text.lstrip()
    statement, setup = (text, "pass") if body is None else (body, text or "pass")
    if not statement.strip():
        raise UsageError("%timeit: nothing to time")
    scope = frame.f_globals if frame.f_locals is frame.f_globals else {**frame.f_globals, **frame.f_locals}
    timer = timeit.Timer(statement, setup, globals=scope)
    if not number:
        number, _ = timer.autorange()
    rounds = [spent / number for spent in timer.repeat(repeat, number)]
    mean = sum(rounds) / repeat
    spread = (sum((spent - mean) ** 2 for spent in rounds) / repeat) ** 0.5
    if not quiet:
        shape = (_duration(mean), _duration(spread), _duration(min(rounds)), repeat, number)
        builtins.print("%s per loop, deviation %s, best %s (%d rounds of %d loops)" % shape)


def magic_matplotlib(text, frame):
    """Figures are shown inline, as after `%matplotlib inline`, whatever is asked for: there are no windows."""
    if text.strip().strip("-") in ("list", "l"):
        builtins.print("Available matplotlib backends: ['inline']")
        return
    part("figures").show_inline(True)


def magic_config(text, frame):
    """Settings of IPython's: those for the look of figures are followed, all others are accepted and ignored."""
    name, equals, value = text.partition("=")
    owner, _, option = name.strip().partition(".")
    if owner == "InlineBackend" and equals:
        part("figures").configure(option, eval(value.strip(), frame.f_globals, frame.f_locals))


def magic_load_ext(text, frame):
    sys.stderr.write("%%load_ext %s: extensions of IPython do not exist here; the line does nothing\n" % text)


def magic_autoreload(text, frame):
    sys.stderr.write("%autoreload does nothing here: use importlib.reload(module) after a change\n")


def magic_run(text, frame):
    """Runs a file as if it were a cell: with the names that there are, and leaving its own."""
    words = _split(_expand(text, frame))
    if not words or words[0].startswith("-"):
        raise UsageError("%run: name a file, for example: %run script.py argument")
    path = os.path.abspath(os.path.expanduser(words[0]))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", 0, True)
    namespace = state.namespace
    missing = object()
    arguments, file_before = sys.argv, namespace.get("__file__", missing)
    sys.argv, namespace["__file__"] = [path, *words[1:]], path
    sys.path.insert(0, os.path.dirname(path))
    try:
        exec(code, namespace)
    finally:
        sys.argv = arguments
        if file_before is missing:
            namespace.pop("__file__", None)
        else:
            namespace["__file__"] = file_before
        if os.path.dirname(path) in sys.path:
            sys.path.remove(os.path.dirname(path))


def magic_reset(text, frame):
    """Forgets the names that cells have made; `-f` changes nothing, since there is nobody to ask."""
    for name in _own_names(frame):
        del state.namespace[name]


def magic_lsmagic(text, frame):
    builtins.print("Line magics: %s" % "  ".join("%" + name for name in sorted(LINE_MAGICS)))
    builtins.print("Cell magics: %s" % "  ".join("%%" + name for name in sorted(CELL_MAGICS)))


def magic_sx(text, frame):
    _, output = run_program([_shell_path(), "-c", _expand(text, frame)], capture=True)
    return Lines(output.decode("utf-8", "replace").splitlines())


def magic_script(text, frame, body):
    """%%script PROGRAM [ARGUMENT...]: the rest of the cell is its input."""
    words = _split(_expand(text, frame))
    if not words:
        raise UsageError("%%script: name a program, for example: %%script bash")
    try:
        status, _ = run_program(words, feed=body.encode("utf-8", "atoll.output"))
    except FileNotFoundError:
        raise UsageError("%%%%script: %s does not exist in this sandbox" % words[0]) from None
    if status:
        raise _script_error(status)


def _own_names(frame):
    return sorted(name for name in state.namespace if not name.startswith("_"))


def magic_who(text, frame):
    builtins.print("  ".join(_own_names(frame)) or "no names yet")


def magic_whos(text, frame):
    for name in _own_names(frame):
        value = state.namespace[name]
        text = repr(value) if type(value) in core._PLAIN else object.__repr__(value)
        builtins.print("%-16s %-16s %s" % (name, type(value).__name__, text if len(text) <= 80 else text[:77] + "..."))


def _file_magic(program):
    def run(text, frame):
        run_program([_shell_path(), "-c", program + " " + _expand(text, frame)])

    return run


def magic_python(text, frame, body):
    _run_code([sys.executable, "-c", body, *_split(text)])


class Captured:
    """What a %%capture cell wrote."""

    def __init__(self, stdout, stderr):
        self.stdout, self.stderr = stdout, stderr

    def __str__(self):
        return self.stdout

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __call__ = show


def magic_capture(text, frame, body):
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    names = [word for word in text.split() if not word.startswith("-")]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            _in_frame(body, frame, True)
    finally:
        if names:
            state.namespace[names[0]] = Captured(out.getvalue(), err.getvalue())


def _show_magic(mime):
    def show(text, frame, body):
        display({mime: body, "text/plain": body}, raw=True)

    return show


def help_on(name, with_source):
    """`name?` and `name??`."""
    import inspect

    frame = sys._getframe(1)
    value = eval(name, frame.f_globals, frame.f_locals)
    try:
        builtins.print("Signature: %s%s" % (name, inspect.signature(value)))
    except (TypeError, ValueError):
        pass  # no callable, or one that does not say
    builtins.print("Type:      %s" % type(value).__name__)
    if not callable(value) and not inspect.ismodule(value):
        text = repr(value)
        builtins.print("Value:     %s" % (text if len(text) <= 1000 else text[:1000] + "..."))
    source = None
    if with_source:
        try:
            source = inspect.getsource(value)
        except (TypeError, OSError):
            pass  # built in
    if source:
        builtins.print("Source:\n%s" % source.rstrip())
    else:
        builtins.print("Docstring: %s" % (inspect.getdoc(value) or "none"))


def magic_bash(text, frame, body):
    _run_script("/bin/bash", text, body)


def magic_sh(text, frame, body):
    _run_script("/bin/sh", text, body)


def _run_script(interpreter, text, body):
    if not os.path.exists(interpreter):
        raise UsageError("%s does not exist in this sandbox" % interpreter)
    _run_code([interpreter, "-c", body, interpreter, *_split(text)])


def _run_code(argv):
    status, _ = run_program(argv)
    if status:
        raise _script_error(status)


def _script_error(status):
    return ScriptError("the script ended with exit status %d" % status if status > 0 else "the script was killed by signal %d" % -status)


class ScriptError(Exception):
    """A program that a magic ran, and that failed: a script of %%bash, pip."""


ScriptError.__module__ = "builtins"


def magic_writefile(text, frame, body):
    words = _split(_expand(text, frame))
    append = "-a" in words
    words = [word for word in words if word not in ("-a", "--append")]
    if len(words) != 1:
        raise UsageError("%%writefile: name one file, for example: %%writefile notes.txt")
    path = os.path.expanduser(words[0])
    existed = os.path.exists(path)
    with open(path, "a" if append else "w", encoding="utf-8", newline="") as file:
        file.write(body)
    builtins.print("%s %s" % ("Appending to" if append else "Overwriting" if existed else "Writing", path))


LINE_MAGICS = {
    "pip": magic_pip,
    "cd": magic_cd,
    "pwd": magic_pwd,
    "env": magic_env,
    "set_env": magic_env,
    "time": magic_time,
    "timeit": magic_timeit,
    "matplotlib": magic_matplotlib,
    "config": magic_config,
    "load_ext": magic_load_ext,
    "reload_ext": magic_load_ext,
    "autoreload": magic_autoreload,
    "run": magic_run,
    "who": magic_who,
    "whos": magic_whos,
    "reset": magic_reset,
    "lsmagic": magic_lsmagic,
    "sx": magic_sx,
    "system": magic_sx,
    **{name: _file_magic(name) for name in ("ls", "cat", "cp", "mv", "mkdir", "rm", "rmdir")},
}
CELL_MAGICS = {
    "time": magic_time,
    "timeit": magic_timeit,
    "bash": magic_bash,
    "sh": magic_sh,
    "python": magic_python,
    "python3": magic_python,
    "capture": magic_capture,
    "writefile": magic_writefile,
    "file": magic_writefile,
    "script": magic_script,
    "html": _show_magic("text/html"),
    "HTML": _show_magic("text/html"),
    "markdown": _show_magic("text/markdown"),
    "latex": _show_magic("text/latex"),
    "svg": _show_magic("image/svg+xml"),
    "SVG": _show_magic("image/svg+xml"),
    "javascript": _show_magic("application/javascript"),
    "js": _show_magic("application/javascript"),
}


def line_magic(name, text, frame=None):
    function = LINE_MAGICS.get(name)
    if function is None:
        hint = "; %%%%%s exists as the first line of a cell" % name if name in CELL_MAGICS else ""
        raise UsageError("unknown magic %%%s (known: %s)%s" % (name, ", ".join("%" + m for m in sorted(LINE_MAGICS)), hint))
    return function(text, frame or sys._getframe(1))


def cell_magic(name, text, body, frame=None):
    function = CELL_MAGICS.get(name)
    if function is None:
        raise UsageError("unknown cell magic %%%%%s (known: %s)" % (name, ", ".join("%%" + m for m in sorted(CELL_MAGICS))))
    return function(text, frame or sys._getframe(1), body)


class Shell:
    """What get_ipython() returns where IPython is not installed: enough for code that runs magics through it."""

    @property
    def user_ns(self):
        return state.namespace

    def run_line_magic(self, name, line, _stack_depth=1):
        return line_magic(name, line, sys._getframe(1))

    def magic(self, line):
        name, _, rest = line.lstrip("%").partition(" ")
        return line_magic(name, rest, sys._getframe(1))

    def run_cell_magic(self, name, line, cell):
        return cell_magic(name, line, cell, sys._getframe(1))

    def system(self, command):
        run_program([_shell_path(), "-c", command])

    def getoutput(self, command, split=True):
        _, output = run_program([_shell_path(), "-c", command], capture=True)
        text = output.decode("utf-8", "replace")
        return Lines(text.splitlines()) if split else text

    def __getattr__(self, name):
        raise AttributeError("get_ipython().%s needs IPython, which is not installed here (%%pip install ipython)" % name)


def is_own_code(frame):
    """Whether a frame is of the code that is run here, and not of a library."""
    return frame.f_code.co_filename.startswith(CELL_PREFIX) or frame.f_globals.get("__name__") == "__main__"


_shell = None


def get_ipython():
    """IPython's shell on this kernel's names where IPython is installed (imported at the first call), else a small stand-in.

    Libraries never get the stand-in, and IPython's shell only once the code itself has asked: they want to know whether this is IPython.
    """
    if is_own_code(sys._getframe(1)):
        return shell_of_code()
    return None if isinstance(_shell, Shell) else _shell


def shell_of_code():
    global _shell
    if _shell is None:
        try:
            from IPython.core.interactiveshell import InteractiveShell
        except ImportError:
            _shell = Shell()
            return _shell
        kept = (sys.displayhook, sys.excepthook, sys.stdout, sys.stderr, builtins.display)
        names = {name: getattr(builtins, name) for name in ("exit", "quit", "input", "print", "get_ipython")}
        before = set(state.namespace)
        _shell = InteractiveShell.instance(user_module=sys.modules["__main__"], user_ns=state.namespace)
        sys.displayhook, sys.excepthook, sys.stdout, sys.stderr, builtins.display = kept
        for name, value in names.items():
            setattr(builtins, name, value)
        for name in ("exit", "quit", "get_ipython", "open"):
            if name not in before:
                state.namespace.pop(name, None)
        _shell.display_pub.publish = publish_display_data
        _shell.enable_gui = lambda gui=None: None
        _shell.enable_matplotlib = lambda gui=None: (magic_matplotlib(gui or "", None), ("inline", "inline"))[1]
    return _shell


# --- top-level await --------------------------------------------------------------------------------------------------------------


def ensure_loop():
    import asyncio

    if state.loop is not None and not state.loop.is_closed():
        return state.loop
    loop = None
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop = asyncio.get_event_loop()  # tasks of a loop that earlier cells used by hand go on in it
    except Exception:
        pass
    if loop is None or loop.is_closed() or loop.is_running():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    state.loop = loop
    return loop


async def _drive(statements, last, namespace):
    try:
        value = None
        if statements is not None:
            value = eval(statements, namespace)
            if statements.co_flags & CO_COROUTINE:
                await value
            value = None
        if last is not None:
            value = eval(last, namespace)
            if last.co_flags & CO_COROUTINE:
                value = await value
        return value
    except BaseException as error:
        if state.interrupts:
            state.interrupted_at = error.__traceback__  # before 3.10 a task forgets where it was cancelled
        raise


def run_in_loop(statements, last, namespace):
    """Runs a cell with top-level await as a task. The loop turns only during cells; tasks left in it go on with the next one."""
    import asyncio

    loop = ensure_loop()
    task = loop.create_task(_drive(statements, last, namespace))
    state.interrupts = 0
    state.task = task
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError as error:
        if state.interrupts:
            at, state.interrupted_at = state.interrupted_at or error.__traceback__, None
            raise KeyboardInterrupt().with_traceback(at) from None
        raise
    except BaseException:
        state.task = None
        _end_task(loop, task)
        raise
    finally:
        state.task = None


def _end_task(loop, task):
    """An interrupt or exit() left the cell's task half done: it is cancelled, and its `finally` blocks run."""
    if task.done() or loop.is_closed():
        return
    import asyncio

    task.cancel()
    try:
        loop.run_until_complete(asyncio.wait([task], timeout=5))
    except (SystemExit, Exception):
        pass
    if task.done() and not task.cancelled():
        task.exception()


def cancel_instead_of_raise(frame):
    """Called in the signal handler. An exception thrown into asyncio's own code loses callbacks, and one thrown into a task of an earlier
    cell ends the wrong one, so there the cell's task is cancelled. The second interrupt is thrown all the same, wherever it hits."""
    asyncio = sys.modules["asyncio"]
    if state.interrupts or asyncio._get_running_loop() is not state.loop:
        return False
    module = frame.f_globals.get("__name__", "")
    inside = module.startswith("asyncio.") or module == "selectors"
    if not inside and asyncio.current_task(state.loop) is state.task:
        return False
    state.interrupts += 1
    state.loop.call_soon_threadsafe(state.task.cancel)
    return True


def let_tasks_run():
    """A few turns of the loop after a cell without await, if tasks of earlier cells are waiting in it: from a timer that has run out
    to the line after the await it takes three."""
    import asyncio

    loop = state.loop
    if loop.is_closed() or loop.is_running() or not asyncio.all_tasks(loop):
        return
    for _ in range(4):
        loop.call_soon(loop.stop)
        loop.run_forever()


class _OutsideLoop:
    """Steps out of the running loop, so that code written as a script may run another one to its end."""

    def __init__(self, loop):
        import asyncio

        self.loop = loop
        self.asyncio = asyncio
        self.task = None

    def __enter__(self):
        self.task = self.asyncio.current_task(self.loop)
        self.asyncio._set_running_loop(None)
        if self.task is not None:
            self.asyncio.tasks._leave_task(self.loop, self.task)

    def __exit__(self, *ignored):
        self.asyncio._set_running_loop(self.loop)
        if self.task is not None:
            self.asyncio.tasks._enter_task(self.loop, self.task)
        self.asyncio.set_event_loop(self.loop)


def adapt_asyncio(asyncio):
    import functools

    def outside(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            running = asyncio._get_running_loop()
            if running is not None and running is state.loop and (not args or args[0] is not running):
                with _OutsideLoop(running):
                    return function(*args, **kwargs)
            return function(*args, **kwargs)

        return wrapper

    inner_run = outside(asyncio.run)

    @functools.wraps(asyncio.run)
    def run(*args, **kwargs):
        try:
            return inner_run(*args, **kwargs)
        finally:
            # asyncio.run leaves its thread without a current loop, which `get_event_loop` of a later cell then minds; ours must stay it.
            if core._get_ident() == state.main_thread:
                if state.loop is None or state.loop.is_closed():
                    state.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(state.loop)

    asyncio.run = asyncio.runners.run = run
    if hasattr(asyncio, "Runner"):
        asyncio.Runner.run = outside(asyncio.Runner.run)
    base = asyncio.base_events.BaseEventLoop
    base.run_until_complete = outside(base.run_until_complete)
    base.run_forever = outside(base.run_forever)
    inner_create = asyncio.create_task

    @functools.wraps(inner_create)
    def create_task(coro, **kwargs):
        if asyncio._get_running_loop() is None and core._get_ident() == state.main_thread and state.cell is not None:
            return ensure_loop().create_task(coro, **kwargs)
        return inner_create(coro, **kwargs)

    asyncio.create_task = asyncio.tasks.create_task = create_task


# --- other modules, adapted when they are imported ------------------------------------------------------------------------------------


def adapt_linecache(linecache):
    refill_linecache()


def adapt_inspect(inspect):
    """inspect asks a class for its module's file; the classes of __main__ lie in as many files as there are cells."""
    import functools

    original = inspect.getfile

    @functools.wraps(original)
    def getfile(object):
        if isinstance(object, type) and getattr(object, "__module__", None) == "__main__":
            name = _cell_of_class(object)
            if name is not None:
                return name
        return original(object)

    inspect.getfile = getfile


def _cell_of_class(cls):
    import re

    refill_linecache()
    for member in list(vars(cls).values()):
        member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        code = getattr(member, "__code__", None)
        if code is not None and code.co_filename in state.sources and getattr(member, "__qualname__", "").startswith(cls.__qualname__ + "."):
            return code.co_filename
    pattern = re.compile(r"^[ \t]*class[ \t]+%s\b" % re.escape(cls.__name__), re.M)
    for name in reversed(list(state.sources)):
        if pattern.search(state.sources[name]):
            return name
    return None


def adapt_futures(module):
    """Work given to a pool prints for the cell that gave it, not for the one that happened to start the worker thread."""
    import functools

    original = module.ThreadPoolExecutor.submit

    def in_cell(cell, function, args, kwargs):
        token = context_cell.set(cell)
        try:
            return function(*args, **kwargs)
        finally:
            context_cell.reset(token)

    @functools.wraps(original)
    def submit(self, *args, **kwargs):
        if not args:
            return original(self, *args, **kwargs)
        return original(self, in_cell, context_cell.get(), args[0], args[1:], kwargs)

    module.ThreadPoolExecutor.submit = submit


def adapt_getpass(module):
    import functools

    original = module.getpass

    @functools.wraps(original)
    def getpass(prompt="Password: ", stream=None):
        if state.no_stdin and sys.stdin is sys.__stdin__:
            raise EOFError(core.NOBODY_ANSWERS % "getpass()")
        return original(prompt, stream)

    module.getpass = getpass


def breakpoint_hook(*args, **kwargs):
    # A debugger of the user's own choice knows what it does.
    if state.no_stdin and sys.stdin is sys.__stdin__ and not os.environ.get("PYTHONBREAKPOINT"):
        raise EOFError(core.NOBODY_ANSWERS % "breakpoint()")
    return sys.__breakpointhook__(*args, **kwargs)


def name_file(tree, code):
    """Programs written as a file ask for their folder by __file__; a cell is as good as a file in the working folder."""
    import ast

    if "__file__" in state.namespace:
        return
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "__file__":
            if not isinstance(node.ctx, ast.Load):
                return
            names.append(node)
        elif isinstance(node, (ast.arg, ast.alias)) and "__file__" in (getattr(node, "arg", None), getattr(node, "asname", None)):
            return
    path = os.path.join(os.getcwd(), "cell.py")
    for node in names:
        # In place: a constant where the name was, so that no name is left behind that is not the program's.
        node.__class__ = ast.Constant
        del node.id, node.ctx
        node.value, node.kind = path, None


def publish_display_data(data, metadata=None, source=None, *, transient=None, update=False, **ignored):
    """What IPython's own classes call to show a bundle."""
    display_id = (transient or {}).get("display_id")
    send_bundle(dict(data), dict(metadata or {}), False, None if display_id is None else DisplayHandle(display_id).display_id, update)


def adapt_ipython_display(module):
    for function in (display, update_display, clear_output, publish_display_data, DisplayHandle):
        if hasattr(module, function.__name__):
            setattr(module, function.__name__, function)


def adapt_matplotlib(module):
    part("figures").adapt(module)


def adapt_inline_backend(module):
    for function in (part("standins").set_matplotlib_formats, part("standins").set_matplotlib_close):
        setattr(module, function.__name__, function)


def adapt_plotly(module):
    part("libraries").adapt_plotly(module)


def adapt_pillow(module):
    part("libraries").adapt_pillow(module)


ADAPTED = {
    "asyncio": adapt_asyncio,
    "getpass": adapt_getpass,
    "linecache": adapt_linecache,
    "inspect": adapt_inspect,
    "concurrent.futures.thread": adapt_futures,
    "IPython.core.display_functions": adapt_ipython_display,
    "IPython.core.display": adapt_ipython_display,  # where they were before IPython 7.23
    "matplotlib": adapt_matplotlib,
    "matplotlib.figure": adapt_matplotlib,
    "matplotlib.pyplot": adapt_matplotlib,
    "matplotlib_inline.backend_inline": adapt_inline_backend,
    "plotly.io._renderers": adapt_plotly,
    "PIL.ImageShow": adapt_pillow,
}
STAND_INS = frozenset(
    ("IPython", "IPython.display", "IPython.core", "IPython.core.display", "IPython.core.display_functions", "matplotlib_inline", "matplotlib_inline.backend_inline")
)


class StandIns:
    """Last on sys.meta_path: what of IPython people use to show things, where IPython is not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in STAND_INS or name.partition(".")[0] in sys.modules and not is_stand_in(name.partition(".")[0]):
            return None
        from _frozen_importlib import ModuleSpec

        return ModuleSpec(name, StandIns, is_package=name.count(".") < 1 or name == "IPython.core")

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        part("standins").fill(module)


def is_stand_in(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None) is StandIns


class ImportHook:
    """First on sys.meta_path: lets the modules in ADAPTED load as ever, then adapts them."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        adapt = ADAPTED.get(name)
        if adapt is None:
            return None
        for finder in sys.meta_path:
            if finder is ImportHook or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is None:
                continue
            loader = spec.loader
            if hasattr(loader, "exec_module") and hasattr(loader, "__dict__") and not isinstance(loader, type):

                def exec_module(module):
                    del loader.exec_module
                    loader.exec_module(module)
                    adapt(module)

                loader.exec_module = exec_module
            return spec
        return None


# --- configure ------------------------------------------------------------------------------------------------------------------------


def configure(message):
    fields = ',"id":%s' % _quote(message["id"]) if message.get("id") else ""
    env, unset = message.get("env") or {}, message.get("unset") or ()
    for name, value in env.items():
        os.environ[name] = value
    for name in unset:
        os.environ.pop(name, None)
    if "TZ" in env or "TZ" in unset:
        import time

        time.tzset()
    if "HOSTNAME" in env and hasattr(sys.modules.get("platform"), "_uname_cache"):
        sys.modules["platform"]._uname_cache = None
    if message.get("seed"):
        unseeded = reseed(bytes.fromhex(message["seed"]))
        if unseeded:
            fields += ',"unseeded":%s' % _quote("; ".join(unseeded))
    if message.get("cwd"):
        try:
            os.chdir(message["cwd"])
        except OSError as error:
            fields += ',"error":{"name":%s,"message":%s}' % (_quote(type(error).__name__), _quote(str(error)))
    send('{"event":"configured"%s}' % fields)


def set_environment(env):
    """Sets variables for one cell; returns what was there, for restore_environment."""
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    return before


def restore_environment(before):
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def reseed(seed):
    """Seeds anew what lives in memory, or every clone of this process would go on with the same numbers; returns what could not be.

    What is imported later seeds itself from the system, as do uuid4, secrets, os.urandom and every generator made later. Left alone is
    what the user's own code has made or copied: instances of random.Random and numpy.random.Generator, states that were saved.
    """
    failed = []
    for name, reseed_one in RESEEDED.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        try:
            # Each from a number of its own: two generators of one kind would give the same numbers.
            reseed_one(module, bytes(a ^ b for a, b in zip(seed, name.encode().ljust(len(seed), b"."))))
        except BaseException as error:
            failed.append("%s: %s: %s" % (name, type(error).__name__, error))
    return failed


def _reseed_random(random, seed):
    # Not by random.seed, which the user's code may have replaced.
    import _random

    generator = getattr(random, "_inst", None)
    if isinstance(generator, _random.Random):
        _random.Random.seed(generator, int.from_bytes(seed, "big"))
        generator.gauss_next = None


def _reseed_tempfile(tempfile, seed):
    tempfile._name_sequence = None


def _reseed_uuid(uuid, seed):
    node = getattr(uuid, "_node", None)
    if isinstance(node, int) and node >> 40 & 1:  # made up, for want of a network card
        uuid._node = None


def _reseed_numpy(random, seed):
    generator = getattr(getattr(random, "mtrand", None), "_rand", None)
    if generator is None:  # a module of the user's of that name, or one whose import has failed
        return
    words = [int.from_bytes(seed[i:i + 4], "little") for i in range(0, len(seed), 4)]
    try:
        generator.seed(words)
    except TypeError:  # set_bit_generator has put another kind in place of the usual one
        random.set_bit_generator(type(random.get_bit_generator())(words))


def _reseed_torch(torch, seed):
    if hasattr(torch, "manual_seed"):
        torch.manual_seed(int.from_bytes(seed, "big") & (1 << 63) - 1)


def _reseed_ssl(ssl, seed):
    if hasattr(ssl, "RAND_add"):
        ssl.RAND_add(seed, float(len(seed)))


RESEEDED = {
    "random": _reseed_random,
    "tempfile": _reseed_tempfile,
    "uuid": _reseed_uuid,
    "numpy.random": _reseed_numpy,
    "torch": _reseed_torch,
    "_ssl": _reseed_ssl,
}


def install():
    sys.meta_path.insert(0, ImportHook)
    sys.meta_path.append(StandIns)
    for name, adapt in ADAPTED.items():
        if name in sys.modules:
            adapt(sys.modules[name])
    builtins.__atoll_shell__ = shell
    builtins.__atoll_capture__ = capture
    builtins.__atoll_magic__ = line_magic
    builtins.__atoll_help__ = help_on
    builtins.__atoll_cell_magic__ = cell_magic
    builtins.display = display
    builtins.get_ipython = get_ipython
    sys.breakpointhook = breakpoint_hook

"""The part of the kernel that every cell passes through: protocol, output, threads, forks, signals, compiling, running.

How it holds together:

* User code runs on the main thread only between `state.armed = True` and `state.armed = False`; SIGINT becomes KeyboardInterrupt
  there and nowhere else. Functions in CRITICAL hold a lock or write the protocol, so an interrupt that hits one of them waits
  until it has finished (`state.pending`).
* Each cell is a Cell object, kept in a context variable. Tasks inherit it by asyncio, threads by the wrapped thread start. Output whose
  context names a cell that has ended is sent as a `late` event and never reaches the pipes of the running cell.
* Nothing here is looked up through names that user code is likely to replace (os.write, sys.stdout, ...).
"""
import _ast
import _contextvars
import _json
import _signal
import _thread
import builtins
import io
import os
import sys

from errno import EBADF
from fcntl import F_DUPFD_CLOEXEC, fcntl

_read, _write, _fstat, _dup2, _exit = os.read, os.write, os.fstat, os.dup2, os._exit
_get_ident = _thread.get_ident
_set_signal, _get_signal, _SIGINT = _signal.signal, _signal.getsignal, _signal.SIGINT
_quote = _json.encode_basestring

FOLDER = ""
CELL_PREFIX = "<cell "
PRIVATE_FD = 200
TEXT_LIMIT = 1 << 20
CHUNK = 1 << 20
# Above this size a cell is compiled without building the tree as Python objects, which takes 400 bytes for each byte of code.
BIG_CELL = 128 << 10
TOP_LEVEL_AWAIT = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ONLY_AST = _ast.PyCF_ONLY_AST
CO_COROUTINE = 0x80


class Cell:
    """One execution: `id` is the protocol's, `name` the file name that its code carries."""

    __slots__ = ("id", "name", "__weakref__")

    def __init__(self, id, name):
        self.id = id
        self.name = name


class State:
    """Everything that changes while the kernel runs. Guarded by `lock`: cell, stream, and writes to the event descriptor."""

    def __init__(self):
        self.lock = _thread.RLock()  # re-entrant: a signal handler or finalizer of the user may print while we write
        self.cell = None  # the running cell
        self.previous = None
        self.stream = None  # the stream written last in this cell
        self.armed = False
        self.pending = False
        self.child = False  # true in a process forked by user code
        self.count = 0
        self.flags = 0  # of `from __future__ import ...` in earlier cells
        self.main_thread = _get_ident()
        self.namespace = {}
        self.user_sigint = None
        self.loop = None  # the event loop of top-level await, and the task that runs the cell in it
        self.task = None
        self.interrupts = 0  # that the task was asked to end by
        self.interrupted_at = None
        self.commands = self.events = self.acks = -1
        self.input = b""  # read from `commands` and not yet served
        self.kept = {}  # fd -> (private copy, (st_dev, st_ino)), to repair what user code closes
        self.no_stdin = False
        self.sources = {}
        self.sources_size = 0
        # Called after the code of each cell, as part of it, with the exception that ended it or None (figures to show, ...).
        self.after_cell = []


state = State()
context_cell = _contextvars.ContextVar("atoll_cell", default=None)
extras = None


# --- output -------------------------------------------------------------------------------------------------------------------


def _keep_unencodable(error):
    """surrogateescape for what came from bytes, a visible escape for every other lone surrogate."""
    out = bytearray()
    for ch in error.object[error.start:error.end]:
        code = ord(ch)
        out += bytes((code - 0xDC00,)) if 0xDC80 <= code <= 0xDCFF else b"\\u%04x" % code
    return bytes(out), error.end


def _replacement_character(error):
    return b"\xef\xbf\xbd" * (error.end - error.start), error.end


def _register_error_handlers():
    import _codecs

    _codecs.register_error("atoll.output", _keep_unencodable)
    _codecs.register_error("atoll.json", _replacement_character)


def _write_all(fd, data):
    """Writes every byte; survives partial writes and descriptors that someone has made non-blocking."""
    sent = 0
    size = len(data)
    view = memoryview(data)
    while sent < size:
        try:
            sent += _write(fd, view[sent:sent + CHUNK])
        except BlockingIOError:
            _wait_writable(fd)
        if state.pending and fd < PRIVATE_FD:
            return  # an interrupt need not wait for the rest of a gigabyte


def _wait_writable(fd):
    import select

    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll(1000)


def emit(stream, data):
    """Writes bytes to fd 1 or 2, or as a `late` event if they come from a cell that has ended."""
    cell = context_cell.get()
    with state.lock:
        live = state.cell
        if (cell is not live and cell is not None or live is None) and not state.child:
            _late(cell or state.previous, stream, data)
        else:
            if state.stream is not stream:
                if state.stream is not None and not state.child:
                    _write_all(state.events, b'{"event":"flush"}\n')
                    _take_ack()
                state.stream = stream
            try:
                sent = _write(stream._fd, data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                _write_all(stream._fd, memoryview(data)[sent:])
    if state.pending and state.armed and _get_ident() == state.main_thread:
        state.pending = False
        raise KeyboardInterrupt


def _take_ack():
    while True:
        try:
            if not _read(state.acks, 1):
                _exit(0)  # the agent has gone
            return
        except BlockingIOError:
            import select

            select.select([state.acks], [], [], 1)


def _late(cell, stream, data):
    if cell is None:
        return
    for start in range(0, len(data), CHUNK):
        text = bytes(data[start:start + CHUNK]).decode("utf-8", "replace")
        line = '{"event":"late","id":%s,"stream":"%s","text":%s}\n' % (_quote(cell.id), stream.label, _quote(text))
        _write_all(state.events, line.encode("utf-8", "atoll.json"))


def send(line):
    """Sends one event, given as JSON text without the newline."""
    with state.lock:
        if not state.child:
            _write_all(state.events, (line + "\n").encode("utf-8", "atoll.json"))


class Buffer(io.BufferedIOBase):
    """sys.stdout.buffer: unbuffered, and never really closed, since wrappers close it when they are collected."""

    mode = "wb"

    def __init__(self, stream):
        self._stream = stream

    @property
    def name(self):
        return self._stream.name

    @property
    def raw(self):
        return io.FileIO(self._stream._fd, "wb", closefd=False)

    closed = False

    def write(self, data):
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        data = memoryview(data)
        if data.nbytes:
            emit(self._stream, data.cast("B") if data.contiguous else data.tobytes())
        return data.nbytes

    def writable(self):
        return True

    def fileno(self):
        return self._stream._fd

    def isatty(self):
        return False

    def flush(self):
        pass

    def close(self):
        pass

    def detach(self):
        raise io.UnsupportedOperation("the kernel's standard streams can't be detached")


class Stream(io.TextIOBase):
    """sys.stdout and sys.stderr: each write goes through to the descriptor at once, in order across both streams."""

    encoding = "utf-8"
    errors = "surrogateescape"
    newlines = None
    mode = "w"
    line_buffering = True
    write_through = True

    def __init__(self, fd, label):
        self._fd = fd
        self._shut = False
        self.label = label
        self.name = "<%s>" % label
        self.buffer = Buffer(self)

    def write(self, text):
        if type(text) is not str and not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if self._shut:
            raise ValueError("I/O operation on closed file.")
        if text:
            emit(self, text.encode("utf-8", "atoll.output"))
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    @property
    def closed(self):
        return self._shut

    def close(self):
        self._shut = True  # for the rest of this cell

    def flush(self):
        if self._shut:
            raise ValueError("I/O operation on closed file.")

    def fileno(self):
        return self._fd

    def isatty(self):
        return False

    def writable(self):
        return True

    def readable(self):
        return False

    def seekable(self):
        return False

    def reconfigure(self, **options):
        """Accepted and without effect: the stream is UTF-8 and unbuffered."""

    def detach(self):
        return self.buffer

    def __repr__(self):
        return "<_io.TextIOWrapper name=%r mode='w' encoding='utf-8'>" % self.name

    def __reduce__(self):
        raise TypeError("cannot pickle %r object" % type(self).__name__)


stdout = Stream(1, "stdout")
stderr = Stream(2, "stderr")
_builtin_print = builtins.print
_builtin_input = builtins.input


def print(*args, sep=None, end=None, file=None, flush=False):
    """Prints the values to a stream, or to sys.stdout by default.

    sep: string inserted between values, default a space. end: string appended after the last value, default a newline.
    file: a file-like object; defaults to the current sys.stdout. flush: whether to forcibly flush the stream.
    """
    # The interpreter's own print writes text and end apart, which would be two system calls for each line.
    if file is None:
        file = getattr(sys, "stdout", None)
    if type(file) is not Stream or (end is not None and type(end) is not str) or (sep is not None and type(sep) is not str):
        return _builtin_print(*args, sep=sep, end=end, file=file, flush=flush)
    if end is None:
        end = "\n"
    if len(args) == 1:
        text = str(args[0])
        if len(text) < CHUNK:
            file.write(text + end)
        else:
            file.write(text)
            file.write(end)
        return
    if sep is None:
        sep = " "
    parts = []
    try:
        for arg in args:
            parts.append(str(arg))
    except BaseException:
        if parts:
            file.write(sep.join(parts) + sep)
        raise
    file.write(sep.join(parts) + end)


NOBODY_ANSWERS = "%s needs a person or a pipe to answer, but no stdin is connected to this code; put the value into the code instead"


def input(prompt=""):
    """Reads a line from standard input, after writing the prompt to standard output."""
    if state.no_stdin and sys.stdin is sys.__stdin__:
        raise EOFError(NOBODY_ANSWERS % "input()")
    return _builtin_input(prompt)


class Quitter:
    """exit and quit: end the cell, never the kernel's state."""

    def __init__(self, name):
        self.name = name

    def __call__(self, code=None):
        raise SystemExit(code)

    def __repr__(self):
        return "Use %s() to end this cell; variables and imports stay." % self.name


# --- threads, forks, signals --------------------------------------------------------------------------------------------------


def _in_cell(cell, function, args, kwargs):
    context_cell.set(cell)
    return function(*args, **kwargs)


def _wrap_thread_start():
    original = _thread.start_new_thread

    def start_new_thread(function, args, kwargs=None):
        if type(args) is not tuple or not callable(function) or (kwargs is not None and type(kwargs) is not dict):
            return original(function, args, kwargs)  # it knows the right complaint
        return original(_in_cell, (context_cell.get(), function, args, kwargs or {}))

    _thread.start_new_thread = _thread.start_new = start_new_thread
    joinable = getattr(_thread, "start_joinable_thread", None)  # since 3.13
    if joinable is not None:

        def start_joinable_thread(function, *args, **kwargs):
            cell = context_cell.get()
            return joinable(lambda: _in_cell(cell, function, (), {}), *args, **kwargs)

        _thread.start_joinable_thread = start_joinable_thread
    threading = sys.modules.get("threading")
    if threading is not None:  # a .pth file or sitecustomize may have imported it before us
        if hasattr(threading, "_start_new_thread"):
            threading._start_new_thread = start_new_thread
        if joinable is not None and hasattr(threading, "_start_joinable_thread"):
            threading._start_joinable_thread = start_joinable_thread


def _after_fork_in_child():
    """A process forked by user code writes to 1 and 2 like any program and never speaks the protocol."""
    state.child = True
    state.lock = _thread.RLock()
    state.main_thread = _get_ident()
    for fd in (state.commands, state.events, state.acks):
        try:
            os.close(fd)
        except OSError:
            pass


def _on_sigint(signum, frame):
    if state.armed and (frame is None or frame.f_code not in CRITICAL):
        task = state.task
        if task is not None and frame is not None and extras.cancel_instead_of_raise(frame):
            return
        raise KeyboardInterrupt
    if state.cell is not None:
        state.pending = True


CRITICAL = {f.__code__ for f in (emit, _write_all, _take_ack, _late, send, _wait_writable, _keep_unencodable, _replacement_character)}


def armed(function, *args):
    """Runs something of the user's; the only place from which KeyboardInterrupt may come."""
    state.armed = True
    try:
        if state.pending:
            state.pending = False
            raise KeyboardInterrupt
        return function(*args)
    finally:
        state.armed = False


# --- one cell -----------------------------------------------------------------------------------------------------------------


def compile_cell(code, name):
    """Returns two code objects, either may be None: the statements, and the last expression whose value is to be shown."""
    if code.startswith("%%"):
        code = extras.rewrite_cell_magic(code)
    if len(code) > BIG_CELL:
        return extras.compile_big(code, name)
    flags = state.flags | TOP_LEVEL_AWAIT
    try:
        tree = compile(code, name, "exec", flags | ONLY_AST, True)
    except SyntaxError as error:
        tree = extras.parse_with_magics(code, name, flags | ONLY_AST, error)
    return compile_tree(tree, name, code)


def compile_tree(tree, name, code):
    if "__future__" in code:
        state.flags |= extras.future_flags(tree)
    if "__file__" in code:
        extras.name_file(tree, code)
    flags = state.flags | TOP_LEVEL_AWAIT
    body = tree.body
    last = None
    if body and type(body[-1]) is _ast.Expr and not code.rstrip().endswith(";"):
        last = _ast.Expression(body.pop().value)
    statements = compile(tree, name, "exec", flags, True) if body else None
    return statements, compile(last, name, "eval", flags, True) if last is not None else None


def _run_code(statements, last, silent):
    namespace = state.namespace
    if (statements is not None and statements.co_flags & CO_COROUTINE) or (last is not None and last.co_flags & CO_COROUTINE):
        value = extras.run_in_loop(statements, last, namespace)
    else:
        if statements is not None:
            eval(statements, namespace)
        value = eval(last, namespace) if last is not None else None
        if state.loop is not None:
            extras.let_tasks_run()
    if value is not None and not silent:
        builtins._ = value
        show(value)
    for hook in state.after_cell:
        hook(None)


_PLAIN = frozenset((int, float, str, bool, list, dict, tuple, set, frozenset, bytes, complex, range))


def show(value):
    """Sends the value of a cell's last expression."""
    if type(value) in _PLAIN:
        text = repr(value)
        if len(text) <= TEXT_LIMIT // 4:
            data = _quote(text)
            if type(value) is dict or type(value) is list:
                json = plain_json(value)
                if json is not None:
                    data += ',"application/json":' + json
            send('{"event":"result","id":%s,"main":true,"data":{"text/plain":%s},"metadata":{}}' % (_quote(state.cell.id), data))
            return
    extras.show_rich(value, True)


def _has_no_json(value):
    raise TypeError(type(value).__name__)


def plain_json(value):
    """JSON of a dict or list, or None where it has none. By the bare C encoder, which saves importing json and re."""
    try:
        encode = _json.make_encoder({}, _has_no_json, _quote, None, ":", ",", False, False, False)
        return "".join(encode(value, 0))
    except Exception:  # not only the encoder's own: it calls what the values' classes define
        return None


def remember_source(name, code):
    """Keeps the text of cells for tracebacks and inspect.getsource, the newest 16 MiB of it."""
    sources = state.sources
    sources[name] = code
    state.sources_size += len(code)
    while state.sources_size > 16 << 20 and len(sources) > 1:
        oldest = next(iter(sources))
        state.sources_size -= len(sources.pop(oldest))
        cache = sys.modules.get("linecache")
        if cache is not None:
            cache.cache.pop(oldest, None)
    cache = sys.modules.get("linecache")
    if cache is not None and hasattr(cache, "cache"):
        cache.cache[name] = cache_entry(name, code)


def cache_entry(name, code):
    """What linecache keeps for a file; without a time of change it never looks for the file itself."""
    return len(code), None, (code if code.endswith("\n") else code + "\n").splitlines(True), name


def execute(message):
    """Runs one cell and sends its `done`. Whatever happens inside, exactly one `done` leaves."""
    state.count += 1
    cell = Cell(message["id"], "%s%d>" % (CELL_PREFIX, state.count))
    context_cell.set(cell)
    state.stream = None
    state.pending = False
    state.cell = cell
    tail = '"status":"interrupted"'
    before = extras.set_environment(message["env"]) if message.get("env") else None
    try:
        tail = _outcome(message["code"], cell.name, message.get("silent", False))
    except BaseException as error:  # an interrupt between two of our own lines, or a fault of ours, which must be seen as such
        state.armed = False
        tail = _last_resort(error)
    state.armed = False
    if state.child:
        extras.leave_child(tail)
    if before is not None:
        extras.restore_environment(before)
    with state.lock:
        state.cell = None
        state.previous = cell
    state.pending = False
    send('{"event":"done","id":%s,%s}' % (_quote(cell.id), tail))
    _repair()


def _last_resort(error):
    name = type(error).__name__
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    return '"status":"%s","error":{"name":%s,"message":"","traceback":%s}' % (status, _quote(name), _quote(name))


def _outcome(code, name, silent):
    remember_source(name, code)
    if state.user_sigint is not None:
        _set_signal(_SIGINT, state.user_sigint)
        state.user_sigint = None
    error = None
    try:
        statements, last = compile_cell(code, name)
        armed(_run_code, statements, last, silent)
    except BaseException as caught:
        error = caught
        if state.after_cell:
            extras.after_failed_cell(error)
    statements = last = None
    # A tracer of the user's would otherwise go on inside the kernel.
    if sys.gettrace() is not None:
        sys.settrace(None)
    if sys.getprofile() is not None:
        sys.setprofile(None)
    handler = _get_signal(_SIGINT)
    if handler is not _on_sigint:
        state.user_sigint = handler
        _set_signal(_SIGINT, _on_sigint)
    if getattr(sys, "stdout", None) is not stdout or getattr(sys, "stderr", None) is not stderr:
        extras.restore_streams()
    if error is None:
        return '"status":"ok"'
    try:
        return extras.describe_end(error, name)
    finally:
        error = None  # frees the frames and what they hold


def _repair():
    """After `done`, off the path of the answer: makes good what the cell did to the standard streams."""
    stdout._shut = stderr._shut = False
    for fd, (copy, identity) in state.kept.items():
        try:
            now = _fstat(fd)
            if fd == 0 or (now.st_dev, now.st_ino) == identity:
                continue
        except OSError as error:
            if error.errno != EBADF:
                continue
        try:
            _dup2(copy, fd)
        except OSError:
            pass


# --- protocol -----------------------------------------------------------------------------------------------------------------


class _Scan:
    """What the interpreter's C scanner wants to know; using it bare saves importing json and re."""

    strict = False
    object_hook = object_pairs_hook = parse_constant = None
    parse_float = float
    parse_int = int
    memo = {}


_decode = _json.make_scanner(_Scan)


def _serve():
    while True:
        end = state.input.find(b"\n")
        if end < 0:
            state.input = _fill(state.input)
            continue
        line, state.input = state.input[:end], state.input[end + 1:]
        message = _decode(line.decode("utf-8", "replace"), 0)[0]
        line = None
        op = message.get("op")
        if op == "execute":
            execute(message)
        elif op == "configure":
            extras.configure(message)
        elif op == "shutdown":
            _exit(0)
        message = None


def _fill(buffer):
    """Reads until a newline has come."""
    parts = [buffer]
    while True:
        try:
            data = _read(state.commands, CHUNK if len(parts) > 1 and len(parts[-1]) == 65536 else 65536)
        except BlockingIOError:
            import select

            select.select([state.commands], [], [], 60)
            continue
        except OSError:
            _exit(0)
        if not data:
            _exit(0)
        parts.append(data)
        if b"\n" in data:
            return b"".join(parts)


def _take_descriptors():
    for fd, name in ((3, "commands"), (4, "events"), (5, "acks")):
        setattr(state, name, fcntl(fd, F_DUPFD_CLOEXEC, PRIVATE_FD))
        os.close(fd)
    for fd in (0, 1, 2):
        try:
            now = _fstat(fd)
        except OSError:
            null = os.open("/dev/null", os.O_RDWR)
            if null != fd:
                _dup2(null, fd)
                os.close(null)
            now = _fstat(fd)
        state.kept[fd] = (fcntl(fd, F_DUPFD_CLOEXEC, PRIVATE_FD), (now.st_dev, now.st_ino))
        if fd == 0:
            state.no_stdin = now.st_rdev == os.makedev(1, 3)


def _prepare_interpreter(folder):
    if sys.path and os.path.abspath(sys.path[0] or ".") == os.path.abspath(folder):
        sys.path[0] = ""
    elif "" not in sys.path:
        sys.path.insert(0, "")
    sys.argv = [""]
    main_module = type(sys)("__main__")
    main_module.__builtins__ = builtins
    sys.modules["__main__"] = main_module  # so that pickle, dataclasses and typing find the classes of cells
    state.namespace = main_module.__dict__
    # The interpreter's own stream objects stay referenced: collecting them would close fds 1 and 2.
    state.replaced = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr
    for function in (print, input):
        function.__module__ = "builtins"
        setattr(builtins, function.__name__, function)
    builtins.exit, builtins.quit = Quitter("exit"), Quitter("quit")
    os.environ.setdefault("MPLBACKEND", "agg")
    os.register_at_fork(after_in_child=_after_fork_in_child)
    _wrap_thread_start()
    _set_signal(_SIGINT, _on_sigint)


def main(folder):
    global extras, FOLDER
    FOLDER = folder
    _register_error_handlers()
    _take_descriptors()
    _prepare_interpreter(folder)
    extras = sys.modules["_atoll_kernel"].load("_atoll_kernel_extras", folder + "/extras.py")
    extras.install()
    import traceback  # noqa: F401  the first error of a context should not wait 8 ms for it

    armed(_run_code, *compile_cell("0\nNone", CELL_PREFIX + "0>"), True)
    version = "%d.%d.%d" % sys.version_info[:3]
    send('{"event":"ready","language":"python","version":"%s","pid":%d}' % (version, os.getpid()))
    while True:
        try:
            _serve()
        except BaseException as error:
            # Only a handler that user code installed for some signal can raise here; between cells there is nobody to tell.
            state.armed = False
            if state.child:
                extras.leave_child(_last_resort(error))

"""What happens inside one sandbox, as tests say it: programs, terminals, interpreters, files, ports."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import time
import urllib.parse
import uuid

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from installation import ApiError

# Every byte, and text whose characters have one to four bytes and hang together.
ALL_BYTES = bytes(range(256))
EMOJI = "aé€👩‍🚀🇩🇪z"


def await_that(condition, what="the awaited state", seconds=60):
    """Returns the condition's value once it is true; a loaded machine may take its time."""
    end, value = time.monotonic() + seconds, None
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {seconds} s, last: {value!r}")


def at_once(count, call):
    """Calls call(0), call(1), … at the same time; returns what each returned, or the exception that it threw."""
    def one(n):
        try:
            return call(n)
        except Exception as e:
            return e

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def text_or_bytes(data):
    return base64.b64decode(data["base64"]) if "base64" in data else data["text"].encode()


class Answer:
    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Box:
    """One sandbox and one kept connection to it; not shared between threads (`again` gives another for that)."""

    def __init__(self, client, sandbox_id):
        self.client, self.id = client, sandbox_id

    def again(self):
        return Box(type(self.client)(self.client.url, self.client.key, timeout=self.client.timeout), self.id)

    def path(self, rest, **query):
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items() if value is not None}
        return f"/v1/sandboxes/{self.id}{rest}" + ("?" + urllib.parse.urlencode(query) if query else "")

    def call(self, method, rest, body=None, headers=None, **query):
        return self.client.call(method, self.path(rest, **query), body, headers)

    def refused(self, method, rest, body=None, headers=None, **query):
        """The error of a call that must fail."""
        try:
            answer = self.call(method, rest, body, headers, **query)
        except ApiError as e:
            assert isinstance(e.body, dict) and {"code", "message"} <= set(e.error), e.body
            return e
        raise AssertionError(f"{method} {rest} was not refused: {str(answer)[:500]}")

    def raw(self, method, rest, body=None, headers=None, **query):
        """On a connection of its own; errors raise."""
        with self.open(method, rest, body, headers, **query) as response:
            text = response.read()
            return Answer(response, text)

    @contextlib.contextmanager
    def open(self, method, rest, body=None, headers=None, **query):
        """The response, still to be read."""
        connection = self.client.open()
        try:
            try:
                connection.request(method, self.path(rest, **query), body, {"Authorization": f"Bearer {self.client.key}", **(headers or {})}, encode_chunked=hasattr(body, "__next__"))
            except BrokenPipeError:
                # Refused in the middle of the body: the answer is there.
                pass
            response = connection.getresponse()
            if response.status >= 400:
                text = response.read()
                raise ApiError(response.status, json.loads(text) if "json" in (response.getheader("Content-Type") or "") else text)
            yield response
        finally:
            connection.close()

    # Programs

    def start(self, *argv, key=None, **fields):
        if argv:
            fields["argv"] = list(argv)
        return self.call("POST", "/processes", fields, {"Idempotency-Key": key} if key else None)

    def run(self, *argv, **fields):
        return self.start(*argv, wait=True, **fields)

    def shell(self, command, **fields):
        return self.start(command=command, wait=True, **fields)

    def process(self, process):
        return self.call("GET", f"/processes/{process}")

    def wait(self, process, seconds=60):
        def ended():
            view = self.call("POST", f"/processes/{process}:wait", {"timeout_seconds": 10})
            return view if view["state"] == "ended" else None
        return await_that(ended, f"the end of {process}", seconds)

    def output(self, process, stream="combined", **query):
        return self.raw("GET", f"/processes/{process}/output", stream=stream, **query).body

    def write(self, process, data, **query):
        return self.call("POST", f"/processes/{process}/stdin", data, {"Content-Type": "application/octet-stream"}, **query)

    def signal(self, process, signal, **fields):
        return self.call("POST", f"/processes/{process}:signal", {"signal": signal, **fields})

    def events(self, process, after=None):
        """Yields (id, event, data) until the stream ends."""
        with self.open("GET", f"/processes/{process}/events", headers={"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after is not None else {})}) as response:
            yield from events(response)

    def ps(self):
        return self.call("GET", "/ps")["items"]

    # Files

    def put(self, path, data, **query):
        return self.raw("PUT", "/files", data, {"Content-Type": "application/octet-stream"}, path=path, **query).json

    def get(self, path, **query):
        return self.raw("GET", "/files", path=path, **query).body

    def stat(self, path, **query):
        return self.call("GET", "/files:stat", path=path, **query)

    def list(self, path, **query):
        items, following = [], None
        while True:
            page = self.call("GET", "/files:list", path=path, next=following, **query)
            items += page["items"]
            following = page["next"]
            if not following:
                return items

    # Life cycle

    def view(self):
        return self.client.sandbox(self.id)

    def code(self, code, **fields):
        return self.client.exec(code, sandbox_id=self.id, **fields)

    def prints(self, code, **fields):
        """What code prints that must run to its end."""
        answer = self.code(code, **fields)
        assert answer["exit_reason"] == "completed", answer
        return answer["output"]

    def pause(self, **fields):
        return self.call("POST", ":pause", fields)

    def resume(self, **fields):
        return self.call("POST", ":resume", fields)

    def extend(self, seconds):
        return self.call("POST", ":extend", {"seconds": seconds})

    def change(self, **fields):
        return self.call("PATCH", "", fields)

    def fork(self, count=1, key=None, **fields):
        items = self.call("POST", ":fork", {"count": count, **fields}, {"Idempotency-Key": key} if key else None)["items"]
        return [Box(self.client, item["sandbox_id"]) for item in items]

    def snapshot(self, kind="memory", key=None, **fields):
        return self.call("POST", "/snapshots", {"kind": kind, **fields}, {"Idempotency-Key": key} if key else None)

    def rollback(self, snapshot_id):
        return self.call("POST", ":rollback", {"snapshot_id": snapshot_id})

    def runs(self):
        return self.call("GET", "/runs")["items"]

    def delete(self):
        return self.client.delete(self.id)

    def await_state(self, state, seconds=60):
        return await_that(lambda: (view := self.view())["state"] == state and view, f"state {state} of {self.id}", seconds)

    # Terminals and ports

    def socket(self, rest, headers=None, subprotocols=("atoll.v1",), **query):
        return connect(self.client.url.replace("http", "ws", 1) + self.path(rest, **query), subprotocols=list(subprotocols),
                       additional_headers={"Authorization": f"Bearer {self.client.key}"} if headers is None else headers,
                       max_size=None, compression=None, open_timeout=60, close_timeout=5)

    def terminal(self, **query):
        return Terminal(self.socket("/pty", **query))

    def tunnel(self, port):
        return self.socket(f"/ports/{port}/tunnel")


def events(response):
    identity, name, data = None, "message", []
    for raw in response:
        line = raw.rstrip(b"\n").rstrip(b"\r")
        if not line:
            if data:
                yield identity, name, json.loads(b"\n".join(data))
            name, data = "message", []
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode()
        elif line.startswith(b"id:"):
            identity = line[3:].strip().decode()
        elif line.startswith(b"data:"):
            data.append(line[5:].lstrip(b" "))


class Terminal:
    """One viewer of a terminal."""

    def __init__(self, socket):
        self.socket, self.shown, self.exited, self.offset = socket, b"", None, None
        self.started = json.loads(socket.recv(timeout=60))
        assert self.started["type"] == "started", self.started
        self.process = self.started["process_id"]
        self.offset = self.started["offset"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def type(self, keys):
        self.socket.send(keys if isinstance(keys, bytes) else keys.encode())

    def tell(self, **message):
        self.socket.send(json.dumps(message))

    def receive(self, timeout):
        message = self.socket.recv(timeout=timeout)
        if isinstance(message, bytes):
            self.shown += message
            self.offset += len(message)
        else:
            message = json.loads(message)
            if message["type"] == "exited":
                self.exited = message

    def until(self, text, seconds=60):
        """Reads on until the text has been shown; returns all that was shown so far."""
        wanted, end = text if isinstance(text, bytes) else text.encode(), time.monotonic() + seconds
        while wanted not in self.shown:
            try:
                self.receive(max(0.01, end - time.monotonic()))
            except (TimeoutError, ConnectionClosed) as e:
                raise AssertionError(f"{text!r} did not come ({type(e).__name__}); shown: {self.shown[-2000:]!r}, exited: {self.exited}") from None
        return self.shown

    def to_end(self, seconds=60):
        end = time.monotonic() + seconds
        try:
            while True:
                self.receive(max(0.01, end - time.monotonic()))
        except ConnectionClosed:
            assert self.exited, f"closed without its end being told; shown: {self.shown[-2000:]!r}"
            return self.exited


def new_key():
    return uuid.uuid4().hex


def broken(e):
    """Whether an error is that of a server that went away."""
    return isinstance(e, (OSError, http.client.HTTPException, ConnectionClosed, EOFError))


class Chunked:
    """A chunked answer on a socket of its own, since http.client throws trailers away."""

    def __init__(self, box, rest, **query):
        self.socket = box.client.open()
        self.socket.connect()
        self.file = self.socket.sock.makefile("rb")
        self.socket.sock.sendall(f"GET {box.path(rest, **query)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {box.client.key}\r\nTE: trailers\r\n\r\n".encode())
        head = self.headers()
        assert b" 200 " in head[0], head
        self.trailers = {}

    def headers(self):
        lines = []
        while (line := self.file.readline().rstrip(b"\r\n")):
            lines.append(line)
        return lines

    def chunks(self):
        while size := int(self.file.readline(), 16):
            yield self.file.read(size)
            self.file.readline()
        self.trailers = {name.strip().lower().decode(): value.strip().decode() for name, _, value in (line.partition(b":") for line in self.headers())}

    @property
    def gap(self):
        return int(self.trailers.get("x-atoll-gap-bytes", 0))

    def close(self):
        self.file.close()
        self.socket.close()

"""What E2B's protocol costs: the same steps natively, by hand-made requests to the adapter, and by E2B's SDK, in turns, in one installation and one run.

The adapter's share is the difference of the first two; the third one's is the SDK's own."""

import json
import os
import struct
import time

from load import Session, percentile, summary, wait_idle

WARM = "x += 1\nx"
GOAL_MS = 1
# Of ids, which E2B's form leaves out.
PREFIX = "sb-exec-"


class Adapter:
    """One kept connection to the adapter, and requests as the SDKs send them."""

    def __init__(self, atoll):
        self.session = Session(atoll.url, atoll.key)
        self.key = atoll.key
        self.id = self.token = None

    def request(self, method, path, body=None, port=None, content="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        who = f"X-API-KEY: {self.key}" if port is None else f"E2b-Sandbox-Id: {self.id}\r\nE2b-Sandbox-Port: {port}\r\nX-Access-Token: {self.token}"
        head = f"{method} /compat/e2b{path} HTTP/1.1\r\nHost: localhost\r\n{who}\r\nContent-Type: {content}\r\nContent-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    def send(self, *request, **named):
        return self.session.send(self.request(*request, **named))

    def create(self):
        made = json.loads(self.send("POST", "/v2/sandboxes", {"templateID": "code-interpreter-v1", "timeout": 300}))
        self.id, self.token = made["sandboxID"], made["envdAccessToken"]

    def run(self, code):
        answer = self.send("POST", "/execute", {"code": code, "context_id": None, "language": None, "env_vars": None}, port=49999)
        if not answer.endswith(b'{"type":"end_of_execution"}\n') or b'"error"' in answer:
            raise RuntimeError(answer)

    def command(self, text):
        message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", text]}, "stdin": False}).encode()
        answer = self.send("POST", "/process.Process/Start", struct.pack("!BI", 0, len(message)) + message, port=49983, content="application/connect+json")
        if b'"exited":true' not in answer:
            raise RuntimeError(answer)

    def pause(self):
        self.send("POST", f"/sandboxes/{self.id}/pause", {})

    def connect(self):
        self.send("POST", f"/v2/sandboxes/{self.id}/connect", {"timeout": 300})

    def kill(self):
        self.send("DELETE", f"/sandboxes/{self.id}")


class Native:
    """The same steps by the native interface."""

    def __init__(self, atoll, template):
        self.session, self.template = Session(atoll.url, atoll.key), template

    def call(self, method, path, body=None, accept="application/json"):
        return self.session.send(self.session.request(method, path, body, accept))

    def create(self):
        self.session.sandbox = json.loads(self.call("POST", "/v1/sandboxes", {"template": self.template}))["sandbox_id"]

    def run(self, code):
        answer = self.call("POST", "/v1/code_exec", {"code": code, "sandbox_id": self.session.sandbox, "language": "python", "stream": True}, "text/event-stream")
        if b"event: done" not in answer:
            raise RuntimeError(answer)

    def command(self, text):
        argv = ["/bin/bash", "-l", "-c", text]
        answer = json.loads(self.call("POST", f"/v1/sandboxes/{self.session.sandbox}/processes", {"argv": argv, "wait": True}))
        if answer["stdout"] != "hi\n":
            raise RuntimeError(answer)

    def pause(self):
        self.call("POST", f"/v1/sandboxes/{self.session.sandbox}:pause", {})

    def connect(self):
        self.call("POST", f"/v1/sandboxes/{self.session.sandbox}:resume", {})

    def kill(self):
        self.session.delete()


class Sdk:
    """The same steps by the SDK, unmodified."""

    def __init__(self, atoll):
        os.environ.update(E2B_API_URL=atoll.url + "/compat/e2b", E2B_SANDBOX_URL=atoll.url + "/compat/e2b", E2B_API_KEY=atoll.key)
        from e2b_code_interpreter import Sandbox

        self.kind, self.sandbox = Sandbox, None

    def create(self):
        self.sandbox = self.kind.create(timeout=300)

    def run(self, code):
        answer = self.sandbox.run_code(code)
        if answer.error:
            raise RuntimeError(answer.error)

    def command(self, text):
        if self.sandbox.commands.run(text).stdout != "hi\n":
            raise RuntimeError("no hi")

    def pause(self):
        self.sandbox.pause()

    def connect(self):
        self.sandbox.connect(timeout=300)

    def kill(self):
        self.sandbox.kill()


def template_of(adapter, native):
    """The installation's template behind E2B's name: both must make the same sandboxes."""
    adapter.create()
    try:
        native.session.sandbox = PREFIX + adapter.id
        return json.loads(native.call("GET", f"/v1/sandboxes/{native.session.sandbox}"))["template"]
    finally:
        adapter.kill()
        native.session.sandbox = None


def timed(act, *arguments):
    begin = time.monotonic()
    act(*arguments)
    return time.monotonic() - begin


class E2b:
    def __init__(self, bench, atoll):
        self.bench, self.atoll = bench, atoll
        adapter, native = Adapter(atoll), Native(atoll, "python")
        native.template = template_of(adapter, native)
        self.ways = {"native": native, "adapter": adapter, "SDK": Sdk(atoll)}

    def all(self):
        print("E2B: natively, by its adapter, by its SDK", flush=True)
        self.firsts()
        for way in self.ways.values():
            way.create()
            way.run("x = 0")
            way.command("echo hi")
        try:
            self.lift()
            self.turns("run_code, warm", lambda way: way.run(WARM), self.bench.n(60), 10)
            self.turns("commands.run('echo hi')", lambda way: way.command("echo hi"), self.bench.n(40), 4)
            self.pauses()
        finally:
            for way in self.ways.values():
                way.kill()

    def turns(self, what, act, rounds, each):
        times = {name: [] for name in self.ways}
        for turn in range(rounds):
            wait_idle(0.5)
            for name, way in self.in_turn(turn):
                times[name] += [timed(act, way) for _ in range(each)]
        self.rows(what, times)

    def in_turn(self, turn):
        """Each goes first as often as the others."""
        ways = list(self.ways.items())
        return ways[turn % len(ways):] + ways[:turn % len(ways)]

    def lift(self):
        """At half a CPU the kernel's accounting, in steps of 100 ms, decides how long a shell takes; for all the same."""
        native = self.ways["native"]
        for sandbox in (native.session.sandbox, f"{PREFIX}{self.ways['adapter'].id}", f"{PREFIX}{self.ways['SDK'].sandbox.sandbox_id}"):
            native.call("PATCH", f"/v1/sandboxes/{sandbox}", {"limits": {"cpu": 0}})

    def firsts(self):
        times = {name: [] for name in self.ways}
        for turn in range(self.bench.n(24)):
            for name, way in self.in_turn(turn):
                self.bench.await_pool(self.atoll, 2)
                wait_idle()
                times[name].append(timed(lambda way=way: (way.create(), way.run("1 + 1"))))
                way.kill()
        self.rows("create and first run_code", times)

    def pauses(self):
        down, up = {name: [] for name in self.ways}, {name: [] for name in self.ways}
        for turn in range(self.bench.n(15)):
            for name, way in self.in_turn(turn):
                wait_idle()
                down[name].append(timed(way.pause))
                up[name].append(timed(way.connect))
        self.rows("pause", down)
        self.rows("resume", up)

    def rows(self, what, times):
        for name, samples in times.items():
            self.bench.row(f"(E2B) {what}, {name}, p50", percentile(samples, 50) * 1e3, "ms", all=summary(samples), note=f"p99 {percentile(samples, 99) * 1e3:.3g} ms")
        added = (percentile(times["adapter"], 50) - percentile(times["native"], 50)) * 1e3
        self.bench.row(f"(E2B) {what}: what the adapter adds, p50", added, "ms", goal=GOAL_MS)

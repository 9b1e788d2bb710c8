"""Drives one kernel over real pipes, as the agent does: acknowledges flushes, drains both pipes after `done`."""
import fcntl
import json
import os
import select
import signal
import sys
import time

KERNEL = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kernel.py")


class KernelDied(Exception):
    pass


class Outcome:
    """What one execution gave. `pieces` are (stream, bytes) in the order in which the agent would report them."""

    def __init__(self):
        self.pieces = []
        self.events = []
        self.done = None

    def _bytes(self, stream):
        return b"".join(data for name, data in self.pieces if name == stream)

    @property
    def out(self):
        return self._bytes("stdout").decode("utf-8", "replace")

    @property
    def raw(self):
        return self._bytes("stdout")

    @property
    def err(self):
        return self._bytes("stderr").decode("utf-8", "replace")

    @property
    def status(self):
        return self.done["status"]

    @property
    def error(self):
        return self.done.get("error")

    @property
    def results(self):
        return [event for event in self.events if event["event"] == "result"]

    @property
    def late(self):
        return [event for event in self.events if event["event"] == "late"]

    @property
    def value(self):
        """text/plain of the last expression, or None."""
        main = [event["data"].get("text/plain") for event in self.results if event["main"]]
        return main[0] if main else None

    def in_order(self):
        merged = []
        for name, data in self.pieces:
            if merged and merged[-1][0] == name:
                merged[-1][1] += data
            else:
                merged.append([name, data])
        return [(name, data.decode()) for name, data in merged]


def _lift(fd):
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 60)
    os.close(fd)
    return high


class Kernel:
    def __init__(self, python=sys.executable, cwd=None, env=None, stdin=None, flags=()):
        # High numbers first, so that no dup2 below overwrites a descriptor that a later one still needs.
        pipes = {name: [_lift(fd) for fd in os.pipe()] for name in ("commands", "out", "err", "events", "acks")}
        child = {1: pipes["out"][1], 2: pipes["err"][1], 3: pipes["commands"][0], 4: pipes["events"][1], 5: pipes["acks"][0]}
        null = _lift(os.open("/dev/null", os.O_RDONLY))
        actions = [(os.POSIX_SPAWN_DUP2, null if stdin is None else stdin, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in child.items()]
        argv = [python, *flags, KERNEL]
        environment = dict(os.environ if env is None else env)
        before = os.getcwd()
        if cwd:
            os.chdir(cwd)
        try:
            self.started = time.perf_counter()
            self.pid = os.posix_spawn(python, argv, environment, file_actions=actions)
        finally:
            os.chdir(before)
        for fd in [*child.values(), null]:
            os.close(fd)
        self.commands, self.acks = pipes["commands"][1], pipes["acks"][1]
        self.out, self.err, self.events = pipes["out"][0], pipes["err"][0], pipes["events"][0]
        for fd in (self.out, self.err, self.events):
            os.set_blocking(fd, False)
        self.backlog = b""
        self.current = Outcome()
        self.count = 0
        self.status = None
        self.poll = select.poll()
        for fd in (self.out, self.err, self.events):
            self.poll.register(fd, select.POLLIN)
        self.ready = self.wait_for("ready")
        self.start_seconds = time.perf_counter() - self.started

    def send(self, **message):
        data = (json.dumps(message) + "\n").encode()
        view = memoryview(data)
        while view:
            view = view[os.write(self.commands, view):]

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def start(self, code, **more):
        """Sends a cell without waiting for its end."""
        self.count += 1
        self.current = Outcome()
        id = "exec-%d" % self.count
        self.send(op="execute", id=id, code=code, silent=more.pop("silent", False), **more)
        return id

    def finish(self, timeout=20):
        event = self.wait_for("done", timeout)
        self._drain(self.out, "stdout")
        self._drain(self.err, "stderr")
        self.current.done = event
        assert event["id"] == "exec-%d" % self.count, event
        return self.current

    def run(self, code, timeout=20, **more):
        self.start(code, **more)
        return self.finish(timeout)

    def configure(self, **fields):
        self.send(op="configure", **fields)
        return self.wait_for("configured")

    def wait_for(self, kind, timeout=20):
        return self.wait_until(lambda: self._take(kind), timeout, "event %r" % kind)

    def wait_output(self, text, timeout=20):
        """Waits until the running cell has printed `text`."""
        return self.wait_until(lambda: text in self.current.out, timeout, "output %r" % text)

    def wait_until(self, condition, timeout=20, what="a condition"):
        deadline = time.monotonic() + timeout
        while True:
            answer = condition()
            if answer:
                return answer
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError("%s did not come within %s s; pieces %r, events %r" % (what, timeout, self.current.pieces[-5:], self.current.events[-5:]))
            self.pump(left)

    def _take(self, kind):
        for index, event in enumerate(self.current.events):
            if event["event"] == kind:
                return self.current.events.pop(index)
        return None

    def pump(self, seconds):
        for fd, _ in self.poll.poll(seconds * 1000):
            if fd == self.out:
                self._drain(fd, "stdout", once=True)
            elif fd == self.err:
                self._drain(fd, "stderr", once=True)
            else:
                self._read_events()

    def _drain(self, fd, name, once=False):
        while True:
            try:
                data = os.read(fd, 1 << 20)
            except BlockingIOError:
                return
            if not data:
                self.poll.unregister(fd)
                return
            self.current.pieces.append((name, data))
            if once:
                return

    def _read_events(self):
        try:
            data = os.read(self.events, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self._drain(self.out, "stdout")
            self._drain(self.err, "stderr")
            self.status = os.waitpid(self.pid, 0)[1]
            self.pid = None
            raise KernelDied("status %d; stderr %s" % (self.status, self.current.err[-2000:]))
        self.backlog += data
        while b"\n" in self.backlog:
            line, self.backlog = self.backlog.split(b"\n", 1)
            assert len(line) < 16 << 20
            event = json.loads(line.decode("utf-8"))
            if event["event"] == "flush":
                self._drain(self.out, "stdout")
                self._drain(self.err, "stderr")
                os.write(self.acks, b"k")
            else:
                self.current.events.append(event)

    def close(self):
        for fd in (self.commands, self.acks):
            os.close(fd)
        if self.pid is not None:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.status = status
                    break
                select.select([], [], [], 0.002)
            else:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError("the kernel did not leave when its command pipe was closed")
            self.pid = None
        for fd in (self.out, self.err, self.events):
            os.close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()

"""Drives the real kernel over real pipes, the way the agent inside a sandbox does."""

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
# Machines that test are shared; what hangs is found all the same.
DEADLINE = 60


def build(folder):
    """The kernel of this source: the binary named by ATOLL_GO_KERNEL, else built into the folder."""
    named = os.environ.get("ATOLL_GO_KERNEL")
    if named:
        return named
    binary = Path(folder) / "atoll-go-kernel"
    subprocess.run([FOLDER / "build.sh", binary], check=True)
    return str(binary)


class Execution:
    """What one cell did."""

    def __init__(self):
        self.chunks = []  # (stream, bytes) in the order of arrival
        self.events = []
        self.done = None

    @property
    def stdout(self):
        return b"".join(data for stream, data in self.chunks if stream == "stdout")

    @property
    def stderr(self):
        return b"".join(data for stream, data in self.chunks if stream == "stderr")

    @property
    def status(self):
        return self.done["status"]

    @property
    def error(self):
        return self.done["error"]

    @property
    def text(self):
        """text/plain of the last expression, None if nothing was shown."""
        for event in self.events:
            if event["event"] == "result" and event["main"]:
                return event["data"]["text/plain"]
        return None

    def __repr__(self):
        return f"stdout={self.stdout[:2000]!r} stderr={self.stderr[:2000]!r} events={str(self.events)[:2000]} done={self.done}"


class Kernel:
    def __init__(self, binary, cwd, env=None):
        pairs = [os.pipe() for _ in range(5)]
        (self.out, out), (self.err, err), (commands, self.commands), (self.events, events), (acks, self.acks) = pairs
        theirs = [out, err, commands, events, acks]

        def arrange():
            # Whoever started the tests may ignore it, and children inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(theirs)]
            for i, fd in enumerate(high):
                os.dup2(fd, i + 1)
            os.closerange(6, 200)

        environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), **(env or {})}
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [binary], preexec_fn=arrange, close_fds=False, stdin=subprocess.DEVNULL, cwd=cwd, env=environment
        )
        for fd in theirs:
            os.close(fd)
        self.pid = self.process.pid
        self.buffer = b""
        self.number = 0
        self.current = Execution()
        self.stray = []  # events that came while no cell ran
        self.ready = self.next_event()
        self.start_seconds = time.perf_counter() - started

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self.out, self.err, self.commands, self.events, self.acks):
            os.close(fd)

    def take_output(self):
        """Takes everything that is in the two pipes now."""
        while True:
            readable = [fd for fd in select.select([self.out, self.err], [], [], 0)[0]]
            got = False
            for fd in readable:
                data = os.read(fd, 1 << 20)
                if data:
                    got = True
                    self.on_output("stdout" if fd == self.out else "stderr", data)
            if not got:
                return

    def on_output(self, stream, data):
        self.current.chunks.append((stream, data))

    def next_event(self, deadline=DEADLINE):
        end = time.monotonic() + deadline
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            readable = select.select([self.events, self.out, self.err], [], [], max(0, left))[0]
            if not readable and left <= 0:
                raise TimeoutError(f"no event from the kernel within {deadline} s: {self.current!r}")
            if self.out in readable or self.err in readable:
                self.take_output()
            if self.events in readable:
                data = os.read(self.events, 1 << 20)
                if not data:
                    self.take_output()
                    raise EOFError(f"the kernel ended with {self.process.wait()}: {self.current!r}")
                self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def send(self, **message):
        data = (json.dumps(message) + "\n").encode()
        while data:
            data = data[os.write(self.commands, data) :]

    def begin(self, code, **more):
        self.number += 1
        self.current = Execution()
        self.current.id = f"exec-{self.number}"
        self.send(op="execute", id=self.current.id, code=code, **more)
        return self.current

    def finish(self, execution, deadline=DEADLINE, on_event=None):
        while True:
            event = self.next_event(deadline)
            if event["event"] == "flush":
                self.take_output()
                os.write(self.acks, b"x")
            elif event["event"] == "done" and event["id"] == execution.id:
                execution.done = event
                self.take_output()
                return execution
            else:
                execution.events.append(event)

    def run(self, code, deadline=DEADLINE, **more):
        return self.finish(self.begin(code, **more), deadline)

    def wait_for_output(self, wanted, deadline=DEADLINE):
        end = time.monotonic() + deadline
        while wanted not in self.current.stdout:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{wanted!r} was not printed within {deadline} s: {self.current!r}")
            select.select([self.out, self.err], [], [], left)
            self.take_output()

    def interrupt(self, with_signal=True):
        self.send(op="interrupt", id=self.current.id)
        if with_signal:
            self.process.send_signal(signal.SIGINT)

    def run_interrupted(self, code, with_signal=True):
        """Runs a cell that first prints "go", and interrupts it then. The seconds it took to end are in `stop_seconds`."""
        execution = self.begin(code)
        self.wait_for_output(b"go")
        started = time.perf_counter()
        self.interrupt(with_signal)
        self.finish(execution)
        execution.stop_seconds = time.perf_counter() - started
        return execution

    def resident(self):
        """Bytes in memory, also where the system has no smaps_rollup (gVisor)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def memory(self):
        """Kibibytes by name: Rss, Pss, Pss_Anon."""
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:] if line.endswith("kB")}

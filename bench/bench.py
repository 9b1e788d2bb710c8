"""`./atoll bench`: what a user waits for, measured over HTTP, in turns with two baselines on the same machine in the same run.

Two installations of its own run side by side: one as it comes (pool of 4), one without a pool. Each figure is printed whatever it is;
ratios to the baselines may fail the run, absolute times only at ten times the goal, since machines differ.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "conformance" / "native"))

import installation as installations  # noqa: E402
from baselines import KernelGateway, PlainRunsc  # noqa: E402
from e2b_protocol import E2b  # noqa: E402
from images import Images  # noqa: E402
from inside import Box  # noqa: E402
from lifecycle import Lifecycle  # noqa: E402
from load import Session, distinct_memories, percentile, processes_naming, pss_kib, summary, wait_idle  # noqa: E402
from results import Results  # noqa: E402

WARM = "x+=1; print(x)"
PARTS = ("cold", "warm", "parallel", "burst", "memory", "output", "inside", "lifecycle", "e2b", "results", "images")


class Bench:
    def __init__(self, cache, quick):
        self.cache, self.quick, self.rows = cache, quick, []

    def n(self, full):
        return max(3, full // 5) if self.quick else full

    def row(self, name, value, unit, goal=None, lower_is_better=True, absolute=True, note="", **more):
        """`absolute` goals fail at ten times only, ratios at once."""
        missed = failed = False
        if goal is not None:
            missed = value > goal if lower_is_better else value < goal
            limit = goal * (10 if absolute and lower_is_better else 1) / (10 if absolute and not lower_is_better else 1)
            failed = value > limit if lower_is_better else value < limit
        self.rows.append({"name": name, "value": value, "unit": unit, "goal": goal, "lower_is_better": lower_is_better, "met": not missed, "failed": failed, "note": note, **more})
        shown = f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
        print(f"  {name:<58} {shown:>9} {unit:<6} {'' if goal is None else ('goal ' + ('≤ ' if lower_is_better else '≥ ') + format(goal, 'g')):<14} {'' if goal is None else 'met' if not missed else 'FAILED' if failed else 'missed'} {note}", flush=True)

    def session(self, atoll):
        return Session(atoll.url, atoll.key)

    def await_pool(self, atoll, depth=4, seconds=60):
        end = time.monotonic() + seconds
        client = atoll.client()
        while time.monotonic() < end:
            metrics = client.call("GET", "/metrics")
            text = metrics.decode() if isinstance(metrics, bytes) else str(metrics)
            ready = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("atoll_pool_ready") and 'template="python"' in line]
            if ready and ready[0] >= depth:
                client.close()
                return
            time.sleep(0.05)
        raise RuntimeError(f"the pool did not fill within {seconds} s")

    def cold(self, atoll, bare, runsc):
        print("New sandbox to first result", flush=True)
        pooled, empty, plain, server = [], [], [], []
        for _ in range(self.n(25)):
            plain.append(self.calm(runsc.run))
            self.await_pool(atoll, 3)
            pooled.append(self.calm(lambda: self.first(atoll, server)))
            empty.append(self.calm(lambda: self.first(bare)))
        base = percentile(plain, 50)
        self.row("baseline: plain `runsc run`, p50", base * 1e3, "ms", **{"all": summary(plain)})
        self.row("(a) pool warm, p50", percentile(pooled, 50) * 1e3, "ms", goal=10, all=summary(pooled))
        self.row("(a) pool warm, p99", percentile(pooled, 99) * 1e3, "ms", goal=50)
        self.row("    of it in the sandbox (duration_ms), p50", percentile(server, 50), "ms")
        self.row("(b) pool empty, p50", percentile(empty, 50) * 1e3, "ms", all=summary(empty))
        self.row("(b) pool empty / plain `runsc run`", percentile(empty, 50) / base, "×", goal=2, absolute=False)

    def calm(self, measure):
        wait_idle()
        return measure()

    def first(self, atoll, durations=None):
        session = self.session(atoll)
        begin = time.monotonic()
        answer = session.exec("print(1+1)", language="python")
        took = time.monotonic() - begin
        if answer["output"] != "2":
            raise RuntimeError(answer)
        if durations is not None:
            durations.append(answer["duration_ms"])
        session.close()
        return took

    def warm(self, atoll, gateway):
        print("Warm round trip", flush=True)
        session, kernel = self.session(atoll), gateway.session()
        session.exec("x = 0", language="python")
        kernel.run("x = 0")
        prepared, health = session.exec_request(WARM), session.request("GET", "/healthz")
        times, other, empty, inside = [], [], [], []
        for _ in range(self.n(25)):
            wait_idle(0.5)
            for _ in range(12):
                begin = time.monotonic()
                answer = session.send(prepared)
                times.append(time.monotonic() - begin)
                inside.append(json.loads(answer)["duration_ms"])
                begin = time.monotonic()
                session.send(health)
                empty.append(time.monotonic() - begin)
            for _ in range(3):
                begin = time.monotonic()
                kernel.run(WARM)
                other.append(time.monotonic() - begin)
        self.row("baseline: Kernel Gateway, p50", percentile(other, 50) * 1e3, "ms", all=summary(other))
        self.row("(c) `x+=1; print(x)`, p50", percentile(times, 50) * 1e3, "ms", goal=1, all=summary(times))
        self.row("(c) p99", percentile(times, 99) * 1e3, "ms")
        self.row("    of it an empty HTTP call (/healthz), p50", percentile(empty, 50) * 1e3, "ms")
        self.row("    of it from cell start to cell end in the sandbox, p50", percentile(inside, 50), "ms")
        self.row("(c) / Kernel Gateway", percentile(times, 50) / percentile(other, 50), "×", goal=0.1, absolute=False)
        session.close()
        kernel.close()

    def parallel(self, atoll, gateway):
        print("16 sessions at once", flush=True)
        seconds = 1.5 if self.quick else 4
        ours = parallel_rate(hammer_atoll, [(atoll.url, atoll.key, seconds, 8)] * 2)
        kernels = [gateway.session() for _ in range(16)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            theirs = sum(pool.map(lambda k: hammer_kernel(k, seconds), kernels))
        for kernel in kernels:
            kernel.close()
        self.row("baseline: Kernel Gateway", theirs, "runs/s")
        self.row("(d) runs per second", ours, "runs/s", goal=2000, lower_is_better=False)
        self.row("(d) / Kernel Gateway", ours / theirs, "×")

    def burst(self, atoll, gateway):
        print("20 new sandboxes at once, pool of 4", flush=True)
        ours, theirs = [], []
        for _ in range(2 if self.quick else 4):
            self.await_pool(atoll)
            wait_idle()
            ours.append(at_once(20, lambda: self.session(atoll), lambda s: s.exec("print(1+1)", language="python"), lambda s: s.close()))
            theirs.append(at_once(20, gateway.session, lambda k: k.run("print(1+1)"), lambda k: k.close(), include_open=True))
        self.row("baseline: Kernel Gateway, last answer", percentile(theirs, 50), "s")
        self.row("(e) last answer, p50", percentile(ours, 50), "s", goal=2, all=ours)
        self.row("(e) / Kernel Gateway", percentile(ours, 50) / percentile(theirs, 50), "×")

    def memory(self, atoll, gateway):
        print("Memory of an idle Python sandbox", flush=True)
        sessions = [self.session(atoll) for _ in range(16)]
        for session in sessions:
            session.exec("print(1)", language="python")
        self.await_pool(atoll)
        time.sleep(2)
        boxes = processes_naming(atoll.instance, "boot")
        sandboxes = len(atoll.client().call("GET", "/v1/sandboxes?state=running&limit=100")["items"])
        every = box_processes(atoll.instance)
        total = sum(pss_kib(pid) for pid in distinct_memories(every)) / 1024
        self.row("(f) PSS over its processes, mean of all boxes", total / max(1, len(boxes)), "MB", goal=25,
                 note=f"{len(boxes)} boxes ({sandboxes} sandboxes, the rest pools of both templates)", processes=len(every))
        kernels = [gateway.session() for _ in range(8)]
        for kernel in kernels:
            kernel.run("print(1)")
        self.row("baseline: Kernel Gateway, per kernel", kernels[0].memory() / 8, "MB")
        for one in sessions + kernels:
            one.close()

    def output(self, atoll):
        print("Output", flush=True)
        session = self.session(atoll)
        session.exec("import sys, time", language="python")
        firsts = []
        for _ in range(self.n(25)):
            begin = time.monotonic()
            for piece in session.stream("POST", "/v1/code_exec", {"code": "print('a'); time.sleep(0.05); print('b')", "sandbox_id": session.sandbox, "stream": True}):
                if b'"a\\n"' in piece:
                    firsts.append(time.monotonic() - begin)
        self.row("(g) first byte of output, p50", percentile(firsts, 50) * 1e3, "ms", goal=5, all=summary(firsts))
        for label, cpu, size in (("0.5 CPU", 0.5, 32 << 20), ("CPU limit lifted", 0, 60 << 20)):  # below 64 MiB, of which the spool drops nothing
            session.send(session.request("PATCH", f"/v1/sandboxes/{session.sandbox}", {"limits": {"cpu": cpu}}))
            goals = (60, 200) if cpu == 0 else (None, None)
            best = max(self.stdout_events(session, size) for _ in range(2 if self.quick else 4))
            self.row(f"(g) stdout over server-sent events, {label}", best, "MB/s", goal=goals[0], lower_is_better=False)
            best = max(self.stdout_raw(session, size) for _ in range(2 if self.quick else 4))
            self.row(f"(g) stdout as raw bytes, {label}", best, "MB/s", goal=goals[1], lower_is_better=False)
        session.close()

    def inside(self, atoll, runsc):
        """Programs, terminals, files and idle streams of one sandbox, in turns with `runsc exec` into a plain container."""
        print("Inside a sandbox, against `runsc exec`", flush=True)
        client = atoll.client()
        made = client.call("POST", "/v1/sandboxes", {"template": "python", "limits": {"cpu": 0, "memory_bytes": 1 << 30, "max_processes": 4096}})
        session, plain, box = Session(atoll.url, atoll.key, made["sandbox_id"]), runsc.resident(), Box(client, made["sandbox_id"])
        try:
            self.programs(session, plain)
            self.keys(box, plain)
            self.transfers(box, plain)
            self.idle_streams(atoll, session, plain)
        finally:
            plain.close()
            session.close()

    def programs(self, session, plain):
        prepared = session.request("POST", f"/v1/sandboxes/{session.sandbox}/processes", {"argv": ["echo", "hi"], "wait": True})
        ours, theirs = [], []
        for _ in range(self.n(25)):
            wait_idle(0.5)
            for _ in range(4):
                begin = time.monotonic()
                answer = session.send(prepared)
                ours.append(time.monotonic() - begin)
                if json.loads(answer)["stdout"] != "hi\n":
                    raise RuntimeError(answer)
            took, out = plain.run("/bin/echo", "hi")
            theirs.append(took)
            if out != b"hi\n":
                raise RuntimeError(f"plain runsc: {out!r}")
        self.row("baseline: `runsc exec echo hi`, p50", percentile(theirs, 50) * 1e3, "ms", all=summary(theirs))
        self.row("(h) `echo hi`, started and waited for, p50", percentile(ours, 50) * 1e3, "ms", goal=8, all=summary(ours))
        self.row("(h) / `runsc exec`", percentile(ours, 50) / percentile(theirs, 50), "×", goal=0.51, absolute=False)

    def keys(self, box, plain):
        echoed, through, theirs = [], [], []
        for _ in range(3):
            wait_idle()
            theirs += plain.cat_times(self.n(100))
            for command, times in (("cat", echoed), ("stty raw -echo; echo ready; cat", through)):
                with box.terminal(command=command) as terminal:
                    if times is through:
                        terminal.until("ready")
                    for _ in range(self.n(100)):
                        terminal.shown = b""
                        begin = time.monotonic()
                        terminal.type(b"k")
                        while not terminal.shown.endswith(b"k"):
                            terminal.receive(30)
                        times.append(time.monotonic() - begin)
                    box.call("DELETE", f"/processes/{terminal.process}")
        self.row("baseline: a byte through `runsc exec cat` by pipes, p50", percentile(theirs, 50) * 1e3, "ms", all=summary(theirs))
        self.row("(i) a key's echo by a terminal over WebSocket, p50", percentile(echoed, 50) * 1e3, "ms", goal=2, all=summary(echoed))
        self.row("(i) a key through `cat` in it, p50", percentile(through, 50) * 1e3, "ms", all=summary(through))
        self.row("(i) through `cat` / `runsc exec`", percentile(through, 50) / percentile(theirs, 50), "×")

    def transfers(self, box, plain):
        size = 64 << 20 if self.quick else 256 << 20
        piece = os.urandom(1 << 20)
        up, down, their_up, their_down = [], [], [], []
        for _ in range(2 if self.quick else 3):
            wait_idle()
            their_up.append(plain.write(size))
            their_down.append(plain.read(size))
            begin = time.monotonic()
            with box.open("PUT", "/files", Repeated(piece, size), {"Content-Length": str(size)}, path="/tmp/big") as response:
                response.read()
            up.append(size / (time.monotonic() - begin) / 1e6)
            begin, total = time.monotonic(), 0
            with box.open("GET", "/files", path="/tmp/big") as response:
                while got := response.readinto(self.buffer):
                    total += got
            down.append(size / (time.monotonic() - begin) / 1e6)
            if total != size:
                raise RuntimeError(f"{total} of {size} bytes came")
        for letter, what, ours, theirs in (("j", "up", up, their_up), ("k", "down", down, their_down)):
            self.row(f"baseline: {size >> 20} MiB {what} by `runsc exec cat`", max(theirs), "MB/s", all=theirs)
            self.row(f"({letter}) file of {size >> 20} MiB {what}, CPU limit lifted", max(ours), "MB/s", goal=200, lower_is_better=False, all=ours)
            self.row(f"({letter}) / `runsc exec cat`", max(ours) / max(theirs), "×")

    buffer = bytearray(1 << 20)

    def idle_streams(self, atoll, session, plain):
        count = 200 if self.quick else 1000
        started = [json.loads(session.send(session.request("POST", f"/v1/sandboxes/{session.sandbox}/processes", {"argv": ["sleep", "1000"]})))["process_id"] for _ in range(20)]
        time.sleep(1)

        def memory():
            return sum(pss_kib(atoll.pid(name)) for name in ("server", "engine")) / 1024

        before, held = memory(), []
        begin = time.monotonic()
        for n in range(count):
            s = session.open()
            s.sendall(session.request("GET", f"/v1/sandboxes/{session.sandbox}/processes/{started[n % 20]}/events", accept="text/event-stream"))
            held.append(s)
        for s in held:
            head = b""
            while b"started" not in head:
                head += s.recv(65536)
        took = time.monotonic() - begin
        time.sleep(2)
        used = (memory() - before) / count * 1024
        base = plain.idle_memory(10) * 1024
        self.row("baseline: an idle `runsc exec`", base, "kB")
        self.row(f"(l) an idle attached stream, mean of {count}, server and engine", used, "kB", note=f"attached in {took:.1f} s")
        self.row("(l) / `runsc exec`", used / base, "×")
        begin = time.monotonic()
        session.send(session.request("POST", f"/v1/sandboxes/{session.sandbox}/processes", {"argv": ["true"], "wait": True}))
        self.row("    a program meanwhile", (time.monotonic() - begin) * 1e3, "ms")
        for s in held:
            s.close()

    CODE = "_b = 'x' * 65535 + '\\n'\nfor _i in range(%d): sys.stdout.write(_b)"

    def stdout_events(self, session, size):
        begin, total = time.monotonic(), 0
        for piece in session.stream("POST", "/v1/code_exec", {"code": self.CODE % (size >> 16), "sandbox_id": session.sandbox, "stream": True, "timeout_seconds": 120}):
            total += len(piece)
        if total < size:
            raise RuntimeError(f"{total} of {size} bytes came")
        return size / (time.monotonic() - begin) / 1e6

    def stdout_raw(self, session, size):
        """Starts the run by a stream that is dropped once its id is known, then follows the raw bytes."""
        begin = time.monotonic()
        events = session.stream("POST", "/v1/code_exec", {"code": self.CODE % (size >> 16), "sandbox_id": session.sandbox, "stream": True, "timeout_seconds": 120})
        head = b""
        for piece in events:
            head += piece
            if (at := head.find(b'"execution_id":"')) >= 0 and len(head) > at + 60:
                break
        execution = head[at + 16:].split(b'"', 1)[0].decode()
        events.close()
        total = 0
        for piece in session.stream("GET", f"/v1/executions/{execution}/output?stream=stdout&offset=0&follow=true", accept="application/octet-stream"):
            total += len(piece)
        if total < size:
            raise RuntimeError(f"{total} of {size} bytes came")
        return size / (time.monotonic() - begin) / 1e6


class Repeated:
    """A body of a known size that costs nothing to make."""

    def __init__(self, piece, size):
        self.piece, self.left = piece, size

    def read(self, _=-1):
        part = self.piece[:self.left]
        self.left -= len(part)
        return part


def box_processes(instance):
    """All host processes of an installation's boxes: the sentries, found by name, and their descendants and helpers."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            cgroups = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            continue
        if f"/atoll-{instance}/" in cgroups:
            found.add(int(pid))
    return found


def hammer_atoll(arguments):
    """Runs in a process of its own: `count` sessions, each on a thread, for some seconds."""
    url, key, seconds, count = arguments
    sessions = [Session(url, key) for _ in range(count)]
    for session in sessions:
        session.exec("x = 0", language="python")

    def loop(session):
        prepared, done, end = session.exec_request(WARM), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            session.send(prepared)
            done += 1
        return done / seconds

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        rate = sum(pool.map(loop, sessions))
    for session in sessions:
        session.close()
    return rate


def parallel_rate(function, arguments):
    with multiprocessing.get_context("spawn").Pool(len(arguments)) as pool:
        return sum(pool.map(function, arguments))


def hammer_kernel(kernel, seconds):
    kernel.run("x = 0")
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        kernel.run(WARM)
        done += 1
    return done / seconds


def at_once(count, make, use, close, include_open=False):
    """Seconds until the last of `count` answers that are asked for at once."""
    def one(item):
        item = item or make()
        use(item)
        return item

    items = [None] * count if include_open else [make() for _ in range(count)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        used = list(pool.map(one, items))
    took = time.monotonic() - begin
    for item in used:
        close(item)
    return took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", default=os.environ.get("ATOLL_CACHE", "/var/cache/atoll"))
    parser.add_argument("--quick", action="store_true", help="a fifth of the samples")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part (may come again) instead of all")
    parser.add_argument("--json", help="write all figures to this file")
    options = parser.parse_args()
    parts = options.only or PARTS
    bench = Bench(pathlib.Path(options.cache), options.quick)
    image = sorted((pathlib.Path(options.cache) / "images").glob("python-*.erofs"), key=lambda p: p.stat().st_mtime)[-1]
    runsc = PlainRunsc(options.cache, image)
    gateway = KernelGateway()
    try:
        if "lifecycle" in parts:
            Lifecycle(bench, runsc, image).all(installations.installation)
        if set(parts) == {"lifecycle"}:
            return report(bench, options)
        with installations.installation() as atoll:
            if "cold" in parts:
                os.environ["ATOLL_POOL"] = "0"
                with installations.installation() as bare:
                    bench.cold(atoll, bare, runsc)
                del os.environ["ATOLL_POOL"]
            for part in ("warm", "parallel", "burst", "memory"):
                if part in parts:
                    getattr(bench, part)(atoll, gateway)
            if "output" in parts:
                bench.output(atoll)
            if "inside" in parts:
                bench.inside(atoll, runsc)
            if "e2b" in parts:
                E2b(bench, atoll).all()
            if "results" in parts:
                Results(bench, atoll, gateway).all()
            if "images" in parts:
                Images(bench, atoll).all()
    finally:
        gateway.close()
        runsc.close()
    return report(bench, options)


def report(bench, options):
    """Prints and writes the figures; the exit status."""
    figures = {"machine": {"cpus": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()}, "rows": bench.rows}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures))
    failed = [row["name"] for row in bench.rows if row["failed"]]
    print(f"{len(bench.rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

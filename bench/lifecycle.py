"""What a life cycle costs: pauses, resumes, forks, new sandboxes without a pool, bursts and idle crowds, in turns with raw `runsc` of the same build."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

from inside import Box
from load import Session, distinct_memories, percentile, pss_kib, summary, wait_idle

MEGABYTES = (10, 100, 500)

# Answers each line with a number that only its memory knows.
GUEST = "import os, sys\nblob = os.urandom(%d << 20)\nn = 0\nfor line in sys.stdin:\n    n += 1\n    print(n, len(blob), flush=True)\n"


class RawRunsc:
    """Containers driven by hand with Atoll's own build of runsc: the same EROFS root, an overlay in memory, no cgroups, no server."""

    def __init__(self, build, image):
        self.binary, self.image = pathlib.Path(build) / "runsc", image
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-bench-raw-"))
        (self.work / "empty").mkdir()
        self.count = 0

    def command(self, *arguments):
        return [str(self.binary), f"--root={self.work}/root", "--network=none", "--ignore-cgroups", "--overlay2=root:memory", "--sidecar-usage-policy=STRICT", *map(str, arguments)]

    def call(self, *arguments, **options):
        done = subprocess.run(self.command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
        if done.returncode:
            raise RuntimeError(f"raw runsc {arguments[0]}: {done.stderr[-500:]!r}")

    def container(self, megabytes):
        return RawContainer(self, megabytes)

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)


class RawContainer:
    def __init__(self, runsc, megabytes):
        runsc.count += 1
        self.runsc, self.id = runsc, f"raw{runsc.count:06d}"
        self.dir = runsc.work / self.id
        self.dir.mkdir()
        for name in ("in", "out"):
            os.mkfifo(self.dir / name)
        # Held open on this side, so that neither end sees an end.
        self.inward, self.outward = (os.open(self.dir / name, os.O_RDWR) for name in ("in", "out"))
        annotations = {f"dev.gvisor.spec.rootfs.{name}": value for name, value in (("source", str(runsc.image)), ("type", "erofs"), ("overlay", "memory"), ("options", "size=1g"))}
        (self.dir / "config.json").write_text(json.dumps({
            "ociVersion": "1.0.0", "annotations": annotations,
            "process": {"args": ["/usr/bin/python3", "-u", "-c", GUEST % megabytes], "cwd": "/", "env": ["PATH=/usr/bin:/bin"], "user": {"uid": 0, "gid": 0}},
            "root": {"path": str(runsc.work / "empty"), "readonly": False},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]}}))

    def run(self, *arguments):
        # Opened anew each time: the sandbox makes what it is given non-blocking.
        with open(self.dir / "in", "r+b", buffering=0) as stdin, open(self.dir / "out", "r+b", buffering=0) as stdout:
            done = subprocess.run(self.runsc.command(*arguments), stdin=stdin, stdout=stdout, stderr=open(self.dir / "err", "ab"))
        if done.returncode:
            raise RuntimeError(f"raw runsc {arguments[0]}: {(self.dir / 'err').read_text()[-500:]}")

    def create(self):
        self.run("create", "--bundle", self.dir, self.id)

    def start(self):
        self.create()
        self.runsc.call("start", self.id)
        self.ask()

    def ask(self):
        os.write(self.inward, b"x\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += os.read(self.outward, 100)
        return answer

    def checkpoint(self, image):
        """Seconds."""
        begin = time.monotonic()
        self.runsc.call("checkpoint", "--leave-running", "--image-path", image, self.id)
        return time.monotonic() - begin

    def restore(self, image):
        """Seconds to the first answer; into a container of this id if it is there, else it is made."""
        begin = time.monotonic()
        self.run("restore", "--detach", "--bundle", self.dir, "--image-path", image, self.id)
        self.ask()
        return time.monotonic() - begin

    def delete(self):
        self.runsc.call("delete", "--force", self.id)

    def close(self):
        subprocess.run(self.runsc.command("delete", "--force", self.id), capture_output=True)
        for fd in (self.inward, self.outward):
            os.close(fd)
        shutil.rmtree(self.dir, ignore_errors=True)


class Lifecycle:
    """The rows; `bench` prints and keeps them."""

    def __init__(self, bench, plain, image):
        self.bench, self.plain, self.image = bench, plain, image

    def build(self, atoll):
        return (atoll.data / "launcher" / "engine.build").read_text().split()[1]

    def box(self, client, megabytes=0, **limits):
        made = client.call("POST", "/v1/sandboxes", {"template": "python", "limits": {"cpu": 0, "memory_bytes": 1 << 30, **limits}})
        box = Box(client, made["sandbox_id"])
        box.prints(f"import os; blob = os.urandom({megabytes} << 20); n = 0")
        return box

    def pools(self, client):
        return {pool["template"]: pool for pool in client.call("GET", "/v1/pools")["items"]}

    def await_pool(self, client, ready, prepared=0, seconds=120):
        end = time.monotonic() + seconds
        while True:
            pool = self.pools(client)["python"]
            if pool["golden"] and pool["ready"] >= ready and pool["prepared"] >= prepared:
                return pool
            if time.monotonic() > end:
                raise RuntimeError(f"the pool did not fill within {seconds} s: {pool}")
            time.sleep(0.02)

    # New sandboxes without one in the pool

    def cold(self, atoll):
        """`atoll` has a pool of one, which refills late: the second of two in a row finds it empty."""
        print("New sandbox, pool empty: from the golden snapshot into a prepared one", flush=True)
        client, ours, plain = atoll.client(), [], []
        wanted = self.bench.n(25)
        for _ in range(4 * wanted):
            if len(ours) == wanted:
                break
            wait_idle()
            plain.append(self.plain.run())
            before = self.await_pool(client, 1, 1)
            wait_idle()
            # A pool may hold more than its depth where there was demand.
            taken = [client.exec("1", language="python")["sandbox_id"] for _ in range(before["ready"])]
            session = Session(atoll.url, atoll.key)
            begin = time.monotonic()
            answer = session.exec("print(1+1)", language="python")
            took = time.monotonic() - begin
            if answer["output"] != "2":
                raise RuntimeError(answer)
            # Where another was ready after all, it does not count.
            if sum(self.pools(client)["python"]["misses"].values()) > sum(before["misses"].values()):
                ours.append(took)
            session.close()
            for identity in taken:
                client.delete(identity)
        if not ours:
            raise RuntimeError("the pool was never empty")
        pool = self.pools(client)["python"]
        base = percentile(plain, 50)
        row = self.bench.row
        row("baseline: plain `runsc run`, p50", base * 1e3, "ms", all=summary(plain))
        row("(m) pool empty, golden snapshot into a prepared box, p50", percentile(ours, 50) * 1e3, "ms", goal=50, all=summary(ours), note=f"{len(ours)} samples; misses: {pool['misses']}")
        row("(m) / plain `runsc run`", percentile(ours, 50) / base, "×", goal=0.5, absolute=False)

    # Pause and resume

    def pauses(self, atoll, raw):
        print("Pause, resume, and how long a snapshot stops its source", flush=True)
        client, row = atoll.client(), self.bench.row
        for megabytes in MEGABYTES:
            box, container = self.box(client, megabytes), raw.container(megabytes)
            container.start()
            pause, resume, base_pause, base_fresh, base_into, stopped, gaps = [], [], [], [], [], [], []
            box.prints(GAPS)
            for n in range(self.bench.n(10)):
                image = raw.work / f"image-{megabytes}-{n}"
                wait_idle()
                base_pause.append(container.checkpoint(image))
                container.delete()
                wait_idle()
                base_fresh.append(container.restore(image))
                container.delete()
                container.create()
                wait_idle()
                base_into.append(container.restore(image))
                shutil.rmtree(image)
                wait_idle()
                begin = time.monotonic()
                box.pause()
                pause.append(time.monotonic() - begin)
                wait_idle()
                begin = time.monotonic()
                box.resume()
                answer = box.prints("n += 1; print(n)")
                resume.append(time.monotonic() - begin)
                if answer != str(n + 1):
                    raise RuntimeError(f"{answer} instead of {n + 1}")
                wait_idle()
                box.prints("worst = 0")
                snapshot = box.snapshot()
                stopped.append(snapshot["stopped_ms"])
                gaps.append(float(box.prints("print(worst)")) * 1e3)
                client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")
            box.delete()
            container.close()
            row(f"baseline: `runsc checkpoint --leave-running`, {megabytes} MB, p50", percentile(base_pause, 50) * 1e3, "ms", all=summary(base_pause))
            row(f"(n) pause, {megabytes} MB, p50", percentile(pause, 50) * 1e3, "ms", all=summary(pause))
            row(f"(n) / `runsc checkpoint`, {megabytes} MB", percentile(pause, 50) / percentile(base_pause, 50), "×", goal=1.2, absolute=False)
            row(f"baseline: `runsc restore` to the first answer, {megabytes} MB, p50", percentile(base_fresh, 50) * 1e3, "ms", all=summary(base_fresh))
            row(f"baseline: the same into a created container, {megabytes} MB, p50", percentile(base_into, 50) * 1e3, "ms", all=summary(base_into))
            row(f"(o) resume to the first answer, {megabytes} MB, p50", percentile(resume, 50) * 1e3, "ms", all=summary(resume))
            row(f"(o) / `runsc restore`, {megabytes} MB", percentile(resume, 50) / percentile(base_fresh, 50), "×", goal=0.7, absolute=False)
            row(f"(o) / the same into a created container, {megabytes} MB", percentile(resume, 50) / percentile(base_into, 50), "×")
            row(f"(p) source stopped by a snapshot, {megabytes} MB, p50", percentile(stopped, 50), "ms", goal=20 + 0.3 * megabytes, absolute=False)
            row(f"    seen inside: longest gap meanwhile, {megabytes} MB, p50", percentile(gaps, 50), "ms")

    # Forks

    def forks(self, atoll, raw):
        print("Forks", flush=True)
        client, row = atoll.client(), self.bench.row
        for count, megabytes, goal, times in ((10, 0, 300, 8), (50, 50, None, 2)):
            box, took = self.box(client, megabytes, memory_bytes=256 << 20), []
            for _ in range(max(2, times // 2) if self.bench.quick else times):
                wait_idle()
                begin = time.monotonic()
                forks = box.fork(count)
                with concurrent.futures.ThreadPoolExecutor(count) as pool:
                    answers = set(pool.map(lambda fork: fork.again().prints("print(n, len(blob))"), forks))
                took.append(time.monotonic() - begin)
                if answers != {f"0 {megabytes << 20}"}:
                    raise RuntimeError(answers)
                for fork in forks:
                    fork.delete()
            box.delete()
            base = self.raw_forks(raw, count, megabytes)
            row(f"baseline: `runsc checkpoint` and {count} × `runsc restore`, 2 at once, {megabytes} MB", base * 1e3, "ms")
            row(f"(q) fork into {count} of {megabytes} MB, last answer, p50", percentile(took, 50) * 1e3, "ms", goal=goal, all=summary(took))
            row(f"(q) / `runsc`, {count} of {megabytes} MB", percentile(took, 50) / base, "×", goal=1.2, absolute=False)

    def raw_forks(self, raw, count, megabytes):
        source, image = raw.container(megabytes), raw.work / "image-forks"
        source.start()
        forks = [raw.container(megabytes) for _ in range(count)]
        wait_idle()
        begin = time.monotonic()
        source.checkpoint(image)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda fork: fork.restore(image), forks))
        took = time.monotonic() - begin
        for container in [source, *forks]:
            container.close()
        shutil.rmtree(image)
        return took

    # Bursts

    def bursts(self, atoll):
        print("Bursts against a pool of 4", flush=True)
        client, row = atoll.client(), self.bench.row

        def first(_=None):
            session = Session(atoll.url, atoll.key)
            session.exec("print(1+1)", language="python")
            return session

        def at_once(count):
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(count) as pool:
                sessions = list(pool.map(first, range(count)))
            took = time.monotonic() - begin
            for session in sessions:
                session.close()
            return took

        twenty, eight, one = [], [], []
        for _ in range(2 if self.bench.quick else 5):
            self.await_pool(client, 4)
            wait_idle()
            twenty.append(at_once(20))
            self.await_pool(client, 4)
            wait_idle()
            eight.append(at_once(8))
            self.await_pool(client, 4)
            wait_idle()
            # One after the other, as many as come: the first four from the pool.
            begin = time.monotonic()
            sessions = [first() for _ in range(8)]
            one.append(time.monotonic() - begin)
            for session in sessions:
                session.close()
        row("(r) 20 new at once, last answer, p50", percentile(twenty, 50), "s", goal=1.2, all=twenty)
        row("baseline: 8 new, one after the other, p50", percentile(one, 50) * 1e3, "ms")
        row("(s) 8 new at once, twice the pool, last answer, p50", percentile(eight, 50) * 1e3, "ms", all=eight)
        row("(s) / one after the other", percentile(eight, 50) / percentile(one, 50), "×", goal=3, absolute=False)

    # Crowds

    def crowd(self, atoll, count, label, make, ask, answer, goal=None):
        client, row = atoll.client(), self.bench.row
        waiting = threading.local()

        def one(_):
            mine = waiting.client = getattr(waiting, "client", None) or atoll.client()
            made = make(mine)
            got = mine.exec(ask, sandbox_id=made)["output"]
            if got != answer:
                raise RuntimeError(f"{got!r} instead of {answer!r}")
            return made

        before = set(atoll.box_processes())
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            made = list(pool.map(one, range(count)))
        took = time.monotonic() - begin
        time.sleep(5)
        ours = atoll.box_processes() - before
        memory = sum(pss_kib(pid) for pid in distinct_memories(sorted(ours))) / 1024
        used = cpu_seconds(ours)
        time.sleep(10)
        used = (cpu_seconds(ours) - used) / 10
        row(f"(t) {count} {label}: made per second", count / took, "1/s")
        row(f"    each: PSS over its processes ({len(ours) / count:.1f})", memory / count, "MB", goal=goal)
        row(f"    all together: CPU", used * 100, "%", goal=count / 30, note="of one CPU")
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda identity: atoll.client().delete(identity), made))
        row("    deleted per second", count / (time.monotonic() - begin), "1/s")

    def crowds(self, atoll):
        print("Crowds", flush=True)
        client = atoll.client()
        self.crowd(atoll, 60 if self.bench.quick else 300, "idle sandboxes", lambda c: c.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"], "print(6*7)", "42", goal=22)
        box = self.box(client, memory_bytes=256 << 20)
        what, ask, answer = self.heavy(box)
        snapshot = box.snapshot()
        box.delete()
        self.crowd(atoll, 20 if self.bench.quick else 100, f"with {what} from one snapshot", lambda c: c.call("POST", "/v1/sandboxes", {"snapshot": snapshot["snapshot_id"]})["sandbox_id"], ask, answer)
        client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")

    def heavy(self, box):
        """Brings NumPy in, where a wheel of it can be had; else much of the standard library."""
        folder = self.bench.cache / "bench" / "wheels"
        if not list(folder.glob("numpy-*.whl")):
            subprocess.run([os.sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--dest", str(folder), "numpy<2.5"], capture_output=True)
        wheels = list(folder.glob("numpy-*.whl"))
        if wheels:
            box.put("/tmp/numpy.whl", wheels[0].read_bytes())
            box.prints("import sys, zipfile; zipfile.ZipFile('/tmp/numpy.whl').extractall('/tmp/site'); sys.path.insert(0, '/tmp/site'); import os; os.unlink('/tmp/numpy.whl'); import numpy as np; np.ones((100, 100)) @ np.ones((100, 100))", timeout_seconds=120)
            return "NumPy imported", "print(int(np.arange(10).sum()))", "45"
        print("  no wheel of NumPy can be had here: much of the standard library instead")
        box.prints("import asyncio, concurrent.futures, csv, ctypes, decimal, email, http.server, json, logging, multiprocessing, pydantic, requests, httpx, sqlite3, ssl, tarfile, unittest, xml.dom.minidom, zipfile")
        return "much of the standard library imported", "print(decimal.Decimal(45))", "45"

    def all(self, start):
        """`start(**settings)` gives an installation."""
        with start(pool_depth=1, pool_refill_quiet_millis=400, pool_refill_latest_millis=2000) as one:
            self.cold(one)
        with start() as atoll:
            raw = RawRunsc(self.build(atoll), self.image)
            try:
                self.await_pool(atoll.client(), 4)
                self.pauses(atoll, raw)
                self.forks(atoll, raw)
                self.bursts(atoll)
                self.crowds(atoll)
            finally:
                raw.close()


GAPS = """
import threading, time
worst = 0
def watch():
    global worst
    last = time.time()
    while True:
        time.sleep(0.001)
        now = time.time()
        worst, last = max(worst, now - last), now
threading.Thread(target=watch, daemon=True).start()
"""


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")

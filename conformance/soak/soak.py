#!/usr/bin/env python3
"""A long mixed load on many sandboxes while server, engine, sandboxes and disk fail at random: nothing is lost, nothing is left, memory stays flat.

Each sandbox has a counter in memory and a file whose contents are known here. Workers use, pause, resume, fork, snapshot, roll back,
delete and make them; faults come every few seconds. At the end each sandbox either has its counter and its file, or ended with a
reason that was done to it.

    soak.py [--minutes 10] [--sandboxes 100] [--seed N]
"""

import argparse
import collections
import hashlib
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "races"))

from harness import Host, Outcome, delete_all, short  # noqa: E402
from installation import disk_of, installation  # noqa: E402

DISK_MIB = 6000
# Even where all its faults were slow to come back from.
LEAST_FAULTS_A_MINUTE = 2
# What may come instead of an answer when faults are about: it is over, not at this moment, or no room.
EXPECTED = {"sandbox_ended", "conflict", "disk_full", "sandbox_start_failed", "node_full"}


def resize(folder, megabytes):
    subprocess.run(["mount", "-o", f"remount,size={megabytes}m", folder], check=True)


class Tracked:
    """One sandbox and what must be in it. Whoever uses it holds the lock."""

    def __init__(self, identity, least=0, most=0, content=None):
        self.id, self.least, self.most, self.content = identity, least, most, content
        self.lock, self.killed, self.told_lost, self.snapshots = threading.Lock(), False, False, []
        # Of a write whose answer nobody saw: it may be the one or the other.
        self.maybe = None

    @property
    def path(self):
        return f"/v1/sandboxes/{self.id}"


class Soak:
    def __init__(self, host, count, chooser):
        self.host, self.wanted, self.chooser = host, count, chooser
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.sandboxes, self.gone = [], 0
        self.wrong, self.done, self.refused, self.faults, self.samples = [], collections.Counter(), collections.Counter(), collections.Counter(), []

    def fail(self, text):
        with self.lock:
            self.wrong.append(text)
        print(f"WRONG {text}", flush=True)

    def outcome(self, name, call, *more):
        """Of a call. What it is refused with must be expected, or one of `more`."""
        result = Outcome(call)
        with self.lock:
            self.done[name] += 1
            if result.error or result.lost:
                self.refused[f"{name}: {result.code or 'unknown'}"] += 1
        if result.error and result.code not in EXPECTED and result.code not in more:
            self.fail(f"{name}: {result}")
        if result.lost:
            # Nobody is there for a moment.
            self.stop.wait(0.1)
        return result

    # What workers do

    def make(self, client, how=None):
        fields = how or {"template": "python", "labels": {"of": "soak"}}
        made = self.outcome("create", lambda: client.call("POST", "/v1/sandboxes", fields))
        if not made.value:
            return
        one = Tracked(made.value["sandbox_id"])
        if self.outcome("exec", lambda: client.exec("n = 0", sandbox_id=one.id)).value:
            self.add(one)
        else:
            one.killed = True
            self.outcome("delete", lambda: client.delete(one.id))

    def add(self, one):
        with self.lock:
            self.sandboxes.append(one)

    def drop(self, one):
        with self.lock:
            self.sandboxes.remove(one)
            self.gone += 1

    def work(self, seed):
        chooser, client = random.Random(seed), self.host.client()
        actions = {"count": 30, "write": 12, "read": 12, "program": 10, "pause": 14, "resume": 6, "fork": 4, "snapshot": 4, "rollback": 2, "replace": 5, "look": 4, "kill inside": 1}
        while not self.stop.is_set():
            try:
                with self.lock:
                    few = len(self.sandboxes) < self.wanted
                    one = chooser.choice(self.sandboxes) if self.sandboxes else None
                if few and chooser.random() < 0.5 or one is None:
                    self.make(client)
                    continue
                if not one.lock.acquire(blocking=False):
                    continue
                try:
                    getattr(self, chooser.choices(list(actions), actions.values())[0].replace(" ", "_"))(client, one, chooser)
                finally:
                    one.lock.release()
            except Exception as e:
                self.fail(f"a worker: {type(e).__name__} {e}")
            # A server that was killed has left this one's connection broken.
            client.close()

    def run(self, client, one, code):
        answer = self.outcome("exec", lambda: client.exec(code, sandbox_id=one.id, timeout_seconds=120))
        if answer.code == "sandbox_ended":
            self.ended(client, one)
            return None
        return answer.value

    def count(self, client, one, chooser):
        one.most += 1
        answer = self.run(client, one, "n += 1; print(n)")
        if answer is None:
            return
        if answer["exit_reason"] == "completed":
            one.least += 1
            if not one.least <= int(answer["output"]) <= one.most:
                self.fail(f"{one.id}: counter {answer['output']}, expected {one.least} to {one.most}")
        elif not one.killed and answer["exit_reason"] not in ("sandbox_ended", "lost"):
            self.fail(f"{one.id}: {short(answer)}")

    def write(self, client, one, chooser):
        content = chooser.randbytes(chooser.choice((10, 1000, 200000)))
        one.maybe = content
        if self.outcome("write", lambda: client.call("PUT", f"{one.path}/files?path=/tmp/content", content, {"Content-Type": "application/octet-stream"})).value:
            one.content, one.maybe = content, None

    def read(self, client, one, chooser):
        if one.content is None:
            return
        got = self.outcome("read", lambda: client.call("GET", f"{one.path}/files?path=/tmp/content")).value
        if got is not None and got not in (one.content, one.maybe):
            self.fail(f"{one.id}: the file has {len(got)} bytes {hashlib.sha256(got).hexdigest()[:12]}, expected {len(one.content)}")

    def program(self, client, one, chooser):
        answer = self.outcome("program", lambda: client.call("POST", f"{one.path}/processes", {"command": "echo through; exit 3", "wait": True})).value
        if answer and (answer["stdout"], answer["exit_code"]) != ("through\n", 3) and not one.killed and answer.get("exit_reason") not in ("sandbox_ended", "lost"):
            self.fail(f"{one.id}: {short(answer)}")

    def pause(self, client, one, chooser):
        self.outcome("pause", lambda: client.call("POST", f"{one.path}:pause"))

    def resume(self, client, one, chooser):
        self.outcome("resume", lambda: client.call("POST", f"{one.path}:resume", {}))

    def fork(self, client, one, chooser):
        made = self.outcome("fork", lambda: client.call("POST", f"{one.path}:fork", {"count": 2, "labels": {"of": "soak"}}))
        for item in made.value["items"] if made.value else []:
            fork = Tracked(item["sandbox_id"], one.least, one.most, one.content)
            fork.maybe = one.maybe
            self.add(fork)
        if made.value:
            with self.lock:
                surplus = max(0, len(self.sandboxes) - self.wanted)
            for _ in range(surplus):
                self.delete_another(client, one, chooser)

    def delete_another(self, client, one, chooser):
        with self.lock:
            other = chooser.choice(self.sandboxes)
        if other is not one and other.lock.acquire(blocking=False):
            try:
                self.delete(client, other)
            finally:
                other.lock.release()

    def delete(self, client, one):
        # Also where nobody saw the answer.
        one.killed = True
        result = self.outcome("delete", lambda: client.delete(one.id))
        if result.value:
            self.drop(one)
            for snapshot in one.snapshots:
                self.outcome("delete snapshot", lambda snapshot=snapshot: client.call("DELETE", f"/v1/snapshots/{snapshot[0]}"))

    def replace(self, client, one, chooser):
        self.delete(client, one)

    def snapshot(self, client, one, chooser):
        kind = chooser.choice(("memory", "memory", "files"))
        made = self.outcome("snapshot", lambda: client.call("POST", f"{one.path}/snapshots", {"kind": kind}), *(["sandbox_paused"] if kind == "files" else [])).value
        if not made:
            return
        started = self.outcome("create", lambda: client.call("POST", "/v1/sandboxes", {"snapshot": made["snapshot_id"], "labels": {"of": "soak"}})).value
        if started:
            child = Tracked(started["sandbox_id"], one.least, one.most, one.content)
            child.maybe = one.maybe
            if kind == "files":
                child.least = child.most = 0
                if not self.outcome("exec", lambda: client.exec("n = 0", sandbox_id=child.id)).value:
                    self.outcome("delete", lambda: client.delete(child.id))
                    child = None
            if child:
                self.add(child)
        if kind == "memory" and len(one.snapshots) < 2:
            one.snapshots.append((made["snapshot_id"], one.least, one.most, one.content, one.maybe))
        else:
            self.outcome("delete snapshot", lambda: client.call("DELETE", f"/v1/snapshots/{made['snapshot_id']}"))

    def rollback(self, client, one, chooser):
        if not one.snapshots:
            return
        snapshot, least, most, content, maybe = chooser.choice(one.snapshots)
        result = self.outcome("rollback", lambda: client.call("POST", f"{one.path}:rollback", {"snapshot_id": snapshot}))
        if result.value:
            one.least, one.most, one.content, one.maybe = least, most, content, maybe
        elif result.lost:
            # The one or the other.
            one.least, one.content, one.maybe = min(one.least, least), None, None

    def look(self, client, one, chooser):
        view = self.outcome("view", lambda: client.sandbox(one.id)).value
        if view and view["state"] == "ended":
            self.ended(client, one)

    def kill_inside(self, client, one, chooser):
        """All that runs in it dies, and it says so."""
        if self.outcome("kill inside", lambda: client.exec("sudo kill -9 1; sleep 5", sandbox_id=one.id, language="bash", timeout_seconds=20)).value:
            self.faults["everything inside killed"] += 1
        answer = None
        for _ in range(30):
            answer = self.run(client, one, "n = 0; print(n)")
            if answer and answer["exit_reason"] == "completed":
                one.least = one.most = 0
                # Snapshots are of before.
                return
            if self.stop.is_set() or one.killed:
                break
            time.sleep(0.5)
        one.least, one.most, one.told_lost = 0, 10**9, True

    def ended(self, client, one):
        view = self.outcome("view", lambda: client.sandbox(one.id)).value
        if view is None or one not in self.sandboxes:
            return
        if view["state"] != "ended" or not view["end_reason"] or view["end_detail"] is None:
            self.fail(f"{one.id} is said to have ended: {short(view)}")
        elif not one.killed:
            self.fail(f"{one.id} ended as {view['end_reason']} ({view['end_detail']}), and nobody did that")
        self.drop(one)

    # Faults

    def harm(self, seed):
        chooser = random.Random(seed)
        while not self.stop.wait(chooser.uniform(2, 9)):
            kind = chooser.choices(("server", "engine", "server and engine", "sandboxes", "disk"), (3, 4, 1, 3, 2))[0]
            self.faults[kind] += 1
            try:
                if kind == "sandboxes":
                    with self.lock:
                        victims = chooser.sample(self.sandboxes, min(2, len(self.sandboxes)))
                    for one in victims:
                        one.killed = True
                        self.host.kill_sentry(one.id)
                elif kind == "disk":
                    self.fill(chooser)
                else:
                    for name in kind.split(" and "):
                        self.host.kill(name)
                    self.host.atoll.wait_ready(120)
            except Exception as e:
                self.fail(f"a fault ({kind}): {type(e).__name__} {e}")

    def fill(self, chooser):
        """Almost no room for a few seconds: the disk is as small as what is on it, at once, whatever is written meanwhile."""
        stat = os.statvfs(self.host.atoll.data)
        used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize >> 20
        resize(self.host.atoll.data.parent, min(DISK_MIB, used + chooser.choice((30, 150))))
        try:
            self.stop.wait(chooser.uniform(1, 4))
        finally:
            resize(self.host.atoll.data.parent, DISK_MIB)

    def sample(self, begin):
        while not self.stop.wait(5):
            try:
                with self.lock:
                    live = len(self.sandboxes)
                self.samples.append((time.monotonic() - begin, self.host.resident("server"), self.host.resident("engine"), live, sum(self.done.values())))
                if len(self.samples) % 6 == 0:
                    print("  {:5.0f} s: server {} MiB, engine {} MiB, {} sandboxes, {} calls".format(*self.samples[-1]), flush=True)
            except (OSError, ValueError, IndexError):
                # It is just being killed.
                continue

    # The end

    def verify(self, client):
        for one in list(self.sandboxes):
            view = self.settled(client, one)
            if view is None:
                continue
            if view["state"] == "ended":
                self.ended(client, one)
                continue
            answer = self.run(client, one, "print(n)")
            if one.told_lost or answer is None:
                continue
            if answer["exit_reason"] != "completed" or not one.least <= int(answer["output"]) <= one.most:
                self.fail(f"{one.id}: {short(answer)}, expected a counter of {one.least} to {one.most}")
            self.read(client, one, None)

    def settled(self, client, one):
        end = time.monotonic() + 60
        while (view := client.sandbox(one.id))["state"] not in ("running", "paused", "ended"):
            if time.monotonic() > end:
                self.fail(f"{one.id} is stuck in {view['state']}")
                return None
            time.sleep(0.1)
        return view

    def flat(self):
        """Memory of server and engine: the last quarter against the second."""
        quarter = len(self.samples) // 4
        if quarter < 4:
            return
        for at, name in ((1, "server"), (2, "engine")):
            early = sorted(sample[at] for sample in self.samples[quarter:2 * quarter])[quarter // 2]
            late = sorted(sample[at] for sample in self.samples[-quarter:])[quarter // 2]
            print(f"  {name}: {early} MiB in the second quarter, {late} MiB in the last (medians)")
            if late > early * 1.25 + 20:
                self.fail(f"memory of the {name} grew from {early} to {late} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sandboxes", type=int, default=100)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--all", action="store_true", help="60 minutes")
    options = parser.parse_args()
    if options.all:
        options.minutes = 60
    print(f"{options.sandboxes} sandboxes, {options.minutes:g} minutes, seed {options.seed}", flush=True)
    with disk_of(DISK_MIB) as folder, installation(folder) as atoll:
        soak = Soak(Host(atoll), options.sandboxes, random.Random(options.seed))
        begin = time.monotonic()
        threads = [threading.Thread(target=soak.work, args=(options.seed * 1000 + n,)) for n in range(options.workers)]
        threads += [threading.Thread(target=soak.harm, args=(options.seed,)), threading.Thread(target=soak.sample, args=(begin,))]
        for thread in threads:
            thread.start()
        while time.monotonic() - begin < options.minutes * 60 and len(soak.wrong) < 20:
            time.sleep(0.5)
        soak.stop.set()
        for thread in threads:
            thread.join(300)
        if any(thread.is_alive() for thread in threads):
            soak.fail("a call never came back")
        atoll.wait_ready(120)
        client = soak.host.client()
        soak.verify(client)
        delete_all(client)
        if left := soak.host.nothing_left(client, seconds=120):
            soak.fail(f"left behind: {left}")
        print(f"  calls: {dict(soak.done)}\n  refused or unknown: {dict(soak.refused)}\n  faults: {dict(soak.faults)}\n  {soak.gone} sandboxes came and went, {len(soak.sandboxes)} at the end")
        soak.flat()
        caused = sum(count for kind, count in soak.faults.items() if kind != "everything inside killed")
        if caused < options.minutes * LEAST_FAULTS_A_MINUTE:
            soak.fail(f"only {caused} faults: {dict(soak.faults)}")
        if soak.wrong:
            print(atoll.logs())
    print(f"{sum(soak.done.values())} calls in {time.monotonic() - begin:.0f} s, {sum(soak.faults.values())} faults: {len(soak.wrong)} wrong")
    print(f"{1 if not soak.wrong else 0} passed, {len(soak.wrong)} failed")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

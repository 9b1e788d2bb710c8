"""What races and soak have in common: calls whose outcome may be unknown, victims, and what must not be left on the machine."""

import http.client
import os
import pathlib
import re
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "native"))

import installation as installations  # noqa: E402
from installation import ApiError, Client  # noqa: E402


def broken(e):
    """The server went away, so nobody knows what became of the call; or it says itself that it has none of its own at the moment."""
    return isinstance(e, (OSError, http.client.HTTPException, EOFError)) or isinstance(e, ApiError) and e.status == 503


class Outcome:
    """Of one call: `value`, or `error` if it was refused, or neither if nobody knows."""

    def __init__(self, call):
        self.value = self.error = self.lost = None
        begin = time.monotonic()
        try:
            self.value = call()
        except ApiError as e:
            self.error, self.lost = (None, e) if broken(e) else (e, None)
        except Exception as e:
            if not broken(e):
                raise
            self.lost = e
        self.seconds = time.monotonic() - begin

    @property
    def code(self):
        return self.error.code if self.error else None

    def __str__(self):
        what = f"unknown ({type(self.lost).__name__} {str(self.lost)[:200]})" if self.lost else f"refused {self.error}" if self.error else short(self.value)
        return f"{self.seconds * 1e3:.0f} ms: {what}"


def short(value):
    if isinstance(value, dict):
        kept = ("sandbox_id", "snapshot_id", "state", "end_reason", "output", "exit_reason", "detail", "items")
        return "{" + ", ".join(f"{name}: {short(value[name])}" for name in kept if value.get(name)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(short, value)) + "]"
    return str(value)[:200]


class Host:
    """An installation, its processes, and how they are killed and come back."""

    def __init__(self, atoll):
        self.atoll, self.locks = atoll, {name: threading.Lock() for name in ("server", "engine")}
        self.words = {name: atoll.words(name) for name in ("server", "engine")}

    def client(self, timeout=120):
        return Client(self.atoll.url, self.atoll.key, timeout=timeout, tries=1)

    def kill(self, name):
        with self.locks[name]:
            self.atoll.kill(name)
            self.atoll.start_again(name, self.words[name])

    def set_fail_point(self, point):
        """Starts the engine anew so that it dies at this step; await_fail_point starts the next."""
        with self.locks["engine"]:
            argv, environment = self.words["engine"]
            self.atoll.kill("engine")
            self.atoll.start_again("engine", ([*argv, "--fail-points", f"{point}=kill"], environment))

    def await_fail_point(self, seconds):
        """Whether it was reached within that time; in any case an engine without it runs afterwards."""
        with self.locks["engine"]:
            pid = self.atoll.pid("engine")
            reached = not installations.await_none(lambda: not installations.gone(pid), seconds)
            if not reached:
                self.atoll.kill("engine")
            self.atoll.start_again("engine", self.words["engine"])
            return reached

    def kill_sentry(self, sandbox):
        pids = self.atoll.sentries(sandbox)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return pids

    def resident(self, name):
        """MiB of "server" or "engine"; of one that was just killed, of its next."""
        end = time.monotonic() + 60
        while True:
            try:
                return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.atoll.pid(name)}/status").read_text())[1]) // 1024
            except (OSError, TypeError, IndexError, ValueError):
                # It has a process id that is gone, or is a zombie, which has no memory.
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def surplus(self, client, boxes=0, snapshots=()):
        """What is on the machine beside pools, so many boxes, and these snapshots."""
        pools = client.call("GET", "/v1/pools")["items"]
        waiting = sum(pool["ready"] + pool["starting"] + pool["prepared"] for pool in pools) + boxes
        golden = {pool["golden"]["snapshot_id"] for pool in pools if pool["golden"]} | set(snapshots)
        folders, groups = self.atoll.boxes(), self.atoll.cgroups()
        found = {}
        if len(folders) != waiting:
            found["boxes"] = f"{len(folders)} folders, {waiting} known: {folders}"
        if len(groups) > waiting:
            found["cgroups"] = f"{len(groups)}, {waiting} boxes known: {sorted(groups)}"
        if len(self.atoll.sentries()) > waiting:
            found["sentries"] = f"{len(self.atoll.sentries())}, {waiting} boxes known"
        if extra := set(self.atoll.folders("snapshots")) - golden:
            found["snapshots"] = sorted(extra)
        if len(self.atoll.mounts()) > 2:
            found["mounts"] = self.atoll.mounts()
        return found

    def nothing_left(self, client, boxes=0, snapshots=(), seconds=60):
        """What is still too much after that time."""
        return installations.await_none(lambda: self.surplus(client, boxes, snapshots), seconds)


def delete_all(client):
    """Every sandbox and snapshot there is."""
    for state in ("creating", "running", "pausing", "paused", "resuming"):
        while items := client.call("GET", f"/v1/sandboxes?state={state}&limit=100")["items"]:
            for item in items:
                client.delete(item["sandbox_id"])
    while items := client.call("GET", "/v1/snapshots?limit=100")["items"]:
        for item in items:
            client.call("DELETE", f"/v1/snapshots/{item['snapshot_id']}")

"""Images and templates: what it takes to make an image of files, what a build and a second template on the same base cost, and Go by cells
and by `go run`."""

import http.client
import io
import json
import os
import tarfile
import tempfile
import time
import urllib.parse

from load import Session, percentile, summary, wait_idle

MIB = 1 << 20
CELL = "x++\nfmt.Println(x)"
PROGRAM = 'package main\n\nimport "fmt"\n\nfunc main() {\n\tfmt.Println(6 * 7)\n}\n'


class Images:
    def __init__(self, bench, atoll):
        self.bench, self.atoll, self.client = bench, atoll, atoll.client(timeout=1800)

    def all(self):
        print("Images and templates", flush=True)
        try:
            self.archives()
            self.builds()
            self.go()
        finally:
            self.client.call("POST", "/v1/images:prune")
            self.client.close()

    def archives(self):
        """A tar of files becomes an image: written, synced, known."""
        size = 128 * MIB if self.bench.quick else 512 * MIB
        for name, each in (("files of 1 MiB", MIB), ("files of 8 KiB", 8 << 10)):
            with tempfile.TemporaryFile(dir="/var/tmp") as file:  # not in memory, as /tmp may be
                with tarfile.open(fileobj=file, mode="w") as tar:
                    for n in range(size // each):
                        entry = tarfile.TarInfo(f"d{n % 100}/{n}")
                        entry.size = each
                        tar.addfile(entry, io.BytesIO(os.urandom(each)))
                length = file.tell()
                wait_idle()
                file.seek(0)
                begin = time.monotonic()
                self.upload(f"/v1/images:import?name=bench-{each}", file, length)
                took = time.monotonic() - begin
            self.bench.row(f"(p) image of a tar, {size // MIB} MiB in {name}", size / MIB / took, "MB/s", lower_is_better=False)

    def upload(self, path, file, length):
        parts = urllib.parse.urlsplit(self.atoll.url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=1800)
        connection.request("POST", path, file, {"Authorization": f"Bearer {self.atoll.key}", "Content-Type": "application/x-tar", "Content-Length": str(length)})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        if response.status >= 300:
            raise RuntimeError(f"{response.status}: {body[:500]!r}")
        return json.loads(body)

    def builds(self):
        """A template on `python` with a step, a second one that shares base and step, and what they take on disk."""
        step = "USER root\nRUN head -c 10485760 /dev/urandom >/srv/data\n"
        made, before = [], self.on_disk()
        try:
            for name, dockerfile in (("bench-one", f"FROM atoll/python\n{step}"), ("bench-two", f"FROM atoll/python\n{step}RUN echo two >/srv/two\n")):
                self.client.call("POST", "/v1/templates", {"id": name, "dockerfile": dockerfile})
                made.append(name)
                wait_idle()
                begin = time.monotonic()
                self.build(name)
                built = time.monotonic() - begin
                begin = time.monotonic()
                box = self.client.call("POST", "/v1/sandboxes", {"template": name})["sandbox_id"]
                session = Session(self.atoll.url, self.atoll.key, box)
                session.exec("print(1)", language="python")
                used = time.monotonic() - begin
                session.close()
                self.client.call("DELETE", f"/v1/sandboxes/{box}")
                after = self.on_disk()
                which = "a template with 10 MB on python" if name == "bench-one" else "a second one, base and step shared"
                self.bench.row(f"(q) build of {which}", built, "s")
                self.bench.row("    its first sandbox and result", used * 1e3, "ms")
                self.bench.row("    its image on disk, as much as is new", (after - before) / MIB, "MiB")
                before = after
        finally:
            for name in made:
                self.client.call("DELETE", f"/v1/templates/{name}")

    def build(self, name):
        begun = self.client.call("POST", f"/v1/templates/{name}:build")
        path = f"/v1/templates/{name}/builds/{begun['build_id']}"
        while (now := self.client.call("GET", path))["ended_at"] is None:
            time.sleep(0.02)
        if now["state"] != "ready":
            raise RuntimeError(now)

    def on_disk(self):
        """Blocks of all images that were made here: holes take none."""
        return sum(path.stat().st_blocks * 512 for path in (self.atoll.data / "images").glob("*.erofs"))

    def go(self):
        if all(template["id"] != "go" for template in self.client.call("GET", "/v1/templates")["items"]):
            print("  this server has no template go", flush=True)
            return
        box = self.client.call("POST", "/v1/sandboxes", {"template": "go", "limits": {"cpu": 0}})["sandbox_id"]
        session = Session(self.atoll.url, self.atoll.key, box)
        session.exec('import "fmt"\nx := 0', language="go", timeout_seconds=120)
        session.exec(f"cat >main.go <<'END'\n{PROGRAM}END", language="bash")
        kinds = {
            "(r) a Go cell, warm": session.exec_request(CELL, language="go"),
            "(r) a whole Go program in a cell": session.exec_request(PROGRAM, language="go", timeout_seconds=120),
            "(r) `go run` of the same program": session.exec_request("go run main.go", language="bash", timeout_seconds=120),
        }
        times = {name: [] for name in kinds}
        for n in range(self.bench.n(15) + 1):
            for name, request in kinds.items():
                wait_idle(0.5)
                begin = time.monotonic()
                answer = json.loads(session.send(request))
                if answer["exit_reason"] != "completed":
                    raise RuntimeError(answer)
                if n:  # the first ones fill the build cache
                    times[name].append(time.monotonic() - begin)
        for name, taken in times.items():
            self.bench.row(f"{name}, CPU limit lifted, p50", percentile(taken, 50) * 1e3, "ms", all=summary(taken))
        session.close()
        self.client.call("DELETE", f"/v1/sandboxes/{box}")

"""An Atoll installation of the tests' own: other data folder, other port, gone without a trace afterwards."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "atoll"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ApiError(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body
        self.error = body.get("error", {}) if isinstance(body, dict) else {}

    @property
    def code(self):
        return self.error.get("code")


class Client:
    """One kept connection to the API; not shared between threads."""

    def __init__(self, url, key, timeout=180):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.timeout = parts.hostname, parts.port, timeout
        self.url, self.key, self.connection = url, key, None

    def open(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def headers(self):
        return {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}

    def call(self, method, path, body=None, headers=None):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        for attempt in (1, 2):
            self.connection = self.connection or self.open()
            try:
                self.connection.request(method, path, data, {**self.headers(), **(headers or {})})
                response = self.connection.getresponse()
                text = response.read()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, http.client.CannotSendRequest):
                self.close()
                if attempt == 2:
                    raise
        parsed = json.loads(text) if text and "json" in (response.getheader("Content-Type") or "") else text
        if response.status >= 400:
            raise ApiError(response.status, parsed)
        return parsed

    def exec(self, code, **fields):
        return self.call("POST", "/v1/code_exec", {"code": code, **fields})

    def post_without_waiting(self, code, **fields):
        """Sends a call on a connection of its own, which is returned with the answer still to be read."""
        connection = self.open()
        connection.request("POST", "/v1/code_exec", json.dumps({"code": code, **fields}).encode(), self.headers())
        return connection

    def stream(self, code, **fields):
        """Yields (event, data, seconds since the request)."""
        connection = self.open()
        begin = time.monotonic()
        connection.request("POST", "/v1/code_exec", json.dumps({"code": code, "stream": True, **fields}).encode(), self.headers())
        response = connection.getresponse()
        if response.status >= 400:
            raise ApiError(response.status, json.loads(response.read()))
        try:
            yield from sse(response, begin)
        finally:
            connection.close()

    def delete(self, sandbox):
        return self.call("DELETE", f"/v1/sandboxes/{sandbox}")

    def sandbox(self, sandbox):
        return self.call("GET", f"/v1/sandboxes/{sandbox}")

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


def sse(response, begin):
    event, data = "message", []
    for raw in response:
        line = raw.rstrip(b"\n").rstrip(b"\r")
        if not line:
            if data:
                yield event, json.loads(b"\n".join(data)), time.monotonic() - begin
            event, data = "message", []
        elif line.startswith(b"event:"):
            event = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            data.append(line[5:].lstrip(b" "))


class Installation:
    def __init__(self, data, port):
        self.data, self.port = pathlib.Path(data), port
        self.key = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def instance(self):
        return (self.data / "instance").read_text().strip()

    @property
    def run_folder(self):
        return pathlib.Path(f"/run/atoll-{self.instance}")

    def launcher(self, *arguments, check=True, **options):
        command = [str(LAUNCHER), *arguments, "--data-dir", str(self.data)]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        if check and result.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout[-4000:]}\n{self.logs()}")
        return result.stdout

    def logs(self):
        out = []
        for name in ("server.log", "engine.log"):
            path = self.data / "log" / name
            if path.exists():
                out.append(f"--- {name}\n" + path.read_text(errors="replace")[-4000:])
        return "\n".join(out)

    def up(self):
        out = self.launcher("up", "--port", str(self.port))
        self.key = (self.data / "secret" / "api-key").read_text().strip()
        return out

    def down(self, everything=False):
        return self.launcher("down", *(["--all"] if everything else []))

    def client(self, **options):
        return Client(self.url, self.key, **options)

    def pid(self, name):
        """Process id of "server" or "engine"."""
        return int((self.run_folder / f"{name}.pid").read_text().split()[0])

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        last = None
        while time.monotonic() < end:
            try:
                client = self.client(timeout=5)
                client.call("GET", "/healthz")
                return
            except (OSError, ApiError, http.client.HTTPException) as e:
                last = e
                time.sleep(0.05)
        raise AssertionError(f"not ready within {seconds} s: {last}\n{self.logs()}")


@contextlib.contextmanager
def installation():
    with tempfile.TemporaryDirectory(prefix="atoll-test-") as folder:
        os.chmod(folder, 0o755)
        atoll = Installation(pathlib.Path(folder) / "data", free_port())
        instance = None
        try:
            atoll.up()
            instance = atoll.instance
            yield atoll
        finally:
            atoll.down(everything=True)
        left = await_none(lambda: traces(instance, folder))
        assert not left, f"left behind: {sorted(left)}"


def await_none(find, seconds=15):
    end = time.monotonic() + seconds
    while (found := find()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def traces(*words):
    """Everything on this machine that names one of the words: processes, mounts, cgroups, network namespaces, files."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            cgroups = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            continue
        if int(pid) != os.getpid() and any(word in command or word in cgroups for word in words):
            found.add(f"process {pid} {command[:120]}")
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if any(word in line for word in words):
            found.add(f"mount {line.split()[4]}")
    for base, depth in (("/sys/fs/cgroup", 3), ("/run", 2), ("/dev/shm", 1), ("/tmp", 1)):
        for level in range(1, depth + 1):
            for path in pathlib.Path(base).glob("/".join(["*"] * level)):
                if any(word in path.name for word in words) and not path.name.startswith("atoll-test-"):
                    found.add(f"path {path}")
    return found

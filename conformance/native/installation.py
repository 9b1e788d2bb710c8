"""An Atoll installation of the tests' own: other data folder, other port, gone without a trace afterwards."""

import contextlib
import http.client
import ipaddress
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "atoll"
BOX_ID = re.compile(rb"box-[0-9a-hjkmnp-tv-z]{26}")


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
    """One kept connection to the API; not shared between threads. `tries` of a call whose connection breaks: with 1 nothing is ever sent twice."""

    def __init__(self, url, key, timeout=180, tries=2):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.timeout = parts.hostname, parts.port, timeout
        self.url, self.key, self.tries, self.connection, self.status = url, key, tries, None, None

    def open(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)

    def headers(self):
        return {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}

    def call(self, method, path, body=None, headers=None):
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        for attempt in range(1, self.tries + 1):
            self.connection = self.connection or self.open()
            try:
                self.connection.request(method, path, data, {**self.headers(), **(headers or {})})
                response = self.connection.getresponse()
                text = response.read()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, http.client.CannotSendRequest):
                self.close()
                if attempt == self.tries:
                    raise
        self.status = response.status
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


    # What of it is on the machine.

    def box_processes(self):
        """Pids of all processes of its sandboxes, also of those that only wait to become one."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                cgroups = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            of_runtime = f"{self.run_folder}/runsc".encode() in command and b"atoll-engine" not in command
            if f"/atoll-{self.instance}/" in cgroups or of_runtime:
                found.add(int(pid))
        return found

    def sentries(self, sandbox=None):
        """Pids of the kernels of all sandboxes, or of one; none where that is paused."""
        ids = {sandbox.encode()} if sandbox else None
        for name in self.folders("boxes") if sandbox else ():
            # Others may go meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if sandbox.encode() in (text := (self.data / "boxes" / name / "box.json").read_bytes()):
                    ids |= {name.encode(), *BOX_ID.findall(text)}
        found = []
        for pid in self.box_processes():
            with contextlib.suppress(OSError):
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"\0boot\0" in command and (ids is None or any(one in command for one in ids)):
                    found.append(pid)
        return found

    def cgroups(self):
        """Names of the control groups of its sandboxes."""
        return {name for base in self.cgroup_folders() for name in next(os.walk(base), (base, [], []))[1]}

    def cgroup_folders(self):
        """Where they lie in each hierarchy; other groups may come and go meanwhile, which os.walk does not mind."""
        return [pathlib.Path(folder) / name for folder, names, _ in os.walk("/sys/fs/cgroup") for name in names if name == f"atoll-{self.instance}"]

    def mounts(self):
        return sorted(line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if self.instance in line.split()[4])

    def boxes(self):
        """Names of its boxes; not of the containers that a box took over from a prepared one, as long as it is there."""
        names = self.folders("boxes")
        owned = set()
        for name in names:
            with contextlib.suppress(FileNotFoundError, ValueError):
                owner = json.loads((self.data / "boxes" / name / "box.json").read_text()).get("owner")
                owned |= {name} if owner in names else set()
        return [name for name in names if name not in owned]

    def folders(self, name):
        """Names of the folders in a folder of its data: "boxes", "snapshots"."""
        folder = self.data / name
        with contextlib.suppress(FileNotFoundError):
            return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        return []

    def kill(self, *names):
        """kill -9 of "server" and "engine", and waits until they are gone."""
        kill_pids([self.pid(name) for name in names])

    def reboot(self):
        """What the crash of a machine leaves: the data folder. `up` is still to be called."""
        self.kill("server", "engine")
        # Whoever is killed may have started another just before.
        while pids := self.box_processes():
            kill_pids(pids)
        for place in reversed(self.mounts()):
            subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(self.run_folder)
        for name in pathlib.Path("/run/netns").glob(f"*{self.instance}*"):
            name.unlink()
        for base in self.cgroup_folders():
            for group in [*sorted((path for path in base.rglob("*") if path.is_dir()), reverse=True), base]:
                assert not await_none(lambda: not removed(group)), f"{group} is still in use"
        # What was written down was written under another boot.
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        for record in (self.data / "boxes").glob("*/*.json"):
            record.write_text(record.read_text().replace(boot, "00000000" + boot[8:]))

    def words(self, name):
        """With what "server" or "engine" was started, for start_again."""
        pid = self.pid(name)
        argv = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        environment = dict(pair.split(b"=", 1) for pair in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if b"=" in pair)
        as_server = ["setpriv", "--reuid", "atoll", "--regid", "atoll", "--init-groups", "--no-new-privs"]
        return [*(as_server if name == "server" else []), *argv], environment

    def start_again(self, name, words):
        """As `up` does after a kill, in a fraction of its time. Does not wait until it is ready."""
        argv, environment = words
        if name == "engine":
            (self.run_folder / "engine.sock").unlink(missing_ok=True)
        with open(self.data / "log" / f"{name}.log", "ab") as log:
            process = subprocess.Popen(argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        (self.run_folder / f"{name}.pid").write_text(f"{process.pid} {start_time(process.pid)}\n")
        # It outlives this program where it is not stopped; until then somebody has to wait for it.
        threading.Thread(target=process.wait, daemon=True).start()
        if name == "engine":
            assert not await_none(lambda: not (self.run_folder / "engine.sock").is_socket(), 60), f"the engine did not start\n{self.logs()}"

    def configure(self, **settings):
        """Writes server.conf, with _ for the first dot of each name; holds from the next `up` on."""
        self.data.mkdir(exist_ok=True)
        (self.data / "server.conf").write_text("".join(f"{name.replace('_', '.', 1)}={value}\n" for name, value in settings.items()))


# What builds take packages from.
MIRRORS = ("deb.debian.org:80", "pypi.org:443", "files.pythonhosted.org:443", "registry.npmjs.org:443")


def mirrors_of_this_network():
    """The value of build.allow: which of them lead to addresses that are not public, as where a network has mirrors of its own."""

    def private(name):
        host, port = name.split(":")
        with contextlib.suppress(OSError):
            return not all(ipaddress.ip_address(found[4][0]).is_global for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return False

    return ",".join(name for name in MIRRORS if private(name))


def start_time(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def removed(folder):
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill_pids(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    left = await_none(lambda: {pid for pid in pids if not gone(pid)}, 30)
    assert not left, f"not to be killed: {left}"


@contextlib.contextmanager
def disk_of(megabytes):
    """A folder that is a file system of that size."""
    with tempfile.TemporaryDirectory(prefix="atoll-test-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "atoll-test", folder], check=True)
        try:
            yield pathlib.Path(folder)
        finally:
            assert not await_none(lambda: subprocess.run(["umount", folder], capture_output=True).returncode, 30), f"{folder} is still in use"


@contextlib.contextmanager
def installation(folder=None, **settings):
    """In that folder, else in one of its own; `settings` as `configure` takes them."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="atoll-test-"))
            os.chmod(folder, 0o755)
        atoll = Installation(pathlib.Path(folder) / "data", free_port())
        if settings:
            atoll.configure(**settings)
        instance = None
        try:
            atoll.up()
            instance = atoll.instance
            yield atoll
        finally:
            atoll.down(everything=True)
        left = await_none(lambda: traces(instance, str(atoll.data)))
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

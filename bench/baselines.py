"""What Atoll is compared with: plain `runsc run` as `go install` builds it, and Jupyter Kernel Gateway with ipykernel."""

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import uuid

from websockets.sync.client import connect

from load import free_port, processes_naming, tree_memory

GVISOR = "gvisor.dev/gvisor/runsc@v0.0.0-20260905035102-160fafc42237"


class PlainRunsc:
    """One `runsc run` of `python3 -c 'print(1+1)'` per call: default build, directory root, no server."""

    def __init__(self, cache, image):
        self.cache = pathlib.Path(cache) / "bench"
        self.binary = self.cache / "runsc-go-install" / "runsc"
        if not self.binary.exists():
            subprocess.run(["go", "install", GVISOR], check=True, env={**os.environ, "GOBIN": str(self.binary.parent), "CGO_ENABLED": "0"})
        self.rootfs = self.cache / f"rootfs-{pathlib.Path(image).stem}"
        if not self.rootfs.exists():
            partial = self.rootfs.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            subprocess.run(["fsck.erofs", f"--extract={partial}", str(image)], check=True, stdout=subprocess.DEVNULL)
            partial.rename(self.rootfs)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-bench-runsc-"))
        spec = {
            "ociVersion": "1.0.0",
            "process": {"args": ["/usr/bin/python3", "-c", "print(1+1)"], "cwd": "/", "env": ["PATH=/usr/bin:/bin"], "user": {"uid": 0, "gid": 0}},
            "root": {"path": str(self.rootfs), "readonly": False},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
        }
        (self.work / "config.json").write_text(json.dumps(spec))
        self.count = 0

    def run(self):
        """Seconds from nothing to the answer."""
        self.count += 1
        begin = time.monotonic()
        out = subprocess.run(
            [str(self.binary), f"--root={self.work}/root", "--network=none", "--ignore-cgroups", "--overlay2=root:memory", "run", "--bundle", str(self.work), f"bench{self.count:06d}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        took = time.monotonic() - begin
        if out.stdout.strip() != "2":
            raise RuntimeError(f"plain runsc: {out.stdout!r} {out.stderr[-500:]!r}")
        return took

    def resident(self):
        """One container that sleeps, to run programs in by `runsc exec`."""
        return RunscExec(self)

    def command(self, *arguments):
        return [str(self.binary), f"--root={self.work}/root", "--network=none", "--ignore-cgroups", "--overlay2=root:memory", *arguments]

    def close(self):
        subprocess.run(["umount", str(self.work / "root" / "null-netns")], capture_output=True)
        shutil.rmtree(self.work, ignore_errors=True)


class RunscExec:
    """What people script around a sandbox that has no server: each program is one `runsc exec`."""

    def __init__(self, runsc):
        self.runsc, self.id = runsc, "benchexec1"
        self.bundle = runsc.work / "exec"
        self.bundle.mkdir(exist_ok=True)
        spec = json.loads((runsc.work / "config.json").read_text())
        spec["process"]["args"] = ["/bin/sleep", "100000"]
        (self.bundle / "config.json").write_text(json.dumps(spec))
        subprocess.run(runsc.command("run", "--detach", "--bundle", str(self.bundle), self.id), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def exec(self, *argv, **options):
        return subprocess.Popen(self.runsc.command("exec", self.id, *argv), **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **options})

    def run(self, *argv):
        """Seconds of one program, and what it printed."""
        begin = time.monotonic()
        out, _ = self.exec(*argv).communicate()
        return time.monotonic() - begin, out

    def write(self, size):
        """MB/s into a file."""
        begin = time.monotonic()
        process = self.exec("/bin/sh", "-c", "cat > /root/big", stdin=subprocess.PIPE)
        piece = os.urandom(1 << 20)
        for _ in range(size >> 20):
            process.stdin.write(piece)
        process.stdin.close()
        process.wait()
        return size / (time.monotonic() - begin) / 1e6

    def read(self, size):
        """MB/s out of it."""
        begin, total = time.monotonic(), 0
        process = self.exec("/bin/cat", "/root/big")
        while piece := process.stdout.read(1 << 20):
            total += len(piece)
        process.wait()
        if total != size:
            raise RuntimeError(f"plain runsc: {total} of {size} bytes")
        return size / (time.monotonic() - begin) / 1e6

    def cat_times(self, count):
        """Seconds from a byte to its return by `cat` over the pipes of a `runsc exec`. (Its terminals echo on the host, not inside.)"""
        process, times = self.exec("/bin/cat", stdin=subprocess.PIPE), []
        for _ in range(count):
            begin = time.monotonic()
            os.write(process.stdin.fileno(), b"k")
            if os.read(process.stdout.fileno(), 10) != b"k":
                raise RuntimeError("plain runsc: no answer")
            times.append(time.monotonic() - begin)
        process.stdin.close()
        process.wait(30)
        return times

    def idle_memory(self, count):
        """MB on the host for each program that does nothing, with the one that holds its streams."""
        before = tree_memory(self.owners())
        started = [self.exec("/bin/sleep", "1000") for _ in range(count)]
        time.sleep(3)
        used = (tree_memory(self.owners() + [p.pid for p in started]) - before) / count
        for process in started:
            process.kill()
            process.wait()
        return used

    def owners(self):
        return processes_naming(self.id, "boot")

    def close(self):
        subprocess.run(self.runsc.command("kill", self.id, "KILL"), capture_output=True)
        subprocess.run(self.runsc.command("delete", "--force", self.id), capture_output=True)


class KernelGateway:
    """A session is a kernel, a process of the host without isolation."""

    def __init__(self):
        self.port = free_port()
        binary = pathlib.Path(os.sys.prefix) / "bin" / "jupyter-kernelgateway"
        self.home = tempfile.mkdtemp(prefix="atoll-bench-jupyter-")
        self.process = subprocess.Popen(
            [str(binary), "--ip=127.0.0.1", f"--port={self.port}", "--KernelGatewayApp.port_retries=0", "--ZMQChannelsWebsocketConnection.limit_rate=False"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.home, "JUPYTER_RUNTIME_DIR": f"{self.home}/runtime", "IPYTHONDIR": f"{self.home}/ipython"})
        end = time.monotonic() + 60
        while True:
            try:
                self.request("GET", "/api/kernelspecs")
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError("the Kernel Gateway did not start") from None
                time.sleep(0.1)

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return json.loads(text) if text else None

    def session(self):
        return Kernel(self)

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.home, ignore_errors=True)


class Kernel:
    def __init__(self, gateway):
        self.gateway = gateway
        self.id = gateway.request("POST", "/api/kernels", '{"name": "python3"}')["id"]
        self.socket = connect(f"ws://127.0.0.1:{gateway.port}/api/kernels/{self.id}/channels", max_size=None, compression=None, open_timeout=60)
        self.name = uuid.uuid4().hex

    def stream(self, code):
        message = uuid.uuid4().hex
        self.socket.send(json.dumps({
            "header": {"msg_id": message, "msg_type": "execute_request", "username": "", "session": self.name, "version": "5.3"},
            "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False, "stop_on_error": True}}))
        waiting = {"idle", "reply"}
        while waiting:
            answer = json.loads(self.socket.recv(timeout=180))
            if answer["parent_header"].get("msg_id") != message:
                continue
            kind, content = answer["header"]["msg_type"], answer["content"]
            if kind == "stream":
                yield content["text"]
            elif kind == "execute_reply":
                waiting.discard("reply")
            elif kind == "status" and content["execution_state"] == "idle":
                waiting.discard("idle")

    def run(self, code):
        return "".join(self.stream(code))

    def close(self):
        self.socket.close()
        self.gateway.request("DELETE", f"/api/kernels/{self.id}")

    def memory(self):
        return tree_memory([self.gateway.process.pid])

"""Images that come from elsewhere, where nothing public can be reached: a registry on loopback, and a root like Alpine's."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import threading
import urllib.request
import zipfile

from installation import ROOT

CACHE = pathlib.Path(os.environ.get("ATOLL_CACHE", "/var/cache/atoll"))

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


class Registry:
    """What of OCI's distribution protocol a pull needs, over the blobs of a folder. Tags are names of manifests there."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifests, self.asked = {}, []
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                registry.asked.append(self.path)
                wanted = re.fullmatch(r"/v2/([a-z0-9/._-]+)/(manifests|blobs)/([A-Za-z0-9._:-]+)", self.path)
                if self.path in ("/v2", "/v2/"):
                    self.answer(200, b"{}", "application/json")
                elif wanted and wanted[2] == "manifests" and (found := registry.manifests.get((wanted[1], wanted[3]))):
                    self.answer(200, found, MANIFEST)
                elif wanted and wanted[2] == "blobs" and (blob := registry.folder / wanted[3].removeprefix("sha256:")).is_file():
                    self.send(200, blob.stat().st_size, "application/octet-stream")
                    if self.command == "GET":
                        with open(blob, "rb") as content:
                            self.wfile.flush()
                            self.connection.sendfile(content)
                else:
                    self.answer(404, b'{"errors":[{"code":"NAME_UNKNOWN","message":"none"}]}', "application/json")

            def answer(self, status, body, kind):
                self.send(status, len(body), kind, {"Docker-Content-Digest": digest_of(body)} if kind == MANIFEST else {})
                if self.command == "GET":
                    self.wfile.write(body)

            def send(self, status, length, kind, headers={}):
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": length, **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"

    def push(self, name, layer, config):
        """An image of one layer, a tar that is moved here; returns its reference."""
        config = json.dumps({"architecture": architecture(), "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sum_of(layer)]}}).encode()
        described = [self.keep(layer), self.keep_text(config)]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, **described[1]},
            "layers": [{"mediaType": LAYER, **described[0]}],
        }
        text = json.dumps(manifest).encode()
        self.manifests[name, "1"] = self.manifests[name, digest_of(text)] = text
        return f"{self.host}/{name}:1"

    def keep(self, file):
        size, name = file.stat().st_size, sum_of(file)
        file.rename(self.folder / name)
        return {"digest": "sha256:" + name, "size": size}

    def keep_text(self, text):
        (self.folder / digest_of(text).removeprefix("sha256:")).write_bytes(text)
        return {"digest": digest_of(text), "size": len(text)}


@contextlib.contextmanager
def registry():
    # Not in memory, as /tmp may be.
    with tempfile.TemporaryDirectory(prefix="atoll-registry-", dir="/var/tmp") as folder:
        started = Registry(folder)
        serving = threading.Thread(target=started.server.serve_forever)
        serving.start()
        try:
            yield started
        finally:
            started.server.shutdown()
            started.server.server_close()
            serving.join()


def architecture():
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def sum_of(file):
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digest_of(text):
    return "sha256:" + hashlib.sha256(text).hexdigest()


def exported(recipe, folder):
    """The image of a recipe as a layer and a configuration, as a Dockerfile's would be. Built if it is not there."""
    image = pathlib.Path(subprocess.run([ROOT / "images" / "build.sh", recipe], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    says = json.loads(image.with_suffix(".json").read_text())
    layer = pathlib.Path(folder) / f"{recipe}.tar"
    with tempfile.TemporaryDirectory(prefix="atoll-export-", dir="/var/tmp") as mounted:
        subprocess.run(["mount", "-t", "erofs", "-o", "loop,ro", image, mounted], check=True)
        try:
            subprocess.run(["tar", "-C", mounted, "--numeric-owner", "-cf", layer, "."], check=True)
        finally:
            subprocess.run(["umount", mounted], check=True)
    return layer, {
        "Env": [f"{name}={value}" for name, value in says["env"].items()],
        "User": says["user"],
        "WorkingDir": says["workdir"],
        "Cmd": ["bash"],
    }


# A root like Alpine's, of parts that are built for musl: the loader of Debian's package, Bun's build for musl, and the C++ library, which Bun
# needs and Debian has not, out of a wheel. Of Debian 13, since Bun's parts have relative relocations that musl 1.2.3 does not know.
MUSL = {
    "x86_64": {
        "loader": (
            "http://deb.debian.org/debian/pool/main/m/musl/musl_1.2.5-3_amd64.deb",
            "4288deaf14438e6c237491be45f10e3e7badb2e723cedfb08ff1fe687b646c84",
            "usr/lib/x86_64-linux-musl/libc.so",
        ),
        "bun": (
            "@oven/bun-linux-x64-musl-baseline@1.4.5",
            "sha512-cWJhU8h0+MiUgpSt99sQhjxLIIosKEcKYdtKddohokUvAuN6jKOy7g7+QDTZTXtwHxz93wL3BX+L6wXVPDUH3A==",
        ),
        "wheel": ("contourpy==1.3.3", "459c1f020cd59fcfe6650180678a9993932d80d44ccde1fa1868977438f0b411"),
    }
}

OS_RELEASE = 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.22.0\nPRETTY_NAME="Alpine Linux v3.22"\n'


def musl_root(folder):
    """The tar of it. What is downloaded is kept in the cache."""
    machine = os.uname().machine
    parts = MUSL[machine]
    tools = ["sh", "ls", "cat", "echo", "env", "id", "sleep", "uname", "ps", "grep", "sed", "head", "tail", "mkdir", "rm", "ln", "tar", "wget"]
    out = pathlib.Path(folder) / "alpine.tar"
    with tempfile.TemporaryDirectory(prefix="atoll-musl-", dir="/var/tmp") as work, tarfile.open(out, "w") as tar:
        work = pathlib.Path(work)

        def add(path, content, mode=0o755):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))

        def link(path, target):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)

        address, sha256, path = parts["loader"]
        package = downloaded(address, sha256)
        subprocess.run(["dpkg-deb", "-x", package, work / "musl"], check=True)
        add(f"lib/ld-musl-{machine}.so.1", (work / "musl" / path).read_bytes())
        link(f"lib/libc.musl-{machine}.so.1", f"ld-musl-{machine}.so.1")

        bun = from_npm(*parts["bun"])
        with tarfile.open(bun) as packed:
            add("usr/local/bin/bun", packed.extractfile("package/bin/bun").read())

        with zipfile.ZipFile(from_pypi(*parts["wheel"])) as wheel:
            for name in wheel.namelist():
                if found := re.search(r"\.libs/(lib(stdc\+\+|gcc_s)-.*)", name):
                    add("usr/lib/" + found[1], wheel.read(name))
                    if found[2] == "stdc++":
                        link("usr/lib/libstdc++.so.6", found[1])

        add("bin/busybox", pathlib.Path("/bin/busybox").read_bytes())
        for tool in tools:
            link("bin/" + tool, "busybox")
        # A program of this machine, which needs its loader.
        add("usr/bin/of-glibc", pathlib.Path("/bin/ls").resolve().read_bytes())
        add("etc/os-release", OS_RELEASE.encode(), 0o644)
        add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n", 0o644)
        add("etc/group", b"root:x:0:root\nnobody:x:65534:\n", 0o644)
    return out


def kept(name, bring):
    """A file of the cache, brought if it is not there: bring(folder) -> path."""
    target = CACHE / "downloads" / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            bring(pathlib.Path(folder)).rename(target)
    return target


def checked(file, sha256):
    got = sum_of(file)
    assert got == sha256, f"{file}: sha256 {got} (expected: {sha256})"
    return file


def downloaded(address, sha256):
    def bring(folder):
        with urllib.request.urlopen(address, timeout=120) as response:
            (folder / "file").write_bytes(response.read())
        return checked(folder / "file", sha256)

    return kept(address.rsplit("/", 1)[1], bring)


def from_npm(package, integrity):
    def bring(folder):
        subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", package], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        (file,) = folder.iterdir()
        got = "sha512-" + base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
        assert got == integrity, f"{package}: integrity {got} (expected: {integrity})"
        return file

    return kept(package.replace("/", "-") + ".tgz", bring)


def from_pypi(requirement, sha256):
    def bring(folder):
        machine = os.uname().machine
        command = ["python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        tags = ["--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--platform", f"musllinux_1_2_{machine}"]
        subprocess.run([*command, *tags, "--dest", folder, requirement], check=True)
        (file,) = folder.iterdir()
        return checked(file, sha256)

    return kept(requirement + ".whl", bring)

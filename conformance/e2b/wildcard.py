"""What stands before a server where clients reach sandboxes by host names over TLS only: a name server that knows one domain, a certificate for all names in it, and what ends TLS."""

import contextlib
import os
import pathlib
import random
import socket
import socketserver
import ssl
import struct
import subprocess
import threading

DOMAIN = "sandboxes.test"


class _Names(socketserver.BaseRequestHandler):
    """Every name in the domain is this machine; others are unknown."""

    def handle(self):
        query, reply = self.request
        end, labels = 12, []
        while query[end]:
            labels.append(query[end + 1 : end + 1 + query[end]].decode().lower())
            end += query[end] + 1
        question, kind = query[12 : end + 5], struct.unpack("!H", query[end + 1 : end + 3])[0]
        known = ".".join(labels).endswith(DOMAIN)
        answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + b"\x7f\x00\x00\x01" if known and kind == 1 else b""
        flags = 0x8180 if known else 0x8183
        reply.sendto(query[:2] + struct.pack("!HHHHH", flags, 1, int(bool(answer)), 0, 0) + question + answer, self.client_address)


class _Tls(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, context, behind):
        super().__init__(("127.0.0.1", 0), None)
        self.context, self.behind = context, behind

    def finish_request(self, request, _client):
        try:
            with self.context.wrap_socket(request, server_side=True) as front, socket.create_connection(("127.0.0.1", self.behind)) as back:
                up = threading.Thread(target=_copy, args=(front, back), daemon=True)
                up.start()
                _copy(back, front)
        except OSError:
            pass  # A client that went away.

    def shutdown_request(self, request):
        request.close()


def _copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def certificate(folder):
    """A key, and a certificate for all names in the domain that signs itself."""
    key, file = folder / "key.pem", folder / "certificate.pem"
    names = f"subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN}"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={DOMAIN}", "-addext", names]
    subprocess.run([*command, "-keyout", key, "-out", file], check=True, capture_output=True, timeout=60)
    return key, file


@contextlib.contextmanager
def before(port, folder):
    """Yields the port of TLS, and a function that makes of a command one that resolves names here and trusts the certificate."""
    folder = pathlib.Path(folder)
    key, file = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    address = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(2, 254)}"
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {address}\noptions timeout:5\n")

    def command(*words):
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, resolver, *words]

    with socketserver.ThreadingUDPServer((address, 53), _Names) as names, _Tls(context, port) as tls:
        for server in (names, tls):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield tls.server_address[1], command, {"SSL_CERT_FILE": str(file), "NODE_EXTRA_CA_CERTS": str(file)}
        finally:
            names.shutdown()
            tls.shutdown()

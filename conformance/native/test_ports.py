"""Servers in a sandbox: their ports are found and reached, also those on 127.0.0.1."""

import concurrent.futures
import json
import threading

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from inside import ALL_BYTES, await_that

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        total = 0
        while data := self.request.recv(65536):
            self.request.sendall(data); total += len(data)
        self.request.sendall(b'|%d' % total)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 64
Server(('127.0.0.1', PORT), Echo).serve_forever()
"""


def serving(box, port, code=ECHO):
    process = box.start("python3", "-c", code.replace("PORT", str(port)))["process_id"]
    await_that(lambda: port in [p["port"] for p in box.call("GET", "/ports")["items"]], f"a server on port {port}")
    return process


def all_of(tunnel):
    """What comes until the other side ends its direction."""
    got = b""
    while True:
        try:
            message = tunnel.recv(timeout=60)
        except ConnectionClosed:
            return got
        if isinstance(message, str):
            assert json.loads(message)["type"] == "end"
            return got
        got += message


def test_listening_ports_are_listed_with_their_program(box):
    assert box.call("GET", "/ports")["items"] == []
    process = serving(box, 3000)
    one = [p for p in box.call("GET", "/ports")["items"] if p["port"] == 3000][0]
    assert one["address"] == "127.0.0.1" and one["process_id"] == process and one["pid"] == box.process(process)["pid"] and "python3" in one["command"]
    box.start("python3", "-m", "http.server", "8000")
    await_that(lambda: {p["port"]: p["address"] for p in box.call("GET", "/ports")["items"]} == {3000: "127.0.0.1", 8000: "0.0.0.0"})
    box.call("DELETE", f"/processes/{process}")
    await_that(lambda: [p["port"] for p in box.call("GET", "/ports")["items"]] == [8000])


def test_tunnel_reaches_a_server_on_the_loopback_inside(box):
    serving(box, 3000)
    with box.tunnel(3000) as tunnel:
        tunnel.send(b"hello ")
        assert tunnel.recv(timeout=60) == b"hello "
        tunnel.send(ALL_BYTES)
        got = b""
        while len(got) < 256:
            got += tunnel.recv(timeout=60)
        assert got == ALL_BYTES


def test_half_close_is_kept_both_ways(box):
    serving(box, 3000)
    with box.tunnel(3000) as tunnel:
        tunnel.send(b"abc")
        tunnel.send(json.dumps({"type": "end"}))
        # The server inside sees the end, and still answers.
        assert all_of(tunnel) == b"abc|3"


def test_much_data_goes_through_whole_and_in_order(box):
    box.call("PATCH", "", {"limits": {"cpu": 0}})
    serving(box, 3000)
    data = bytes(i * 31 % 251 for i in range(1 << 20)) * 16
    with box.tunnel(3000) as tunnel:
        def send():
            for at in range(0, len(data), 100_000):
                tunnel.send(data[at:at + 100_000])
            tunnel.send(json.dumps({"type": "end"}))
        sender = threading.Thread(target=send)
        sender.start()
        assert all_of(tunnel) == data + b"|%d" % len(data)
        sender.join()


def test_many_tunnels_at_once(box):
    serving(box, 3000)

    def one(n):
        with box.again().tunnel(3000) as tunnel:
            tunnel.send(b"%d" % n)
            tunnel.send(json.dumps({"type": "end"}))
            return all_of(tunnel)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert list(pool.map(one, range(32))) == [b"%d|%d" % (n, len(str(n))) for n in range(32)]


def test_http_server_inside_answers_through_a_tunnel(box):
    box.put("/tmp/www/index.html", b"<h1>inside</h1>", parents=True)
    box.start("python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "-d", "/tmp/www")
    await_that(lambda: 8000 in [p["port"] for p in box.call("GET", "/ports")["items"]])
    with box.tunnel(8000) as tunnel:
        tunnel.send(b"GET / HTTP/1.0\r\nHost: localhost:8000\r\n\r\n")
        answer = all_of(tunnel)
    assert b" 200 " in answer.split(b"\r\n")[0] and answer.endswith(b"<h1>inside</h1>")


def test_client_that_reads_nothing_holds_nobody_up(box):
    serving(box, 3000, "import socket\ns = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', PORT)); s.listen(8)\nimport threading\ndef pour(c):\n    try:\n        while True: c.sendall(bytes(65536))\n    except OSError: pass\nwhile True: threading.Thread(target=pour, args=(s.accept()[0],)).start()")
    silent = box.tunnel(3000)
    with box.tunnel(3000) as reading:
        got = 0
        while got < 4 << 20:
            got += len(reading.recv(timeout=60))
    assert box.shell("echo on")["stdout"] == "on\n"
    silent.socket.close()


def test_port_that_nobody_listens_on_is_told_so(box):
    with pytest.raises(InvalidStatus) as e:
        box.tunnel(9999)
    answer = e.value.response
    assert answer.status_code >= 400 and json.loads(answer.body)["error"]["code"] == "port_closed"


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_ports_that_cannot_be_are_refused(box, port):
    with pytest.raises(InvalidStatus) as e:
        box.tunnel(port)
    assert e.value.response.status_code in (400, 404)


def test_tunnel_needs_a_key_and_the_right_sandbox(box, boxes):
    serving(box, 3000)
    with pytest.raises(InvalidStatus) as e:
        box.socket("/ports/3000/tunnel", headers={})
    assert e.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as e:
        boxes().tunnel(3000)
    assert json.loads(e.value.response.body)["error"]["code"] == "port_closed"


def test_tunnel_ends_with_its_server(box):
    process = serving(box, 3000)
    with box.tunnel(3000) as tunnel:
        tunnel.send(b"x")
        assert tunnel.recv(timeout=60) == b"x"
        box.call("DELETE", f"/processes/{process}")
        assert all_of(tunnel) == b""

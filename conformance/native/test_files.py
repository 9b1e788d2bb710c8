"""Files of a sandbox over HTTP: resolved inside it, as the named user, of any size."""

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
import time

import pytest

from inside import ALL_BYTES, EMOJI, await_that, events
from installation import ApiError


def names(items):
    return [item["name"] for item in items]


# Reading and writing


def test_written_file_is_read_back_and_described(box):
    answer = box.put("/tmp/new/deep/file.txt", b"content", parents=True, mode="0640")
    assert answer["bytes"] == 7 and answer["file"]["path"] == "/tmp/new/deep/file.txt"
    with box.open("GET", "/files", path="/tmp/new/deep/file.txt") as response:
        assert response.status == 200 and response.headers["Content-Length"] == "7" and response.headers["Last-Modified"]
        view = json.loads(response.headers["X-Atoll-File"])
        assert response.read() == b"content"
    assert (view["type"], view["size"], view["mode"], view["owner"], view["group"], view["uid"], view["name"]) == ("file", 7, "0640", "user", "user", 1000, "file.txt")
    assert view["modified_at"].endswith("Z") and view["links"] == 1 and view["inode"] > 0
    assert {k: view[k] for k in ("path", "size", "inode")} == {k: box.stat("/tmp/new/deep/file.txt")[k] for k in ("path", "size", "inode")}
    with box.open("HEAD", "/files", path="/tmp/new/deep/file.txt") as response:
        assert response.headers["Content-Length"] == "7" and response.read() == b"" and json.loads(response.headers["X-Atoll-File"])["size"] == 7


def test_new_file_is_created_and_an_old_one_replaced(box):
    assert box.raw("PUT", "/files", b"1", path="/tmp/f").status == 201
    assert box.raw("PUT", "/files", b"2", path="/tmp/f").status == 200
    assert box.get("/tmp/f") == b"2"


def test_path_without_a_slash_is_in_the_users_home(box):
    box.put("mine", b"x")
    assert box.stat("mine")["path"] == "/home/user/mine" and box.shell("cat ~/mine")["stdout"] == "x"
    box.put("mine", b"root's", user="root")
    assert box.get("/root/mine", user="root") == b"root's"


def test_replacing_keeps_mode_and_owner_and_follows_symlinks(box):
    box.shell("sudo sh -c 'echo old > /tmp/roots; chmod 0666 /tmp/roots'; echo x > /tmp/script; chmod 0755 /tmp/script; ln -s script /tmp/link")
    box.put("/tmp/script", b"new")
    assert box.stat("/tmp/script")["mode"] == "0755"
    box.put("/tmp/link", b"through the link")
    assert box.get("/tmp/script") == b"through the link" and box.stat("/tmp/link")["type"] == "symlink"


def test_append_create_and_write_at_an_offset(box):
    box.put("/tmp/f", b"one", write="create")
    assert box.refused("PUT", "/files", b"x", path="/tmp/f", write="create").code == "file_exists"
    box.put("/tmp/f", b" two", write="append")
    box.put("/tmp/f", b"ONE", write="at_offset", offset=0)
    assert box.get("/tmp/f") == b"ONE two"
    box.put("/tmp/f", b"!", write="at_offset", offset=10)
    assert box.get("/tmp/f") == b"ONE two\0\0\0!"


def test_parts_of_a_file_by_offset_and_by_range(box):
    box.put("/tmp/f", ALL_BYTES)
    assert box.get("/tmp/f", offset=250) == ALL_BYTES[250:] and box.get("/tmp/f", offset=10, length=5) == ALL_BYTES[10:15]
    for header, expected in (("bytes=0-9", ALL_BYTES[:10]), ("bytes=250-", ALL_BYTES[250:]), ("bytes=-6", ALL_BYTES[-6:]), ("bytes=100-100000", ALL_BYTES[100:])):
        answer = box.raw("GET", "/files", headers={"Range": header}, path="/tmp/f")
        assert answer.status == 206 and answer.body == expected and answer.headers["Content-Range"].endswith("/256")
    assert box.refused("GET", "/files", headers={"Range": "bytes=256-"}, path="/tmp/f").status == 416


@pytest.mark.parametrize("data", [b"", b"\n", ALL_BYTES, b"\xff\xfe\x00" * 1000, EMOJI.encode() * 100], ids=["empty", "newline", "all bytes", "no UTF-8", "emoji"])
def test_any_bytes_go_in_and_out(box, data):
    box.put("/tmp/f", data)
    assert box.get("/tmp/f") == data
    assert box.run("sha256sum", "/tmp/f")["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    box.put("/tmp/chunked", iter([data[:7], data[7:]] if len(data) > 7 else [data] if data else []))
    assert box.get("/tmp/chunked") == data


def test_emoji_cut_at_every_offset_join_again(box):
    data = EMOJI.encode()
    for at in range(len(data) + 1):
        box.put("/tmp/f", data[:at])
        box.put("/tmp/f", data[at:], write="append")
        assert box.get("/tmp/f", length=at) + box.get("/tmp/f", offset=at) == data if at else box.get("/tmp/f") == data


NAMES = ["plain", "two words", "line\nbreak", "ünï🎉", "-rf", "$(touch pwned)", "a'b\"c", "x" * 255, "\x1b[2J", "%2F", "a+b&c=d?e#f", ".hidden", "..."]


def test_any_name_is_only_a_name(box):
    for name in NAMES:
        box.put(f"/tmp/names/{name}", name.encode(), parents=True)
        assert box.get(f"/tmp/names/{name}") == name.encode()
    assert sorted(names(box.list("/tmp/names"))) == sorted(NAMES)
    assert sorted(json.loads(box.run("python3", "-c", "import os, json; print(json.dumps(os.listdir('/tmp/names')))")["stdout"])) == sorted(NAMES)
    for name in NAMES:
        box.call("DELETE", "/files", path=f"/tmp/names/{name}")
    assert box.list("/tmp/names") == []


@pytest.mark.parametrize("path", ["", "/tmp/a\0b", "/tmp/" + "x" * 256, "/" + "a/" * 2100 + "f"])
def test_names_that_cannot_be_are_refused(box, path):
    for method, rest in (("GET", "/files"), ("PUT", "/files"), ("GET", "/files:stat"), ("DELETE", "/files")):
        assert box.refused(method, rest, b"" if method == "PUT" else None, path=path).status in (400, 404)


def test_dots_stay_inside_the_sandbox(box):
    box.put("/tmp/../tmp/./f", b"x")
    assert box.stat("/tmp/f")["size"] == 1
    assert box.get("/../../../../../../etc/hostname") == box.get("/etc/hostname")


def test_name_that_is_no_utf8_is_listed_and_can_be_removed_with_its_folder(box):
    box.run("python3", "-c", "import os; os.makedirs('/tmp/odd'); open(b'/tmp/odd/a\\xff\\xfeb', 'w')")
    assert len(box.list("/tmp/odd")) == 1
    box.call("DELETE", "/files", path="/tmp/odd", recursive=True)
    assert box.refused("GET", "/files:stat", path="/tmp/odd").code == "file_not_found"


# Folders


def test_folders_are_made_listed_with_depth_and_removed(box):
    box.call("POST", "/files:mkdir", {"path": "/tmp/a/b/c", "parents": True, "mode": "0700"})
    assert box.stat("/tmp/a/b/c")["mode"] == "0700"
    assert box.refused("POST", "/files:mkdir", {"path": "/tmp/a"}).code == "file_exists"
    box.call("POST", "/files:mkdir", {"path": "/tmp/a", "exist_ok": True})
    assert box.refused("POST", "/files:mkdir", {"path": "/tmp/not/there"}).code == "file_not_found"
    box.put("/tmp/a/1.txt", b"1")
    box.put("/tmp/a/.hidden", b"1")
    box.put("/tmp/a/b/2.txt", b"22")
    assert names(box.list("/tmp/a")) == [".hidden", "1.txt", "b"] and names(box.list("/tmp/a", hidden=False)) == ["1.txt", "b"]
    assert [item["path"] for item in box.list("/tmp/a", depth=3)] == ["/tmp/a/.hidden", "/tmp/a/1.txt", "/tmp/a/b", "/tmp/a/b/2.txt", "/tmp/a/b/c"]
    refused = box.refused("DELETE", "/files", path="/tmp/a")
    assert refused.status == 409 and refused.code == "file_conflict"
    box.call("DELETE", "/files", path="/tmp/a", recursive=True)
    assert box.refused("DELETE", "/files", path="/tmp/a").code == "file_not_found"
    box.call("DELETE", "/files", path="/tmp/a", force=True)


def test_list_comes_in_pages_without_loss(box):
    box.shell("mkdir /tmp/many; cd /tmp/many; for i in $(seq 1 1000); do echo > $i; done")
    assert sorted(names(box.list("/tmp/many", limit=7)), key=int) == [str(i) for i in range(1, 1001)]


def test_moving_and_copying(box):
    box.put("/tmp/one", b"1", mode="0600")
    box.put("/tmp/two", b"2")
    assert box.refused("POST", "/files:move", {"from": "/tmp/one", "to": "/tmp/two"}).code == "file_exists"
    box.call("POST", "/files:move", {"from": "/tmp/one", "to": "/tmp/two", "overwrite": True})
    assert box.get("/tmp/two") == b"1" and box.refused("GET", "/files:stat", path="/tmp/one").status == 404
    box.call("POST", "/files:move", {"from": "/tmp/two", "to": "/tmp/x/y/three", "parents": True})
    box.call("POST", "/files:copy", {"from": "/tmp/x/y/three", "to": "/tmp/four"})
    assert box.get("/tmp/four") == b"1" and box.stat("/tmp/four")["mode"] == "0600"
    assert 400 <= box.refused("POST", "/files:copy", {"from": "/tmp/x", "to": "/tmp/z"}).status < 500
    box.shell("ln -s y /tmp/x/link")
    box.call("POST", "/files:copy", {"from": "/tmp/x", "to": "/tmp/z", "recursive": True})
    assert box.get("/tmp/z/y/three") == b"1" and box.stat("/tmp/z/link")["link_target"] == "y"
    assert 400 <= box.refused("POST", "/files:move", {"from": "/tmp/x", "to": "/tmp/x/y/inside"}).status < 500


def test_mode_owner_and_time_are_changed(box):
    box.put("/tmp/d/f", b"x", parents=True)
    box.call("POST", "/files:chmod", {"path": "/tmp/d/f", "mode": "0751"})
    assert box.shell("stat -c %a /tmp/d/f")["stdout"] == "751\n"
    assert box.refused("POST", "/files:chmod", {"path": "/tmp/d/f", "owner": "root"}).code == "permission_denied"
    box.call("POST", "/files:chmod", {"path": "/tmp/d", "owner": "root", "group": "root", "recursive": True}, user="root")
    assert box.shell("stat -c %U:%G /tmp/d/f /tmp/d")["stdout"] == "root:root\nroot:root\n"
    box.call("POST", "/files:chmod", {"path": "/tmp/d/f", "modified_at": "2001-02-03T04:05:06Z"}, user="root")
    assert box.stat("/tmp/d/f")["modified_at"].startswith("2001-02-03T04:05:06")


def test_rights_are_those_of_the_named_user(box):
    assert box.refused("GET", "/files", path="/etc/shadow").code == "permission_denied"
    assert b"root:" in box.get("/etc/shadow", user="root")
    assert box.refused("PUT", "/files", b"x", path="/etc/new").code == "permission_denied"
    box.put("/etc/new", b"x", user="root")
    assert box.stat("/etc/new")["owner"] == "root"
    box.shell("mkdir -m 700 /tmp/closed; echo x > /tmp/closed/f")
    assert box.refused("GET", "/files", path="/tmp/closed/f", user="1234").code == "permission_denied"
    assert box.refused("GET", "/files", path="/tmp", user="no-such-user").status == 400


# Symlinks, devices and other traps


def test_symlinks_are_shown_as_such_and_followed_where_asked(box):
    box.put("/tmp/target", b"12345")
    box.call("POST", "/files:symlink", {"path": "/tmp/link", "target": "target"})
    link = box.stat("/tmp/link")
    assert (link["type"], link["link_target"], link["target_type"]) == ("symlink", "target", "file")
    assert box.stat("/tmp/link", follow=True)["size"] == 5 and box.get("/tmp/link") == b"12345"
    box.call("DELETE", "/files", path="/tmp/link")
    assert box.get("/tmp/target") == b"12345"
    box.call("POST", "/files:symlink", {"path": "/tmp/dangling", "target": "/not/there"})
    assert box.stat("/tmp/dangling")["type"] == "symlink" and box.refused("GET", "/files", path="/tmp/dangling").code == "file_not_found"


def test_symlinks_to_everywhere_give_only_what_the_user_may_see(box):
    """Hostile programs 49: passwd, /proc, a loop; a hard link; never anything of the machine around the sandbox."""
    box.shell("cd /tmp; ln -s /etc/shadow shadow; ln -s loop loop; ln -s /proc/1/root/etc/hostname outside; ln -s /proc/1/mem mem; ln -s /proc/kcore kcore; ln -s / root")
    assert box.refused("GET", "/files", path="/tmp/shadow").code == "permission_denied"
    assert box.refused("PUT", "/files", b"x", path="/tmp/shadow").code == "permission_denied"
    assert 400 <= box.refused("GET", "/files", path="/tmp/loop").status < 500
    for name in ("outside", "mem", "kcore"):
        for user in ("user", "root"):
            try:
                found = box.get(f"/tmp/{name}", user=user, length=4096)
                assert found == b"" or name == "outside" and found == box.get("/etc/hostname"), (name, user, found[:100])
            except ApiError as e:
                assert 400 <= e.status < 500, e
    assert box.get("/tmp/root/etc/hostname") == box.get("/etc/hostname")
    assert box.list("/tmp", depth=20)  # does not descend into links


def test_swapping_a_file_for_a_link_wins_nothing(box):
    """Hostile programs 50: between the check and the use."""
    swap = "import os\nwhile True:\n    os.symlink('/etc/shadow', '/tmp/s'); os.replace('/tmp/s', '/tmp/race')\n    open('/tmp/p', 'w').write('mine'); os.replace('/tmp/p', '/tmp/race')"
    process = box.start("python3", "-c", swap)["process_id"]
    await_that(lambda: box.shell("test -L /tmp/race -o -e /tmp/race && echo there")["stdout"])
    seen = set()
    for _ in range(60):
        try:
            data = box.get("/tmp/race")
            assert data in (b"mine", b""), data
            seen.add("read")
        except ApiError as e:
            assert e.code in ("permission_denied", "file_not_found"), e
            seen.add(e.code)
        try:
            box.put("/tmp/race", b"mine")
        except ApiError as e:
            assert 400 <= e.status < 500, e
    box.call("DELETE", f"/processes/{process}")
    assert "mine" not in box.run("cat", "/etc/shadow", user="root")["stdout"] and "read" in seen


def test_fifos_sockets_and_devices_are_no_files(box):
    """Hostile programs 51-53: nothing hangs on them."""
    box.shell("cd /tmp; mkfifo fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/tmp/socket')\"; ln -s /dev/zero zero; ln -s fifo tofifo")
    assert {i["name"]: i["type"] for i in box.list("/tmp") if i["name"] in ("fifo", "socket")} == {"fifo": "other", "socket": "other"}
    begin = time.monotonic()
    for name in ("fifo", "socket", "zero", "tofifo"):
        assert 400 <= box.refused("GET", "/files", path=f"/tmp/{name}").status < 500
        assert 400 <= box.refused("PUT", "/files", b"x", path=f"/tmp/{name}").status < 500
    assert 400 <= box.refused("GET", "/files", path="/tmp").status < 500
    assert time.monotonic() - begin < 20
    for name in ("fifo", "socket", "tofifo"):
        box.call("DELETE", "/files", path=f"/tmp/{name}")
    assert box.stat("/dev/zero")["type"] == "other"


def test_size_of_proc_files_does_not_matter(box):
    assert b"MemTotal" in box.get("/proc/meminfo")


# Searching and replacing


def test_files_are_found_by_name_and_by_content(box):
    box.put("/tmp/s/a.py", b"import os\nneedle = 1\n", parents=True)
    box.put("/tmp/s/deep/b.py", b"NEEDLE here\nand needle there\n", parents=True)
    box.put("/tmp/s/c.txt", "grüße needle".encode())
    box.put("/tmp/s/binary", b"needle\0\xff")
    box.put("/tmp/s/.git/x.py", b"needle", parents=True)
    found = lambda **query: box.call("GET", "/files:find", path="/tmp/s", **query)["items"]
    assert sorted(names(found(name="*.py"))) == ["a.py", "b.py"] and sorted(names(found(name="*.py", hidden=True))) == ["a.py", "b.py", "x.py"]
    assert names(found(name="**/b.py")) == ["b.py"] and names(found(type="directory")) == ["deep"]
    hits = found(content="needle")
    assert sorted((h["path"][7:], h["line"]) for h in hits) == [("a.py", 2), ("c.txt", 1), ("deep/b.py", 2)]
    for hit in hits:
        assert hit["text"].encode()[hit["from"]:hit["from"] + hit["length"]] == b"needle"
    assert len(found(content="needle", ignore_case=True)) == 4 and len(found(content="^n[e]+dle", regex=True)) == 1
    assert len(found(content="needle", limit=1)) == 1
    assert box.refused("GET", "/files:find", path="/tmp/s", content="(", regex=True).status == 400


def test_text_is_replaced_in_many_files(box):
    box.put("/tmp/1", b"one two one")
    box.put("/tmp/2", b"nothing")
    items = box.call("POST", "/files:replace", {"paths": ["/tmp/1", "/tmp/2", "/tmp/none", "/etc/hostname"], "pattern": "one", "replacement": "$1"})["items"]
    assert [item["count"] for item in items][:2] == [2, 0] and items[2]["error"] and box.get("/tmp/1") == b"$1 two $1"
    box.call("POST", "/files:replace", {"paths": ["/tmp/1"], "pattern": r"(t)(w)o", "replacement": "$2$1", "regex": True})
    assert box.get("/tmp/1") == b"$1 wt $1"


# Watching


def test_changes_are_streamed_also_of_new_folders(box):
    box.call("POST", "/files:mkdir", {"path": "/tmp/w"})
    with box.open("GET", "/files:watch", path="/tmp/w", recursive="true") as response:
        stream = events(response)
        assert next(stream)[1] == "ready"
        other = box.again()
        other.put("/tmp/w/f", b"1")
        other.shell("mkdir -p /tmp/w/new/deep; sleep 0.5; echo x > /tmp/w/new/deep/g; mv /tmp/w/f /tmp/w/h; chmod 600 /tmp/w/h; rm /tmp/w/h")
        seen = []
        for _, event, data in stream:
            seen.append((event, data.get("path")))
            if event == "remove" and data["path"] == "/tmp/w/h":
                break
    for one in (("create", "/tmp/w/f"), ("create", "/tmp/w/new"), ("rename", "/tmp/w/f"), ("create", "/tmp/w/h"), ("chmod", "/tmp/w/h"), ("remove", "/tmp/w/h")):
        assert one in seen, (one, seen)
    assert any(path == "/tmp/w/new/deep/g" for _, path in seen), seen


def test_changes_are_polled_by_cursor(box):
    box.call("POST", "/files:mkdir", {"path": "/tmp/w"})
    watch = box.call("POST", "/files:watch", {"path": "/tmp/w", "recursive": False})["watch_id"]
    box.put("/tmp/w/one", b"1")
    seen, cursor = [], None

    def came(name):
        nonlocal cursor
        page = box.call("GET", "/files:watch", watch_id=watch, after=cursor, wait_seconds=5)
        cursor = page["next"]
        assert page["overflow"] is False
        seen.extend(page["items"])
        return any(item["path"] == name for item in seen)

    await_that(lambda: came("/tmp/w/one"))
    count = len(seen)
    box.put("/tmp/w/two", b"2")
    await_that(lambda: came("/tmp/w/two"))
    assert not any(item["path"] == "/tmp/w/one" for item in seen[count:] if item["type"] == "create")
    box.call("DELETE", "/files:watch", watch_id=watch)
    assert box.refused("GET", "/files:watch", watch_id=watch).status == 404


def test_watching_what_is_not_there_is_refused(box):
    assert box.refused("GET", "/files:watch", path="/not/there").code == "file_not_found"


def test_storm_of_changes_is_told_whole_or_as_an_overflow(box):
    box.call("POST", "/files:mkdir", {"path": "/tmp/w"})
    with box.open("GET", "/files:watch", path="/tmp/w") as response:
        stream = events(response)
        assert next(stream)[1] == "ready"
        box.again().run("python3", "-c", "for i in range(20000): open(f'/tmp/w/{i}', 'w').close()\nopen('/tmp/w/last', 'w')", timeout_seconds=120)
        created, overflow = set(), False
        while True:
            _, event, data = next(stream)
            if event == "overflow":
                overflow = True
                break
            if event == "create":
                created.add(data["path"])
                if data["path"] == "/tmp/w/last":
                    break
    assert overflow or len(created) == 20001


# Many and large


def test_many_files_in_one_call(box):
    operations = [{"op": "mkdir", "path": "/tmp/b", "mode": "0755"}] + [{"op": "write", "path": f"/tmp/b/{i}", "content": str(i)} for i in range(200)] + [
        {"op": "write", "path": "/tmp/b/bin", "content": base64.b64encode(ALL_BYTES).decode(), "encoding": "base64"},
        {"op": "read", "path": "/tmp/b/7"}, {"op": "read", "path": "/tmp/b/bin", "encoding": "base64"}, {"op": "read", "path": "/tmp/b/none"},
        {"op": "stat", "path": "/tmp/b/8"}, {"op": "move", "from": "/tmp/b/9", "to": "/tmp/b/nine"}, {"op": "copy", "from": "/tmp/b/nine", "to": "/tmp/b/ten"},
        {"op": "chmod", "path": "/tmp/b/ten", "mode": "0600"}, {"op": "remove", "path": "/tmp/b/nine"}, {"op": "list", "path": "/tmp/b"}]
    items = box.call("POST", "/files:batch", {"operations": operations})["items"]
    assert len(items) == len(operations) and [i for i, item in enumerate(items) if not item["ok"]] == [204]
    assert items[202]["content"] == "7" and base64.b64decode(items[203]["content"]) == ALL_BYTES and items[204]["error"]["code"] == "file_not_found"
    assert items[205]["file"]["size"] == 1 and len(items[210]["entries"]) == 201
    stopped = box.call("POST", "/files:batch", {"operations": [{"op": "read", "path": "/none"}, {"op": "write", "path": "/tmp/late", "content": ""}], "stop_on_error": True})["items"]
    assert stopped[0]["ok"] is False and box.refused("GET", "/files:stat", path="/tmp/late").status == 404


def packed(entries, kind=""):
    """entries: name -> bytes, or a TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{kind}") as archive:
        for name, content in entries.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o640
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("kind, form", [("", "tar"), ("gz", "tar.gz")])
def test_folders_go_both_ways_as_an_archive(box, kind, form):
    sent = packed({"a/b.txt": b"1", "all": ALL_BYTES, "empty": special("empty", tarfile.DIRTYPE), "link": special("link", tarfile.SYMTYPE, "a/b.txt")}, kind)
    answer = box.raw("PUT", "/files:archive", sent, path="/tmp/up", format=form).json
    assert answer["bytes"] == 257 and box.get("/tmp/up/all") == ALL_BYTES and box.stat("/tmp/up/link")["link_target"] == "a/b.txt" and box.stat("/tmp/up/a/b.txt")["mode"] == "0640"
    got = box.raw("GET", "/files:archive", path="/tmp/up", format=form).body
    with tarfile.open(fileobj=io.BytesIO(got), mode=f"r:{kind}") as archive:
        found = {m.name.removeprefix("./").rstrip("/"): m for m in archive if m.name not in (".", "./")}
        assert set(found) == {"a", "a/b.txt", "all", "empty", "link"} and found["link"].issym() and archive.extractfile(found["all"]).read() == ALL_BYTES


def test_archives_that_climb_out_are_refused_or_contained(box):
    """Hostile programs 54-55: names with dots, absolute names, a link first and a write through it, devices."""
    box.shell("mkdir /tmp/outside")
    slips = [{"../outside/evil": b"x"}, {"/tmp/outside/evil": b"x"}, {"a/../../outside/evil": b"x"},
             {"link": special("link", tarfile.SYMTYPE, "/tmp/outside"), "link/evil": b"x"}, {"link": special("link", tarfile.SYMTYPE, "../outside"), "link/evil": b"x"},
             {"hard": special("hard", tarfile.LNKTYPE, "/etc/passwd"), "hard/x": b""}, {"device": special("device", tarfile.BLKTYPE)}]
    for n, slip in enumerate(slips):
        try:
            box.raw("PUT", "/files:archive", packed(slip), path=f"/tmp/in{n}", format="tar", user="root" if n == 6 else "user")
        except ApiError as e:
            assert 400 <= e.status < 500, e
    assert box.list("/tmp/outside") == [] and box.shell("find /tmp -name evil -path '*outside*'; find /tmp -type b")["stdout"] == ""
    for broken in (b"no archive at all" * 100, packed({"a": bytes(5000)})[:3000], gzip.compress(b"x")):
        assert 400 <= box.refused("PUT", "/files:archive", broken, path="/tmp/broken", format="tar").status < 500


def test_archive_that_explodes_ends_at_the_disks_limit(boxes):
    """Hostile programs 56."""
    box = boxes(limits={"disk_bytes": 64 << 20})
    bomb = gzip.compress(packed({f"zeros{i}": bytes(16 << 20) for i in range(8)}), 9)
    refused = box.refused("PUT", "/files:archive", bomb, path="/tmp/bomb", format="tar.gz")
    assert refused.code == "disk_full", refused
    box.call("DELETE", "/files", path="/tmp/bomb", recursive=True)
    box.put("/tmp/small", b"fits")
    assert box.get("/tmp/small") == b"fits"


def test_upload_that_breaks_off_changes_nothing_and_leaves_nothing(box):
    box.put("/tmp/half/f", b"old", parents=True)
    connection = box.client.open()
    connection.putrequest("PUT", box.path("/files", path="/tmp/half/f"))
    for name, value in (("Authorization", f"Bearer {box.client.key}"), ("Content-Length", str(50 << 20))):
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(bytes(5 << 20))
    connection.close()
    await_that(lambda: names(box.list("/tmp/half")) == ["f"], "the clearing away of the half")
    assert box.get("/tmp/half/f") == b"old"


def test_half_open_uploads_hold_nobody_up(box):
    """Hostile programs 22."""
    held = []
    for n in range(30):
        connection = box.client.open()
        connection.putrequest("PUT", box.path("/files", path=f"/tmp/half{n}"))
        connection.putheader("Authorization", f"Bearer {box.client.key}")
        connection.putheader("Content-Length", "1000000")
        connection.endheaders()
        connection.send(b"x" * 1000)
        held.append(connection)
    box.put("/tmp/f", b"x")
    assert box.get("/tmp/f") == b"x" and box.shell("echo on")["stdout"] == "on\n"
    for connection in held:
        connection.close()
    await_that(lambda: not [name for name in names(box.list("/tmp")) if "half" in name], "the clearing away of the halves")


def test_reader_who_stops_holds_nobody_up(box):
    box.call("PATCH", "", {"limits": {"cpu": 0}})
    box.shell("head -c 200000000 /dev/zero > /tmp/big")
    with box.open("GET", "/files", path="/tmp/big") as response:
        response.read(1000)
        for n in range(5):
            box.put(f"/tmp/f{n}", b"x")
            assert box.shell("echo on")["stdout"] == "on\n"


class Randoms:
    """Bytes of a known size and sum, made as they are sent."""

    def __init__(self, size):
        self.size, self.sum = size, hashlib.sha256()

    def __iter__(self):
        piece, left = os.urandom(1 << 20), self.size
        while left:
            part = piece[:left]
            self.sum.update(part)
            left -= len(part)
            yield part


def rss(atoll, name):
    for line in open(f"/proc/{atoll.pid(name)}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


class Watched:
    """The most memory that server and engine had meanwhile beyond what they began with."""

    def __init__(self, atoll):
        self.atoll, self.done = atoll, threading.Event()
        self.begin = {name: rss(atoll, name) for name in ("server", "engine")}
        self.most = dict(self.begin)

    def __enter__(self):
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.done.wait(0.1):
            for name in self.most:
                self.most[name] = max(self.most[name], rss(self.atoll, name))

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    @property
    def grown(self):
        return {name: (self.most[name] - self.begin[name]) >> 20 for name in self.most}


@pytest.mark.parametrize("size", [500 << 20, pytest.param(5 << 30, marks=pytest.mark.long)], ids=["500 MB", "5 GB"])
def test_large_file_goes_up_and_down_whole_with_flat_memory(atoll, boxes, size):
    box = boxes(limits={"disk_bytes": size + (256 << 20), "cpu": 0})
    # Once before, so that what is kept for later is there.
    box.put("/tmp/first", bytes(32 << 20))
    box.get("/tmp/first")
    sent = Randoms(size)
    with Watched(atoll) as watched:
        answer = box.raw("PUT", "/files", iter(sent), path="/tmp/big")
        assert answer.json["bytes"] == size
        got, total = hashlib.sha256(), 0
        with box.open("GET", "/files", path="/tmp/big") as response:
            assert int(response.headers["Content-Length"]) == size
            while piece := response.read(1 << 20):
                got.update(piece)
                total += len(piece)
    assert total == size and got.digest() == sent.sum.digest()
    assert watched.grown["server"] < 150 and watched.grown["engine"] < 100, watched.grown


def test_fifty_thousand_small_files_in_one_archive_and_back(atoll, boxes):
    box = boxes(limits={"cpu": 0, "memory_bytes": 512 << 20})
    count = 50000
    sent = packed({f"d{i % 100}/f{i}": str(i).encode() for i in range(count)})
    with Watched(atoll) as watched:
        answer = box.raw("PUT", "/files:archive", sent, path="/tmp/many", format="tar").json
        assert answer["files"] >= count
        assert box.shell("find /tmp/many -type f | wc -l")["stdout"].strip() == str(count)
        got = box.raw("GET", "/files:archive", path="/tmp/many", format="tar").body
    with tarfile.open(fileobj=io.BytesIO(got)) as archive:
        found = {m.name.removeprefix("./"): archive.extractfile(m).read() for m in archive if m.isfile()}
    assert found == {f"d{i % 100}/f{i}": str(i).encode() for i in range(count)}
    assert len(box.list("/tmp/many", depth=2)) == count + 100
    assert watched.grown["server"] < 200 and watched.grown["engine"] < 150, watched.grown


# Of whom and when


def test_files_of_other_and_of_ended_sandboxes_are_out_of_reach(client, box, boxes):
    other = boxes()
    box.put("/tmp/secret", b"mine")
    assert other.refused("GET", "/files", path="/tmp/secret").status == 404
    client.delete(other.id)
    for method, rest in (("GET", "/files"), ("PUT", "/files"), ("GET", "/files:list")):
        refused = other.refused(method, rest, b"" if method == "PUT" else None, path="/tmp")
        assert (refused.status, refused.code) == (410, "sandbox_ended")


@pytest.mark.parametrize("method, rest, body", [
    ("POST", "/files:mkdir", {}), ("POST", "/files:mkdir", {"path": "/tmp/x", "mode": "99"}), ("POST", "/files:move", {"from": "/tmp"}), ("POST", "/files:nonsense", {}),
    ("POST", "/files:batch", {"operations": [{"op": "nonsense"}]}), ("POST", "/files:batch", {}), ("POST", "/files:chmod", {"path": "/tmp", "nonsense": 1})])
def test_calls_without_sense_are_refused(box, method, rest, body):
    assert box.refused(method, rest, body).status in (400, 404, 405)

"""Snapshots and forks: any number go on from one state and then go their own ways; what must not be the same in two of them is not."""

import json
import threading

import pytest

from inside import Box, at_once, await_that, new_key
from installation import ApiError


@pytest.fixture
def keep(client):
    """Deletes what a test made: keep(box) or keep(snapshot view), which it returns."""
    kept = []
    yield lambda *made: kept.extend(made) or made[0]
    for one in kept:
        if isinstance(one, Box):
            one.delete()
        else:
            forget(client, one["snapshot_id"])


def forget(client, snapshot):
    try:
        client.call("DELETE", f"/v1/snapshots/{snapshot}")
    except ApiError as e:
        assert e.status == 404, e


def start(client, snapshot, **fields):
    return Box(client, client.call("POST", "/v1/sandboxes", {"snapshot": snapshot["snapshot_id"], **fields})["sandbox_id"])


def view(client, snapshot):
    return client.call("GET", f"/v1/snapshots/{snapshot['snapshot_id']}")


# Forks

LOADED = {
    "python": ("import hashlib, json, os, random, secrets, socket, ssl, tempfile, uuid\nrandom.random(); ssl.RAND_bytes(1)\n"
               "data = {str(n): n * n for n in range(100000)}; blob = os.urandom(20 << 20); mine = 'source'; log = open('/tmp/log', 'w+'); log.write('before ')",
               "print(json.dumps([len(data), data['777'], hashlib.sha256(blob).hexdigest(), mine]))",
               "print(json.dumps([random.random(), random.getrandbits(64), str(uuid.uuid4()), str(uuid.uuid1()), ssl.RAND_bytes(16).hex(), os.urandom(16).hex(), secrets.token_hex(16), next(tempfile._get_candidate_names())]))",
               "mine = '%s'; data['777'] = %d; log.write(mine); log.flush(); print(mine, data['777'], open('/tmp/log').read())"),
    "typescript": ("const data: Record<string, number> = {}; for (let n = 0; n < 100000; n++) data[n] = n * n;\n"
                   "import { createHash, randomBytes, randomUUID } from 'crypto'; import { appendFileSync, readFileSync, writeFileSync } from 'fs';\n"
                   "const blob = randomBytes(20 << 20); let mine = 'source'; writeFileSync('/tmp/log', 'before '); Math.random()",
                   "console.log(JSON.stringify([Object.keys(data).length, data[777], createHash('sha256').update(blob).digest('hex'), mine]))",
                   "console.log(JSON.stringify([Math.random(), Math.random(), randomUUID(), crypto.randomUUID(), randomBytes(16).toString('hex'), Array.from(crypto.getRandomValues(new Uint8Array(16))).join(' ')]))",
                   "mine = '%s'; data[777] = %d; appendFileSync('/tmp/log', mine); console.log(mine, data[777], readFileSync('/tmp/log', 'utf8'))"),
}


@pytest.mark.parametrize("language", LOADED)
def test_twenty_forks_go_on_from_one_state_and_diverge(client, keep, language):
    load, look, draw, diverge = LOADED[language]
    made = client.call("POST", "/v1/sandboxes", {"language": language, "limits": {"memory_bytes": 512 << 20, "cpu": 0}})
    source = keep(Box(client, made["sandbox_id"]))
    source.prints(load, language=language)
    state = source.prints(look, language=language)
    forks = source.fork(20)
    keep(*forks)
    everyone = [source, *forks]
    assert len({box.id for box in everyone}) == 21
    drawn = [json.loads(box.prints(draw, language=language)) for box in everyone]
    for kind in range(len(drawn[0])):
        values = [draws[kind] for draws in drawn]
        assert len(set(values)) == 21, (kind, values)
    assert {box.prints(look, language=language) for box in everyone} == {state}
    for n, box in enumerate(everyone):
        assert box.prints(diverge % (f"box-{n}", n), language=language) == f"box-{n} {n} before box-{n}"
    for n, box in enumerate(everyone):
        assert json.loads(box.prints(look, language=language))[1:] == [n, json.loads(state)[2], f"box-{n}"]


def test_fork_has_an_identity_of_its_own(client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python", "env": {"ROLE": "source", "KEPT": "1"}, "labels": {"of": "source"}})["sandbox_id"]))
    ask = "import os, socket; print(socket.gethostname(), os.environ.get('ROLE'), os.environ.get('KEPT'), os.environ.get('NEW'))"
    source.prints(ask)
    one = keep(source.fork(env={"ROLE": "fork", "NEW": "n"}, labels={"of": "fork"}, name="f" + new_key()[:10])[0])
    two = keep(source.fork()[0])
    answers = [box.prints(ask).split(" ", 1) for box in (source, one, two)]
    assert [answer[1] for answer in answers] == ["source 1 None", "fork 1 n", "source 1 None"]
    assert len({answer[0] for answer in answers}) == 3, "two have the same host name"
    # What is started from now on says the same as the interpreter.
    assert [box.shell("hostname")["stdout"].strip() for box in (source, one, two)] == [answer[0] for answer in answers]
    assert one.shell("echo $ROLE $NEW")["stdout"] == "fork n\n"
    views = [box.view() for box in (source, one, two)]
    assert views[0]["forked_from"] is None and views[1]["forked_from"]["sandbox_id"] == source.id
    assert views[1]["labels"] == {"of": "fork"} and views[2]["forked_from"]["sandbox_id"] == source.id
    assert one.runs()[0]["how"] == "fork"
    # `env`, and with it what is secret, is in no view.
    assert "n" not in json.dumps(views[1].get("env", ""))


def test_contexts_are_found_by_the_ids_they_had(client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"]))
    source.prints("where = 'default'")
    other = source.call("POST", "/contexts", {"language": "python"})["context_id"]
    source.prints("where = 'other'", context_id=other)
    fork = keep(source.fork()[0])
    own = {item["context_id"] for item in fork.call("GET", "/contexts")["items"]}
    assert other not in own and len(own) >= 2
    assert fork.prints("print(where)", context_id=other) == "other" and fork.prints("print(where)") == "default"
    # Each of the two goes on in its own.
    fork.prints("where = 'fork'", context_id=other)
    assert source.prints("print(where)", context_id=other) == "other"


def test_what_runs_in_the_source_is_untouched_and_answered_once(client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python", "limits": {"cpu": 0}})["sandbox_id"]))
    seen, begun = [], threading.Event()

    def follow():
        for event, data, _ in source.again().client.stream("import time\nfor i in range(40): print(i); time.sleep(0.05)", sandbox_id=source.id):
            seen.append((event, data))
            if event == "output":
                begun.set()

    process = source.start(command="for i in $(seq 60); do echo $i; sleep 0.05; done; exit 7")["process_id"]
    output = []
    attached = threading.Thread(target=lambda: output.extend(source.again().events(process)))
    following = threading.Thread(target=follow)
    terminal = source.terminal(command="bash --norc -i")
    terminal.type("kept=here; echo set-$kept\n")
    terminal.until("set-here")
    attached.start()
    following.start()
    assert begun.wait(60)
    forks = source.fork(3)
    keep(*forks)
    terminal.type("echo still-$kept\n")
    terminal.until("still-here")
    following.join(120)
    attached.join(120)
    terminal.socket.close()
    numbers = "".join(f"{n}\n" for n in range(40))
    assert seen[-1][0] == "done" and seen[-1][1]["stdout"] == numbers
    assert "".join(data["text"] for event, data in seen if event == "output") == numbers
    assert source.process(process)["exit_code"] == 7 and source.output(process) == b"".join(b"%d\n" % n for n in range(1, 61))
    assert output[-1][2]["exit_code"] == 7
    for fork in forks:
        # What runs there belongs to nobody's call.
        assert client.call("GET", f"/v1/executions?sandbox_id={fork.id}")["items"] == [] and fork.call("GET", "/processes")["items"] == []
        assert fork.shell("echo works")["stdout"] == "works\n"
        assert fork.prints("print('after it')", timeout_seconds=60) == "after it"
    assert len(client.call("GET", f"/v1/executions?sandbox_id={source.id}")["items"]) == 1


def test_forks_of_a_paused_one_leave_it_paused(client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python", "auto_resume": False})["sandbox_id"]))
    source.prints("n = 1")
    source.pause()
    forks = source.fork(3)
    keep(*forks)
    assert [fork.prints("n += 1; print(n)") for fork in forks] == ["2"] * 3
    assert source.view()["state"] == "paused"
    source.resume()
    assert source.prints("print(n)") == "1"


def test_fork_of_a_fork_knows_its_parent(client, keep):
    one = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"]))
    one.prints("line = [1]")
    two = keep(one.fork()[0])
    two.prints("line.append(2)")
    three = keep(two.fork()[0])
    one.delete()
    assert three.prints("print(line + [3])") == "[1, 2, 3]"
    assert [box.view()["forked_from"]["sandbox_id"] for box in (two, three)] == [one.id, two.id]


def test_the_same_fork_asked_for_twice_is_made_once(atoll, client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"]))
    source.prints("n = 1")
    key = new_key()
    answers = at_once(4, lambda _: source.again().fork(2, key=key))
    made = {tuple(sorted(box.id for box in answer)) for answer in answers if isinstance(answer, list)}
    assert len(made) == 1 and all(isinstance(answer, list) or answer.status == 409 for answer in answers), answers
    for fork in source.fork(2, key=key):
        assert fork.id in next(iter(made))
        keep(fork)


@pytest.mark.parametrize("fields", [{"count": 0}, {"count": 101}, {"count": -1}, {"count": "2"}, {"count": 2, "name": "two"}, {"nonsense": 1}], ids=str)
def test_wrong_forks_are_refused(boxes, fields):
    assert boxes().refused("POST", ":fork", fields).status == 400


def test_limits_are_those_of_the_source_and_count(boxes, keep):
    source = boxes(limits={"memory_bytes": 384 << 20, "max_processes": 77})
    fork = keep(source.fork()[0])
    assert fork.view()["limits"] == source.view()["limits"]
    # Memory of its own, up to its own limit: another's does not count.
    assert fork.prints("b = bytearray(250 << 20); print(len(b) >> 20)") == "250" == source.prints("b = bytearray(250 << 20); print(len(b) >> 20)")
    answer = fork.code("c = bytearray(300 << 20)")
    assert answer["exit_reason"] == "out_of_memory" and answer["memory_limit_bytes"] == 384 << 20
    assert source.prints("print(len(b) >> 20)") == "250"


# Secrets


SECRET = "secret-of-this-test-9f27c1"


def test_environment_is_in_no_view_list_or_log(atoll, client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python", "env": {"TOKEN": SECRET}})["sandbox_id"]))
    assert source.prints("import os; print(os.environ['TOKEN'])") == SECRET
    snapshot = keep(source.snapshot())
    assert source.code("1", env={"CALLS": SECRET + "-call"})["exit_reason"] == "completed"
    source.pause()
    source.resume()
    assert source.prints("print(os.environ['TOKEN'], os.environ.get('CALLS'))") == f"{SECRET} None"
    # What is made of it has the same, unless the caller says otherwise; the environment of a single call is nobody's but its own.
    other, named = keep(start(client, snapshot)), keep(start(client, snapshot, env={"TOKEN": "other"}))
    assert other.prints("print(os.environ['TOKEN'], os.environ.get('CALLS'))") == f"{SECRET} None"
    assert named.prints("print(os.environ['TOKEN'])") == "other" and SECRET not in named.shell("env")["stdout"]
    for shown in (source.view(), source.runs(), client.call("GET", "/v1/sandboxes"), view(client, snapshot), client.call("GET", "/v1/snapshots"), client.call("GET", "/metrics")):
        assert SECRET not in (shown.decode() if isinstance(shown, bytes) else json.dumps(shown))
    for log in (atoll.data / "log").iterdir():
        assert SECRET not in log.read_text(errors="replace"), log


def test_snapshots_on_disk_are_for_root_alone(atoll, client, keep):
    source = keep(Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"]))
    keep(source.snapshot())
    folder = atoll.data / "snapshots"
    assert folder.stat().st_mode & 0o077 == 0 and folder.stat().st_uid == 0
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 and path.stat().st_uid == 0, path
    assert (atoll.data / "snapshots" / "key").stat().st_mode & 0o777 == 0o600


# Snapshots


@pytest.fixture
def source(boxes):
    box = boxes(labels={"made": "by-test"})
    box.prints("import time; n = 41; open('/tmp/kept', 'w').write('kept')")
    return box


def test_any_number_start_from_one_snapshot(client, keep, source):
    snapshot = keep(source.snapshot(name="m" + new_key()[:10], labels={"a": "b"}))
    assert (snapshot["kind"], snapshot["sandbox_id"], snapshot["state"], snapshot["template"], snapshot["labels"]) == ("memory", source.id, "ready", "python", {"a": "b"})
    assert snapshot["size_bytes"] > 1 << 20 and snapshot["stopped_ms"] >= 0 and snapshot["limits"] == source.view()["limits"]
    source.prints("n = 0")
    source.delete()
    made = at_once(5, lambda _: start(source.again().client, snapshot))
    keep(*made)
    assert [box.prints("n += 1; print(n, open('/tmp/kept').read())") for box in made] == ["42 kept"] * 5
    assert made[0].view()["forked_from"] == {"sandbox_id": source.id, "snapshot_id": snapshot["snapshot_id"]}
    # They don't need it any more.
    forget(client, snapshot["snapshot_id"])
    made[0].pause()
    assert [box.prints("print(n)") for box in made] == ["42"] * 5
    with pytest.raises(ApiError) as none:
        start(client, snapshot)
    assert (none.value.status, none.value.code) == (404, "snapshot_not_found")


def test_snapshot_of_files_has_files_and_nothing_that_runs(client, keep, source):
    process = source.start(command="sleep 1000")["process_id"]
    source.shell("for i in $(seq 500); do echo $i > /tmp/f-$i; done; rm /etc/motd 2>/dev/null; mkdir -p /tmp/deep/er && ln -s /tmp/kept /tmp/deep/er/link && chmod 4711 /tmp/f-1")
    snapshot = keep(source.snapshot("files"))
    assert snapshot["kind"] == "files"
    source.put("/tmp/kept", b"changed")
    box = keep(start(client, snapshot))
    assert box.get("/tmp/kept") == b"kept" and box.get("/tmp/f-500") == b"500\n" and len([1 for item in box.list("/tmp") if item["name"].startswith("f-")]) == 500
    assert box.shell("cat /tmp/deep/er/link; stat -c %a /tmp/f-1")["stdout"] == "kept4711\n"
    assert box.code("print(n)")["error"]["name"] == "NameError"
    assert not any(p["argv"] == ["sleep", "1000"] for p in box.ps())
    assert source.prints("print(n)") == "41" and source.process(process)["state"] == "running"


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_snapshot_of_a_paused_one_leaves_it_paused(client, keep, source, kind):
    source.change(auto_resume=False)
    source.pause()
    if kind == "files":
        try:
            snapshot = keep(source.snapshot(kind))
        except ApiError as e:
            # Nobody has the files alone of what is only on disk: refused, with what to do.
            assert e.status == 409 and e.error["message"], e
            assert source.view()["state"] == "paused"
            return
    else:
        snapshot = keep(source.snapshot(kind))
    assert source.view()["state"] == "paused"
    box = keep(start(client, snapshot))
    assert box.get("/tmp/kept") == b"kept"
    if kind == "memory":
        assert box.prints("print(n)") == "41"
    source.resume()
    assert source.prints("print(n)") == "41"


def test_rollback_brings_the_moment_back_and_ends_what_runs(client, keep, source):
    snapshot = keep(source.snapshot())
    source.prints("n = 0; open('/tmp/kept', 'w').write('changed'); open('/tmp/new', 'w')")
    process = source.start(command="sleep 1000")["process_id"]
    running = source.client.post_without_waiting("time.sleep(1000)", sandbox_id=source.id, timeout_seconds=2000)
    await_that(lambda: [e for e in client.call("GET", f"/v1/executions?sandbox_id={source.id}")["items"] if e["state"] == "running"])
    before = source.view()
    after = source.rollback(snapshot["snapshot_id"])
    assert (after["sandbox_id"], after["state"], after["name"]) == (before["sandbox_id"], "running", before["name"])
    answer = json.loads(running.getresponse().read())
    running.close()
    assert answer["exit_reason"] == "lost" and snapshot["snapshot_id"] in answer["detail"], answer
    ended = await_that(lambda: (p := source.process(process))["state"] == "ended" and p)
    assert ended["exit_reason"] == "lost" and snapshot["snapshot_id"] in ended["detail"], ended
    assert source.prints("print(n, open('/tmp/kept').read(), __import__('os').path.exists('/tmp/new'))") == "41 kept False"
    assert source.prints("echo shell", language="bash") == "shell"
    assert sorted(source.runs(), key=lambda run: run["started_at"])[-1]["how"] == "rollback"
    source.prints("n = 1")
    source.pause()
    source.rollback(snapshot["snapshot_id"])
    assert source.prints("print(n)") == "41"


def test_rollback_to_anothers_snapshot_is_refused_and_changes_nothing(client, boxes, keep, source):
    other = boxes()
    foreign = keep(other.snapshot())
    error = source.refused("POST", ":rollback", {"snapshot_id": foreign["snapshot_id"]})
    assert error.status in (400, 404, 409) and source.prints("print(n)") == "41"
    assert source.refused("POST", ":rollback", {"snapshot_id": "snap-" + "0" * 26}).status == 404


def test_snapshots_are_listed_named_labelled_and_expire(client, keep, source):
    group = new_key()
    name = "s" + group[:10]
    one, two = keep(source.snapshot(name=name, labels={"group": group})), keep(source.snapshot("files", labels={"group": group}, expires_in_seconds=2))

    def listed(query):
        return [item["snapshot_id"] for item in client.call("GET", f"/v1/snapshots?{query}")["items"]]

    assert set(listed(f"sandbox_id={source.id}")) == {one["snapshot_id"], two["snapshot_id"]} == set(listed(f"label.group={group}"))
    assert listed(f"label.group={group}&kind=memory") == [one["snapshot_id"]] == listed(f"name={name}")
    assert two["expires_at"] and not one["expires_at"]
    await_that(lambda: listed(f"label.group={group}") == [one["snapshot_id"]], "the expiry")
    changed = client.call("PATCH", f"/v1/snapshots/{one['snapshot_id']}", {"name": name + "x", "labels": {"group": group, "more": "1"}, "expires_in_seconds": 3600})
    assert (changed["name"], changed["labels"]["more"]) == (name + "x", "1") and changed["expires_at"]
    assert client.call("PATCH", f"/v1/snapshots/{one['snapshot_id']}", {"expires_in_seconds": None})["expires_at"] is None
    assert view(client, one)["name"] == name + "x"


def test_lineage_of_snapshots_is_told(client, keep, source):
    first = keep(source.snapshot())
    child = keep(start(client, first))
    second = keep(child.snapshot())
    assert first["parent_snapshot_id"] is None and second["parent_snapshot_id"] == first["snapshot_id"] and second["sandbox_id"] == child.id


def test_the_same_snapshot_asked_for_twice_is_made_once(client, keep, source):
    key = new_key()
    one = keep(source.snapshot(key=key))
    assert source.snapshot(key=key)["snapshot_id"] == one["snapshot_id"]
    assert len(client.call("GET", f"/v1/snapshots?sandbox_id={source.id}")["items"]) == 1


def test_snapshot_leaves_the_source_running_in_the_middle_of_what_it_does(client, keep, source):
    process = source.start(command="for i in $(seq 100); do echo $i; sleep 0.02; done")["process_id"]
    running = source.client.post_without_waiting("for i in range(100): print(i); time.sleep(0.02)", sandbox_id=source.id)
    for _ in range(4):
        keep(source.snapshot())
    answer = json.loads(running.getresponse().read())
    running.close()
    assert answer["stdout"] == "".join(f"{n}\n" for n in range(100))
    assert source.wait(process)["exit_code"] == 0 and source.output(process) == b"".join(b"%d\n" % n for n in range(1, 101))


# Export and import


def exported(box, snapshot):
    connection = box.client.open()
    connection.request("GET", f"/v1/snapshots/{snapshot['snapshot_id']}/file", headers={"Authorization": f"Bearer {box.client.key}"})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    assert response.status == 200, data[:1000]
    assert "attachment" in response.getheader("Content-Disposition") and response.getheader("Content-Type") == "application/octet-stream"
    return data


def imported(client, data, name=""):
    return client.call("POST", f"/v1/snapshots/file?name={name}" if name else "/v1/snapshots/file", data, {"Content-Type": "application/octet-stream"})


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_export_and_import_are_the_same_snapshot_again(client, keep, source, kind):
    snapshot = keep(source.snapshot(kind))
    data = exported(source, snapshot)
    forget(client, snapshot["snapshot_id"])
    again = keep(imported(client, data, "i" + new_key()[:10]))
    assert again["snapshot_id"] != snapshot["snapshot_id"] and again["kind"] == kind and again["limits"] == snapshot["limits"]
    box = keep(start(client, again))
    assert box.get("/tmp/kept") == b"kept"
    if kind == "memory":
        assert box.prints("n += 1; print(n)") == "42"


def test_damaged_files_are_not_imported(atoll, client, keep, source):
    snapshot = keep(source.snapshot())
    data = exported(source, snapshot)
    before = atoll.folders("snapshots")
    middle, manifest = len(data) // 2, data.index(snapshot["snapshot_id"].encode()) + 20
    damaged = {"empty": b"", "half": data[:middle], "no snapshot": b"x" * 100000,
               "one bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:], "one bit of the manifest": data[:manifest] + bytes([data[manifest] ^ 1]) + data[manifest + 1:]}
    taken = []
    for what, changed in damaged.items():
        try:
            keep(imported(client, changed))
            taken.append(what)
        except ApiError as e:
            assert e.status in (400, 409) and e.error["message"], (what, e)
    assert not taken
    await_that(lambda: set(atoll.folders("snapshots")) <= set(before), "the removal of what was not taken")
    assert source.prints("print(n)") == "41"

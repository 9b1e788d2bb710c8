"""Pause, snapshots and forks across the death of the server, the engine, the machine, and with another build: nothing is lost, and what is says so."""

import contextlib
import pathlib
import shutil
import subprocess
import threading
import time

import pytest

import installation as installations
from inside import Box, await_that, broken
from installation import ApiError
from lived_in import lived_in
from test_crashes import VICTIMS
from test_forks import exported, imported, start
from test_lifecycle import moment


@pytest.fixture(scope="module")
def crashing():
    with installations.installation(sandboxes_max_lifetime_seconds=7200) as atoll:
        yield atoll


@pytest.fixture
def made(crashing):
    """Makes sandboxes and deletes them, whatever became of the server meanwhile."""
    ids = []

    def make(template="python", **fields):
        ids.append(crashing.client().call("POST", "/v1/sandboxes", {"template": template, **fields})["sandbox_id"])
        return Box(crashing.client(), ids[-1])

    make.ids = ids
    yield make
    client = crashing.client()
    for one in ids:
        client.delete(one)
    for item in client.call("GET", "/v1/snapshots?limit=100")["items"]:
        client.call("DELETE", f"/v1/snapshots/{item['snapshot_id']}")


@pytest.fixture
def lived(crashing, made):
    box, inside = lived_in(crashing.client())
    made.ids.append(box.id)
    yield box, inside
    inside.terminal.socket.close()


def again(atoll, box):
    return Box(atoll.client(), box.id)


def test_lived_in_sandbox_outlives_restarts_paused_and_running(crashing, lived):
    box, inside = lived
    box.pause()
    crashing.down()
    crashing.up()
    box = again(crashing, box)
    assert box.view()["state"] == "paused"
    inside.look(box)
    inside.terminal_again(box)
    for victims in VICTIMS:
        box.pause()
        crashing.kill(*victims)
        crashing.up()
        box = again(crashing, box)
        assert box.view()["state"] == "paused"
        box.resume()
        crashing.kill(*victims)
        crashing.up()
        box = again(crashing, box)
        inside.look(box)
        inside.terminal_again(box)


@pytest.mark.parametrize("action", ["pause", "resume", "fork", "snapshot", "rollback"])
@pytest.mark.parametrize("victims", [pytest.param(("server",), marks=pytest.mark.long), ("engine",), pytest.param(("server", "engine"), marks=pytest.mark.long)], ids="+".join)
def test_kill_in_the_middle_leaves_one_legal_state_and_the_memory(crashing, made, victims, action):
    box = made(limits={"memory_bytes": 512 << 20})
    box.prints("import os, hashlib; n = 41; blob = os.urandom(80 << 20)")
    digest = box.prints("print(hashlib.sha256(blob).hexdigest())")
    snapshot = box.snapshot()["snapshot_id"] if action == "rollback" else None
    for delay in (0.02, 0.15):
        if action == "resume":
            box.pause()
        outcome = []

        def act():
            mine = again(crashing, box)
            try:
                outcome.append({"pause": mine.pause, "resume": mine.resume, "fork": lambda: mine.fork(2), "snapshot": mine.snapshot, "rollback": lambda: mine.rollback(snapshot)}[action]())
            except Exception as e:
                assert broken(e) or isinstance(e, ApiError), e
                outcome.append(e)

        acting = threading.Thread(target=act)
        acting.start()
        time.sleep(delay)
        crashing.kill(*victims)
        crashing.up()
        acting.join(120)
        assert outcome, "the call neither came back nor failed"
        if isinstance(outcome[0], list):
            for fork in outcome[0]:
                fork.client = crashing.client()
                assert fork.prints("print(n)") == "41"
                fork.delete()
        box = again(crashing, box)
        await_that(lambda: box.view()["state"] in ("running", "paused"), "a state to stay in")
        if box.view()["state"] == "paused":
            box.resume()
        assert box.prints("print(n, hashlib.sha256(blob).hexdigest())") == f"41 {digest}"
        await_that(lambda: not any("partial" in name for name in crashing.folders("snapshots")), "the removal of what was not finished")
        # Forks that nobody was told of end with the test.
        for item in crashing.client().call("GET", "/v1/sandboxes?state=running")["items"]:
            if (item["forked_from"] or {}).get("sandbox_id") == box.id:
                box.client.delete(item["sandbox_id"])


def test_reboot_keeps_the_paused_and_tells_of_the_rest(crashing, made, lived):
    box, inside = lived
    running = made()
    process = running.start(command="sleep 1000")["process_id"]
    execution = running.client.post_without_waiting("import time; time.sleep(1000)", sandbox_id=running.id, timeout_seconds=2000)
    await_that(lambda: [e for e in running.client.call("GET", f"/v1/executions?sandbox_id={running.id}")["items"] if e["state"] == "running"])
    source = made()
    source.prints("n = 41")
    snapshot = source.snapshot()
    box.pause()
    crashing.reboot()
    execution.close()
    crashing.up()
    client = crashing.client()
    for lost in (running, source):
        view = again(crashing, lost).await_state("ended")
        assert view["end_reason"] == "lost" and view["end_detail"], view
    ended = again(crashing, running).process(process)
    assert ended["state"] == "ended" and ended["exit_reason"] in ("lost", "sandbox_ended") and ended["detail"]
    assert [e["exit_reason"] for e in client.call("GET", f"/v1/executions?sandbox_id={running.id}")["items"]] in (["lost"], ["sandbox_ended"])
    box = again(crashing, box)
    assert box.view()["state"] == "paused"
    inside.look(box)
    inside.terminal_again(box)
    started = start(client, snapshot)
    made.ids.append(started.id)
    assert started.prints("n += 1; print(n)") == "42"
    client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_reboot_in_the_middle(crashing, made, action):
    """Either it was written whole, then it is there; or it was not, then it is lost and says so. Resuming loses nothing."""
    for delay in (0.05, 0.3):
        box = made(limits={"memory_bytes": 512 << 20})
        box.prints("import os; n = 41; blob = os.urandom(100 << 20)")
        if action == "resume":
            box.pause()
        acting = threading.Thread(target=ignoring, args=(getattr(again(crashing, box), action),))
        acting.start()
        time.sleep(delay)
        crashing.reboot()
        acting.join(60)
        crashing.up()
        box = again(crashing, box)
        view = await_that(lambda: (v := box.view())["state"] in ("paused", "ended") and v, "a state to stay in")
        if view["state"] == "ended":
            assert view["end_reason"] == "lost" and view["end_detail"]
        else:
            assert box.prints("print(n, len(blob))") == f"41 {100 << 20}"


def ignoring(call):
    with contextlib.suppress(Exception):
        call()


def test_copy_of_the_data_folder_at_another_path_goes_on():
    """As after a restore of a backup: the original is stopped, the copy started."""
    with installations.installation() as atoll:
        client = atoll.client()
        box, inside = lived_in(client, 20, 100)
        source = Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"])
        source.prints("n = 41; open('/tmp/kept', 'w').write('kept')")
        snapshots = [source.snapshot(), source.snapshot("files")]
        box.pause()
        inside.terminal.socket.close()
        # Without the checksums, which are made in the background, nobody could tell a copy from something else.
        await_that(lambda: all('"sha256":"' in (atoll.data / "snapshots" / name / "manifest.json").read_text() for name in atoll.folders("snapshots")), "the checksums")
        atoll.reboot()
        copy = installations.Installation(atoll.data.parent / "elsewhere" / "data", atoll.port)
        copy.data.parent.mkdir(mode=0o755)
        subprocess.run(["cp", "-a", str(atoll.data), str(copy.data)], check=True)
        hidden = atoll.data.with_name("gone")
        atoll.data.rename(hidden)
        try:
            copy.up()
            box = again(copy, box)
            assert box.view()["state"] == "paused"
            inside.look(box)
            inside.terminal_again(box)
            started = [start(copy.client(), snapshot) for snapshot in snapshots]
            assert started[0].prints("n += 1; print(n)") == "42" and started[1].get("/tmp/kept") == b"kept"
            inside.terminal.socket.close()
        finally:
            copy.down(everything=True)
            hidden.rename(atoll.data)
        shutil.rmtree(copy.data)
        copy.data.parent.rmdir()


@pytest.mark.long
def test_other_build_goes_on_with_what_the_old_one_paused(tmp_path):
    """Two builds of runsc that differ in their version. The new one is compiled once and then kept in the cache."""
    clone = tmp_path / "clone"
    tracked = subprocess.run(["git", "-C", str(installations.ROOT), "ls-files", "-z"], check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    for name in filter(None, tracked):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        if (installations.ROOT / name).exists():
            shutil.copy2(installations.ROOT / name, clone / name, follow_symlinks=False)
    with open(clone / "node" / "runsc" / "build.sh", "a") as script:
        script.write("\n# Another version, for a test.\n")
    with installations.installation() as atoll:
        client = atoll.client()
        box, inside = lived_in(client, 20, 100)
        running = Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"])
        running.prints("n = 41")
        snapshot = running.snapshot()
        box.pause()
        inside.terminal.socket.close()
        old = pathlib.Path((atoll.data / "launcher" / "engine.build").read_text().split()[1])
        subprocess.run([str(clone / "atoll"), "up", "--data-dir", str(atoll.data), "--port", str(atoll.port)], check=True, stdin=subprocess.DEVNULL)
        new = pathlib.Path((atoll.data / "launcher" / "engine.build").read_text().split()[1])
        assert (old / "VERSION").read_text() != (new / "VERSION").read_text()
        # What ran goes on, is paused and resumed by its own build; what is new has the new one.
        for one in (again(atoll, running), Box(atoll.client(), atoll.client().call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"])):
            one.prints("n = 41")
            one.pause()
            assert one.prints("n += 1; print(n)") == "42"
        box = again(atoll, box)
        inside.look(box)
        inside.terminal_again(box)
        inside.terminal.socket.close()
        started = start(atoll.client(), snapshot)
        assert started.prints("n += 1; print(n)") == "42"
        started.pause()
        assert started.prints("print(n)") == "42"


def test_deadline_that_passes_while_everything_is_down_holds_at_the_start(crashing, made):
    kept, killed, idle = made(lifetime_seconds=3, on_timeout="pause"), made(lifetime_seconds=3, on_timeout="kill"), made(idle_timeout_seconds=3, on_timeout="pause")
    for box in (kept, idle):
        box.prints("n = 41")
    crashing.kill("server", "engine")
    time.sleep(5)
    crashing.up()
    view = again(crashing, killed).await_state("ended")
    assert view["end_reason"] == "expired" and view["end_detail"]
    for box in (kept, idle):
        again(crashing, box).await_state("paused")
        assert again(crashing, box).prints("print(n)") == "41"


@pytest.mark.long
def test_sandbox_ends_itself_when_nobody_comes_to_its_deadline(crashing, made):
    box = made(lifetime_seconds=5, on_timeout="kill")
    box.prints("import os; blob = os.urandom(120 << 20)")
    crashing.kill("server", "engine")
    assert any(size_of(pid) > 100 << 20 for pid in crashing.box_processes())
    # A minute of grace.
    await_that(lambda: not any(size_of(pid) > 100 << 20 for pid in crashing.box_processes()), "its own end", 150)
    crashing.up()
    assert again(crashing, box).await_state("ended")["end_reason"] == "expired"


def size_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def test_longest_lifetime_is_the_operators(crashing, made):
    assert moment(made(lifetime_seconds=7200).view()["expires_at"])
    with pytest.raises(ApiError) as refused:
        made(lifetime_seconds=7201)
    assert refused.value.status == 400 and "7200" in str(refused.value)
    box = made(lifetime_seconds=10)
    assert box.refused("POST", ":extend", {"seconds": 7201}).status == 400
    # None is longer than the longest.
    assert box.refused("POST", ":extend", {"seconds": None}).status == 400


def test_snapshot_of_another_installation_is_taken_only_where_its_key_is_trusted(atoll, crashing, made):
    box = made()
    box.prints("n = 41")
    snapshot = box.snapshot()
    data = exported(box, snapshot)
    client = atoll.client()
    before = atoll.folders("snapshots")
    with pytest.raises(ApiError) as refused:
        imported(client, data)
    assert (refused.value.status, refused.value.code) == (409, "snapshot_unusable") and "key" in str(refused.value)
    await_that(lambda: set(atoll.folders("snapshots")) <= set(before), "the removal of what was not taken")
    client.close()
    crashing.client().call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")


def test_crash_loop_of_pauses_leaves_nothing_behind(crashing, made):
    boxes = [made() for _ in range(3)]
    for n, box in enumerate(boxes):
        box.prints(f"n = {n}")
    for victims in [("engine",), ("server",), ("server", "engine")]:
        for box in boxes:
            again(crashing, box).pause()
        crashing.kill(*victims)
        crashing.up()
        for n, box in enumerate(boxes):
            assert again(crashing, box).prints("print(n)") == str(n)
    client = crashing.client()
    for box in boxes:
        client.delete(box.id)
    nothing_left(crashing)


def nothing_left(atoll, seconds=60):
    """Beside what pools hold there is nothing on the machine once no sandbox lives and no snapshot is kept."""
    client = atoll.client()

    def surplus():
        pools = client.call("GET", "/v1/pools")["items"]
        waiting = sum(pool["ready"] + pool["starting"] + pool["prepared"] for pool in pools)
        golden = {pool["golden"]["snapshot_id"] for pool in pools if pool["golden"]}
        boxes, groups, snapshots = atoll.boxes(), atoll.cgroups(), set(atoll.folders("snapshots"))
        found = {}
        if len(boxes) != waiting:
            found["boxes"] = (boxes, f"pools have {waiting}")
        if len(groups) > waiting:
            found["cgroups"] = groups
        if snapshots - golden:
            found["snapshots"] = snapshots - golden
        return found

    left = installations.await_none(surplus, seconds)
    client.close()
    assert not left, left

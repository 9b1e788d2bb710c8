"""A full disk, and files that were changed behind Atoll's back: the sandbox lives or stays paused, and the error says what it was."""

import errno
import os
import shutil
import threading
import time

import pytest

import installation as installations
from inside import Box, await_that
from installation import ApiError
from test_forks import start
from test_lifecycle_crashes import nothing_left

MIB = 1 << 20


@pytest.fixture(scope="module")
def small():
    """An installation on a disk of its own, of 700 MiB."""
    with installations.disk_of(700) as folder, installations.installation(folder, pool_depth=1) as atoll:
        yield atoll


@pytest.fixture
def filled(small):
    """Leaves so many MiB of the disk: filled(20). Freed at the end."""
    filler = small.data / "filler"

    def fill(left):
        with open(filler, "ab") as f:
            # Others write meanwhile: what is not to be had as one piece any more is taken in smaller ones.
            piece = 1 << 40
            while piece >= 4096 and (size := min(piece, room(small) - left * MIB)) > 0:
                try:
                    os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, size)
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise
                    piece = size // 2

    yield fill
    filler.unlink(missing_ok=True)


def room(atoll):
    stat = os.statvfs(atoll.data)
    return stat.f_bavail * stat.f_frsize


@pytest.fixture
def box(small):
    client = small.client()
    box = Box(client, client.call("POST", "/v1/sandboxes", {"template": "python", "auto_resume": False, "limits": {"memory_bytes": 512 * MIB}})["sandbox_id"])
    box.prints("import os, hashlib; n = 41; blob = os.urandom(100 << 20)")
    yield box
    (small.data / "filler").unlink(missing_ok=True)
    box.delete()
    for item in client.call("GET", "/v1/snapshots")["items"]:
        client.call("DELETE", f"/v1/snapshots/{item['snapshot_id']}")
    client.close()


ACTIONS = {"pause": lambda box: box.pause(), "memory snapshot": lambda box: box.snapshot(), "fork": lambda box: box.fork(2)}


def lives(box):
    assert box.view()["state"] == "running"
    assert box.prints("print(n, len(hashlib.sha256(blob).hexdigest()))") == "41 64"


def told_of_disk(e):
    assert (e.status, e.code) == (507, "disk_full"), e
    text = str(e.error).lower()
    assert ("disk" in text or "space" in text) and any(character.isdigit() for character in text), e


@pytest.mark.parametrize("action", ACTIONS)
def test_what_would_not_fit_is_refused_before_the_sandbox_is_stopped(small, filled, box, action):
    before = small.folders("snapshots")
    for left in (60, 8):
        filled(left)
        with pytest.raises(ApiError) as refused:
            ACTIONS[action](box)
        told_of_disk(refused.value)
        lives(box)
    assert set(small.folders("snapshots")) <= set(before)
    assert len(box.client.call("GET", "/v1/sandboxes?state=running")["items"]) == 1


def test_files_that_would_not_fit_are_refused(small, filled, box):
    box.shell("head -c 100000000 /dev/urandom > /tmp/big")
    filled(8)
    with pytest.raises(ApiError) as refused:
        box.snapshot("files")
    told_of_disk(refused.value)
    lives(box)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("after", [0, 20], ids=["at its begin", "in the middle"])
def test_disk_that_fills_while_it_is_written(small, filled, box, action, after):
    """Somebody else takes the room between the check and the last byte."""
    known = set(small.folders("snapshots"))
    stop, took = threading.Event(), []

    def take():
        while not stop.is_set():
            new = [name for name in set(small.folders("snapshots")) - known]
            written = sum(size(small.data / "snapshots" / name) for name in new)
            if new and written >= after * MIB:
                filled(0)
                took.append(written)
                return

    taking = threading.Thread(target=take)
    taking.start()
    try:
        outcome = ACTIONS[action](box)
    except ApiError as e:
        outcome = e
    stop.set()
    taking.join()
    (small.data / "filler").unlink(missing_ok=True)
    if isinstance(outcome, ApiError):
        if took:
            told_of_disk(outcome)
        lives(box)
    elif action == "fork":
        for fork in outcome:
            assert fork.prints("print(n)") == "41"
            fork.delete()
    await_that(lambda: not any("partial" in name for name in small.folders("snapshots")), "the removal of what was not finished")
    # And now that there is room, the same works.
    if box.view()["state"] == "paused":
        box.resume()
    box.pause()
    box.resume()
    lives(box)


def size(folder):
    total = 0
    try:
        for path in folder.rglob("*"):
            total += path.stat().st_blocks * 512
    except OSError:
        pass
    return total


def test_full_disk_still_lists_deletes_and_starts_again(small, filled, box):
    client = small.client()
    paused, unwanted = (Box(client, client.call("POST", "/v1/sandboxes", {"template": "python"})["sandbox_id"]) for _ in range(2))
    for one in (paused, unwanted):
        one.prints("n = 41")
        one.pause()
    filled(0)
    assert {item["sandbox_id"] for item in client.call("GET", "/v1/sandboxes")["items"]} >= {box.id, paused.id}
    lives(box)
    # What is paused comes back where a little is left for its files, and else stays as it is.
    try:
        assert paused.prints("print(n)") == "41"
    except ApiError as e:
        told_of_disk(e)
        assert paused.view()["state"] == "paused"
    begin = time.monotonic()
    unwanted.delete()
    assert time.monotonic() - begin < 20
    (small.data / "filler").unlink()
    small.kill("engine")
    small.up()
    lives(Box(small.client(), box.id))
    assert Box(small.client(), paused.id).prints("print(n)") == "41"
    Box(small.client(), paused.id).delete()


def test_files_inside_count_in_what_is_checked(small, box):
    """A sandbox that has written much needs that much room: told before, not in the middle."""
    before = room(small)
    box.shell("head -c 60000000 /dev/urandom > /tmp/big; sync")
    box.pause()
    image = sum(size(small.data / "snapshots" / name) for name in small.folders("snapshots"))
    assert image > 150 * MIB, "files and memory are in it"
    assert before - room(small) < 400 * MIB
    box.resume()
    assert box.shell("stat -c %s /tmp/big")["stdout"] == "60000000\n"


def test_sparse_file_of_a_terabyte_makes_no_snapshot_of_one(small, box):
    box.prints("f = open('/tmp/sparse', 'wb'); f.truncate(1 << 40); f.seek(1 << 39); f.write(b'middle'); f.flush()")
    try:
        snapshot = box.snapshot()
    except ApiError as e:
        told_of_disk(e)
    else:
        assert snapshot["size_bytes"] < 400 * MIB
        lives(box)
        forked = box.fork()[0]
        assert forked.prints("f = open('/tmp/sparse', 'rb'); f.seek(1 << 39); print(f.read(6).decode())") == "middle"
        forked.delete()
    lives(box)


# Files that were changed


def largest(folder):
    return max((folder / "image").iterdir(), key=lambda path: path.stat().st_size)


def sealed(folder):
    """Its hashes are made in the background."""
    await_that(lambda: (folder / "identity.json").exists() and '"sha256":"' in (folder / "manifest.json").read_text(), "the signed manifest")


def flip(path, at=0.5):
    with open(path, "r+b") as f:
        f.seek(int(path.stat().st_size * at))
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))


def cut(path, share=0.5):
    os.truncate(path, int(path.stat().st_size * share))


def replaced(path):
    """Same size, same time: only its contents are others."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES = {
    "one bit of the pages": lambda folder: flip(largest(folder)),
    "the pages cut": lambda folder: cut(largest(folder)),
    "the pages cut to nothing": lambda folder: cut(largest(folder), 0),
    "the pages replaced": lambda folder: replaced(largest(folder)),
    "the pages gone": lambda folder: largest(folder).unlink(),
    "the state cut": lambda folder: cut(folder / "image" / "checkpoint.img"),
    "one bit of the state": lambda folder: flip(folder / "image" / "checkpoint.img"),
    "one bit of the manifest": lambda folder: flip(folder / "manifest.json"),
    "the manifest gone": lambda folder: (folder / "manifest.json").unlink(),
    "the folder gone": lambda folder: shutil.rmtree(folder),
    "a link to another file": lambda folder: relink(largest(folder)),
}


def relink(path):
    target = path.with_name("elsewhere")
    path.rename(target)
    flip(target)
    path.symlink_to(target)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_snapshot_is_refused_and_said_so(small, box, change):
    snapshot = box.snapshot()
    folder = small.data / "snapshots" / snapshot["snapshot_id"]
    sealed(folder)
    CHANGES[change](folder)
    if "manifest" in change:
        # A running engine knows what it wrote; the next one reads it.
        small.kill("engine")
        small.up()
        box.client.close()
    with pytest.raises(ApiError) as refused:
        start(box.client, snapshot)
    assert refused.value.code in ("snapshot_unusable", "snapshot_not_found") and refused.value.error["message"], refused.value
    lives(box)
    box.client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")
    await_that(lambda: not folder.exists(), "its removal")


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "the folder gone" and "manifest" not in name])
def test_changed_image_of_a_paused_sandbox_is_refused_and_it_stays_paused(small, box, change):
    known = set(small.folders("snapshots"))
    box.pause()
    folder = small.data / "snapshots" / (set(small.folders("snapshots")) - known).pop()
    sealed(folder)
    CHANGES[change](folder)
    for _ in range(2):
        error = box.refused("POST", ":resume", {})
        assert error.code in ("snapshot_unusable", "snapshot_not_found") and error.error["message"], error
        assert box.view()["state"] == "paused"


def test_delete_of_one_whose_image_is_broken_succeeds(small, box):
    known = set(small.folders("snapshots"))
    box.pause()
    folder = small.data / "snapshots" / (set(small.folders("snapshots")) - known).pop()
    largest(folder).unlink()
    begin = time.monotonic()
    assert box.delete()["end_reason"] == "deleted"
    assert time.monotonic() - begin < 5
    await_that(lambda: not folder.exists(), "its removal")


def test_disk_is_as_before_after_a_hundred_snapshots_and_pauses(small, box):
    client = small.client()
    box.prints("del blob")
    box.pause()
    box.resume()
    nothing = await_that(lambda: room(small))
    for _ in range(25):
        snapshot = box.snapshot()
        made = start(client, snapshot)
        made.pause()
        made.delete()
        client.call("DELETE", f"/v1/snapshots/{snapshot['snapshot_id']}")
        box.pause()
        box.resume()
    await_that(lambda: nothing - room(small) < 40 * MIB, "the room that was there before")


def test_nothing_of_all_that_is_left(small):
    nothing_left(small)

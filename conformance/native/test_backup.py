"""`./atoll backup` and `restore`: an installation as one file, while it goes on."""

import json
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import threading

import pytest

from installation import LAUNCHER, Installation, await_none, free_port, traces


@pytest.fixture
def folder():
    """One that the server's user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="atoll-test-") as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


@pytest.fixture
def elsewhere(folder):
    """A new installation beside the one that is backed up: nothing of it is left afterwards."""
    new = Installation(folder / "new", free_port())
    yield new
    if (new.data / "instance").exists():
        instance = new.instance
        new.down(everything=True)
        left = await_none(lambda: traces(instance, str(new.data)))
        assert not left, f"left behind: {sorted(left)}"


# Exit status of a backup that lacks something that the store names.
MISSING = 6


def launcher(*words, expect=(0,)):
    done = subprocess.run([str(LAUNCHER), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode in expect, f"{words}: {done.returncode} (expected: {expect})\n{done.stdout}\n{done.stderr}"
    return done


class Load:
    """Executions, pauses and resumes one after the other, as long as it is open."""

    def __init__(self, atoll, boxes):
        self.calls, self.failure, self.over, self.begun = 0, None, threading.Event(), threading.Event()
        self.box = boxes()
        self.thread = threading.Thread(target=self.run, args=(atoll,))

    def run(self, atoll):
        client = atoll.client()
        try:
            while not self.over.is_set():
                self.calls += 1
                assert client.exec(f"print({self.calls})", language="python", sandbox_id=self.box.id)["output"] == str(self.calls)
                client.call("POST", f"/v1/sandboxes/{self.box.id}:pause", {})
                self.begun.set()
        except Exception as e:
            self.failure = e
            self.begun.set()
        finally:
            client.close()

    def __enter__(self):
        self.thread.start()
        self.begun.wait()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        assert self.failure is None and self.calls > 1, self.failure


def said(client, box, code):
    return client.exec(code, language="python", sandbox_id=box)["output"]


def test_paused_sandbox_survives_backup_restore_in_another_folder_and_resume(atoll, client, boxes, elsewhere, folder):
    paused, running = boxes(name="backed-up", labels={"kept": "yes"}), boxes(name="went-on")
    said(client, paused.id, "import threading, time\nx = 41\nopen('f', 'w').write('file')\nticks = []\n"
                            "def tick():\n    while True: ticks.append(1); time.sleep(0.01)\nthreading.Thread(target=tick, daemon=True).start()")
    said(client, running.id, "y = 7")
    kept = client.call("POST", f"/v1/sandboxes/{running.id}/snapshots", {"name": "moment"})["snapshot_id"]
    said(client, running.id, "y = 8")
    paused.pause()
    file = folder / "backup.tar.zst"
    with Load(atoll, boxes) as load:
        result = json.loads(launcher("backup", file, "--snapshot-running", "--json", "--data-dir", atoll.data, expect=(0, MISSING)).stdout)

    # What is in it, and that the source went on.
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.stat().st_size == result["bytes"] and result["holds_bytes"] > result["bytes"]
    # The one that is paused and resumed all the time may have been resumed before its pause was seen, and then that is told.
    assert {m["id"] for m in result["missing"]} <= {load.box.id}, result
    assert paused.id in [s["sandbox_id"] for s in result["paused"]]
    taken = {s["sandbox_id"]: s.get("snapshot_id") for s in result["running"]}[running.id]
    assert {kept, taken} <= {s["snapshot_id"] for s in result["snapshots"]}
    assert [s["snapshot_id"] for s in client.call("GET", f"/v1/snapshots?sandbox_id={running.id}")["items"]] == [kept]
    assert paused.view()["state"] == "paused" and said(client, paused.id, "x += 100; print(x)") == "141" and said(client, running.id, "print(y)") == "8"
    assert list((atoll.data / "tmp").glob("backup.*")) == [] and not pathlib.Path(f"{file}.partial").exists()

    # Elsewhere it is as it was.
    assert "is whole" in launcher("restore", file, "--check").stdout
    launcher("restore", file, "--data-dir", elsewhere.data)
    modes = {name: stat.S_IMODE((elsewhere.data / name).stat().st_mode) for name in ("secret", "secret/master-key", "secret/api-key", "snapshots/key", "atoll.db")}
    assert modes == {"secret": 0o700, "secret/master-key": 0o600, "secret/api-key": 0o600, "snapshots/key": 0o600, "atoll.db": 0o600}
    assert (elsewhere.data / "secret" / "api-key").owner() == "atoll" and (elsewhere.data / "snapshots" / "key").owner() == "root"
    elsewhere.up()
    assert elsewhere.key == atoll.key and elsewhere.instance != atoll.instance
    there = elsewhere.client()
    view = there.sandbox(paused.id)
    assert (view["state"], view["name"], view["labels"]) == ("paused", "backed-up", {"kept": "yes"})
    assert said(there, paused.id, "before = len(ticks); time.sleep(0.1); print(x, open('f').read(), len(ticks) > before)") == "41 file True"
    assert (there.sandbox(running.id)["state"], there.sandbox(running.id)["end_reason"]) == ("ended", "lost")
    for snapshot, value in ((kept, "7"), (taken, "8")):
        copy = there.call("POST", "/v1/sandboxes", {"snapshot": snapshot})["sandbox_id"]
        assert said(there, copy, "print(y)") == value
        there.delete(copy)

    # And what was restored can be backed up too, also when nothing runs.
    there.call("POST", f"/v1/sandboxes/{paused.id}:pause", {})
    there.close()
    elsewhere.down()
    again = json.loads(launcher("backup", f"{folder}/", "--json", "--data-dir", elsewhere.data).stdout)
    assert [s["sandbox_id"] for s in again["paused"] if s["sandbox_id"] == paused.id] and not again["missing"], again
    assert pathlib.Path(again["file"]).name.startswith(f"atoll-{elsewhere.instance}-")

    # Nothing but a whole file, into nothing but an empty folder.
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    for words in (["--data-dir", folder / "tampered"], ["--check"]):
        refused = launcher("restore", file, *words, expect=(1,))
        assert "damaged" in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    assert not (folder / "tampered").exists()
    refused = launcher("restore", again["file"], "--data-dir", elsewhere.data, expect=(1,))
    assert "not empty" in refused.stderr and elsewhere.key == (elsewhere.data / "secret" / "api-key").read_text().strip()


def test_interrupted_backup_leaves_no_file(atoll, folder):
    file = folder / "backup.tar.zst"
    partial = pathlib.Path(f"{file}.partial")
    backup = subprocess.Popen([str(LAUNCHER), "backup", str(file), "--data-dir", str(atoll.data)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert not await_none(lambda: not partial.exists() and backup.poll() is None, 60)
    backup.send_signal(signal.SIGTERM)
    _, err = backup.communicate()
    assert backup.returncode == 1 and "no backup was made: it was interrupted" in err, err
    assert list(folder.iterdir()) == [] and list((atoll.data / "tmp").glob("backup.*")) == []

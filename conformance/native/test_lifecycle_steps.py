"""Each step of each operation of the engine fails, finds the disk full, or is the last one before a kill -9: the source lives, one state is left, and no trace."""

import contextlib
import threading

import pytest

import installation as installations
from inside import Box, await_that, broken
from installation import ApiError
from test_forks import exported, imported
from test_lifecycle_crashes import nothing_left

# As node/internal/failpoint lists them.
STEPS = {
    "pause": ("recorded", "quiesced", "stopped", "written", "verified", "synced", "renamed", "saved", "freed"),
    "resume": ("recorded", "prepared", "restored", "connected", "saved", "cleaned"),
    "restore": ("recorded", "prepared", "restored", "connected", "saved"),
    "rollback": ("recorded", "prepared", "restored", "connected", "saved", "freed"),
    "snapshot": ("recorded", "written", "verified", "synced", "renamed", "sealed"),
    "import": ("written", "verified", "synced", "renamed"),
    "delete": ("begun", "ended", "freed", "removed"),
}
# The engine's own tests go through all of them too, without a server.
QUICK = {"kill": {"pause", "resume", "restore"}, "enospc": {"pause"}, "error": set()}
# After these the operation is done, and what fails then is made up for later.
AFTER = {"pause.saved", "pause.freed", "resume.saved", "resume.cleaned", "restore.saved", "rollback.saved", "rollback.freed", "snapshot.sealed"}
CASES = [pytest.param(operation, step, action, marks=[] if operation in QUICK[action] else [pytest.mark.long], id=f"{operation}.{step}={action}")
         for action in ("kill", "enospc", "error") for operation in STEPS for step in STEPS[operation]]


@pytest.fixture(scope="module")
def stepped():
    with installations.installation(pool_depth=1) as atoll:
        words = {name: atoll.words(name) for name in ("server", "engine")}
        yield atoll, words
        nothing_left(atoll)


@contextlib.contextmanager
def failing(stepped, point, action):
    """The engine started anew so that this step fails; whenever it dies of that, another comes without."""
    atoll, words = stepped
    argv, environment = words["engine"]
    atoll.kill("engine")
    atoll.start_again("engine", ([*argv, "--fail-points", f"{point}={action}"], environment))
    over, died, pid = threading.Event(), threading.Event(), atoll.pid("engine")

    def watch():
        while not over.wait(0.02):
            if installations.gone(pid):
                died.set()
                break
        if not installations.gone(pid):
            installations.kill_pids([pid])
        atoll.start_again("engine", words["engine"])

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield died
    finally:
        over.set()
        watching.join()
        atoll.wait_ready()


@pytest.fixture
def box(stepped):
    client = stepped[0].client()
    box = Box(client, client.call("POST", "/v1/sandboxes", {"template": "python", "auto_resume": False})["sandbox_id"])
    box.prints("import hashlib, os; n = 41; blob = os.urandom(20 << 20)")
    box.digest = box.prints("print(hashlib.sha256(blob).hexdigest())")
    yield box
    box.delete()
    for item in client.call("GET", "/v1/snapshots")["items"]:
        client.call("DELETE", f"/v1/snapshots/{item['snapshot_id']}")
    for item in client.call("GET", "/v1/sandboxes?state=running")["items"]:
        client.delete(item["sandbox_id"])
    client.close()


def operations(box):
    """What leads to each operation, and the operation."""
    prepared = {}

    def before_resume():
        box.pause()

    def before_rollback():
        prepared["snapshot"] = box.snapshot()["snapshot_id"]

    def before_import():
        snapshot = box.snapshot()
        prepared["data"] = exported(box, snapshot)

    return {
        "pause": (lambda: None, box.pause), "resume": (before_resume, box.resume), "restore": (lambda: None, lambda: box.fork(2)),
        "rollback": (before_rollback, lambda: box.rollback(prepared["snapshot"])), "snapshot": (lambda: None, box.snapshot),
        "import": (before_import, lambda: imported(box.client, prepared["data"])), "delete": (lambda: None, box.delete),
    }


@pytest.mark.parametrize("operation, step, action", CASES)
def test_step_that_fails_costs_nothing(stepped, box, operation, step, action):
    prepare, act = operations(box)[operation]
    prepare()
    known = set(stepped[0].folders("snapshots"))
    with failing(stepped, f"{operation}.{step}", action) as died:
        box.client.close()
        try:
            outcome = act()
        except Exception as e:
            assert isinstance(e, ApiError) or broken(e), e
            outcome = e
        if action == "kill":
            # Some steps come after the answer.
            assert died.wait(30), "the step was never reached"
    box.client.close()
    if isinstance(outcome, ApiError):
        assert outcome.error["message"] and outcome.status in (409, 500, 503, 507), outcome
        if action == "enospc":
            assert (outcome.status, outcome.code) == (507, "disk_full"), outcome
    if action != "kill" and operation in ("pause", "snapshot", "import") and f"{operation}.{step}" not in AFTER:
        assert isinstance(outcome, ApiError), f"it succeeded although it could not: {outcome}"
    view = await_that(lambda: (v := box.view())["state"] in ("running", "paused", "ended") and v, "a state to stay in")
    if operation == "delete":
        assert view["state"] == "ended" and view["end_reason"] == "deleted"
        return
    assert view["state"] != "ended", view
    if isinstance(outcome, ApiError) and operation == "pause" and action != "kill":
        assert view["state"] == "running", "a pause that failed left it paused"
    if isinstance(outcome, ApiError) and operation == "resume" and action != "kill":
        assert view["state"] == "paused", "a resume that failed left it not paused"
    if view["state"] == "paused":
        box.resume()
    assert box.prints("print(n, hashlib.sha256(blob).hexdigest())") == f"41 {box.digest}"
    if isinstance(outcome, list):
        for fork in outcome:
            assert fork.prints("print(n)") == "41"
            fork.delete()
    await_that(lambda: not any("partial" in name for name in set(stepped[0].folders("snapshots")) - known), "the removal of what was not finished")
    # And the same works afterwards.
    if operation != "import":
        box.pause()
        box.resume()
        assert box.prints("n += 1; print(n)") == "42"


def test_nothing_of_all_that_is_left(stepped):
    client = stepped[0].client()
    for item in client.call("GET", "/v1/sandboxes?state=running")["items"]:
        client.delete(item["sandbox_id"])
    nothing_left(stepped[0])

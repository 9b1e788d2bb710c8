"""The life cycle from a terminal: names or ids, text for people, --json for programs."""

import json

import pytest

from inside import Box, new_key
from test_cli import cli  # noqa: F401


@pytest.fixture
def named(client, boxes):
    name = "cli-" + new_key()[:10]
    box = boxes(name=name, labels={"cli": name})
    box.prints("n = 41")
    yield box, name
    for item in client.call("GET", f"/v1/sandboxes?limit=100&label.cli={name}")["items"]:
        client.delete(item["sandbox_id"])
    for item in client.call("GET", "/v1/snapshots?limit=100")["items"]:
        if (item["name"] or "").startswith(name):
            client.call("DELETE", f"/v1/snapshots/{item['snapshot_id']}")


def lines(output):
    return [json.loads(line) for line in output.splitlines()]


def test_pause_and_resume_by_name_and_id(cli, named):  # noqa: F811
    box, name = named
    assert name.encode() in cli("ls")
    cli("pause", name)
    assert box.view()["state"] == "paused" and b"paused" in cli("ls", "--label", f"cli={name}")
    cli("resume", box.id)
    assert box.view()["state"] == "running" and b"resume" in cli("runs", name)
    assert [item["sandbox_id"] for item in lines(cli("ls", "--label", f"cli={name}", "--json"))] == [box.id]
    cli("pause", "no-such-name", status=1)


def test_forks_show_as_a_tree(cli, client, named):  # noqa: F811
    box, name = named
    forks = [item["sandbox_id"] for item in lines(cli("fork", name, "-n", "2", "--label", f"cli={name}", "--json"))]
    assert len(forks) == 2
    grandchild = lines(cli("fork", forks[0], "--label", f"cli={name}", "--json"))[0]["sandbox_id"]
    tree = cli("ls", "--tree").decode().splitlines()
    at = {one: next(n for n, line in enumerate(tree) if one in line) for one in (*forks, grandchild)}
    depth = {one: len(tree[n]) - len(tree[n].lstrip(" |`+-\\\u2502\u251c\u2514\u2500")) for one, n in at.items()}
    root = next(n for n, line in enumerate(tree) if name in line or box.id in line)
    assert root < min(at.values()) and depth[grandchild] > depth[forks[0]] > 0
    assert Box(client, grandchild).prints("print(n)") == "41"
    for one in (*forks, grandchild):
        cli("rm", one)
        assert client.sandbox(one)["state"] == "ended"


def test_snapshots_rollback_and_files(cli, client, named, tmp_path):  # noqa: F811
    box, name = named
    made = lines(cli("snapshot", "create", name, "--name", name + "-one", "--json"))[0]
    assert made["snapshot_id"].encode() in cli("snapshot", "ls") or name.encode() in cli("snapshot", "ls")
    box.prints("n = 0")
    cli("rollback", name, made["snapshot_id"])
    assert box.prints("print(n)") == "41"
    file = tmp_path / "snapshot"
    cli("snapshot", "export", name + "-one", str(file))
    assert file.stat().st_size > 1 << 20
    again = lines(cli("snapshot", "import", str(file), "--name", name + "-two", "--json"))[0]
    assert again["snapshot_id"] != made["snapshot_id"]
    for one in (made, again):
        cli("snapshot", "rm", one["snapshot_id"])
    assert name.encode() not in cli("snapshot", "ls")


def test_extend_rm_and_pool(cli, box):  # noqa: F811
    cli("extend", box.id, "2h")
    assert box.view()["expires_at"]
    cli("extend", box.id, "none")
    assert box.view()["expires_at"] is None
    pools = {pool["template"]: pool for pool in lines(cli("pool", "--json"))}
    assert pools["python"]["depth"] >= 1 and b"python" in cli("pool")
    cli("rm", box.id)
    assert box.view()["state"] == "ended"

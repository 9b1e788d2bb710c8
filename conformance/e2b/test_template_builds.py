"""Templates that are built by the SDK, without anything from the internet: on the installation's own image."""

import time
import uuid

import pytest


@pytest.fixture(scope="module")
def e2b(environment):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        import e2b

        yield e2b


@pytest.fixture
def named(e2b):
    """Names of templates, which are deleted afterwards."""
    names = []

    def make():
        names.append("t-" + uuid.uuid4().hex[:12])
        return names[-1]

    yield make
    for name in names:
        e2b.Sandbox.delete_snapshot(name)
        assert not e2b.Template.exists(name)


def test_every_kind_of_step_is_in_the_sandboxes_of_a_template(e2b, named, tmp_path):
    app = tmp_path / "app"
    (app / ("deep" * 30)).mkdir(parents=True)
    (app / "main.py").write_text("print('copied')\n")
    (app / ("deep" * 30) / "größe $HOME.txt").write_text("long\n")
    (app / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (app / "packed.tgz").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "one.conf").write_text("1\n")
    (tmp_path / "two.conf").write_text("2\n")
    (tmp_path / ".dockerignore").write_text("app/ignored\n")
    (app / "ignored").write_text("no\n")
    name, logs = named(), []
    template = (
        e2b.Template(file_context_path=str(tmp_path))
        .from_template("code-interpreter-v1")
        .set_envs({"BAKED": "in \"image\""})
            .set_envs({"AGAIN": "${BAKED} again"})
        .run_cmd("echo printed; whoami; pwd; echo $HOME; id -un >/tmp/who")
        .run_cmd(["printf '#!/bin/sh\\necho \"tool here\"\\n' >/usr/local/bin/tool", "chmod 755 /usr/local/bin/tool"], user="root")
        .copy("app", "/home/user/app")
        .copy("*.conf", "/etc/many", user="root", mode=0o600)
        .set_workdir("/home/user/work")
        .copy("app/run.sh", "run.sh", mode=0o755)
        .run_cmd("./run.sh >out.txt")
    )
    info = e2b.Template.build(template, name, cpu_count=1, memory_mb=384, on_build_logs=lambda entry: logs.append(entry.message))
    assert (info.name, info.template_id) == (name, name) and uuid.UUID(info.build_id)
    assert [line for line in logs if line in ("printed", "user", "/home/user")] == ["printed", "user", "/home/user", "/home/user"], logs
    assert e2b.Template.exists(name)
    with e2b.Sandbox.create(name, timeout=300) as sandbox:
        run = lambda command, **more: sandbox.commands.run(command, **more).stdout  # noqa: E731
        assert run("echo $BAKED; echo $AGAIN; tool; whoami; cat /tmp/who") == 'in "image"\nin "image" again\ntool here\nuser\nuser\n'
        assert run("cat out.txt; stat -c '%U %a' . run.sh out.txt", cwd="/home/user/work") == "ran\nuser 755\nuser 755\nuser 644\n"
        assert run("cd app && ls -A | cut -c 1-8 && cat */*.txt && ls deep* && stat -c %U main.py", cwd="/home/user").split("\n") == [
            "deepdeep", "main.py", "packed.t", "run.sh", "long", "größe $HOME.txt", "user", "",
        ]
        assert run("stat -c '%n %U %a' /etc/many/*", user="root") == "/etc/many/one.conf root 600\n/etc/many/two.conf root 600\n"
        assert bytes(sandbox.files.read("/home/user/app/packed.tgz", format="bytes")) == bytes(range(256)) * 1000
        shown = sandbox.get_info()
        assert (shown.name, shown.memory_mb, shown.cpu_count) == (name, 384, 1)


def test_a_step_that_fails_is_the_line_that_wrote_it(e2b, named):
    name, logs = named(), []
    template = e2b.Template().from_template("code-interpreter-v1").run_cmd("true").set_envs({"A": "1"}).run_cmd("echo about-to-fail; echo why >&2; exit 7")
    with pytest.raises(e2b.BuildException) as failed:
        e2b.Template.build(template, name, on_build_logs=lambda entry: logs.append(entry.message))
    assert "about-to-fail" in logs and "why" in logs
    assert "why" in str(failed.value) and "exit code 7" in str(failed.value), failed.value
    assert failed.value.__traceback__.tb_frame.f_code.co_filename == __file__ or any(
        "echo about-to-fail" in str(frame.line) for frame in __import__("traceback").extract_tb(failed.value.__traceback__)
    )


@pytest.mark.long
def test_tags_are_builds_of_one_name(e2b, named):
    name = named()
    base = e2b.Template().from_template("code-interpreter-v1")
    e2b.Template.build(base.run_cmd("echo 1 >/home/user/v"), f"{name}:v1", tags=["old"])
    e2b.Template.build(e2b.Template().from_template("code-interpreter-v1").run_cmd("echo 2 >/home/user/v"), f"{name}:v2")
    assert not e2b.Template.exists(name + ":v3")
    assigned = e2b.Template.assign_tags(f"{name}:v1", ["stable", "v1.0"])
    tags = {tag.tag: tag.build_id for tag in e2b.Template.get_tags(name)}
    assert assigned.tags == ["stable", "v1.0"] and set(tags) == {"v1", "old", "v2", "stable", "v1.0"}
    assert {tags[tag] for tag in ("v1", "old", "stable", "v1.0")} == {assigned.build_id} != {tags["v2"]}
    for tag, holds in {"v1": "1", "v2": "2", "old": "1", "stable": "1"}.items():
        with e2b.Sandbox.create(f"{name}:{tag}", timeout=120) as sandbox:
            assert sandbox.files.read("/home/user/v") == holds + "\n"
    e2b.Template.assign_tags(f"{name}:v2", ["stable"])
    with e2b.Sandbox.create(f"team/{name}:stable", timeout=120) as sandbox:
        assert sandbox.files.read("/home/user/v") == "2\n"
    e2b.Template.remove_tags(name, ["stable", "v1.0"])
    assert {tag.tag for tag in e2b.Template.get_tags(name)} == {"v1", "old", "v2"}
    with pytest.raises(e2b.SandboxException, match="not found"):
        e2b.Sandbox.create(f"{name}:stable")


@pytest.mark.long
def test_what_a_template_starts_runs_in_its_sandboxes_and_in_those_of_templates_made_of_it(e2b, named):
    name, upper = named(), named()
    ready = e2b.wait_for_file("/home/user/started") if hasattr(e2b, "wait_for_file") else "test -f /home/user/started"
    e2b.Template.build(
        e2b.Template().from_template("code-interpreter-v1").set_user("root").run_cmd("whoami >/by").set_user("user").set_start_cmd("sh -c 'echo started >/home/user/started; exec sleep 7777'", ready),
        name,
    )
    with e2b.Sandbox.create(name, timeout=300) as sandbox:
        assert sandbox.files.read("/home/user/started") == "started\n" and sandbox.files.read("/by") == "root\n"
        assert sandbox.commands.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 777[7]'").stdout == "1\n"
    info = e2b.Template.build_in_background(e2b.Template().from_template(name).run_cmd("whoami; cat /by"), upper)
    status = e2b.Template.get_build_status(info)
    until = time.monotonic() + 300
    while status.status.value in ("waiting", "building") and time.monotonic() < until:
        time.sleep(0.2)
        status = e2b.Template.get_build_status(info)
    assert status.status.value == "ready", status
    printed = [entry.message for entry in status.log_entries]
    assert [line for line in printed if line in ("user", "root")] == ["user", "root"], printed
    assert [entry.message for entry in e2b.Template.get_build_status(info, logs_offset=len(printed) - 1).log_entries] == printed[-1:]


def test_names_that_can_not_be_had_are_refused(e2b):
    template = e2b.Template().from_template("code-interpreter-v1").run_cmd("true")
    for name, why in {"base": "installation's own", "python": "installation's own", "a b": "expected", "x" * 70: "expected"}.items():
        with pytest.raises(e2b.BuildException, match=why):
            e2b.Template.build(template, name)
    with pytest.raises(e2b.BuildException, match="not found"):
        e2b.Template.build(e2b.Template().from_template("nowhere-" + uuid.uuid4().hex), "t-" + uuid.uuid4().hex[:12])

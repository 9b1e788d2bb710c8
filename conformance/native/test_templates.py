"""Templates of callers: their images are built in sandboxes of a real engine, on the images of the recipes."""

import hashlib
import http.client
import io
import pathlib
import ssl
import subprocess
import tarfile
import threading
import time
import uuid

import pytest

from installation import ApiError, sse

BUILD_SECONDS = 600

# These build images with packages of the internet.
with_internet = pytest.mark.long


@pytest.fixture
def template(client):
    """Makes templates and deletes them afterwards: template(dockerfile="…") -> id."""
    made = []

    def make(**fields):
        name = "t-" + uuid.uuid4().hex[:12]
        base = {} if "dockerfile" in fields else {"image": "atoll/python"}
        client.call("POST", "/v1/templates", {"id": name, **base, **fields})
        made.append(name)
        return name

    yield make
    for one in made:
        try:
            client.call("DELETE", f"/v1/templates/{one}")
        except ApiError as e:
            assert e.code == "template_not_found"
    client.call("POST", "/v1/images:prune")


@pytest.fixture
def trusting(client, template):
    """A template as the one named, whose package managers trust whom this machine trusts: its mirrors may have certificates of their own."""

    def make(base):
        trusted = ssl.get_default_verify_paths().cafile
        if not trusted:
            return "atoll/" + base
        path = "/etc/ssl/trusted-by-the-tests.pem"
        name = template(dockerfile=f"FROM atoll/{base}\nCOPY trusted.pem {path}\nENV PIP_CERT={path} NODE_EXTRA_CA_CERTS={path}\n")
        put_context(client, name, "trusted.pem", pathlib.Path(trusted).read_bytes())
        return "atoll/" + name

    return make


def put_context(client, name, path, content):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo(path)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    client.call("PUT", f"/v1/templates/{name}/context", tar.getvalue())


def build(client, name, **fields):
    """Builds it to its end."""
    begun = client.call("POST", f"/v1/templates/{name}:build", fields)
    return ended(client, begun)


def ended(client, begun):
    path = f"/v1/templates/{begun['template']}/builds/{begun['build_id']}"
    deadline = time.monotonic() + BUILD_SECONDS
    while (now := client.call("GET", path))["ended_at"] is None:
        assert time.monotonic() < deadline, now
        time.sleep(0.3)
    return now


def log(client, begun):
    return client.call("GET", f"/v1/templates/{begun['template']}/builds/{begun['build_id']}/log?format=text").decode()


def ready(client, name, **fields):
    done = build(client, name, **fields)
    assert done["state"] == "ready", (done, log(client, done))
    return done


def run(client, sandbox, code, language="python"):
    answer = client.exec(code, sandbox_id=sandbox, language=language)
    assert not answer.get("error"), answer
    return answer["output"]


def test_a_dockerfile_is_built_at_first_use_and_its_files_user_folder_and_environment_are_those_of_the_sandbox(client, template, boxes):
    name = template(
        dockerfile="""FROM atoll/python
USER root
RUN echo made > /etc/made && useradd --create-home --uid 1234 worker
ENV FROM_IMAGE=image
WORKDIR /srv/work
RUN chown worker /srv/work
USER worker
""",
        env={"FROM_TEMPLATE": "template", "BOTH": "template"},
    )
    assert client.call("GET", f"/v1/templates/{name}")["build_state"] == "none"
    deadline = time.monotonic() + BUILD_SECONDS
    while True:
        try:
            box = boxes(template=name, env={"BOTH": "caller"})
            break
        except ApiError as e:
            assert e.code == "template_building" and time.monotonic() < deadline, e
    told = client.exec(
        "import os, getpass; print(open('/etc/made').read().strip(), os.getuid(), os.getcwd(),"
        " os.environ['FROM_IMAGE'], os.environ['FROM_TEMPLATE'], os.environ['BOTH'])",
        sandbox_id=box.id,
    )
    assert told["output"] == "made 1234 /srv/work image template caller"
    seen = client.call("GET", f"/v1/templates/{name}")
    assert (seen["build_state"], seen["executions"]) == ("ready", 1)
    assert seen["build"]["cause"] == "first_use"


def test_two_first_uses_at_once_are_one_build(client, atoll, template):
    name = template(dockerfile="FROM atoll/python\nRUN sleep 2\n")
    made, errors = [], []

    def make():
        own = atoll.client(timeout=BUILD_SECONDS)
        try:
            made.append(own.call("POST", "/v1/sandboxes", {"template": name})["sandbox_id"])
        except ApiError as e:
            errors.append(e.code)
        finally:
            own.close()

    threads = [threading.Thread(target=make) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join(BUILD_SECONDS) for thread in threads]
    [client.delete(one) for one in made]
    assert set(errors) <= {"template_building"}
    assert len(client.call("GET", f"/v1/templates/{name}/builds")["items"]) == 1


def test_files_and_commands_are_in_the_image_whatever_their_names(client, template, boxes):
    odd = "/srv/it's a \"$HOME\" \\ file.txt"
    name = template(
        files=[
            {"path": odd, "content": "odd é", "mode": "0640", "owner": "1000:1000"},
            {"path": "/srv/bytes", "content_base64": "AAEC"},
        ],
        commands=["echo one > /srv/one", "cat > /srv/two <<'X'\n$HOME 'quoted' \"twice\"\nX", "[ -f /srv/one ]"],
    )
    ready(client, name)
    box = boxes(template=name)
    assert run(client, box.id, f"import os; s = os.stat({odd!r}); print(open({odd!r}).read(), oct(s.st_mode & 0o777), s.st_uid)") == "odd é 0o640 1000"
    assert run(client, box.id, "print(open('/srv/bytes', 'rb').read())") == repr(b"\x00\x01\x02")
    assert run(client, box.id, "print(open('/srv/one', 'rb').read() + open('/srv/two', 'rb').read())") == repr(b"one\n$HOME 'quoted' \"twice\"\n")
    assert run(client, box.id, "import os; print(os.getuid())") == "1000"


@with_internet
def test_pip_packages_are_installed_with_the_images_python(client, template, trusting, boxes):
    name = template(image=trusting("python"), packages={"pip": ["iniconfig==2.0.0", "six>=1.16; python_version > '3'"]})
    ready(client, name)
    box = boxes(template=name)
    assert run(client, box.id, "import importlib.metadata as m, six; print(m.version('iniconfig'), bool(six.__version__))") == "2.0.0 True"


@with_internet
def test_apt_packages_are_installed(client, template, boxes):
    name = template(packages={"apt": ["tree"]})
    ready(client, name)
    box = boxes(template=name)
    assert run(client, box.id, "import subprocess; print(subprocess.run(['tree', '--version']).returncode)").endswith("0")
    assert run(client, box.id, "import os; print(os.listdir('/var/lib/apt/lists'))") == "[]"


@with_internet
def test_npm_packages_are_found_from_any_folder(client, template, trusting, boxes):
    name = template(image=trusting("typescript-bun"), packages={"npm": ["is-odd@3.0.1"]})
    ready(client, name)
    box = boxes(template=name)
    assert run(client, box.id, "import odd from 'is-odd'; console.log(odd(3))", "typescript") == "true"


def test_a_step_that_fails_is_told_with_its_output_and_the_template_has_no_sandboxes(client, template):
    name = template(dockerfile="FROM atoll/python\nRUN echo before && ls /no-such-folder\n")
    failed = build(client, name)
    assert (failed["state"], failed["failure"]["code"]) == ("failed", "build_step_failed")
    assert "no-such-folder" in failed["failure"]["last_lines"] and failed["step"]["text"].startswith("RUN echo before")
    with pytest.raises(ApiError) as e:
        client.call("POST", "/v1/sandboxes", {"template": name})
    assert (e.value.status, e.value.code) == (409, "template_build_failed")
    assert "no-such-folder" in e.value.error["cause"]


def test_secrets_reach_steps_and_stay_nowhere(client, atoll, template, boxes):
    secret = "s3cret-" + uuid.uuid4().hex
    name = template(dockerfile="FROM atoll/python\nUSER root\nRUN --mount=type=secret,id=token test $(wc -c </run/secrets/token) = %d && sha256sum </run/secrets/token >/srv/sum\n" % len(secret))
    failed = build(client, name)
    assert failed["state"] == "failed" and 'no secret "token"' in failed["failure"]["message"], failed
    done = build(client, name, secrets={"token": secret})
    assert done["state"] == "ready", (done, log(client, done))
    told = run(client, boxes(template=name).id, "import os; print(open('/srv/sum').read().split()[0], os.path.exists('/run/secrets'))")
    assert told == f"{hashlib.sha256(secret.encode()).hexdigest()} False"
    kept = subprocess.run(["grep", "-rlaF", "--exclude-dir=boxes", "--exclude-dir=snapshots", secret, atoll.data], stdout=subprocess.PIPE, text=True)
    assert kept.stdout == "" and kept.returncode == 1, kept


def test_a_build_is_followed_and_cancelled(client, template):
    name = template(dockerfile="FROM atoll/python\nRUN echo begun && sleep 3600\n")
    begun = client.call("POST", f"/v1/templates/{name}:build")
    path = f"/v1/templates/{name}/builds/{begun['build_id']}"
    connection = http.client.HTTPConnection(client.host, client.port, timeout=BUILD_SECONDS)
    connection.request("GET", path + "/log?follow=1", headers=client.headers())
    events = []
    for event, data, _ in sse(connection.getresponse(), time.monotonic()):
        events.append(event)
        if event == "log" and "begun" in data["text"]:
            assert client.call("POST", path + ":cancel")["state"] == "cancelled"
    connection.close()
    assert events[0] == "step" and events[-1] == "done" and data["state"] == "cancelled"


def test_a_new_version_leaves_running_sandboxes_alone_and_a_failed_one_leaves_the_old_one(client, template, boxes):
    name = template(dockerfile="FROM atoll/python\nUSER root\nRUN echo one > /version\nUSER user\n")
    ready(client, name)
    first = boxes(template=name)
    client.call("PATCH", f"/v1/templates/{name}", {"dockerfile": "FROM atoll/python\nUSER root\nRUN echo two > /version\nUSER user\n"})
    assert run(client, boxes(template=name).id, "print(open('/version').read().strip())") == "one"
    ready(client, name)
    assert run(client, boxes(template=name).id, "print(open('/version').read().strip())") == "two"
    assert run(client, first.id, "print(open('/version').read().strip())") == "one"
    client.call("PATCH", f"/v1/templates/{name}", {"dockerfile": "FROM atoll/python\nRUN false\n"})
    assert build(client, name)["state"] == "failed"
    assert run(client, boxes(template=name).id, "print(open('/version').read().strip())") == "two"
    versions = client.call("GET", f"/v1/templates/{name}/versions")["items"]
    assert [(one["version"], one["current"]) for one in versions] == [(3, False), (2, True), (1, False)]


def test_a_context_is_copied_from(client, template, boxes):
    name = template(dockerfile="FROM atoll/python\nCOPY folder /srv/folder\n")
    put_context(client, name, "folder/a.txt", b"hello")
    ready(client, name)
    assert run(client, boxes(template=name).id, "print(open('/srv/folder/a.txt').read())") == "hello"


def test_a_sandbox_is_saved_as_a_template(client, template, boxes):
    box = boxes()
    run(client, box.id, "import os; os.makedirs('/home/user/mine'); open('/home/user/mine/f', 'w').write('kept')")
    name = "t-" + uuid.uuid4().hex[:12]
    client.call("POST", f"/v1/sandboxes/{box.id}:save_template", {"id": name})
    try:
        assert run(client, boxes(template=name).id, "print(open('/home/user/mine/f').read())") == "kept"
    finally:
        client.call("DELETE", f"/v1/templates/{name}")


def test_what_a_template_starts_answers_in_each_of_its_sandboxes(client, template, boxes):
    name = template(
        start={"command": "cd /tmp && echo up > index.html && exec python3 -m http.server 8000", "ready": {"port": 8000, "path": "/index.html"}},
        ports=[{"port": 8000, "name": "web"}],
        pool={"depth": 1},
    )
    code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/index.html').read().decode().strip())"
    for _ in range(3):
        assert run(client, boxes(template=name).id, code) == "up"


def test_one_is_duplicated_made_the_default_and_deleted_while_its_sandbox_runs(client, template, boxes):
    name = template(dockerfile="FROM atoll/python\nUSER root\nRUN echo x > /x\nUSER user\n")
    ready(client, name)
    twin = name + ".twin"
    client.call("POST", f"/v1/templates/{name}:duplicate", {"id": twin})
    before = [one["id"] for one in client.call("GET", "/v1/templates")["items"] if one["default"]]
    try:
        assert client.call("GET", f"/v1/templates/{twin}")["build_state"] == "ready"
        client.call("POST", f"/v1/templates/{twin}:set_default")
        made = client.call("POST", "/v1/sandboxes", {})
        assert made["template"] == twin
        with pytest.raises(ApiError) as e:
            client.call("DELETE", f"/v1/templates/{twin}")
        assert e.value.code == "conflict"
    finally:
        client.call("POST", f"/v1/templates/{before[0]}:set_default")
        client.call("DELETE", f"/v1/templates/{twin}")
    assert run(client, made["sandbox_id"], "print(open('/x').read().strip())") == "x"
    client.delete(made["sandbox_id"])


def test_images_are_listed_imported_and_pruned(client):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("hello.txt")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"hi"))
    made = client.call("POST", "/v1/images:import?name=small", tar.getvalue())
    assert made["origin"] == "archive"
    listed = {one["digest"]: one for one in client.call("GET", "/v1/images")["items"]}
    assert made["digest"] in listed
    assert "python" in [name for one in listed.values() for name in one["templates"]]
    assert made["digest"] in client.call("POST", "/v1/images:prune")["digests"]
    after = [one["digest"] for one in client.call("GET", "/v1/images")["items"]]
    assert made["digest"] not in after and any("python" in listed[one]["templates"] for one in after)


def test_what_can_not_be_had_is_told(client, template):
    with pytest.raises(ApiError) as e:
        client.call("POST", "/v1/templates", {"id": "x", "image": "a", "packages": {"apt": ["--option"]}})
    assert (e.value.status, e.value.code) == (400, "invalid_request")
    name = template(image="127.0.0.1:1/no/such:image")
    failed = build(client, name)
    assert failed["state"] == "failed" and failed["failure"]["message"]
    name = template(dockerfile="FROM atoll/no-such-template\n")
    assert build(client, name)["failure"]["code"] == "template_not_found"

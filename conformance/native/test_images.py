"""The templates that come with Atoll, of their recipes and of images of a registry; and an image like Alpine's."""

import os
import uuid

import pytest

import images_elsewhere
from inside import Box, await_that
from installation import ApiError

# Seconds that the build of a recipe, or the pull of its image, may take on a busy machine.
LONGEST = 900

node_and = "import z from 'zod'; import * as cheerio from 'cheerio'; import axios from 'axios'; import { format } from 'date-fns'\n"

# By template: languages, and what is run with the packages that it is for: (language, code, what it prints).
BUILT_IN = {
    "typescript-bun": (
        ["typescript", "bash"],
        [
            (
                "typescript",
                "import { z } from 'zod'; import * as cheerio from 'cheerio'; import { chunk } from 'lodash-es'; import { format } from 'date-fns'\n"
                "console.log(z.number().parse(4), cheerio.load('<p>a</p>')('p').text(), chunk([1, 2, 3], 2).length, format(new Date(2026, 0, 2), 'yyyy'))",
                "4 a 2 2026",
            )
        ],
    ),
    "typescript-node": (
        ["typescript", "bash"],
        [
            (
                "typescript",
                node_and + "console.log(z.number().parse(4), cheerio.load('<p>a</p>')('p').text(), typeof axios.get, format(new Date(2026, 0, 2), 'yyyy'))",
                "4 a function 2026",
            ),
            ("bash", "echo 'enum A { B = \"tsx\" }; console.log(A.B)' >/tmp/a.mts && tsx /tmp/a.mts", "tsx"),
        ],
    ),
    "nodejs": (
        ["typescript", "bash"],
        [
            (
                "javascript",
                "import _ from 'lodash'; import * as cheerio from 'cheerio'; import axios from 'axios'; import moment from 'moment'; import { v4, validate } from 'uuid'\n"
                "console.log(_.sum([1, 3]), cheerio.load('<p>a</p>')('p').text(), typeof axios.get, moment('2026-01-02').year(), validate(v4()))",
                "4 a function 2026 true",
            )
        ],
    ),
    "python": (
        ["python", "bash"],
        [
            (
                "python",
                "import requests, httpx, pydantic, bs4\n"
                "print(pydantic.TypeAdapter(int).validate_python('4'), bs4.BeautifulSoup('<p>a</p>', 'html.parser').p.text, bool(requests.get), bool(httpx.get))",
                "4 a True True",
            )
        ],
    ),
    "deno": (["typescript", "bash"], [("typescript", "import { join } from 'node:path'\nconsole.log(join('a', 'b'), typeof Deno.version.deno)", "a/b string")]),
    "go": (
        ["go", "bash"],
        [
            ("go", 'import ("encoding/json"; "fmt")\ntext, _ := json.Marshal([]int{1, 2})\nfmt.Println(string(text))', "[1,2]"),
            ("bash", "printf 'package main\\nimport (\"fmt\"; \"runtime\")\\nfunc main() { fmt.Println(runtime.Version()) }\\n' >/tmp/main.go && go run /tmp/main.go", "go1.22.12"),
        ],
    ),
    "data-science": (
        ["python", "typescript", "bash"],
        [
            (
                "python",
                "import numpy, pandas, matplotlib, plotly, sklearn, scipy, seaborn, PIL, sympy, openpyxl, jinja2\n"
                "print(pandas.DataFrame({'x': numpy.arange(4)}).x.sum(), sympy.integrate('2*t', ('t', 0, 2)), jinja2.Template('{{ a }}').render(a=1))",
                "6 4 1",
            ),
            ("typescript", "const a: number[] = [1, 2]; console.log(a.length, process.versions.node.split('.')[0])", "2 20"),
        ],
    ),
    "base": (
        ["bash", "python", "typescript"],
        [
            ("bash", "sudo -n id -u; git init -q /tmp/r && git -C /tmp/r rev-parse --is-bare-repository", "0\nfalse"),
            ("python", "import sys; print(sys.version_info[0])", "3"),
            ("javascript", "console.log(process.versions.node.split('.')[0])", "20"),
        ],
    ),
}

# Cells that keep a 40, add 2 to it, and fail, with the name of the error.
STATE = {
    "typescript": ("let x: number = 40", "console.log(x + 2)", "throw new TypeError('boom')", "TypeError"),
    "python": ("x = 40", "print(x + 2)", "raise ValueError('boom')", "ValueError"),
    "go": ('import "fmt"\nx := 40', "fmt.Println(x + 2)", 'panic("boom")', "Panic"),
    "bash": ("x=40", "echo $((x + 2))", "ls /boom", None),
}


@pytest.fixture
def patient(atoll):
    client = atoll.client(timeout=LONGEST)
    yield client
    client.close()


@pytest.fixture
def template_of(patient):
    """A template of an image, with a started sandbox kept ready: template_of(reference, limits) -> id."""
    made = []

    def make(image, **fields):
        name = "t-" + uuid.uuid4().hex[:12]
        patient.call("POST", "/v1/templates", {"id": name, "image": image, "pool": {"depth": 1}, **fields})
        made.append(name)
        begun = patient.call("POST", f"/v1/templates/{name}:build")
        path = f"/v1/templates/{name}/builds/{begun['build_id']}"
        done = await_that(lambda: (now := patient.call("GET", path))["ended_at"] and now, "the end of the build", LONGEST)
        assert done["state"] == "ready", (done, patient.call("GET", path + "/log?format=text").decode())
        return name

    yield make
    for name in made:
        patient.call("DELETE", f"/v1/templates/{name}")
    patient.call("POST", "/v1/images:prune")


@pytest.fixture
def box_of(patient):
    """A sandbox of a template, out of its pool: box_of(template) -> Box."""
    made = []

    def make(name):
        def pool():
            return next((one for one in patient.call("GET", "/v1/pools")["items"] if one["template"] == name), None)

        await_that(lambda: (now := pool()) and now["ready"] and now["golden"], f"a sandbox in the pool of {name}", LONGEST)
        box = Box(patient, patient.call("POST", "/v1/sandboxes", {"template": name})["sandbox_id"])
        made.append(box)
        assert pool()["hits"] == 1, pool()
        return box

    yield make
    for box in made:
        patient.delete(box.id)


def ends(box, language, code):
    return box.client.exec(code, sandbox_id=box.id, language=language, timeout_seconds=120)


def prints(box, language, code, output):
    answer = ends(box, language, code)
    assert (answer["exit_reason"], answer["output"].strip()) == ("completed", output), answer


def keeps_what_it_has_over_errors_pauses_and_forks(box, languages):
    for language in languages:
        first, adds, fails, error = STATE[language]
        prints(box, language, first, "")
        prints(box, language, adds, "42")
        answer = ends(box, language, fails)
        if error:
            assert (answer["exit_reason"], answer["error"]["name"]) == ("error", error) and "boom" in answer["error"]["message"], answer
        else:
            assert answer["exit_code"] and "boom" in answer["output"], answer
    assert box.pause()["state"] == "paused"
    assert box.resume()["state"] == "running"
    (copy,) = box.fork()
    try:
        for one in (box, copy):
            for language in languages:
                prints(one, language, STATE[language][1], "42")
    finally:
        box.client.delete(copy.id)


def does_what_it_is_for(name, box):
    languages, programs = BUILT_IN[name]
    for language, code, output in programs:
        prints(box, language, code, output)
    keeps_what_it_has_over_errors_pauses_and_forks(box, languages)


def limits_of(client, name):
    limits = client.call("GET", f"/v1/templates/{name}")["limits"]
    return {"memory_bytes": limits["memory_bytes"], "cpu": limits["cpu"]}


# Python's image, since others build that anyway, is pulled in each run; the other images are built or take long.
PULLED = [pytest.param(name, marks=[] if name == "python" else [pytest.mark.long]) for name in BUILT_IN]


@pytest.mark.long
@pytest.mark.parametrize("name", BUILT_IN)
def test_template_of_its_recipe_does_what_it_is_for(name, patient, template_of, box_of):
    made = template_of("atoll/" + name, limits=limits_of(patient, name))
    assert sorted(patient.call("GET", f"/v1/templates/{made}")["languages"]) == sorted(BUILT_IN[name][0])
    does_what_it_is_for(name, box_of(made))


@pytest.mark.parametrize("name", PULLED)
def test_template_of_an_image_of_a_registry_does_what_it_is_for(name, patient, template_of, box_of):
    with images_elsewhere.registry() as registry:
        reference = registry.push("team/" + name, *images_elsewhere.exported(name, registry.folder))
        made = template_of(reference, limits=limits_of(patient, name))
        assert any("/blobs/" in path for path in registry.asked)
    assert sorted(patient.call("GET", f"/v1/templates/{made}")["languages"]) == sorted(BUILT_IN[name][0])
    does_what_it_is_for(name, box_of(made))


if os.uname().machine in images_elsewhere.MUSL:

    def test_image_with_musl_runs_what_it_has_and_says_what_it_lacks(patient, template_of, box_of):
        with images_elsewhere.registry() as registry:
            layer = images_elsewhere.musl_root(registry.folder)
            made = template_of(registry.push("alpine", layer, {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["sh"]}))
        assert patient.call("GET", f"/v1/templates/{made}")["languages"] == ["typescript"]
        box = box_of(made)
        assert box.run("grep", "^ID=", "/etc/os-release")["stdout"] == "ID=alpine\n"
        assert "not found" in box.shell("no-such-program")["stderr"]
        prints(box, "typescript", "const a: number[] = [1, 2]\na.length * 21", "42")
        keeps_what_it_has_over_errors_pauses_and_forks(box, ["typescript"])
        for language in ("python", "bash", "go"):
            with pytest.raises(ApiError) as e:
                box.code("1", language=language)
            assert e.value.code == "language_unavailable" and "typescript" in e.value.error["message"], e.value
        refused = box.refused("POST", "/processes", {"argv": ["/usr/bin/of-glibc"], "wait": True})
        assert "ld-linux" in refused.error["message"] and "missing" in refused.error["message"], refused

"""Cells as a language: what persists, what is shown, which syntax works."""

import json

import pytest


def values(kernel, *cells):
    last = None
    for cell in cells:
        last = kernel.run(cell)
        assert last.status == "ok", last
    return last.text


@pytest.mark.parametrize(
    "first, second, wanted",
    [
        ("const c1 = 1", "c1 + 1", "2"),
        ("let l1 = 1", "l1 += 1; l1", "2"),
        ("var v1 = 1", "v1", "1"),
        ("function f1() { return 7 }", "f1()", "7"),
        ("class C1 { m() { return 8 } }", "new C1().m()", "8"),
        ("const {a1, b: [b1, ...r1], ...o1} = {a1: 1, b: [2, 3, 4], z: 5}", "[a1, b1, r1, o1]", "[ 1, 2, [ 3, 4 ], { z: 5 } ]"),
        ("import { join as j1 } from 'path'", "j1('a', 'b')", "'a/b'"),
        ("import p1, * as q1 from 'node:path'", "p1.sep + typeof q1.join", "'/function'"),
        ("async function af1() { return 9 }", "await af1()", "9"),
        ("function* g1() { yield 1; yield 2 }", "[...g1()]", "[ 1, 2 ]"),
        ("for (var i1 = 0; i1 < 3; i1++);", "i1", "3"),
        ("if (true) { var n1 = 4 }", "n1", "4"),
        ("await 1; const w1 = 1; function wf1() { return w1 }", "wf1()", "1"),
        ("await 1; for (var wi1 of [1, 2]);", "wi1", "2"),
        ("export const e1 = 5", "e1", "5"),
        ("export default class E2 {}", "typeof E2", "'function'"),
        ("let u1", "u1", None),
    ],
)
def test_a_declaration_lives_on_in_the_next_cell(shared, first, second, wanted):
    assert values(shared, first, second) == wanted


@pytest.mark.parametrize("first", ["const q = 1", "let q = 1", "var q = 1", "function q() {}", "class q {}", "import q from 'path'"])
@pytest.mark.parametrize("second", ["const q = 2", "let q = 2", "var q = 2", "await 0; const q = 2"])
def test_a_name_may_be_declared_again_as_any_kind(shared, first, second):
    assert values(shared, first, second, "q") == "2"


def test_a_function_of_an_earlier_cell_sees_a_later_declaration(shared):
    assert values(shared, "const rate = 1; function price() { return rate * 10 }", "const rate = 3", "price()") == "30"


def test_a_function_is_hoisted_within_its_cell_also_with_await(shared):
    assert values(shared, "const early = late1(); await 0; function late1() { return 1 }\nearly") == "1"


def test_a_name_of_the_platform_may_be_declared(shared):
    assert values(shared, "const crypto = require('node:crypto')", "crypto.createHash('md5').update('').digest('hex').length") == "32"
    assert values(shared, "let performance = 1, name = 2, event = 3, status = 4", "performance + name + event + status") == "10"


def test_a_failed_cell_keeps_the_old_value(shared):
    values(shared, "let kept = 1")
    assert shared.run("let kept = missing()").status == "error"
    assert values(shared, "kept") == "1"


@pytest.mark.parametrize(
    "code, wanted",
    [
        ("const n: number = 1; n as any", "1"),
        ("interface I { a: string }\ntype T = I | null; const t: T = { a: 'x' } satisfies I; t.a!", "'x'"),
        ("enum Color { Red, Green = 5, Blue }\nColor.Blue", "6"),
        ("namespace Space { export const deep = 3 }\nSpace.deep", "3"),
        ("function id<T>(x: T, y?: number): T { return x }\nid<string>('g')", "'g'"),
        ("class P<T> { constructor(private readonly x: T, public y = 2) {} sum() { return (this.x as any) + this.y } }\nnew P<number>(1).sum()", "3"),
        ("abstract class S { abstract a(): number; static z: number = 4; declare d: string }\nS.z", "4"),
        ("const f = <T,>(x: T): T => x; f(2)", "2"),
        ("function over(a: string): void\nfunction over(a: any) { return a }\nover(1)", "1"),
        ("function withThis(this: any, a: number) { return a }\nwithThis(6)", "6"),
        ("let definite!: number; definite = 1; definite", "1"),
        ("import { type Stats, statSync } from 'fs'; import type { X } from './nowhere'; typeof statSync", "'function'"),
        ("const tag = (v: any, c: any) => { c.addInitializer(function () { this.tagged = 1 }) }; @tag class D1 {}; D1.tagged", "1"),
        ("const React = { createElement: (t: string) => t }; <b>x</b>", "'b'"),
        ("{ using r = { [Symbol.dispose]() {} }; }\n1", "1"),
        ("declare const outside: number; declare function nothing(): void; 1", "1"),
        ("class G<T> { static of<T>(x: T) { return x } get<U = string>(x?: U): U { return x! } async *each<V>(v: V) {} }\nG.of<number>(1) + new G().get(2)", "3"),
        ("const arrow = (a: number): Promise<\n  number\n> => Promise.resolve(a)\narrow(8)", "8"),
        ("let value1 = 5 as const\n;[value1].length", "1"),
    ],
)
def test_typescript_and_newer_syntax(shared, code, wanted):
    assert values(shared, code) == wanted


@pytest.mark.parametrize(
    "code, wanted",
    [
        ("1 + 1", "2"),
        ("'text'", "'text'"),
        ("{a: 1}", "{ a: 1 }"),
        ("{}", "{}"),
        ("{ a: 1 };", None),
        ("// note\n{ a: 1, b: [2] }\n", "{ a: 1, b: [ 2 ] }"),
        ("{ let inner = 1; inner }", None),
        ("undefined", None),
        ("null", "null"),
        ("const notShown = 5", None),
        ("7; const notShown2 = 5", None),
        ("Promise.resolve(3)", "3"),
        ("(async () => 4)()", "4"),
        ("await Promise.resolve(5)", "5"),
        ("new Map([[1, { a: 2 }]])", "Map(1) { 1 => { a: 2 } }"),
        ("(1, 2)", "2"),
        ("await 0; (1, 3)", "3"),
        ("await 0; ({ a: 1 })", "{ a: 1 }"),
        ("return 6", "6"),
        ("if (true) return; 1", None),
        ("this === globalThis", "true"),
        ("await 0; this === globalThis", "true"),
        ("#!/usr/bin/env bun\n1", "1"),
        ("#!/usr/bin/env bun\nawait 2", "2"),
        ("'use strict'; const strict1 = 1; strict1", "1"),
        ("x0 = 1; with ({ x0: 2 }) { var w0 = x0 }\nw0", "2"),
        ("", None),
        ("// only a comment", None),
    ],
)
def test_the_last_expression_is_shown(shared, code, wanted):
    assert values(shared, code) == wanted


def test_a_silent_cell_shows_nothing(shared):
    execution = shared.run("1 + 1", silent=True)
    assert execution.status == "ok" and execution.events == []


def test_plain_data_has_a_json_form_and_instances_have_none(shared):
    assert shared.run("({a: [1, null, 'x']})").events[0]["data"]["application/json"] == {"a": [1, None, "x"]}
    for code in ("new Date(0)", "({ get a() { throw 1 } })", "[undefined]", "({a: 1n})", "const loop = {}; loop.self = loop; loop"):
        assert "application/json" not in shared.run(code).events[0]["data"], code


def test_underscore_is_the_last_value_until_a_program_takes_it(kernel):
    assert values(kernel, "41", "_ + 1") == "42"
    assert values(kernel, "const _ = 'mine'", "5", "_") == "'mine'"


def test_display_takes_values_and_mime_bundles(shared):
    execution = shared.run("display({ 'text/html': '<b>', 'image/png': new Uint8Array([1, 2]) }); display([1])")
    assert [event["data"] for event in execution.events] == [{"text/html": "<b>", "image/png": "AQI="}, {"text/plain": "[ 1 ]", "application/json": [1]}]
    assert not any(event["main"] for event in execution.events)


def test_a_huge_value_is_shortened_and_says_so(shared):
    execution = shared.run("'x'.repeat(5_000_000)")
    event = execution.events[0]
    assert len(event["data"]["text/plain"]) <= 1 << 20
    assert event["truncated"] >= 5_000_000 - (1 << 20)


PNG = "new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0])"


@pytest.mark.parametrize(
    "code, wanted",
    [
        ("html`<b>${1 + 1}</b>`", {"text/html": "<b>2</b>", "text/plain": "<b>2</b>"}),
        ("md`# ${1}`", {"text/markdown": "# 1", "text/plain": "# 1"}),
        ("svg('<svg/>')", {"image/svg+xml": "<svg/>", "text/plain": "<svg/>"}),
        ("({ [Symbol.for('Jupyter.display')]() { return { 'text/plain': 'own', 'application/json': { a: 1 } } } })", {"text/plain": "own", "application/json": {"a": 1}}),
        ("({ async [Symbol.for('Jupyter.display')]() { await 1; return { 'text/html': 'late', 'text/plain': 'p' } } })", {"text/html": "late", "text/plain": "p"}),
        ("new (class Plot { toMimeBundle() { return { 'text/html': Promise.resolve('<i>') } } })", {"text/html": "<i>", "text/plain": "Plot {}"}),
        ("new (class Chart { toSpec() { return { mark: 'bar' } } })", {"application/vnd.vegalite.v5+json": {"mark": "bar"}, "text/plain": "Chart {}"}),
        ("new (class Frame { toHTML() { return '<table>' } })", {"text/html": "<table>", "text/plain": "Frame {}"}),
        ("new (class Drawing { toSVG() { return '<svg>' } })", {"image/svg+xml": "<svg>", "text/plain": "Drawing {}"}),
        ("new (class Canvas { toDataURL() { return 'data:image/png;base64,AQI=' } })", {"image/png": "AQI=", "text/plain": "Canvas {}"}),
    ],
)
def test_a_value_says_how_it_looks(shared, code, wanted):
    execution = shared.run(code)
    assert execution.status == "ok" and execution.events[0]["main"] is True, execution
    assert execution.events[0]["data"] == wanted
    execution = shared.run(f"await display({code})")
    assert execution.events[0]["main"] is False
    assert execution.events[0]["data"] == wanted


def test_bytes_of_pictures_are_shown_as_pictures(shared):
    data = shared.run(PNG).events[0]["data"]
    assert data["image/png"] == "iVBORw0KGgoAAA==" and data["text/plain"].startswith("Uint8Array(10)")
    assert shared.run(f"require('fs').writeFileSync('a.png', {PNG}); await display(display.image('a.png'))").events[0]["data"]["image/png"] == "iVBORw0KGgoAAA=="
    assert "image/jpeg" in shared.run("Buffer.from([0xff, 0xd8, 0xff, 0xe0])").events[0]["data"]
    assert set(shared.run("new Uint8Array([1, 2, 3])").events[0]["data"]) == {"text/plain"}
    assert "expected" in shared.run("display.image(new Uint8Array(9))").error["message"]


def test_a_value_that_fails_to_say_how_it_looks_is_shown_as_text(shared):
    for code in ("new (class Bad { toHTML() { throw new Error('broken') } })", "new (class Bad { async [Symbol.for('Jupyter.display')]() { throw new Error('broken') } })"):
        execution = shared.run(code)
        assert execution.text == "Bad {}" and b"Error: broken\n    at " in execution.stderr, execution
    assert shared.run("new (class Odd { toMimeBundle() { return 5 } })").text == "Odd {}"
    assert shared.run("globalThis.Proxied = new Proxy({}, { get() { throw new Error('no') } })").status == "ok"


def test_what_is_too_large_for_a_bundle_is_left_out(shared):
    event = shared.run("display({ 'text/html': 'h'.repeat(7_000_000), 'text/plain': 'p'.repeat(2_000_000), 'image/png': 'A'.repeat(6_000_000), 'image/gif': 'B'.repeat(6_000_000) })").events[0]
    assert set(event["data"]) == {"text/plain", "image/png"} and len(event["data"]["text/plain"]) == 1 << 20
    assert event["truncated"] > 13_000_000


def test_display_takes_metadata_and_raw_bundles(shared):
    event = shared.run("display({ odd: 'x' }, { raw: true, metadata: { width: 5 } })").events[0]
    assert (event["data"], event["metadata"]) == ({"odd": "x"}, {"width": 5})
    assert shared.run("(await display.format(5))['text/plain']").text == "'5'"


@pytest.mark.only("deno")
def test_notebooks_of_deno_find_their_names(shared):
    execution = shared.run("await Deno.jupyter.display(Deno.jupyter.html`<b>`); Deno.jupyter.md`*x*`")
    assert [event["data"].get("text/html") or event["data"].get("text/markdown") for event in execution.events] == ["<b>", "*x*"]
    assert shared.run("({ [Deno.jupyter.$display]: () => ({ 'text/html': 'own' }) })").events[0]["data"]["text/html"] == "own"


def test_top_level_for_await(shared):
    assert shared.run("for await (const n of (async function* () { yield 1; yield 2 })()) print(n)").stdout == b"1\n2\n"


@pytest.mark.versions
def test_modules_of_the_working_folder_and_of_node_modules(kernel, tmp_path):
    (tmp_path / "local.ts").write_text("export const hidden: number = 1; export default 'local'")
    for folder, name in (("node_modules/pkg", "pkg"), ("elsewhere/other", "other")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "package.json").write_text('{"name": "%s", "version": "1.0.0", "main": "main.js"}' % name)
        (tmp_path / folder / "main.js").write_text("exports.who = '%s'" % name)
    kernel.send(op="configure", env={"NODE_PATH": str(tmp_path / "elsewhere")})
    assert kernel.next_event() == {"event": "configured"}
    assert values(kernel, "import local, { hidden } from './local'; local + hidden") == "'local1'"
    assert values(kernel, "import { who } from 'pkg'; who") == "'pkg'"
    assert values(kernel, "(await import('pkg')).who + require('other').who") == "'pkgother'"
    assert values(kernel, "import { who as other } from 'other'; other") == "'other'"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "near.js").write_text("module.exports = 'near'")
    assert values(kernel, "process.chdir('sub'); require('./near')") == "'near'"


@pytest.mark.versions
def test_packages_of_a_global_folder_are_found_from_any_folder(kernel, tmp_path):
    folder = tmp_path / "global" / "node_modules"
    for name, package in (("only-esm", {"type": "module", "exports": "./main.js"}), ("@at/both", {"exports": {"import": "./main.mjs", "require": "./main.cjs"}}), ("needs", {"type": "module", "main": "main.js"})):
        (folder / name).mkdir(parents=True)
        (folder / name / "package.json").write_text(json.dumps({"name": name, "version": "1.0.0", **package}))
    (folder / "only-esm" / "main.js").write_text("export const who = 'esm'; export default class Main {}")
    (folder / "@at/both" / "main.mjs").write_text("export const who = 'import'")
    (folder / "@at/both" / "main.cjs").write_text("exports.who = 'require'")
    (folder / "needs" / "main.js").write_text("import { who } from '@at/both'; export const what = 'needs ' + who")
    (tmp_path / "far" / "away").mkdir(parents=True)
    kernel.send(op="configure", env={"NODE_PATH": str(folder)}, cwd=str(tmp_path / "far" / "away"))
    assert kernel.next_event() == {"event": "configured"}
    assert values(kernel, "import Main, { who } from 'only-esm'; import * as all from 'only-esm'; [who, typeof Main, Object.keys(all).length]") == "[ 'esm', 'function', 2 ]"
    assert values(kernel, "import { who as both } from '@at/both'; both + require('@at/both').who") == "'importrequire'"
    assert values(kernel, "(await import('needs')).what") == "'needs import'"


@pytest.mark.versions
def test_a_package_installed_after_a_failed_import_is_found(kernel, tmp_path):
    assert kernel.run("import 'fresh'").status == "error"
    folder = tmp_path / "node_modules" / "fresh"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "fresh", "version": "1.0.0", "main": "main.js"}')
    (folder / "main.js").write_text("module.exports = 'fresh'")
    assert values(kernel, "import fresh from 'fresh'; fresh") == "'fresh'"
    assert values(kernel, "require('fresh')") == "'fresh'"


@pytest.mark.versions
def test_an_npm_import_names_an_installed_package(kernel, tmp_path):
    folder = tmp_path / "node_modules" / "@scope" / "here"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"name": "@scope/here", "version": "1.0.0", "exports": {".": {"import": "./main.mjs", "require": "./main.cjs"}, "./sub": "./sub.mjs"}}')
    (folder / "main.mjs").write_text("export const who = 'import'")
    (folder / "main.cjs").write_text("exports.who = 'require'")
    (folder / "sub.mjs").write_text("export default 'sub'")
    assert values(kernel, "import { who } from 'npm:@scope/here@^1.0.0'; who") == "'import'"
    assert values(kernel, "import sub from 'npm:@scope/here/sub'; sub + require('npm:@scope/here').who") == "'subrequire'"


@pytest.mark.parametrize("specifier", ["npm:not-there@1", "jsr:@not/there", "https://127.0.0.1:1/module.ts"])
def test_an_import_from_elsewhere_fails_with_a_remedy(shared, specifier):
    for code in (f"import x from '{specifier}'", f"await import('{specifier}')"):
        execution = shared.run(code)
        assert execution.status == "error", execution
        assert f"'{specifier}'" in execution.error["message"] and "remedy: " in execution.error["message"]


@pytest.mark.versions
def test_typescript_files_load_one_another(kernel, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "index.ts").write_text("import { half } from './half.ts'; import type { Half } from './half.ts'; export enum Size { Small = 1, Large }; export const twice: Half = half * 4")
    (tmp_path / "lib" / "half.ts").write_text("export type Half = number; export const half: Half = 21 / 2")
    assert values(kernel, "import { Size, twice } from './lib/index.ts'; [Size.Large, twice]") == "[ 2, 42 ]"
    (tmp_path / "failing.ts").write_text("type A = string\n\nexport function fail(): A {\n  throw new Error('line 4')\n}\n")
    execution = kernel.run("import { fail } from './failing.ts'; fail()")
    assert "failing.ts:4:" in execution.error["traceback"], execution


@pytest.mark.versions
@pytest.mark.only("bun", "node")
def test_typescript_files_can_be_required(kernel, tmp_path):
    (tmp_path / "tool.ts").write_text("import { sep } from 'node:path'\nexport const name: string = 'tool' + sep")
    assert values(kernel, "require('./tool').name") == "'tool/'"


@pytest.mark.versions
def test_a_scoped_package_installed_into_a_new_folder_is_found(kernel, tmp_path):
    assert kernel.run("import 'anything'").status == "error"
    for name, more in (("@late/one", '"exports": {".": {"import": "./main.mjs", "require": "./main.cjs"}}'), ("@late/two", '"main": "main.cjs"')):
        folder = tmp_path / "node_modules" / name
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"name": "%s", "version": "1.0.0", %s}' % (name, more))
        (folder / "main.mjs").write_text("export const who = 'import'")
        (folder / "main.cjs").write_text("exports.who = 'require'")
    assert values(kernel, "import { who } from '@late/one'; import { who as two } from '@late/two'; who + two") == "'importrequire'"
    assert values(kernel, "require('@late/one').who + require('@late/two').who") == "'requirerequire'"


def test_script_idioms_work(shared):
    assert shared.run("if (require.main === module) print('main')").stdout == b"main\n"
    assert shared.run("if (import.meta.main) print('main')").stdout == b"main\n"
    assert values(shared, "module.exports = { a: 1 }; typeof __dirname + typeof __filename + typeof exports") == "'stringstringobject'"
    assert values(shared, "import.meta.dir === process.cwd() && import.meta.url.startsWith('file:')") == "true"


def test_a_cell_of_ten_megabytes_runs(shared):
    execution = shared.run("const long = '" + "a" * 10_000_000 + "'; long.length")
    assert execution.text == "10000000"
    assert values(shared, "delete globalThis.long; 1") == "1"


@pytest.mark.versions
@pytest.mark.parametrize("broken", ["Array.prototype.push = () => { throw 1 }", "JSON.stringify = null; JSON.parse = null", "Array.prototype.map = Array.prototype.sort = String.prototype.split = null",
                                    "console.log = () => {}", "Promise.prototype.then = null", "globalThis.Promise = null", "Object.prototype.extra = 1", "delete globalThis.Bun; globalThis.process = null",
                                    "Object.defineProperty = null; Buffer.from = null", "globalThis.setImmediate = null; performance.now = null", "process.removeAllListeners()", "RegExp.prototype.exec = null; Map.prototype.get = null"])
def test_a_program_that_breaks_built_ins_does_not_break_the_kernel(kernel, broken):
    kernel.run(broken)
    assert kernel.run("1 + 1").text == "2"
    execution = kernel.run("const after = [1]; null.x")
    assert execution.status == "error" and execution.error["name"] == "TypeError"
    assert kernel.run("({a: after})").text == "{ a: [ 1 ] }"

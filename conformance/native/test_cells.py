"""What agents write into cells, by language: a list of cells in one sandbox, each with what it must print or how it must fail."""

import pytest

# A cell is (code, expected): a text is the whole output; an Error names the error and a part of its message; Any accepts every success.
Any = object()


class Error:
    def __init__(self, name, part=""):
        self.name, self.part = name, part


class Exit:
    def __init__(self, code):
        self.code = code


PYTHON = {
    "a request without network": [("import requests\nrequests.get('https://example.com', timeout=5)", Error("ConnectionError", "resol"))],
    "an async client without network": [("import httpx\nasync with httpx.AsyncClient() as c: await c.get('https://example.com')", Error("ConnectError"))],
    "html": [("from bs4 import BeautifulSoup\nBeautifulSoup('<p>Hi <b>you</b></p>', 'html.parser').p.text", "'Hi you'")],
    "models over cells": [
        ("from __future__ import annotations\nfrom pydantic import BaseModel\nclass A(BaseModel):\n    b: B | None = None\nclass B(BaseModel):\n    n: int", ""),
        ("A.model_rebuild()\nA(b={'n': '2'})", "A(b=B(n=2))"),
        ("B(n='x')", Error("ValidationError", "valid integer")),
    ],
    "a server of one cell and a client of the next": [
        ("import asyncio\nasync def h(r, w):\n    w.write(b'echo ' + await r.readline()); await w.drain(); w.close()\nserver = await asyncio.start_server(h, '127.0.0.1', 0)\nport = server.sockets[0].getsockname()[1]", ""),
        ("r, w = await asyncio.open_connection('127.0.0.1', port)\nw.write(b'hi\\n')\nawait r.readline()", "b'echo hi\\n'"),
    ],
    "a web server in a thread": [
        ("import http.server, threading, requests\nsrv = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\nthreading.Thread(target=srv.serve_forever, daemon=True).start()", ""),
        ("requests.get(f'http://localhost:{srv.server_port}/').status_code", "200"),
    ],
    "pools": [
        ("from multiprocessing import Pool\nfrom concurrent.futures import ProcessPoolExecutor\ndef sq(x): return x * x\nif __name__ == '__main__':\n    with Pool(4) as p: print(p.map(sq, range(5)))\n    with ProcessPoolExecutor(2) as e: print(list(e.map(sq, range(3))))", "[0, 1, 4, 9, 16]\n[0, 1, 4]"),
        ("import multiprocessing as mp\nps = [mp.Process(target=print, args=('child',)) for _ in range(2)]\n[p.start() for p in ps]; [p.join() for p in ps]; print('parent')", "child\nchild\nparent"),
    ],
    "programs and pipes": [
        ("import subprocess\nsubprocess.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True, text=True)", "CompletedProcess(args='echo out; echo err >&2; exit 3', returncode=3, stdout='out\\n', stderr='err\\n')"),
        ("subprocess.check_output(['false'])", Error("CalledProcessError", "exit status 1")),
        ("p = subprocess.Popen(['cat'], stdin=-1, stdout=-1, text=True); p.communicate('x')[0]", "'x'"),
        ("import os\nos.system('clear; exit 3')", "768"),
    ],
    "classes": [
        ("from dataclasses import dataclass\nimport pickle, copy, inspect\n@dataclass(order=True)\nclass P:\n    x: int", ""),
        ("pickle.loads(pickle.dumps(P(1))) == copy.deepcopy(P(1))", "True"),
        ("class P(P):\n    def f(self): return self.x + 1", ""),
        ("P(1).f(), 'return self.x' in inspect.getsource(P)", "(2, True)"),
    ],
    "a database": [("import sqlite3\ncon = sqlite3.connect('t.db')\ncon.execute('create table t(a)'); con.execute('insert into t values(5)'); con.commit()", ""), ("con.execute('select a from t').fetchone()", "(5,)")],
    "scripts": [
        ("import argparse\np = argparse.ArgumentParser(); p.add_argument('--n', type=int, default=3)\np.parse_args().n", "3"),
        ("p.add_argument('need'); p.parse_args()", Exit(2)),
        ("import os\nos.path.dirname(os.path.abspath(__file__)) == os.getcwd()", "True"),
        ("if __name__ == '__main__':\n    import sys; sys.exit(3)", Exit(3)),
        ("exit()", Exit(0)),
        ("raise SystemExit('why')", Exit(1)),
        ("p.get_default('n')", "3"),
    ],
    "tests of their own": [
        ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, 2)\nif __name__ == '__main__': unittest.main()", Exit(1)),
        ("def add(a, b):\n    '''\n    >>> add(1, 2)\n    3\n    '''\n    return a + b\nimport doctest; doctest.testmod()", "TestResults(failed=0, attempted=1)"),
    ],
    "questions to a person": [
        ("input('Name? ')", Error("EOFError", "stdin")), ("import getpass; getpass.getpass()", Error("EOFError", "stdin")), ("breakpoint()", Error("EOFError", "stdin")),
        ("import pdb; pdb.set_trace()", Error("BdbQuit")), ("import sys; sys.stdin.read()", "''"),
    ],
    "output": [
        ("print('a', end=''); print('b', sep='-', flush=True); print('c', file=__import__('sys').stderr)", "ab\nc"),
        ("import sys; sys.stdout.reconfigure(line_buffering=True, encoding='utf-8'); print('é🎉')", "é🎉"),
        ("import io, contextlib\nf = io.StringIO()\nwith contextlib.redirect_stdout(f): print('x')\nf.getvalue()", "'x\\n'"),
        ("for i in range(3): print(f'\\r{i}/2', end='')", "2/2"),
        ("import logging\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s'); logging.info('one')", "INFO one"),
        ("logging.info('two')", "INFO two"),
    ],
    "signals": [
        ("import signal, time\ndef alarm(s, f): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, alarm); signal.alarm(1)\ntry: time.sleep(5)\nexcept TimeoutError as e: print(e)", "late"),
        ("import os\nsignal.signal(signal.SIGTERM, lambda s, f: print('term'))\nos.kill(os.getpid(), signal.SIGTERM); time.sleep(0.05)", "term"),
    ],
    "forks": [
        ("import os, sys\npid = os.fork()\nif pid == 0:\n    print('child'); sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))", "child\n3"),
        ("print('still one')", "still one"),
    ],
    "deep things": [
        ("def f(n): return f(n + 1)\nf(0)", Error("RecursionError")),
        ("import gc\nbig = [bytearray(1 << 20) for _ in range(60)]; del big; gc.collect() >= 0", "True"),
        ("big = [bytearray(1 << 20) for _ in range(60)]; len(big)", "60"),
        ("import weakref\nclass O: pass\no = O(); r = weakref.ref(o, lambda _: print('gone'))", ""), ("del o", "gone"),
        ("exec('made = 1'); globals()['made'] + eval('made')", "2"),
        ("raise ExceptionGroup('many', [ValueError(1)])", Error("ExceptionGroup", "many")),
        ("match {'k': [1, 2]}:\n    case {'k': [a, *rest]}: print(a, rest)", "1 [2]"),
        ("from datetime import datetime; from zoneinfo import ZoneInfo\ndatetime(2024, 7, 1, tzinfo=ZoneInfo('Europe/Berlin')).utcoffset().seconds", "7200"),
    ],
    "asynchronous things": [
        ("import asyncio\nasync def g():\n    for i in range(2): yield i; await asyncio.sleep(0)\n[x async for x in g()]", "[0, 1]"),
        ("asyncio.run(asyncio.sleep(0, 'run'))", "'run'"),
        ("asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 'loop'))", "'loop'"),
        ("async with asyncio.timeout(0.05): await asyncio.sleep(5)", Error("TimeoutError")),
        ("async with asyncio.TaskGroup() as tg: t = tg.create_task(asyncio.sleep(0, 'r'))\nt.result()", "'r'"),
    ],
    "notebook habits": [
        ("!echo hi {1 + 1}", "hi 2"), ("files = !ls /\n'etc' in files", "True"), ("%%bash\nx=3; echo $x", "3"), ("%cd /tmp", "/tmp"), ("%timeit -n 1 -r 1 pass", Any),
        ("len?", Any), ("%pip install --retries 0 rich", Error("ScriptError", "pip install failed")), ("%nosuch", Error("UsageError", "unknown magic")),
    ],
    "missing modules": [("import matplotlib.pyplot as plt", Error("ModuleNotFoundError", "matplotlib"))],
    "frames of several cells": [("def outer(x):\n    return inner(x)", ""), ("def inner(x):\n    return 1 / x", ""), ("outer(0)", Error("ZeroDivisionError"))],
    "names of the machine": [("import socket\nsocket.gethostbyname(socket.gethostname())", "'127.0.1.1'")],
}

TYPESCRIPT = {
    "a server and a fetch": [
        ("const server = Bun.serve({ port: 0, fetch: (r) => Response.json({ path: new URL(r.url).pathname }) }); await (await fetch(`http://localhost:${server.port}/a`)).json()", "{ path: '/a' }"),
        ("await (await fetch(`http://127.0.0.1:${server.port}/b`)).text()", "'{\"path\":\"/b\"}'"),
        ("await fetch('https://example.com')", Error("TypeError", "getaddrinfo")),
    ],
    "libraries": [
        ("import { z } from 'zod'; import * as cheerio from 'cheerio'; import _ from 'lodash-es'; import { format } from 'date-fns';\nconsole.log(z.number().safeParse('x').success, cheerio.load('<p>hi</p>')('p').text(), _.chunk([1, 2, 3], 2).length, format(new Date(2024, 0, 1), 'yyyy'))", "false hi 2 2024"),
        ("import axios from 'axios'", Error("ResolveMessage", "axios")),
    ],
    "node's modules": [
        ("import fs from 'node:fs/promises'; import path from 'path'; import { execSync, spawn } from 'child_process';\nawait fs.writeFile('a.txt', 'hello'); console.log(await fs.readFile('a.txt', 'utf8'), path.basename('/x/y.ts'), execSync('echo hi').toString().trim())", "hello y.ts hi"),
        ("execSync('exit 3')", Error("Error", "Command failed")),
        ("const p = spawn('cat'); p.stdout.on('data', d => console.log('got ' + d)); p.stdin.end('piped'); await new Promise(r => p.on('close', r))", "got piped\n0"),
        ("import { Worker } from 'worker_threads'; const w = new Worker('require(\"worker_threads\").parentPort.postMessage(42)', { eval: true }); await new Promise(r => w.on('message', r))", "42"),
        ("import { pipeline } from 'stream/promises'; import { Readable } from 'stream'; const out = []; await pipeline(Readable.from(['a', 'b']), async (s) => { for await (const c of s) out.push(c) }); out", "[ 'a', 'b' ]"),
    ],
    "types": [
        ("class Counter { #n = 0; static made = 0; constructor(private readonly step: number = 2) { Counter.made++ } inc() { return this.#n += this.step } }\nnew Counter().inc()", "2"),
        ("enum Color { Red, Green }\nnamespace NS { export const x = Color.Green }\nNS.x", "1"),
        ("function id<T extends { a: number }>(x: T): T { return x }\nconst kept = { a: 1 } satisfies Record<string, number>; id(kept).a", "1"),
        ("export const exported = 1; export default function main() { return exported + 1 }\nmain()", "2"),
        ("import type { PathLike } from 'fs'; export type { PathLike }; interface I { (x: number): string }\nlet u!: number; u = 3; u as unknown as string", "3"),
    ],
    "asynchronous things": [
        ("async function* g() { yield 1; await Bun.sleep(1); yield 2 }\nfor await (const x of g()) console.log(x)", "1\n2"),
        ("(await Promise.allSettled([Promise.reject(new Error('no')), 1])).map(r => r.status)", "[ 'rejected', 'fulfilled' ]"),
        ("await Promise.any([Promise.reject(new Error('a'))])", Error("AggregateError")),
        ("Promise.reject(new Error('unhandled'))", Error("Error", "unhandled")),
        ("async function main() { await Bun.sleep(5); console.log('end') }\nmain()", "end"),
        ("globalThis.ticks = 0; const timer = setInterval(() => ticks++, 5)", ""), ("await Bun.sleep(100); clearInterval(timer); ticks > 2", "true"),
    ],
    "modules": [
        ("const { readFileSync } = require('fs'); const m = await import('lodash-es'); [typeof readFileSync, m.sum([1, 2])]", "[ 'function', 3 ]"),
        ("await Bun.write('d.json', '{\"a\": [1, 2]}'); await Bun.write('lib.ts', 'export const v: number = 7')", Any),
        ("import data from './d.json' with { type: 'json' }; import { v } from './lib'; [data.a[1], v, require('./d.json').a.length]", "[ 2, 7, 2 ]"),
        ("if (require.main === module) console.log('main')", "main"), ("require('./nope')", Error("ResolveMessage", "nope")),
    ],
    "the rest": [
        ("return 5", "5"), ("2n ** 64n", "18446744073709551616n"), ("console.table([{ a: 1 }])", "┌───┬───┐\n│   │ a │\n├───┼───┤\n│ 0 │ 1 │\n└───┴───┘"),
        ("structuredClone(new Map([[1, { a: 1 }]]))", "Map(1) { 1 => { a: 1 } }"),
        ("const wasm = new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11]); (await WebAssembly.instantiate(wasm)).instance.exports.add(2, 3)", "5"),
        ("throw new Error('outer', { cause: new TypeError('inner') })", Error("Error", "outer")), ("throw 'text'", Error("", "text")),
        ("const rl = require('readline').createInterface({ input: process.stdin }); for await (const l of rl) console.log(l)", Error("Error", "stdin")),
        ("process.exit(2)", Exit(2)), ("const x = ;", Error("SyntaxError")), ("print('a', { b: 1 })", "a { b: 1 }"),
        ("new Intl.NumberFormat('de-DE').format(1234.5)", "'1.234,5'"),
    ],
}

BASH = {
    "pipes and heredocs": [("echo a | tr a b; cat <<EOF\nsum $((1 + 1))\nEOF", "b\nsum 2"), ("cat <<< 'here'; diff <(echo a) <(echo a) && echo same", "here\nsame")],
    "state": [
        ("f() { local x=$1; echo \"f $x\"; return 3; }; arr=(a 'b c'); declare -A m=([k]=v); export FOO=bar; cd /tmp", ""),
        ("f hi; echo $? \"${arr[1]}\" ${m[k]}; bash -c 'echo $FOO'; pwd", "f hi\n3 b c v\nbar\n/tmp"),
    ],
    "strictness": [("set -euo pipefail; false; echo never", Exit(1)), ("echo next", "next"), ("set -u; echo $missing_variable", Exit(127)), ("exit 7", Exit(7)), ("echo $?", "7")],
    "traps": [("trap 'echo cleanup' EXIT; echo body", "body\ncleanup"), ("echo no trap", "no trap")],
    "background": [("sleep 0.1 & wait; echo waited", "waited")],
    "background that is ended": [("sleep 5 & kill %1; wait 2>/dev/null; echo killed", "killed")],
    "no stdin": [("read line; echo \"$? [$line]\"", "1 []")],
    "big loops and unicode": [("i=0; while ((i < 5000)); do ((++i)); done; echo $i; s='héllo 🎉'; echo ${#s} ${s^^}", "5000\n7 HÉLLO 🎉")],
    "mistakes": [("if then", Error("SyntaxError")), ("echo 'open", Error("SyntaxError")), ("nosuchcommand", "bash: line 1: nosuchcommand: command not found")],
    "administration": [("sudo id -u", "0"), ("sudo apt-get -o Acquire::Retries=0 install -y no-such-package-here 2>&1 | tail -1", "E: Unable to locate package no-such-package-here"), ("getent hosts $(hostname) | awk '{print $1}'", "127.0.1.1")],
    "files": [("mkdir -p g/h && touch g/h/x.txt && shopt -s globstar && echo g/**/*.txt && tar czf g.tgz g && rm -r g && tar xzf g.tgz && find g -type f", "g/h/x.txt\ng/h/x.txt")],
}


@pytest.mark.parametrize("language, name", [(language, name) for language, cases in (("python", PYTHON), ("typescript", TYPESCRIPT), ("bash", BASH)) for name in cases])
def test_cells_as_agents_write_them(client, sandbox, language, name):
    box = sandbox("typescript" if language == "typescript" else "python")
    for code, expected in {"python": PYTHON, "typescript": TYPESCRIPT, "bash": BASH}[language][name]:
        reply = client.exec(code, sandbox_id=box, language=language, timeout_seconds=30)
        got = {key: reply[key] for key in ("exit_reason", "exit_code", "output", "error", "detail")}
        assert reply["state_kept"] is True, (code, got)
        if isinstance(expected, Error):
            assert reply["exit_reason"] == "error" and reply["error"]["name"] in (expected.name, expected.name or reply["error"]["name"]), (code, got)
            assert expected.part in reply["error"]["message"], (code, got)
        elif isinstance(expected, Exit):
            assert reply["exit_reason"] == "exited" and reply["exit_code"] == expected.code, (code, got)
        else:
            assert reply["exit_reason"] == "completed", (code, got)
            assert expected is Any or reply["output"] == expected, (code, got)

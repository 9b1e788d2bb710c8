// The TypeScript/JavaScript kernel: one cell at a time in one global scope, speaking proto/kernel.md.
//
// A cell's synchronous part, and the promise jobs it leaves behind, run inside one vm call with `breakOnSigint`: there SIGINT stops
// anything, also library code. Behind an await or in a callback no signal can reach JavaScript; there the checks that rewrite.js puts into
// loops look for the agent's `interrupt` command. A cell that only waits is let go at once.

import { AsyncLocalStorage } from "node:async_hooks";
import { isBuiltin } from "node:module";
import { Readable } from "node:stream";
import fs from "node:fs";
import { types } from "node:util";
import vm from "node:vm";
import * as runtime from "#runtime";
import { send } from "./channel.js";
import { describe, describeSyntax, engineLocation, outermostCell, remember, undecorate } from "./errors.js";
import { bounded, displayBundle, helpers, ownBundle, valueBundle } from "./display.js";
import { installModules, importModule } from "./modules.js";
import { installOutput, resetStreams, setRoute, warmOutput, write, writeLate } from "./output.js";
import { installRandom, reseed } from "./random.js";
import { steady } from "./intrinsics.js";
import { CellSyntaxError, rewrite, rewriteTranspiled } from "./rewrite.js";

const LONGEST_STRIDE = 512;
const POLL_MILLIS = 5;
const EXIT_GRACE_MILLIS = 200;
const REMEMBERED_CELLS = 1000;
const LARGE_CODE = 1 << 20;

const { afterTermination, atTop, canTerminate, collect, drain, later, readWaiting, reallyExit, signalsSeen, watchAgain } = runtime;
const { Script } = vm;
const compile = (code, filename) => new Script(code, { filename });
const run = Script.prototype.runInThisContext;
const call = Function.prototype.call.bind(Function.prototype.call);
const then = Function.prototype.call.bind(Promise.prototype.then);
const { parse } = JSON;
const { isNativeError, isProxy } = types;
const { defineProperty, getOwnPropertyDescriptor, freeze, hasOwn, keys } = Object;
// Costs time only where the signal does not come at all; on a busy machine it comes late.
const SIGNAL_GRACE_MILLIS = canTerminate ? 250 : 0;
const isPromise = (value) => value instanceof PromiseType;
const PromiseType = Promise;
const realSetTimeout = setTimeout;
const proc = process;
const kill = process.kill.bind(process);
const clock = performance;
const now = performance.now.bind(clock);
const { pid } = process;
const contexts = new AsyncLocalStorage();
const currentContext = contexts.getStore.bind(contexts);
const withContext = contexts.run.bind(contexts);
const global = globalThis;

// Thrown to leave the program; never shown.
const EXIT = freeze({ name: "Exit", message: "process.exit() was called" });
const INTERRUPT = freeze({ name: "Interrupted", message: "the execution was interrupted" });

let current = null; // the running cell
let last = null; // the newest ended one
let ended = []; // those before it
let number = 0;
let isInside = false; // in the vm call that SIGINT can end
let pending = null; // what that call shall run
const queue = [];

// The loops' counter: a lexical global, which compiled code reaches without a look-up, unlike a property.
const setTick = call(run, compile("let __atoll_tick = 0; (value) => { __atoll_tick = value }", "atoll"));
const enterScript = compile("__atoll.enter()", "atoll");
const enterOptions = canTerminate ? { breakOnSigint: true } : undefined;

setRoute(() => {
  const owner = currentContext();
  if (owner === undefined) return current ? { cell: current, late: false } : { cell: last, late: true };
  return { cell: owner, late: owner !== current };
});

// ---- running a cell

function execute({ id, code, silent, env }) {
  const cell = { id, number: ++number, silent: silent === true, muted: false, outcome: null, exitCode: 0, interrupted: false, exited: false, isLarge: code.length > LARGE_CODE, signals: signals(), signalDeadline: 0, environment: env ? setEnvironment(env) : null };
  const file = `cell-${cell.number}.ts`;
  current = cell;
  resetStreams();
  guard();
  let program;
  try {
    program = steady(() => prepare(code, file));
  } catch (error) {
    if (error instanceof CellSyntaxError) settle(cell, { status: "error", error: steady(() => describeSyntax(file, code, error)) });
    else fail(cell, error);
    return;
  }
  remember(file, code, program);
  withContext(cell, () => {
    if (program.imports.length === 0) return start(cell, program);
    then(
      loadImports(file, program, code),
      () => cell.outcome ?? atTop(() => start(cell, program)),
      (error) => fail(cell, error),
    );
  });
}

function prepare(code, file) {
  let program = rewrite(code);
  try {
    return compiled(program, file);
  } catch (error) {
    if (!isNativeError(error) || error.name !== "SyntaxError") throw error;
    // Our rewriting and the engine disagree about this text; the runtime's own reading of it decides.
    try {
      return compiled(rewriteTranspiled(code, error), file);
    } catch (problem) {
      const place = isNativeError(problem) && problem.name === "SyntaxError" && !problem.isAboutTheCell ? engineLocation(problem) : undefined;
      throw place === undefined ? problem : new CellSyntaxError(problem.message, place.line, place.column + 1);
    }
  }
}

function compiled(program, file) {
  if (program.hoisted !== undefined) program.hoistedScript = compile(program.hoisted, file);
  program.script = compile(program.body, file);
  program.hoisted = program.body = undefined;
  return program;
}

function start(cell, program) {
  try {
    declare(program);
    isInside = true;
    pending = () => {
      if (program.hoistedScript) call(run, program.hoistedScript);
      const value = call(run, program.script);
      if (program.isAsync) await_(cell, value, (box) => show(cell, box === undefined ? undefined : box[0], box !== undefined));
      else if (program.shown && isPromise(value)) await_(cell, value, (result) => show(cell, result, true));
      else show(cell, value, program.shown);
      drain();
    };
    call(run, enterScript, enterOptions);
  } catch (error) {
    if (isTermination(error)) {
      afterTermination();
      interrupt(cell, true);
    } else fail(cell, error);
  } finally {
    isInside = false;
    pending = null;
  }
}

// Looks without running code of the program's: what was thrown may be a proxy.
function isTermination(error) {
  if (isProxy(error) || !isNativeError(error)) return false;
  try {
    return error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED";
  } catch {
    return false; // a getter that throws
  }
}

function await_(cell, promise, onValue) {
  then(
    promise,
    (value) => {
      try {
        onValue(value);
      } catch (error) {
        fail(cell, error);
      }
    },
    (error) => fail(cell, error),
  );
}

// Every declared name becomes an ordinary property, also where the platform has an accessor or a constant of that name.
function declare({ names, functionNames }) {
  for (const set of [names, functionNames]) {
    for (const name of set) {
      const property = getOwnPropertyDescriptor(global, name);
      if (property === undefined) {
        if (set === names) defineProperty(global, name, { value: undefined, writable: true, enumerable: true, configurable: true });
      } else if (property.configurable && (!("value" in property) || !property.writable)) {
        defineProperty(global, name, { value: undefined, writable: true, enumerable: true, configurable: true });
      }
    }
  }
}

function bind(name, value) {
  const property = getOwnPropertyDescriptor(global, name);
  if (property !== undefined && property.writable) global[name] = value;
  else defineProperty(global, name, { value, writable: true, enumerable: true, configurable: true });
}

async function loadImports(file, { imports, used }, code) {
  for (const { source, bindings, type, start: at } of imports) {
    let namespace;
    try {
      namespace = await importModule(source, type === undefined ? undefined : { with: { type } });
      for (const [name] of bindings) {
        if (name !== null && !(name in namespace) && used?.has(bindings.find((item) => item[0] === name)[1]))
          throw new SyntaxError(`Export named '${name}' not found in module '${source}'`);
      }
    } catch (error) {
      locate(error, file, code, at);
      throw error;
    }
    const properties = [];
    const replaced = runtime.name === "deno" && isBuiltin(source) ? namespace.default : null; // a module's names can't be replaced there
    for (const [name, local] of bindings) properties.push([local, name === null ? namespace : replaced !== null && name in replaced ? replaced[name] : namespace[name]]);
    for (const [local, value] of properties) bind(local, value);
  }
}

// A failed import has no frame of the cell; its statement's place is as good.
function locate(error, file, code, at) {
  try {
    const before = code.slice(0, at).split("\n");
    const stack = typeof error.stack === "string" ? error.stack : `${error.name}: ${error.message}`;
    if (!stack.includes(file)) defineProperty(error, "stack", { value: `${stack}\n    at ${file}:${before.length}:${before[before.length - 1].length + 1}`, configurable: true, writable: true });
  } catch {
    // frozen: then without
  }
}

function show(cell, value, isShown) {
  if (cell.outcome) return;
  if (!isShown || value === undefined || cell.silent) return settle(cell, { status: "ok" });
  let own = null;
  try {
    own = ownBundle(value);
  } catch (error) {
    complain(error);
  }
  if (own === null || !isPromise(own)) return finishShow(cell, value, own);
  then(
    own,
    (bundle) => finishShow(cell, value, bundle),
    (error) => {
      complain(error);
      finishShow(cell, value, null);
    },
  );
}

// A value that can't say how it looks is still shown as text.
function complain(error) {
  if (error === EXIT || error === INTERRUPT) throw error;
  write(2, steady(() => describe(error)).traceback + "\n");
}

function finishShow(cell, value, own) {
  if (cell.outcome) return;
  try {
    const { data, truncated } = steady(() => (own === null ? valueBundle(value) : bounded(own, value)));
    const event = { event: "result", id: cell.id, main: true, data, metadata: {} };
    if (truncated) event.truncated = truncated;
    cell.result = event;
    keepLast(value);
  } catch (error) {
    return fail(cell, error);
  }
  settle(cell, { status: "ok" });
}

let keptLast;
function keepLast(value) {
  const property = getOwnPropertyDescriptor(global, "_");
  if (property === undefined || ("value" in property && property.value === keptLast && property.writable)) {
    keptLast = value;
    defineProperty(global, "_", { value, writable: true, enumerable: false, configurable: true });
  }
}

function fail(cell, error) {
  if (error === EXIT || cell.exited) return;
  if (error === INTERRUPT) return interrupt(cell);
  if (runtime.name === "deno") undecorate(error);
  settle(cell, { status: "error", error: steady(() => describe(error)) });
}

function signals() {
  return signalsSeen() + handled;
}

function interrupt(cell, isBySignal = false) {
  if (cell.exited) return settle(cell, { status: "exited", exit_code: cell.exitCode });
  cell.interrupted = true;
  if (!isBySignal) cell.signalDeadline = now() + SIGNAL_GRACE_MILLIS;
  settle(cell, { status: "interrupted", error: { name: INTERRUPT.name, message: INTERRUPT.message, traceback: `${INTERRUPT.name}: ${INTERRUPT.message}` } });
}

// The end is reported one turn of the event loop later, so that what the cell left in the queues (rejections nobody handles,
// nextTick) still counts as its own.
function settle(cell, outcome) {
  if (cell.outcome) return;
  cell.outcome = outcome;
  later(report, cell);
}

function report(cell) {
  if (cell !== current) return;
  // The agent sends command and signal together. The signal must not be left over to hit the next cell.
  if (cell.signalDeadline > now() && signals() === cell.signals) return void realSetTimeout(report, 1, cell);
  const { outcome, result } = cell;
  if (result && outcome.status === "ok") send(result);
  cell.result = undefined;
  if (cell.environment) restoreEnvironment(cell.environment);
  cell.environment = null;
  cell.outcome = { status: outcome.status };
  current = null;
  last = cell;
  ended[ended.length] = cell;
  if (ended.length > REMEMBERED_CELLS) ended = ended.slice(REMEMBERED_CELLS / 2);
  send({ event: "done", id: cell.id, ...outcome });
  if (cell.isLarge) collect();
  if (queue.length) perform(queue.shift());
}

// Sets variables for one cell; returns what was there.
function setEnvironment(env) {
  const before = [];
  for (const name of keys(env)) {
    before[before.length] = [name, proc.env[name]];
    proc.env[name] = env[name];
  }
  return before;
}

function restoreEnvironment(before) {
  for (let i = 0; i < before.length; i++) {
    const [name, value] = before[i];
    if (value === undefined) delete proc.env[name];
    else proc.env[name] = value;
  }
}

// ---- errors outside the cell's own call

function onException(error) {
  stray(error, currentContext() ?? current ?? last);
}

// Bun calls this outside of the promise's asynchronous context. The outermost frame that lies in a cell is the next best witness.
function onRejection(error) {
  let owner = currentContext() ?? current ?? last;
  const cell = steady(() => outermostCell(error));
  if (cell > 0 && cell !== current?.number) for (let i = 0; i < ended.length; i++) if (ended[i].number === cell) owner = ended[i];
  stray(error, owner);
}

function stray(error, owner) {
  if (error === EXIT || error === INTERRUPT) return;
  if (owner === null || owner.muted) return;
  if (owner !== current) return writeLate(owner, 2, steady(() => describe(error)).traceback + "\n");
  if (owner.outcome?.status === "ok") owner.outcome = null;
  if (owner.outcome === null) {
    owner.outcome = { status: "error", error: steady(() => describe(error)) };
    later(report, owner);
  } else write(2, steady(() => describe(error)).traceback + "\n");
}

function onSigint() {
  handled++;
  if (current && !current.outcome) interrupt(current);
}

const strays = { onSigint, onException, onRejection };

// A program may remove all listeners; the kernel's come back before the next cell.
function guard() {
  for (const [event, listener] of runtime.listen(strays)) {
    const list = proc.listeners(event);
    let isThere = false;
    for (let i = 0; i < list.length; i++) if (list[i] === listener) isThere = true;
    if (!isThere) proc.on(event, listener);
  }
  const count = proc.listeners("SIGINT").length;
  if (count !== sigintListeners) {
    sigintListeners = count;
    watchAgain();
  }
  setTick(0);
  stride = 1;
}

// ---- what cells can reach

let stride = 1;
let lastCheck = 0;
let lastPoll = 0;
let sigintListeners = 1;
let handled = 0; // signals that came to the listener and not to the watcher

// Called by loops each time their counter runs out, returns its next value. The stride follows the loop's speed, so that a look at the clock costs little in
// a tight loop and comes soon enough in a slow one.
function check() {
  const time = now();
  const elapsed = time - lastCheck;
  lastCheck = time;
  if (elapsed < 1) stride = stride * 2 > LONGEST_STRIDE ? LONGEST_STRIDE : stride * 2;
  else if (elapsed > 4) stride = (stride >> 2) + 1;
  setTick(stride);
  const owner = currentContext() ?? current;
  if (owner?.interrupted) throw INTERRUPT;
  if (owner?.exited) throw EXIT;
  if (time - lastPoll < POLL_MILLIS) return stride;
  lastPoll = time;
  const commands = current ? readWaiting() : null;
  if (commands !== null) {
    receive(commands);
    if (owner?.interrupted) throw INTERRUPT;
  }
  return stride;
}

function exit(code) {
  const owner = currentContext() ?? current;
  if (owner === null || owner === undefined) throw EXIT;
  if (!owner.exited) {
    owner.exited = true;
    owner.muted = true; // nothing after it shows, also where a `catch` lets the program go on
    const wanted = code ?? proc.exitCode ?? 0;
    owner.exitCode = Number(wanted) | 0;
    if (owner === current) {
      if (owner.outcome?.status === "ok") owner.outcome = null;
      settle(owner, { status: "exited", exit_code: owner.exitCode });
    }
  }
  if (canTerminate && isInside && owner === current) {
    // No `catch` can hold this up, unlike an exception.
    kill(pid, "SIGINT");
    const end = now() + EXIT_GRACE_MILLIS;
    while (now() < end);
  }
  throw EXIT;
}

function noStdin(what) {
  return new Error(`${what}: no stdin is connected to this execution`);
}

function installStdin() {
  try {
    const { rdev } = fs.fstatSync(0);
    const NULL_DEVICE = 0x103;
    if (rdev !== NULL_DEVICE) return true; // the context has a stdin
  } catch {
    // closed: as good as none
  }
  for (const name of ["prompt", "confirm", "alert"]) {
    const failing = () => {
      throw noStdin(`${name}()`);
    };
    defineProperty(failing, "name", { value: name });
    global[name] = failing;
  }
  let stdin;
  const make = () => {
    const stream = new Readable({
      read() {
        this.destroy(noStdin("process.stdin"));
      },
    });
    stream.setRawMode = () => stream;
    stream.ref = stream.unref = () => stream;
    return Object.assign(stream, { fd: 0, isTTY: false });
  };
  defineProperty(proc, "stdin", { get: () => (stdin === undefined || stdin.destroyed ? (stdin = make()) : stdin), configurable: true, enumerable: true });
  return false;
}

/** Shows a value or a MIME bundle. Returns a promise if the value needs time to say how it looks. */
function display(value, options) {
  const owner = currentContext() ?? current ?? last;
  if (owner === null || owner.muted) return;
  const shown = ({ data, truncated }) => {
    const event = { event: "result", id: owner.id, main: false, data, metadata: options?.metadata ?? {} };
    if (truncated) event.truncated = truncated;
    send(event);
  };
  const bundle = displayBundle(value, options);
  return isPromise(bundle) ? then(bundle, shown) : shown(bundle);
}

function install() {
  installRandom();
  installOutput();
  const hasStdin = installStdin();
  const meta = installModules();
  const api = freeze({ __proto__: null, check, enter: () => pending?.(), import: importModule, meta });
  defineProperty(global, "__atoll", { value: api });
  const plain = (name, value) => defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });
  plain("display", display);
  for (const name of ["html", "md", "svg"]) plain(name, helpers[name]);
  for (const name of keys(helpers)) display[name] = helpers[name];
  const notebook = { ...helpers, display };
  proc.exit = exit;
  const checkAtOnce = () => setTick(0);
  const printWarning = (text) => void write(2, text);
  runtime.install({ check, checkAtOnce, exit, noStdin: hasStdin ? null : noStdin, notebook, printWarning });
  runtime.publish();
  guard();
}

// ---- the protocol

function configure({ id, env, unset, cwd, seed }) {
  if (env) for (const name of Object.keys(env)) proc.env[name] = env[name];
  if (unset) for (const name of unset) delete proc.env[name];
  const configured = { event: "configured" };
  try {
    steady(() => reseed(seed));
  } catch (error) {
    configured.unseeded = `Math.random and crypto: ${error?.message ?? error}`;
  }
  if (id) configured.id = id;
  if (cwd) {
    try {
      proc.chdir(cwd);
    } catch (error) {
      configured.error = `cwd: ${cwd}: ${error.message}`;
    }
  }
  send(configured);
}

function perform(command) {
  try {
    obey(command);
  } catch (error) {
    if (current) fail(current, error);
    else throw error;
  }
}

function obey(command) {
  switch (command.op) {
    case "execute":
      if (current) queue.push(command);
      else execute(command);
      return;
    case "configure":
      return configure(command);
    case "interrupt":
      if (current && current.id === command.id && !current.outcome) interrupt(current);
      return;
    case "shutdown":
      reallyExit(0);
  }
}

const NEWLINE = 10;
const decoder = new TextDecoder();
const decode = decoder.decode.bind(decoder);
let parts = []; // of an unfinished line

function receive(bytes) {
  if (bytes.byteLength === 0) reallyExit(0);
  let from = 0;
  for (;;) {
    const end = bytes.indexOf(NEWLINE, from);
    if (end < 0) break;
    let line = bytes.subarray(from, end);
    if (parts.length) {
      line = Buffer.concat([...parts, line]);
      parts = [];
    }
    from = end + 1;
    if (line.byteLength) perform(parse(decode(line)));
  }
  if (from < bytes.byteLength) parts.push(bytes.slice(from));
}

// The first cell shall not pay for what is compiled or loaded on first use.
function warm() {
  warmOutput();
  for (const code of ["const {a, b} = await c as any; for (const x of y) { f<T>(x) }", "class A { constructor(private x: number) {} }\nx += 1; print(x)"]) rewrite(code);
  valueBundle({ a: 1 });
  try {
    call(run, compile("null.x", "warm"));
  } catch (error) {
    describe(error);
  }
  pending = drain;
  call(run, enterScript, enterOptions);
  pending = null;
}

install();
runtime.keepSigintWatched();
warm();
send({ event: "ready", language: "typescript", runtime: runtime.name, version: runtime.version, pid });
runtime.serve(receive);

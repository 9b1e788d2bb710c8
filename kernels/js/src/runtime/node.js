// What the kernel needs of Node, 20 and later.
//
// Node can't move descriptors, and closes 3, 4 and 5 in its children by itself. So they stay, and what would close or write to them by
// accident is refused.

import fs from "node:fs";
import { Console } from "node:console";
import crypto from "node:crypto";
import module, { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import { Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

export { transpile } from "./transpile.js";

export const name = "node";
export const version = process.versions.node;
export const commands = 3;
export const events = 4;
export const acknowledgements = 5;

const { readSync, writeSync } = fs;
const OWN = new Set([commands, events, acknowledgements]);

export const read = (fd, bytes) => readSync(fd, bytes);
export const writeFrom = (fd, bytes, at) => writeSync(fd, bytes, at, bytes.byteLength - at);
export const collect = () => {}; // V8 collects by itself what a large cell leaves

// Does not block once the socket of `serve` has taken it.
export function readWaiting() {
  const buffer = new Uint8Array(65536);
  try {
    return buffer.subarray(0, readSync(commands, buffer));
  } catch {
    return null; // EAGAIN
  }
}

export function serve(receive) {
  const socket = new net.Socket({ fd: commands, readable: true, writable: false });
  socket.on("data", (bytes) => {
    receive(bytes);
    mend();
  });
  const leave = () => receive(new Uint8Array(0));
  socket.on("end", leave);
  socket.on("error", leave);
}

// ---- interrupts

// The watcher of SIGINT is kept running, so that there is no moment in which the signal would end the process, and a vm call need not start a
// thread. It is in the runtime's own binding only; where that is gone, a listener stands in between the calls.
const watchdog = binding("contextify", "startSigintWatchdog");
const asyncWrap = binding("async_wrap", "clearAsyncIdStack");

function binding(module, needed) {
  const before = process.noDeprecation;
  process.noDeprecation = true;
  try {
    const found = process.binding(module);
    return typeof found[needed] === "function" ? found : null;
  } catch {
    return null;
  } finally {
    process.noDeprecation = before;
  }
}

let seen = 0;

export const canTerminate = true;
// The promise jobs that a cell leaves run outside of the vm call: ended in the middle of one, Node's own books would no longer agree.
export const drain = () => {};

// A program that is ended by a signal leaves no asynchronous scope that it has entered. Node's book of them must be cleared before the
// callback returns in which it ran, or Node aborts: by the binding, or, where that is gone, by what Node does after an exception.
const TORN = Object.freeze({ name: "Torn", message: "a program was ended by a signal" });
let isTorn = false;

/** Requires: a vm call was ended by a signal. */
export function afterTermination() {
  if (asyncWrap !== null) asyncWrap.clearAsyncIdStack();
  else isTorn = true;
}

/** Requires: nothing is left to do in this callback. */
function mend() {
  if (!isTorn) return;
  isTorn = false;
  if (!process.hasUncaughtExceptionCaptureCallback()) process.setUncaughtExceptionCaptureCallback(() => process.setUncaughtExceptionCaptureCallback(null));
  throw TORN;
}

const { setImmediate } = globalThis;

/** Calls `work` in a later turn of the event loop. */
export const later = (work, argument) =>
  setImmediate(() => {
    work(argument);
    mend();
  });

/** Calls `work` where a program may be ended by a signal. */
export const atTop = later;

export function keepSigintWatched() {
  if (watchdog === null) return;
  // A program's own listener would take the signal away from the watcher, and its end would make the signal deadly.
  for (const [event, own] of [["newListener", "startListeningIfSignal"], ["removeListener", "stopListeningIfSignal"]]) {
    for (const listener of process.listeners(event)) {
      if (listener.name !== own) continue;
      process.removeListener(event, listener);
      process.on(event, (type, ...rest) => {
        if (type !== "SIGINT") listener.call(process, type, ...rest);
      });
    }
  }
  watchdog.startSigintWatchdog();
}

export function watchAgain() {}

export function signalsSeen() {
  if (watchdog === null) return 0;
  watchdog.startSigintWatchdog();
  if (watchdog.stopSigintWatchdog()) seen++;
  return seen;
}

export function listen({ onSigint, onException, onRejection }) {
  const listeners = [
    ["uncaughtException", onException],
    ["unhandledRejection", onRejection],
  ];
  if (watchdog === null) listeners.push(["SIGINT", onSigint]);
  return listeners;
}

// ---- modules

export const nativeSchemes = /^(?:node|data|blob):/;
const TYPED = /\.(?:[mc]?ts|tsx|jsx)$/;
const importers = new Map();
const loader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;

function importerOf(folder) {
  let importer = importers.get(folder);
  if (importer) return importer;
  if (loader === undefined) {
    // Node before 20.12 and 21.7 knows no such script; `require`'s way of finding is the next best.
    const { resolve } = createRequire(path.join(folder, "cell.ts"));
    importer = (specifier, options) => {
      const target = nativeSchemes.test(specifier) || specifier.startsWith("file:") ? specifier : pathToFileURL(resolve(specifier)).href;
      return options === undefined ? import(target) : import(target, options);
    };
  } else {
    const code = "(specifier, options) => options === undefined ? import(specifier) : import(specifier, options)";
    importer = new vm.Script(code, { filename: path.join(folder, "cell.ts"), importModuleDynamically: loader }).runInThisContext();
  }
  importers.set(folder, importer);
  return importer;
}

export async function importFrom(specifier, folder, options) {
  prepareRequire(specifier);
  // Not by a script's importer: that of Node 20 knows no hooks.
  if (specifier.startsWith("file:")) return options === undefined ? import(specifier) : import(specifier, options);
  return importerOf(folder)(specifier, options);
}

export const importFile = (file) => importFrom(pathToFileURL(file).href);

export const again = (specifier, folder, resolve) => resolve(specifier, folder);
export const resolveFrom = (specifier, folder) => createRequire(path.join(folder, "cell.ts")).resolve(specifier);

let isTyped = false;

/** Teaches Node to load TypeScript, the first time a file of it is wanted. */
export function prepareRequire(file) {
  if (isTyped || !TYPED.test(file)) return;
  isTyped = true;
  const hooks = path.join(path.dirname(process.argv[1]), "..", "js", "hooks.cjs");
  const kernelRequire = createRequire(process.argv[1]);
  kernelRequire(hooks).installRequire(module);
  if (typeof module.registerHooks === "function") {
    const { resolve, load } = kernelRequire(hooks);
    module.registerHooks({ resolve, load });
  } else if (typeof module.register === "function") {
    // The thread of the hooks wants an ES module.
    const text = `import { createRequire } from "node:module"; export const { resolve, load } = createRequire(${JSON.stringify(hooks)})(${JSON.stringify(hooks)});`;
    module.register(`data:text/javascript,${encodeURIComponent(text)}`);
  }
}

// ---- output

export function table(value, columns) {
  let text = "";
  const stdout = new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      text += chunk;
      done();
    },
  });
  new Console({ stdout, colorMode: false }).table(value, columns);
  return text;
}

export function installWriters() {
  const refused = (call) => Object.assign(new Error(`EBADF: bad file descriptor, ${call}`), { errno: -9, code: "EBADF", syscall: call });
  for (const call of ["close", "write", "read", "writev", "readv", "ftruncate", "fstat", "fsync"]) {
    const direct = fs[`${call}Sync`];
    fs[`${call}Sync`] = function (fd, ...rest) {
      if (OWN.has(fd)) throw refused(call);
      return direct.call(fs, fd, ...rest);
    };
    const later = fs[call];
    fs[call] = function (fd, ...rest) {
      if (!OWN.has(fd)) return later.call(fs, fd, ...rest);
      const done = rest.pop();
      process.nextTick(done, refused(call));
    };
    Object.defineProperty(fs[`${call}Sync`], "name", { value: `${call}Sync` });
    Object.defineProperty(fs[call], "name", { value: call });
  }
}

/** Requires: all functions of node:fs that shall be replaced, are. */
export const publish = () => module.syncBuiltinESMExports();

// ---- what cells can reach

export function install({ exit, printWarning }) {
  process.reallyExit = exit;
  // Node writes warnings past process.stderr; and that a part of it is experimental is no news for a cell.
  process.removeAllListeners("warning");
  process.on("warning", (warning) => {
    if (warning?.name !== "ExperimentalWarning") printWarning(`${warning.name ?? "Warning"}: ${warning.message}\n`);
  });
}

export const reallyExit = (process.reallyExit ?? process.exit).bind(process);

// ---- random numbers

// Node draws on OpenSSL's generators, which nothing in JavaScript can seed. But what a counter-mode generator says next depends on how
// much was asked for in each request before: requests of lengths that the system chooses make its state as unforeseeable as the system.
// There are two of them, one for public numbers and one for keys. Kept ahead: 128 UUIDs and 1,024 numbers for randomInt.
const { randomFillSync, randomUUID, randomInt, generateKeyPairSync, createECDH, createHash, sign } = crypto;
const BLOCK = 16;
const REQUESTS = 48; // of one of 256 lengths each: 384 bits
const KEYS = 96; // of one of two lengths each, 32 bytes for a key and 64 for a signature: 96 bits
const UUIDS_AHEAD = 128;
const NUMBERS_AHEAD = 1024;
const room = Buffer.alloc(256 * BLOCK);
const signed = Buffer.alloc(1);
let exchange;
let signer;

const { openSync, closeSync } = fs;

// The system's choice and the agent's, either of which is enough.
function choices(hex) {
  const bytes = new Uint8Array(REQUESTS + KEYS / 8);
  const told = typeof hex === "string" ? createHash("sha512").update(hex).digest() : null;
  try {
    const fd = openSync("/dev/urandom", "r");
    try {
      for (let at = 0; at < bytes.length; ) at += readSync(fd, bytes, at, bytes.length - at);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (told === null) throw error;
  }
  if (told !== null) for (let i = 0; i < bytes.length; i++) bytes[i] ^= told[i];
  return bytes;
}

export function renewCrypto(hex) {
  const lengths = choices(hex);
  for (let i = 0; i < REQUESTS; i++) randomFillSync(room, 0, (lengths[i] + 1) * BLOCK);
  exchange ??= createECDH("prime256v1");
  signer ??= generateKeyPairSync("ec", { namedCurve: "prime256v1" }).privateKey;
  for (let i = 0; i < KEYS; i++) {
    if ((lengths[REQUESTS + (i >> 3)] >> (i & 7)) & 1) exchange.generateKeys();
    else sign("sha256", signed, signer);
  }
  for (let i = 0; i <= UUIDS_AHEAD; i++) randomUUID();
  for (let i = 0; i <= NUMBERS_AHEAD; i++) randomInt(256);
}

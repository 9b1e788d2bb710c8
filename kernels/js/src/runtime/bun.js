// What the kernel needs of Bun.

import fs from "node:fs";
import { dlopen } from "bun:ffi";
import { drainMicrotasks } from "bun:jsc";
import { randomFillSync } from "node:crypto";
import path from "node:path";
import { libraries, moveDescriptors } from "./descriptors.js";
import { Fault } from "./fault.js";
import { keepSigintWatched, signalsSeen, watchAgain } from "./bun-sigint.js";

export { drainMicrotasks as drain, keepSigintWatched, signalsSeen, watchAgain };

export const name = "bun";
export const version = Bun.version;
export const canTerminate = true; // a vm call, by SIGINT
const { gc } = Bun;
export const collect = () => gc(false);
export const afterTermination = () => {};
export const publish = () => {};
export const later = setImmediate;
export const atTop = (work) => work();

const { readSync, writeSync } = fs;
const POLLIN = 1;
const pollSet = new Int32Array(2);
const libc = openLibc();

function openLibc() {
  const symbols = {
    dup3: { args: ["i32", "i32", "i32"], returns: "i32" },
    close: { args: ["i32"], returns: "i32" },
    fcntl: { args: ["i32", "i32", "i32"], returns: "i32" },
    poll: { args: ["ptr", "u64", "i32"], returns: "i32" },
  };
  for (const library of libraries) {
    try {
      return dlopen(library, symbols).symbols;
    } catch {
      // the other C library, then
    }
  }
  return null; // 3, 4 and 5 stay where they are: Bun hands no descriptor above 2 to its children anyway
}

export const { commands, events, acknowledgements } = libc ? moveDescriptors(libc) : { commands: 3, events: 4, acknowledgements: 5 };

/** Reads at most `bytes.length`, waiting for the first. Throws what has a `code`. */
export const read = (fd, bytes) => readSync(fd, bytes);

/** Writes from `at`; returns how much was written. Throws what has a `code`. */
export const writeFrom = (fd, bytes, at) => writeSync(fd, bytes, at, bytes.byteLength - at);

/** What waits among the commands, without the event loop: bytes (none at the agent's end), null where nothing waits. */
export function readWaiting() {
  if (!libc) return null;
  pollSet[0] = commands;
  pollSet[1] = POLLIN;
  if (libc.poll(pollSet, 1, 0) <= 0) return null;
  const buffer = new Uint8Array(65536);
  return buffer.subarray(0, readSync(commands, buffer));
}

/** Gives all commands to `receive`, in the event loop's turns; no bytes at the agent's end. */
export async function serve(receive) {
  const reader = Bun.file(commands).stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    receive(done ? new Uint8Array(0) : value);
  }
}

// ---- errors that nobody handles

export function listen({ onSigint, onException, onRejection }) {
  return [
    ["SIGINT", onSigint],
    ["uncaughtException", onException],
    ["unhandledRejection", onRejection],
  ];
}

// ---- language

const transpilers = {};

/** Prints TypeScript (`ts`) or TypeScript with JSX (`tsx`) as plain JavaScript. Throws a Fault. */
export function transpile(code, loader) {
  transpilers[loader] ??= new Bun.Transpiler({
    loader,
    target: "browser",
    deadCodeElimination: false,
    trimUnusedImports: false,
    tsconfig: { compilerOptions: { jsx: "react", experimentalDecorators: false } },
  });
  try {
    return transpilers[loader].transformSync(code);
  } catch (error) {
    const first = error.errors?.[0] ?? error;
    throw new Fault(String(first.message), first.position?.line ?? 0, first.position?.column ?? 0);
  }
}

// ---- modules

const { resolveSync } = Bun;

export const nativeSchemes = /^(?:node|bun|data|blob|https?):/;
export const resolveFrom = (specifier, folder) => again(specifier, folder, (name, from) => resolveSync(name, from));

/** Calls `resolve`; where it fails, for what is on disk by now: Bun remembers that a folder was missing, and then finds no scoped packages in it. */
export function again(specifier, folder, resolve) {
  try {
    return resolve(specifier, folder);
  } catch (error) {
    const [, name, rest] = /^((?:@[^/]+\/)?[^./:][^/:]*)(\/.*)?$/.exec(specifier) ?? [];
    if (name === undefined) throw error;
    for (let at = folder; ; at = path.dirname(at)) {
      const home = path.join(at, "node_modules", name);
      if (fs.existsSync(path.join(home, "package.json"))) {
        for (const own of [specifier, `.${rest ?? ""}`]) {
          try {
            return resolve(own, home);
          } catch {
            // with `exports` a package knows its own name, without them its files
          }
        }
      }
      if (at === path.dirname(at)) throw error;
    }
  }
}

/** Imports what `resolve` of modules.js has found. */
export const importFrom = (target, folder, options) => (options === undefined ? import(target) : import(target, options));

export const importFile = (file) => import(file);
export const prepareRequire = () => {};

// ---- output

const { table: inspectTable } = Bun.inspect;
export const table = (value, columns) => inspectTable(value, columns, { colors: false });

/** Replaces the ways to the two streams that only Bun has. */
export function installWriters(write) {
  const bunWrite = Bun.write;
  const { stdout, stderr } = Bun;
  Bun.write = async function (target, data, options) {
    const fd = target === stdout || target === 1 ? 1 : target === stderr || target === 2 ? 2 : 0;
    if (fd === 0) return bunWrite.call(Bun, target, data, options);
    const bytes = typeof data === "string" ? Buffer.from(data) : new Uint8Array(await new Response(data).arrayBuffer());
    write(fd, bytes);
    return bytes.byteLength;
  };
}

// ---- what cells can reach

const SLICE_MILLIS = 20;

export function install({ check, checkAtOnce, exit, noStdin }) {
  // In slices, so that an interrupt ends it.
  const { sleepSync } = Bun;
  const { min } = Math;
  const clock = performance;
  const now = performance.now.bind(clock);
  Bun.sleepSync = (milliseconds) => {
    const end = now() + milliseconds;
    if (typeof milliseconds !== "number" || milliseconds <= SLICE_MILLIS) {
      checkAtOnce();
      return sleepSync(milliseconds);
    }
    for (let left = milliseconds; left > 0; left = end - now()) {
      sleepSync(min(SLICE_MILLIS, left));
      check();
    }
  };
  if (noStdin !== null) {
    console[Symbol.asyncIterator] = () => {
      throw noStdin("reading lines from console");
    };
  }
  process.reallyExit = exit;
}

export const reallyExit = (process.reallyExit ?? process.exit).bind(process);

// ---- random numbers

// * crypto.randomUUID and crypto.getRandomValues are served from 2 KiB that Bun 1.4 draws ahead: they are used up.
// * These, and node:crypto, draw on BoringSSL's generator. It mixes in what RDRAND says each time, on Intel's processors; elsewhere it
//   asks the system once in 4096 draws, which are therefore made here. Of each thread it has another: those of workers stay as they are.
const { getRandomValues } = crypto;
const system = crypto;
const DRAWN_AHEAD = 2048;
const DRAWS_UNTIL_RESEEDED = 4096 + 1;
const piece = new Uint8Array(128);
let mixesEachTime;

function mixes() {
  try {
    const text = fs.readFileSync("/proc/cpuinfo", "latin1");
    return text.includes("GenuineIntel") && /^flags\s*:.*\brdrand\b/m.test(text);
  } catch {
    return false;
  }
}

/** Makes what `crypto` will say differ from what other copies of this process say. */
export function renewCrypto() {
  mixesEachTime ??= mixes();
  if (!mixesEachTime) for (let i = 0; i < DRAWS_UNTIL_RESEEDED; i++) randomFillSync(piece);
  for (let drawn = 0; drawn < 2 * DRAWN_AHEAD; drawn += piece.length) getRandomValues.call(system, piece);
}

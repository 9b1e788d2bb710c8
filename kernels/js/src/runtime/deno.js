// What the kernel needs of Deno 2.
//
// Deno has no vm call that a signal can end: here only the checks in loops and functions stop what runs.

import "./deno-globals.js";
import { Console } from "node:console";
import { createRequire } from "node:module";
import { Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import vm from "node:vm";
import { libraries, moveDescriptors } from "./descriptors.js";

export { transpile } from "./transpile.js";

export const name = "deno";
export const version = Deno.version.deno;
export const canTerminate = false;
export const collect = () => {}; // V8 collects by itself what a large cell leaves
export const drain = () => {};
export const afterTermination = () => {};
export const keepSigintWatched = () => {};
export const watchAgain = () => {};
export const signalsSeen = () => 0;
export const prepareRequire = () => {};

// ---- descriptors: by the C library, as node:fs of older versions numbers files in its own way

const POLLIN = 1;
const POLLOUT = 4;
const EINTR = 4;
const EAGAIN = 11;

function openLibc() {
  const symbols = {
    dup3: { parameters: ["i32", "i32", "i32"], result: "i32" },
    close: { parameters: ["i32"], result: "i32" },
    fcntl: { parameters: ["i32", "i32", "i32"], result: "i32" },
    poll: { parameters: ["buffer", "u64", "i32"], result: "i32" },
    waitUntilReadable: { name: "poll", parameters: ["buffer", "u64", "i32"], result: "i32", nonblocking: true },
    read: { parameters: ["i32", "buffer", "usize"], result: "isize" },
    write: { parameters: ["i32", "buffer", "usize"], result: "isize" },
    __errno_location: { parameters: [], result: "pointer" },
  };
  let problem;
  for (const library of libraries) {
    try {
      return Deno.dlopen(library, symbols).symbols;
    } catch (error) {
      problem ??= error; // the other C library, then
    }
  }
  throw problem;
}

const libc = openLibc();
const errno = new Deno.UnsafePointerView(libc.__errno_location());
const pollSet = new Int32Array(2);
const pollBytes = new Uint8Array(pollSet.buffer);

function failure(call) {
  const number = errno.getInt32();
  const code = number === EAGAIN ? "EAGAIN" : number === EINTR ? "EINTR" : `errno ${number}`;
  return Object.assign(new Error(`${call}: ${code}`), { code });
}

export const { commands, events, acknowledgements } = moveDescriptors(libc);

export function read(fd, bytes) {
  const length = Number(libc.read(fd, bytes, bytes.byteLength));
  if (length < 0) throw failure("read");
  return length;
}

export function writeFrom(fd, bytes, at) {
  const rest = at === 0 ? bytes : bytes.subarray(at);
  const length = Number(libc.write(fd, rest, rest.byteLength));
  if (length >= 0) return length;
  const problem = failure("write");
  if (problem.code !== "EAGAIN") throw problem;
  pollSet[0] = fd;
  pollSet[1] = POLLOUT;
  libc.poll(pollBytes, 1, -1);
  return 0;
}

export function readWaiting() {
  pollSet[0] = commands;
  pollSet[1] = POLLIN;
  if (libc.poll(pollBytes, 1, 0) <= 0) return null;
  const buffer = new Uint8Array(65536);
  return buffer.subarray(0, read(commands, buffer));
}

// Only the waiting is another thread's: what a loop's check reads meanwhile, it must not have taken.
export async function serve(receive) {
  const waited = new Int32Array([commands, POLLIN]);
  const bytes = new Uint8Array(waited.buffer);
  for (;;) {
    await libc.waitUntilReadable(bytes, 1, -1);
    const found = readWaiting();
    if (found !== null) receive(found);
  }
}

// ---- errors that nobody handles

export function listen({ onException, onRejection }) {
  if (listening === undefined) {
    listening = {
      error: (event) => {
        event.preventDefault();
        onException(event.error);
      },
      unhandledrejection: (event) => {
        event.preventDefault();
        onRejection(event.reason);
      },
    };
    // It says nothing that the command `interrupt` does not say, and a late one would hit the next cell.
    Deno.addSignalListener("SIGINT", () => {});
  }
  // Adding a listener that is there already changes nothing.
  for (const type of ["error", "unhandledrejection"]) addEventListener(type, listening[type]);
  return [];
}
let listening;
const { addEventListener } = globalThis;

// ---- modules

export const nativeSchemes = /^(?:node|data|blob|https?|jsr):/;
const importers = new Map();

function importerOf(folder) {
  let importer = importers.get(folder);
  if (importer) return importer;
  const code = "(specifier, options) => options === undefined ? import(specifier) : import(specifier, options)";
  importer = new vm.Script(code, { filename: pathToFileURL(`${folder}/cell.ts`).href, importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER }).runInThisContext();
  importers.set(folder, importer);
  return importer;
}

export const importFrom = async (specifier, folder, options) => importerOf(folder)(specifier, options);

// `import` would take any file outside of node_modules for an ES module; `require` looks.
export async function importFile(file) {
  const found = createRequire(file)(file);
  return found !== null && typeof found === "object" && found[Symbol.toStringTag] === "Module" ? found : { ...found, default: found };
}

export const again = (specifier, folder, resolve) => resolve(specifier, folder);
export const resolveFrom = (specifier, folder) => createRequire(`${folder}/cell.ts`).resolve(specifier);

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

export function installWriters(write) {
  for (const [stream, fd] of [[Deno.stdout, 1], [Deno.stderr, 2]]) {
    const take = (bytes) => {
      write(fd, bytes);
      return bytes.byteLength;
    };
    const own = {
      writeSync: (bytes) => take(bytes),
      write: async (bytes) => take(bytes),
      isTerminal: () => false,
      close() {}, // would end the stream of every later cell
    };
    for (const [key, value] of Object.entries(own)) Object.defineProperty(stream, key, { value, writable: true, configurable: true });
    let writable;
    const get = () => (writable === undefined || writable.locked ? (writable = new WritableStream({ write: (chunk) => void take(chunk) })) : writable);
    Object.defineProperty(stream, "writable", { get, configurable: true });
  }
}

// Modules name the functions of node:fs as they were at first; cells get those of the object (kernel.js).
export const publish = () => {};
export const later = setImmediate;
export const atTop = (work) => work();

// ---- what cells can reach

export function install({ exit, notebook }) {
  process.reallyExit = exit;
  Object.defineProperty(Deno, "exit", { value: (code) => exit(code ?? Deno.exitCode), writable: true, configurable: true, enumerable: true });
  Deno.jupyter = notebook;
}

const leave = Deno.exit.bind(Deno);
export const reallyExit = (code) => leave(code);

// ---- random numbers

// Deno's generator asks the system again after each 64 KiB; of each thread it has another. UUIDs are drawn ahead.
const { getRandomValues, randomUUID } = crypto;
const UUIDS_AHEAD = 2048;
const system = crypto;
const piece = new Uint8Array(65536);

export function renewCrypto() {
  for (let i = 0; i < 3; i++) getRandomValues.call(system, piece);
  for (let i = 0; i <= UUIDS_AHEAD; i++) randomUUID.call(system);
}

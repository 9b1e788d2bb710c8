// stdout, stderr and console of the user's program.
//
// Each write goes straight to the pipe. A change between the two streams waits for the agent (`flush`), so their order is kept. What a
// callback of an ended cell prints is told apart by its asynchronous context and sent as a `late` event.

import fs from "node:fs";
import { Writable } from "node:stream";
import { formatWithOptions, inspect } from "node:util";
import { installWriters, table } from "#runtime";
import { flush, send, writeAll } from "./channel.js";
import { cleanStack, safeInspect } from "./errors.js";

const LATE_CHUNK = 1 << 20;
const toBytes = Buffer.from;
const decoder = new TextDecoder();
const { now } = performance;
const clock = performance;

let lastStream = 0;
let route = () => ({ cell: null, late: false });

/** `find` says which cell the running code belongs to, and whether that cell has ended. */
export function setRoute(find) {
  route = find;
}

/** A cell begins: the pipes are empty. */
export function resetStreams() {
  lastStream = 0;
}

/** Writes a string or bytes to stream 1 or 2. */
export function write(fd, data) {
  const { cell, late } = route();
  if (cell === null || cell.muted) return true;
  if (late) return writeLate(cell, fd, data);
  if (lastStream !== fd) {
    if (lastStream !== 0) flush();
    lastStream = fd;
  }
  return writeAll(fd, data);
}

export function writeLate(cell, fd, data) {
  const text = typeof data === "string" ? data : decoder.decode(data);
  const stream = fd === 1 ? "stdout" : "stderr";
  for (let at = 0; at < text.length; at += LATE_CHUNK) send({ event: "late", id: cell.id, stream, text: text.slice(at, at + LATE_CHUNK) });
  return true;
}

function bytesOf(chunk, encoding) {
  if (typeof chunk === "string") return encoding && encoding !== "utf8" && encoding !== "utf-8" && encoding !== "buffer" ? toBytes(chunk, encoding) : chunk;
  if (ArrayBuffer.isView(chunk)) return new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  throw new TypeError(`The "chunk" argument must be of type string or an instance of Buffer, TypedArray, or DataView. Received ${safeInspect(chunk)}`);
}

function makeStream(fd) {
  const stream = new Writable({
    decodeStrings: false,
    write(chunk, encoding, done) {
      write(fd, bytesOf(chunk, encoding));
      done();
    },
  });
  // Synchronous, unlike the stream's own write, which would queue behind a pending callback.
  stream.write = (chunk, encoding, done) => {
    if (typeof encoding === "function") [encoding, done] = [undefined, encoding];
    write(fd, bytesOf(chunk, encoding));
    if (typeof done === "function") process.nextTick(done);
    return true;
  };
  // Ending it would end the stream of every later cell.
  stream.end = (chunk, encoding, done) => {
    if (typeof chunk === "function") [chunk, done] = [undefined, chunk];
    else if (typeof encoding === "function") done = encoding;
    if (chunk !== undefined && chunk !== null) write(fd, bytesOf(chunk, typeof encoding === "string" ? encoding : undefined));
    if (typeof done === "function") process.nextTick(done);
    process.nextTick(() => stream.emit("finish"));
    return stream;
  };
  stream.destroy = () => stream;
  return Object.assign(stream, { fd, isTTY: false, _type: "pipe", getColorDepth: () => 1, hasColors: () => false });
}

function format(args) {
  if (args.length === 1 && typeof args[0] === "string") return args[0];
  try {
    const text = formatWithOptions({ colors: false }, ...args);
    for (const item of args) if (typeof item === "object" || typeof item === "string") return cleanStack(text);
    return text;
  } catch {
    return args.map((item) => (typeof item === "string" ? item : safeInspect(item))).join(" ");
  }
}

let indentation = "";
const counts = new Map();
const timers = new Map();

function line(fd, args) {
  let text = args.length === 0 ? "" : format(args);
  if (indentation !== "") text = indentation + text.replaceAll("\n", "\n" + indentation);
  write(fd, text + "\n");
}

function elapsed(label) {
  const start = timers.get(label);
  if (start === undefined) {
    line(2, [`Warning: No such label '${label}' for console.time()`]);
    return null;
  }
  const milliseconds = now.call(clock) - start;
  return milliseconds >= 1000 ? `${(milliseconds / 1000).toFixed(3)}s` : `${milliseconds.toFixed(3)}ms`;
}

const methods = {
  log: (...args) => line(1, args),
  info: (...args) => line(1, args),
  debug: (...args) => line(1, args),
  error: (...args) => line(2, args),
  warn: (...args) => line(2, args),
  trace(...args) {
    const at = new Error().stack.split("\n").slice(2).join("\n");
    line(2, [`Trace${args.length ? `: ${format(args)}` : ""}${cleanStack("\n" + at).trimEnd()}`]);
  },
  assert(condition, ...args) {
    if (condition) return;
    if (typeof args[0] === "string") args[0] = `Assertion failed: ${args[0]}`;
    else args.unshift("Assertion failed");
    line(2, args);
  },
  dir: (value, options) => line(1, [safeInspect(value, { customInspect: false, ...options })]),
  dirxml: (...args) => line(1, args),
  table(value, columns) {
    if (value === null || typeof value !== "object") return line(1, [value]);
    line(1, [table(value, columns).trimEnd()]);
  },
  group(...args) {
    if (args.length) line(1, args);
    indentation += "  ";
  },
  groupEnd() {
    indentation = indentation.slice(2);
  },
  count(label = "default") {
    const value = (counts.get(`${label}`) ?? 0) + 1;
    counts.set(`${label}`, value);
    line(1, [`${label}: ${value}`]);
  },
  countReset(label = "default") {
    counts.delete(`${label}`);
  },
  time(label = "default") {
    if (timers.has(`${label}`)) return line(2, [`Warning: Label '${label}' already exists for console.time()`]);
    timers.set(`${label}`, now.call(clock));
  },
  timeEnd(label = "default") {
    const text = elapsed(`${label}`);
    timers.delete(`${label}`);
    if (text) line(1, [`${label}: ${text}`]);
  },
  timeLog(label = "default", ...args) {
    const text = elapsed(`${label}`);
    if (text) line(1, [`${label}: ${text}`, ...args]);
  },
  clear() {},
  write(...parts) {
    let length = 0;
    for (const part of parts) {
      const bytes = part instanceof ArrayBuffer ? new Uint8Array(part) : bytesOf(part);
      length += typeof bytes === "string" ? Buffer.byteLength(bytes) : bytes.byteLength;
      write(1, bytes);
    }
    return length;
  },
  profile() {},
  profileEnd() {},
  timeStamp() {},
};
methods.groupCollapsed = methods.group;

/** Replaces console, process.stdout and every other way to the two streams that goes through this process. */
export function installOutput() {
  for (const [name, method] of Object.entries(methods)) {
    Object.defineProperty(method, "name", { value: name });
    console[name] = method;
  }
  globalThis.print = console.log;
  let out;
  let err;
  Object.defineProperty(process, "stdout", { get: () => (out ??= makeStream(1)), configurable: true, enumerable: true });
  Object.defineProperty(process, "stderr", { get: () => (err ??= makeStream(2)), configurable: true, enumerable: true });

  const { writeSync, writeFileSync, appendFileSync } = fs;
  const fsWrite = fs.write;
  const slice = (data, offset, length) => {
    if (typeof data === "string") return toBytes(data, typeof length === "string" ? length : "utf8");
    const view = bytesOf(data);
    if (offset !== null && typeof offset === "object") ({ offset, length } = offset);
    const from = offset ?? 0;
    return view.subarray(from, from + (length ?? view.byteLength - from));
  };
  fs.writeSync = function (fd, data, offset, length, ...rest) {
    if (fd !== 1 && fd !== 2) return writeSync.call(fs, fd, data, offset, length, ...rest);
    const bytes = slice(data, offset, length);
    write(fd, bytes);
    return bytes.byteLength;
  };
  fs.write = function (fd, data, ...rest) {
    if (fd !== 1 && fd !== 2) return fsWrite.call(fs, fd, data, ...rest);
    const done = rest.pop();
    const bytes = slice(data, rest[0], rest[1]);
    write(fd, bytes);
    process.nextTick(done, null, bytes.byteLength, data);
  };
  for (const [name, original] of [["writeFileSync", writeFileSync], ["appendFileSync", appendFileSync]]) {
    fs[name] = function (file, data, options) {
      const fd = file === "/dev/stdout" ? 1 : file === "/dev/stderr" ? 2 : file;
      if (fd !== 1 && fd !== 2) return original.call(fs, file, data, options);
      write(fd, bytesOf(data, typeof options === "string" ? options : options?.encoding));
    };
  }
  installWriters(write);
}

/** Loads what the first print would load. */
export function warmOutput() {
  format([{ a: [1, "x"] }, 1, "%s"]);
  inspect(new Error("x"));
}

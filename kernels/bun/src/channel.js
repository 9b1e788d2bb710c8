// The agent's three file descriptors: commands in, events out, flush acknowledgements in. Everything is written with blocking
// writes, so that output reaches the pipe at once, also in a busy loop, and memory stays flat however much is printed.

import fs from "node:fs";
import { dlopen } from "bun:ffi";

const { readSync, writeSync } = fs;
const { stringify } = JSON;
const toBytes = Buffer.from;
const wait = Atomics.wait;
const pause = new Int32Array(new SharedArrayBuffer(4));
const replace = Function.prototype.call.bind(String.prototype.replace);
const includes = Function.prototype.call.bind(String.prototype.includes);

const O_NONBLOCK = 0o4000;
const O_CLOEXEC = 0o2000000;
const F_SETFL = 4;
const POLLIN = 1;

const libc = openLibc();
const pollSet = new Int32Array(2);

export const commands = libc ? move(3, 203) : 3;
const events = libc ? move(4, 204) : 4;
const acknowledgements = libc ? move(5, 205) : 5;
if (libc) {
  libc.fcntl(commands, F_SETFL, O_NONBLOCK);
  occupy();
}

function openLibc() {
  const symbols = {
    dup3: { args: ["i32", "i32", "i32"], returns: "i32" },
    close: { args: ["i32"], returns: "i32" },
    fcntl: { args: ["i32", "i32", "i32"], returns: "i32" },
    poll: { args: ["ptr", "u64", "i32"], returns: "i32" },
  };
  const musl = `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  for (const name of ["libc.so.6", musl]) {
    try {
      return dlopen(name, symbols).symbols;
    } catch {
      // the other C library, then
    }
  }
  return null; // 3, 4 and 5 stay where they are: Bun hands no descriptor above 2 to its children anyway
}

// Out of the way of programs that close or write to low descriptors, and closed in every child.
function move(from, to) {
  if (libc.dup3(from, to, O_CLOEXEC) !== to) return from;
  libc.close(from);
  return to;
}

// What stood at 3, 4 and 5 would be given to the runtime's own files next, and a program that closes these numbers would hit those.
function occupy() {
  for (;;) {
    const fd = fs.openSync("/dev/null", "r+");
    if (fd > 5) return fs.closeSync(fd);
  }
}

/** True if a command, or the end of the agent, is waiting. */
export function commandWaiting() {
  if (!libc) return false;
  pollSet[0] = commands;
  pollSet[1] = POLLIN;
  return libc.poll(pollSet, 1, 0) > 0;
}

/** Reads what is waiting without the event loop. Requires: commandWaiting(). */
export function readWaiting() {
  const buffer = new Uint8Array(65536);
  const length = readSync(commands, buffer);
  return buffer.subarray(0, length);
}

/** Writes all of `data`, waiting for the reader as long as it takes. Returns false once nobody reads any more. */
export function writeAll(fd, data) {
  const bytes = typeof data === "string" ? toBytes(data, "utf8") : data;
  let at = 0;
  const { byteLength } = bytes;
  while (at < byteLength) {
    try {
      at += writeSync(fd, bytes, at, byteLength - at);
    } catch (error) {
      if (error.code === "EAGAIN") wait(pause, 0, 0, 1);
      else if (error.code !== "EINTR") return false;
    }
  }
  return true;
}

/** JSON without lone surrogates: what is no Unicode becomes U+FFFD. */
export function toJson(value) {
  const text = stringify(value);
  if (!includes(text, "\\ud")) return text;
  return replace(text, /\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (all, lone) => (lone ? "\ufffd" : all));
}

export function send(event) {
  writeAll(events, toJson(event) + "\n");
}

/** Waits until the agent has taken everything in the pipes of stdout and stderr. */
export function flush() {
  send({ event: "flush" });
  const one = new Uint8Array(1);
  for (;;) {
    try {
      readSync(acknowledgements, one);
      return;
    } catch (error) {
      if (error.code === "EAGAIN") wait(pause, 0, 0, 1);
      else if (error.code !== "EINTR") return;
    }
  }
}

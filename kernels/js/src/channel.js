// The agent's three file descriptors: commands in, events out, flush acknowledgements in. Everything is written with blocking
// writes, so that output reaches the pipe at once, also in a busy loop, and memory stays flat however much is printed.

import { acknowledgements, events, read, writeFrom } from "#runtime";

const { stringify } = JSON;
const toBytes = Buffer.from;
const wait = Atomics.wait;
const pause = new Int32Array(new SharedArrayBuffer(4));
const replace = Function.prototype.call.bind(String.prototype.replace);
const includes = Function.prototype.call.bind(String.prototype.includes);

/** Writes all of `data`, waiting for the reader as long as it takes. Returns false once nobody reads any more. */
export function writeAll(fd, data) {
  const bytes = typeof data === "string" ? toBytes(data, "utf8") : data;
  let at = 0;
  const { byteLength } = bytes;
  while (at < byteLength) {
    try {
      at += writeFrom(fd, bytes, at);
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
      read(acknowledgements, one);
      return;
    } catch (error) {
      if (error.code === "EAGAIN") wait(pause, 0, 0, 1);
      else if (error.code !== "EINTR") return;
    }
  }
}

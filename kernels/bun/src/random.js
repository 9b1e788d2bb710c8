// Random numbers for forks: what lives in memory when a snapshot is taken, all forks of it would draw alike.
//
// * Math.random: Bun's own generator cannot be seeded, so this one takes its place (sfc32, public domain design by Chris Doty-Humphrey),
//   seeded from the system at start and again at each `configure`.
// * crypto.randomUUID and crypto.getRandomValues are served from 2 KiB that Bun 1.4 draws ahead: they are used up at each `configure`.
// * These, and node:crypto, draw on BoringSSL's generator. It mixes in what RDRAND says each time, on Intel's processors; elsewhere it
//   asks the system once in 4096 draws, which are therefore made here. Of each thread it has another: those of workers stay as they are.
import { readFileSync } from "node:fs";
import { randomFillSync } from "node:crypto";

const { getRandomValues } = crypto;
const system = crypto;
const DRAWN_AHEAD = 2048;
const DRAWS_UNTIL_RESEEDED = 4096 + 1;
const piece = new Uint8Array(128);
let mixesEachTime;

function mixes() {
  try {
    const text = readFileSync("/proc/cpuinfo", "latin1");
    return text.includes("GenuineIntel") && /^flags\s*:.*\brdrand\b/m.test(text);
  } catch {
    return false;
  }
}

function renewSystem() {
  mixesEachTime ??= mixes();
  if (!mixesEachTime) for (let i = 0; i < DRAWS_UNTIL_RESEEDED; i++) randomFillSync(piece);
  for (let drawn = 0; drawn < 2 * DRAWN_AHEAD; drawn += piece.length) getRandomValues.call(system, piece);
}

let a = 0;
let b = 0;
let c = 0;
let counter = 0;

function next() {
  const t = (((a + b) | 0) + counter) | 0;
  counter = (counter + 1) | 0;
  a = b ^ (b >>> 9);
  b = (c + (c << 3)) | 0;
  c = (((c << 21) | (c >>> 11)) + t) | 0;
  return t >>> 0;
}

/** Seeds from the system, mixed with `hex` where the agent sent one. */
export function reseed(hex) {
  renewSystem();
  seedMath(hex);
}

function seedMath(hex) {
  const words = getRandomValues.call(system, new Uint32Array(4));
  if (typeof hex === "string") {
    for (let i = 0; i + 8 <= hex.length && i < 64; i += 8) words[(i >> 3) & 3] ^= parseInt(hex.slice(i, i + 8), 16);
  }
  [a, b, c, counter] = words;
  for (let i = 0; i < 16; i++) next();
}

export function installRandom() {
  seedMath();
  Object.defineProperty(Math, "random", {
    value: function random() {
      return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
    },
    writable: true,
    enumerable: false,
    configurable: true,
  });
}

// Random numbers for forks: what lives in memory when a snapshot is taken, all forks of it would draw alike.
//
// * Math.random: no runtime's own generator can be seeded, so this one takes its place (sfc32, public domain design by Chris
//   Doty-Humphrey), seeded from the system at start and again at each `configure`.
// * crypto: each runtime's module says what it draws ahead and how its generator is renewed.

import { renewCrypto } from "#runtime";

const { getRandomValues } = crypto;
const system = crypto;

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
  renewCrypto(hex);
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

// Values as MIME bundles.

import fs from "node:fs";
import { types } from "node:util";
import { safeInspect, cleanStack } from "./errors.js";

const TEXT_LIMIT = 1 << 20;
const TYPE_LIMIT = 6 << 20;
const BUNDLE_LIMIT = 12 << 20;
const JSON_NODES = 10_000;
const JSON_DEPTH = 50;
const { stringify } = JSON;
const { getPrototypeOf, getOwnPropertyDescriptors } = Object;
const { isArray } = Array;

/** Cuts `text` to the limit; the second value is the number of bytes left out. */
function shorten(text, limit = TEXT_LIMIT) {
  if (text.length <= limit / 4) return [text, 0];
  const bytes = Buffer.byteLength(text);
  if (bytes <= limit) return [text, 0];
  const kept = new TextDecoder().decode(Buffer.from(text.slice(0, limit)).subarray(0, limit)).replace(/\ufffd$/, "");
  return [kept, bytes - Buffer.byteLength(kept)];
}

// Only plain data, without running any code of the user's: no getters, no toJSON, no class instances.
function isPlain(value, budget, depth) {
  if (value === null || typeof value === "boolean" || typeof value === "string") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || depth > JSON_DEPTH) return false;
  const list = isArray(value);
  const prototype = getPrototypeOf(value);
  if (list ? prototype !== Array.prototype : prototype !== Object.prototype && prototype !== null) return false;
  if (list && value.length > JSON_NODES) return false;
  const properties = getOwnPropertyDescriptors(value);
  let length = 0;
  for (const key of Reflect.ownKeys(properties)) {
    if (list && key === "length") continue;
    const property = properties[key];
    if (typeof key !== "string" || !("value" in property) || !property.enumerable) return false;
    if (--budget.left < 0 || !isPlain(property.value, budget, depth + 1)) return false;
    if (typeof property.value === "string" && (budget.bytes -= property.value.length) < 0) return false;
    length++;
  }
  return !list || length === value.length;
}

/** The bundle of a last expression: `{data, truncated}`. */
export function valueBundle(value) {
  const source = typeof value === "string" && value.length > TEXT_LIMIT ? value.slice(0, TEXT_LIMIT) : value;
  const shown = safeInspect(source, { depth: 4, maxStringLength: TEXT_LIMIT, breakLength: 100 });
  let [text, truncated] = shorten(cleanStack(shown));
  if (source !== value) truncated += Buffer.byteLength(value) - Buffer.byteLength(source);
  const data = { "text/plain": text };
  if (value !== null && typeof value === "object" && !types.isProxy(value)) {
    try {
      if (isPlain(value, { left: JSON_NODES, bytes: TEXT_LIMIT }, 0)) data["application/json"] = value;
    } catch {
      // a proxy that throws has no JSON form
    }
  }
  return { data, truncated };
}

function isBundle(value) {
  if (value === null || typeof value !== "object" || isArray(value)) return false;
  const keys = Object.keys(value);
  return keys.length > 0 && keys.every((key) => /^[a-z]+\/[\w.+-]+$/i.test(key));
}

// ---- values that bring their own form

const DISPLAY = Symbol.for("Jupyter.display");
const INSPECT = Symbol.for("nodejs.util.inspect.custom");
const PNG = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const JPEG = [0xff, 0xd8, 0xff];

function imageType(bytes) {
  const startsWith = (signature) => bytes.byteLength > signature.length && signature.every((byte, index) => bytes[index] === byte);
  return startsWith(PNG) ? "image/png" : startsWith(JPEG) ? "image/jpeg" : null;
}

function method(value, key) {
  const found = value[key];
  return typeof found === "function" ? found : null;
}

// In the order of how much the object itself says: a bundle, a picture, a page; then what the usual libraries' objects have.
function formsOf(value) {
  if (value instanceof Uint8Array) {
    const type = imageType(value);
    return type === null ? null : { [type]: value };
  }
  const whole = method(value, DISPLAY) ?? method(value, "toMimeBundle");
  if (whole !== null) return whole.call(value);
  // Vega-Lite's builders say with `toSpec` what they draw.
  if (method(value, "toSpec") !== null) return { "application/vnd.vegalite.v5+json": value.toSpec() };
  const html = method(value, "toHTML");
  if (html !== null) return { "text/html": html.call(value) };
  const svg = method(value, "toSVG");
  if (svg !== null) return { "image/svg+xml": svg.call(value) };
  if (method(value, "toDataURL") !== null) return { "image/png": String(value.toDataURL()).replace(/^data:image\/png;base64,/, "") };
  if (typeof value.outerHTML === "string") return { [/^\s*<svg\b/i.test(value.outerHTML) ? "image/svg+xml" : "text/html"]: value.outerHTML };
  return null;
}

/** The MIME bundle that `value` makes of itself, or a promise of it; null if it makes none. Runs the program's code, so it may throw. */
export function ownBundle(value) {
  if (value === null || (typeof value !== "object" && typeof value !== "function") || types.isProxy(value)) return null;
  const made = formsOf(value);
  if (made === null) return null;
  if (types.isPromise(made)) return made.then(settled);
  const values = isBundle(made) ? Object.values(made) : [];
  if (!values.some(types.isPromise)) return settled(made);
  return Promise.all(values).then((all) => settled(Object.fromEntries(Object.keys(made).map((key, index) => [key, all[index]]))));
}

function settled(made) {
  return isBundle(made) ? made : null;
}

// As JSON: what the line to the agent will hold of it.
function sizeOf(item) {
  return Buffer.byteLength(stringify(item) ?? "");
}

/** `{data, truncated}` of a bundle. Bytes become base64; a type that is too large is left out, as half a picture or page is none. `value`: whose text stands in for a missing one. */
export function bounded(bundle, value) {
  const data = {};
  let truncated = 0;
  let left = BUNDLE_LIMIT;
  for (const [type, content] of Object.entries(bundle)) {
    let item = content;
    if (item instanceof Uint8Array || item instanceof ArrayBuffer) item = Buffer.from(item).toString(/^text\/|[/+]xml$/.test(type) ? "utf8" : "base64");
    if (/[/+]json$/.test(type)) {
      if (item === undefined) continue;
    } else if (typeof item !== "string") item = String(item);
    if (type === "text/plain") {
      const [kept, cut] = shorten(item);
      item = kept;
      truncated += cut;
    }
    const size = sizeOf(item);
    if (size <= left && (size <= TYPE_LIMIT || type === "text/plain")) {
      data[type] = item;
      left -= size;
    } else truncated += size;
  }
  if (value !== undefined && data["text/plain"] === undefined) {
    const plain = valueBundle(value);
    data["text/plain"] = plain.data["text/plain"];
    truncated += plain.truncated;
  }
  return { data, truncated };
}

/** The bundle of `display(value)`, or a promise of it: a MIME bundle is taken as it is, anything else shown like a last expression. */
export function displayBundle(value, { raw = false } = {}) {
  if (raw || isBundle(value)) return bounded(value);
  const own = ownBundle(value);
  if (own === null) return valueBundle(value);
  return types.isPromise(own) ? own.then((bundle) => (bundle === null ? valueBundle(value) : bounded(bundle, value))) : bounded(own, value);
}

// ---- helpers for cells

function typed(type) {
  return (strings, ...values) => {
    const text = typeof strings === "string" ? strings : String.raw({ raw: strings }, ...values);
    return Object.defineProperties({}, { [DISPLAY]: { value: () => ({ [type]: text }) }, [INSPECT]: { value: () => text }, toString: { value: () => text } });
  };
}

/** What cells have beside `display`; also what `Deno.jupyter` has. */
export const helpers = {
  $display: DISPLAY,
  html: typed("text/html"),
  md: typed("text/markdown"),
  svg: typed("image/svg+xml"),
  /** A PNG or JPEG picture, as bytes or by its file's name. */
  image(source) {
    const bytes = typeof source === "string" || source instanceof URL ? fs.readFileSync(source) : source;
    const type = bytes instanceof Uint8Array ? imageType(bytes) : null;
    if (type === null) throw new TypeError(`image: ${safeInspect(source, { maxArrayLength: 4 })} (expected: the bytes or the file of a PNG or JPEG picture)`);
    return { [DISPLAY]: () => ({ [type]: bytes }) };
  },
  /** The MIME bundle that a value is shown as. */
  async format(value) {
    return (await displayBundle(value)).data;
  },
};

// Values as MIME bundles.

import { types } from "node:util";
import { safeInspect, cleanStack } from "./errors.js";

const TEXT_LIMIT = 1 << 20;
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

/** The bundle of `display(value)`: a MIME bundle is taken as it is, anything else shown like a last expression. */
export function displayBundle(value) {
  const own = value?.[Symbol.for("Jupyter.display")];
  const bundle = typeof own === "function" ? own.call(value) : value;
  if (!isBundle(bundle)) return valueBundle(value);
  const data = {};
  let truncated = 0;
  let left = BUNDLE_LIMIT;
  for (const [type, content] of Object.entries(bundle)) {
    let item = content;
    if (item instanceof Uint8Array || item instanceof ArrayBuffer) item = Buffer.from(item).toString(/^text\//.test(type) ? "utf8" : "base64");
    const isJson = /[/+]json$/.test(type);
    if (!isJson && typeof item !== "string") item = String(item);
    const size = isJson ? (stringify(item) ?? "").length : item.length;
    if (size * 3 <= left) {
      data[type] = item;
      left -= Math.min(size * 3, left);
    } else if (/^text\//.test(type)) {
      const [kept, cut] = shorten(item);
      data[type] = kept;
      truncated += cut;
    } else if (!isJson && size <= left) {
      data[type] = item; // base64: one byte each
      left -= size;
    } else truncated += size;
  }
  return { data, truncated };
}

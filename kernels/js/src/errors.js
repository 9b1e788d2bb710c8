// What a person sees of an error: the user's own lines and columns, none of the kernel's frames.

import { inspect, types } from "node:util";
import { steady } from "./intrinsics.js";
import { originalColumn } from "./rewrite.js";

const REMEMBERED_CELLS = 500;
const REMEMBERED_CODE = 1 << 20;
const EXCERPT_WIDTH = 200;
const TEXT_LIMIT = 1 << 20;
const KERNEL_FILE = process.argv[1];
const LOCATION = /(cell-\d+\.ts):(\d+):(\d+)/g;
const OWN_FRAME = /at (?:\S+ \()?(?:atoll:1:\d+|:0)\)?$/;
// Natives that only ever stand below a cell because the kernel called them.
const MACHINERY = /^\s+at .*\((?:node:(?:internal\/|vm:|async_hooks:|events:)|ext:)[^)]*\)$|^\s+at (?:async )?(?:node:internal\/|ext:)\S+$|^\s+at (?:async )?(?:(?:runInThisContext|drainMicrotasks|Script|enter|AsyncLocalStorage|run|processTicksAndRejections|anonymous|<anonymous>|asyncFunctionResume|promiseReactionJob\w*|moduleEvaluation|loadAndEvaluateModule) )?\(?(?:unknown|native(?::\d+:\d+)?|node:async_hooks[^)]*|internal:[^)]*)\)?$/;

const cells = new Map();

/** Keeps what tracebacks need of a cell's text. */
export function remember(file, code, program) {
  if (code.length > REMEMBERED_CODE) return;
  // Where the cell's own function is called, which is no line of the user's.
  const call = program.callLine === undefined ? null : new RegExp(`\\b${file.replace(".", "\\.")}:${program.callLine}:\\d+\\)?$`);
  const needsMap = !program.unmapped && program.edits.some(([start, end, text]) => text.length !== end - start);
  cells.set(file, { code, call, edits: needsMap ? program.edits : null });
  if (cells.size > REMEMBERED_CELLS) cells.delete(cells.keys().next().value);
}

function mapLocation(all, file, line, column) {
  const cell = cells.get(file);
  if (!cell?.edits) return all;
  return `${file}:${line}:${originalColumn(cell.code, cell.edits, Number(line), Number(column))}`;
}

function isCall(line) {
  const [file] = /cell-\d+\.ts/.exec(line) ?? [];
  return cells.get(file)?.call?.test(line) === true;
}

/** Maps locations and drops the kernel's frames in any text that may hold a stack. */
export function cleanStack(text) {
  if (!text.includes("\n    at ") && !text.includes("cell-")) return text;
  const kept = [];
  for (const line of text.split("\n")) {
    if (/^\s+at /.test(line)) {
      if (line.includes(KERNEL_FILE) || OWN_FRAME.test(line) || MACHINERY.test(line) || isCall(line)) continue;
      kept.push(line.replace(LOCATION, mapLocation).replace(/at <anonymous> \((.*)\)$/, "at $1"));
    } else kept.push(line);
  }
  return kept.join("\n");
}

function read(object, key) {
  try {
    return object[key];
  } catch {
    return undefined;
  }
}

function isError(value) {
  if (value === null || typeof value !== "object") return false;
  try {
    return types.isNativeError(value) || value instanceof Error || (typeof read(value, "message") === "string" && typeof read(value, "stack") === "string");
  } catch {
    return false;
  }
}

export function safeInspect(value, options) {
  try {
    return steady(() => inspect(value, options));
  } catch (error) {
    const tag = typeof value === "function" ? "Function" : "Object";
    const why = read(error, "message");
    return `[${tag}: cannot be shown${typeof why === "string" ? `: ${why}` : ""}]`;
  }
}

// Deno's node:vm writes the place into the stack of whatever is thrown, also into what is no error.
const DECORATION = /^(?:cell-\d+\.ts:\d+\n.*\n *\^+\n\n)+/;
export function undecorate(error) {
  try {
    const property = Object.getOwnPropertyDescriptor(error, "stack");
    if (typeof property?.value !== "string" || !DECORATION.test(property.value)) return;
    if (!isError(error) || property.value.replace(DECORATION, "") === "undefined") delete error.stack;
    else error.stack = property.value.replace(DECORATION, "");
  } catch {
    // a primitive, or frozen
  }
}

function frames(error) {
  const stack = read(error, "stack");
  if (typeof stack !== "string") return [];
  const at = stack.search(/^\s+at /m);
  if (at < 0) return [];
  return cleanStack("\n" + stack.slice(at))
    .split("\n")
    .filter((line) => /^\s+at /.test(line));
}

function excerpt(lines) {
  for (const line of lines) {
    const match = /(cell-\d+\.ts):(\d+):(\d+)/.exec(line);
    if (!match) continue;
    return sourceLine(match[1], Number(match[2]), Number(match[3]));
  }
  return "";
}

function sourceLine(file, line, column) {
  const cell = cells.get(file);
  const text = cell?.code.split("\n", line)[line - 1];
  if (text === undefined) return "";
  // A window around the column, for the one-line programs of a megabyte.
  const from = column > EXCERPT_WIDTH / 2 ? Math.max(0, column - EXCERPT_WIDTH / 2) : 0;
  const shown = text.slice(from, from + EXCERPT_WIDTH).trimEnd();
  const lead = text.slice(from, Math.max(from, column - 1)).replace(/[^\t]/g, " ");
  return `${file}:${line}\n${shown}\n${lead}^\n`;
}

function heading(error) {
  const { name, message } = nameAndMessage(error);
  return message ? `${name}: ${message}` : name;
}

export function nameAndMessage(error) {
  if (!isError(error)) return { name: "Uncaught", message: safeInspect(error) };
  let name = read(error, "name");
  if (typeof name !== "string" || !name) name = read(read(error, "constructor"), "name");
  if (typeof name !== "string" || !name) name = "Error";
  const message = read(error, "message");
  return { name, message: typeof message === "string" ? message : message === undefined ? "" : safeInspect(message) };
}

function body(error, seen) {
  if (!isError(error)) return `Uncaught ${safeInspect(error)}`;
  if (seen.has(error)) return `${heading(error)} [circular]`;
  seen.add(error);
  const lines = [heading(error), ...frames(error)];
  const code = read(error, "code");
  if (typeof code === "string" && !lines[0].includes(code)) lines.push(`  code: ${code}`);
  const causes = [];
  try {
    if ("cause" in error) causes.push(["cause", error.cause]);
  } catch {
    causes.push(["cause", "(its getter throws)"]);
  }
  const errors = read(error, "errors");
  if (Array.isArray(errors)) errors.slice(0, 10).forEach((item, index) => causes.push([`errors[${index}]`, item]));
  if (seen.size < 20) {
    for (const [label, cause] of causes) {
      if (cause === undefined) continue;
      const text = isError(cause) ? body(cause, seen) : safeInspect(cause);
      lines.push(`  ${label}: ${text.replace(/\n/g, "\n  ")}`);
    }
  }
  return lines.join("\n");
}

function shortened(error) {
  let truncated = 0;
  for (const key of ["name", "message", "traceback"]) {
    const text = error[key];
    if (text.length <= TEXT_LIMIT) continue;
    error[key] = text.slice(0, TEXT_LIMIT);
    truncated += Buffer.byteLength(text) - Buffer.byteLength(error[key]);
  }
  if (truncated) error.truncated = truncated;
  return error;
}

/** The number of the cell that the outermost frame in any cell belongs to, 0 if there is none. */
export function outermostCell(error) {
  if (!isError(error)) return 0;
  let number = 0;
  for (const line of frames(error)) number = Number(/cell-(\d+)\.ts:/.exec(line)?.[1] ?? number);
  return number;
}

/** The `error` of a `done` event. */
export function describe(error) {
  const { name, message } = nameAndMessage(error);
  return shortened({ name, message, traceback: (isError(error) ? excerpt(frames(error)) : "") + body(error, new Set()) });
}

/** Where the engine found fault with a cell's text, as far as it says so: `{line, column}`. */
export function engineLocation(error) {
  const stack = read(error, "stack");
  const match = typeof stack === "string" ? /^cell-\d+\.ts:(\d+)\n.*\n( *)\^/.exec(stack) : null;
  return match ? { line: Number(match[1]), column: match[2].length } : undefined;
}

/** The `error` of a cell that can't be parsed. */
export function describeSyntax(file, code, error) {
  remember(file, code, { unmapped: true, edits: [] });
  const where = sourceLine(file, error.line, error.column) || `${file}:${error.line}\n`;
  return { name: "SyntaxError", message: error.message, traceback: `${where}SyntaxError: ${error.message}\n    at ${file}:${error.line}:${error.column}` };
}

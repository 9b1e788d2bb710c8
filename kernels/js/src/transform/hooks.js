// Lets Node load TypeScript files, also those that name others without their extension. Used by module.registerHooks where there is
// one, else by module.register, in a thread of its own.

import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { transform } from "./transform.cjs";

const TYPED = /\.(?:[mc]?ts|tsx|jsx)$/;
const CANDIDATES = ["", ".ts", ".tsx", ".js", ".mjs", ".cjs", ".json", ".jsx", ".mts", ".cts", "/index.ts", "/index.tsx", "/index.js"];

function isFile(file) {
  return fs.statSync(file, { throwIfNoEntry: false })?.isFile() === true;
}

/** The file that is meant by a path without its extension, or by one with the extension it will have once compiled; null if there is none. */
export function completed(file) {
  for (const more of CANDIDATES) if (isFile(file + more)) return file + more;
  const compiled = /^(.*)\.([mc]?)js(x?)$/.exec(file);
  if (compiled && isFile(`${compiled[1]}.${compiled[2]}ts${compiled[3]}`)) return `${compiled[1]}.${compiled[2]}ts${compiled[3]}`;
  return null;
}

// The URL of the file that Node alone would not find; null where it needs no help.
function fileMeant(specifier, parent) {
  if (!/^(?:\.{1,2}(?:\/|$)|\/|file:)/.test(specifier) || !(parent === undefined || parent.startsWith("file:"))) return null;
  const file = specifier.startsWith("file:") ? fileURLToPath(specifier) : path.resolve(parent === undefined ? "/" : path.dirname(fileURLToPath(parent)), specifier);
  const found = completed(file);
  return found === null || found === file ? null : pathToFileURL(found).href;
}

export function resolve(specifier, context, next) {
  const url = fileMeant(specifier, context.parentURL);
  return url === null ? next(specifier, context) : { url, shortCircuit: true };
}

function isCommonJs(file, code) {
  if (/\.cts$/.test(file)) return true;
  if (/\.mts$/.test(file)) return false;
  return !/^\s*(?:import|export)\b/m.test(code) && /\bmodule\.exports\b|\bexports\.\w|\brequire\(/.test(code);
}

function printed(file, toCommonJs) {
  const code = fs.readFileSync(file, "utf8");
  return transform(code, { isModule: true, isJsx: /x$/.test(file), toCommonJs });
}

export function load(url, context, next) {
  if (!url.startsWith("file:") || !TYPED.test(url)) return next(url, context);
  const file = fileURLToPath(url);
  if (isCommonJs(file, fs.readFileSync(file, "utf8"))) return { format: "commonjs", source: printed(file, true), shortCircuit: true };
  return { format: "module", source: printed(file, false), shortCircuit: true };
}

/** Lets `require` load such files. `module` is node:module. */
export function installRequire(module) {
  for (const extension of [".ts", ".tsx", ".mts", ".cts", ".jsx"]) {
    module._extensions[extension] = (loaded, file) => loaded._compile(printed(file, true), file);
  }
  const original = module._resolveFilename;
  module._resolveFilename = function (request, parent, ...rest) {
    try {
      return original.call(this, request, parent, ...rest);
    } catch (error) {
      const folder = parent?.filename ? path.dirname(parent.filename) : undefined;
      const found = /^\.{0,2}\//.test(request) && folder !== undefined ? completed(path.resolve(folder, request)) : null;
      if (found === null) throw error;
      return found;
    }
  };
}

// `import` and `require` of cells: from the cell's folder as the process stands now, then from NODE_PATH and the image's global folders.

import fs from "node:fs";
import { createRequire, isBuiltin } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { again, importFile, importFrom, name as runtime, nativeSchemes, prepareRequire, resolveFrom } from "#runtime";

const GLOBAL_FOLDERS = ["/home/user/node_modules", "/usr/local/lib/node_modules", "/usr/lib/node_modules"];
const EXTENSIONS = ["", ".ts", ".tsx", ".js", ".mjs", ".cjs", ".json", ".jsx", ".mts", ".cts", "/index.ts", "/index.tsx", "/index.js"];
const REMOTE = /^(?:https?|jsr|npm):/;
const cwd = process.cwd.bind(process);
const requires = new Map();

function fallbacks() {
  const listed = process.env.NODE_PATH;
  return [...(listed ? listed.split(":").filter(Boolean) : []), ...GLOBAL_FOLDERS];
}

function isBare(specifier) {
  return !/^(?:\.{0,2}\/|\.{1,2}$|[a-z][a-z+.-]+:)/i.test(specifier);
}

function requireFrom(folder) {
  let found = requires.get(folder);
  if (!found) requires.set(folder, (found = createRequire(path.join(folder, "cell.ts"))));
  return found;
}

/** Where else a package may be: `[folder, specifier]` for each place after the working folder. */
function* otherPlaces(specifier) {
  for (const folder of fallbacks()) yield path.basename(folder) === "node_modules" ? [path.dirname(folder), specifier] : [folder, `./${specifier}`];
}

// Tries `attempt` from the working folder, then, for packages, from each fallback; the first failure is the one reported.
function search(specifier, attempt) {
  try {
    return attempt(cwd(), specifier);
  } catch (error) {
    if (!isBare(specifier)) throw error;
    for (const [from, name] of otherPlaces(specifier)) {
      try {
        return attempt(from, name);
      } catch {
        // not there either
      }
    }
    throw error;
  }
}

// The folder of a package as it is on disk now; null if there is none.
function homeOf(specifier, folder) {
  const [name] = /^(?:@[^/]+\/)?[^/]+/.exec(specifier) ?? [];
  for (let at = folder; name !== undefined; at = path.dirname(at)) {
    const home = path.join(at, "node_modules", name);
    if (fs.existsSync(path.join(home, "package.json"))) return home;
    if (at === path.dirname(at)) break;
  }
  return null;
}

// `npm:` names what is installed; which version that is, the image has decided.
function withoutVersion(specifier) {
  const [, name, rest] = /^npm:\/?((?:@[^/]+\/)?[^/@]+)(?:@[^/]*)?(\/.*)?$/.exec(specifier) ?? [];
  return name === undefined ? specifier : name + (rest ?? "");
}

export function resolve(specifier) {
  const text = withoutVersion(String(specifier));
  if (isBuiltin(text) || nativeSchemes.test(text)) return text;
  if (text.startsWith("file:")) return fileURLToPath(text);
  return search(text, (folder, name) => resolveFrom((runtime === "bun" ? null : completed(name, folder)) ?? name, folder));
}

// The file that a path without its extension means. Null: no path, or no such file; the runtime then says what it misses.
function completed(specifier, folder) {
  if (isBare(specifier) || /^[a-z][a-z+.-]+:/i.test(specifier)) return null;
  const file = path.resolve(folder, specifier);
  for (const extension of EXTENSIONS) if (fs.statSync(file + extension, { throwIfNoEntry: false })?.isFile()) return file + extension;
  return null;
}

// Whether it is `specifier` itself that is missing, and not something that it imports.
function isMissing(error, specifier) {
  try {
    const [name] = /^(?:@[^/]+\/)?[^/]+/.exec(specifier) ?? [specifier];
    return /MODULE_NOT_FOUND|PACKAGE_PATH_NOT_EXPORTED/.test(error.code) && String(error.message).includes(name);
  } catch {
    return false; // a getter that throws
  }
}

function explained(error, specifier) {
  if (!REMOTE.test(specifier)) return error;
  const name = specifier.startsWith("npm:") ? "package" : "module";
  const remedy = specifier.startsWith("npm:")
    ? "install it into a node_modules folder, or use a template that has it"
    : "save its text as a file and import that, or install a package; a sandbox without network loads nothing from elsewhere";
  return Object.assign(new Error(`Cannot load the ${name} '${specifier}' (remedy: ${remedy})`, { cause: error }), { code: "ERR_MODULE_NOT_FOUND" });
}

async function importNative(specifier, options) {
  const text = withoutVersion(specifier);
  if (isBuiltin(text)) return importFrom(text.includes(":") ? text : `node:${text}`, cwd(), options);
  if (!isBare(text)) {
    const file = completed(text, cwd());
    return importFrom(file === null ? text : pathToFileURL(file).href, cwd(), options);
  }
  try {
    return await importFrom(text, cwd(), options);
  } catch (error) {
    if (!isMissing(error, text)) throw error;
    // First what was installed since the runtime looked last: a package with `exports` knows its own name.
    const home = homeOf(text, cwd());
    for (const [from, name] of [...(home === null ? [] : [[home, text], [cwd(), null]]), ...otherPlaces(text)]) {
      try {
        if (name === null) return await importFrom(pathToFileURL(requireFrom(from).resolve(text)).href, from, options);
        // A path that is not in a node_modules folder has no `exports` to look at: as `require` finds it.
        return await (name.startsWith("./") ? importFile(requireFrom(from).resolve(name)) : importFrom(name, from, options));
      } catch (problem) {
        if (!isMissing(problem, text)) throw problem;
      }
    }
    throw error;
  }
}

// Bun looks for modules at once; the others only while they import them.
async function importBun(specifier, options) {
  const target = resolve(specifier);
  return importFrom(target, cwd(), options);
}

export async function importModule(specifier, options) {
  const text = String(specifier);
  try {
    return await (runtime === "bun" ? importBun : importNative)(text, options);
  } catch (error) {
    throw explained(error, text);
  }
}

export function makeRequire(main) {
  function require(specifier) {
    if (typeof specifier !== "string") throw new TypeError(`require: ${String(specifier)} (expected: a string)`);
    const load = requireFrom(cwd());
    const text = withoutVersion(specifier);
    if (isBuiltin(text)) return load(text);
    const file = require.resolve(text);
    prepareRequire(file);
    return load(file);
  }
  require.resolve = (specifier) =>
    isBuiltin(specifier) ? specifier : search(withoutVersion(specifier), (folder, name) => again((runtime === "bun" ? null : completed(name, folder)) ?? name, folder, (own, from) => requireFrom(from).resolve(own)));
  require.main = main;
  Object.defineProperty(require, "cache", { get: () => requireFrom(cwd()).cache });
  require.extensions = {};
  return require;
}

/** What `import.meta` is in a cell. */
export function makeMeta(require) {
  const file = () => path.join(cwd(), "cell.ts");
  return {
    get url() {
      return pathToFileURL(file()).href;
    },
    get path() {
      return file();
    },
    get filename() {
      return file();
    },
    get dir() {
      return cwd();
    },
    get dirname() {
      return cwd();
    },
    get env() {
      return process.env;
    },
    file: "cell.ts",
    main: true,
    require,
    resolve: (specifier) => {
      const found = resolve(specifier);
      return path.isAbsolute(found) ? pathToFileURL(found).href : found;
    },
    resolveSync: (specifier, from) => (from === undefined ? resolve(specifier) : resolveFrom(specifier, from)),
  };
}

/** The names a CommonJS script expects. */
export function installModules() {
  const module = { exports: {}, id: ".", filename: "", loaded: true, children: [], paths: [], parent: null };
  const require = makeRequire(module);
  module.require = require;
  const plain = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  plain("module", module);
  plain("exports", module.exports);
  plain("require", require);
  for (const [name, get] of [["__dirname", cwd], ["__filename", () => path.join(cwd(), "cell.ts")]])
    Object.defineProperty(globalThis, name, { get, set: (value) => plain(name, value), configurable: true, enumerable: false });
  return makeMeta(require);
}

// `import` and `require` of cells: from the cell's folder as the process stands now, then from NODE_PATH and the image's global folders.

import { createRequire, isBuiltin } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const GLOBAL_FOLDERS = ["/home/user/node_modules", "/usr/local/lib/node_modules", "/usr/lib/node_modules"];
const { resolveSync } = Bun;
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

// Tries `attempt` from the working folder, then, for packages, from each fallback; the first failure is the one reported.
function search(specifier, attempt) {
  const here = cwd();
  try {
    return attempt(here, specifier);
  } catch (error) {
    if (!isBare(specifier)) throw error;
    for (const folder of fallbacks()) {
      const [from, name] = path.basename(folder) === "node_modules" ? [path.dirname(folder), specifier] : [folder, `./${specifier}`];
      try {
        return attempt(from, name);
      } catch {
        // not there either
      }
    }
    throw error;
  }
}

export function resolve(specifier) {
  const text = String(specifier);
  if (isBuiltin(text) || /^(?:node|bun|data|blob|https?):/.test(text)) return text;
  if (text.startsWith("file:")) return Bun.fileURLToPath(text);
  return search(text, (folder, name) => resolveSync(name, folder));
}

export async function importModule(specifier, options) {
  const target = resolve(specifier);
  return options === undefined ? import(target) : import(target, options);
}

export function makeRequire(main) {
  function require(specifier) {
    if (typeof specifier !== "string") throw new TypeError(`require: ${String(specifier)} (expected: a string)`);
    const load = requireFrom(cwd());
    if (isBuiltin(specifier)) return load(specifier);
    return load(search(specifier, (folder, name) => requireFrom(folder).resolve(name)));
  }
  require.resolve = (specifier) => (isBuiltin(specifier) ? specifier : search(specifier, (folder, name) => requireFrom(folder).resolve(name)));
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
    resolveSync: (specifier, from) => (from === undefined ? resolve(specifier) : resolveSync(specifier, from)),
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

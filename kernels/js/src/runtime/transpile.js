// For runtimes without a transpiler of their own: Babel, loaded when a cell first needs it (100 ms, 30 MB).

import { createRequire } from "node:module";
import path from "node:path";
import { Fault } from "./fault.js";

let transform;

/** Prints TypeScript (`ts`) or TypeScript with JSX (`tsx`) as plain JavaScript. Throws a Fault. */
export function transpile(code, loader) {
  transform ??= createRequire(process.argv[1])(path.join(path.dirname(process.argv[1]), "..", "js", "transform.cjs")).transform;
  try {
    return transform(code, { isJsx: loader === "tsx" });
  } catch (error) {
    if (error.loc === undefined) throw error;
    const [first] = String(error.message).split("\n");
    throw new Fault(first.replace(/^.*?\/cell\.tsx?: /, "").replace(/ \(\d+:\d+\)$/, ""), error.loc.line, error.loc.column + 1);
  }
}

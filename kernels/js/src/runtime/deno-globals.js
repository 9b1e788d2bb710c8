// Node's globals that not every Deno 2 has. Imported before everything else, as the kernel itself uses them too.

import { Buffer } from "node:buffer";
import process from "node:process";
import { clearImmediate, setImmediate } from "node:timers";

for (const [name, value] of Object.entries({ Buffer, process, setImmediate, clearImmediate, global: globalThis })) {
  if (globalThis[name] === undefined) Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

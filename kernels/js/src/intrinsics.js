// The language's built-ins as they were at start. Programs replace them now and then (Array.prototype.map, JSON.stringify); the
// kernel then finishes its own work with the originals.

import "#runtime";

const { getOwnPropertyDescriptor, defineProperty } = Object;
const { ownKeys } = Reflect;

function intrinsicsOf() {
  const saved = [];
  const owners = [Object, Object.prototype, Array, Array.prototype, String, String.prototype, Number, Number.prototype, Function.prototype, RegExp.prototype, Map.prototype, Set.prototype, Promise, Promise.prototype, Reflect, JSON, Symbol, Error, Error.prototype, Math, Buffer, Buffer.prototype, Uint8Array.prototype, Object.getPrototypeOf(Uint8Array.prototype), Object.getPrototypeOf([][Symbol.iterator]()), Object.getPrototypeOf(new Map().entries())];
  for (const owner of owners) for (const key of ownKeys(owner)) saved.push([owner, key, getOwnPropertyDescriptor(owner, key)]);
  const names = ["Object", "Array", "String", "Number", "RegExp", "Map", "Set", "Promise", "Reflect", "JSON", "Symbol", "Error", "SyntaxError", "TypeError", "Math", "Buffer", "Uint8Array", "ArrayBuffer", "TextDecoder", "process", "Bun", "Deno"].filter((name) => getOwnPropertyDescriptor(globalThis, name) !== undefined);
  for (const name of names) saved.push([globalThis, name, getOwnPropertyDescriptor(globalThis, name)]);
  return {
    /** Puts changed built-ins back; returns what undoes that, or null if none was changed. */
    restore() {
      const changed = [];
      for (let i = 0; i < saved.length; i++) {
        const [owner, key, original] = saved[i];
        const present = getOwnPropertyDescriptor(owner, key);
        if (present !== undefined && present.value === original.value && present.get === original.get) continue;
        if (present !== undefined && !present.configurable && !present.writable) continue;
        try {
          defineProperty(owner, key, original);
          changed[changed.length] = [owner, key, present];
        } catch {
          // made immovable by the program
        }
      }
      if (changed.length === 0) return null;
      return () => {
        for (let i = 0; i < changed.length; i++) {
          const [owner, key, present] = changed[i];
          if (present === undefined) delete owner[key];
          else defineProperty(owner, key, present);
        }
      };
    },
  };
}

const pristine = intrinsicsOf();

/** Does `work`; where it fails because a program has broken a built-in, once more with the original ones. */
export function steady(work) {
  try {
    return work();
  } catch (error) {
    const undo = error?.isAboutTheCell ? null : pristine.restore();
    if (!undo) throw error;
    try {
      return work();
    } finally {
      undo();
    }
  }
}

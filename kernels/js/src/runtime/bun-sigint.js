// Bun starts and joins a thread for each vm call with `breakOnSigint`, unless another such call is under way: 120 us and more per cell. A
// worker that does nothing but wait inside one keeps that thread alive, for 2 MB of memory, and a call then costs 1 us (measure.py: round trip).
// Where the worker can't start, everything works as well, only slower.

const SOURCE = `
  const { Script } = require("node:vm");
  onmessage = ({ data }) => {
    globalThis.flag = data;
    const wait = new Script("Atomics.wait(flag, 0, 0)");
    for (;;) {
      try {
        wait.runInThisContext({ breakOnSigint: true });
      } catch {
        Atomics.add(flag, 1, 1); // the signal ends this wait too
      }
    }
  };
`;

// [0] is waited on, [1] counts the signals.
const flag = new Int32Array(new SharedArrayBuffer(8));
const { load, notify } = Atomics;

export function keepSigintWatched() {
  try {
    const url = URL.createObjectURL(new Blob([SOURCE], { type: "text/javascript" }));
    const worker = new Worker(url, { smol: true, ref: false });
    worker.onerror = () => {};
    worker.postMessage(flag);
    worker.unref();
  } catch {
    // no threads left, for example
  }
}

/** Requires: a signal listener came or went, which took SIGINT away from the watcher. */
export function watchAgain() {
  notify(flag, 0);
}

/** The number of SIGINTs that the watcher has seen. */
export function signalsSeen() {
  return load(flag, 1);
}

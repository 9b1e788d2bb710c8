// Bun starts and joins a thread for each vm call with `breakOnSigint`, unless another such call is under way: 120 us and more per cell. A
// worker that does nothing but wait inside one keeps that thread alive, for 2 MB of memory, and a call then costs 1 us (measure.py: round trip).
// Where the worker can't start, everything works as well, only slower.

const SOURCE = `
  const { Script } = require("node:vm");
  onmessage = ({ data }) => {
    globalThis.flag = data;
    const wait = new Script("Atomics.wait(flag, 0, round)");
    for (;;) {
      globalThis.round = Atomics.load(flag, 0);
      Atomics.store(flag, 2, round);
      Atomics.notify(flag, 2);
      try {
        wait.runInThisContext({ breakOnSigint: true });
      } catch {
        Atomics.add(flag, 1, 1); // the signal ends this wait too
      }
    }
  };
`;

// [0] is the round that is wanted, [1] counts the signals, [2] is the round that the worker is about to enter, -1 before the first.
const flag = new Int32Array(new SharedArrayBuffer(12));
const { add, load, notify, wait } = Atomics;
const LEAVING_MILLIS = 2000;
flag[2] = -1;

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

/**
 * Requires: a signal listener came or went, which took SIGINT away from the watcher; no vm call with `breakOnSigint` is under way in this thread.
 * The next such call, of whichever thread, takes the signal back, but only if it is the first: so the worker must have left its own.
 */
export function watchAgain() {
  const wanted = add(flag, 0, 1) + 1;
  notify(flag, 0);
  const before = load(flag, 2);
  if (before >= 0 && before !== wanted) wait(flag, 2, before, LEAVING_MILLIS);
}

/** The number of SIGINTs that the watcher has seen. */
export function signalsSeen() {
  return load(flag, 1);
}

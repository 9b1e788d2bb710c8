// Where the kernel's descriptors go when the runtime can call the C library: out of the way of programs that close or write to low
// numbers, and closed in every child.

import fs from "node:fs";

export const O_NONBLOCK = 0o4000;
const O_CLOEXEC = 0o2000000;
const F_SETFL = 4;

/** The files under which the C library is found: of glibc, of musl. */
export const libraries = ["libc.so.6", `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`];

/** Moves 3, 4 and 5 to 203 and up, as far as the limit on open files allows. `libc` has dup3, close and fcntl. */
export function moveDescriptors(libc) {
  const move = (from, to) => {
    if (libc.dup3(from, to, O_CLOEXEC) !== to) return from;
    libc.close(from);
    return to;
  };
  const moved = { commands: move(3, 203), events: move(4, 204), acknowledgements: move(5, 205) };
  libc.fcntl(moved.commands, F_SETFL, O_NONBLOCK);
  occupy();
  return moved;
}

// What stood at 3, 4 and 5 would be given to the runtime's own files next, and a program that closes these numbers would hit those.
function occupy() {
  for (;;) {
    const fd = fs.openSync("/dev/null", "r+");
    if (fd > 5) return fs.closeSync(fd);
  }
}

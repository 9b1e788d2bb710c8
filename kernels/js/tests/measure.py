"""Prints what the kernel costs: start, memory, round trip, output rate, interrupt. Run it by hand: python tests/measure.py [RUNTIME...]"""

import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

from kernel import BUN, RUNTIMES, Kernel


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def start(folder, runtime):
    times = []
    for _ in range(15):
        kernel = Kernel(folder, runtime=runtime)
        times.append(kernel.start_seconds * 1000)
        kernel.close()
    print(f"start to ready           p50 {statistics.median(times):7.1f} ms   p90 {percentile(times, 0.9):.1f} ms")


def round_trip(kernel, name, code, count=3000):
    kernel.run("let x = 0")
    times = []
    for n in range(count):
        line = b'{"op":"execute","id":"exec-m%d","code":"%s"}\n' % (n, code.encode())
        began = time.perf_counter()
        os.write(kernel.commands, line)
        os.read(kernel.events, 65536)
        times.append((time.perf_counter() - began) * 1e6)
        if select.select([kernel.out], [], [], 0)[0]:
            os.read(kernel.out, 65536)
    times = times[count // 10 :]
    print(f"{name:24} p50 {statistics.median(times):7.1f} us   p99 {percentile(times, 0.99):.0f} us")


def memory(kernel, name):
    if not os.path.exists(f"/proc/{kernel.pid}/smaps_rollup"):
        print(f"{name:24} RSS {kernel.resident() / 2**20:7.1f} MB")
        return
    now = kernel.memory()
    print(f"{name:24} PSS {now['Pss'] / 1024:7.1f} MB   of it anonymous {now['Pss_Anon'] / 1024:.1f} MB   RSS {now['Rss'] / 1024:.1f} MB   threads {len(os.listdir(f'/proc/{kernel.pid}/task'))}")


def output_rate(kernel):
    execution = kernel.begin("const row = 'x'.repeat(65535); for (let i = 0; i < 3000; i++) print(row)")
    total, wanted, began = 0, 3000 * 65536, time.perf_counter()
    while total < wanted:
        total += len(os.read(kernel.out, 1 << 20))
    seconds = time.perf_counter() - began
    kernel.finish(execution)
    print(f"output, 64 KB prints     {total / seconds / 1e6:.0f} MB/s")


def interrupts(kernel):
    for name, code in (("busy loop", "print('go'); while (true);"), ("loop behind an await", "print('go'); await new Promise(r => setTimeout(r, 1)); while (true);"), ("pending await", "print('go'); await new Promise(() => {})")):
        times = [kernel.run_interrupted(code).stop_seconds * 1000 for _ in range(10)]
        print(f"interrupt, {name:21} p50 {statistics.median(times):.1f} ms   max {max(times):.1f} ms")


def loop_check(kernel):
    code = "const began = performance.now(); let s = 0; for (let i = 0; i < 3e8; i++) s = (s + i) | 0; (performance.now() - began) / 300"
    inside = f"(function () {{ {code.replace('(performance.now() - began)', 'return (performance.now() - began)')} }})()"
    checked = float(kernel.run(inside, deadline=60).text)
    plain = float(kernel.run(f"new Function({inside[len('(function () {'):-len('})()')]!r})()", deadline=60).text)
    print(f"loop with check          {checked:.2f} ns/turn   without {plain:.2f} ns/turn")


def large_cell(kernel):
    for name, code in (("10 MB string literal", "v = '" + "a" * 10_000_000 + "'; 1"), ("10 MB of comments", "// " + "b" * 77 + "\n", ), ("1 MB of statements", "v = 1\n")):
        if name.startswith("10 MB of"):
            code = code * 125_000 + "1"
        if name.startswith("1 MB"):
            code = code * 175_000
        began = time.perf_counter()
        kernel.run(code, deadline=120)
        print(f"{name:24} {time.perf_counter() - began:.2f} s")


def measure(runtime):
    print(runtime.name, subprocess.run([runtime.binary(), "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0], " ".join(runtime.flags))
    with tempfile.TemporaryDirectory() as folder:
        start(folder, runtime)
        kernel = Kernel(folder, runtime=runtime)
        try:
            time.sleep(0.5)
            memory(kernel, "idle")
            round_trip(kernel, "x += 1; print(x)", "x+=1; print(x)")
            round_trip(kernel, "await 1", "await 1; 0")
            memory(kernel, "after 6,000 cells")
            round_trip(kernel, "x += 1; print(x)", "x+=1; print(x)", 20000)
            memory(kernel, "after 26,000 cells")
            output_rate(kernel)
            memory(kernel, "after 200 MB of output")
            interrupts(kernel)
            loop_check(kernel)
            large_cell(kernel)
            memory(kernel, "at the end")
        finally:
            kernel.close()


def main():
    wanted = sys.argv[1:]
    for runtime in RUNTIMES:
        if runtime.name in wanted or (not wanted and runtime is BUN):
            measure(runtime)


if __name__ == "__main__":
    main()

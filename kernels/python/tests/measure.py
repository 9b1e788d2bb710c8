"""Measures the kernel alone over pipes and prints a table: python3 measure.py [interpreter ...]"""
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import Kernel  # noqa: E402


def resident(pid):
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def bare_resident(python):
    with subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE) as process:
        time.sleep(0.3)
        size = resident(process.pid)
        process.communicate(b"\n")
    return size


def measure(python):
    starts, firsts, errors, bare = [], [], [], []
    for _ in range(15):
        begin = time.perf_counter()
        subprocess.run([python, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - begin)
        with Kernel(python) as kernel:
            starts.append(kernel.start_seconds)
            begin = time.perf_counter()
            kernel.run("x = 1 + 1\nprint(x)")
            firsts.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            kernel.run("1/0")
            errors.append(time.perf_counter() - begin)
    with Kernel(python) as kernel:
        idle = resident(kernel.pid)
        kernel.run("x = 0")
        trips, both, values = [], [], []
        for code, into, rounds in (("x+=1; print(x)", trips, 4000), ("x+=1\nx", values, 2000), ("import sys; print(x); print(x, file=sys.stderr)", both, 1000)):
            for _ in range(rounds):
                begin = time.perf_counter()
                kernel.run(code)
                into.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        count = len(kernel.run("s = 'x' * 65535\nfor _ in range(6400): print(s)", timeout=60).raw)
        rate = count / (time.perf_counter() - begin) / 1e6
        begin = time.perf_counter()
        kernel.run("for i in range(200000): print(i)", timeout=60)
        lines = 200000 / (time.perf_counter() - begin)
        begin = time.perf_counter()
        kernel.run("data = '" + "x" * (10 << 20) + "'\nlen(data)", timeout=60)
        big = time.perf_counter() - begin
    rows = (
        ("bare python -c pass, p50", "%.1f ms" % (statistics.median(bare) * 1e3)),
        ("start to ready, p50", "%.1f ms" % (statistics.median(starts) * 1e3)),
        ("first cell, p50", "%.2f ms" % (statistics.median(firsts) * 1e3)),
        ("first error, p50", "%.2f ms" % (statistics.median(errors) * 1e3)),
        ("warm x+=1; print(x), p50", "%.0f us" % (statistics.median(trips) * 1e6)),
        ("warm x+=1; print(x), p99", "%.0f us" % (sorted(trips)[len(trips) * 99 // 100] * 1e6)),
        ("warm last expression, p50", "%.0f us" % (statistics.median(values) * 1e6)),
        ("print to both streams, p50", "%.0f us" % (statistics.median(both) * 1e6)),
        ("64 KiB prints", "%.0f MB/s" % rate),
        ("short prints", "%.0f lines/s" % lines),
        ("cell of 10 MiB", "%.0f ms" % (big * 1e3)),
        ("resident, idle", "%.1f MiB (bare python %.1f)" % (idle, bare_resident(python))),
    )
    version = subprocess.run([python, "-V"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    print(version)
    for name, value in rows:
        print("  %-28s %s" % (name, value))


if __name__ == "__main__":
    for python in sys.argv[1:] or [sys.executable]:
        measure(python)

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
)

// monitorSlack is by how much the sleeps of Go's monitor thread may be longer. It sleeps for 20 µs at a time while any goroutine works,
// which for a server that is woken for little things was a quarter of its CPU.
const monitorSlackNanos = 300_000

// calmMonitor lets Go's monitor thread sleep longer. What it does, finding threads that are in a system call for long, has that time.
func calmMonitor() error {
	tid, err := secondThread("/proc/self/task")
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/%d/timerslack_ns", tid)
	return os.WriteFile(path, []byte(strconv.Itoa(monitorSlackNanos)), 0)
}

// secondThread of the process with this folder of threads is the monitor: the runtime's main thread starts it before any other.
func secondThread(folder string) (int, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	var threads []int
	for _, entry := range entries {
		if thread, err := strconv.Atoi(entry.Name()); err == nil {
			threads = append(threads, thread)
		}
	}
	if len(threads) < 2 {
		return 0, fmt.Errorf("%s names %d threads (expected: the monitor's too)", folder, len(threads))
	}
	slices.Sort(threads)
	return threads[1], nil
}

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clocks is the answer to "clocks", in nanoseconds. Before and After are the monotonic clock around all other readings.
type clocks struct {
	Before, Boot, Real, Uptime, After int64
	// BootedAt is when /proc/stat has the machine booted.
	BootedAt int64
	// Started is when /proc/self/stat has this process started, after the boot, and Child the same of one that was started just now.
	Started, Child int64
	// Ticks counts what an interval timer of the monotonic clock brought, by the fashion in which it tells.
	TimerFD, Interval, Loop int64
	// Nap is how long a sleep of napLength by the wall clock's name took on the monotonic clock; 0 until it is over.
	Nap int64
	// Alarms counts timers that were set to an hour from their start.
	Alarms int64
}

// tick is the interval of all timers.
const tick = 20 * time.Millisecond

// napLength is longer than what happens between its beginning and the snapshot.
const napLength = 3200 * time.Millisecond

type timers struct{ timerFD, interval, loop, alarms, nap atomic.Int64 }

func startTimers() *timers {
	t := &timers{}
	count := func(to *atomic.Int64, setting unix.ItimerSpec) {
		fd := must(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC))
		check(unix.TimerfdSettime(fd, 0, &setting, nil))
		go func() {
			for {
				var b [8]byte
				must(unix.Read(fd, b[:]))
				to.Add(int64(binary.NativeEndian.Uint64(b[:])))
			}
		}()
	}
	interval := unix.NsecToTimespec(tick.Nanoseconds())
	count(&t.timerFD, unix.ItimerSpec{Interval: interval, Value: interval})
	count(&t.alarms, unix.ItimerSpec{Value: unix.NsecToTimespec(time.Hour.Nanoseconds())})
	go func() {
		for range time.Tick(tick) {
			t.interval.Add(1)
		}
	}()
	go func() {
		for {
			if unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &interval, nil) == nil {
				t.loop.Add(1)
			}
		}
	}()
	go func() {
		length := unix.NsecToTimespec(napLength.Nanoseconds())
		begin := now(unix.CLOCK_MONOTONIC)
		for unix.ClockNanosleep(unix.CLOCK_REALTIME, 0, &length, &length) == unix.EINTR {
		}
		t.nap.Store(now(unix.CLOCK_MONOTONIC) - begin)
	}()
	return t
}

func readClocks(t *timers) clocks {
	c := clocks{
		Before: now(unix.CLOCK_MONOTONIC), Boot: now(unix.CLOCK_BOOTTIME), Real: now(unix.CLOCK_REALTIME), Uptime: uptime(), After: now(unix.CLOCK_MONOTONIC),
		Started: startTime(),
	}
	_, booted, _ := strings.Cut(read("/proc/stat"), "btime ")
	booted, _, _ = strings.Cut(booted, "\n")
	c.BootedAt = must(strconv.ParseInt(booted, 10, 64)) * 1e9
	child := must(exec.Command("/proc/self/exe", "start-time").Output())
	c.Child = must(strconv.ParseInt(strings.TrimSpace(string(child)), 10, 64))
	if t != nil {
		c.TimerFD, c.Interval, c.Loop, c.Alarms, c.Nap = t.timerFD.Load(), t.interval.Load(), t.loop.Load(), t.alarms.Load(), t.nap.Load()
	}
	return c
}

func now(clock int32) int64 {
	var t unix.Timespec
	check(unix.ClockGettime(clock, &t))
	return t.Nano()
}

func uptime() int64 {
	seconds, _, _ := strings.Cut(read("/proc/uptime"), " ")
	return int64(must(strconv.ParseFloat(seconds, 64)) * 1e9)
}

// startTime is field 22, in hundredths of a second. The command, field 2, has no space.
func startTime() int64 {
	return must(strconv.ParseInt(strings.Fields(read("/proc/self/stat"))[21], 10, 64)) * 1e7
}

func read(path string) string { return string(must(os.ReadFile(path))) }

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"atoll/node/internal/engine/enginetest"
)

func TestTheRuntimesMonitorSleepsLonger(t *testing.T) {
	e := enginetest.Start(t)
	tid, err := secondThread(fmt.Sprintf("/proc/%d/task", e.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	slack := func(tid int) string {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if got := slack(tid); got != strconv.Itoa(monitorSlackNanos) {
		t.Errorf("the monitor's sleeps may be %s ns longer (expected: %d)", got, monitorSlackNanos)
	}
	if got := slack(e.Pid()); got == strconv.Itoa(monitorSlackNanos) {
		t.Errorf("the main thread's sleeps may be %s ns longer too", got)
	}
}

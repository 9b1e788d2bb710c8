package gvisor

import (
	"testing"
	"time"
)

// SetWorkerIdle shortens, for one test, how long workers of older builds wait for something to do.
func SetWorkerIdle(t *testing.T, idle time.Duration) {
	usual := workerIdle
	workerIdle = idle
	t.Cleanup(func() { workerIdle = usual })
}

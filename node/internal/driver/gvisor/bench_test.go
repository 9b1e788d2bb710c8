package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"atoll/node/internal/driver/drivertest"
	"atoll/node/internal/engine/enginetest"
)

// BenchmarkWorkerAgainstExecution is why there is a worker.
func BenchmarkWorkerAgainstExecution(b *testing.B) {
	files := enginetest.Files(b)
	// A build without the file WORKER is driven by executing runsc.
	without := b.TempDir()
	if err := os.CopyFS(without, os.DirFS(files.Runsc)); err != nil {
		b.Fatal(err)
	}
	if err := os.Remove(filepath.Join(without, "WORKER")); err != nil {
		b.Fatal(err)
	}
	for _, megabytes := range []int{0, 100, 500} {
		b.Run(fmt.Sprintf("%dMB", megabytes), func(b *testing.B) {
			drivertest.Measure(b, map[string]drivertest.Subject{
				"worker": subject(b, files.Runsc, ""), "exec": subject(b, without, ""),
			}, megabytes, 21)
		})
	}
}

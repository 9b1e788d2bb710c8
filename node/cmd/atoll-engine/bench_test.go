package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atoll/node/internal/engine/enginetest"
)

// BenchmarkWarmExecute measures one round trip to a warm Python kernel: client, engine, agent, kernel and back.
func BenchmarkWarmExecute(b *testing.B) {
	e := enginetest.Start(b)
	box := e.Python(b.Context())
	box.Run(b.Context(), "x = 0")
	for b.Loop() {
		box.Run(b.Context(), "x+=1; print(x)")
	}
}

// BenchmarkWarmExecuteSixteenBoxes measures throughput; its time per operation is that of all boxes together.
func BenchmarkWarmExecuteSixteenBoxes(b *testing.B) {
	e := enginetest.Start(b)
	var boxes []*enginetest.Sandbox
	for range 16 {
		box := e.Python(b.Context())
		box.Run(b.Context(), "x = 0")
		boxes = append(boxes, box)
	}
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for _, box := range boxes {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := box.TryRun(b.Context(), "x+=1; print(x)"); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkCreate measures a box from nothing to a ready Python context, and its removal.
func BenchmarkCreate(b *testing.B) {
	e := enginetest.Start(b)
	var creating, deleting time.Duration
	n := 0
	for b.Loop() {
		started := time.Now()
		request := e.Request(b.Context(), "python", "python")
		if _, err := e.CreateBox(b.Context(), request); err != nil {
			b.Fatal(err)
		}
		created := time.Now()
		if err := e.Remove(context.Background(), request.GetBoxId()); err != nil {
			b.Fatal(err)
		}
		creating += created.Sub(started)
		deleting += time.Since(created)
		n++
	}
	b.ReportMetric(float64(creating.Microseconds())/float64(n)/1000, "create-ms")
	b.ReportMetric(float64(deleting.Microseconds())/float64(n)/1000, "delete-ms")
	if testing.Verbose() {
		fmt.Println(e.Log())
	}
}

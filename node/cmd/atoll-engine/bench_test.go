package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/engine/enginetest"
)

// BenchmarkWarmExecute measures one round trip to a warm Python kernel: client, engine, agent, kernel and back.
func BenchmarkWarmExecute(b *testing.B) {
	e := enginetest.Start(b)
	box := e.Python(b.Context())
	box.Run(b.Context(), "x = 0")
	var times []time.Duration
	for b.Loop() {
		started := time.Now()
		r := &enginetest.Result{ID: enginetest.NewID("exec")}
		stream, err := box.Begin(b.Context(), r.ID, "x+=1; print(x)")
		if err == nil {
			err = enginetest.Collect(stream, r)
		}
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(started))
		// As the server does: on record, then forgotten, outside the caller's way.
		b.StopTimer()
		box.Forget(b.Context(), r.ID)
		b.StartTimer()
	}
	slices.Sort(times)
	for name, at := range map[string]int{"min-us": 0, "p10-us": len(times) / 10, "p50-us": len(times) / 2, "p99-us": len(times) * 99 / 100} {
		b.ReportMetric(float64(times[at].Microseconds()), name)
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
	inBoxes := func() (total time.Duration) {
		for _, box := range boxes {
			total += e.CPUOf(box.Box)
		}
		return total
	}
	boxesBefore, engineBefore, clientBefore := inBoxes(), enginetest.CPUTime(b, e.Pid()), enginetest.CPUTime(b, os.Getpid())
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
	b.StopTimer()
	perRun := func(used time.Duration) float64 { return float64(used.Microseconds()) / float64(b.N) }
	b.ReportMetric(perRun(inBoxes()-boxesBefore), "box-cpu-us/op")
	b.ReportMetric(perRun(enginetest.CPUTime(b, e.Pid())-engineBefore), "engine-cpu-us/op")
	b.ReportMetric(perRun(enginetest.CPUTime(b, os.Getpid())-clientBefore), "client-cpu-us/op")
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

// BenchmarkStdout measures how fast raw output comes through to the client.
func BenchmarkStdout(b *testing.B) {
	e := enginetest.Start(b)
	box := e.Python(b.Context())
	const size = 48 << 20
	b.SetBytes(size)
	for b.Loop() {
		r := box.Run(b.Context(), fmt.Sprintf("import os\nb = b'x' * (1 << 20)\nfor _ in range(%d): os.write(1, b)\n", size>>20))
		if len(r.Stdout) != size {
			b.Fatalf("%d bytes, %v", len(r.Stdout), r.Finished)
		}
	}
}

// BenchmarkUpload and BenchmarkDownload measure a large file through client, engine and agent, in a sandbox without a CPU limit.
func BenchmarkUpload(b *testing.B) {
	e := enginetest.Start(b)
	box := e.Python(b.Context())
	content := make([]byte, 256<<20)
	b.SetBytes(int64(len(content)))
	report := cpuOf(b, e, box.Box)
	for b.Loop() {
		writeFile(b, e, box.Box, "/tmp/file", content)
	}
	report()
}

func BenchmarkDownload(b *testing.B) {
	e := enginetest.Start(b)
	box := e.Python(b.Context())
	const size = 256 << 20
	writeFile(b, e, box.Box, "/tmp/file", make([]byte, size))
	b.SetBytes(size)
	report := cpuOf(b, e, box.Box)
	for b.Loop() {
		got := 0
		if err := download(b.Context(), e, box.Box, "/tmp/file", func(data []byte) { got += len(data) }); err != nil || got != size {
			b.Fatal(got, err)
		}
	}
	report()
}

// cpuOf returns what reports the CPU time of engine, box and client since then.
func cpuOf(b *testing.B, e *enginetest.Engine, box string) (report func()) {
	now := func() [3]time.Duration {
		return [3]time.Duration{enginetest.CPUTime(b, e.Pid()), e.CPUOf(box), enginetest.CPUTime(b, os.Getpid())}
	}
	before := now()
	return func() {
		after := now()
		for i, name := range []string{"engine", "box", "client"} {
			b.ReportMetric(float64((after[i]-before[i]).Milliseconds())/float64(b.N), name+"-cpu-ms/op")
		}
	}
}

// BenchmarkSampleUsage measures one sample of sixteen boxes.
func BenchmarkSampleUsage(b *testing.B) {
	e := enginetest.Start(b)
	for range 16 {
		e.Python(b.Context())
	}
	used := enginetest.CPUTime(b, e.Pid())
	for b.Loop() {
		if reply, err := e.SampleUsage(b.Context(), &enginev1.SampleUsageRequest{}); err != nil || len(reply.GetBoxes()) != 16 {
			b.Fatal(reply, err)
		}
	}
	b.ReportMetric(float64((enginetest.CPUTime(b, e.Pid())-used).Microseconds())/float64(b.N)/16, "engine-cpu-us/box")
}

// BenchmarkTunnel measures a round trip of 100 bytes to an echo server inside.
func BenchmarkTunnel(b *testing.B) {
	e := enginetest.Start(b)
	box := e.Python(b.Context())
	server := python(echoServer)
	startProcess(b, e, box.Box, server)
	var stream grpc.BidiStreamingClient[enginev1.TunnelCall, execv1.TunnelMessage]
	enginetest.Await(b, 30*time.Second, func() (bool, string) {
		var err error
		stream, err = openTunnel(b.Context(), e, box.Box, 7007)
		return err == nil, fmt.Sprint(err)
	})
	message := tunnelMessage("", &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: make([]byte, 100)}})
	for b.Loop() {
		if err := stream.Send(message); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < 100; {
			m, err := stream.Recv()
			if err != nil {
				b.Fatal(err)
			}
			got += len(m.GetData())
		}
	}
}

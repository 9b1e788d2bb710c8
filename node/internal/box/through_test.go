package box

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/gen/filev1"
	"atoll/node/internal/patience"
)

func stat(path string) *filev1.FileRequest {
	return &filev1.FileRequest{Operation: &filev1.FileRequest_Stat{Stat: &filev1.Stat{Path: path}}}
}

// asSent is a message after it was encoded and decoded, as a caller gets it.
func asSent[M proto.Message](t *testing.T, m M, empty M) M {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(raw, empty)
	}
	if err != nil {
		t.Fatal(err)
	}
	return empty
}

func TestOneFileOperationIsPassedThrough(t *testing.T) {
	r := newRig(t)
	box := r.create()
	reply, err := r.File(t.Context(), box, stat("entries/10000"))
	if err != nil {
		t.Fatal(err)
	}
	reply = asSent(t, reply, &filev1.FileReply{})
	if len(reply.GetEntries()) != 10_000 || reply.GetFile().GetPath() != "entries/10000" {
		t.Fatalf("%d entries of %v", len(reply.GetEntries()), reply.GetFile())
	}
	for path, want := range map[string]codes.Code{"missing": codes.NotFound, "aborted": codes.Aborted} {
		_, err := r.File(t.Context(), box, stat(path))
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Code != want || !strings.HasPrefix(refusal.Message, path) {
			t.Errorf("%s: %v (expected: %v)", path, err, want)
		}
	}
	_, err = r.File(t.Context(), newID("box"), stat("x"))
	wantKind(t, err, NotFound)
}

// Thirty thousand entries of two bytes would be ten megabytes for who decodes them.
func TestRepliesThatWouldGrowAtTheReceiverAreNotPassedOn(t *testing.T) {
	r := newRig(t)
	box := r.create()
	for _, path := range []string{"nothings/30000", "bytes/5000000"} {
		_, err := r.File(t.Context(), box, stat(path))
		wantKind(t, err, Internal)
	}
	if _, err := r.File(t.Context(), box, stat("nothings/10000")); err != nil {
		t.Fatal(err)
	}
}

func TestListsOfProcessesAndPortsArePassedThrough(t *testing.T) {
	r := newRig(t)
	box := r.create()
	processes, err := r.GuestProcesses(t.Context(), box)
	if err != nil || len(asSent(t, processes, &execv1.ListGuestProcessesReply{}).GetProcesses()) != 2 {
		t.Fatal(processes, err)
	}
	ports, err := r.Ports(t.Context(), box)
	if err != nil || asSent(t, ports, &execv1.ListPortsReply{}).GetPorts()[0].GetPort() != 7 {
		t.Fatal(ports, err)
	}
}

// open is how many calls of the fake agent are not over; and there are as many files of uploads.
func (r *rig) open(box string) int {
	r.t.Helper()
	reply, err := r.File(r.t.Context(), box, stat("uploads"))
	if err != nil {
		r.t.Fatal(err)
	}
	return int(asSent(r.t, reply, &filev1.FileReply{}).GetFile().GetSize())
}

func awaitTrue(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience.Of(30 * time.Second)); !condition(); {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (r *rig) awaitClosed(box string) {
	r.t.Helper()
	awaitTrue(r.t, "all calls of the agent are over", func() bool { return r.open(box) == 0 })
}

func TestFileOfAnySizeIsReadInFlatMemoryAtThePaceOfItsReader(t *testing.T) {
	r := newRig(t)
	box := r.create()
	const size = 60_000_000
	var got int
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var most uint64
	pieces := 0
	if err := r.ReadFile(t.Context(), box, &filev1.ReadFileRequest{Path: "zeros/60000000"}, func(raw []byte) error {
		piece := &filev1.FilePiece{}
		if err := proto.Unmarshal(raw, piece); err != nil {
			return err
		}
		got += len(piece.GetData())
		if pieces++; pieces%250 == 1 {
			runtime.GC()
			runtime.ReadMemStats(&during)
			most = max(most, during.HeapAlloc)
		}
		return nil
	}); err != nil || got != size {
		t.Fatalf("%d bytes, %v", got, err)
	}
	if most > before.HeapAlloc+8<<20 {
		t.Fatalf("heap grew from %d to %d bytes", before.HeapAlloc, most)
	}
	r.awaitClosed(box)
}

func TestReaderThatGoesEndsTheReadingInside(t *testing.T) {
	r := newRig(t)
	box := r.create()
	gone := errors.New("gone")
	if err := r.ReadFile(t.Context(), box, &filev1.ReadFileRequest{Path: "zeros/1000000000"}, func([]byte) error { return gone }); err != gone {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := r.ReadFile(ctx, box, &filev1.ReadFileRequest{Path: "zeros/1000000000"}, func([]byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.awaitClosed(box)
	err = r.ReadFile(t.Context(), box, &filev1.ReadFileRequest{Path: "nothing"}, func([]byte) error { return nil })
	wantRefusal(t, err, codes.NotFound, "nothing: no such file or directory")
}

func upload(path string) *filev1.WriteFileRequest {
	return &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Open{Open: &filev1.WriteFileOpen{Path: path}}}
}

func data(b []byte) *filev1.WriteFileRequest {
	return &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Data{Data: b}}
}

var commit = &filev1.WriteFileRequest{Message: &filev1.WriteFileRequest_Commit_{Commit: &filev1.WriteFileRequest_Commit{}}}

// messages yields a caller's messages one by one, then waits until the caller goes.
func messages[M any](ctx context.Context, end error, all ...M) func() (M, error) {
	return func() (M, error) {
		var none M
		if len(all) == 0 {
			if end == nil {
				<-ctx.Done()
				return none, ctx.Err()
			}
			return none, end
		}
		m := all[0]
		all = all[1:]
		return m, nil
	}
}

func TestUploadOfPiecesOfAnySize(t *testing.T) {
	r := newRig(t)
	box := r.create()
	var all []*filev1.WriteFileRequest
	total := 0
	for _, size := range []int{0, 1, 100, 65_535, 65_536, 65_537, 1 << 20, 4 << 20, 7} {
		all = append(all, data(make([]byte, size)))
		total += size
	}
	reply, err := r.WriteFile(t.Context(), box, upload("a"), messages(t.Context(), io.EOF, append(all, commit)...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := asSent(t, reply, &filev1.WriteFileReply{}); got.GetBytes() != uint64(total) || !got.GetCreated() {
		t.Fatalf("%v (expected: %d bytes)", got, total)
	}
	r.awaitClosed(box)
}

// Who sends may use a message's bytes again as soon as it has it back.
func TestUploadTakesItsMessagesByTheTimeItGivesThemBack(t *testing.T) {
	r := newRig(t)
	box := r.create()
	random := rand.New(rand.NewPCG(1, 2))
	var content []byte
	var all []*filev1.WriteFileRequest
	for range 60 {
		piece := make([]byte, random.IntN(100_000))
		for i := range piece {
			piece[i] = byte(random.Uint32())
		}
		content = append(content, piece...)
		all = append(all, data(piece))
	}
	all = append(all, commit)
	given, back := slices.Clone(all), 0
	sent := func(m *filev1.WriteFileRequest) {
		if m != given[back] {
			t.Errorf("message %d came back out of its turn", back)
		}
		back++
		clear(m.GetData())
	}
	if _, err := r.WriteFile(t.Context(), box, upload("/tmp/a"), messages(t.Context(), nil, all...), sent); err != nil {
		t.Fatal(err)
	}
	var got []byte
	if err := r.ReadFile(t.Context(), box, &filev1.ReadFileRequest{Path: "/tmp/a"}, func(raw []byte) error {
		piece := &filev1.FilePiece{}
		err := proto.Unmarshal(raw, piece)
		got = append(got, piece.GetData()...)
		return err
	}); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%v, %d bytes (expected: the %d that were sent)", err, len(got), len(content))
	}
}

func TestUploadThatIsNotCommittedLeavesNothingInside(t *testing.T) {
	r := newRig(t)
	box := r.create()
	for name, c := range map[string]struct {
		messages []*filev1.WriteFileRequest
		end      error
		kind     FaultKind
	}{
		"ends":             {[]*filev1.WriteFileRequest{data([]byte("x"))}, io.EOF, 0},
		"fails":            {[]*filev1.WriteFileRequest{data([]byte("x"))}, context.Canceled, 0},
		"opens again":      {[]*filev1.WriteFileRequest{upload("b")}, nil, Invalid},
		"says nothing":     {[]*filev1.WriteFileRequest{{}}, nil, Invalid},
		"too much at once": {[]*filev1.WriteFileRequest{data(make([]byte, 4<<20+1))}, nil, Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.WriteFile(t.Context(), box, upload("a"), messages(t.Context(), c.end, c.messages...), nil)
			if c.kind != 0 {
				wantKind(t, err, c.kind)
			} else if err == nil {
				t.Fatal("no error")
			}
			r.awaitClosed(box)
			if left, err := filepath.Glob(filepath.Join(os.TempDir(), "fake-upload*")); err != nil || len(left) > 0 {
				t.Fatal(left, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitTrue(t, "the upload has begun", func() bool { return r.open(box) == 1 })
		cancel()
	}()
	if _, err := r.WriteFile(ctx, box, upload("a"), messages[*filev1.WriteFileRequest](ctx, nil), nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.awaitClosed(box)
	_, err := r.WriteFile(t.Context(), box, data(nil), messages[*filev1.WriteFileRequest](t.Context(), io.EOF), nil)
	wantKind(t, err, Invalid)
}

// Both while the caller waits, and while it sends.
func TestRefusalOfAnUploadIsToldAtOnce(t *testing.T) {
	r := newRig(t)
	box := r.create()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(30*time.Second))
	defer cancel()
	_, err := r.WriteFile(ctx, box, upload("denied"), messages[*filev1.WriteFileRequest](ctx, nil), nil)
	wantRefusal(t, err, codes.PermissionDenied, "denied: permission denied")
	forever := func() (*filev1.WriteFileRequest, error) { return data(make([]byte, 100_000)), ctx.Err() }
	_, err = r.WriteFile(ctx, box, upload("full"), forever, nil)
	wantRefusal(t, err, codes.ResourceExhausted, "full: no space left on device")
	r.awaitClosed(box)
}

func TestTransfersUnderWayFailCleanlyWhenTheConnectionOrTheBoxGoes(t *testing.T) {
	r := newRig(t)
	box := r.create()
	b, err := r.find(box)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cut  func()
		kind FaultKind
	}{
		{"connection", func() { b.currentLink().session.Close() }, Unavailable},
		{"box", func() { _ = unix.Kill(int(b.container.Load().pid.Load()), unix.SIGKILL) }, FailedPrecondition},
	} {
		var group sync.WaitGroup
		check := func(call func(ctx context.Context) error) {
			group.Go(func() {
				err := call(t.Context())
				var f *Fault
				if !errors.As(err, &f) || f.Kind != c.kind && f.Kind != Unavailable {
					t.Errorf("%s: %v (expected: kind %d)", c.name, err, c.kind)
				}
			})
		}
		check(func(ctx context.Context) error {
			return r.ReadFile(ctx, box, &filev1.ReadFileRequest{Path: "zeros/100000000000"}, func([]byte) error { return nil })
		})
		check(func(ctx context.Context) error {
			_, err := r.WriteFile(ctx, box, upload("a"), func() (*filev1.WriteFileRequest, error) { return data(make([]byte, 30_000)), nil }, nil)
			return err
		})
		check(func(ctx context.Context) error {
			return r.WatchFiles(ctx, box, &filev1.WatchFilesRequest{Path: "/"}, func([]byte) error { return nil })
		})
		check(func(ctx context.Context) error {
			return r.Tunnel(ctx, box, tunnelTo(7), messages[*execv1.TunnelMessage](ctx, nil), func([]byte) error { return nil })
		})
		check(func(ctx context.Context) error { _, err := r.File(ctx, box, stat("stuck")); return err })
		awaitTrue(t, "all have begun", func() bool { return r.open(box) == 4 })
		c.cut()
		group.Wait()
	}
}

func tunnelTo(port uint32) *execv1.TunnelMessage {
	return &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Open{Open: &execv1.TunnelOpen{Port: port}}}
}

func tunnelData(b []byte) *execv1.TunnelMessage {
	return &execv1.TunnelMessage{Message: &execv1.TunnelMessage_Data{Data: b}}
}

// tunnel sends bytes through the echo and returns what came back.
func (r *rig) tunnel(ctx context.Context, box string, payload []byte, explicitEnd bool) ([]byte, error) {
	var all []*execv1.TunnelMessage
	for rest := payload; len(rest) > 0; rest = rest[min(len(rest), 100_000):] {
		all = append(all, tunnelData(rest[:min(len(rest), 100_000)]))
	}
	if explicitEnd {
		all = append(all, &execv1.TunnelMessage{Message: &execv1.TunnelMessage_End{End: &execv1.TunnelEnd{}}})
	}
	var back []byte
	opened, ended := false, false
	err := r.Tunnel(ctx, box, tunnelTo(7), messages(ctx, io.EOF, all...), func(raw []byte) error {
		m := &execv1.TunnelMessage{}
		if err := proto.Unmarshal(raw, m); err != nil {
			return err
		}
		opened = opened || m.GetOpened() != nil
		ended = ended || m.GetEnd() != nil
		back = append(back, m.GetData()...)
		return nil
	})
	if err == nil && (!opened || !ended) {
		err = errors.New("no opened, or no end")
	}
	return back, err
}

func TestTunnelCarriesBothWaysAndKeepsTheHalfClose(t *testing.T) {
	r := newRig(t)
	box := r.create()
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, explicit := range []bool{true, false} {
		back, err := r.tunnel(t.Context(), box, payload, explicit)
		if err != nil || !bytes.Equal(back, payload) {
			t.Fatalf("%d bytes back, %v", len(back), err)
		}
	}
	err := r.Tunnel(t.Context(), box, tunnelTo(9), messages[*execv1.TunnelMessage](t.Context(), nil), func([]byte) error { return nil })
	wantRefusal(t, err, codes.Unavailable, "nothing listens on port 9")
	for _, port := range []uint32{0, 65_536} {
		err := r.Tunnel(t.Context(), box, tunnelTo(port), messages[*execv1.TunnelMessage](t.Context(), nil), func([]byte) error { return nil })
		wantKind(t, err, Invalid)
	}
}

func TestThousandsOfTunnelsLeaveNothing(t *testing.T) {
	r := newRig(t)
	box := r.create()
	if _, err := r.tunnel(t.Context(), box, []byte("first"), true); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	var group sync.WaitGroup
	for worker := range 50 {
		group.Go(func() {
			for i := range 60 {
				switch (worker + i) % 3 {
				case 0:
					if back, err := r.tunnel(t.Context(), box, []byte("hello"), true); err != nil || string(back) != "hello" {
						t.Errorf("%q, %v", back, err)
					}
				case 1:
					_ = r.Tunnel(t.Context(), box, tunnelTo(9), messages[*execv1.TunnelMessage](t.Context(), io.EOF), func([]byte) error { return nil })
				case 2:
					ctx, cancel := context.WithCancel(t.Context())
					err := r.Tunnel(ctx, box, tunnelTo(7), messages[*execv1.TunnelMessage](ctx, nil), func([]byte) error { cancel(); return nil })
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					cancel()
				}
			}
		})
	}
	group.Wait()
	r.awaitClosed(box)
	awaitTrue(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+5 })
}

func TestTunnelWhoseReaderStopsHoldsItsWriterBack(t *testing.T) {
	r := newRig(t)
	box := r.create()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	sent := 0
	next := func() (*execv1.TunnelMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		sent += 10_000
		return tunnelData(make([]byte, 10_000)), ctx.Err()
	}
	blocked := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- r.Tunnel(ctx, box, tunnelTo(7), next, func([]byte) error { <-blocked; return nil })
	}()
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return sent
	}
	last := -1
	awaitTrue(t, "the writer stands still", func() bool {
		now := count()
		still := now == last && now > 0
		last = now
		<-time.After(200 * time.Millisecond)
		return still
	})
	if last > 4<<20 {
		t.Fatalf("%d bytes were taken although nobody reads them", last)
	}
	// Others go on meanwhile.
	if back, err := r.tunnel(t.Context(), box, []byte("hello"), true); err != nil || string(back) != "hello" {
		t.Fatal(back, err)
	}
	cancel()
	close(blocked)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestUsageCountsEveryLiveBox(t *testing.T) {
	r := newRig(t)
	live, dead := r.create(), r.create()
	b, err := r.find(dead)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(int(b.container.Load().pid.Load()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.await(dead, enginev1.BoxState_BOX_STATE_ENDED)
	folder := filepath.Join(r.boxDir(live), "overlay")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "layer"), make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	all := r.Usage(time.UnixMilli(5))
	if len(all) != 1 {
		t.Fatalf("%v (expected: the live one)", all)
	}
	u := all[0]
	if u.GetBoxId() != live || u.GetAtUnixMs() != 5 || u.GetMemoryBytes() == 0 || u.GetMemoryPeakBytes() < u.GetMemoryBytes() || u.GetProcesses() != 1 ||
		u.GetDiskBytes() < 1<<20 || u.GetLimits().GetMemoryBytes() != 64<<20 {
		t.Fatalf("%v", u)
	}
}

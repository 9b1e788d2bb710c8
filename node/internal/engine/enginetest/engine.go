// Package enginetest runs the real engine, with real sandboxes, for tests.
package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
	"atoll/node/gen/execv1"
	"atoll/node/internal/cgroup"
	"atoll/node/internal/engine"
	"atoll/node/internal/patience"
)

// Engine is one engine process with its own instance, data and socket.
type Engine struct {
	enginev1.EngineClient

	t        testing.TB
	Instance string
	Data     string
	Run      string
	// FailPoints are the steps that fail in an engine that is launched from now on, as its flag --fail-points says.
	FailPoints string
	// Flags are more flags for an engine that is launched from now on.
	Flags []string
	// Runsc is the folder of the build that an engine gets which is launched from now on; empty: the newest.
	Runsc   string
	binary  string
	process *exec.Cmd
	log     *lockedBuffer
	epoch   uint64
	conn    *grpc.ClientConn
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Start builds the engine, starts it, claims it, and purges its instance when the test ends.
func Start(t testing.TB) *Engine {
	t.Helper()
	return StartIn(t, "")
}

// StartIn is Start with a data folder of the caller's.
func StartIn(t testing.TB, data string) *Engine {
	t.Helper()
	return StartWith(t, data)
}

// StartWith is StartIn with more flags.
func StartWith(t testing.TB, data string, flags ...string) *Engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the engine's tests need root (remedy: run them with sudo)")
	}
	e := &Engine{t: t, Instance: "t" + strings.ToLower(randomText(8)), log: &lockedBuffer{}, binary: build(t), Flags: flags}
	if e.Data = data; data == "" {
		e.Data = t.TempDir()
	}
	e.Run = "/run/atoll-" + e.Instance
	t.Cleanup(e.purge)
	e.Launch()
	return e
}

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "atoll-engine-test")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "atoll-engine")
	if output, err := exec.Command("go", "build", "-race", "-o", binary, "atoll/node/cmd/atoll-engine").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	// It lives in limits that the race detector's memory does not fit in.
	images := exec.Command("go", "build", "-o", filepath.Join(dir, "atoll-image"), "atoll/node/cmd/atoll-image")
	images.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := images.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return binary, nil
})

func build(t testing.TB) string {
	t.Helper()
	if binary := os.Getenv("ATOLL_ENGINE"); binary != "" {
		return binary
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// RemoveBuild removes the binary that Start built; for TestMain.
func RemoveBuild() {
	if os.Getenv("ATOLL_ENGINE") != "" {
		return
	}
	if binary, err := buildOnce(); err == nil {
		os.RemoveAll(filepath.Dir(binary))
	}
}

func cache() string {
	if dir := os.Getenv("ATOLL_CACHE"); dir != "" {
		return dir
	}
	return "/var/cache/atoll"
}

// newest is the file or folder that matches and was changed last.
func newest(t testing.TB, what, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var found string
	var changed time.Time
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(changed) {
			found, changed = path, info.ModTime()
		}
	}
	if found == "" {
		t.Fatalf("no %s matches %s (remedy: ./atoll up builds it)", what, pattern)
	}
	return found
}

// BuiltFiles are what ./atoll builds and tests with real sandboxes need.
type BuiltFiles struct {
	t                    testing.TB
	Runsc, Agent, Images string
}

// Files finds the newest builds, and fails the test if there are none.
func Files(t testing.TB) BuiltFiles {
	t.Helper()
	f := BuiltFiles{t: t, Runsc: os.Getenv("ATOLL_RUNSC"), Agent: os.Getenv("ATOLL_AGENT_IMAGE"), Images: filepath.Join(cache(), "images")}
	if f.Agent == "" {
		f.Agent = newest(t, "agent image", filepath.Join(cache(), "agent", "*.erofs"))
	}
	if f.Runsc == "" {
		f.Runsc = filepath.Dir(newest(t, "runsc build", filepath.Join(cache(), "runsc", "*", "VERSION")))
	}
	return f
}

// Image is the path of the newest image with a name.
func (f BuiltFiles) Image(name string) string {
	f.t.Helper()
	return newest(f.t, name+" image", filepath.Join(f.Images, name+"-*.erofs"))
}

func (e *Engine) flags() []string {
	f := Files(e.t)
	if e.Runsc != "" {
		f.Runsc = e.Runsc
	}
	return append([]string{
		"--data", e.Data, "--run", e.Run, "--instance", e.Instance, "--runsc", f.Runsc,
		"--agent-image", f.Agent, "--images", f.Images, "--socket-group", "root", "--fail-points", e.FailPoints,
	}, e.Flags...)
}

// Launch starts the process and connects; also after Kill.
func (e *Engine) Launch() {
	e.t.Helper()
	e.process = exec.Command(e.binary, e.flags()...)
	e.process.Stderr = e.log
	if err := e.process.Start(); err != nil {
		e.t.Fatal(err)
	}
	if e.conn == nil {
		conn, err := grpc.NewClient("unix://"+filepath.Join(e.Run, "engine.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(e.unary), grpc.WithStreamInterceptor(e.stream),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(20<<20), grpc.WaitForReady(true)),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
		if err != nil {
			e.t.Fatal(err)
		}
		e.conn = conn
		e.EngineClient = enginev1.NewEngineClient(conn)
	}
	e.conn.ResetConnectBackoff()
	e.epoch++
	ctx, cancel := context.WithTimeout(context.Background(), patience.Of(20*time.Second))
	defer cancel()
	_, err := e.Claim(ctx, &enginev1.ClaimRequest{Epoch: e.epoch})
	for status.Code(err) == codes.Unavailable {
		// Sent over the connection to the process before, which has just been found dead.
		_, err = e.Claim(ctx, &enginev1.ClaimRequest{Epoch: e.epoch})
	}
	if err != nil {
		e.t.Fatalf("the engine does not answer: %v\n%s", err, e.log.String())
	}
}

func (e *Engine) withEpoch(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, engine.EpochKey, strconv.FormatUint(e.epoch, 10))
}

func (e *Engine) unary(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	return invoke(e.withEpoch(ctx), method, request, reply, c, o...)
}

func (e *Engine) stream(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, streamer grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	return streamer(e.withEpoch(ctx), d, c, method, o...)
}

// Kill ends the process as kill -9 does.
func (e *Engine) Kill() {
	e.t.Helper()
	if err := e.process.Process.Kill(); err != nil {
		e.t.Fatal(err)
	}
	_ = e.process.Wait()
	e.process = nil
}

// Pid of the engine process.
func (e *Engine) Pid() int { return e.process.Process.Pid }

// Log is what the engine wrote.
func (e *Engine) Log() string { return e.log.String() }

func (e *Engine) purge() {
	if e.conn != nil {
		e.conn.Close()
	}
	if e.process != nil {
		_ = e.process.Process.Kill()
		_ = e.process.Wait()
	}
	if output, err := exec.Command(e.binary, append([]string{"purge"}, e.flags()...)...).CombinedOutput(); err != nil {
		e.t.Errorf("purge: %v: %s", err, output)
	}
	if strings.Contains(e.log.String(), "DATA RACE") || strings.Contains(e.log.String(), "panic:") {
		e.t.Error("the engine had a data race or a panic")
	}
	if e.t.Failed() {
		e.t.Logf("engine's log:\n%s", e.log.String())
	}
}

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = crockford[b[i]&31]
	}
	return string(b)
}

// NewID returns a fresh id with a prefix.
func NewID(prefix string) string { return prefix + "-" + randomText(26) }

// Image returns the newest image with a name.
func (e *Engine) Image(ctx context.Context, name string) *enginev1.Image {
	e.t.Helper()
	reply, err := e.ListImages(ctx, &enginev1.ListImagesRequest{})
	if err != nil {
		e.t.Fatal(err)
	}
	var found *enginev1.Image
	for _, i := range reply.GetImages() {
		if i.GetName() == name && (found == nil || i.GetBuiltAtUnixMs() > found.GetBuiltAtUnixMs()) {
			found = i
		}
	}
	if found == nil {
		e.t.Fatalf("no image %q (remedy: ./atoll up builds it)", name)
	}
	return found
}

// Sandbox is a box with one warm context.
type Sandbox struct {
	e       *Engine
	Box     string
	Context string
}

// Request is what CreateBox is asked for a sandbox with one context.
func (e *Engine) Request(ctx context.Context, image, language string) *enginev1.CreateBoxRequest {
	return &enginev1.CreateBoxRequest{BoxId: NewID("box"), Spec: &enginev1.BoxSpec{
		ImageDigest:  e.Image(ctx, image).GetDigest(),
		WarmContexts: []*execv1.ContextSpec{{ContextId: NewID("ctx"), Language: language}},
	}}
}

// Python makes and assigns a box with a Python context.
func (e *Engine) Python(ctx context.Context) *Sandbox {
	e.t.Helper()
	request := e.Request(ctx, "python", "python")
	if _, err := e.CreateBox(ctx, request); err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.AssignBox(ctx, &enginev1.AssignBoxRequest{BoxId: request.GetBoxId(), SandboxId: NewID("sb-exec"), Hostname: "box"}); err != nil {
		e.t.Fatal(err)
	}
	return e.Sandbox(request)
}

// Sandbox of a box that was made by a request.
func (e *Engine) Sandbox(request *enginev1.CreateBoxRequest) *Sandbox {
	return &Sandbox{e: e, Box: request.GetBoxId(), Context: request.GetSpec().GetWarmContexts()[0].GetContextId()}
}

// Plain is a client that adds no epoch of its own.
func (e *Engine) Plain() enginev1.EngineClient {
	conn, err := grpc.NewClient("unix://"+filepath.Join(e.Run, "engine.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { conn.Close() })
	return enginev1.NewEngineClient(conn)
}

// CPUOf reads how much CPU time a box has used, from the host's side.
func (e *Engine) CPUOf(box string) time.Duration {
	e.t.Helper()
	groups, err := cgroup.Detect(cgroup.Root, e.Instance)
	if err != nil {
		e.t.Fatal(err)
	}
	usage, err := groups.Open(box).Usage()
	if err != nil {
		e.t.Fatal(err)
	}
	return usage.CPU
}

// Result is all that one execution said.
type Result struct {
	ID             string
	Stdout, Stderr []byte
	Gaps           []*execv1.Gap
	Results        []*execv1.Result
	Finished       *execv1.Finished
	LastSeq        uint64
}

// Collect reads a stream of events to its end, checking the order of seqs and offsets.
func Collect(stream grpc.ServerStreamingClient[execv1.ExecutionEvent], r *Result) error {
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if r.Finished == nil {
				return errors.New("the stream ended before the execution")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if event.GetSeq() <= r.LastSeq || (event.GetSeq() != r.LastSeq+1 && len(r.Gaps) == 0 && event.GetGap() == nil) {
			return fmt.Errorf("seq %d after %d", event.GetSeq(), r.LastSeq)
		}
		r.LastSeq = event.GetSeq()
		switch x := event.GetEvent().(type) {
		case *execv1.ExecutionEvent_Output:
			if x.Output.GetStream() == execv1.Stream_STREAM_STDOUT {
				r.Stdout = append(r.Stdout, x.Output.GetData()...)
			} else {
				r.Stderr = append(r.Stderr, x.Output.GetData()...)
			}
		case *execv1.ExecutionEvent_Gap:
			r.Gaps = append(r.Gaps, x.Gap)
		case *execv1.ExecutionEvent_Result:
			r.Results = append(r.Results, x.Result)
		case *execv1.ExecutionEvent_Finished:
			r.Finished = x.Finished
		}
	}
}

// Begin starts code and returns the stream of its events.
func (s *Sandbox) Begin(ctx context.Context, id, code string) (grpc.ServerStreamingClient[execv1.ExecutionEvent], error) {
	return s.e.Execute(ctx, &enginev1.ExecuteRequest{BoxId: s.Box, Spec: &execv1.ExecutionSpec{ExecutionId: id, ContextId: s.Context, Code: code}})
}

// Run runs code to its end and forgets it.
func (s *Sandbox) Run(ctx context.Context, code string) *Result {
	s.e.t.Helper()
	r, err := s.TryRun(ctx, code)
	if err != nil {
		s.e.t.Fatal(err)
	}
	return r
}

// TryRun is Run for goroutines.
func (s *Sandbox) TryRun(ctx context.Context, code string) (*Result, error) {
	r := &Result{ID: NewID("exec")}
	stream, err := s.Begin(ctx, r.ID, code)
	if err != nil {
		return nil, err
	}
	if err := Collect(stream, r); err != nil {
		return nil, err
	}
	_, err = s.e.ForgetExecutions(ctx, &enginev1.ForgetExecutionsRequest{ExecutionIds: []string{r.ID}})
	return r, err
}

// Forget drops an execution.
func (s *Sandbox) Forget(ctx context.Context, id string) {
	s.e.t.Helper()
	if _, err := s.e.ForgetExecutions(ctx, &enginev1.ForgetExecutionsRequest{ExecutionIds: []string{id}}); err != nil {
		s.e.t.Fatal(err)
	}
}

// Remove deletes a box.
func (e *Engine) Remove(ctx context.Context, box string) error {
	_, err := e.DeleteBox(ctx, &enginev1.BoxRequest{BoxId: box})
	return err
}

// Delete deletes the box.
func (s *Sandbox) Delete(ctx context.Context) {
	s.e.t.Helper()
	if err := s.e.Remove(ctx, s.Box); err != nil {
		s.e.t.Fatal(err)
	}
}

// Pause pauses the box.
func (s *Sandbox) Pause(ctx context.Context) *enginev1.Box {
	s.e.t.Helper()
	b, err := s.e.PauseBox(ctx, &enginev1.PauseBoxRequest{BoxId: s.Box, SnapshotId: NewID("snap")})
	if err != nil {
		s.e.t.Fatal(err)
	}
	return b
}

// Resume goes on with the box.
func (s *Sandbox) Resume(ctx context.Context) *enginev1.Box {
	s.e.t.Helper()
	b, err := s.e.ResumeBox(ctx, &enginev1.ResumeBoxRequest{BoxId: s.Box})
	if err != nil {
		s.e.t.Fatal(err)
	}
	return b
}

// Snapshot makes a snapshot of the box.
func (s *Sandbox) Snapshot(ctx context.Context, kind enginev1.SnapshotKind) *enginev1.Snapshot {
	s.e.t.Helper()
	made, err := s.e.CreateSnapshot(ctx, &enginev1.CreateSnapshotRequest{BoxId: s.Box, SnapshotId: NewID("snap"), Kind: kind})
	if err != nil {
		s.e.t.Fatal(err)
	}
	return made
}

// Restore makes a box from a snapshot, assigned to a sandbox of its own. Its context is the one that the snapshot's box had.
func (e *Engine) Restore(ctx context.Context, request *enginev1.RestoreBoxRequest, contextID string) *Sandbox {
	e.t.Helper()
	request.BoxId = NewID("box")
	request.Assignment = &enginev1.AssignBoxRequest{BoxId: request.GetBoxId(), SandboxId: NewID("sb-exec"), Hostname: "restored"}
	if _, err := e.RestoreBox(ctx, request); err != nil {
		e.t.Fatal(err)
	}
	return &Sandbox{e: e, Box: request.GetBoxId(), Context: contextID}
}

// Ended says whether the process has ended by itself, within some time.
func (e *Engine) Ended(within time.Duration) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", e.Pid()))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return true
		}
	}
	return false
}

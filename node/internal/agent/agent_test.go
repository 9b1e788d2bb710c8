package agent_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agentrpc"
	"atoll/node/internal/frame"
)

// The tests drive the real binary, as root, over FIFOs, with the frame layer's host side and the real kernels. Outside gVisor the
// sandbox's file system is this machine's: the user is root or `nobody`, so that nothing is added to /etc/passwd.

var agentBinary string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "atoll-agent-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	// The kernels run as another user and must reach the binary.
	if err := os.Chmod(folder, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	agentBinary = filepath.Join(folder, "atoll-agent")
	build := buildCommand("../../cmd/atoll-agent")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the agent:", err)
		return 1
	}
	return m.Run()
}

// box is one agent and the connection to it.
type box struct {
	t       *testing.T
	command *exec.Cmd
	in, out *os.File
	inPath  string
	outPath string
	key     [32]byte
	epoch   uint64
	session *frame.Session
	hello   *agentv1.HelloRequest
	log     *tailWriter
	meminfo string
	home    string
	// life ends when the agent does, and with it every call that waits for an answer.
	life    context.Context
	endLife context.CancelCauseFunc
	closing atomic.Bool
	gone    chan struct{} // closed when the agent's end was noticed
}

type tailWriter struct {
	mu   sync.Mutex
	text []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	return len(p), nil
}

func (w *tailWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}

func pythonKernel(t *testing.T) *agentv1.Kernel {
	t.Helper()
	kernel, err := filepath.Abs("../../../kernels/python/kernel.py")
	if err != nil {
		t.Fatal(err)
	}
	return &agentv1.Kernel{Language: "python", Argv: []string{pythonPath(t), kernel}}
}

// pythonPath is an interpreter that any user may run.
func pythonPath(t *testing.T) string {
	t.Helper()
	for _, candidate := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(candidate); err == nil {
			return candidate
		}
	}
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatalf("no python3 (apt-get install python3): %v", err)
	}
	return strings.TrimSpace(string(out))
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := startBox(t, "/proc/meminfo")
	b.sayHello()
	return b
}

func startBox(t *testing.T, meminfo string) *box {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("the agent's tests make namespaces: run them as root")
	}
	home := t.TempDir()
	for folder := home; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, log: &tailWriter{}, inPath: filepath.Join(home, "in"), outPath: filepath.Join(home, "out"), meminfo: meminfo}
	if _, err := rand.Read(b.key[:]); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{b.inPath, b.outPath} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) *os.File {
		// O_NONBLOCK would go with the description to the agent.
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	stdin, stdout := open(b.inPath), open(b.outPath)
	defer stdin.Close()
	defer stdout.Close()
	b.home = home
	if !filepath.IsAbs(meminfo) {
		b.meminfo = filepath.Join(home, meminfo)
		if err := os.WriteFile(b.meminfo, []byte("MemTotal: 262144 kB\nMemAvailable:  200000 kB\nMemFree: 1 kB\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.life, b.endLife = context.WithCancelCause(context.Background())
	b.gone = make(chan struct{})
	b.launch(stdin, stdout)
	go b.watch()
	b.hello = &agentv1.HelloRequest{
		BoxId: "box-test", User: "root", Home: home, Workdir: home, Hostname: "sandbox",
		WallTimeUnixMs: time.Now().UnixMilli(), Entropy: []byte("0123456789abcdef0123456789abcdef"),
		Env:     map[string]string{"PATH": os.Getenv("PATH"), "GREETING": "hello"},
		Kernels: []*agentv1.Kernel{pythonKernel(t)},
		Limits:  ownLimits(),
	}
	b.connect()
	t.Cleanup(b.close)
	return b
}

// watch fails the test at once when the agent ends by itself: nobody else would notice, as the FIFOs stay open.
func (b *box) watch() {
	defer close(b.gone)
	err := b.command.Wait()
	b.endLife(fmt.Errorf("the agent has ended: %w", cmp.Or(err, io.EOF)))
	if !b.closing.Load() {
		b.t.Errorf("the agent has ended by itself: %v", err)
	}
}

func (b *box) connect() {
	b.t.Helper()
	b.connectBy(func(out *os.File) io.Writer { return out })
}

// connectBy is connect with something between the host and its end of the pipe.
func (b *box) connectBy(between func(out *os.File) io.Writer) {
	b.t.Helper()
	var err error
	if b.in, err = frame.OpenFIFO(b.outPath); err != nil {
		b.t.Fatal(err)
	}
	if b.out, err = frame.OpenFIFO(b.inPath); err != nil {
		b.t.Fatal(err)
	}
	b.epoch++
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if b.session, err = frame.Connect(ctx, b.in, between(b.out), frame.HostOptions{Epoch: b.epoch, Key: b.key, MaxMessage: 20 << 20}); err != nil {
		b.t.Fatalf("connecting: %v; log:\n%s", err, b.log)
	}
}

func (b *box) disconnect() {
	_ = b.session.Close()
	_ = b.in.Close()
	_ = b.out.Close()
}

func (b *box) close() {
	b.disconnect()
	b.closing.Store(true)
	b.shutDown()
	if b.t.Failed() {
		b.t.Logf("agent's log:\n%s", b.log)
	}
	if strings.Contains(b.log.String(), "DATA RACE") {
		b.t.Errorf("the agent has a data race:\n%s", b.log)
	}
}

// eventually waits for a condition and prints what was seen last when it does not come.
func (b *box) eventually(what string, check func() error) {
	b.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func call[Request, Reply proto.Message](b *box, method string, request Request, reply Reply) error {
	ctx, cancel := context.WithTimeout(b.life, 60*time.Second)
	defer cancel()
	return frame.Call(ctx, b.session, method, request, reply)
}

func (b *box) sayHello() *agentv1.HelloReply {
	b.t.Helper()
	reply := &agentv1.HelloReply{}
	b.hello.WallTimeUnixMs = time.Now().UnixMilli()
	if err := call(b, agentrpc.Hello, b.hello, reply); err != nil {
		b.t.Fatalf("hello: %v; log:\n%s", err, b.log)
	}
	return reply
}

func (b *box) open(id, language string) *execv1.Context {
	b.t.Helper()
	return b.openSpec(&execv1.ContextSpec{ContextId: id, Language: language})
}

func (b *box) openSpec(spec *execv1.ContextSpec) *execv1.Context {
	b.t.Helper()
	reply := &agentv1.OpenContextReply{}
	if err := call(b, agentrpc.OpenContext, &agentv1.OpenContextRequest{Spec: spec}, reply); err != nil {
		b.t.Fatalf("opening context %s: %v; log:\n%s", spec.ContextId, err, b.log)
	}
	if reply.Context.State != execv1.ContextState_CONTEXT_STATE_IDLE {
		b.t.Fatalf("context %s: %v; log:\n%s", spec.ContextId, reply.Context, b.log)
	}
	return reply.Context
}

// run is an execution seen from the engine.
type run struct {
	t        *testing.T
	id       string
	stream   *frame.Stream
	cancel   context.CancelFunc
	events   []*execv1.ExecutionEvent
	stdout   []byte
	stderr   []byte
	order    []byte // both streams in the order in which they came
	results  []*execv1.Result
	finished *execv1.Finished
	took     time.Duration
	began    time.Time
}

func (b *box) begin(spec *execv1.ExecutionSpec) *run {
	b.t.Helper()
	return b.request(spec.ExecutionId, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Start{Start: spec}})
}

func (b *box) attach(id string, after uint64) *run {
	b.t.Helper()
	return b.request(id, &agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_Attach{Attach: &agentv1.Attach{ExecutionId: id, AfterSeq: after}}})
}

func (b *box) request(id string, first *agentv1.ExecuteRequest) *run {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.life, 90*time.Second)
	stream, err := b.session.Open(ctx, agentrpc.Execute)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := stream.Send(first); err != nil {
		b.t.Fatal(err)
	}
	return &run{t: b.t, id: id, stream: stream, cancel: cancel, began: time.Now()}
}

// next receives one event and does not acknowledge it.
func (r *run) next() (*execv1.ExecutionEvent, error) {
	event := &execv1.ExecutionEvent{}
	if err := r.stream.Receive(event); err != nil {
		return nil, err
	}
	r.events = append(r.events, event)
	switch body := event.Event.(type) {
	case *execv1.ExecutionEvent_Output:
		mine := &r.stdout
		if body.Output.Stream == execv1.Stream_STREAM_STDERR {
			mine = &r.stderr
		}
		if int(body.Output.Offset) != len(*mine) {
			r.t.Errorf("%s: output at offset %d (expected: %d)", r.id, body.Output.Offset, len(*mine))
		}
		if len(body.Output.Data) > 64<<10 || len(body.Output.Data) == 0 {
			r.t.Errorf("%s: chunk of %d bytes", r.id, len(body.Output.Data))
		}
		*mine = append(*mine, body.Output.Data...)
		r.order = append(r.order, body.Output.Data...)
	case *execv1.ExecutionEvent_Result:
		r.results = append(r.results, body.Result)
	case *execv1.ExecutionEvent_Finished:
		r.finished = body.Finished
		r.took = time.Since(r.began)
	}
	return event, nil
}

func (r *run) acknowledge(seq uint64) error {
	return r.stream.Send(&agentv1.ExecuteRequest{Message: &agentv1.ExecuteRequest_AcknowledgeSeq{AcknowledgeSeq: seq}})
}

// wait receives and acknowledges everything to the end.
func (r *run) wait() *run {
	r.t.Helper()
	defer r.cancel()
	for r.finished == nil {
		event, err := r.next()
		if err != nil {
			r.t.Fatalf("%s: %v after %d events", r.id, err, len(r.events))
		}
		if err := r.acknowledge(event.Seq); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.stream.Receive(&execv1.ExecutionEvent{}); !errors.Is(err, io.EOF) {
		r.t.Fatalf("%s: after the last acknowledgement: %v (expected: the end)", r.id, err)
	}
	for i, event := range r.events[1:] {
		if event.Seq != r.events[i].Seq+1 {
			r.t.Fatalf("%s: event %d follows %d", r.id, event.Seq, r.events[i].Seq)
		}
	}
	if int(r.finished.StdoutBytes) != len(r.stdout) && r.events[0].Seq == 1 {
		r.t.Fatalf("%s: %d bytes on stdout (finished says: %d)", r.id, len(r.stdout), r.finished.StdoutBytes)
	}
	return r
}

var counter struct {
	sync.Mutex
	n int
}

func newID() string {
	counter.Lock()
	defer counter.Unlock()
	counter.n++
	return fmt.Sprintf("exec-%d", counter.n)
}

func (b *box) exec(contextID, code string) *run {
	b.t.Helper()
	return b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: contextID, Code: code}).wait()
}

func (b *box) execWithin(contextID, code string, limit time.Duration) *run {
	b.t.Helper()
	return b.begin(&execv1.ExecutionSpec{ExecutionId: newID(), ContextId: contextID, Code: code, TimeoutMs: uint32(limit.Milliseconds())}).wait()
}

// prints fails unless the execution completed and printed exactly this.
func (r *run) prints(stdout string) *run {
	r.t.Helper()
	if r.finished.Reason != execv1.ExitReason_EXIT_REASON_COMPLETED || string(r.stdout) != stdout {
		r.t.Fatalf("%s: stdout %q, stderr %q, %v (expected: completed, %q)", r.id, clip(r.stdout), clip(r.stderr), r.finished, stdout)
	}
	return r
}

func (r *run) ends(reason execv1.ExitReason, stateKept bool) *run {
	r.t.Helper()
	if r.finished.Reason != reason || r.finished.StateKept != stateKept {
		r.t.Fatalf("%s: %v, stdout %q, stderr %q (expected: %v, state kept: %t)", r.id, r.finished, clip(r.stdout), clip(r.stderr), reason, stateKept)
	}
	return r
}

func clip(text []byte) []byte {
	if len(text) > 300 {
		return text[:300]
	}
	return text
}

func expectCode(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if frame.StatusOf(err) != code {
		t.Fatalf("%v (expected: %s)", err, code)
	}
}

func TestState_lives_on_between_executions(t *testing.T) {
	b := newBox(t)
	b.open("ctx", "python")
	b.exec("ctx", "x = 1 + 1\nprint(x)").prints("2\n")
	b.exec("ctx", "print(x)").prints("2\n").ends(execv1.ExitReason_EXIT_REASON_COMPLETED, true)
}

func TestCode_may_begin_with_a_byte_order_mark(t *testing.T) {
	b := newBox(t)
	b.open("ctx", "python")
	b.open("sh", "bash")
	b.exec("ctx", "\uFEFFprint(1)").prints("1\n")
	b.exec("sh", "\uFEFFecho 1").prints("1\n")
}

func TestContext_starts_in_a_folder_named_as_files_are(t *testing.T) {
	b := newBox(t)
	if err := os.Mkdir(filepath.Join(b.home, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, named := range []string{"~", "sub", "~/sub", b.home + "/sub"} {
		folder := b.home
		if i > 0 {
			folder += "/sub"
		}
		id := fmt.Sprint("ctx", i)
		if context := b.openSpec(&execv1.ContextSpec{ContextId: id, Language: "bash", Cwd: named}); context.Cwd != folder {
			t.Errorf("%s: %s (expected: %s)", named, context.Cwd, folder)
		}
		b.exec(id, "pwd").prints(folder + "\n")
	}
}

func TestBash_keeps_variables_functions_and_folder(t *testing.T) {
	b := newBox(t)
	b.open("sh", "bash")
	b.exec("sh", "x=1; f() { echo \"f $x\"; }; alias hi='echo hi there'; cd /usr; false").ends(execv1.ExitReason_EXIT_REASON_COMPLETED, true)
	b.exec("sh", "echo $?; f; hi; pwd").prints("1\nf 1\nhi there\n/usr\n")
}

// Package test runs real sandboxes with the runsc that build.sh makes.
package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const answerLimit = 20 * time.Second

// bench is a runsc with a root folder and an EROFS image of its own.
type bench struct {
	t       *testing.T
	runsc   string
	folder  string
	overlay string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("runsc needs root (remedy: run the test with sudo)")
	}
	build, err := exec.Command("../build.sh").Output()
	if err != nil {
		t.Fatalf("build.sh: %v%s", err, stderrOf(err))
	}
	b := &bench{t: t, runsc: filepath.Join(strings.TrimSpace(string(build)), "runsc"), folder: t.TempDir()}
	b.overlay = filepath.Join(b.folder, "overlay")
	for _, name := range []string{"overlay", "empty", "root", "image", "log"} {
		if err := os.Mkdir(filepath.Join(b.folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.must("go", "build", "-o", filepath.Join(b.folder, "image/guest"), "./guest")
	b.must("mkfs.erofs", "-Enoinline_data", b.image(), filepath.Join(b.folder, "image"))
	t.Cleanup(func() {
		// Left by runsc on cgroup v1 machines where a gofer ran; absent is fine.
		err := unix.Unmount(filepath.Join(b.folder, "root/null-netns"), unix.MNT_DETACH)
		if err != nil && err != unix.ENOENT && err != unix.EINVAL {
			t.Errorf("null-netns: %v", err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mounts), b.folder) {
			t.Errorf("a mount below %s is left", b.folder)
		}
	})
	return b
}

func (b *bench) image() string { return filepath.Join(b.folder, "image.erofs") }

func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return "\n" + string(exit.Stderr)
	}
	return ""
}

func (b *bench) must(name string, arguments ...string) string {
	b.t.Helper()
	command := exec.Command(name, arguments...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := command.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

func (b *bench) command(arguments ...string) *exec.Cmd {
	flags := []string{
		"--root=" + filepath.Join(b.folder, "root"), "--network=none", "--ignore-cgroups",
		"--sidecar-usage-policy=STRICT", "--host-settings=ignore", "--overlay2=root:dir=" + b.overlay,
		"--debug", "--debug-log=" + filepath.Join(b.folder, "log") + "/",
	}
	return exec.Command(b.runsc, append(flags, arguments...)...)
}

// bundle writes an OCI bundle whose root is the image with a 64 MiB overlay.
func (b *bench) bundle(id string) string {
	b.t.Helper()
	folder := filepath.Join(b.folder, "bundle-"+id)
	if err := os.Mkdir(folder, 0o755); err != nil {
		b.t.Fatal(err)
	}
	spec := map[string]any{
		"ociVersion": "1.2.0",
		"root":       map[string]any{"path": filepath.Join(b.folder, "empty")},
		"process":    map[string]any{"args": []string{"/guest"}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0}},
		"annotations": map[string]string{
			"dev.gvisor.spec.rootfs.source":  b.image(),
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.overlay": "dir=" + b.overlay,
			"dev.gvisor.spec.rootfs.options": "size=64m",
		},
		"linux": map[string]any{"namespaces": []map[string]string{
			{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"},
		}},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), text, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return folder
}

// guest is the standard input and output of one sandbox.
type guest struct {
	t     *testing.T
	bench *bench
	id    string
	in    *os.File
	lines chan string
}

// attach makes pipes, lets start use their far ends, and deletes the sandbox
// when the test ends.
func (b *bench) attach(id string, start func(stdin, stdout *os.File)) *guest {
	b.t.Helper()
	stdin, in, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	g := &guest{t: b.t, bench: b, id: id, in: in, lines: make(chan string, 16)}
	b.t.Cleanup(func() {
		if text, err := b.command("delete", "--force", id).CombinedOutput(); err != nil {
			b.t.Errorf("delete %s: %v\n%s", id, err, text)
		}
		in.Close()
		out.Close()
	})
	start(stdin, stdout)
	stdin.Close()
	stdout.Close()
	go func() {
		defer close(g.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			g.lines <- scanner.Text()
		}
	}()
	return g
}

func (b *bench) run(id string) *guest {
	b.t.Helper()
	bundle := b.bundle(id)
	g := b.attach(id, func(stdin, stdout *os.File) {
		create := b.command("create", "--bundle="+bundle, id)
		create.Stdin, create.Stdout, create.Stderr = stdin, stdout, stdout
		if err := create.Run(); err != nil {
			b.t.Fatalf("create: %v\n%s", err, b.logs())
		}
		if text, err := b.command("start", id).CombinedOutput(); err != nil {
			b.t.Fatalf("start: %v\n%s", err, text)
		}
	})
	if got := g.next(); got != "ready" {
		b.t.Fatalf("first line: %q (expected: ready)", got)
	}
	return g
}

// goferPid reads what runsc remembers of the sandbox; 0 means no gofer.
func (b *bench) goferPid(id string) int {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.folder, "root", id+"_sandbox:"+id+".state"))
	if err != nil {
		b.t.Fatal(err)
	}
	var state struct{ GoferPid *int }
	if err := json.Unmarshal(text, &state); err != nil {
		b.t.Fatal(err)
	}
	if state.GoferPid == nil {
		b.t.Fatalf("no goferPid in the state: %s", text)
	}
	return *state.GoferPid
}

func (b *bench) logs() string {
	var all strings.Builder
	paths, err := filepath.Glob(filepath.Join(b.folder, "log/*"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintf(&all, "== %s\n%s", filepath.Base(path), text)
	}
	return all.String()
}

func (g *guest) next() string {
	g.t.Helper()
	select {
	case line, ok := <-g.lines:
		if !ok {
			g.t.Fatalf("%s: its output ended\n%s", g.id, g.bench.logs())
		}
		return line
	case <-time.After(answerLimit):
		g.t.Fatalf("%s: no answer within %s\n%s", g.id, answerLimit, g.bench.logs())
	}
	return ""
}

func (g *guest) ask(word string) string {
	g.t.Helper()
	if _, err := io.WriteString(g.in, word+"\n"); err != nil {
		g.t.Fatal(err)
	}
	return g.next()
}

func TestAllBinariesCarryTheVersionOfTheBuild(t *testing.T) {
	b := newBench(t)
	folder := filepath.Dir(b.runsc)
	version, err := os.ReadFile(filepath.Join(folder, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(version), "atoll-") {
		t.Errorf("VERSION is %q (expected: atoll-…)", version)
	}
	for _, binary := range []string{"runsc", "gvisor-bin/gvisor_sentry"} {
		first, _, _ := strings.Cut(b.must(filepath.Join(folder, binary), "--version"), "\n")
		if want := "runsc version " + strings.TrimSpace(string(version)); first != want {
			t.Errorf("%s says %q (expected: %q)", binary, first, want)
		}
	}
}

func TestOverlayOnDiskStopsAtItsQuotaWithoutAGofer(t *testing.T) {
	b := newBench(t)
	g := b.run("quota")
	if got := g.ask("fill"); got < "ENOSPC after 60 MiB" || got > "ENOSPC after 64 MiB" {
		t.Errorf("filling a 64 MiB overlay: %q (expected: ENOSPC after 60 to 64 MiB)", got)
	}
	names, err := os.ReadDir(b.overlay)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 0 {
		t.Errorf("%d names in the overlay's folder (expected: none, its file is unlinked)", len(names))
	}
	if pid := b.goferPid("quota"); pid != 0 {
		t.Errorf("a gofer was started, pid %d (expected: none)", pid)
	}
}

func TestSandboxUsesTheCompiledSeccompProgram(t *testing.T) {
	b := newBench(t)
	b.run("seccomp")
	log := b.logs()
	if !strings.Contains(log, "Loaded precompiled seccomp instructions") {
		t.Errorf("the sentry compiled its filter at start\n%s", log)
	}
}

// checkpoint makes a snapshot of a sandbox that goes on.
func (b *bench) checkpoint(id string) (image string) {
	b.t.Helper()
	image = filepath.Join(b.folder, "snapshot-of-"+id)
	if text, err := b.command("checkpoint", "--leave-running", "--image-path="+image, id).CombinedOutput(); err != nil {
		b.t.Fatalf("checkpoint: %v\n%s", err, text)
	}
	return image
}

func (b *bench) restore(id, image string) *guest {
	b.t.Helper()
	bundle := b.bundle(id)
	return b.attach(id, func(stdin, stdout *os.File) {
		restore := b.command("restore", "--detach", "--bundle="+bundle, "--image-path="+image, id)
		restore.Stdin, restore.Stdout, restore.Stderr = stdin, stdout, stdout
		if err := restore.Run(); err != nil {
			b.t.Fatalf("restore: %v\n%s", err, b.logs())
		}
	})
}

func TestRestoredSandboxGoesOnWithItsState(t *testing.T) {
	b := newBench(t)
	source := b.run("source")
	if got := source.ask("count"); got != "1" {
		t.Fatalf("count: %s (expected: 1)", got)
	}
	restored := b.restore("copy", b.checkpoint("source"))
	for name, g := range map[string]*guest{"source": source, "copy": restored} {
		if got := g.ask("count"); got != "2" {
			t.Errorf("count in the %s: %s (expected: 2)", name, got)
		}
	}
}

func TestMissingSidecarFailsInsteadOfStartingSlowly(t *testing.T) {
	b := newBench(t)
	create := b.command("create", "--bundle="+b.bundle("strict"), "strict")
	create.Env = append(os.Environ(), "GVISOR_SIDECAR_BINARIES_DIR="+filepath.Join(b.folder, "empty"))
	text, err := create.CombinedOutput()
	if err == nil {
		t.Fatal("create worked without its sentry (expected: an error)")
	}
	if !strings.Contains(string(text), "gvisor_sentry") {
		t.Errorf("error: %s (expected: one that names gvisor_sentry)", text)
	}
}

func TestPrewarmerGrowsTheTableAndBecomesTheBinary(t *testing.T) {
	b := newBench(t)
	prewarmer := filepath.Join(filepath.Dir(b.runsc), "gvisor-bin/gvisor-sentry-prewarmer")
	out := b.must(prewarmer, "/bin/sh", "sh", "-c", `grep FDSize /proc/$$/status; echo "$0 $1"`, "name", "argument")
	if want := "FDSize:\t256\nname argument\n"; out != want {
		t.Errorf("got %q (expected: %q)", out, want)
	}
	if text, err := exec.Command(prewarmer, "/no/such/binary", "x").CombinedOutput(); err == nil || !strings.Contains(string(text), "cannot be executed") {
		t.Errorf("missing binary: %v, %q (expected: a failure that says so)", err, text)
	}
}

func TestMonitorThread_rests_while_the_guest_works(t *testing.T) {
	b := newBench(t)
	g := b.run("monitor")
	sandbox := b.sandboxPid("monitor")
	monitor := secondThread(t, sandbox)
	// The unchanged one sleeps for 20 µs at a time, which the kernel makes 70: some 12000 times a second.
	const most = 1_000_000 / 200
	before, began := sleeps(t, monitor), time.Now()
	for time.Since(began) < 2*time.Second {
		fmt.Fprintln(g.in, "count")
		g.next()
	}
	perSecond := float64(sleeps(t, monitor)-before) / time.Since(began).Seconds()
	if perSecond > most*1.1 || perSecond == 0 {
		t.Errorf("the monitor thread slept %.0f times a second (expected: some, and at most %d)", perSecond, most)
	}
}

func (b *bench) sandboxPid(id string) int {
	b.t.Helper()
	var state struct{ Pid int }
	if err := json.Unmarshal([]byte(b.state(id)), &state); err != nil || state.Pid == 0 {
		b.t.Fatalf("state of %s: %v", id, err)
	}
	return state.Pid
}

func (b *bench) state(id string) string {
	b.t.Helper()
	text, err := b.command("state", id).Output()
	if err != nil {
		b.t.Fatalf("state %s: %v%s", id, err, stderrOf(err))
	}
	return string(text)
}

// secondThread is the monitor: the runtime's main thread starts it before any other.
func secondThread(t *testing.T, pid int) string {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	lowest := 0
	for _, entry := range entries {
		if tid, err := strconv.Atoi(entry.Name()); err == nil && tid != pid && (lowest == 0 || tid < lowest) {
			lowest = tid
		}
	}
	return filepath.Join(folder, strconv.Itoa(lowest), "status")
}

func sleeps(t *testing.T, status string) (n int) {
	t.Helper()
	text, err := os.ReadFile(status)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("%s: %v", status, err)
	}
	return n
}

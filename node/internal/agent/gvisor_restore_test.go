//go:build gvisor

package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
)

// checkpoint stores the box, which goes on, and returns the image's folder.
func (b *box) checkpoint() string {
	b.t.Helper()
	image := filepath.Join(b.t.TempDir(), "image")
	if err := os.Mkdir(image, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if out, err := b.runsc("checkpoint", "--leave-running", "--image-path", image, b.containerID()).CombinedOutput(); err != nil {
		b.t.Fatalf("checkpoint: %v: %s", err, out)
	}
	return image
}

// restore makes another box of an image, with pipes of its own, and connects to it.
func (b *box) restore(image string) *box {
	b.t.Helper()
	folder := b.t.TempDir()
	r := &box{t: b.t, log: &tailWriter{}, inPath: filepath.Join(folder, "in"), outPath: filepath.Join(folder, "out"), meminfo: b.meminfo,
		key: b.key, epoch: b.epoch, home: b.home}
	r.hello = proto.CloneOf(b.hello)
	var pipes []*os.File
	for _, path := range []string{r.inPath, r.outPath} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			b.t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		defer file.Close()
		pipes = append(pipes, file)
	}
	r.life, r.endLife = context.WithCancelCause(context.Background())
	r.gone = make(chan struct{})
	r.runs(pipes[0], pipes[1], "restore", "--bundle", r.bundle(), "--image-path", image, r.containerID())
	go r.watch()
	b.t.Cleanup(r.close)
	r.connect()
	return r
}

// scriptKernel uses an interpreter that the kernels' own tests have fetched: of the folders in the cache the newest that matches.
func scriptKernel(t *testing.T, folder, binaries string, arguments ...string) *agentv1.Kernel {
	t.Helper()
	cache := os.Getenv("ATOLL_CACHE")
	if cache == "" {
		cache = "/var/cache/atoll"
	}
	found, _ := filepath.Glob(filepath.Join(cache, folder, "node_modules", binaries))
	if len(found) == 0 {
		t.Fatalf("no %s under %s (remedy: ./atoll test \"JS kernels\")", folder, cache)
	}
	kernel, err := filepath.Abs(filepath.Join("../../../kernels", strings.TrimSuffix(folder, "-*"), "kernel.js"))
	if err != nil {
		t.Fatal(err)
	}
	return &agentv1.Kernel{Language: "typescript", Argv: append(append([]string{found[len(found)-1]}, arguments...), kernel)}
}

// draws takes one number from each generator that there is.
func (b *box) draws(script, suffix string) map[string]string {
	b.t.Helper()
	drawn := map[string]string{}
	code := "print('Math.random', Math.random()); print('randomUUID', crypto.randomUUID()); print('getRandomValues', crypto.getRandomValues(new Uint32Array(4)).join())\n" +
		"print('node:randomUUID', nodeCrypto.randomUUID()); print('randomBytes', nodeCrypto.randomBytes(16).toString('hex')); print('big', Buffer.from(crypto.getRandomValues(new Uint8Array(4096))).toString('hex').slice(0, 32))\n"
	if script == "node" {
		code += "print('ECDH', nodeCrypto.createECDH('prime256v1').generateKeys('hex')); print('X25519', nodeCrypto.generateKeyPairSync('x25519').publicKey.export({ format: 'jwk' }).x)\n" +
			"print('randomInt', Array.from({ length: 4 }, () => nodeCrypto.randomInt(2 ** 32)).join()); print('key', nodeCrypto.generateKeySync('hmac', { length: 128 }).export().toString('hex'))\n"
	}
	for context, code := range map[string]string{
		"py": "print('random', random.random()); print('ssl', ssl.RAND_bytes(16).hex()); print('uuid1', uuid.uuid1().hex); print('uuid4', uuid.uuid4().hex)\n" +
			"print('secrets', secrets.token_hex()); print('tempfile', next(tempfile._get_candidate_names())); print('SystemRandom', random.SystemRandom().random())",
		"sh":   "echo RANDOM $RANDOM$RANDOM$RANDOM; echo urandom $(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' ')",
		script: code,
	} {
		for line := range strings.Lines(string(b.exec(context+suffix, code).stdout)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			drawn[name] = value
		}
	}
	return drawn
}

// scriptKernels are those of Bun, Node and Deno.
func scriptKernels(t *testing.T) map[string]*agentv1.Kernel {
	t.Helper()
	return map[string]*agentv1.Kernel{
		"bun":  scriptKernel(t, "bun-*", "@oven/bun-linux-*/bin/bun"),
		"node": scriptKernel(t, "node-*", "node-linux-*/bin/node"),
		"deno": scriptKernel(t, "deno-*", "@deno/linux-*/deno", "run", "--quiet", "--allow-all", "--no-config", "--no-lock", "--node-modules-dir=manual"),
	}
}

func TestGvisor_forks_of_one_image_draw_random_numbers_of_their_own(t *testing.T) {
	numbers := map[string]int{"bun": 15, "node": 19, "deno": 15}
	for name, kernel := range scriptKernels(t) {
		t.Run(name, func(t *testing.T) { forksDrawTheirOwn(t, name, kernel, numbers[name]) })
	}
}

func TestGvisor_scripts_are_stopped_and_keep_their_state(t *testing.T) {
	for name, kernel := range scriptKernels(t) {
		t.Run(name, func(t *testing.T) {
			b := startBox(t, "/proc/meminfo")
			b.hello.Kernels = append(b.hello.Kernels, kernel)
			b.sayHello()
			b.open("ts", "typescript")
			b.exec("ts", "let kept: number = 41; const held = setInterval(() => {}, 10)").prints("")
			for _, code := range []string{
				"while (true);",
				"await 1; for (;;) { try { null.x } catch {} }",
				"await new Promise(() => {})",
				"process.stdout.write('x'.repeat(100)); setTimeout(() => { while (true); }, 1); await new Promise(() => {})",
			} {
				if r := b.execWithin("ts", code, 300*time.Millisecond); r.finished.Reason != timedOut || !r.finished.StateKept {
					t.Errorf("%s: %v", code, r.finished)
				}
			}
			b.exec("ts", "process.exit(3)")
			b.exec("ts", "enum Small { One = 1 }; print(kept + Small.One)").prints("42\n")
			b.exec("ts", "print(typeof require('zlib').gzipSync('a'.repeat(1e6)).length, await new Promise(done => require('child_process').exec('echo child', (error, out) => done(out.trim()))))").
				prints("number child\n")
			// The agent ends what a cell waits for and no kernel can leave; the interpreter goes on, or is started afresh.
			if r := b.execWithin("ts", "require('child_process').execSync('trap \"\" INT; sleep 1000')", 300*time.Millisecond); r.finished.Reason != timedOut {
				t.Errorf("%v", r.finished)
			}
			b.exec("ts", "print('again')").prints("again\n")
		})
	}
}

func forksDrawTheirOwn(t *testing.T, name string, kernel *agentv1.Kernel, numbers int) {
	b := startBox(t, "/proc/meminfo")
	b.hello.Kernels = append(b.hello.Kernels, kernel)
	b.sayHello()
	rename := map[string]string{}
	for id, language := range map[string]string{"py": "python", "sh": "bash", name: "typescript"} {
		b.open(id, language)
		rename[id] = id + "2"
	}
	b.exec("py", "import random, secrets, ssl, tempfile, uuid")
	b.exec(name, "const nodeCrypto = require('node:crypto')")
	b.draws(name, "") // so that all of them have a state
	image := b.checkpoint()
	seen := map[string]string{}
	for i, one := range []*box{b.restore(image), b.restore(image), nil} {
		suffix := "2"
		if one == nil {
			one, suffix = b, ""
		} else {
			one.hello.Reconfigure, one.hello.RenameContexts, one.hello.ForgetHeld, one.hello.BoxId = true, rename, true, fmt.Sprint("box-fork-", i)
			one.hello.Hostname = fmt.Sprint("fork-", i)
			one.hello.Entropy = []byte(fmt.Sprintf("%032d", i))
			one.sayHello()
			one.exec("py2", "import os; print(os.environ['HOSTNAME'], os.uname().nodename, open('/etc/hosts').read().count('127.0.1.1'))").
				prints(fmt.Sprintf("fork-%[1]d fork-%[1]d 1\n", i))
		}
		drawn := one.draws(name, suffix)
		if len(drawn) != numbers {
			t.Errorf("%d numbers: %v", len(drawn), drawn)
		}
		for name, value := range drawn {
			if former, twice := seen[value]; twice || value == "" {
				t.Errorf("%s: %s was drawn before (by %s)", name, value, former)
			}
			seen[value] = name
		}
	}
}

func TestGvisor_restored_box_goes_on_where_it_was(t *testing.T) {
	b := newBox(t)
	b.open("py", "python")
	b.open("idle", "python")
	b.exec("idle", "import socket, time\nf = open('kept', 'w+'); f.write('open '); f.flush()\ns = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); d, _ = s.accept()")
	terminal := b.interactive()
	b.typed(terminal, "x=kept\n")
	terminal.untilPrinted("x=kept")
	const limit = 10 * time.Second
	cell := &execv1.ExecutionSpec{ExecutionId: "exec-long", ContextId: "py", TimeoutMs: uint32(limit.Milliseconds()),
		Code: "import os, time\nprint('begun')\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('over')"}
	r := b.begin(cell)
	r.untilPrinted("begun")
	process := b.start(&execv1.ProcessSpec{Argv: []string{"/bin/sh", "-c", "echo begun; until [ -e go ]; do sleep 0.05; done; echo over"}, TimeoutMs: uint64(limit.Milliseconds())})
	process.untilPrinted("begun")
	image := b.checkpoint()
	b.closing.Store(true)
	if out, err := b.runsc("kill", b.containerID(), "KILL").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	<-b.gone
	stored := time.After(limit + 2*time.Second)
	<-stored // longer than any limit inside
	again := b.restore(image)
	again.hello.Reconfigure = true
	reply := again.sayHello()
	if len(reply.Executions) != 3 {
		t.Fatalf("%v", reply)
	}
	attach := func(before *run) *run {
		last := before.events[len(before.events)-1].Seq
		after := again.attach(before.id, last)
		after.stdout, after.events = before.stdout, []*execv1.ExecutionEvent{{Seq: last}}
		return after
	}
	cellAgain, processAgain, terminalAgain := attach(r), attach(process), attach(terminal)
	again.shell("touch go").wait()
	if cellAgain.wait(); cellAgain.finished.Reason != completed || string(cellAgain.stdout) != "begun\nover\n" {
		t.Errorf("%v, %q", cellAgain.finished, cellAgain.stdout)
	}
	processAgain.wait().endsWith(0, "begun\nover\n")
	again.typed(terminalAgain, "echo $x$x\n")
	terminalAgain.untilPrinted("keptkept")
	again.exec("idle", "c.sendall(b'still'); f.write(d.recv(10).decode()); f.flush(); print(open('kept').read())").prints("open still\n")
	again.typed(terminalAgain, "exit\n")
	terminalAgain.wait()
}

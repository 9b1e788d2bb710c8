package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agentv1 "atoll/node/gen/agentv1"
	execv1 "atoll/node/gen/execv1"
	"atoll/node/internal/agent/inner"
	"atoll/node/internal/frame"
)

// Beyond this the clocks of host and sandbox are worth a line in the log.
const clockTolerance = 500 * time.Millisecond

// Where nothing else is said; as on Debian.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Hello takes the sandbox's identity and says what the agent holds.
func (a *Agent) Hello(ctx context.Context, hello *agentv1.HelloRequest) (*agentv1.HelloReply, error) {
	a.helloMu.Lock()
	defer a.helloMu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err // of a host that has been replaced meanwhile
	}
	a.mu.Lock()
	previous := a.hello
	a.mu.Unlock()
	if previous != nil && hello.BoxId != previous.BoxId && !hello.Reconfigure {
		return nil, &frame.Status{Code: codes.FailedPrecondition,
			Message: fmt.Sprintf("this is box %s (hello is for %s, without reconfigure)", previous.BoxId, hello.BoxId)}
	}
	a.deadline.set(hello.DeadlineUnixMs)
	if err := a.settleStarts(ctx); err != nil {
		return nil, err
	}
	if err := a.awaitName(ctx); err != nil {
		return nil, err
	}
	a.mu.Lock()
	err := a.rename(hello.RenameContexts)
	if err == nil && hello.ForgetHeld {
		a.forgetHeld()
	}
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if previous == nil || hello.Reconfigure {
		if err := a.identify(hello); err != nil {
			return nil, err
		}
	}
	if hello.WallTimeUnixMs != 0 {
		if skew := time.Since(time.UnixMilli(hello.WallTimeUnixMs)); skew > clockTolerance || skew < -clockTolerance {
			log.Printf("the sandbox's clock is %s ahead of the host's", skew)
		}
	}
	reply := &agentv1.HelloReply{AgentVersion: Version}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err // a.greeted is another host's now
	}
	for _, id := range slices.Sorted(maps.Keys(a.contexts)) {
		reply.Contexts = append(reply.Contexts, a.describeLocked(a.contexts[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(a.executions)) {
		e := a.executions[id]
		contextID := ""
		if e.context != nil {
			contextID = e.context.id()
		}
		e.mu.Lock()
		reply.Executions = append(reply.Executions, &agentv1.HeldExecution{
			ExecutionId: id, ContextId: contextID, AcknowledgedSeq: e.acknowledged, LastSeq: e.lastSeq, Finished: e.finished,
			Process: e.process != nil,
		})
		e.mu.Unlock()
	}
	a.greeted = true
	return reply, nil
}

// rename gives contexts new ids. One that already has its new id was renamed by a hello whose answer was lost. Requires: mu is held.
func (a *Agent) rename(ids map[string]string) error {
	renamed := map[string]*kernelContext{}
	for former, id := range ids {
		c, known := a.contexts[former]
		switch {
		case id == "" || renamed[id] != nil:
			return &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("context %s is to be called %q (expected: an id of its own)", former, id)}
		case !known:
			continue
		}
		if other := a.contexts[id]; other != nil && ids[id] == "" {
			return &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("context %s is to be called %s, as another one is", former, id)}
		}
		renamed[id] = c
	}
	for former := range ids {
		delete(a.contexts, former)
	}
	for id, c := range renamed {
		c.name.Store(&id)
		a.contexts[id] = c
	}
	return nil
}

// markOf is what a new context is called inside: by its id, unless one that was renamed is still called so. Requires: mu is held.
func (a *Agent) markOf(id string) string {
	taken := map[string]bool{}
	for _, c := range a.contexts {
		taken[c.mark] = true
	}
	mark := id
	for n := 2; taken[mark]; n++ {
		mark = fmt.Sprintf("%s~%d", id, n)
	}
	return mark
}

// forgetHeld makes all executions and processes nobody's. What runs goes on; what waits for its turn is dropped, as it is to run where it
// was asked for, once. Requires: mu is held.
func (a *Agent) forgetHeld() {
	for _, c := range a.contexts {
		c.mu.Lock()
		c.queue = nil
		c.mu.Unlock()
	}
	for _, e := range a.executions {
		e.disown()
	}
	for id, p := range a.processes {
		if p.refusal != nil {
			continue
		}
		if !p.over {
			a.strays[p] = true
		}
		a.forgotten[id] = true
	}
	clear(a.executions)
	clear(a.processes)
	clear(a.done)
	a.doneOrder = nil
	a.onlyOwn = true
}

// identify makes the sandbox what hello says: host name, user, environment, limits, randomness. What has not changed is not touched.
func (a *Agent) identify(hello *agentv1.HelloRequest) error {
	a.mu.Lock()
	previous, u := a.hello, a.user
	a.mu.Unlock()
	if hello.Untouched {
		return a.identifyUntouched(hello)
	}
	rename := hello.Hostname != "" && hello.Hostname != previous.GetHostname()
	if rename {
		if err := unix.Sethostname([]byte(hello.Hostname)); err != nil {
			log.Printf("the host name %s: %v", hello.Hostname, err)
		}
	}
	addEntropy(hello.Entropy)
	newUser := previous == nil || u == nil || hello.User != previous.User || hello.Home != previous.Home
	if newUser {
		var err error
		if u, err = ensureUser(hello.User, hello.Home); err != nil {
			return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
		}
	}
	if newUser || hello.Workdir != previous.GetWorkdir() {
		if err := ensureFolder(cmp.Or(hello.Workdir, u.home), u); err != nil {
			return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
		}
	}
	a.treeMu.Lock()
	a.mu.Lock()
	a.hello, a.user = hello, u
	a.generation.Add(1)
	contexts := slices.Collect(maps.Values(a.contexts))
	a.mu.Unlock()
	err := a.limitAnew(previous)
	a.treeMu.Unlock()
	if err == nil {
		_, err = a.currentTree()
	}
	if err != nil {
		a.mu.Lock()
		a.hello = previous // the next one is to find the same differences
		a.mu.Unlock()
		return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
	}
	for _, c := range contexts {
		// No cell runs before the kernel has answered.
		c.introduceSoon()
	}
	if rename {
		a.nameSoon(hello.Hostname, previous.GetHostname())
	}
	return nil
}

// identifyUntouched is identify where no file of the sandbox is to change. No context is there then.
func (a *Agent) identifyUntouched(hello *agentv1.HelloRequest) error {
	if err := unix.Sethostname([]byte(cmp.Or(hello.Hostname, "sandbox"))); err != nil {
		log.Printf("the host name %s: %v", hello.Hostname, err)
	}
	addEntropy(hello.Entropy)
	root := findUser("root")
	if root == nil {
		root = &user{name: "root", home: "/", shell: "/bin/sh"}
	}
	root.home = cmp.Or(root.home, "/")
	root.groups = findGroups(root)
	a.treeMu.Lock()
	a.mu.Lock()
	previous := a.hello
	a.hello, a.user = hello, root
	a.generation.Add(1)
	a.mu.Unlock()
	err := a.limitAnew(previous)
	a.treeMu.Unlock()
	if err == nil {
		_, err = a.currentTree()
	}
	if err != nil {
		return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
	}
	return nil
}

// nameSoon makes the sandbox's name resolve, which no call after the hello is ahead of (Agent.serve).
func (a *Agent) nameSoon(name, previous string) {
	named := make(chan struct{})
	a.mu.Lock()
	a.named = named
	a.mu.Unlock()
	go func() {
		if err := nameOwnAddress(name, previous); err != nil {
			log.Printf("the host name %s in %s: %v", name, hostsPath, err)
		}
		a.mu.Lock()
		a.named = nil
		a.mu.Unlock()
		close(named)
	}()
}

// awaitName returns when the sandbox's name resolves.
func (a *Agent) awaitName(ctx context.Context) error {
	a.mu.Lock()
	named := a.named
	a.mu.Unlock()
	if named == nil {
		return nil
	}
	select {
	case <-named:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// identity is what a kernel knows of the sandbox, at some time.
type identity struct {
	generation uint64 // counts the hellos that changed something
	env        map[string]string
	workdir    string
	seed       [32]byte
}

// differences is the command that carries a kernel from one identity to the next. What has not changed, it does not touch.
func (i identity) differences(from identity) *command {
	configure := &command{Op: "configure", Env: map[string]string{}, Seed: hex.EncodeToString(i.seed[:])}
	for name, value := range i.env {
		if former, had := from.env[name]; !had || former != value {
			configure.Env[name] = value
		}
	}
	for name := range from.env {
		if _, stays := i.env[name]; !stays {
			configure.Unset = append(configure.Unset, name)
		}
	}
	slices.Sort(configure.Unset)
	if i.workdir != from.workdir {
		configure.Cwd = i.workdir
	}
	return configure
}

func (a *Agent) identityOf(c *kernelContext) (identity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known, err := a.identityLocked(c)
	if err != nil {
		return identity{}, err
	}
	// Each kernel gets a seed of its own: two contexts of one sandbox must not roll the same dice.
	var own [32]byte
	if _, err := rand.Read(own[:]); err != nil {
		return identity{}, err
	}
	text := fmt.Appendf(own[:], "%s/%d/", c.mark, known.generation)
	known.seed = sha256.Sum256(append(text, a.hello.GetEntropy()...))
	return known, nil
}

// baseEnv is what every program starts with. A terminal that can do nothing: programs that ask for one work, and leave colours and cursor
// movement out.
func baseEnv(hello *agentv1.HelloRequest) map[string]string {
	env := map[string]string{"PATH": defaultPath, "LANG": "C.UTF-8", "TERM": "dumb"}
	if hello.GetHostname() != "" {
		env["HOSTNAME"] = hello.Hostname
	}
	return env
}

// identityLocked also finds how the kernel of a context is started. Requires: mu is held.
func (a *Agent) identityLocked(c *kernelContext) (*agentv1.Kernel, identity, error) {
	var kernel *agentv1.Kernel
	languages := []string{"bash"}
	for _, one := range a.hello.GetKernels() {
		languages = append(languages, one.Language)
		if one.Language == c.spec.Language {
			kernel = one
		}
	}
	if kernel == nil && c.spec.Language == "bash" {
		kernel = &agentv1.Kernel{Language: "bash", Argv: []string{executable(), "kernel", "bash"}}
	}
	if kernel == nil || len(kernel.Argv) == 0 {
		slices.Sort(languages)
		return nil, identity{}, &startError{missing: true, detail: fmt.Sprintf("language %q is not one of this sandbox's (%v): its image has no interpreter for it", c.spec.Language, languages)}
	}
	env := baseEnv(a.hello)
	maps.Copy(env, map[string]string{"HOME": a.user.home, "USER": a.user.name, "LOGNAME": a.user.name, "SHELL": a.user.shell})
	for _, layer := range []map[string]string{a.hello.Env, kernel.Env, c.spec.Env} {
		maps.Copy(env, layer)
	}
	delete(env, inner.ContextVariable)
	return kernel, identity{generation: a.generation.Load(), env: env, workdir: a.cwdLocked(c.spec)}, nil
}

const hostsPath = "/etc/hosts"

// nameOwnAddress makes the sandbox's own name resolve, for sudo and for programs that ask who they are.
func nameOwnAddress(name, previous string) error {
	if strings.ContainsAny(name, " \t\n#") {
		return fmt.Errorf("host name %q (expected: no blanks)", name)
	}
	// What root inside may have put in its place must not hold us up, nor have us write elsewhere.
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NONBLOCK | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(hostsPath, flags, 0o644)
	if errors.Is(err, unix.ENOENT) {
		if err := os.MkdirAll(filepath.Dir(hostsPath), 0o755); err != nil {
			return err
		}
		fd, err = unix.Open(hostsPath, flags, 0o644)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size > maxRecordsBytes {
		return fmt.Errorf("%s is of mode %o and %d bytes (expected: a regular file of at most %d)", hostsPath, stat.Mode, stat.Size, maxRecordsBytes)
	}
	text := make([]byte, stat.Size)
	n, err := unix.Pread(fd, text, 0)
	if err != nil {
		return err
	}
	changed := withOwnName(string(text[:n]), name, previous)
	if changed == string(text[:n]) {
		return nil
	}
	if n, err := unix.Pwrite(fd, []byte(changed), 0); err != nil || n < len(changed) {
		return fmt.Errorf("%d of %d bytes were written: %w", n, len(changed), err)
	}
	if len(changed) >= n {
		return nil
	}
	return unix.Ftruncate(fd, int64(len(changed)))
}

// withOwnName returns a hosts file with a line for name, in place of the one for the previous name. What else is there stays.
func withOwnName(text, name, previous string) string {
	const own = "127.0.1.1\t"
	var lines []string
	hasLocalhost := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		fields := strings.Fields(line)
		if previous != "" && line == own+previous || line == own+name {
			continue
		}
		hasLocalhost = hasLocalhost || len(fields) > 1 && fields[0] == "127.0.0.1" && slices.Contains(fields[1:], "localhost")
		lines = append(lines, line)
	}
	if !hasLocalhost {
		lines = append(lines, "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback")
	}
	return strings.Join(append(lines, own+name), "\n") + "\n"
}

var systemRandom = sync.OnceValues(func() (int, error) {
	return unix.Open("/dev/urandom", unix.O_WRONLY|unix.O_CLOEXEC, 0)
})

func addEntropy(entropy []byte) {
	if len(entropy) == 0 {
		return
	}
	fd, err := systemRandom()
	if err == nil {
		_, err = unix.Write(fd, entropy)
	}
	if err != nil {
		log.Printf("entropy: %v", err)
	}
}

func (a *Agent) describeLocked(c *kernelContext) *execv1.Context {
	// cwdOf takes mu; the fields it needs are read here instead.
	cwd := a.cwdLocked(c.spec)
	return c.describeWith(cwd)
}

func (a *Agent) cwdOf(spec *execv1.ContextSpec) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cwdLocked(spec)
}

// cwdLocked requires mu.
func (a *Agent) cwdLocked(spec *execv1.ContextSpec) string {
	home := "/"
	if a.user != nil {
		home = a.user.home
	}
	if spec.Cwd == "" && a.hello.GetWorkdir() != "" {
		return a.hello.Workdir
	}
	return folder(spec.Cwd, home)
}

// spawnOf says how to start the kernel of a context, and what it then knows.
func (a *Agent) spawnOf(c *kernelContext) (*inner.Spawn, identity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kernel, known, err := a.identityLocked(c)
	if err != nil {
		return nil, identity{}, err
	}
	spawn := &inner.Spawn{Argv: kernel.Argv, Cwd: known.workdir, Uid: a.user.uid, Gid: a.user.gid, Groups: a.user.groups}
	for _, name := range slices.Sorted(maps.Keys(known.env)) {
		spawn.Env = append(spawn.Env, name+"="+known.env[name])
	}
	spawn.Env = append(spawn.Env, inner.ContextVariable+"="+c.mark)
	return spawn, known, nil
}

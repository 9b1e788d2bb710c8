package agent

import (
	"context"
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
	"time"

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
	a.mu.Lock()
	previous := a.hello
	a.mu.Unlock()
	if previous != nil && hello.BoxId != previous.BoxId && !hello.Reconfigure {
		return nil, &frame.Status{Code: codes.FailedPrecondition,
			Message: fmt.Sprintf("this is box %s (hello is for %s, without reconfigure)", previous.BoxId, hello.BoxId)}
	}
	if previous == nil || hello.Reconfigure {
		if err := a.identify(ctx, previous, hello); err != nil {
			return nil, err
		}
	}
	if hello.WallTimeUnixMs != 0 {
		if skew := time.Since(time.UnixMilli(hello.WallTimeUnixMs)); skew > clockTolerance || skew < -clockTolerance {
			log.Printf("the sandbox's clock is %s ahead of the host's", skew)
		}
	}
	if err := a.settleStarts(ctx); err != nil {
		return nil, err
	}
	reply := &agentv1.HelloReply{AgentVersion: Version}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.contexts)) {
		reply.Contexts = append(reply.Contexts, a.describeLocked(a.contexts[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(a.executions)) {
		e := a.executions[id]
		e.mu.Lock()
		reply.Executions = append(reply.Executions, &agentv1.HeldExecution{
			ExecutionId: id, ContextId: e.spec.ContextId, AcknowledgedSeq: e.acknowledged, LastSeq: e.lastSeq, Finished: e.finished,
			Process: e.process != nil,
		})
		e.mu.Unlock()
	}
	a.greeted = true
	return reply, nil
}

// identify makes the sandbox what hello says: host name, user, environment, limits, randomness.
func (a *Agent) identify(ctx context.Context, previous, hello *agentv1.HelloRequest) error {
	a.mu.Lock()
	current := a.hello.GetHostname()
	a.mu.Unlock()
	if hello.Hostname != "" && hello.Hostname != current {
		setHostname(hello.Hostname)
		if err := nameOwnAddress(hello.Hostname, current); err != nil {
			log.Printf("the host name in %s: %v", hostsPath, err)
		}
	}
	addEntropy(hello.Entropy)
	u, err := ensureUser(hello.User, hello.Home)
	if err != nil {
		return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
	}
	workdir := hello.Workdir
	if workdir == "" {
		workdir = u.home
	}
	if err := ensureFolder(workdir, u); err != nil {
		return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
	}
	a.mu.Lock()
	a.hello, a.user = hello, u
	t := a.tree
	contexts := slices.Collect(maps.Values(a.contexts))
	if t != nil && !t.isDead() {
		err = a.limit(t)
	}
	a.mu.Unlock()
	if err != nil && !errors.Is(err, errTreeDied) {
		return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
	}
	if _, err := a.currentTree(); err != nil {
		return &frame.Status{Code: codes.FailedPrecondition, Message: err.Error()}
	}
	for i, c := range contexts {
		if err := c.configure(ctx, a.configureOf(c, previous, hello, workdir, i)); err != nil {
			return &frame.Status{Code: codes.Internal, Message: err.Error()}
		}
	}
	return nil
}

// configureOf is the command that carries a kernel from one identity to the next. What a context's own environment sets, stays.
func (a *Agent) configureOf(c *kernelContext, previous, hello *agentv1.HelloRequest, workdir string, index int) *command {
	configure := &command{Op: "configure", Env: map[string]string{}}
	for name, value := range hello.Env {
		if _, own := c.spec.Env[name]; !own {
			configure.Env[name] = value
		}
	}
	for name := range previous.GetEnv() {
		_, stays := hello.Env[name]
		_, own := c.spec.Env[name]
		if !stays && !own {
			configure.Unset = append(configure.Unset, name)
		}
	}
	slices.Sort(configure.Unset)
	if c.spec.Cwd == "" && previous.GetWorkdir() != hello.Workdir {
		configure.Cwd = workdir
	}
	if len(hello.Entropy) > 0 {
		// Each kernel gets a seed of its own: two contexts of one sandbox must not roll the same dice.
		seed := sha256.Sum256(fmt.Appendf(hello.Entropy[:len(hello.Entropy):len(hello.Entropy)], "/%s/%d/%d", c.spec.ContextId, hello.Epoch, index))
		configure.Seed = hex.EncodeToString(seed[:])
	}
	return configure
}

const hostsPath = "/etc/hosts"

// nameOwnAddress makes the sandbox's own name resolve, for sudo and for programs that ask who they are.
func nameOwnAddress(name, previous string) error {
	if strings.ContainsAny(name, " \t\n#") {
		return fmt.Errorf("host name %q (expected: no blanks)", name)
	}
	text, err := os.ReadFile(hostsPath)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	changed := withOwnName(string(text), name, previous)
	if changed == string(text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(hostsPath), 0o755); err != nil {
		return err
	}
	return os.WriteFile(hostsPath, []byte(changed), 0o644)
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

func addEntropy(entropy []byte) {
	if len(entropy) == 0 {
		return
	}
	if err := os.WriteFile("/dev/urandom", entropy, 0); err != nil {
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
	switch {
	case spec.Cwd != "":
		return spec.Cwd
	case a.hello.GetWorkdir() != "":
		return a.hello.Workdir
	case a.user != nil:
		return a.user.home
	}
	return "/"
}

// spawnOf says how to start the kernel of a context.
func (a *Agent) spawnOf(spec *execv1.ContextSpec) (*inner.Spawn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var kernel *agentv1.Kernel
	languages := []string{"bash"}
	for _, one := range a.hello.GetKernels() {
		languages = append(languages, one.Language)
		if one.Language == spec.Language {
			kernel = one
		}
	}
	if kernel == nil && spec.Language == "bash" {
		kernel = &agentv1.Kernel{Language: "bash", Argv: []string{executable(), "kernel", "bash"}}
	}
	if kernel == nil || len(kernel.Argv) == 0 {
		slices.Sort(languages)
		return nil, &startError{missing: true, detail: fmt.Sprintf("language %q is not one of this sandbox's (%v)", spec.Language, languages)}
	}
	env := map[string]string{
		// A terminal that can do nothing: programs that ask for one work, and leave colours and cursor movement out.
		"PATH": defaultPath, "LANG": "C.UTF-8", "TERM": "dumb",
		"HOME": a.user.home, "USER": a.user.name, "LOGNAME": a.user.name, "SHELL": a.user.shell,
	}
	for _, layer := range []map[string]string{a.hello.Env, kernel.Env, spec.Env} {
		maps.Copy(env, layer)
	}
	env[inner.ContextVariable] = spec.ContextId
	spawn := &inner.Spawn{
		Argv: kernel.Argv, Cwd: a.cwdLocked(spec), Uid: a.user.uid, Gid: a.user.gid, Groups: a.user.groups,
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		spawn.Env = append(spawn.Env, name+"="+env[name])
	}
	return spawn, nil
}

package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"atoll/node/internal/egress"
)

const (
	// What a step's own mounts hold: large things on the sandbox's disk, small ones in memory, where no image has them.
	stagingFolder = "/.atoll-build"
	memoryFolder  = "/dev/.atoll-build"
	// What one step may print before the rest is left out of the log.
	maxStepOutput = 4 << 20
	// The end of it that an error tells.
	tailBytes = 4 << 10
	// Connections that a build has open at once.
	maxConnections = 128
	maxSecret      = 1 << 20
)

// stepMount is a mount of one RUN.
type stepMount struct {
	*instructions.Mount
	target string
	from   *origin
	secret []byte
}

// planRun plans a RUN, and returns what its result depends on.
func (r *run) planRun(ctx context.Context, s *stage, command *instructions.RunCommand, o *op) (any, error) {
	if instructions.GetSecurity(command) == instructions.SecurityInsecure {
		return nil, invalid(0, "RUN --security=insecure is not supported")
	}
	if len(instructions.GetDevices(command)) > 0 {
		return nil, invalid(0, "RUN --device is not supported")
	}
	network := r.spec.Network
	switch mode := instructions.GetNetwork(command); mode {
	case instructions.NetworkNone:
		network = false
	case instructions.NetworkHost:
		return nil, invalid(0, "RUN --network=host is not supported (expected: default or none)")
	}
	argv, script, err := runArguments(s.state, command.ShellDependantCmdLine)
	if err != nil {
		return nil, err
	}
	env := s.state.stepEnvironment()
	dependsOn := maps.Clone(env)
	for _, name := range proxyArguments {
		if value, given := r.given(name); given {
			if _, set := env[name]; !set {
				env[name] = value
			}
		}
	}
	maps.Copy(env, r.spec.StepEnv)
	mounts, mountsDepend, err := r.planMounts(ctx, s, command, o, env)
	if err != nil {
		return nil, err
	}
	c := Command{Argv: argv, Dir: s.state.workdir(), Env: env, User: s.state.config.User, Timeout: r.spec.StepTimeout}
	o.do = func(ctx context.Context, r *run, box Sandbox) error {
		return r.execute(ctx, box, o.step, c, network, script, mounts)
	}
	return []any{"run", argv, script, dependsOn, r.spec.StepEnv, c.User, c.Dir, instructions.GetNetwork(command), mountsDepend}, nil
}

// script is a program of a heredoc.
type script struct {
	Path, Text string
}

func runArguments(s *state, line instructions.ShellDependantCmdLine) (argv []string, program *script, err error) {
	argv = line.CmdLine
	if len(line.Files) > 0 {
		if len(argv) != 1 || !line.PrependShell {
			return nil, nil, invalid(0, "RUN with a heredoc and a list of arguments")
		}
		first := line.Files[0]
		text := first.Data
		if first.Chomp {
			text = parser.ChompHeredocContent(text)
		}
		switch heredoc, err := parser.ParseHeredoc(argv[0]); {
		case err != nil:
			return nil, nil, invalid(0, "%v", err)
		case heredoc == nil:
			// The shell makes of it what it says.
			full := argv[0]
			for _, file := range line.Files {
				full += "\n" + file.Data + file.Name
			}
			argv = []string{full}
		case strings.HasPrefix(text, "#!"):
			program = &script{Path: path.Join(memoryFolder, "script"), Text: text}
			argv = []string{program.Path}
		default:
			argv = []string{text}
		}
	}
	if strings.TrimSpace(strings.Join(argv, "")) == "" {
		return nil, nil, invalid(0, "RUN names no program")
	}
	if line.PrependShell {
		argv = append(append([]string{}, s.shell()...), strings.Join(argv, " "))
	}
	return argv, program, nil
}

func (r *run) planMounts(ctx context.Context, s *stage, command *instructions.RunCommand, o *op, env map[string]string) ([]stepMount, any, error) {
	var planned []stepMount
	var depends []any
	for _, m := range instructions.GetMounts(command) {
		one := stepMount{Mount: m, target: m.Target}
		if !strings.HasPrefix(one.target, "/") && one.target != "" {
			one.target = path.Join(s.state.workdir(), one.target)
		}
		one.target = path.Clean(one.target)
		dependsOn := []any{string(m.Type), one.target, m.Source, m.ReadOnly}
		switch m.Type {
		case instructions.MountTypeBind, instructions.MountTypeCache:
			if m.From != "" {
				from, err := r.origin(ctx, s, m.From)
				if err != nil {
					return nil, nil, err
				}
				one.from = from
				dependsOn = append(dependsOn, from.depends())
				if from.stage != nil {
					o.needs = append(o.needs, from.stage)
				}
			} else if m.Type == instructions.MountTypeBind {
				n, err := r.context.follow(m.Source)
				if err != nil {
					return nil, nil, invalid(0, "--mount: %q is not in the build context", shorten(m.Source, 200))
				}
				sum, err := n.digest(nil)
				if err != nil {
					return nil, nil, err
				}
				dependsOn = append(dependsOn, sum)
			}
			if m.Type == instructions.MountTypeCache {
				r.warn("line %d: --mount=type=cache begins empty with each step, as nothing is kept of it", o.step.line)
			}
		case instructions.MountTypeTmpfs:
		case instructions.MountTypeSecret:
			id := m.CacheID
			if id == "" {
				id = path.Base(m.Target)
			}
			content, given := r.spec.Secrets[id]
			if !given {
				return nil, nil, invalid(0, "--mount=type=secret: no secret %q is given to the build", shorten(id, 100))
			}
			if len(content) > maxSecret {
				return nil, nil, invalid(0, "secret %q has %d bytes (expected: at most %d)", shorten(id, 100), len(content), maxSecret)
			}
			// What it is does not count for the cache, so that it can be renewed.
			dependsOn = append(dependsOn, id)
			if m.Env != nil {
				name := *m.Env
				if name == "" {
					name = id
				}
				env[name] = string(content)
				if m.Target == "" {
					depends = append(depends, dependsOn)
					continue
				}
			}
			if m.Target == "" {
				one.target = "/run/secrets/" + id
			}
			one.secret = content
		default:
			return nil, nil, invalid(0, "--mount=type=%s is not supported (expected: bind, cache, tmpfs or secret)", m.Type)
		}
		if one.target == "/" {
			return nil, nil, invalid(0, "--mount: target / (expected: a path below)")
		}
		planned = append(planned, one)
		depends = append(depends, dependsOn)
	}
	return planned, depends, nil
}

// execute runs a step's program.
func (r *run) execute(ctx context.Context, box Sandbox, st *step, c Command, network bool, program *script, mounts []stepMount) (err error) {
	made, targets, err := r.mountAll(ctx, box, st, program, mounts)
	defer func() {
		// Nothing of it belongs into the image. Where the box is at its end, so is that.
		if ctx.Err() == nil {
			err = errors.Join(err, r.unmountAll(ctx, box, made, targets))
		}
	}()
	if err != nil {
		return err
	}
	if network {
		proxy := &egress.Proxy{Policy: r.policy, Logger: r.builder.Logger}
		c.Network = func(ctx context.Context, c Conn) { proxy.Serve(ctx, c) }
	}
	output := &stepOutput{emit: r.emit}
	began := time.Now()
	outcome, err := box.Run(ctx, c, output.take)
	output.finish()
	if err != nil {
		return &StepError{Step: st.Step, Line: st.line, Text: err.Error(), Output: output.end()}
	}
	if outcome.Problem == "" && outcome.ExitCode == 0 {
		return nil
	}
	text := outcome.Problem
	if text == "" {
		text = fmt.Sprintf("exit code %d", outcome.ExitCode)
	}
	return &StepError{Step: st.Step, Line: st.line, Text: fmt.Sprintf("%s after %s", text, time.Since(began).Round(100*time.Millisecond)), Output: output.end()}
}

// stepOutput passes on what a step prints, as long as it is not too much, and knows its end.
type stepOutput struct {
	emit   func(Event)
	passed int
	left   int
	tail   []byte
}

func (o *stepOutput) take(data []byte, stderr bool) {
	o.tail = append(o.tail, data...)
	if len(o.tail) > 2*tailBytes {
		o.tail = append(o.tail[:0:0], o.tail[len(o.tail)-tailBytes:]...)
	}
	room := max(0, maxStepOutput-o.passed)
	if len(data) > room {
		o.left += len(data) - room
		data = data[:room]
	}
	if len(data) > 0 {
		o.passed += len(data)
		o.emit(Log{Data: bytes.Clone(data), Stderr: stderr})
	}
}

func (o *stepOutput) finish() {
	if o.left > 0 {
		o.emit(Log{Data: fmt.Appendf(nil, "\n(%d more bytes of this step's output are left out)\n", o.left), Stderr: true})
	}
}

func (o *stepOutput) end() string {
	tail := o.tail
	if len(tail) > tailBytes {
		tail = tail[len(tail)-tailBytes:]
		// Whole lines.
		if _, rest, found := bytes.Cut(tail, []byte("\n")); found {
			tail = rest
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(tail), "\uFFFD"))
}

const hostsPath = "/etc/hosts"

const hostsText = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tbuild\n"

// mountAll makes a step's mounts. made are paths that were not there before.
func (r *run) mountAll(ctx context.Context, box Sandbox, st *step, program *script, mounts []stepMount) (made, targets []string, err error) {
	made = []string{memoryFolder, stagingFolder}
	if err := box.MakeFolders(ctx, memoryFolder); err != nil {
		return made, nil, err
	}
	if program != nil {
		if err := writeFile(ctx, box, program.Path, []byte(program.Text), 0o755, 0, 0); err != nil {
			return made, nil, err
		}
	}
	var all []Mount
	// Names of the sandbox itself resolve, and what a step writes there is not of the image.
	if _, err := box.Stat(ctx, path.Dir(hostsPath), true); err == nil {
		source := path.Join(memoryFolder, "hosts")
		if err := writeFile(ctx, box, source, []byte(hostsText), 0o644, 0, 0); err != nil {
			return made, nil, err
		}
		created, err := standIn(ctx, box, hostsPath, false)
		made = append(made, created...)
		if err != nil {
			return made, nil, err
		}
		all = append(all, Mount{Target: hostsPath, Source: source})
	}
	for i, m := range mounts {
		one, created, err := r.prepareMount(ctx, box, st, m, i)
		made = append(made, created...)
		if err != nil {
			return made, nil, fmt.Errorf("--mount at %s: %w", m.target, err)
		}
		all = append(all, one)
	}
	if err := box.Mount(ctx, all); err != nil {
		return made, nil, err
	}
	for _, m := range all {
		targets = append(targets, m.Target)
	}
	return made, targets, nil
}

// standIn makes what is mounted over, where it is not there, and returns what it made.
func standIn(ctx context.Context, box Sandbox, target string, folder bool) (made []string, err error) {
	if _, err := box.Stat(ctx, target, true); err == nil {
		return nil, nil
	} else if !errors.Is(err, ErrNoFile) {
		return nil, err
	}
	first, err := firstMissing(ctx, box, target)
	if err != nil {
		return nil, err
	}
	if folder {
		return []string{first}, box.MakeFolders(ctx, target)
	}
	if err := box.MakeFolders(ctx, path.Dir(target)); err != nil {
		return []string{first}, err
	}
	return []string{first}, writeFile(ctx, box, target, nil, 0o644, 0, 0)
}

// firstMissing is the first of the folders above a path, or the path itself, that is not there.
func firstMissing(ctx context.Context, box Sandbox, target string) (string, error) {
	missing := target
	for above := path.Dir(target); above != "/"; above = path.Dir(above) {
		if _, err := box.Stat(ctx, above, true); err == nil {
			break
		} else if !errors.Is(err, ErrNoFile) {
			return "", err
		}
		missing = above
	}
	return missing, nil
}

func (r *run) prepareMount(ctx context.Context, box Sandbox, st *step, m stepMount, index int) (mounted Mount, made []string, err error) {
	mode := uint32(0)
	if m.Mode != nil {
		mode = uint32(*m.Mode) & 0o7777
	}
	var uid, gid uint32
	if m.UID != nil {
		uid = uint32(*m.UID)
	}
	if m.GID != nil {
		gid = uint32(*m.GID)
	}
	switch m.Type {
	case instructions.MountTypeTmpfs:
		size := uint64(0)
		if m.SizeLimit > 0 {
			size = uint64(m.SizeLimit)
		}
		made, err = standIn(ctx, box, m.target, true)
		return Mount{Target: m.target, Bytes: size, Mode: 0o1777}, made, err
	case instructions.MountTypeSecret:
		if mode == 0 {
			mode = 0o400
		}
		source := path.Join(memoryFolder, fmt.Sprintf("secret-%d", index))
		if err := writeFile(ctx, box, source, m.secret, mode, uid, gid); err != nil {
			return Mount{}, nil, err
		}
		made, err = standIn(ctx, box, m.target, false)
		return Mount{Target: m.target, Source: source, ReadOnly: true}, made, err
	}
	source := path.Join(stagingFolder, fmt.Sprintf("mount-%d", index))
	if err := box.MakeFolders(ctx, source); err != nil {
		return Mount{}, nil, err
	}
	folder := true
	if m.from != nil || m.Type == instructions.MountTypeBind {
		if folder, err = r.copyMount(ctx, box, m.from, m.Source, source); err != nil {
			return Mount{}, nil, err
		}
	}
	if !folder {
		source = path.Join(source, mountedFile)
	} else if m.Type == instructions.MountTypeCache {
		if mode == 0 {
			mode = 0o755
		}
		if err := box.Change(ctx, source, &mode, uid, gid, false); err != nil {
			return Mount{}, nil, err
		}
	}
	made, err = standIn(ctx, box, m.target, folder)
	return Mount{Target: m.target, Source: source, ReadOnly: m.ReadOnly}, made, err
}

func (r *run) unmountAll(ctx context.Context, box Sandbox, made, targets []string) error {
	err := box.Unmount(ctx, targets)
	for _, name := range made {
		err = errors.Join(err, box.Remove(ctx, name))
	}
	return err
}

// writeFile writes a small file into a folder that is there.
func writeFile(ctx context.Context, box Sandbox, name string, content []byte, mode uint32, uid, gid uint32) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: path.Base(name), Mode: int64(mode), Uid: int(uid), Gid: int(gid), Size: int64(len(content)), Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return box.Unpack(ctx, path.Dir(name), &archive)
}

package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"atoll/node/internal/image"
)

const maxDockerfile = 4 << 20

// dockerfile is one that was parsed.
type dockerfile struct {
	stages []instructions.Stage
	// meta are the ARGs before the first FROM.
	meta   []instructions.ArgCommand
	escape rune
}

func parse(text string) (*dockerfile, error) {
	if len(text) > maxDockerfile {
		return nil, invalid(0, "the Dockerfile has %d bytes (expected: at most %d)", len(text), maxDockerfile)
	}
	if strings.TrimSpace(text) == "" {
		return nil, invalid(0, "the Dockerfile is empty (expected: at least a FROM instruction)")
	}
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, located(err)
	}
	stages, meta, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, located(err)
	}
	if len(stages) == 0 {
		return nil, invalid(0, "the Dockerfile has no FROM instruction")
	}
	return &dockerfile{stages: stages, meta: meta, escape: parsed.EscapeToken}, nil
}

// located is a parser's error with the line that it is about.
func located(err error) error {
	line := 0
	var where *parser.LocationError
	if errors.As(err, &where) {
		for _, ranges := range where.Locations {
			line = lineOf(ranges)
		}
	}
	text := err.Error()
	if prefix, rest, found := strings.Cut(text, ": "); found && strings.HasPrefix(prefix, "dockerfile parse error") {
		text = rest
	}
	return &InvalidError{Line: line, Text: shorten(text, 500)}
}

func lineOf(ranges []parser.Range) int {
	if len(ranges) == 0 {
		return 0
	}
	return ranges[0].Start.Line
}

// state is what an image is to say of itself, as far as the instructions before say, and what the next ones see.
type state struct {
	config image.Config
	// args are the ARGs that were declared and have a value, in order, and by name.
	args     []string
	argument map[string]string
	// ownCmd says that the stage has a CMD of its own.
	ownCmd bool
}

func (s *state) clone() *state {
	c := &state{config: s.config, ownCmd: s.ownCmd, args: slices.Clone(s.args), argument: map[string]string{}}
	for name, value := range s.argument {
		c.argument[name] = value
	}
	c.config.Env = slices.Clone(s.config.Env)
	c.config.Labels = map[string]string{}
	for name, value := range s.config.Labels {
		c.config.Labels[name] = value
	}
	c.config.ExposedPorts, c.config.Volumes = slices.Clone(s.config.ExposedPorts), slices.Clone(s.config.Volumes)
	return c
}

func setEnv(env []string, name, value string) []string {
	for i, pair := range env {
		if have, _, _ := strings.Cut(pair, "="); have == name {
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}

func (s *state) setArgument(name, value string) {
	if _, known := s.argument[name]; !known {
		s.args = append(s.args, name)
	}
	s.argument[name] = value
}

// variables are what instructions and RUN see: ARGs, and before them the environment.
func (s *state) variables() []string {
	var all []string
	for _, name := range s.args {
		all = append(all, name+"="+s.argument[name])
	}
	for _, pair := range s.config.Env {
		name, value, _ := strings.Cut(pair, "=")
		all = setEnv(all, name, value)
	}
	return all
}

// stepEnvironment is what a step's program gets: variables as a map, with a PATH.
func (s *state) stepEnvironment() map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, pair := range s.variables() {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (s *state) workdir() string {
	if s.config.Workdir == "" {
		return "/"
	}
	return path.Join("/", s.config.Workdir)
}

func (s *state) shell() []string {
	if len(s.config.Shell) > 0 {
		return s.config.Shell
	}
	return []string{"/bin/sh", "-c"}
}

// expander replaces variables in words.
func (d *dockerfile) expander(variables []string) instructions.SingleWordExpander {
	lex := shell.NewLex(d.escape)
	env := shell.EnvsFromSlice(variables)
	return func(word string) (string, error) {
		expanded, _, err := lex.ProcessWord(word, env)
		return expanded, err
	}
}

// platformArguments are those that every Dockerfile has.
func platformArguments(target string) map[string]string {
	platform := "linux/" + runtime.GOARCH
	return map[string]string{
		"BUILDPLATFORM": platform, "BUILDOS": "linux", "BUILDARCH": runtime.GOARCH, "BUILDVARIANT": "", "BUILDOSVERSION": "",
		"TARGETPLATFORM": platform, "TARGETOS": "linux", "TARGETARCH": runtime.GOARCH, "TARGETVARIANT": "", "TARGETOSVERSION": "",
		"TARGETSTAGE": target,
	}
}

// proxyArguments may be given without being declared, and are in no image and no key.
var proxyArguments = []string{
	"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy",
}

// configure applies an instruction that changes no files. It says whether it was one.
func (s *state) configure(command instructions.Command, arguments func(name string) (string, bool)) (known bool, err error) {
	c := &s.config
	switch command := command.(type) {
	case *instructions.EnvCommand:
		for _, pair := range command.Env {
			c.Env = setEnv(c.Env, pair.Key, pair.Value)
		}
	case *instructions.ArgCommand:
		for _, a := range command.Args {
			if value, given := arguments(a.Key); given {
				s.setArgument(a.Key, value)
			} else if a.Value != nil {
				s.setArgument(a.Key, *a.Value)
			}
		}
	case *instructions.LabelCommand:
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		for _, pair := range command.Labels {
			c.Labels[pair.Key] = pair.Value
		}
	case *instructions.MaintainerCommand:
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels["maintainer"] = command.Maintainer
	case *instructions.UserCommand:
		if command.User == "" {
			return true, errors.New("USER with an empty name")
		}
		c.User = command.User
	case *instructions.CmdCommand:
		if c.Cmd, err = s.commandLine(command.ShellDependantCmdLine); err != nil {
			return true, err
		}
		s.ownCmd = true
	case *instructions.EntrypointCommand:
		if c.Entrypoint, err = s.commandLine(command.ShellDependantCmdLine); err != nil {
			return true, err
		}
		// A CMD of the base belongs to the base's ENTRYPOINT.
		if !s.ownCmd {
			c.Cmd = nil
		}
	case *instructions.ShellCommand:
		c.Shell = command.Shell
	case *instructions.ExposeCommand:
		return true, s.expose(command.Ports)
	case *instructions.VolumeCommand:
		for _, volume := range command.Volumes {
			if volume == "" {
				return true, errors.New("VOLUME with an empty path")
			}
			if !slices.Contains(c.Volumes, volume) {
				c.Volumes = append(c.Volumes, volume)
			}
		}
	case *instructions.StopSignalCommand:
		c.StopSignal = command.Signal
	case *instructions.HealthCheckCommand:
		if c.Healthcheck, err = json.Marshal(command.Health); err != nil {
			return true, err
		}
	case *instructions.OnbuildCommand:
		c.OnBuild = append(slices.Clone(c.OnBuild), command.Expression)
	default:
		return false, nil
	}
	return true, nil
}

func (s *state) commandLine(line instructions.ShellDependantCmdLine) ([]string, error) {
	if len(line.Files) > 0 {
		return nil, errors.New("a heredoc here")
	}
	if line.PrependShell {
		return append(slices.Clone(s.shell()), strings.Join(line.CmdLine, " ")), nil
	}
	return slices.Clone(line.CmdLine), nil
}

func (s *state) expose(ports []string) error {
	for _, port := range ports {
		number, protocol, found := strings.Cut(port, "/")
		if !found {
			protocol = "tcp"
		}
		protocol = strings.ToLower(protocol)
		if protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
			return fmt.Errorf("EXPOSE %q (expected: PORT, PORT/tcp or PORT/udp)", port)
		}
		first, last, isRange := strings.Cut(number, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || from == 0 || to < from || to-from > 1000 {
			return fmt.Errorf("EXPOSE %q (expected: a port from 1 to 65535, or FIRST-LAST)", port)
		}
		for n := from; n <= to; n++ {
			text := strconv.FormatUint(n, 10) + "/" + protocol
			if !slices.Contains(s.config.ExposedPorts, text) {
				s.config.ExposedPorts = append(s.config.ExposedPorts, text)
			}
		}
	}
	slices.Sort(s.config.ExposedPorts)
	return nil
}

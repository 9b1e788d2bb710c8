package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"atoll/node/internal/egress"
	"atoll/node/internal/image"
)

// run is one build.
type run struct {
	builder    *Builder
	spec       Spec
	dockerfile *dockerfile
	context    *buildContext
	dir        string
	policy     *egress.Policy
	emit       func(Event)

	// meta are the arguments that FROM sees.
	meta   *state
	target int
	// stages are those that are needed, by number.
	stages map[int]*stage
	total  int
	// declared are the arguments that some ARG names.
	declared map[string]bool
	images   map[string]image.Image // by name or reference

	// sources are boxes that hold the end of a stage, and imageSources those of images, for COPY --from.
	sources      map[*stage]Sandbox
	imageSources map[string]Sandbox
	warned       map[string]bool
	// files are open until the end.
	files []*os.File
}

// stage is one FROM and what follows.
type stage struct {
	number int
	steps  []*step
	ops    []*op
	// base is the image that it, or the first of its parents, begins with.
	base   image.Image
	parent *stage
	// start is the key of what it begins with.
	start key
	state *state
}

// step is one instruction.
type step struct {
	Step
	line int
	op   *op // nil: it changes no files
}

// op changes files.
type op struct {
	step *step
	key  key
	// needs are stages that it takes something from.
	needs []*stage
	do    func(ctx context.Context, r *run, box Sandbox) error
}

func (s *stage) end() key {
	if len(s.ops) == 0 {
		return s.start
	}
	return s.ops[len(s.ops)-1].key
}

// plan finds out what is to be done, in which order, and what each result depends on. Nothing runs, but base images are pulled and files
// of ADD fetched, as results depend on them.
func (r *run) plan(ctx context.Context) error {
	d := r.dockerfile
	r.stages, r.declared, r.warned = map[int]*stage{}, map[string]bool{}, map[string]bool{}
	r.target = len(d.stages) - 1
	if r.spec.Target != "" {
		index, found := instructions.HasStage(d.stages, r.spec.Target)
		if number, err := strconv.Atoi(r.spec.Target); !found && err == nil && number >= 0 && number < len(d.stages) {
			index, found = number, true
		}
		if !found {
			return invalid(0, "target stage %q is not in the Dockerfile", shorten(r.spec.Target, 100))
		}
		r.target = index
	}
	r.meta = &state{argument: map[string]string{}}
	for name, value := range platformArguments(r.targetName()) {
		r.meta.setArgument(name, value)
	}
	for i := range d.meta {
		command := &d.meta[i]
		if err := command.Expand(d.expander(r.meta.variables())); err != nil {
			return invalid(lineOf(command.Location()), "%v", err)
		}
		r.declare(command)
		if _, err := r.meta.configure(command, r.given); err != nil {
			return invalid(lineOf(command.Location()), "%v", err)
		}
	}
	if _, err := r.stage(ctx, r.target); err != nil {
		return err
	}
	number := 0
	for _, s := range r.ordered() {
		r.total += len(s.steps)
	}
	for _, s := range r.ordered() {
		for _, step := range s.steps {
			number++
			step.Number, step.Total = number, r.total
		}
	}
	return r.checkArguments()
}

func (r *run) targetName() string {
	if name := r.dockerfile.stages[r.target].Name; name != "" {
		return name
	}
	return "default"
}

func (r *run) given(name string) (string, bool) {
	value, given := r.spec.Args[name]
	return value, given
}

func (r *run) declare(command *instructions.ArgCommand) {
	for _, a := range command.Args {
		r.declared[a.Key] = true
	}
}

// checkArguments tells of arguments that nothing uses: mostly their names are mistaken. Only stages that are needed are known.
func (r *run) checkArguments() error {
	var unused []string
	for name := range r.spec.Args {
		if !r.declared[name] && !slices.Contains(proxyArguments, name) {
			unused = append(unused, name)
		}
	}
	if len(unused) > 0 {
		slices.Sort(unused)
		r.warn("build arguments that no ARG names: %s", strings.Join(unused, ", "))
	}
	return nil
}

func (r *run) warn(format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	if !r.warned[text] {
		r.warned[text] = true
		r.emit(Log{Data: []byte("warning: " + text + "\n"), Stderr: true})
	}
}

// ordered are the stages that are needed, in their order.
func (r *run) ordered() []*stage {
	var all []*stage
	for _, number := range slices.Sorted(maps.Keys(r.stages)) {
		all = append(all, r.stages[number])
	}
	return all
}

// find is the number of the stage before another that a name stands for.
func (r *run) find(name string, before int) (int, bool) {
	number, found := instructions.HasStage(r.dockerfile.stages[:before], name)
	return number, found
}

// stage plans a stage, once, after those that it needs.
func (r *run) stage(ctx context.Context, number int) (*stage, error) {
	if s := r.stages[number]; s != nil {
		return s, nil
	}
	source := &r.dockerfile.stages[number]
	line := lineOf(source.Location)
	expand := r.dockerfile.expander(r.meta.variables())
	name, err := expand(source.BaseName)
	if err == nil && name == "" {
		err = fmt.Errorf("FROM %s names no image", source.BaseName)
	}
	platform := ""
	if err == nil {
		platform, err = expand(source.Platform)
	}
	if err == nil && platform != "" && !strings.HasPrefix(platform+"/", "linux/"+runtime.GOARCH+"/") {
		err = fmt.Errorf("--platform=%s (expected: linux/%s, which this node is)", platform, runtime.GOARCH)
	}
	if err != nil {
		return nil, invalid(line, "%v", err)
	}
	s := &stage{number: number}
	first := &step{Step: Step{Text: source.SourceCode}, line: line}
	if first.Text == "" {
		first.Text = "FROM " + name
	}
	s.steps = append(s.steps, first)
	commands := source.Commands
	if earlier, found := r.find(name, number); found {
		if s.parent, err = r.stage(ctx, earlier); err != nil {
			return nil, err
		}
		s.base, s.start, s.state = s.parent.base, s.parent.end(), s.parent.state.clone()
		s.state.ownCmd = false
	} else {
		if s.base, err = r.image(ctx, name); err != nil {
			return nil, at(line, err)
		}
		s.state = &state{config: s.base.Config(), argument: map[string]string{}}
		s.state = s.state.clone()
		if s.start, err = keyOf(key{}, "1", r.builder.Sandboxes.Version(), s.base.Metadata.Digest, r.spec.Limits.GetDiskBytes()); err != nil {
			return nil, err
		}
	}
	triggers, err := r.triggers(s.state, line)
	if err != nil {
		return nil, err
	}
	r.stages[number] = s
	for _, command := range append(triggers, commands...) {
		if err := r.command(ctx, s, command, line); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// at gives an error the line, unless it has one, or isn't the Dockerfile's.
func at(line int, err error) error {
	var known *InvalidError
	if errors.As(err, &known) {
		if known.Line == 0 {
			known.Line = line
		}
		return err
	}
	return fmt.Errorf("line %d of the Dockerfile: %w", line, err)
}

// triggers are the ONBUILD instructions of what a stage is made from, which are done once.
func (r *run) triggers(s *state, line int) ([]instructions.Command, error) {
	var commands []instructions.Command
	for _, text := range s.config.OnBuild {
		wrong := func(err error) error { return invalid(line, "ONBUILD %s of the base: %v", shorten(text, 100), err) }
		parsed, err := parser.Parse(strings.NewReader(text))
		if err != nil {
			return nil, wrong(err)
		}
		for _, n := range parsed.AST.Children {
			command, err := instructions.ParseCommand(n)
			if err != nil {
				return nil, wrong(err)
			}
			commands = append(commands, command)
		}
	}
	s.config.OnBuild = nil
	return commands, nil
}

// image is what FROM or --from names.
func (r *run) image(ctx context.Context, name string) (image.Image, error) {
	if found, known := r.images[name]; known {
		return found, nil
	}
	var found image.Image
	var err error
	digest, named := r.spec.NamedImages[name]
	switch {
	case named:
		if found, err = r.builder.Images.Find(digest); err != nil {
			err = fmt.Errorf("image %q: %w", name, err)
		}
	case name == "scratch":
		found, err = r.builder.Images.Assemble(ctx, Assembly{Name: "scratch", Source: "scratch", Bare: true})
	default:
		found, err = r.builder.Images.Pull(ctx, name, r.emit)
	}
	if err != nil {
		return image.Image{}, err
	}
	r.images[name] = found
	return found, nil
}

// command plans one instruction.
func (r *run) command(ctx context.Context, s *stage, command instructions.Command, stageLine int) error {
	line := stageLine
	if located, ok := command.(interface{ Location() []parser.Range }); ok && lineOf(located.Location()) > 0 {
		line = lineOf(located.Location())
	}
	text := command.Name()
	if described, ok := command.(fmt.Stringer); ok {
		text = described.String()
	}
	st := &step{Step: Step{Text: text}, line: line}
	if expands, ok := command.(instructions.SupportsSingleWordExpansion); ok {
		if err := expands.Expand(r.dockerfile.expander(s.state.variables())); err != nil {
			return invalid(line, "%v", err)
		}
	}
	if expands, ok := command.(instructions.SupportsSingleWordExpansionRaw); ok {
		lex := shell.NewLex(r.dockerfile.escape)
		lex.SkipProcessQuotes = true
		env := shell.EnvsFromSlice(s.state.variables())
		if err := expands.ExpandRaw(func(word string) (string, error) {
			expanded, _, err := lex.ProcessWord(word, env)
			return expanded, err
		}); err != nil {
			return invalid(line, "%v", err)
		}
	}
	if declaration, ok := command.(*instructions.ArgCommand); ok {
		r.declare(declaration)
	}
	known, err := s.state.configure(command, func(name string) (string, bool) { return r.argument(command, name) })
	if err != nil {
		return invalid(line, "%v", err)
	}
	if !known {
		if st.op, err = r.operation(ctx, s, command, st); err != nil {
			return at(line, err)
		}
	}
	s.steps = append(s.steps, st)
	if st.op != nil {
		s.ops = append(s.ops, st.op)
	}
	return nil
}

// argument is the value of an ARG of a stage: what the caller gives, or else what was declared before the first FROM, or is always there,
// unless the ARG has a value itself.
func (r *run) argument(command instructions.Command, name string) (string, bool) {
	if value, given := r.given(name); given {
		return value, true
	}
	if declaration, ok := command.(*instructions.ArgCommand); ok {
		for _, a := range declaration.Args {
			if a.Key == name && a.Value != nil {
				return "", false
			}
		}
	}
	value, known := r.meta.argument[name]
	return value, known
}

// operation plans an instruction that changes files.
func (r *run) operation(ctx context.Context, s *stage, command instructions.Command, st *step) (*op, error) {
	o := &op{step: st}
	var depends any
	var err error
	switch command := command.(type) {
	case *instructions.WorkdirCommand:
		if command.Path == "" {
			return nil, invalid(0, "WORKDIR with an empty path")
		}
		folder := command.Path
		if !strings.HasPrefix(folder, "/") {
			folder = path.Join(s.state.workdir(), folder)
		}
		folder = path.Clean(folder)
		s.state.config.Workdir = folder
		depends = []any{"workdir", folder}
		o.do = func(ctx context.Context, _ *run, box Sandbox) error { return box.MakeFolders(ctx, folder) }
	case *instructions.RunCommand:
		depends, err = r.planRun(ctx, s, command, o)
	case *instructions.CopyCommand:
		c := &copying{
			sources: command.SourcePaths, contents: command.SourceContents, dest: command.DestPath, chown: command.Chown, chmod: command.Chmod,
			exclude: command.ExcludePatterns, parents: command.Parents, workdir: s.state.workdir(),
		}
		if command.From != "" {
			if c.from, err = r.origin(ctx, s, command.From); err != nil {
				return nil, err
			}
		}
		depends, err = r.planCopy(ctx, c, o)
	case *instructions.AddCommand:
		c := &copying{
			add: true, sources: command.SourcePaths, contents: command.SourceContents, dest: command.DestPath, chown: command.Chown, chmod: command.Chmod,
			exclude: command.ExcludePatterns, unpack: command.Unpack, checksum: command.Checksum, workdir: s.state.workdir(),
		}
		depends, err = r.planCopy(ctx, c, o)
	default:
		return nil, invalid(0, "%s is not supported", strings.ToUpper(command.Name()))
	}
	if err != nil {
		return nil, err
	}
	o.key, err = keyOf(s.end(), depends)
	return o, err
}

// origin is where --from takes files from.
type origin struct {
	stage *stage
	// image, where it is no stage.
	image *image.Image
}

func (r *run) origin(ctx context.Context, s *stage, name string) (*origin, error) {
	number, found := r.find(name, s.number)
	if n, err := strconv.Atoi(name); !found && err == nil {
		if n < 0 || n >= s.number {
			return nil, invalid(0, "--from=%s: there is no stage %s before this one", name, name)
		}
		number, found = n, true
	}
	if found {
		earlier, err := r.stage(ctx, number)
		return &origin{stage: earlier}, err
	}
	if index, later := instructions.HasStage(r.dockerfile.stages, name); later {
		return nil, invalid(0, "--from=%s: that stage begins only in line %d", name, lineOf(r.dockerfile.stages[index].Location))
	}
	taken, err := r.image(ctx, name)
	if err != nil {
		return nil, err
	}
	return &origin{image: &taken}, nil
}

// depends is what stands for all that is in an origin.
func (o *origin) depends() any {
	if o.stage != nil {
		return o.stage.end()
	}
	return o.image.Metadata.Digest
}

func isURL(source string) bool {
	return strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://")
}

// isGit says whether a source of ADD names a repository.
func isGit(source string) bool {
	u, err := url.Parse(source)
	return strings.HasPrefix(source, "git@") || strings.HasPrefix(source, "git://") || err == nil && strings.HasSuffix(u.Path, ".git")
}

// temporary makes a file of the build's that has no name.
func (r *run) temporary() (*os.File, error) {
	f, err := os.CreateTemp(r.dir, "file-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

type countingWriter struct {
	w    io.Writer
	left int64
}

var errTooMuch = errors.New("too much")

func (c *countingWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > c.left {
		return 0, errTooMuch
	}
	n, err := c.w.Write(p)
	c.left -= int64(n)
	return n, err
}

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"atoll/node/internal/failpoint"
	"atoll/node/internal/image/assemble"
	"atoll/node/internal/reap"
)

// Options of a store that makes images.
type Options struct {
	// Recipes is the folder of the images of recipes.
	Recipes string
	// Dir is the folder of the others. It is made where it is missing.
	Dir string
	// Builder is the program atoll-image.
	Builder string
	Reaper  *reap.Reaper
}

// Names in the folder of made images that are no images.
const (
	workPrefix = ".work-"
	emptyName  = ".empty"
)

// Open returns a store that can make images too, and removes what a crash has left. Only one process may have it open.
func Open(o Options) (*Store, error) {
	s := NewStore(o.Recipes)
	s.made, s.builder, s.reaper = o.Dir, o.Builder, o.Reaper
	if err := os.MkdirAll(filepath.Join(s.made, emptyName), 0o700); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	return s, s.sweep()
}

// sweep removes unfinished files, and EROFS files that no metadata names.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.made)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	named := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.made, e.Name()))
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		var m Metadata
		if json.Unmarshal(text, &m) != nil {
			// A problem that List tells of, and not a reason to remove what it may name.
			return nil
		}
		named[m.File] = true
	}
	var failures []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), workPrefix) || strings.HasSuffix(e.Name(), ".erofs") && !named[e.Name()] {
			failures = append(failures, os.RemoveAll(filepath.Join(s.made, e.Name())))
		}
	}
	return errors.Join(failures...)
}

// Layer is a tar stream, as it is or compressed with gzip or zstd, of what changes over what is below it.
type Layer struct {
	// Reader is read once, to its end. An *os.File is read by the builder itself.
	Reader io.Reader
	// Overlay: deletions are devices 0/0 and hard links to them, as overlayfs and the runtime have them. Otherwise they are names that begin
	// with ".wh.", as in OCI layers.
	Overlay bool
	// DiffID is the sha256, in hex, that the stream must have without compression; empty: any.
	DiffID string
	// Root is the folder that the layer lies in; empty: the root. Symbolic links on the way are followed in the image.
	Root string
}

// Limits bound what layers can ask for.
type Limits = assemble.Limits

// Request is what Assemble makes.
type Request struct {
	// Name is what it is made for; Origin and Source as in Metadata.
	Name, Origin, Source string
	// Base is what the first layer changes; nil: nothing.
	Base   *Image
	Layers []Layer
	Config Config
	// Bare leaves out the user `user` and what else a sandbox wants: for an image that others are built on.
	Bare   bool
	Limits Limits
	// Progress hears how many bytes of the layers are done, now and then; may be nil.
	Progress func(read uint64)
}

// ErrInvalid says that a layer or the configuration is not what it may be, and ErrTooLarge that a limit is passed or the disk is full.
var (
	ErrInvalid  = errors.New("not an image")
	ErrTooLarge = errors.New("the image is too large")
)

// Assemble makes an image of a base and layers, and returns when it is safe on disk. The layers are merged by a process without any
// privileges; nothing is unpacked. An image that was made before of the same files, the same way, is returned with its new name.
func (s *Store) Assemble(ctx context.Context, r Request) (Image, error) {
	if s.made == "" {
		return Image{}, errors.New("this store only reads images")
	}
	if err := checkConfig(r.Config); err != nil {
		return Image{}, err
	}
	work, err := os.CreateTemp(s.made, workPrefix)
	if err != nil {
		return Image{}, fmt.Errorf("images: %w", err)
	}
	defer os.Remove(work.Name())
	defer work.Close()
	result, err := s.build(ctx, r, work)
	if err != nil {
		return Image{}, err
	}
	if err := checkResult(result); err != nil {
		return Image{}, err
	}
	if err := failpoint.Hit("image.written"); err != nil {
		return Image{}, err
	}
	content, err := s.keep(ctx, work, result.Size)
	if err != nil {
		return Image{}, err
	}
	return s.add(describe(r, result, content), work.Name())
}

// build runs the process, and returns what it says.
func (s *Store) build(ctx context.Context, r Request, work *os.File) (*assemble.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	job := assemble.Job{HasBase: r.Base != nil, Config: r.Config, Bare: r.Bare, Limits: r.Limits.WithDefaults()}
	if len(r.Layers) > job.Limits.Layers {
		return nil, fmt.Errorf("%w: %d layers (expected: at most %d)", ErrTooLarge, len(r.Layers), job.Limits.Layers)
	}
	for _, l := range r.Layers {
		job.Layers = append(job.Layers, assemble.Layer{Overlay: l.Overlay, DiffID: l.DiffID, Root: l.Root})
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var feeders sync.WaitGroup
	var fed pipes
	defer feeders.Wait()
	defer fed.close()
	input, err := fed.from(&feeders, bytes.NewReader(text), nil)
	if err != nil {
		return nil, err
	}
	output, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fed.open = append(fed.open, output, theirs)
	errorsOut, theirErrors, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fed.open = append(fed.open, errorsOut, theirErrors)
	files := []*os.File{input, theirs, theirErrors, work, nil}
	if r.Base != nil {
		base, err := os.Open(r.Base.Path)
		if err != nil {
			return nil, fmt.Errorf("the base: %w", err)
		}
		fed.open = append(fed.open, base)
		files[4] = base
	}
	failed := make(chan error, len(r.Layers))
	for _, l := range r.Layers {
		if f, ok := l.Reader.(*os.File); ok {
			files = append(files, f)
			continue
		}
		f, err := fed.from(&feeders, l.Reader, failed)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	process, err := s.reaper.Start(reap.Command{Path: s.builder, Args: []string{filepath.Join(s.made, emptyName)}, Env: []string{}, Files: files})
	if err != nil {
		return nil, fmt.Errorf("%w (remedy: build Atoll anew)", err)
	}
	fed.give(input, theirs, theirErrors)
	for _, f := range files[5:] {
		fed.give(f)
	}
	said := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(errorsOut, 16<<10))
		_, _ = io.Copy(io.Discard, errorsOut)
		said <- string(b)
	}()
	messages := make(chan assemble.Message, 1)
	go func() { messages <- listen(output, r.Progress) }()
	heard := messages
	var last assemble.Message
	var status unix.WaitStatus
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for ended := false; !ended; {
		var why error
		select {
		case last = <-heard:
			// It ends now.
			heard = nil
		case status = <-process.Status:
			ended = true
		case why = <-failed:
			// A layer that ends early would look like a damaged one.
		case <-looks.C:
			why = s.enough()
		case <-ctx.Done():
			why = ctx.Err()
		}
		if why != nil {
			_, _, err := process.Kill()
			return nil, errors.Join(why, err)
		}
	}
	if heard != nil {
		last = <-heard
	}
	select {
	case err := <-failed:
		return nil, err
	default:
	}
	switch {
	case last.Error != nil:
		return nil, asError(last.Error)
	case last.Done == nil || status != 0:
		return nil, fmt.Errorf("atoll-image ended with status %#x: %s", uint32(status), strings.TrimSpace(<-said))
	}
	return last.Done, nil
}

// lookEvery is how often the disk is looked at while an image is written.
const lookEvery = 100 * time.Millisecond

// enough keeps a twentieth of the disk free, since sandboxes that run need it to go on.
func (s *Store) enough() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.made, &fs); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if fs.Bavail < fs.Blocks/20 {
		return fmt.Errorf("%w: the disk of %s is nearly full (%d of %d MiB are free; remedy: delete sandboxes, snapshots or images)",
			ErrTooLarge, s.made, fs.Bavail*uint64(fs.Bsize)>>20, fs.Blocks*uint64(fs.Bsize)>>20)
	}
	return nil
}

// listen reads what the process says, up to its last message.
func listen(r io.Reader, progress func(uint64)) assemble.Message {
	messages := json.NewDecoder(io.LimitReader(r, 16<<20))
	for {
		var m assemble.Message
		if messages.Decode(&m) != nil {
			return assemble.Message{}
		}
		if m.Done != nil || m.Error != nil {
			return m
		}
		if progress != nil {
			progress(m.Read)
		}
	}
}

func asError(e *assemble.Error) error {
	text := printable(e.Text, 2000)
	switch e.Kind {
	case assemble.Invalid:
		return fmt.Errorf("%w: %s", ErrInvalid, text)
	case assemble.TooLarge:
		return fmt.Errorf("%w: %s", ErrTooLarge, text)
	case assemble.Internal:
	}
	return errors.New(text)
}

func printable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), "?")
}

// pipes are the ends that this process holds.
type pipes struct{ open []*os.File }

func (p *pipes) close() {
	for _, f := range p.open {
		f.Close()
	}
}

// give closes ends that the process now has.
func (p *pipes) give(files ...*os.File) {
	for _, f := range files {
		if at := slices.Index(p.open, f); at >= 0 {
			p.open = slices.Delete(p.open, at, at+1)
			f.Close()
		}
	}
}

// from returns the end to read from of a pipe that is filled from r. An error of r goes to failed.
func (p *pipes) from(feeders *sync.WaitGroup, r io.Reader, failed chan<- error) (*os.File, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.open = append(p.open, out)
	feeders.Go(func() {
		_, err := io.Copy(in, r)
		// That the process did not want all of it is no fault: it says itself what it did not like.
		if err != nil && !errors.Is(err, unix.EPIPE) && failed != nil {
			failed <- err
		}
		in.Close()
	})
	return out, nil
}

// --- What the process says is checked as what a stranger says ------------------------------------------------------------------

var userPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?$`)

func checkResult(r *assemble.Result) error {
	absolute := func(p string) bool {
		return len(p) <= 4096 && strings.HasPrefix(p, "/") && utf8.ValidString(p) && strings.IndexByte(p, 0) < 0
	}
	switch {
	case !userPattern.MatchString(r.User):
		return fmt.Errorf("%w: its user has the name %q (expected: letters, digits, - and _)", ErrInvalid, printable(r.User, 100))
	case !absolute(r.Home):
		return fmt.Errorf("%w: its user's home is %q (expected: an absolute path)", ErrInvalid, printable(r.Home, 100))
	case !absolute(r.Workdir):
		return fmt.Errorf("%w: WORKDIR %q (expected: an absolute path)", ErrInvalid, printable(r.Workdir, 100))
	case r.Shell != "" && !absolute(r.Shell), len(r.Interpreters) > 100:
		return errors.New("atoll-image said what it can't say")
	}
	for _, i := range r.Interpreters {
		if !absolute(i.Path) || len(i.Version) > 100 {
			return errors.New("atoll-image said what it can't say")
		}
	}
	return nil
}

const maxConfig = 1 << 20

var envName = regexp.MustCompile(`^[^=\x00]+$`)

func checkConfig(c Config) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("%w: its configuration: %w", ErrInvalid, err)
	}
	if len(text) > maxConfig {
		return fmt.Errorf("%w: a configuration of %d bytes (expected: at most %d)", ErrInvalid, len(text), maxConfig)
	}
	for _, e := range c.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || !envName.MatchString(name) || strings.IndexByte(e, 0) >= 0 {
			return fmt.Errorf("%w: ENV %q (expected: NAME=value)", ErrInvalid, printable(e, 100))
		}
	}
	if strings.IndexByte(c.Workdir, 0) >= 0 {
		return fmt.Errorf("%w: WORKDIR %q (expected: no zero byte)", ErrInvalid, printable(c.Workdir, 100))
	}
	return nil
}

// --- Metadata ---------------------------------------------------------------------------------------------------------------

// format is raised when images of the same source come out otherwise.
const format = 1

// describe writes an image's metadata, all but its digest.
func describe(r Request, result *assemble.Result, content string) Metadata {
	config := r.Config
	m := Metadata{
		Name: r.Name, SizeBytes: result.Size, Env: map[string]string{}, Kernels: map[string]Kernel{}, Languages: []string{},
		User: result.User, UID: result.UID, GID: result.GID, Home: result.Home, Workdir: path.Clean(result.Workdir),
		File: content + ".erofs", Origin: r.Origin, Source: r.Source, Config: &config, Bare: r.Bare, Format: format,
	}
	m.Env["PATH"], m.Env["LANG"] = assemble.DefaultPath, "C.UTF-8"
	m.Env["HOME"], m.Env["USER"], m.Env["LOGNAME"] = m.Home, m.User, m.User
	if result.Shell != "" {
		m.Env["SHELL"] = result.Shell
	}
	for _, e := range config.Env {
		name, value, _ := strings.Cut(e, "=")
		m.Env[name] = value
	}
	m.Languages, m.DefaultLanguage, m.Kernels = kernels(result.Interpreters)
	return m
}

// digest is the image's: over its files and what else makes a sandbox of it different, but not over its name or where it came from.
func (m Metadata) digest() (string, error) {
	m.Name, m.Origin, m.Source, m.Digest, m.BuiltAt = "", "", "", "", 0
	text, err := json.Marshal(m)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// keep makes the file durable and returns the sha256 of its content.
func (s *Store) keep(ctx context.Context, work *os.File, size uint64) (string, error) {
	info, err := work.Stat()
	if err != nil {
		return "", err
	}
	if uint64(info.Size()) != size || size == 0 {
		return "", fmt.Errorf("atoll-image wrote %d bytes (expected: %d)", info.Size(), size)
	}
	sum := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{&until{ctx, io.NewSectionReader(work, 0, info.Size())}}, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	if err := work.Chmod(0o644); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), work.Sync()
}

// until reads as long as a context lasts.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// Made returns the image that was made of a source before, under a new name. Requires: a source stands for one content for ever, as a
// reference with a digest does.
func (s *Store) Made(name, origin, source string, bare bool) (Image, error) {
	images, _ := s.all()
	for _, i := range images {
		m := i.Metadata
		if m.Origin == origin && m.Source == source && m.Bare == bare && m.Format == format && filepath.Dir(i.Path) == s.made {
			m.Name = name
			return s.add(m, "")
		}
	}
	return Image{}, fmt.Errorf("%w: none of %s", ErrNotFound, source)
}

// add puts an image on record whose EROFS file is at work, or is there already.
func (s *Store) add(m Metadata, work string) (Image, error) {
	digest, err := m.digest()
	if err != nil {
		return Image{}, err
	}
	m.Digest, m.BuiltAt = digest, time.Now().UnixMilli()
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return Image{}, err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	file := filepath.Join(s.made, m.File)
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		if work == "" {
			return Image{}, fmt.Errorf("%w: it was removed just now", ErrNotFound)
		}
		if err := os.Rename(work, file); err != nil {
			return Image{}, fmt.Errorf("images: %w", err)
		}
	} else if err != nil {
		return Image{}, fmt.Errorf("images: %w", err)
	}
	if err := failpoint.Hit("image.renamed"); err != nil {
		return Image{}, errors.Join(err, s.removeUnnamed(m.File))
	}
	target := filepath.Join(s.made, digest+".json")
	if err := writeDurably(s.made, target, text); err != nil {
		return Image{}, errors.Join(fmt.Errorf("images: %w", err), s.removeUnnamed(m.File))
	}
	return s.Find(digest)
}

func writeDurably(dir, target string, text []byte) error {
	f, err := os.CreateTemp(dir, workPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// removeUnnamed removes an EROFS file if no image has it. Requires: s.changing is held.
func (s *Store) removeUnnamed(file string) error {
	images, _ := s.all()
	for _, i := range images {
		if i.Metadata.File == file {
			return nil
		}
	}
	err := os.Remove(filepath.Join(s.made, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// ErrOfRecipe says that an image is a recipe's, which other installations use too.
var ErrOfRecipe = errors.New("the image is a recipe's and lies in the cache that all installations of this machine share; " +
	"./atoll removes it from there when it was not used for 14 days")

// Delete removes an image that inUse does not hold for needed, and returns how much of the disk is free by that. Succeeds for one that is
// not there. inUse is asked again once nobody can find the image any more.
func (s *Store) Delete(digest string, inUse func() error) (freed uint64, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	i, err := s.Find(digest)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if s.made == "" || filepath.Dir(i.Path) != s.made {
		return 0, ErrOfRecipe
	}
	if err := inUse(); err != nil {
		return 0, err
	}
	record := filepath.Join(s.made, digest+".json")
	hidden := filepath.Join(s.made, workPrefix+digest)
	if err := os.Rename(record, hidden); err != nil {
		return 0, fmt.Errorf("images: %w", err)
	}
	if err := inUse(); err != nil {
		return 0, errors.Join(err, os.Rename(hidden, record))
	}
	allocated := func() uint64 {
		var st unix.Stat_t
		if unix.Stat(i.Path, &st) != nil {
			return 0
		}
		return uint64(st.Blocks) * 512
	}
	before := allocated()
	if err := errors.Join(os.Remove(hidden), s.removeUnnamed(i.Metadata.File)); err != nil {
		return 0, fmt.Errorf("images: %w", err)
	}
	return before - allocated(), nil
}

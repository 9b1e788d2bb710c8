package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	pathpkg "path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	filev1 "atoll/node/gen/filev1"
)

const (
	defaultFound    = 1000
	maxFound        = 10_000
	maxPatternBytes = 4096
	// What is looked at for whether a file is text.
	sampleBytes = 8 << 10
	// A longer line is looked at in parts that overlap.
	maxLineBytes   = 256 << 10
	overlapBytes   = maxPatternBytes
	maxShownRunes  = 2000
	maxReplyBytes  = 4 << 20
	maxReplaceSize = 8 << 20
	maxResultSize  = 32 << 20
)

// glob matches names, or paths below the folder where the pattern holds a slash.
type glob struct {
	parts []string // one: a pattern of names
	path  bool
}

func newGlob(pattern string) (*glob, error) {
	if pattern == "" {
		return nil, nil
	}
	if len(pattern) > maxPatternBytes {
		return nil, fmt.Errorf("a pattern of %d bytes (expected: at most %d)", len(pattern), maxPatternBytes)
	}
	g := &glob{path: strings.Contains(pattern, "/")}
	for part := range strings.SplitSeq(pattern, "/") {
		if part == "" {
			continue
		}
		if _, err := pathpkg.Match(part, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		g.parts = append(g.parts, part)
	}
	if len(g.parts) == 0 {
		return nil, fmt.Errorf("pattern %q names nothing", pattern)
	}
	return g, nil
}

func (g *glob) match(below string) bool {
	if g == nil {
		return true
	}
	if !g.path {
		ok, _ := pathpkg.Match(g.parts[0], pathpkg.Base(below))
		return ok
	}
	// reached[i]: the first i parts match the names so far.
	reached := make([]bool, len(g.parts)+1)
	reached[0] = true
	skip := func() {
		for i, part := range g.parts {
			if part == "**" && reached[i] {
				reached[i+1] = true
			}
		}
	}
	skip()
	for name := range strings.SplitSeq(below, "/") {
		for i := len(g.parts) - 1; i >= 0; i-- {
			if g.parts[i] == "**" {
				reached[i+1] = reached[i+1] || reached[i]
				continue
			}
			ok := false
			if reached[i] {
				ok, _ = pathpkg.Match(g.parts[i], name)
			}
			reached[i+1] = ok
			if i == 0 || g.parts[i-1] != "**" {
				reached[i] = false
			}
		}
		reached[0] = false
		skip()
	}
	return reached[len(g.parts)]
}

// matcher finds a text or an expression in a line.
type matcher struct {
	text       []byte
	expression *regexp.Regexp
}

func newMatcher(pattern string, regular, ignoreCase bool) (*matcher, error) {
	if len(pattern) > maxPatternBytes {
		return nil, fmt.Errorf("a pattern of %d bytes (expected: at most %d)", len(pattern), maxPatternBytes)
	}
	if !regular && !ignoreCase {
		return &matcher{text: []byte(pattern)}, nil
	}
	if !regular {
		pattern = regexp.QuoteMeta(pattern)
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return &matcher{expression: expression}, nil
}

func (m *matcher) find(line []byte) (from, to int, ok bool) {
	if m.expression == nil {
		from = bytes.Index(line, m.text)
		return from, from + len(m.text), from >= 0
	}
	if at := m.expression.FindIndex(line); at != nil {
		return at[0], at[1], true
	}
	return 0, 0, false
}

type finder struct {
	ctx     context.Context
	thread  *thread
	request *filev1.Find
	root    string
	names   *glob
	matcher *matcher
	limit   int
	size    int
	full    bool
	buffer  []byte
	reply   *filev1.FileReply
}

func (t *thread) find(ctx context.Context, request *filev1.Find) (*filev1.FileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	f := &finder{ctx: ctx, thread: t, request: request, root: canonical(path), limit: int(request.Limit), reply: &filev1.FileReply{}}
	if f.limit == 0 {
		f.limit = defaultFound
	}
	f.limit = min(f.limit, maxFound)
	if f.names, err = newGlob(request.Name); err != nil {
		return nil, status(codes.InvalidArgument, path, "%v", err)
	}
	if request.Content != "" {
		if f.matcher, err = newMatcher(request.Content, request.RegularExpression, request.IgnoreCase); err != nil {
			return nil, status(codes.InvalidArgument, path, "%v", err)
		}
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return nil, failure(path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		parent, name, err := t.openParent(path, false)
		if err != nil {
			return nil, err
		}
		defer unix.Close(parent)
		f.root = pathpkg.Dir(f.root)
		f.look(parent, name, name, &stat, false)
		return f.reply, ctx.Err()
	}
	root, err := openFolder(path)
	if err != nil {
		return nil, failure(path, err)
	}
	w, err := newWalk(root)
	if err != nil {
		return nil, failure(path, err)
	}
	defer w.close()
	if err := f.walk(w); err != nil {
		return nil, failure(path, err)
	}
	if f.full {
		f.reply.Problems = append(f.reply.Problems, fmt.Sprintf("the search ended at %d results: there may be more", len(f.reply.Entries)+len(f.reply.Matches)))
	}
	return f.reply, nil
}

func (f *finder) walk(w *walk) error {
	for !f.full {
		if f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		e, ok, err := w.next()
		if err != nil {
			f.trouble(w.below(""), err)
			ok = false
		}
		if !ok {
			if w.depth() == 1 {
				return nil
			}
			if err := w.ascend(); err != nil {
				return err
			}
			continue
		}
		if !f.request.Hidden && strings.HasPrefix(e.name, ".") {
			continue
		}
		below := w.below(e.name)
		var stat unix.Stat_t
		known := e.kind != unix.DT_UNKNOWN
		if !known {
			if unix.Fstatat(w.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
		}
		if f.names.match(below) {
			if known && unix.Fstatat(w.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			f.look(w.fd(), e.name, below, &stat, true)
		}
		if known && e.kind == unix.DT_DIR || !known && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := w.descend(e.name); err != nil {
				f.trouble(below, err)
			}
		}
	}
	return nil
}

func (f *finder) trouble(below string, err error) {
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		f.reply.Problems = problem(f.reply.Problems, failure(pathIn(f.root, below), err))
	}
}

// look takes a file whose name matches.
func (f *finder) look(dir int, name, below string, stat *unix.Stat_t, nofollow bool) {
	if f.request.Type != filev1.FileType_FILE_TYPE_UNSPECIFIED && typeOf(stat.Mode) != f.request.Type {
		return
	}
	if f.matcher == nil {
		info := f.thread.describe(dir, name, pathIn(f.root, below), stat)
		f.size += proto.Size(info)
		f.reply.Entries = append(f.reply.Entries, info)
		f.full = len(f.reply.Entries) >= f.limit || f.size > maxReplyBytes
		return
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size == 0 {
		return
	}
	flags := 0
	if nofollow {
		flags = unix.O_NOFOLLOW
	}
	fd, _, err := openRegularWith(dir, name, flags)
	if err != nil {
		f.trouble(below, err)
		return
	}
	defer unix.Close(fd)
	if err := f.search(fd, below); err != nil && f.ctx.Err() == nil {
		f.trouble(below, err)
	}
}

// search takes the first match of each line.
func (f *finder) search(fd int, below string) error {
	if f.buffer == nil {
		f.buffer = make([]byte, maxLineBytes)
	}
	held, offset, line := 0, int64(0), uint64(1)
	counted := false // this line has its match
	for end := false; !end || held > 0; {
		if f.ctx.Err() != nil || f.full {
			return nil
		}
		if !end {
			n, err := readAt(fd, f.buffer[held:], offset)
			if err != nil {
				return err
			}
			if offset == 0 && bytes.IndexByte(f.buffer[:min(n, sampleBytes)], 0) >= 0 {
				return nil
			}
			offset += int64(n)
			held += n
			end = n == 0
		}
		rest := f.buffer[:held]
		// Most of what is read holds no match: look once at all whole lines.
		for len(rest) > 0 {
			newline := bytes.IndexByte(rest, '\n')
			if newline < 0 {
				break
			}
			if !counted {
				f.take(below, line, rest[:newline])
			}
			counted = false
			line++
			rest = rest[newline+1:]
			if f.full {
				return nil
			}
		}
		switch {
		case end:
			if len(rest) > 0 && !counted {
				f.take(below, line, rest)
			}
			return nil
		case len(rest) == len(f.buffer):
			if !counted {
				counted = f.take(below, line, rest)
			}
			held = copy(f.buffer, rest[len(rest)-overlapBytes:])
		default:
			held = copy(f.buffer, rest)
		}
	}
	return nil
}

func (f *finder) take(below string, number uint64, line []byte) bool {
	from, to, ok := f.matcher.find(line)
	if !ok {
		return false
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	from, to = min(from, len(line)), min(to, len(line))
	text, from, length := excerpt(line, from, to)
	match := &filev1.Match{
		Path: strings.ToValidUTF8(pathIn(f.root, below), "\uFFFD"), Line: number, Text: text, From: uint32(from), Length: uint32(length),
	}
	f.size += proto.Size(match)
	f.reply.Matches = append(f.reply.Matches, match)
	f.full = len(f.reply.Matches) >= f.limit || f.size > maxReplyBytes
	return true
}

// excerpt is the part of a line around a match, as text, and where the match is in it.
func excerpt(line []byte, from, to int) (text string, start, length int) {
	runes := maxShownRunes
	begin, end := from, from
	for end < to && runes > 0 {
		_, n := utf8.DecodeRune(line[end:])
		end += n
		runes--
	}
	to = min(to, end)
	// A third of what is left goes before the match.
	for before := runes / 3; begin > 0 && before > 0; before-- {
		_, n := utf8.DecodeLastRune(line[:begin])
		begin -= n
		runes--
	}
	for end < len(line) && runes > 0 {
		_, n := utf8.DecodeRune(line[end:])
		end += n
		runes--
	}
	for begin > 0 && runes > 0 {
		_, n := utf8.DecodeLastRune(line[:begin])
		begin -= n
		runes--
	}
	valid := func(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
	before, match := valid(line[begin:from]), valid(line[from:to])
	return before + match + valid(line[to:max(end, to)]), len(before), len(match)
}

func (f *Files) replace(ctx context.Context, t *thread, request *filev1.Replace) (*filev1.FileReply, error) {
	if request.Pattern == "" || len(request.Paths) == 0 || len(request.Paths) > maxFound {
		return nil, status(codes.InvalidArgument, "replace", "a pattern, and 1 to %d paths, are needed", maxFound)
	}
	pattern := request.Pattern
	replacement := request.Replacement
	if !request.RegularExpression {
		pattern = regexp.QuoteMeta(pattern)
	}
	if len(request.Pattern) > maxPatternBytes && request.RegularExpression {
		return nil, status(codes.InvalidArgument, "replace", "a pattern of %d bytes (expected: at most %d)", len(pattern), maxPatternBytes)
	}
	var expression *regexp.Regexp
	if request.RegularExpression {
		var err error
		if expression, err = regexp.Compile(pattern); err != nil {
			return nil, status(codes.InvalidArgument, "replace", "%v", err)
		}
	}
	reply := &filev1.FileReply{}
	for _, path := range request.Paths {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		result := &filev1.Replaced{Path: path}
		count, err := f.replaceIn(ctx, t, path, request, expression, replacement)
		if err != nil {
			result.Error = problem(nil, err)[0]
		}
		result.Count = uint32(count)
		reply.Changed = reply.Changed || count > 0
		reply.Replaced = append(reply.Replaced, result)
	}
	return reply, nil
}

func (f *Files) replaceIn(ctx context.Context, t *thread, given string, request *filev1.Replace, expression *regexp.Regexp, replacement string) (int, error) {
	path, err := t.absolute(given)
	if err != nil {
		return 0, err
	}
	fd, stat, err := openRegularWith(unix.AT_FDCWD, path, 0)
	if err != nil {
		return 0, failure(path, err)
	}
	defer unix.Close(fd)
	if stat.Size > maxReplaceSize {
		return 0, status(codes.FailedPrecondition, path, "holds %d bytes (expected: at most %d)", stat.Size, maxReplaceSize)
	}
	text := make([]byte, stat.Size)
	n, err := readFull(fd, text, 0)
	if err != nil {
		return 0, failure(path, err)
	}
	text = text[:n]
	if bytes.IndexByte(text[:min(n, sampleBytes)], 0) >= 0 {
		return 0, status(codes.FailedPrecondition, path, "is no text")
	}
	count, result, err := replaced(text, request.Pattern, expression, replacement)
	if err != nil {
		return 0, status(codes.ResourceExhausted, path, "%v", err)
	}
	if count == 0 || bytes.Equal(result, text) {
		return count, nil
	}
	g, err := f.newTarget(t, path, false, false, 0o644)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	if g.old.Ino != stat.Ino || g.old.Dev != stat.Dev || g.old.Mtim != stat.Mtim {
		return 0, status(codes.Aborted, path, "was changed meanwhile")
	}
	if err := writeAt(g.temporary, result, 0); err != nil {
		return 0, failure(path, err)
	}
	if err := g.commit(ctx, nil, int64(len(result))); err != nil {
		return 0, err
	}
	return count, nil
}

// replaced refuses a result that would be too large before it is made.
func replaced(text []byte, pattern string, expression *regexp.Regexp, replacement string) (int, []byte, error) {
	count, matched, references := 0, 0, 0
	if expression == nil {
		count = bytes.Count(text, []byte(pattern))
		matched = count * len(pattern)
	} else {
		expression.ReplaceAllFunc(text, func(match []byte) []byte {
			count++
			matched += len(match)
			return nil
		})
		references = strings.Count(replacement, "$")
	}
	if size := len(text) - matched + count*len(replacement) + references*matched; size > maxResultSize {
		return 0, nil, fmt.Errorf("the result would be up to %d bytes long (expected: at most %d)", size, maxResultSize)
	}
	switch {
	case count == 0:
		return 0, text, nil
	case expression == nil:
		return count, bytes.ReplaceAll(text, []byte(pattern), []byte(replacement)), nil
	}
	return count, expression.ReplaceAll(text, []byte(replacement)), nil
}

// A cursor is a path below a folder. Names may be any bytes: it is told in hexadecimal digits.
func encodeCursor(below string) string { return fmt.Sprintf("%x", below) }

func decodeCursor(text string) ([]string, error) {
	var below []byte
	if n, err := fmt.Sscanf(text, "%x", &below); err != nil || n != 1 || len(text) != 2*len(below) {
		return nil, errors.New("no cursor")
	}
	parts := strings.Split(string(below), "/")
	if slices.Contains(parts, "") {
		return nil, errors.New("no cursor")
	}
	return parts, nil
}

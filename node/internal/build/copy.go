package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/patternmatcher"
	"github.com/ulikunitz/xz"

	"atoll/node/internal/egress"
)

// copying is a COPY or an ADD.
type copying struct {
	add      bool
	from     *origin // nil: the build context
	sources  []string
	contents []instructions.SourceContent
	dest     string
	workdir  string
	chown    string
	chmod    string
	exclude  []string
	parents  bool
	unpack   *bool
	checksum string

	mode    *int64
	matcher *patternmatcher.PatternMatcher
	// fetched are the files that ADD got from elsewhere, by their address.
	fetched map[string]*fetched
}

// fetched is a file of ADD's.
type fetched struct {
	name     string
	content  func() io.Reader
	size     int64
	sum      string
	modified time.Time
}

// planCopy checks a COPY or ADD as far as that is possible before it is done, and returns what its result depends on.
func (r *run) planCopy(ctx context.Context, c *copying, o *op) (any, error) {
	name := "COPY"
	if c.add {
		name = "ADD"
	}
	if c.dest == "" {
		return nil, invalid(0, "%s with an empty destination", name)
	}
	if c.chmod != "" {
		mode, err := strconv.ParseInt(c.chmod, 8, 32)
		if err != nil || mode < 0 || mode > 0o7777 {
			return nil, invalid(0, "%s --chmod=%s (expected: an octal number such as 755)", name, shorten(c.chmod, 100))
		}
		c.mode = &mode
	}
	if len(c.exclude) > 0 {
		var err error
		if c.matcher, err = patternmatcher.New(c.exclude); err != nil {
			return nil, invalid(0, "%s --exclude: %v", name, err)
		}
	}
	depends := []any{name, c.dest, c.workdir, c.chown, c.chmod, c.exclude, c.parents, c.unpack, c.contents}
	count := len(c.contents)
	switch {
	case c.from != nil:
		depends = append(depends, c.sources, c.from.depends())
		count += len(c.sources)
		if c.from.stage != nil {
			o.needs = append(o.needs, c.from.stage)
		}
	default:
		for _, source := range c.sources {
			if isGit(source) && c.add {
				return nil, invalid(0, "ADD of a Git repository is not supported (remedy: RUN git clone)")
			}
			if isURL(source) {
				if !c.add {
					return nil, invalid(0, "COPY from an address (expected: ADD, or a path of the build context)")
				}
				got, err := r.fetch(ctx, c, source)
				if err != nil {
					return nil, err
				}
				depends = append(depends, got.name, got.sum)
				count++
				continue
			}
			found, err := r.context.find(source)
			if errors.Is(err, ErrNoFile) {
				if r.context.blobs == nil {
					return nil, invalid(0, "%s %s: %v", name, shorten(source, 200), errNoContext)
				}
				return nil, invalid(0, "%s: %q is not in the build context (or .dockerignore leaves it out)", name, shorten(source, 200))
			}
			if err != nil {
				return nil, invalid(0, "%s: %v", name, err)
			}
			for _, m := range found {
				sum, err := m.node.digest(c.matcher)
				if err != nil {
					return nil, invalid(0, "%s --exclude: %v", name, err)
				}
				depends = append(depends, m.name, sum)
				if c.parents {
					depends = append(depends, m.path)
				}
			}
			count += len(found)
		}
	}
	if count > 1 && !folderName(c.dest) && !strings.ContainsAny(strings.Join(c.sources, ""), "*?[") {
		return nil, invalid(0, "%s of several sources to %q (expected: a folder, whose name ends with /)", name, shorten(c.dest, 200))
	}
	o.do = func(ctx context.Context, r *run, box Sandbox) error { return r.copyAll(ctx, box, c) }
	return depends, nil
}

// folderName says whether a destination is one of a folder by its name alone.
func folderName(dest string) bool {
	last := path.Base(dest)
	return strings.HasSuffix(dest, "/") || last == "." || last == ".."
}

func (c *copying) target() string {
	dest := c.dest
	if !strings.HasPrefix(dest, "/") {
		dest = path.Join(c.workdir, dest)
	}
	return path.Clean(dest)
}

// piece is one file or folder that is copied.
type piece struct {
	name string
	// path is where it came from, for --parents.
	path   string
	folder bool
	mode   int64
	uid    int
	gid    int
	// write writes the contents of a folder with names below it, or the one file under any name, as the entries of a tar.
	write func(ctx context.Context, put func(*tar.Header, io.Reader) error) error
}

// copyAll does a COPY or an ADD.
func (r *run) copyAll(ctx context.Context, box Sandbox, c *copying) error {
	var owner *[2]int
	if c.chown != "" {
		uid, gid, err := lookUpOwner(ctx, box, c.chown)
		if err != nil {
			return err
		}
		owner = &[2]int{uid, gid}
	}
	pieces, archives, err := r.pieces(ctx, c)
	if err != nil {
		return err
	}
	intoFolder := folderName(c.dest) || c.parents
	if len(pieces)+len(archives) > 1 && !intoFolder {
		return invalid(0, "several files to %q (expected: a folder, whose name ends with /)", shorten(c.dest, 200))
	}
	for _, p := range pieces {
		if err := r.place(ctx, box, c, p, owner, intoFolder); err != nil {
			return err
		}
	}
	for _, a := range archives {
		if err := r.unpackArchive(ctx, box, c, a, owner); err != nil {
			return err
		}
	}
	return nil
}

// place copies one piece.
func (r *run) place(ctx context.Context, box Sandbox, c *copying, p piece, owner *[2]int, intoFolder bool) error {
	target := c.target()
	prefix := ""
	if c.parents {
		prefix = p.path
		if p.folder {
			prefix += "/"
		}
	}
	there, err := box.Stat(ctx, target, true)
	missing := errors.Is(err, ErrNoFile)
	if err != nil && !missing {
		return err
	}
	folder, name := target, p.name
	switch {
	case p.folder:
		if !missing && there.Kind != Folder {
			return invalid(0, "%q is no folder in the image, and a folder is copied there", shorten(target, 200))
		}
	case intoFolder, !missing && there.Kind == Folder:
		if !missing && there.Kind != Folder {
			return invalid(0, "%q is no folder in the image", shorten(target, 200))
		}
	default:
		folder, name = path.Dir(target), path.Base(target)
	}
	if folder != target {
		there, err = box.Stat(ctx, folder, true)
		if missing = errors.Is(err, ErrNoFile); err != nil && !missing {
			return err
		}
		if !missing && there.Kind != Folder {
			return invalid(0, "%q is no folder in the image", shorten(folder, 200))
		}
	}
	if missing {
		if err := r.makeTarget(ctx, box, c, p, folder, owner, folder == target); err != nil {
			return err
		}
	}
	return stream(func(w io.Writer) error {
		out := tar.NewWriter(w)
		put := func(header *tar.Header, content io.Reader) error {
			if p.folder {
				header.Name = prefix + header.Name
			} else {
				header.Name = name
				if c.parents {
					header.Name = prefix
				}
			}
			if header.Typeflag == tar.TypeLink {
				header.Linkname = prefix + header.Linkname
			}
			return write(out, c.changed(header, owner), content)
		}
		if err := p.write(ctx, put); err != nil {
			return err
		}
		return out.Close()
	}, func(archive io.Reader) error { return box.Unpack(ctx, folder, archive) })
}

// makeTarget makes a folder that something is copied to. Its own mode and owner are those of the folder whose contents are copied.
func (r *run) makeTarget(ctx context.Context, box Sandbox, c *copying, p piece, folder string, owner *[2]int, itself bool) error {
	first, err := firstMissing(ctx, box, folder)
	if err != nil {
		return err
	}
	if err := box.MakeFolders(ctx, folder); err != nil {
		return err
	}
	if owner != nil {
		if err := box.Change(ctx, first, nil, uint32(owner[0]), uint32(owner[1]), true); err != nil {
			return err
		}
	}
	if !p.folder || !itself || c.parents {
		return nil
	}
	header := c.changed(&tar.Header{Mode: p.mode, Uid: p.uid, Gid: p.gid}, owner)
	mode := uint32(header.Mode)
	return box.Change(ctx, folder, &mode, uint32(header.Uid), uint32(header.Gid), false)
}

// changed applies --chown and --chmod.
func (c *copying) changed(header *tar.Header, owner *[2]int) *tar.Header {
	if owner != nil {
		header.Uid, header.Gid = owner[0], owner[1]
	}
	if c.mode != nil && header.Typeflag != tar.TypeSymlink {
		header.Mode = *c.mode
	}
	header.Uname, header.Gname = "", ""
	return header
}

func write(out *tar.Writer, header *tar.Header, content io.Reader) error {
	header.Format = tar.FormatPAX
	// Only what was said above: the rest is of the archive that it came from.
	header.PAXRecords, header.AccessTime, header.ChangeTime = keptRecords(header.PAXRecords), time.Time{}, time.Time{}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := io.Copy(out, content)
	return err
}

func keptRecords(records map[string]string) map[string]string {
	var kept map[string]string
	for name, value := range records {
		if strings.HasPrefix(name, "SCHILY.xattr.user.") || name == "SCHILY.xattr.security.capability" {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[name] = value
		}
	}
	return kept
}

// stream has what one function writes read by another. The reader's error counts, unless the writer's is the cause.
func stream(from func(io.Writer) error, to func(io.Reader) error) error {
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		buffered := bufio.NewWriterSize(writer, 256<<10)
		err := from(buffered)
		if err == nil {
			err = buffered.Flush()
		}
		writer.CloseWithError(err)
		written <- err
	}()
	err := to(reader)
	reader.CloseWithError(errReaderGone)
	if failed := <-written; failed != nil && !errors.Is(failed, errReaderGone) {
		return failed
	}
	return err
}

var errReaderGone = errors.New("the reader has gone")

// pieces are what the sources stand for; archives, those that are to be unpacked.
func (r *run) pieces(ctx context.Context, c *copying) (all []piece, archives []*fetched, err error) {
	for _, content := range c.contents {
		all = append(all, contentPiece(content))
	}
	if c.from != nil {
		box, err := r.source(ctx, c.from)
		if err != nil {
			return nil, nil, err
		}
		for _, source := range c.sources {
			found, err := boxPieces(ctx, box, c, source)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, found...)
		}
		return all, nil, nil
	}
	for _, source := range c.sources {
		if got := c.fetched[source]; got != nil {
			if c.unpack != nil && *c.unpack {
				archives = append(archives, got)
			} else {
				all = append(all, got.piece())
			}
			continue
		}
		found, err := r.context.find(source)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range found {
			if c.add && m.node.kind == RegularFile && (c.unpack == nil || *c.unpack) && r.isArchive(m.node) {
				archives = append(archives, &fetched{name: m.name, content: func() io.Reader { return r.context.content(m.node) }})
				continue
			}
			p := r.contextPiece(c, m)
			p.path = afterPivot(source, m.path)
			all = append(all, p)
		}
	}
	return all, archives, nil
}

// afterPivot is the part of a path that --parents keeps: what follows "/./" in the source.
func afterPivot(source, full string) string {
	before, _, found := strings.Cut(source, "/./")
	if !found {
		return full
	}
	return strings.TrimPrefix(strings.TrimPrefix(full, strings.Join(parts(before), "/")), "/")
}

func contentPiece(content instructions.SourceContent) piece {
	return piece{name: path.Base(content.Path), path: path.Base(content.Path), write: func(_ context.Context, put func(*tar.Header, io.Reader) error) error {
		return put(&tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content.Data))}, strings.NewReader(content.Data))
	}}
}

func (r *run) contextPiece(c *copying, m match) piece {
	p := piece{name: m.name, folder: m.node.kind == Folder, mode: m.node.mode}
	put := func(name string, n *node, put func(*tar.Header, io.Reader) error) error {
		header := &tar.Header{Name: name, Mode: n.mode, ModTime: n.modified}
		switch n.kind {
		case Folder:
			header.Typeflag, header.Name = tar.TypeDir, name+"/"
		case Symlink:
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, n.target, 0o777
		default:
			header.Typeflag, header.Size = tar.TypeReg, n.size
			return put(header, r.context.content(n))
		}
		return put(header, nil)
	}
	p.write = func(ctx context.Context, out func(*tar.Header, io.Reader) error) error {
		if !p.folder {
			return put(m.name, m.node, out)
		}
		return m.node.walk("", func(name string, n *node) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			left, err := excluded(c.matcher, name)
			if err != nil || left {
				return err
			}
			return put(name, n, out)
		})
	}
	return p
}

// boxPieces are what a pattern stands for in another box.
func boxPieces(ctx context.Context, box Sandbox, c *copying, pattern string) ([]piece, error) {
	paths := []string{"/"}
	for _, part := range parts(pattern) {
		var next []string
		for _, folder := range paths {
			if !strings.ContainsAny(part, `*?[\`) {
				next = append(next, path.Join(folder, part))
				continue
			}
			entries, err := box.List(ctx, folder)
			if errors.Is(err, ErrNoFile) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				fits, err := path.Match(part, e.Name)
				if err != nil {
					return nil, invalid(0, "COPY: pattern %q: %v", shorten(pattern, 200), err)
				}
				if fits {
					next = append(next, path.Join(folder, e.Name))
				}
			}
		}
		paths = next
	}
	var all []piece
	for _, full := range paths {
		at, err := box.Stat(ctx, full, true)
		if errors.Is(err, ErrNoFile) && strings.ContainsAny(pattern, `*?[\`) {
			continue
		}
		if errors.Is(err, ErrNoFile) {
			return nil, invalid(0, "COPY --from: %q is not there", shorten(full, 200))
		}
		if err != nil {
			return nil, err
		}
		if at.Kind != Folder && at.Kind != RegularFile {
			return nil, invalid(0, "COPY --from: %q is neither a file nor a folder", shorten(full, 200))
		}
		p := piece{
			name: path.Base(full), folder: at.Kind == Folder, mode: int64(at.Mode), uid: int(at.UID), gid: int(at.GID),
			path: afterPivot(pattern, strings.TrimPrefix(full, "/")),
		}
		p.write = func(ctx context.Context, put func(*tar.Header, io.Reader) error) error {
			if full == "/" {
				return packRoot(ctx, box, c.matcher, put)
			}
			return stream(func(w io.Writer) error { return box.Pack(ctx, full, w) }, func(archive io.Reader) error {
				return eachEntry(archive, c.matcher, p.folder, put)
			})
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, invalid(0, "COPY --from: nothing fits %q", shorten(pattern, 200))
	}
	return all, nil
}

// eachEntry passes on the entries of an archive that came from a sandbox.
func eachEntry(archive io.Reader, matcher *patternmatcher.PatternMatcher, folder bool, put func(*tar.Header, io.Reader) error) error {
	entries := tar.NewReader(archive)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, archive)
			return err
		}
		if err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		default:
			continue
		}
		if folder {
			left, err := excluded(matcher, strings.TrimSuffix(header.Name, "/"))
			if err != nil {
				return err
			}
			if left {
				continue
			}
		}
		if err := put(header, entries); err != nil {
			return err
		}
	}
}

// ofRuntime are the paths below the root that are the runtime's, in every sandbox, and of no image.
var ofRuntime = []string{"proc", "sys", "dev", ".atoll", "tmp/.atoll"}

// packRoot is Pack for all files of a box but the runtime's.
func packRoot(ctx context.Context, box Sandbox, matcher *patternmatcher.PatternMatcher, put func(*tar.Header, io.Reader) error) error {
	entries, err := box.List(ctx, "/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(ofRuntime, e.Name) {
			continue
		}
		if left, err := excluded(matcher, e.Name); err != nil || left && e.Kind != Folder {
			if err != nil {
				return err
			}
			continue
		}
		header := &tar.Header{Name: e.Name, Mode: int64(e.Mode), Uid: int(e.UID), Gid: int(e.GID)}
		prefix := ""
		switch e.Kind {
		case Symlink:
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.Target
		case Folder:
			header.Typeflag, prefix = tar.TypeDir, e.Name+"/"
			header.Name = prefix
		case RegularFile:
		default:
			continue
		}
		if e.Kind != RegularFile {
			if err := put(header, nil); err != nil {
				return err
			}
		}
		if e.Kind == Symlink {
			continue
		}
		below := func(h *tar.Header, content io.Reader) error {
			if e.Kind == Folder {
				h.Name = prefix + h.Name
				if h.Typeflag == tar.TypeLink {
					h.Linkname = prefix + h.Linkname
				}
			}
			name := strings.TrimSuffix(h.Name, "/")
			if left, err := excluded(matcher, name); err != nil || left || slices.Contains(ofRuntime, name) {
				return err
			}
			return put(h, content)
		}
		err := stream(func(w io.Writer) error { return box.Pack(ctx, "/"+e.Name, w) }, func(archive io.Reader) error {
			return eachEntry(archive, nil, false, below)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const mountedFile = "file"

// copyMount copies a folder's contents into a folder that is there, or a file under a name of its own, and says which it was.
func (r *run) copyMount(ctx context.Context, box Sandbox, from *origin, source, folder string) (isFolder bool, err error) {
	c := &copying{from: from, sources: []string{source}, dest: folder + "/", workdir: "/"}
	pieces, _, err := r.pieces(ctx, c)
	if err != nil {
		return false, err
	}
	if len(pieces) != 1 {
		return false, invalid(0, "%q stands for %d files (expected: one, or a folder)", shorten(source, 200), len(pieces))
	}
	pieces[0].name = mountedFile
	return pieces[0].folder, r.place(ctx, box, c, pieces[0], nil, true)
}

// --- Archives and addresses -------------------------------------------------------------------------------------------------

// opened is the content of an archive without its compression; ok is false where it is none.
func opened(content io.Reader) (archive io.Reader, ok bool) {
	buffered := bufio.NewReaderSize(content, 64<<10)
	magic, _ := buffered.Peek(6)
	var plain io.Reader = buffered
	var err error
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err = gzip.NewReader(buffered)
	case bytes.HasPrefix(magic, []byte("BZh")):
		plain = bzip2.NewReader(buffered)
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		plain, err = xz.ReaderConfig{DictCap: 128 << 20}.NewReader(buffered)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		plain, err = zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderLowmem(true))
	}
	if err != nil {
		return nil, false
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(plain, head)
	if err != nil || n < len(head) {
		return nil, false
	}
	whole := io.MultiReader(bytes.NewReader(head), plain)
	if !bytes.HasPrefix(head[257:], []byte("ustar")) {
		// An archive of the old form, or none.
		if _, err := tar.NewReader(bytes.NewReader(append(slices.Clone(head), make([]byte, 1024)...))).Next(); err != nil || bytes.Equal(head, make([]byte, 512)) {
			return nil, false
		}
	}
	return whole, true
}

func (r *run) isArchive(n *node) bool {
	_, ok := opened(r.context.content(n))
	return ok
}

func (f *fetched) piece() piece {
	return piece{name: f.name, path: f.name, write: func(_ context.Context, put func(*tar.Header, io.Reader) error) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Mode: 0o600, Size: f.size, ModTime: f.modified}
		return put(header, f.content())
	}}
}

// unpackArchive has an archive unpacked in the box. Here it is only read entry by entry.
func (r *run) unpackArchive(ctx context.Context, box Sandbox, c *copying, f *fetched, owner *[2]int) error {
	target := c.target()
	there, err := box.Stat(ctx, target, true)
	switch {
	case errors.Is(err, ErrNoFile):
		if err := box.MakeFolders(ctx, target); err != nil {
			return err
		}
	case err != nil:
		return err
	case there.Kind != Folder:
		return invalid(0, "%q is no folder in the image, and an archive is unpacked there", shorten(target, 200))
	}
	archive, ok := opened(f.content())
	if !ok {
		return invalid(0, "ADD --unpack: %q is no tar archive", shorten(f.name, 200))
	}
	// More can't fit the sandbox's disk.
	limited := &io.LimitedReader{R: archive, N: int64(min(r.spec.Limits.GetDiskBytes(), 1<<62))}
	return stream(func(w io.Writer) error {
		out := tar.NewWriter(w)
		entries := tar.NewReader(limited)
		for {
			header, err := entries.Next()
			if errors.Is(err, io.EOF) {
				return out.Close()
			}
			if err != nil {
				if limited.N <= 0 {
					return invalid(0, "%s is larger, unpacked, than the disk of build sandboxes", shorten(f.name, 200))
				}
				return invalid(0, "%s: %v", shorten(f.name, 200), err)
			}
			switch header.Typeflag {
			case tar.TypeGNUSparse, tar.TypeCont:
				header.Typeflag = tar.TypeReg
			case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
			default:
				continue
			}
			header.Name = strings.TrimLeft(header.Name, "/")
			if strings.Trim(path.Clean("/"+header.Name), "/") == "" {
				continue
			}
			if header.Typeflag == tar.TypeLink {
				header.Linkname = strings.TrimLeft(header.Linkname, "/")
			}
			if err := write(out, c.changed(header, owner), entries); err != nil {
				return err
			}
		}
	}, func(archive io.Reader) error { return box.Unpack(ctx, target, archive) })
}

// fetch gets a file from elsewhere, as build boxes would: only what they could reach.
func (r *run) fetch(ctx context.Context, c *copying, address string) (*fetched, error) {
	if !r.spec.Network {
		return nil, invalid(0, "ADD %s: builds have no network (the setting build.network is off)", shorten(address, 200))
	}
	proxy := &egress.Proxy{Policy: r.policy, Logger: r.builder.Logger}
	client := &http.Client{
		Timeout: r.spec.StepTimeout,
		Transport: &http.Transport{
			Proxy: nil, DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return proxy.Dial(ctx, address) },
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, invalid(0, "ADD: %v", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ADD: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ADD %s: the server answers %s", shorten(address, 200), shorten(response.Status, 100))
	}
	got := &fetched{name: path.Base(request.URL.Path)}
	if got.name == "/" || got.name == "." {
		if folderName(c.dest) {
			return nil, invalid(0, "ADD %s to a folder: the address names no file", shorten(address, 200))
		}
		got.name = path.Base(c.target())
	}
	if at, err := http.ParseTime(response.Header.Get("Last-Modified")); err == nil {
		got.modified = at
	}
	file, err := r.temporary()
	if err != nil {
		return nil, err
	}
	r.files = append(r.files, file)
	got.content = func() io.Reader { return io.NewSectionReader(file, 0, got.size) }
	sum := sha256.New()
	limit := int64(min(r.spec.Limits.GetDiskBytes(), 1<<62))
	if got.size, err = io.Copy(&countingWriter{io.MultiWriter(file, sum), limit}, response.Body); err != nil {
		if errors.Is(err, errTooMuch) {
			return nil, invalid(0, "ADD %s: it has more bytes than the disk of build sandboxes", shorten(address, 200))
		}
		return nil, fmt.Errorf("ADD %s: %w", shorten(address, 200), err)
	}
	got.sum = hex.EncodeToString(sum.Sum(nil))
	if c.checksum != "" && c.checksum != "sha256:"+got.sum {
		return nil, invalid(0, "ADD %s: its checksum is sha256:%s (expected: %s)", shorten(address, 200), got.sum, shorten(c.checksum, 100))
	}
	if c.fetched == nil {
		c.fetched = map[string]*fetched{}
	}
	c.fetched[address] = got
	return got, nil
}

// lookUpOwner finds the numbers of "user", "user:group", or numbers, by what the image knows.
func lookUpOwner(ctx context.Context, box Sandbox, text string) (uid, gid int, err error) {
	user, group, hasGroup := strings.Cut(text, ":")
	number := func(name, file string) (int, int, error) {
		if n, err := strconv.ParseUint(name, 10, 31); err == nil {
			return int(n), int(n), nil
		}
		content, err := box.ReadSmall(ctx, file, 4<<20)
		if err != nil && !errors.Is(err, ErrNoFile) {
			return 0, 0, err
		}
		for line := range strings.SplitSeq(string(content), "\n") {
			fields := strings.Split(line, ":")
			if len(fields) < 4 || fields[0] != name {
				continue
			}
			id, err := strconv.ParseUint(fields[2], 10, 31)
			if err != nil {
				continue
			}
			of, err := strconv.ParseUint(fields[3], 10, 31)
			if err != nil {
				of = id // of a group, the members
			}
			return int(id), int(of), nil
		}
		if name == "root" {
			return 0, 0, nil
		}
		return 0, 0, invalid(0, "--chown=%s: %q is not in the image's %s (expected: a name that is, or a number)", shorten(text, 100), shorten(name, 100), file)
	}
	if uid, gid, err = number(user, "/etc/passwd"); err != nil || !hasGroup {
		return uid, gid, err
	}
	gid, _, err = number(group, "/etc/group")
	return uid, gid, err
}

package files

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	pathpkg "path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/frame"
)

// Folders whose final mode keeps their owner from writing to them get it at the end.
const maxLateModes = 50_000

func checkFormat(format filev1.ArchiveFormat, path string) (compressed bool, err error) {
	switch format {
	case filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR:
		return false, nil
	case filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR_GZIP:
		return true, nil
	}
	return false, status(codes.InvalidArgument, path, "archive format %v is not known", format)
}

// pieceWriter sends what is written to it in full pieces.
type pieceWriter struct {
	stream *frame.Stream
	buffer *[]byte
	size   int
	piece  filev1.FilePiece
}

func (w *pieceWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := copy((*w.buffer)[w.size:], p)
		w.size += n
		p = p[n:]
		if w.size == len(*w.buffer) {
			if err := w.flush(); err != nil {
				return total - len(p), err
			}
		}
	}
	return total, nil
}

func (w *pieceWriter) flush() error {
	if w.size == 0 {
		return nil
	}
	w.piece.Data = (*w.buffer)[:w.size]
	w.size = 0
	return w.stream.Send(&w.piece)
}

// enterArchives takes one of the threads for archives, which are held as long as the other side takes.
func (f *Files) enterArchives() error {
	select {
	case f.threads.archives <- struct{}{}:
		<-f.threads.archives
		return nil
	default:
		return tooMany("archives", maxArchives)
	}
}

// readArchive sends a folder, or a file, as an archive. What is no file, folder or symlink is left out.
func (f *Files) readArchive(stream *frame.Stream, request *filev1.ReadFileRequest) error {
	compressed, err := checkFormat(request.Archive, request.Path)
	if err != nil {
		return err
	}
	if request.Offset != 0 || request.Length != 0 {
		return status(codes.InvalidArgument, request.Path, "an archive has neither offset nor length")
	}
	if err := f.enterArchives(); err != nil {
		return err
	}
	ctx, p := stream.Context(), f.threads
	_, err = do(ctx, p, p.archives, request.User, func(t *thread) (struct{}, error) {
		return struct{}{}, t.pack(ctx, stream, request.Path, compressed)
	})
	return err
}

func (t *thread) pack(ctx context.Context, stream *frame.Stream, given string, compressed bool) error {
	path, err := t.absolute(given)
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return failure(path, err)
	}
	folder := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	fd := -1
	if folder {
		fd, err = openFolder(path)
	} else {
		fd, stat, err = openRegularWith(unix.AT_FDCWD, path, 0)
	}
	if err != nil {
		return failure(path, err)
	}
	info := t.describe(unix.AT_FDCWD, path, canonical(path), &stat)
	if err := stream.Send(&filev1.FilePiece{File: info}); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return err
	}
	out := &pieceWriter{stream: stream, buffer: pieces.Get().(*[]byte)}
	defer pieces.Put(out.buffer)
	pack := &packer{ctx: ctx, thread: t, buffer: pieces.Get().(*[]byte), path: info.Path}
	defer pieces.Put(pack.buffer)
	var below io.Writer = out
	var zip *gzip.Writer
	if compressed {
		if zip, err = gzip.NewWriterLevel(out, gzip.BestSpeed); err != nil {
			return err
		}
		below = zip
	}
	pack.out = tar.NewWriter(below)
	if folder {
		err = pack.folder(fd)
	} else {
		err = pack.file(fd, pathpkg.Base(info.Path), &stat)
	}
	if err != nil {
		return err
	}
	if err := pack.out.Close(); err != nil {
		return err
	}
	if zip != nil {
		if err := zip.Close(); err != nil {
			return err
		}
	}
	return out.flush()
}

type packer struct {
	ctx    context.Context
	thread *thread
	out    *tar.Writer
	buffer *[]byte
	path   string
}

// header is in GNU's form, which takes names of any bytes and any length.
func (k *packer) header(name string, stat *unix.Stat_t, kind byte) *tar.Header {
	return &tar.Header{
		Format: tar.FormatGNU, Typeflag: kind, Name: name, Mode: int64(stat.Mode & permissionBits),
		Uid: int(stat.Uid), Gid: int(stat.Gid), Uname: short(k.thread.users.userName(stat.Uid)), Gname: short(k.thread.users.groupName(stat.Gid)),
		ModTime: time.Unix(stat.Mtim.Sec, 0),
	}
}

// short fits the header's field.
func short(name string) string {
	if len(name) > 31 {
		return ""
	}
	return name
}

// file takes the descriptor over.
func (k *packer) file(fd int, name string, stat *unix.Stat_t) error {
	defer unix.Close(fd)
	header := k.header(name, stat, tar.TypeReg)
	header.Size = stat.Size
	if err := k.out.WriteHeader(header); err != nil {
		return err
	}
	for offset := int64(0); offset < stat.Size; {
		n, err := readAt(fd, (*k.buffer)[:min(int64(len(*k.buffer)), stat.Size-offset)], offset)
		if err != nil {
			return failure(pathIn(k.path, name), err)
		}
		if n == 0 {
			return status(codes.Aborted, pathIn(k.path, name), "has got shorter while it was read")
		}
		if _, err := k.out.Write((*k.buffer)[:n]); err != nil {
			return err
		}
		offset += int64(n)
	}
	return nil
}

func (k *packer) folder(root int) error {
	w, err := newWalk(root)
	if err != nil {
		return failure(k.path, err)
	}
	defer w.close()
	for {
		if k.ctx.Err() != nil {
			return k.ctx.Err()
		}
		e, ok, err := w.next()
		if err != nil {
			return failure(pathIn(k.path, w.below("")), err)
		}
		if !ok {
			if w.depth() == 1 {
				return nil
			}
			if err := w.ascend(); err != nil {
				return failure(k.path, err)
			}
			continue
		}
		if err := k.entry(w, e); err != nil && !errors.Is(err, unix.ENOENT) {
			return failure(pathIn(k.path, w.below(e.name)), err)
		}
	}
}

// entry fails with ENOENT, before anything is written, where the entry has gone.
func (k *packer) entry(w *walk, e entry) error {
	name := w.below(e.name)
	var stat unix.Stat_t
	if err := unix.Fstatat(w.fd(), e.name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		// That it was a file a moment ago is known; what it is now is looked at again.
		fd, err := open(w.fd(), e.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		if err = unix.Fstat(fd, &stat); err == nil {
			err = regular(&stat)
		}
		if err != nil {
			_ = unix.Close(fd)
			return err
		}
		return k.file(fd, name, &stat)
	case unix.S_IFDIR:
		if err := w.descend(e.name); err != nil {
			return err
		}
		return k.out.WriteHeader(k.header(name+"/", &stat, tar.TypeDir))
	case unix.S_IFLNK:
		target, err := readLink(w.fd(), e.name)
		if err != nil {
			return err
		}
		header := k.header(name, &stat, tar.TypeSymlink)
		header.Linkname = target
		return k.out.WriteHeader(header)
	}
	return nil
}

func (f *Files) writeArchive(ctx context.Context, request *filev1.WriteFileOpen, in *upload) (*filev1.WriteFileReply, error) {
	compressed, err := checkFormat(request.Archive, request.Path)
	if err != nil {
		return nil, err
	}
	if request.Offset != 0 || request.Mode != filev1.WriteMode_WRITE_MODE_REPLACE || len(request.Attributes) > 0 {
		return nil, status(codes.InvalidArgument, request.Path, "an archive is unpacked without mode, offset and attributes")
	}
	if err := f.enterArchives(); err != nil {
		return nil, err
	}
	p := f.threads
	return do(ctx, p, p.archives, request.User, func(t *thread) (*filev1.WriteFileReply, error) {
		return f.unpack(ctx, t, request, in, compressed)
	})
}

func (f *Files) unpack(ctx context.Context, t *thread, request *filev1.WriteFileOpen, in *upload, compressed bool) (*filev1.WriteFileReply, error) {
	path, err := t.absolute(request.Path)
	if err != nil {
		return nil, err
	}
	root, err := openFolder(path)
	created := false
	if errors.Is(err, unix.ENOENT) {
		if !request.Parents {
			err = unix.Mkdir(path, 0o755)
		} else {
			err = makeFolders(path)
		}
		if err == nil {
			created = true
			root, err = openFolder(path)
		}
	}
	if err != nil {
		return nil, failure(path, err)
	}
	defer unix.Close(root)
	if err := room(root, path, request.ExpectedBytes); err != nil {
		return nil, err
	}
	u := &unpacker{
		files: f, thread: t, ctx: ctx, root: root, path: path, folder: -1, buffer: pieces.Get().(*[]byte), lateModes: map[string]uint32{},
		preserve: request.Preserve, lateTimes: map[string]time.Time{},
	}
	defer pieces.Put(u.buffer)
	defer u.leave()
	var data io.Reader = in
	if compressed {
		zip, err := gzip.NewReader(bufio.NewReaderSize(in, pieceBytes))
		if err != nil {
			return nil, u.explain(err)
		}
		data = zip
	}
	archive := tar.NewReader(data)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, u.explain(err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := u.entry(header, archive); err != nil {
			return nil, err
		}
	}
	if err := in.drain(); err != nil {
		return nil, err
	}
	if err := u.finish(); err != nil {
		return nil, err
	}
	info, err := t.lookUp(path, true)
	if err != nil {
		return nil, err
	}
	return &filev1.WriteFileReply{File: info, Bytes: u.bytes, Files: u.count, Created: created}, nil
}

// unpacker puts the entries of an archive into a folder. It goes to each by opening one folder after the other, none by way of a
// symlink, and never by a path: whatever the archive, or somebody inside meanwhile, puts there leads nowhere else.
type unpacker struct {
	files  *Files
	thread *thread
	ctx    context.Context
	root   int
	path   string
	buffer *[]byte
	bytes  uint64
	count  uint64
	// the folder of the last entry, which is mostly that of the next
	folder     int
	folderName string
	lateModes  map[string]uint32
	// preserve has entries get all that the archive says of them; lateTimes are of folders, which change while they are filled.
	preserve  bool
	lateTimes map[string]time.Time
}

// modeBits are those that an entry may have.
func (u *unpacker) modeBits() int64 {
	if u.preserve {
		return permissionBits
	}
	return 0o1777
}

// explain says what is wrong with an archive, unless it is the transport or the disk that failed.
func (u *unpacker) explain(err error) error {
	var s *frame.Status
	if errors.As(err, &s) {
		return s
	}
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return status(codes.InvalidArgument, u.path, "the archive is cut short")
	}
	return status(codes.InvalidArgument, u.path, "no such archive: %v", err)
}

func (u *unpacker) refuse(header *tar.Header, format string, arguments ...any) error {
	return status(codes.InvalidArgument, u.path, "the archive's entry %q %s", show(header.Name), fmt.Sprintf(format, arguments...))
}

// components are the names on the way to an entry; none for the folder itself.
func components(name string) ([]string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return nil, errors.New("has a NUL in its name")
	}
	if strings.HasPrefix(name, "/") {
		return nil, errors.New("has an absolute name")
	}
	var found []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return nil, errors.New("would lie outside of the folder")
		default:
			found = append(found, part)
		}
	}
	return found, nil
}

func (u *unpacker) entry(header *tar.Header, data io.Reader) error {
	names, err := components(header.Name)
	if err != nil {
		return u.refuse(header, "%v", err)
	}
	kind := header.Typeflag
	if kind == tar.TypeReg && strings.HasSuffix(header.Name, "/") {
		kind = tar.TypeDir
	}
	switch kind {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeGNUSparse, tar.TypeCont:
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return u.refuse(header, "is a device, a FIFO or of another type (%q) that is not unpacked", kind)
	}
	if len(names) == 0 {
		if kind == tar.TypeDir {
			return nil // the folder itself
		}
		return u.refuse(header, "has no name")
	}
	var source []string
	if kind == tar.TypeLink {
		if source, err = components(header.Linkname); err != nil || len(source) == 0 {
			return u.refuse(header, "is a link to %q, which is not in the folder", show(header.Linkname))
		}
	}
	name := names[len(names)-1]
	folder, err := u.enter(names[:len(names)-1])
	if err != nil {
		return u.failed(header, err)
	}
	switch kind {
	case tar.TypeDir:
		err = u.makeFolder(folder, name, strings.Join(names, "/"), uint32(header.Mode&u.modeBits()), header)
	case tar.TypeSymlink:
		if header.Linkname == "" || len(header.Linkname) > maxPathBytes {
			return u.refuse(header, "is a symlink with a target of %d bytes", len(header.Linkname))
		}
		if err = u.clear(folder, name); err == nil {
			err = unix.Symlinkat(header.Linkname, folder, name)
		}
		if err == nil && u.preserve {
			err = u.keepSymlink(folder, name, header)
		}
	case tar.TypeLink:
		err = u.link(source, folder, name)
	default:
		err = u.file(header, data, folder, name)
	}
	if err != nil {
		return u.failed(header, err)
	}
	u.count++
	return nil
}

func (u *unpacker) failed(header *tar.Header, err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return status(codes.FailedPrecondition, u.path, "the archive's entry %q would be written by way of something that is no folder", show(header.Name))
	}
	var s *frame.Status
	if errors.As(err, &s) {
		return s
	}
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	return failure(pathIn(u.path, header.Name), err)
}

func (u *unpacker) leave() {
	if u.folder >= 0 && u.folder != u.root {
		_ = unix.Close(u.folder)
	}
	u.folder, u.folderName = -1, ""
}

// enter opens the folder with these names below the root, and makes what is missing.
func (u *unpacker) enter(names []string) (int, error) {
	wanted := strings.Join(names, "/")
	if u.folder >= 0 && u.folderName == wanted {
		return u.folder, nil
	}
	u.leave()
	fd, err := walkTo(u.root, names, true)
	if err != nil {
		return -1, err
	}
	u.folder, u.folderName = fd, wanted
	return fd, nil
}

// walkTo returns root itself for no names.
func walkTo(root int, names []string, make bool) (int, error) {
	fd := root
	for _, name := range names {
		next, err := openFolderAt(fd, name)
		if errors.Is(err, unix.ENOENT) && make {
			if err = unix.Mkdirat(fd, name, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openFolderAt(fd, name)
			}
		}
		if errors.Is(err, unix.EACCES) {
			// A folder that may be passed but not read.
			next, err = openFolderWith(fd, name, unix.O_PATH)
		}
		if fd != root {
			_ = unix.Close(fd)
		}
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func (u *unpacker) makeFolder(parent int, name, path string, mode uint32, header *tar.Header) error {
	if u.preserve {
		return u.keepFolder(parent, name, path, mode, header)
	}
	first := mode | 0o700
	err := unix.Mkdirat(parent, name, first)
	if errors.Is(err, unix.EEXIST) {
		var fd int
		if fd, err = openFolderAt(parent, name); err != nil {
			return err
		}
		err = unix.Fchmod(fd, first)
		_ = unix.Close(fd)
		if errors.Is(err, unix.EPERM) {
			return nil // another's folder: what may be written into it, may
		}
	}
	if err != nil {
		return err
	}
	if first != mode && len(u.lateModes) < maxLateModes {
		u.lateModes[path] = mode
	}
	return nil
}

// clear makes way for an entry; a folder stays, and is in its way.
func (u *unpacker) clear(folder int, name string) error {
	err := unix.Unlinkat(folder, name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (u *unpacker) link(source []string, folder int, name string) error {
	from, err := walkTo(u.root, source[:len(source)-1], false)
	if err != nil {
		return err
	}
	if from != u.root {
		defer unix.Close(from)
	}
	last := source[len(source)-1]
	var stat, there unix.Stat_t
	if err := unix.Fstatat(from, last, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := regular(&stat); err != nil {
		return err
	}
	if unix.Fstatat(folder, name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil && there.Ino == stat.Ino && there.Dev == stat.Dev {
		return nil
	}
	if err := u.clear(folder, name); err != nil {
		return err
	}
	return unix.Linkat(from, last, folder, name, 0)
}

// file writes a new file, never into one that is there: that might have other names.
func (u *unpacker) file(header *tar.Header, data io.Reader, folder int, name string) error {
	made := name
	// Fifty thousand files are nothing special: each takes as few system calls as can be. The mode is said here, it does not concern this
	// descriptor.
	mode := uint32(header.Mode & u.modeBits())
	fd, err := open(folder, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	if errors.Is(err, unix.EEXIST) {
		var stat unix.Stat_t
		if unix.Fstatat(folder, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			return unix.EISDIR
		}
		made = temporaryName(replacing)
		fd, err = open(folder, made, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	}
	if err != nil {
		return err
	}
	err = u.fill(fd, header, data)
	_ = unix.Close(fd)
	if err == nil && made != name {
		err = unix.Renameat(folder, made, folder, name)
	}
	if err != nil {
		_ = unix.Unlinkat(folder, made, 0)
	}
	return err
}

func (u *unpacker) fill(fd int, header *tar.Header, data io.Reader) error {
	sparse := header.Typeflag == tar.TypeGNUSparse || header.PAXRecords["GNU.sparse.major"] != "" || header.PAXRecords["GNU.sparse.map"] != ""
	if !sparse && header.Size > largeEntry {
		if err := room(fd, pathIn(u.path, header.Name), uint64(header.Size)); err != nil {
			return err
		}
	}
	size := int64(0)
	for {
		n, err := data.Read(*u.buffer)
		if n > 0 {
			// A sparse file stays one. Zeros of others are written: they count for the disk's limit.
			if !sparse || !zero((*u.buffer)[:n]) {
				if err := writeAt(fd, (*u.buffer)[:n], size); err != nil {
					return err
				}
			}
			size += int64(n)
			u.bytes += uint64(n)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u.explain(err)
		}
		if u.ctx.Err() != nil {
			return u.ctx.Err()
		}
	}
	if sparse {
		if err := unix.Ftruncate(fd, size); err != nil {
			return err
		}
	}
	if u.preserve {
		if err := u.keep(fd, header); err != nil {
			return err
		}
	}
	if header.ModTime.IsZero() {
		return nil
	}
	return setTime(fd, unix.NsecToTimespec(header.ModTime.UnixNano()))
}

const (
	attributeRecord = "SCHILY.xattr."
	// All of one entry.
	maxRecordBytes = 256 << 10
)

// keep gives an open file or folder the owner, the attributes and the whole mode that the archive says, in an order in which none undoes
// another.
func (u *unpacker) keep(fd int, header *tar.Header) error {
	if err := unix.Fchown(fd, header.Uid, header.Gid); err != nil {
		return err
	}
	size := 0
	for key, value := range header.PAXRecords {
		name, isAttribute := strings.CutPrefix(key, attributeRecord)
		// Others are of the archive's own system: what hides behind them can't be known here.
		if !isAttribute || !strings.HasPrefix(name, userAttributes) && name != "security.capability" {
			continue
		}
		if size += len(name) + len(value); size > maxRecordBytes {
			return unix.E2BIG
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return unix.Fchmod(fd, uint32(header.Mode&u.modeBits()))
}

func (u *unpacker) keepSymlink(folder int, name string, header *tar.Header) error {
	if err := unix.Fchownat(folder, name, header.Uid, header.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if header.ModTime.IsZero() {
		return nil
	}
	at := unix.NsecToTimespec(header.ModTime.UnixNano())
	return unix.UtimesNanoAt(folder, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) keepFolder(parent int, name, path string, mode uint32, header *tar.Header) error {
	if err := unix.Mkdirat(parent, name, mode|0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := openFolderAt(parent, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := u.keep(fd, header); err != nil {
		return err
	}
	if !header.ModTime.IsZero() && len(u.lateTimes) < maxLateModes {
		u.lateTimes[path] = header.ModTime
	}
	return nil
}

// For a larger entry it is looked first whether the disk has the room.
const largeEntry = 1 << 20

// finish gives folders the modes that had to wait. One that is no more, or has become something else, needs none.
func (u *unpacker) finish() error {
	for path, mode := range u.lateModes {
		fd, err := walkTo(u.root, strings.Split(path, "/"), false)
		if err != nil {
			continue
		}
		err = unix.Fchmod(fd, mode)
		_ = unix.Close(fd)
		if err != nil && !errors.Is(err, unix.EBADF) && !errors.Is(err, unix.EPERM) {
			return failure(pathIn(u.path, path), err)
		}
	}
	for path, at := range u.lateTimes {
		fd, err := walkTo(u.root, strings.Split(path, "/"), false)
		if err != nil {
			continue
		}
		err = setTime(fd, unix.NsecToTimespec(at.UnixNano()))
		_ = unix.Close(fd)
		if err != nil && !errors.Is(err, unix.EBADF) {
			return failure(pathIn(u.path, path), err)
		}
	}
	return nil
}

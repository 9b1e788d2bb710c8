package files

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/frame"
)

const (
	// With its fields a piece fills one frame.
	pieceBytes = 64<<10 - 64
	// What a piece holds when many transfers are under way, so that slow readers hold little memory.
	smallPieceBytes = 16 << 10
	manyTransfers   = 32
	maxTransfers    = 256
)

var pieces = sync.Pool{New: func() any {
	buffer := make([]byte, pieceBytes)
	return &buffer
}}

var smallPieces = sync.Pool{New: func() any {
	buffer := make([]byte, smallPieceBytes)
	return &buffer
}}

func (f *Files) beginTransfer() (*sync.Pool, error) {
	n := f.transfers.Add(1)
	if n > maxTransfers {
		f.transfers.Add(-1)
		return nil, tooMany("transfers of files", maxTransfers)
	}
	if n > manyTransfers {
		return &smallPieces, nil
	}
	return &pieces, nil
}

func (f *Files) endTransfer() { f.transfers.Add(-1) }

// descriptor is a result that is closed where nobody waits for it any more.
type descriptor struct {
	fd   int
	info *filev1.FileInfo
	stat unix.Stat_t
	size int64
}

func (d *descriptor) Close() error { return unix.Close(d.fd) }

// Read serves ReadFile.
func (f *Files) Read(stream *frame.Stream) error {
	request := &filev1.ReadFileRequest{}
	if err := stream.Receive(request); err != nil {
		return err
	}
	pool, err := f.beginTransfer()
	if err != nil {
		return err
	}
	defer f.endTransfer()
	if request.Archive != filev1.ArchiveFormat_ARCHIVE_FORMAT_NONE {
		return f.readArchive(stream, request)
	}
	ctx, p := stream.Context(), f.threads
	file, err := do(ctx, p, p.short, request.User, func(t *thread) (*descriptor, error) {
		path, err := t.absolute(request.Path)
		if err != nil {
			return nil, err
		}
		fd, stat, err := openRegularWith(unix.AT_FDCWD, path, 0)
		if err != nil {
			return nil, failure(path, err)
		}
		return &descriptor{fd: fd, info: t.describe(unix.AT_FDCWD, path, canonical(path), &stat), stat: stat, size: stat.Size}, nil
	})
	if err != nil {
		return err
	}
	defer file.Close()
	read := func(p []byte, offset int64) (int, error) { return readAt(file.fd, p, offset) }
	endless := generated(file.fd)
	if endless {
		// What such a file says depends on who reads.
		read = func(p []byte, offset int64) (int, error) {
			return f.readAs(ctx, request.User, file.fd, p, offset)
		}
	}
	buffer := pool.Get().(*[]byte)
	defer pool.Put(buffer)
	first := &filev1.FilePiece{File: file.info}
	piece := &filev1.FilePiece{}
	end := uint64(file.size)
	if request.Length != 0 && request.Length < end-min(request.Offset, end) || endless && request.Length != 0 {
		end = request.Offset + request.Length
	}
	for offset := request.Offset; offset < end || endless && request.Length == 0; {
		want := uint64(len(*buffer))
		if !endless || request.Length != 0 {
			want = min(want, end-offset)
		}
		n, err := read((*buffer)[:want], int64(offset))
		if err != nil {
			return failure(request.Path, err)
		}
		if n == 0 {
			if endless {
				break
			}
			return status(codes.Aborted, request.Path, "has got shorter: %d bytes came, %d were announced", offset, end)
		}
		piece.Data = (*buffer)[:n]
		if first != nil {
			err = stream.SendAll(first, piece)
			first = nil
		} else {
			err = stream.Send(piece)
		}
		if err != nil {
			return err
		}
		offset += uint64(n)
	}
	if first != nil {
		return stream.Reply(first)
	}
	return nil
}

// generated says whether a file's contents are made when it is read: its size says nothing.
func generated(fd int) bool {
	var stat unix.Statfs_t
	if unix.Fstatfs(fd, &stat) != nil {
		return false
	}
	switch stat.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC:
		return true
	}
	return false
}

// readAs reads with the rights of a user. The bytes go into a buffer of its own: the read may outlast the call.
func (f *Files) readAs(ctx context.Context, user string, fd int, p []byte, offset int64) (int, error) {
	own, err := lend(fd)
	if err != nil {
		return 0, err
	}
	defer own.end()
	size := len(p)
	data, err := do(ctx, f.threads, f.threads.short, user, func(*thread) ([]byte, error) {
		if !own.take() {
			return nil, ctx.Err()
		}
		defer unix.Close(own.fd)
		buffer := make([]byte, size)
		n, err := readAt(own.fd, buffer, offset)
		return buffer[:n], err
	})
	return copy(p, data), err
}

// errBrokenOff is the end of a call without its commit.
var errBrokenOff = &frame.Status{Code: codes.Canceled, Message: "the call ended without a commit: nothing was changed"}

// upload is the data of a WriteFile call as a reader. It ends at the commit.
type upload struct {
	stream    *frame.Stream
	data      []byte
	buffer    []byte
	committed bool
}

// next calls take with the data of the next message; false after the commit.
func (u *upload) next(take func([]byte) error) (bool, error) {
	if u.committed {
		return false, nil
	}
	var failed error
	err := u.stream.ReceiveBytes(func(message []byte) error {
		// An error returned here would cancel the stream, and the caller not hear of the reason.
		failed = u.message(message, take)
		return nil
	})
	if errors.Is(err, io.EOF) {
		return false, errBrokenOff
	}
	if err == nil {
		err = failed
	}
	return err == nil && !u.committed, err
}

func (u *upload) message(message []byte, take func([]byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		switch {
		case field == 2 && kind == protowire.BytesType:
			data, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			if err := take(data); err != nil {
				return err
			}
			continue
		case field == 3:
			u.committed = true
		case field == 1:
			return &frame.Status{Code: codes.InvalidArgument, Message: "`open` is the first message, and only that"}
		}
		n = protowire.ConsumeFieldValue(field, kind, message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
	}
	return nil
}

func (u *upload) Read(p []byte) (int, error) {
	for len(u.data) == 0 {
		more, err := u.next(func(data []byte) error {
			u.buffer = append(u.buffer[:0], data...)
			u.data = u.buffer
			return nil
		})
		if err != nil {
			return 0, err
		}
		if !more && len(u.data) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(p, u.data)
	u.data = u.data[n:]
	return n, nil
}

// drain takes what comes after the end of an archive.
func (u *upload) drain() error {
	for {
		more, err := u.next(func([]byte) error { return nil })
		if err != nil || !more {
			return err
		}
	}
}

// Write serves WriteFile.
func (f *Files) Write(stream *frame.Stream) error {
	first := &filev1.WriteFileRequest{}
	if err := stream.Receive(first); err != nil {
		return err
	}
	request := first.GetOpen()
	if request == nil {
		return &frame.Status{Code: codes.InvalidArgument, Message: "the first message is `open`"}
	}
	if _, err := f.beginTransfer(); err != nil {
		return err
	}
	defer f.endTransfer()
	if request.Permissions > permissionBits {
		return status(codes.InvalidArgument, request.Path, "permissions %#o (expected: at most 07777)", request.Permissions)
	}
	in := &upload{stream: stream}
	var reply *filev1.WriteFileReply
	var err error
	switch {
	case request.Archive != filev1.ArchiveFormat_ARCHIVE_FORMAT_NONE:
		reply, err = f.writeArchive(stream.Context(), request, in)
	case request.Mode == filev1.WriteMode_WRITE_MODE_REPLACE || request.Mode == filev1.WriteMode_WRITE_MODE_CREATE:
		reply, err = f.writeWhole(stream.Context(), request, in)
	case request.Mode == filev1.WriteMode_WRITE_MODE_APPEND || request.Mode == filev1.WriteMode_WRITE_MODE_AT_OFFSET:
		reply, err = f.writePart(stream.Context(), request, in)
	default:
		err = status(codes.InvalidArgument, request.Path, "mode %v is not known", request.Mode)
	}
	if err != nil {
		return err
	}
	return stream.Reply(reply)
}

func permissions(request *filev1.WriteFileOpen) uint32 {
	if request.Permissions == 0 {
		return 0o644
	}
	return request.Permissions
}

// room refuses what the disk has no place for.
func room(fd int, path string, wanted uint64) error {
	if wanted == 0 {
		return nil
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil {
		return failure(path, err)
	}
	if free := stat.Bavail * uint64(stat.Bsize); stat.Bavail < 1<<50 && free < wanted {
		return status(codes.ResourceExhausted, path, "%d bytes are to come, the disk has %d left", wanted, free)
	}
	return nil
}

func (f *Files) writeWhole(ctx context.Context, request *filev1.WriteFileOpen, in *upload) (*filev1.WriteFileReply, error) {
	p := f.threads
	create := request.Mode == filev1.WriteMode_WRITE_MODE_CREATE
	g, err := do(ctx, p, p.short, request.User, func(t *thread) (*target, error) {
		path, err := t.absolute(request.Path)
		if err != nil {
			return nil, err
		}
		g, err := f.newTarget(t, path, create, request.Parents, permissions(request))
		if err != nil {
			return nil, err
		}
		if err := room(g.temporary, path, request.ExpectedBytes); err != nil {
			_ = g.Close()
			return nil, err
		}
		return g, nil
	})
	if err != nil {
		return nil, err
	}
	var owned atomic.Bool
	defer func() {
		if !owned.Swap(true) {
			_ = g.Close()
		}
	}()
	size := int64(0)
	for more := true; more; {
		more, err = in.next(func(data []byte) error {
			if err := writeAt(g.temporary, data, size); err != nil {
				return failure(g.path, err)
			}
			size += int64(len(data))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	// Once it works on it, the thread owns the target: the caller may go meanwhile.
	return do(ctx, p, p.short, request.User, func(t *thread) (*filev1.WriteFileReply, error) {
		if owned.Swap(true) {
			return nil, ctx.Err()
		}
		defer g.Close()
		if err := g.commit(ctx, request.Attributes, size); err != nil {
			return nil, err
		}
		info, err := t.lookUp(g.path, true)
		if err != nil {
			return nil, err
		}
		return &filev1.WriteFileReply{File: info, Bytes: uint64(size), Created: !g.exists}, nil
	})
}

// writePart appends, or writes from an offset on. What has been written stays, also when the call is broken off.
func (f *Files) writePart(ctx context.Context, request *filev1.WriteFileOpen, in *upload) (*filev1.WriteFileReply, error) {
	p := f.threads
	add := request.Mode == filev1.WriteMode_WRITE_MODE_APPEND
	if !add && request.Offset > 1<<62 {
		return nil, status(codes.InvalidArgument, request.Path, "offset %d", request.Offset)
	}
	created := false
	file, err := do(ctx, p, p.short, request.User, func(t *thread) (*descriptor, error) {
		path, err := t.absolute(request.Path)
		if err != nil {
			return nil, err
		}
		if request.Parents {
			parent, _ := split(path)
			if err := makeFolders(parent); err != nil {
				return nil, err
			}
		}
		d, fresh, err := openPart(t, path, add, permissions(request))
		if err != nil {
			return nil, failure(path, err)
		}
		wanted := request.ExpectedBytes
		if !add {
			wanted = request.Offset + wanted - min(uint64(d.size), request.Offset+wanted)
			if request.Offset > uint64(d.size) {
				wanted = request.ExpectedBytes // the hole takes no place
			}
		}
		err = room(d.fd, path, wanted)
		if err == nil {
			err = setAttributes(d.fd, path, request.Attributes)
		}
		if err != nil {
			_ = d.Close()
			return nil, err
		}
		if fresh {
			d.info = &filev1.FileInfo{}
		}
		return d, nil
	})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	created = file.info != nil
	bytes := int64(0)
	for more := true; more; {
		more, err = in.next(func(data []byte) error {
			var err error
			if add {
				err = writeEnd(file.fd, data)
			} else {
				err = writeAt(file.fd, data, int64(request.Offset)+bytes)
			}
			if err != nil {
				return failure(request.Path, err)
			}
			bytes += int64(len(data))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	info, err := do(ctx, p, p.short, request.User, func(t *thread) (*filev1.FileInfo, error) {
		path, err := t.absolute(request.Path)
		if err != nil {
			return nil, err
		}
		return t.lookUp(path, true)
	})
	if err != nil {
		return nil, err
	}
	return &filev1.WriteFileReply{File: info, Bytes: uint64(bytes), Created: created}, nil
}

func openPart(t *thread, path string, add bool, mode uint32) (*descriptor, bool, error) {
	flags := unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	if add {
		flags |= unix.O_APPEND
	}
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	fresh := errors.Is(err, unix.ENOENT)
	switch {
	case fresh:
		flags |= unix.O_CREAT
	case err != nil:
		return nil, false, err
	default:
		if err := regular(&stat); err != nil {
			return nil, false, err
		}
	}
	fd, err := open(unix.AT_FDCWD, path, flags, mode)
	if err != nil {
		return nil, false, err
	}
	d := &descriptor{fd: fd}
	if err = unix.Fstat(fd, &d.stat); err == nil {
		err = regular(&d.stat)
	}
	if err == nil && d.stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && !fresh && t.identity.Uid != 0 {
		// The data is written by the agent, for whom the kernel leaves these bits: a user who writes loses them.
		err = unix.Fchmod(fd, d.stat.Mode&0o1777)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, false, err
	}
	d.size = d.stat.Size
	return d, fresh, nil
}

package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	pathpkg "path"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
)

const (
	maxPathBytes      = 4096
	maxAttributeBytes = 64 << 10
	permissionBits    = 0o7777
)

// open is openat, closed on exec, and again after a signal.
func open(dir int, path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, path, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func readAt(fd int, p []byte, offset int64) (int, error) {
	for {
		n, err := unix.Pread(fd, p, offset)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// readFull reads up to len(p) bytes; fewer at the end of the file.
func readFull(fd int, p []byte, offset int64) (int, error) {
	done := 0
	for done < len(p) {
		n, err := readAt(fd, p[done:], offset+int64(done))
		if err != nil || n == 0 {
			return done, err
		}
		done += n
	}
	return done, nil
}

func writeAt(fd int, p []byte, offset int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
		offset += int64(n)
	}
	return nil
}

func writeEnd(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// absolute is the path as the system gets it: a relative one starts at the user's home folder.
func (t *thread) absolute(path string) (string, error) {
	switch {
	case path == "":
		return "", status(codes.InvalidArgument, "path", "is empty")
	case strings.IndexByte(path, 0) >= 0:
		return "", status(codes.InvalidArgument, strings.ReplaceAll(path, "\x00", "\uFFFD"), "a path holds no NUL")
	case len(path) > maxPathBytes:
		return "", status(codes.InvalidArgument, path, "a path of %d bytes (expected: at most %d)", len(path), maxPathBytes)
	case path[0] == '/':
		return path, nil
	}
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = path[1:]
	}
	return strings.TrimRight(t.identity.Home, "/") + "/" + strings.TrimLeft(path, "/"), nil
}

// canonical is an absolute path in the form in which it is told: without "." and "//", and with ".." resolved as the system does it.
func canonical(path string) string {
	if !slices.Contains(strings.Split(path, "/"), "..") {
		return pathpkg.Clean(path)
	}
	parent, name := pathpkg.Split(strings.TrimRight(path, "/"))
	if name == ".." {
		parent, name = path, ""
	}
	if folder, err := folderName(parent); err == nil {
		return pathpkg.Join(folder, name)
	}
	return pathpkg.Clean(path)
}

// folderName asks the system what a folder is called.
func folderName(path string) (string, error) {
	fd, err := open(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	// The working folder is this thread's own.
	if err := unix.Fchdir(fd); err != nil {
		return "", err
	}
	defer func() { _ = unix.Chdir("/") }()
	return unix.Getwd()
}

// split cuts the last name off a path. Trailing slashes don't count.
func split(path string) (parent, name string) {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "/", ""
	}
	return path[:i+1], path[i+1:]
}

// openParent opens the folder that the last name of a path is in, and makes the folders above where asked to.
func (t *thread) openParent(path string, make bool) (fd int, name string, err error) {
	parent, name := split(path)
	if name == "" || name == "." || name == ".." {
		return -1, "", status(codes.InvalidArgument, path, "this names no file in a folder")
	}
	fd, err = open(unix.AT_FDCWD, parent, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) && make {
		if err := makeFolders(parent); err != nil {
			return -1, "", err
		}
		fd, err = open(unix.AT_FDCWD, parent, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return -1, "", failure(path, err)
	}
	return fd, name, nil
}

// makeFolders makes what is missing of a folder and those above it. None that is there is touched.
func makeFolders(path string) error {
	if path = strings.TrimRight(path, "/"); path == "" {
		return nil
	}
	err := unix.Mkdir(path, 0o755)
	if errors.Is(err, unix.ENOENT) {
		err = makeEach(path)
	}
	if err == nil {
		return nil
	}
	var stat unix.Stat_t
	if unix.Stat(path, &stat) == nil {
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			return nil
		}
		err = unix.ENOTDIR
	}
	return failure(path, err)
}

// makeEach goes down folder by folder.
func makeEach(path string) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := open(unix.AT_FDCWD, "/", flags, 0)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" {
			continue
		}
		next, err := open(fd, name, flags, 0)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(fd, name, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = open(fd, name, flags, 0)
			}
		}
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
		fd = next
	}
	return unix.Close(fd)
}

func typeOf(mode uint32) filev1.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return filev1.FileType_FILE_TYPE_FILE
	case unix.S_IFDIR:
		return filev1.FileType_FILE_TYPE_DIRECTORY
	case unix.S_IFLNK:
		return filev1.FileType_FILE_TYPE_SYMLINK
	}
	return filev1.FileType_FILE_TYPE_OTHER
}

// describe is the file as callers see it. dir and name lead to it, path is what it is called.
func (t *thread) describe(dir int, name, path string, stat *unix.Stat_t) *filev1.FileInfo {
	base := pathpkg.Base(path)
	info := &filev1.FileInfo{
		Path: strings.ToValidUTF8(path, "\uFFFD"),
		Name: strings.ToValidUTF8(base, "\uFFFD"),
		Type: typeOf(stat.Mode),
		Size: uint64(max(stat.Size, 0)),
		Mode: stat.Mode & permissionBits,
		Uid:  stat.Uid, Gid: stat.Gid,
		Owner: t.users.userName(stat.Uid), Group: t.users.groupName(stat.Gid),
		ModifiedUnixNs: stat.Mtim.Nano(), ChangedUnixNs: stat.Ctim.Nano(), AccessedUnixNs: stat.Atim.Nano(),
		Inode: stat.Ino, Links: uint32(stat.Nlink),
	}
	if !utf8.ValidString(base) {
		info.RawName = []byte(base)
	}
	if info.Type == filev1.FileType_FILE_TYPE_SYMLINK {
		if target, err := readLink(dir, name); err == nil {
			info.LinkTarget = strings.ToValidUTF8(target, "\uFFFD")
		}
		var its unix.Stat_t
		if unix.Fstatat(dir, name, &its, 0) == nil {
			info.TargetType = typeOf(its.Mode)
		}
	}
	return info
}

// lookUp describes a path.
func (t *thread) lookUp(path string, follow bool) (*filev1.FileInfo, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(unix.AT_FDCWD, path, &stat, flags); err != nil {
		return nil, failure(path, err)
	}
	return t.describe(unix.AT_FDCWD, path, canonical(path), &stat), nil
}

func readLink(dir int, name string) (string, error) {
	buffer := make([]byte, 256)
	for {
		n, err := unix.Readlinkat(dir, name, buffer)
		if err != nil {
			return "", err
		}
		if n < len(buffer) {
			return string(buffer[:n]), nil
		}
		if len(buffer) > 2*maxPathBytes {
			return "", unix.ENAMETOOLONG
		}
		buffer = make([]byte, 4*len(buffer))
	}
}

const userAttributes = "user."

// attributeNames are those of the "user." namespace, with the prefix.
func attributeNames(list func([]byte) (int, error)) ([]string, error) {
	buffer := make([]byte, maxAttributeBytes)
	n, err := list(buffer)
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil // a file system without any
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(buffer[:n], []byte{0}) {
		if strings.HasPrefix(string(name), userAttributes) && len(name) > len(userAttributes) {
			names = append(names, string(name))
		}
	}
	return names, nil
}

func attributes(path string) (map[string]string, error) {
	names, err := attributeNames(func(b []byte) (int, error) { return unix.Listxattr(path, b) })
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	value := make([]byte, maxAttributeBytes)
	total := 0
	for _, name := range names {
		n, err := unix.Getxattr(path, name, value)
		if err != nil || total+n > 1<<20 {
			continue
		}
		total += n
		found[strings.ToValidUTF8(name[len(userAttributes):], "\uFFFD")] = strings.ToValidUTF8(string(value[:n]), "\uFFFD")
	}
	return found, nil
}

func setAttributes(fd int, path string, values map[string]string) error {
	for name, value := range values {
		err := unix.Fsetxattr(fd, userAttributes+name, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			return status(codes.FailedPrecondition, path, "its file system keeps no extended attributes")
		}
		if err != nil {
			return failure(path, err)
		}
	}
	return nil
}

// copyAttributes carries the "user." attributes over, as far as that is possible.
func copyAttributes(from, to int) {
	names, err := attributeNames(func(b []byte) (int, error) { return unix.Flistxattr(from, b) })
	if err != nil || len(names) == 0 {
		return
	}
	value := make([]byte, maxAttributeBytes)
	for _, name := range names {
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			_ = unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
}

// entry is a name in a folder, with the type that the folder tells.
type entry struct {
	name string
	kind uint8
}

const direntHeader = int(unsafe.Offsetof(unix.Dirent{}.Name))

// entries calls yield for each name in the raw listing, without "." and "..". Names point into raw.
func entries(raw []byte, yield func(name []byte, kind uint8)) {
	for len(raw) >= direntHeader {
		length := int(binary.NativeEndian.Uint16(raw[unsafe.Offsetof(unix.Dirent{}.Reclen):]))
		if length < direntHeader || length > len(raw) {
			return
		}
		kind := raw[unsafe.Offsetof(unix.Dirent{}.Type)]
		name, _, _ := bytes.Cut(raw[direntHeader:length], []byte{0})
		if string(name) != "." && string(name) != ".." {
			yield(name, kind)
		}
		raw = raw[length:]
	}
}

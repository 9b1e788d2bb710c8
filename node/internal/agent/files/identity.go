package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"atoll/node/internal/frame"
)

const (
	// A users file may be anything that root inside has put there.
	maxUsersFileBytes = 1 << 20
	usersFreshness    = time.Second
)

// Identity is whose rights count.
type Identity struct {
	Name   string
	Uid    uint32
	Gid    uint32
	Groups []uint32
	Home   string
}

func (i *Identity) equal(other *Identity) bool {
	if i == nil || other == nil {
		return i == other
	}
	return i.Uid == other.Uid && i.Gid == other.Gid && slices.Equal(i.Groups, other.Groups)
}

func (i *Identity) member(gid uint32) bool { return i.Gid == gid || slices.Contains(i.Groups, gid) }

// users is what /etc/passwd and /etc/group said when they were read.
type users struct {
	at     time.Time
	passwd [][]string
	group  [][]string
	names  map[uint32]string
	groups map[uint32]string
}

// readUsers requires a thread inside with all rights.
func readUsers() *users {
	u := &users{at: time.Now(), names: map[uint32]string{}, groups: map[uint32]string{}}
	u.passwd = records("/etc/passwd", 7)
	u.group = records("/etc/group", 3)
	for _, fields := range u.passwd {
		if uid, err := number(fields[2]); err == nil && u.names[uid] == "" {
			u.names[uid] = fields[0]
		}
	}
	for _, fields := range u.group {
		if gid, err := number(fields[2]); err == nil && u.groups[gid] == "" {
			u.groups[gid] = fields[0]
		}
	}
	return u
}

func records(path string, least int) [][]string {
	text, err := readSmall(path)
	if err != nil {
		return nil // an image without users
	}
	var found [][]string
	for line := range strings.SplitSeq(string(text), "\n") {
		if fields := strings.Split(line, ":"); len(fields) >= least {
			found = append(found, fields)
		}
	}
	return found
}

// readSmall reads a regular file of moderate size and never blocks.
func readSmall(path string) ([]byte, error) {
	fd, err := open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size > maxUsersFileBytes {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, maxUsersFileBytes)
	}
	text := make([]byte, stat.Size)
	n, err := readFull(fd, text, 0)
	return text[:n], err
}

// number reads an id. The largest means "leave as it is" to the system.
func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err == nil && n == 1<<32-1 {
		err = fmt.Errorf("%s is no id", text)
	}
	return uint32(n), err
}

func (u *users) fresh() bool { return u != nil && time.Since(u.at) < usersFreshness }

// resolve finds whom text means: a name, "uid" or "uid:gid"; empty: the template's user.
func (u *users) resolve(text string, template Identity) (*Identity, error) {
	if text == "" || text == template.Name {
		return &template, nil
	}
	unknown := &frame.Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("user %q is not known in this sandbox", text)}
	who, group, hasGroup := strings.Cut(text, ":")
	id := &Identity{Name: who, Home: "/"}
	uid, numeric := number(who)
	found := false
	for _, fields := range u.passwd {
		its, err := number(fields[2])
		if err != nil || fields[0] != who && (numeric != nil || its != uid) {
			continue
		}
		gid, err := number(fields[3])
		if err != nil {
			continue
		}
		id.Name, id.Uid, id.Gid, found = fields[0], its, gid, true
		if strings.HasPrefix(fields[5], "/") {
			id.Home = fields[5]
		}
		break
	}
	switch {
	case found:
	case numeric == nil:
		id.Uid, id.Gid = uid, uid
		if uid == 0 {
			id.Home = "/root"
		}
	case who == "root":
		id.Home = "/root"
	default:
		return nil, unknown
	}
	if hasGroup {
		gid, err := u.groupID(group)
		if err != nil {
			return nil, unknown
		}
		id.Gid, id.Groups = gid, []uint32{gid}
		return id, nil
	}
	id.Groups = []uint32{id.Gid}
	for _, fields := range u.group {
		if gid, err := number(fields[2]); found && err == nil && len(fields) > 3 &&
			slices.Contains(strings.Split(fields[3], ","), id.Name) && !slices.Contains(id.Groups, gid) {
			id.Groups = append(id.Groups, gid)
		}
	}
	return id, nil
}

func (u *users) userID(text string) (uint32, error) {
	for _, fields := range u.passwd {
		if fields[0] == text {
			return number(fields[2])
		}
	}
	if text == "root" {
		return 0, nil
	}
	return number(text)
}

func (u *users) groupID(text string) (uint32, error) {
	for _, fields := range u.group {
		if fields[0] == text {
			return number(fields[2])
		}
	}
	if text == "root" {
		return 0, nil
	}
	return number(text)
}

func (u *users) userName(uid uint32) string {
	if name := u.names[uid]; name != "" {
		return strings.ToValidUTF8(name, "\uFFFD")
	}
	return strconv.FormatUint(uint64(uid), 10)
}

func (u *users) groupName(gid uint32) string {
	if name := u.groups[gid]; name != "" {
		return strings.ToValidUTF8(name, "\uFFFD")
	}
	return strconv.FormatUint(uint64(gid), 10)
}

var errNoRegularFile = errors.New("is no regular file")

// failure is the status of an operation on path that failed.
func failure(path string, err error) error {
	var errno syscall.Errno
	switch e := err.(type) {
	case nil:
		return nil
	case *frame.Status:
		return e
	case syscall.Errno:
		errno = e
	case *fs.PathError:
		return failure(path, e.Err)
	case *os.SyscallError:
		return failure(path, e.Err)
	default:
		if errors.Is(err, errNoRegularFile) {
			return &frame.Status{Code: codes.FailedPrecondition, Message: show(path) + ": is no regular file"}
		}
		return err
	}
	return &frame.Status{Code: codeOf(errno), Message: show(path) + ": " + errno.Error()}
}

func codeOf(errno syscall.Errno) codes.Code {
	switch errno {
	case unix.ENOENT:
		return codes.NotFound
	case unix.EEXIST:
		return codes.AlreadyExists
	case unix.EACCES, unix.EPERM, unix.EROFS:
		return codes.PermissionDenied
	case unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EFBIG:
		return codes.ResourceExhausted
	case unix.ENOTDIR, unix.EISDIR, unix.ENOTEMPTY, unix.ELOOP, unix.ETXTBSY, unix.ENXIO, unix.EBUSY, unix.ENOTSUP, unix.EXDEV, unix.EMLINK:
		return codes.FailedPrecondition
	case unix.ENAMETOOLONG, unix.EINVAL:
		return codes.InvalidArgument
	case unix.ESTALE:
		return codes.Aborted
	}
	return codes.Internal
}

func status(code codes.Code, path, format string, arguments ...any) error {
	return &frame.Status{Code: code, Message: show(path) + ": " + fmt.Sprintf(format, arguments...)}
}

// show makes a path fit for a message.
func show(path string) string {
	const most = 1024
	if len(path) > most {
		path = path[:most/2] + "…" + path[len(path)-most/2:]
	}
	return strings.ToValidUTF8(path, "\uFFFD")
}

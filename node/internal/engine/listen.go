package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Listen makes the engine's socket, which only root and the members of a group may use.
//
// The file's mode says so already; the peer's credentials are checked as well, in
// case the folder is shared into a container where modes mean someone else.
func Listen(path, group string, logger *slog.Logger) (net.Listener, error) {
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o710); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(dir, 0o710), os.Chown(dir, 0, gid)); err != nil {
		return nil, err
	}
	// A socket of an engine that was killed. The lock on the data folder says that no other runs.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	// The umask of the moment of bind decides; it must not be wider than the mode that follows.
	old := unix.Umask(0o177)
	listener, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chown(path, 0, gid), os.Chmod(path, 0o660)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &checkedListener{Listener: listener, gid: gid, logger: logger}, nil
}

func groupID(name string) (int, error) {
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("group %q: %w (remedy: groupadd --system %s, or name another with --socket-group)", name, err, name)
	}
	return strconv.Atoi(group.Gid)
}

type checkedListener struct {
	net.Listener
	gid    int
	logger *slog.Logger
}

func (l *checkedListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := l.check(connection); err != nil {
			l.logger.Warn("connection refused", "error", err)
			connection.Close()
			continue
		}
		return connection, nil
	}
}

func (l *checkedListener) check(connection net.Conn) error {
	raw, err := connection.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failure error
	if err := raw.Control(func(fd uintptr) {
		peer, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failure != nil {
		return fmt.Errorf("peer credentials: %w", failure)
	}
	if peer.Uid == 0 || int(peer.Gid) == l.gid {
		return nil
	}
	account, err := user.LookupId(strconv.FormatUint(uint64(peer.Uid), 10))
	if err != nil {
		return fmt.Errorf("peer has uid %d: %w", peer.Uid, err)
	}
	groups, err := account.GroupIds()
	if err != nil {
		return fmt.Errorf("groups of %s: %w", account.Username, err)
	}
	if !slices.Contains(groups, strconv.Itoa(l.gid)) {
		return fmt.Errorf("peer %s (uid %d) is not in group %d", account.Username, peer.Uid, l.gid)
	}
	return nil
}

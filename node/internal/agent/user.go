package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	defaultUser = "user"
	firstUserID = 1000
)

// user is whom everything in the sandbox runs as, unless it says otherwise.
type user struct {
	name   string
	uid    uint32
	gid    uint32
	groups []uint32
	home   string
	shell  string
}

// executable is the agent's own path as the sandbox sees it.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return "/.atoll/bin/atoll-agent"
	}
	return path
}

// ensureUser finds the user in the image or makes it, with a home folder of its own.
func ensureUser(name, home string) (*user, error) {
	if name == "" {
		name = defaultUser
	}
	if strings.ContainsAny(name, ":\n/") || strings.ContainsAny(home, ":\n") {
		return nil, fmt.Errorf("user %q with home %q (expected: no colon, slash or line break)", name, home)
	}
	u := findUser(name)
	if u == nil {
		var err error
		if u, err = makeUser(name, home); err != nil {
			return nil, err
		}
	}
	if home != "" {
		u.home = home
	}
	if u.home == "" {
		u.home = "/"
	}
	u.groups = findGroups(u)
	return u, ensureFolder(u.home, u)
}

func findUser(name string) *user {
	for fields := range records("/etc/passwd", 7) {
		if fields[0] != name {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(fields[3], 10, 32)
		if err != nil {
			continue
		}
		u := &user{name: name, uid: uint32(uid), gid: uint32(gid), home: fields[5], shell: fields[6]}
		if u.shell == "" {
			u.shell = "/bin/sh"
		}
		return u
	}
	return nil
}

func makeUser(name, home string) (*user, error) {
	if name == "root" {
		return &user{name: name, home: "/root", shell: "/bin/sh"}, nil
	}
	if home == "" {
		home = "/home/" + name
	}
	taken := map[string]bool{}
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		for fields := range records(file, 3) {
			taken[fields[2]] = true
		}
	}
	id := uint64(firstUserID)
	for taken[strconv.FormatUint(id, 10)] {
		id++
	}
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	if err := os.MkdirAll("/etc", 0o755); err != nil {
		return nil, fmt.Errorf("making user %s: %w", name, err)
	}
	for _, line := range []struct {
		file string
		mode os.FileMode
		text string
	}{
		{"/etc/group", 0o644, fmt.Sprintf("%s:x:%d:", name, id)},
		{"/etc/shadow", 0o640, fmt.Sprintf("%s:*:20000:0:99999:7:::", name)},
		{"/etc/passwd", 0o644, fmt.Sprintf("%s:x:%d:%d::%s:%s", name, id, id, home, shell)},
	} {
		if err := appendLine(line.file, line.mode, line.text); err != nil {
			return nil, fmt.Errorf("making user %s: %w", name, err)
		}
	}
	return &user{name: name, uid: uint32(id), gid: uint32(id), home: home, shell: shell}, nil
}

func appendLine(path string, mode os.FileMode, line string) error {
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(before) > 0 && before[len(before)-1] != '\n' {
		line = "\n" + line
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(line + "\n"); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

func findGroups(u *user) []uint32 {
	groups := []uint32{u.gid}
	for fields := range records("/etc/group", 4) {
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil || !slices.Contains(strings.Split(fields[3], ","), u.name) || slices.Contains(groups, uint32(gid)) {
			continue
		}
		groups = append(groups, uint32(gid))
	}
	return groups
}

// records yields the lines of a file in the form of /etc/passwd that have at least so many fields.
func records(path string, least int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		text, err := readRegular(path)
		if err != nil {
			return // an image without users
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if fields := strings.Split(line, ":"); len(fields) >= least && !yield(fields) {
				return
			}
		}
	}
}

const maxRecordsBytes = 4 << 20

// readRegular reads a file that root inside may have replaced by one that never ends, or that blocks who opens it.
func readRegular(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.ReadAll(io.LimitReader(file, maxRecordsBytes))
}

// ensureFolder makes a folder of the user's where there is none. Folders above it that are missing belong to root.
func ensureFolder(path string, u *user) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("folder %q (expected: an absolute path)", path)
	}
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", path)
		}
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", path, err)
	}
	return os.Chown(path, int(u.uid), int(u.gid))
}

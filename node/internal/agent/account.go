package agent

import (
	"fmt"
	"strconv"
	"strings"
)

// account finds whom a process is to run as: a name of the image, "uid", or either with ":group". Empty: the sandbox's own user.
func account(text string, own *user) (*user, error) {
	if text == "" || text == own.name {
		return own, nil
	}
	name, group, hasGroup := strings.Cut(text, ":")
	u, err := accountOf(name, own)
	if err != nil {
		return nil, err
	}
	if hasGroup {
		gid, err := groupID(group)
		if err != nil {
			return nil, err
		}
		// Who names the group means this one alone.
		u.gid, u.groups = gid, []uint32{gid}
	}
	return u, nil
}

func accountOf(name string, own *user) (*user, error) {
	if name == own.name {
		copied := *own
		return &copied, nil
	}
	u := findUser(name)
	if uid, err := strconv.ParseUint(name, 10, 32); u == nil && err == nil {
		if u = findUserByID(uint32(uid)); u == nil {
			u = &user{name: name, uid: uint32(uid), shell: "/bin/sh"}
			if uid == 0 {
				u.name, u.home = "root", "/root"
			}
		}
	}
	if u == nil && name == "root" {
		u = &user{name: "root", home: "/root", shell: "/bin/sh"}
	}
	if u == nil {
		return nil, fmt.Errorf("user %q is not one of the image's (expected: a name in /etc/passwd, or uid, or uid:gid)", name)
	}
	if u.name == own.name {
		u.home = own.home
	}
	if u.home == "" {
		u.home = "/"
	}
	u.groups = findGroups(u)
	return u, nil
}

func findUserByID(uid uint32) *user {
	number := strconv.FormatUint(uint64(uid), 10)
	for fields := range records("/etc/passwd", 7) {
		if fields[2] == number {
			if u := findUser(fields[0]); u != nil && u.uid == uid {
				return u
			}
		}
	}
	return nil
}

func groupID(text string) (uint32, error) {
	if gid, err := strconv.ParseUint(text, 10, 32); err == nil {
		return uint32(gid), nil
	}
	for fields := range records("/etc/group", 3) {
		if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil && fields[0] == text {
			return uint32(gid), nil
		}
	}
	return 0, fmt.Errorf("group %q is not one of the image's (expected: a name in /etc/group, or gid)", text)
}

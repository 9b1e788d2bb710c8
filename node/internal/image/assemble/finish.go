package assemble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"atoll/node/internal/erofs"
)

// DefaultUser is the user of an image that names none but root.
const DefaultUser = "user"

const (
	firstUID = 1000
	// maxText bounds files of the image that are read, such as /etc/passwd.
	maxText = 4 << 20
)

// assembly is one job while it is done.
type assembly struct {
	*merger
	base *os.File
}

// run does a job.
func run(job Job, out, base *os.File, layers []io.Reader, progress func(uint64)) (*Result, error) {
	limits := job.Limits.WithDefaults()
	if len(layers) > limits.Layers {
		return nil, tooLarge("%d layers (expected: at most %d)", len(layers), limits.Layers)
	}
	a := &assembly{base: base, merger: &merger{
		tree: &tree{limits: limits, root: erofs.NewDir(0o755)}, out: out, writer: erofs.NewWriter(out), progress: progress, buffer: make([]byte, 1<<20),
	}}
	if job.HasBase {
		size, err := base.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, err
		}
		if a.tree.root, err = erofs.Read(base, size); err != nil {
			return nil, fmt.Errorf("the base: %w", err)
		}
		if err := a.tree.adopt(a.tree.root); err != nil {
			return nil, err
		}
	}
	result := &Result{}
	for n, r := range layers {
		// The base is layer 0, and the layers count from 1.
		id, err := a.layer(int32(n)+1, job.Layers[n], r)
		if err != nil {
			return nil, asInvalidLayer(err, n)
		}
		result.DiffIDs = append(result.DiffIDs, id)
	}
	if err := a.furnish(job, result); err != nil {
		return nil, err
	}
	if err := a.bring(); err != nil {
		return nil, err
	}
	if err := a.punch(); err != nil {
		return nil, err
	}
	var err error
	if result.Size, err = a.writer.Finish(a.tree.root); err != nil {
		return nil, err
	}
	result.Entries, result.Devices = a.tree.entries, a.devices
	return result, nil
}

func asInvalidLayer(err error, n int) error {
	var known *Error
	if errors.As(err, &known) {
		return &Error{Kind: known.Kind, Text: fmt.Sprintf("layer %d: %s", n+1, known.Text)}
	}
	return fmt.Errorf("layer %d: %w", n+1, err)
}

// --- Contents ---------------------------------------------------------------------------------------------------------------

// bring copies what is left of the base's contents, in their order there, so that neighbours stay neighbours and are copied at once.
func (a *assembly) bring() error {
	var files []*erofs.Inode
	seen := map[*erofs.Inode]bool{}
	var walk func(*erofs.Inode)
	walk = func(dir *erofs.Inode) {
		for _, i := range dir.Children {
			switch {
			case i.IsDir():
				walk(i)
			case i.IsRegular() && !i.Stored && i.Size > 0 && !seen[i]:
				seen[i] = true
				files = append(files, i)
			}
		}
	}
	walk(a.tree.root)
	slices.SortFunc(files, func(x, y *erofs.Inode) int {
		switch {
		case x.Offset < y.Offset:
			return -1
		case x.Offset > y.Offset:
			return 1
		}
		return 0
	})
	for begin := 0; begin < len(files); {
		// Two files may share their content.
		end, from := begin, files[begin].Offset
		to := from
		for end < len(files) && files[end].Offset <= to {
			to = max(to, roundUp(files[end].Offset+files[end].Size))
			end++
		}
		at, err := a.writer.Reserve(to - from)
		if err != nil {
			return tooLarge("%v", err)
		}
		if err := a.copyRange(int64(from), int64(to), int64(at)); err != nil {
			return fmt.Errorf("copying the base: %w", err)
		}
		for _, i := range files[begin:end] {
			i.Offset, i.Stored = i.Offset-from+at, true
		}
		begin = end
	}
	return nil
}

func roundUp(n uint64) uint64 { return (n + erofs.BlockSize - 1) / erofs.BlockSize * erofs.BlockSize }

// copyRange copies a part of the base, without its holes; file systems that can share the blocks do.
func (a *assembly) copyRange(from, to, at int64) error {
	shift := at - from
	for from < to {
		data, err := unix.Seek(int(a.base.Fd()), from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= to {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(a.base.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		from = min(hole, to)
		for data < from {
			in, out := data, data+shift
			n, err := unix.CopyFileRange(int(a.base.Fd()), &in, int(a.out.Fd()), &out, int(min(from-data, 1<<30)), 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
				n, err = a.copyPlain(data, from, data+shift)
			}
			if err != nil {
				return err
			}
			if n == 0 {
				return io.ErrUnexpectedEOF
			}
			data += int64(n)
		}
	}
	return nil
}

func (a *assembly) copyPlain(from, to, at int64) (int, error) {
	n, err := a.base.ReadAt(a.buffer[:min(int64(len(a.buffer)), to-from)], from)
	if n == 0 {
		return 0, err
	}
	return n, a.write(a.buffer[:n], at)
}

// punch gives back what contents take that a later layer has replaced.
func (a *assembly) punch() error {
	for _, e := range a.tree.freed {
		err := unix.Fallocate(int(a.out.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(e.offset), int64(roundUp(e.size)))
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return nil
}

// read returns a file's content, cut off at limit.
func (a *assembly) read(i *erofs.Inode, limit uint64) ([]byte, error) {
	from := a.base
	if i.Stored {
		from = a.out
	}
	b := make([]byte, min(i.Size, limit))
	n, err := from.ReadAt(b, int64(i.Offset))
	// The end of the output can be a hole that is not there yet.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	clear(b[n:])
	return b, nil
}

// --- User -------------------------------------------------------------------------------------------------------------------

type account struct {
	name        string
	uid, gid    uint32
	home, shell string
}

// text reads a file, links followed; "" where there is none.
func (a *assembly) text(name string) (string, error) {
	i, _, err := a.tree.find(name)
	if err != nil || !i.IsRegular() {
		return "", nil
	}
	b, err := a.read(i, maxText)
	return string(b), err
}

func (a *assembly) accounts() ([]account, string, error) {
	text, err := a.text("/etc/passwd")
	if err != nil {
		return nil, "", err
	}
	var all []account
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 7 {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		if err != nil || err2 != nil || fields[0] == "" {
			continue
		}
		all = append(all, account{name: fields[0], uid: uint32(uid), gid: uint32(gid), home: fields[5], shell: fields[6]})
	}
	return all, text, nil
}

func (a *assembly) groups() (map[string]uint32, string, error) {
	text, err := a.text("/etc/group")
	if err != nil {
		return nil, "", err
	}
	all := map[string]uint32{}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 3 {
			continue
		}
		if gid, err := strconv.ParseUint(fields[2], 10, 32); err == nil {
			all[fields[0]] = uint32(gid)
		}
	}
	return all, text, nil
}

// furnish finds the user and the interpreters, and adds what a sandbox wants: the user where there is none, its home and the work folder,
// and the folders that are mounted upon.
func (a *assembly) furnish(job Job, result *Result) error {
	accounts, passwd, err := a.accounts()
	if err != nil {
		return err
	}
	groups, group, err := a.groups()
	if err != nil {
		return err
	}
	who, known, err := a.user(job, accounts, groups)
	if err != nil {
		return err
	}
	if !job.Bare {
		if !known {
			if err := a.addUser(&who, passwd, group, groups); err != nil {
				return err
			}
		}
		for _, d := range []struct {
			path string
			mode uint32
		}{{"/.atoll", 0o755}, {"/dev", 0o755}, {"/proc", 0o755}, {"/sys", 0o755}, {"/tmp", 0o1777}, {"/etc", 0o755}} {
			if err := a.makeDir(d.path, d.mode, 0, 0); err != nil {
				return err
			}
		}
	}
	result.User, result.UID, result.GID, result.Home, result.Shell = who.name, who.uid, who.gid, who.home, who.shell
	result.Workdir = job.Config.Workdir
	if result.Workdir == "" {
		result.Workdir = who.home
	}
	if !strings.HasPrefix(result.Workdir, "/") {
		result.Workdir = "/" + result.Workdir
	}
	if !job.Bare {
		if err := a.makeDir(result.Workdir, 0o755, who.uid, who.gid); err != nil {
			return err
		}
	}
	result.Interpreters, err = a.interpreters(job.Config)
	return err
}

// user finds the one that the configuration names. known says that /etc/passwd has it.
func (a *assembly) user(job Job, accounts []account, groups map[string]uint32) (who account, known bool, err error) {
	name, group, _ := strings.Cut(job.Config.User, ":")
	find := func(fits func(account) bool) bool {
		at := slices.IndexFunc(accounts, fits)
		if at >= 0 {
			who = accounts[at]
		}
		return at >= 0
	}
	number, numeric := strconv.ParseUint(name, 10, 32)
	isRoot := name == "" || name == "root" || numeric == nil && number == 0
	switch {
	case isRoot && job.Bare:
		if !find(func(x account) bool { return x.uid == 0 }) {
			who = account{name: "root", home: "/root", shell: a.shell()}
		}
		return who, true, nil
	case isRoot:
		known = find(func(x account) bool { return x.name == DefaultUser })
		if !known {
			who = account{name: DefaultUser, uid: firstUID, home: "/home/" + DefaultUser}
			for slices.ContainsFunc(accounts, func(x account) bool { return x.uid == who.uid }) || taken(groups, who.uid) {
				who.uid++
			}
			who.gid = who.uid
		}
		group = ""
	case numeric == nil:
		known = find(func(x account) bool { return x.uid == uint32(number) })
		if !known {
			if number > math.MaxUint32-1 {
				return who, false, invalid("USER %s (expected: at most %d)", name, uint32(math.MaxUint32-1))
			}
			who = account{name: DefaultUser, uid: uint32(number), home: "/home/" + DefaultUser}
			if slices.ContainsFunc(accounts, func(x account) bool { return x.name == DefaultUser }) {
				who.name += name
			}
		}
	default:
		if !find(func(x account) bool { return x.name == name }) {
			return who, false, invalid("USER %s is not in the image's /etc/passwd (remedy: add it there, or name a number)", clip(name))
		}
		known = true
	}
	if group != "" {
		gid, ok := groups[group]
		if n, err := strconv.ParseUint(group, 10, 32); err == nil {
			gid, ok = uint32(n), true
		}
		if !ok {
			return who, false, invalid("the group of USER %s is not in the image's /etc/group (remedy: add it there, or name a number)", clip(job.Config.User))
		}
		who.gid = gid
	}
	if who.home == "" || !strings.HasPrefix(who.home, "/") {
		who.home = "/"
	}
	return who, known, nil
}

func taken(groups map[string]uint32, gid uint32) bool {
	for _, g := range groups {
		if g == gid {
			return true
		}
	}
	return false
}

// shell is the best one that the image has; "" if it has none.
func (a *assembly) shell() string {
	for _, path := range []string{"/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh"} {
		if i, _, err := a.tree.find(path); err == nil && executable(i) {
			return path
		}
	}
	return ""
}

func executable(i *erofs.Inode) bool { return i.IsRegular() && i.Mode&0o111 != 0 }

func (a *assembly) addUser(who *account, passwd, group string, groups map[string]uint32) error {
	who.shell = a.shell()
	shell := who.shell
	if shell == "" {
		shell = "/sbin/nologin"
	}
	if passwd == "" {
		passwd = "root:x:0:0:root:/root:" + shell + "\n"
	}
	if group == "" {
		group = "root:x:0:\n"
		groups["root"] = 0
	}
	line := fmt.Sprintf("%s:x:%d:%d::%s:%s\n", who.name, who.uid, who.gid, who.home, shell)
	if err := a.replace("/etc/passwd", endLine(passwd)+line, 0o644); err != nil {
		return err
	}
	if _, named := groups[who.name]; !named && !taken(groups, who.gid) {
		if err := a.replace("/etc/group", fmt.Sprintf("%s%s:x:%d:\n", endLine(group), who.name, who.gid), 0o644); err != nil {
			return err
		}
	}
	// Without a line there, sudo says that the account has expired.
	if shadow, _, err := a.tree.find("/etc/shadow"); err == nil && shadow.IsRegular() {
		text, err := a.text("/etc/shadow")
		if err != nil {
			return err
		}
		if !strings.Contains("\n"+text, "\n"+who.name+":") {
			if err := a.replace("/etc/shadow", endLine(text)+who.name+":!:20454:0:99999:7:::\n", 0o640); err != nil {
				return err
			}
		}
	}
	// As in the images that Atoll builds itself: the sandbox is the isolation, so its user may become root in it.
	if dir, _, err := a.tree.find("/etc/sudoers.d"); err == nil && dir.IsDir() {
		if err := a.replace("/etc/sudoers.d/"+who.name, who.name+" ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440); err != nil {
			return err
		}
	}
	return a.makeDir(who.home, 0o755, who.uid, who.gid)
}

func endLine(text string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		return text + "\n"
	}
	return text
}

// added is the layer of what is put in at the end.
const added = math.MaxInt32

// replace writes a file, with the attributes of the one that it replaces. A symbolic link is followed.
func (a *assembly) replace(name, text string, mode uint32) error {
	i := &erofs.Inode{Mode: unix.S_IFREG | mode, Layer: added}
	old, real, err := a.tree.find(name)
	switch {
	case err == nil && old.IsRegular():
		i.Mode, i.UID, i.GID = old.Mode, old.UID, old.GID
		name = real
	case err == nil:
		return invalid("%s is no file", name)
	case !errors.Is(err, errNotFound):
		return invalid("%s: %v", name, err)
	}
	parts, err := split(name)
	if err != nil {
		return err
	}
	dir, err := a.tree.directory(parts[:len(parts)-1], added)
	if err != nil {
		return invalid("%s: %v", name, err)
	}
	if err := a.store(i, int64(len(text)), bytes.NewReader([]byte(text))); err != nil {
		return err
	}
	return a.tree.put(dir, parts[len(parts)-1], i)
}

// makeDir makes a directory and those above it, where there is none.
func (a *assembly) makeDir(name string, mode, uid, gid uint32) error {
	if i, _, err := a.tree.find(name); err == nil {
		if !i.IsDir() {
			return invalid("%s is no directory in the image", clip(name))
		}
		return nil
	}
	parts, err := split(name)
	if err != nil {
		return err
	}
	dir, err := a.tree.directory(parts, added)
	if err != nil {
		return invalid("%s: %v", clip(name), err)
	}
	dir.Mode, dir.UID, dir.GID = unix.S_IFDIR|mode, uid, gid
	return nil
}

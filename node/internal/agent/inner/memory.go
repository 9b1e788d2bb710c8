package inner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"atoll/node/internal/frame"
)

// memory tells how much the sandbox has and uses, in bytes.
type memory interface {
	read() (total, used uint64, err error)
}

// openMemory opens what source names: a file like /proc/meminfo, or the folder of a control group of either version. What is open goes on
// to be read when the path is hidden.
func openMemory(source string) (memory, error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		file, err := os.Open(source)
		if err != nil {
			return nil, err
		}
		return &meminfo{file: file}, nil
	}
	names := groupNames[slices.IndexFunc(groupNames, func(names groupFiles) bool {
		_, err := os.Stat(filepath.Join(source, names.used))
		return err == nil || names.last
	})]
	g := &groupMemory{names: names}
	var failures []error
	for name, file := range map[string]**os.File{names.limit: &g.limit, names.used: &g.used, "memory.stat": &g.stat} {
		var err error
		*file, err = os.Open(filepath.Join(source, name))
		failures = append(failures, err)
	}
	return g, errors.Join(failures...)
}

// meminfo is the file of that name, as gVisor gives it.
type meminfo struct {
	file   *os.File
	buffer [2048]byte
}

func (m *meminfo) read() (total, used uint64, err error) {
	n, err := frame.ReadAtNow(m.file.Fd(), m.buffer[:], 0)
	if err != nil {
		return 0, 0, err
	}
	text := m.buffer[:n]
	total, first := number(text, "MemTotal:")
	free, second := number(text, "MemAvailable:")
	if !first || !second {
		return 0, 0, fmt.Errorf("meminfo without MemTotal or MemAvailable: %q", text)
	}
	total, free = total<<10, free<<10
	used = total - min(free, total)
	// MemTotal is what the limit was when the sandbox started. Beyond that, gVisor's MemAvailable says nothing any more.
	if free == 0 {
		anonymous, _ := number(text, "AnonPages:")
		files, _ := number(text, "Mapped:")
		used = max(used, (anonymous+files)<<10)
	}
	return total, used, nil
}

type groupFiles struct {
	used, limit string
	// What the kernel can give up at once: contents of files.
	files []string
	last  bool
}

var groupNames = []groupFiles{
	{used: "memory.current", limit: "memory.max", files: []string{"\ninactive_file ", "\nactive_file "}},
	{used: "memory.usage_in_bytes", limit: "memory.limit_in_bytes", files: []string{"\ntotal_inactive_file ", "\ntotal_active_file "}, last: true},
}

// groupMemory is what the kernel counts for a control group.
type groupMemory struct {
	names             groupFiles
	limit, used, stat *os.File
	buffer            [8192]byte
}

func (m *groupMemory) read() (total, used uint64, err error) {
	if total, err = m.number(m.limit); err != nil {
		return 0, 0, err
	}
	if used, err = m.number(m.used); err != nil {
		return 0, 0, err
	}
	n, err := frame.ReadAtNow(m.stat.Fd(), m.buffer[:], 0)
	if err != nil {
		return 0, 0, err
	}
	for _, name := range m.names.files {
		bytes, _ := number(m.buffer[:n], name)
		used -= min(used, bytes)
	}
	return total, used, nil
}

// number is the one that a file holds; 0 where it says "max".
func (m *groupMemory) number(file *os.File) (uint64, error) {
	n, err := frame.ReadAtNow(file.Fd(), m.buffer[:], 0)
	if err != nil {
		return 0, err
	}
	value, _ := number(m.buffer[:n], "")
	return value, nil
}

// number finds the one that follows a name.
func number(text []byte, name string) (uint64, bool) {
	at := bytes.Index(text, []byte(name))
	if at < 0 {
		return 0, false
	}
	n, seen := uint64(0), false
	for _, c := range text[at+len(name):] {
		if c >= '0' && c <= '9' {
			n, seen = n*10+uint64(c-'0'), true
		} else if seen || c == '\n' {
			break
		}
	}
	return n, seen
}

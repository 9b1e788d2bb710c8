package enginetest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/node/internal/patience"
)

// Remains lists what of a name is on the host: processes, mounts, control
// groups, and files in the given folders. The name is an instance or a box id,
// which everything that belongs to it carries.
func Remains(name string, folders ...string) []string {
	var found []string
	found = append(found, processesOf(name)...)
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, name) {
				found = append(found, "mount "+strings.TrimSpace(line))
			}
		}
	}
	for _, folder := range append([]string{"/sys/fs/cgroup"}, folders...) {
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.Contains(entry.Name(), name) {
				return nil
			}
			found = append(found, "file "+path)
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		})
	}
	return found
}

func processesOf(name string) []string {
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []string{err.Error()}
	}
	for _, entry := range entries {
		if strings.Trim(entry.Name(), "0123456789") != "" {
			continue
		}
		command, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && strings.Contains(string(command), name) {
			found = append(found, fmt.Sprintf("process %s %s", entry.Name(), strings.ReplaceAll(string(command), "\x00", " ")))
		}
	}
	return found
}

// Await polls a condition, and fails the test with what it says last when it does not hold in time.
func Await(t testing.TB, within time.Duration, condition func() (bool, string)) {
	t.Helper()
	within = patience.Of(within)
	deadline := time.Now().Add(within)
	for {
		ok, state := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", within, state)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// NothingRemains fails the test if anything of the name is still there.
func NothingRemains(t testing.TB, name string, folders ...string) {
	t.Helper()
	Await(t, 2*time.Second, func() (bool, string) {
		remains := Remains(name, folders...)
		return len(remains) == 0, strings.Join(remains, "\n")
	})
}

// CPUTime is what a process has used so far.
func CPUTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100)
}

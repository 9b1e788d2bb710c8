package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func write(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// now is a moment after which files are newer than those that were there before.
func now(t testing.TB, dir string) time.Time {
	t.Helper()
	probe := filepath.Join(dir, ".probe")
	write(t, probe)
	stat, first := unix.Stat_t{}, unix.Timespec{}
	for i := 0; ; i++ {
		if err := unix.Stat(probe, &stat); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = stat.Ctim
		}
		if stat.Ctim != first {
			return time.Unix(stat.Ctim.Unix())
		}
		write(t, probe)
	}
}

func paths(t *testing.T, dir string, since time.Time) ([]string, bool) {
	t.Helper()
	found, err := changed(context.Background(), dir, since)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range found.Files {
		if file.SizeBytes != 4 || file.ModifiedAtUnixMs == 0 {
			t.Errorf("%v (expected: 4 bytes and a time)", file)
		}
		names = append(names, strings.TrimPrefix(file.Path, dir+"/"))
	}
	slices.Sort(names)
	return names, found.Incomplete
}

func TestChanged_files_that_were_made_changed_or_renamed_are_listed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"old", "changed", "sub/old", "renamed.old", ".hidden", "backdated"} {
		write(t, filepath.Join(dir, name))
	}
	if err := os.Symlink("old", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	since := now(t, dir)
	for _, name := range []string{"new", "changed", "sub/deep/new", ".config/x", "__pycache__/m.pyc", "node_modules/p/index.js"} {
		write(t, filepath.Join(dir, name))
	}
	if err := os.Rename(filepath.Join(dir, "renamed.old"), filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	// What an archive is unpacked to bears old times.
	if err := os.Chtimes(filepath.Join(dir, "backdated"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	names, incomplete := paths(t, dir, since)
	if want := []string{"backdated", "changed", "new", "renamed", "sub/deep/new"}; !slices.Equal(names, want) || incomplete {
		t.Errorf("%q, incomplete %t (expected: %q)", names, incomplete, want)
	}
}

func TestChanged_is_bounded_in_files_names_depth_and_time(t *testing.T) {
	dir := t.TempDir()
	since := now(t, dir)
	for i := range maxChangedFiles + 5 {
		write(t, filepath.Join(dir, "many", fmt.Sprint(i)))
	}
	names, incomplete := paths(t, dir, since)
	if len(names) != maxChangedFiles || !incomplete {
		t.Errorf("%d files, incomplete %t (expected: %d and true)", len(names), incomplete, maxChangedFiles)
	}
	deep := filepath.Join(t.TempDir(), "d")
	since = now(t, filepath.Dir(deep))
	write(t, filepath.Join(deep, strings.Repeat("d/", 50), "file"))
	if found, err := changed(context.Background(), deep, since); err != nil || len(found.Files) > 0 || !found.Incomplete {
		t.Errorf("%v, %v (expected: none, and incomplete)", found, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if found, err := changed(ended, dir, since); err != nil || !found.Incomplete {
		t.Errorf("%v, %v (expected: incomplete)", found, err)
	}
	if _, err := changed(context.Background(), filepath.Join(dir, "missing"), since); err == nil {
		t.Error("a missing folder is no error")
	}
}

func BenchmarkChanged_of_10000_files(b *testing.B) {
	dir := b.TempDir()
	for i := range 10000 {
		write(b, filepath.Join(dir, fmt.Sprint(i%100), fmt.Sprint(i)))
	}
	since := now(b, dir)
	for b.Loop() {
		if _, err := changed(context.Background(), dir, since); err != nil {
			b.Fatal(err)
		}
	}
}

package files

import (
	"archive/tar"
	"fmt"
	"slices"
	"testing"
	"time"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agent/files/filestest"
)

func TestFifty_thousand_small_files_are_listed_in_pages_and_removed(t *testing.T) {
	s := newSandbox(t, "")
	const count = 50_000
	u := s.Begin(&filev1.WriteFileOpen{User: filestest.Someone, Path: s.Path("many"), Archive: filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR})
	w := tar.NewWriter(u)
	began := time.Now()
	// In falling order, the worst for who keeps the smallest.
	for i := range count {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("f%05d", count-i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	t.Logf("unpacked after %s", time.Since(began))
	began = time.Now()
	if names := s.Names(filestest.Someone, &filev1.List{Path: s.Path("many")}); len(names) != count || !slices.IsSorted(names) {
		t.Errorf("%d names", len(names))
	}
	t.Logf("listed after %s", time.Since(began))
	began = time.Now()
	s.Does(filestest.Someone, &filev1.Remove{Path: s.Path("many"), Recursive: true})
	t.Logf("removed after %s", time.Since(began))
}

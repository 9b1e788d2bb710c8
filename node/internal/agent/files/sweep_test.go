package files

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/agent/files/filestest"
)

func TestTemporary_files_of_an_agent_that_is_no_more_are_swept(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "deep", "journal")
	s := newSandbox(t, journal)
	s.Puts(filestest.Someone, s.Path("file"), "old")
	u := s.Begin(&filev1.WriteFileOpen{User: filestest.Someone, Path: s.Path("file")})
	u.Data([]byte("new"))
	s.Eventually("the temporary file is there", func() error {
		if names := s.Names(filestest.Someone, &filev1.List{Path: s.Folder, Hidden: true}); len(names) != 2 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
	// Another agent starts on the same disk.
	newSandbox(t, journal)
	if names := s.Names(filestest.Someone, &filev1.List{Path: s.Folder, Hidden: true}); !slices.Equal(names, []string{"file"}) {
		t.Errorf("%q", names)
	}
	if text := s.Text(filestest.Someone, s.Path("file")); text != "old" {
		t.Errorf("%q", text)
	}
	u.BreakOff()
}

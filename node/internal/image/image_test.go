package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func metadata(digest string, size int) string {
	return fmt.Sprintf(`{"name": "python", "digest": %q, "size_bytes": %d, "user": "user",
		"kernels": {"python": {"argv": ["/usr/bin/python3", "k.py"], "env": {"A": "1"}}, "bash": ["/bin/bash"]}}`, digest, size)
}

var digest = strings.Repeat("ab", 32)

func TestOnlyCompleteImagesAreListed(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	put(t, dir, "python-1.json", metadata(digest, 4))
	if images, problems := s.List(); len(images) != 0 || len(problems) != 0 {
		t.Fatalf("%v, %v (expected: nothing, its file is not there yet)", images, problems)
	}
	put(t, dir, "python-1.erofs", "root")
	images, problems := s.List()
	if len(images) != 1 || len(problems) != 0 || images[0].Path != filepath.Join(dir, "python-1.erofs") {
		t.Fatalf("%v, %v (expected: the image)", images, problems)
	}
	put(t, dir, "python-1.erofs", "roo")
	if images, problems := s.List(); len(images) != 0 || len(problems) != 1 {
		t.Fatalf("%v, %v (expected: a problem, it is cut off)", images, problems)
	}
}

func TestKernelIsAListOrAnObject(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "python-1.json", metadata("sha256:"+digest, 0))
	put(t, dir, "python-1.erofs", "")
	i, err := NewStore(dir).Find(digest)
	if err != nil {
		t.Fatal(err)
	}
	if k := i.Metadata.Kernels["python"]; len(k.Argv) != 2 || k.Env["A"] != "1" {
		t.Errorf("%+v", k)
	}
	if k := i.Metadata.Kernels["bash"]; len(k.Argv) != 1 {
		t.Errorf("%+v", k)
	}
}

func TestBrokenMetadataIsAProblemAndNotAnImage(t *testing.T) {
	for name, text := range map[string]string{"not JSON": "{", "no digest": "{}", "digest with a path": metadata("../../etc/passwd", 0)} {
		dir := t.TempDir()
		put(t, dir, "a.json", text)
		put(t, dir, "a.erofs", "")
		if images, problems := NewStore(dir).List(); len(images) != 0 || len(problems) != 1 {
			t.Errorf("%s: %v, %v (expected: one problem)", name, images, problems)
		}
	}
}

func TestUnknownDigestIsNotFound(t *testing.T) {
	if _, err := NewStore(filepath.Join(t.TempDir(), "none")).Find(digest); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}

package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func digestOf(letter string) string { return strings.Repeat(letter, 64) }

// put writes an image and its metadata as the builder does.
func put(t *testing.T, dir, file, name, digest string, built time.Time) {
	t.Helper()
	erofs := filepath.Join(dir, file+".erofs")
	if err := os.WriteFile(erofs, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(erofs, built, built); err != nil {
		t.Fatal(err)
	}
	metadata := fmt.Sprintf(`{"name":%q,"digest":%q,"size_bytes":5,"kernels":{"python":{"argv":["python3"]}}}`, name, digest)
	if err := os.WriteFile(filepath.Join(dir, file+".json"), []byte(metadata), 0o600); err != nil {
		t.Fatal(err)
	}
}

func listed(t *testing.T, store *Store) string {
	t.Helper()
	images, problems := store.List()
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	var names []string
	for _, image := range images {
		names = append(names, image.Metadata.Name+"="+image.Metadata.Digest[:1])
	}
	return strings.Join(names, " ")
}

func TestNewestImageOfEachNameIsListedAndOlderOnesAreStillFound(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	put(t, dir, "python-1", "python", digestOf("a"), now)
	put(t, dir, "python-2", "python", digestOf("b"), now.Add(-time.Hour))
	put(t, dir, "bun-1", "bun", digestOf("c"), now.Add(-time.Hour))
	store := NewStore(dir)
	if got := listed(t, store); got != "bun=c python=a" {
		t.Errorf("listed %q (expected: bun=c python=a)", got)
	}
	if image, err := store.Find(digestOf("b")); err != nil || image.Path != filepath.Join(dir, "python-2.erofs") {
		t.Errorf("the older one: %q, %v", image.Path, err)
	}
	if _, err := store.Find(digestOf("d")); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown digest: %v (expected: ErrNotFound)", err)
	}
}

func TestAnImageThatIsUsedAgainBecomesTheNewest(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	put(t, dir, "python-1", "python", digestOf("a"), now)
	put(t, dir, "python-2", "python", digestOf("b"), now.Add(-time.Hour))
	store := NewStore(dir)
	listed(t, store)
	if err := os.Chtimes(filepath.Join(dir, "python-2.erofs"), now.Add(time.Hour), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, store); got != "python=b" {
		t.Errorf("listed %q (expected: python=b)", got)
	}
}

func TestHalfAnImageIsNotListed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "whole", "python", digestOf("a"), time.Now())
	put(t, dir, "no-metadata", "bun", digestOf("b"), time.Now())
	put(t, dir, "no-image", "deno", digestOf("c"), time.Now())
	for _, name := range []string{"no-metadata.json", "no-image.erofs"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := listed(t, NewStore(dir)); got != "python=a" {
		t.Errorf("listed %q (expected: python=a)", got)
	}
}

func TestImageThatIsNotAsItsMetadataSaysIsAProblem(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "short", "python", digestOf("a"), time.Now())
	put(t, dir, "bad-digest", "bun", "nonsense", time.Now())
	if err := os.WriteFile(filepath.Join(dir, "short.erofs"), []byte("ima"), 0o600); err != nil {
		t.Fatal(err)
	}
	images, problems := NewStore(dir).List()
	if len(images) != 0 || len(problems) != 2 {
		t.Errorf("%d images, problems %q (expected: none, two)", len(images), problems)
	}
}

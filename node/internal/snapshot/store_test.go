package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/gen/enginev1"
	"atoll/node/internal/failpoint"
	"atoll/node/internal/patience"
)

type rig struct {
	*Store
	t    *testing.T
	data string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, data: t.TempDir()}
	r.open()
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.Store, err = Open(r.data, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.Store.Close)
}

func id(n int) string { return fmt.Sprintf("snap-%026d", n) }

func manifest(kind enginev1.SnapshotKind) *Manifest {
	return &Manifest{
		Snapshot: &enginev1.Snapshot{Kind: kind, BoxId: "box", SandboxId: "sb", RuntimeVersion: "v1", Labels: map[string]string{"a": "<b>"}},
		FrameKey: strings.Repeat("ab", 32), Epoch: 7, Hostname: "host",
	}
}

const memory = enginev1.SnapshotKind_SNAPSHOT_KIND_MEMORY

// make makes a snapshot.
func (r *rig) make(n int, change func(*Manifest)) {
	r.t.Helper()
	d, err := r.Begin(id(n), "snapshot")
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(d.Image())
	m := manifest(memory)
	if change != nil {
		change(m)
	}
	if _, err := d.Commit(m); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) write(dir string) {
	r.t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	for name, content := range map[string][]byte{"checkpoint.img": []byte("state"), "pages.img": bytes.Repeat([]byte("page"), 4096), "pages_meta.img": []byte("meta")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) path(n int, name string) string { return filepath.Join(Dir(r.data), id(n), name) }

// seal adds the checksums now.
func (r *rig) sealNow(n int) {
	r.t.Helper()
	r.mu.Lock()
	e := r.entries[id(n)]
	r.mu.Unlock()
	if err := r.seal(r.t.Context(), e); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) use(n int) error {
	u, err := r.Use(r.t.Context(), id(n))
	if err == nil {
		u.Close()
	}
	return err
}

func TestSnapshotIsThereAfterANewStart(t *testing.T) {
	r := newRig(t)
	r.make(1, nil)
	r.make(2, func(m *Manifest) { m.PausedBox = "box-1" })
	if info, err := os.Stat(r.path(1, "image/pages.img")); err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v (expected: only for the engine)", info, err)
	}
	r.open()
	if all := r.List(); len(all) != 1 || all[0].GetSnapshotId() != id(1) || all[0].GetSizeBytes() != 4096*4+9 || all[0].GetLabels()["a"] != "<b>" {
		t.Fatalf("snapshots %v", all)
	}
	if pauses := r.Pauses(); pauses[id(2)] != "box-1" {
		t.Fatalf("pauses %v", pauses)
	}
	u, err := r.Use(t.Context(), id(1))
	if err != nil || u.Manifest.Epoch != 7 || u.Manifest.Key()[0] != 0xab {
		t.Fatalf("%v, %v", u, err)
	}
	u.Close()
	if err := RemovePauses(r.data); err != nil {
		t.Fatal(err)
	}
	r.open()
	if !r.Has(id(1)) || r.Has(id(2)) {
		t.Fatal("of both, not the pause was removed")
	}
}

func TestChecksumsComeByThemselvesAndAfterACrash(t *testing.T) {
	r := newRig(t)
	r.make(1, nil)
	r.Store.Close()
	r.open()
	within := patience.Of(20 * time.Second)
	for deadline := time.Now().Add(within); ; <-time.After(5 * time.Millisecond) {
		if _, m, err := r.Find(id(1)); err != nil || m.sealed() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no checksums after %v", within)
		}
	}
}

func TestChangedFilesAreRefused(t *testing.T) {
	rewrite := func(name string, f func([]byte) []byte) func(r *rig) error {
		return func(r *rig) error {
			text, err := os.ReadFile(r.path(1, name))
			if err != nil {
				return err
			}
			return os.WriteFile(r.path(1, name), f(text), 0o600)
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	changes := map[string]func(r *rig) error{
		"pages flipped": rewrite("image/pages.img", flip),
		"state flipped": rewrite("image/checkpoint.img", flip),
		"pages cut":     rewrite("image/pages.img", cut),
		"file gone":     func(r *rig) error { return os.Remove(r.path(1, "image/pages_meta.img")) },
		"file is a link": func(r *rig) error {
			return errors.Join(os.Remove(r.path(1, "image/pages_meta.img")), os.Symlink("/etc/passwd", r.path(1, "image/pages_meta.img")))
		},
		"manifest flipped":      rewrite(manifestName, flip),
		"manifest cut":          rewrite(manifestName, cut),
		"manifest of no files":  func(r *rig) error { return os.Remove(r.path(1, manifestName)) },
		"manifest with a value": rewrite(manifestName, func(b []byte) []byte { return bytes.Replace(b, []byte(`"epoch":7`), []byte(`"epoch":8`), 1) }),
	}
	for name, change := range changes {
		for _, sealed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sealed %v", name, sealed), func(t *testing.T) {
				r := newRig(t)
				r.make(1, nil)
				if sealed {
					r.sealNow(1)
				}
				if err := r.use(1); err != nil {
					t.Fatal(err)
				}
				r.Store.Close()
				if err := change(r); err != nil {
					t.Fatal(err)
				}
				r.open()
				if err := r.use(1); !errors.Is(err, ErrUnusable) {
					t.Fatalf("error %v (expected: unusable)", err)
				}
				if err := r.Remove(id(1)); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestIdentityOfAnotherSnapshotProvesNothing(t *testing.T) {
	r := newRig(t)
	r.make(1, nil)
	r.make(2, nil)
	text, err := os.ReadFile(r.path(2, identityName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path(1, identityName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.use(1); !errors.Is(err, ErrUnusable) {
		t.Fatalf("error %v (expected: unusable)", err)
	}
}

// A snapshot that was copied to another disk has other inodes and times, but the same content.
func TestCopiedFilesAreReadAndThenKnown(t *testing.T) {
	r := newRig(t)
	r.make(1, nil)
	r.sealNow(1)
	for _, name := range []string{"image/pages.img", "image/checkpoint.img"} {
		text, err := os.ReadFile(r.path(1, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(r.path(1, name)), os.WriteFile(r.path(1, name), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	e := r.entries[id(1)]
	r.mu.Unlock()
	known := func() bool {
		now, err := identitiesIn(e.dir, e.manifest)
		return err == nil && r.asNoted(e.dir, e.manifest, now)
	}
	if known() {
		t.Fatal("other files count as the same: the check can't fail")
	}
	if err := r.use(1); err != nil {
		t.Fatal(err)
	}
	if !known() {
		t.Fatal("the files are read again each time")
	}
}

func TestLinkedSnapshotOutlivesItsSource(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		r := newRig(t)
		r.make(1, func(m *Manifest) { m.PausedBox = "box-1" })
		if sealed {
			r.sealNow(1)
		}
		u, err := r.Use(t.Context(), id(1))
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Begin(id(2), "snapshot")
		if err != nil {
			t.Fatal(err)
		}
		m, err := d.Link(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		m.PausedBox = ""
		if _, err := d.Commit(m); err != nil {
			t.Fatal(err)
		}
		u.Close()
		if err := errors.Join(r.use(1), r.use(2)); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(id(1)); err != nil {
			t.Fatal(err)
		}
		r.Store.Close()
		r.open()
		if err := r.use(2); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSnapshotInUseGoesWithItsLastUse(t *testing.T) {
	r := newRig(t)
	r.make(1, nil)
	u, err := r.Use(t.Context(), id(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(id(1)); err != nil {
		t.Fatal(err)
	}
	if r.Has(id(1)) || len(r.List()) > 0 {
		t.Fatal("it is listed still")
	}
	if _, err := os.Stat(filepath.Join(u.Image(), "pages.img")); err != nil {
		t.Fatal(err)
	}
	u.Close()
	u.Close()
	if entries, err := os.ReadDir(Dir(r.data)); err != nil || len(entries) > 1 {
		t.Fatalf("%v, %v (expected: nothing but the key)", entries, err)
	}
	if err := r.Remove(id(1)); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasNotFinishedIsGoneAfterANewStart(t *testing.T) {
	r := newRig(t)
	d, err := r.Begin(id(1), "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	r.write(d.Image())
	if _, err := r.Begin(id(1), "snapshot"); !errors.Is(err, ErrExists) {
		t.Fatalf("error %v (expected: it is being made)", err)
	}
	if err := os.Mkdir(filepath.Join(Dir(r.data), id(2)+goneSuffix), 0o700); err != nil {
		t.Fatal(err)
	}
	r.open()
	if entries, err := os.ReadDir(Dir(r.data)); err != nil || len(entries) > 1 {
		t.Fatalf("%v, %v (expected: nothing but the key)", entries, err)
	}
}

func TestIncompleteImageIsNoSnapshot(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"file missing":  func(dir string) error { return os.Remove(filepath.Join(dir, "checkpoint.img")) },
		"file too many": func(dir string) error { return os.WriteFile(filepath.Join(dir, "more"), nil, 0o600) },
		"file empty":    func(dir string) error { return os.Truncate(filepath.Join(dir, "checkpoint.img"), 0) },
		"half a page":   func(dir string) error { return os.Truncate(filepath.Join(dir, "pages.img"), 6000) },
		"no image":      os.RemoveAll,
	} {
		r := newRig(t)
		d, err := r.Begin(id(1), "snapshot")
		if err != nil {
			t.Fatal(err)
		}
		r.write(d.Image())
		if err := spoil(d.Image()); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Commit(manifest(memory)); err == nil {
			t.Errorf("%s: taken", name)
		}
		if entries, err := os.ReadDir(Dir(r.data)); err != nil || len(entries) > 1 {
			t.Errorf("%s: %v, %v (expected: nothing but the key)", name, entries, err)
		}
	}
}

func accept(*Manifest) error { return nil }

func (r *rig) export(n int) []byte {
	r.t.Helper()
	var file bytes.Buffer
	if err := r.Export(r.t.Context(), id(n), &file); err != nil {
		r.t.Fatal(err)
	}
	return file.Bytes()
}

func TestExportedFileIsTakenByWhoTrustsItsKey(t *testing.T) {
	r, other := newRig(t), newRig(t)
	if r.PublicKey() == other.PublicKey() {
		t.Fatal("two installations have one key")
	}
	r.make(1, func(m *Manifest) { m.Snapshot.Labels = map[string]string{"of": "here"} })
	file := r.export(1)
	_, err := other.Import(t.Context(), Importing{ID: id(9), Accept: accept}, bytes.NewReader(file))
	if !errors.Is(err, ErrUnusable) || !errors.Is(err, errUntrusted) {
		t.Fatalf("error %v (expected: untrusted)", err)
	}
	s, err := other.Import(t.Context(), Importing{ID: id(9), Labels: map[string]string{"a": "b"}, Trusted: []string{r.PublicKey()}, Accept: accept}, bytes.NewReader(file))
	if err != nil || s.GetSnapshotId() != id(9) || len(s.GetLabels()) != 1 || s.GetLabels()["a"] != "b" {
		t.Fatalf("%v, %v", s, err)
	}
	other.open()
	if err := other.use(9); err != nil {
		t.Fatal(err)
	}
	// Taken once, it is the other installation's own.
	if again := other.export(9); len(again) == 0 {
		t.Fatal("not exported")
	}
	if _, err := r.Import(t.Context(), Importing{ID: id(2), Accept: accept}, bytes.NewReader(file)); err != nil {
		t.Fatalf("its own file: %v", err)
	}
	refused := errors.New("no")
	if _, err := r.Import(t.Context(), Importing{ID: id(3), Accept: func(*Manifest) error { return refused }}, bytes.NewReader(file)); !errors.Is(err, refused) {
		t.Fatalf("error %v (expected: refused)", err)
	}
}

// Cut off anywhere, or with any byte changed, a file is refused and leaves nothing.
func TestDamagedFileIsRefused(t *testing.T) {
	r := newRig(t)
	r.make(1, nil)
	file := r.export(1)
	r.t.Logf("%d bytes", len(file))
	try := func(what string, bad []byte) {
		t.Helper()
		s, err := r.Import(t.Context(), Importing{ID: id(2), Accept: accept}, bytes.NewReader(bad))
		if err == nil {
			// A byte that says nothing: of padding, or of a header's times.
			if r.use(2) != nil {
				t.Errorf("%s: taken, and %v is unusable", what, s)
			}
			a, errA := os.ReadFile(r.path(1, "image/pages.img"))
			b, errB := os.ReadFile(r.path(2, "image/pages.img"))
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				t.Errorf("%s: taken with other content", what)
			}
			if err := r.Remove(id(2)); err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, ErrUnusable) {
			t.Errorf("%s: error %v (expected: unusable)", what, err)
		}
		if entries, err := os.ReadDir(Dir(r.data)); err != nil || len(entries) != 2 {
			t.Fatalf("%s: %v, %v (expected: the key and the first)", what, entries, err)
		}
	}
	end := len(bytes.TrimRight(file, "\x00"))
	for at := 0; at < end; at += 61 {
		try(fmt.Sprintf("cut at %d", at), file[:at])
		bad := slices.Clone(file)
		bad[at] ^= 0x11
		try(fmt.Sprintf("changed at %d", at), bad)
	}
	for what, more := range map[string][]byte{"a byte": {1}, "a zero": {0}, "itself": file} {
		_, err := r.Import(t.Context(), Importing{ID: id(2), Accept: accept}, bytes.NewReader(slices.Concat(file, more)))
		if !errors.Is(err, ErrUnusable) {
			t.Errorf("%s after its end: error %v (expected: unusable)", what, err)
		}
		if err := r.Remove(id(2)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportThatFailsAnywhereLeavesNothing(t *testing.T) {
	for _, step := range failpoint.Of("import") {
		r := newRig(t)
		r.make(1, nil)
		file := r.export(1)
		if err := failpoint.Set(step, func() error { return unix.ENOSPC }); err != nil {
			t.Fatal(err)
		}
		_, err := r.Import(t.Context(), Importing{ID: id(2), Accept: accept}, bytes.NewReader(file))
		if err := failpoint.Set(step, nil); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: error %v (expected: no space)", step, err)
		}
		if entries, err := os.ReadDir(Dir(r.data)); err != nil || len(entries) != 2 {
			t.Errorf("%s: %v, %v (expected: the key and the first)", step, entries, err)
		}
	}
}

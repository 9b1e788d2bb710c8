package main

import (
	"os"
	"path/filepath"
	"testing"
)

const example = "# Because.\nfile a/b.go\n<<<\n\told()\n===\n\tnew()\n\tmore()\n>>>\n"

func sourceWith(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "a/b.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func applyExample(t *testing.T, folder string) error {
	t.Helper()
	changes, err := parse(example)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 1 {
		t.Fatalf("%d changes (expected: 1)", len(changes))
	}
	return changes[0].apply(folder)
}

func TestTextThatIsThereOnceIsReplaced(t *testing.T) {
	folder := sourceWith(t, "func f() {\n\told()\n}\n")
	if err := applyExample(t, folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "a/b.go"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "func f() {\n\tnew()\n\tmore()\n}\n"; string(got) != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestTextThatIsMissingOrThereTwiceFails(t *testing.T) {
	for _, text := range []string{"func f() {}\n", "\told()\n\told()\n"} {
		if err := applyExample(t, sourceWith(t, text)); err == nil {
			t.Errorf("source %q was patched (expected: an error)", text)
		}
	}
}

func TestPatchOutsideTheModuleFails(t *testing.T) {
	if err := (change{file: "../x.go", old: "a", new: "b"}).apply(t.TempDir()); err == nil {
		t.Error("a file outside the module was accepted")
	}
}

func TestMalformedPatchIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no reason": "file a\n<<<\nx\n===\ny\n>>>\n",
		"no end":    "# why\nfile a\n<<<\nx\n===\ny\n",
		"no file":   "# why\n<<<\nx\n===\ny\n>>>\n",
		"no change": "# why\nfile a\n",
		"no old":    "# why\nfile a\n<<<\n===\ny\n>>>\n",
		"garbage":   "# why\nfile a\nreplace this\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s: accepted (expected: an error)", name)
		}
	}
}

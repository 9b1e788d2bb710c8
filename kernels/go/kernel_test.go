package main

import (
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

func TestSplit_tells_declarations_from_statements(t *testing.T) {
	for code, want := range map[string][]token.Token{
		"import \"fmt\"\nx := 1\nfunc f() {\n}\n":   {token.IMPORT, token.ILLEGAL, token.FUNC},
		"func (t *T) M() int { return 1 }":          {token.FUNC},
		"func() { g() }()":                          {token.ILLEGAL},
		"func(a int) error { return nil }(1)":       {token.ILLEGAL},
		"func(a int) (b error) { return nil }(1)":   {token.ILLEGAL},
		"var x = 1; const y = 2; type Z int; x = 3": {token.VAR, token.CONST, token.TYPE, token.ILLEGAL},
		"for i := 0; i < 3; i++ {\n\tf(i)\n}":       {token.ILLEGAL},
		"x := map[string]int{\n\t\"a\": 1,\n}\nx":   {token.ILLEGAL, token.ILLEGAL},
		"// only a comment":                         nil,
		"":                                          nil,
	} {
		segments, _, err := split(1, code)
		if err != nil {
			t.Errorf("%q: %v", code, err)
			continue
		}
		var got []token.Token
		for _, segment := range segments {
			got = append(got, segment.kind)
		}
		if len(got) != len(want) {
			t.Errorf("%q: %v (expected: %v)", code, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%q: %v (expected: %v)", code, got, want)
			}
		}
	}
}

func TestSplit_refuses_a_package_clause_that_is_not_first_or_not_main(t *testing.T) {
	for _, code := range []string{"package foo", "x := 1\npackage main", "package main\npackage main"} {
		if _, _, err := split(1, code); err == nil {
			t.Errorf("%q: accepted (expected: an error)", code)
		}
	}
	if _, isWhole, err := split(1, "// a program\npackage main\nfunc main() {}"); err != nil || !isWhole {
		t.Errorf("a whole program: %v, %v (expected: true, no error)", isWhole, err)
	}
}

func TestVersions_are_ordered_by_their_numbers(t *testing.T) {
	ordered := []string{"v0.0.0-20200101000000-aaaaaaaaaaaa", "v0.0.0-20210101000000-000000000000", "v0.9.0", "v1.0.0-rc.1", "v1.0.0", "v1.9.0", "v1.10.0", "v2.0.0+incompatible"}
	for i := range ordered {
		for j := range ordered {
			got := compareVersions(ordered[i], ordered[j])
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", ordered[i], ordered[j], got)
			}
		}
	}
}

func TestModules_show_the_newest_version_in_the_cache(t *testing.T) {
	home := t.TempDir()
	t.Setenv("GOPATH", home)
	t.Setenv("GOMODCACHE", "")
	for _, folder := range []string{"example.org/!big/lib@v1.9.0", "example.org/!big/lib@v1.10.0/inner", "example.org/!big/lib/v2@v2.0.1"} {
		if err := os.MkdirAll(filepath.Join(home, "pkg/mod", folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for inner, want := range map[string]string{
		"example.org/Big/lib":       "example.org/!big/lib@v1.10.0",
		"example.org/Big/lib/inner": "example.org/!big/lib@v1.10.0/inner",
		"example.org/Big/lib/v2":    "example.org/!big/lib/v2@v2.0.1",
	} {
		file, err := newModules().Open(sourceRoot + "/src/" + inner)
		if err != nil {
			t.Errorf("%s: %v", inner, err)
			continue
		}
		if got := file.(*os.File).Name(); got != filepath.Join(home, "pkg/mod", want) {
			t.Errorf("%s: %s (expected: %s)", inner, got, want)
		}
		_ = file.Close()
	}
	if _, err := newModules().Open(sourceRoot + "/src/example.org/none"); err == nil {
		t.Error("a package that is nowhere was found")
	}
}

func TestInterpreter_has_the_fields_that_stopping_needs(t *testing.T) {
	k := &kernel{output: &output{}, random: newRandom(), stdin: os.Stdin, modules: newModules(), packages: map[string]bool{}}
	i, err := newInterpreter(k)
	if err != nil {
		t.Fatal(err)
	}
	before := *i.run
	i.stop()
	if *i.run != before+1 {
		t.Errorf("after stop the run is %d (expected: %d)", *i.run, before+1)
	}
	i.resume()
	if *i.run != before {
		t.Errorf("after resume the run is %d (expected: %d)", *i.run, before)
	}
}

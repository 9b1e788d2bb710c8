// Command patch applies Atoll's changes to a copy of gVisor's source.
//
// A patch names one exact string and what takes its place. The string must be
// there exactly once, so a new gVisor version that moved or changed the spot
// fails the build instead of being patched by guess.
//
//	# Why the change is made, in any number of lines.
//	file path/below/the/module.go
//	<<<
//	old text
//	===
//	new text
//	>>>
//
// A patch file holds any number of changes; a `file` line counts until the next.
//
// Usage: patch MODULE_FOLDER PATCH_FILE...
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fail("usage: patch MODULE_FOLDER PATCH_FILE...")
	}
	for _, path := range os.Args[2:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fail(err.Error())
		}
		changes, err := parse(string(text))
		if err != nil {
			fail(path + ": " + err.Error())
		}
		for _, change := range changes {
			if err := change.apply(os.Args[1]); err != nil {
				fail(path + ": " + err.Error())
			}
		}
		fmt.Printf("%s: %d changes\n", filepath.Base(path), len(changes))
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "patch: "+message)
	os.Exit(1)
}

// change is one replacement in one file.
type change struct {
	file, old, new string
}

func (c change) apply(folder string) error {
	if !filepath.IsLocal(c.file) {
		return fmt.Errorf("file: %s (expected: a path below the module)", c.file)
	}
	path := filepath.Join(folder, c.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if count := strings.Count(string(source), c.old); count != 1 {
		return fmt.Errorf("%s has the text %d times (expected: once):\n%s", c.file, count, c.old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(source), c.old, c.new, 1)), 0o644)
}

// parse reads the changes of a patch file. It refuses one without a reason.
func parse(text string) ([]change, error) {
	const (
		outside = iota
		inOld
		inNew
	)
	var (
		changes  []change
		current  change
		old, new []string
		reason   bool
		state    = outside
	)
	for i, line := range strings.Split(text, "\n") {
		switch state {
		case inOld:
			if line == "===" {
				state = inNew
				continue
			}
			old = append(old, line)
		case inNew:
			if line != ">>>" {
				new = append(new, line)
				continue
			}
			if len(old) == 0 {
				return nil, fmt.Errorf("line %d: nothing to replace", i+1)
			}
			current.old, current.new = strings.Join(old, "\n"), strings.Join(new, "\n")
			changes = append(changes, current)
			old, new, state = nil, nil, outside
		case outside:
			file, isFile := strings.CutPrefix(line, "file ")
			switch {
			case strings.HasPrefix(line, "# "):
				reason = true
			case line == "" || line == "#":
			case isFile:
				current.file = file
			case line == "<<<" && current.file == "":
				return nil, fmt.Errorf("line %d: change before any `file` line", i+1)
			case line == "<<<":
				state = inOld
			default:
				return nil, fmt.Errorf("line %d: %q (expected: #, file or <<<)", i+1, line)
			}
		}
	}
	if state != outside {
		return nil, fmt.Errorf("change without end (expected: >>>)")
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("no change in it")
	}
	if !reason {
		return nil, fmt.Errorf("no reason in it (expected: lines that start with #)")
	}
	return changes, nil
}

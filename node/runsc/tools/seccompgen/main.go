// Command seccompgen writes gVisor's compiled system call filters into the
// copy of its source that the sentry is built from. Without them each sandbox
// compiles its filter again when it starts or is restored (8 ms).
//
// Usage: seccompgen FILTER_PRECOMPILED_GO
package main

import (
	"bytes"
	"fmt"
	"os"

	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

const anchor = "\tprecompiledPrograms = programs\n"

func main() {
	if len(os.Args) != 2 {
		fail("usage: seccompgen FILTER_PRECOMPILED_GO")
	}
	if err := generate(os.Args[1]); err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "seccompgen: "+message)
	os.Exit(1)
}

func generate(path string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if count := bytes.Count(source, []byte(anchor)); count != 1 {
		return fmt.Errorf("%s: %d places to register programs (expected: 1)", path, count)
	}
	programs, err := config.PrecompiledPrograms()
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return fmt.Errorf("no program was compiled (expected: those of systrap)")
	}
	var registrations bytes.Buffer
	for _, program := range programs {
		registrations.WriteString(program.Registration("\t", "precompiledseccomp", "programs"))
	}
	registrations.WriteString(anchor)
	generated := bytes.Replace(source, []byte(anchor), registrations.Bytes(), 1)
	if err := os.WriteFile(path, generated, 0o644); err != nil {
		return err
	}
	fmt.Printf("%d seccomp programs\n", len(programs))
	return nil
}

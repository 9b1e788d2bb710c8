package image

import (
	"strings"

	"atoll/node/internal/image/assemble"
)

// kernels says how the languages of an image are run with the interpreters that it has; kernels/README.md has the arguments. The first
// language is what the image seems to be for.
func kernels(found []assemble.Interpreter) (languages []string, first string, all map[string]Kernel) {
	at := map[string]string{}
	for _, i := range found {
		at[i.Name] = i.Path
	}
	all = map[string]Kernel{}
	languages = []string{}
	// best is how much speaks for the first language.
	best := 0
	add := func(program string, weight int, kernel Kernel, names ...string) {
		for _, name := range names {
			all[name] = kernel
			languages = append(languages, name)
		}
		// Images bring what they are for themselves; a Python or Node of the distribution is often somebody's dependency.
		if !strings.HasPrefix(at[program], "/usr/bin/") && !strings.HasPrefix(at[program], "/bin/") {
			weight += 10
		}
		if weight > best {
			best, first = weight, names[0]
		}
	}
	quiet := func(name, value string) map[string]string { return map[string]string{name: value, "DO_NOT_TRACK": "1"} }
	switch {
	case at["bun"] != "":
		add("bun", 5, Kernel{
			Argv: []string{at["bun"], "--smol", "--no-install", "--no-env-file", "--config=/dev/null", "/.atoll/kernels/bun/kernel.js"},
			Env:  quiet("BUN_RUNTIME_TRANSPILER_CACHE_PATH", "0"),
		}, "typescript", "javascript")
	case at["node"] != "":
		add("node", 2, Kernel{Argv: []string{at["node"], "--max-semi-space-size=4", "/.atoll/kernels/node/kernel.js"}}, "typescript", "javascript")
	case at["deno"] != "":
		add("deno", 5, Kernel{
			Argv: []string{at["deno"], "run", "--quiet", "--allow-all", "--no-config", "--no-lock", "--no-prompt", "--node-modules-dir=manual",
				"--unstable-sloppy-imports", "--v8-flags=--max-semi-space-size=4", "/.atoll/kernels/deno/kernel.js"},
			Env: quiet("DENO_NO_UPDATE_CHECK", "1"),
		}, "typescript", "javascript")
	}
	if at["python3"] != "" {
		add("python3", 4, Kernel{Argv: []string{at["python3"], "/.atoll/kernels/python/kernel.py"}}, "python")
	}
	if at["go"] != "" {
		add("go", 3, Kernel{Argv: []string{"/.atoll/kernels/go/atoll-go-kernel"}}, "go")
	}
	if at["bash"] != "" {
		// The agent runs it without a kernel.
		languages = append(languages, "bash")
		if first == "" {
			first = "bash"
		}
	}
	return languages, first, all
}

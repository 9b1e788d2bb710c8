package image

import "atoll/node/internal/image/assemble"

// kernels says how the languages of an image are run with the interpreters that it has.
func kernels(found []assemble.Interpreter) (languages []string, first string, all map[string]Kernel) {
	at := map[string]string{}
	for _, i := range found {
		at[i.Name] = i.Path
	}
	all = map[string]Kernel{}
	languages = []string{}
	add := func(kernel Kernel, names ...string) {
		for _, name := range names {
			all[name] = kernel
			languages = append(languages, name)
		}
	}
	if at["bun"] != "" {
		add(Kernel{
			Argv: []string{at["bun"], "--smol", "--no-install", "--no-env-file", "--config=/dev/null", "/.atoll/kernels/bun/kernel.js"},
			Env:  map[string]string{"BUN_RUNTIME_TRANSPILER_CACHE_PATH": "0", "DO_NOT_TRACK": "1"},
		}, "typescript", "javascript")
	}
	if at["python3"] != "" {
		add(Kernel{Argv: []string{at["python3"], "/.atoll/kernels/python/kernel.py"}}, "python")
	}
	if at["bash"] != "" {
		languages = append(languages, "bash")
	}
	if len(languages) > 0 {
		first = languages[0]
	}
	return languages, first, all
}

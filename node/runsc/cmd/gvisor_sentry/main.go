// Command gvisor_sentry is the kernel that runs inside each sandbox process.
package main

import (
	"runtime/debug"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/gvisorbinaries"
)

// gcPercent spares a start or a restore the collections that fall into it
// (about 6 of 43 ms) for about 1 MB more per idle sandbox. It is set here
// because runsc starts the sentry with an empty environment, so GOGC never
// arrives.
const gcPercent = 400

// memoryLimit is where that saving ends: what the host gives beyond the memory
// that the user was promised starts with 48 MB (node/internal/box/limits.go). A
// bomb of daemons brought the sentry's own heap to 150 MB, and the sandbox to
// its end. Above the limit Go collects as often as it must to stay near it.
const memoryLimit = 64 << 20

func main() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	cli.Run(&gvisorbinaries.GvisorSentry, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "internal use only",
		new(sentrycmd.Umount): "internal use only",
	}, nil)
}

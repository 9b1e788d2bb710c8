// Command runsc is gVisor's runtime without the parts Atoll never runs: the
// sentry lives in gvisor_sentry beside it, and the embedded sidecars (metric
// server, checkpoint gofer for cloud buckets) are left out. That makes it a
// third of the size, and every call of it starts faster.
package main

import (
	"github.com/google/subcommands"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

const (
	lifecycle = ""
	debugging = "debug"
	internal  = "internal use only"
)

func main() {
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Checkpoint):   lifecycle,
		new(cmd.Create):       lifecycle,
		new(cmd.Delete):       lifecycle,
		new(cmd.Events):       lifecycle,
		new(cmd.Exec):         lifecycle,
		new(cmd.FSCheckpoint): lifecycle,
		new(cmd.Kill):         lifecycle,
		new(cmd.List):         lifecycle,
		new(cmd.PS):           lifecycle,
		new(cmd.Pause):        lifecycle,
		new(cmd.PortForward):  lifecycle,
		new(cmd.Read):         lifecycle,
		new(cmd.Restore):      lifecycle,
		new(cmd.Resume):       lifecycle,
		new(cmd.Run):          lifecycle,
		new(cmd.Start):        lifecycle,
		new(cmd.State):        lifecycle,
		new(cmd.Tar):          lifecycle,
		new(cmd.Update):       lifecycle,
		new(cmd.Wait):         lifecycle,

		new(cmd.CPUFeatures): debugging,
		new(cmd.Debug):       debugging,
		new(cmd.Features):    debugging,
		new(cmd.Statefile):   debugging,
		new(cmd.Usage):       debugging,

		// runsc executes itself with this one for sandboxes with bind mounts.
		new(cmd.Gofer): internal,
		// The engine's driver executes this one.
		new(worker): internal,
	}, []subcommands.Command{new(cmd.Platforms), new(cmd.Syscalls)})
}

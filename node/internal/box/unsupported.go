package box

import (
	"atoll/node/gen/enginev1"
	"atoll/node/internal/driver"
)

func unsupported(runtime, what string) *Fault {
	return fault(Unsupported, "the runtime %s can't do it: %s (remedy: use the runtime gvisor)", runtime, what)
}

// require refuses what the box's runtime can't do, before anything is begun.
func (b *box) require(what driver.Ability, words string) error {
	build := b.snapshot.Load().GetRuntimeVersion()
	if b.node.driver.Can(what, build) {
		return nil
	}
	return unsupported(b.snapshot.Load().GetSpec().GetRuntime(), words)
}

func abilityFor(kind enginev1.SnapshotKind) (driver.Ability, string) {
	if kind == enginev1.SnapshotKind_SNAPSHOT_KIND_FILES {
		return driver.FilesSnapshots, "a snapshot of files"
	}
	return driver.MemorySnapshots, "a snapshot with memory"
}

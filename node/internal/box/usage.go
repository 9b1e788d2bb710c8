package box

import (
	"time"

	"atoll/node/gen/enginev1"
)

// Usage says what every live box uses, as the host sees it: no sandbox is asked. A box that ends meanwhile is left out.
func (n *Node) Usage(now time.Time) []*enginev1.BoxUsage {
	n.mu.Lock()
	boxes := make([]*box, 0, len(n.boxes))
	for _, b := range n.boxes {
		if !b.hidden {
			boxes = append(boxes, b)
		}
	}
	n.mu.Unlock()
	all := make([]*enginev1.BoxUsage, 0, len(boxes))
	for _, b := range boxes {
		if usage := b.usage(now); usage != nil {
			all = append(all, usage)
		}
	}
	return all
}

func (b *box) usage(now time.Time) *enginev1.BoxUsage {
	box := b.snapshot.Load()
	switch box.GetState() {
	case enginev1.BoxState_BOX_STATE_READY, enginev1.BoxState_BOX_STATE_RECONNECTING:
	default:
		return nil
	}
	c := b.container.Load()
	if c == nil {
		return nil
	}
	used, err := c.group.Usage()
	if err != nil {
		return nil
	}
	disk, err := b.node.driver.DiskUsed(c.dir, int(c.pid.Load()), c.spec.Build)
	if err != nil {
		return nil
	}
	return &enginev1.BoxUsage{
		BoxId: b.id, SandboxId: box.GetSandboxId(), AtUnixMs: now.UnixMilli(),
		CpuUs: uint64(used.CPU.Microseconds()), ThrottledUs: uint64(used.Throttled.Microseconds()),
		MemoryBytes: used.MemoryBytes, MemoryPeakBytes: max(used.PeakBytes, used.MemoryBytes), DiskBytes: disk,
		Processes: uint32(b.node.driver.GuestProcesses(used.Processes, c.spec.Build)), Limits: box.GetLimits(),
	}
}

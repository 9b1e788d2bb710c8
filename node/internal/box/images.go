package box

import (
	"atoll/node/gen/enginev1"
	"atoll/node/internal/snapshot"
)

// ImageUser names a box or a snapshot that needs an image, in a few words; empty: none does. What builds keep in their cache does not
// count.
func (n *Node) ImageUser(digest string) string {
	n.mu.Lock()
	for id, b := range n.boxes {
		view := b.view()
		switch view.GetState() {
		case enginev1.BoxState_BOX_STATE_ENDED, enginev1.BoxState_BOX_STATE_DELETED:
			continue
		}
		if view.GetSpec().GetImageDigest() == digest {
			n.mu.Unlock()
			return "box " + id
		}
	}
	n.mu.Unlock()
	user := ""
	n.snapshots.Each(func(m *snapshot.Manifest) {
		if !m.Build && m.Snapshot.GetImageDigest() == digest {
			user = "snapshot " + m.Snapshot.GetSnapshotId()
		}
	})
	return user
}

package box

import (
	"os"

	"atoll/node/internal/snapshot"
)

// Kept is what the data folder keeps as long as a box or a snapshot needs it, whatever becomes of the folder that it was built in.
// The zero value keeps nothing.
type Kept struct {
	// Agent is the digest of the agent's image that new boxes get.
	Agent string
	// AgentPath is where the image with a digest is, if it is kept.
	AgentPath func(digest string) string
	// RemoveOthers removes builds of the runtime, by version, and agents' images, by digest, that are not among those named.
	RemoveOthers func(builds, agents map[string]bool) error
}

// agentPath is where the agent's image with a digest is.
func (n *Node) agentPath(digest string) (string, error) {
	if digest == "" {
		return n.config.AgentImage, nil
	}
	path := n.config.Kept.AgentPath(digest)
	if _, err := os.Stat(path); err != nil {
		return "", fault(FailedPrecondition, "agent %.12s, which it was made with, is not on this node", digest)
	}
	return path, nil
}

// dropUnused removes builds and agents that no box and no snapshot needs any more. Requires: no box runs yet.
func (n *Node) dropUnused() {
	if n.config.Kept.RemoveOthers == nil {
		return
	}
	builds, agents := map[string]bool{n.driver.Version(): true}, map[string]bool{n.config.Kept.Agent: true}
	for _, b := range n.boxes {
		builds[b.record.container.Build], agents[b.record.container.Agent] = true, true
	}
	n.snapshots.Each(func(m *snapshot.Manifest) {
		builds[m.Snapshot.GetRuntimeVersion()], agents[m.Snapshot.GetAgentDigest()] = true, true
	})
	if err := n.config.Kept.RemoveOthers(builds, agents); err != nil {
		n.logger.Warn("what no box and no snapshot needs is still there", "error", err)
	}
}

package box

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"atoll/node/internal/snapshot"
)

// What a snapshot needs to live again is kept in the data folder as long as a box or a snapshot needs it, whatever becomes of the folder
// that it was built in: the runtime's builds in runtimes/<version>/, the images of the agent in runtimes/agents/<digest>.erofs.

const agentsFolder = "agents"

// Runtimes is the folder of what is kept.
func Runtimes(dataDir string) string { return filepath.Join(dataDir, "runtimes") }

// keepAgent puts an agent's image into the data folder, and returns its digest; without an image, nothing.
func keepAgent(dataDir, path string) (digest string, err error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("agent image: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("agent image: %w", err)
	}
	digest = hex.EncodeToString(sum.Sum(nil))
	folder := filepath.Join(Runtimes(dataDir), agentsFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	return digest, linkOrCopy(path, filepath.Join(folder, digest+".erofs"))
}

// KeepBuild puts a build of the runtime into the data folder.
func KeepBuild(dataDir, dir, version string) error {
	target := filepath.Join(Runtimes(dataDir), version)
	if exists(target) {
		return nil
	}
	partial := target + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(partial, relative), 0o755)
		}
		return linkOrCopy(path, filepath.Join(partial, relative))
	})
	if err == nil {
		err = os.Rename(partial, target)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keeping build %s of the runtime: %w", version, err), os.RemoveAll(partial))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// linkOrCopy gives a file a second name, or copies it to another file system.
func linkOrCopy(from, to string) error {
	if exists(to) {
		return nil
	}
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	partial := to + ".partial"
	out, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, to)
}

// agentPath is where the agent's image with a digest is.
func (n *Node) agentPath(digest string) (string, error) {
	if digest == "" {
		return n.config.AgentImage, nil
	}
	path := filepath.Join(Runtimes(n.config.DataDir), agentsFolder, digest+".erofs")
	if !exists(path) {
		return "", fault(FailedPrecondition, "agent %.12s, which it was made with, is not on this node", digest)
	}
	return path, nil
}

// dropUnused removes builds and agents that no box and no snapshot needs any more.
func (n *Node) dropUnused() {
	used := map[string]bool{agentsFolder: true, n.agent + ".erofs": true}
	for _, version := range []string{n.driver.Version()} {
		used[version] = true
	}
	for _, b := range n.boxes {
		used[b.record.container.Build] = true
		used[b.record.container.Agent+".erofs"] = true
	}
	n.snapshots.Each(func(m *snapshot.Manifest) {
		used[m.Snapshot.GetRuntimeVersion()] = true
		used[m.Snapshot.GetAgentDigest()+".erofs"] = true
	})
	for _, folder := range []string{Runtimes(n.config.DataDir), filepath.Join(Runtimes(n.config.DataDir), agentsFolder)} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if used[entry.Name()] {
				continue
			}
			n.logger.Info("removing what no box and no snapshot needs any more", "name", strings.TrimSuffix(entry.Name(), ".erofs"))
			if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
				n.logger.Warn("not removed", "name", entry.Name(), "error", err)
			}
		}
	}
}

//go:build !race || gvisor

package agent_test

import (
	"os"
	"os/exec"
)

func buildCommand(source string) *exec.Cmd {
	command := exec.Command("go", "build", "-o", agentBinary, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	return command
}

//go:build race && !gvisor

package agent_test

import "os/exec"

func buildCommand(source string) *exec.Cmd {
	return exec.Command("go", "build", "-race", "-o", agentBinary, source)
}

//go:build gvisor

package agent_test

import (
	"testing"

	"atoll/node/internal/agent/files/filestest"
)

func TestGvisor_files(t *testing.T) {
	filestest.Run(t, func(t *testing.T) *filestest.Sandbox { return newBox(t).sandbox() })
}

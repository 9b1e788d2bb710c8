package main

import (
	"os"
	"testing"

	"atoll/node/internal/engine/enginetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.RemoveBuild()
	os.Exit(code)
}

func TestStateLivesOnBetweenExecutions(t *testing.T) {
	e := enginetest.Start(t)
	box := e.Python(t.Context())
	if r := box.Run(t.Context(), "x = 1 + 1\nprint(x)"); string(r.Stdout) != "2\n" {
		t.Fatalf("output %q, %v", r.Stdout, r.Finished)
	}
	if r := box.Run(t.Context(), "print(x)"); string(r.Stdout) != "2\n" {
		t.Fatalf("output %q, %v", r.Stdout, r.Finished)
	}
	box.Delete(t.Context())
}

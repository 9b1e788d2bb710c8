// Package failpoint lets tests make named steps fail, block, or end the process, to prove what a crash or a full disk leaves behind.
//
// A step calls Hit with its name. Where nothing was set, which is always so outside tests, that is one atomic load.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The steps that can be made to fail, in the order in which they come.
var names = map[string][]string{
	"pause":    {"recorded", "quiesced", "stopped", "written", "verified", "synced", "renamed", "saved", "freed"},
	"resume":   {"recorded", "prepared", "restored", "connected", "saved", "cleaned"},
	"restore":  {"recorded", "prepared", "restored", "connected", "saved"},
	"rollback": {"recorded", "prepared", "restored", "connected", "saved", "freed"},
	"snapshot": {"recorded", "written", "verified", "synced", "renamed", "sealed"},
	"import":   {"written", "verified", "synced", "renamed"},
	"delete":   {"begun", "ended", "freed", "removed"},
	"image":    {"written", "renamed"},
}

// Of lists the steps of one operation, in their order.
func Of(operation string) []string {
	var all []string
	for _, step := range names[operation] {
		all = append(all, operation+"."+step)
	}
	return all
}

// ErrInjected is what a step fails with that was set to "error".
var ErrInjected = errors.New("this step was made to fail")

var (
	armed atomic.Bool
	mu    sync.Mutex
	// points is guarded by mu.
	points = map[string]func() error{}
)

// Hit returns nil, or does what was set for a step.
func Hit(name string) error {
	if !armed.Load() {
		return nil
	}
	mu.Lock()
	do := points[name]
	mu.Unlock()
	if do == nil {
		return nil
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Set has a step do something from now on, and nothing more with nil.
func Set(name string, do func() error) error {
	operation, step, _ := strings.Cut(name, ".")
	if !slices.Contains(names[operation], step) {
		return fmt.Errorf("fail point %q is not known", name)
	}
	mu.Lock()
	defer mu.Unlock()
	if do == nil {
		delete(points, name)
	} else {
		points[name] = do
	}
	armed.Store(len(points) > 0)
	return nil
}

// Enable takes a list like "pause.written=enospc,resume.saved=kill". The actions are error, enospc, kill (of this process, as kill -9 does),
// and hold@PATH: it makes the file PATH.reached, and goes on when there is a file PATH.
func Enable(list string) error {
	for entry := range strings.SplitSeq(list, ",") {
		if entry == "" {
			continue
		}
		name, action, _ := strings.Cut(entry, "=")
		var do func() error
		action, path, _ := strings.Cut(action, "@")
		switch action {
		case "hold":
			do = func() error { return hold(path) }
		case "error":
			do = func() error { return ErrInjected }
		case "enospc":
			do = func() error { return unix.ENOSPC }
		case "kill":
			do = kill
		default:
			return fmt.Errorf("fail point %q: action %q (expected: error, enospc, kill or hold@PATH)", name, action)
		}
		if err := Set(name, do); err != nil {
			return err
		}
	}
	return nil
}

func kill() error {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

func hold(path string) error {
	if err := os.WriteFile(path+".reached", nil, 0o600); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

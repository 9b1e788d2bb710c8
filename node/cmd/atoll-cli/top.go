package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// sample is the API's sample of what a sandbox used.
type sample struct {
	CPUPercent *float64 `json:"cpu_percent"`
	CPUSeconds float64  `json:"cpu_seconds"`
	Memory     int64    `json:"memory_bytes"`
	MemoryOf   int64    `json:"memory_limit_bytes"`
	Disk       int64    `json:"disk_bytes"`
	DiskOf     int64    `json:"disk_limit_bytes"`
	Processes  int      `json:"processes"`
}

// busy is a sandbox and its newest sample, which it may not have yet.
type busy struct {
	sandbox sandbox
	raw     json.RawMessage
	usage   *sample
}

// topWindow is how far back the newest sample may lie; samples come every few seconds.
const topWindow = time.Minute

func runTop(ctx context.Context, s *server, arguments []string, t terminal) (int, error) {
	f := newFlags("top")
	once, asJSON := f.Bool("once", false, ""), f.Bool("json", false, "")
	every := f.Float64("n", 2, "")
	words, err := f.parse(arguments)
	switch {
	case err != nil:
		return 0, err
	case len(words) > 0:
		return 0, usageError(fmt.Sprintf("'%s' (expected: flags only)", words[0]))
	case !(*every > 0):
		return 0, usageError(fmt.Sprintf("-n %v (expected: seconds)", *every))
	}
	if *asJSON {
		return 0, topJSON(ctx, s, t)
	}
	if *once {
		text, err := topText(ctx, s, 0)
		if err == nil {
			_, err = fmt.Fprint(t.stdout, text)
		}
		return 0, err
	}
	window := openScreen(t)
	// A restart of the server is no reason to end.
	s.patience = patient
	// The alternate screen, so that what stood there before comes back.
	fmt.Fprint(t.stdout, "\x1b[?1049h\x1b[?25l")
	defer fmt.Fprint(t.stdout, "\x1b[?25h\x1b[?1049l")
	for {
		_, rows := window.size()
		text, err := topText(ctx, s, rows)
		if ctx.Err() != nil {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		// Line by line over what is there: nothing flickers.
		fmt.Fprint(t.stdout, "\x1b[H"+strings.ReplaceAll(text, "\n", "\x1b[K\n")+"\x1b[J")
		select {
		case <-ctx.Done():
			return 0, nil
		case <-time.After(time.Duration(*every * float64(time.Second))):
		}
	}
}

// running are the sandboxes that run with what each uses, the busiest first.
func running(ctx context.Context, s *server) ([]busy, error) {
	var found []busy
	err := list(ctx, s, "/v1/sandboxes", url.Values{"state": {"running"}}, cursorParameter, func(item json.RawMessage) error {
		one := busy{raw: item}
		found = append(found, one)
		return json.Unmarshal(item, &found[len(found)-1].sandbox)
	})
	if err != nil {
		return nil, err
	}
	// A few at a time: there may be hundreds.
	turn := make(chan struct{}, 8)
	var all sync.WaitGroup
	for i := range found {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			found[i].usage = newest(ctx, s, found[i].sandbox.ID)
		})
	}
	all.Wait()
	slices.SortStableFunc(found, func(a, b busy) int { return int(1000 * (b.percent() - a.percent())) })
	return found, ctx.Err()
}

func (b busy) percent() float64 {
	if b.usage == nil || b.usage.CPUPercent == nil {
		return -1
	}
	return *b.usage.CPUPercent
}

// newest is nil for a sandbox without a sample, or one that has just ended.
func newest(ctx context.Context, s *server, id string) *sample {
	var last *sample
	query := url.Values{"from": {time.Now().Add(-topWindow).UTC().Format(time.RFC3339)}}
	_ = list(ctx, s, sandboxPath(id, "/metrics"), query, cursorParameter, func(one sample) error { last = &one; return nil })
	return last
}

func topJSON(ctx context.Context, s *server, t terminal) error {
	found, err := running(ctx, s)
	if err != nil {
		return err
	}
	for _, one := range found {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(one.raw, &fields); err != nil {
			return err
		}
		if fields["usage"], err = json.Marshal(one.usage); err != nil {
			return err
		}
		if err := json.NewEncoder(t.stdout).Encode(fields); err != nil {
			return err
		}
	}
	return nil
}

// topText is a screen of that many rows, or all where there is none.
func topText(ctx context.Context, s *server, rows int) (string, error) {
	found, err := running(ctx, s)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	var cpu float64
	var memory int64
	for _, one := range found {
		cpu += max(one.percent(), 0)
		if one.usage != nil {
			memory += one.usage.Memory
		}
	}
	fmt.Fprintf(&text, "%d sandboxes run, %.0f %% CPU, %s memory\n", len(found), cpu, size(memory))
	pools := newTable(&text, false, false)
	pools.header("", "POOL", "READY", "STARTING", "PREPARED", "MEMORY", "GOLDEN", "HITS", "MISSES", "LAST FAILURE")
	count := 0
	err = list(ctx, s, "/v1/pools", nil, cursorParameter, func(item json.RawMessage) error { count++; return pools.row("", item, poolRow) })
	if err != nil {
		return "", err
	}
	if count > 0 {
		fmt.Fprintln(&text)
		pools.flush()
	}
	fmt.Fprintln(&text)
	out := newTable(&text, false, false)
	out.header("", "SANDBOX", "NAME", "TEMPLATE", "CPU%", "CPU TIME", "MEMORY", "OF", "DISK", "OF", "PROCESSES", "AGE")
	for _, one := range found {
		columns := []string{"", one.sandbox.ID, or(one.sandbox.Name, "-"), one.sandbox.Template, "-", "-", "-", "-", "-", "-", "-", since(&one.sandbox.CreatedAt)}
		if u := one.usage; u != nil {
			if u.CPUPercent != nil {
				columns[4] = fmt.Sprintf("%.1f", *u.CPUPercent)
			}
			columns[5], columns[6], columns[7] = fmt.Sprintf("%.1fs", u.CPUSeconds), size(u.Memory), size(u.MemoryOf)
			columns[8], columns[9], columns[10] = size(u.Disk), size(u.DiskOf), fmt.Sprint(u.Processes)
		}
		out.write(columns)
	}
	out.flush()
	if lines := strings.SplitAfter(text.String(), "\n"); rows > 2 && len(lines) > rows {
		return strings.Join(lines[:rows-2], "") + fmt.Sprintf("… and %d more", len(lines)-rows+1), nil
	}
	return text.String(), nil
}

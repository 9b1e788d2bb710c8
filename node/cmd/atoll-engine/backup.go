package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/backup"
)

// backups are the commands that write and read backups. They need no engine, and get in the way of none.
var backups = map[string]func(arguments []string) int{"backup": runBackup, "restore": runRestore}

// Exit statuses of them.
const (
	backupFailed = 1
	backupUsage  = 2
	// backupLacks: it was made, but something that the store names is not in it.
	backupLacks = 6
)

func runBackup(arguments []string) int {
	var w backup.Writing
	flags := flag.NewFlagSet("atoll-engine backup", flag.ContinueOnError)
	flags.StringVar(&w.Data, "data", "", "the data folder")
	flags.StringVar(&w.Recipes, "images", "", "folder of the images of recipes")
	flags.StringVar(&w.File, "file", "", "the file to write")
	flags.StringVar(&w.Version, "version", "", "what to call this version of Atoll")
	flags.StringVar(&w.StoreFolder, "store-folder", "", "an empty folder, which the command after \"--\" copies the store to")
	taken := flags.String("taken", "", "a snapshot that was made for this, or several with blanks between")
	asJSON := flags.Bool("json", false, "print the result as JSON")
	if flags.Parse(arguments) != nil || w.Data == "" || w.File == "" || w.StoreFolder == "" || flags.NArg() == 0 {
		return backupUsage
	}
	w.Taken = strings.Fields(*taken)
	w.CopyStore = func(ctx context.Context, folder string) error {
		command := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...)
		command.Dir = "/"
		command.Stdout, command.Stderr = os.Stderr, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("the store could not be copied: %w", err)
		}
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	progress, end := progressOn(os.Stderr, "backed up")
	w.Progress = progress
	begin := time.Now()
	result, err := backup.Write(ctx, w)
	end()
	if err != nil {
		return failed(ctx, "no backup was made", err)
	}
	if *asJSON {
		return printed(struct {
			backup.Result
			Seconds float64 `json:"seconds"`
		}{result, time.Since(begin).Seconds()}, lacks(result.Report))
	}
	fmt.Printf("%s: %s (%s of files) after %.1f s\n  sha256 %s\n", result.File, size(result.Bytes), size(result.Holds), time.Since(begin).Seconds(), result.SHA256)
	told(result.Report)
	fmt.Println("  It holds the installation's keys, and so has mode 0600: keep it as safe as the data folder.")
	return lacks(result.Report)
}

func runRestore(arguments []string) int {
	var r backup.Restoring
	flags := flag.NewFlagSet("atoll-engine restore", flag.ContinueOnError)
	flags.StringVar(&r.Data, "data", "", "the new data folder; without it the backup is only checked")
	flags.StringVar(&r.Recipes, "images", "", "folder of the images of recipes")
	flags.StringVar(&r.File, "file", "", "the backup")
	asJSON := flags.Bool("json", false, "print the result as JSON")
	if flags.Parse(arguments) != nil || flags.NArg() > 0 || r.File == "" {
		return backupUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	progress, end := progressOn(os.Stderr, "read")
	r.Progress = progress
	begin := time.Now()
	result, err := backup.Restore(ctx, r)
	end()
	what := "nothing was restored"
	if r.Data == "" {
		what = "it is not to be relied on"
	}
	if err != nil {
		return failed(ctx, what, err)
	}
	if *asJSON {
		return printed(struct {
			backup.Restored
			Seconds float64 `json:"seconds"`
		}{result, time.Since(begin).Seconds()}, 0)
	}
	if r.Data == "" {
		fmt.Printf("%s is whole: of Atoll %s, made at %s (checked in %.1f s)\n", r.File, result.Version, result.MadeAt, time.Since(begin).Seconds())
	} else {
		fmt.Printf("%s is what was backed up at %s with Atoll %s (%.1f s)\n", result.Data, result.MadeAt, result.Version, time.Since(begin).Seconds())
	}
	told(result.Report)
	return 0
}

func failed(ctx context.Context, what string, err error) int {
	if ctx.Err() != nil {
		err = errors.New("it was interrupted")
	}
	fmt.Fprintf(os.Stderr, "atoll: %s: %v\n", what, err)
	return backupFailed
}

func printed(v any, status int) int {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return backupFailed
	}
	return status
}

func lacks(r backup.Report) int {
	if len(r.Missing) > 0 {
		return backupLacks
	}
	return 0
}

// told prints what is in a backup, and what is not, for people.
func told(r backup.Report) {
	fmt.Printf("  in it: store, keys, settings, %s, %s, %s\n",
		count(len(r.Paused), "paused sandbox", "paused sandboxes"), count(len(r.Snapshots), "snapshot", "snapshots"), count(r.Images, "image", "images"))
	var running []backup.Sandbox
	for _, s := range r.Running {
		if s.Snapshot != "" {
			fmt.Printf("  running, in it as a snapshot: %s, as %s (create --snapshot %s)\n", called(s), s.Snapshot, s.Snapshot)
		} else {
			running = append(running, s)
		}
	}
	if len(running) > 0 {
		fmt.Printf("  not in it: what runs in %s", count(len(running), "running sandbox", "running sandboxes"))
		for i, s := range running {
			if i == mostNames {
				fmt.Print(", …")
				break
			}
			fmt.Print([]string{": ", ", "}[min(i, 1)], called(s))
		}
		fmt.Println(" (remedy: pause them, or --snapshot-running)")
	}
	for _, m := range r.Missing {
		fmt.Printf("  missing: %s %s: %s\n", m.Kind, m.ID, m.Why)
	}
}

const mostNames = 10

func called(s backup.Sandbox) string {
	if s.Name != "" {
		return s.Name
	}
	return s.ID
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func size(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// progressOn tells how far something is: on a terminal in one line, else each ten seconds in a line of its own.
func progressOn(w *os.File, word string) (progress func(done, total int64), end func()) {
	terminal := false
	if info, err := w.Stat(); err == nil {
		terminal = info.Mode()&os.ModeCharDevice != 0
	}
	interval, last, shown := 10*time.Second, time.Now(), false
	if terminal {
		interval = 200 * time.Millisecond
	}
	return func(done, total int64) {
			if time.Since(last) < interval {
				return
			}
			last, shown = time.Now(), true
			line := fmt.Sprintf("  %s %s of %s (%d %%)", size(done), word, size(total), done*100/max(total, 1))
			if terminal {
				_, _ = io.WriteString(w, "\r\x1b[K"+line)
			} else {
				_, _ = io.WriteString(w, line+"\n")
			}
		}, func() {
			if terminal && shown {
				_, _ = io.WriteString(w, "\r\x1b[K")
			}
		}
}

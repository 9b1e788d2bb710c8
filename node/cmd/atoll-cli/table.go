package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table prints rows in columns for people, or each item as it came on a line of its own for programs.
type table struct {
	to     *tabwriter.Writer
	asJSON bool
	// first: the column of the group is shown.
	first bool
	out   io.Writer
}

func newTable(out io.Writer, asJSON, first bool) *table {
	return &table{to: tabwriter.NewWriter(out, 0, 1, 2, ' ', 0), asJSON: asJSON, first: first, out: out}
}

func (t *table) header(columns ...string) {
	if !t.asJSON {
		t.write(columns)
	}
}

// row shows an item of a group; with JSON only the group is added.
func (t *table) row(group string, item json.RawMessage, shown func(json.RawMessage) ([]string, error)) error {
	if t.asJSON {
		if t.first {
			fields := map[string]json.RawMessage{}
			if err := json.Unmarshal(item, &fields); err != nil {
				return err
			}
			fields["sandbox_id"], _ = json.Marshal(group)
			item, _ = json.Marshal(fields)
		}
		return printRaw(t.out, item)
	}
	columns, err := shown(item)
	if err != nil {
		return err
	}
	t.write(append([]string{group}, columns...))
	return nil
}

// printRaw prints an item for programs, as it came.
func printRaw(to io.Writer, item json.RawMessage) error {
	_, err := fmt.Fprintf(to, "%s\n", item)
	return err
}

func (t *table) write(columns []string) {
	if !t.first {
		columns = columns[1:]
	}
	for i, column := range columns {
		columns[i] = printable(column)
	}
	fmt.Fprintln(t.to, strings.Join(columns, "\t"))
}

func (t *table) flush() error { return t.to.Flush() }

// printable: names and command lines are the sandbox's and may hold what a terminal takes for commands.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

func size(bytes int64) string {
	value, units := float64(bytes), []string{"", "K", "M", "G", "T", "P", "E"}
	at := 0
	for value >= 1024 && at < len(units)-1 {
		value /= 1024
		at++
	}
	if at == 0 {
		return fmt.Sprintf("%d", bytes)
	}
	return fmt.Sprintf("%.1f%s", value, units[at])
}

func clock(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format("2006-01-02 15:04:05")
}

// age is about how long something took, in the largest unit that it fills.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// since is the age of what happened then, or "-" if it did not.
func since(at *time.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return age(time.Since(*at))
}

// until is in how long something will happen, or "-" if it will not.
func until(at *time.Time) string {
	if at == nil || at.IsZero() {
		return "-"
	}
	return "in " + age(time.Until(*at))
}

// labelText shows labels as they are typed, in the order of their names.
func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return "-"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, ",")
}

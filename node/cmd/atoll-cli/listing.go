package main

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
)

// listing is which sandboxes are listed, and how.
type listing struct {
	state, template   string
	text              string
	labels            pairs
	all, tree, asJSON bool
}

func (l *listing) flags(f flags) {
	l.labels = pairs{}
	f.StringVar(&l.state, "state", "", "")
	f.StringVar(&l.template, "template", "", "")
	f.StringVar(&l.text, "q", "", "")
	f.Var(l.labels, "label", "")
	f.BoolVar(&l.all, "all", false, "")
	f.BoolVar(&l.all, "a", false, "")
	f.BoolVar(&l.tree, "tree", false, "")
	f.BoolVar(&l.asJSON, "json", false, "")
}

// choosesSandboxes says whether there are flags that only make sense for a list of sandboxes.
func (l *listing) choosesSandboxes() bool {
	return l.state != "" || l.template != "" || l.text != "" || len(l.labels) > 0 || l.tree
}

// labelQuery adds the choice by labels to a query.
func labelQuery(query url.Values, labels pairs) {
	for name, value := range labels {
		query.Set("label."+name, value)
	}
}

func (l *listing) query() (url.Values, error) {
	query := url.Values{}
	switch {
	case l.state != "" && l.all:
		return nil, usageError("--state and --all (expected: one of them)")
	case l.state != "":
		query.Set("state", l.state)
	case !l.all:
		query.Set("state", liveStates)
	}
	if l.template != "" {
		query.Set("template", l.template)
	}
	if l.text != "" {
		query.Set("q", l.text)
	}
	labelQuery(query, l.labels)
	return query, nil
}

func (l *listing) sandboxes(ctx context.Context, s *server, to io.Writer) error {
	query, err := l.query()
	if err != nil {
		return err
	}
	out := newTable(to, l.asJSON, false)
	out.header("", "SANDBOX", "NAME", "TEMPLATE", "STATE", "AGE", "ENDS", "LABELS")
	var family forest
	err = list(ctx, s, "/v1/sandboxes", query, cursorParameter, func(item json.RawMessage) error {
		if l.tree {
			return family.add(item)
		}
		return out.row("", item, sandboxRow)
	})
	if err != nil {
		return err
	}
	if l.tree && l.asJSON {
		return family.writeJSON(to)
	}
	if l.tree {
		return family.write(out)
	}
	return out.flush()
}

func sandboxRow(item json.RawMessage) ([]string, error) {
	var one sandbox
	if err := json.Unmarshal(item, &one); err != nil {
		return nil, err
	}
	return sandboxColumns(one), nil
}

func sandboxColumns(one sandbox) []string {
	ends := until(one.ExpiresAt)
	if one.EndReason != nil {
		// When it would have ended is of no interest any more.
		ends = "-"
	}
	return []string{one.ID, or(one.Name, "-"), one.Template, stateOf(one), since(&one.CreatedAt), ends, labelText(one.Labels)}
}

// stateOf is the state and what there is to say about it.
func stateOf(one sandbox) string {
	switch {
	case one.EndReason != nil:
		return one.State + " (" + *one.EndReason + ")"
	case one.State == "paused" && one.PausedAt != nil:
		return one.State + " (" + since(one.PausedAt) + ")"
	}
	return one.State
}

// forest is which sandboxes were forked from which. A fork of one that is not listed stands by itself.
type forest struct {
	trees []*tree
}

// tree is a sandbox with its forks.
type tree struct {
	sandbox
	item  json.RawMessage
	forks []*tree
}

func (f *forest) add(item json.RawMessage) error {
	one := &tree{item: slices.Clone(item)}
	if err := json.Unmarshal(item, &one.sandbox); err != nil {
		return err
	}
	f.trees = append(f.trees, one)
	return nil
}

// roots joins what was added; the oldest are first.
func (f *forest) roots() []*tree {
	slices.SortStableFunc(f.trees, func(a, b *tree) int { return a.CreatedAt.Compare(b.CreatedAt) })
	byID := map[string]*tree{}
	for _, one := range f.trees {
		byID[one.ID] = one
	}
	var roots []*tree
	for _, one := range f.trees {
		if parent := byID[one.parent()]; parent != nil && parent != one {
			parent.forks = append(parent.forks, one)
		} else {
			roots = append(roots, one)
		}
	}
	return roots
}

// write shows each sandbox below the one that it was forked from.
func (f *forest) write(out *table) error {
	for _, root := range f.roots() {
		root.write(out, "", "")
	}
	return out.flush()
}

func (t *tree) write(out *table, first, below string) {
	columns := sandboxColumns(t.sandbox)
	columns[0] = first + columns[0]
	out.write(append([]string{""}, columns...))
	for i, fork := range t.forks {
		if i == len(t.forks)-1 {
			fork.write(out, below+"`-- ", below+"    ")
		} else {
			fork.write(out, below+"|-- ", below+"|   ")
		}
	}
}

// writeJSON writes one object for each root, with its forks in it.
func (f *forest) writeJSON(to io.Writer) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	for _, root := range f.roots() {
		if err := encoder.Encode(root); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON adds the forks to what the server says of the sandbox.
func (t *tree) MarshalJSON() ([]byte, error) {
	forks := t.forks
	if forks == nil {
		forks = []*tree{}
	}
	text, err := json.Marshal(forks)
	if err != nil {
		return nil, err
	}
	own := strings.TrimSuffix(strings.TrimSpace(string(t.item)), "}")
	return []byte(own + `,"forks":` + string(text) + "}"), nil
}

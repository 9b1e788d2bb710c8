package agent

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

func TestResultOfAnySizeFitsAMessageAndSaysWhatWasLeftOut(t *testing.T) {
	text := func(n int, c string) json.RawMessage { return json.RawMessage(`"` + strings.Repeat(c, n) + `"`) }
	encode := func(members map[string]json.RawMessage) json.RawMessage {
		var parts []string
		for name, value := range members {
			parts = append(parts, `"`+name+`":`+string(value))
		}
		return json.RawMessage("{" + strings.Join(parts, ",") + "}")
	}
	for _, c := range []struct {
		name           string
		data, metadata json.RawMessage
		kept           []string
		leftOut        map[string]uint64
	}{
		{"small", encode(map[string]json.RawMessage{"text/plain": text(10, "a")}), json.RawMessage(`{}`), []string{"text/plain"}, nil},
		{"largest left out", encode(map[string]json.RawMessage{"text/plain": text(1<<20, "<"), "image/png": text(6<<20, "b"), "text/html": text(5<<20, "&")}),
			json.RawMessage(`{}`), []string{"text/plain", "text/html"}, map[string]uint64{"image/png": 6<<20 + 2}},
		{"nothing fits", encode(map[string]json.RawMessage{"text/plain": text(16<<20, "a")}), nil, nil, map[string]uint64{"text/plain": 16<<20 + 2}},
		{"names alone too long", encode(map[string]json.RawMessage{strings.Repeat("n", 8<<20): text(1, "a")}), nil, nil, map[string]uint64{"": 3}},
		{"metadata", encode(map[string]json.RawMessage{"text/plain": text(1, "a")}), text(2<<20, "m"), []string{"text/plain"}, map[string]uint64{"metadata": 2<<20 + 2}},
		{"no object", text(9<<20, "a"), nil, nil, map[string]uint64{"": 9<<20 + 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, metadata, leftOut := fitResult(c.data, c.metadata)
			if size := len(jsonText(data)) + len(jsonText(metadata)); size > maxResultBytes {
				t.Errorf("%d bytes are left", size)
			}
			if !maps.Equal(leftOut, c.leftOut) {
				t.Errorf("left out: %v (expected: %v)", leftOut, c.leftOut)
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal([]byte(jsonText(data)), &members); err != nil {
				t.Fatal(err)
			}
			if len(members) != len(c.kept) {
				t.Errorf("%d members are left (expected: %q)", len(members), c.kept)
			}
			var before map[string]json.RawMessage
			_ = json.Unmarshal(c.data, &before)
			for _, name := range c.kept {
				if string(members[name]) != string(before[name]) {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

func TestWhatAKernelSaysItHasLeftOutIsBounded(t *testing.T) {
	many := map[string]uint64{}
	for i := range maxLeftOut + 1 {
		many[strings.Repeat("t", i+1)] = 1
	}
	raw, _ := json.Marshal(many)
	for _, c := range []struct {
		told string
		kept map[string]uint64
	}{
		{``, nil},
		{`{"image/png":7,"text/plain":1}`, map[string]uint64{"image/png": 7, "text/plain": 1}},
		{`{"image/png":-7}`, nil},
		{`[1]`, nil},
		{`{"` + strings.Repeat("n", maxTypeBytes+1) + `":1,"text/html":2}`, map[string]uint64{"text/html": 2}},
		{`{"` + strings.Repeat("n", maxMetadataBytes) + `":1}`, nil},
	} {
		if kept := toldLeftOut(json.RawMessage(c.told)); !maps.Equal(kept, c.kept) {
			t.Errorf("%.40q: %v (expected: %v)", c.told, kept, c.kept)
		}
	}
	if kept := toldLeftOut(raw); len(kept) > maxLeftOut {
		t.Errorf("%d types are kept (expected: at most %d)", len(kept), maxLeftOut)
	}
}

package agent

import (
	"encoding/json"
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
		leftOut        uint64
	}{
		{"small", encode(map[string]json.RawMessage{"text/plain": text(10, "a")}), json.RawMessage(`{}`), []string{"text/plain"}, 0},
		{"largest left out", encode(map[string]json.RawMessage{"text/plain": text(1<<20, "<"), "image/png": text(6<<20, "b"), "text/html": text(5<<20, "&")}),
			json.RawMessage(`{}`), []string{"text/plain", "text/html"}, 6<<20 + 2},
		{"nothing fits", encode(map[string]json.RawMessage{"text/plain": text(16<<20, "a")}), nil, nil, 16<<20 + 2},
		{"names alone too long", encode(map[string]json.RawMessage{strings.Repeat("n", 8<<20): text(1, "a")}), nil, nil, 3},
		{"metadata", encode(map[string]json.RawMessage{"text/plain": text(1, "a")}), text(2<<20, "m"), []string{"text/plain"}, 2<<20 + 2},
		{"no object", text(9<<20, "a"), nil, nil, 9<<20 + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, metadata, leftOut := fitResult(c.data, c.metadata)
			if size := len(jsonText(data)) + len(jsonText(metadata)); size > maxResultBytes {
				t.Errorf("%d bytes are left", size)
			}
			if leftOut != c.leftOut {
				t.Errorf("%d bytes left out (expected: %d)", leftOut, c.leftOut)
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

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// launcherCommands are those of ./atoll that never come here.
var launcherCommands = []string{"up", "down", "status", "build", "dist", "test", "bench", "env", "login-link", "doctor", "login-link", "fmt", "version", "help"}

// The shells ask `atoll __complete WORD…` for what may stand where the last word stands; each line is one, with a tab and what it is behind it.
var completions = map[string]string{
	"bash": `_atoll() {
  local IFS=$'\n'
  COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
  if [[ ${#COMPREPLY[@]} -eq 0 ]]; then compopt -o default; elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]]; then compopt -o nospace; fi
}
complete -F _atoll atoll ./atoll
`,
	"zsh": `#compdef atoll
_atoll() {
  local -a found
  local line
  for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( ${#found} )); then _describe atoll found; else _files; fi
}
compdef _atoll atoll ./atoll
`,
	"fish": `function __atoll_complete
  set -l words (commandline -opc) (commandline -ct)
  $words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c atoll -a '(__atoll_complete)'
`,
}

func runCompletion(_ context.Context, _ *server, arguments []string, t terminal) (int, error) {
	words, err := newFlags("completion").parse(arguments)
	if err != nil {
		return 0, err
	}
	if len(words) != 1 || completions[words[0]] == "" {
		return 0, usageError(fmt.Sprintf("%q (expected: bash, zsh or fish)", words))
	}
	_, err = io.WriteString(t.stdout, completions[words[0]])
	return 0, err
}

// runComplete never fails: what cannot be known is not offered.
func runComplete(ctx context.Context, s *server, typed []string, t terminal) (int, error) {
	if len(typed) == 0 {
		typed = []string{""}
	}
	last := typed[len(typed)-1]
	for _, one := range candidates(ctx, s, typed[:len(typed)-1], last) {
		if value, _, _ := strings.Cut(one, "\t"); strings.HasPrefix(value, last) {
			fmt.Fprintln(t.stdout, one)
		}
	}
	return 0, nil
}

var flagOfUsage = regexp.MustCompile(`(-[a-z-]+)((?:\|-[a-z-]+)*)(?: ([^\]| -][^\] ]*))?`)

// candidates are what may stand behind the words before, each with what it is.
func candidates(ctx context.Context, s *server, before []string, last string) []string {
	var found []string
	if len(before) == 0 {
		for _, c := range commands {
			name, rest, group := strings.Cut(c.name, " ")
			about := c.summary
			if group {
				about = name + " " + rest + " and others"
			}
			if !strings.HasPrefix(name, "__") && !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, name+"\t") }) {
				found = append(found, name+"\t"+about)
			}
		}
		for _, name := range launcherCommands {
			found = append(found, name+"\tof the installation on this machine")
		}
		return found
	}
	if len(before) == 1 && isGroup(before[0]+" ") {
		for _, c := range commands {
			if group, rest, _ := strings.Cut(c.name, " "); group == before[0] {
				found = append(found, rest+"\t"+c.summary)
			}
		}
		return found
	}
	c, typed, err := findCommand(before)
	if err != nil {
		return nil
	}
	values := map[string]string{}
	for _, flag := range flagOfUsage.FindAllStringSubmatch(c.arguments, -1) {
		for _, name := range append([]string{flag[1]}, strings.Split(strings.Trim(flag[2], "|"), "|")...) {
			if name != "" {
				values[name] = flag[3]
			}
		}
	}
	if len(typed) > 0 && values[typed[len(typed)-1]] != "" {
		return offered(ctx, s, values[typed[len(typed)-1]], last)
	}
	if strings.HasPrefix(last, "-") {
		for name := range values {
			found = append(found, name+"\t"+values[name])
		}
		slices.Sort(found)
		return found
	}
	words := positional(c.arguments)
	if len(words) == 0 {
		return nil
	}
	at := 0
	for i, word := range typed {
		if !strings.HasPrefix(word, "-") && (i == 0 || values[typed[i-1]] == "") {
			at++
		}
	}
	if at >= len(words) {
		if !strings.Contains(words[len(words)-1], "…") {
			return nil
		}
		at = len(words) - 1
	}
	return offered(ctx, s, words[at], last)
}

var optional = regexp.MustCompile(`\[-[^\]]*\]`)

// positional are the words of a usage that are no flags.
func positional(usage string) []string {
	return strings.Fields(strings.NewReplacer("[", " ", "]", " ", "…", "… ").Replace(optional.ReplaceAllString(usage, " ")))
}

// offered are the values for a word of a usage, such as SANDBOX or python|bash.
func offered(ctx context.Context, s *server, kind, last string) []string {
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	kind = strings.TrimSuffix(kind, "…")
	switch {
	case strings.HasPrefix(kind, "SANDBOX:PATH") || kind == "SRC" || kind == "DST":
		if strings.Contains(last, ":") {
			return nil
		}
		names := asked(ctx, s, "/v1/sandboxes", url.Values{"state": {liveStates}}, "name", "sandbox_id")
		for i, line := range names {
			value, about, _ := strings.Cut(line, "\t")
			names[i] = value + ":\t" + about
		}
		return names
	case strings.HasPrefix(kind, "SANDBOX"):
		return asked(ctx, s, "/v1/sandboxes", url.Values{"state": {liveStates}}, "name", "sandbox_id")
	case kind == "SNAPSHOT":
		return asked(ctx, s, "/v1/snapshots", nil, "name", "snapshot_id")
	case kind == "TEMPLATE" || kind == "T" || kind == "ID":
		return asked(ctx, s, "/v1/templates", nil, "", "id")
	case kind == "IMAGE":
		return asked(ctx, s, "/v1/images", nil, "", "digest")
	case strings.HasPrefix(kind, "HOST"):
		return asked(ctx, s, "/v1/registries", nil, "", "host")
	case strings.HasPrefix(kind, "EXECUTION"):
		return asked(ctx, s, "/v1/executions", nil, "", "execution_id")
	case kind == "LANGUAGE" || kind == "L":
		return []string{"python", "typescript", "javascript", "bash", "go"}
	case strings.Contains(kind, "|") && strings.ToLower(kind) == kind:
		return strings.Split(kind, "|")
	}
	return nil
}

// asked are the names and ids of the first page of a list.
func asked(ctx context.Context, s *server, path string, query url.Values, name, id string) []string {
	var found page[map[string]json.RawMessage]
	if s.url == "" || s.do(ctx, apiCall{method: "GET", path: path, query: query}, &found) != nil {
		return nil
	}
	var lines []string
	for _, item := range found.Items {
		value, called := plainText(item[id]), ""
		if name != "" {
			if called = plainText(item[name]); called == "null" {
				called = ""
			}
		}
		about := strings.Trim(plainText(item["template"])+" "+plainText(item["state"]), " ")
		if called != "" {
			lines = append(lines, printable(called)+"\t"+value)
		}
		lines = append(lines, printable(value)+"\t"+strings.TrimSpace(printable(called)+" "+about))
	}
	return lines
}

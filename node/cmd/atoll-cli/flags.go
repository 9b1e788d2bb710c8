package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// usageError is what was typed and cannot be meant.
type usageError string

func (e usageError) Error() string { return string(e) }

// flags are read before, between and after the other words, as people type them.
type flags struct {
	*flag.FlagSet
	// program: the first word that is no flag begins the command line of a program, whose flags are its own.
	program bool
}

func newFlags(name string) flags {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return flags{FlagSet: set}
}

// parse returns the words that are no flags. After "--" there are only such.
func (f flags) parse(arguments []string) ([]string, error) {
	var words []string
	for rest := arguments; ; {
		if err := f.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, usageError("--help stands alone")
			}
			return nil, usageError(err.Error())
		}
		left := f.Args()
		ended := len(left) < len(rest) && rest[len(rest)-len(left)-1] == "--"
		if f.program || ended || len(left) == 0 {
			return append(words, left...), nil
		}
		words, rest = append(words, left[0]), left[1:]
	}
}

// pairs is a flag K=V that may come again and again.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("'%s' (expected: NAME=VALUE)", text)
	}
	p[name] = value
	return nil
}

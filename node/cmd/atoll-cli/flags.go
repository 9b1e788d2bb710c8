package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strconv"
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

// span is a flag or word for a time: seconds, or a number with a unit as in 90s, 15m, 2h, 7d. "none" is none.
type span struct {
	given bool
	// seconds is nil for none.
	seconds *float64
}

func (s *span) String() string { return "" }

func (s *span) Set(text string) error {
	s.given, s.seconds = true, nil
	if text == "none" {
		return nil
	}
	digits, unit := text, 1.0
	if len(text) > 0 {
		if factor, found := map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[text[len(text)-1]]; found {
			digits, unit = text[:len(text)-1], factor
		}
	}
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(number > 0) || math.IsInf(number, 0) {
		return fmt.Errorf("'%s' (expected: seconds, or as in 90s, 15m, 2h, 7d, or none)", text)
	}
	number *= unit
	s.seconds = &number
	return nil
}

// orZero is for fields where 0 means none.
func (s *span) orZero() float64 {
	if s.seconds == nil {
		return 0
	}
	return *s.seconds
}

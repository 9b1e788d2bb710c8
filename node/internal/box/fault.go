package box

import "fmt"

// FaultKind groups faults by what the caller can do about them.
type FaultKind int

// The kinds of faults, as the engine's protocol tells them apart.
const (
	NotFound FaultKind = iota + 1
	AlreadyExists
	Invalid
	FailedPrecondition
	Exhausted
	Unavailable
	Internal
	// Paused is a FailedPrecondition that a resume mends.
	Paused
	// Unsupported is what the box's runtime can't do.
	Unsupported
)

// Fault is an error that callers are told.
type Fault struct {
	Kind    FaultKind
	Message string
}

func (f *Fault) Error() string { return f.Message }

func fault(kind FaultKind, format string, values ...any) *Fault {
	return &Fault{Kind: kind, Message: fmt.Sprintf(format, values...)}
}

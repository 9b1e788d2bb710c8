package frame

import "slices"

// place is that of a stream among those of the methods that are served in order, which is the order in which the host opened them. Their handlers run at once; one
// that must not overtake another waits for its turn, and passes it on.
type place struct {
	// closed when the one before has passed its turn on; nil for the first
	before <-chan struct{}
	passed chan struct{}
	// used by the handler's goroutine only
	over bool
}

// takeTurn gives a new stream its place. For the goroutine that reads.
func (s *Session) takeTurn(st *Stream) {
	if !slices.Contains(s.inOrder, st.method) {
		return
	}
	st.place = &place{before: s.lastTurn, passed: make(chan struct{})}
	s.lastTurn = st.place.passed
}

// WaitTurn returns when each stream of such a method that the host opened earlier has passed its turn on or has ended, or with why this one has ended.
func (st *Stream) WaitTurn() error {
	if st.place == nil || st.place.before == nil {
		return nil
	}
	select {
	case <-st.place.before:
		return nil
	case <-st.ctx.Done():
		return contextStatus(st.ctx.Err())
	}
}

// PassTurn lets the next one go on.
func (st *Stream) PassTurn() {
	if st.place != nil && !st.place.over {
		st.place.over = true
		close(st.place.passed)
	}
}

// leaveTurn passes a turn on that the handler did not, once it has come.
func (st *Stream) leaveTurn() {
	if st.place == nil || st.place.over {
		return
	}
	if st.place.before != nil {
		select {
		case <-st.place.before:
		case <-st.session.ctx.Done():
		}
	}
	st.PassTurn()
}

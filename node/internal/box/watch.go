package box

import (
	"context"
	"sync"

	"atoll/node/gen/enginev1"
)

// Subscription follows the boxes of a node. A slow one gets fewer, newer
// states, never a growing queue.
type Subscription struct {
	mu sync.Mutex
	// order and latest are guarded by mu.
	order  []string
	latest map[string]*enginev1.Box
	wake   chan struct{}
}

func newSubscription() *Subscription {
	return &Subscription{latest: map[string]*enginev1.Box{}, wake: make(chan struct{}, 1)}
}

func (s *Subscription) put(box *enginev1.Box) {
	s.mu.Lock()
	if _, queued := s.latest[box.GetBoxId()]; !queued {
		s.order = append(s.order, box.GetBoxId())
	}
	s.latest[box.GetBoxId()] = box
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next returns the next change.
func (s *Subscription) Next(ctx context.Context) (*enginev1.Box, error) {
	for {
		s.mu.Lock()
		if len(s.order) > 0 {
			id := s.order[0]
			s.order = s.order[1:]
			box := s.latest[id]
			delete(s.latest, id)
			s.mu.Unlock()
			return box, nil
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

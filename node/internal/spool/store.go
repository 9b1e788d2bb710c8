package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Store holds the logs of one node by execution id.
type Store struct {
	dir   string
	sizes Sizes

	mu sync.Mutex
	// logs and kept are guarded by mu. kept logs are forgotten but for their files.
	logs map[string]*Log
	kept map[string]Owner
}

// Open reads what an earlier engine left in dir. Problems are sentences about spools that had to be dropped.
func Open(dir string, sizes Sizes) (store *Store, problems []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("spool: %w", err)
	}
	s := &Store{dir: dir, sizes: sizes, logs: map[string]*Log{}, kept: map[string]Owner{}}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, nil, fmt.Errorf("spool: %w", err)
	}
	for _, path := range paths {
		l, kept, err := load(path, sizes)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("spool %s is unreadable and was removed: %v", path, err))
			if err := os.RemoveAll(path); err != nil {
				return nil, nil, fmt.Errorf("spool: %w", err)
			}
		case kept:
			l.close()
			s.kept[l.owner.ExecutionID] = l.owner
		default:
			s.logs[l.owner.ExecutionID] = l
		}
	}
	return s, problems, nil
}

// Add makes an empty log; with an id that exists, it returns the log that is there, and false.
func (s *Store) Add(owner Owner) (l *Log, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.logs[owner.ExecutionID]; ok {
		return l, false
	}
	l = newLog(s.path(owner), owner, s.sizes)
	s.logs[owner.ExecutionID] = l
	return l, true
}

func (s *Store) path(owner Owner) string {
	return filepath.Join(s.dir, owner.BoxID, owner.ExecutionID)
}

// Discard takes back an Add of an execution that never started. Its readers get the cause.
func (s *Store) Discard(l *Log, cause error) error {
	s.mu.Lock()
	if s.logs[l.owner.ExecutionID] == l {
		delete(s.logs, l.owner.ExecutionID)
	}
	s.mu.Unlock()
	return errors.Join(l.forget(cause, false), s.removeIfEmpty(l.owner))
}

// Find returns the log of an execution that is not forgotten.
func (s *Store) Find(executionID string) (*Log, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.logs[executionID]
	return l, ok
}

// FindKept reads the log of an execution that is forgotten but kept on file.
func (s *Store) FindKept(executionID string) (*Log, error) {
	s.mu.Lock()
	owner, ok := s.kept[executionID]
	s.mu.Unlock()
	if !ok {
		return nil, os.ErrNotExist
	}
	l, _, err := load(s.path(owner), s.sizes)
	if err != nil {
		return nil, err
	}
	l.close()
	return l, nil
}

// Kept says whether an execution is forgotten but kept on file.
func (s *Store) Kept(executionID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, kept := s.kept[executionID]
	return kept
}

// All returns the logs that are not forgotten.
func (s *Store) All() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := make([]*Log, 0, len(s.logs))
	for _, l := range s.logs {
		logs = append(logs, l)
	}
	return logs
}

// Of returns the logs of one box that are not forgotten.
func (s *Store) Of(boxID string) []*Log {
	var logs []*Log
	for _, l := range s.All() {
		if l.owner.BoxID == boxID {
			logs = append(logs, l)
		}
	}
	return logs
}

// Forget drops an execution; with keep, what is on file stays until it is
// forgotten without. It succeeds for one that is not there.
func (s *Store) Forget(executionID string, keep bool) error {
	s.mu.Lock()
	l, live := s.logs[executionID]
	owner, kept := s.kept[executionID]
	if live {
		delete(s.logs, executionID)
		if keep && l.OnFile() {
			s.kept[executionID] = l.owner
		}
	} else if kept && !keep {
		delete(s.kept, executionID)
	}
	s.mu.Unlock()
	switch {
	case live:
		return errors.Join(l.forget(ErrForgotten, keep), s.removeIfEmpty(l.owner))
	case kept && !keep:
		return errors.Join(os.RemoveAll(s.path(owner)), s.removeIfEmpty(owner))
	}
	return nil
}

// removeIfEmpty removes the folder of a box without spools.
func (s *Store) removeIfEmpty(owner Owner) error {
	err := os.Remove(filepath.Join(s.dir, owner.BoxID))
	if err == nil || errors.Is(err, os.ErrNotExist) || isNotEmpty(err) {
		return nil
	}
	return err
}

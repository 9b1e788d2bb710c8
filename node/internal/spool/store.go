package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"weak"
)

// Store holds the logs of one node by execution id.
type Store struct {
	dir   string
	sizes Sizes

	// forgetting is held by who forgets, so that keeping and removing one log never mix.
	forgetting sync.Mutex

	mu sync.Mutex
	// logs and kept are guarded by mu. kept logs are forgotten but for their files.
	logs map[string]*Log
	kept map[string]keptLog
}

// keptLog is as little as can be: there may be a hundred thousand.
type keptLog struct {
	box string
	// whole says that it is one file, not a folder.
	whole bool
	// log is set while somebody uses it: what is forgotten must not be taken from its readers.
	log weak.Pointer[Log]
}

// Open reads what an earlier engine left in dir: of kept logs only the names.
// Problems are sentences about spools that had to be dropped.
func Open(dir string, sizes Sizes) (store *Store, problems []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("spool: %w", err)
	}
	s := &Store{dir: dir, sizes: sizes, logs: map[string]*Log{}, kept: map[string]keptLog{}}
	boxes, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("spool: %w", err)
	}
	for _, box := range boxes {
		found, err := s.openBox(box.Name())
		if err != nil {
			return nil, nil, fmt.Errorf("spool: %w", err)
		}
		problems = append(problems, found...)
	}
	return s, problems, nil
}

func (s *Store) openBox(box string) (problems []string, err error) {
	dir := filepath.Join(s.dir, box)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if err := s.openEntry(box, path, entry); err != nil {
			problems = append(problems, fmt.Sprintf("spool %s is unreadable and was removed: %v", path, err))
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
		}
	}
	return problems, removeIfEmpty(dir)
}

// openEntry takes in one log, or removes what is none.
func (s *Store) openEntry(box, path string, entry os.DirEntry) error {
	id, suffix, _ := strings.Cut(entry.Name(), "~")
	switch {
	case "~"+suffix == goneSuffix:
		return os.RemoveAll(path)
	case "~"+suffix == keptSuffix:
		s.kept[id] = keptLog{box: box, whole: true}
		return nil
	case "~"+suffix == wholeSuffix:
		l, err := loadWhole(path, filepath.Join(s.dir, box, id), s.sizes)
		if err != nil {
			return err
		}
		if l != nil {
			s.logs[l.owner.ExecutionID] = l
		}
		if l == nil || !l.onFile {
			return os.Remove(path)
		}
		return nil
	case entry.IsDir() && exists(filepath.Join(path, keptName)):
		s.kept[id] = keptLog{box: box}
		return nil
	}
	l, err := load(path, s.sizes)
	if err != nil {
		return err
	}
	s.logs[l.owner.ExecutionID] = l
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Add makes an empty log; with an id that exists, it returns the log that is there, and false.
func (s *Store) Add(owner Owner) (l *Log, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.logs[owner.ExecutionID]; ok {
		return l, false
	}
	l = newLog(filepath.Join(s.dir, owner.BoxID, owner.ExecutionID), owner, s.sizes)
	s.logs[owner.ExecutionID] = l
	return l, true
}

// Discard takes back an Add of an execution that never started. Its readers get the cause.
func (s *Store) Discard(l *Log, cause error) error {
	s.mu.Lock()
	if s.logs[l.owner.ExecutionID] == l {
		delete(s.logs, l.owner.ExecutionID)
	}
	s.mu.Unlock()
	l.stop(cause)
	return l.remove()
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
	k, ok := s.kept[executionID]
	s.mu.Unlock()
	if !ok {
		return nil, os.ErrNotExist
	}
	if l := k.log.Value(); l != nil {
		return l, nil
	}
	l, err := s.loadKept(k, executionID)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok = s.kept[executionID]
	if !ok {
		return nil, os.ErrNotExist
	}
	if other := k.log.Value(); other != nil {
		return other, nil
	}
	k.log = weak.Make(l)
	s.kept[executionID] = k
	return l, nil
}

func (s *Store) loadKept(k keptLog, executionID string) (*Log, error) {
	path := filepath.Join(s.dir, k.box, executionID)
	var l *Log
	var err error
	if k.whole {
		l, err = loadWhole(path+keptSuffix, path, s.sizes)
		if err == nil && (l == nil || !l.onFile) {
			err = fmt.Errorf("%s%s: %w", path, keptSuffix, errTorn)
		}
	} else if l, err = load(path, s.sizes); err == nil {
		l.close()
		if l.Finished() == nil {
			// Its end was lost with the disk; nothing more comes.
			l.stop(ErrForgotten)
		}
	}
	return l, err
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

// Forget drops an execution. With keep, it stays readable, and on file, until it
// is forgotten without; an error means that it could not be put there, and is
// not forgotten. It succeeds for one that is not there.
func (s *Store) Forget(executionID string, keep bool) error {
	s.forgetting.Lock()
	defer s.forgetting.Unlock()
	l, live := s.Find(executionID)
	switch {
	case live && keep:
		return s.keep(l)
	case live:
		s.mu.Lock()
		delete(s.logs, executionID)
		s.mu.Unlock()
		l.stop(ErrForgotten)
		return l.remove()
	case !keep:
		return s.forgetKept(executionID)
	}
	return nil
}

func (s *Store) keep(l *Log) error {
	if err := l.keep(); err != nil {
		if errors.Is(err, ErrForgotten) {
			return nil
		}
		return err
	}
	s.mu.Lock()
	delete(s.logs, l.owner.ExecutionID)
	s.kept[l.owner.ExecutionID] = keptLog{box: l.owner.BoxID, whole: l.isWhole(), log: weak.Make(l)}
	s.mu.Unlock()
	l.stop(ErrForgotten)
	return nil
}

func (s *Store) forgetKept(executionID string) error {
	s.mu.Lock()
	k, ok := s.kept[executionID]
	delete(s.kept, executionID)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	if l := k.log.Value(); l != nil {
		l.stop(ErrForgotten)
		return l.remove()
	}
	path := filepath.Join(s.dir, k.box, executionID)
	if k.whole {
		path += keptSuffix
	}
	return errors.Join(os.RemoveAll(path), removeIfEmpty(filepath.Dir(path)))
}

// removeIfEmpty removes the folder of a box without spools.
func removeIfEmpty(dir string) error {
	err := os.Remove(dir)
	if err == nil || errors.Is(err, os.ErrNotExist) || isNotEmpty(err) {
		return nil
	}
	return err
}

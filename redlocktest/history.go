package redlocktest

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// History is what happened in a test, from however many goroutines and
// processes, in a form that can be checked afterwards. Its methods are safe for
// concurrent use.
//
// One made by [NewHistory] lives in memory. One made by [OpenHistory] appends to
// a file that several processes may share; what is asked of it is answered from
// the file, so it includes what the others recorded.
type History struct {
	clock func() time.Duration // this group is set by whoever makes the History, then read-only
	file  *historyFile         // nil: in memory

	mu      sync.Mutex // guards the fields below
	records []Record
	torn    int // lines of a file that were cut off and left out
}

// HistoryOption configures a [History].
type HistoryOption func(*History)

// WithClock gives a history a clock of its own. Default: the clock that all
// processes of the machine share, which goes on while one of them is frozen; on
// Linux nobody can set it, and it goes on while the machine is suspended. In virtual time (testing/synctest) use
//
//	start := time.Now()
//	h := redlocktest.NewHistory(redlocktest.WithClock(func() time.Duration { return time.Since(start) }))
func WithClock(now func() time.Duration) HistoryOption {
	return func(h *History) { h.clock = now }
}

// NewHistory makes an empty history in memory.
func NewHistory(opts ...HistoryOption) *History {
	h := &History{clock: machineTime}
	for _, o := range opts {
		o(h)
	}
	return h
}

// Now reads the history's clock.
func (h *History) Now() time.Duration { return h.clock() }

// Add records r. An At of zero is set to now. A history in a file has written r
// when Add returns; if that fails, all checks fail with the error.
func (h *History) Add(r Record) {
	if r.At == 0 {
		r.At = h.Now()
	}
	if h.file != nil {
		h.file.append(r)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, r)
}

// Records returns all records in the order of At, and those of the same At in
// the order in which they were added. Of a file that cannot be read they are
// none, and [History.Err] says why.
func (h *History) Records() []Record {
	all, _ := h.load()
	return all
}

// Err returns why something could not be written to the history's file, or why
// the file cannot be read. Every check returns it too.
func (h *History) Err() error {
	_, err := h.load()
	return err
}

// Torn returns how many lines of files were left out because the process that
// wrote them was killed in the middle.
func (h *History) Torn() int {
	if h.file != nil {
		read, err := h.file.read()
		if err != nil {
			return 0
		}
		h = read
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.torn
}

// load is Records with the error.
func (h *History) load() ([]Record, error) {
	if h.file != nil {
		read, err := h.file.read()
		if err != nil {
			return nil, err
		}
		h = read
	}
	h.mu.Lock()
	all := slices.Clone(h.records)
	h.mu.Unlock()
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

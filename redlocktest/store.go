package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStale is what a [Store] answers to a write whose fence is below one that it
// has seen.
var ErrStale = errors.New("redlocktest: stale fence: a later owner has written")

// Store is what a lock protects, as far as a test has to know: a counter for each
// resource, with the fence of its last writer beside it. Implement it over the
// database under test to see whether its guard holds.
type Store interface {
	// Increment adds one to the counter of resource and returns its new value. If
	// fence is lower than one of an earlier call for that resource it changes
	// nothing and returns an error that matches ErrStale. Comparing, remembering
	// the fence and adding are one step for everybody else. Any other error means
	// that the write may or may not have happened.
	Increment(ctx context.Context, resource string, fence uint64) (int64, error)
}

// MemoryStore is a [Store] in memory.
type MemoryStore struct {
	mu       sync.Mutex // guards the field below
	counters map[string]counter
}

type counter struct {
	fence uint64
	value int64
}

// NewStore makes a store without counters: each begins at 0.
func NewStore() *MemoryStore { return &MemoryStore{counters: map[string]counter{}} }

// Increment implements [Store].
func (s *MemoryStore) Increment(ctx context.Context, resource string, fence uint64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[resource]
	if fence < c.fence {
		return 0, fmt.Errorf("%w: %d after %d", ErrStale, fence, c.fence)
	}
	c = counter{fence, c.value + 1}
	s.counters[resource] = c
	return c.value, nil
}

// Value returns the counter of resource.
func (s *MemoryStore) Value(resource string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[resource].value
}

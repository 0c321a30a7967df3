package redlocktest

import (
	"sync"
	"time"
)

// clock is a node's clock: the real one, and a step.
type clock struct {
	mu     sync.Mutex // guards offset
	offset time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

package redlocktest

import (
	"sync"
	"time"
)

// clock is a node's clock: the real one, a step, and a rate.
type clock struct {
	mu     sync.Mutex // guards the fields below
	offset time.Duration
	rate   float64   // how much faster than the real one it runs, as a share
	since  time.Time // from when on
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Add(c.offset + c.gainedLocked(now))
}

// gainedLocked is by how much the clock got ahead since it has its rate. c.mu must be held.
func (c *clock) gainedLocked(now time.Time) time.Duration {
	if c.rate == 0 {
		return 0
	}
	return time.Duration(c.rate * float64(now.Sub(c.since)))
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// run sets the rate from now on.
func (c *clock) run(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.offset += c.gainedLocked(now)
	c.rate, c.since = rate, now
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// plan is what a worker is about to do with one lock.
type plan struct {
	resources []string
	try       bool          // ask once
	patience  time.Duration // how long to wait
	hold      time.Duration
	extend    bool          // Extend now and then
	lease     time.Duration // a fixed life
	maxHold   time.Duration
	trusts    bool // ask nothing, wait to be told
	late      bool // write once more although the lock is lost: the store has to refuse
}

// run takes and gives back locks until ctx ends.
func (c *worker) run(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		if c.a.Holds > 0 && c.acquired.Load() >= c.a.Holds {
			return
		}
		c.do(ctx, rng, c.think(rng))
		if !c.a.Calm {
			pause(ctx, upTo(rng, 100*time.Millisecond))
		}
	}
}

// probe takes a lock that nobody else wants, again and again: it is had whenever locks are to be had at all.
func (c *worker) probe(ctx context.Context, rng *rand.Rand) {
	p := plan{resources: []string{probePrefix + c.a.Name}, try: true, patience: c.a.TTL, hold: time.Millisecond}
	for ctx.Err() == nil {
		c.do(ctx, rng, p)
		pause(ctx, 50*time.Millisecond+upTo(rng, 100*time.Millisecond))
	}
}

const probePrefix = "probe-"

// think chooses what to do next.
func (c *worker) think(rng *rand.Rand) plan {
	p := plan{patience: 3 * c.a.TTL, resources: []string{c.resource(rng)}, hold: 2*time.Millisecond + upTo(rng, 60*time.Millisecond)}
	if c.a.Calm {
		p.patience, p.hold = time.Minute, upTo(rng, 2*time.Millisecond)
		if rng.IntN(300) == 0 {
			p.hold = 2 * c.a.TTL // renewals
		}
		return p
	}
	switch rng.IntN(20) {
	case 0, 1: // two or three at once, in any order
		p.resources = append(p.resources, c.resource(rng), c.resource(rng))
	case 2, 3:
		p.try = true
	case 4: // somebody loses patience in the middle
		p.patience = upTo(rng, 30*time.Millisecond)
	case 5:
		p.lease = c.a.TTL
		p.trusts = rng.IntN(2) == 0
		p.hold = upTo(rng, c.a.TTL*4/3)
	case 6:
		p.maxHold = c.a.TTL * 3 / 2
		p.hold = upTo(rng, 2*c.a.TTL)
	case 7, 8:
		p.extend = true
		p.hold = upTo(rng, 2*c.a.TTL)
	case 9, 10: // long enough to be renewed
		p.hold = upTo(rng, 4*c.a.TTL)
		p.trusts = rng.IntN(2) == 0
	}
	p.late = rng.IntN(3) == 0
	return p
}

func (c *worker) resource(rng *rand.Rand) string {
	if c.a.Calm { // nobody is to wait behind those who hold for long
		return fmt.Sprint("r", rng.IntN(1000))
	}
	return fmt.Sprint("r", rng.IntN(c.a.Resources))
}

// do takes a lock, works under it and gives it back.
func (c *worker) do(ctx context.Context, rng *rand.Rand, p plan) {
	wait, cancel := context.WithTimeout(ctx, p.patience)
	h, err := c.lock.acquire(wait, p)
	cancel()
	if err != nil {
		c.failed.Add(1)
		return
	}
	c.acquired.Add(1)
	c.work(ctx, rng, p, h)
	// Not ctx: what is held when the process is told to end is given back all the same.
	_ = h.Unlock(context.Background())
}

// work writes for as long as the lock is valid, and a last time if it is to be late.
func (c *worker) work(ctx context.Context, rng *rand.Rand, p plan, h hold) {
	over := time.After(p.hold)
	for ctx.Err() == nil {
		if !h.Check() {
			c.lost.Add(1)
			if p.late {
				c.write(h)
			}
			return
		}
		c.write(h)
		if p.trusts {
			select {
			case <-over:
				return
			case <-h.Lost():
			case <-ctx.Done():
			}
			continue
		}
		if p.extend && rng.IntN(4) == 0 {
			_ = h.Extend(ctx)
		}
		select {
		case <-over:
			return
		case <-h.Lost(): // the next Check says so, too
		case <-ctx.Done():
		case <-time.After(5*time.Millisecond + upTo(rng, 200*time.Millisecond)):
		}
	}
}

func (c *worker) write(h hold) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	switch err := h.Write(ctx, c.store); {
	case err == nil:
		c.writes.Add(1)
	case errors.Is(err, redlocktest.ErrStale):
		c.refused.Add(1)
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
